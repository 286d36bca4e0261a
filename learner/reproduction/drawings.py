"""The figures' pictures: one way to draw each kind."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from common.files import write_or_refuse
from learner.reproduction.papers import Data, Figure, Kind

# Texts as texts, and no date: equal numbers give equal files.
mpl.rcParams["svg.fonttype"] = "none"
mpl.rcParams["svg.hashsalt"] = "copriv"

PSI = r"relative fitness $\psi$ (0 is the best)"
EPSILON, RECORDS = r"each owner's $\epsilon_i$", "each owner's records $n_i$"
BLACK, GREY, MARKERS = "black", "0.4", "os^Dv"
# Room beside the points of a line for what it is of, and between two such texts, in parts.
LABEL_ROOM, LABEL_GAP = 0.36, 0.085
DATA: dict[Data, str] = {
    "loans": "interest rates of loans",
    "hospitals": "lengths of hospital stays",
    "cards": "frauds among card payments",
}


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
    drawn = io.BytesIO()
    canvas.savefig(drawn, format=path.suffix[1:], metadata=metadata, dpi=110)
    write_or_refuse(path, drawn.getvalue())


def _canvas(columns: int, *, wide: float, high: float) -> tuple[Canvas, list[Axes]]:
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
    span = high / low
    digits = (1.0,) if span > 100 else (1.0, 3.0) if span > 15 else (1.0, 2.0, 5.0)
    axis.set_major_locator(LogLocator(subs=digits))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_formatter(NullFormatter())


def _title(figure: Figure, says: str, *more: str) -> str:
    """The figure's name, what it shows and of which records, and how to read it."""
    return "\n".join([f"{figure.name}: {says}, {DATA[figure.data]}", *more])


def _label_starts(axis: Axes, starts: Sequence[tuple[float, float, str, str]]) -> None:
    """Write what lines of logarithmic axes are of, at (x, y, text, color), no text over another."""
    low, high = np.log10(axis.get_xlim())
    axis.set_xlim(10 ** (low - LABEL_ROOM * (high - low)), 10**high)
    bottom, top = np.log10(axis.get_ylim())
    gap = LABEL_GAP * (top - bottom)
    starts = sorted(starts, key=lambda start: start[1])
    heights = [float(np.log10(y)) for _, y, _, _ in starts]
    for i in range(1, len(heights)):
        heights[i] = max(heights[i], heights[i - 1] + gap)
    heights[-1] = min(heights[-1], top - gap / 2)
    for i in reversed(range(len(heights) - 1)):
        heights[i] = min(heights[i], heights[i + 1] - gap)
    left = 10 ** (low - 0.02 * (high - low))
    for (x, y, text, color), height in zip(starts, heights, strict=True):
        axis.annotate(
            text, (x, y), (left, 10**height), color=color, fontsize=7, ha="right", va="center",
            arrowprops={"arrowstyle": "-", "color": color, "lw": 0.4},
        )  # fmt: skip


def _percentiles(figure: Figure, numbers: pd.DataFrame) -> Canvas:
    """Quartiles against k, one panel for each budget."""
    budgets = numbers["epsilon"].unique()
    canvas, axes = _canvas(len(budgets), wide=3.1, high=3.2)
    for axis, epsilon in zip(axes, budgets, strict=True):
        part = numbers[numbers["epsilon"] == epsilon]
        axis.fill_between(part["k"], part["q25"], part["q75"], color="0.8")
        axis.semilogy(part["k"], part["median"], color=BLACK)
        axis.set_title(rf"every owner's $\epsilon_i$ = {_short(epsilon)}", fontsize=9)
        axis.set_xlabel("rounds k" if figure.synchronous else "ticks k")
        axis.set_ylim(numbers["q25"].min() / 2, numbers["q75"].max() * 2)
        axis.grid(visible=True, alpha=0.3)
    axes[0].set_ylabel(PSI)
    owners = numbers["owners"].iloc[0]
    reading = f"line: the median of 100 runs of {owners} owners; grey: half of the runs"
    canvas.suptitle(_title(figure, "how training goes", reading), fontsize=10)
    return canvas


