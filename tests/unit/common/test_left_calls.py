"""Calls that a thread makes, of whom one that ends is not waited for."""

from concurrent.futures import Future

import pytest

from common import left_calls
from common.left_calls import LeftCalls


class Untold(Future):
    """What comes of a call, where nobody has the memory to tell it."""

    def set_result(self, result):
        raise SystemExit

    def set_exception(self, exception):
        raise SystemExit


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_call_whose_thread_has_ended_is_not_waited_for(monkeypatch):
    """As where memory runs out: a table of a database was waited for, for ever."""
    monkeypatch.setattr(left_calls, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(left_calls, "Future", Untold)
    with pytest.raises(MemoryError):
        LeftCalls().run(pow, 2, 3)
    monkeypatch.undo()
    assert LeftCalls().run(pow, 2, 3) == 8
