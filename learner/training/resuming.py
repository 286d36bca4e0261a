"""What earlier starts of a run left: ticks to apply again, and a tail to ask for again.

:mod:`learner.training.journal` says why that is all that a crash may lose. What was under way is
where it belongs: each owner's unanswered query at its line (:mod:`learner.training.line`), a tick
of the owners' own with the others of that kind (:mod:`learner.training.initiative`).
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from common.arrays import Vector
from common.terms import Response
from learner.algorithms.clocks import Tick
from learner.training.journal import Journal
from learner.training.journal_values import TickEntry
from learner.training.line import OwnerLine
from learner.training.pace import Pace

log = logging.getLogger("copriv.learner")


class Replay:
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


class LostTail:
    """Ticks that an earlier start may have applied, and not journalled any more.

    They are asked again as they were; an owner that is away is waited for. Each owner answered at
    most as many of them as it repeats, so they are over where an owner comes more often, or once
    nobody else says that it gave an answer that is not held here. Without a journal there are none.
    """

    def __init__(self, lines: Sequence[OwnerLine], journal: Journal | None, pace: Pace) -> None:
        self._all = lines
        self._lines = [line for line in lines if line.promised]
        self._pace = pace
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
            if time.monotonic() - began > self._pace.patience:
                self._give_up(line)
                break
            self._pace.rest()
        return response

    def _give_up(self, line: OwnerLine) -> None:
        """Go on without an owner, if there is another."""
        if not any(other.state.can_be_asked for other in self._lines):
            raise self._pace.nobody_answered(self._lines)
        log.warning("%s; the run goes on without it", line.status)
        if self._journal is not None:
            self._journal.is_whole = True