def _timing(figure: Figure, numbers: pd.DataFrame) -> Canvas:
    """Which owner each tick belongs to."""
    canvas, (axis,) = _canvas(1, wide=5.5, high=2.5)
    shown = numbers.head(200)
    axis.plot(shown["k"], shown["owner"], "|", color=BLACK, markersize=5)
    axis.set_xlabel("ticks k")
    axis.set_ylabel("owner")
    axis.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=2))
    axis.set_title(_title(figure, "who is asked at each of the first 200 ticks"), fontsize=10)
    return canvas


def _surface(figure: Figure, numbers: pd.DataFrame) -> Canvas:
    """Measured points over n and epsilon, and the fitted bound as a mesh."""
    canvas = Canvas(figsize=(5.4, 4.6), layout="constrained")
    axis = canvas.add_subplot(projection="3d")
    table = numbers.pivot_table(index="records", columns="epsilon", values="bound")
    x, y = np.meshgrid(np.log10(table.columns.to_numpy()), np.log10(table.index.to_numpy()))
    axis.view_init(elev=18, azim=40)
    axis.set_box_aspect(None, zoom=0.88)
    axis.plot_wireframe(x, y, np.log10(table.to_numpy()), color="0.45", linewidth=0.8)
    axis.scatter(
        np.log10(numbers["epsilon"]),
        np.log10(numbers["records"]),
        np.log10(numbers["relative_fitness"]),
        color=BLACK,
        s=9,
    )
    for each, label in ((axis.xaxis, EPSILON), (axis.yaxis, RECORDS), (axis.zaxis, PSI)):
        each.set_label_text(label, fontsize=8)
        # Whole powers of ten, or too many for the space.
        each.set_major_locator(MaxNLocator(4, steps=[1, 5, 10]))
        each.set_major_formatter(
            FuncFormatter(
                lambda value, _: f"{10**value:,.2g}" if value < 2 else f"{10**value:,.0f}"
            )
        )
        each.set_tick_params(labelsize=7)
    reading = "points: measured; mesh: fitted bound above what is left without noise"
    axis.set_title(_title(figure, "what privacy costs", reading), fontsize=10)
    return canvas


