"""``copriv reproduce``: the figures of both papers, their numbers, and what they say here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from common.errors import InputError
from common.extras import away_from_here
from common.files import make_folder, refused
from learner.reproduction.documents import (
    check_document,
    markdown_table,
    replace_section,
    rows_of_section,
)
from learner.reproduction.figures import figure_numbers, uses_grid
from learner.reproduction.laboratory import Lab, Laboratory
from learner.reproduction.papers import FIGURES, Data, Figure, Kind
from learner.reproduction.public_data import Files
from learner.results.progress import progress
from learner.results.run_folder import write_table
from learner.simulated.sweeps import Workers, run_sweep

SLOPE_TOLERANCE = 0.25
INTRODUCTION = """\
## The figures of both papers

`copriv reproduce {figures} {data} --out {out} --document {document}`

A is the paper of 2021, S that of 2020. Owners are as large as the files at hand allow. Smaller
owners need a larger epsilon for the same noise: epsilons are those of the papers times the number
in the column. Bounds and slopes are those of what noise adds: what is left without noise, because
T ticks do not arrive or owners differ, is no cost of privacy, and is taken off first. *Agrees* is
said of the shape: order, direction, slope. Fitted constants hold the bound Xi and the step of the
feature map at hand; they do not compare with the papers'."""
# The option that brings the records of a figure.
OPTION_OF: dict[Data, str] = {"loans": "loans", "hospitals": "facilities", "cards": "cards"}
# A median has come to a neighbourhood of the optimum below this share of theta = 0.
NEIGHBOURHOOD = 0.2
# Factors that differ by no more than this count as the same.
SAME_FACTOR = 3.0
# Below this share there is nothing left to fall.
SETTLED = 0.01


def chosen_figures(names: Sequence[str]) -> list[Figure]:
    """The figures that names such as A4, S or all stand for, in the papers' order.

    Raises:
      InputError: A name is no figure.

    >>> [figure.name for figure in chosen_figures(["s2", "A3"])]
    ['A3', 'S2']
    """
    wanted = {name.upper() for name in names}
    known = {"ALL", "A", "S", *FIGURES}
    for name in sorted(wanted - known):
        raise InputError(f"{name}: no such figure; expected all, A, S, or one of A2-A11, S2-S11")
    return [
        figure
        for name, figure in FIGURES.items()
        if "ALL" in wanted or name in wanted or name[0] in wanted
    ]


def run_reproduction(
    names: Sequence[str],
    *,
    data: Path | None,
    tables: Mapping[str, Path | None],
    out: Path,
    document: Path | None,
    console: Console,
    cluster: str | None = None,
) -> None:
    """Make figures: SVG and Parquet for each in ``out``; print what they show.

    Args:
      names: Names of figures.
      data: A folder of reduced files, for what is not given; None for none.
      tables: The user's own tables by the names in :class:`Files`; None for one that is not given.
      out: Where pictures and numbers go.
      document: A document whose section ``figures`` is written; None for none.
      console: Where to print.
      cluster: Address of a Dask scheduler that computes all figures at once, or None.

    Raises:
      InputError: A name is no figure, the records that one needs are not given, the cluster is
        not there, a figure cannot be computed, or the document takes no section.
    """
    with away_from_here():
        from learner.reproduction.drawings import draw  # noqa: PLC0415 (needs matplotlib)

    figures = chosen_figures(names)
    files = _files(data, tables, figures)
    if document is not None:
        check_document(document, "figures")
    # All tables are read first: none is found to be another one after hours of computing.
    laboratory = Laboratory(files)
    labs = [laboratory.lab(figure) for figure in figures]
    make_folder(out, cure="give another --out")
    rows = []
    with progress(console, "figures", total=len(figures)) as advance:
        made = _all_numbers(labs, cluster=cluster)
        for done, (figure, numbers) in enumerate(made, start=1):
            write_table(out / f"{figure.name}.parquet", numbers)
            with refused(out / f"{figure.name}.svg"):
                draw(figure, numbers, out / f"{figure.name}.svg")
            agrees, sentence = finding(figure, numbers)
            if agrees == "no" and figure.differs:
                sentence += f". Why: {figure.differs}"
            rows.append(
                {
                    "figure": figure.name,
                    "paper": figure.reports,
                    "here": sentence,
                    "epsilons": f"x {numbers['scale'].iloc[0]:g}",
                    "agrees": agrees,
                }
            )
            advance(done)
    table = pd.DataFrame(rows)
    _show(table, console)
    if document is not None:
        replace_section(document, "figures", _section(table, document, out, is_folder=bool(data)))


