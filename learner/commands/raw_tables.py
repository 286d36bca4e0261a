"""An opened raw table, and what may be chosen from it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from common.arrays import Indices
from common.columns import category_key, end_in_words, have_values, parse_number, with_gaps
from common.command import checked_option
from common.config import check_settings, parse_epsilon, with_absolute_paths
from common.copies import copy_notes, empty_notes, persons_column, whose_rows
from common.errors import InputError
from common.files import is_empty, make_folder
from common.fitting import LONGEST_MISSING, MOST_MISSING
from common.headers import check_header, refuse_single
from common.looking import Column, Look, look_at
from common.number_marks import mark_notes
from common.row_filters import parse_rows
from common.suggestions import among_columns
from common.tables import TableSource, read_header, read_table
from common.target_fitting import count_values
from common.texts import as_setting, brief, counted, number_words
from common.totals import refuse_totals
from learner.planning.dealing import deal_persons, in_words, shifts
from learner.planning.drafting import (
    MOST_OWNERS,
    Part,
    Target,
    choose_target,
    equal_parts,
    few_of_each,
    parts_by_column,
)
from learner.planning.inputs import check_columns, check_drop

MOST_PUBLIC = 5000
PUBLIC_SHARE = 0.1
# Looking at so many columns takes no time that anybody minds.
QUICKLY_LOOKED = 200
# Columns that are empty, or say the same of every record, differ in none of the first rows.
FIRST_ROWS = 50


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What was typed; None is asked, or chosen.

    Args:
      target: The column to predict.
      positive: The values of class +1.
      owners: The column that says whose a record is, or a number of equal parts.
      public: How many rows are public, or which.
      epsilon: Each owner's budget.
      drop: Columns that are no input.
      categorical: Columns whose numbers are names.
      missing: COLUMN=VALUE of each value that says that there is none.
      most: How many owners a column makes at most; None for the default.
      split: Whether each owner's records, and the public ones, go to files of their own.
    """

    target: str | None = None
    positive: tuple[str, ...] = ()
    owners: str | None = None
    public: str | None = None
    epsilon: str | None = None
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    most: int | None = None
    split: bool | None = None

    @property
    def codes(self) -> dict[str, tuple[str | int | float, ...]]:
        """The values that say that there is none, of each column that has some."""
        found: dict[str, tuple[str | int | float, ...]] = {}
        for typed in self.missing:
            name, equals, value = typed.rpartition("=")
            if not (equals and name and category_key(value)):
                raise InputError(f"--missing {typed}: expected COLUMN=VALUE, such as age=999")
            if len(value) > LONGEST_MISSING:
                raise InputError(
                    f"--missing {brief(name)}: expected a value of at most "
                    f"{LONGEST_MISSING} characters, this one has {len(value):,}; empty its cells"
                )
            found[name] = tuple(dict.fromkeys((*found.get(name, ()), _as_number(value))))
            if len(found[name]) > MOST_MISSING:
                raise InputError(
                    f"--missing {brief(name)}: expected at most {MOST_MISSING} "
                    "values of a column; empty the cells of the others"
                )
        return found


