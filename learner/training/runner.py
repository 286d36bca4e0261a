"""The loop that trains with owners, simulated or not: tick, ask, journal, apply.

A response is handed to the journal before it is applied, and is on the disk before its owner is
asked what would make it forget it; :mod:`learner.training.journal` says why that is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from common.arrays import Vector
from common.terms import Response
from learner.algorithms.clocks import Tick
from learner.algorithms.protocol import Algorithm
from learner.training.in_flight import InFlight
from learner.training.journal import Journal
from learner.training.journal_values import TickEntry
from learner.training.line import OwnerLine
from learner.training.pace import Pace
from learner.training.resuming import LostTail, Replay

State = TypeVar("State")


@dataclass(frozen=True)
class Applied:
    """One communication after it was applied.

    Args:
      k: Its number from 1; k counts communications, not ticks, as the paper does.
      entry: The tick and its responses.
      central_model: The central model after it, shape (p,).
    """

    k: int
    entry: TickEntry
    central_model: Vector


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
    replay, tail = Replay(lines, journal), LostTail(lines, journal, pace)
    state, k = algorithm.initial_state(), 0
    in_flight = InFlight(
        algorithm, ticks, lines, most=pace.in_flight, deadline=pace.deadline, settle=replay.settle
    )
    with ThreadPoolExecutor(max_workers=len(lines)) as executor, in_flight.held():
        for position, tick in enumerate(in_flight):
            if replay.was_missed(position):
                continue
            entry = replay.entry(position, tick)
            if entry is not None:
                pace.replayed(entry)
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
            on_applied(Applied(k, entry, algorithm.central_model(state)))
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
    pace.asks(asked)
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
