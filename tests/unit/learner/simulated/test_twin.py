"""The twin runs the study as it would run, and sees what clipping and dropouts cost."""

from dataclasses import replace

import numpy as np
import pytest

from common.losses import Logistic, Regulariser, Squared
from common.terms import Records
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.moments import SecondMoments
from learner.algorithms.newton import NewtonStep
from learner.algorithms.synchronous import SynchronousAverage, SynchronousDescent
from learner.planning.around import around_public
from learner.simulated.groups import PublicGroups
from learner.simulated.problem import Problem
from learner.simulated.schedules import Attendance
from learner.simulated.studies import Proposal, run_in_worlds, run_study
from learner.simulated.twin import COVERAGE, deal, forecast, prediction_interval
from learner.simulated.world import World

P = 3
RUNS, WORLDS = 96, 12
PROBLEM = Problem(loss=Squared(), regulariser=Regulariser(coefficient=1e-5), theta_max=1.0)


def make_records(size, seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (size, P))
    # A few long records, as real ones have: clipping them moves the optimum.
    y = x @ [0.1, -0.3, 0.2] + rng.exponential(0.5, size) * np.sign(x[:, 0] + 0.3)
    return Records(features=x, targets=y)


SHARDS = [make_records(n, seed) for seed, n in enumerate((3000, 2000, 4000))]
PUBLIC = PublicGroups(problem=PROBLEM, records=make_records(3000, 9), labels=None)
SIZES = np.array([3000.0, 2000.0, 4000.0])
COMMON = {
    "weights": SIZES / SIZES.sum(),
    "num_features": P,
    "theta_max": 1.0,
    "regulariser": PROBLEM.regulariser,
}


def algorithm(kind):
    if kind == "moments":
        return SecondMoments(**COMMON)
    if kind == "descent":
        return SynchronousDescent(rho=2.0 * 60**2, horizon=60, **COMMON)
    if kind == "average":
        return SynchronousAverage(initial_step=1.0, horizon=60, **COMMON)
    rho = 0.5 * 200**2 * PROBLEM.regulariser.strong_convexity / 3
    return Asynchronous(rho=rho, horizon=200, tail_average=kind == "tail", **COMMON)


def proposal(kind="tail", noise=20.0, **changes):
    values = {
        "algorithm": algorithm(kind),
        "num_records": SIZES,
        "unit_scales": noise / SIZES,
        "split": "schedule" if kind == "tail" else "horizon",
    }
    return Proposal(**(values | changes))


@pytest.mark.parametrize("kind", ["tail", "last", "descent", "average", "moments"])
def test_the_forecast_is_what_real_records_give(kind):
    rng = np.random.default_rng(1)
    study = proposal(kind)
    worlds = deal(PUBLIC, SIZES, worlds=6, rng=rng)
    told = forecast(study, PUBLIC, worlds, runs=240, rng=rng)
    world = World.of(SHARDS, PROBLEM)
    psi = world.evaluation.relative_fitness(run_study(study, world, runs=240, rng=rng))
    assert told.expected == pytest.approx(psi.mean(), rel=0.3)
    low, high = told.interval
    assert 0.8 <= np.mean((psi > low) & (psi < high)) <= 0.98
    loud = replace(study, unit_scales=3 * study.unit_scales)
    louder = forecast(loud, PUBLIC, worlds, runs=240, rng=rng)
    assert louder.expected > 2 * told.expected


@pytest.mark.parametrize("between", [0.0, 0.3, 0.8, 1.0])
def test_an_interval_of_few_worlds_holds_a_run_in_one_more(between):
    """Quantiles of the runs alone do in 0.84 of the cases where worlds are all that differs."""
    rng, held = np.random.default_rng(1), []
    for _ in range(1500):
        worlds, runs = rng.standard_normal((13, 1)), rng.standard_normal((13, 8))
        psi = 0.01 * np.exp(np.sqrt(between) * worlds + np.sqrt(1.0 - between) * runs)
        low, high = prediction_interval(psi[:12])
        held.append(np.mean((psi[12] > low) & (psi[12] < high)))
    assert np.mean(held) == pytest.approx(COVERAGE, abs=0.015)


