"""Several runs beside each other: a table for a terminal, and a page."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

from rich import box
from rich.table import Table

from common.judged_text import WORDS
from common.texts import number_words, printable
from learner.results.page import Cell, page, paragraphs, section, table, texts, write_page
from learner.results.quality_words import interval_words, is_better
from learner.results.report import warnings
from learner.results.summary import Summary
from learner.results.verdict_words import amount_words, epsilons_spent, how_many_gain

HEADS = (
    *("run", "algorithm", "owners", "epsilon spent", "T", "quality", "relative fitness"),
    *("public model", "owners who gain"),
)

ONE_DRAW = "Each run drew its noise once; copriv sweep says how far runs of one study differ."
UNLIKE = (
    "These runs have different best models, against which relative fitness is measured: compare a "
    "run with its own public model, not with the others' relative fitness."
)


def comparison_table(runs: Mapping[str, Summary]) -> Table:
    """One row for each run."""
    made = Table(title="runs", box=box.SIMPLE_HEAD, pad_edge=False)
    for i, head in enumerate(HEADS):
        made.add_column(head, justify="left" if i == 0 else "right")
    for name, summary in runs.items():
        made.add_row(*texts(_row(name, summary)))
    return made


def write_comparison(runs: Mapping[str, Summary], out: Path) -> Path:
    """A page of the runs.

    Raises:
      InputError: It cannot be written.
    """
    rows = [_row(name, summary) for name, summary in runs.items()]
    first = paragraphs(compared_warnings(runs), "warning")
    first += paragraphs([verdict(runs)], "verdict") + paragraphs(notes(runs))
    caption = (
        "Quality is the main measure in raw units, on the records that each run could judge on"
    )
    shown = section("Runs", table("runs", caption, HEADS, rows))
    return write_page(out, page(f"{len(runs)} runs compared", first, shown))


def compared_warnings(runs: Mapping[str, Summary]) -> list[str]:
    """Each warning once, after the runs that it is of: their epsilon may have protected nobody."""
    of: dict[str, list[str]] = {}
    for name, summary in runs.items():
        for line in warnings(summary):
            of.setdefault(line, []).append(printable(name))
    return [f"{', '.join(names)}: {line}" for line, names in of.items()]


def verdict(runs: Mapping[str, Summary]) -> str:
    """Which run is best, where all were judged on the same records, by the same measure.

    Runs whose measures are the same as they are written are level.
    """
    judged = {name: s.quality for name, s in runs.items() if s.quality is not None}
    if len(judged) == len(runs) and len({_judged_on(s) for s in runs.values()}) == 1:
        best = next(iter(judged))
        for name, quality in judged.items():
            if is_better(quality, quality.common.value, judged[best].common.value):
                best = name
        found = judged[best]
        reached = number_words(found.common.value)
        level = [name for name, its in judged.items() if number_words(its.common.value) == reached]
        which = "Level: " + ", ".join(map(printable, level))
        if len(level) == 1:
            which = f"Best: {printable(best)}"
        return (
            f"{which}, with {WORDS[found.measure]} {reached} on the same {found.records:,} records."
        )
    return (
        "These runs were not judged on the same records by the same measure: their qualities do "
        "not compare."
    )


def notes(runs: Mapping[str, Summary]) -> list[str]:
    """What to know of their numbers: another loss, other records or settings are another unit."""
    units = {
        (summary.loss, summary.delta, f"{summary.fitness_optimal:.6g}")
        for summary in runs.values()
        if summary.fitness_optimal is not None
    }
    return [UNLIKE, ONE_DRAW] if len(units) > 1 else [ONE_DRAW]


def _judged_on(summary: Summary) -> tuple[object, ...]:
    """What two runs that can be compared have in common.

    What always predicting the same comes to depends on the records' targets alone: it tells as many
    records of other values apart.
    """
    quality = summary.quality
    if quality is None:
        return ()
    whose = frozenset((owner.name, owner.records) for owner in summary.owners)
    guess = f"{quality.guess:.6g}"
    same = (quality.measure, quality.target, quality.on, quality.records, guess)
    return (*same, whose) if quality.on == "owners" else same


def _row(name: str, summary: Summary) -> list[Cell | str]:
    spent = max(epsilons_spent(summary), default=Fraction(0))
    quality, fitness = summary.quality, summary.relative_fitness
    free = summary.relative_fitness_public
    quality_cell: Cell | str = "-"
    if quality is not None:
        words = f"{WORDS[quality.measure]} {interval_words(quality.common)}"
        quality_cell = Cell(f"{words}, {quality.on}", quality.common.value)
    return [
        printable(name),
        summary.algorithm,
        Cell(f"{len(summary.owners)}", len(summary.owners)),
        Cell(amount_words(spent), float(spent)),
        Cell(f"{summary.horizon:,}", summary.horizon),
        quality_cell,
        "-" if fitness is None else Cell(f"{fitness:.3g}", fitness),
        "-" if free is None else Cell(f"{free:.3g}", free),
        how_many_gain(summary) if summary.is_evaluated else "-",
    ]
