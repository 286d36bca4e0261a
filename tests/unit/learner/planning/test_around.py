"""What a step is told of the loss around the public model, by the public records."""

import numpy as np
import pytest

from common.domain import Domain
from common.losses import LOSSES, Regulariser, Squared
from common.terms import Records
from learner.algorithms.shrinkage import whitening
from learner.planning.around import around_drifting, around_public, largest_gradient
from learner.simulated.groups import PublicGroups
from learner.simulated.problem import Problem


def public_of(name="squared", *, trend=0.0, n=3000):
    rng, loss = np.random.default_rng(1), LOSSES[name].example()
    x = rng.normal(size=(n, 3)) + trend * np.linspace(-1.0, 1.0, n)[:, None]
    y = x @ [0.4, -0.3, 0.2] + rng.normal(size=n)
    targets = np.where(y > 0, 1.0, -1.0) if loss.has_classes() else y
    problem = Problem(loss=loss, regulariser=Regulariser(coefficient=0.0), theta_max=9.0)
    return PublicGroups(problem=problem, records=Records(features=x, targets=targets), labels=None)


@pytest.mark.parametrize("name", ["squared", "logistic"])
def test_the_spread_of_the_curvature_is_the_mean_variance_of_its_entries_by_chance(name):
    public = public_of(name)
    around = around_public(public, None)
    rows = public.records.features @ whitening(around.curvature)
    each = public.problem.curvatures(around.theta, public.records, None)
    entries = each[:, None, None] * rows[:, :, None] * rows[:, None, :]
    expected = np.var(entries, axis=0).mean() / len(rows)
    assert around.curvature_spread == pytest.approx(expected, rel=1e-9)


def test_where_records_drift_the_owners_curvature_differs_by_a_tenth_at_least():
    steady, drifting = public_of(), public_of(trend=1.0)
    assert drifting.drifts
    assert not steady.drifts
    for public, least in ((steady, 0.0), (drifting, 0.01)):
        told = around_drifting(public, None, doubts=True)
        chance = around_public(public, None).curvature_spread
        assert chance < 0.01
        assert told.curvature_spread == max(chance, least)
        assert told.doubt == least


def test_no_admissible_record_has_a_longer_gradient_at_the_public_model():
    """Where a radius keeps margins smaller than the features' own bounds do."""
    problem = Problem(loss=Squared(), regulariser=Regulariser(coefficient=0.0), theta_max=9.0)
    x = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    public = PublicGroups(
        problem=problem, records=Records(features=x, targets=x @ [2.0, 3.0]), labels=None
    )
    domain = Domain(feature_bound=np.ones(2), target_bound=4.0, l1_radius=1.5)
    # One feature at its bound and half of the other have a margin of 4; a target of -4 opposes it.
    at_most = largest_gradient(public, domain)
    assert 2.0 * (4.0 + 4.0) * 1.5 <= at_most == pytest.approx(2.0 * (4.5 + 4.0) * 1.5)
