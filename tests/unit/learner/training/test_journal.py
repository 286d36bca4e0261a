"""The journal lets go of what it cannot use, and a resume reads it once."""

from __future__ import annotations

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


def test_a_start_knows_the_ticks_of_earlier_ones_not_its_own(tmp_path: Path) -> None:
    def entry(position: int) -> TickEntry:
        responses = {0: (position + 1, np.full(2, float(position)))}
        return TickEntry(
            position=position, time=float(position), wall_seconds=0.0, responses=responses
        )

    path = tmp_path / "journal.sqlite"
    with closing(Journal(path)) as journal:
        assert journal.past == ()
        journal.append(entry(0))
        assert journal.past == ()
    with closing(Journal(path)) as journal:
        assert [past.position for past in journal.past] == [0]
