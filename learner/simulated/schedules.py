r"""The communications of many studies at once: clocks, owners that drop out, promised responses.

An owner is away now and then: it comes and goes as a two-state Markov process with a share of
time at which it answers (*availability* a) and a mean length of its absences d, so that

.. math:: P(\text{there at } t+s \mid \text{there at } t) = a + (1-a)\,e^{-s/(a d)}

A tick of an owner that is away is missed. Under the horizon's split the clocks go on until T
communications took place; under the schedule's split the T ticks are drawn ahead, each owner is
sized for its own, and what is missed is lost. None of this looks at data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from common.arrays import Flags, Indices, Vector
from common.errors import InputError
from learner.algorithms.clocks import draw_slots, with_everyone

Split = Literal["horizon", "schedule"]

MISSED = -1
# So often what is missing of T ticks is drawn again: enough where owners answer 3 % of the time.
LONGEST_WAIT = 200
NO_END = (
    "forecast.availability: owners are away so much that the study is too long to be simulated; "
    "give a larger one"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Attendance:
    """How often owners are there.

    Args:
      availability: Share of the time at which each owner answers, in (0, 1], shape (N,); None
        for always.
      mean_absence: Mean length of an absence in units of virtual time.

    Raises:
      InputError: A share is not in (0, 1], or the length is not positive.
    """

    availability: Vector | None = None
    mean_absence: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what is no share and no length."""
        a = self.availability
        if a is not None and not (np.all(a > 0) and np.all(a <= 1)):
            raise InputError(
                f"availability: got {a.tolist()}, expected shares above 0 and at most 1; "
                "leave out owners that never answer"
            )
        if not 0 < self.mean_absence < np.inf:
            raise InputError(f"mean_absence: got {self.mean_absence}, expected a number above 0")

    @property
    def complete(self) -> bool:
        """Whether everybody is always there."""
        return self.availability is None or bool(np.all(self.availability == 1.0))

    def shares(self, num_owners: int) -> Vector:
        """The availability of each owner, shape (N,).

        Raises:
          InputError: It is known for another number of owners.
        """
        if self.availability is None:
            return np.ones(num_owners)
        if self.availability.shape != (num_owners,):
            raise InputError(
                f"availability: got {self.availability.size} numbers for {num_owners} owners"
            )
        return self.availability


ALWAYS = Attendance()


@dataclass(frozen=True, kw_only=True, eq=False)
class Schedule:
    """The communications of R runs.

    Args:
      slots: Which owner is asked at each communication, shape (T, R); ``MISSED`` fills the end of
        a run in which ticks were lost.
      promised: How many responses each owner promised in each run, shape (N, R).
    """

    slots: Indices
    promised: NDArray[np.int64]


def draw_schedule(
    rates: Vector,
    *,
    horizon: int,
    replicates: int,
    split: Split,
    attendance: Attendance = ALWAYS,
    asks_everyone: bool = False,
    ticks: Indices | None = None,
    rng: np.random.Generator,
) -> Schedule:
    """The communications of many runs of an asynchronous algorithm.

    Args:
      rates: Rates of the owners' clocks, shape (N,).
      horizon: The number T of ticks.
      replicates: The number R of runs.
      split: "horizon" promises T of every owner, "schedule" its own number of the T ticks.
      attendance: How often owners are there.
      asks_everyone: Whether a schedule that is drawn hands ticks to clocks that have too few.
      ticks: Whose the ticks are, the same in every run, shape (T,), where owners are always
        there; None to draw them.
      rng: Where the randomness comes from.

    Raises:
      InputError: Owners answer so seldom that T ticks take too long.

    >>> schedule = draw_schedule(np.ones(2), horizon=4, replicates=1, split="schedule",
    ...     rng=np.random.default_rng(1))
    >>> schedule.slots[:, 0].tolist(), schedule.promised[:, 0].tolist()
    ([1, 1, 0, 1], [1, 3])
    """
    N, T, R = len(rates), horizon, replicates
    if attendance.complete:
        if ticks is not None:
            slots = np.tile(ticks[:T, None], (1, R))
        else:
            slots = draw_slots(rates, horizon=T, replicates=R, rng=rng)
            slots = _with_everyone(slots, N) if asks_everyone else slots
        return Schedule(slots=slots, promised=_promised(slots, N, T, split))
    state = _Absences(rates, R, attendance, rng=rng)
    if split == "schedule":
        drawn, there = state.draw(T, asks_everyone)
        kept = np.where(there, drawn, MISSED)
        return Schedule(slots=_moved_up(kept), promised=_promised(drawn, N, T, split))
    parts: list[Indices] = []
    found = np.zeros(R, dtype=np.int64)
    for _ in range(LONGEST_WAIT):
        drawn, there = state.draw(max(64, T - int(found.min())))
        parts.append(np.where(there, drawn, MISSED))
        found += there.sum(axis=0)
        if found.min() >= T:
            slots = _moved_up(np.concatenate(parts))[:T]
            return Schedule(slots=slots, promised=_promised(slots, N, T, split))
    raise InputError(NO_END)


