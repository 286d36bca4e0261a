"""What to ask about the columns that a study of a raw table is learnt from."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from common.column_names import LATER, NOT_LATER, is_called
from common.looking import Column
from common.texts import brief, first_few, named
from learner.planning.drafting import Target
from learner.planning.leakage import explained_together, explained_variance

# A column that explains this much of the target is asked about.
DOUBTED = 0.5
# Columns that explain this much only together are parts of the target, whatever each explains.
WHOLE = 0.99
# This many columns of one sentence are named.
NAMED_COLUMNS = 12


def questions(
    columns: Sequence[Column], names: Sequence[str], explained: Mapping[str, float], target: Target
) -> list[str]:
    """What to ask about columns that stay.

    Args:
      columns: They.
      names: Those of them whose numbers are names.
      explained: Of each the share of the target's variance that it explains.
      target: What is predicted.
    """
    numbers = [column for column in columns if column.name not in names]
    doubted = [column for column in columns if explained[column.name] >= DOUBTED]
    others = [column for column in columns if column not in doubted]
    return [
        *_as_predictions(columns, target),
        *_explaining(doubted, explained),
        *_later(others),
        *_together(numbers, target),
        *_all_different(numbers),
        *_few_numbers(numbers),
        *_far_apart(numbers),
        *_mostly_empty(columns),
    ]


def _typed(option: str, columns: Sequence[Column]) -> str:
    """The options that name these columns, as a shell takes them.

    >>> import numpy as np
    >>> _typed("--drop", [Column("Total Costs", "number", 0, 0, np.empty(0))])
    "--drop 'Total Costs'"
    """
    words = [f"{option} {shlex.quote(c.name)}" for c in columns[:NAMED_COLUMNS]]
    return " ".join(words if all(w == brief(w) for w in words) else [option])


def _later(columns: Sequence[Column]) -> list[str]:
    """Which columns have names of what is known only at the end, as a discharge is."""
    later = [c for c in columns if is_called(c.name, LATER) and not is_called(c.name, NOT_LATER)]
    shown, them = named([c.name for c in later], NAMED_COLUMNS), _typed("--drop", later)
    return [
        f"{shown}: named like what is known only later: known when the prediction is made? if not, "
        f"{them}"
    ] * bool(later)


def _as_predictions(columns: Sequence[Column], target: Target) -> list[str]:
    """Which columns have the name of one that predictions add: no table could be predicted for."""
    added = ("prediction", "probability") if target.positive else ("prediction",)
    return [
        f"{column.name}: copriv predict adds a column of this name; rename it, or leave it out "
        "with --drop"
        for column in columns
        if column.name in added
    ]


def _explaining(columns: Sequence[Column], explained: Mapping[str, float]) -> list[str]:
    """Which columns explain much of the target each, those that explain most first."""
    ranked = sorted(columns, key=lambda column: -explained[column.name])
    cure = f"if not, {_typed('--drop', ranked)}"
    if len(ranked) == 1:
        (one,) = ranked
        return [
            f"{one.shown}: explains {explained[one.name]:.0%} of the target: known when the "
            f"prediction is made? {cure}"
        ]
    shares = [f"{column.shown} ({explained[column.name]:.0%})" for column in ranked]
    return [
        f"{first_few(shares, NAMED_COLUMNS)}: each explains so much of the target: known when the "
        f"prediction is made? {cure}"
    ] * bool(shares)


def _all_different(columns: Sequence[Column]) -> list[str]:
    """Which columns of whole numbers may name records, since these hardly repeat."""
    unlike = [c for c in columns if c.kind == "number" and c.hardly_repeats and not c.padded]
    whole = [column.name for column in unlike if column.is_whole]
    it, them, s = ("it", "it", "s") if len(whole) == 1 else ("they", "them", "")
    return [
        f"{named(whole, NAMED_COLUMNS)}: nearly every record has another number; if {it} name{s} "
        f"records, leave {them} out with --drop"
    ] * bool(whole)


def _few_numbers(columns: Sequence[Column]) -> list[str]:
    """Which columns have so few whole numbers that these may be kinds: one sentence for all."""
    few = [column for column in columns if column.may_be_kinds]
    return [
        f"{named([c.name for c in few], NAMED_COLUMNS)}: few whole numbers, taken for amounts; if "
        "they stand for kinds, give --categorical"
    ] * bool(few)


def _far_apart(columns: Sequence[Column]) -> list[str]:
    """Which columns have numbers that look like names: one sentence for all."""
    coded = [c.name for c in columns if c.looks_coded and not c.padded]
    return [
        f"{named(coded, NAMED_COLUMNS)}: whole numbers that repeat and lie far apart, as names do, "
        "taken for amounts; if they are names, give --categorical or --drop"
    ] * bool(coded)


def _mostly_empty(columns: Sequence[Column]) -> list[str]:
    """Which columns have more gaps than values: owners' own checks stop at them."""
    empty = [c for c in columns if c.missing > c.count]
    shares = [f"{c.shown} ({c.missing / len(c.numbers):.0%})" for c in empty]
    return [
        f"{first_few(shares, NAMED_COLUMNS)}: so many cells are empty and get one public value; "
        "owners elsewhere would have to --accept such a column: leave it out with --drop, unless "
        "it is worth it"
    ] * bool(shares)


def _together(columns: Sequence[Column], target: Target) -> list[str]:
    """That the target may be a sum of columns, or a difference, as a stay is of two dates."""
    share, found = explained_together(columns, target.values)
    is_asked = any(explained_variance(column, target.values) >= DOUBTED for column in found)
    if not found or (is_asked and share < WHOLE):
        return []
    names = named([column.name for column in found])
    return [
        f"{names}: together explain {share:.0%} of the target, as two dates do the time between "
        "them; are all of them known before the target is? else leave one out with --drop"
    ]
