"""Public records that play owners differ as much as owners of that size would."""

import numpy as np
import pytest

from common.errors import InputError
from common.losses import LOSSES, Huber, Regulariser, Squared
from common.terms import Records
from learner.simulated.evaluation import union
from learner.simulated.groups import PublicGroups, ends_of
from learner.simulated.problem import Problem
from learner.simulated.surrogates import _moved, surrogate_world
from learner.simulated.united import United
from learner.simulated.world import World
from owner.core import mean_curvature, mean_gradient
from owner.shards import Shard

P = 4


def problem_of(name="squared"):
    return Problem(
        loss=LOSSES[name].example(), regulariser=Regulariser(coefficient=1e-5), theta_max=2.0
    )


def records_of(sizes, *, spread, seed, classes=False):
    """Groups of records whose true models differ by ``spread``."""
    rng = np.random.default_rng(seed)
    true = np.array([0.6, -0.4, 0.3, 0.1])
    shards = []
    for size in sizes:
        own = true + spread * rng.normal(size=P)
        x = np.column_stack([rng.uniform(-1, 1, (size, P - 1)), np.ones(size)])
        y = x @ own + rng.normal(0, 0.5, size)
        shards.append(Records(features=x, targets=np.where(y > 0, 1.0, -1.0) if classes else y))
    return shards


def groups_of(shards, *, name="squared"):
    labels = np.repeat(np.arange(len(shards)), [len(s) for s in shards])
    return PublicGroups(problem=problem_of(name), records=union(shards), labels=labels)


@pytest.mark.parametrize("owners", [6, 24])
def test_strangers_together_are_as_far_from_the_public_model_as_real_ones(owners):
    """Both their groups and the public ones are a few of many."""
    forecast, real = [], []
    for seed in range(30):
        public = groups_of(records_of([300] * 12, spread=0.3, seed=seed))
        theta = public.theta_optimal[None]
        for draw in range(4):
            rng = np.random.default_rng([seed, draw])
            world = surrogate_world(public, np.full(owners, 300.0), rng=rng)
            forecast.append(world.evaluation.relative_fitness(theta)[0])
            strangers = records_of([300] * owners, spread=0.3, seed=1000 + 4 * seed + draw)
            of_them = World.of(strangers, problem_of())
            real.append(of_them.evaluation.relative_fitness(theta)[0])
    assert np.mean(forecast) == pytest.approx(np.mean(real), rel=0.25)


@pytest.mark.parametrize("spread", [0.0, 0.15])
@pytest.mark.parametrize("size", [150, 4000])
def test_forecast_own_models_are_as_good_as_real_owners_are(spread, size):
    """Alone: chance and true differences together, whatever the sizes of the public groups."""
    forecast, real = [], []
    for seed in range(12):
        public = groups_of(records_of([300] * 10, spread=spread, seed=seed))
        world = surrogate_world(public, np.full(4, float(size)), rng=np.random.default_rng(seed))
        forecast.append(world.relative_fitness_alone.mean())
        shards = records_of([size] * 4, spread=spread, seed=1000 + seed)
        real.append(World.of(shards, problem_of()).relative_fitness_alone.mean())
    assert np.median(forecast) == pytest.approx(np.median(real), rel=0.45)


def test_an_owner_of_far_more_records_than_are_public_is_forecast_as_good_alone_as_it_is():
    """Few public records are no limit to what an owner knows where records are all of a kind."""
    sizes = np.array([7000.0, 5000.0])
    forecast = []
    for seed in range(4):
        records = records_of([150], spread=0.0, seed=seed)[0]
        public = PublicGroups(problem=problem_of(), records=records, labels=None)
        assert not public.drifts
        rng = np.random.default_rng(seed)
        worlds = [surrogate_world(public, sizes, rng=rng) for _ in range(60)]
        forecast.append(np.mean([world.relative_fitness_alone for world in worlds], axis=0))
    # What chance brings: a part of the records is away from all of them by 1/n_i - 1/n.
    chance = P * (1.0 / sizes - 1.0 / sizes.sum())
    assert np.mean(forecast, axis=0) == pytest.approx(chance, rel=0.2)


