"""The figures' pictures: one way to draw each kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from learner.reproduction.papers import Figure, Kind

__all__ = ["draw"]

mpl.use("Agg")
# Texts as texts, and no date: equal numbers give equal files.
mpl.rcParams["svg.fonttype"] = "none"
mpl.rcParams["svg.hashsalt"] = "copriv"

PSI = r"relative fitness $\psi$"
BLACK, MARKERS = "black", "os^Dv"


def draw(figure: Figure, numbers: pd.DataFrame, path: Path) -> None:
    """Draw a figure as SVG, or as PNG if the path ends so."""
    kinds: dict[Kind, Callable[[Figure, pd.DataFrame], Canvas]] = {
        "percentiles": _percentiles,
        "timing": _timing,
        "surface": _surface,
        "lines": _lines,
        "value": _value,
        "hospitals": _hospitals,
        "scenarios": _scenarios,
    }
    canvas = kinds[figure.kind](figure, numbers)
    metadata = {"Date": None} if path.suffix == ".svg" else None
    canvas.savefig(path, metadata=metadata, dpi=110)


def _canvas(columns: int, *, wide: float = 3.3, high: float = 2.9) -> tuple[Canvas, list[Axes]]:
    canvas = Canvas(figsize=(wide * columns, high), layout="constrained")
    return canvas, list(np.ravel(canvas.subplots(1, columns, squeeze=False)))


def _short(value: float) -> str:
    """Three digits, or all of a count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _logarithmic(axis: Axes, x: str, y: str) -> None:
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    _plain_numbers(axis.xaxis)
    axis.grid(visible=True, alpha=0.3)


def _plain_numbers(axis: Axis) -> None:
    """Ticks of a logarithmic axis as plain numbers, few enough to be read."""
    low, high = axis.get_view_interval()
    digits = (1.0,) if high > 100 * low else (1.0, 2.0, 5.0)
    axis.set_major_locator(LogLocator(subs=digits))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_formatter(NullFormatter())


def _percentiles(figure: Figure, numbers: pd.DataFrame) -> Canvas:
    """Quartiles against k, one panel for each budget."""
    budgets = numbers["epsilon"].unique()
    canvas, axes = _canvas(len(budgets), wide=2.8)
    for axis, epsilon in zip(axes, budgets, strict=True):
        own = numbers[numbers["epsilon"] == epsilon]
        axis.fill_between(own["k"], own["q25"], own["q75"], color="0.8", label="25 % to 75 %")
        axis.semilogy(own["k"], own["median"], color=BLACK, label="median")
        axis.set_title(rf"$\epsilon_i$ = {_short(epsilon)}", fontsize=10)
        axis.set_xlabel("iteration k")
        axis.set_ylim(numbers["q25"].min() / 2, numbers["q75"].max() * 2)
    axes[0].set_ylabel(PSI)
    axes[0].legend(fontsize=7)
    canvas.suptitle(f"{figure.name}: {figure.data}, N = {numbers['owners'].iloc[0]}", fontsize=10)
    return canvas


def _timing(figure: Figure, numbers: pd.DataFrame) -> Canvas:
    """Which owner each tick belongs to."""
    canvas, (axis,) = _canvas(1, wide=5.5, high=2.2)
    shown = numbers.head(200)
    axis.plot(shown["k"], shown["owner"], "|", color=BLACK, markersize=5)
    axis.set_xlabel("iteration k")
    axis.set_ylabel(r"owner $i_k$")
    axis.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=2))
    axis.set_title(f"{figure.name}: {figure.data}, the first 200 ticks", fontsize=10)
    return canvas


def _surface(figure: Figure, numbers: pd.DataFrame) -> Canvas:
    """Measured points over n and epsilon, and the fitted bound as a mesh."""
    canvas = Canvas(figsize=(4.6, 3.8), layout="constrained")
    axis = canvas.add_subplot(projection="3d")
    table = numbers.pivot_table(index="records", columns="epsilon", values="bound")
    x, y = np.meshgrid(np.log10(table.columns.to_numpy()), np.log10(table.index.to_numpy()))
    axis.view_init(elev=18, azim=40)
    axis.plot_wireframe(x, y, np.log10(table.to_numpy()), color="0.45", linewidth=0.8)
    axis.scatter(
        np.log10(numbers["epsilon"]),
        np.log10(numbers["records"]),
        np.log10(numbers["relative_fitness"]),
        color=BLACK,
        s=9,
    )
    axis.set_xlabel(r"$\log_{10} \epsilon_i$")
    axis.set_ylabel(r"$\log_{10} n_i$")
    axis.set_zlabel(r"$\log_{10} \psi$")
    axis.set_title(
        f"{figure.name}: {figure.data}\nmesh: fitted bound above what is left without noise",
        fontsize=10,
    )
    return canvas


