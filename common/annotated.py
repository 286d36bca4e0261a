"""New settings files: what was chosen, and a comment on every key, from the settings' classes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from common.config import Settings
from common.setting_errors import as_toml
from common.setting_keys import Key, keys_of
from common.settings_reference import default_of, example_of, meaning_of
from common.texts import printable

WIDTH = 96


def annotated(
    kind: type[Settings],
    values: Mapping[str, Any],
    *,
    title: str,
    notes: Mapping[str, str] | None = None,
) -> str:
    """A settings file with these values; every other key stands in it as a comment.

    Args:
      kind: The settings' class.
      values: What is set, nested as the file is.
      title: What the file begins with, as a comment.
      notes: What is to be said of single values, by their dotted keys.
    """
    return "\n".join(_lines(kind, values, title=title, notes=notes or {})) + "\n"


def _lines(
    kind: type[Settings], values: Mapping[str, Any], *, title: str, notes: Mapping[str, str]
) -> Iterator[str]:
    yield from _comment(title)
    top = [key for key in keys_of(kind) if not key.table]
    for key in top:
        if key.section is None:
            yield from _entry(key, values, notes)
    for key in top:
        if key.section is None:
            continue
        inside = [one for one in keys_of(kind) if one.table == key.path]
        given = values.get(key.name)
        tables = given if isinstance(given, Sequence) else [given]
        for i, table in enumerate(tables):
            yield from _table(key, inside, table, notes, is_first=i == 0)


def _table(
    key: Key,
    inside: Sequence[Key],
    table: Mapping[str, Any] | None,
    notes: Mapping[str, str],
    *,
    is_first: bool,
) -> Iterator[str]:
    """One table; the second of several says only what is set."""
    yield ""
    if is_first:
        yield from _comment(meaning_of(key))
    yield key.head if table is not None else f"# {key.head}"
    for one in inside:
        if is_first:
            yield from _entry(one, table or {}, notes)
        elif table is not None and one.name in table:
            yield f"{one.name} = {as_toml(table[one.name])}"


def _entry(key: Key, values: Mapping[str, Any], notes: Mapping[str, str]) -> Iterator[str]:
    """A key: what it means, and its value or, as a comment, an example."""
    yield ""
    default = default_of(key)
    also = f" Default: {default}." if default not in {"", "none", "must be given"} else ""
    yield from _comment(meaning_of(key) + also)
    if key.path in notes:
        yield from _comment(notes[key.path])
    if key.name in values:
        yield f"{key.name} = {as_toml(values[key.name])}"
    elif key.section is None or key.field.examples:
        yield f"# {example_of(key)}"
    else:
        yield f"# {key.name} = {{ }}"


def _comment(text: str) -> Iterator[str]:
    for line in text.splitlines():
        for part in textwrap.wrap(line, WIDTH) or [""]:
            yield f"# {printable(part)}".rstrip()
