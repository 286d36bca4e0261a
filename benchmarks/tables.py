"""Tables of docs/results.md: their rows, how they are measured, and what they come to."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import joblib
import numpy as np
from record_cases import Case
from ways import Reached, Way

from common.arrays import Vector
from common.errors import InputError
from learner.results.sweep_page import half_interval

# What there was before ways were chosen between; what a way must not lose to is that, and what is
# free.
TRAINED = ("moments", "asynchronous")
FORMER = ("public", *TRAINED)
CENTRE = ("centre-statistics", "centre-descent", "centre-diffprivlib")
# Where a way counts as worse than the best of the former ones.
MARGINS = (1.25, 2.0)
TINY = 1e-12

Measured = Mapping[tuple[str, float], Reached]
"""What was reached, by row and epsilon; a row that a case does not have is missing."""


@dataclass(frozen=True)
class Row:
    """One row of a table.

    Args:
      label: What it is called in the table.
      way: How it is trained.
      repeats: Whether it depends on epsilon and seeds.
    """

    label: str
    way: Way
    repeats: bool = True


@dataclass(frozen=True)
class Run:
    """How often, and on how many processes."""

    seeds: int
    jobs: int


def measure(
    case: Case, rows: Mapping[str, Row], epsilons: Sequence[float], run: Run
) -> dict[tuple[str, float], Reached]:
    """Every row at every epsilon; a row that the case has no use for is told and left out."""
    case.world.evaluation.fitness_optimal  # noqa: B018 (once, before the case is copied)
    case.world.relative_fitness_alone  # noqa: B018
    cells = [
        (name, epsilon)
        for name, row in rows.items()
        for epsilon in (epsilons if row.repeats else epsilons[:1])
    ]
    found = joblib.Parallel(n_jobs=run.jobs, return_as="generator")(
        joblib.delayed(_timed)(rows[name].way, case, epsilon, run.seeds) for name, epsilon in cells
    )
    measured: dict[tuple[str, float], Reached] = {}
    left_out: set[tuple[str, str]] = set()
    for (name, epsilon), (reached, seconds) in zip(cells, found, strict=True):
        if isinstance(reached, str):
            if (name, reached) not in left_out:
                print(f"{case.title}: {name} is left out: {reached}", flush=True)
            left_out.add((name, reached))
            continue
        told = f"{case.title}: {name}, epsilon = {epsilon:g}: {_text(reached)}"
        print(f"{told} ({seconds:.1f} s)", flush=True)
        for same in [epsilon] if rows[name].repeats else epsilons:
            measured[name, same] = reached
    return measured


def _timed(way: Way, case: Case, epsilon: float, seeds: int) -> tuple[Reached | str, float]:
    """What was reached, or why there is no such way, and the seconds that it took."""
    began = time.monotonic()
    try:
        reached: Reached | str = way(case, epsilon, seeds)
    except InputError as error:
        reached = str(error)
    return reached, time.monotonic() - began


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table, and an empty line."""
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return [lines[0], "|" + "---|" * len(head), *lines[1:], ""]


def by_epsilon(epsilons: Sequence[float]) -> list[str]:
    """The head of a table with a column for each epsilon."""
    return ["", *(f"epsilon = {epsilon:g}" for epsilon in epsilons)]


def section(
    case: Case,
    rows: Mapping[str, Row],
    measured: Measured,
    epsilons: Sequence[float],
    *,
    gaining: Sequence[str] = (),
) -> list[str]:
    """A case's heading, facts and table.

    Args:
      case: The case.
      rows: Its rows.
      measured: What they reached.
      epsilons: The columns.
      gaining: Rows for which it is said how many owners gain.
    """
    body = []
    for name, row in rows.items():
        cells = [measured.get((name, epsilon)) for epsilon in epsilons]
        if any(cells):
            body.append([row.label, *(_text(cell) for cell in cells)])
    for name in gaining:
        if (name, epsilons[0]) in measured:
            who = [gains(case, measured[name, epsilon]) for epsilon in epsilons]
            body.append([f"owners that gain from {name}", *who])
    return [f"### {case.title}", "", facts(case), "", *markdown(by_epsilon(epsilons), body)]


def interval(psi: Vector) -> str:
    """Mean and half of its 95 % interval, or a single number."""
    half = f" ± {half_interval(psi):.1g}" if len(psi) > 1 else ""
    return f"{psi.mean():.2g}{half}"


def _text(cell: Reached | None) -> str:
    """The same of a cell, and what is noted of it."""
    if cell is None:
        return ""
    return interval(cell.psi) + (f" ({cell.note})" if cell.note else "")