def test_groups_that_do_not_differ_are_told_from_groups_that_do():
    same = [groups_of(records_of([400] * 8, spread=0.0, seed=seed)) for seed in range(100)]
    apart = [groups_of(records_of([400] * 8, spread=0.2, seed=seed)) for seed in range(100)]
    assert np.mean([g.components.all_groups * 400 / g.trace for g in same]) < 0.2
    assert min(g.components.all_groups * 400 / g.trace for g in apart) > 5
    # delta'H delta, of the variance 0.2^2, with H = 2 E xx' of trace 2 (1/3 + 1/3 + 1/3 + 1).
    assert np.mean([g.components.all_groups for g in apart]) == pytest.approx(0.2**2 * 4, rel=0.12)


def test_a_known_group_plays_its_owner():
    ratios, spreads = [], []
    for seed in range(9):
        shards = records_of([2000] * 5, spread=0.3, seed=seed)
        public = groups_of(
            [Records(features=s.features[:600], targets=s.targets[:600]) for s in shards]
        )
        rng = np.random.default_rng(1)
        real = World.of(shards[:3], problem_of()).relative_fitness_alone
        known = [
            surrogate_world(public, np.full(3, 2000.0), known=[0, 1, 2], rng=rng) for _ in range(9)
        ]
        forecast = np.median([world.relative_fitness_alone for world in known], axis=0)
        ratios.append(np.log(forecast / real))
        spreads.append(np.std(np.log(real)))
    assert np.mean(ratios) == pytest.approx(0.0, abs=0.1)
    assert np.std(ratios) < 0.5 * np.mean(spreads)  # any deal would be as far off as owners differ


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("clip", [None, 0.7])
def test_played_gradients_are_those_of_the_whole_distribution(name, clip):
    public = groups_of(
        records_of([300] * 6, spread=0.2, seed=4, classes=LOSSES[name].has_classes()), name=name
    )
    anchor, slots, errors = public.theta_optimal, np.array([0, 1]), []
    away = 0.5 * anchor
    for seed in range(5):
        rng = np.random.default_rng(seed)
        world = surrogate_world(public, np.array([200.0, 900.0]), rng=rng)
        answers = world.gradients(clip)(slots, np.tile(anchor, (2, 1)))
        others = world.gradients(clip)(slots, np.tile(away, (2, 1)))
        for owner in slots:
            weights = world.mixture.weights_of(owner)
            exact = weights @ public.problem.gradients(anchor, public.records, clip)
            assert answers[owner] == pytest.approx(exact, abs=1e-9)
            exact = weights @ public.problem.gradients(away, public.records, clip)
            errors.append(np.abs(others[owner] - exact).max() / np.abs(exact).max())
    # Away from the anchor drawn records answer nearly as the whole distribution does.
    assert np.median(errors) < 0.03
    assert np.max(errors) < 0.1


def test_moments_and_records_of_a_world_agree_on_fitness():
    public = groups_of(records_of([500] * 4, spread=0.2, seed=5))
    world = surrogate_world(public, np.array([500.0, 1500.0]), rng=np.random.default_rng(3))
    weights = world.mixture.together(world.weights)
    theta = np.array([0.1, 0.2, -0.3, 0.4])
    residuals = public.records.targets - public.records.features @ theta
    exact = weights @ residuals**2 + 1e-5 * theta @ theta
    assert world.evaluation.fitness(theta) == pytest.approx(exact, rel=1e-9)


def test_known_groups_of_no_more_records_differ_from_world_to_world_by_chance_only():
    """Groups are not dealt: what worlds differ by is what the public records do by chance."""
    public = groups_of(records_of([300] * 3, spread=0.1, seed=1))
    enough = np.array([300.0, 4000.0])
    worlds = [
        surrogate_world(public, enough, known=[2, 0], rng=np.random.default_rng(seed))
        for seed in range(40)
    ]
    for world in worlds:
        assert [rows.tolist() for rows in world.mixture.kin] == [
            public.groups[2].tolist(),
            public.groups[0].tolist(),
        ]
    same = surrogate_world(public, enough, known=[2, 0], rng=np.random.default_rng(0))
    assert np.array_equal(same.theta_alone, worlds[0].theta_alone)
    # What its group is, 300 public records tell; of that owner 0 has 300 records of its own.
    own = public.records.at(public.groups[2])
    models = np.stack([world.theta_alone[0] for world in worlds])
    residuals = own.targets - own.features @ public.problem.optimum(own)
    covariance = 2.0 * np.linalg.inv(own.features.T @ own.features) * residuals.var()
    assert models.std(axis=0) == pytest.approx(np.sqrt(np.diag(covariance)), rel=0.35)


