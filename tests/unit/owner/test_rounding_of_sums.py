"""What the noise counts for rounding covers what sums lose, whatever the records are."""

import math
from fractions import Fraction

import numpy as np
import pytest

from common.domain import Domain
from common.losses import Hinge
from common.privacy import UNIT_ROUNDOFF, l1_sensitivity, plan_noise
from common.stretches import STRETCHES, block_records, longest_chain, stretches
from common.terms import Records
from owner.gradients import by_compiled_code, in_blocks
from owner.sums import in_order, moment_sums

HALF = UNIT_ROUNDOFF
# The first of a stretch is so large that each further one is rounded off, the same way.
PATTERNS = {
    "swallowed": lambda m: np.r_[1.0, np.full(m - 1, HALF)],
    "swallowed up": lambda m: np.r_[1.0, np.full(m - 1, 1.000001 * HALF)],
    "swallowed at the end": lambda m: np.r_[np.full(m - 1, HALF), 1.0],
    "ascending": lambda m: np.geomspace(1e-12, 1.0, m),
    "descending": lambda m: np.geomspace(1.0, 1e-12, m),
    "thirds": lambda m: np.full(m, 1 / 3),
    "cancelling": lambda m: np.where(np.arange(m) % 2, -1.0, 1.0) * np.linspace(1 / 3, 1, m),
}


@pytest.fixture(autouse=True)
def small_blocks(blocks_of):
    blocks_of(2**6)


def shard_of(pattern, n):
    """One feature, whose stretches have the pattern each; only the first begins with a giant."""
    ranges = stretches(n, 1)
    parts = [PATTERNS[pattern](stop - start) for start, stop in ranges]
    if pattern.startswith("swallowed"):
        parts[1:] = [np.full(len(part), HALF) for part in parts[1:]]
    return np.concatenate(parts)[:, None]


def sums_of(features):
    """The sum of all records by each way in which an owner adds."""
    n = len(features)
    ones = np.ones(n)
    # At this model each slope of a record of class -1 is 1.
    records, theta, loss = Records(features=features, targets=-ones), np.zeros(1), Hinge()
    parts = {
        "blocks": in_blocks(records, np.zeros(0), theta, loss=loss, clip=None),
        "compiled": by_compiled_code(records, theta, loss=loss, clip=None),
    }
    found = {name: in_order(part, n, 1, threads=1)[0] for name, part in parts.items() if part}
    return {name: float(total[0]) for name, total in found.items()} | {
        "moments": float(moment_sums(features, ones, threads=1)[1][0])
    }


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("blocks", [0.5, 1, 2.5, STRETCHES, 3 * STRETCHES + 1, 20 * STRETCHES])
def test_no_sum_is_off_by_more_than_the_noise_counts(pattern, blocks):
    """In exact arithmetic, for sums that lose the same at each addition."""
    features = shard_of(pattern, int(blocks * block_records(1)))
    exact = sum(map(Fraction, features[:, 0].tolist()))
    size = sum(abs(Fraction(x)) for x in features[:, 0].tolist())
    chain = longest_chain(*features.shape) * Fraction(UNIT_ROUNDOFF)
    most = chain / (1 - chain) * size
    for way, total in sums_of(features).items():
        assert abs(Fraction(total) - exact) <= most, way


def test_one_addition_after_another_loses_nearly_what_is_counted():
    """So no smaller number of additions would do."""
    pytest.importorskip("numba")
    n = 20 * STRETCHES * block_records(1)
    features = shard_of("swallowed", n)
    exact = sum(map(Fraction, features[:, 0].tolist()))
    lost = abs(Fraction(sums_of(features)["compiled"]) - exact)
    counted = longest_chain(n, 1) * Fraction(UNIT_ROUNDOFF)
    assert Fraction(9, 10) * counted < lost < counted < Fraction(n, 10) * Fraction(UNIT_ROUNDOFF)


def test_joining_the_stretches_counts_and_one_block_counts_its_records():
    rows = block_records(1)
    assert longest_chain(rows, 1) == rows
    assert longest_chain(2 * STRETCHES * rows, 1) == 2 * rows + STRETCHES - 1


@pytest.mark.parametrize(("n", "times"), [(10**7, 1.001), (10**8, 1.075), (10**9, 8.0)])
def test_many_records_need_little_more_noise_than_the_formula(n, times, monkeypatch, make_terms):
    monkeypatch.undo()
    stretches.cache_clear()
    terms = make_terms(responses=1, epsilon=Fraction(1), clip=0.5)
    domain = Domain(feature_bound=np.ones(1), target_bound=1.0)
    formula = l1_sensitivity(gradient_bound=0.5, num_records=n)  # epsilon and m are 1
    planned = plan_noise(terms, domain, num_records=n).noise_scale
    counted = longest_chain(n, 1) * UNIT_ROUNDOFF * n
    assert 1 + counted < planned / formula < times
    assert math.isclose(planned / formula, 1 + counted, rel_tol=1e-3)


def test_a_validation_whose_sums_have_another_order_counts_all_records(monkeypatch, make_terms):
    monkeypatch.undo()
    stretches.cache_clear()
    asked = {"release": "validation", "responses": 1, "clip": None, "loss_bound": 1.0}
    terms = make_terms(epsilon=Fraction(1), **asked)
    domain = Domain(feature_bound=np.ones(1), target_bound=1.0)
    planned = plan_noise(terms, domain, num_records=10**8).noise_scale
    assert planned * 10**8 > 1 + 2 * 10**16 * UNIT_ROUNDOFF
