"""A class that is spelt otherwise is found by whoever holds the records, and by nobody else."""

import json

import numpy as np
import pandas as pd
import pytest
from maps import map_of

from common.column_faults import FEWEST_RECORDS, Fault, faults_of
from common.column_fit import look_at_columns
from common.errors import InputError
from common.features import FeatureMap, file_text
from common.fitting import MOST_PUBLIC_VALUES

N = 300


def stays(seed, yes="yes", no="no", *, rate=0.4):
    rng = np.random.default_rng(seed)
    died = np.where(rng.random(N) < rate, yes, no)
    return pd.DataFrame({"age": rng.normal(50.0, 12.0, N), "died": died})


def fit(table, positive=("yes",), **more):
    return map_of(table, "died", positive=tuple(positive), **more)


@pytest.fixture(scope="module")
def new_map():
    return FeatureMap.from_json(file_text(fit(stays(0))))


@pytest.fixture(scope="module")
def old_map(new_map):
    """As a version wrote it that noted no public values."""
    return FeatureMap.from_json(new_map.to_json())


def said(table, feature_map):
    (*_, target) = look_at_columns(table, feature_map)
    return list(faults_of(target))


SPELLINGS = [("Y", "N"), ("1", "0"), ("YES", "NO"), ("True", "False"), ("yess", "noo")]


@pytest.mark.parametrize(("yes", "no"), SPELLINGS)
def test_a_class_that_is_spelt_otherwise_is_told(yes, no, new_map):
    (fault,) = said(stays(1, yes, no), new_map)
    assert not fault.is_doubt
    assert fault.words.startswith("100% of the records have values that no public record has")
    assert "(did you mean 'yes'?)" in fault.words
    assert "count as not 'yes'" in fault.words


@pytest.mark.parametrize(("yes", "no"), SPELLINGS)
def test_a_map_of_an_older_version_doubts_it(yes, no, old_map):
    (fault,) = said(stays(1, yes, no), old_map)
    assert fault.is_doubt
    assert fault.words.startswith("no record is of the class 'yes'; the records have ")
    assert "(did you mean 'yes'?)" in fault.words


@pytest.mark.parametrize(("yes", "no"), [("yes", "no"), (" yes ", "no"), ("yes", "  no")])
def test_blanks_are_no_other_spelling(yes, no, new_map, old_map):
    for feature_map in (new_map, old_map):
        assert said(stays(1, yes, no), feature_map) == []


def test_a_rare_class_that_is_spelt_otherwise_is_told(new_map, old_map):
    # Three in a hundred: far too few to be too many unknown values.
    table = stays(1, "Y", "no", rate=0.03)
    for feature_map in (new_map, old_map):
        (fault,) = said(table, feature_map)
        assert fault.is_doubt
        assert "'Y' (did you mean 'yes'?), 'no'" in fault.words
        assert "spell them as the study does" in fault.words


@pytest.mark.parametrize("spelling", ["Yes", "y", "TRUE", "1"])
def test_a_spelling_beside_the_right_one_is_told(spelling, new_map, old_map):
    table = stays(1, rate=0.06)
    its = table.index[table["died"] == "yes"]
    table.loc[its[::3], "died"] = spelling
    for feature_map in (new_map, old_map):
        (fault,) = said(table, feature_map)
        assert fault.is_doubt
        assert "(did you mean 'yes'?), and count as not 'yes'" in fault.words
    table.loc[its[1:], "died"] = "yes"
    assert said(table, new_map) == []


def test_a_class_that_is_honestly_absent_is_a_doubt(new_map):
    (fault,) = said(stays(1, "no"), new_map)
    assert fault == Fault(
        "one class",
        "no record is of the class 'yes'; the records have 'no'; look whether they are left out, "
        "unless the class is only rare here",
        is_doubt=True,
    )
    assert said(stays(1, "no").head(FEWEST_RECORDS - 1), new_map) == []


def test_records_of_the_positive_class_alone_are_a_doubt(new_map, old_map):
    for feature_map in (new_map, old_map):
        (fault,) = said(stays(1, "yes", "yes"), feature_map)
        assert fault.is_doubt
        assert fault.words.startswith("every record is of the class 'yes'")


def test_several_values_are_one_class_and_each_is_known():
    rng = np.random.default_rng(3)
    table = stays(0).assign(died=rng.integers(0, 5, N))
    graded = fit(table, (1, 2, 3, 4))
    assert graded.target.public_values == ("0", "1", "2", "3", "4")
    assert said(table.assign(died=rng.integers(0, 5, N)), graded) == []
    (fault,) = said(table.assign(died=rng.integers(0, 8, N)), graded)
    assert "count as not '1', '2', '3' or '4'" in fault.words


def test_public_values_are_no_part_of_what_is_agreed_on(new_map, old_map):
    assert new_map.target.public_values == ("no", "yes")
    assert old_map.target.public_values == ()
    assert new_map.to_json() == old_map.to_json() == file_text(old_map)
    assert new_map.digest == old_map.digest
    table = stays(5)
    ours, theirs = (one.apply(table, where="t") for one in (new_map, old_map))
    np.testing.assert_array_equal(ours.targets, theirs.targets)
    np.testing.assert_array_equal(ours.features, theirs.features)


MANY = [f"value {i}" for i in range(MOST_PUBLIC_VALUES)]


@pytest.mark.parametrize(
    ("values", "is_noted"),
    [(MANY[1:], True), (MANY, False), (["x" * 100], True), (["x" * 101], False)],
)
def test_values_that_are_many_or_long_are_not_noted(values, *, is_noted):
    table = stays(0)
    table.loc[table.index[: len(values)], "died"] = values
    fitted = fit(table.replace({"died": {"no": values[0]}}))
    assert bool(fitted.target.public_values) == is_noted
    assert FeatureMap.from_json(file_text(fitted)) == fitted


def test_values_of_private_records_are_not_noted():
    fitted = fit(stays(0), private=True)
    assert fitted.target.public_values == ()
    assert "public_values" not in file_text(fitted)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda target: target | {"public_values": [*MANY, "one more"]}, "public_values"),
        (lambda target: target | {"positive": None}, "public_values needs positive"),
    ],
)
def test_a_file_with_strange_values_is_refused(change, why, new_map):
    table = json.loads(file_text(new_map))
    table["target"] = change(table["target"])
    with pytest.raises(InputError, match=why):
        FeatureMap.from_json(json.dumps(table))
