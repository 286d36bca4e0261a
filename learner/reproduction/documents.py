"""Sections of documents that a command writes: between markers, and nothing else moves."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from common.errors import InputError
from common.files import make_folder, open_regular, refused, write_or_refuse

MARKDOWN = {".md", ".markdown"}
ANOTHER = "give another document"


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
      InputError: The document takes no such section, as :func:`check_document` says, or cannot be
        written.
    """
    begin, end = _markers(name)
    old = check_document(path, name)
    block = f"{begin}\n{text.strip()}\n{end}"
    if begin in old:
        head, rest = old.split(begin, 1)
        new = head + block + rest.split(end, 1)[1]
    else:
        new = f"{old.rstrip()}\n\n{block}\n"
    make_folder(path.parent)
    write_or_refuse(path, new)


def rows_of_section(path: Path, name: str) -> dict[str, str]:
    """The rows of a section's table so far, by what their first cell names, also as a link.

    Raises:
      InputError: The document takes no such section, as :func:`check_document` says.
    """
    begin, end = _markers(name)
    _, _, rest = check_document(path, name).partition(begin)
    lines = [line.strip() for line in rest.partition(end)[0].splitlines()]
    rows = [line for line in lines if line.startswith("| ")]
    firsts = [row[2:].partition(" |")[0] for row in rows]
    return {
        first.partition("](")[0].rpartition("[")[2]: row
        for first, row in zip(firsts, rows, strict=True)
    }


def check_document(path: Path, name: str) -> str:
    r"""What a document has so far, which takes a section of this name: what is no document stays.

    Raises:
      InputError: It is no text, such as a table of records in Parquet; it has only one of the
        markers, or in the wrong order; or it has none and is no Markdown.

    >>> check_document(Path("no-such-document.md"), "figures")
    '# Results\n'
    """
    if not path.exists():
        return "# Results\n"
    try:
        with refused(path, cure=ANOTHER), open_regular(path) as file:
            text = file.read().decode()
    except UnicodeDecodeError:
        raise InputError(
            f"{path}: is not text in UTF-8, so it is left as it is; give another document"
        ) from None
    begin, end = _markers(name)
    if (begin in text) != (end in text):
        raise InputError(f"{path}: only one of the markers {begin} and {end}; add the other")
    if text.find(end) < text.find(begin):
        raise InputError(f"{path}: {end} stands before {begin}; write {begin} first")
    if begin not in text and text.strip() and path.suffix.lower() not in MARKDOWN:
        raise InputError(
            f"{path}: is not Markdown (.md) and has no marker {begin}, so it is left as it is; "
            f"add it and {end}, or {ANOTHER}"
        )
    return text


def _markers(name: str) -> tuple[str, str]:
    """Where a section begins and ends."""
    return f"<!-- {name} -->", f"<!-- /{name} -->"
