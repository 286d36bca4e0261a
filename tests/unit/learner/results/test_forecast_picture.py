"""What the forecast's picture writes at its axes and beside its lines can be read."""

from itertools import pairwise

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from learner.results.forecast_picture import _beside, _plain


@pytest.mark.parametrize("end", [0.062, 0.9, 40.0, 4e4])
@pytest.mark.parametrize("share", [0.02, 0.6, 0.98])
def test_words_stay_in_the_picture_and_numbers_apart(end, share):
    """The words left the picture on the right, and 0.03 and 0.04 stood on each other."""
    figure = Figure(figsize=(4.6, 3.6), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axis = figure.add_subplot()
    axis.set_xscale("log")
    axis.set_xlim(0.0057, end)
    _plain(axis, axis.xaxis)
    place = 0.0057 * (end / 0.0057) ** share
    _beside(axis, (place, 0.5), "together, and nine runs in ten", color="black")
    canvas.draw()
    frame, (words,) = axis.get_window_extent(), axis.texts
    at = words.get_window_extent()
    assert frame.x0 <= at.x0
    assert at.x1 <= frame.x1
    ticks = [tick for tick in axis.xaxis.get_major_ticks() if tick.label1.get_text()]
    boxes = [tick.label1.get_window_extent() for tick in ticks]
    assert len(boxes) >= 1
    assert all(one.x1 < other.x0 for one, other in pairwise(boxes))
    assert all("10^" not in tick.label1.get_text() for tick in ticks)
