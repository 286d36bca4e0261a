"""Text from the far side, made fit for a log line, a terminal, or a sentence of ours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

# Numbers as people of many countries write them.
_COMMA = re.compile(r"[+-]?[0-9][0-9.]*,[0-9.,]*", re.ASCII)
_PERCENT = re.compile(r"[+-]?[0-9][0-9.,]* ?%", re.ASCII)
# Larger numbers are written with an exponent.
MOST_WRITTEN_OUT = 1e9
# A status has room for some thousand bytes.
LONGEST_TEXT = 400
# A column's name leaves room for what is said of it.
LONGEST_NAME = 60
# A name of up to 64 letters is whole.
LONGEST_PARTY = 80
# A value among several of a sentence.
LONGEST_VALUE = 40
# A sentence of several names and values, each of them short.
LONGEST_NOTE = 1000


def counted(count: int, one: str, many: str = "") -> str:
    """A number and its noun, in the right form.

    >>> counted(1, "study", "studies"), counted(2, "study", "studies"), counted(1200, "owner")
    ('1 study', '2 studies', '1,200 owners')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def printable(text: object, longest: int = LONGEST_TEXT) -> str:
    r"""The text on one line, without anything that moves a cursor, and no longer than this.

    Whatever Unicode does not call printable becomes a space: control characters, line ends,
    marks that turn the direction of writing, surrogates, private use.

    Args:
      text: What the far side sent; None is what it did not say.
      longest: The largest number of characters, 3 or more.

    >>> printable("no\ncolumn \x1b[31m'x'")
    "no column  [31m'x'"
    >>> printable("x" * 1000, longest=8)
    'xxxxx...'
    """
    whole = "" if text is None else str(text)
    cut = whole if len(whole) <= longest else whole[: longest - 3] + "..."
    return "".join(c if c.isprintable() else " " for c in cut)


def brief(name: object) -> str:
    """A column's name, or a cell, short and printable, so that there is room for what is said."""
    return printable(name, LONGEST_NAME)


def claimed(text: object) -> str:
    """What another party says that it is called, or runs: one line that is short and printable."""
    return printable(text, LONGEST_PARTY)


def any_of(words: Sequence[str]) -> str:
    """Several alternatives, of which there is at least one.

    >>> any_of(["a"]), any_of(["a", "b", "c"])
    ('a', 'a, b or c')
    """
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def first_few(texts: Sequence[str], most: int) -> str:
    """The first texts on one line, and how many more there are.

    >>> first_few(["a", "b", "c"], 3), first_few(["a", "b", "c"], 1)
    ('a, b, c', 'a and 2 more')
    """
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def named(names: Sequence[str], most: int = 5) -> str:
    """Names of columns on one line, each printable and short; those beyond this many are counted.

    >>> named(["age", "a" * 1000, "sex"], most=2)[:10], named(["age", "sex"], most=1)
    ('age, aaaaa', 'age and 1 more')
    """
    return first_few([brief(name) for name in names], most)


def number_hint(typed: str) -> str:
    """How to write a number that has commas or a percent sign; empty for any other text.

    >>> number_hint("1,5")
    '; write a number without commas, 1,000 as 1000 and 0,5 as 0.5'
    >>> number_hint("50 %"), number_hint("1.5"), number_hint("1, 2")
    ('; write a number without %, 50% as 0.5', '', '')
    """
    if _COMMA.fullmatch(typed):
        return "; write a number without commas, 1,000 as 1000 and 0,5 as 0.5"
    return "; write a number without %, 50% as 0.5" if _PERCENT.fullmatch(typed) else ""


def exact_text(amount: Fraction) -> str:
    """An amount as settings have it: in decimals where these say it exactly.

    >>> exact_text(Fraction(21, 10)), exact_text(Fraction(1, 3)), exact_text(Fraction(300))
    ('2.1', '1/3', '300')
    """
    decimal = Decimal(amount.numerator) / amount.denominator
    return f"{decimal:f}" if Fraction(decimal) == amount else str(amount)


def as_setting(amount: Fraction) -> int | str:
    """An amount as new settings have it: a whole number, or else a text that says it exactly.

    >>> as_setting(Fraction(20)), as_setting(Fraction(21, 10))
    (20, '2.1')
    """
    return int(amount) if amount.denominator == 1 else exact_text(amount)


def number_words(value: float, digits: int = 3) -> str:
    """A number for people: this many digits, and from there on whole numbers, thousands apart.

    >>> number_words(8.0453), number_words(21345.6), number_words(0.00123), number_words(999.96)
    ('8.05', '21,346', '0.00123', '1,000')
    >>> number_words(2.718, 2), number_words(148.41, 2), number_words(1e18), number_words(-0.0)
    ('2.7', '148', '1e+18', '0')
    """
    value += 0.0  # without the sign of a zero
    short = f"{value:.{digits}g}"
    is_whole = 10.0**digits <= abs(float(short)) <= MOST_WRITTEN_OUT
    return f"{value:,.0f}" if is_whole else short


def with_interval(value: float, low: float | None, high: float | None) -> str:
    """A number for people, and the interval that it has, if any.

    >>> with_interval(8.0453, 7.5, 8.54), with_interval(2.0, None, None)
    ('8.05 (7.5 to 8.54)', '2')
    """
    if low is None or high is None:
        return number_words(value)
    return f"{number_words(value)} ({number_words(low)} to {number_words(high)})"


def percent_words(share: float) -> str:
    """A share as people read it; what is not 0 is never called 0.

    >>> [percent_words(share) for share in (0.1304, 0.0004, 0.0, 12.34)]
    ['13.0%', 'less than 0.1%', '0.0%', '1,234%']
    """
    if 0.0 < share < 0.001:
        return "less than 0.1%"
    return f"{share:.1%}" if share < 10.0 else f"{share:,.0%}"


def both_ends(name: str, letters: int) -> str:
    """A long name's begin and end: owners that a program named begin alike.

    >>> both_ends("hospital-of-kings-1", 7), both_ends("hospital", 7)
    ('hospita…kings-1', 'hospital')
    """
    return name if len(name) <= 2 * letters + 1 else f"{name[:letters]}…{name[-letters:]}"


def shortened(texts: Sequence[str]) -> list[str]:
    """Different texts of at most ``LONGEST_VALUE`` characters each, and still different.

    Those that begin alike are cut in their middle, and numbered where they are still the same.

    >>> shortened(["no", "Diseases of the blood-forming organs, with complications",
    ...     "Diseases of the blood-forming organs, without complications"])
    ['no', 'Diseases of the b...with complications', 'Diseases of the b...out complications']
    """
    by_head: dict[str, list[str]] = {}
    for text in texts:
        by_head.setdefault(text[:LONGEST_VALUE], []).append(text)
    cut = {
        text: _without_middle(text)
        if len(text) > LONGEST_VALUE and len(by_head[text[:LONGEST_VALUE]]) > 1
        else text[:LONGEST_VALUE]
        for text in texts
    }
    seen: dict[str, int] = {}
    found = []
    for text in texts:
        short = cut[text]
        seen[short] = seen.get(short, 0) + 1
        found.append(short if seen[short] == 1 else f"{short} ({seen[short]})")
    return found


def _without_middle(text: str) -> str:
    """Its beginning and its end."""
    half = (LONGEST_VALUE - 3) // 2
    return f"{text[: LONGEST_VALUE - 3 - half]}...{text[-half:]}"
