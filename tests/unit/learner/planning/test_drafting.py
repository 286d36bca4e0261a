"""What is learnt from what, and whose a record is, as a raw table tells."""

import re

import numpy as np
import pandas as pd
import pytest
from maps import map_of

from common.errors import InputError
from common.looking import look_at
from common.tables import TableSource, read_table
from common.texts import printable
from learner.planning.dealing import deal, deal_persons
from learner.planning.drafting import Target, choose_target, equal_parts, parts_by_column
from learner.planning.inputs import choose_inputs
from learner.planning.map_notes import (
    far_out_notes,
    unknown_notes,
    unknown_shares,
    unread_notes,
)


def target_of(cells, positive=()):
    table = pd.DataFrame({"ill": pd.Series(cells, dtype=object)})
    return choose_target(table, look_at(table), "ill", positive)


@pytest.mark.parametrize(
    ("yes", "no"),
    [
        (1, 0),
        ("1.0", "0.0"),
        (1, -1),
        ("TRUE", "FALSE"),
        (True, False),
        ("Yes", "No"),
        ("y", "n"),
        ("Ja", "Nein"),
        ("J", "N"),
        ("WAHR", "FALSCH"),
        ("Oui", "Non"),
        ("S\xed", "No"),
    ],
)
def test_of_two_values_the_one_that_says_yes_is_class_plus_one_however_frequent(yes, no):
    for cells in ([yes] * 7 + [no] * 3, [yes] * 3 + [no] * 7):
        target, _ = target_of(cells)
        np.testing.assert_array_equal(target.values, [1.0 if c == yes else -1.0 for c in cells])


@pytest.mark.parametrize(
    ("gaps", "said"), [(1, "1 record has none and is left out"), (2, "2 records have none and are")]
)
def test_targets_that_are_missing_are_counted(gaps, said):
    _, remarks = target_of(["yes", "no"] * 5 + [None] * gaps)
    assert any(said in remark for remark in remarks)


def test_a_target_of_decimal_commas_is_told_how_they_are_read():
    with pytest.raises(
        InputError, match=r'decimal comma with decimal = "," \(--decimal ,\), or name'
    ):
        target_of([f"{n}.{n:03d},5" for n in range(100, 200)])


