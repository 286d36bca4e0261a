"""Horizon, clip and step from public records: repeatable, near the best in hindsight."""

from dataclasses import replace

import numpy as np
import pytest

from common.errors import InputError
from common.losses import LOSSES, Regulariser, Squared
from common.terms import Records
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.synchronous import SynchronousAverage, SynchronousDescent
from learner.planning.choice import Conditions, choose
from learner.simulated.evaluation import Evaluation
from learner.simulated.replicates import laplace_noise, record_gradients, run_replicates
from learner.simulated.rounds import run_rounds

P, N = 3, 3
BOUND = 60.0
SIZES = np.array([4000.0, 2000.0, 3000.0])
G = Regulariser(coefficient=1e-5)
SLOTS = np.random.default_rng(5).integers(N, size=3000)


def make_records(n=600, *, seed=1, classes=False):
    """Heavy tails, so that the domain's bound is far above a typical gradient."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.normal(size=(n, P - 1)) * [1.5, 0.5], np.ones(n)])
    y = x @ [0.4, -0.3, 0.2] + 0.3 * np.clip(rng.standard_t(3, n), -6, 6)
    return Records(features=x, targets=np.where(y > 0, 1.0, -1.0) if classes else y)


def conditions(epsilon, *, loss="squared", public=None, kind="asynchronous"):
    return Conditions(
        public=make_records(classes=LOSSES[loss].has_classes()) if public is None else public,
        loss=LOSSES[loss].example(),
        bound=BOUND,
        epsilons=np.full(N, float(epsilon)),
        num_records=SIZES,
        slots=SLOTS,
        promise=lambda T: (
            np.bincount(SLOTS[:T], minlength=N).astype(float)
            if kind == "asynchronous"
            else np.full(N, float(T))
        ),
    )


def make_algorithm(kind="asynchronous"):
    common = {
        "weights": SIZES / SIZES.sum(),
        "num_features": P,
        "theta_max": 1.0,
        "regulariser": G,
        "horizon": 1,
    }
    if kind == "synchronous-1":
        return SynchronousDescent(rho=1.0, **common)
    if kind == "synchronous-2":
        return SynchronousAverage(initial_step=1.0, **common)
    return Asynchronous(rho=1.0, tail_average=True, **common)


def pick(epsilon, *, kind="asynchronous", loss="squared", **given):
    open_ones = {"horizon": None, "clip": None, "choose_clip": True, "step": None}
    return choose(
        make_algorithm(kind),
        conditions(epsilon, loss=loss, kind=kind),
        rng=np.random.default_rng(0),
        **(open_ones | given),
    )


def measured(horizon, clip, step, epsilon, runs=20):
    shards = [make_records(int(n), seed=9 + i) for i, n in enumerate(SIZES)]
    algorithm = replace(make_algorithm(), horizon=horizon)
    algorithm = replace(algorithm, rho=algorithm.rho * step / algorithm.alpha)
    promised = np.bincount(SLOTS[:horizon], minlength=N)
    result = run_replicates(
        algorithm,
        np.broadcast_to(SLOTS[:horizon, None], (horizon, runs)),
        gradients=record_gradients(shards, loss=Squared(), clip=clip),
        noise=laplace_noise(
            2 * clip * promised / (SIZES * epsilon), num_features=P, rng=np.random.default_rng(3)
        ),
    )
    evaluation = Evaluation(shards=shards, loss=Squared(), regulariser=G, theta_max=1.0)
    return float(np.mean(evaluation.relative_fitness(result.central)))


def test_the_choice_is_near_the_best_of_a_grid_in_hindsight():
    choice = pick(0.3)
    grid = [
        measured(T, C, a, 0.3, runs=5)
        for T in (15, 60, 240, 960)
        for C in (2.0, 8.0, BOUND)
        for a in (0.02, 0.1, 0.5, 2.0)
    ]
    assert measured(choice.horizon, choice.clip, choice.step, 0.3) < 2.0 * min(grid)
    assert max(grid) > 20 * min(grid)


def test_more_noise_asks_for_shorter_horizons_and_smaller_clips():
    loud, quiet = pick(0.01), pick(30)
    assert loud.horizon < quiet.horizon
    assert loud.clip < quiet.clip <= BOUND
    assert loud.forecast_relative_fitness > quiet.forecast_relative_fitness


def test_equal_seeds_choose_equally():
    assert pick(1, horizon=40) == pick(1, horizon=40)


def test_what_is_given_stays():
    choice = pick(1, horizon=77, clip=3.0, choose_clip=False)
    assert (choice.horizon, choice.clip) == (77, 3.0)
    choice = pick(1, horizon=77, step=0.125)
    assert (choice.horizon, choice.step) == (77, 0.125)
    assert pick(1, horizon=50, choose_clip=False).clip is None


@pytest.mark.parametrize("kind", ["synchronous-1", "synchronous-2"])
def test_synchronous_rounds_are_chosen_too(kind):
    choice = pick(3, kind=kind, choose_clip=False, clip=10.0)
    shards = [make_records(int(n), seed=9 + i) for i, n in enumerate(SIZES)]
    algorithm = replace(make_algorithm(kind), horizon=choice.horizon)
    factor = choice.horizon**2 if kind == "synchronous-1" else 1
    models = run_rounds(
        algorithm,
        replicates=10,
        gradients=record_gradients(shards, loss=Squared(), clip=10.0),
        noise=laplace_noise(
            2 * 10.0 * choice.horizon / (SIZES * 3), num_features=P, rng=np.random.default_rng(3)
        ),
        step=np.full(10, choice.step * factor),
    )
    evaluation = Evaluation(shards=shards, loss=Squared(), regulariser=G, theta_max=1.0)
    psi = evaluation.relative_fitness(models)
    start = evaluation.relative_fitness(np.zeros((1, P)))
    assert np.mean(psi) < 0.2 * start
    assert np.mean(psi) < 5 * choice.forecast_relative_fitness


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_losses_for_classes_are_simulated_on_records(loss):
    assert pick(10, loss=loss, horizon=50).forecast_relative_fitness < 0.5


def test_long_horizons_are_simulated_in_bounded_time():
    # Nobody could simulate 10^9 ticks; noise and steps are those of all of them.
    facts = replace(conditions(1e4), promise=lambda T: np.full(N, T / N))
    choice = choose(
        make_algorithm(),
        facts,
        horizon=10**9,
        clip=BOUND,
        choose_clip=False,
        step=None,
        rng=np.random.default_rng(0),
    )
    assert choice.horizon == 10**9
    assert 0 < choice.step < 1e-3


def test_without_public_records_nothing_is_chosen():
    empty = Records(features=np.zeros((0, P)), targets=np.zeros(0))
    with pytest.raises(InputError, match="no public records"):
        choose(
            make_algorithm(),
            conditions(1, public=empty),
            horizon=None,
            clip=None,
            choose_clip=True,
            step=None,
            rng=np.random.default_rng(0),
        )
