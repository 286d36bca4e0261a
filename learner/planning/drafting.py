"""A study for a raw table that nobody prepared: what is learnt from what, and who owns what."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from common.arrays import Vector
from common.columns import category_key, category_keys
from common.errors import InputError
from common.features import FeatureMap
from common.looking import TELLING, Column, Look, same_partition, tells_target
from common.suggestions import among_columns, nearest
from common.target_fitting import count_values, counts_in_words

__all__ = [
    "Inputs",
    "Part",
    "Target",
    "choose_inputs",
    "choose_target",
    "equal_parts",
    "far_out_notes",
    "parts_by_column",
]

# Of two values the one that says yes is class +1, beside what says no.
SAYS_YES = {"1": {"0", "-1"}, "yes": {"no"}, "y": {"n"}, "t": {"f"}, "positive": {"negative"}}
# A column with values for fewer records is left out.
FEWEST_PRESENT = 0.05
FEWEST_OF_AN_OWNER = 50
NAMED = 5
MOST_OWNERS = 12
ROUNDED = 1e-6


@dataclass(frozen=True)
class Target:
    """What is predicted.

    Args:
      name: The column.
      positive: The values of class +1; empty for a number.
      values: What it says of each record as a number, or -1 and +1, shape (n,).
      missing: How many records have none.
    """

    name: str
    positive: tuple[str, ...]
    values: Vector
    missing: int


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


@dataclass(frozen=True)
class Part:
    """The records of one owner.

    Args:
      name: The owner's name.
      places: Its rows, in the table's order.
      where: The condition that selects them, if one column does.
    """

    name: str
    places: NDArray[np.intp]
    where: dict[str, str] = field(default_factory=dict)


def choose_target(
    table: pd.DataFrame, look: Look, name: str, positive: Sequence[str]
) -> tuple[Target, list[str]]:
    """The target, and what to know of it: a number, or classes where it has two values.

    Raises:
      InputError: There is no such column, or it has several words and no class is named.
    """
    if name not in look.columns:
        raise InputError(f"--target: no column {name!r}{among_columns(name, look.columns)}")
    column, counts = look.columns[name], count_values(table[name])
    if not positive and column.kind == "number" and column.distinct > 2:
        values = column.numbers
        missing = int(np.count_nonzero(np.isnan(values)))
        return Target(name, (), values, missing), _about(column, missing)
    if not positive and column.distinct != 2:
        raise InputError(
            f"--target {name}: expected numbers or two values, it has {counts_in_words(counts)}; "
            "name the values of class +1 with --positive"
        )
    chosen = _positive_keys(name, positive, counts) if positive else (_affirmed(counts),)
    if len(chosen) == len(counts):
        raise InputError("--positive: every value is class +1; leave some for class -1")
    positions, keys = category_keys(table[name])
    signs = [*(np.nan if k is None else 2.0 * (k in chosen) - 1.0 for k in keys), np.nan]
    warnings = _about(column, column.missing)
    share = sum(counts[value] for value in chosen) / sum(counts.values())
    warnings.append(f"target {name}: class +1 is {', '.join(chosen)}, {share:.1%} of the records")
    others = {value: count for value, count in counts.items() if value not in chosen}
    if len(others) > 1:
        warnings.append(f"target {name}: class -1 is all else: {counts_in_words(others)}")
    return Target(name, chosen, np.array(signs)[positions], column.missing), warnings


def _affirmed(counts: Mapping[str, int]) -> str:
    """Which of two values is class +1: the one that says yes, or else the rarer.

    >>> _affirmed({"1": 700, "0": 300}), _affirmed({"No": 40, "Yes": 60})
    ('1', 'Yes')
    >>> _affirmed({"home": 90, "died": 10})
    'died'
    """
    spelt = {value.lower(): value for value in counts}
    yes = [value for key, value in spelt.items() if SAYS_YES.get(key, set()) & spelt.keys()]
    return yes[0] if yes else min(counts, key=lambda value: counts[value])


def _positive_keys(
    name: str, positive: Sequence[str], counts: Mapping[str, int]
) -> tuple[str, ...]:
    """The values of class +1 as the column has them, however they were typed.

    Raises:
      InputError: The column has no such value.
    """
    keys = {category_key(value) or "": value for value in positive}
    for key, typed in keys.items():
        if key not in counts:
            near = nearest(typed, counts)
            hint = "" if near is None else f" (did you mean {near!r}?)"
            raise InputError(
                f"--positive: {name} has no {typed!r}{hint}; it has {counts_in_words(counts)}"
            )
    return tuple(keys)


def _about(column: Column, missing: int) -> list[str]:
    """What to know of a target."""
    remarks = []
    if missing:
        remarks.append(
            f"target {column.name}: {missing:,} records have none; they are left out "
            '(missing_target = "drop")'
        )
    return remarks


def choose_inputs(look: Look, target: Target, *, owners: str | None, drop: Sequence[str]) -> Inputs:
    """The columns that may teach something, and a sentence for each that is left out or odd."""
    warnings, left = [], set(drop) | {target.name}
    for name in drop:
        if name not in look.columns:
            raise InputError(f"--drop: no column {name!r}{among_columns(name, look.columns)}")
        if name == target.name:
            raise InputError(f"--drop: {name} is the target; drop others, or give another --target")
    if owners is not None:
        left.add(owners)
        same = same_partition([look.columns[owners], *look.columns.values()])
        left |= {name for name, first in same.items() if first == owners}
    chosen = [column for column in look.columns.values() if column.name not in left]
    same = same_partition([column for column in chosen if not column.is_constant])
    kept = []
    for column in chosen:
        why = _why_not(column, target, same)
        if why:
            warnings.append(f"{column.name}: left out: {why}")
        else:
            kept.append(column)
            warnings += _oddities(column, target)
    if not kept:
        raise InputError("init: no column is left to predict from; give a table with more columns")
    categorical = tuple(column.name for column in kept if column.is_code)
    return Inputs(tuple(column.name for column in kept), categorical, tuple(warnings))


def _why_not(column: Column, target: Target, same: dict[str, str]) -> str:
    """Why a column is no input, or nothing."""
    explained = tells_target(column, target.values)
    reasons = (
        (column.kind == "empty", "it has no values"),
        (column.count < FEWEST_PRESENT * len(column.numbers), "nearly all of its cells are empty"),
        (column.is_constant, "it says the same of every record"),
        (
            column.kind == "text" and column.unsure_date,
            f"its dates have a form that is not read ({column.unsure_date}); write them as "
            "YEAR-MONTH-DAY",
        ),
        (
            column.is_identifier,
            "it names records (an identifier), so it teaches nothing and gives persons away",
        ),
        (column.kind == "text", "it is free text"),
        (column.name in same, f"it says the same as {same.get(column.name)}"),
        (
            explained >= TELLING,
            f"it tells the target ({explained:.0%} of its variance): a leak, or the target under "
            "another name; add it to features.columns if it is known beforehand",
        ),
    )
    return next((reason for holds, reason in reasons if holds), "")


def _oddities(column: Column, target: Target) -> list[str]:
    """What to look at in a column that stays."""
    remarks = []
    explained = tells_target(column, target.values)
    if explained >= 0.5:
        remarks.append(
            f"{column.name}: explains {explained:.0%} of the target; is it known before the target "
            "is?"
        )
    if column.is_code:
        remarks.append(f"{column.name}: its numbers are taken for names (features.categorical)")
    elif column.is_whole and column.hardly_repeats:
        remarks.append(
            f"{column.name}: nearly every record has another number; if it names records, leave it "
            "out with --drop"
        )
    if column.kind == "date":
        as_read = f"; {column.unsure_date} is read as month/day/year" * bool(column.unsure_date)
        remarks.append(f"{column.name}: dates become months since January 2000{as_read}")
    elif column.unsure_date:
        remarks.append(
            f"{column.name}: {column.unsure_date} is no form of date that is read, so its dates "
            "are names; write them as YEAR-MONTH-DAY"
        )
    if column.missing > column.count:
        share = column.missing / (column.missing + column.count)
        remarks.append(f"{column.name}: {share:.0%} of the cells are empty; they get the median")
    return remarks


def far_out_notes(look: Look, feature_map: FeatureMap) -> list[str]:
    """What becomes of numbers far out: whether the bounds of public records cut them."""
    target = feature_map.target
    reach = target.bound * target.scale
    bounds = {
        rule.name: (rule.low, rule.high) for rule in feature_map.columns if rule.kind == "number"
    }
    notes = [_far_out_note(look.columns[name], *limits) for name, limits in bounds.items()]
    if target.positive is None:
        limits = (target.center - reach, target.center + reach)
        note = _far_out_note(look.columns[target.name], *limits, what="target ")
        more = '; loss = "huber" minds far targets less' if note else ""
        notes.insert(0, note + more)
    return [note for note in notes if note]


def _far_out_note(column: Column, low: float, high: float, *, what: str = "") -> str:
    """What becomes of one column's numbers far out, empty where it has none."""
    far = column.far_out
    if not far.size:
        return ""
    # Bounds that were scaled and back are rounded.
    slack = ROUNDED * (high - low)
    cut = int(np.count_nonzero((far < low - slack) | (far > high + slack)))
    bounds = f"the public bounds ({low:g} to {high:g})"
    told = f"{cut:,} of them are cut at {bounds}" if cut else f"none is cut: {bounds} hold them"
    code = f"; {column.repeated_far_out}" if column.repeated_far_out else ""
    return f"{what}{column.name}: numbers far out: {far.size:,}; {told}{code}"


