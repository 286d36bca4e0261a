"""``copriv-owner init``: OWNER.toml for a table, with what the budget means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from common.annotated import annotated
from common.command import checked_option
from common.config import check_settings, load_settings, parse_epsilon
from common.copies import copy_notes, empty_notes, names_persons
from common.date_marks import how_to_write
from common.errors import CoprivError, InputError
from common.files import make_folder, write_or_refuse
from common.frequencies import frequency_notes
from common.headers import check_header, refuse_single
from common.looking import PLAINLY, Column, Look, look_at
from common.missing_codes import code_for_missing, code_note
from common.names import check_name
from common.number_marks import mark_notes
from common.privacy import epsilon_in_words
from common.suggestions import among_columns
from common.tables import TableSource, read_header, read_table
from common.texts import as_setting, counted
from common.totals import refuse_totals
from common.two_units import two_units_note
from common.typed_tables import place_below
from owner.loading import load_records
from owner.policy import OwnerSettings

# Files of these rights are for their user alone.
PRIVATE = 0o600
LEAVE_EMPTY = "leave these cells empty, or have the study name it (features.missing)"


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What an owner decided.

    Args:
      name: Its name.
      columns: The columns that learners may know of and use.
      epsilon_per_study: The most that it spends on one study.
      epsilon_lifetime: The most that its records ever spend.
      learners: The learners that it serves; none for any.
      listen: Where it serves.
    """

    name: str
    columns: Sequence[str]
    epsilon_per_study: str
    epsilon_lifetime: str
    learners: Sequence[str] = ()
    listen: str = "127.0.0.1:50051"


def look_at_table(place: Mapping[str, Any]) -> tuple[Look, list[str]]:
    """What a table looks like, and the sentences about it; they are for its owner alone.

    Raises:
      InputError: It cannot be read, its column names look like a record, or a row holds totals.
    """
    source = check_settings(TableSource, place, where="init")
    table = read_table(source, base=Path())
    where = str(place.get("path", "table"))
    names = read_header(source, base=Path())
    check_header(names, table, where=where)
    refuse_single(names, where=where)
    look = look_at(table)
    refuse_totals(look, where=where)
    notes = [
        *mark_notes(source, base=Path(), table=table),
        *empty_notes(look),
        *copy_notes(look, kappa="policy.kappa"),
        *frequency_notes(look),
    ]
    for column in look.columns.values():
        if column.unread_number:
            words = f"{column.unread_words}, so they are names{_withheld(column)}; {PLAINLY}"
            notes.append(f"{column.shown}: {words}")
        elif column.odd_one:
            notes.append(f"{column.shown}: {column.odd_words}, so all are names{_withheld(column)}")
        elif why := _why_withheld(column):
            notes.append(f"{column.shown}: {why}; not shown to learners")
        elif column.far_out.size or code_for_missing(column):
            notes.append(f"{column.shown}: {_far_out(column)}")
        if column.unsure_date:
            notes.append(f"{column.shown}: {_date(column)}")
        if column.unread:
            notes.append(
                f"{column.shown}: cells that are not {column.kind}s and count as empty: "
                f"{column.unread:,}"
            )
        counted_as = (two_units_note(column), column.bounds, column.infinite_words)
        notes += [f"{column.shown}: {words}" for words in counted_as if words]
        if column.missing > column.count > 0:
            notes.append(f"{column.shown}: more than half of the cells are empty")
    return look, notes


def _why_withheld(column: Column) -> str:
    """Why learners may not use a column if the owner says nothing else, or nothing."""
    if column.is_identifier:
        return "has dates" if column.unsure_date else "names records (an identifier)"
    kinds = {"text": "free text", "empty": column.empty_words}
    return names_persons(column) or kinds.get(column.kind, "")


def _withheld(column: Column) -> str:
    """That names are not shown to learners, where they are too many."""
    is_shown = column.kind == "category" and not column.is_identifier
    return "" if is_shown else "; not shown to learners"