def _all_numbers(
    labs: Sequence[Lab], *, cluster: str | None
) -> Iterator[tuple[Figure, pd.DataFrame]]:
    """The numbers of each figure: one after the other here, all at once on a cluster."""
    grids: dict[str, pd.DataFrame] = {}
    for part in [labs] if cluster else [[lab] for lab in labs]:
        missing = {_grid_name(lab): (lab,) for lab in part if uses_grid(lab)}
        missing = {name: call for name, call in missing.items() if name not in grids}
        grids |= _computed(_grid, missing, cluster=cluster)
        calls = {lab.figure.name: (lab, grids.get(_grid_name(lab))) for lab in part}
        numbers = _computed(_numbers, calls, cluster=cluster)
        yield from ((lab.figure, numbers[lab.figure.name]) for lab in part)


def _grid_name(lab: Lab) -> str:
    """Figures of one paper on the same data share a grid."""
    return f"{'S' if lab.figure.synchronous else 'A'}-{lab.figure.data}"


def _grid(lab: Lab) -> dict[str, Any]:
    """The numbers over n and epsilon, as JSON holds them."""
    return _columns(lab.grid())


def _numbers(lab: Lab, grid: pd.DataFrame | None) -> dict[str, Any]:
    """A figure's numbers, as JSON holds them."""
    return _columns(figure_numbers(lab, grid))


def _columns(table: pd.DataFrame) -> dict[str, Any]:
    return {str(name): table[name].tolist() for name in table}


def _computed(
    work: Callable[..., dict[str, Any]],
    calls: Mapping[str, tuple[Any, ...]],
    *,
    cluster: str | None,
) -> dict[str, pd.DataFrame]:
    """What these calls find, each a table."""
    sweep = run_sweep(
        work, calls, workers=Workers(jobs=1, cluster=cluster), fingerprint=lambda *arguments: ""
    )
    for name, failure in sweep.failures.items():
        raise InputError(
            f"{name}: cannot be computed, {failure.error}; check the records it is given"
        )
    return {name: pd.DataFrame(columns) for name, columns in sweep.results.items()}


def _files(data: Path | None, given: Mapping[str, Path | None], figures: Sequence[Figure]) -> Files:
    """The user's files where they are given, else those of the folder; all that figures need."""
    tables = {name: path for name, path in given.items() if path is not None}
    for name, path in tables.items():
        if not path.is_file():
            raise InputError(f"--{name} {path}: no such file; give a CSV or Parquet file")
    if data is not None and not data.is_dir():
        raise InputError(f"--data {data}: no such folder; give the folder of the public records")
    files = replace(Files() if data is None else Files.in_folder(data), **tables)
    for figure in figures:
        try:
            files.path(OPTION_OF[figure.data])
        except InputError as error:
            raise InputError(f"{figure.name}: {error}") from None
    return files


def finding(figure: Figure, numbers: pd.DataFrame) -> tuple[str, str]:
    """(whether it agrees with the paper, what the numbers say)."""
    kinds: dict[Kind, Callable[[], tuple[str, str]]] = {
        "percentiles": lambda: _of_percentiles(figure, numbers),
        "timing": lambda: _of_timing(numbers),
        "surface": lambda: _of_bound(figure, numbers),
        "lines": lambda: _of_bound(figure, numbers),
        "value": lambda: _of_value(numbers),
        "hospitals": lambda: _of_hospitals(numbers),
        "scenarios": lambda: _of_scenarios(numbers),
    }
    return kinds[figure.kind]()


