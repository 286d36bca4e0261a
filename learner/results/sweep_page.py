"""What a sweep comes to: a table with intervals, on the screen and on a self-contained page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table

from common.arrays import Vector
from common.texts import counted
from learner.results.charts import DASHED, DASHED_AND_DOTTED, DOTTED, FITNESS, Line, curve
from learner.results.page import Cell, page, paragraphs, section, table, texts, write_page

COLORS = ("var(--blue)", "var(--green)", "var(--gold)", "var(--red)")
# So many curves have looks of their own.
LOOKS = tuple(
    (color, dashes) for dashes in ("", DASHED, DOTTED, DASHED_AND_DOTTED) for color in COLORS
)
WORDS = (
    "Each row is a point of the grid: the mean over seeds and its 95 % interval, by Student's t. "
    "A seed fixes the clocks and the noise; records and choices are the same for all seeds. "
    "Relative fitness is on the records of the owners that take part. In a picture an interval "
    "that goes further down ends at half of the least mean."
)
# What of the least mean intervals are shown down to: some reach down to 0, on a logarithmic axis.
SHOWN_BELOW = 0.5
# Sections of a study whose keys change the best model, which relative fitness is relative to.
OF_THE_BEST = ("data", "features", "model", "owners")
# Columns of what a run came to; the others say which one it was.
_RESULTS = (
    "way",
    "horizon",
    "relative_fitness",
    "relative_fitness_public",
    "relative_fitness_alone",
    "gains",
    "num_owners",
)


def half_interval(values: Vector) -> float:
    """Half of the 95 % interval of a mean, by Student's t; NaN for a single value, which has none.

    >>> round(half_interval(np.array([0.5, 1.5])), 2), half_interval(np.array([0.5]))
    (6.35, nan)
    """
    if len(values) == 1:
        return math.nan
    from scipy.stats import t  # noqa: PLC0415 (nothing else here needs it)

    share = t.ppf(0.975, len(values) - 1) / np.sqrt(len(values))
    return float(share * values.std(ddof=1))


def sweep_summary(rows: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """One row for each point of the grid, in its order.

    Args:
      rows: One row for each study, as ``sweep.parquet`` has them.
      keys: The grid's keys.

    Returns:
      The keys, ``way``, ``horizon``, ``num_owners``, ``studies``, ``together`` and ``half``, half
      of its 95 % interval, ``public``, ``alone`` and ``gains``, the mean number of owners.
    """
    points = []
    for _, part in rows.groupby("point", sort=True):
        first = part.iloc[0]
        psi = part["relative_fitness"].to_numpy()
        points.append(
            {key: first[key] for key in keys}
            | {name: first[name] for name in ("way", "horizon", "num_owners")}
            | {
                "studies": len(part),
                "together": float(psi.mean()),
                "half": half_interval(psi),
                "public": float(first["relative_fitness_public"]),
                "alone": float(first["relative_fitness_alone"]),
                "gains": float(part["gains"].mean()),
            }
        )
    return pd.DataFrame(points)


def makes_no_difference(rows: pd.DataFrame, key: str) -> bool:
    """Whether every run came to the same at each value of a key, bit for bit.

    >>> rows = pd.DataFrame({"point": [0, 0, 1, 1], "key": [1, 1, 2, 2], "seed": [1, 2, 1, 2]})
    >>> rows["relative_fitness"] = [0.5, 0.25, 0.5, 0.25]
    >>> makes_no_difference(rows, "key"), makes_no_difference(rows.assign(seed=0), "key")
    (True, False)
    """
    if rows[key].nunique() < 2:
        return False
    others = [name for name in rows if name not in {key, "point", *_RESULTS}]
    found = rows.groupby(others, dropna=False)["relative_fitness"].nunique(dropna=False)
    return bool((found == 1).all())


def incomparable(keys: Sequence[str]) -> list[str]:
    """What to know of a grid whose points are not judged by the same best model, if it is one.

    >>> incomparable(["privacy.epsilon"]), incomparable(["features.components"])[0][:37]
    ([], 'each value of features.components has')
    """
    changing = [key for key in keys if key.split(".")[0] in OF_THE_BEST]
    return [
        f"each value of {key} has its own best model, against which relative fitness is measured: "
        "compare a row with its own public model and alone, not with rows of other values"
        for key in changing
    ]


HEADS = ("way", "T", "together", "public model", "alone, mean", "gains")


def _cells(point: pd.Series, keys: Sequence[str]) -> list[Cell | str]:
    """A row of the table."""
    return [
        *(_key(point[key]) for key in keys),
        str(point["way"]),
        Cell(f"{point['horizon']:,}", float(point["horizon"])),
        Cell(f"{point['together']:.3g}{_within(point['half'])}", point["together"]),
        "-" if np.isnan(point["public"]) else Cell(f"{point['public']:.3g}", point["public"]),
        Cell(f"{point['alone']:.3g}", point["alone"]),
        f"{point['gains']:.3g} of {point['num_owners']}",
    ]


def _within(half: float) -> str:
    """What follows a mean; nothing where one seed has no interval."""
    return "" if math.isnan(half) else f" ± {half:.2g}"


def _key(value: object) -> Cell:
    """The value of a key of the grid."""
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        return Cell(f"{value:g}", float(value))
    return Cell(str(value))


def sweep_table(summary: pd.DataFrame, keys: Sequence[str]) -> Table:
    """The table as it is printed."""
    shown = Table(box=box.SIMPLE_HEAD)
    for head in (*keys, *HEADS):
        shown.add_column(head, justify="left" if head == "way" else "right")
    for _, point in summary.iterrows():
        shown.add_row(*texts(_cells(point, keys)))
    return shown


def write_sweep_page(
    folder: Path, title: str, summary: pd.DataFrame, keys: Sequence[str], notes: Sequence[str] = ()
) -> Path:
    """``sweep.html``: the picture, the table behind it, and what to know of it.

    Raises:
      InputError: It cannot be written.
    """
    rows = [_cells(point, keys) for _, point in summary.iterrows()]
    heads = [*(keys or ["study"]), *HEADS]
    rows = rows if keys else [["all", *row] for row in rows]
    shown = table("points", f"{counted(len(rows), 'point')} of the grid", heads, rows)
    pictures = [_picture(summary, key, keys) for key in keys if _is_number(summary[key])]
    return write_page(
        folder / "sweep.html",
        page(
            title,
            section("What it comes to", *pictures, shown),
            section(
                "How it was made", paragraphs([WORDS, *(f"{n[0].upper()}{n[1:]}." for n in notes)])
            ),
        ),
    )


def _is_number(values: pd.Series) -> bool:
    return bool(pd.api.types.is_numeric_dtype(values)) and values.nunique() > 1


def _is_shared(summary: pd.DataFrame, key: str, column: str) -> bool:
    """Whether all curves have the same known value at each place."""
    of_each = summary.groupby(key)[column]
    return bool(summary[column].notna().all() and (of_each.nunique() == 1).all())


def _picture(summary: pd.DataFrame, key: str, keys: Sequence[str]) -> str:
    """Relative fitness against one key, a curve for each choice of the others."""
    others = [other for other in keys if other != key]
    lines: list[Line] = []
    parts = summary.groupby(others, sort=False) if others else [("", summary)]
    for number, (choice, part) in enumerate(parts):
        ordered = part.sort_values(key)
        x = ordered[key].to_numpy(dtype=np.float64)
        together, half = (ordered[name].to_numpy() for name in ("together", "half"))
        chosen = choice if isinstance(choice, tuple) else (choice,)
        name = ", ".join(
            f"{other.rpartition('.')[2]} {_key(value).text}"
            for other, value in zip(others, chosen, strict=False)
        )
        color, dashes = LOOKS[number % len(LOOKS)]
        band = f"color-mix(in srgb, {color} 35%, var(--ground))"
        low = np.maximum(together - half, summary["together"].min() * SHOWN_BELOW)
        sides = () if np.isnan(half).any() else (low, together + half)
        lines += [Line(name="", x=x, y=side, color=band) for side in sides]
        lines.append(Line(name=name or "together", x=x, y=together, color=color, dashes=dashes))
        if number == 0:
            names = [("public model", "public", "var(--soft)")]
            names += [] if others else [("alone, mean", "alone", "var(--gold)")]
            lines += [
                Line(name=what, x=x, y=ordered[column].to_numpy(), color=color, dashes=DASHED)
                for what, column, color in names
                if _is_shared(summary, key, column)
            ]
    # No curve under the interval of another.
    lines.sort(key=lambda line: line.name != "")
    of_mean = "" if summary["half"].isna().any() else ", with the 95 % interval of its mean"
    title = f"Relative fitness against {key}{of_mean}"
    positive = bool((summary[key] > 0).all())
    return curve(title, lines, x_label=key, y_label=FITNESS, log_x=positive)
