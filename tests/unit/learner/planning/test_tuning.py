"""Horizon, clip and step from public records: never silly, near the best in hindsight."""

import functools
from dataclasses import replace

import numpy as np
import pytest

from common.losses import LOSSES, Regulariser, Squared
from common.terms import Records
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.synchronous import SynchronousAverage, SynchronousDescent
from learner.planning.tuning import Given, choose
from learner.simulated.groups import PublicGroups
from learner.simulated.problem import Problem
from learner.simulated.stability import largest_stable_step
from learner.simulated.studies import Proposal, run_study
from learner.simulated.surrogates import worlds_to_choose_in
from learner.simulated.world import World

P = 3
BOUND = 60.0
SIZES = np.array([4000.0, 2000.0, 3000.0])
G = Regulariser(coefficient=1e-5)
OPEN = Given(chooses_clip=True)


def make_records(n=600, *, seed=1, classes=False):
    """Heavy tails, so that the domain's bound is far above a typical gradient."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.normal(size=(n, P - 1)) * [1.5, 0.5], np.ones(n)])
    y = x @ [0.4, -0.3, 0.2] + 0.3 * np.clip(rng.standard_t(3, n), -6, 6)
    return Records(features=x, targets=np.where(y > 0, 1.0, -1.0) if classes else y)


def problem_of(loss="squared"):
    return Problem(loss=LOSSES[loss].example(), regulariser=G, theta_max=1.0)


def make_algorithm(kind="asynchronous", sizes=SIZES):
    common = {
        "weights": sizes / sizes.sum(),
        "num_features": P,
        "theta_max": 1.0,
        "regulariser": G,
        "horizon": 1,
    }
    if kind == "synchronous-1":
        return SynchronousDescent(rho=1.0, **common)
    if kind == "synchronous-2":
        return SynchronousAverage(initial_step=1.0, **common)
    return Asynchronous(rho=1.0, tail_average=True, counted=True, **common)


def study(epsilon, *, kind="asynchronous", sizes=SIZES):
    """A study whose noise is that of a bound of 1."""
    return Proposal(
        algorithm=make_algorithm(kind, sizes),
        num_records=sizes,
        unit_scales=2.0 / (sizes * epsilon),
        split="schedule" if kind == "asynchronous" else "horizon",
        rates=sizes / sizes.mean(),
        asks_everyone=True,
    )


def pick(epsilon, given=OPEN, *, kind="asynchronous", loss="squared", sizes=SIZES):
    public = PublicGroups(
        problem=problem_of(loss),
        records=make_records(classes=LOSSES[loss].has_classes()),
        labels=None,
    )
    worlds = worlds_to_choose_in(public, sizes, [None] * len(sizes))
    unit = study(epsilon, kind=kind, sizes=sizes)
    return choose(unit, public, given, bound=BOUND, worlds=worlds)


@functools.cache
def pick_all(epsilon):
    """Nothing given; several tests look at the same choice."""
    return pick(epsilon)


def measured(choice, epsilon, *, kind="asynchronous", runs=40, sizes=SIZES):
    """On records of the owners' own."""
    world = World.of([make_records(int(n), seed=9 + i) for i, n in enumerate(sizes)], problem_of())
    algorithm = replace(make_algorithm(kind, sizes), horizon=choice.horizon)
    if kind == "asynchronous":
        algorithm = replace(algorithm, rho=algorithm.rho * choice.step / algorithm.alpha)
    elif kind == "synchronous-1":
        algorithm = replace(algorithm, rho=choice.step * choice.horizon**2)
    else:
        algorithm = replace(algorithm, initial_step=choice.step)
    unit = study(epsilon, kind=kind, sizes=sizes)
    proposal = replace(
        unit, algorithm=algorithm, clip=choice.clip, unit_scales=unit.unit_scales * choice.clip
    )
    models = run_study(proposal, world, runs=runs, rng=np.random.default_rng(3))
    return float(np.mean(world.evaluation.relative_fitness(models)))


def untrained():
    world = World.of([make_records(3000, seed=9)], problem_of())
    return float(world.evaluation.relative_fitness(np.zeros((1, P)))[0])


def test_the_choice_is_near_the_best_of_a_grid_in_hindsight():
    choice = pick_all(0.3)
    grid = [
        measured(replace(choice, horizon=T, clip=C, step=a), 0.3, runs=10)
        for T in (15, 60, 240, 960)
        for C in (2.0, 8.0, BOUND)
        for a in (0.02, 0.1, 0.5)
    ]
    assert measured(choice, 0.3) < 2.0 * min(grid)
    assert max(grid) > 20 * min(grid)


