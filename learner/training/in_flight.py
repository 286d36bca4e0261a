"""The questions of a run: each tick's, and those of the next ticks that are known already.

Algorithm 1 asks one owner after the other, but the next question seldom depends on the last answer:
(7) moves the central model without it, so only a question to the same owner does. Such questions
are asked while the answer is on its way. Answers are taken in the order of the ticks, so models,
trace and journal are the same bit for bit as with one question at a time.

Owners may share a machine, and each answer has its deadline: where answers take long, fewer are
asked at the same time.

A tick that nobody answers moves nothing. An owner that was already asked for a later tick was then
asked at a model that the run does not come to, and its number is spent on that question. It stays
that owner's next one, as any question does that was left unanswered (:mod:`learner.training.line`).
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Generic, TypeVar

from common.arrays import Vector
from common.errors import CoprivError
from common.terms import Query
from learner.algorithms.clocks import Tick
from learner.algorithms.protocol import Algorithm
from learner.training.line import OwnerLine
from learner.training.line_state import LineState

State = TypeVar("State")

# Shares of the deadline. One owner is asked at first; after each answer that came soon there may be
# one more at the same time, after a late one or none half as many.
SOON, LATE = 0.25, 0.5


class InFlight(Generic[State]):
    """The ticks of a run, and what their owners are asked, some of them ahead of their turn.

    Args:
      algorithm: The algorithm.
      ticks: The ticks; none is drawn before its turn unless questions may be asked ahead.
      lines: The owners, by index.
      most: How many questions may wait for answers at the same time, 1 or more.
      deadline: Seconds that one answer may take.
      settle: Waits until a tick's owners may be asked once more.
    """

    def __init__(
        self,
        algorithm: Algorithm[State],
        ticks: Iterable[Tick],
        lines: Sequence[OwnerLine],
        *,
        most: int,
        deadline: float,
        settle: Callable[[Tick], None],
    ) -> None:
        self._algorithm = algorithm
        self._ticks = iter(ticks)
        self._lines = lines
        self._most = most
        # How many may wait now.
        self.room = 1
        self._deadline = deadline
        self._settle = settle
        self._drawn: deque[Tick] = deque()
        # Asked and not answered yet, in the order of the ticks.
        self._waiting: deque[tuple[OwnerLine, Query]] = deque()

    def __iter__(self) -> Iterator[Tick]:
        """Each tick in its turn."""
        return self

    def __next__(self) -> Tick:
        """The next tick."""
        return self._drawn.popleft() if self._drawn else next(self._ticks)

    def asked(self, state: State, tick: Tick, *, left: int) -> Vector:
        """The model at which the tick's owners are asked, shape (p,), or have been already.

        Args:
          state: The state before the tick.
          tick: The tick whose turn it is.
          left: How many communications the run has left; 1 asks nobody ahead.
        """
        most = min(self.room, left)
        if most > 1:
            self._ask_ahead(state, tick, most=most)
        if self._waiting:
            return self._waiting[0][1].theta
        self._settle(tick)
        return self._algorithm.query_point(state, tick)

    def _ask_ahead(self, state: State, tick: Tick, *, most: int) -> None:
        """Ask whatever is known of this tick and those after it before anybody answers."""
        first = len(self._waiting)
        # Not after each answer: the models up to those asked before are computed again.
        if 2 * first > most:
            return
        self._drawn.extend(islice(self._ticks, max(0, most - 1 - len(self._drawn))))
        ticks = [tick, *islice(self._drawn, most - 1)]
        if first == len(ticks) or not self._may_be_ahead(ticks[first]):
            return
        points = self._algorithm.query_points(state, ticks)
        for each, theta in islice(zip(ticks, points, strict=False), first, None):
            if not self._may_be_ahead(each):
                return
            self._settle(each)
            line = self._lines[each.owners[0]]
            query = line.question(theta)
            # First noted, then sent: whatever interrupts this, it is known.
            self._waiting.append((line, query))
            line.owner.send(query)

    def _may_be_ahead(self, tick: Tick) -> bool:
        """Whether the tick is one owner's, who is there, is free, and works while others do."""
        line = self._lines[tick.owners[0]]
        return (
            len(tick.owners) == 1
            and line.owner.answers_later
            and line.state is LineState.READY
            and line.unanswered is None
            and not line.numbers.in_doubt
            and line.answered < line.promised
            and all(line is not asked for asked, _ in self._waiting)
        )

    def answered(self, *, was: bool, waited: float | None) -> None:
        """The first question was answered, or not: then those behind it stay their owners' next.

        They are durable when this returns.

        Args:
          was: Whether it was answered.
          waited: The seconds that passed meanwhile; None where its owner was known to be away, and
            nobody was asked, which says nothing of the others.
        """
        if self._waiting:
            self._waiting.popleft()
        if not was:
            self._hold()
        if waited is None:
            return
        if not was or waited > LATE * self._deadline:
            self.room = max(1, self.room // 2)
        elif waited < SOON * self._deadline:
            self.room = min(self._most, self.room + 1)

    def _hold(self) -> None:
        """What was asked stays its owners' next question."""
        while self._waiting:
            line, query = self._waiting.popleft()
            line.hold(query)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """What waits for an answer when this fails is what its owner is asked first later on."""
        try:
            yield
        except BaseException:
            # What cannot be kept is asked again at the same model, or passed over.
            with contextlib.suppress(CoprivError):
                self._hold()
            raise
