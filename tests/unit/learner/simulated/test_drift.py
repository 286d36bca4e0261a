"""What a table tells of a drift along it, and what earlier records may then be."""

import numpy as np
import pytest

from learner.simulated.drift import Drift, _modes, _process, drift_of

D, N = 3, 3000
OWNERS = np.array([1500.0, 3000.0])


def drifting(length, variance, *, seed):
    """An Ornstein-Uhlenbeck drift under noise of variance 1: a table, and what lay before it.

    Returns the table's values, and each owner's mean less the table's.
    """
    rng = np.random.default_rng(seed)
    rows = int(OWNERS.sum()) + N
    path = np.empty((rows, D))
    path[0] = rng.normal(size=D)
    kept = np.exp(-1.0 / length)
    fresh = rng.normal(size=(rows, D)) * np.sqrt(1.0 - kept**2)
    for row in range(1, rows):
        path[row] = kept * path[row - 1] + fresh[row]
    path *= np.sqrt(variance)
    public = path[-N:]
    owners = np.split(path[:-N], [int(OWNERS[0])])
    away = np.stack([own.mean(axis=0) for own in owners]) - public.mean(axis=0)
    values = public + rng.normal(size=(N, D))
    return values - values.mean(axis=0), away


def paths_of(drift, count, *, owners=OWNERS, seed=0):
    rng = np.random.default_rng(seed)
    return np.stack([drift.path(owners, rng=rng) for _ in range(count)])


def test_where_nothing_drifts_worlds_are_off_by_less_than_chance():
    drawn, sure = [], []
    for seed in range(40):
        values = np.random.default_rng(seed).normal(size=(N, D))
        drift = drift_of(values - values.mean(axis=0), D)
        drawn.append(np.median(np.sum(paths_of(drift, 20) ** 2, axis=2)))
        sure.append(drift.steady)
    assert np.median(drawn) < 0.25 * D / N
    assert np.median(sure) > 0.6
    assert np.mean(np.array(sure) < 0.05) <= 0.05


@pytest.mark.parametrize("length", [400, 1500, 3000])
def test_unseen_earlier_records_are_as_far_as_is_told(length):
    """In the median over tables within a factor of 3.5, and mostly where nine in ten should be.

    One table tells little of the length: a short one is told too long, and a long one too short.
    """
    ratios, within = [], []
    for seed in range(40):
        values, away = drifting(length, 0.1, seed=seed)
        squares = np.sum(paths_of(drift_of(values, D), 100, seed=seed) ** 2, axis=2)
        low, high = np.quantile(squares, [0.05, 0.95], axis=0)
        real = np.sum(away**2, axis=1)
        ratios.append(np.median(squares, axis=0) / real)
        within.append((low <= real) & (real <= high))
    assert np.all(np.abs(np.log(np.median(ratios, axis=0))) < np.log(3.5))
    assert np.mean(within) > 0.75


def test_ten_times_the_drift_goes_three_times_as_far():
    """What is told follows the table, not the prior."""
    told = []
    for variance in (0.1, 1.0):
        drifts = [drift_of(drifting(3000, variance, seed=seed)[0], D) for seed in range(10)]
        told.append(np.mean([np.median(np.abs(paths_of(each, 50))) for each in drifts]))
    assert told[1] / told[0] == pytest.approx(np.sqrt(10.0), rel=0.3)


def test_records_next_to_the_table_are_like_its_first():
    rng = np.random.default_rng(1)
    trend = np.outer(np.linspace(0.5, -0.5, N), [1.0, 0.0, -1.0])
    drift = drift_of(trend + rng.normal(size=(N, D)), D)
    assert drift.steady < 1e-6
    near = paths_of(drift, 200, owners=np.array([50.0]))[:, 0]
    assert near.mean(axis=0) == pytest.approx([0.5, 0.0, -0.5], abs=0.2)
    # Farther away less is known.
    far = paths_of(drift, 200, owners=np.array([9000.0, 50.0]))
    assert np.all(far[:, 0].std(axis=0)[[0, 2]] > 2 * far[:, 1].std(axis=0)[[0, 2]])


