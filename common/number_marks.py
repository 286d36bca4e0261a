"""Marks of a table, points and commas in numbers above all, that may mean otherwise than read.

Only the holder of the table is warned: no cell may change how another one is read.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from common.cells import distinct_texts
from common.columns import is_missing_text, parse_month, parse_number, unit_of
from common.csv_files import CsvFile
from common.fitting import READABLE_SHARE
from common.parquet_files import ParquetFile
from common.quote_marks import swallowed_notes, undecoded_notes
from common.share_marks import share_notes
from common.short_rows import short_notes
from common.tables import TableSource, open_source, read_table
from common.texts import LONGEST_NAME, brief, named

# What to do where a comma is the decimal mark: of a CSV file, of any other table, of a data frame.
SAY_SO = 'say so with decimal = "," (--decimal ,)'
IN_A_TABLE = "make numbers of them, in a query as replace(replace(x, '.', ''), ',', '.')"
IN_A_FRAME = 'read its file with decimal = "," and thousands = "."'

# What the reader of numbers takes for no part of the number: a sign, a currency, a share.
_BEFORE, _BEHIND = r"[+-]? ?(?:[$€£] ?-?)?", " ?%?"
_POINT_GROUPS = r"[1-9][0-9]{0,2}(?:\.[0-9]{3})+"
_COMMA_GROUPS = "[1-9][0-9]{0,2}(?:,[0-9]{3})+"


def _form(number: str) -> re.Pattern[str]:
    """Cells that are a number of a form."""
    return re.compile(f"{_BEFORE}(?:{number}){_BEHIND}", re.ASCII)


_THOUSANDS = _form(_POINT_GROUPS)
_THOUSANDS_OR_LESS = _form(f"{_POINT_GROUPS}|[0-9]{{1,3}}")
# Of these some is no decimal of three digits, to which each number was rounded.
_SURE_TO_BE_WHOLE = _form(r"[1-9][0-9]{0,2}(?:\.[0-9]{3}){2,}|[0-9]{1,3}")
_POINTED = _form(rf"(?:{_COMMA_GROUPS}|[0-9]+)(?:\.[0-9]+)?")
_GROUPED_BY_COMMA = _form(_COMMA_GROUPS)
_COMMA = _form(f"(?:{_POINT_GROUPS}|[0-9]+)(?:,[0-9]+)?")
# Digits in groups of three, or of India's two, that begin as a number does: 0 begins a code.
_SPACED = r"[1-9][0-9]{0,2}(?:[ '\u2019][0-9]{3}|(?:,[0-9]{2})+,[0-9]{3})+(?:[.,][0-9]+)?"
_DIGITS = "[0-9][0-9.,]*"
_CURRENCIES = (
    "AED|AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HKD|HUF|ILS|INR|JPY|KRW|MXN|NOK|NZD|PLN|RON|RUB|SAR|"
    "SEK|SGD|THB|TRY|UAH|USD|ZAR"
)
# A number beside a currency or a unit that the reader of numbers does not know. Other capitals
# before one are those of codes, such as DRG 470 and MRN 12345.
_BESIDE_TEXT = re.compile(
    rf"(?P<before>(?:(?:{_CURRENCIES}) )?)[+-]?(?:{_SPACED}|{_DIGITS})"
    r"(?P<behind>(?: [^\x00-@\[-`{-\x7f][^ \t-\r0-9]{0,11}"
    r"| ?[$\xa2\xa3\xa5\xb0\u2030\u20a0-\u20bf])?)",
    re.ASCII,
)
_CURRENCY = re.compile(rf"(?:{_CURRENCIES})|[$\xa2\xa3\xa5\u20a0-\u20bf]", re.ASCII)
_MEASURE_WORDS = "g kg mg lb lbs oz t mm cm m km in ft mi ml cl dl l kW kWh \xb0C \xb0F"
_MEASURES = frozenset(_MEASURE_WORDS.split())
# Days of one month are no numbers beside a unit.
_MONTHS = "january february march april may june july august september october november december"
_MONTH_WORDS = frozenset(word for name in _MONTHS.split() for word in (name, name[:3]))
# Marks and years, unless most of a column's texts are plain numbers.
_STROKE_BEHIND = re.compile(r"[0-9]{1,4} ?-", re.ASCII)
MOSTLY = 2.0 / 3.0
# Thousands and millions, and what is measured in units that stand close to their numbers.
_SHORT = (
    "y|yrs?|yo|mo|wks?|d|h|hrs?|min|s|sec|g|kg|mg|lbs?|oz|t|mm|cm|m|km|ft|l|ml|kWh|\xb0[CF]|th|"
    "(?:k|K|M|T|Tsd|Mio|Mrd|mln|mn|bn|million|billion)\\.?(?: ?[$\xa3\u20ac])?"
)
# Before the hours of a duration, as Python and databases write it.
_DAYS = r"-?[0-9]+ days?,? [+-]?"
# Numbers in brackets, with the sign behind, with a typographer's minus, in groups of three, about
# right, behind a text's mark, with such a unit, as formulas; times of the day; two in one cell.
_ODD = re.compile(
    rf"{_BEFORE}\({_BEFORE}{_DIGITS}\)|{_DIGITS} ?-|[\u2212\u2013] ?{_BEFORE}{_DIGITS}"
    rf"|{_BEFORE}{_SPACED}{_BEHIND}|(?:[~\u2248'\u2019]|ca\.?) ?{_DIGITS}|{_DIGITS} ?(?:{_SHORT})"
    rf'|="[+-]?{_DIGITS}"'
    rf"|(?:{_DAYS})?[0-9]{{1,3}}:[0-5][0-9](?::[0-5][0-9](?:\.[0-9]+)?)?"
    r"|[0-9]{1,3} ?/ ?[0-9]{1,3}",
    re.ASCII,
)
_PLAIN = _form(_DIGITS)
# What spreadsheets show for a value that is not there, in languages where it has no ! behind it.
_NO_VALUES = frozenset({"#NV", "#N/D", "#N/B", "#I/T", "#ND", "#YOK"})
_ODD_OR_PLAIN = re.compile(rf"{_ODD.pattern}|{_PLAIN.pattern}", re.ASCII)


def mark_notes(source: TableSource | None, *, base: Path, table: pd.DataFrame) -> list[str]:
    """A sentence for columns whose points may group thousands, or whose commas may be decimal.

    And for numbers of several units, cells that a quotation mark made of many rows, rows that are
    too short, and an index that was saved as none of the columns.

    Args:
      source: Where the table is; what its user says of decimal points is doubted only where some
        of a column's numbers show that it is not so. None for a data frame of somebody's own.
      base: The folder where relative paths start.
      table: Its rows as they were read; only its columns are looked at.
    """
    texts = _texts_of(table)
    units = [*_unit_notes(texts), *share_notes(texts), *_error_notes(texts)]
    if source is None:
        return [*units, *_as_read_notes(texts, cure=IN_A_FRAME)]
    parts = open_source(source, base=base).parts
    first = parts[0].table
    if not isinstance(first, CsvFile):
        index = _index_notes(first) if isinstance(first, ParquetFile) else []
        return [*units, *index, *_as_read_notes(texts, cure=IN_A_TABLE)]
    odd = units + swallowed_notes(table, separator=first.separator, width=len(first.names))
    odd += undecoded_notes(table, encoding=source.encoding)
    return [*odd, *short_notes(parts), *_number_notes(source, first, base=base, texts=texts)]


def _index_notes(first: ParquetFile) -> list[str]:
    """That the index of a data frame is no column."""
    names = first.index_names
    return [
        f"{named(names)}: saved by pandas as the table's index, which is no column here; if it "
        "says something, save the table after reset_index()"
    ] * bool(names)


def _number_notes(
    source: TableSource, first: CsvFile, *, base: Path, texts: Mapping[str, Sequence[str]]
) -> list[str]:
    """As :func:`mark_notes`, of points and commas."""
    if source.decimal == ".":
        return []
    if source.decimal == ",":
        return _regrouped_notes(_as_they_stand(source, base=base, columns=list(texts)))
    if not first.has_decimal_comma:
        return _as_read_notes(texts, cure=SAY_SO)
    if not any(map(_looks_grouped, texts.values())):
        return []
    standing = _as_they_stand(source, base=base, columns=list(texts))
    return _point_notes(standing, doubted=standing)


def _as_read_notes(texts: Mapping[str, Sequence[str]], *, cure: str) -> list[str]:
    """Of cells whose points are read as decimal, since nobody says otherwise."""
    # Where every number has three digits behind its point, all were rounded so.
    sure = {n: own for n, own in texts.items() if any(map(_SURE_TO_BE_WHOLE.fullmatch, own))}
    return [*_comma_notes(texts, cure=cure), *_point_notes(texts, doubted=sure, cure=cure)]


def _as_they_stand(
    source: TableSource, *, base: Path, columns: Sequence[str]
) -> dict[str, list[str]]:
    """The texts of the same columns as they stand in the file, without a comma made a point."""
    as_written = source.model_copy(update={"decimal": "."})
    return _texts_of(read_table(as_written, base=base, columns=columns))


def _texts_of(table: pd.DataFrame) -> dict[str, list[str]]:
    """The distinct texts of each column; rows that are too short end in cells without any."""
    texts = {
        str(name): [" ".join(text.split()) for text in distinct_texts(cells)]
        for name, cells in table.items()
    }
    return {name: [t for t in own if not is_missing_text(t)] for name, own in texts.items()}


def _unit_notes(columns: Mapping[str, Sequence[str]]) -> list[str]:
    """Where numbers stand beside several units of time, or currencies: none is converted.

    >>> _unit_notes({"age": ["2 years", "7", "3 months"], "term": ["36 months", "1 mo", "12"]})
    ["age: cells such as '2 years' and '3 months' are read as 2 and 3; write all in one unit"]
    >>> _unit_notes({"fee": ["$5", "\u20ac6", "7"], "cost": ["$5", "-$6", "7"]})
    ["fee: cells such as '$5' and '\u20ac6' are read as 5 and 6; write all in one unit"]
    """
    notes = []
    for name, texts in columns.items():
        beside = {unit: text for text in texts if (unit := _unit_or_currency(text))}
        if len(beside) < 2 or not _nearly_all(_is_read, texts):
            continue
        cells = list(beside.values())[:2]
        shown = " and ".join(repr(brief(cell)) for cell in cells)
        read = " and ".join(f"{parse_number(cell):g}" for cell in cells)
        notes.append(
            f"{brief(name)}: cells such as {shown} are read as {read}; write all in one unit"
        )
    return notes


def _error_notes(columns: Mapping[str, Sequence[str]]) -> list[str]:
    """Where the error of a spreadsheet is a name of its own; among numbers it counts as empty.

    >>> _error_notes({"sex": ["f", "#NV", "m"], "age": ["#NV", "1", "2"], "no": ["#1", "#2!"]})
    ["sex: '#NV' is a spreadsheet's error, and counts as a name of its own; empty such cells"]
    """
    found = {name: next(filter(_is_error, texts), "") for name, texts in columns.items()}
    names = [name for name, error in found.items() if error and not all(map(_says, columns[name]))]
    says = "is a spreadsheet's error, and counts as a name of its own; empty such cells"
    return [f"{named(names)}: {found[names[0]]!r} {says}"] if names else []


def _says(text: str) -> bool:
    """Whether a text is a number, a date or an error, which is a gap among these."""
    return _is_read(text) or _is_error(text) or not math.isnan(parse_month(text))


def _is_error(text: str) -> bool:
    """Whether a text is what a spreadsheet shows where a formula fails, in any language.

    >>> [_is_error(text) for text in ("#DIV/0!", "#NOM?", "#\u0417\u041d\u0410\u0427!", "#A1", "!")]
    [True, True, True, False, False]
    """
    if not text.startswith("#") or len(text) > LONGEST_NAME:
        return False
    word = text[1:].rstrip("!?")
    fails = text[-1] in {"!", "?"} and word.upper() == word and word[:1].isalpha()
    return fails or text in _NO_VALUES


def _unit_or_currency(text: str) -> str:
    """The unit of time, or the sign of a currency, beside a number that is read; empty for none."""
    if text[-1:].isalpha():
        return unit_of(text)
    sign = _CURRENCY.search(text)
    return sign[0] if sign is not None else ""


def _point_notes(
    columns: Mapping[str, Sequence[str]],
    *,
    doubted: Mapping[str, Sequence[str]],
    cure: str = SAY_SO,
) -> list[str]:
    """Where points may group thousands; nothing where other columns have decimal points.

    Args:
      columns: The distinct texts of each column.
      doubted: Those of the columns whose points may group.
      cure: What to do then.

    >>> seen = {"sum": ["48.011", "959"], "rate": ["6,42"]}
    >>> _point_notes(seen, doubted=seen)[0][:42]
    'sum: cells such as 48.011 are read as deci'
    >>> _point_notes(seen | {"rate": ["6.42"]}, doubted=seen)
    []
    """
    grouped = {name: texts for name, texts in doubted.items() if _looks_grouped(texts)}
    others = [texts for name, texts in columns.items() if name not in grouped]
    if not grouped or any(_has_decimal_points(texts) for texts in others):
        return []
    cells = (t for texts in grouped.values() for t in texts if _THOUSANDS.fullmatch(t))
    example = brief(next(cells))
    return [
        f"{named(list(grouped))}: cells such as {example} are read as decimals; if the point "
        f"groups thousands, {cure}"
    ]


def _regrouped_notes(columns: Mapping[str, Sequence[str]]) -> list[str]:
    """Where points are decimal beyond doubt, and some are taken for those between thousands.

    >>> _regrouped_notes({"rate": ["0.6532", "2.881"], "sum": ["48.011", "959"]})[0][:58]
    'rate: cells such as 0.6532 have a decimal point, but 2.881'
    >>> _regrouped_notes({"sum": ["48.011", "959"], "share": ["0.5", "0.25"]})
    []
    """
    notes = []
    for name, texts in columns.items():
        grouped = next((text for text in texts if _THOUSANDS.fullmatch(text)), "")
        decimal = (t for t in texts if "." in t and not _THOUSANDS.fullmatch(t))
        if grouped and _has_decimal_points(texts):
            notes.append(
                f"{name}: cells such as {next(decimal)} have a decimal point, but {grouped} is "
                'read as a whole number, as decimal = "," says; leave that out (--decimal) if '
                "points are decimal"
            )
    return notes


def _comma_notes(columns: Mapping[str, Sequence[str]], *, cure: str) -> list[str]:
    """Where commas are decimal points beyond doubt.

    >>> cells = {"share": ["0,2120", "0,3"], "sum": ["48,011"], "name": ["Berg, Ida"]}
    >>> _comma_notes(cells, cure="say so")
    ['share: cells such as 0,2120 have a decimal comma; say so']
    """
    sure = {name: texts for name, texts in columns.items() if has_decimal_commas(texts)}
    if not sure:
        return []
    cells = (t for texts in sure.values() for t in texts if _is_decimal_comma(t))
    example = brief(next(cells))
    return [f"{named(list(sure))}: cells such as {example} have a decimal comma; {cure}"]


def _looks_grouped(texts: Sequence[str]) -> bool:
    """Whether numbers could be whole, with points between their thousands."""
    decimal = (t for t in texts if _POINTED.fullmatch(t) and not _THOUSANDS_OR_LESS.fullmatch(t))
    return (
        any(map(_THOUSANDS.fullmatch, texts))
        and _nearly_all(_THOUSANDS_OR_LESS.fullmatch, texts)
        and not any("." in text for text in decimal)
    )


def _has_decimal_points(texts: Sequence[str]) -> bool:
    """Whether numbers have points that group nothing."""
    return (
        _nearly_all(_POINTED.fullmatch, texts)
        and not _nearly_all(_THOUSANDS_OR_LESS.fullmatch, texts)
        and any("." in text for text in texts)
    )


def has_decimal_commas(texts: Sequence[str]) -> bool:
    """Whether texts are numbers, some of which have a decimal comma beyond doubt.

    >>> has_decimal_commas(["€ 79.723,37", "€ 825"]), has_decimal_commas(["48,011", "959"])
    (True, False)
    """
    return _nearly_all(_COMMA.fullmatch, texts) and any(map(_is_decimal_comma, texts))


def unread_number(texts: Sequence[str]) -> str:
    """One of a column's texts where these are numbers in a form that is not read; empty for none.

    >>> unread_number(["17.911 €", "959 €"]), unread_number(["EUR 5,20", "EUR 7"])
    ('17.911 €', 'EUR 5,20')
    >>> unread_number(["12", "(7)"]), unread_number(["10 890", "7"]), unread_number(["7", "8.5-"])
    ('(7)', '10 890', '8.5-')
    >>> unread_number(["1", "1-", "2", "2-"]), unread_number(["12 June", "13 June"])
    ('', '')
    >>> unread_number(["871xx", "900xx"]), unread_number(["17.911", "959"])
    ('', '')
    >>> unread_number(["DRG 470", "DRG 392"]), unread_number(["061 234 567", "065 111 222"])
    ('', '')
    >>> [unread_number([cell, "7"]) for cell in ("4.6k", "1,2 Mio. \u20ac", "61kg", "~60", "'60")]
    ['4.6k', '1,2 Mio. €', '61kg', '~60', "'60"]
    >>> unread_number(["120/80", "135/90"]), unread_number(["07:30", "21:05"])
    ('120/80', '07:30')
    >>> unread_number(["48 days 07:12:00", "-1 days +23:59:59.5"]), unread_number(["1 day, 0:10"])
    ('48 days 07:12:00', '1 day, 0:10')
    >>> unread_number(["20-29", "30-39"]), unread_number(["12A", "12B"])
    ('', '')
    """
    odd = [text for text in texts if _ODD.fullmatch(text)]
    if not odd or not _nearly_all(_ODD_OR_PLAIN.fullmatch, texts):
        return _beside_a_word(texts)
    are_kinds = all(map(_STROKE_BEHIND.fullmatch, odd))
    plain = sum(_PLAIN.fullmatch(text) is not None for text in texts)
    return "" if are_kinds and plain < MOSTLY * len(texts) else odd[0]


def _beside_a_word(texts: Sequence[str]) -> str:
    """One of a column's texts where these are amounts, or numbers beside one word; else empty.

    >>> _beside_a_word(["$5", "5 \u20ac", "7"]), _beside_a_word(["61 kg", "140 lb"])
    ('5 \u20ac', '61 kg')
    >>> _beside_a_word(["12 Main", "9 Elm"]), _beside_a_word(["$5", "7"])
    ('', '')
    """
    found = [match for text in texts if (match := _BESIDE_TEXT.fullmatch(text)) is not None]
    words = Counter((match["before"], match["behind"].strip()) for match in found)
    words.pop(("", ""), None)
    if unread := [m.string for m in found if _is_amount(m) and not _is_read(m.string)]:
        amounts = {match.string for match in found if _is_amount(match)}
        if _nearly_all(lambda text: text in amounts or _is_read(text), texts):
            return unread[0]
    best, count = max(words.items(), key=lambda item: item[1], default=(("", ""), 0))
    is_month = best[1].lower() in _MONTH_WORDS
    if not count or is_month or count < READABLE_SHARE * len(texts):
        return ""
    return next(m.string for m in found if (m["before"], m["behind"].strip()) == best)


def _is_amount(match: re.Match[str]) -> bool:
    """Whether a number stands beside a currency or a measure."""
    words = (match["before"].strip(), match["behind"].strip())
    return any(_CURRENCY.fullmatch(word) or word in _MEASURES for word in words)


def _is_decimal_comma(text: str) -> bool:
    """Whether a comma in a number groups nothing."""
    is_number = "," in text and _COMMA.fullmatch(text) is not None
    return is_number and _GROUPED_BY_COMMA.fullmatch(text) is None


def _is_read(text: str) -> bool:
    """Whether a text is read as a number."""
    return not math.isnan(parse_number(text))


def _nearly_all(form: Callable[[str], object], texts: Sequence[str]) -> bool:
    """Whether a column is of one form."""
    count = sum(bool(form(text)) for text in texts)
    return bool(texts) and count >= READABLE_SHARE * len(texts)
