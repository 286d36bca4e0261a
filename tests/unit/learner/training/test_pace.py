"""How the loop waits for a tick to be due."""

from types import SimpleNamespace

from learner.algorithms.clocks import Tick
from learner.training import pace
from learner.training.pace import Pace


def test_a_tick_that_is_due_in_some_centuries_is_waited_for(monkeypatch):
    """``time.sleep`` itself refuses so long a wait."""
    now, waits = [0.0], []

    def sleep(seconds):
        assert seconds < 2**33
        waits.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(pace, "LONGEST_SLEEP", 4e9)
    monkeypatch.setattr(pace, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    Pace(time_scale=10.0, patience=1.0).wait_for(Tick(1e9, (0,)))
    assert now == [1e10]
    assert len(waits) == 3
