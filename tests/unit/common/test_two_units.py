"""Numbers in two units are told, and nothing else that lies in two parts."""

import numpy as np
import pytest

from common.looking import Column
from common.two_units import FACTORS, two_units_note, unit_of_owners_note

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


DAYS = np.exp(RNG.normal(1.5, 0.6, 1200)).round(1) + 1


def note_of_owners(*owners, kind="number", name="stay"):
    """What is said of a column of these owners' numbers."""
    numbers = np.concatenate(owners)
    ends = np.cumsum([0, *map(len, owners)])
    rows = {f"o{i}": np.arange(ends[i], ends[i + 1]) for i in range(len(owners))}
    return unit_of_owners_note(Column(name, kind, np.unique(numbers).size, 0, numbers), rows)


@pytest.mark.parametrize("factor", FACTORS)
def test_an_owner_whose_numbers_are_in_another_unit_is_named(factor):
    """Hours of one hospital lay across the days of the others, and nobody was told."""
    first, second, third = DAYS[:300], DAYS[300:700], DAYS[700:]
    told = note_of_owners(first, factor * second, third)
    assert told.startswith(f"the numbers of o1 are about {factor:,} times those of the others: in")
    assert note_of_owners(first, second / factor, second / factor).startswith("the numbers of o0 ")
    assert note_of_owners(first, factor * third).startswith("the numbers of o1 ")
    assert note_of_owners(first, first, factor * third, factor * second).startswith(
        "the numbers of o2, o3 "
    )


@pytest.mark.parametrize(
    "owners",
    [
        (DAYS,),
        (DAYS[:300], DAYS[300:]),
        (DAYS[:300], 5 * DAYS[300:]),
        (DAYS[:300], 24 * DAYS[300:315]),
        (DAYS[:300], 24 * DAYS[300:] ** 2 / DAYS.mean()),
        (DAYS[:300], -24 * DAYS[300:]),
        (np.full(300, 1.0), np.full(300, 24.0)),
        (DAYS[:300], np.full(300, np.nan)),
        (DAYS[:300], np.full(300, np.inf)),
    ],
    ids=[
        *("one", "alike", "another factor", "few", "another shape", "below 0", "one number"),
        *("gaps", "infinite"),
    ],
)
def test_owners_of_other_numbers_have_no_other_unit(owners):
    assert note_of_owners(*owners) == ""


def test_dates_and_names_have_no_owner_of_another_unit():
    owners = DAYS[:300], 24 * DAYS[300:]
    assert note_of_owners(*owners, kind="date") == ""
    codes = [its.round() for its in owners]
    assert note_of_owners(*codes)
    assert note_of_owners(*codes, name="diagnosis code") == ""


def test_owners_that_lie_farther_apart_than_any_number_are_in_no_unit_of_each_other():
    """A quotient of such numbers is infinite, which numpy warned of."""
    assert note_of_owners(1e-300 * DAYS[:300], 1e300 * DAYS[:300]) == ""
