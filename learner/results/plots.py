"""The run's pictures; needs matplotlib (the extra ``lab``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from learner.results.charts import SMALLEST
from learner.results.summary import Summary

# More lines than these are drawn as a band.
MOST_LINES = 6


def run_figure(trace: pd.DataFrame, summary: Summary) -> Figure:
    """The picture of a run: relative fitness if it was simulated, else who spoke when."""
    if not summary.is_evaluated:
        return ticks_figure(trace, [owner.name for owner in summary.owners])
    alone = [(owner.name, owner.relative_fitness_alone or 0.0) for owner in summary.owners]
    return fitness_figure(trace, alone, summary.relative_fitness_public)


def fitness_figure(
    trace: pd.DataFrame, alone: Sequence[tuple[str, float]], public: float | None
) -> Figure:
    """Relative fitness of the central model against k, beside what is free: alone and public."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    trace = trace.dropna(subset=["relative_fitness"])  # of a very long run not all is looked at
    # psi can be 0 to rounding at the optimum, which a logarithmic axis cannot show.
    fitness = np.maximum(trace["relative_fitness"].to_numpy(dtype=np.float64), SMALLEST)
    together = axes.semilogy(trace["k"], fitness, color="black", linewidth=1.2, label="together")
    last = float(trace["k"].max()) if len(trace) else 1.0
    ends = [(float(fitness[-1]), together[0])] if len(trace) else []

    def level(value: float, name: str, color: str, style: str) -> None:
        line = axes.axhline(value, color=color, linestyle=style, linewidth=1, label=name)
        ends.append((value, line))

    values = np.maximum([value for _, value in alone], SMALLEST)
    if len(alone) <= MOST_LINES:
        for index, ((name, _), value) in enumerate(zip(alone, values, strict=True)):
            level(value, f"alone: {name}", f"C{index}", "--")
    else:
        low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
        axes.axhspan(low, high, color="C0", alpha=0.15)
        level(middle, f"alone: the middle of {len(alone)},\nand eight in ten", "C0", "--")
    if public is not None:
        level(max(public, SMALLEST), "public model", "black", ":")
    # From the worst to the best, as the lines end, and apart where these end together.
    lines = [line for _, line in sorted(ends, key=lambda end: -end[0])]
    figure.legend(handles=lines, loc="outside right upper", fontsize=8, frameon=False)
    axes.set_title("Relative fitness of the common model, and of each owner's own", fontsize=10)
    axes.set_xlabel("communication k")
    axes.locator_params("x", integer=True)
    axes.set_ylabel(r"relative fitness $\psi$ (0 is the best)")
    axes.grid(visible=True, alpha=0.3)
    axes.set_xlim(0, last)
    return figure


def ticks_figure(trace: pd.DataFrame, names: Sequence[str]) -> Figure:
    """Which owner spoke at each k."""
    high = 1.4 + min(0.35 * len(names), 8.0)
    figure = Figure(figsize=(7, high), layout="constrained")
    axes = figure.subplots()
    for index, name in enumerate(names):
        spoke = trace.loc[trace["owner"] == name, "k"]
        size = 9 if len(names) <= 25 else 3
        axes.plot(spoke, np.full(len(spoke), index), "|", color=f"C{index % 10}", markersize=size)
    axes.set_yticks(range(len(names)), list(names), fontsize=9 if len(names) <= 25 else 5)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.set_xlabel("communication k")
    axes.locator_params("x", integer=True)
    axes.set_title("Which owner spoke at each communication", fontsize=10)
    return figure