def test_many_columns_left_out_for_one_reason_are_one_line():
    """Lending Club's table has eighty empty ones, whose lines would hide all others."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"y": rng.normal(size=99), "x": rng.normal(size=99), "same": 1})
    for few, many in ((8, False), (9, True)):
        wide = table.assign(**{f"empty{i}": None for i in range(few)})
        look = look_at(wide)
        target, _ = choose_target(wide, look, "y", ())
        chosen = choose_inputs(look, target, owners=None, drop=())
        told = [one for one in chosen.warnings if "no values that can be read" in one]
        assert chosen.columns == ("x",)
        assert len(told) == (1 if many else few)
        assert (told[0].split(": ", 1)[0].endswith("and 1 more")) == many
        assert "same: left out: it says the same of every record" in chosen.warnings


def test_of_two_other_values_the_rarer_is_class_plus_one():
    assert target_of(["home"] * 7 + ["died"] * 3)[0].positive == ("died",)
    assert target_of([1] * 7 + [2] * 3)[0].positive == ("2",)


@pytest.mark.parametrize(
    ("typed", "cells"),
    [
        ("true", ["TRUE", "FALSE"]),
        ("True", [True, False]),
        ("1.0", [1, 0]),
        ("1", ["1.0", "0.0"]),
        (" North  Side ", ["North Side", "South"]),
    ],
)
def test_a_class_is_found_however_it_is_typed(typed, cells):
    np.testing.assert_array_equal(target_of(cells, (typed,))[0].values, [1.0, -1.0])


def test_a_class_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(InputError) as refused:
        target_of(["yes"] * 3 + ["no"] * 4, ("yess",))
    assert str(refused.value) == (
        "--positive: ill has no 'yess' (did you mean 'yes'?); it has 'no' (4) and 'yes' (3)"
    )
    with pytest.raises(InputError, match=r"has no '1, 2'; it has .*; repeat --positive for each"):
        target_of([0, 1, 2], ("1, 2",))


def test_what_counts_as_class_minus_one_is_told():
    cells = ["Yes"] * 9 + ["yes"] * 8 + ["no"] * 7 + ["unknown"] * 6
    _, notes = target_of(cells, ("Yes",))
    assert "target ill: class -1 is all else: 'yes' (8), 'no' (7) and 'unknown' (6)" in notes
    _, notes = target_of(cells, ("Yes", "yes", "unknown"))
    assert not any("class -1" in note for note in notes)


def test_values_that_look_like_class_plus_one_and_are_not_named_are_told():
    cells = ["Yes"] * 9 + ["yes"] * 8 + ["no"] * 7 + ["YES", "y"] * 3 + ["yet"]
    _, notes = target_of(cells, ("Yes", "yes"))
    (told,) = [note for note in notes if "like class +1" in note]
    assert told.startswith("target ill: 'YES' and 'y' look like class +1 and would be class -1")
    assert not any("like class +1" in note for note in target_of(["Yes", "no"] * 9, ("Yes",))[1])
    assert "'Yes' looks like class +1" in "".join(target_of(["Yes", "Yes", "yes"])[1])


@pytest.mark.parametrize("values", [(1, -1), ("A+", "A-"), ("1", "\u22121")])
def test_values_of_other_signs_do_not_look_alike(values):
    _, notes = target_of([*values] * 9, values[:1])
    assert not any("like class +1" in note for note in notes)


def test_categories_that_are_spelt_in_several_ways_are_told():
    told = notes_about(
        city=np.resize(["Leiden", "leiden", "LEIDEN", "Den Haag", "den-haag", "Delft"], 400),
        smokes=np.resize(["Y", "y", "n"], 400),
        grade=np.resize(["A+", "A-", "A", "AA"], 400),
    )
    assert (
        "city: 'Leiden' and 'leiden' and 'LEIDEN' are different categories, and there are more "
        "such values; spell them alike if they are one"
    ) in told
    assert "smokes: 'Y' and 'y' are different categories; spell" in told
    assert "grade: " not in told


def test_bounds_among_numbers_are_told_of_inputs_and_target():
    cells = [f"{k % 7}.5" if k % 9 else "< 0.5" for k in range(400)]
    assert "creatinine: cells such as '< 0.5' count as 0.25; leave" in notes_about(creatinine=cells)
    table = pd.DataFrame({"y": cells})
    _, notes = choose_target(table, look_at(table), "y", ())
    assert "target y: cells such as '< 0.5' count as 0.25; leave" in "".join(notes)


@pytest.mark.parametrize("separator", [",", ";"])
def test_amounts_of_money_with_a_decimal_comma_name_no_records(separator, tmp_path):
    rng = np.random.default_rng(5)
    table = pd.DataFrame(
        {
            "price": [
                f"€ {n // 100}.{n % 1000:03},{n % 97:02}" for n in rng.permutation(90_000)[:400]
            ],
            "y": rng.integers(0, 1000, 400),
            "x": rng.integers(0, 1000, 400),
        }
    )
    table.to_csv(tmp_path / "t.csv", index=False, sep=separator)
    look = look_at(read_table(TableSource(path=tmp_path / "t.csv"), base=tmp_path))
    if separator == ";":
        assert look.columns["price"].kind == "number"
        return
    target = Target("y", (), look.columns["y"].numbers, 0)
    (why, *_) = choose_inputs(look, target, owners=None, drop=()).warnings
    assert why.startswith(
        "price: left out: its numbers have a decimal comma, which is read as text"
    )
    assert "--decimal ," in why


def test_amounts_with_the_currency_behind_are_no_names_of_records():
    amounts = [f"{n // 1000 + 1}.{n % 1000:03} €" for n in range(0, 40_000, 100)]
    told = notes_about(cost=amounts, weight=["12 kg", "14 kg"] * 200)
    assert "cost: left out: its numbers have a form that is not read (1.000 €)" in told
    assert "weight: its numbers have a form that is not read (12 kg), so they are names" in told
    with pytest.raises(InputError, match="write numbers plainly, such as -1234, or name"):
        target_of(["1 kg", "2 kg", "3 kg"])


def test_a_column_called_as_what_predictions_add_is_told_of():
    told = notes_about(prediction=np.arange(400) % 7, score=np.arange(400) % 5)
    assert "prediction: copriv predict adds a column of this name; rename it, or leave" in told
    assert "score: copriv predict" not in told


def test_why_no_column_is_left_is_told():
    with pytest.raises(InputError) as refused:
        notes_about(same=["x"] * 400, row_id=np.arange(400))
    told = str(refused.value)
    assert told.startswith("init: no column is left to predict from (same: it says the same of ")
    assert "; row_id: it names records (an identifier), so it teaches nothing" in told
    with pytest.raises(InputError, match="; c: it says the same of every record; 2 other columns"):
        notes_about(**{name: ["x"] * 400 for name in "abcde"})
    with pytest.raises(InputError, match="no column is left to predict from; give a table with"):
        notes_about()


def test_a_target_of_several_values_in_each_cell_is_told_as_one():
    table = pd.DataFrame({"scores": [[1.0, 2.0]] * 50})
    with pytest.raises(InputError, match=r"^--target scores: its cells hold several values each; "):
        choose_target(table, look_at(table), "scores", ())


def test_a_target_that_says_the_same_of_every_record_is_told_as_one():
    for positive in ((), ("7",)):
        table = pd.DataFrame({"y": [7] * 40})
        with pytest.raises(InputError, match=r"same of every record, '7' \(40\); give anot"):
            choose_target(table, look_at(table), "y", positive)
    with pytest.raises(InputError, match="the same of every record, no value; give another"):
        target_of([None] * 40)


def test_of_many_columns_with_few_numbers_what_to_do_is_not_cut_off():
    rng = np.random.default_rng(3)
    told = notes_about(**{f"a-rather-long-name-{i}": rng.integers(0, 5, 400) for i in range(60)})
    (few,) = [line for line in told.splitlines() if "few whole numbers" in line]
    assert "a-rather-long-name-11 and 48 more: few whole numbers" in few
    assert printable(few).endswith("give --categorical")


def test_values_that_hardly_any_public_record_has_are_told_of():
    rng = np.random.default_rng(4)
    table = pd.DataFrame(
        {
            "y": rng.normal(size=400),
            "person": [f"N{i // 2}A1" for i in rng.permutation(400)],
            "kind": np.where(np.arange(400) % 3 > 0, "red", "green"),
        }
    )
    feature_map = map_of(table.head(60))
    shares = unknown_shares(table.tail(340), feature_map)
    (told,) = unknown_notes(shares, ())
    assert re.match("person: [89][0-9]% of the owners' records have values that no public", told)
    (told,) = unknown_notes(shares, {"person"})
    assert re.match("person: left out: [89][0-9]% of the owners' records have values that no", told)
    assert unknown_shares(table.head(60), feature_map) == {}


def test_dates_of_another_form_among_others_are_told_of():
    dates = [f"2020-{1 + i % 12:02}-{1 + i % 28:02}" for i in range(400)]
    mixed = [date if i % 3 else f"{1 + i % 28:02}.07.2020" for i, date in enumerate(dates)]
    told = notes_about(mixed=mixed, few=["28.07.2020", *dates[1:]])
    assert "mixed: 13.07.2020 is no form of date that is read, so its dates are names" in told
    read = "few: dates become months since January 2000"
    assert f"{read}; 28.07.2020 is not read, so it is a gap" in told


def notes_about(**columns):
    """What is told of inputs beside a target that they do not tell."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"y": rng.normal(size=400)} | columns)
    look = look_at(table)
    target, _ = choose_target(table, look, "y", ())
    warnings = choose_inputs(look, target, owners=None, drop=()).warnings
    feature_map = map_of(table)
    return "\n".join([*warnings, *far_out_notes(look, feature_map)])