def draw_presence(
    num_owners: int,
    *,
    horizon: int,
    replicates: int,
    attendance: Attendance,
    rng: np.random.Generator,
) -> Flags:
    """Who answers in each round of a synchronous algorithm, shape (T, R, N).

    Rounds that nobody answers do not count, so that somebody answers in each of these.

    Raises:
      InputError: Hardly anybody ever answers.

    >>> attendance = Attendance(availability=np.array([1.0, 0.5]))
    >>> draw_presence(2, horizon=3, replicates=1, attendance=attendance,
    ...     rng=np.random.default_rng(1))[:, 0].tolist()
    [[True, False], [True, True], [True, True]]
    """
    a = attendance.shares(num_owners)
    fade = np.exp(-1.0 / (a * attendance.mean_absence))
    there = rng.random((replicates, num_owners)) < a
    rounds = np.empty((horizon, replicates, num_owners), dtype=np.bool_)
    for k in range(horizon):
        pending = np.ones(replicates, dtype=np.bool_)
        for _ in range(LONGEST_WAIT * 1000):
            likely = a + (there - a) * fade
            drawn = rng.random((replicates, num_owners)) < likely
            there = np.where(pending[:, None], drawn, there)
            pending &= ~there.any(axis=1)
            if not pending.any():
                break
        else:
            raise InputError(NO_END)
        rounds[k] = there
    return rounds


class _Absences:
    """Owners that come and go, looked at when their clocks tick."""

    def __init__(
        self, rates: Vector, replicates: int, attendance: Attendance, *, rng: np.random.Generator
    ) -> None:
        N = len(rates)
        self._rates = rates
        self._share = attendance.shares(N)
        self._decay = 1.0 / (self._share * attendance.mean_absence)
        self._there = rng.random((N, replicates)) < self._share[:, None]
        self._seen = np.zeros((N, replicates))
        self._now = np.zeros(replicates)
        self._rng = rng

    def draw(self, ticks: int, asks_everyone: bool = False) -> tuple[Indices, Flags]:
        """The next ticks: whose they are, and whether it was there, shapes (ticks, R)."""
        R = self._now.size
        slots = draw_slots(self._rates, horizon=ticks, replicates=R, rng=self._rng)
        slots = _with_everyone(slots, len(self._rates)) if asks_everyone else slots
        gaps = self._rng.standard_exponential((ticks, R)) / float(self._rates.sum())
        uniform = self._rng.random((ticks, R))
        there = np.empty((ticks, R), dtype=np.bool_)
        run = np.arange(R)
        for k in range(ticks):
            self._now += gaps[k]
            owner = slots[k]
            a = self._share[owner]
            since = self._now - self._seen[owner, run]
            likely = a + (self._there[owner, run] - a) * np.exp(-since * self._decay[owner])
            there[k] = uniform[k] < likely
            self._there[owner, run] = there[k]
            self._seen[owner, run] = self._now
        return slots, there


def _with_everyone(slots: Indices, num_owners: int) -> Indices:
    """Every run's ticks, some of them handed on."""
    return np.column_stack([with_everyone(run, num_owners) for run in slots.T])


def _moved_up(slots: Indices) -> Indices:
    """Each run's communications in their order, what was missed at the end."""
    order = np.argsort(slots == MISSED, axis=0, kind="stable")
    return np.take_along_axis(slots, order, axis=0)


def _promised(slots: Indices, num_owners: int, horizon: int, split: Split) -> NDArray[np.int64]:
    """Promised responses, shape (N, R)."""
    replicates = slots.shape[1]
    if split == "horizon":
        return np.full((num_owners, replicates), horizon, dtype=np.int64)
    runs = np.arange(replicates)
    counts = np.bincount((slots * replicates + runs).ravel(), minlength=num_owners * replicates)
    return counts.reshape(num_owners, replicates).astype(np.int64)
