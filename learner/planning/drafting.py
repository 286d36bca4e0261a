"""A study for a raw table that nobody prepared: what is learnt from what, and who owns what."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from common.affirmed import affirmed
from common.arrays import Flags, Indices, Vector
from common.columns import category_key, category_keys
from common.errors import InputError
from common.looking import Column, Look
from common.missing_codes import code_for_missing, code_note
from common.names import nearest_letters
from common.suggestions import among_columns, nearest, same_words, spelt_alike
from common.target_fitting import count_values, counts_in_words
from common.texts import brief, counted, printable, shortened
from common.two_units import two_units_note

FEWEST_OF_AN_OWNER = 50
NAMED = 5
MOST_OWNERS = 12


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

    @property
    def shown(self) -> str:
        """Its name as sentences have it."""
        return brief(self.name)


@dataclass(frozen=True)
class Part:
    """The records of one owner.

    Args:
      name: The owner's name.
      places: Its rows, in the table's order.
      where: The condition that selects them, if one column does.
    """

    name: str
    places: Indices
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
    column = look.columns[name]
    if not positive and column.kind == "number" and column.distinct > 2:
        values = column.numbers
        missing = int(np.count_nonzero(np.isnan(values)))
        return Target(name, (), values, missing), [*_kinds(column), *_about(column, missing)]
    counts = count_values(table[name])
    if column.is_constant:
        raise InputError(f"--target {name}: {_of_one_value(column, counts)}give another column")
    if not positive and column.distinct != 2:
        raise InputError(
            f"--target {column.shown}: expected numbers or two values, it has "
            f"{counts_in_words(counts)}; {_how_to_mend(column)}"
        )
    chosen = _positive_keys(name, positive, counts) if positive else (affirmed(counts),)
    if len(chosen) == len(counts):
        raise InputError("--positive: every value is class +1; leave some for class -1")
    positions, keys = category_keys(table[name])
    signs = [*(2.0 * (key in chosen) - 1.0 for key in keys), np.nan]
    about = f"target {column.shown}"
    warnings = _about(column, column.missing)
    share = sum(counts[value] for value in chosen) / sum(counts.values())
    warnings.append(
        f"{about}: class +1 is {', '.join(shortened(chosen))}, {share:.1%} of the records"
    )
    others = {value: count for value, count in counts.items() if value not in chosen}
    if len(others) > 1:
        warnings.append(f"{about}: class -1 is all else: {counts_in_words(others)}")
    alike = list(map(repr, shortened(same_words(others, chosen))))
    if alike:
        looks = "looks" if len(alike) == 1 else "look"
        warnings.append(
            f"{about}: {' and '.join(alike[:NAMED])} {looks} like class +1 and would be "
            "class -1; name each value of class +1 with --positive, or spell them alike"
        )
    return Target(name, chosen, np.array(signs)[positions], column.missing), warnings


def _how_to_mend(column: Column) -> str:
    """What to do about a target that is neither numbers nor two classes."""
    cure = "name the values of class +1 with --positive"
    if column.unread_number:
        return f"write numbers plainly, such as -1234, or {cure}"
    if column.comma_number:
        of_a_file = 'of a CSV file by their decimal comma with decimal = "," (--decimal ,)'
        return f"make numbers of them, {of_a_file}, or {cure}"
    if column.odd_one:
        return f"empty the cells that are not numbers, such as {column.odd_one!r}, or {cure}"
    return cure


def _of_one_value(column: Column, counts: Mapping[str, int]) -> str:
    """Why a target with one value or none teaches nothing, and what to do but to give another."""
    if column.is_nested:
        return f"{column.empty_words}, or "
    gaps = f", and nothing of {column.missing:,}" if column.missing and counts else ""
    cure = "write what they are where nothing stands, or " if gaps else ""
    return f"it says the same of every record, {counts_in_words(counts)}{gaps}; {cure}"


def _positive_keys(
    name: str, positive: Sequence[str], counts: Mapping[str, int]
) -> tuple[str, ...]:
    """The values of class +1 as the column has them, however they were typed."""
    keys = {category_key(value) or "": value for value in positive}
    for key, typed in keys.items():
        if key not in counts:
            near = nearest(typed, counts)
            hint = "" if near is None else f" (did you mean {near!r}?)"
            several = "; repeat --positive for each value" if "," in typed else ""
            raise InputError(
                f"--positive: {name} has no {typed!r}{hint}; it has {counts_in_words(counts)}"
                f"{several}"
            )
    return tuple(keys)


def _kinds(column: Column) -> list[str]:
    """That the numbers of a target may be names of classes, as 0, 1 and 9 for unknown are."""
    return [
        f"target {column.shown}: {column.distinct} different whole numbers, taken for amounts; if "
        "they stand for kinds, name those of class +1 with --positive"
    ] * column.may_be_kinds


def missing_note(column: Column) -> str:
    """That a number may say that there is none; empty where nothing looks so.

    >>> ages = np.array([*np.tile(np.arange(20.0, 60.0), 5), *[999.0] * 30])
    >>> missing_note(Column("Age", "number", 41, 0, ages))
    '999 stands 30 times: a code for missing? then --missing Age=999'
    """
    typed = f"--missing {shlex.quote(f'{column.name}={code_for_missing(column)}')}"
    return code_note(column, typed if typed == printable(typed) else "--missing COLUMN=VALUE")


def _about(column: Column, missing: int) -> list[str]:
    """What to know of a target."""
    remarks = []
    if code_for_missing(column) and not column.far_out.size:
        remarks.append(f"target {column.shown}: {missing_note(column)}")
    odd = (two_units_note(column), column.bounds)
    remarks += [f"target {column.shown}: {words}" for words in odd if words]
    if missing:
        remarks.append(
            f"target {column.shown}: {counted(missing, 'record')} "
            f"{'has none and is' if missing == 1 else 'have none and are'} left out "
            '(missing_target = "drop")'
        )
    return remarks


def parts_by_column(
    cells: pd.Series,
    available: Indices,
    *,
    most: int = MOST_OWNERS,
    known: Flags | None = None,
) -> tuple[list[Part], list[str]]:
    """The owners by what one column says, the largest first, and what became of the others.

    Args:
      cells: The column, n cells.
      available: The rows that are not public.
      most: How many owners at most.
      known: Which rows have a target, shape (n,), since others are no records; None for all.

    Raises:
      InputError: No value has records enough.
    """
    counts = np.ones(len(cells), dtype=bool) if known is None else known
    positions, keys = category_keys(cells)
    order = available[np.argsort(positions[available], kind="stable")]
    ends = np.searchsorted(positions[order], np.arange(len(keys) + 1))
    slices = map(slice, ends, ends[1:])
    rows = {key: np.sort(order[own]) for key, own in zip(keys, slices, strict=True)}
    sizes = {key: int(np.count_nonzero(counts[places])) for key, places in rows.items()}
    ranked = sorted(rows, key=lambda key: (-sizes[key], key))
    large = [key for key in ranked if sizes[key] >= FEWEST_OF_AN_OWNER][:most]
    shown = brief(cells.name)
    if not large:
        first = shortened(ranked[:1])
        largest = f" ({first[0]!r} has {sizes[ranked[0]]:,}, the most)" if first else ""
        empty = len(available) - sum(map(len, rows.values()))
        nothing = f", and nothing stands in {counted(empty, 'row')}" if empty else ""
        cure = "write whose each row is, " if empty else ""
        raise InputError(
            f"--owners {shown}: no value has {FEWEST_OF_AN_OWNER} records beside the public "
            f"ones{largest}{nothing}; {cure}give another column, or a number of equal parts"
        )
    names = _names(large)
    parts = [Part(names[key], rows[key], {str(cells.name): key}) for key in large]
    left = {key: sizes[key] for key in ranked if sizes[key] and key not in names}
    gaps = int(np.count_nonzero(counts[available])) - sum(sizes.values())
    notes = [*_spelt_twice(shown, ranked), *_of_no_owner(shown, left, most=most, gaps=gaps)]
    return parts, notes


def _of_no_owner(name: str, left: Mapping[str, int], *, most: int, gaps: int) -> Iterator[str]:
    """Which records have no owner, by their value of the owners' column, why, and what to do."""
    few = {key: count for key, count in left.items() if count < FEWEST_OF_AN_OWNER}
    many = {key: count for key, count in left.items() if key not in few}
    if few:
        yield (
            f"{name}: of no owner are {counts_in_words(few)}: an owner has at least "
            f"{FEWEST_OF_AN_OWNER} records beside the public ones; write larger groups into the "
            "column, or give --owners a number"
        )
    if many:
        yield (
            f"{name}: of no owner are {counts_in_words(many)}: not among the {most} largest; give "
            "a larger --most"
        )
    if gaps:
        holds = "has" if gaps == 1 else "have"
        yield (
            f"{name}: of no owner {'is' if gaps == 1 else 'are'} {counted(gaps, 'record')} that "
            f"{holds} no value there; fill these cells in"
        )