@dataclass(frozen=True)
class Session:
    """A table that was read, and what it looks like.

    Args:
      source: Where it is, absolute.
      raw: Its rows as they are.
      table: The same, where cells are empty that say that there is no value.
      look: Its columns.
      notes: What is to be known of its file.
    """

    source: TableSource
    raw: pd.DataFrame
    table: pd.DataFrame
    look: Look
    notes: Sequence[str]

    def persons(self, choices: Choices) -> Column | None:
        """The column whose values name persons with several records, None for none."""
        return persons_column(self.look, besides=choices.owners)

    def whose(self, choices: Choices) -> Indices:
        """Of each row the first one of the same person, shape (n,)."""
        return whose_rows(self.persons(choices), len(self.table))

    def with_gaps(self, choices: Choices) -> Session:
        """The same, where cells are empty that say that there is no value.

        Raises:
          InputError: A column is not there, no cell has such a value, or it is read as a number
            that others may have.
        """
        codes = {name: [str(v) for v in values] for name, values in choices.codes.items()}
        check_columns("--missing", self.look, [*codes])
        for name, values in codes.items():
            for value in values:
                if not have_values(self.table[name], [value]).any():
                    raise InputError(
                        f"--missing {name}={value}: no cell of this column has this value; leave "
                        "it out, or correct it"
                    )
                is_number = self.look.columns[name].kind == "number"
                if is_number and name not in choices.categorical and (wrong := end_in_words(value)):
                    raise InputError(f"--missing {name}={value}: {wrong}")
        table = with_gaps(self.raw, codes)
        return replace(self, table=table, look=look_at(table)) if codes else self

    def notes_of_codes(self, choices: Choices) -> list[str]:
        """Which numbers that say that there is none may be amounts, since others are around them.

        Args:
          choices: Those whose codes are gaps here already.
        """
        notes = []
        for name, codes in choices.codes.items():
            column = self.look.columns[name]
            known = column.numbers[np.isfinite(column.numbers)]
            if column.kind != "number" or not known.size:
                continue
            low, high = float(known.min()), float(known.max())
            for code in codes:
                if low < parse_number(code) < high:
                    count = int(np.count_nonzero(have_values(self.raw[name], [str(code)])))
                    notes.append(
                        f"{column.shown}: {code} is between other values there (from "
                        f"{number_words(low, 6)} to {number_words(high, 6)}), and {count:,} "
                        f"{'cell counts' if count == 1 else 'cells count'} as empty: none of them "
                        "an amount? if one is, leave --missing out"
                    )
        return notes

    def classes_to_choose_from(self, target: str) -> list[str]:
        """The values of a target of words of which some must be class +1; none elsewhere."""
        column = self.look.columns.get(target)
        if column is None or column.kind == "number" or column.distinct == 2:
            return []
        return list(count_values(self.table[target]))

    def check_target(self, name: str, choices: Choices, *, asks: bool) -> None:
        """Refuse a target that cannot be learnt.

        Args:
          name: The column.
          choices: What else was chosen.
          asks: Whether the values of class +1 can still be asked for.

        Raises:
          InputError: It is not there, or has no values of class +1.
        """
        if not (asks and not choices.positive and self.classes_to_choose_from(name)):
            choose_target(self.table, self.look, name, choices.positive)
        check_drop(self.look, name, choices.drop)
        check_columns("--categorical", self.look, choices.categorical)

    def public_rows(self, typed: str | None) -> str:
        """The range of the public rows: as typed, or the last ones.

        Raises:
          InputError: It is no range and no number of rows, or takes all or none.
        """
        count = len(self.table)
        if typed is not None and ":" in typed:
            if not 0 < len(read_rows(self.table, typed)) < count:
                raise InputError(
                    f"--public {typed}: expected some rows and not all {count:,}; give another "
                    'range, such as "-5000:", or a number'
                )
            return typed
        few = min(MOST_PUBLIC, max(1, int(count * PUBLIC_SHARE)))
        try:
            number = few if typed is None else int(typed)
        except ValueError:
            number = 0
        if not 0 < number < count:
            raise InputError(
                f"--public: got {typed!r}, expected a number of rows below {count:,}, or a range "
                'such as "-5000:"'
            )
        return f"-{number}:"

    def why_deal(self, choices: Choices) -> str:
        """Why the last rows should not be the public ones, as in sorted tables; empty if they may.

        Nor where they, or equal parts, have some rows of a person and others have the rest.
        Rows whose range was typed are those that are wanted, as the latest ones of a table by date.
        """
        if (choices.public or "").count(":"):
            return ""
        last = read_rows(self.table, self.public_rows(choices.public))
        rows = f"the last {len(last):,} rows"
        found = shifts(self.look, last, drop=choices.drop)
        if found:
            return f"{rows} differ from the others in {in_words(found)}"
        persons, whose = self.persons(choices), self.whose(choices)
        if persons is not None and np.any(np.isin(whose[: last[0]], whose[last])):
            return f"{rows} and the others have records of the same {persons.shown}"
        if choices.owners not in self.look.columns:
            return ""
        owners = self.table[choices.owners]
        ours, all_of_them = owners.iloc[last].nunique(), owners.nunique()
        few = f"{rows} are of {ours:,} of the {all_of_them:,} owners only"
        return few if ours <= all_of_them / 2 else ""

    def public(self, choices: Choices) -> Indices:
        """The places of the public rows: of the range, or dealt evenly where files are split."""
        places = read_rows(self.table, self.public_rows(choices.public))
        return deal_persons(self.whose(choices), len(places)) if self.is_dealt(choices) else places

    def is_dealt(self, choices: Choices) -> bool:
        """Whether public rows are dealt evenly: files are split, and no range was typed."""
        return bool(choices.split) and ":" not in (choices.public or "")

    def parts(
        self,
        choices: Choices,
        public: Indices | Sequence[int],
        target: Target | None = None,
    ) -> tuple[list[Part], list[str]]:
        """The owners' rows, and what became of the others.

        Raises:
          InputError: There is no such column, it is the target or makes no owner, or the number is
            none.
        """
        available = np.setdiff1d(np.arange(len(self.table)), public)
        known = None if target is None else ~np.isnan(target.values)
        owners = choices.owners or ""
        if owners in self.look.columns and owners == choices.target:
            raise InputError(
                f"--owners {brief(owners)}: this is the target, so all records of an owner would "
                "have the same one; give another column, or a number of equal parts"
            )
        if owners in self.look.columns:
            most = choices.most or MOST_OWNERS
            return parts_by_column(self.table[owners], available, most=most, known=known)
        if owners.isascii() and owners.removeprefix("-").isdigit():
            # Parts of what is learnt from: one without a target would not start.
            available = available if known is None else available[known[available]]
            if not 1 <= int(owners[:9]) <= len(available):
                rows = "rows" if known is None or known.all() else "rows with a target"
                raise InputError(
                    f"--owners: got {owners}, expected a number of equal parts from 1 to "
                    f"{len(available):,}, as many as there are {rows}; give one, or a column"
                )
            if choices.most is not None:
                raise InputError(
                    f"--most: {owners} equal parts make as many owners; leave it out, or the parts"
                )
            whose = self.whose(choices) if choices.split else None
            parts = equal_parts(available, int(owners), whose)
            return parts, few_of_each(available, int(owners))
        raise InputError(
            f"--owners: {owners!r} is neither a column nor a number of equal parts"
            f"{among_columns(owners, self.look.columns)}"
        )


