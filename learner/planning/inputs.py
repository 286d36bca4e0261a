"""What a study of a raw table is learnt from, with a sentence for each column that is odd."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from common.copies import names_persons, rise_together, same_partition
from common.date_marks import how_to_write, reading_in_words
from common.errors import InputError
from common.leakage import (
    LEAK,
    explained_together,
    explained_variance,
    goodman_kruskal,
    identifies,
)
from common.looking import PLAINLY, Column, Look
from common.suggestions import among_columns
from common.texts import counted, first_few, named, shortened
from learner.planning.drafting import Target

__all__ = [
    "Inputs",
    "check_columns",
    "check_drop",
    "choose_inputs",
    "odd_cells",
]

# A column with values for fewer records is left out.
FEWEST_PRESENT = 0.05
# A column that explains this much of the target is asked about.
DOUBTED = 0.5
# Columns that explain this much only together are parts of the target, whatever each explains.
WHOLE = 0.99
# Of wrong guesses at the owner, a column that names it saves this many.
NAMING = 0.95
# This many spellings of one category are named.
NAMED = 3
# This many columns of one sentence, and reasons of one, are named.
NAMED_COLUMNS, REASONS = 12, 3
KNOWN_BEFORE = "; add it to features.columns if it is known beforehand"
IF_AMOUNTS = ", as a code does; add it to features.columns if its numbers are amounts"
EMPTY = "if these say that there is none, leave their cells empty"


@dataclass(frozen=True)
class Inputs:
    """From what it is predicted.

    Args:
      columns: The columns.
      categorical: Those of them whose numbers are names.
      warnings: What was left out and why, and what to look at.
    """

    columns: tuple[str, ...]
    categorical: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def numeric(self) -> list[str]:
        """The columns that are not said to be names."""
        return [name for name in self.columns if name not in self.categorical]

    def without(self, names: Collection[str]) -> Inputs:
        """The same without some columns."""
        columns = tuple(name for name in self.columns if name not in names)
        categorical = tuple(name for name in self.categorical if name not in names)
        return replace(self, columns=columns, categorical=categorical)


@dataclass(frozen=True)
class _Found:
    """One column beside the others.

    Args:
      column: It.
      explained: The share of the target's variance that it explains.
      owners: The owners' column where it names the owner, else empty.
      is_owners: Whether the owner says which value it has, as a region that holds several owners.
      same: The column that says the same and is better, else empty.
      may_be_amount: What to do where the two are the same only as a code and what it stands for.
    """

    column: Column
    explained: float
    owners: str
    is_owners: bool
    same: str
    may_be_amount: str


def choose_inputs(
    look: Look,
    target: Target,
    *,
    owners: str | None,
    drop: Sequence[str],
    categorical: Sequence[str] = (),
) -> Inputs:
    """The columns that may teach something, and a sentence for each that is left out or odd.

    Args:
      look: The table.
      target: What is predicted.
      owners: The column that says whose a record is, None for none.
      drop: Columns to leave out.
      categorical: Columns whose numbers are names.

    Raises:
      InputError: A column is not there or is the target, or none is left.
    """
    check_drop(look, target.name, drop)
    check_columns("--categorical", look, categorical)
    left = {*drop, target.name, *([] if owners is None else [owners])}
    chosen = [column for column in look.columns.values() if column.name not in left]
    same = {
        name: look.columns[other]
        for name, other in same_partition([c for c in chosen if not c.is_constant]).items()
    }
    owner = None if owners is None else look.columns[owners]
    stay, warnings, reasons = [], [], []
    for column in chosen:
        found = _beside_others(column, target, owner, same.get(column.name))
        why = _why_not(found)
        if why:
            warnings.append(f"{column.shown}: left out: {why}")
            why = why.removesuffix(KNOWN_BEFORE).removesuffix(IF_AMOUNTS)
            reasons.append(f"{column.shown}: {why}")
        else:
            stay.append(found)
            warnings += _oddities(found, is_named=column.name in categorical)
    if not stay:
        raise InputError(_none_left(reasons))
    kept = [found.column for found in stay]
    names = tuple(c.name for c in kept if c.is_code or c.name in categorical)
    warnings += _as_predictions(kept, target)
    numbers = [c for c in kept if c.name not in names]
    warnings += [*_explaining(stay), *_together(numbers, target)]
    warnings += [*_all_different(numbers), *_few_numbers(numbers), *_far_apart(numbers)]
    warnings += _mostly_empty(kept)
    return Inputs(tuple(column.name for column in kept), names, tuple(warnings))


def _none_left(reasons: Sequence[str]) -> str:
    """That no column is an input, and why: the only sentence then.

    >>> _none_left(["day: it is free text"])
    'init: no column is left to predict from (day: it is free text); give a table with more columns'
    """
    more = len(reasons) - REASONS
    some = [*reasons[:REASONS], *([counted(more, "other column")] if more > 0 else [])]
    why = f" ({'; '.join(some)})" if some else ""
    return f"init: no column is left to predict from{why}; give a table with more columns"


def check_columns(option: str, look: Look, names: Sequence[str]) -> None:
    """Refuse columns that are not there.

    Raises:
      InputError: One is not.
    """
    for name in names:
        if name not in look.columns:
            raise InputError(f"{option}: no column {name!r}{among_columns(name, look.columns)}")


def check_drop(look: Look, target: str, drop: Sequence[str]) -> None:
    """Refuse to leave out what is not there, or is the target.

    Raises:
      InputError: One of them is not there, or is the target.
    """
    check_columns("--drop", look, drop)
    if target in drop:
        raise InputError(f"--drop: {target} is the target; drop others, or give another --target")


def _beside_others(
    column: Column, target: Target, owner: Column | None, same: Column | None
) -> _Found:
    beside = None if column.is_constant else owner
    names_owner = beside is not None and identifies(column, beside) >= NAMING
    return _Found(
        column,
        explained=explained_variance(column, target.values),
        owners=owner.shown if owner is not None and names_owner else "",
        is_owners=beside is not None and goodman_kruskal(beside, column) >= NAMING,
        same="" if same is None else same.shown,
        may_be_amount=IF_AMOUNTS if same is not None and _may_be_amount(column, same) else "",
    )


def _may_be_amount(column: Column, same: Column) -> bool:
    """Whether a column's whole numbers go with those of another, and need not stand for them."""
    return column.measures and same.measures and not rise_together(same, column)