def test_numbers_far_out_are_said_to_be_cut_only_where_they_are():
    ages = np.random.default_rng(1).integers(18, 80, 400)
    told = notes_about(age=np.where(np.arange(400) % 12 == 0, -999, ages), one=ages * 1.0)
    assert "age: 34 outliers, within the public bounds (-999 to 79)" in told
    assert "-999 stands 34 times: a code for missing?" in told
    assert "one: " not in told
    told = notes_about(age=np.where(np.arange(400) == 7, 10**6, ages))
    assert "age: 1 outlier, cut at the public bounds (18 to 79)" in told
    assert "a code for missing" not in told
    told = notes_about(pay=np.where(np.arange(400) < 9, 10**9, ages * 10**6))
    assert "pay: 9 outliers, within the public bounds (18,000,000 to 1,000,000,000)" in told
    far = np.where(np.arange(400) % 12 == 0, -999, ages)
    told = notes_about(age=np.where(np.arange(400) == 7, 10**6, far))
    assert "age: 35 outliers, 1 of them cut at the public bounds (-999 to 79)" in told


def test_a_target_code_at_its_bound_is_not_said_to_be_cut():
    y = np.random.default_rng(2).normal(size=400)
    told = notes_about(y=np.where(np.arange(400) % 20 == 0, 9999, y), x=y[::-1])
    assert "target y: 20 outliers, within the public bounds" in told
    assert "9999 stands 20 times" in told
    # What is named can be typed: Huber loss alone is refused.
    assert 'loss = "huber" with delta = "auto" minds far targets less' in told


