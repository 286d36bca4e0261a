"""What an owner's officer is shown of the columns, and what is too much to pass in silence."""

import unicodedata
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
from maps import map_of

from common.column_faults import (
    MOST_NAMED,
    MOST_OWNERS,
    MOST_SHOWN,
    faults_of,
    warn_of_misfits,
)
from common.column_fit import count_empty_rows, look_at_columns
from common.errors import DoubtWarning, InputError
from owner.column_report import LEGEND, columns_table, notes_below, refuse_faults

N = 400


def people(seed, num_records=N):
    rng = np.random.default_rng(seed)
    age = rng.normal(50.0, 12.0, num_records)
    sex = rng.choice(["Female", "Male"], num_records)
    table = pd.DataFrame({"age": age, "sex": sex, "cost": 0.1 * age + rng.normal(size=num_records)})
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 700, num_records), unit="D")
    return table.assign(day=day, ward=rng.choice(["East", "West"], num_records, p=[0.95, 0.05]))


@pytest.fixture(scope="module")
def study_map():
    return map_of(people(0, 2000), "cost")


def faults(table, study_map):
    found = {
        one.name: [fault.words for fault in faults_of(one)]
        for one in look_at_columns(table, study_map)
    }
    return {name: told for name, told in found.items() if told}


def test_ordinary_records_have_no_fault(study_map):
    for seed in range(1, 20):
        assert faults(people(seed, 60), study_map) == {}


def test_a_code_for_missing_is_a_gap_and_no_unknown_category():
    """Of inputs and of classes: the map knows it, so nobody need spell it otherwise."""
    table = people(1, 2000)
    table.loc[table.index % 4 == 0, "ward"] = "unknown"
    table["ill"] = np.where(table["cost"] > table["cost"].median(), "yes", "no")
    table.loc[table.index % 20 == 0, "ill"] = "9"
    missing = {"ward": ("unknown",), "ill": (9,)}
    found = map_of(table, "ill", positive="yes", drop=("cost",), missing=missing)
    seen = {one.name: one for one in look_at_columns(table, found)}
    assert seen["ward"].filled == 0.25
    assert seen["ward"].unknown == 0.0
    assert seen["ill"].filled == 0.05
    assert seen["ill"].unknown == 0.0
    assert seen["ill"].classes.records == 1900
    assert seen["ill"].classes.values == ("yes", "no") or seen["ill"].classes.values == (
        "no",
        "yes",
    )
    assert faults(table, found) == {}


def test_a_category_that_only_looks_alike_is_told_as_one():
    """A file of another system keeps a letter and its accent apart."""
    table = people(1, 400).assign(sex=lambda t: t.sex.replace({"Female": "Fémale"}))
    other = map_of(table, "cost")
    apart = table.assign(sex=table.sex.map(partial(unicodedata.normalize, "NFD")))
    (told,) = faults(apart, other)["sex"]
    assert "whose accents are stored in another form" in told


