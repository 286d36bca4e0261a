"""What a run says while it goes."""

import io

import pytest
from rich.console import Console

from learner.commands import display
from learner.planning.public_side import PublicSide
from learner.results.metrics import LearnerMetrics
from learner.results.run_folder import Trace


@pytest.mark.parametrize("quickly", [0, 1000])
def test_a_plan_that_takes_minutes_is_announced(feature_map, monkeypatch, quickly):
    """Of a hundred features a run said nothing for three minutes, of a thousand for ten."""
    monkeypatch.setattr(display, "QUICKLY_PLANNED", quickly)
    written = io.StringIO()
    public = PublicSide(feature_map=feature_map, records=None)
    console = Console(file=written, width=200)
    with display.Display(console, Trace([]), LearnerMetrics(), None, public) as shown:
        shown.plans()
    said = written.getvalue()
    assert said.startswith("planning: with ") == (quickly == 0)
    assert bool(said) == (quickly == 0)
