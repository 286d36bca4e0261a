"""The owners' answers about the model on their own records, as a part of ``report.html``."""

from __future__ import annotations

from common.texts import counted, number_words
from learner.results.page import Cell, behind, paragraphs, table
from learner.results.summary import Summary
from learner.results.validated import Measured, ValidationSummary
from learner.results.validation_words import (
    bin_rows,
    is_drowned,
    loss_name,
    measure_rows,
    validation_lines,
)


def validation_part(summary: Summary) -> str:
    """Sentences, numbers, and for classes the calibration table; empty if nobody was asked."""
    found = summary.validation
    if found is None:
        return paragraphs(validation_lines(summary))
    parts = [paragraphs(validation_lines(summary)), _measures(found)]
    if found.table:
        bins = _bins(found, probabilities=summary.loss == "logistic")
        parts.append(behind(bins, "Calibration"))
    if found.by_owner:
        parts.append(behind(_owners(found), "Owners who agree to be shown"))
    return "".join(parts)


def _measures(found: ValidationSummary) -> str:
    """Each number, its interval, the noise in it and what it is exactly."""
    knows = found.loss.exact is not None
    heads = ["what", "answer", "interval", "noise +/-", *(["exactly"] if knows else [])]
    rows = [
        [what, *_cells(one, drowned=drowned, exact=knows)]
        for what, one, drowned in measure_rows(found)
    ]
    whose = "its" if found.owners == 1 else "their"
    caption = (
        f"What {counted(found.owners, 'owner answers', 'owners answer')} about "
        f"{counted(found.records, 'record')} of {whose} own: "
        f"intervals of noise and sampling, {found.coverage:.0%}"
    )
    return table("validation", caption, heads, rows)


def _cells(one: Measured, *, drowned: bool, exact: bool) -> list[Cell | str]:
    cells: list[Cell | str] = [
        "unknown for noise" if drowned else Cell(number_words(one.value), one.value),
        f"{number_words(one.low)} to {number_words(one.high)}",
        Cell(number_words(one.noise), one.noise),
    ]
    if exact and one.exact is not None:
        cells.append(Cell(number_words(one.exact), one.exact))
    return cells


def _bins(found: ValidationSummary, *, probabilities: bool) -> str:
    """The calibration table."""
    predicted = "predicted probability" if probabilities else "margin"
    rows: list[list[Cell | str]] = [
        list(row) for row in bin_rows(found, probabilities=probabilities)
    ]
    heads = [predicted, "share of the records", "of these positive"]
    return table("calibration", "Calibration, by the owners' answers", heads, rows)


def _owners(found: ValidationSummary) -> str:
    """Mean loss of those who agree to be shown."""
    rows = [
        [one.name, *_cells(one.loss, drowned=is_drowned(one.loss, found.loss_bound), exact=False)]
        for one in found.by_owner
    ]
    heads = ["owner", loss_name(found), "interval", "noise +/-"]
    return table("validation-owners", "Owners who agree to be shown", heads, rows)
