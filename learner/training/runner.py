"""The loop that trains with owners, simulated or not: tick, ask, journal, apply.

A response is handed to the journal before it is applied, and is on the disk before its owner is
asked what would make it forget it; :mod:`learner.training.journal` says why that is enough.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from common.arrays import Vector
from common.errors import RefusedError, UnreachableError
from common.terms import Response
from learner.algorithms.clocks import Tick
from learner.algorithms.protocol import Algorithm
from learner.training.in_flight import InFlight
from learner.training.journal import Journal
from learner.training.journal_values import TickEntry
from learner.training.line import OwnerLine, hears
from learner.training.line_state import LineState

log = logging.getLogger("copriv.learner")

State = TypeVar("State")

# Seconds between two looks while no owner is there.
IDLE_SECONDS = 0.05
# Owners that come back and still do not answer are asked so often, each.
MISSED_EACH = 3


@dataclass(frozen=True)
class Applied:
    """One communication after it was applied.

    Args:
      k: Its number from 1; k counts communications, not ticks, as the paper does.
      entry: The tick and its responses.
      central_model: The central model after it, shape (p,).
      replayed: True when it came from the journal of an earlier start.
    """

    k: int
    entry: TickEntry
    central_model: Vector
    replayed: bool = field(kw_only=True)


@dataclass(kw_only=True)
class Pace:
    """How the loop waits.

    Args:
      time_scale: Real seconds for one unit of virtual time; 0 does not wait.
      patience: Seconds that all owners may be away before the run stops.
      in_flight: How many questions may wait for their answers at the same time.
      deadline: Seconds that one answer may take: where they take long, fewer wait.
      origin: Virtual time at which this start of the run takes over.
      wall_before: Seconds that earlier starts took.
    """

    time_scale: float
    patience: float
    in_flight: int = 1
    deadline: float = math.inf
    origin: float = 0.0
    began: float = field(default_factory=time.monotonic)
    wall_before: float = 0.0
    quiet_since: float | None = None
    # When the last tick's owners were asked; None where none of them hears.
    asked: float | None = None
    # Ticks that nobody answered since somebody did, and when the first of them was asked.
    missed: int = 0
    missed_since: float = 0.0
    # Whether it was announced that everything waits.
    announced: bool = False

    def answered(self) -> None:
        """Somebody has answered."""
        self.quiet_since, self.missed, self.announced = None, 0, False

    def wait_to_ask(self, tick: Tick, lines: Sequence[OwnerLine]) -> None:
        """Wait until an owner hears and the tick is due.

        So a start that finds nobody uses up no tick, however often a supervisor makes it.
        """
        if self.asked is None:
            self.wait_for_owners(lines)
        self.wait_for(tick)

    def wait_for(self, tick: Tick) -> None:
        """In real time, wait until the tick is due."""
        if self.time_scale > 0:
            due = self.began + (tick.time - self.origin) * self.time_scale
            time.sleep(max(0.0, due - time.monotonic()))

    def wall_seconds(self) -> float:
        """Seconds since the run began, those of earlier starts included."""
        return self.wall_before + time.monotonic() - self.began

    def waited(self) -> float | None:
        """Seconds since the last tick's owners were asked; None where none of them hears."""
        return None if self.asked is None else time.monotonic() - self.asked

    def wait_for_owners(self, lines: Sequence[OwnerLine]) -> bool:
        """At the start and after a vain tick: wait while all are away, and stop after too long.

        Returns:
          Whether any owner has a response left to give.

        Raises:
          RefusedError: All owners have left.
          UnreachableError: All others were away for ``patience`` seconds, or came back and did
            not answer for as long.
        """
        raise_if_all_left(lines)
        # Those that have given all they promised are not waited for.
        missing = [
            line
            for line in lines
            if line.answered < line.promised and line.state is not LineState.LEFT
        ]
        # A tick of owners that are gone says nothing of the others, who may have theirs later.
        if self.asked is not None:
            self.quiet_since = self.asked if self.quiet_since is None else self.quiet_since
            self._miss(missing, asked=self.asked)
        # A schedule's ticks are counted: none is used up while no owner can answer.
        while missing and all(line.state is LineState.AWAY for line in missing):
            if self.quiet_since is None:
                self.quiet_since = time.monotonic()
            if time.monotonic() - self.quiet_since > self.patience:
                names = ", ".join(line.status for line in missing)
                raise UnreachableError(f"no owner answered for {self.patience:g} seconds ({names})")
            self._announce(missing)
            time.sleep(IDLE_SECONDS)
        return bool(missing)

    def _announce(self, missing: Sequence[OwnerLine]) -> None:
        """Say once who is waited for; each line says itself when its owner is back."""
        if not self.announced:
            self.announced = True
            names = ", ".join(line.status for line in missing)
            log.warning("waiting for %s; gives up after %g s", names, self.patience)

    def _miss(self, missing: Sequence[OwnerLine], *, asked: float) -> None:
        """Owners that come back again and again, and never answer, are not waited for either."""
        self.missed_since = self.missed_since if self.missed else asked
        self.missed += 1
        silent = time.monotonic() - self.missed_since
        if silent > self.patience and self.missed > MISSED_EACH * len(missing):
            names = ", ".join(line.owner.name for line in missing)
            raise UnreachableError(
                f"no owner answered for {self.patience:g} seconds, at {self.missed} ticks ({names})"
            )