def parts_by_column(
    cells: pd.Series, available: NDArray[np.intp], *, most: int = MOST_OWNERS
) -> tuple[list[Part], list[str]]:
    """The owners by what one column says, the largest first, and what became of the others.

    Args:
      cells: The column, n cells.
      available: The rows that are not public.
      most: How many owners at most.

    Raises:
      InputError: No value has records enough.
    """
    positions, keys = category_keys(cells)
    groups: dict[str, list[NDArray[np.intp]]] = {}
    for code, key in enumerate(keys):
        if key is not None:
            groups.setdefault(key, []).append(available[positions[available] == code])
    rows = {key: np.sort(np.concatenate(parts)) for key, parts in groups.items()}
    ranked = sorted(rows, key=lambda key: (-len(rows[key]), key))
    large = [key for key in ranked if len(rows[key]) >= FEWEST_OF_AN_OWNER][:most]
    if not large:
        raise InputError(
            f"--owners {cells.name}: no value has {FEWEST_OF_AN_OWNER} records beside the public "
            "ones; give another column, or a number of equal parts"
        )
    names = _names(large)
    parts = [Part(names[key], rows[key], {str(cells.name): key}) for key in large]
    others = len(ranked) - len(large)
    left = sum(len(rows[key]) for key in ranked) - sum(len(part.places) for part in parts)
    notes = _spelt_twice(str(cells.name), ranked)
    left_out = (
        f"{cells.name}: {others} values with {left:,} records are no owners: they have fewer than "
        f"{FEWEST_OF_AN_OWNER} records, or are not among the {most} largest (--most)"
    )
    return parts, [*notes, left_out] if others else notes


