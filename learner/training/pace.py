"""How the loop waits: for a tick to be due, and for owners that are away, but not for ever."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from common.errors import RefusedError, UnreachableError
from learner.algorithms.clocks import Tick
from learner.training.journal_values import TickEntry
from learner.training.line import OwnerLine, hears
from learner.training.line_state import LineState

log = logging.getLogger("copriv.learner")

# Seconds between two looks while no owner is there.
IDLE_SECONDS = 0.05
# Some centuries at a time are an error.
LONGEST_SLEEP = 1e6
# Owners that come back and still do not answer are asked so often, each.
MISSED_EACH = 3


@dataclass(kw_only=True)
class Pace:
    """How the loop waits, and since when.

    Args:
      time_scale: Real seconds for one unit of virtual time; 0 does not wait.
      patience: Seconds that all owners may be away before the run stops.
      in_flight: How many questions may wait for their answers at the same time.
      deadline: Seconds that one answer may take: where they take long, fewer wait.
    """

    time_scale: float
    patience: float
    in_flight: int = 1
    deadline: float = math.inf

    def __post_init__(self) -> None:
        """Begin."""
        self._began = time.monotonic()
        # Virtual time at which this start of the run takes over, and seconds that earlier took.
        self._origin = self._wall_before = 0.0
        # When the last tick's owners were asked; None where none of them hears.
        self._asked: float | None = None
        # Since when nobody is there.
        self._quiet_since: float | None = None
        # Ticks that nobody answered since somebody did, and when the first of them was asked.
        self._missed, self._missed_since = 0, 0.0
        # Whether it was announced that everything waits, and that the run ends without some.
        self._announced = self._ended = False

    def replayed(self, entry: TickEntry) -> None:
        """An earlier start came as far as this tick."""
        self._origin, self._wall_before = entry.time, entry.wall_seconds

    def asks(self, lines: Sequence[OwnerLine]) -> None:
        """These owners are asked now."""
        self._asked = time.monotonic() if any(map(hears, lines)) else None

    def answered(self) -> None:
        """Somebody has answered."""
        self._quiet_since, self._missed, self._announced = None, 0, False

    def heard(self) -> None:
        """Somebody is there: only silence from now on counts."""
        self._quiet_since = None

    def wait_to_ask(self, tick: Tick, lines: Sequence[OwnerLine]) -> None:
        """Wait until an owner hears and the tick is due.

        So a start that finds nobody uses up no tick, however often a supervisor makes it.
        """
        if self._asked is None:
            self.wait_for_owners(lines)
        self.wait_for(tick)

    def wait_for(self, tick: Tick) -> None:
        """In real time, wait until the tick is due."""
        if self.time_scale > 0:
            due = self._began + (tick.time - self._origin) * self.time_scale
            while (left := due - time.monotonic()) > 0:
                time.sleep(min(left, LONGEST_SLEEP))

    def rest(self) -> None:
        """A moment, until owners that are away are looked at again."""
        time.sleep(IDLE_SECONDS)

    def virtual_now(self) -> float:
        """In real time, the virtual time that it is now."""
        return self._origin + (time.monotonic() - self._began) / self.time_scale

    def wall_seconds(self) -> float:
        """Seconds since the run began, those of earlier starts included."""
        return self._wall_before + time.monotonic() - self._began

    def waited(self) -> float | None:
        """Seconds since the last tick's owners were asked; None where none of them hears."""
        return None if self._asked is None else time.monotonic() - self._asked

    def wait_for_owners(self, lines: Sequence[OwnerLine]) -> bool:
        """At the start and after a vain tick: wait while all are away, and stop after too long.

        Returns:
          Whether any owner has a response left to give.

        Raises:
          RefusedError: All owners have left.
          UnreachableError: All others were away for ``patience`` seconds, or came back and did
            not answer for as long; and none has given all that it promised.
        """
        raise_if_all_left(lines)
        missing = owing(lines)
        try:
            self._wait_for_one_of(missing)
        except UnreachableError:
            # What the others gave is all that they ever give: it must not wait for one of those
            # that may be gone for good.
            if not any(0 < line.promised <= line.answered for line in lines):
                raise
            self._announce_end(missing)
            return False
        return bool(missing)

    def _wait_for_one_of(self, missing: Sequence[OwnerLine]) -> None:
        """Return once one of them is not away, or none is missing."""
        # A tick of owners that are gone says nothing of the others, who may have theirs later.
        if self._asked is not None:
            self._quiet_since = self._quiet_since or self._asked
            self._miss(missing, asked=self._asked)
        # A schedule's ticks are counted: none is used up while no owner can answer.
        while missing and all(line.state is LineState.AWAY for line in missing):
            if self._quiet_since is None:
                self._quiet_since = time.monotonic()
            if time.monotonic() - self._quiet_since > self.patience:
                raise self.nobody_answered(missing)
            self._announce(missing)
            self.rest()

    def nobody_answered(self, lines: Sequence[OwnerLine]) -> UnreachableError:
        """The error where these were waited for in vain."""
        names = ", ".join(line.status for line in lines if line.status)
        return UnreachableError(f"no owner answered for {self.patience:g} seconds ({names})")

    def _announce(self, missing: Sequence[OwnerLine]) -> None:
        """Say once who is waited for; each line says itself when its owner is back."""
        if not self._announced:
            self._announced = True
            names = ", ".join(line.status for line in missing)
            log.warning("waiting for %s; gives up after %g s", names, self.patience)

    def _announce_end(self, missing: Sequence[OwnerLine]) -> None:
        """Say once who is not waited for any more."""
        if not self._ended:
            self._ended = True
            names = ", ".join(line.owner.name for line in missing)
            log.warning("the others gave all that they promised; the run ends without %s", names)

    def _miss(self, missing: Sequence[OwnerLine], *, asked: float) -> None:
        """Owners that come back again and again, and never answer, are not waited for either."""
        self._missed_since = self._missed_since if self._missed else asked
        ticks = self._missed = self._missed + 1
        silent = time.monotonic() - self._missed_since
        if silent > self.patience and ticks > MISSED_EACH * len(missing):
            names = ", ".join(line.owner.name for line in missing)
            raise UnreachableError(
                f"no owner answered for {self.patience:g} seconds, at {ticks} ticks ({names})"
            )


def owing(lines: Sequence[OwnerLine]) -> list[OwnerLine]:
    """The owners that may give a response yet; those that have given all are not waited for."""
    return [
        line for line in lines if line.answered < line.promised and line.state is not LineState.LEFT
    ]


def raise_if_all_left(lines: Sequence[OwnerLine]) -> None:
    """Stop when nobody is left to ask.

    Raises:
      RefusedError: All owners have left, and some of them owe responses.
    """
    open_lines = [line for line in lines if line.answered < line.promised]
    if open_lines and all(line.state is LineState.LEFT for line in lines if line.promised):
        raise RefusedError(f"all owners have left the study; the last: {open_lines[-1].left}")