def _lines(figure: Figure, numbers: pd.DataFrame) -> Canvas:
    """Measured markers and the fitted bound as lines."""
    axes_of = {"both": ("epsilon", "records"), "epsilon": ("epsilon",), "records": ("records",)}
    kinds = [axis for axis in axes_of[figure.axis] if numbers[axis].nunique() > 1]
    canvas, axes = _canvas(len(kinds), wide=3.6)
    names = {"epsilon": (r"$\epsilon_i$", "n_i"), "records": (r"$n_i$", r"\epsilon_i")}
    for axis, along in zip(axes, kinds, strict=True):
        other = "records" if along == "epsilon" else "epsilon"
        values = sorted(numbers[other].unique())
        for marker, value in zip(MARKERS, values[:: max(1, len(values) // 3)], strict=False):
            own = numbers[numbers[other] == value].sort_values(along)
            label = rf"${names[along][1]}$ = {_short(value)}"
            axis.plot(own[along], own["relative_fitness"], marker, label=label, markersize=5)
            axis.plot(own[along], own["bound"], color="0.4", linewidth=0.8)
        _logarithmic(axis, names[along][0], PSI)
        axis.legend(fontsize=7)
    canvas.suptitle(
        f"{figure.name}: {figure.data}\nlines: fitted bound above what is left without noise",
        fontsize=10,
    )
    return canvas


def _value(figure: Figure, numbers: pd.DataFrame) -> Canvas:
    """Together over N and epsilon, the region in which the first owner gains marked."""
    canvas, (axis,) = _canvas(1, wide=4.8, high=3.4)
    ratio = numbers.assign(ratio=np.log10(numbers["relative_fitness"] / numbers["alone"]))
    table = ratio.pivot_table(index="owners", columns="epsilon", values="ratio")
    span = float(np.abs(table.to_numpy()).max())
    image = axis.pcolormesh(
        table.columns, table.index, table.to_numpy(), cmap="RdBu_r", vmin=-span, vmax=span
    )
    gaining = numbers[numbers["gains"]]
    axis.plot(gaining["epsilon"], gaining["owners"], "k.", markersize=4, label="first owner gains")
    axis.set_xscale("log")
    axis.set_yscale("log")
    _plain_numbers(axis.xaxis)
    _plain_numbers(axis.yaxis)
    axis.set_xlabel(r"$\epsilon_i$")
    axis.set_ylabel("owners N")
    axis.legend(fontsize=7, loc="upper left")
    canvas.colorbar(image, label=r"$\log_{10}$ together / alone")
    axis.set_title(
        f"{figure.name}: {figure.data}, n_i = {numbers['records'].iloc[0]:,}", fontsize=10
    )
    return canvas


def _hospitals(figure: Figure, numbers: pd.DataFrame) -> Canvas:
    """Each hospital's own model over the common ones."""
    canvas, (axis,) = _canvas(1, wide=5.0, high=3.4)
    axis.plot(numbers["records"], numbers["alone"], "o", markersize=4, label="alone")
    columns = [name for name in numbers.columns if name.startswith("together_")]
    for column, style in zip(columns, ("-", "--", "-."), strict=False):
        epsilon = column.removeprefix("together_")
        label = rf"together, $\epsilon_i = {epsilon}$"
        axis.axhline(numbers[column].iloc[0], color=BLACK, linestyle=style, label=label)
    _logarithmic(axis, r"records $n_i$", PSI)
    axis.legend(fontsize=7)
    axis.set_title(f"{figure.name}: {len(numbers)} hospitals", fontsize=10)
    return canvas


def _scenarios(figure: Figure, numbers: pd.DataFrame) -> Canvas:
    """Four panels: partners small or large, conservative or eager."""
    canvas, axes = _canvas(4, wide=2.5)
    for axis, (number, own) in zip(axes, numbers.groupby("scenario"), strict=True):
        for marker, (epsilon, line) in zip(MARKERS, own.groupby("epsilon"), strict=False):
            axis.plot(
                line["records"], line["relative_fitness"], f"{marker}-", markersize=4,
                label=rf"$\epsilon_1 = {epsilon:g}$",
            )  # fmt: skip
        _logarithmic(axis, r"$n_1$", PSI if number == 1 else "")
        axis.set_ylim(numbers["relative_fitness"].min() / 2, numbers["relative_fitness"].max() * 2)
        partner = f"{own['partner_records'].iloc[0]:,} at {own['partner_epsilon'].iloc[0]:g}"
        axis.set_title(f"partners {partner}", fontsize=9)
    axes[0].legend(fontsize=7)
    canvas.suptitle(f"{figure.name}: {figure.data}", fontsize=10)
    return canvas
