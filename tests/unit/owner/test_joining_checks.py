"""What an officer types when joining, and would do nothing, is refused with its reason."""

from fractions import Fraction
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from maps import map_of

from common.errors import InputError
from owner.cli import cli
from owner.joining import asked_in_words
from owner.joining_checks import check_columns_typed, check_lifetime, check_spellings_held
from owner.translation import parse_pairs, parse_spellings


def loans(num_records=400):
    rng = np.random.default_rng(0)
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 700, num_records), unit="D")
    return pd.DataFrame(
        {
            "age": rng.normal(50.0, 12.0, num_records).round(),
            "job": rng.choice(["cook", "clerk", "nurse"], num_records),
            "day": day,
            "default": rng.choice(["yes", "no"], num_records, p=[0.2, 0.8]),
        }
    )


@pytest.fixture(scope="module")
def study_map():
    return map_of(loans(), "default", positive=("yes",))


def typed(study_map, *spellings, unit="", rename=""):
    units = [unit] if unit else []
    renamed = parse_pairs("--rename", rename.split())
    check_columns_typed(
        study_map, rename=renamed, units=units, spellings=parse_spellings(spellings)
    )


@pytest.mark.parametrize(
    ("spelling", "words"),
    [
        ("jobs:Koch=cook", "the study has no such column; did you mean 'job'?"),
        ("job:Koch=Bar", "the study knows no 'Bar' there; give 'clerk', 'cook' or 'nurse'"),
        ("job:Koch=cok", "no 'cok' there (did you mean 'cook'?)"),
        ("default:Y=ja", "the study knows no 'ja' there; give 'yes' or 'no'"),
        ("age:1=2", "the study reads '1' as it is, for it has numbers there"),
        ("age:old=older", "the study reads no 'older' there; it has numbers, so give one"),
        ("day:x=y", "the study reads no 'y' there; it has dates"),
    ],
)
def test_a_spelling_in_words_that_the_study_has_not_is_refused(study_map, spelling, words):
    with pytest.raises(InputError) as refused:
        typed(study_map, spelling)
    assert words in str(refused.value)
    assert str(refused.value).startswith("--spelling ")


@pytest.mark.parametrize(
    "spelling",
    ["job:Koch=cook", "job:?=n/a", "default:Y=no", "age:999=n/a", "age:forty=40", "day:x=2020-07"],
)
def test_a_spelling_that_says_something_to_the_study_passes(study_map, spelling):
    typed(study_map, spelling)


@pytest.mark.parametrize(
    ("typed_words", "told"),
    [
        (("--epsilon-lifetime", "0,5"), "--epsilon-lifetime: got '0,5'"),
        (("--unit", "age=50%"), "--unit: got '50%'"),
    ],
)
def test_a_number_typed_with_a_comma_or_a_percent_sign_is_told_how_to_be_written(
    tmp_path, typed_words, told
):
    (tmp_path / "a.invitation").touch()
    words = ["join", str(tmp_path / "a.invitation"), "--data", "stays.csv", *typed_words]
    with pytest.raises(InputError, match=f"^{told}, expected a number .*; write a number without"):
        cli(words, standalone_mode=False)


def test_a_category_and_a_date_have_no_unit(study_map):
    for name, held in (("job", "categories"), ("default", "categories"), ("day", "dates")):
        with pytest.raises(InputError, match=f"--unit {name}: '{name}' holds {held} in the study"):
            typed(study_map, unit=name)
    typed(study_map, unit="age")
    with pytest.raises(InputError, match="--unit and --spelling age: a column takes one"):
        typed(study_map, "age:999=n/a", unit="age")


def test_a_column_that_the_study_has_not_is_neither_renamed_nor_measured(study_map):
    for words in ({"rename": "agee=years"}, {"unit": "agee"}):
        with pytest.raises(InputError, match="agee: the study has no such column; did you mean"):
            typed(study_map, **words)


def test_a_spelling_that_no_record_has_is_refused():
    check_spellings_held({"job": {" cook ": "Koch"}, "age": {"50.0": "n/a"}}, loans())
    with pytest.raises(InputError, match="--spelling job:Foo=nurse: no record has 'Foo' there; "):
        check_spellings_held({"job": {"Foo": "nurse"}}, loans())
    with pytest.raises(InputError, match=r"no record has 'Cook' there \(did you mean 'cook'\?\)"):
        check_spellings_held({"job": {"Cook": "nurse"}}, loans())


def test_a_lifetime_below_the_studys_epsilon_is_refused():
    check_lifetime(None, asked=Fraction(5))
    check_lifetime(Fraction(5), asked=Fraction(5))
    with pytest.raises(InputError, match=r"--epsilon-lifetime 0.5: the study asks for epsilon 5, "):
        check_lifetime(Fraction(1, 2), asked=Fraction(5))


def test_a_column_that_another_one_takes_the_name_of_may_be_moved_out_of_the_way(study_map):
    typed(study_map, rename="age=years monthly=age")
    typed(study_map, rename="age=job job=age")
    with pytest.raises(InputError, match="--rename monthly: the study has no such column"):
        typed(study_map, rename="monthly=age")
    with pytest.raises(InputError, match="--rename other: the study has no such column"):
        typed(study_map, rename="age=years other=years")


def test_a_word_for_none_may_be_spelt_as_the_studys_code_for_it():
    table = loans().assign(job=np.resize(["cook", "clerk", "unknown"], 400))
    table.loc[::9, "age"] = 999
    coded = map_of(
        table, "default", positive=("yes",), missing={"job": ("unknown",), "age": ("999",)}
    )
    for spelling in ("job:unbekannt=unknown", "age:weiss nicht=999", "age:-1=999.0"):
        typed(coded, spelling)
    with pytest.raises(InputError, match="the study knows no 'unbekannt' there"):
        typed(coded, "job:x=unbekannt")


def test_what_is_asked_is_shown_as_an_officer_would_write_it():
    """Nobody reads months since 2000, or which comma is one within a name."""
    table = loans().assign(job=np.resize(["Médecine, interne", "Urgences"], 400))
    fitted = map_of(table, "default", positive=("yes",), missing={"age": ("50", "51")})
    target = fitted.target.model_copy(update={"missing": ("no",)})
    invited = SimpleNamespace(
        invitation=SimpleNamespace(
            study="s",
            learner="lab",
            owner="a",
            epsilon=Fraction(1),
            loss="squared",
            theta_max=0.5,
            way="serve",
            address="a:1",
        ),
        feature_map=fitted.model_copy(update={"target": target}),
    )
    told = list(asked_in_words(cast(Any, invited)))
    assert "squared loss, no coefficient beyond 0.5, to serve at a:1" in told[0]
    assert "  job: one of 'Médecine, interne', 'Urgences'" in told
    assert "  day: a date, mostly from 2020-01 to 2021-11" in told
    assert any(line.startswith("epsilon 1: strong protection, ") for line in told)
    assert told[2].endswith("target default (the study takes 'no' for none)")
    assert told[3].endswith(" (the study takes '50' or '51' for none)")
