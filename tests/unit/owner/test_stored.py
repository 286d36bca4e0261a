"""Records stored in float32 keep every public bound, so their rounding costs no privacy."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.domain import Domain
from common.losses import LOSSES, loss_of
from common.privacy import _rounding_error, plan_noise
from common.releases import gradient_bound
from common.terms import Records
from owner.core import exact_answer
from owner.shards import Shard
from owner.stored import stored_float32

ANY = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(ANY, min_size=1, max_size=20))
def test_no_stored_feature_is_larger_or_of_another_sign(numbers):
    x = np.array([numbers])
    stored = stored_float32(x).astype(np.float64)
    assert np.all(np.isfinite(stored))
    assert np.all(np.abs(stored) <= np.abs(x))
    assert np.all((np.sign(stored) == np.sign(x)) | (stored == 0))
    # In real numbers, not only as they are added.
    assert sum(map(Fraction, np.abs(stored[0]))) <= sum(map(Fraction, np.abs(x[0])))


@given(st.floats(2.0**-126, 2.0**127), st.sampled_from([-1.0, 1.0]))
def test_a_feature_loses_less_than_a_unit_of_float32(size, sign):
    x = np.array([[sign * size]])
    lost = abs(float(x[0, 0]) - float(stored_float32(x)[0, 0]))
    assert lost < 2.0**-23 * size


def test_what_float32_can_hold_is_stored_as_it_is():
    x = np.array([[1.0, 0.0, -0.5, 3.0, 2.0**-140]])
    np.testing.assert_array_equal(stored_float32(x), x)


def test_rounding_to_the_nearest_would_pass_a_bound():
    """The other half: why the direction matters."""
    bound = np.array([[0.1]])
    assert float(bound.astype(np.float32)[0, 0]) > bound[0, 0]
    assert float(stored_float32(bound)[0, 0]) <= bound[0, 0]


P = 6
DOMAIN = Domain(feature_bound=np.full(P, 0.1), target_bound=1.0, l1_radius=0.3)
# As wide as features are when every one is at its bound and the radius cuts them.
X = np.random.default_rng(5).choice([-0.05, 0.05], size=(40, P)) * (1 - 1e-9)
Y = np.sign(np.random.default_rng(6).normal(size=40))


@pytest.mark.parametrize("clip", [None, 0.01, 0.05])
@pytest.mark.parametrize("loss", LOSSES)
def test_what_is_counted_bounds_what_a_stored_record_moves(make_terms, loss, clip):
    delta = 0.5 if loss == "huber" else None
    terms = make_terms(loss=loss, delta=delta, clip=clip, theta_max=2.0)
    plan = plan_noise(terms, DOMAIN, num_records=len(Y))
    counted = float(np.ldexp(plan.sensitivity_units, plan.grid_exponent))
    targets = Y.copy()
    targets[3] = -Y[3]
    corner = 2.0 * np.sign(X[3])
    answers = [
        exact_answer(Shard(Records(features=stored_float32(x), targets=y)), corner, terms)
        for x, y in ((X, Y), (X, targets))
    ]
    moved = np.abs(answers[0] - answers[1]).sum()
    assert moved <= counted
    # Not by being far too wide: nearly all of it is used.
    assert moved > (0.1 if clip is None else 0.5) * counted


@pytest.mark.parametrize("clip", [None, 0.01])
@pytest.mark.parametrize("loss", ["squared", "huber", "hinge"])
def test_the_counted_rounding_bounds_the_true_one(make_terms, loss, clip):
    """Against the same sums in rational numbers, of the records as they are stored."""
    delta = 0.5 if loss == "huber" else None
    terms = make_terms(loss=loss, delta=delta, clip=clip, theta_max=2.0)
    stored = stored_float32(X * 0.7)
    theta = np.linspace(-2, 2, P)
    told = exact_answer(Shard(Records(features=stored, targets=Y)), theta, terms)
    exact = [Fraction(0)] * P
    for row, target in zip(stored.astype(np.float64), Y, strict=True):
        x, y = list(map(Fraction, row)), Fraction(target)
        z = sum((a * Fraction(b) for a, b in zip(x, theta, strict=True)), Fraction(0))
        s = {
            "squared": 2 * (z - y),
            "huber": max(min(z - y, Fraction(1, 2)), -Fraction(1, 2)),
            "hinge": -y if y * z < 1 else Fraction(0),
        }[loss]
        if clip is not None:
            most = Fraction(clip) / sum(map(abs, x))
            s = max(min(s, most), -most)
        exact = [total + s * a for total, a in zip(exact, x, strict=True)]
    error = sum(abs(Fraction(g) - e / len(Y)) for g, e in zip(told, exact, strict=True))
    assert float(error) <= _rounding_error(terms, DOMAIN, len(Y))
    assert gradient_bound(terms, DOMAIN) >= 0
    assert loss_of(terms).name == loss
