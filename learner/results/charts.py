"""Pictures as inline SVG: values on hover, a title for screen readers, no library."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from common.arrays import Indices, Vector
from common.texts import both_ends, counted, number_words
from learner.results.page import escaped

# In units of the picture, about the width of a phone: text is sized for it in page.css.
WIDTH, LEFT, RIGHT, TOP, BOTTOM = 440, 58, 10, 20, 48
# Names of curves: the place of the first, and how far they stand apart.
HIGHEST_NAME, NAME_HEIGHT = 34, 14
# A name of a mark and its distance are no wider.
NAME_ROOM = 110
# Round values of a decade of which few are shown.
FINE = (*(k / 10 for k in range(10, 20)), *(k / 2 for k in range(4, 10)), 5.0, 6.0, 7.0, 8.0, 9.0)
# So many whole values are all shown.
FEW_STEPS = 8
# A piece of a line before its name.
SAMPLE = 24
# Lines of one colour are told apart by their dashes.
DASHED, DOTTED, DASHED_AND_DOTTED = "6 4", "2 3", "9 3 2 3"
# More points than pixels show nothing more.
MOST_POINTS = 200
SMALLEST, LARGEST = 1e-16, 1e300
# This many numbers stand below an axis, each this wide.
FEW_POINTS, ROOM = 5, 36
# How wide a digit is, how far numbers stand apart, and which have commas between their thousands.
DIGIT, GAP, MANY, MOST = 7.5, 4.0, 1e3, 1e7
# Buckets of the timeline, over all owners.
MOST_BUCKETS = 4000
# Letters of either end of a long name beside it: on a phone wide ones have room, too.
NAME_END = 5
FITNESS = "relative fitness (0 is the best)"
TIMELINE = "When each owner answered: darker where it answered more often"


@dataclass(frozen=True, kw_only=True)
class Line:
    """A curve: its name, points, colour, and what SVG says of its dashes; empty for none."""

    name: str
    x: Vector
    y: Vector
    color: str = "var(--blue)"
    dashes: str = ""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A place on an axis that is explained where it is."""

    at: float
    text: str
    color: str = "var(--gold)"


Scale = Callable[[float], float]


def curve(
    title: str,
    lines: Sequence[Line],
    *,
    x_label: str,
    y_label: str,
    marks: Sequence[Mark] = (),
    log_x: bool = False,
) -> str:
    """Curves over a logarithmic y axis, with their names beside or below them.

    Args:
      title: What the picture shows, for screen readers too.
      lines: The curves; values of 0 stand at the smallest number shown, giants at the largest.
      x_label: What x is, with its unit.
      y_label: What y is.
      marks: Places on the x axis.
      log_x: Whether the x axis is logarithmic too.
    """
    shown = [_thinned(line) for line in lines if line.x.size]
    if not shown:
        return ""
    named = [line for line in shown if line.name]
    # Names stand to the right of the curves; where a colour is used again, or they are long, below.
    right = WIDTH - max((DIGIT * len(line.name) + 16 for line in named), default=RIGHT)
    is_listed = len({line.color for line in named}) < len(named) or right < WIDTH * 2 / 3
    right = WIDTH - RIGHT if is_listed else right
    height = 240 if is_listed else max(240, HIGHEST_NAME + NAME_HEIGHT * len(named) + BOTTOM)
    positive = np.concatenate([line.y[line.y > 0] for line in shown])
    floor = max(SMALLEST, float(positive.min()) if positive.size else SMALLEST)
    xs = np.concatenate([line.x for line in shown])
    ends = (float(xs.min()), float(xs.max()))
    to_x = (_logarithmic if log_x else _linear)(*ends, LEFT, right)
    top = max(float(positive.max()) if positive.size else 1.0, floor * 1.1)
    # So that there is a number at the foot of the axis.
    floor = max((v for v in _round_values(floor, top) if v <= floor), default=floor)
    to_y = _logarithmic(floor, top, height - BOTTOM, TOP)
    ticks = _few_points(xs, to_x) or (_decades(*ends) if log_x else _round_steps(*ends))
    parts = [_y_axis(floor, top, to_y, right), _x_axis(ticks, to_x, height)]
    parts += [_marked(mark, to_x, height) for mark in marks]
    parts += [_drawn(line, to_x, lambda y: to_y(max(y, floor))) for line in shown]
    at = [to_y(max(float(line.y[-1]), floor)) for line in named]
    parts += _listed(named, height) if is_listed else _beside(named, at, height, right)
    parts.append(_text(LEFT, 12, y_label, "start"))
    parts.append(_text(right, height - 4, x_label, "end"))
    return _figure(title, parts, height + (NAME_HEIGHT * len(named) + 8 if is_listed else 0))


