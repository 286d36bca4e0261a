"""A ledger that failed is tried again by one thread, until it works or the owner stops."""

import threading

import pytest
from waiting import comes_about, wait_until

from owner import mending
from owner.ledger_rows import LedgerError
from owner.mending import Mending


class FullDisk:
    """An owner whose ledger fails until there is room."""

    ledger_fault = None

    def __init__(self):
        self.ledger_works, self.has_room, self.tries = False, False, 0

    def try_ledger(self):
        self.tries += 1
        if not self.has_room:
            raise LedgerError("no room")
        self.ledger_works = True


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "mend"]


@pytest.fixture
def owner(monkeypatch):
    monkeypatch.setattr(mending, "TRY_SECONDS", 0.01)
    return FullDisk()


def test_one_thread_tries_until_the_ledger_works_and_another_after_the_next_failure(owner):
    told, faults = [], []
    one = Mending(owner, told.append, on_fault=lambda: faults.append(None))
    for _ in range(2):
        owner.ledger_works = owner.has_room = False
        tries = owner.tries
        for _ in range(3):
            one.used(False)
        wait_until(lambda tries=tries: owner.tries > tries + 3)
        assert len(threads()) == 1
        owner.has_room = True
        wait_until(lambda: not threads())
        assert told[-1] is True
    assert told.count(True) == 2
    assert not faults


def test_an_owner_that_stops_tries_its_ledger_no_more(owner):
    one = Mending(owner, on_fault=lambda: None)
    one.used(False)
    wait_until(lambda: owner.tries)
    one.stop()
    try:
        assert comes_about(lambda: not threads(), seconds=10.0)
    finally:
        owner.has_room = True


def test_a_ledger_that_only_another_start_can_use_is_told_and_not_tried(owner):
    faults = []
    owner.ledger_fault = LedgerError("moved")
    Mending(owner, on_fault=lambda: faults.append(None)).used(False)
    assert faults
    assert not threads()
    assert not owner.tries