def test_a_path_is_drawn_as_it_is_given_what_was_seen(monkeypatch):
    """Of one length and variance, a path has the mean and the covariance of normal values."""
    owners, rows = np.array([200, 400]), 3000
    values = np.linspace(0.3, -0.3, rows) + np.random.default_rng(1).normal(size=rows)
    drift = drift_of(values[:, None] - values.mean(), 1)
    K, place = len(drift.means), 3
    length, variance = drift.lengths[place], 0.02
    level = variance * drift.modes[place].size
    monkeypatch.setattr(Drift, "_drawn", lambda *_, **__: (np.array([place]), np.array([level])))
    drawn = paths_of(drift, 20_000, owners=owners.astype(float))[..., 0] / drift.root[0, 0]
    # The same by every record's own covariance with every other, and by linear prediction.
    at = np.arange(owners.sum() + rows)
    covariance = variance * np.exp(-np.abs(np.subtract.outer(at, at)) / length)
    ends = np.append(np.cumsum(owners), owners.sum() + np.arange(1, K + 1) * drift.rows).astype(int)
    means = np.zeros((len(owners) + K, len(at)))
    for row, (first, last) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        means[row, first:last] = 1.0 / (last - first)
    away = means[: len(owners)] - means[len(owners) :].mean(axis=0)
    parts = (np.eye(K) - 1.0 / K) @ means[len(owners) :]
    seen = parts @ covariance @ parts.T + (np.eye(K) - 1.0 / K) / drift.rows
    gain = away @ covariance @ parts.T @ np.linalg.pinv(seen)
    left = away @ covariance @ away.T - gain @ parts @ covariance @ away.T
    deviations = np.sqrt(np.diag(left))
    assert drawn.mean(axis=0) == pytest.approx(gain @ drift.means[:, 0], abs=0.03 * deviations[0])
    assert np.cov(drawn.T) / np.outer(deviations, deviations) == pytest.approx(
        left / np.outer(deviations, deviations), abs=0.04
    )


def test_the_same_generator_draws_the_same_path():
    values, _ = drifting(3000, 0.05, seed=3)
    once, again = (paths_of(drift_of(values, D), 3, seed=5) for _ in "ab")
    assert np.array_equal(once, again)
    assert not np.array_equal(once, paths_of(drift_of(values, D), 3, seed=6))


def test_few_records_tell_nothing():
    values = np.random.default_rng(0).normal(size=(35, D))
    assert drift_of(values, D) is None
    assert drift_of(np.vstack([values, values[:1]]), D) is not None


def test_values_that_do_not_vary_do_not_drift():
    assert not paths_of(drift_of(np.zeros((N, D)), D), 5).any()


def test_a_process_is_drawn_as_its_covariance_says():
    K, part = 6, 0.4
    centring = np.eye(K) - 1.0 / K
    modes = _modes(part, centring)
    drawn = _process(np.full(K, part), 200_000, rng=np.random.default_rng(2))
    # A covariance of 200,000 draws: its deviation is at most sqrt(2 / 200,000).
    assert drawn @ drawn.T / 200_000 == pytest.approx(modes.covariance, abs=0.015)
    assert np.trace(centring @ modes.covariance) / (K - 1) == pytest.approx(modes.size)


def test_what_follows_a_feature_is_missing_from_residuals():
    """A model with the date in it shows little of a long drift, which is then not taken for one."""
    rng = np.random.default_rng(4)
    date = np.linspace(-1.0, 1.0, N)
    target = np.cumsum(rng.normal(0, 0.02, N)) + 2.0 * date + rng.normal(size=N)
    features = np.column_stack([date, rng.normal(size=N)])
    features -= features.mean(axis=0)
    target -= target.mean()
    residuals = target - features @ np.linalg.lstsq(features, target, rcond=None)[0]
    blind = drift_of(residuals[:, None], 2)
    aware = drift_of(residuals[:, None], 2, absorbed_by=features)
    spread = [paths_of(each, 200).std() for each in (blind, aware)]
    assert spread[1] > 1.25 * spread[0]
    unrelated = drift_of(residuals[:, None], 2, absorbed_by=features[:, 1:])
    assert paths_of(unrelated, 200).std() == pytest.approx(spread[0], rel=0.3)
