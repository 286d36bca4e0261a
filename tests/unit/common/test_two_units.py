"""Numbers in two units are told, and nothing else that lies in two parts."""

import numpy as np
import pytest

from common.looking import Column
from common.two_units import FACTORS, two_units_note

RNG = np.random.default_rng(1)
RATES = RNG.uniform(0.05, 0.25, 900).round(4)


def note(*parts, name="rate"):
    """What is said of a column of these numbers."""
    numbers = np.concatenate(parts)
    return two_units_note(Column(name, "number", np.unique(numbers).size, 0, numbers))


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("share", [0.06, 0.5, 0.94])
def test_numbers_in_two_units_are_told(factor, share):
    many = int(share * RATES.size)
    said = note(RATES[:many], factor * RATES[many:])
    assert said.startswith(f"{many} lie from 0.0")
    assert f"about {factor:,} times as far: in two units? then write all in one" in said


def test_a_gap_or_a_zero_hides_none():
    assert note(RATES, 100 * RATES, np.zeros(50), np.full(50, np.nan), [np.inf])


@pytest.mark.parametrize(
    "parts",
    [
        (RATES,),
        (RATES, np.full(60, 99.0)),
        (RATES, 100 * RATES[:10]),
        (RATES, -100 * RATES),
        (RATES, RNG.uniform(10, 12, 300)),
        (RATES, 5 * RATES),
        (np.exp(RNG.normal(0, 2, 1000)),),
        (np.arange(1.0, 50.0), np.arange(101.0, 150.0)),
        (np.full(300, 36.0), np.full(300, 3600.0)),
        (RATES[:10], 100 * RATES[:10]),
        (),
    ],
    ids=[
        *("one unit", "a code", "few", "below 0", "another shape", "another factor", "a long tail"),
        *("two blocks", "two numbers", "a short column", "none"),
    ],
)
def test_no_other_two_parts_are_told(parts):
    assert note(np.empty(0), *parts) == ""


def test_numbers_that_are_names_have_no_unit():
    codes = np.repeat(RNG.permutation(np.arange(100, 200))[:60], 20).astype(float)
    assert note(codes, 100 * codes, name="price")
    assert note(codes, 100 * codes, name="diagnosis code") == ""