def raise_if_all_left(lines: Sequence[OwnerLine]) -> None:
    """Stop when nobody is left to ask.

    Raises:
      RefusedError: All owners have left, and some of them owe responses.
    """
    open_lines = [line for line in lines if line.answered < line.promised]
    if open_lines and all(line.state is LineState.LEFT for line in lines if line.promised):
        raise RefusedError(f"all owners have left the study; the last: {open_lines[-1].left}")


def run(
    algorithm: Algorithm[State],
    ticks: Iterable[Tick],
    lines: Sequence[OwnerLine],
    *,
    journal: Journal | None,
    horizon: int,
    pace: Pace,
    on_applied: Callable[[Applied], None] = lambda applied: None,
    on_missed: Callable[[], None] = lambda: None,
) -> Vector:
    """Train until ``horizon`` communications were applied, or the ticks end.

    Args:
      algorithm: The algorithm.
      ticks: The ticks, the same at every start of this run.
      lines: The owners, by index.
      journal: The run's trace, applied again without asking; None for owners that cost nothing.
      horizon: The number T of communications.
      pace: How to wait.
      on_applied: Called after each communication.
      on_missed: Called after each tick that nobody answered.

    Returns:
      The central model, shape (p,).

    Raises:
      CoprivError: All owners refuse for good, or nobody answered for too long.
    """
    replay, tail = _Replay(lines, journal), _LostTail(lines, journal, patience=pace.patience)
    state, k = algorithm.initial_state(), 0
    in_flight = InFlight(
        algorithm, ticks, lines, most=pace.in_flight, deadline=pace.deadline, settle=replay.settle
    )
    with ThreadPoolExecutor(max_workers=len(lines)) as executor, in_flight.held():
        for position, tick in enumerate(in_flight):
            if replay.was_missed(position):
                continue
            entry = replay.entry(position, tick)
            replayed = entry is not None
            if entry is not None:
                pace.origin, pace.wall_before = entry.time, entry.wall_seconds
            else:
                pace.wait_to_ask(tick, lines)
                ask = tail.ask if tail.may_hold(tick) else OwnerLine.ask
                theta = in_flight.asked(state, tick, left=horizon - k if tail.is_over else 1)
                entry = _ask(position, tick, theta, lines, ask, pace=pace, executor=executor)
                in_flight.answered(was=bool(entry.responses), waited=pace.waited())
                if not replay.keep(entry, tick):
                    on_missed()
                    if not pace.wait_for_owners(lines):
                        break
                    continue
            state = algorithm.apply_responses(state, tick, entry.gradients)
            k += 1
            on_applied(Applied(k, entry, algorithm.central_model(state), replayed=replayed))
            if k == horizon:  # before the next tick is drawn: live ones wait
                break
    replay.end()
    return algorithm.central_model(state)


def _ask(
    position: int,
    tick: Tick,
    theta: Vector,
    lines: Sequence[OwnerLine],
    ask: Callable[[OwnerLine, Vector], Response | None],
    *,
    pace: Pace,
    executor: Executor,
) -> TickEntry:
    """Ask the tick's owners, at the same time if they are several."""
    asked = [lines[owner] for owner in tick.owners]
    pace.asked = time.monotonic() if any(map(hears, asked)) else None
    if len(asked) == 1:
        answers = [ask(asked[0], theta)]
    else:
        answers = list(executor.map(lambda line: ask(line, theta), asked))
    responses = {
        owner: (response.sequence, response.gradient)
        for owner, response in zip(tick.owners, answers, strict=True)
        if response is not None
    }
    if responses:
        pace.answered()
    return TickEntry(
        position=position, time=tick.time, wall_seconds=pace.wall_seconds(), responses=responses
    )


