"""What a study of a raw table is learnt from, with a sentence for each column that is odd."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from common.copies import names_persons, rise_together, same_partition
from common.date_marks import how_to_write, reading_in_words
from common.errors import InputError
from common.looking import PLAINLY, Column, Look
from common.missing_codes import code_for_missing
from common.number_marks import IN_A_TABLE, SAY_SO
from common.suggestions import among_columns
from common.texts import counted, named, shortened
from common.two_units import two_units_note
from learner.planning.drafting import Target, missing_note
from learner.planning.input_notes import questions
from learner.planning.leakage import (
    LEAK,
    explained_variance,
    goodman_kruskal,
    identifies,
)

# More columns than these that are left out for the same reason are told in one line.
MOST_ALIKE = 8
# A column with values for fewer records is left out.
FEWEST_PRESENT = 0.05
# Of wrong guesses at the owner, a column that names it saves this many; one that tells it, these.
NAMING, TELLING = 0.9, 0.5
# An owner that has one value in a column has another in so few records.
ONE_VALUE = 0.95
# This many spellings of one category are named.
NAMED = 3
# This many reasons of one sentence are named.
REASONS = 3
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
      owners: The owners' column where it tells the owner, else empty.
      tells: The share of wrong guesses at the owner that it saves.
      is_owners: Whether the owner says which value it has, as a region that holds several owners.
      same: The column that says the same and is better, else empty.
      may_be_amount: What to do where the two are the same only as a code and what it stands for.
    """

    column: Column
    explained: float
    owners: str
    tells: float
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
    stay: list[_Found] = []
    warnings: list[str] = []
    reasons: list[str] = []
    looked = [_beside_others(column, target, owner, same.get(column.name)) for column in chosen]
    whys = [_why_not(found) for found in looked]
    alike = defaultdict[str, list[str]](list)
    for found, why in zip(looked, whys, strict=True):
        alike[why].append(found.column.name)
    for found, why in zip(looked, whys, strict=True):
        column = found.column
        if not why:
            stay.append(found)
            warnings += _oddities(found, is_named=column.name in categorical)
            continue
        # Many lines of one reason would hide the others.
        if len(alike[why]) <= MOST_ALIKE:
            warnings.append(f"{column.shown}: left out: {why}")
        elif column.name == alike[why][0]:
            warnings.append(f"{named(alike[why], most=MOST_ALIKE)}: each left out: {why}")
        short = why.removesuffix(KNOWN_BEFORE).removesuffix(IF_AMOUNTS)
        reasons.append(f"{column.shown}: {short}")
    if not stay:
        raise InputError(_none_left(reasons))
    kept = [found.column for found in stay]
    names = tuple(c.name for c in kept if c.is_code or c.name in categorical)
    explained = {found.column.name: found.explained for found in stay}
    warnings += questions(kept, names, explained, target)
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


def features_section(
    target: Target, inputs: Inputs, missing: Mapping[str, Sequence[str | float]]
) -> dict[str, Any]:
    """The section [features] of a study, but for its public records.

    Args:
      target: What is predicted.
      inputs: What it is predicted from.
      missing: Values that say that there is none, of columns that have some.
    """
    chosen: dict[str, Any] = {"target": target.name, "columns": inputs.columns}
    if inputs.categorical:
        chosen["categorical"] = inputs.categorical
    codes = {name: v for name, v in missing.items() if name in {target.name, *inputs.columns}}
    if codes:
        chosen["missing"] = codes
    # Of two categories that are next to each other one may be ten times the other.
    chosen["category_order"] = "mean"
    if target.positive:
        chosen["positive"] = target.positive
    return chosen


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
    tells = 0.0 if beside is None else identifies(column, beside)
    return _Found(
        column,
        explained=explained_variance(column, target.values),
        owners=owner.shown if owner is not None and tells >= TELLING else "",
        tells=tells,
        is_owners=beside is not None and goodman_kruskal(beside, column) >= ONE_VALUE,
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
            found.tells >= NAMING and found.is_owners and not column.measures,
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
            f"of a CSV file {SAY_SO}, elsewhere {IN_A_TABLE}"
        )
    if column.unread_number:
        return f"{column.unread_words}; {PLAINLY}"
    return f"{column.odd_words}; {EMPTY}" if column.odd_one else ""


def _oddities(found: _Found, *, is_named: bool) -> Iterator[str]:
    """What to look at in a column that stays."""
    column, name = found.column, found.column.shown
    if found.owners:
        what = "identifies the owner"
        if found.tells < NAMING:
            what = f"tells who the owner is: it saves {found.tells:.0%} of wrong guesses"
        own = ", and each owner has a value of its own" if found.is_owners else ""
        yield f"{name}: {what}{own}; if that is not wanted, leave it out with --drop"
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
    if code_for_missing(column) and not column.far_out.size:
        yield f"{name}: {missing_note(column)}"
    if not is_named and (note := two_units_note(column)):
        yield f"{name}: {note}"
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
