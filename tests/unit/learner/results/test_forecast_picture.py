"""What the forecast's picture writes at its axes and beside its lines can be read."""

import math
from itertools import pairwise
from types import SimpleNamespace

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from learner.forecasting.verdict import OwnerVerdict
from learner.results.forecast_picture import _beside, _draw_curve, _draw_owners, _plain


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
    _beside(axis, (place, 0.5), "together, and nine runs in ten", color="black", side="top")
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


def an_owner(name, alone):
    """What a forecast says of an owner whose own model would have this relative fitness."""
    return OwnerVerdict(
        name=name,
        records=100,
        epsilon="1",
        relative_fitness_alone=alone,
        gains=alone > 0,
        one_more_epsilon_is_worth=0.0,
        smallest_epsilon_factor=None,
    )


@pytest.mark.parametrize("alone", [0.0, 0.001])
def test_long_names_leave_room_for_the_words_and_0_does_not_widen_the_axis(alone):
    """The title and what stands at the line were cut; 1e-29 stretched the axis to 1e-30."""
    names = [f"stadtisches-klinikum-zum-heiligen-geist-und-{k}" for k in range(3)]
    owners = [an_owner(name, alone) for name in names]
    told = SimpleNamespace(
        owners=owners,
        interval_90=(6e-5, 8e-4),
        relative_fitness=3e-4,
        relative_fitness_public=7e-3,
    )
    figure = Figure(figsize=(4.6, 3.6), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axis = figure.add_subplot()
    _draw_owners(axis, told)
    canvas.draw()
    for words in (axis.title, *axis.texts):
        at = words.get_window_extent()
        assert at.x0 >= 0
        assert at.x1 <= figure.bbox.x1
    shown = [tick.label1.get_text() for tick in axis.yaxis.get_major_ticks()]
    assert len(set(shown)) == 3
    assert axis.get_xlim()[0] > 1e-8
    drawn = [x for line in axis.lines for x in line.get_xdata() if len(line.get_xdata()) == 3]
    assert drawn
    assert min(drawn) > 0


@pytest.mark.parametrize("count", [1, 3, 30, 60, 400])
def test_words_stand_between_the_frame_and_the_owners_however_many_these_are(count):
    """Of sixty owners the frame struck the words out, which stood over its edges."""
    owners = tuple(an_owner(f"site-{i}", 0.03) for i in range(count))
    told = SimpleNamespace(
        owners=owners,
        interval_90=(0.01, 0.08),
        relative_fitness=0.03,
        relative_fitness_public=0.03,
    )
    figure = Figure(figsize=(4.6, 3.6), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axis = figure.add_subplot()
    _draw_owners(axis, told)
    canvas.draw()
    frame = axis.get_window_extent()
    lowest, highest = (axis.transData.transform((0.03, y))[1] for y in (0, count - 1))
    together, public = (words.get_window_extent() for words in axis.texts)
    assert highest < together.y0
    assert together.y1 < frame.y1
    assert frame.y0 < public.y0
    assert public.y1 < lowest


def test_names_of_curves_that_begin_together_do_not_cover_each_other():
    """They stood where their lines begin: where owners are small, on each other."""
    curve = {
        str(factor): SimpleNamespace(
            low=value / 3, high=value * 3, relative_fitness=value, alone=[1.3 * value], public=0.006
        )
        for factor, value in ((0.01, 0.09), (1, 0.0004), (100, 2e-7))
    }
    figure = Figure(figsize=(4.6, 3.6), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axis = figure.add_subplot()
    _draw_curve(axis, curve, "factor on every owner's records")
    canvas.draw()
    legend = axis.get_legend()
    words = [*axis.texts, *(legend.get_texts() if legend else [])]
    boxes = sorted((one.get_window_extent() for one in words), key=lambda box: box.y0)
    assert len(boxes) == 3
    assert all(one.y1 <= other.y0 for one, other in pairwise(boxes))


def test_a_curve_leaves_out_the_single_owner_whose_own_model_is_the_best():
    """All of it was left out, where one of its points is 0."""
    curve = {
        str(owners): SimpleNamespace(
            low=0.001, high=0.01, relative_fitness=0.003, alone=[alone] * owners, public=0.006
        )
        for owners, alone in ((1, 0.0), (2, 0.02), (3, 0.03))
    }
    axis = Figure().add_subplot()
    _draw_curve(axis, curve, "owners")
    (drawn,) = (line for line in axis.lines if line.get_label() == "alone, middle owner")
    assert list(drawn.get_ydata())[1:] == [0.02, 0.03]
    assert math.isnan(drawn.get_ydata()[0])
    _draw_curve(axis := Figure().add_subplot(), {"1": curve["1"]}, "owners")
    assert {line.get_label() for line in axis.lines} == {"together", "public model"}
