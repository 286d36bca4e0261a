"""The best model for hinge loss under next to no weight on its length, against a linear program."""

import numpy as np
import pytest
from scipy.optimize import linprog

from common.hinge_program import least_hinge


def least_value(Z, box):
    """The least mean hinge loss of a model of the box, by a library."""
    n, p = Z.shape
    found = linprog(
        np.r_[np.zeros(p), np.full(n, 1.0 / n)],
        A_ub=np.c_[-Z, -np.eye(n)],
        b_ub=-np.ones(n),
        bounds=[(-box, box)] * p + [(0.0, None)] * n,
    )
    return float(found.fun)


@pytest.mark.parametrize("weight", [0.0, 1e-9, 1e-5])
@pytest.mark.parametrize("case", range(12))
def test_a_weight_of_next_to_nothing_ends_in_no_nan(case, weight):
    rng = np.random.default_rng(case)
    n, p, box = int(rng.integers(100, 600)), 7, float(rng.choice([0.01, 0.5, 10.0]))
    x = rng.integers(0, 3, (n, p)) * rng.choice([0.1, 1.0, 2.0], p)
    x[:, 0] = 1.0
    shown = x[:, 1] + rng.normal(0.0, rng.choice([0.1, 1.0]), n)
    classes = np.where(shown > np.quantile(shown, 0.9), 1.0, -1.0)
    Z = x * classes[:, None]
    theta = least_hinge(Z, np.ones(n), weight=weight, box=box)
    assert np.abs(theta).max() <= box
    lost = float(np.mean(np.maximum(0.0, 1.0 - Z @ theta)))
    assert lost <= least_value(Z, box) + weight * p * box**2 + 1e-8


@pytest.mark.parametrize("case", range(20))
def test_features_of_very_different_size_and_columns_that_repeat_are_no_trouble(case):
    rng = np.random.default_rng([1, case])
    n, p, box = int(rng.integers(3, 300)), int(rng.integers(2, 9)), float(10 ** rng.uniform(-3, 3))
    x = rng.integers(-2, 3, (n, p)) * 10.0 ** rng.uniform(-6, 3, p)
    x[:, 1] = x[:, 0]
    Z = x * np.where(rng.random(n) < 0.5, 1.0, -1.0)[:, None]
    theta = least_hinge(Z, np.ones(n), weight=0.0, box=box)
    assert np.abs(theta).max() <= box
    assert np.mean(np.maximum(0.0, 1.0 - Z @ theta)) <= least_value(Z, box) + 1e-8


# Shards at which the quick way ends at a wall, up to a third above the least value.
@pytest.mark.parametrize("case", [14, 24, 103])
@pytest.mark.parametrize("weight", [0.0, 1e-6, 1e-5])
def test_a_few_records_that_are_far_longer_than_the_others_leave_the_model_the_best(case, weight):
    rng = np.random.default_rng([2, case])
    n, p, box = 1000, int(rng.integers(2, 12)), float(rng.choice([10.0, 100.0, 1000.0]))
    x = np.clip(rng.normal(size=(n, p)) ** 5, -50.0, 50.0)
    x[:, -1] = 1.0
    shown = x @ rng.normal(size=p) + rng.normal(size=n) * rng.choice([1.0, 10.0])
    Z = x * np.where(shown > 2.0, 1.0, -1.0)[:, None]
    theta = least_hinge(Z, np.ones(n), weight=weight, box=box)
    assert np.abs(theta).max() <= box
    assert _value(Z, theta, weight) <= least_value(Z, box) * (1 + 1e-9) + weight * p * box**2
    # None of many on all ways out of it is better, and the value is convex.
    away = rng.normal(size=(500, p)) * box * 10.0 ** rng.uniform(-6, 0, (500, 1))
    others = [_value(Z, one, weight) for one in np.clip(theta + away, -box, box)]
    assert min(others) >= _value(Z, theta, weight) * (1 - 1e-9)


def _value(Z, theta, weight):
    """What the model is to make small."""
    return float(weight * theta @ theta + np.mean(np.maximum(0.0, 1.0 - Z @ theta)))