def test_more_noise_asks_for_shorter_horizons_and_smaller_clips():
    loud, quiet = pick_all(0.01), pick_all(1000)
    assert loud.horizon < quiet.horizon
    assert loud.clip < quiet.clip <= BOUND


def test_equal_arguments_choose_equally():
    assert pick(1, replace(OPEN, horizon=40)) == pick(1, replace(OPEN, horizon=40))


@pytest.mark.parametrize("epsilon", [0.03, 0.3, 1, 10])
def test_what_was_chosen_typed_in_chooses_the_rest_again(epsilon):
    choice = pick_all(epsilon)
    assert pick(epsilon, replace(OPEN, horizon=choice.horizon)) == choice
    assert pick(epsilon, Given(horizon=choice.horizon, clip=choice.clip)) == choice


def test_what_is_given_stays():
    choice = pick(1, Given(horizon=77, clip=3.0))
    assert (choice.horizon, choice.clip) == (77, 3.0)
    choice = pick(1, Given(horizon=77, chooses_clip=True, step=0.125))
    assert (choice.horizon, choice.step) == (77, 0.125)
    assert pick(1, Given(horizon=50)).clip is None


@pytest.mark.parametrize("epsilon", [0.01, 1, 1000])
def test_no_step_is_beyond_the_largest_stable_one(epsilon):
    known = replace(make_algorithm(), counted=False, frequency=SIZES)
    public = PublicGroups(problem=problem_of(), records=make_records(), labels=None)
    for given in (OPEN, Given(horizon=20), Given(horizon=400, clip=2.0)):
        choice = pick_all(epsilon) if given is OPEN else pick(epsilon, given)
        kept = public.unclipped(choice.clip)
        limit = largest_stable_step(known, public.records, loss=Squared(), counts=kept)
        assert choice.step <= limit * (1 + 1e-12)


def test_loud_answers_hardly_move_a_model_that_is_good_already_and_move_one_of_0():
    public = PublicGroups(problem=problem_of(), records=make_records(), labels=None)
    worlds = worlds_to_choose_in(public, SIZES, [None] * 3)
    given, ways = Given(horizon=20, clip=5.0), []
    for start in (public.theta_optimal, None):
        unit = study(1e-3)
        unit = replace(unit, algorithm=replace(unit.algorithm, start=start))
        choice = choose(unit, public, given, bound=BOUND, worlds=worlds)
        algorithm = replace(unit.algorithm, counted=False, frequency=SIZES, horizon=20)
        limit = largest_stable_step(algorithm, public.records, loss=Squared())
        ways.append(choice.step / limit * 20)
    # From 0 at least a tenth of a stable step's way, which the last choice may halve.
    assert ways[0] < 0.02 < 0.04 < ways[1]


def test_six_hundred_records_at_a_tenth_of_epsilon_get_a_short_study_that_moves():
    sizes = np.array([300.0, 300.0])
    choice = pick(0.1, replace(OPEN, shortest=4), sizes=sizes)
    assert choice.horizon <= 100
    assert measured(choice, 0.1, sizes=sizes) < 0.9 * untrained()
    # A long one that is typed is not left at zero either.
    typed = pick(0.1, Given(horizon=1800, chooses_clip=True), sizes=sizes)
    limit = largest_stable_step(
        replace(make_algorithm(sizes=sizes), counted=False),
        make_records(),
        loss=Squared(),
    )
    assert typed.horizon * typed.step >= 0.05 * limit


def test_no_horizon_is_shorter_than_asked_for():
    many = np.full(60, 100.0)
    assert pick(1, replace(OPEN, shortest=120), sizes=many).horizon >= 120


@pytest.mark.parametrize("kind", ["synchronous-1", "synchronous-2"])
def test_synchronous_rounds_are_chosen_too(kind):
    choice = pick(3, Given(clip=10.0), kind=kind)
    assert measured(choice, 3, kind=kind) < 0.2 * untrained()


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_losses_for_classes_are_simulated_on_records(loss):
    choice = pick(10, Given(horizon=50, chooses_clip=True), loss=loss)
    assert 0 < choice.clip <= BOUND
    assert choice.step > 0


def test_long_horizons_are_simulated_in_bounded_time():
    # Nobody could simulate 10^9 ticks; noise and steps are those of all of them.
    choice = pick(1e4, Given(horizon=10**9, clip=BOUND))
    assert choice.horizon == 10**9
    assert 0 < choice.step < 1e-3
