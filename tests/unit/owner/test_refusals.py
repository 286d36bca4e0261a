"""What others learn of an error, and how much of it is logged."""

import logging

import grpc
import pytest

from common.errors import BusyError, InputError, OrderError
from common.logs import start_logging
from common.thread_limit import NO_MORE_THREADS, NO_THREAD
from owner.ledger_rows import LedgerDiskError
from owner.raw_rows import table_changed
from owner.refusals import FAILED, Refusals


def test_what_a_caller_sent_begins_no_line_of_the_log(capsys):
    ours = logging.getLogger("copriv")
    before = ours.handlers[:], ours.level, ours.propagate
    start_logging("text")
    try:
        Refusals().public(ValueError("2026-11-27 10:00:00,000 INFO\n2026-11-27 INFO forged"))
    finally:
        ours.handlers[:], ours.level, ours.propagate = before
    first, *others = capsys.readouterr().err.splitlines()
    assert first.endswith("ERROR a call failed")
    assert others[-1].strip() == "2026-11-27 INFO forged"
    assert all(line.startswith("  ") for line in others)


@pytest.mark.parametrize(
    "error",
    [
        LedgerDiskError("ledger.sqlite: the ledger cannot be used (database or disk is full)"),
        table_changed("stays.parquet"),
        InputError("stays.parquet: cannot be read as a table: No such file or directory"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_file_that_cannot_be_used_is_told_in_one_line(caplog, error):
    """Of a table that was changed under an owner, forty lines stood around the one sentence."""
    assert Refusals().public(error).sentence == FAILED
    (record,) = caplog.records
    assert record.getMessage() == f"a call failed: {error}"
    assert record.exc_info is None


def test_a_thread_that_does_not_begin_is_told_in_one_line(caplog):
    assert Refusals().public(RuntimeError(NO_THREAD[0])).sentence == FAILED
    (record,) = caplog.records
    assert record.getMessage() == f"a call failed: {NO_MORE_THREADS}"
    assert record.exc_info is None


def test_what_callers_cause_fills_no_log(caplog):
    refusals = Refusals()
    with caplog.at_level(logging.WARNING, logger="copriv.owner"):
        for _ in range(1000):
            refusals.public(OrderError("late"))
            assert refusals.public(ValueError("income 12345")).sentence == FAILED
    refused = [record for record in caplog.records if record.levelno == logging.WARNING]
    failed = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert 1 <= len(refused) <= 40
    assert 1 <= len(failed) <= 20
    # A flood of refusals hides no failure, nor the reverse.
    assert "income 12345" in caplog.text


def test_what_is_left_out_is_counted(caplog):
    refusals = Refusals()
    with caplog.at_level(logging.WARNING, logger="copriv.owner"):
        for _ in range(120):
            refusals.public(OrderError("late"))
        caplog.clear()
        # As if two seconds had passed.
        refusals._refused._rate._at -= 2.0
        refusals.public(OrderError("late"))
    (line,) = caplog.messages
    assert line.startswith("refused: late (")
    assert "left out before" in line


def test_a_caller_cannot_steer_a_log(caplog):
    with caplog.at_level(logging.WARNING, logger="copriv.owner"):
        Refusals().public(OrderError("\x1b[2Jlate\nERROR forged"))
    assert all(message.isprintable() for message in caplog.messages)


def test_a_busy_owner_says_when_to_come_back():
    refusal = Refusals().public(BusyError("later", retry_after=0.0001))
    assert (refusal.status, refusal.retry_after_ms) == (grpc.StatusCode.UNAVAILABLE, 1)
