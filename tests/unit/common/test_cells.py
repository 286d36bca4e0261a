"""What a cell is before anything is made of it, and the time that a text takes."""

import importlib
import math
import re
import sys
import time
import timeit
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.cells import LONGEST_TEXT, Label, as_text, readable, written
from common.columns import category_key, parse_month, parse_number, parse_numbers
from common.tables import TableSource, read_table
from owner.shard import fingerprint

ROOT = Path(__file__).resolve().parents[3]


def compiled():
    """Every pattern of the program, by where it stands."""
    found = {}
    for room in ("common", "owner", "learner"):
        for path in sorted((ROOT / room).rglob("*.py")):
            if "re.compile(" not in path.read_text():
                continue
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for key, value in vars(importlib.import_module(name)).items():
                for i, one in enumerate(value if isinstance(value, tuple) else (value,)):
                    # With what is said where it matches, or alone.
                    pattern = one[0] if one and isinstance(one, tuple) else one
                    if isinstance(pattern, re.Pattern):
                        found[f"{name}.{key}.{i}"] = pattern
    return found


PATTERNS = compiled()
# The others must match the whole of a text.
SEARCHED = (
    "common.features._NUMBERS_ON_LINES.0",
    "common.config._LONG_EXPONENT.0",
    "learner.results.card._ADDRESS.0",
    "common.wire._ENDED.0",
    "common.wire._PAGE.0",
    "owner.loading._WORDS.0",
    *(f"common.toml_files._HINTS.{i}" for i in range(6)),
)
# A text of 16 times the length takes about 16 times as long; with two neighbouring repetitions,
# about 256 times. Other work on the machine does not make one look like the other.
SIZES, MOST_GROWTH = (60, 960), 64
STARTS = (
    "",
    "1",
    '"',
    "=",
    "<",
    "$",
    "Dec",
    "2011-12-01T",
    "inf",
    "[\n",
    "e",
    "a:",
    "file:",
    "sha256:",
)
FILLS = (
    " ",
    "1",
    "1 ",
    "a",
    ",111",
    "e",
    "0",
    ":",
    "%",
    ".",
    "-",
    "\n",
    "1,\n ",
    "[\n",
    "e0",
    "\u00a0",
)


def test_every_pattern_is_found():
    written = sum(
        path.read_text().count("re.compile(")
        for room in ("common", "owner", "learner")
        for path in (ROOT / room).rglob("*.py")
    )
    # The three forms of dates are compiled by one line, and so are the seven of marks in numbers
    # and the eight of hints.
    assert len(PATTERNS) == written + 2 + 6 + 7 > 12


@pytest.mark.parametrize("name", PATTERNS)
def test_every_pattern_spells_out_its_classes_in_ascii(name):
    pattern = PATTERNS[name]
    text = pattern.pattern
    # A pattern of bytes knows nothing beyond ASCII.
    assert pattern.flags & re.ASCII or isinstance(text, bytes)
    assert not re.search(r"\\[dDwWsSbB]", text.decode() if isinstance(text, bytes) else text)


@pytest.mark.parametrize("name", PATTERNS)
def test_every_pattern_takes_linear_time(name):
    pattern = PATTERNS[name]
    find = pattern.search if name in SEARCHED else pattern.fullmatch
    is_bytes = isinstance(pattern.pattern, bytes)
    match = (lambda text: find(text.encode("ascii", "replace"))) if is_bytes else find
    for start in STARTS:
        for fill in FILLS:
            assert growth(match, start, fill) < MOST_GROWTH, (start, fill)


@pytest.mark.parametrize(("pattern", "fill"), [(r" *[ \n]*", " "), (r"[0-9]+,?[0-9]*e?", "1")])
def test_a_pattern_that_takes_more_is_found(pattern, fill):
    assert growth(re.compile(pattern).fullmatch, "", fill, rounds=5) > MOST_GROWTH


def _seconds(match):
    """On a core, whatever else the machine does."""
    # The clock of some machines stands still for a moment: 0 is no time.
    while not (taken := timeit.timeit(match, timer=time.thread_time, number=5)):
        pass
    return taken


def growth(match, start, fill, *, rounds=60):
    """Time for the longer text over time for the shorter, the least of several."""
    assert callable(match)
    least = [math.inf, math.inf]
    ratio = math.inf
    for _ in range(rounds):
        for i, size in enumerate(SIZES):
            text = start + (fill * size)[:size] + "!"
            least[i] = min(least[i], _seconds(lambda text=text: match(text)))
        ratio = least[1] / least[0]
        # Small enough, or so slow that no disturbance explains it.
        if ratio < MOST_GROWTH or least[1] > 0.1:
            break
    return ratio


def test_what_a_pattern_takes_for_a_number_is_one():
    """No digit and no letter of another alphabet is taken for one that float would refuse."""
    taken = re.compile(r"[a-z\d]", re.IGNORECASE)
    letters = [c for c in map(chr, range(sys.maxunicode + 1)) if taken.match(c) and not c.isascii()]
    assert {"İ", "ı", "ſ", "\u0661"} < set(letters)
    for letter in letters:
        for form in ("{}nf", "1{}", "INF{}NITY", "1 day{}", "{}"):
            assert math.isnan(parse_number(form.format(letter))), hex(ord(letter))
            assert math.isnan(parse_month(f"201{letter}-12-01"))