def _spelt_twice(name: str, keys: Sequence[str]) -> list[str]:
    """That values of the owners' column differ in nothing but how they are spelt."""
    twice = [" and ".join(map(repr, shortened(alike))) for alike in spelt_alike(keys)]
    return [
        f"{name}: {'; '.join(twice[:NAMED])} are different owners; spell them alike if they are one"
    ] * bool(twice)


def equal_parts(available: Indices, count: int, whose: Indices | None = None) -> list[Part]:
    """This many owners of equal size, or nearly where all rows of a person are to be of one.

    Args:
      available: The rows that are not public.
      count: How many owners.
      whose: Of each row of the table the first one of the same person; None for rows apart.

    >>> parts = equal_parts(np.arange(7), 2, np.array([0, 1, 2, 2, 2, 5, 0]))
    >>> [part.places.tolist() for part in parts]
    [[0, 1, 6], [2, 3, 4, 5]]
    """
    firsts = available if whose is None else whose[available]
    order = np.argsort(firsts, kind="stable")
    ends = np.cumsum([len(part) for part in np.array_split(order, count)])[:-1]
    ends = np.searchsorted(firsts[order], firsts[order[ends]])
    if whose is not None and np.any(np.diff(ends, prepend=0) == 0):
        return equal_parts(available, count)
    return [
        Part(f"owner-{i}", available[np.sort(places)])
        for i, places in enumerate(np.split(order, ends), start=1)
    ]