def test_the_mean_of_all_owners_is_as_uncertain_as_what_is_known_of_them():
    """Public groups of four records each: what they differ by is known, each of them hardly."""
    measured, forecast = [], []
    for seed in range(40):
        shards = records_of([60] * 40, spread=0.3, seed=100 + seed)
        public = groups_of(
            [Records(features=s.features[:4], targets=s.targets[:4]) for s in shards]
        )
        rest = [Records(features=s.features[4:], targets=s.targets[4:]) for s in shards[:5]]
        theta = public.theta_optimal[None]
        measured.append(World.of(rest, problem_of()).evaluation.relative_fitness(theta)[0])
        rng = np.random.default_rng(seed)
        worlds = [surrogate_world(public, np.full(5, 56.0), known=range(5), rng=rng) for _ in "abc"]
        forecast += [world.evaluation.relative_fitness(theta)[0] for world in worlds]
    assert np.mean(forecast) == pytest.approx(np.mean(measured), rel=0.25)


def test_an_ordered_table_that_drifts_is_noticed_and_goes_on():
    rng = np.random.default_rng(6)
    n = 6000
    x = np.column_stack([rng.uniform(-1, 1, (n, P - 1)), np.ones(n)])
    path = np.cumsum(rng.normal(0, 0.01, (n, P)), axis=0)
    still = x @ [0.6, -0.4, 0.3, 0.1] + rng.normal(0, 0.5, n)
    moving = still + np.einsum("ij,ij->i", x, path)
    steady, drifting = (
        PublicGroups(problem=problem_of(), records=Records(features=x, targets=y), labels=None)
        for y in (still, moving)
    )
    assert not steady.drifts
    assert not ends_of(steady).is_notable
    assert ends_of(drifting).is_notable
    assert drifting.drifts
    sizes = np.array([6000.0, 6000.0])
    far = [
        surrogate_world(drifting, sizes, rng=np.random.default_rng(s)).relative_fitness_alone
        for s in range(30)
    ]
    near = surrogate_world(steady, sizes, rng=np.random.default_rng(1)).relative_fitness_alone
    assert np.median(far) > 10 * np.median(near)


def test_huber_loss_has_the_drift_that_squared_loss_has():
    """Up to a delta that no residual reaches it is half of it."""
    rng = np.random.default_rng(6)
    n, sizes, shares = 6000, np.array([6000.0, 2000.0]), np.array([0.5, 0.5])
    x = np.column_stack([rng.uniform(-1, 1, (n, P - 1)), np.ones(n)])
    path = np.cumsum(rng.normal(0, 0.01, (n, P)), axis=0)
    y = np.einsum("ij,ij->i", x, path) + rng.normal(0, 0.5, n)
    told, pulled = [], []
    for loss in (Squared(), Huber(delta=50.0)):
        problem = Problem(loss=loss, regulariser=Regulariser(coefficient=0.0), theta_max=50.0)
        public = PublicGroups(problem=problem, records=Records(features=x, targets=y), labels=None)
        theta = public.theta_optimal
        worlds = [
            surrogate_world(public, sizes, tells=True, rng=np.random.default_rng(seed))
            for seed in range(4)
        ]
        told.append([w.evaluation.relative_fitness(theta[None])[0] for w in worlds])
        united = [United(world.weighed(shares)) for world in worlds]
        pulled.append([each.gradients(theta, None) / loss.curvature for each in united])
    assert told[1] == pytest.approx(told[0], rel=0.1)
    assert np.array(pulled[1]) == pytest.approx(np.array(pulled[0]), abs=0.05)


@pytest.mark.parametrize(("n", "p"), [(2000, 4), (2000, 30), (240, 20)])
def test_many_features_are_not_taken_for_a_drift(n, p):
    """Chance differs by direction, and most in those that are looked for in the same records."""
    told = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        x = np.column_stack([rng.uniform(-1, 1, (n, p - 1)), np.ones(n)])
        records = Records(features=x, targets=x[:, 0] + rng.normal(0, 0.5, n))
        told.append(PublicGroups(problem=problem_of(), records=records, labels=None).drifts)
    assert np.mean(told) < 0.2