def strip(
    title: str, values: Sequence[tuple[str, float, bool]], *, label: str, marks: Sequence[Mark] = ()
) -> str:
    """One dot for each owner along a logarithmic axis, stacked where they coincide.

    Args:
      title: What the picture shows, for screen readers too.
      values: (name, value, whether it is a good one).
      label: What the axis is.
      marks: Values that stand for themselves, such as that of the common model.
    """
    marks = [replace(mark, at=min(mark.at, LARGEST)) for mark in marks if mark.at > 0]
    known = [(name, min(max(x, SMALLEST), LARGEST), good) for name, x, good in values if x > 0]
    if not known:
        return ""
    ends = [value for _, value, _ in known] + [mark.at for mark in marks]
    low, high = min(ends) / 1.3, max(ends) * 1.3
    to_x = _logarithmic(low, high, 12, WIDTH - RIGHT)
    stacks: dict[int, int] = {}
    dots = []
    for name, value, good in sorted(known, key=lambda entry: entry[1]):
        place = round(to_x(value) / 8)
        stacks[place] = stacks.get(place, 0) + 1
        dots.append((place * 8.0, stacks[place], name, value, good))
    height = BOTTOM + 30 + 8 * max(stacks.values())
    parts = [_log_ticks(low, high, to_x, height)]
    for k, (mark, x, shift) in enumerate(_sides(marks, to_x)):
        y = 12 + NAME_HEIGHT * k
        parts.append(_rule(x, y + 2, height - BOTTOM, mark.color))
        side = "start" if shift > 0 else "end"
        parts.append(_text(x + shift, y, mark.text, side, color=mark.color))
    for x, level, name, value, good in dots:
        color = "var(--green)" if good else "var(--red)"
        tip = escaped(f"{name}: {number_words(value)}")
        y = height - BOTTOM - 8 * level + 4
        shape = (
            f'<circle cx="{x:.1f}" cy="{y}" r="3.6" fill="{color}">'
            if good
            else f'<rect x="{x - 3.5:.1f}" y="{y - 3.5}" width="7" height="7" fill="{color}">'
        )
        parts.append(f"{shape}<title>{tip}</title></{'circle' if good else 'rect'}>")
    parts.append(_text(WIDTH - RIGHT, height - 4, label, "end"))
    return _figure(title, parts, height)


def _sides(marks: Sequence[Mark], to_x: Scale) -> list[tuple[Mark, float, float]]:
    """Marks from the highest name to the lowest, their places, and how far from these names stand.

    A name stands to the right of its line and below those of lines farther left, so none is
    crossed. Where the last one has no room there, it and those near it do the reverse.
    """
    placed = sorted(((mark, to_x(mark.at)) for mark in marks), key=lambda entry: entry[1])
    end = placed[-1][1] if placed and placed[-1][1] + NAME_ROOM > WIDTH else math.inf
    right = [(mark, x, 4.0) for mark, x in placed if x + NAME_ROOM < end]
    return right + [(mark, x, -4.0) for mark, x in reversed(placed) if x + NAME_ROOM >= end]