def test_a_text_that_is_too_long_is_no_number_no_date_and_one_category():
    digits = "9" * LONGEST_TEXT
    assert parse_number(digits) == math.inf
    assert math.isnan(parse_number(digits + "9"))
    assert math.isnan(parse_month("2011-12-01T" + "0" * LONGEST_TEXT))
    longer = {category_key(letter * n) for letter in "a1 " for n in (LONGEST_TEXT + 1, 10_000)}
    assert longer == {"(long text)"}
    assert category_key("a" * LONGEST_TEXT) == "a" * LONGEST_TEXT


def test_what_has_too_long_a_name_is_of_the_category_of_long_texts():
    class Named:
        def __init__(self, length):
            self.length = length

        def __str__(self):
            return "a" * self.length

    assert readable(Named(LONGEST_TEXT)) == Label("a" * LONGEST_TEXT)
    assert readable(Named(LONGEST_TEXT + 1)) == readable("b" * 10_000) == Label("(long text)")


def test_a_signalling_nan_is_a_gap_without_a_warning():
    bits = np.array([0x7FF0_0000_0000_0001, 0x7FF8_0000_0000_0000, 0], dtype="u8")
    numbers = parse_numbers(pd.Series(bits.view(np.float64)))
    np.testing.assert_array_equal(numbers - 1.0, [math.nan, math.nan, -1.0])


def test_one_unreadable_cell_is_a_gap_and_the_others_stay(tmp_path):
    days = np.array([0, 2**31 - 1, 31], dtype="i4")
    dates = pa.Array.from_buffers(pa.date32(), 3, [None, pa.py_buffer(days.tobytes())])
    raw = pa.array([b"36", b"\xff", b"a"])
    texts = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    pq.write_table(pa.table({"date": dates, "text": texts, "n": [1, 2, 3]}), tmp_path / "t.parquet")
    table = read_table(TableSource(path=tmp_path / "t.parquet"), base=tmp_path)
    assert [parse_month(cell) for cell in table["date"][::2]] == [-360.0, -359.0]
    assert list(table["text"][::2]) == ["36", "a"]
    assert table.isna().sum().to_dict() == {"date": 1, "text": 1, "n": 0}


# What a ledger is bound to must not change with the program that reads the table.
DIGESTS = {
    "numbers": "1b491ffffae7c21b8b5d90084c039bea95f5ad054accd995ad9c2e23474f4342",
    "texts": "33e583c1576bd0fd2dc08ce9c3bc0f11aab92a9b1cdaec0e38a85899bc279a11",
    "dates": "17e7eb08174f7382b82ee9bbf56aba7f000d99d66ebb3216774b9273764bea09",
    "mixed": "5994e4762d01300e5ee81908c48f80d1e24e6243c36fda615fbf58f14b0d1b8f",
}


def tables():
    dates = pd.to_datetime(["2011-12-01", None])
    return {
        "numbers": pd.DataFrame({"a": [1.5, math.nan], "b": [1, 2], "c": [True, False]}),
        "texts": pd.DataFrame({"a": ["x", None], "b": pd.Series(["36", "é"], dtype="category")}),
        "dates": pd.DataFrame({"a": dates, "b": dates.tz_localize("UTC")}),
        "mixed": pd.DataFrame({"a": pd.Series([Decimal("1.50"), b"\xff"], dtype=object)}),
    }


@pytest.mark.parametrize("kind", DIGESTS)
def test_a_fingerprint_stays_what_it_was(kind):
    assert fingerprint([tables()[kind]]) == DIGESTS[kind]


def test_a_cell_that_has_no_text_has_a_fingerprint():
    assert as_text(10**5000) == "<unreadable int>"
    odd = pd.DataFrame({"a": pd.Series([10**5000, Decimal("sNaN"), "x"], dtype=object)})
    calm = pd.DataFrame({"a": pd.Series([10**5000, Decimal("sNaN"), "y"], dtype=object)})
    assert fingerprint([odd]) != fingerprint([calm])


@pytest.mark.parametrize(
    "cell",
    [
        *(7, 7.0, -0.1, 1e16, 1e300, 2**60, math.inf, -math.inf, math.nan, True, np.bool_(False)),
        *(Decimal("1.50"), Decimal("sNaN"), b"36", b"\xff", bytes(2000), "", " n/a ", "< 1 year"),
        *("x" * 2000, pd.Timestamp("2020-03-05 07:00"), pd.Timestamp("2020-03-05").date()),
        *(pd.Timedelta(days=3), pd.NaT, pd.NA, None, [1], {"a": 1}, np.ones(2), object()),
    ],
    ids=lambda cell: f"{type(cell).__name__} {cell!s:.20}",
)
def test_what_is_written_of_a_cell_reads_as_the_cell(cell):
    text = written(cell)
    for read in (parse_number, parse_month, category_key):
        assert repr(read(text)) == repr(read(cell))
