"""Many runs at once follow the one-run core."""

from dataclasses import replace

import numpy as np
import pytest

from common.losses import LOSSES, Regulariser, Squared
from common.terms import Records
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import Tick, draw_slots, each_alone
from learner.simulated.replicates import (
    FEW_OWNERS,
    ShardMoments,
    laplace_noise,
    moment_gradients,
    record_gradients,
    run_replicates,
)

P, T, R = 3, 40, 5


def make_shards(num_owners, *, classes=False, seed=1):
    rng = np.random.default_rng(seed)
    shards = []
    for i in range(num_owners):
        x = rng.normal(size=(6 + i, P))
        y = x @ [0.5, -0.3, 0.2] + rng.normal(0, 0.3, 6 + i)
        shards.append(Records(features=x, targets=np.where(y > 0, 1.0, -1.0) if classes else y))
    return shards


def make_algorithm(shards, **changes):
    sizes = np.array([len(shard) for shard in shards], dtype=float)
    settings = {
        "weights": sizes / sizes.sum(),
        "num_features": P,
        "theta_max": 0.3,
        "regulariser": Regulariser(coefficient=0.2),
        "rho": 400.0,
        "horizon": T,
    }
    return Asynchronous(**(settings | changes))


def recorded_noise(noise):
    """A noise function that gives the k-th page of ``noise`` at the k-th tick."""
    pages = iter(noise)
    return lambda ticking: next(pages).copy()


def one_run(algorithm, shards, slots, noise, gradient):
    groups = algorithm.groups or each_alone(len(shards))
    state, models = algorithm.initial_state(), []
    for k, slot in enumerate(slots):
        tick = Tick(float(k), groups[slot])
        theta = algorithm.query_point(state, tick)
        answers = {i: gradient(shards[i], theta) + noise[k] for i in tick.owners}
        state = algorithm.apply_responses(state, tick, answers)
        models.append(algorithm.central_model(state))
    return np.array(models)


def squared(shard, theta):
    return Squared().mean_gradient(theta, shard.features, shard.targets)


@pytest.mark.parametrize("num_owners", [1, 2, 3, FEW_OWNERS + 1])
@pytest.mark.parametrize(
    "options",
    # With a rho so large even grad g leaves the box.
    [
        {},
        {"rule": "corrected"},
        {"tail_average": True},
        {"frequency": True},
        {"rho": 8000.0},
        {"start": np.array([0.2, -0.1, 0.3]), "tail_average": True},
    ],
)
def test_each_run_follows_the_core(num_owners, options):
    if "frequency" in options:
        options = {"frequency": np.arange(1.0, num_owners + 1)}
    shards = make_shards(num_owners)
    algorithm = make_algorithm(shards, **options)
    rng = np.random.default_rng(2)
    slots = draw_slots(np.ones(num_owners), horizon=T, replicates=R, rng=rng)
    noise = rng.laplace(0, 0.5, (T, R, P))
    result = run_replicates(
        algorithm,
        slots,
        gradients=moment_gradients(ShardMoments.of(shards)),
        noise=recorded_noise(noise),
        checkpoints=range(1, T + 1),
    )
    for run in range(R):
        models = one_run(algorithm, shards, slots[:, run], noise[:, run], squared)
        assert result.trace[:, run] == pytest.approx(models, rel=1e-12, abs=1e-12)
        assert np.array_equal(result.central[run], result.trace[-1, run])
    # The box was met: without it the runs would have gone elsewhere.
    free = run_replicates(
        replace(algorithm, theta_max=1e9),
        slots,
        gradients=moment_gradients(ShardMoments.of(shards)),
        noise=recorded_noise(noise),
    )
    assert np.max(np.abs(free.central - result.central)) > 1e-3


def test_models_that_begin_elsewhere_go_the_way_of_a_problem_that_is_moved_as_far():
    """Targets less those of the start, from 0: the same steps, where g pulls hardly at all."""
    shards, start = make_shards(3), np.array([0.7, -0.2, 0.4])
    moved = [Records(features=s.features, targets=s.targets - s.features @ start) for s in shards]
    c = 1e-13
    warm = make_algorithm(
        shards, start=start, theta_max=1e6, regulariser=Regulariser(coefficient=c), rho=200 * c
    )
    cold = replace(warm, start=None)
    rng = np.random.default_rng(3)
    slots = draw_slots(np.ones(3), horizon=T, replicates=R, rng=rng)
    noise = rng.laplace(0, 0.5, (T, R, P))
    paths = [
        run_replicates(
            algorithm,
            slots,
            gradients=moment_gradients(ShardMoments.of(own)),
            noise=recorded_noise(noise),
            checkpoints=range(1, T + 1),
        ).trace
        for algorithm, own in ((warm, shards), (cold, moved))
    ]
    assert paths[0] == pytest.approx(start + paths[1], abs=1e-9)
    assert np.ptp(paths[1]) > 0.1
    state = warm.initial_state()
    assert np.array_equal(state.theta_L, start)
    assert np.array_equal(state.theta_i, np.tile(start, (3, 1)))


