"""A finished run for people: the printed table and its sentences."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from rich import box
from rich.console import Console
from rich.table import Table

from common.losses import PARAMETERS
from common.texts import counted, first_few, named, printable
from learner.planning.ways import why_taken
from learner.results.page import Cell, texts
from learner.results.quality_words import no_better_than_guessing, quality_lines
from learner.results.summary import OwnerSummary, Summary
from learner.results.validation_words import validation_lines
from learner.results.verdict_words import (
    NAMED,
    amount_words,
    free_is_better,
    never_asked,
    who_gains,
)

# How many letters of a name a line of a table has at least.
SHORTEST = 5
# Sentences that begin so are shown as warnings.
WARNINGS = ("IN MEMORY", "INSECURE", "UNPROTECTED", "warning: ")


def columns(summary: Summary) -> list[str]:
    """The table's headings; what needs the union of the records only where it is known."""
    heads = ["owner", "records", "epsilon", "responses", "noise scale"]
    if not summary.is_evaluated:
        return heads
    free = [] if summary.relative_fitness_public is None else ["public model"]
    return [*heads, "alone", *free, "together", "gains"]


def rows(summary: Summary) -> list[list[Cell | str]]:
    """The table's cells, one row for each owner."""
    return [_row(owner, summary) for owner in summary.owners]


def _row(owner: OwnerSummary, summary: Summary) -> list[Cell | str]:
    cells: list[Cell | str] = [
        owner.name,
        Cell(f"{owner.records:,}", owner.records),
        epsilon_cell(owner.epsilon),
        Cell(f"{owner.responses:,}", owner.responses),
        Cell("-" if owner.is_left_out else f"{owner.noise_scale:.3g}", owner.noise_scale),
    ]
    if summary.is_evaluated:
        free = summary.relative_fitness_public
        cells += [
            Cell(f"{owner.relative_fitness_alone:.3g}", owner.relative_fitness_alone),
            *([] if free is None else [Cell(f"{free:.3g}", free)]),
            Cell(f"{summary.relative_fitness:.3g}", summary.relative_fitness),
            "yes" if owner.gains else "no",
        ]
    return cells


def print_owners(summary: Summary, console: Console) -> None:
    """Print the table of the owners."""
    cells = list(map(texts, rows(summary)))
    print_by_name(console, title(summary), columns(summary), cells)