def timeline(
    names: Sequence[str], spoke: Sequence[Vector], *, horizon: int, marks: Sequence[Mark]
) -> str:
    """When each owner answered: a row for each, darker where it answered more often.

    Args:
      names: The owners.
      spoke: The k at which each answered.
      horizon: T.
      marks: Places on the axis of k.
    """
    row = 16 if len(names) <= 20 else 8
    # No run has none, but a summary that somebody changed may say so.
    horizon = max(horizon, 1)
    most = max(10, min(120, MOST_BUCKETS // max(len(names), 1)))
    # Of whole numbers, as many in each but the last: no box is darker for where it stands.
    edges = np.append(np.arange(0, horizon, math.ceil(horizon / most)), horizon) + 0.5
    counts = [np.histogram(k, edges)[0] for k in spoke]
    often = [count / np.diff(edges) for count in counts]
    darkest = max((float(shares.max()) for shares in often), default=0.0) or 1.0
    label = 120 if row == 16 else 12
    to_x = _linear(0.5, horizon + 0.5, label, WIDTH - RIGHT)
    places = np.array([to_x(float(edge)) for edge in edges])
    height = TOP + row * len(names) + BOTTOM
    parts = [_x_axis(_round_steps(1, horizon), to_x, height)]
    for i, name in enumerate(names):
        y = TOP + row * i
        tip = escaped(f"{name}: {counted(int(counts[i].sum()), 'response')}")
        bars = "".join(_bars(np.ceil(4 * often[i] / darkest).astype(np.intp), places, y, row - 2))
        parts.append(f"<g><title>{tip}</title>{bars}</g>")
        if row == 16:
            parts.append(_text(label - 6, y + 12, both_ends(name, NAME_END), "end"))
    if row != 16:
        parts.append(_text(label, TOP - 8, f"{len(names):,} owners, in the study's order", "start"))
    parts += [_marked(mark, to_x, height) for mark in marks]
    parts.append(_text(WIDTH - RIGHT, height - 4, "communication k", "end"))
    return _figure(TIMELINE, parts, height)


def _bars(levels: Indices, edges: Vector, y: int, height: int) -> list[str]:
    """One path for each of four shades of buckets, 1 to 4: many owners then take few bytes."""
    widths = np.maximum(np.diff(edges) - 0.4, 0.6)
    paths = []
    for level in range(1, 5):
        boxes = "".join(
            f"M{edges[b]:.1f} {y}h{widths[b]:.1f}v{height}h-{widths[b]:.1f}z"
            for b in np.flatnonzero(levels == level)
        )
        if boxes:
            paths.append(f'<path d="{boxes}" fill="var(--blue)" opacity="{level / 4}"/>')
    return paths


def _figure(title: str, parts: Sequence[str], height: int) -> str:
    caption, content = escaped(title), "".join(parts)
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{caption}">{content}'
        f"</svg><figcaption>{caption}</figcaption></figure>"
    )


def _thinned(line: Line) -> Line:
    """The line with few enough points, the last among them, and none beyond the largest number."""
    count = min(line.x.size, MOST_POINTS)
    kept = np.unique(np.linspace(0, line.x.size - 1, count).astype(int))
    return replace(line, x=line.x[kept], y=np.minimum(line.y[kept], LARGEST))


def _drawn(line: Line, to_x: Scale, to_y: Scale) -> str:
    """A line, and dots that show its values, invisible unless all of it is one point."""
    points = [(to_x(float(x)), to_y(float(y))) for x, y in zip(line.x, line.y, strict=True)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    fill = line.color if len(set(points)) == 1 else "transparent"
    tips = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{fill}"><title>'
        f"{escaped(line.name)}, {number_words(float(a))}: {number_words(float(b))}"
        "</title></circle>"
        for (x, y), a, b in zip(points, line.x, line.y, strict=True)
    )
    return f'<polyline points="{path}" fill="none" {_stroke(line)}/>{tips}'


def _stroke(line: Line) -> str:
    """How a line is drawn."""
    dashes = f' stroke-dasharray="{line.dashes}"' if line.dashes else ""
    return f'stroke="{line.color}" stroke-width="2"{dashes}'


def _listed(lines: Sequence[Line], top: int) -> list[str]:
    """The names of lines below the picture, each after a piece of its line."""
    parts = []
    for k, line in enumerate(lines, start=1):
        y = top + NAME_HEIGHT * k
        parts.append(f'<path d="M{LEFT} {y - 3}h{SAMPLE}" fill="none" {_stroke(line)}/>')
        parts.append(_text(LEFT + SAMPLE + 6, y, line.name, "start"))
    return parts


def _beside(lines: Sequence[Line], ends: Sequence[float], height: int, right: float) -> list[str]:
    """The names of lines to the right of where these end, none on another."""
    ends_at = [(end + 4, k) for k, end in enumerate(ends)]
    # In the colour of its line: where lines lie close a name may stand nearer to another one.
    # A band is too pale for words.
    colors = ["" if line.color == "var(--band)" else line.color for line in lines]
    return [
        _text(right + 6, y, lines[k].name, "start", color=colors[k])
        for y, k in _apart(ends_at, height - BOTTOM - 4.0)
    ]


def _apart(labels: Sequence[tuple[float, int]], lowest: float) -> list[tuple[float, int]]:
    """Numbered labels from above to below, none on another, nor below the lowest place.

    >>> _apart([(50.0, 0), (52.0, 1), (10.0, 2)], 100.0)
    [(34, 2), (50.0, 0), (64.0, 1)]
    >>> _apart([(95.0, 0), (99.0, 1), (97.0, 2)], 100.0)
    [(72.0, 0), (86.0, 2), (100.0, 1)]
    """
    ordered = sorted(labels)
    places: list[float] = []
    for y, _ in ordered:
        places.append(max(y, places[-1] + NAME_HEIGHT if places else HIGHEST_NAME))
    for k in reversed(range(len(places))):
        places[k] = min(places[k], lowest)
        lowest = places[k] - NAME_HEIGHT
    return [(y, number) for y, (_, number) in zip(places, ordered, strict=True)]


def _marked(mark: Mark, to_x: Scale, height: int) -> str:
    x = to_x(mark.at)
    side = "start" if x < WIDTH / 2 else "end"
    shift = 4 if side == "start" else -4
    return _rule(x, TOP, height - BOTTOM, mark.color) + _text(
        x + shift, height - 18, mark.text, side, color=mark.color
    )


def _rule(x: float, top: float, bottom: float, color: str) -> str:
    return (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}" stroke="{color}" '
        'stroke-width="2" stroke-dasharray="3 3"/>'
    )