def test_an_interval_ends_at_nothing_where_runs_do():
    psi = np.array([[0.0, 0.0, 0.02, 0.04], [0.03, 0.05, 0.04, 0.05]])
    low, high = prediction_interval(psi)
    assert low == 0.0
    assert 0.05 <= high < 0.1
    assert prediction_interval(np.zeros((3, 4))) == (0.0, 0.0)
    assert prediction_interval(np.full((1, 1), 0.2)) == (0.2, 0.2)


@pytest.mark.parametrize("seed", range(6))
def test_owners_who_differ_by_chance_alone_are_not_forecast_worse_by_themselves(seed):
    """A few public records in their order, whose parts differ by chance as well."""
    rng = np.random.default_rng(seed)
    p, n, sizes = 10, 300, np.full(3, 900.0)
    problem = Problem(loss=Squared(), regulariser=Regulariser(coefficient=1e-5), theta_max=9.0)

    def records(size):
        x = rng.normal(size=(size, p))
        return Records(features=x, targets=x.sum(axis=1) + rng.normal(size=size))

    public = PublicGroups(problem=problem, records=records(n), labels=None)
    told = np.median(
        [w.relative_fitness_alone for w in deal(public, sizes, worlds=WORLDS, rng=rng)], axis=0
    )
    # A third of the union's records are an owner's own.
    assert 0.6 < told.mean() / (2 / 3 * p / 900) < 1.6


def test_what_a_schedule_counts_is_taken_into_account_run_by_run():
    turned = [
        Records(features=s.features, targets=s.targets * sign)
        for s, sign in zip(SHARDS, (1, 1, -1), strict=True)
    ]
    world, unequal = World.of(turned, PROBLEM), np.array([1.0, 2.0, 6.0])
    psi = {}
    for counted in (False, True):
        study = proposal(
            noise=1e-9,
            algorithm=replace(algorithm("tail"), counted=counted),
            rates=unequal,
        )
        models = run_study(study, world, runs=60, rng=np.random.default_rng(3))
        psi[counted] = world.evaluation.relative_fitness(models).mean()
    # Without it the owner that ticks most pulls the model to its own side.
    assert psi[True] < 0.5 * psi[False]


def test_the_bias_of_clipping_is_in_the_forecast():
    rng = np.random.default_rng(2)
    quiet = proposal(noise=1e-6)
    worlds = deal(PUBLIC, SIZES, worlds=WORLDS, rng=rng)
    free = forecast(quiet, PUBLIC, worlds, runs=48, rng=rng).expected
    clipped = replace(quiet, clip=0.3)
    told = forecast(clipped, PUBLIC, worlds, runs=48, rng=rng).expected
    world = World.of(SHARDS, PROBLEM)
    psi = world.evaluation.relative_fitness(run_study(clipped, world, runs=48, rng=rng))
    assert told > 10 * free
    assert told == pytest.approx(psi.mean(), rel=0.3)


@pytest.mark.parametrize("kind", ["tail", "last", "descent", "average"])
def test_the_schedule_of_noise_follows_the_split(kind):
    """Measured on a world without records' signal: only noise is left."""
    flat = Records(features=np.eye(P) * 1e-9, targets=np.full(P, 1.0))
    world = World.of([flat] * 3, PROBLEM)
    world = replace(world, weights=COMMON["weights"])
    study = proposal(kind, noise=1e-3)
    models = run_study(study, world, runs=400, rng=np.random.default_rng(3))
    more = replace(study, unit_scales=2 * study.unit_scales)
    twice = run_study(more, world, runs=400, rng=np.random.default_rng(3))
    assert np.std(twice) == pytest.approx(2 * np.std(models), rel=1e-6)
    if kind == "tail":
        horizon = replace(study, split="horizon")
        louder = run_study(horizon, world, runs=400, rng=np.random.default_rng(3))
        assert np.std(louder) == pytest.approx(3 * np.std(models), rel=0.15)


def test_owners_that_drop_out_cost_ticks():
    rng = np.random.default_rng(4)
    away = Attendance(availability=np.full(3, 0.3), mean_absence=5.0)
    study = proposal()
    worlds = deal(PUBLIC, SIZES, worlds=WORLDS, rng=rng)
    there = forecast(study, PUBLIC, worlds, runs=240, rng=rng).expected
    gone = forecast(replace(study, attendance=away), PUBLIC, worlds, runs=240, rng=rng).expected
    assert gone > 1.2 * there


