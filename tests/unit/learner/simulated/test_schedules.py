"""Ticks, absences and promises of many runs."""

import numpy as np
import pytest

from common.errors import InputError
from learner.simulated.schedules import (
    MISSED,
    Attendance,
    draw_presence,
    draw_schedule,
)

T, R, N = 400, 50, 3


def draw(split="horizon", attendance=None, seed=1, **changes):
    return draw_schedule(
        np.ones(N),
        horizon=T,
        replicates=R,
        split=split,
        attendance=attendance or Attendance(),
        rng=np.random.default_rng(seed),
        **changes,
    )


def test_the_horizon_promises_everything_and_the_schedule_each_its_own():
    assert np.all(draw().promised == T)
    scheduled = draw("schedule")
    for run in range(R):
        counts = np.bincount(scheduled.slots[:, run], minlength=N)
        assert np.array_equal(scheduled.promised[:, run], counts)


def test_known_ticks_are_kept_in_every_run():
    ticks = np.arange(T) % N
    schedule = draw("schedule", ticks=ticks)
    assert np.array_equal(schedule.slots, np.tile(ticks[:, None], (1, R)))


def test_a_study_of_the_horizon_goes_on_until_all_communications_took_place():
    away = Attendance(availability=np.array([0.3, 1.0, 1.0]), mean_absence=5.0)
    slots = draw(attendance=away).slots
    assert slots.min() >= 0
    share = np.mean(slots == 0)
    # Owner 0 answers 0.3 of its ticks, the others all: 0.3 / 2.3.
    assert share == pytest.approx(0.3 / 2.3, abs=0.02)


def test_a_scheduled_study_loses_what_is_missed_at_its_end():
    away = Attendance(availability=np.array([0.5, 0.5, 0.5]), mean_absence=2.0)
    schedule = draw("schedule", attendance=away)
    missed = schedule.slots == MISSED
    assert np.mean(missed) == pytest.approx(0.5, abs=0.03)
    assert np.all(np.diff(missed.astype(int), axis=0) >= 0)
    assert np.all(schedule.promised.sum(axis=0) == T)  # promised as if everybody came


def test_what_is_missed_of_a_schedule_comes_together_in_absences_of_their_length():
    """Of ticks that were missed one by one, each run would lose about as many."""
    T, a, d, runs = 200, 0.5, 50.0, 4000
    away = Attendance(availability=np.full(1, a), mean_absence=d)
    schedule = draw_schedule(
        np.ones(1),
        horizon=T,
        replicates=runs,
        split="schedule",
        attendance=away,
        rng=np.random.default_rng(4),
    )
    kept = np.count_nonzero(schedule.slots != MISSED, axis=0)
    # Ticks at exponential gaps of mean 1 see each other's state with this correlation.
    rho = 1.0 / (1.0 + 1.0 / (a * d))
    lags = np.arange(1, T)
    variance = a * (1 - a) * (T + 2.0 * float((T - lags) @ rho**lags))
    # Five standard errors of a normal count's variance; missed one by one it would be 50.
    assert kept.var() == pytest.approx(variance, rel=5 * np.sqrt(2 / runs))
    assert kept.mean() == pytest.approx(a * T, abs=5 * np.sqrt(variance / runs))


def test_absences_last_as_long_as_they_are_said_to():
    away = Attendance(availability=np.full(1, 0.5), mean_absence=10.0)
    there = draw_presence(1, horizon=1, replicates=1, attendance=away, rng=np.random.default_rng(2))
    assert there.all()  # a round that nobody answers does not count
    two = Attendance(availability=np.array([0.5, 1.0]), mean_absence=10.0)
    there = draw_presence(
        2, horizon=40_000, replicates=1, attendance=two, rng=np.random.default_rng(3)
    )[:, 0, 0]
    assert there.mean() == pytest.approx(0.5, abs=0.06)
    stays = np.mean(there[1:][~there[:-1]] == there[:-1][~there[:-1]])
    a, decay = 0.5, np.exp(-1 / (0.5 * 10))
    assert stays == pytest.approx(1 - a * (1 - decay), abs=0.01)


@pytest.mark.parametrize(
    "changes",
    [
        {"availability": np.array([0.0, 1.0])},
        {"availability": np.array([np.nan])},
        {"mean_absence": 0.0},
    ],
)
def test_impossible_attendance_is_refused(changes):
    with pytest.raises(InputError):
        Attendance(**changes)


def test_owners_that_hardly_ever_answer_are_refused(monkeypatch):
    """A round that nobody answers once had a model of 0/0."""
    monkeypatch.setattr("learner.simulated.schedules.LONGEST_WAIT", 1)
    away, rng = Attendance(availability=np.full(N, 1e-9)), np.random.default_rng(1)
    with pytest.raises(InputError, match=r"forecast\.availability: owners are away so much"):
        draw_presence(N, horizon=2, replicates=2, attendance=away, rng=rng)
    with pytest.raises(InputError, match=r"forecast\.availability: owners are away so much"):
        draw(attendance=away)
