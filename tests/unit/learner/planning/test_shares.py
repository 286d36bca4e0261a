"""How much owners' answers count: by their records, by their budgets, and what lies between."""

import numpy as np
import pytest

from common.losses import LOSSES, Regulariser
from common.terms import Records
from learner.planning.shares import best_shares, counted_shares
from learner.simulated.groups import PublicGroups
from learner.simulated.problem import Problem

SIZES = np.array([4000.0, 300.0, 300.0, 40.0])
RECORDS = SIZES / SIZES.sum()
LOUD = 40.0 / SIZES
UNKNOWN = [None] * 4
LABELS = np.arange(1200) % 4


def error(shares, varies, noise):
    """Of the gradient that is released, in the mean."""
    return float(np.sum((shares - RECORDS) ** 2 * varies + shares**2 * noise))


def public_of(labels=LABELS, *, apart=0.0, trend=0.0):
    """Records whose slope changes along the table, and is another in group 3."""
    rng = np.random.default_rng(1)
    x, loss = rng.normal(size=(1200, 2)), LOSSES["squared"].example()
    problem = Problem(loss=loss, regulariser=Regulariser(coefficient=0.0), theta_max=99.0)
    slope = 1.0 + trend * np.linspace(-1.0, 1.0, 1200)
    if labels is not None:
        slope = slope + apart * (labels == 3)
    records = Records(features=x, targets=x[:, 0] * slope + rng.normal(size=1200))
    return PublicGroups(problem=problem, records=records, labels=labels)


@pytest.mark.parametrize("loud", [1e-3, 1.0, 1e3])
def test_no_other_shares_have_less_error(loud):
    noise, varies = loud / SIZES**2, 1e-5 + 0.1 / SIZES
    best = best_shares(SIZES, varies, noise)
    assert best.sum() == pytest.approx(1.0)
    assert best.min() > 0
    rng = np.random.default_rng(2)
    for _ in range(200):
        moved = rng.normal(size=len(SIZES))
        other = best + 1e-3 * (moved - moved.mean())
        assert error(other, varies, noise) > error(best, varies, noise)


def test_owners_count_by_their_records_or_by_their_budgets():
    silent, alike = np.zeros(4), np.full(4, 1e-30)
    assert best_shares(SIZES, np.ones(4), silent) == pytest.approx(RECORDS)
    assert best_shares(SIZES, alike, 1.0 / SIZES**2) == pytest.approx(SIZES**2 / np.sum(SIZES**2))
    same = np.full(4, 7.0)
    assert best_shares(same, np.ones(4), np.ones(4)) == pytest.approx(same / same.sum())


def test_an_owner_of_few_records_or_of_a_small_budget_counts_less():
    epsilon = np.array([1.0, 1.0, 0.1, 1.0])
    shares = counted_shares(public_of(), SIZES, LOUD / epsilon, known=UNKNOWN)
    assert shares.sum() == pytest.approx(1.0)
    assert shares[2] < 0.1 * shares[1]
    assert 0 < shares[3] < RECORDS[3]


@pytest.mark.parametrize(
    ("sizes", "scales"),
    [
        # Nothing to win: owners alike, or no noise, or so little that what they differ by decides.
        (np.array([400.0, 401.0, 399.0, 400.0]), 40.0 / np.array([400.0, 401.0, 399.0, 400.0])),
        (SIZES, np.zeros(4)),
        (SIZES, 1e-3 * LOUD),
    ],
)
def test_owners_count_by_their_records_unless_a_quarter_is_won(sizes, scales):
    assert counted_shares(public_of(), sizes, scales, known=UNKNOWN) is None


def test_owners_are_taken_to_differ_by_chance_and_by_what_is_assumed_at_least():
    """Groups that are alike say nothing of owners beyond them."""
    public = public_of()
    found = public.components
    assert found.all_groups < 0.01 * found.within
    varies = 0.1**2 * found.within + found.within / SIZES
    noise = 2.0 * LOUD**2 * np.trace(public.whitening @ public.whitening.T)
    told = counted_shares(public, SIZES, LOUD, known=UNKNOWN)
    assert told == pytest.approx(best_shares(SIZES, varies, noise), rel=1e-9)


def test_a_known_owner_that_differs_more_than_others_counts_more():
    alike = counted_shares(public_of(), SIZES, LOUD, known=[0, 1, 2, 3])
    differing = counted_shares(public_of(apart=0.5), SIZES, LOUD, known=[0, 1, 2, 3])
    assert alike[3] < differing[3] < RECORDS[3]
    assert counted_shares(public_of(apart=9.0), SIZES, LOUD, known=[0, 1, 2, 3]) is None


def test_where_records_drift_owners_count_by_their_records():
    assert counted_shares(public_of(trend=1.0), SIZES, LOUD, known=UNKNOWN) is None


@pytest.mark.parametrize("labels", [None, np.zeros(1200, dtype=np.intp)])
def test_records_of_no_groups_or_of_one_say_nothing_of_owners(labels):
    assert counted_shares(public_of(labels), SIZES, LOUD, known=UNKNOWN) is None
