"""Points and commas in the numbers of a CSV file that may mean something else than is read.

For the holder of the table, who is told: no cell may change how another one is read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from common.columns import is_missing_text
from common.csv_files import CsvFile
from common.fitting import READABLE_SHARE
from common.tables import TableSource, open_source, read_table

__all__ = ["mark_notes"]

NAMED = 5
_WHOLE = r"[+-]?[0-9]+"
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(?:\.[0-9]{3})+", re.ASCII)
_THOUSANDS_OR_LESS = re.compile(rf"{_THOUSANDS.pattern}|[+-]?[0-9]{{1,3}}", re.ASCII)
_POINTED = re.compile(rf"{_WHOLE}(?:\.[0-9]+)?", re.ASCII)
_GROUPED_BY_COMMA = re.compile(r"[+-]?[1-9][0-9]{0,2}(?:,[0-9]{3})+", re.ASCII)
_COMMA = re.compile(rf"(?:{_THOUSANDS.pattern}|{_WHOLE})(?:,[0-9]+)?", re.ASCII)


def mark_notes(source: TableSource, *, base: Path, table: pd.DataFrame) -> list[str]:
    """A sentence for columns whose points may group thousands, or whose commas may be decimal.

    Args:
      source: Where the table is; what its user says of decimal points is not doubted.
      base: The folder where relative paths start.
      table: Its rows as they were read.
    """
    first = open_source(source, base=base).parts[0].table
    if source.decimal is not None or not isinstance(first, CsvFile):
        return []
    if not first.has_decimal_comma:
        return _comma_notes(_texts_of(table))
    if not any(_looks_grouped(texts) for texts in _texts_of(table).values()):
        return []
    # As it stands in the file, without a comma made a point.
    raw = read_table(source.model_copy(update={"decimal": "."}), base=base)
    return _point_notes(_texts_of(raw))


def _texts_of(table: pd.DataFrame) -> dict[str, list[str]]:
    """The distinct texts of each column; rows that are too short end in cells without any."""
    texts = {
        str(name): [cell.strip() for cell in cells.unique() if isinstance(cell, str)]
        for name, cells in table.items()
    }
    return {name: [t for t in own if not is_missing_text(t)] for name, own in texts.items()}


def _point_notes(columns: dict[str, list[str]]) -> list[str]:
    """Where points may group thousands; nothing where other columns have decimal points.

    >>> _point_notes({"sum": ["48.011", "959"], "rate": ["6,42"]})[0][:42]
    'sum: cells such as 48.011 are read as deci'
    >>> _point_notes({"sum": ["48.011", "959"], "rate": ["6.42"]})
    []
    """
    grouped = {name: texts for name, texts in columns.items() if _looks_grouped(texts)}
    others = [texts for name, texts in columns.items() if name not in grouped]
    if not grouped or any(_has_decimal_points(texts) for texts in others):
        return []
    example = next(t for texts in grouped.values() for t in texts if _THOUSANDS.fullmatch(t))
    return [
        f"{_named(list(grouped))}: cells such as {example} are read as decimals; if the point "
        'groups thousands, say so with decimal = "," (--decimal ,)'
    ]


def _comma_notes(columns: dict[str, list[str]]) -> list[str]:
    """Where commas are decimal points beyond doubt.

    >>> _comma_notes({"share": ["0,2120", "0,3"], "sum": ["48,011"], "name": ["Berg, Ida"]})[0][:43]
    'share: cells such as 0,2120 have a decimal '
    """
    sure = {name: texts for name, texts in columns.items() if _has_decimal_commas(texts)}
    if not sure:
        return []
    example = next(t for texts in sure.values() for t in texts if _is_decimal_comma(t))
    return [
        f"{_named(list(sure))}: cells such as {example} have a decimal comma; say so with "
        'decimal = "," (--decimal ,)'
    ]


def _looks_grouped(texts: Sequence[str]) -> bool:
    """Whether numbers could be whole, with points between their thousands."""
    return any(map(_THOUSANDS.fullmatch, texts)) and _nearly_all(_THOUSANDS_OR_LESS, texts)


def _has_decimal_points(texts: Sequence[str]) -> bool:
    """Whether numbers have points that group nothing."""
    return (
        _nearly_all(_POINTED, texts)
        and not _nearly_all(_THOUSANDS_OR_LESS, texts)
        and any("." in text for text in texts)
    )


def _has_decimal_commas(texts: Sequence[str]) -> bool:
    return _nearly_all(_COMMA, texts) and any(map(_is_decimal_comma, texts))


def _is_decimal_comma(text: str) -> bool:
    """Whether a comma in a number groups nothing."""
    is_number = "," in text and _COMMA.fullmatch(text) is not None
    return is_number and _GROUPED_BY_COMMA.fullmatch(text) is None


def _nearly_all(form: re.Pattern[str], texts: Sequence[str]) -> bool:
    """Whether a column is of one form."""
    count = sum(form.fullmatch(text) is not None for text in texts)
    return bool(texts) and count >= READABLE_SHARE * len(texts)


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"
