"""A start of a run goes through the ticks of those before it: answered, missed, or to come."""

import sqlite3
from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest

from common.errors import InputError
from learner.algorithms.clocks import Tick
from learner.training.journal import Journal
from learner.training.journal_values import TickEntry
from learner.training.resuming import Replay

BOTH = Tick(1.0, (0, 1))
# They repeat so many answers that nobody waits for the disk on their account.
LINES = [SimpleNamespace(numbers=SimpleNamespace(repeats=16)) for _ in range(2)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.sqlite"


def entry(position, *owners):
    told = {owner: (position + 1, np.zeros(2)) for owner in owners}
    return TickEntry(position=position, time=1.0, wall_seconds=0.5, responses=told)


def kept(path, *entries):
    """A start that came so far."""
    with closing(Journal(path)) as journal:
        replay = Replay(LINES, journal)
        return [replay.keep(each, BOTH) for each in entries]


def gone_through(path, positions):
    """What a later start finds at each position: whose answers, None for what was missed."""
    found = []
    with closing(Journal(path)) as journal:
        replay = Replay(LINES, journal)
        for position in range(positions):
            if replay.was_missed(position):
                found.append(None)
            else:
                past = replay.entry(position, BOTH)
                found.append(() if past is None else tuple(past.responses))
        replay.end()
    return found


def test_what_was_missed_is_not_asked_again(path):
    """Its owners' numbers would go to ticks that the run did not have."""
    answered = kept(path, entry(0, 0, 1), entry(1), entry(2, 1), entry(3), entry(4))
    assert answered == [True, False, True, False, False]
    assert gone_through(path, 6) == [(0, 1), None, (1,), None, None, ()]


def test_a_tick_that_somebody_missed_is_on_the_disk_before_anybody_is_asked(path):
    with closing(Journal(path)) as journal:
        replay = Replay(LINES, journal)
        replay.settle(BOTH)
        replay.keep(entry(0, 1), BOTH)
        with closing(sqlite3.connect(path)) as other:
            assert other.execute("SELECT position FROM ticks").fetchall() == [(0,)]


def test_ticks_of_other_owners_or_beyond_the_run_are_of_another_run(path):
    kept(path, entry(0, 0, 1), entry(1, 0))
    damaged = pytest.raises(InputError, match=r"is damaged \(ticks\)")
    with closing(Journal(path)) as journal, damaged:
        Replay(LINES, journal).entry(0, Tick(1.0, (0,)))
    with pytest.raises(InputError, match=r"is damaged \(ticks\)"):
        gone_through(path, 1)
