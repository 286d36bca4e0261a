"""The forecast's picture: each owner alone and together, and where collaboration begins to pay."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from learner.forecast.questions import Answer
from learner.forecast.verdict import Verdict

__all__ = ["draw_forecast"]

DOTS_PER_INCH = 130
CURVES = (
    ("epsilon", "every epsilon times"),
    ("size", "every shard times"),
    ("owners", "number of owners N"),
    ("horizon", "horizon T"),
)

mpl.use("Agg")


def draw_forecast(verdict: Verdict, path: Path) -> None:
    """Draw a forecast as a picture."""
    curves = [(kind, label) for kind, label in CURVES if verdict.curves.get(kind)]
    panels = 1 + len(curves)
    columns = min(panels, 3)
    rows = -(-panels // columns)
    figure = Figure(figsize=(4.6 * columns, 3.6 * rows), layout="constrained")
    axes = np.ravel(figure.subplots(rows, columns, squeeze=False))
    _draw_owners(axes[0], verdict)
    for axis, (kind, label) in zip(axes[1:], curves, strict=False):
        _draw_curve(axis, verdict.curves[kind], label)
    for axis in axes[panels:]:
        axis.set_visible(False)
    figure.suptitle(f"{verdict.study}: forecast from {verdict.public_records:,} public records")
    figure.savefig(path, dpi=DOTS_PER_INCH)


def _draw_owners(axis: Axes, verdict: Verdict) -> None:
    """Each owner's own model beside the common one."""
    owners = verdict.owners
    places = np.arange(len(owners))
    low, high = verdict.interval_90
    axis.axvspan(max(low, 1e-12), high, color="0.85", label="together, 90 % of runs")
    axis.axvline(verdict.relative_fitness, color="black", label="together, expected")
    for gains, marker in ((True, "o"), (False, "x")):
        kept = [i for i, owner in enumerate(owners) if owner.gains == gains]
        alone = [owners[i].relative_fitness_alone for i in kept]
        word = "gains" if gains else "does not gain"
        axis.plot(alone, places[kept], marker, label=f"alone ({word})")
    axis.set_xscale("log")
    axis.set_yticks(places, [owner.name for owner in owners], fontsize=7)
    axis.set_xlabel(r"relative fitness $\psi$")
    axis.legend(fontsize=7)


def _draw_curve(axis: Axes, curve: Mapping[str, Answer], label: str) -> None:
    """Expected relative fitness against one quantity, beside the middle owner alone."""
    points = sorted(((float(x), answer) for x, answer in curve.items()), key=lambda p: p[0])
    x = [point[0] for point in points]
    answers = [point[1] for point in points]
    low = np.maximum([answer.low for answer in answers], 1e-12)
    axis.fill_between(x, low, [answer.high for answer in answers], color="0.85")
    axis.plot(x, [answer.relative_fitness for answer in answers], "k.-", label="together")
    axis.plot(
        x, [np.median(answer.alone) for answer in answers], "C0--", label="alone, middle owner"
    )
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel(label)
    axis.set_ylabel(r"relative fitness $\psi$")
    axis.grid(visible=True, alpha=0.3)
    axis.legend(fontsize=7)