def _text(x: float, y: float, content: str, anchor: str, *, color: str = "") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    style = f' style="fill:{color}"' if color else ""
    return f"<text {place}{style}>{escaped(content)}</text>"


def _linear(low: float, high: float, start: float, stop: float) -> Scale:
    span = (high - low) or 1.0
    return lambda value: start + (value - low) / span * (stop - start)


def _logarithmic(low: float, high: float, start: float, stop: float) -> Scale:
    scale = _linear(math.log(low), math.log(high), start, stop)
    return lambda value: scale(math.log(value))


def _decades(low: float, high: float) -> list[float]:
    """Round values between two ends: finer ones where there would be one alone.

    >>> _decades(1.0, 1.25), _decades(1.0, 3.0)
    ([1.0, 1.1, 1.2], [1.0, 2.0])
    """
    found = [value for value in _round_values(low, high) if low <= value <= high]
    if len(found) > 1:
        return found
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    finer = [m * 10.0**e for e in range(first, last + 1) for m in FINE]
    return [value for value in finer if low <= value <= high] or found


def _round_values(low: float, high: float) -> list[float]:
    """Round values around two ends: powers of ten, or 1, 2 and 5 of few of them.

    >>> _round_values(0.3, 7)
    [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0]
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = (1.0, 2.0, 5.0) if last - first <= 2 else (1.0,)
    every = max(1, (last - first) // 5)
    return [m * 10.0**e for e in range(first, last + 1, every) for m in steps]


def _y_axis(low: float, high: float, to_y: Scale, right: float) -> str:
    return "".join(
        f'<line x1="{LEFT}" x2="{right:.1f}" y1="{to_y(v):.1f}" y2="{to_y(v):.1f}" '
        f'stroke="var(--line)"/>' + _text(LEFT - 6, to_y(v) + 4, f"{v:g}", "end")
        for v in _decades(low, high)
    )


def _few_points(xs: Vector, to_x: Scale) -> list[float]:
    """The points themselves where they are few and their numbers have room, such as 2 and 3."""
    points = [float(x) for x in np.unique(xs)[: FEW_POINTS + 1]]
    has_room = all(to_x(b) - to_x(a) >= ROOM for a, b in pairwise(points))
    return points if len(points) <= FEW_POINTS and has_room else []


def _round_steps(low: float, high: float) -> list[float]:
    """Whole values, about evenly apart, both ends among them; all where they are few.

    >>> _round_steps(1, 8), _round_steps(1, 300)
    ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [1.0, 76.0, 150.0, 225.0, 300.0])
    """
    if float(low).is_integer() and high - low < FEW_STEPS:
        return [float(v) for v in np.arange(low, high + 1)]
    return [float(v) for v in np.unique(np.round(np.linspace(low, high, 5)))]


def _x_axis(ticks: Sequence[float], to_x: Scale, height: int) -> str:
    """Numbers below their places, where they have room, the last one within the picture."""
    parts, end = [], 0.0
    for value in ticks:
        text = f"{value:,.0f}" if MANY <= value < MOST else f"{value:g}"
        x, half = min(to_x(value), WIDTH - 4 * len(text)), DIGIT / 2 * len(text)
        if x - half >= end:
            parts.append(_text(x, height - BOTTOM + 18, text, "middle"))
            end = x + half + GAP
    return "".join(parts)


def _log_ticks(low: float, high: float, to_x: Scale, height: int) -> str:
    base = height - BOTTOM + 4
    line = f'<line x1="8" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}" stroke="var(--soft)"/>'
    return line + _x_axis(_decades(low, high), to_x, height + 4)