@pytest.mark.parametrize(("n", "p"), [(30, 4), (100, 11), (300, 11)])
def test_ends_of_a_small_table_that_differ_by_chance_are_not_told_of(n, p):
    """Half of all tables of 30 to 300 records were said to change; one in twenty may be."""
    told = {0.0: [], 2.0: []}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        x = np.column_stack([rng.normal(size=(n, p - 1)), np.ones(n)])
        noise = rng.normal(0, 0.7, n)
        for slope, those in told.items():
            y = 0.6 * x[:, 0] + noise + slope * np.linspace(-1, 1, n)
            records = Records(features=x, targets=y)
            groups = PublicGroups(problem=problem_of(), records=records, labels=None)
            those.append(ends_of(groups).is_notable)
    # Four standard errors above one in twenty.
    assert np.mean(told[0.0]) < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 60)
    assert np.mean(told[2.0]) > 0.5


def test_ends_differ_by_what_a_model_of_one_loses_on_the_other():
    """Slopes that are 2 d apart lose 4 d^2 more, of a fitness that holds what all of it misses."""
    rng, n, d = np.random.default_rng(2), 60_000, 0.2
    x = rng.normal(size=(n, P))
    slopes = np.repeat([-d, 0.0, d], n // 3)
    records = Records(features=x, targets=x[:, 0] * slopes + rng.normal(0, 0.5, n))
    found = ends_of(PublicGroups(problem=problem_of(), records=records, labels=None))
    assert found.drift == pytest.approx(4.0 * d**2 / (0.25 + 2.0 * d**2 / 3.0), rel=0.05)


@pytest.mark.parametrize("name", ["squared", "logistic"])
def test_parts_of_an_ordered_table_differ_beyond_chance_where_it_drifts(name):
    rng, n = np.random.default_rng(3), 3000
    place = np.linspace(-1.0, 1.0, n)
    x = np.column_stack([rng.uniform(-1, 1, (n, P - 1)), np.ones(n)])
    for trend in (0.0, 2.0):
        y = x @ [0.6, -0.4, 0.3, 0.1] + trend * place + rng.normal(0, 0.5, n)
        targets = np.where(y > 0, 1.0, -1.0) if name == "logistic" else y
        records = Records(features=x, targets=targets)
        public = PublicGroups(problem=problem_of(name), records=records, labels=None)
        assert public.drifts is bool(trend)
        assert (public.components.all_groups > 0.0) is bool(trend)


def test_no_world_moves_the_means_of_features_farther_than_there_are_records():
    """A drift may be drawn that has gone ten deviations; a few rows would then be all records."""
    rows = np.random.default_rng(4).normal(size=(5000, 3))
    shift = np.array([0.0, 1.5, 0.0])
    weights = _moved(rows, shift)
    assert weights @ rows / weights.sum() == pytest.approx(shift, abs=0.1)
    far = _moved(rows, 10.0 * shift)
    assert np.array_equal(far, _moved(rows, 2.0 / 1.5 * shift))
    assert far.sum() ** 2 / np.sum(far**2) > 50


def test_an_owners_own_gram_matrix_is_its_groups_as_far_as_that_has_records():
    """Six records for each feature are half of it."""
    shards = records_of([24, 800], spread=0.5, seed=5)
    public = groups_of(shards)
    world = surrogate_world(
        public, np.array([900.0, 900.0]), known=[0, 1], rng=np.random.default_rng(1)
    )
    gram = world.mixture.moments_alone().gram
    for owner, (shard, share) in enumerate(zip(shards, (0.5, 800 / 824), strict=True)):
        x = shard.features
        mean = x.mean(axis=0)
        else_of_it = np.outer(mean, mean) + public.within
        expected = share * x.T @ x / len(x) + (1.0 - share) * else_of_it
        assert gram[owner] == pytest.approx(expected, abs=1e-12)


def test_an_owner_of_an_ordered_table_has_consecutive_records():
    """Its own Gram matrix is that of a stretch of the table: of a date it sees next to nothing."""
    rng = np.random.default_rng(6)
    x = np.column_stack([np.linspace(-1, 1, 4000), rng.uniform(-1, 1, (4000, 2)), np.ones(4000)])
    y = x @ [0.6, -0.4, 0.3, 0.1] + rng.normal(0, 0.5, 4000)
    public = PublicGroups(problem=problem_of(), records=Records(features=x, targets=y), labels=None)
    world = surrogate_world(public, np.array([400.0, 9000.0]), rng=np.random.default_rng(1))
    few, all_rows = world.mixture.kin
    assert np.array_equal(few, np.arange(few[0], few[0] + 400))
    assert np.array_equal(all_rows, np.arange(4000))
    shards = [Records(features=x[:400], targets=y[:400]), Records(features=x, targets=y)]
    real = World.of(shards, problem_of()).relative_fitness_alone
    assert real[0] > 3 * real[1]
    alone = world.relative_fitness_alone
    assert alone[0] > 3 * alone[1]


def test_owners_whose_features_vary_less_than_everyones_are_forecast_as_good_alone_as_they_are():
    """What pulls an owner's own model by chance varies as the owner's features do."""
    ratios, sizes = [], np.full(6, 500.0)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        drawn = []
        for _ in range(6):
            x = rng.normal(size=(900, P)) * [0.2, 0.2, 0.2, 0.0] + [*rng.normal(size=P - 1), 1.0]
            drawn.append((x, x @ [0.6, -0.4, 0.3, 0.1] + rng.normal(0, 0.5, 900)))
        public = groups_of([Records(features=x[:400], targets=y[:400]) for x, y in drawn])
        owners = [Records(features=x[400:], targets=y[400:]) for x, y in drawn]
        real = World.of(owners, problem_of()).relative_fitness_alone
        worlds = [surrogate_world(public, sizes, known=range(6), rng=rng) for _ in range(9)]
        forecast = np.median([world.relative_fitness_alone for world in worlds], axis=0)
        ratios.append(np.mean(np.log10(forecast / real)))
    assert np.mean(ratios) == pytest.approx(0.0, abs=0.15)


def test_drift_between_labelled_groups_is_no_drift():
    shards = records_of([500] * 6, spread=0.5, seed=7)
    labelled = groups_of(shards)
    ordered = PublicGroups(problem=problem_of(), records=union(shards), labels=None)
    assert ordered.drifts
    assert not labelled.drifts
    assert ends_of(labelled).drift < 0.02 < ends_of(ordered).drift
    assert not ends_of(labelled).is_notable
    assert ends_of(ordered).is_notable


def test_fewer_records_than_features_are_refused():
    with pytest.raises(InputError, match="got 3 for 4 features"):
        groups_of(records_of([3], spread=0.0, seed=8))


@pytest.mark.parametrize("name", [n for n in LOSSES if LOSSES[n].curvature is not None])
@pytest.mark.parametrize("clip", [None, 0.7])
def test_what_a_world_tells_at_once_is_that_of_its_records(name, clip):
    """Of real records exactly, of squared loss as the whole mixture has it at the public model."""
    problem = problem_of(name)
    classes = LOSSES[name].has_classes()
    shards = records_of([200, 700], spread=0.2, seed=4, classes=classes)
    theta = np.array([0.3, -0.2, 0.1, 0.2])
    real = United(World.of(shards, problem))
    whole = Shard(union(shards))
    loss = problem.loss
    exact = mean_curvature(whole, theta, loss=loss, clip=clip)
    assert real.curvatures(theta, clip) == pytest.approx(exact, abs=1e-12)
    exact = mean_gradient(whole, theta, loss=loss, clip=clip)
    assert real.gradients(theta, clip) == pytest.approx(exact, abs=1e-12)
    both = np.stack([theta, -theta])
    for tell in (real.gradients, real.curvatures):
        each = [tell(one, clip) for one in both]
        assert tell(both, clip) == pytest.approx(np.stack(each), abs=1e-12)
    public = groups_of(records_of([300] * 6, spread=0.2, seed=4, classes=classes), name=name)
    world = surrogate_world(public, np.array([200.0, 900.0]), rng=np.random.default_rng(2))
    anchor = public.theta_optimal
    if not problem.loss.is_quadratic:
        # What ticks lack, who ask one owner at a time, is none of it.
        assert world.lacking(clip, is_whole=False).any()
        judged = Shard(world.judging[0])
        exact = mean_gradient(judged, theta, loss=loss, clip=clip)
        assert United(world).gradients(theta, clip) == pytest.approx(exact, abs=1e-12)
        exact = mean_curvature(judged, theta, loss=loss, clip=clip)
        assert United(world).curvatures(theta, clip) == pytest.approx(exact, abs=1e-12)
        return
    weights = world.mixture.together(world.weights)
    gradients = problem.gradients(anchor, public.records, clip)
    assert United(world).gradients(anchor, clip) == pytest.approx(weights @ gradients, abs=1e-9)
    x = public.records.features
    each = weights * problem.curvatures(anchor, public.records, clip)
    assert United(world).curvatures(anchor, clip) == pytest.approx((x.T * each) @ x, abs=1e-12)


@pytest.mark.parametrize("name", [n for n in LOSSES if LOSSES[n].curvature is not None])
def test_owners_may_count_by_other_shares_than_those_that_are_judged_on(name):
    classes = LOSSES[name].has_classes()
    sizes, shares = np.array([200.0, 900.0]), np.array([0.5, 0.5])
    shards = records_of([200, 900], spread=0.3, seed=4, classes=classes)
    public = groups_of(records_of([300] * 6, spread=0.3, seed=4, classes=classes), name=name)
    theta = public.theta_optimal
    for world, tolerance in (
        (World.of(shards, problem_of(name)), 1e-12),
        (
            surrogate_world(public, sizes, known=[0, 5], rng=np.random.default_rng(2)),
            1e-9 if public.problem.loss.is_quadratic else 2e-3,
        ),
    ):
        assert world.weighed(world.weights) is world
        weighed = world.weighed(shares)
        assert weighed.judging is world.judging
        each = [United(world.only([owner])).gradients(theta, None) for owner in (0, 1)]
        told = United(weighed).gradients(theta, None)
        assert told == pytest.approx(shares @ each, abs=tolerance)
        assert np.abs(told - United(world).gradients(theta, None)).max() > 10 * tolerance


def test_classes_of_those_who_take_part_are_played_as_one_by_records_of_theirs():
    public = groups_of(records_of([300] * 6, spread=0.3, seed=4, classes=True), name="logistic")
    known = [0, 5]
    world = surrogate_world(
        public, np.array([200.0, 900.0]), known=known, rng=np.random.default_rng(2)
    )
    theta = public.theta_optimal
    for owner in (0, 1):
        only = world.only([owner])
        weights = world.mixture.weights_of(owner)
        gradients = public.problem.gradients(theta, public.records, None)
        assert United(only).gradients(theta, None) == pytest.approx(weights @ gradients, abs=2e-3)
        assert only.judging is world.judging
    both = United(world.only([0, 1])).gradients(theta, None)
    assert both == pytest.approx(United(world).gradients(theta, None), abs=2e-3)


@pytest.mark.parametrize("name", ["squared", "logistic", "huber", "hinge"])
def test_nothing_beats_the_own_model_of_an_only_owner(name):
    """All records are its own, so a study of it alone is never forecast to gain."""
    classes = name in {"logistic", "hinge"}
    public = groups_of(records_of([200] * 5, spread=0.3, seed=9, classes=classes), name=name)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        world = surrogate_world(public, np.array([300.0]), known=[0], rng=rng)
        assert world.relative_fitness_alone == pytest.approx([0.0], abs=1e-9)
    two = surrogate_world(public, np.full(2, 300.0), known=[0, 1], rng=np.random.default_rng(9))
    assert two.only([0]).relative_fitness_alone[0] > 1e-6


def test_owners_own_models_are_the_same_where_only_some_take_part():
    public = groups_of(records_of([200] * 5, spread=0.2, seed=7))
    world = surrogate_world(public, np.full(4, 300.0), rng=np.random.default_rng(7))
    np.testing.assert_array_equal(world.only([3, 1]).theta_alone, world.theta_alone[[3, 1]])


def test_an_owners_own_model_minimises_what_its_own_moments_say():
    public = groups_of(records_of([200] * 5, spread=0.2, seed=8))
    world = surrogate_world(public, np.full(4, 300.0), rng=np.random.default_rng(8))
    own = world.mixture.moments_alone()
    ridge = public.problem.regulariser.coefficient * np.eye(P)
    solved = np.linalg.solve(own.gram + ridge, own.cross[..., None])[..., 0]
    assert world.theta_alone == pytest.approx(solved, rel=1e-9)