def _spelt_twice(name: str, keys: Sequence[str]) -> list[str]:
    """That values of the owners' column differ in nothing but small and capital letters."""
    spelt: dict[str, list[str]] = {}
    for key in keys:
        spelt.setdefault(key.casefold(), []).append(key)
    twice = [" and ".join(map(repr, alike)) for alike in spelt.values() if len(alike) > 1]
    return [
        f"{name}: {'; '.join(twice[:NAMED])} are different owners; spell them alike if they are one"
    ] * bool(twice)


def equal_parts(available: NDArray[np.intp], count: int) -> list[Part]:
    """So many owners of equal size."""
    return [
        Part(f"owner-{i}", places)
        for i, places in enumerate(np.array_split(available, count), start=1)
    ]


def _names(values: Sequence[str]) -> dict[str, str]:
    """A name for each value that settings and folders take, all of them different.

    >>> _names(["Mount Sinai Hospital", "mount sinai/hospital", "Zürich"])["Zürich"]
    'zurich'
    """
    names: dict[str, str] = {}
    for value in values:
        plain = unicodedata.normalize("NFKD", value).encode("ascii", "ignore").decode().lower()
        name = re.sub(r"[^a-z0-9]+", "-", plain, flags=re.ASCII).strip("-")[:48] or "owner"
        serial, free = 1, name
        while free in names.values():
            serial += 1
            free = f"{name}-{serial}"
        names[value] = free
    return names
