"""Tables for a terminal lose nothing of their headings, and axes have a number at their foot."""

import io
import re
from itertools import pairwise

import numpy as np
import pytest
from rich.console import Console

from learner.results.charts import Line, Mark, curve, strip, timeline
from learner.results.report import print_by_name, table_by_name

HEADS = ("owner", "records", "epsilon", "responses", "noise scale", "alone", "public model",
         "together", "gains")  # fmt: skip
# The height of letters on a phone, as in page.css.
LETTERS = 13.5
CELLS = ("500", "100", "11", "0.0316", "0.00525", "0.0182", "0.00178", "yes")


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("name", ["n" * 64, "the-hospital-in-the-north-" * 2 + "of-it"])
def test_a_long_name_is_folded_and_no_heading_or_cell_is_cut(width, name):
    made = io.StringIO()
    table = table_by_name("study", HEADS, [(name, *CELLS), ("b", *CELLS)])
    Console(file=made, width=width).print(table)
    text = made.getvalue()
    words = text.split()
    for word in " ".join(HEADS).split():
        assert word in words
    for cell in CELLS:
        assert words.count(cell) == 2
    assert "…" not in text
    folded = "".join(line.split()[0] for line in text.splitlines() if line.strip())
    assert name in folded


@pytest.mark.parametrize("width", [20, 40, 50, 60, 80, 160])
def test_names_and_numbers_are_whole_in_any_terminal(width):
    """In a terminal of 50 letters no owner had a name, and 0.00618 was 0.0061 above 8."""
    made = io.StringIO()
    print_by_name(Console(file=made, width=width), None, HEADS, [("north", *CELLS)] * 2)
    words = made.getvalue().split()
    for cell in ("north", *CELLS):
        assert words.count(cell) == 2
    for word in " ".join(HEADS).split():
        assert word in words


@pytest.mark.parametrize(("count", "fill"), [(1, "var(--blue)"), (2, "transparent")])
def test_a_curve_of_one_point_is_a_dot(count, fill):
    """A line from a point to itself is none: the picture of a study of one answer was empty."""
    x = np.arange(1.0, 1.0 + count)
    drawn = curve("t", [Line(name="together", x=x, y=x)], x_label="k", y_label="fitness")
    assert set(re.findall(r'<circle [^>]*fill="([^"]+)"', drawn)) == {fill}


@pytest.mark.parametrize("ends", [(0.0017, 0.05), (0.0017, 20.0), (2.0, 3.0), (3e-9, 4e5)])
def test_the_lowest_number_of_an_axis_stands_at_its_foot(ends):
    low, high = ends
    line = Line(name="together", x=np.array([1.0, 9.0]), y=np.array([high, low]))
    drawn = curve("t", [line], x_label="k", y_label="fitness")
    numbers = [float(text) for text in re.findall(r'text-anchor="end">([0-9.e+-]+)<', drawn)]
    assert min(numbers) <= low
    # The picture is 240 high, and its axis ends 48 above.
    places = re.findall(r'y="([0-9.]+)" text-anchor="end">[0-9.e+-]+<', drawn)
    assert max(map(float, places)) == pytest.approx(240 - 48 + 4)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("ends", [(0.1, 3.0), (0.1, 0.42), (1e-9, 0.4), (0.2, 0.8), (0.4, 9.0)])
@pytest.mark.parametrize("names", [("public model", "together"), ("together", "public model")])
def test_no_mark_crosses_the_name_of_another(order, ends, names):
    marks = (Mark(at=0.26, text=names[0]), Mark(at=0.41, text=names[1]))
    values = [("a", ends[0], True), ("b", ends[1], False)]
    drawn = strip("t", values, label="fitness", marks=[marks[i] for i in order])
    rules = [
        (float(x), float(top))
        for x, top in re.findall(r'x1="([0-9.]+)"[^>]*y1="([0-9.]+)"[^>]*dasharray', drawn)
    ]
    assert len(rules) == 2
    for name in ("public model", "together"):
        [(at, line, side)] = re.findall(
            rf'x="([0-9.]+)" y="([0-9.]+)" text-anchor="(\w+)"[^>]*>{name}<', drawn
        )
        left = float(at) - (8 * len(name) if side == "end" else 0)
        right = left + 8 * len(name)
        assert left >= 0
        assert right <= 440
        assert not [x for x, top in rules if left < x < right and top < float(line)]


