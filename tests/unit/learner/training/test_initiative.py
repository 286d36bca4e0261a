"""Ticks that owners make are those of one run, through all its starts."""

from contextlib import closing
from types import SimpleNamespace

import numpy as np

from learner.algorithms.clocks import Tick
from learner.training.initiative import RequestedTicks, journalled_ticks
from learner.training.journal import Journal
from learner.training.journal_values import TickEntry
from learner.training.line_state import LineState
from learner.training.pace import Pace

LINES = [SimpleNamespace(state=LineState.READY)]


class Early:
    """Owner 0 asks at once, and says that its clock ticked at 2."""

    def next_request(self, **_):
        return 0, 2.0


def test_times_never_go_back_though_the_last_tick_was_missed_and_a_clock_is_behind(tmp_path):
    """A missed tick has no time in the journal."""
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        told = {0: (1, np.zeros(2))}
        journal.append(TickEntry(position=0, time=5.0, wall_seconds=1.0, responses=told))
        journal.note("missed_before", "2")
        ticks = RequestedTicks(LINES, Early(), journal=journal, pace=Pace(time_scale=0, patience=1))
        first, missed, live = (next(ticks) for _ in range(3))
        assert (first.time, missed.owners) == (5.0, ())
        assert live == Tick(5.0, (0,))
        # It is durable before anybody is asked: a later start has it, too.
        assert journalled_ticks(journal)[2:] == [live]
