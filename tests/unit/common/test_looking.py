"""What the columns of a raw table are taken for."""

import numpy as np
import pandas as pd
import pytest

from common.fitting import MOST_CATEGORIES
from common.looking import look_at
from common.missing_codes import code_for_missing, code_note
from common.tables import TableSource, read_table

NUM = 400
RNG = np.random.default_rng(0)


def column(cells, name="column"):
    return look_at(pd.DataFrame({name: cells})).columns[name]


@pytest.mark.parametrize("name", ["income", "Betrag", "paid", "covid", "grid", "idle", "rows"])
def test_amounts_of_money_name_nobody(name):
    amounts = RNG.permutation(10**6)[:NUM]
    assert not column(amounts, name).is_identifier
    assert column(amounts, name).hardly_repeats


@pytest.mark.parametrize(
    "name",
    [
        *["id", "Record ID", "customerId", "Kunden-Nr", "row_number", "rownames", "caseid", "pid"],
        *["idno", "person_idnum"],
    ],
)
def test_whole_numbers_name_records_where_they_are_called_so(name):
    assert column(RNG.permutation(10**6)[:NUM], name).is_identifier


def test_whole_numbers_without_a_name_are_those_of_rows(tmp_path):
    numbers = RNG.permutation(10**6)[:NUM]
    pd.DataFrame({"age": 1}, index=numbers).to_csv(tmp_path / "rows.csv")
    table = read_table(TableSource(path=tmp_path / "rows.csv"), base=tmp_path)
    nameless = table.columns[0]
    assert column(numbers, nameless).is_identifier
    assert not column(numbers % 9, nameless).is_identifier


def test_whole_numbers_that_count_name_records_in_any_order():
    assert column(RNG.permutation(np.arange(100_000, 100_000 + NUM)), "kunde").is_identifier
    assert not column(np.arange(0, 3 * NUM, 3), "kunde").is_identifier


@pytest.mark.parametrize("name", ["number_of_calls", "nr of shares", "no_visits", "numRooms"])
def test_numbers_of_something_are_amounts(name):
    assert not column(RNG.permutation(10**6)[:NUM], name).is_identifier
    assert not column(np.arange(NUM) % 7, name).is_code
    assert column(np.arange(NUM) % 7, f"house_{name[:2]}").is_code == (name[:2] in {"nr", "no"})


def test_names_that_hardly_repeat_name_records():
    assert column([f"P{i}" for i in range(NUM)], "patient").is_identifier


@pytest.mark.parametrize(
    ("form", "is_told"),
    [
        *[("{} €", True), ("{}€", True), ("CHF {}", True), ("{} kg", True), ("{}", False)],
        *[("{}xx", False), ("P {}", False), ("{} months", False), ("Bed-{}", False)],
        *[("MRN {}", False), ("{})", False), ("{}*", False), ("{}\u00ba", False)],
    ],
)
def test_numbers_in_a_form_that_is_not_read_are_told_of(form, is_told):
    cells = [form.format(f"{x:,}".replace(",", ".")) for x in RNG.permutation(10**6)[:NUM]]
    assert column(cells, "cost").unread_number == (cells[0] if is_told else "")
    for odd in ("(7.25)", "7.25-", "\u22127.25", "7 250", "7'250.5", "($7.25)", "\u20ac 7 250"):
        assert column(["1.5", "2.5", odd] * 30).unread_number == odd
    assert column([f"{i} 250\u00a0€" for i in range(1, NUM)]).unread_number == "1 250 €"
    assert column([f"0{i} 234 567" for i in range(10, NUM)]).unread_number == ""
    # Whole numbers with a stroke behind are marks and years, unless most are plain numbers.
    for kinds in (["1", "1-", "2", "2-", "3", "3-", "4"], ["2018-", "2019-", "2020-", "2021"]):
        assert column(kinds * 20).unread_number == ""
    assert column(["120", "95-", "340", "1020"] * 20).unread_number == "95-"
    # Days of one month are no numbers beside a unit.
    for kinds in (["12 June", "13 June"], ["12 dec", "13 dec"]):
        assert column(kinds * 20).unread_number == ""
    # A text that differs from cell to cell is no unit.
    assert column([f"{i} {'abcdefgh'[i % 8]}" for i in range(NUM)]).unread_number == ""