def _why_not(found: _Found) -> str:
    """Why a column is no input, or nothing."""
    column = found.column
    reasons = (
        (column.kind == "empty", column.empty_words),
        (column.count < FEWEST_PRESENT * len(column.numbers), "nearly all of its cells are empty"),
        (
            column.is_constant and column.missing,
            f"it has one value, and none in {column.missing:,} of {len(column.numbers):,} rows; if "
            "an empty cell means no, write that there",
        ),
        (column.is_constant, "it says the same of every record"),
        (column.kind == "text" or column.is_identifier, _unread(column)),
        (
            column.is_identifier,
            "it names records (an identifier), so it teaches nothing and gives persons away",
        ),
        (
            names_persons(column),
            f"{names_persons(column)} (an identifier), so it teaches nothing and gives persons "
            "away",
        ),
        (column.kind == "text", "it is free text"),
        (
            found.owners and found.is_owners and not column.measures,
            f"it names the owner, as {found.owners} does",
        ),
        (found.same, f"it says the same as {found.same}{found.may_be_amount}"),
        (
            found.explained >= LEAK,
            f"it explains {found.explained:.0%} of the target's variance: a leak, or the target "
            f"under another name{KNOWN_BEFORE}",
        ),
    )
    return next((reason for holds, reason in reasons if holds and reason), "")


def _unread(column: Column) -> str:
    """Why a column of texts may be one of dates or numbers, or nothing."""
    if column.unsure_date:
        date = column.unsure_date
        return f"its dates have a form that is not read ({date}); {how_to_write(date)}"
    if column.comma_number:
        return (
            f"its numbers have a decimal comma, which is read as text ({column.comma_number}); "
            'say so with decimal = "," (--decimal ,)'
        )
    if column.unread_number:
        return f"{column.unread_words}; {PLAINLY}"
    return f"{column.odd_words}; {EMPTY}" if column.odd_one else ""