def test_runs_may_have_frequencies_of_their_own():
    shards, rng = make_shards(3), np.random.default_rng(5)
    algorithm = make_algorithm(shards)
    slots = draw_slots(np.array([1.0, 2.0, 4.0]), horizon=T, replicates=R, rng=rng)
    counts = np.stack([np.bincount(own, minlength=3) for own in slots.T], axis=1).astype(float)
    gradients = moment_gradients(ShardMoments.of(shards))
    together = run_replicates(algorithm, slots, gradients=gradients, frequency=counts)
    for run in range(R):
        one = replace(algorithm, frequency=counts[:, run])
        alone = run_replicates(one, slots[:, [run]], gradients=gradients)
        assert together.central[run] == pytest.approx(alone.central[0], rel=1e-12)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("clip", [None, 0.4])
def test_records_answer_like_the_owners(name, clip):
    shards = make_shards(3, classes=LOSSES[name].has_classes())
    loss = LOSSES[name].example()

    def clipped(shard, theta):
        rows = [
            loss.mean_gradient(theta, x[None], y[None])
            for x, y in zip(shard.features, shard.targets, strict=True)
        ]
        scales = [
            1.0 if clip is None else min(1.0, clip / np.abs(row).sum()) if row.any() else 1.0
            for row in rows
        ]
        return np.mean([scale * row for scale, row in zip(scales, rows, strict=True)], axis=0)

    rng = np.random.default_rng(3)
    thetas, slots = rng.uniform(-0.3, 0.3, (20, P)), rng.integers(3, size=20)
    answers = record_gradients(shards, loss=loss, clip=clip)(slots, thetas)
    for theta, slot, answer in zip(thetas, slots, answers, strict=True):
        assert answer == pytest.approx(clipped(shards[slot], theta), rel=1e-12, abs=1e-14)


def test_moments_answer_like_records():
    shards = make_shards(4)
    rng = np.random.default_rng(4)
    thetas, slots = rng.uniform(-1, 1, (30, P)), rng.integers(4, size=30)
    by_moments = moment_gradients(ShardMoments.of(shards))(slots, thetas)
    by_records = record_gradients(shards, loss=Squared())(slots, thetas)
    assert by_moments == pytest.approx(by_records, rel=1e-12, abs=1e-13)


def test_each_run_has_its_own_step():
    shards = make_shards(3)
    algorithm = make_algorithm(shards)
    slots = draw_slots(np.ones(3), horizon=T, replicates=4, rng=np.random.default_rng(5))
    gradients = moment_gradients(ShardMoments.of(shards))
    rhos = np.array([1.0, 2.0, 5.0, 0.1])
    together = run_replicates(algorithm, slots, gradients=gradients, rho=rhos).central
    for run, rho in enumerate(rhos):
        alone = run_replicates(
            make_algorithm(shards, rho=rho), slots[:, [run]], gradients=gradients
        ).central[0]
        assert together[run] == pytest.approx(alone, rel=1e-12)


def test_a_group_is_the_larger_owner_of_its_records():
    shards = make_shards(3)
    grouped = make_algorithm(shards, groups=((0, 2), (1,)))
    merged = [
        Records(
            features=np.concatenate([shards[0].features, shards[2].features]),
            targets=np.concatenate([shards[0].targets, shards[2].targets]),
        ),
        shards[1],
    ]
    slots = draw_slots(np.ones(2), horizon=T, replicates=1, rng=np.random.default_rng(6))
    many = run_replicates(
        grouped,
        slots,
        gradients=moment_gradients(ShardMoments.of(merged)),
        checkpoints=range(1, T + 1),
    )
    models = one_run(grouped, shards, slots[:, 0], np.zeros((T, P)), squared)
    assert many.trace[:, 0] == pytest.approx(models, rel=1e-12, abs=1e-12)