@pytest.mark.parametrize("more", [0, 1])
def test_free_text_begins_where_a_feature_map_leaves_a_column_out(more):
    cells = [f"word {i}" for i in range(MOST_CATEGORIES + more)]
    assert column(2 * cells).kind == ("text" if more else "category")


def test_a_number_far_out_that_repeats_is_asked_about():
    ages = [*RNG.integers(18, 80, NUM), *[-999] * 30]
    assert column(ages).far_out.size == 30
    assert code_for_missing(column(ages)) == "-999"
    told = code_note(column(ages), "leave it")
    assert told == "-999 stands 30 times: a code for missing? then leave it"
    assert code_for_missing(column([*ages[:NUM], -999])) == ""


def test_a_rare_yes_is_not_far_out():
    assert column([1, *[0] * NUM]).far_out.size == 0
    assert column([30, 1, *[0] * NUM]).far_out.size == 1


@pytest.mark.parametrize(
    ("cells", "kind", "unsure"),
    [
        (["01/07/2020", "01/09/2020"], "date", "01/07/2020"),
        (["01/07/2020", "01/28/2020"], "date", ""),
        (["2020-07-01", "2020-09-01"], "date", ""),
        (["23.06.2018", "01.02.2018"], "category", "23.06.2018"),
        (["28/07/2020", "29/09/2020"], "category", "28/07/2020"),
        (["2020-07-01", "23.06.2018"], "category", "23.06.2018"),
        (["2020-07-01", "2020-09-01", "01/07/2020"], "date", "01/07/2020"),
        (["red", "green", "01/07/2020"], "category", ""),
        (["red", "green"], "category", ""),
        (["2012/01/31", "2012/02/01"], "category", "2012/01/31"),
        (["2012/01/31 00:00", "2012/02/01 01:00"], "category", "2012/01/31 00:00"),
        (["2012.01.31", "2012-02-01"], "category", "2012.01.31"),
        (["Jan 5, 2012", "February 6 2012"], "category", "Jan 5, 2012"),
        (["05-JAN-12", "06-FEB-13"], "category", "05-JAN-12"),
        (["05JAN1960:00:00:00", "06FEB1960:00:00:00"], "category", "05JAN1960:00:00:00"),
        (["Q42010", "Q12011"], "category", "Q42010"),
        (["12/2011", "01/2012"], "category", "12/2011"),
        (["Dec-2011", "Jan-2012"], "date", ""),
        (["Marketing 12", "Decile 10", "May"], "category", ""),
        (["2010/11", "2015/16"], "category", ""),
        (["3/2000", "13/2000", "99/2000"], "category", ""),
        (["20120131", "20120201", "20120202"], "number", "20120131"),
        (["201201", "201202", "201203"], "number", "201201"),
        (["201213", "201202", "201203"], "number", ""),
        (["20120131", "20120201"], "number", ""),
    ],
)
def test_a_date_that_may_be_meant_otherwise_is_known(cells, kind, unsure):
    found = column(20 * cells)
    assert (found.kind, found.unsure_date) == (kind, unsure)
    assert found.reads_unsure_date == (kind == "date" and unsure != "")


def test_dates_among_those_of_another_form_are_read_or_gaps():
    dates = [f"2020-{1 + i % 12:02}-01" for i in range(NUM)]
    assert column([*dates, "01/07/2020"]).reads_unsure_date
    gap = column([*dates, "28.07.2020"])
    assert (gap.kind, gap.unsure_date, gap.reads_unsure_date) == ("date", "28.07.2020", False)


