"""The journal lets go of what it cannot use, and a resume reads it once."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from common.errors import InputError
from learner.training.journal import Journal, TickEntry


def test_a_journal_that_is_none_is_let_go_of(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    path.write_bytes(b"this is no journal" * 100)
    with pytest.raises(InputError, match="cannot be used"):
        Journal(path)
    # Moved away by whoever read the sentence, in the same process.
    path.unlink()
    with closing(Journal(path)) as journal:
        assert list(journal.entries()) == []


def entry(position: int, owner: int = 0) -> TickEntry:
    responses = {owner: (position + 1, np.full(2, float(position)))}
    return TickEntry(position=position, time=float(position), wall_seconds=0.0, responses=responses)


@pytest.mark.parametrize("repeats", [1, 4, 16])
def test_an_owner_is_asked_again_only_while_it_repeats_all_that_a_crash_could_lose(
    tmp_path: Path, repeats: int
) -> None:
    path = tmp_path / "journal.sqlite"
    late = []
    with closing(Journal(path)) as journal, closing(sqlite3.connect(path)) as other:
        for position in range(100):
            owner = position % 2
            journal.settle({owner: repeats})
            durable = other.execute("SELECT position FROM ticks").fetchall()
            assert durable == [(each,) for each in range(len(durable))]
            late.append(sum(each % 2 == owner for each in range(len(durable), position)))
            journal.append(entry(position, owner))
        journal.settle()
        assert other.execute("SELECT count(*) FROM ticks").fetchone() == (100,)
    assert max(late) <= repeats - 1
    # Many ticks are written at once where there is room for them.
    assert (max(late) > 0) == (repeats > 1)


def test_a_tick_is_on_the_disk_after_a_moment_also_if_nobody_needs_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with closing(Journal(path)) as journal, closing(sqlite3.connect(path)) as other:
        journal.settle({0: 16})
        journal.append(entry(0))
        over = time.monotonic() + 20
        while not other.execute("SELECT * FROM ticks").fetchall() and time.monotonic() < over:
            time.sleep(0.01)
        assert other.execute("SELECT position FROM ticks").fetchall() == [(0,)]


def test_a_start_knows_the_ticks_of_earlier_ones_not_its_own(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with closing(Journal(path)) as journal:
        assert journal.past == ()
        journal.append(entry(0))
        assert journal.past == ()
    with closing(Journal(path)) as journal:
        assert [past.position for past in journal.past] == [0]