def test_dates_that_may_be_meant_otherwise_are_told():
    months = np.arange(400) % 12 + 1
    told = notes_about(
        slashed=[f"01/{m:02}/2020" for m in months],
        dotted=[f"{d % 28 + 1}.{m:02}.{2000 + d % 7}" for d, m in enumerate(months)],
        iso=[f"2020-{m:02}-1{d % 9}" for d, m in enumerate(months)],
        hourly=pd.date_range("2020-01-01", periods=400, freq="h").astype(str),
    )
    assert "slashed: dates become months since January 2000; 01/01/2020 is read as month/" in told
    assert "dotted: 13.01.2005 is no form of date that is read" in told
    assert "iso: dates become months since January 2000\n" in f"{told}\n"
    assert "hourly: dates become months since January 2000; their time of day is left out" in told


def test_dates_of_other_forms_that_are_not_read_are_no_names_of_records():
    days = pd.date_range("2015-01-01", periods=400)
    told = notes_about(
        strokes=days.strftime("%Y/%m/%d"),
        words=[f"{day:%b} {day.day}, {day.year}" for day in days[np.arange(400) % 90]],
        digits=days.strftime("%Y%m%d").astype(int),
    )
    assert "strokes: left out: its dates have a form that is not read (2015/01/01)" in told
    assert "words: Jan 1, 2015 is no form of date that is read, so its dates are names" in told
    assert "digits: 20150101 looks like a date, and its numbers are taken for amounts" in told
    assert "identifier" not in told


def test_many_dates_of_an_unread_form_are_no_free_text():
    days = pd.date_range("2015-01-01", periods=1400).strftime("%d.%m.%Y")
    table = pd.DataFrame(
        {"y": np.arange(2800) % 7, "x": np.arange(2800) % 5, "day": [*days, *days]}
    )
    look = look_at(table)
    target, _ = choose_target(table, look, "y", ())
    told, few = choose_inputs(look, target, owners=None, drop=()).warnings
    assert few.startswith("x: few whole numbers, taken for amounts")
    assert told.startswith("day: left out: its dates have a form that is not read (13.01.2015)")


def test_amounts_stay_inputs_and_are_told():
    told = notes_about(income=np.random.default_rng(3).permutation(10**6)[:400])
    assert "income: nearly every record has another number" in told
    assert "left out" not in told


def test_owners_spelt_in_two_ways_are_told():
    cells = pd.Series(["North", "NORTH ", "South"] * 100, name="branch")
    parts, notes = parts_by_column(cells, np.arange(300))
    assert len(parts) == 3
    (note,) = notes
    assert "branch: 'NORTH' and 'North' are different owners; spell them alike" in note


def inputs_of(columns, **chosen):
    """The columns that stay, and what is told of them."""
    table = pd.DataFrame(columns)
    look = look_at(table)
    target, _ = choose_target(table, look, "y", ())
    found = choose_inputs(look, target, **{"owners": None, "drop": ()} | chosen)
    return found.columns, "\n".join(found.warnings)


RNG = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def same_draws(monkeypatch):
    """Each test draws the same, whichever have run before it."""
    monkeypatch.setitem(globals(), "RNG", np.random.default_rng(7))


SCHOOL = RNG.permutation(9000)[:40] + 1000
PLACES = RNG.integers(0, 40, 2000)
SCHOOLS = {
    "y": RNG.normal(size=2000),
    "school": SCHOOL[PLACES],
    "mean": RNG.normal(size=40).round(3)[PLACES],
    "head": np.array([f"head {i}" for i in range(40)])[PLACES],
    "x": RNG.normal(size=2000),
}


def test_texts_among_numbers_are_told_to_become_gaps_with_an_example_that_is_public():
    plain = [str(i % 50) for i in range(400)]
    table = pd.DataFrame({"a": plain, "b": plain, "c": plain, "y": plain, "day": "2020-01-02"})
    private, public = [3, 4], [5, 300]
    table.loc[private, ["a", "b", "y"]] = "secret"
    table.loc[public, ["a", "y"]] = "n/a?"
    table.loc[7, ["a", "c", "y"]] = ""
    table.loc[5, "day"] = "soon"
    look = look_at(table)
    found = choose_target(table, look, "y", ())[0]
    notes = unread_notes(look, table.iloc[200:350], ("a", "b", "c", "day"), found)
    names = "clean them, or give the column with --categorical if its values are names"
    assert notes == [
        "target y: cells that are not numbers and count as empty: 4, such as 'n/a?'; clean them",
        f"a: cells that are not numbers and count as empty: 4, such as 'n/a?'; {names}",
        f"b: cells that are not numbers and count as empty: 2; {names}",
        f"day: cells that are not dates and count as empty: 1; {names}",
    ]
    assert "4, such as 'secret'" in unread_notes(look, table.iloc[:6], ("a",), found)[1]
    table.loc[3, "a"] = "x" * 999
    (told,) = unread_notes(look_at(table), table.iloc[:4], ("a",), None)
    assert len(told) < 250


