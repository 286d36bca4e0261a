"""Ticks that owners make are those of one run, through all its starts."""

from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest

from learner.algorithms.clocks import Tick
from learner.training.initiative import BroadcastTicks, RequestedTicks, journalled_ticks
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


class GaveAll:
    """An owner whose numbers are all spent, a lost one among them: it declines every offer."""

    def __init__(self):
        self.offers = 0

    def offer(self, _):
        self.offers += 1
        assert self.offers < 20, "offered again and again"
        return False


class Nobody:
    """No owner is attached."""

    def next_request(self, **_):
        return None

    def anybody(self, _):
        return False


@pytest.mark.parametrize(
    "other", [[], [(LineState.LEFT, 1)]], ids=["alone", "beside one that left"]
)
def test_ticks_of_owners_end_where_none_has_a_response_left_to_give(other, tmp_path):
    """A run with lost responses offered its last owner ever more, and never ended."""
    lines = [
        SimpleNamespace(state=state, answered=answered, promised=3, owner=GaveAll())
        for state, answered in [(LineState.READY, 3), *other]
    ]
    pace = Pace(time_scale=0, patience=0.2)
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        offered = BroadcastTicks(lines, study_id="s", interval=1.0, journal=journal, pace=pace)
        assert list(offered) == []
        assert list(RequestedTicks(lines, Nobody(), journal=journal, pace=pace)) == []
