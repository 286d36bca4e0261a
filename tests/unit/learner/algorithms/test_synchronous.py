"""The synchronous algorithms against plain loops written from the paper's update rules."""

import math
from itertools import islice

import numpy as np
import pytest

from common.errors import InputError
from common.losses import Regulariser
from learner.algorithms.clocks import synchronous_rounds
from learner.algorithms.synchronous import SynchronousAverage, SynchronousDescent

P, N, T = 3, 4, 25
WEIGHTS = np.array([0.1, 0.2, 0.3, 0.4])


def common_settings(**changes):
    settings = {
        "weights": WEIGHTS,
        "num_features": P,
        "theta_max": 0.5,
        "regulariser": Regulariser(coefficient=0.1),
        "horizon": T,
    }
    return settings | changes


def responses_at(theta, k):
    """Mean gradients of N quadratics, with repeatable noise."""
    rng = np.random.default_rng(k)
    curvature = np.arange(1.0, N + 1)
    return {i: curvature[i] * (theta - 0.4) + rng.laplace(0, 0.5, P) for i in range(N)}


def play(algorithm):
    state, queries = algorithm.initial_state(), []
    for k, tick in enumerate(islice(synchronous_rounds(N), T), start=1):
        theta = algorithm.query_point(state, tick)
        queries.append(theta)
        state = algorithm.apply_responses(state, tick, responses_at(theta, k))
    return algorithm.central_model(state), np.array(queries)


def gradient(theta, k):
    answers = responses_at(theta, k)
    return 2 * 0.1 * theta + sum(WEIGHTS[i] * answers[i] for i in range(N))


@pytest.mark.parametrize("projection", [True, False])
def test_algorithm_1_is_its_update_rule(projection):
    theta, rho = np.zeros(P), 900.0
    for k in range(1, T + 1):
        theta = theta - rho / (T**2 * k) * gradient(theta, k)
        if projection:
            theta = np.minimum(np.maximum(theta, -0.5), 0.5)
    result, queries = play(SynchronousDescent(rho=rho, projection=projection, **common_settings()))
    assert result == pytest.approx(theta, rel=1e-13)
    assert (np.max(np.abs(queries)) <= 0.5) == projection


def test_algorithm_2_is_its_update_rule():
    theta, average, c1, d = np.zeros(P), np.full(P, math.nan), 0.8, 1 / math.sqrt(T)
    for k in range(1, T + 1):
        older = 0.0 if k == 1 else (k - 1) / (d + k) * average
        average = older + (d + 1) / (d + k) * theta
        theta = np.clip(theta - c1 / math.sqrt(k) * gradient(theta, k), -0.5, 0.5)
    result, queries = play(SynchronousAverage(initial_step=c1, **common_settings()))
    assert result == pytest.approx(average, rel=1e-13)
    assert np.max(np.abs(queries)) <= 0.5


def test_the_average_stays_between_the_models_it_averages():
    result, queries = play(SynchronousAverage(initial_step=0.8, **common_settings()))
    assert np.all(result <= queries.max(axis=0))
    assert np.all(result >= queries.min(axis=0))


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"rho": -1.0}, "rho"),
        ({"theta_max": math.nan}, "theta_max"),
        ({"weights": WEIGHTS * 2}, "weights"),
    ],
)
def test_a_wrong_value_is_named(changes, name):
    with pytest.raises(InputError, match=f"^{name}: "):
        SynchronousDescent(**common_settings(**({"rho": 1.0} | changes)))
    with pytest.raises(InputError, match=r"^initial_step: "):
        SynchronousAverage(initial_step=0.0, **common_settings())
