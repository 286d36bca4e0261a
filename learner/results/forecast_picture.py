"""The forecast's picture: each owner alone and together, and where collaboration begins to pay."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["draw_forecast"]

DOTS_PER_INCH = 130
CURVES = (
    ("epsilon", "every epsilon times"),
    ("size", "every shard times"),
    ("owners", "number of owners N"),
    ("horizon", "horizon T"),
)

mpl.use("Agg")


def draw_forecast(told: Mapping[str, Any], path: Path) -> None:
    """Draw ``forecast.json``."""
    curves = [(kind, label) for kind, label in CURVES if told["curves"].get(kind)]
    panels = 1 + len(curves)
    columns = min(panels, 3)
    rows = -(-panels // columns)
    figure = Figure(figsize=(4.6 * columns, 3.6 * rows), layout="constrained")
    axes = np.ravel(figure.subplots(rows, columns, squeeze=False))
    _draw_owners(axes[0], told)
    for axis, (kind, label) in zip(axes[1:], curves, strict=False):
        _draw_curve(axis, told["curves"][kind], label)
    for axis in axes[panels:]:
        axis.set_visible(False)
    figure.suptitle(f"{told['study']}: forecast from {told['public_records']:,} public records")
    figure.savefig(path, dpi=DOTS_PER_INCH)


def _draw_owners(axis: Axes, told: Mapping[str, Any]) -> None:
    """Each owner's own model beside the common one."""
    owners = told["owners"]
    places = np.arange(len(owners))
    low, high = told["interval_90"]
    axis.axvspan(max(low, 1e-12), high, color="0.85", label="together, 90 % of runs")
    axis.axvline(told["relative_fitness"], color="black", label="together, expected")
    for gains, marker in ((True, "o"), (False, "x")):
        kept = [i for i, owner in enumerate(owners) if owner["gains"] == gains]
        alone = [owners[i]["relative_fitness_alone"] for i in kept]
        word = "gains" if gains else "does not gain"
        axis.plot(alone, places[kept], marker, label=f"alone ({word})")
    axis.set_xscale("log")
    axis.set_yticks(places, [owner["name"] for owner in owners], fontsize=7)
    axis.set_xlabel(r"relative fitness $\psi$")
    axis.legend(fontsize=7)


def _draw_curve(axis: Axes, curve: Mapping[str, Mapping[str, Any]], label: str) -> None:
    """Expected relative fitness against one quantity, beside the middle owner alone."""
    points = sorted((float(x), row) for x, row in curve.items())
    x = [point[0] for point in points]
    rows = [point[1] for point in points]
    low = np.maximum([row["low"] for row in rows], 1e-12)
    axis.fill_between(x, low, [row["high"] for row in rows], color="0.85")
    axis.plot(x, [row["relative_fitness"] for row in rows], "k.-", label="together")
    axis.plot(x, [np.median(row["alone"]) for row in rows], "C0--", label="alone, middle owner")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel(label)
    axis.set_ylabel(r"relative fitness $\psi$")
    axis.grid(visible=True, alpha=0.3)
    axis.legend(fontsize=7)