def test_a_forecast_repeats_with_its_seed():
    def told(*, of_worlds, of_noise):
        worlds = deal(PUBLIC, SIZES, worlds=4, rng=np.random.default_rng(of_worlds))
        rng = np.random.default_rng(of_noise)
        return forecast(proposal(), PUBLIC, worlds, runs=24, rng=rng)

    first, again = told(of_worlds=5, of_noise=5), told(of_worlds=5, of_noise=5)
    assert np.array_equal(first.relative_fitness, again.relative_fitness)
    assert np.array_equal(first.relative_fitness_public, again.relative_fitness_public)
    other, noise = told(of_worlds=6, of_noise=5), told(of_worlds=5, of_noise=6)
    assert not np.array_equal(first.relative_fitness, other.relative_fitness)
    assert not np.array_equal(first.relative_fitness, noise.relative_fitness)
    assert np.array_equal(first.relative_fitness_public, noise.relative_fitness_public)


def test_the_public_model_is_forecast_as_it_is_for_real_owners():
    """It is a model of this many records of one table as the owners': off by chance alone."""
    public, real = [], []
    for seed in range(15):
        drawn = PublicGroups(problem=PROBLEM, records=make_records(300, 50 + seed), labels=None)
        rng = np.random.default_rng(seed)
        told = forecast(
            proposal("moments"), drawn, deal(drawn, SIZES, worlds=6, rng=rng), runs=RUNS, rng=rng
        )
        public.append(told.public)
        evaluation = World.of(SHARDS, PROBLEM).evaluation
        real.append(evaluation.relative_fitness(drawn.theta_optimal[None])[0])
    assert np.mean(public) == pytest.approx(np.mean(real), rel=0.4)


def drifting_classes(size):
    """Two classes, of records whose features move along the table."""
    rng = np.random.default_rng(3)
    place = np.cumsum(rng.normal(size=(size, P)), axis=0) / np.sqrt(size)
    x = 0.3 * rng.uniform(-1, 1, (size, P)) + 0.3 * place
    margins = 4.0 * x @ [0.5, -1.0, 0.8] + 0.5 * np.sum(x**2, axis=1)
    return Records(features=x, targets=np.sign(margins + rng.logistic(size=size)))


def test_what_a_model_of_classes_does_not_know_is_missing_once():
    """Nothing of it is missing in worlds that have drifted farther away than other records are."""
    problem = replace(PROBLEM, loss=Logistic())
    public = PublicGroups(problem=problem, records=drifting_classes(600), labels=None)
    worlds = deal(public, SIZES, worlds=8, rng=np.random.default_rng(4))
    theta = public.theta_optimal[None]
    factor, honest = public.outside.honest(len(worlds))
    there = factor * np.array([world.evaluation.relative_fitness(theta)[0] for world in worlds])
    assert min(there) < np.median(honest) < max(there) / 3
    start = {"start": public.theta_optimal, "rho": 200**2 * 1e-8}
    study = proposal(noise=0.0, algorithm=replace(algorithm("last"), **start))
    told = forecast(study, public, worlds, runs=RUNS, rng=np.random.default_rng(5))
    assert told.relative_fitness_public == pytest.approx(np.maximum(there, honest))
    # It hardly moves, so it is as good as the model that it begins at.
    assert told.by_world == pytest.approx(told.relative_fitness_public, rel=0.05)


def test_who_begins_at_0_lacks_nothing_of_what_the_public_model_does_not_know():
    problem = replace(PROBLEM, loss=Logistic())
    public = PublicGroups(problem=problem, records=drifting_classes(600), labels=None)
    worlds = deal(public, SIZES, worlds=4, rng=np.random.default_rng(4))
    factor, _ = public.outside.honest(len(worlds))
    study = proposal("last", noise=0.0)
    told = forecast(study, public, worlds, runs=8, rng=np.random.default_rng(5))
    models = run_in_worlds(study, worlds, runs=2, rng=np.random.default_rng(5))
    psi = [w.evaluation.relative_fitness(own) for w, own in zip(worlds, models, strict=True)]
    assert told.relative_fitness == pytest.approx(factor[:, None] * np.stack(psi), rel=1e-9)


def newton_of(public, sizes):
    """Newton's steps of three rounds, without noise."""
    return NewtonStep(
        weights=sizes / sizes.sum(),
        around=around_public(public, None),
        curvature_scale=1.0,
        scales=np.zeros(len(sizes)),
        theta_max=public.problem.theta_max,
        regulariser=public.problem.regulariser,
        rounds=3,
        is_quadratic=public.problem.loss.is_quadratic,
    )