def test_a_code_lies_farther_out_than_half_of_what_the_middle_half_spans():
    """Ages of 77 beside all up to 70 are ages; beside those of 20 to 60 they are not."""
    all_ages, workers = np.tile(np.arange(71), 10), np.tile(np.arange(20, 61), 10)
    assert code_for_missing(column([*all_ages, *[77] * 30])) == ""
    assert code_for_missing(column([*workers, *[77] * 30])) == "77"


def test_a_code_for_missing_is_one_that_people_write_beyond_a_gap():
    stays = np.minimum(1 + RNG.exponential(3, NUM).astype(int), 16)
    fine = {"stays": stays, "scores": RNG.integers(-1, 6, NUM), "counts": RNG.integers(0, 10, NUM)}
    for name, cells in fine.items():
        assert code_for_missing(column(cells, name)) == "", name
    money = np.where(RNG.random(NUM) < 0.8, 0, RNG.integers(1, 9000, NUM))
    assert code_for_missing(column(money)) == ""
    assert code_for_missing(column([*stays, *[240] * 30])) == ""
    ages = RNG.integers(18, 80, NUM)
    for code in (-1, 0, 999, -99, 9999):
        assert code_for_missing(column([*ages, *[code] * 30])) == str(code)
        assert code_for_missing(column([*ages, *[code] * 3])) == ""


def test_a_date_far_from_all_others_that_programs_write_for_none_is_asked_about():
    days = pd.Series(pd.Timestamp("2019-01-01") + pd.to_timedelta(RNG.integers(0, 700, NUM), "D"))
    days = days.dt.strftime("%Y-%m-%d")
    assert code_for_missing(column(days)) == ""
    for code in ("9999-12-31", "1900-01-01", "1753-01-01"):
        coded = column([*days, *[code] * 30])
        assert code_for_missing(coded) == code
        assert code_note(coded, "go").startswith(f"{code} stands 30 times: a code for missing?")
        assert code_for_missing(column([*days, *[code] * 3])) == ""
    assert code_for_missing(column([*days, *["2500-05-05"] * 30])) == ""


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["<0.5", "0.7", "1.2"], "'<0.5' count as 0.25;"),
        (["90+", "45", "> 95"], "'90+' and '> 95' count as 90 and 95;"),
        (["10+ years", "< 1 year", "2 years"], "'10+ years' and '< 1 year' count as 10 and 0.5;"),
        (["+3", "-4", "1e+3"], ""),
        (["a<b", "c+", "d"], ""),
        (["2020-07-01", "2020-08-01"], ""),
    ],
)
def test_cells_that_only_bound_a_number_are_known(cells, said):
    """All above a limit counted as the limit, without a word."""
    bounds = column(20 * cells).bounds
    assert said in bounds
    assert bool(bounds) == bool(said)


@pytest.mark.parametrize(
    ("cells", "alike"),
    [
        (["F", "Female", "M", "Male"], (("F", "Female"), ("M", "Male"))),
        (["y", "YES", "n", "No", "maybe"], ()),
        (["y", "Yes", "n", "No", "maybe"], (("y", "Yes"), ("n", "No"))),
        (["A", "B", "AB", "O"], ()),
        (["A", "AA", "B", "BB"], ()),
        (["F", "Female", "Male"], ()),
        (["S", "Single", "M", "Married", "Mixed"], ()),
    ],
)
def test_categories_and_their_first_letters_are_told(cells, alike):
    """They are two codes of one thing, and a model learns two things of them."""
    assert column(20 * cells).spelt_alike == alike


@pytest.mark.parametrize("several", [[1.0, 2.0], {"a": 1}, np.array([1.0]), [("key", 1)]])
def test_cells_of_several_values_are_not_called_empty(several):
    found = column(pd.Series([None, *[several] * 3], dtype=object))
    assert (found.kind, found.kind_shown) == ("empty", "nested")
    assert found.empty_words.startswith("its cells hold several values each; ")
    assert column(pd.Series([None, None], dtype=object)).kind_shown == "empty"
