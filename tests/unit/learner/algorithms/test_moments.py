"""The learner's side of moments: it solves as they arrive."""

import numpy as np
import pytest

from common.losses import Regulariser, Squared
from common.moments import pack_moments
from common.terms import Records
from learner.algorithms.clocks import Tick
from learner.algorithms.moments import SecondMoments
from learner.simulated.problem import Problem

P = 3


def make_shards():
    rng = np.random.default_rng(1)
    shards = []
    for size in (40, 90, 20):
        x = rng.normal(size=(size, P))
        shards.append(Records(features=x, targets=x @ [0.9, -0.4, 0.1] + rng.normal(0, 0.2, size)))
    return shards


def moments_of(shard):
    x, y = shard.features, shard.targets
    return pack_moments(x.T @ x / len(shard), y @ x / len(shard))


def make_solver(shards, **changes):
    sizes = np.array([len(shard) for shard in shards], dtype=float)
    values = {
        "weights": sizes / sizes.sum(),
        "num_features": P,
        "theta_max": 0.5,
        "regulariser": Regulariser(coefficient=0.01),
    }
    return SecondMoments(**(values | changes))


def test_without_noise_the_solution_is_the_optimum_of_those_that_answered():
    shards = make_shards()
    solver = make_solver(shards)
    state, seen = solver.initial_state(), []
    assert not solver.central_model(state).any()
    for k, owner in enumerate((2, 0, 1)):
        tick = Tick(float(k), (owner,))
        assert not solver.query_point(state, tick).any()
        state = solver.apply_responses(state, tick, {owner: moments_of(shards[owner])})
        seen.append(shards[owner])
        union = Records(
            features=np.concatenate([s.features for s in seen]),
            targets=np.concatenate([s.targets for s in seen]),
        )
        problem = Problem(loss=Squared(), regulariser=solver.regulariser, theta_max=0.5)
        best = problem.optimum(union)
        assert solver.central_model(state) == pytest.approx(best, rel=1e-9)
    assert np.max(np.abs(solver.central_model(state))) == 0.5  # the box was met


def test_noise_that_makes_directions_negative_leaves_a_model_in_the_box():
    solver = make_solver(make_shards())
    rng = np.random.default_rng(2)
    for _ in range(50):
        packed = rng.normal(0, 10, moments_of(make_shards()[0]).size)
        theta = solver.solve(packed)
        assert np.all(np.isfinite(theta))
        assert np.max(np.abs(theta)) <= 0.5
    # All directions negative: only the ridge is left.
    assert np.all(np.isfinite(solver.solve(pack_moments(-np.eye(P), np.ones(P)))))
