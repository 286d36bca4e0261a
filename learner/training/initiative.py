"""Ticks that owners have a say in: offers that the first listener accepts, and their requests.

These ticks cannot be drawn ahead, so each is kept in the journal before its owner is asked. A run
that is resumed goes through the same ticks, comes to the same query for the owner it was about to
ask, and only then waits for the owners again.
"""

from __future__ import annotations

import json
import queue
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from common.errors import CoprivError, RefusedError, UnreachableError
from learner.algorithms.clocks import Tick
from learner.planning.sections import AlgorithmSettings
from learner.training.journal import Journal
from learner.training.journal_values import index_of
from learner.training.line import OwnerLine
from learner.training.pace import IDLE_SECONDS, Pace, owing, raise_if_all_left

PENDING = "pending_tick"
# Units of virtual time: of clocks of the usual rate, one, nobody waits so long.
LONGEST_SILENCE = 10_000.0


class Requests(Protocol):
    """Where owners' requests for updates arrive; the listening learner is one."""

    def next_request(
        self, *, now: float, time_scale: float, ready: Callable[[int], bool], timeout: float
    ) -> tuple[int, float] | None:
        """The next owner that asked, and when its clock ticked, or None after ``timeout`` seconds.

        Args:
          now: Virtual time; clocks of owners that come (back) start here.
          time_scale: Real seconds for one unit of virtual time; 0 takes requests in the order
            of their virtual times, else in the order of their arrival.
          ready: Whether an owner may be asked now; requests of the others wait.
          timeout: Seconds.
        """

    def anybody(self, ready: Callable[[int], bool]) -> bool:
        """Whether any owner is attached that may be asked."""


def live_ticks(
    settings: AlgorithmSettings,
    lines: Sequence[OwnerLine],
    *,
    study_id: str,
    requests: Requests | None,
    journal: Journal,
    pace: Pace,
) -> LiveTicks | None:
    """The ticks of the study's initiative, or None where the learner fires the clocks itself.

    Args:
      settings: Who begins, and how often.
      lines: The owners.
      study_id: The study that offers are for.
      requests: Where owners that attach ask for an update; None where they do not.
      journal: Keeps each tick before its owner is asked.
      pace: Waits for virtual time to pass, in real time if that is asked for.

    Raises:
      ValueError: Owners begin, and there are no ``requests``.
    """
    match settings.initiative:
        case "broadcast":
            return BroadcastTicks(
                lines,
                study_id=study_id,
                interval=settings.interval or 1.0,
                journal=journal,
                pace=pace,
            )
        case "owner":
            if requests is None:
                raise ValueError("owners' requests need somewhere to arrive")
            return RequestedTicks(lines, requests, journal=journal, pace=pace)
        case _:
            return None


def journalled_ticks(journal: Journal) -> list[Tick]:
    """The ticks of earlier starts of the run, by position, and the one that was under way.

    Positions that nobody answered hold a tick of no owners, which the loop passes over.
    """
    entries = {entry.position: entry for entry in journal.past}
    end = max(max(entries, default=-1) + 1, journal.missed_before)
    ticks = [
        Tick(entries[p].time, tuple(sorted(entries[p].responses)))
        if p in entries
        else Tick(0.0, ())
        for p in range(end)
    ]
    pending = journal.read(PENDING, _pending)
    if pending is not None and pending[0] == end:
        ticks.append(pending[1])
    return ticks


def _pending(text: str) -> tuple[int, Tick]:
    """The position of the tick that was under way, and the tick."""
    facts = json.loads(text)
    tick = Tick(float(facts["time"]), (index_of(facts["owner"]),))
    return index_of(facts["position"]), tick


class LiveTicks(Iterator[Tick], ABC):
    """Ticks as the owners make them, after those that the journal holds.

    Guarantees:
      * A tick is durable before it is handed out, so a restart asks the same owner the same.
      * Times never go back.

    Args:
      lines: The owners, by index.
      journal: The run's durable trace.
      pace: How the loop waits.
    """

    def __init__(self, lines: Sequence[OwnerLine], *, journal: Journal, pace: Pace) -> None:
        self._lines = lines
        self._journal = journal
        self._pace = pace
        self._journalled = iter(journalled_ticks(journal))
        self._position = 0
        self._now = 0.0
        self._seen = time.monotonic()

    def __next__(self) -> Tick:
        """The next tick, as long as an owner has a response left to give."""
        tick = next(self._journalled, None)
        if tick is None:
            tick = self._live()
            # Durable before anybody is asked.
            pending = {"position": self._position, "time": tick.time, "owner": tick.owners[0]}
            self._journal.note(PENDING, json.dumps(pending))
            self._pace.heard()
        self._position += 1
        self._now = max(self._now, tick.time)
        return tick

    def _end_without_owners(self) -> None:
        """End the ticks where no owner has a response left to give: some may be lost.

        Raises:
          StopIteration: None has.
          RefusedError: All owners have left.
        """
        raise_if_all_left(self._lines)
        if not owing(self._lines):
            raise StopIteration

    def _nobody(self, whom: str, silence: float) -> None:
        """Rest, or stop after too long a silence."""
        if time.monotonic() - self._seen > silence:
            raise UnreachableError(f"{whom} for {silence:g} seconds; resume the run when they are")

    @abstractmethod
    def _live(self) -> Tick:
        """Wait for the next tick of the owners."""