def _as_number(value: str) -> str | int | float:
    """A typed value as settings have it: a number, or a text.

    >>> _as_number("999"), _as_number("-9.5"), _as_number("unknown")
    (999, -9.5, 'unknown')
    """
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(value)
    return value


def checked_epsilon(typed: str | None) -> int | str:
    """A budget as settings have it.

    Raises:
      InputError: It is none.
    """
    return as_setting(checked_option("--epsilon", typed, parse_epsilon))


def checked_folder(out: Path, *, make: bool = False) -> None:
    """Refuse a folder that holds anything, or is called as the settings in it are.

    Args:
      out: The folder.
      make: Whether it is made.

    Raises:
      InputError: It holds something, cannot be made, or was meant for a file.
    """
    if out.suffix == ".toml" and not out.is_dir():
        raise InputError(
            f"--out {out}: this names a file, but study.toml goes into a folder; give the folder, "
            f"such as --out {out.with_suffix('')}"
        )
    if make:
        make_folder(out, cure="give another --out")
    if os.path.isdir(out) and not is_empty(out):
        held = sorted(entry.name for entry in out.iterdir())
        if {*held} <= {"owners", "public.parquet"}:
            raise InputError(
                f"{out}: holds only {' and '.join(held)}, as an init leaves it that was killed "
                "before it wrote study.toml; remove what it left, or give another --out"
            )
        raise InputError(f"{out}: the folder is not empty; give another one with --out")


def open_session(place: Mapping[str, str], *, drop: Sequence[str]) -> Session:
    """Read a table and look at it.

    Args:
      place: Settings of a table, as :class:`~common.tables.TablePlace` has them.
      drop: Columns that are no input.

    Raises:
      InputError: It cannot be read, its column names look like a record, a row holds totals, or it
        has far too many columns.
    """
    given = check_settings(TableSource, place, where="init")
    source = with_absolute_paths(given, Path.cwd())
    where = str(place.get("path") or place["database"])
    table = read_table(source, base=Path())
    names = read_header(source, base=Path())
    check_header(names, table, where=where)
    refuse_single(names, where=where)
    _refuse_wide(table, drop, where=where)
    look = look_at(table)
    refuse_totals(look, where=where)
    marks = mark_notes(source, base=Path(), table=table)
    notes = [*marks, *empty_notes(look), *copy_notes(look)]
    return Session(source, table, table, look, notes)


def _refuse_wide(table: pd.DataFrame, drop: Sequence[str], *, where: str) -> None:
    """Refuse more columns than there can be public records for, before each is looked at.

    Raises:
      InputError: Columns that vary are more than all rows.
    """
    if len(table.columns) <= max(QUICKLY_LOOKED, len(table)):
        return
    first = table.drop(columns=[*drop], errors="ignore").head(FIRST_ROWS).map(str)
    inputs = int((first != first.iloc[0]).any().sum()) - 1  # one of them is the target
    if inputs > max(QUICKLY_LOOKED, len(table)):
        raise InputError(
            f"{where}: {counted(len(table), 'row')} are too few for {inputs:,} columns: public "
            "records must be more than columns; give a table of more rows or fewer columns, or "
            "leave columns out with --drop"
        )


def read_rows(table: pd.DataFrame, rows: str) -> Indices:
    """The places of a range of rows.

    Raises:
      InputError: It is no range.
    """
    try:
        return np.arange(len(table))[parse_rows(rows)]
    except ValueError as error:
        raise InputError(f"--public {rows}: {error}") from None