def test_who_leaves_the_public_model_behind_lacks_little_of_what_it_does_not_know():
    """As much of it as of the way to the best model of each world."""
    problem = replace(PROBLEM, loss=Logistic())
    public = PublicGroups(problem=problem, records=drifting_classes(600), labels=None)
    worlds = deal(public, SIZES, worlds=8, rng=np.random.default_rng(4))
    free = np.array([w.evaluation.relative_fitness(public.theta_optimal[None])[0] for w in worlds])
    factor, honest = public.outside.honest(len(worlds))
    missing = np.maximum(honest - factor * free, 0.0)
    assert missing.max() > 0.5 * np.median(honest)
    study = proposal(noise=0.0, algorithm=newton_of(public, SIZES))
    told = forecast(study, public, worlds, runs=RUNS, rng=np.random.default_rng(5))
    left = np.stack(
        [
            world.evaluation.relative_fitness(models)
            for world, models in zip(
                worlds,
                run_in_worlds(study, worlds, runs=12, rng=np.random.default_rng(5)),
                strict=True,
            )
        ]
    )
    assert np.median(left.mean(axis=1)) < 0.2 * np.median(free)
    expected = left * (factor + missing / free)[:, None]
    assert told.relative_fitness == pytest.approx(expected, abs=1e-9)


def study_at_start(public, sizes, start=None):
    """Ticks that begin at the public model, or another one, and stay there."""
    start = public.theta_optimal if start is None else start
    p = start.size
    stay = Asynchronous(
        rho=1e-12,
        horizon=6,
        start=start,
        **(COMMON | {"weights": sizes / sizes.sum(), "num_features": p, "theta_max": 20.0}),
    )
    return Proposal(algorithm=stay, num_records=sizes, unit_scales=np.zeros(len(sizes)))


def classes(size, *, p, seed, apart=0.5):
    """Two classes so far apart that few records of one lie among the other's, or nearer."""
    rng = np.random.default_rng(seed)
    targets = rng.choice([-1.0, 1.0], size)
    x = rng.normal(size=(size, p)) + apart * targets[:, None]
    return Records(features=x / np.sqrt(p), targets=targets)


def test_forecasts_hold_what_comes_of_classes_told_apart_nearly_without_a_mistake():
    """What others' best model loses is not known then: anything down to next to nothing.

    Nine in ten should lie in the interval; which records the owners have is hardly in it.
    """
    p, sizes = 16, np.full(5, 80.0)
    problem = Problem(loss=Logistic(), regulariser=Regulariser(coefficient=1e-5), theta_max=20.0)
    times, held, error, error_alone = [], [], [], []
    for seed in range(8):
        public = PublicGroups(problem=problem, records=classes(60, p=p, seed=seed), labels=None)
        worlds = deal(public, sizes, worlds=12, rng=np.random.default_rng(seed))
        told = forecast(
            study_at_start(public, sizes), public, worlds, runs=RUNS, rng=np.random.default_rng(1)
        )
        shards = [classes(80, p=p, seed=100 + 5 * seed + i) for i in range(5)]
        world = World.of(shards, problem)
        free = world.evaluation.relative_fitness(public.theta_optimal[None])[0]
        low, high = told.interval
        times.append(public.outside.fitness[1] / public.outside.fitness[0])
        held.append(low < free < high)
        error.append(np.log10(told.public / free))
        error_alone.append(np.log10(np.median(told.alone / world.relative_fitness_alone)))
    assert np.median(times) > 2
    assert np.mean(held) >= 0.6
    assert abs(np.median(error)) < 0.35
    assert abs(np.median(error_alone)) < 0.35


@pytest.mark.parametrize("loss", [Squared(), Logistic()])
def test_the_shrunk_public_model_is_forecast_as_who_begins_there_and_stays(loss):
    sizes = np.full(5, 80.0)
    problem = Problem(loss=loss, regulariser=Regulariser(coefficient=1e-5), theta_max=20.0)
    public = PublicGroups(
        problem=problem, records=classes(60, p=16, seed=0, apart=0.1), labels=None
    )
    worlds = deal(public, sizes, worlds=4, rng=np.random.default_rng(0))
    study = study_at_start(public, sizes, public.start)
    stays = forecast(study, public, worlds, runs=RUNS, rng=np.random.default_rng(1))
    study = replace(study, algorithm=newton_of(public, sizes))
    told = forecast(study, public, worlds, runs=RUNS, rng=np.random.default_rng(1))
    assert told.shrunk == pytest.approx(stays.expected, rel=0.01)
    assert told.shrunk != pytest.approx(told.public, rel=0.05)
    assert stays.shrunk is None