def _word(condition: bool) -> str:
    return "yes" if condition else "no"


def _of_percentiles(figure: Figure, numbers: pd.DataFrame) -> tuple[str, str]:
    ends = numbers[numbers["k"] == numbers["k"].max()].sort_values("epsilon")
    medians, spread = ends["median"].to_numpy(), (ends["q75"] - ends["q25"]).to_numpy()
    untrained = float(numbers["untrained"].iloc[0])
    settled = medians[:-1] < SETTLED * untrained
    improves = (medians[1:] < 0.9 * medians[:-1]) & (np.diff(spread) < 0)
    falls = bool(np.all(settled | improves))
    arrives = bool(medians[-1] < NEIGHBOURHOOD * untrained)
    enough = bool(medians[0] > figure.improves / SAME_FACTOR * medians[1])
    found = ", ".join(
        f"{median:.2g} at epsilon {epsilon:g}"
        for median, epsilon in zip(medians, ends["epsilon"], strict=True)
    )
    owners, records = numbers["owners"].iloc[0], numbers["records"].iloc[0]
    return _word(falls and arrives and enough), (
        f"{owners} owners, the first of {records:,}: median {found}, "
        f"of {untrained:.2g} at theta = 0"
    )


def _of_timing(numbers: pd.DataFrame) -> tuple[str, str]:
    counts = numbers["owner"].value_counts()
    owners = int(numbers["owner"].max())
    expected = len(numbers) / owners
    chi2 = float(((counts.reindex(range(1, owners + 1), fill_value=0) - expected) ** 2).sum())
    even = chi2 / expected < owners - 1 + 4 * np.sqrt(2 * owners)
    return _word(even), f"{owners} owners, {counts.min()} to {counts.max()} of {len(numbers)} ticks"


def slope(numbers: pd.DataFrame, along: str) -> float:
    """Median slope of the log of what noise adds, between neighbours where it rules."""
    other = "records" if along == "epsilon" else "epsilon"
    slopes: list[float] = []
    for _, group in numbers.sort_values(along).groupby(other):
        x, y = group[along].to_numpy(), group["noise_adds"].to_numpy()
        rules = group["rules"].to_numpy()
        both = rules[:-1] & rules[1:]
        slopes += (np.diff(np.log(np.where(rules, y, 1.0))) / np.diff(np.log(x)))[both].tolist()
    return float(np.median(slopes)) if slopes else float("nan")


def _of_bound(figure: Figure, numbers: pd.DataFrame) -> tuple[str, str]:
    axes = {"both": ("epsilon", "records"), "epsilon": ("epsilon",), "records": ("records",)}
    slopes = {
        along: slope(numbers, along) for along in axes[figure.axis] if numbers[along].nunique() > 1
    }
    constants = numbers.iloc[0]
    misfit = 10 ** float(constants["largest_misfit"])
    found = ", ".join(
        f"no slope in {along}: noise rules nowhere between bad and good"
        if np.isnan(value)
        else f"slope {value:.2f} in {along}"
        for along, value in slopes.items()
    )
    agrees = all(
        abs(value - figure.slopes[along]) < SLOPE_TOLERANCE
        for along, value in slopes.items()
        if along in figure.slopes
    )
    low, high = numbers["without_noise"].min(), numbers["without_noise"].max()
    return _word(agrees), (
        f"{found} of what noise adds; fitted c1' = {constants['sqrt_term']:.2g}, "
        f"c2' = {constants['linear_term']:.2g}, at most {misfit:.1f}-fold off; "
        f"without noise {low:.2g} to {high:.2g} is left"
    )