def few_of_each(available: Indices, count: int) -> list[str]:
    """That equal parts are too small to be owners.

    >>> few_of_each(np.arange(6), 3)[0][:46]
    '--owners 3: each part has 2 rows beside the pu'
    """
    size = len(available) // count
    return [
        f"--owners {count}: each part has {counted(size, 'row')} beside the public ones, of which "
        "noise leaves nothing; give fewer parts, or fewer --public rows"
    ] * (size < FEWEST_OF_AN_OWNER)


def among_whose(places: Indices, parts: Sequence[Part]) -> list[str]:
    """The owner among whose rows each of these lies, where owners are stretches of the table.

    >>> among_whose(np.array([0, 2, 5]), [Part("a", np.array([1, 3])), Part("b", np.array([4]))])
    ['a', 'a', 'b']
    """
    begins = [part.places[0] for part in parts[1:]]
    return [parts[i].name for i in np.searchsorted(begins, places)]


def _names(values: Sequence[str]) -> dict[str, str]:
    """A name for each value that settings and folders take, all of them different.

    >>> list(_names(["Mount Sinai", "mount sinai/", "Zürich", "Großhadern"]).values())
    ['mount-sinai', 'mount-sinai-2', 'zurich', 'grosshadern']
    """
    names: dict[str, str] = {}
    for value in values:
        plain = nearest_letters(value.casefold())
        name = re.sub(r"[^a-z0-9]+", "-", plain, flags=re.ASCII).strip("-")[:48] or "owner"
        serial, free = 1, name
        while free in names.values():
            serial += 1
            free = f"{name}-{serial}"
        names[value] = free
    return names