def test_names_of_marks_that_lie_close_stand_apart_and_above_the_dots():
    """On a phone one cut off the foot of the other."""
    marks = [Mark(at=0.0144, text="together"), Mark(at=0.0234, text="public model")]
    drawn = strip("t", [("a", 0.0064, False)], label="fitness", marks=marks)
    ys = [float(re.search(rf'y="([^"]+)"[^>]*>{mark.text}<', drawn)[1]) for mark in marks]
    assert ys[1] - ys[0] >= LETTERS
    top = float(re.search(r'<rect x="[^"]+" y="([^"]+)"', drawn)[1])
    assert ys[1] < top


@pytest.mark.parametrize("log_x", [False, True])
def test_a_name_has_the_colour_of_its_line_and_the_axis_both_of_its_ends(log_x):
    lines = [
        Line(name=name, x=np.array([2.5, 7.5]), y=np.array([1.0, end]), color=f"var(--{color})")
        for name, end, color in (("two", 0.5, "blue"), ("three", 0.45, "green"))
    ]
    drawn = curve("", lines, x_label="epsilon", y_label="", log_x=log_x)
    colors = re.findall(r'style="fill:var\(--(\w+)\)">(\w+)</text>', drawn)
    assert sorted(colors) == [("blue", "two"), ("green", "three")]
    assert {"2.5", "7.5"} <= set(re.findall(r">([\d.]+)</text>", drawn))


@pytest.mark.parametrize("count", [2, 6, 30])
@pytest.mark.parametrize("end", [1e-4, 0.01])
def test_names_of_curves_that_end_together_stand_apart_above_the_axis(count, end):
    x = np.array([1.0, 9.0])
    lines = [
        Line(name=f"curve {k}", x=x, y=np.array([1.0, end * (1 + k / 1e6)]), color=f"c{k}")
        for k in range(count)
    ]
    drawn = curve("t", lines, x_label="k", y_label="fitness")
    [height] = map(float, re.findall(r'viewBox="0 0 440 ([0-9.]+)"', drawn))
    places = sorted(map(float, re.findall(r'y="([0-9.]+)"[^>]*>curve \d+</text>', drawn)))
    assert len(places) == count
    assert min(np.diff(places)) >= 14
    assert 20 < places[0] < places[-1] < height - 48
    # To the right of all curves, and within the picture.
    ends = [float(x) for x in re.findall(r' ([0-9.]+),[0-9.]+" fill="none"', drawn)]
    begins = [float(x) for x in re.findall(r'x="([0-9.]+)"[^>]*>curve \d+</text>', drawn)]
    assert max(ends) < min(begins) < 440 - 7.5 * len("curve 1")


def test_long_names_of_curves_are_listed_below_the_picture():
    x = np.array([1.0, 9.0])
    names = ["algorithm.name=synchronous-1", "algorithm.name=newton"]
    lines = [Line(name=name, x=x, y=x, color=name) for name in names]
    drawn = curve("t", lines, x_label="k", y_label="fitness")
    places = re.findall(r'y="([0-9.]+)"[^>]*>algorithm.name=\w', drawn)
    assert len(places) == 2
    assert min(map(float, places)) > 240


def test_curves_of_one_colour_are_listed_below_the_picture_beside_a_piece_of_each():
    x = np.array([1.0, 9.0])
    dashes = ["", "6 4", "2 3"]
    lines = [Line(name=f"curve {k}", x=x, y=x, dashes=dashes[k]) for k in range(3)]
    drawn = curve("t", lines, x_label="k", y_label="fitness")
    [height] = map(float, re.findall(r'viewBox="0 0 440 ([0-9.]+)"', drawn))
    places = [float(y) for y in re.findall(r'y="([0-9.]+)"[^>]*>curve \d</text>', drawn)]
    assert 240 < places[0] < places[1] < places[2] < height
    for k, place in enumerate(places):
        assert (
            re.search(rf'<path d="M58 {place - 3:.0f}h24"[^>]*dasharray="{dashes[k]}"', drawn)
            or not k
        )
    assert drawn.count('stroke-dasharray="6 4"') == 2


def test_an_axis_of_a_narrow_range_has_more_than_its_foot():
    line = Line(name="together", x=np.arange(1.0, 9.0), y=np.linspace(0.11, 0.135, 8))
    drawn = curve("t", [line], x_label="k", y_label="fitness")
    numbers = re.findall(r'text-anchor="end">([0-9.]+)</text>', drawn)
    assert len(numbers) > 2
    below = re.findall(r'text-anchor="middle">([0-9.]+)</text>', drawn)
    assert below == [str(k) for k in range(1, 9)]