def _lines(figure: Figure, numbers: pd.DataFrame) -> Canvas:
    """Measured markers and the fitted bound as lines."""
    axes_of = {"both": ("epsilon", "records"), "epsilon": ("epsilon",), "records": ("records",)}
    kinds = [axis for axis in axes_of[figure.axis] if numbers[axis].nunique() > 1]
    canvas, axes = _canvas(len(kinds), wide=4.2 if len(kinds) > 1 else 5.6, high=3.6)
    names = {"epsilon": (EPSILON, "n_i"), "records": (RECORDS, r"\epsilon_i")}
    for axis, along in zip(axes, kinds, strict=True):
        other = "records" if along == "epsilon" else "epsilon"
        values = sorted(numbers[other].unique())
        starts: list[tuple[float, float, str, str]] = []
        for marker, value in zip(MARKERS, values[:: max(1, len(values) // 3)], strict=False):
            part = numbers[numbers[other] == value].sort_values(along)
            axis.plot(part[along], part["relative_fitness"], marker, markersize=5)
            axis.plot(part[along], part["bound"], color=GREY, linewidth=0.8)
            label = rf"${names[along][1]}$ = {_short(value)}"
            first = part.iloc[0]
            starts.append((first[along], first["relative_fitness"], label, f"C{len(starts)}"))
        _logarithmic(axis, names[along][0], PSI)
        _label_starts(axis, starts)
        _plain_numbers(axis.xaxis)
    reading = "points: measured; lines: fitted bound above what is left without noise"
    canvas.suptitle(_title(figure, "what privacy costs", reading), fontsize=10)
    return canvas


def _value(figure: Figure, numbers: pd.DataFrame) -> Canvas:
    """Together over N and epsilon, the region in which the first owner gains marked."""
    canvas, (axis,) = _canvas(1, wide=5.4, high=3.8)
    ratio = numbers.assign(ratio=np.log10(numbers["relative_fitness"] / numbers["alone"]))
    table = ratio.pivot_table(index="owners", columns="epsilon", values="ratio")
    span = float(np.abs(table.to_numpy()).max())
    image = axis.pcolormesh(
        table.columns, table.index, table.to_numpy(), cmap="RdBu_r", vmin=-span, vmax=span
    )
    gaining = numbers[numbers["gains"]]
    axis.plot(gaining["epsilon"], gaining["owners"], "k.", markersize=4)
    axis.set_xscale("log")
    axis.set_yscale("log")
    _plain_numbers(axis.xaxis)
    _plain_numbers(axis.yaxis)
    axis.set_xlabel(EPSILON)
    axis.set_ylabel("owners N")
    bar = canvas.colorbar(image, label=r"common model's $\psi$ / own model's $\psi$")
    bar.ax.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 5, 10]))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{10**value:.3g}"))
    records = f"{numbers['records'].iloc[0]:,}"
    reading = f"dots: the first owner gains; each owner has {records} records"
    axis.set_title(_title(figure, "when the first owner gains", reading), fontsize=10)
    return canvas


def _hospitals(figure: Figure, numbers: pd.DataFrame) -> Canvas:
    """Each hospital's own model over the common ones."""
    canvas, (axis,) = _canvas(1, wide=5.6, high=3.8)
    axis.plot(numbers["records"], numbers["alone"], "o", markersize=4)
    columns = [name for name in numbers.columns if name.startswith("together_")]
    for column, style in zip(columns, ("-", "--", "-."), strict=False):
        value = float(numbers[column].iloc[0])
        label = rf"together, $\epsilon_i$ = {column.removeprefix('together_')}"
        axis.axhline(value, color=BLACK, linestyle=style, linewidth=1, label=label)
    # Lines may lie on each other, where their labels would, too.
    axis.legend(fontsize=7)
    _logarithmic(axis, "records of a hospital", PSI)
    reading = f"dots: the own models of {len(numbers)} hospitals; lines: the common models"
    axis.set_title(_title(figure, "alone and together", reading), fontsize=10)
    return canvas


def _scenarios(figure: Figure, numbers: pd.DataFrame) -> Canvas:
    """Four panels: partners small or large, conservative or eager."""
    canvas, axes = _canvas(4, wide=3.0, high=3.4)
    low, high = numbers["relative_fitness"].min() / 2, numbers["relative_fitness"].max() * 2
    for axis, (number, part) in zip(axes, numbers.groupby("scenario"), strict=True):
        starts: list[tuple[float, float, str, str]] = []
        for marker, (epsilon, line) in zip(MARKERS, part.groupby("epsilon"), strict=False):
            axis.plot(line["records"], line["relative_fitness"], f"{marker}-", markersize=4)
            first = line.iloc[0]
            label = rf"$\epsilon_1$ = {epsilon:g}"
            starts.append((first["records"], first["relative_fitness"], label, f"C{len(starts)}"))
        _logarithmic(axis, "the first owner's records $n_1$", PSI if number == 1 else "")
        axis.set_ylim(low, high)
        _label_starts(axis, starts)
        _plain_numbers(axis.xaxis)
        records, epsilon = part["partner_records"].iloc[0], part["partner_epsilon"].iloc[0]
        axis.set_title(rf"partners: {records:,} records, $\epsilon_i$ = {epsilon:g}", fontsize=9)
    canvas.suptitle(_title(figure, "what the partners decide"), fontsize=10)
    return canvas