def gains(case: Case, reached: Reached) -> str:
    """How many owners get a better model than their own and than that of the public records."""
    free = np.minimum(case.world.relative_fitness_alone, case.relative_fitness_public)
    return f"{np.sum(reached.mean < free)} of {len(free)}"


def facts(case: Case) -> str:
    """What a table's numbers are to be seen against."""
    judge, domain = case.world.evaluation, case.feature_map.domain
    zero = judge.relative_fitness(np.zeros((1, domain.num_features)))[0]
    own = case.world.relative_fitness_alone
    least, most = f"{case.counts.min():,.0f}", f"{case.counts.max():,.0f}"
    held = f"{least} records each" if least == most else f"{least} to {most} records"
    return (
        f"{len(case.shards)} owners of {held}, {len(case.public):,} public ones, "
        f"p = {domain.num_features}, domain's bound Xi = {case.bound:.0f}. Relative fitness of "
        f"theta = 0: {zero:.3g}; of each owner alone: "
        f"{own.min():.3g} to {own.max():.3g}; of the public records alone: "
        f"{case.relative_fitness_public:.3g}."
    )


def ratio(numerator: Reached, denominator: Reached) -> str:
    """How many times smaller the second mean is."""
    return f"{numerator.mean / denominator.mean:.0f}"


def summary(
    families: Mapping[str, Measured], ways: Sequence[str], epsilons: Sequence[float]
) -> list[str]:
    """What each way comes to over all families, a line for each epsilon and one for all.

    Args:
      families: What was measured of each family.
      ways: The rows that are summed up; those that were not measured are left out.
      epsilons: The columns of the families' tables.
    """
    rows: list[list[str]] = []
    for way in ways:
        for name, over in [*((f"{e:g}", [e]) for e in epsilons), ("all", epsilons)]:
            compared = Compared.of(families, way, over)
            if compared.gain.size:
                rows.append([way, name, *compared.cells()])
    head = [
        "way",
        "epsilon",
        "cells",
        "(best of public model, moments, asynchronous) / way",
        "(better of moments, asynchronous) / way",
        "way / (better trusted centre)",
        *(f"more than {margin:g} times worse than that best" for margin in MARGINS),
    ]
    filled = [place for place, _ in enumerate(head) if any(row[place] for row in rows)]
    return markdown([head[k] for k in filled], [[row[k] for k in filled] for row in rows])


@dataclass(frozen=True, eq=False)
class Compared:
    """One way against others, over cells: families at some epsilons.

    Args:
      gain: (Best of the former ways)/(way) in each cell.
      trained: The same without the public model, which no owner's records have a part in.
      loss: (Way)/(better trusted centre) in each cell that has one.
    """

    gain: Vector
    trained: Vector
    loss: Vector

    @classmethod
    def of(cls, families: Mapping[str, Measured], way: str, epsilons: Sequence[float]) -> Compared:
        """The cells where the way was measured, beside any of the others."""
        gain, trained, loss = [], [], []
        for measured, epsilon in itertools.product(families.values(), epsilons):
            mean = _means(measured, epsilon)
            former, own = ([mean[row] for row in rows if row in mean] for rows in (FORMER, TRAINED))
            centre = [mean[row] for row in CENTRE if row in mean]
            if way in mean and former:
                gain.append(min(former) / mean[way])
            if way in mean and own:
                trained.append(min(own) / mean[way])
            if way in mean and centre:
                loss.append(mean[way] / min(centre))
        return cls(np.array(gain), np.array(trained), np.array(loss))

    def cells(self) -> list[str]:
        """How many, geometric means, and how many are beyond each margin."""
        worse = [f"{np.sum(1 / self.gain > margin)} of {len(self.gain)}" for margin in MARGINS]
        means = (geometric_mean(ratios) for ratios in (self.gain, self.trained, self.loss))
        return [str(len(self.gain)), *means, *worse]


def _means(measured: Measured, epsilon: float) -> dict[str, float]:
    """The mean of each row at one epsilon, above 0."""
    cells = [(row, cell) for (row, e), cell in measured.items() if e == epsilon]
    return {row: max(cell.mean, TINY) for row, cell in cells}


def geometric_mean(values: Vector) -> str:
    """Two digits, nothing of nothing.

    >>> geometric_mean(np.array([1.0, 100.0]))
    '10'
    """
    return f"{np.exp(np.mean(np.log(values))):.2g}" if len(values) else ""