@pytest.mark.parametrize(("records", "times"), [(120, 0.25), (60, 1.0), (30, 2.0)])
def test_an_own_model_lacks_what_worlds_do_not_know_by_how_few_records_it_has(records, times):
    """As a second order of more records than the public ones, as chance itself of fewer."""
    sizes = np.full(3, float(records))
    problem = Problem(loss=Logistic(), regulariser=Regulariser(coefficient=1e-5), theta_max=20.0)
    public = PublicGroups(problem=problem, records=classes(60, p=16, seed=0), labels=None)
    worlds = deal(public, sizes, worlds=1, rng=np.random.default_rng(0))
    told = forecast(
        study_at_start(public, sizes), public, worlds, runs=RUNS, rng=np.random.default_rng(1)
    )
    (factor,), (honest,) = public.outside.honest(1)
    (there,) = worlds[0].evaluation.relative_fitness(public.theta_optimal[None])
    missing = honest - factor * there
    assert missing > 0
    own = factor * worlds[0].relative_fitness_alone
    assert told.alone == pytest.approx(own + times * missing)


def test_worlds_side_by_side_are_the_worlds_one_by_one():
    worlds = [World.of(SHARDS[::step], PROBLEM) for step in (1, -1)]
    for clip in (None, 0.3):
        study = replace(proposal(noise=0.0, clip=clip), ticks=np.arange(200) % 3)
        rng = np.random.default_rng(6)
        together = run_in_worlds(study, worlds, runs=2, rng=rng)
        for world, models in zip(worlds, together, strict=True):
            alone = run_study(study, world, runs=2, rng=rng)
            assert models == pytest.approx(alone, rel=1e-9)


def test_checkpoints_are_the_models_on_the_way():
    for kind in ("last", "average"):
        trace = []
        study = proposal(kind)
        world = World.of(SHARDS, PROBLEM)
        last = run_study(
            study,
            world,
            runs=4,
            checkpoints=(10, study.algorithm.horizon),
            trace=trace,
            rng=np.random.default_rng(7),
        )
        assert len(trace) == 2
        assert np.array_equal(trace[1], last)
        assert not np.array_equal(trace[0], last)


@pytest.mark.parametrize("clip", [None, 0.3])
def test_a_group_runs_as_the_larger_owner_of_its_records(clip):
    merged = [
        Records(
            features=np.concatenate([SHARDS[0].features, SHARDS[2].features]),
            targets=np.concatenate([SHARDS[0].targets, SHARDS[2].targets]),
        ),
        SHARDS[1],
    ]
    grouped = replace(algorithm("last"), groups=((0, 2), (1,)))
    larger = replace(grouped, groups=(), weights=np.array([7.0, 2.0]) / 9.0)
    study = proposal("last", algorithm=grouped, clip=clip)
    # Means of Laplace noise with the variance of the members' weighted mean.
    units = study.unit_scales
    mean = np.hypot(units[0] * 3 / 7, units[2] * 4 / 7)
    alike = Proposal(
        algorithm=larger,
        num_records=np.array([7000.0, 2000.0]),
        unit_scales=np.array([mean, units[1]]),
        clip=clip,
    )
    models = [
        run_study(one, World.of(shards, PROBLEM), runs=5, rng=np.random.default_rng(8))
        for one, shards in ((study, SHARDS), (alike, merged))
    ]
    assert models[0] == pytest.approx(models[1], rel=1e-9, abs=1e-12)


def test_an_owner_with_a_faster_clock_is_heard_more_often():
    study = proposal("last", noise=1e-9, rates=np.array([50.0, 1.0, 1.0]))
    far = [make_records(3000, 0), *[Records(features=s.features, targets=-s.targets)
                                    for s in SHARDS[1:]]]  # fmt: skip
    world = World.of(far, PROBLEM)
    models = run_study(study, world, runs=20, rng=np.random.default_rng(9)).mean(axis=0)
    own = PROBLEM.optimum(far[0])
    assert np.linalg.norm(models - own) < 0.3 * np.linalg.norm(own)
