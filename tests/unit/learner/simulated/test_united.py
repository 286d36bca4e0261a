"""Newton's steps of many runs at once are what each is by itself, whoever computes them."""

import multiprocessing
import os

import numpy as np
import pytest

from common.losses import Regulariser
from common.moments import packed_length
from learner.algorithms.newton import NewtonStep
from learner.algorithms.shrinkage import Around
from learner.simulated import united
from learner.simulated.united import MOST_PROCESSORS, WIDE, newton_steps

ROUNDS = 3


def models(num_features, runs, *, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(3 * num_features, num_features))
    curvature = x.T @ x / len(x)
    around = Around(
        theta=0.1 * rng.normal(size=num_features),
        curvature=curvature,
        offset=np.zeros(num_features),
        spread=0.01,
        curvature_spread=0.01,
        doubt=0.01,
        drifts=True,
    )
    newton = NewtonStep(
        weights=np.ones(1),
        around=around,
        curvature_scale=0.5,
        scales=np.array([0.01]),
        theta_max=0.3,
        regulariser=Regulariser(coefficient=1e-5),
        rounds=ROUNDS,
    )
    best = rng.normal(size=num_features)
    draws = 0.01 * rng.normal(size=(ROUNDS, runs, packed_length(num_features)))
    return newton_steps(
        newton, lambda thetas: (thetas - best) @ curvature, lambda _: curvature, draws, 1e-4
    )


@pytest.mark.parametrize("runs", [1, 2, 7])
@pytest.mark.parametrize("num_features", [WIDE - 1, WIDE, 2 * WIDE])
def test_models_have_the_same_bits_on_any_number_of_processors(num_features, runs, monkeypatch):
    found = []
    for processors in (1, 2, 3, 64):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=processors: set(range(n)))
        found.append(models(num_features, runs))
    assert found[0].shape == (runs, num_features)
    assert all(np.array_equal(each, found[0]) for each in found)


def test_few_processors_share_and_none_where_studies_are_computed_side_by_side(monkeypatch):
    """Sixty-four processes of sixty-four threads would fill the memory, and wait for each other."""
    pools, made = [], united.ThreadPoolExecutor

    def noted(count):
        pools.append(count)
        return made(count)

    monkeypatch.setattr(united, "ThreadPoolExecutor", noted)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    models(WIDE, 20)
    assert pools == [MOST_PROCESSORS] * ROUNDS
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: "somebody")
    models(WIDE, 20)
    assert len(pools) == ROUNDS
