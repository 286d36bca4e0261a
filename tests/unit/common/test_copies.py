"""Rows that occur twice in a raw table, and persons with several records, are told of."""

import numpy as np
import pandas as pd
import pytest

from common.copies import copy_notes, empty_notes, persons_column, whose_rows
from common.looking import look_at

N = 2000


def told(table):
    look = look_at(table)
    return "\n".join([*empty_notes(look), *copy_notes(look)])


def patients():
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, N),
            "sex": rng.choice(["f", "m"], N),
            "bmi": rng.normal(26, 4, N).round(1),
            "days": rng.integers(1, 20, N),
        }
    )


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("times", [2, 3])
def test_a_table_that_stands_in_itself_again_is_told_of(times, *, shuffled):
    table = pd.concat([patients()] * times)
    table = table.sample(frac=1, random_state=0) if shuffled else table
    copies = times * N - len(patients().drop_duplicates())
    assert f"{copies:,} rows of {times * N:,} say the same as an earlier one" in told(table)


def test_rows_of_one_day_at_other_times_are_no_copies():
    hours = pd.date_range("2020-01-01", periods=N, freq="h").astype(str)
    table = pd.DataFrame({"at": hours, "temp": np.round(np.sin(np.arange(N)), 1)})
    assert told(table) == ""
    assert told(pd.concat([table, table[:9]])).startswith("9 rows of 2,009 say the same")


def test_a_few_copies_are_told_of_where_no_two_records_are_alike():
    table = patients().assign(case=[f"C{i}" for i in range(N)])
    assert told(table) == ""
    assert told(pd.concat([table, table[:1]])).startswith("1 row of 2,001 says the same")
    table = patients().assign(cost=np.random.default_rng(2).normal(900, 99, N))
    assert told(pd.concat([table, table[:9]])).startswith("9 rows of 2,009 say the same")


def test_a_few_copies_are_told_of_where_several_columns_tell_records_apart():
    rng = np.random.default_rng(4)
    cells = {"weight": rng.normal(78, 16, N).round(1), "crea": rng.gamma(9, 0.1, N).round(2)}
    table = patients().assign(patient_id=rng.integers(0, N, N), **cells)
    assert "the same as an earlier one" not in told(table)
    assert told(pd.concat([table, table[:9]])).startswith("9 rows of 2,009 say the same")


@pytest.mark.parametrize("kinds", [(100, 2, 10), (100, 50, 2, 3), (365, 100, 5), (300, 200)])
@pytest.mark.parametrize("count", [100, 500, 2000, 10_000])
def test_rows_that_several_columns_tell_apart_are_alike_by_chance(kinds, count):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        table = pd.DataFrame({f"c{k}": rng.integers(0, k, count) for k in kinds})
        assert told(table) == ""


def test_rows_of_few_kinds_that_are_alike_by_chance_are_no_copies():
    for kinds in (2, 20, 200, 1000):
        rng = np.random.default_rng(kinds)
        table = pd.DataFrame({"a": rng.integers(0, kinds, N), "b": rng.choice(["x", "y"], N)})
        assert told(table) == ""


@pytest.mark.parametrize("name", ["patient_id", "PatientenNr", "MRN"])
def test_records_of_one_person_are_counted(name):
    rng = np.random.default_rng(3)
    table = patients().assign(**{name: rng.permutation(np.repeat(np.arange(N // 2), 2))})
    assert f"{name}: up to 2 records have the same value" in told(table)
    assert "privacy.kappa = 2" in told(table)
    # A hospital's number names no person, and nor does a number of rooms.
    few = patients().assign(**{name: rng.integers(0, 9, N), "rooms": np.arange(N) // 2})
    assert told(few) == ""


def test_empty_rows_below_a_table_are_told_of_as_such_and_are_no_copies():
    blank = pd.DataFrame("", index=range(25), columns=patients().columns)
    says = told(pd.concat([patients().astype(str), blank]))
    assert "25 rows of 2,025 are empty, as spreadsheets leave them below a table" in says
    assert "say the same" not in says
    assert "1 row of 26 is empty" in told(pd.concat([patients()[:25], blank[:1]]))
    assert "25 rows of 25 are empty" in told(blank)


@pytest.mark.parametrize("name", ["userId", "patient", "subject_no"])
def test_persons_with_any_number_of_records_are_told_of(name):
    """A hundred ratings of each user: its number was taken for a category."""
    table = patients().assign(**{name: np.arange(N) % 40})
    assert f"{name}: up to 50 records have the same value" in told(table)
    for others in ("patient type", "cost per patient", "user rating", "ward"):
        assert told(table.rename(columns={name: others})) == ""
    # Whether somebody is a user is no name.
    assert told(table.assign(**{name: np.arange(N) % 2})) == ""


def test_rows_of_a_person_are_known_by_the_first_of_them():
    orders = np.arange(N) // 2
    table = patients().assign(order_id=orders, customer_id=np.arange(N) % (N // 8))
    look = look_at(table)
    persons = persons_column(look)
    assert persons.name == "customer_id"
    assert whose_rows(persons, N).tolist() == [i % (N // 8) for i in range(N)]
    assert whose_rows(None, N).tolist() == list(range(N))
    gaps = table.assign(customer_id=table.customer_id.where(np.arange(N) > 9))
    assert whose_rows(persons_column(look_at(gaps)), N)[:10].tolist() == list(range(10))