class _LostTail:
    """Ticks that an earlier start may have applied, and not journalled any more.

    They are asked again as they were; an owner that is away is waited for. Each owner answered at
    most as many of them as it repeats, so they are over where an owner comes more often, or once
    nobody else says that it gave an answer that is not held here. Without a journal there are none.
    """

    def __init__(
        self, lines: Sequence[OwnerLine], journal: Journal | None, *, patience: float
    ) -> None:
        self._all = lines
        self._lines = [line for line in lines if line.promised]
        self._patience = patience
        self._journal = journal
        self._asked: Counter[int] = Counter()

    @property
    def is_over(self) -> bool:
        """Whether no tick may be one of them any more."""
        return self._journal is None or self._journal.is_whole

    def may_hold(self, tick: Tick) -> bool:
        """Whether this tick may be one of them, and others after it."""
        if self._journal is None or self.is_over:
            return False
        numbers = ((owner, self._all[owner].numbers) for owner in tick.owners)
        if any(self._asked[owner] >= own.most_repeats for owner, own in numbers) or all(
            line.is_level for line in self._lines
        ):
            self._journal.is_whole = True
        self._asked.update(tick.owners)
        return not self._journal.is_whole

    def ask(self, line: OwnerLine, theta: Vector) -> Response | None:
        """The response at theta, of an owner that is waited for."""
        began = time.monotonic()
        while (response := line.ask(theta)) is None:
            # Of a tick that is the only one left the owner keeps the answer until it is back.
            others = (other for other in self._lines if other is not line)
            only = not line.numbers.may_be_several and all(other.is_level for other in others)
            if only or not line.state.is_absent:
                break
            if time.monotonic() - began > self._patience:
                self._give_up(line)
                break
            time.sleep(IDLE_SECONDS)
        return response

    def _give_up(self, line: OwnerLine) -> None:
        """Go on without an owner, if there is another."""
        if not any(other.state.can_be_asked for other in self._lines):
            names = ", ".join(other.status for other in self._lines if other.status)
            raise UnreachableError(f"no owner answered for {self._patience:g} seconds ({names})")
        log.warning("%s; the run goes on without it", line.status)
        if self._journal is not None:
            self._journal.is_whole = True


class _Replay:
    """What the journal says of each position: answered, missed, or still to come."""

    def __init__(self, lines: Sequence[OwnerLine], journal: Journal | None) -> None:
        self._lines = lines
        self._journal = journal
        self._entries: Iterator[TickEntry] = iter(journal.past if journal else ())
        self._next = next(self._entries, None)
        self._missed_before = journal.missed_before if journal else 0

    def settle(self, tick: Tick | None = None) -> None:
        """Wait until the tick's owners can be asked; of None, until all is durable."""
        if self._journal is not None:
            owners = () if tick is None else tick.owners
            repeats = {owner: self._lines[owner].numbers.repeats for owner in owners}
            self._journal.settle(repeats or None)

    def keep(self, entry: TickEntry, tick: Tick) -> bool:
        """Keep a tick; whether anybody has answered it.

        One that somebody missed is durable before anybody is asked again: a restart must come to
        the same question, because an owner answers a number for one theta only.
        """
        answered = bool(entry.responses)
        if self._journal is not None and answered:
            self._journal.append(entry)
            if len(entry.responses) < len(tick.owners):
                self._journal.settle()
        elif self._journal is not None:
            self._journal.note("missed_before", str(entry.position + 1))
        return answered

    def was_missed(self, position: int) -> bool:
        """Whether an earlier start got no answer at this tick."""
        if self._next is not None:
            return position < self._next.position
        return position < self._missed_before

    def entry(self, position: int, tick: Tick) -> TickEntry | None:
        """The journal's entry at this position, once.

        Raises:
          InputError: Others answered than the tick's owners, so it is not of this run's ticks.
        """
        if self._journal is None or self._next is None or self._next.position != position:
            return None
        if not self._next.responses.keys() <= set(tick.owners):
            raise self._journal.damaged("ticks")
        entry, self._next = self._next, next(self._entries, None)
        return entry

    def end(self) -> None:
        """All is durable, and nothing that the journal holds was left out.

        Raises:
          InputError: It holds more ticks than the run has.
        """
        self.settle()
        if self._journal is not None and self._next is not None:
            raise self._journal.damaged("ticks")