def _far_out(column: Column) -> str:
    """What to know of outliers."""
    if not column.far_out.size:
        return code_note(column, LEAVE_EMPTY)
    cut = "studies cut those beyond their public bounds"
    return f"{counted(column.far_out.size, 'outlier')}; {code_note(column, LEAVE_EMPTY) or cut}"


def _date(column: Column) -> str:
    """How a date that may be meant otherwise is read."""
    if column.reads_unsure_date:
        return (
            f"{column.unsure_date} is read as month/day/year; if that is not meant, "
            f"{how_to_write(column.unsure_date)}"
        )
    if column.kind == "number":
        return (
            f"{column.unsure_date} looks like a date and is read as a number; if it is one, write "
            "dates as YEAR-MONTH-DAY"
        )
    cure = how_to_write(column.unsure_date)
    return f"{column.unsure_date} is no form of date that is read; {cure}"


def usable(look: Look) -> list[str]:
    """The columns that learners may use, if the owner says nothing else."""
    return [column.name for column in look.columns.values() if not _why_withheld(column)]


def checked_budget(option: str, typed: str) -> Fraction:
    """A budget as it was typed.

    Raises:
      InputError: It is none.
    """
    return checked_option(option, typed, parse_epsilon)


def checked_lifetime(typed: str, per_study: str) -> Fraction:
    """The budget of all studies, of which one may spend this much.

    Raises:
      InputError: It is none, or one study may spend more than all together.
    """
    lifetime = checked_budget("--epsilon-lifetime", typed)
    if checked_budget("--epsilon-per-study", per_study) > lifetime:
        raise InputError(
            f"--epsilon-lifetime: {typed} for all studies is less than {per_study} for one; give "
            f"at least {per_study}, or a smaller --epsilon-per-study"
        )
    return lifetime


def checked_name(typed: str) -> str:
    """The owner's name.

    Raises:
      InputError: It is none.
    """
    return checked_option("--name", typed, check_name)


def write_settings(
    place: Mapping[str, str], look: Look, answers: Answers, *, out: Path
) -> tuple[int, tuple[str, ...]]:
    """Write OWNER.toml; returns (the records, the columns learners may use) as serve will see them.

    Args:
      place: The keys of ``[data]`` that say where the table is.
      look: What its columns look like.
      answers: What was typed, asked or chosen.
      out: The file to write.

    Raises:
      InputError: An answer cannot be used, or the file is there or cannot be written.
    """
    for name in answers.columns:
        if name not in look.columns:
            raise InputError(f"--column: no column {name!r}{among_columns(name, look.columns)}")
    budgets = {
        "epsilon_per_study": checked_budget("--epsilon-per-study", answers.epsilon_per_study),
        "epsilon_lifetime": checked_lifetime(answers.epsilon_lifetime, answers.epsilon_per_study),
    }
    data = place_below(place, out.parent)
    policy: dict[str, Any] = {key: as_setting(value) for key, value in budgets.items()}
    if answers.learners:
        policy["learners"] = list(answers.learners)
    text = annotated(
        OwnerSettings,
        {
            "name": checked_name(answers.name),
            "listen": answers.listen,
            "ledger": {"path": f"{answers.name}.ledger.sqlite"},
            "data": data | {"columns": list(answers.columns)},
            "policy": policy,
        },
        title=f"The owner {answers.name}: what it serves, to whom, and what it spends. Written by "
        "copriv-owner init; every key that could be set is here.",
        notes={
            f"policy.{key}": f"Here {epsilon_in_words(value)}." for key, value in budgets.items()
        },
    )
    return _written(out, text)


def _written(out: Path, text: str) -> tuple[int, tuple[str, ...]]:
    """Write a file that serve can use, or none."""
    if out.exists():
        raise InputError(f"{out}: already exists; give another path with --out")
    make_folder(out.parent, cure="give another --out")
    write_or_refuse(out, text, mode=PRIVATE, cure="give another --out")
    try:
        loaded = load_records(load_settings(OwnerSettings, out), base=out.parent, pinned=None)
    except CoprivError:
        out.unlink()
        raise
    return loaded.table.num_records, loaded.table.columns
