"""A forecast's verdict for people: the printed tables and sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rich.console import Console

from common.texts import counted, number_words, printable
from learner.algorithms.table import ALGORITHMS
from learner.forecasting.main_measure import ExpectedQuality
from learner.forecasting.questions import Answer
from learner.forecasting.verdict import OwnerVerdict, Smallest, Verdict
from learner.results.page import Cell, texts
from learner.results.quality_words import MEASURES
from learner.results.report import epsilon_cell, print_by_name
from learner.results.verdict_words import gains_in_words

OWNERS = (
    *("owner", "records", "epsilon", "alone", "public model", "together", "gains", "without it"),
    "+1 epsilon",
)
WAYS = ("learnt by", "expected", "90 % of runs", "T", "clip", "split")


def print_verdict(verdict: Verdict, console: Console) -> None:
    """Print the tables and the sentences."""
    low, high = verdict.interval_90
    console.print(
        f"expected relative fitness {verdict.relative_fitness:.3g}, nine runs in ten between "
        f"{low:.3g} and {high:.3g}, from {verdict.public_records:,} public records",
        highlight=False,
    )
    owners = [texts(owner_row(owner, verdict, better=" better")) for owner in verdict.owners]
    print_by_name(console, None, OWNERS, owners)
    if verdict.algorithms:
        print_by_name(console, None, WAYS, _ways(verdict))
    for sentence in sentences(verdict):
        console.print(sentence, highlight=False)


def owner_row(owner: OwnerVerdict, verdict: Verdict, *, better: str) -> list[Cell | str]:
    """What is forecast for an owner, under the heads :data:`OWNERS`.

    Args:
      owner: The owner.
      verdict: The verdict that it is of.
      better: What follows where the others are better without it.
    """
    without, worth = owner.relative_fitness_without, owner.one_more_epsilon_is_worth
    return [
        owner.name,
        Cell(f"{owner.records:,}", owner.records),
        epsilon_cell(owner.epsilon),
        Cell(f"{owner.relative_fitness_alone:.3g}", owner.relative_fitness_alone),
        Cell(f"{verdict.relative_fitness_public:.3g}", verdict.relative_fitness_public),
        Cell(f"{verdict.relative_fitness:.3g}", verdict.relative_fitness),
        "yes" if owner.gains else "no",
        "-" if without is None else f"{without:.3g}{better if owner.harms else ''}",
        Cell(worth_words(worth), None if math.isnan(worth) else -worth),
    ]


def worth_words(lower: float) -> str:
    """What one more unit of epsilon changes; "nothing" where simulations cannot show a change.

    >>> worth_words(0.02), worth_words(0.0), worth_words(math.nan)
    ('-0.02', 'nothing', '-')
    """
    if math.isnan(lower):
        return "-"
    return f"{-lower:+.2g}" if lower > 0.0 else "nothing"


def _ways(verdict: Verdict) -> list[tuple[str, ...]]:
    """A row for each way of learning, and one for what is free."""
    rows = [
        (
            name,
            f"{answer.relative_fitness:.3g}",
            f"{answer.low:.3g} .. {answer.high:.3g}",
            f"{answer.horizon:,}",
            "-" if answer.clip is None else f"{answer.clip:.3g}",
            answer.split if ALGORITHMS[answer.algorithm].is_schedulable else "-",
        )
        for name, answer in verdict.algorithms.items()
    ]
    free = f"{verdict.relative_fitness_public:.3g}"
    return [*rows, ("public model", free, *["-"] * (len(WAYS) - 2))]


def sentences(verdict: Verdict) -> list[str]:
    """The verdict in words."""
    lines = [f"warning: {warning}" for warning in verdict.warnings]
    if verdict.ways_in_words is not None:
        lines.append(f"it would be learnt by {verdict.ways_in_words}")
    lines.append(f"gains: {gains(verdict)}")
    if verdict.quality is not None:
        lines.append(_quality_sentence(verdict.quality))
    lines += [
        f"{owner.name} makes things worse for the others: without it they are expected at "
        f"{owner.relative_fitness_without:.3g} in place of {verdict.relative_fitness:.3g}; "
        "a larger epsilon there would help"
        for owner in verdict.owners
        if owner.harms
    ]
    if verdict.curves["epsilon"]:
        lines.append(_smallest_sentence(verdict.smallest))
    if verdict.smallest.epsilon_of_ways:
        lines.append(_ways_sentence(verdict.smallest))
    best = _best(verdict.curves)
    if best:
        lines.append("best found: " + ", ".join(best))
    if verdict.failures:
        lines.append(f"{counted(len(verdict.failures), 'point')} failed; see forecast.json")
    return lines


def gains(verdict: Verdict) -> str:
    """How many gain, and who."""
    gaining = [owner.name for owner in verdict.owners if owner.gains]
    others = [owner.name for owner in verdict.owners if not owner.gains]
    return gains_in_words(gaining, others)


def _quality_sentence(quality: ExpectedQuality) -> str:
    """What the forecast means in the target's units, beside what needs no study.

    >>> _quality_sentence(ExpectedQuality(measure="rmse", target="days", best=2.0, common=2.01,
    ...     interval_90=(2.0, 2.04), public=2.3, guess=3.5))[:68]
    'days is expected to be predicted with a typical error (RMSE) of 2.01'
    """
    low, high = map(number_words, quality.interval_90)
    return (
        f"{printable(quality.target)} is expected to be predicted with a "
        f"{MEASURES[quality.measure]} of {number_words(quality.common)} ({low} to {high} in nine "
        f"runs of ten); the public model: {number_words(quality.public)}; the best model of all "
        f"records: {number_words(quality.best)}; always predicting the same: "
        f"{number_words(quality.guess)}; for records as hard to predict as the public ones"
    )


def _smallest_sentence(smallest: Smallest) -> str:
    """Where it begins to pay for the owner in the middle, or for the one that has the model."""
    found = (
        ("an epsilon", "epsilon", smallest.epsilon),
        ("an n_i", "records", smallest.records),
        ("a number of owners", "owners", smallest.owners),
    )
    parts = [
        f"no {what.split(maxsplit=1)[1]} that was tried"
        if value is None
        else f"{what} of {smallest_words(smallest, name, value)}"
        for what, name, value in found
    ]
    whom = smallest.owner or "half of the owners"
    return f"collaboration begins to pay for {whom} at " + "; at ".join(parts)


def smallest_words(smallest: Smallest, name: str, value: float | None) -> str:
    """Where something begins, in words.

    >>> one = Smallest(epsilon=0.01, records=40.0, owners=None, or_below=("epsilon",))
    >>> smallest_words(one, "epsilon", 0.01), smallest_words(one, "records", 40.0)
    ('0.01, the smallest tried, or below', '40')
    >>> smallest_words(one, "owners", None), smallest_words(one, "records", 1362.4)
    ('none that was tried', '1,362')
    """
    if value is None:
        return "none that was tried"
    below = ", the smallest tried, or below" if name in smallest.or_below else ""
    return number_words(value) + below


def _ways_sentence(smallest: Smallest) -> str:
    """Where each way of learning begins to beat what is free."""
    parts = [
        f"{way} at {smallest_words(smallest, way, value)}"
        for way, value in smallest.epsilon_of_ways.items()
    ]
    return "the smallest epsilon that beats the public model: " + "; ".join(parts)


def _best(curves: Mapping[str, Mapping[str, Answer]]) -> list[str]:
    """The best horizon, clip and split that were tried."""
    found = []
    for kind, word in (("horizon", "T"), ("clip", "clip"), ("split", "split")):
        if curves.get(kind):
            name, answer = min(curves[kind].items(), key=lambda item: item[1].relative_fitness)
            text = f"{answer.clip:.3g}" if kind == "clip" and answer.clip else name
            found.append(f"{word} = {text} ({answer.relative_fitness:.3g})")
    return found