def test_of_whom_no_owner_is_made_is_told_with_why_and_what_to_do():
    """All records are accounted for."""
    sizes = {"a": 70, "b": 60, "c": 55, "d": 3, "E" * 90: 2, None: 4, "": 1}
    names = pd.Series([name for name, size in sizes.items() for _ in range(size)], name="site")
    parts, notes = parts_by_column(names, np.arange(len(names)), most=2)
    assert [part.name for part in parts] == ["a", "b"]
    assert notes == [
        f"site: of no owner are 'd' (3) and '{'E' * 40}' (2): an owner has at least 50 records "
        "beside the public ones; write larger groups into the column, or give --owners a number",
        "site: of no owner are 'c' (55): not among the 2 largest; give a larger --most",
        "site: of no owner are 5 records that have no value there; fill these cells in",
    ]
    _, notes = parts_by_column(names[names == "a"], np.arange(70))
    assert notes == []


def test_names_that_stand_above_their_rows_alone_are_told_of():
    """As cells that were merged in a spreadsheet leave them."""
    names = pd.Series(["a", *[None] * 80, "b", *[""] * 60], name="site")
    with pytest.raises(InputError, match=r"'a' has 1, the most\), and nothing stands in 140 rows;"):
        parts_by_column(names, np.arange(len(names)))
    with pytest.raises(InputError, match=r"'a' has 9, the most\); give another column"):
        parts_by_column(pd.Series(["a"] * 9, name="site"), np.arange(9))


def test_a_mark_beside_empty_cells_does_not_say_the_same_of_every_record():
    told = notes_about(flag=["x", ""] * 200, land=["DE"] * 400, age=[*range(40)] * 10)
    assert "flag: left out: it has one value, and none in 200 of 400 rows; if an empty cell" in told
    assert "land: left out: it says the same of every record" in told


def test_records_without_a_target_are_nobodys_in_no_sentence():
    names = pd.Series(["a"] * 60 + ["b"] * 3 + [None] * 2, name="site")
    known = np.arange(65) < 61
    _, notes = parts_by_column(names, np.arange(65), known=known)
    assert [note[:30] for note in notes] == ["site: of no owner are 'b' (1):"]


def test_of_columns_that_say_the_same_the_one_that_measures_stays():
    columns, told = inputs_of(SCHOOLS)
    assert columns == ("mean", "x")
    assert "school: left out: it says the same as mean" in told
    assert "head: left out: it says the same as mean" in told


def test_of_amounts_that_rise_together_the_first_stays():
    years = PLACES[:2000] % 19
    for other in (years**2, np.log1p(years), -years / 7.0):
        columns, told = inputs_of({"y": SCHOOLS["y"], "years": years, "other": other})
        assert columns == ("years",)
        assert "other: left out: it says the same as years" in told


def test_of_numbers_that_may_be_codes_and_amounts_with_fractions_these_stay():
    state = np.unique(RNG.permutation(56))[PLACES] + PLACES // 4
    columns, told = inputs_of(
        {"y": SCHOOLS["y"], "state": state, "mean": SCHOOLS["mean"], "x": SCHOOLS["x"]}
    )
    assert columns == ("mean", "x")
    assert "state: left out: it says the same as mean" in told


def test_amounts_that_go_with_a_place_are_not_the_same_as_each_other():
    income, age = RNG.normal(size=(2, 40)).round(4)[:, PLACES]
    beds = PLACES * 20 + 100
    columns, told = inputs_of(
        {"y": SCHOOLS["y"], "income": income, "age": age, "older": np.exp(age), "beds": beds}
    )
    assert columns == ("income", "age")
    assert "older: left out: it says the same as age" in told
    assert (
        "beds: left out: it says the same as income, as a code does; add it to features.columns "
        "if its numbers are amounts" in told
    )


def test_logarithms_of_amounts_that_hardly_repeat_are_left_out():
    pay = RNG.gamma(2.0, 1000.0, 2000).round(2)
    other = RNG.permutation(pay)
    columns, told = inputs_of(
        {"y": SCHOOLS["y"], "pay": pay, "log pay": np.log(pay), "less": -pay, "other": other}
    )
    assert columns == ("pay", "other")
    assert "log pay: left out: it says the same as pay" in told
    assert "less: left out: it says the same as pay" in told


def test_a_code_of_few_records_and_its_text_are_learnt_from_once():
    land = np.arange(2000) // 8
    code = np.array([f"{chr(65 + i % 26)}{chr(65 + i // 26)}X" for i in range(250)])[land]
    table = {"y": SCHOOLS["y"], "code": code, "land": [f"Land {i}" for i in land]}
    columns, told = inputs_of(table)
    assert columns == ("code",)
    assert "land: left out: it says the same as code" in told