def _of_value(numbers: pd.DataFrame) -> tuple[str, str]:
    fewest = {
        float(group["epsilon"].iloc[0]): int(group.loc[is_last_stretch, "owners"].min())
        for _, group in numbers.sort_values("owners").groupby("epsilon")
        # From there on it gains with every larger number of owners.
        if (is_last_stretch := group["gains"][::-1].cummin()[::-1]).any()
    }
    if not fewest:
        return "no", "the first owner gains nowhere on this grid"
    found = ", ".join(f"from {count} owners at epsilon {e:.3g}" for e, count in fewest.items())
    # Fewer owners suffice where epsilon is larger.
    falls = bool(np.all(np.diff(list(fewest.values())) <= 0))
    records = numbers["records"].iloc[0]
    return _word(falls), (
        f"with {records:,} records each the first gains {found}, nowhere on this grid at less"
    )


def _of_hospitals(numbers: pd.DataFrame) -> tuple[str, str]:
    columns = [name for name in numbers.columns if name.startswith("gains_")]
    counts = {name.removeprefix("gains_"): int(numbers[name].sum()) for name in columns}
    found = ", ".join(f"{count} gain at epsilon {e}" for e, count in counts.items())
    few = min(counts.values()) <= len(numbers) / 2
    rising = few and list(counts.values()) == sorted(counts.values())
    small, large = numbers["records"].quantile([0.25, 0.75])
    worse = (
        numbers.loc[numbers["records"] <= small, "alone"].median()
        > numbers.loc[numbers["records"] >= large, "alone"].median()
    )
    untrained = numbers["untrained"].iloc[0]
    beaten = int((numbers["alone"] > untrained).sum())
    return _word(rising and bool(worse)), (
        f"of {len(numbers)} hospitals {found}; theta = 0, at {untrained:.2g}, beats {beaten} of "
        "their own models on the union"
    )


def _of_scenarios(numbers: pd.DataFrame) -> tuple[str, str]:
    means = numbers.groupby("scenario")["relative_fitness"].apply(
        lambda psi: float(np.exp(np.log(psi).mean()))
    )
    first = numbers[numbers["scenario"] == 1]
    effect = first["relative_fitness"].max() / first["relative_fitness"].min()
    best = means.idxmin() == means.index[-1] and means.idxmax() in (1, 3)
    found = ", ".join(f"({number}) {value:.2g}" for number, value in means.items())
    return _word(best), f"mean {found}; in (1) the first owner changes it {effect:.1f}-fold"


def _show(table: pd.DataFrame, console: Console) -> None:
    shown = Table("figure", "here", "agrees")
    for row in table.itertuples():
        shown.add_row(str(row.figure), str(row.here), str(row.agrees))
    console.print(shown)


def _section(table: pd.DataFrame, document: Path, out: Path, *, is_folder: bool) -> str:
    """The section of the document: a table, with the pictures where they lie beside it.

    Args:
      table: What was found, a row for each figure that was made.
      document: The document, whose rows of other figures stay.
      out: Where the pictures are.
      is_folder: Whether the records came from a folder.
    """
    shown = table.copy()
    try:
        where = out.resolve().relative_to(document.resolve().parent).as_posix()
    except ValueError:
        where = None
    if where is not None:
        picture = '<img src="{0}" width="330" alt="{1}"><br>[{1}]({0})'
        shown["figure"] = [picture.format(f"{where}/{name}.svg", name) for name in table["figure"]]
    heads, line, *made = markdown_table(shown).splitlines()
    rows = rows_of_section(document, "figures") | dict(zip(table["figure"], made, strict=True))
    names = [name for name in FIGURES if name in rows]
    needed = {FIGURES[name].data for name in names}
    options = [f"--{OPTION_OF[data]} FILE" for data in OPTION_OF if data in needed]
    introduction = INTRODUCTION.format(
        figures="all" if len(names) == len(FIGURES) else " ".join(names),
        data="--data FOLDER" if is_folder else " ".join(options),
        out=out.as_posix(),
        document=document.as_posix(),
    )
    return "\n".join([introduction, "", heads, line, *(rows[name] for name in names)])