class RequestedTicks(LiveTicks):
    """The owners' own clocks: whoever asks for an update is the next tick's owner.

    The learner talks to that owner alone; requests that come meanwhile wait for their turn.

    References: section III of Farokhi et al. (2021), requests by the data owners.
    """

    def __init__(
        self, lines: Sequence[OwnerLine], requests: Requests, *, journal: Journal, pace: Pace
    ) -> None:
        super().__init__(lines, journal=journal, pace=pace)
        self._requests = requests

    def _live(self) -> Tick:
        began = self._seen = time.monotonic()
        longest = self._pace.patience + LONGEST_SILENCE * self._pace.time_scale
        while True:
            request = self._requests.next_request(
                now=self._virtual_now(),
                time_scale=self._pace.time_scale,
                ready=self._can_be_asked,
                timeout=IDLE_SECONDS,
            )
            if request is not None:
                owner, asked_at = request
                when = asked_at if self._pace.time_scale == 0 else self._virtual_now()
                return Tick(max(self._now, when), (owner,))
            self._end_without_owners()
            if self._requests.anybody(self._can_be_asked):
                self._seen = time.monotonic()
            self._nobody("no owner was attached", self._pace.patience)
            # In virtual time nobody waits for a clock, and who attaches in silence is cut off.
            if self._pace.time_scale > 0 and time.monotonic() - began > longest:
                raise UnreachableError(f"no owner asked for an update for {longest:g} seconds")

    def _can_be_asked(self, owner: int) -> bool:
        return self._lines[owner].state.can_be_asked

    def _virtual_now(self) -> float:
        """Virtual time: that of the last tick, or what has passed on the wall."""
        if self._pace.time_scale == 0:
            return self._now
        return max(self._now, self._pace.virtual_now())


class BroadcastTicks(LiveTicks):
    """Regular offers to all owners; whoever accepts first is the next tick's owner.

    An offer carries no model: those who decline, and those who accept too late, spend nothing.
    An offer that nobody accepts is no tick. Acceptances count in the order they arrive in, and
    offers leave in a random order, so that no owner is always first.

    Args:
      lines: The owners, by index.
      study_id: The study that is offered.
      interval: Virtual time between offers.
      journal: The run's durable trace.
      pace: How the loop waits.

    References: section III of Farokhi et al. (2021), broadcasting by the learner.
    """

    def __init__(
        self,
        lines: Sequence[OwnerLine],
        *,
        study_id: str,
        interval: float,
        journal: Journal,
        pace: Pace,
    ) -> None:
        super().__init__(lines, journal=journal, pace=pace)
        self._study_id = study_id
        self._interval = interval
        self._round = 0
        self._replies: queue.SimpleQueue[_Reply] = queue.SimpleQueue()
        # Owners that have not replied to an earlier offer yet.
        self._thinking: set[int] = set()

    def _live(self) -> Tick:
        self._seen = time.monotonic()
        when = self._now
        while True:
            when += self._interval
            self._pace.wait_for(Tick(when, ()))
            winner = self._offer()
            if winner is not None:
                return Tick(when, (winner,))
            self._end_without_owners()
            self._nobody(
                "no owner replied to an offer",
                self._pace.patience + self._interval * self._pace.time_scale,
            )

    def _offer(self) -> int | None:
        """One round of offers; the first owner to accept, or None."""
        self._round += 1
        while not self._replies.empty():
            self._take()
        asked = [
            owner
            for owner, line in enumerate(self._lines)
            if line.state.can_be_asked and owner not in self._thinking
        ]
        secrets.SystemRandom().shuffle(asked)
        self._thinking.update(asked)
        for owner in asked:
            threading.Thread(
                target=self._ask, args=(self._round, owner), name="offer", daemon=True
            ).start()
        return self._first_to_accept(set(asked))

    def _first_to_accept(self, asked: set[int]) -> int | None:
        """Collect replies until one of this round accepts, or all of it have replied."""
        seen = self._seen
        while asked:
            reply = self._take()
            if reply.round_number == self._round:
                if reply.accepted:
                    return reply.owner
                asked.discard(reply.owner)
        if self._seen == seen:
            time.sleep(IDLE_SECONDS)
        return None

    def _take(self) -> _Reply:
        """The next reply of any round."""
        reply = self._replies.get()
        self._thinking.discard(reply.owner)
        if isinstance(reply.failure, RefusedError):
            self._lines[reply.owner].refused(reply.failure)
        elif reply.failure is None:
            self._seen = time.monotonic()
        elif not isinstance(reply.failure, CoprivError):
            raise reply.failure
        return reply

    def _ask(self, round_number: int, owner: int) -> None:
        """One offer to one owner."""
        accepted, failure = False, None
        try:
            accepted = self._lines[owner].owner.offer(self._study_id)
        except Exception as error:  # the loop waits for a reply, and raises what is not ours
            failure = error
        self._replies.put(_Reply(round_number, owner, accepted, failure))


@dataclass(frozen=True, slots=True)
class _Reply:
    """What became of one offer; a failure means an owner that is not there, or refuses."""

    round_number: int
    owner: int
    accepted: bool
    failure: Exception | None