def test_a_table_of_which_every_row_stands_twice_keeps_its_columns():
    pay, age = RNG.gamma(2.0, 1000.0, (2, 1000)).round(2)
    columns, _ = inputs_of(
        {"y": SCHOOLS["y"], "pay": [*pay, *pay], "age": [*age, *age], "x": [*pay - age] * 2}
    )
    assert columns == ("pay", "age", "x")


def test_every_column_that_names_the_owner_is_told():
    with_gaps = pd.Series(SCHOOLS["head"]).mask(RNG.random(2000) < 0.01)
    columns, told = inputs_of(SCHOOLS | {"head": with_gaps}, owners="school")
    assert columns == ("mean", "x")
    assert "head: left out: it names the owner, as school does" in told
    assert "mean: identifies the owner, and each owner has a value of its own" in told
    assert "x: " not in told


def test_a_column_that_tells_the_owner_among_others_stays_and_is_told():
    doctors = [f"doctor {2 * place + i % 2}" for i, place in enumerate(PLACES)]
    columns, told = inputs_of(SCHOOLS | {"doctor": doctors}, owners="school")
    assert "doctor" in columns
    assert "doctor: identifies the owner; if" in told


def test_a_column_of_which_each_owner_has_one_value_stays_and_is_told():
    region = np.array(["north", "south", "west", "east"])[PLACES % 4]
    columns, told = inputs_of(SCHOOLS | {"region": region}, owners="school")
    assert "region" in columns
    assert "region: each owner has one value there, so own models learn nothing of it" in told
    assert "x: " not in told


def test_an_owner_far_larger_than_all_others_makes_no_column_name_it():
    site = np.where(np.arange(2000) < 1980, "large", "small")
    columns, told = inputs_of({"y": SCHOOLS["y"], "sex": PLACES % 2, "site": site}, owners="site")
    assert columns == ("sex",)
    assert "the owner" not in told


def test_numbers_that_look_like_names_are_told_and_amounts_are_not():
    amounts = RNG.integers(1, 40, 2000) * 250
    _, told = inputs_of({"y": SCHOOLS["y"], "school": SCHOOLS["school"], "loan": amounts})
    assert "school: whole numbers that repeat and lie far apart, as names do" in told
    assert "loan" not in told
    _, told = inputs_of(SCHOOLS, categorical=["school"], drop=["mean", "head"])
    assert "school" not in told


def test_numbers_that_begin_with_0_are_told_as_codes_are():
    places = {"y": SCHOOLS["y"], "plz": [f"{1000 + place:05}" for place in PLACES]}
    _, told = inputs_of(places)
    assert " begins with 0, as codes do, and is taken for an amount; if its numbers" in told
    _, told = inputs_of(places, categorical=["plz"])
    assert "plz" not in told


@pytest.mark.parametrize(
    "leak",
    [
        lambda ill: np.where(ill, RNG.integers(1, 5, ill.size), 0),
        lambda ill: np.where(ill, RNG.normal(50, 1, ill.size), RNG.normal(0, 9, ill.size)),
        lambda ill: np.where(ill, RNG.choice(["sepsis", "stroke"], ill.size), "none at all"),
        lambda ill: np.where(ill, RNG.normal(size=ill.size), np.nan),
    ],
    ids=["stage", "threshold", "kinds", "gaps"],
)
def test_columns_that_tell_a_class_in_any_way_are_leaks(leak):
    assert callable(leak)
    ill = RNG.random(600) < 0.4
    columns = {"y": np.where(ill, "yes", "no"), "leak": leak(ill), "x": RNG.normal(size=600)}
    kept, told = inputs_of(columns)
    assert kept == ("x",)
    assert "leak: left out: it explains " in told


def test_a_number_that_rises_with_the_target_or_turns_is_a_leak():
    y = RNG.normal(size=2000)
    kept, _ = inputs_of({"y": y, "rises": np.exp(4 * y), "x": RNG.normal(size=2000)})
    assert kept == ("x",)
    turns = RNG.uniform(-2, 2, 2000)
    kept, _ = inputs_of({"y": turns**2, "turns": turns, "x": RNG.normal(size=2000)})
    assert kept == ("x",)


def test_one_number_far_out_makes_no_column_a_leak():
    y = RNG.normal(8, 2, 600)
    y[0] = 1e6
    sex = np.where(np.arange(600) == 0, "d", RNG.choice(["f", "m"], 600))
    weight = np.where(np.arange(600) == 0, np.nan, RNG.normal(size=600))
    rare = np.where(np.arange(600) == 0, 9e9, RNG.normal(size=600))
    kept, told = inputs_of({"y": y, "sex": sex, "weight": weight, "rare": rare})
    assert kept == ("sex", "weight", "rare")
    assert not told


