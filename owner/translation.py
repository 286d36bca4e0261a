"""From an owner's table to a study's words: columns renamed, in other units, spelt otherwise."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from common.columns import category_key, category_keys, parse_numbers
from common.errors import InputError
from common.names import repeated
from common.suggestions import did_you_mean, nearest
from owner.policy import PrivateSource


def translated(table: pd.DataFrame, source: PrivateSource, *, where: str) -> pd.DataFrame:
    """The table in the study's words; each cell depends on its own cell only.

    Args:
      table: The owner's own.
      source: ``rename``, then ``units`` and ``spellings`` by the names after it.
      where: What the table is called in an error.

    Raises:
      InputError: A column is not there, or a name would occur twice.
    """
    for name, stored in source.rename.items():
        if stored not in table.columns:
            raise _not_there(stored, table, where=f"{where}: data.rename.{name}")
    names = {stored: name for name, stored in source.rename.items()}
    changed = table.rename(columns=names) if names else table
    stand_twice = set(repeated(changed.columns))
    twice = [name for name in source.rename if name in stand_twice]
    if twice:
        raise InputError(
            f"{where}: data.rename.{twice[0]}: the table has a column of that name already; "
            f"rename that one, too (when joining {_pair(f'other {twice[0]}', twice[0])})"
        )
    made = {}
    for key, names_of in (("units", source.units), ("spellings", source.spellings)):
        for name in names_of:
            if name not in changed.columns:
                raise _not_there(name, changed, where=f"{where}: data.{key}.{name}")
    for name, factor in source.units.items():
        with np.errstate(all="ignore"):
            made[name] = pd.Series(parse_numbers(changed[name]) * factor, index=changed.index)
    for name, spelt in source.spellings.items():
        made[name] = _respelt(changed[name], spelt)
    return changed.assign(**made) if made else changed


def stored_names_of(source: PrivateSource, names: Iterable[str]) -> tuple[str, ...]:
    """The table's own names of the study's columns, and of all that its words are about.

    >>> stored_names_of(PrivateSource(rename={"income": "pay"}, units={"age": 12}), ["income", "y"])
    ('pay', 'y', 'age')
    """
    asked = (*names, *source.rename, *source.units, *source.spellings)
    return tuple(dict.fromkeys(source.rename.get(name, name) for name in asked))


def _respelt(column: pd.Series, spelt: Mapping[str, str]) -> pd.Series:
    """Categories in other words; those that are not named stay."""
    positions, keys = category_keys(column)
    known = {category_key(spelling): other for spelling, other in spelt.items()}
    words = [known.get(key, key) for key in keys]
    cells = np.array([*words, None], dtype=object)[positions]
    return pd.Series(cells, index=column.index, name=column.name)


def parse_pairs(option: str, given: Iterable[str]) -> dict[str, str]:
    """The pairs of options NAME=VALUE.

    Raises:
      InputError: One is malformed, or names a column again.

    >>> parse_pairs("--rename", ["income=annual income"])
    {'income': 'annual income'}
    """
    pairs: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (equals and name and value) or name in pairs:
            raise InputError(f"{option} {text}: expected COLUMN=VALUE, each column once")
        pairs[name] = value
    return pairs


def parse_spellings(given: Iterable[str]) -> dict[str, dict[str, str]]:
    """The spellings of options COLUMN:OWN=STUDY.

    Raises:
      InputError: One is malformed.

    >>> parse_spellings(["sex:m=Male", "sex:f=Female"])
    {'sex': {'m': 'Male', 'f': 'Female'}}
    """
    spellings: dict[str, dict[str, str]] = {}
    for text in given:
        column, colon, pair = text.partition(":")
        spelling, equals, other = pair.partition("=")
        if not (colon and equals and column and spelling and other):
            raise InputError(f"--spelling {text}: expected COLUMN:OWN=STUDY, as sex:m=Male")
        spellings.setdefault(column, {})[spelling] = other
    return spellings


def _not_there(name: str, table: pd.DataFrame, *, where: str) -> InputError:
    """That a table has no such column, and which one may be meant."""
    near = did_you_mean(name, map(str, table.columns))
    return InputError(f"{where}: no column {name!r} in the table{near}")


def _pair(name: str, own: str) -> str:
    r"""What is typed to rename a column, in a form that keeps a line break.

    >>> print(_pair("income", "pay"), _pair("Alter", "Alter\n(Jahre)"))
    --rename income=pay --rename $'Alter=Alter\n(Jahre)'
    """
    pair = f"{name}={own}"
    if pair.isprintable():
        return f"--rename {shlex.quote(pair)}"
    shown = (f"\\{c}" if c in "\\'" else c if c.isprintable() else repr(c)[1:-1] for c in pair)
    return f"--rename $'{''.join(shown)}'"


def with_hints(missing: Sequence[str], names: Sequence[str]) -> list[str]:
    """Columns that are missing, each with the one of the table that may be meant.

    A column of the table is a hint for the one missing column that it is nearest to.

    >>> with_hints(["income"], ["Annual Income", "age"])
    ["no column 'income' (is it 'Annual Income'? then --rename 'income=Annual Income')"]
    >>> with_hints(["glucose", "los"], ["Glukose"])
    ["no column 'glucose' (is it 'Glukose'? then --rename glucose=Glukose)", "no column 'los'"]
    """
    rivals: dict[str, list[str]] = {}
    for name in missing:
        if (near := nearest(name, names, cutoff=0.5)) is not None:
            rivals.setdefault(near, []).append(name)
    meant = {nearest(near, those, cutoff=0.0): near for near, those in rivals.items()}
    hints = {
        name: f" (is it {near!r}? then {_pair(name, near)})" for name, near in meant.items() if name
    }
    return [f"no column {name!r}{hints.get(name, '')}" for name in missing]
