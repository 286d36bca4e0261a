"""The verdict on a run in plain sentences, in the target's raw units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from common.privacy import SHOWN_DIGITS, as_decimal, strength
from common.texts import first_few, number_words, printable
from learner.results.quality_words import (
    MEASURES,
    at_home_lines,
    interval_words,
    is_better,
    no_better_than_guessing,
)
from learner.results.summary import Summary

# So many owners a sentence names.
NAMED = 6
FREE_AND_SEEN = "the public records' own model (which has seen them)"


def verdict_lines(summary: Summary) -> list[str]:
    """Who gains, how good it is, what it cost: the first line is the verdict."""
    lines = [_verdict(summary)]
    if summary.is_evaluated:
        lines.append(who_gains(summary))
    if summary.quality is not None:
        lines += at_home_lines(summary.quality)
    lines.append(_spent(summary))
    return lines


def _verdict(summary: Summary) -> str:
    quality, count = summary.quality, len(summary.owners)
    who = "One owner's" if count == 1 else f"The {count} owners' common"
    if quality is None:
        return f"{who} model is ready; nobody has measured yet how good it is."
    own, single = "their", "models of single owners have"
    if count == 1:
        own, single = "its", "its own model has"
    whose = f"{own} records" if quality.on == "owners" else "the public records"
    line = (
        f"{who} model predicts {printable(quality.target)} with a {MEASURES[quality.measure]} of "
        f"{interval_words(quality.common)} on {whose}"
    )
    beside = []
    if quality.alone:
        ends = sorted(quality.alone)
        words = " to ".join(dict.fromkeys(map(number_words, (ends[0], ends[-1]))))
        beside.append(f"{single} {words}")
    if quality.public is not None:
        free = "the public records alone" if quality.on == "owners" else FREE_AND_SEEN
        beside.append(f"{free} {number_words(quality.public.value)}")
    beside.append(f"always predicting the same {number_words(quality.guess)}")
    return f"{line}; {', '.join(beside)}."


def _spent(summary: Summary) -> str:
    spent = epsilons_spent(summary)
    if not spent:
        return "Nothing was spent."
    if summary.insecure_noise:
        return "Budgets were counted, but the noise protected nobody."
    words = " to ".join(dict.fromkeys(map(amount_words, (spent[0], spent[-1]))))
    others = "" if summary.own is None else f" but {summary.own}"
    protection = f"{strength(spent[-1])} protection of its records"
    return f"Each owner{others} spent epsilon {words}: {protection}."


def gains_in_words(gaining: Sequence[str], others: Sequence[str]) -> str:
    """How many gain, and the names of the fewer: those that do, or those that do not.

    >>> gains_in_words(["a", "b"], ["c"]), gains_in_words(["a"], ["b", "c"])
    ('2 of 3 owners gain; the one that does not: c', '1 owner of 3 gains: a')
    >>> gains_in_words([], ["a"]), gains_in_words(["a", "b"], [])
    ('no owner gains', 'every owner gains')
    """
    if not gaining or not others:
        return "every owner gains" if gaining else "no owner gains"
    total = len(gaining) + len(others)
    count = f"{len(gaining)} of {total} owners gain"
    if len(gaining) == 1:
        count = f"1 owner of {total} gains"
    if len(gaining) <= len(others):
        return f"{count}: {first_few(gaining, NAMED)}"
    few = "the one that does not" if len(others) == 1 else f"the {len(others)} that do not"
    return f"{count}; {few}: {first_few(others, NAMED)}"


def who_gains(summary: Summary) -> str:
    """Who gains from taking part in an evaluated run, judged on the records of all together."""
    together, free = summary.relative_fitness, summary.relative_fitness_public
    if together is not None and free is not None and free <= together:
        is_level = number_words(free) == number_words(together)
        how = "as good" if is_level else "better"
        return f"Nobody gains from taking part: the public model, which is free, is {how}."
    gaining = [owner.name for owner in summary.owners if owner.gains]
    if summary.own is not None:
        # Nobody else gets the model.
        verb = "gains" if gaining else "does not gain"
        return f"{summary.own}, which alone has the model, {verb} from taking part."
    others = [owner.name for owner in summary.owners if not owner.gains]
    return f"By taking part, judged on all records, {gains_in_words(gaining, others)}."


def how_many_gain(summary: Summary) -> str:
    """How many of the owners gain."""
    return f"{sum(bool(owner.gains) for owner in summary.owners)} of {len(summary.owners)}"


def free_is_better(summary: Summary) -> list[str]:
    """That the free model is better in raw units, where relative fitness says it is not.

    Of squared loss a record counts in raw units as it is, and in relative fitness with its target
    at the public bounds at most. One sentence, or none.
    """
    together, free = summary.relative_fitness, summary.relative_fitness_public
    if free_of(summary) != "better" or together is None or free is None or free <= together:
        return []
    quality = summary.quality
    assert quality is not None  # noqa: S101 (which said so)
    how = ", with targets as they are beyond the public bounds" if quality.measure == "rmse" else ""
    return [
        f"Judged by {MEASURES[quality.measure]}{how}, the public records alone give a better "
        "model than this one, for free; relative fitness, which says who gains, says otherwise."
    ]


def free_of(summary: Summary) -> str:
    """Whether what is free is "better" in raw units than the common model, or "as good", or ""."""
    quality = summary.quality
    if quality is None or quality.public is None or quality.on != "owners":
        return ""
    value, other = quality.common.value, quality.public.value
    if is_better(quality, value, other):
        return ""
    return "as good" if number_words(value) == number_words(other) else "better"


def notes(summary: Summary) -> list[str]:
    """What a reader should know before the numbers."""
    words = {"as good": "a model as good as this one", "better": "a better model than this one"}
    lines, quality, free = free_is_better(summary), summary.quality, free_of(summary)
    if free and not lines:
        lines = [f"The public records alone give {words[free]}, for free."]
    if quality is not None:
        lines += no_better_than_guessing(quality)
    if summary.ticks < summary.horizon:
        lines.append(
            f"The run ended after {summary.ticks:,} of {summary.horizon:,} communications; what "
            "was not answered was not spent."
        )
    return lines + never_asked(summary)


def never_asked(summary: Summary) -> list[str]:
    """Who had no turn in the schedule: one sentence, or none."""
    idle = [owner.name for owner in summary.owners if owner.is_left_out]
    few = first_few(idle, NAMED)
    return [f"Never asked, so they promised and spent nothing: {few}."] if idle else []


def as_number(text: str) -> float:
    """An exact rational as a number; infinite for the learner's own shard.

    >>> as_number("1/4"), as_number("inf")
    (0.25, inf)
    """
    return math.inf if text == "inf" else float(Fraction(text))


def amount_words(amount: Fraction, *, up: bool = True) -> str:
    """An amount of epsilon, rounded as owners' ledgers show it: what is left over is rounded down.

    >>> amount_words(Fraction(1, 3)), amount_words(Fraction(1, 3), up=False)
    ('0.333334', '0.333333')
    """
    return as_decimal(amount, digits=SHOWN_DIGITS, up=up)


def epsilons_spent(summary: Summary) -> list[Fraction]:
    """What each owner spent, ascending; the learner's own shard, which spends nothing, left out."""
    return sorted(Fraction(o.epsilon_spent) for o in summary.owners if o.epsilon != "inf")