def test_columns_that_tell_the_target_only_together_are_asked_about():
    stay = RNG.gamma(2, 3, 900).round() + 1
    begin = pd.Timestamp("2021-01-01") + pd.to_timedelta(RNG.integers(0, 700, 900), "D")
    end = begin + pd.to_timedelta(stay, "D")
    age = RNG.integers(18, 90, 900)
    dates = {"in": begin.strftime("%Y-%m-%d"), "out": end.strftime("%Y-%m-%d")}
    kept, told = inputs_of({"y": stay, "age": age, **dates})
    assert kept == ("age", "in", "out")
    assert "in, out: together explain 99% of the target" in told
    # A good model of many columns is no leak.
    many = {f"x{i}": RNG.normal(size=900) for i in range(6)}
    assert "together" not in inputs_of({"y": sum(many.values()), **many})[1]
    # What is nearly a sum is told of only where none of its columns is asked about anyway.
    parts = {"room": 2 * many["x0"], "drugs": many["x1"]}
    told = inputs_of({"y": parts["room"] + parts["drugs"] + many["x2"] / 2, **parts})[1]
    assert "room: explains" in told
    assert "together" not in told


def test_columns_of_one_doubt_are_one_sentence():
    y = RNG.normal(size=900)
    noisy = {f"x{i}": y + RNG.normal(size=900) * i / 3 for i in (2, 1)}
    _, told = inputs_of({"y": y, **noisy})
    assert re.fullmatch(r"x1 \(\d+%\), x2 \(\d+%\): each explains so much of the .*", told)
    sums = {f"sum{i}": RNG.permutation(10**6)[:900] for i in range(2)}
    monthly = pd.date_range("1950-01-01", periods=900, freq="MS").astype(str)
    _, told = inputs_of({"y": y, **sums, "month": monthly})
    says = "nearly every record has another number; if they name records, leave them out"
    assert f"sum0, sum1: {says}" in told
    assert "month: nearly" not in told


def test_parts_whose_sum_is_the_target_are_told_of_however_much_one_explains():
    early, late = RNG.poisson(2, 900), RNG.poisson(0.5, 900)
    early[:3] = 200
    _, told = inputs_of({"y": early + late, "early": early, "late": late})
    assert "early: explains" in told
    assert "early, late: together explain 100% of the target" in told


@pytest.mark.parametrize("distinct", [30, 3000], ids=["names", "free text"])
def test_words_among_numbers_are_told_of_since_they_make_names_of_all(distinct):
    """A laboratory's value that is missing in a tenth of the records, in words."""
    values = np.resize(RNG.permutation(distinct) / 10, 4000)
    cells = np.where(RNG.random(4000) < 0.1, "not done", values.astype(str))
    kept, told = inputs_of({"y": RNG.normal(size=4000), "crp": cells, "x": RNG.normal(size=4000)})
    assert kept == (("crp", "x") if distinct == 30 else ("x",))
    assert "most of its values are numbers or dates, but others such as 'not done' are not" in told
    assert "leave their cells empty" in told
    # Kinds of which some are digits are no amounts.
    kinds = RNG.choice(["1", "2", "K", "P"], 4000)
    assert "numbers" not in inputs_of({"y": RNG.normal(size=4000), "grade": kinds})[1]


def test_columns_of_one_oddity_are_told_of_in_one_sentence():
    """A table of loans had five sentences on gaps and four on numbers far apart."""
    gaps = np.where(RNG.random(3000) < 0.8, np.nan, RNG.normal(size=3000))
    far = 41 * RNG.integers(1, 99, 3000) + RNG.integers(0, 2, 3000)
    columns = {
        "y": RNG.normal(size=3000),
        "joint": gaps,
        "debt": gaps,
        "zone": far,
        "area": far + 1,
    }
    told = inputs_of(columns | {"debt": gaps[::-1], "area": RNG.permutation(far)})[1]
    empty = "joint (80%), debt (80%): so many cells are empty and get one public value; owners"
    assert empty in told.replace("79%", "80%").replace("81%", "80%")
    assert "zone, area: whole numbers that repeat and lie far apart" in told