@pytest.mark.parametrize(("low", "high"), [(0.0016, 0.0026), (0.11, 0.7), (3e-9, 2e4), (0.9, 1.1)])
def test_no_number_below_an_axis_touches_another_or_is_cut_off(low, high):
    """From 0.0012 to 0.002 all nine values stood there, one over the other."""
    drawn = strip("t", [("a", low, True), ("b", high, False)], label="fitness")
    below = re.findall(r'x="([0-9.]+)" y="\d+\.0" text-anchor="middle">([0-9e.+-]+)<', drawn)
    ends = [(float(x) - 3.7 * len(text), float(x) + 3.7 * len(text)) for x, text in below]
    assert len(ends) >= 2
    assert ends[0][0] >= 0
    assert ends[-1][1] <= 440
    assert all(one[1] <= other[0] for one, other in pairwise(ends))


def test_the_lowest_number_beside_an_axis_stands_above_those_below_the_other():
    """1e-08 and 0.01 touched in the corner."""
    x = np.array([0.01, 100.0])
    line = Line(name="together", x=x, y=np.array([0.01, 2e-8]))
    drawn = curve("t", [line], x_label="k", y_label="fitness", log_x=True)
    beside = max(float(y) for y in re.findall(r'y="([0-9.]+)" text-anchor="end">1e-08<', drawn))
    below = min(float(y) for y in re.findall(r'y="([0-9.]+)" text-anchor="middle">', drawn))
    assert below - beside >= LETTERS


def test_one_response_is_said_as_one():
    drawn = timeline(["a"], [np.array([1.0])], horizon=1, marks=[])
    assert "<title>a: 1 response</title>" in drawn


def boxes_of(drawn):
    """Where the boxes of a timeline begin and end, from the first on."""
    found = re.findall(r"M([0-9.]+) \d+h([0-9.]+)v", drawn)
    return sorted((float(x), float(x) + float(width)) for x, width in found)


@pytest.mark.parametrize("horizon", [1, 3, 6, 8])
def test_an_answer_stands_above_its_number_beside_those_of_its_neighbours(horizon):
    """Of three answers in a row each stood aside of its number, with a gap after it."""
    k = np.arange(1.0, horizon + 1)
    drawn = timeline(["a"], [k], horizon=horizon, marks=[])
    boxes = boxes_of(drawn)
    numbers = [
        float(x) for x in re.findall(r'x="([0-9.]+)" y="\d+\.0" text-anchor="middle">', drawn)
    ]
    assert len(boxes) == len(numbers) == horizon
    assert [sum(box) / 2 for box in boxes] == pytest.approx(numbers, abs=0.3)
    assert all(other[0] - one[1] < 1 for one, other in pairwise(boxes))


@pytest.mark.parametrize("horizon", [100, 121, 130, 200, 3001])
def test_an_owner_that_always_answers_has_one_shade(horizon):
    """Of 130 numbers every twelfth box had two, and was twice as dark as its neighbours."""
    drawn = timeline(["a"], [np.arange(1.0, horizon + 1)], horizon=horizon, marks=[])
    assert re.findall(r'opacity="([0-9.]+)"', drawn) == ["1.0"]
    assert boxes_of(drawn)[-1][1] <= 430


def test_a_timeline_of_a_summary_that_says_no_communication_is_drawn():
    """It ended the report in a division by zero."""
    drawn = timeline(["a"], [np.array([])], horizon=0, marks=[])
    assert drawn == timeline(["a"], [np.array([])], horizon=1, marks=[])


def test_rows_of_the_timeline_that_are_too_many_for_names_say_what_they_are():
    def drawn(owners):
        names = [f"site-{k}" for k in range(owners)]
        return timeline(names, [np.array([1.0])] * owners, horizon=owners, marks=[])

    assert ">60 owners, in the study&#x27;s order</text>" in drawn(60)
    assert "s order" not in drawn(20)


def test_long_names_that_begin_alike_are_told_apart_beside_the_timeline():
    names = [f"hospitals-of-the-county-of-kings-{k}" for k in range(12)]
    drawn = timeline(names, [np.array([k + 1.0]) for k in range(12)], horizon=12, marks=[])
    assert len(set(re.findall(r'text-anchor="end">(hosp[^<]+)<', drawn))) == 12
