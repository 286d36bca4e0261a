"""Dates that are read otherwise than they may be meant, or not at all.

Only the holder of the table is warned: no cell may change how another one is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

import pandas as pd

from common.columns import category_keys, parse_month
from common.fitting import READABLE_SHARE

MONTHS = 12
# Fewer different numbers may look like dates by chance.
FEWEST_NUMBERS = 3
WRITE = "write dates as YEAR-MONTH-DAY"
TURN = 'or, where a CSV file has the day first, set dates = "day-first" (--dates day-first)'
_YEAR, _MONTH, _DAY = "(?:1[5-9]|20)[0-9]{2}", "(?:0?[1-9]|1[0-2])", "(?:0?[1-9]|[12][0-9]|3[01])"
_NAME = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    "sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
# A time of the day behind a date.
_TIME = r"(?:[ T:][0-9].{0,40})?"
# Dates as they are written by hand: day and month, in whatever order, and the year.
_DAY_MONTH_YEAR = re.compile(
    r"(?P<first>[0-9]{1,2})(?P<mark>[./-])(?P<second>[0-9]{1,2})(?P=mark)"
    r"[0-9]{2}(?P<century>[0-9]{2})?(?: .*)?",
    re.ASCII,
)
# Others, of which none is mistaken for another: the year first, a month's name, months, quarters.
_OTHER = re.compile(
    rf"{_YEAR}(?P<mark>[./]){_MONTH}(?P=mark){_DAY}{_TIME}|{_YEAR}-{_DAY}-{_DAY}{_TIME}"
    rf"|{_YEAR}/{_MONTH}|{_MONTH}/{_YEAR}"
    rf"|{_NAME}\.? ?{_DAY}(?:st|nd|rd|th)?,? {_YEAR}{_TIME}"
    rf"|{_DAY}(?:st|nd|rd|th)?\.?[ -]?{_NAME}\.?,?[ -]?(?:{_YEAR}|[0-9]{{2}}){_TIME}"
    rf"|{_NAME}[ -][0-9]{{2}}"
    rf"|{_YEAR}[ -]?Q[1-4]|Q[1-4][ -]?{_YEAR}",
    re.ASCII | re.IGNORECASE,
)
# What is a number as well: the year, the month and mostly the day.
_DIGITS = re.compile(r"(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:(?:0[1-9]|[12][0-9]|3[01]))?", re.ASCII)


def unsure_date(texts: Sequence[str]) -> str:
    """One of a column's values that is or may be another date than is read; empty for none.

    Dates between strokes are read as month/day/year: a day above 12 shows that they are.

    Args:
      texts: Its distinct values, without surplus blanks.

    >>> unsure_date(["01/07/2020"]), unsure_date(["01/07/2020", "01/28/2020"])
    ('01/07/2020', '')
    >>> unsure_date(["01/07/2020", "28/07/2020"]), unsure_date(["2018-06-25", "23.06.2018"])
    ('28/07/2020', '23.06.2018')
    >>> unsure_date(["2012/01/31"]), unsure_date(["Jan 5, 2012"]), unsure_date(["20120131"])
    ('2012/01/31', 'Jan 5, 2012', '')
    >>> unsure_date(["20120131", "20120201", "20120202"]), unsure_date(["201201", "201301", "7"])
    ('20120131', '')
    >>> unsure_date(["03/14/22", "12/01/21"]), unsure_date(["2022-31-03", "2022-01-02"])
    ('03/14/22', '2022-31-03')
    """
    found = [match for text in texts if (match := _DAY_MONTH_YEAR.fullmatch(text))]
    others = [text for text in texts if _OTHER.fullmatch(text) and math.isnan(parse_month(text))]
    others += [m.string for m in found if m["mark"] == "/" and math.isnan(parse_month(m.string))]
    if not found and not others:
        return _date_of_digits(texts)
    known = {*others, *(match.string for match in found)}
    read = sum(text not in known and not math.isnan(parse_month(text)) for text in texts)
    if len(known) + read < READABLE_SHARE * len(texts):
        return ""
    days_first = [match.string for match in found if int(match["first"]) > MONTHS]
    is_clear = any(match["mark"] == "/" and int(match["second"]) > MONTHS for match in found)
    either = [] if is_clear else [match.string for match in found]
    return next(iter([*days_first, *others, *either]), "")


def _date_of_digits(texts: Sequence[str]) -> str:
    """One of a column's numbers where these are dates of digits alone; empty for none."""
    found = [text for text in texts if _DIGITS.fullmatch(text)]
    enough = max(FEWEST_NUMBERS, READABLE_SHARE * len(texts))
    return found[0] if len(found) >= enough else ""


def reading_in_words(date: str) -> str:
    """How a date that may be meant otherwise is read in a column of dates.

    >>> reading_in_words("01/07/2020"), reading_in_words("28.07.2020")
    ('read as month/day/year', 'not read, so it is a gap')
    """
    return "not read, so it is a gap" if math.isnan(parse_month(date)) else "read as month/day/year"


def how_to_write(date: str) -> str:
    """What to do about a date that is not read as it is meant.

    >>> how_to_write("2012/01/31"), how_to_write("31.01.12")
    ('write dates as YEAR-MONTH-DAY', 'write dates as YEAR-MONTH-DAY')
    >>> how_to_write("31.01.2012")[31:]
    'or, where a CSV file has the day first, set dates = "day-first" (--dates day-first)'
    """
    match = _DAY_MONTH_YEAR.fullmatch(date)
    may_turn = match is not None and match["century"] and int(match["second"]) <= MONTHS
    return f"{WRITE}, {TURN}" if may_turn else WRITE


def date_notes(table: pd.DataFrame, names: Iterable[str]) -> list[str]:
    """A sentence for each column of dates where some may be meant otherwise.

    Args:
      table: The rows.
      names: Its columns that are read as dates.

    >>> date_notes(pd.DataFrame({"in": ["01/07/2020", "01/08/2020"]}), ["in"])[0][:58]
    'in: 01/07/2020 is read as month/day/year; if that is not m'
    """
    notes = []
    for name in names:
        unsure = unsure_date(category_keys(table[name])[1])
        if unsure:
            how = reading_in_words(unsure)
            meant = f"if that is not meant, {how_to_write(unsure)}"
            notes.append(f"{name}: {unsure} is {how}; {meant}")
    return notes