def test_rows_of_a_person_stay_together_whatever_their_order():
    who = RNG.integers(0, 300, 2000)
    whose = np.unique(who, return_index=True)[1][who]
    public = deal_persons(whose, 200)
    assert 150 < len(public) < 250
    others = np.setdiff1d(np.arange(2000), public)
    parts = [part.places for part in equal_parts(others, 4, whose)]
    assert np.array_equal(np.sort(np.concatenate(parts)), others)
    assert all(abs(len(places) - len(others) / 4) < 20 for places in parts)
    held = [set(who[places]) for places in (public, *parts)]
    assert sum(map(len, held)) == len(set().union(*held)) == 300
    # Without persons nothing moves.
    alone = np.arange(2000)
    assert np.array_equal(deal_persons(alone, 200), deal(2000, 200))
    for count in (1, 3, 7):
        places = [part.places.tolist() for part in equal_parts(others, count, alone)]
        assert places == [places.tolist() for places in np.array_split(others, count)]


def test_more_owners_than_persons_have_equal_parts_all_the_same():
    parts = equal_parts(np.arange(100), 5, np.repeat([0, 90], [90, 10]))
    assert [len(part.places) for part in parts] == [20] * 5


@pytest.mark.parametrize("name", ["PatientenNr", "patient_id"])
def test_a_number_of_persons_with_several_records_is_no_input(name):
    """It was a category of a thousand values, each of a person."""
    who = RNG.integers(1, 1200, 3000)
    columns = {"y": RNG.normal(size=3000), "x": RNG.normal(size=3000)}
    kept, told = inputs_of(columns | {name: who})
    assert kept == ("x",)
    assert f"{name}: left out: each of its values names few records (an identifier)" in told
    told_of = inputs_of(columns | {name: np.arange(3000) % 40, "patient": np.arange(3000) % 40})[1]
    assert "patient: left out: each of its values names a person (an identifier)" in told_of
    # A number of a ward, or of calls, says something of many records.
    kept, _ = inputs_of(columns | {"ward_nr": who % 40, "number of calls": who})
    assert kept == ("x", "ward_nr", "number of calls")


def test_a_target_of_numbers_names_the_words_among_them():
    cells = [*map(str, range(90)), *["unknown"] * 10]
    with pytest.raises(InputError, match="empty the cells that are not numbers, such as 'unknown'"):
        target_of(cells)


def test_a_target_of_few_whole_numbers_may_be_one_of_kinds():
    said = "3 different whole numbers, taken for amounts"
    assert said in target_of([0, 1, 9] * 30)[1][0]
    assert not target_of([0.5, 1, 9] * 30)[1]
    assert not target_of([*range(11)] * 30)[1]
    assert "class +1 is 1, 33.3%" in target_of([0, 1, 9] * 30, positive=("1",))[1][0]


def test_a_mark_of_one_class_alone_leaves_the_other_to_be_written():
    with pytest.raises(InputError, match=r"'x' \(3\), and nothing of 7; write what they are where"):
        target_of(["x"] * 3 + [""] * 7)
    with pytest.raises(InputError, match=r"'x' \(3\); give another column"):
        target_of(["x"] * 3)


def test_noise_is_no_leak_however_few_records_and_rare_the_class():
    for seed in range(200):
        rng = np.random.default_rng(seed)
        y = np.where(np.arange(100) < 2, "yes", "no")
        kept, told = inputs_of({"y": y, "x": rng.normal(size=100), "k": rng.integers(0, 4, 100)})
        assert kept == ("x", "k")
        assert "explains" not in told


def test_a_short_key_of_many_owners_is_dealt_with_quickly():
    cells = pd.Series(np.arange(200_000) // 2, name="id")
    with pytest.raises(InputError, match=r"no value has 50 records.* \('.+' has \d+, the most\)"):
        parts_by_column(cells, np.arange(200_000))


def test_columns_named_like_what_comes_later_are_asked_about():
    pay = RNG.gamma(2.0, 1000.0, (2, 2000)).round(2)
    table = {"y": SCHOOLS["y"], "total_pymnt": pay[0], "previous payments": pay[1]}
    columns, told = inputs_of(table)
    assert "total_pymnt" in columns
    assert "total_pymnt: named like what is known only later" in told
    assert "if not, --drop total_pymnt" in told
    assert "previous" not in told


def test_a_zero_where_no_amount_can_be_0_is_told_of_however_rare():
    chol = RNG.integers(120, 400, 2000)
    table = {"y": SCHOOLS["y"], "chol": np.where(np.arange(2000) == 7, 0, chol), "x": chol % 50}
    assert "chol: 0 stands once, where no amount can be 0" in inputs_of(table)[1]
    assert "x: 0" not in inputs_of(table)[1]


def test_a_column_that_nearly_tells_the_owner_is_told():
    other = np.where(RNG.random(2000) < 0.3, RNG.permutation(PLACES), PLACES)
    _, told = inputs_of(SCHOOLS | {"ward": [f"ward {i}" for i in other]}, owners="school")
    assert re.search(r"ward: tells who the owner is: it saves [67][0-9]% of wrong guesses", told)