def test_records_at_the_bounds_are_not_cut_for_the_bounds_are_written_short():
    """Answers and grades lie at the ends; a map's numbers have nine digits."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        table = pd.DataFrame(
            {
                "answer": rng.choice([-1 / 3, 2 / 3], N),
                "hours": rng.normal(size=N),
                "grade": rng.choice([1, 2, 3, 4, 5], N, p=rng.dirichlet([2] * 5)),
            }
        )
        found = map_of(table, "grade")
        answer, _, grade = look_at_columns(table, found)
        assert answer.cut == 0.0
        assert grade.cut < 0.02


CHANGES = [
    (
        "age",
        lambda t: t["age"] * 365,
        ("100% of the records are beyond", "times the public one", "unit"),
    ),
    ("age", lambda t: t["age"] / 365, ("100% of the records are beyond", "0.0027")),
    ("age", lambda t: ["n/a"] * N, ("100% of the records have no readable value",)),
    ("age", lambda _: 51.0, ("its values are all the same",)),
    ("sex", lambda t: t["sex"].str.lower(), ("100%", "'female' (did you mean 'Female'?)")),
    ("sex", lambda t: t["sex"].str[0], ("categories that the map does not know", "'M'")),
    (
        "cost",
        lambda t: t["cost"].mask(t.index < N // 5),
        ("20% of the records have no readable", 'missing_target = "drop"'),
    ),
    ("cost", lambda _: "n/a", ("100% of the records have no", "one; correct the column, or map")),
    ("cost", lambda t: t["cost"] * 365, ("beyond the public bounds", "unit")),
    (
        "cost",
        lambda t: t["cost"] + 2.8,
        ("public deviations away (the middle value is 1.56 times", "unless these records really"),
    ),
    ("age", lambda t: t["age"] + 20, ("1.6 public deviations away; look whether", "really differ")),
    (
        "age",
        lambda t: (t["age"] - t["age"].median()) * 40 + 50.0,
        ("beyond the public bounds", "(they differ ", "the map's unit"),
    ),
    ("age", lambda t: 50.0 + t["age"] / 365, ("differ 0.0025 times", "the map's unit")),
    (
        "day",
        lambda t: t["day"] + pd.DateOffset(years=40),
        ("beyond the public bounds", "dates are read as", "of another time"),
    ),
    ("day", lambda t: t["day"].astype(np.int64), ("no readable value", "dates are read as")),
    ("ward", lambda _: "West", ("shared out otherwise", "look whether each means the same here")),
]


@pytest.mark.parametrize(("column", "change", "words"), CHANGES)
def test_a_column_that_does_not_fit_is_told(column, change, words, study_map):
    table = people(1)
    table[column] = change(table)
    told = faults(table, study_map)
    assert list(told) == [column]
    for word in words:
        assert word in told[column][0]
    # No date and no category has a unit.
    assert column not in {"sex", "ward", "day"} or "unit" not in told[column][0]
    seen = look_at_columns(table, study_map)
    with pytest.raises(InputError, match=f"column '{column}': .*"):
        refuse_faults(seen, accepted=())
    refuse_faults(seen, accepted=(column,))


def test_a_middle_value_of_the_other_sign_is_no_hint_at_a_unit():
    rng = np.random.default_rng(0)
    table = people(0, 2000).assign(age=rng.normal(-50.0, 12.0, 2000))
    found = map_of(table, "cost")
    (told,) = faults(people(1), found)["age"]
    assert "beyond the public bounds and are cut; look whether the column means the same" in told


def test_many_categories_that_no_public_record_has_may_be_names(study_map):
    table = people(1)
    (told,) = faults(table.assign(ward=[f"N{i}" for i in range(N)]), study_map)["ward"]
    assert told.endswith(
        "the map does, or have the study leave the column out if it names what no public record has"
    )
    (told,) = faults(table.assign(ward=[f"N{i % 20}" for i in range(N)]), study_map)["ward"]
    assert told.endswith("; spell them as the map does, unless no public record has them")


def test_no_number_is_taken_for_a_spelling_of_another():
    table = people(0).assign(ward=np.arange(N) % 8)
    found = map_of(table, "cost", categorical=("ward",))
    (told,) = faults(table.assign(ward=np.arange(N) % 8 + 13), found)["ward"]
    assert "such as '13', '14', '15'; spell" in told
    assert "did you mean" not in told


def test_values_that_are_all_the_same_are_told_as_such(study_map):
    for cell in (50, 48.123456789):
        (told,) = faults(people(1).assign(age=cell), study_map)["age"]
        assert told.startswith("its values are all the same; look whether one value stands for")


def test_a_column_that_is_accepted_must_be_there(study_map):
    with pytest.raises(InputError, match="--accept agee: the feature map has no such column"):
        refuse_faults(look_at_columns(people(1), study_map), accepted=("agee",))
    # What is near to none of them is not guessed at.
    with pytest.raises(InputError, match="no such column; the columns are age, sex, day, ward"):
        refuse_faults(look_at_columns(people(1), study_map), accepted=("does",))


def test_a_column_that_is_missing_is_named(study_map):
    with pytest.raises(InputError, match="no column 'sex'"):
        look_at_columns(people(1).drop(columns="sex"), study_map)


def test_hostile_cells_of_a_category_are_shown_short(study_map):
    table = people(1)
    table["sex"] = "\x1b[2J" + "x" * 900
    (told,) = faults(table, study_map)["sex"]
    assert "\x1b" not in told
    assert len(told) < 300


def test_a_column_that_is_accepted_passes_no_other(study_map):
    table = people(1)
    table["age"], table["sex"] = table["age"] * 365, "x"
    with pytest.raises(InputError, match="column 'sex'") as refused:
        refuse_faults(look_at_columns(table, study_map), accepted=("age",))
    assert "'age'" not in str(refused.value)


def told_of(tables, study_map, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_misfits(tables, study_map, **options)
    assert all(one.category is DoubtWarning for one in caught)
    return [str(one.message) for one in caught]


def test_who_holds_the_records_is_warned_of_each_column_in_a_few_lines(study_map):
    wrong = people(1).assign(age=lambda t: t["age"] * 365, sex=lambda t: t["sex"].str[0])
    tables = {"owner good": people(2), "owner wrong": wrong, "owner tiny": wrong.head(19)}
    first, second = told_of(tables, study_map)
    assert first.startswith("owner wrong: column 'age': 100% of the records are beyond")
    assert second.startswith("owner wrong: column 'sex': 100% of the records have categories")


def test_what_many_owners_share_is_one_sentence(study_map):
    wrong = people(1).assign(sex=lambda t: t["sex"].str[0])
    tables = {f"owner o{i}": wrong if i % 2 else people(i) for i in range(6)}
    (told,) = told_of(tables | {"owner o7": wrong, "owner tiny": wrong.head(19)}, study_map)
    assert told.startswith(
        "column 'sex' at 4 of 7 owners (o1, o3, o5 and 1 more): at the first, "
        "100% of the records have categories"
    )
    many = {f"owner o{i}": wrong for i in range(MOST_OWNERS + 100)}
    (told,) = told_of(many, study_map)
    assert f"at {MOST_OWNERS} of the first {MOST_OWNERS} owners" in told


@pytest.mark.parametrize("beyond", [0, 1, 3, MOST_NAMED + 2])
def test_each_column_that_does_not_fit_is_named(beyond):
    names = [f"x{i}" for i in range(MOST_SHOWN + beyond)]
    rng = np.random.default_rng(1)
    table = pd.DataFrame({name: rng.normal(40.0, 2.0, 400) for name in names})
    table["y"] = rng.normal(size=400)
    wide_map = map_of(table)
    wrong = table.assign(**dict.fromkeys(names, np.nan))
    told = told_of({"new.csv": wrong}, wide_map)
    assert [sentence.split("'")[1] for sentence in told[:MOST_SHOWN]] == names[:MOST_SHOWN]
    if not beyond:
        assert len(told) == MOST_SHOWN
        return
    more = told[MOST_SHOWN]
    begins = "1 more column does not fit: " if beyond == 1 else f"{beyond} more columns do not fit"
    assert more.startswith(begins)
    for name in names[MOST_SHOWN:][:MOST_NAMED]:
        assert f"'{name}' (gaps)" in more
    assert (" and 2 more;" in more) == (beyond > MOST_NAMED)


def test_a_column_of_which_half_is_missing_does_not_fit(study_map):
    table = people(1)
    table.loc[::2, "age"] = np.nan
    (sentence,) = told_of({"new.csv": table.drop(columns="cost")}, study_map, has_target=False)
    assert sentence == (
        "new.csv: column 'age': 50% of the records have no readable value and get the public one; "
        "correct the column, or map another one to it, unless as many public records have none"
    )


def test_a_doubt_is_told_and_refuses_nothing():
    table = people(0, 2000).drop(columns="cost")
    by_sex = map_of(table, "sex", positive=("Male",))
    seen = look_at_columns(people(1).assign(sex="Female"), by_sex)
    (doubt,) = refuse_faults(seen, accepted=())
    assert doubt.startswith("column 'sex': no record is of the class 'Male'")
    assert refuse_faults(seen, accepted=("sex",)) == ()


def shown(table, feature_map):
    """Each column's cells as the officer sees them, and the lines below."""
    seen = look_at_columns(table, feature_map)
    made = columns_table(seen)
    rows = zip(*([str(cell) for cell in column.cells] for column in made.columns), strict=True)
    return {name: cells for name, *cells in rows}, list(
        notes_below(seen, empty_rows=count_empty_rows(table, feature_map))
    )