def print_by_name(
    console: Console, title: str | None, heads: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    """Print a table whose rows begin with a name, whole: of half a number nobody knows its size.

    In a terminal that is narrower than its numbers lines go on in the next one.
    """
    table = table_by_name(title, heads, rows)
    least = sum((column.min_width or 0) + 2 for column in table.columns)
    if least > console.width:
        table.width = least
    console.print(table, crop=False)


def table_by_name(title: str | None, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table for a terminal whose rows begin with a name.

    Where it is too wide, long names are folded and headings wrapped: nothing is cut off.
    """
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for index, head in enumerate(heads):
        cells = [row[index] for row in rows]
        if index == 0:
            longest = max(map(len, [head, *cells]))
            table.add_column(head, overflow="fold", min_width=min(longest, SHORTEST))
        else:
            longest = max(map(len, [*head.split(), *cells]))
            # A column that cannot be narrower is not made so in place of the names.
            is_narrow = len(head) <= longest
            table.add_column(head, justify="right", min_width=longest, no_wrap=is_narrow)
    for row in rows:
        table.add_row(*row)
    return table


def title(summary: Summary) -> str:
    """What ran."""
    return f"{summary.study}: {summary.algorithm}, T = {summary.horizon:,}"


def sentences(summary: Summary, *, has_shown_start: bool = False) -> list[str]:
    """What the numbers say, in sentences.

    Args:
      summary: The run's.
      has_shown_start: Whether what was known before anybody was asked was shown as it began: the
        forecasts of all ways, and what is said of the box.
    """
    missed = f"{summary.ticks:,} of " if summary.ticks < summary.horizon else ""
    asked = counted(summary.horizon, "communication")
    said = summary.edge
    edge = [] if said is None else [f"warning: {printable(said, len(said))}"]
    lines = [
        f"{missed}{asked} in {summary.wall_seconds:.2f} s.",
        *lost_sentences(summary),
        *([] if has_shown_start else [*edge, *way_sentences(summary)]),
        *choice_sentences(summary),
        *never_asked(summary),
    ]
    if summary.is_evaluated:
        lines.append(_how_good(summary))
    if summary.quality is not None:
        lines += quality_lines(summary.quality) + free_is_better(summary)
        lines += no_better_than_guessing(summary.quality)
    lines += validation_lines(summary)
    if summary.own is not None:
        lines.append(_unprotected(summary, summary.own))
    if summary.in_memory:
        lines.append(
            "IN MEMORY: the owners were objects of one process, without sockets or ledgers."
        )
    if summary.insecure_noise:
        lines.append("INSECURE: the noise came from a seed and protected nobody.")
    return lines


def warnings(summary: Summary) -> list[str]:
    """The sentences that nobody should miss."""
    return [line for line in sentences(summary) if line.startswith(WARNINGS)]


def lost_sentences(summary: Summary) -> list[str]:
    """Whose answers were charged, or may be, and never arrived, and what that cost."""
    lost = [(owner.name, owner.responses_lost) for owner in summary.owners if owner.responses_lost]
    doubt = [owner.name for owner in summary.owners if owner.responses_in_doubt]
    lines = []
    if lost:
        lines.append(
            f"Charged, but lost in a crash: {named_counts(lost)}. Their epsilon is spent, and "
            "nobody has the answers. An owner that charges in blocks loses at most the rest of a "
            "block each time that it is killed, any other at most one answer."
        )
    if doubt:
        lines.append(
            f"Asked, and never heard of again: one answer each of {named(doubt, NAMED)}. It may "
            "have been charged, so it counts as spent; the owner's ledger knows."
        )
    return lines


def named_counts(counts: Sequence[tuple[str, int]]) -> str:
    """The first of these names with their counts, and how many more there are."""
    return first_few([f"{name} ({count:,})" for name, count in counts], NAMED)


def epsilon_cell(text: str) -> Cell:
    """A budget for people; the learner's own shard has none.

    >>> [epsilon_cell(text).text for text in ("243/10", "1/3", "inf")]
    ['24.3', '0.333334', 'own']
    """
    if text == "inf":
        return Cell("own", 1e300)
    return Cell(amount_words(Fraction(text)), float(Fraction(text)))


def _unprotected(summary: Summary, name: str) -> str:
    others = [owner for owner in summary.owners if owner.name != name]
    is_validated = any(owner.epsilon_for_validation != "0" for owner in others)
    # In their first round they ask everybody at the start, which is public.
    is_first = summary.algorithm in {"moments", "newton"} and all(
        owner.responses + owner.responses_left <= 1 for owner in others
    )
    showed = is_validated or not is_first
    return (
        f"UNPROTECTED: the model is made from the raw records of {name}, which were asked without "
        f"noise; it must not leave {name} unless something else protects it"
        f"{', and the queries showed the other owners models made from these records' * showed}."
    )


def choice_sentences(summary: Summary) -> list[str]:
    """What was chosen for the study, and what it was forecast to reach."""
    step = summary.step
    parts = [f"T = {summary.horizon:,}"] if summary.horizon_chosen == "auto" else []
    if summary.clip_chosen == "auto" and summary.clip is not None:
        parts.append(f"clip = {summary.clip:.4g}")
    chosen = (name for name in PARAMETERS if getattr(summary, f"{name}_chosen") == "auto")
    parts += [f"{name} = {getattr(summary, name):.4g}" for name in chosen]
    if step.chosen == "auto":
        constants = {"rho": step.rho, "initial_step": step.initial_step}
        parts += [f"{name} = {value:.4g}" for name, value in constants.items() if value is not None]
    counted = _counted_sentences(summary)
    if not parts:
        return counted
    # Where several ways were forecast, the sentence about them has it.
    forecast = None if way_sentences(summary) else step.forecast_relative_fitness
    expected = "" if forecast is None else f"; forecast relative fitness {forecast:.3g}"
    return [f"Chosen from the public records: {', '.join(parts)}{expected}.", *counted]


def _counted_sentences(summary: Summary) -> list[str]:
    """That owners count otherwise than by their records, and who is farthest below."""
    # Of a summary from elsewhere, anything may be untrue.
    if not summary.counted or len(summary.counted) != len(summary.owners):
        return []
    total = max(sum(owner.records for owner in summary.owners), 1)
    each = zip(summary.owners, summary.counted, strict=True)
    own, counted = min(each, key=lambda one: one[1] / max(one[0].records, 1))
    return [
        f"An owner's answer counts by its noise as well as by its records: that of {own.name}, "
        f"which has {own.records / total:.2%} of the records, for {counted:.2%}."
    ]


def way_sentences(summary: Summary) -> list[str]:
    """What the ways of learning were forecast to come to, and what is free."""
    if summary.way is None or not summary.ways:
        return []
    expected = {way: its.forecast_relative_fitness for way, its in summary.ways.items()}
    forecasts = ", ".join(f"{printable(way)} {fitness:.3g}" for way, fitness in expected.items())
    own, free = printable(summary.way), summary.forecast_relative_fitness_public
    return [
        f"Learnt by {own}. Forecast relative fitness: {forecasts}, and {free:.3g} for the model of "
        f"the public records, which is free{why_taken(summary.way, expected)}."
    ]


def _how_good(summary: Summary) -> str:
    parts = {
        "together": summary.relative_fitness,
        "without noise": summary.relative_fitness_noiseless,
        "of the public model": summary.relative_fitness_public,
    }
    said = [f"{what} {value:.3g}" for what, value in parts.items() if value is not None]
    return f"Relative fitness {', '.join(said)}. {who_gains(summary)}"
