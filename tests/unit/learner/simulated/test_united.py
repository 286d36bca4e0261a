"""Newton's steps of many runs at once are what each is by itself, whoever computes them."""

import multiprocessing
import os

import numpy as np
import pytest

from common.losses import Regulariser, Squared
from common.moments import packed_length
from common.terms import Records
from learner.algorithms.newton import NewtonStep
from learner.algorithms.shrinkage import Around
from learner.simulated import united
from learner.simulated.problem import Problem
from learner.simulated.replicates import ShardMoments
from learner.simulated.studies import Proposal, run_study
from learner.simulated.united import MOST_PROCESSORS, WIDE, newton_steps
from learner.simulated.world import World

ROUNDS = 3


def models(num_features, runs):
    rng = np.random.default_rng(0)
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


def test_steps_without_noise_lead_to_the_best_model_of_what_counts():
    rng, counted = np.random.default_rng(3), np.array([0.9, 0.1])
    problem = Problem(loss=Squared(), regulariser=Regulariser(coefficient=0.0), theta_max=9.0)
    x = [rng.normal(size=(300, 2)) for _ in counted]
    owners = [
        Records(features=own, targets=own @ best) for own, best in zip(x, np.eye(2), strict=True)
    ]
    world = World.of(owners, problem)
    around = Around(
        theta=np.zeros(2),
        curvature=2 * np.eye(2),
        offset=np.zeros(2),
        spread=0.1,
        curvature_spread=0.1,
    )
    newton = NewtonStep(
        weights=counted,
        around=around,
        curvature_scale=1.0,
        scales=np.zeros(2),
        theta_max=9.0,
        regulariser=problem.regulariser,
    )
    proposal = Proposal(algorithm=newton, num_records=np.full(2, 300.0), unit_scales=np.zeros(2))
    [model] = run_study(proposal, world, runs=1, rng=rng)
    moments = ShardMoments.of(owners)
    gram, cross = np.tensordot(counted, moments.gram, axes=1), counted @ moments.cross
    assert model == pytest.approx(np.linalg.solve(gram, cross), rel=1e-6)