def test_checkpoints_do_not_change_the_runs():
    shards = make_shards(2)
    slots = draw_slots(np.ones(2), horizon=T, replicates=R, rng=np.random.default_rng(7))
    gradients = moment_gradients(ShardMoments.of(shards))
    kept = run_replicates(make_algorithm(shards), slots, gradients=gradients, checkpoints=(3, T))
    plain = run_replicates(make_algorithm(shards), slots, gradients=gradients)
    assert kept.trace.shape == (2, R, P)
    assert plain.trace.shape == (0, R, P)
    assert np.array_equal(kept.central, plain.central)


def test_noise_has_each_owners_scale():
    noise = laplace_noise(np.array([0.0, 1.0, 4.0]), num_features=P, rng=np.random.default_rng(8))
    slots = np.arange(30_000) % 3
    draws = noise(slots)
    assert not draws[slots == 0].any()
    for slot, scale in ((1, 1.0), (2, 4.0)):
        sizes = np.abs(draws[slots == slot])  # exponential: mean and deviation are the scale
        tolerance = 4 * scale / np.sqrt(sizes.size)
        assert abs(sizes.mean() - scale) < tolerance < 0.1 * scale
        assert abs(draws[slots == slot].mean()) < np.sqrt(2) * tolerance


def test_a_run_that_lost_ticks_is_the_shorter_run():
    shards = make_shards(3)
    algorithm = make_algorithm(shards, tail_average=True)
    rng = np.random.default_rng(11)
    slots = draw_slots(np.ones(3), horizon=T, replicates=R, rng=rng)
    lengths = [T, T - 1, T // 2 + 1, T // 2, 3]
    for run, length in enumerate(lengths):
        slots[length:, run] = -1
    noise = rng.laplace(0, 0.5, (T, R, P))
    result = run_replicates(
        algorithm,
        slots,
        gradients=moment_gradients(ShardMoments.of(shards)),
        noise=recorded_noise(noise),
    )
    for run, length in enumerate(lengths):
        models = one_run(algorithm, shards, slots[:length, run], noise[:, run], squared)
        assert result.central[run] == pytest.approx(models[-1], rel=1e-12, abs=1e-12)


def test_noise_may_have_a_scale_in_each_run():
    scales = np.array([[1.0, 0.0], [3.0, 5.0]])
    noise = laplace_noise(scales, num_features=20_000, rng=np.random.default_rng(12))
    own = np.abs(noise(np.array([1, 0]))).mean(axis=1)
    assert own == pytest.approx([3.0, 0.0], rel=0.03)
    assert np.abs(noise(np.array([0, 1]))).mean(axis=1) == pytest.approx([1.0, 5.0], rel=0.03)


def test_runs_of_a_sequence_have_its_scale():
    scales = np.array([[1.0, 0.0], [3.0, 5.0]])
    rng = np.random.default_rng(12)
    noise = laplace_noise(scales, num_features=20_000, each=2, rng=rng)
    own = np.abs(noise(np.array([1, 0]))).mean(axis=1)
    assert own == pytest.approx([3.0, 3.0, 0.0, 0.0], rel=0.03)


def test_runs_may_share_a_sequence_of_ticks():
    shards, each = make_shards(3), 4
    rng = np.random.default_rng(13)
    slots = draw_slots(np.array([1.0, 2.0, 4.0]), horizon=T, replicates=R, rng=rng)
    counts = np.stack([np.bincount(own, minlength=3) for own in slots.T], axis=1).astype(float)
    slots[T - 9 :, 1] = slots[5, 2] = -1
    rhos, noise = rng.uniform(1, 500, R * each), rng.laplace(0, 0.5, (T, R * each, P))
    exact = moment_gradients(ShardMoments.of(shards))
    algorithm = make_algorithm(shards, tail_average=True)
    shared = run_replicates(
        algorithm,
        slots,
        gradients=lambda asked, thetas: exact(np.repeat(asked, each), thetas),
        noise=recorded_noise(noise),
        each=each,
        rho=rhos,
        frequency=counts,
        checkpoints=(3, T),
    )
    apart = run_replicates(
        algorithm,
        np.repeat(slots, each, axis=1),
        gradients=exact,
        noise=recorded_noise(noise),
        rho=rhos,
        frequency=np.repeat(counts, each, axis=1),
        checkpoints=(3, T),
    )
    assert np.array_equal(shared.trace, apart.trace)
    assert np.array_equal(shared.central, apart.central)
