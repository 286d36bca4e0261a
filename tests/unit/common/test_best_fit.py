"""The best model of records that are here is the one with the least loss, near its center."""

import numpy as np
import pytest

from common.best_fit import fit_near
from common.losses import LOSSES
from common.terms import Records

RNG = np.random.default_rng(7)
X = np.column_stack([RNG.normal(size=(300, 3)), np.ones(300)])
Z = X @ [1.0, -2.0, 0.5, 0.2] + RNG.normal(size=300)
CENTER = np.array([0.5, 0.5, -0.5, 0.0])


def records(loss):
    return Records(features=X, targets=np.sign(Z) if loss.targets else Z)


def objective(theta, loss, weight):
    own = records(loss)
    away = theta - CENTER
    return loss.mean_value(theta, own.features, own.targets) + weight * float(away @ away)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("weight", [1e-6, 1e-3, 0.1, 10.0])
def test_no_model_nearby_is_better(name, weight):
    loss = LOSSES[name].example()
    theta = fit_near(records(loss), loss, center=CENTER, weight=weight)
    best = objective(theta, loss, weight)
    rng = np.random.default_rng(1)
    for size in (1e-3, 1e-2, 0.3):
        for _ in range(30):
            other = theta + size * rng.normal(size=4)
            assert objective(other, loss, weight) >= best - 1e-7


@pytest.mark.parametrize("name", LOSSES)
def test_a_heavy_weight_keeps_the_center(name):
    loss = LOSSES[name].example()
    theta = fit_near(records(loss), loss, center=CENTER, weight=1e9)
    np.testing.assert_allclose(theta, CENTER, atol=1e-6)


def test_nothing_to_fit_is_refused():
    loss = LOSSES["squared"].example()
    with pytest.raises(ValueError, match="weight"):
        fit_near(records(loss), loss, center=CENTER, weight=float("nan"))
    with pytest.raises(ValueError, match="at least one"):
        fit_near(Records(features=X[:0], targets=Z[:0]), loss, center=CENTER, weight=1.0)


@pytest.mark.parametrize("weight", [1e-9, 1e-3, 1e3])
def test_separable_records_are_fitted_too(weight):
    apart = Records(features=X, targets=np.sign(X @ [1.0, -2.0, 0.5, 0.2]))
    loss = LOSSES["hinge"].example()
    theta = fit_near(apart, loss, center=np.zeros(4), weight=weight)
    value = loss.mean_value(theta, apart.features, apart.targets) + weight * theta @ theta
    assert value <= min(1.0, 1e6 * weight)
