"""Many synchronous runs at once follow the one-run algorithms."""

from itertools import islice

import numpy as np
import pytest

from common.losses import LOSSES, Regulariser, Squared
from common.terms import Records
from learner.algorithms.clocks import synchronous_rounds
from learner.algorithms.synchronous import SynchronousAverage, SynchronousDescent
from learner.simulated.replicates import record_gradients
from learner.simulated.rounds import run_rounds

P, N, T, R = 3, 4, 20, 5
WEIGHTS = np.array([0.1, 0.2, 0.3, 0.4])
COMMON = {
    "weights": WEIGHTS,
    "num_features": P,
    "theta_max": 0.3,
    "regulariser": Regulariser(coefficient=0.1),
    "horizon": T,
}


def make_shards(classes):
    rng = np.random.default_rng(1)
    shards = []
    for i in range(N):
        x = rng.normal(size=(6 + i, P))
        y = x @ [0.5, -0.3, 0.2]
        shards.append(Records(features=x, targets=np.sign(y) if classes else y))
    return shards


@pytest.mark.parametrize("loss", ["squared", "hinge"])
@pytest.mark.parametrize("kind", ["descent", "printed descent", "average"])
def test_each_run_follows_the_algorithm(kind, loss):
    steps = np.array([0.1, 0.3, 1.0, 3.0, 5.0])

    def algorithm(step):
        if kind == "average":
            return SynchronousAverage(initial_step=step, **COMMON)
        return SynchronousDescent(rho=step * T**2, projection=kind == "descent", **COMMON)

    shards = make_shards(LOSSES[loss].has_classes())
    noise = np.random.default_rng(2).laplace(0, 0.5, (T * N, R, P))
    pages = iter(noise)
    many = run_rounds(
        algorithm(1.0),
        replicates=R,
        gradients=record_gradients(shards, loss=LOSSES[loss].example()),
        noise=lambda slots: next(pages),
        step=steps if kind == "average" else steps * T**2,
    )
    for run, step in enumerate(steps):
        one = algorithm(step)
        state = one.initial_state()
        for k, tick in enumerate(islice(synchronous_rounds(N), T)):
            theta = one.query_point(state, tick)
            answers = {
                i: LOSSES[loss]
                .example()
                .mean_gradient(theta, shards[i].features, shards[i].targets)
                + noise[k * N + i, run]
                for i in range(N)
            }
            state = one.apply_responses(state, tick, answers)
        assert many[run] == pytest.approx(one.central_model(state), rel=1e-11, abs=1e-12)


@pytest.mark.parametrize("averages", [True, False])
def test_owners_that_are_away_are_stood_for_as_in_the_algorithm(averages):
    shards = make_shards(False)
    rng = np.random.default_rng(4)
    present = rng.random((T, R, N)) < 0.5
    present[~present.any(axis=2), 0] = True
    noise = rng.laplace(0, 0.5, (T, N, R, P))
    pages = iter(noise.reshape(T * N, R, P))
    algorithm = (
        SynchronousAverage(initial_step=0.5, **COMMON)
        if averages
        else SynchronousDescent(rho=0.5 * T**2, **COMMON)
    )
    rounds = []
    many = run_rounds(
        algorithm,
        replicates=R,
        gradients=record_gradients(shards, loss=Squared()),
        noise=lambda slots: next(pages),
        present=present,
        on_round=lambda k, models: rounds.append((k, models.copy())),
    )
    for run in range(R):
        state = algorithm.initial_state()
        for k, tick in enumerate(islice(synchronous_rounds(N), T)):
            theta = algorithm.query_point(state, tick)
            answers = {
                i: Squared().mean_gradient(theta, shards[i].features, shards[i].targets)
                + noise[k, i, run]
                for i in tick.owners
                if present[k, run, i]
            }
            state = algorithm.apply_responses(state, tick, answers)
            assert rounds[k][0] == k + 1
            assert rounds[k][1][run] == pytest.approx(algorithm.central_model(state), abs=1e-12)
        assert many[run] == pytest.approx(algorithm.central_model(state), abs=1e-12)
