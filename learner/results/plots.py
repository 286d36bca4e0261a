"""The run's pictures; needs matplotlib (the extra ``lab``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

__all__ = ["plot_relative_fitness", "plot_ticks"]

DOTS_PER_INCH = 130

mpl.use("Agg")


def plot_relative_fitness(
    trace: pd.DataFrame, alone: Sequence[tuple[str, float]], path: Path
) -> None:
    """Relative fitness of the central model against k, beside each owner's own model.

    Args:
      trace: The run's trace with columns ``k`` and ``relative_fitness``.
      alone: Owner's name and the relative fitness of its own model.
      path: Where the picture goes.
    """
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    # psi can be 0 to rounding at the optimum, which a logarithmic axis cannot show.
    fitness = np.maximum(trace["relative_fitness"], 1e-16)
    axes.semilogy(
        trace["k"], fitness, color="black", linewidth=1.2, label="together, central model"
    )
    for index, (name, value) in enumerate(alone):
        axes.axhline(
            max(value, 1e-16), color=f"C{index % 10}", linestyle="--", label=f"alone: {name}"
        )
    axes.set_xlabel("communication k")
    axes.set_ylabel(r"relative fitness $\psi$")
    axes.legend(fontsize=8, loc="best")
    axes.grid(visible=True, alpha=0.3)
    figure.savefig(path, dpi=DOTS_PER_INCH)


def plot_ticks(trace: pd.DataFrame, names: Sequence[str], path: Path) -> None:
    """Which owner spoke at each k.

    Args:
      trace: The run's trace with columns ``k`` and ``owner``.
      names: The owners, bottom to top.
      path: Where the picture goes.
    """
    figure = Figure(figsize=(7, 1.4 + 0.35 * len(names)), layout="constrained")
    axes = figure.subplots()
    for index, name in enumerate(names):
        spoke = trace.loc[trace["owner"] == name, "k"]
        axes.plot(spoke, np.full(len(spoke), index), "|", color=f"C{index % 10}", markersize=9)
    axes.set_yticks(range(len(names)), list(names))
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.set_xlabel("communication k")
    axes.set_title("which owner spoke", fontsize=10)
    figure.savefig(path, dpi=DOTS_PER_INCH)