def _oddities(found: _Found, *, is_named: bool) -> Iterator[str]:
    """What to look at in a column that stays."""
    column, name = found.column, found.column.shown
    if found.owners:
        own = ", and each owner has a value of its own" if found.is_owners else ""
        yield f"{name}: identifies the owner{own}; if that is not wanted, leave it out with --drop"
    elif found.is_owners:
        yield (
            f"{name}: each owner has one value there, so own models learn nothing of it, and a "
            "forecast of who gains is unsure; if that is not wanted, leave it out with --drop"
        )
    if column.is_code and not is_named:
        yield f"{name}: its numbers are taken for names (features.categorical)"
    elif column.padded and not is_named:
        yield (
            f"{name}: {column.padded} begins with 0, as codes do, and is taken for an amount; if "
            "its numbers are names, give it with --categorical or --drop"
        )
    if column.code_for_missing and not column.far_out.size:
        yield f"{name}: {column.code_for_missing}"
    yield from odd_cells(column)


def odd_cells(column: Column) -> Iterator[str]:
    """What to look at in a column's cells, and how dates are read."""
    if column.bounds:
        yield f"{column.shown}: {column.bounds}"
    yield from _odd_names(column)
    yield from _odd_dates(column)


def _odd_names(column: Column) -> Iterator[str]:
    """What is taken for a name and may be none, or the same one."""
    name = column.shown
    if column.unread_number:
        yield f"{name}: {column.unread_words}, so they are names; {PLAINLY}"
    if column.odd_one:
        yield f"{name}: {column.odd_words}, so all are names; {EMPTY}"
    if column.spelt_alike:
        alike = max(column.spelt_alike, key=len)
        spelt = " and ".join(map(repr, shortened(alike[:NAMED])))
        others = ", and there are more such values" * (len(column.spelt_alike) > 1)
        yield f"{name}: {spelt} are different categories{others}; spell them alike if they are one"


def _odd_dates(column: Column) -> Iterator[str]:
    """How dates are read."""
    date = column.unsure_date
    if column.kind == "date":
        how = f"{reading_in_words(date)}; if that is not meant, {how_to_write(date)}"
        as_read = f"; {date} is {how}" if date else ""
        day = "; their time of day is left out; if it matters, give it a column"
        without = day if column.has_times else ""
        yield f"{column.shown}: dates become months since January 2000{as_read}{without}"
    elif date and column.kind == "number":
        yield (
            f"{column.shown}: {date} looks like a date, and its numbers are taken for amounts; if "
            "they are dates, write them as YEAR-MONTH-DAY"
        )
    elif date:
        yield (
            f"{column.shown}: {date} is no form of date that is read, so its dates "
            f"are names; {how_to_write(date)}"
        )


def _as_predictions(columns: Sequence[Column], target: Target) -> list[str]:
    """Which columns have the name of one that predictions add: no table could be predicted for."""
    added = ("prediction", "probability") if target.positive else ("prediction",)
    return [
        f"{column.name}: copriv predict adds a column of this name; rename it, or leave it out "
        "with --drop"
        for column in columns
        if column.name in added
    ]


def _explaining(stay: Sequence[_Found]) -> list[str]:
    """Which columns explain much of the target each, those that explain most first."""
    found = [one for one in stay if one.explained >= DOUBTED]
    ranked = sorted(found, key=lambda one: -one.explained)
    if len(ranked) == 1:
        (one,) = ranked
        return [
            f"{one.column.shown}: explains {one.explained:.0%} of the target; is it known before "
            "the target is?"
        ]
    shares = [f"{one.column.shown} ({one.explained:.0%})" for one in ranked]
    return [
        f"{first_few(shares, NAMED_COLUMNS)}: each explains so much of the target; are they known "
        "before the target is?"
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
    few = [column.name for column in columns if column.may_be_kinds]
    return [
        f"{named(few, NAMED_COLUMNS)}: few whole numbers, taken for amounts; if they stand for "
        "kinds, give --categorical"
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
