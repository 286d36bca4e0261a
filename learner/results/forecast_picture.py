"""The forecast's picture: each owner alone and together, and where collaboration begins to pay."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from common.files import write_or_refuse
from common.texts import both_ends
from learner.forecasting.questions import Answer
from learner.forecasting.verdict import Verdict
from learner.results.forecast_page import CURVES

DOTS_PER_INCH = 130
# More names than these cover each other.
MOST_NAMES = 25
# What words take above all owners, as a share of these; and how far, in points, from the frame.
ROOM, AWAY = 0.1, 3
# So many at each end of a long name.
LETTERS = 10
# An axis that reaches no further has room for 2 and 5 between powers of ten.
NARROW = 100.0


def draw_forecast(verdict: Verdict, path: Path) -> None:
    """Draw a forecast as a picture."""
    curves = [(kind, label) for kind, label in CURVES.items() if verdict.curves.get(kind)]
    columns = min(1 + len(curves), 3)
    rows = -(-(1 + len(curves)) // columns)
    figure = Figure(figsize=(4.6 * columns, 3.6 * rows), layout="constrained")
    grid = figure.add_gridspec(rows, columns)
    # The owners' panel takes the places that no curve needs.
    wide = rows * columns - len(curves)
    _draw_owners(figure.add_subplot(grid[0, :wide]), verdict)
    for place, (kind, label) in enumerate(curves, start=wide):
        axis = figure.add_subplot(grid[place // columns, place % columns])
        _draw_curve(axis, verdict.curves[kind], label)
    figure.suptitle(f"{verdict.study}: forecast from {verdict.public_records:,} public records")
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=DOTS_PER_INCH)
    write_or_refuse(path, drawn.getvalue())


def _draw_owners(axis: Axes, verdict: Verdict) -> None:
    """Each owner's own model beside the common one."""
    owners = verdict.owners
    places = np.arange(len(owners))
    low, high = verdict.interval_90
    low = max(low, 1e-12)
    # 0 has no place on the axis, and stands left of everything.
    left = min(low, verdict.relative_fitness_public) / 10.0
    axis.axvspan(low, high, color="0.85")
    axis.axvline(verdict.relative_fitness, color="black")
    axis.axvline(verdict.relative_fitness_public, color="C1", linestyle=":")
    for gains, marker in ((True, "o"), (False, "x")):
        kept = [i for i, owner in enumerate(owners) if owner.gains == gains]
        alone = [owners[i].relative_fitness_alone or left for i in kept]
        axis.plot(alone, places[kept], marker, color="C2" if gains else "C3")
    axis.set_xscale("log")
    # Words have room above and below the owners, however many these are.
    room = 0.8 + ROOM * len(owners)
    low_end, high_end = -room, len(owners) - 1 + room
    axis.set_ylim(low_end, high_end)
    _plain(axis, axis.xaxis)
    top, foot = (verdict.relative_fitness, high_end), (verdict.relative_fitness_public, low_end)
    _beside(axis, top, "together, and nine runs in ten", color="black", side="top")
    _beside(axis, foot, "public model", color="C1", side="bottom")
    few = len(owners) <= MOST_NAMES
    names = [both_ends(owner.name, LETTERS) for owner in owners]
    axis.set_yticks(places if few else [], names if few else [])
    axis.tick_params(axis="y", labelsize=7)
    axis.set_xlabel(r"relative fitness $\psi$ (0 is the best)")
    axis.set_title("Own models:\ncircles gain by taking part, crosses do not", fontsize=9)


def _beside(
    axis: Axes,
    place: tuple[float, float],
    text: str,
    *,
    color: str,
    side: Literal["top", "bottom"],
) -> None:
    """Write beside a line where there is more room, a little below its top or above its foot."""
    low, high = axis.get_xlim()
    align: Literal["left", "right"] = "left" if place[0] < math.sqrt(low * high) else "right"
    axis.annotate(
        f" {text} ",
        place,
        xytext=(0, -AWAY if side == "top" else AWAY),
        textcoords="offset points",
        fontsize=7,
        color=color,
        ha=align,
        va=side,
    )


def _plain(axis: Axes, ticks: Axis) -> None:
    """Plain numbers at a logarithmic axis, as many as have room."""
    low, high = axis.get_xlim() if ticks is axis.xaxis else axis.get_ylim()
    narrow = high < NARROW * low
    ticks.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if narrow else (1.0,)))
    ticks.set_major_formatter("{x:g}")
    ticks.set_minor_formatter(NullFormatter())


def _draw_curve(axis: Axes, curve: Mapping[str, Answer], label: str) -> None:
    """Expected relative fitness against one quantity, beside what is free: alone and public."""
    points = sorted(((float(x), answer) for x, answer in curve.items()), key=lambda p: p[0])
    x = [point[0] for point in points]
    answers = [point[1] for point in points]
    low = np.maximum([answer.low for answer in answers], 1e-12)
    axis.fill_between(x, low, [answer.high for answer in answers], color="0.85")
    together = [answer.relative_fitness for answer in answers]
    alone = [float(np.median(answer.alone)) for answer in answers]
    axis.plot(x, together, "k.-", label="together")
    # Of a single owner it is 0, which has no place on the axis.
    if any(alone):
        axis.plot(x, [each or math.nan for each in alone], "C0--", label="alone, middle owner")
    axis.plot(x, [answer.public for answer in answers], "C1:", label="public model")
    axis.legend(fontsize=7)
    axis.set_xscale("log")
    axis.set_yscale("log")
    _plain(axis, axis.xaxis)
    _plain(axis, axis.yaxis)
    axis.set_xlabel(label)
    axis.set_ylabel(r"relative fitness $\psi$ (0 is the best)")
    axis.set_title(f"Expected, against the {label}", fontsize=9)
    axis.grid(visible=True, alpha=0.3)
