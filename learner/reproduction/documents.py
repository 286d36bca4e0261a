"""Sections of documents that a command writes: between markers, and nothing else moves."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from common.errors import InputError
from common.files import make_folder, write_or_refuse

__all__ = ["markdown_table", "replace_section"]


def markdown_table(table: pd.DataFrame) -> str:
    """A table in Markdown, numbers of three digits.

    >>> print(markdown_table(pd.DataFrame({"name": ["a"], "x": [0.12345]})))
    | name | x |
    |---|---|
    | a | 0.123 |
    """

    def text(value: object) -> str:
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    rows = [" | ".join(map(str, table.columns)), "|".join(["---"] * table.shape[1])]
    lines = [f"| {rows[0]} |", f"|{rows[1]}|"]
    lines += [f"| {' | '.join(map(text, row))} |" for row in table.itertuples(index=False)]
    return "\n".join(lines)


def replace_section(path: Path, name: str, text: str) -> None:
    """Put a text between ``<!-- name -->`` and ``<!-- /name -->``; elsewhere nothing changes.

    A document without the markers gets them at its end; no document is begun with a heading.

    Raises:
      InputError: The document has only one of the markers.
    """
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    old = path.read_text(encoding="utf-8") if path.is_file() else "# Results\n"
    if (begin in old) != (end in old):
        raise InputError(f"{path}: only one of the markers {begin} and {end}; add the other")
    block = f"{begin}\n{text.strip()}\n{end}"
    if begin in old:
        head, rest = old.split(begin, 1)
        new = head + block + rest.split(end, 1)[1]
    else:
        new = f"{old.rstrip()}\n\n{block}\n"
    make_folder(path.parent)
    write_or_refuse(path, new)