@pytest.mark.parametrize(("empty", "words"), [(1, "1 row is"), (3, "3 rows are")])
def test_rows_that_count_and_hold_nothing_are_named(study_map, empty, words):
    table = people(1).astype({"sex": object, "ward": object})
    _, notes = shown(table, study_map)
    assert notes == [LEGEND]
    table.iloc[:empty] = None
    # A single value makes a record, and what cannot be read is none.
    table.loc[empty, table.columns != "age"] = None
    table["cost"] = table["cost"].astype(object)
    table.loc[0, "cost"] = "unknown"
    _, (_, lacking, told) = shown(table, study_map)
    assert "of the records have no target that can be read, and get the public one" in lacking
    assert told.startswith(f"{words} empty in every column of the feature map, and counted in n_i")


def test_codes_for_missing_are_gaps_to_the_officer_and_no_other_spellings():
    """An invitation may name a value so that records which have it are counted as left out."""

    def with_codes(seed, num_records):
        table = people(seed, num_records)
        return table.assign(
            ward=table["ward"].mask(table.index % 4 == 0, "U"),
            sex=table["sex"].mask(table.index % 5 == 0, "?"),
        )

    coded = map_of(
        with_codes(0, 2000), "ward", positive=("West",), missing={"ward": ("U",), "sex": ("?",)}
    )
    records = with_codes(1, N)
    assert faults(records, coded) == {
        "ward": [
            "25% of the records have no readable value (the study takes 'U' for none) and get the "
            'public one; leave these records out, of the table or with missing_target = "drop", if '
            "they have no target; else correct the column, or map another one to it"
        ]
    }
    (*_, ward) = look_at_columns(records, coded)
    assert ward.classes.share == (records["ward"] == "West").sum() / (0.75 * N)
    _, (_, _, lacking) = shown(records, coded)
    assert lacking == (
        "ward: 25.0% of the records have no target that can be read (the study takes 'U' for none),"
        ' and get the public one; missing_target = "drop" in [data] of OWNER.toml leaves them out '
        "of n_i, which is public"
    )


def test_swapped_labels_of_a_class_are_seen_by_its_share():
    table = people(0, 2000).drop(columns="cost")
    by_ward = map_of(table, "ward", positive=("West",))
    swapped = people(1).replace({"ward": {"East": "West", "West": "East"}})
    for records, share in ((people(1), "4.2%"), (swapped, "95.8%")):
        cells, (legend, *shares) = shown(records, by_ward)
        # Nothing public is there to compare a class with.
        assert cells["ward"] == ["target", "0.0%", "-", "0.0%", "-", "-"]
        assert legend == LEGEND
        (told,) = shares
        assert told.startswith(f"ward: {share} of the records are 'West'; look whether it can be")


def test_what_is_not_compared_is_a_dash(study_map):
    cells, notes = shown(people(1).assign(age="n/a"), study_map)
    assert cells["age"] == ["number", "100.0%", "0.0%", "-", "-", "-"]
    assert cells["sex"][1:] == ["0.0%", "-", "0.0%", "+0.01", "-"]
    assert cells["cost"][-1] == "-"
    assert notes == [LEGEND]
