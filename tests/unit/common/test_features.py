"""The feature map: fitted on public records, applied to anybody's, read from strangers."""

import dataclasses
import datetime as dt
import functools
import json
import operator
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import common.features
import common.map_fitting
from common.config import check_settings
from common.domain import LEAST_SIZE
from common.errors import DoubtWarning, InputError
from common.feature_settings import FeatureSettings
from common.features import FeatureMap, file_text, load_feature_map
from common.fitting import ColumnRule, TargetRule
from common.judging import sample_of
from common.losses import Squared
from common.map_fitting import fit_feature_map
from common.model import Model
from common.tables import TablePlace, read_table

EXAMPLES = Path(__file__).parents[3] / "examples"


def loans(num_records=300, *, seed=0):
    """Texts as in a public file of loans, with a target that depends on them."""
    rng = np.random.default_rng(seed)
    grade = rng.integers(7, size=num_records)
    amount = rng.integers(1, 35, size=num_records) * 1000
    rate = 6 + 2 * grade + amount / 10000 + rng.normal(size=num_records)
    return pd.DataFrame(
        {
            "grade": ["ABCDEFG"[g] for g in grade],
            "amount": [f"{a:,}" for a in amount],
            "term": rng.choice([" 36 months", " 60 months"], size=num_records),
            "issued": rng.choice(["Dec-2011", "Jan-2010", "Jun-2009"], size=num_records),
            "emp_length": rng.choice(["10+ years", "< 1 year", "3 years", ""], size=num_records),
            "empty": "",
            "plan": "n",
            "int_rate": [f"{r:.2f}%" for r in rate],
        }
    )


def fit(table=None, **settings):
    table = loans() if table is None else table
    given = {"public": {}, "target": "int_rate", **settings}
    checked = check_settings(FeatureSettings, given, where="study.toml")
    return fit_feature_map(table, checked, source="/home/somebody/loans.csv")


def test_it_notes_its_public_records_by_name_only():
    feature_map = fit()
    assert (feature_map.source, feature_map.num_public_records) == ("loans.csv", 300)
    assert "somebody" not in feature_map.to_json()
    assert feature_map.dropped == {"empty": "no values", "plan": "constant"}
    assert feature_map.columns_needed == (
        *("grade", "amount", "term", "issued", "emp_length"),
        "int_rate",
    )


def test_public_features_are_standardised_and_end_with_the_constant():
    feature_map = fit(coverage=1.0, l1_coverage=1.0)
    records = feature_map.apply(loans(), where="public")
    np.testing.assert_allclose(records.features[:, :-1].mean(axis=0), 0, atol=1e-7)
    np.testing.assert_allclose(records.features[:, :-1].std(axis=0), 1, atol=1e-7)
    assert np.all(records.features[:, -1] == 1)
    assert feature_map.feature_names == (*feature_map.columns_needed[:-1], "constant")
    assert abs(records.targets.mean()) < 1e-7
    assert records.features.flags.c_contiguous


def test_components_are_named_and_counted():
    feature_map = fit(components=2, intercept=False)
    assert feature_map.feature_names == ("component 1", "component 2")
    assert feature_map.num_features == feature_map.domain.num_features == 2
    white = fit(whiten=True, coverage=1.0, l1_coverage=1.0)
    features = white.apply(loans(), where="public").features[:, :-1]
    np.testing.assert_allclose(features.T @ features / 300, np.eye(5), atol=1e-6)


def test_a_share_of_public_records_keeps_the_radius_unscaled():
    box, radius = fit(l1_coverage=1.0), fit(l1_coverage=0.8)
    assert box.l1_radius is None
    assert radius.domain.feature_l1_bound < box.domain.feature_l1_bound
    norms = np.abs(box.apply(loans(), where="public").features).sum(axis=1)
    assert np.mean(norms <= radius.l1_radius) == pytest.approx(0.8, abs=0.01)


def test_records_beyond_the_radius_are_scaled_and_others_are_not():
    loose, tight = fit(l1_coverage=1.0), fit(l1_radius=5.0)
    x = loose.apply(loans(), where="public").features
    z = tight.apply(loans(), where="public").features
    inside = np.abs(x).sum(axis=1) <= 4.999
    assert 0 < inside.sum() < len(x)
    np.testing.assert_array_equal(z[inside], x[inside])
    norms = np.abs(z).sum(axis=1)
    assert np.all(norms <= 5.0)
    np.testing.assert_allclose(norms[~inside & (np.abs(x).sum(axis=1) > 5)], 5.0, rtol=1e-8)
    assert np.all(z[:, -1] == 1)


def test_cells_that_are_slow_to_compute_with_are_0():
    public = pd.DataFrame({"x": np.linspace(-1, 1, 41), "y": np.linspace(-1, 1, 41)})
    settings = {"target": "y", "intercept": False, "l1_coverage": 1.0}
    rule = fit(public, **settings)
    # Centred on 0 and in units of 1, so that cells come through as they are.
    text = json.loads(rule.to_json())
    text["columns"][0] |= {"center": 0.0, "scale": 1.0}
    text["target"] |= {"center": 0.0, "scale": 1.0}
    own = FeatureMap.from_json(json.dumps(text))
    cells = np.array([1e-310, -1e-31, 0.0, 1e-29, 0.5])
    records = own.apply(pd.DataFrame({"x": cells, "y": cells}), where="t")
    expected = [0.0, 0.0, 0.0, 1e-29, 0.5]
    assert records.features[:, 0].tolist() == records.targets.tolist() == expected


SPECK = 1e-310


@pytest.mark.parametrize(
    "changes",
    [
        {"columns.0.high": SPECK},
        {"columns.0.low": -SPECK},
        {"columns.0.fill": SPECK},
        {"columns.0.center": SPECK},
        {"columns.1.codes.red": SPECK},
        {"columns.1.unknown": -SPECK},
        {"rotation.0.0": SPECK},
        {"bounds.0": SPECK},
        {"l1_radius": SPECK},
        {"target.center": SPECK, "target.scale": 3.0},
        {"target.center": 0.0, "target.scale": 1e15},
    ],
)
def test_no_map_makes_numbers_of_cells_that_are_slow_to_compute_with(changes):
    scale = {"center": 0.0, "scale": 3.0}
    number = {"name": "x", "kind": "number", "fill": 0.0, "low": -1.0, "high": 1.0, **scale}
    words = {**number, "name": "w", "kind": "category", "codes": {"red": 0.5}, "unknown": 0.25}
    text = {
        "source": "t",
        "num_public_records": 10,
        "target": {"name": "y", "bound": 1.0, "fill": 0.0},
        "intercept": False,
        "bounds": [1.0, 1.0],
        "columns": [number, words],
        "rotation": [[0.7, 0.0], [0.0, 0.7]],
    }
    for place, value in changes.items():
        *path, last = (int(key) if key.isdigit() else key for key in place.split("."))
        functools.reduce(operator.getitem, path, text)[last] = value
    own = FeatureMap.from_json(json.dumps(text))
    cells = [1.0, -1.0, 0.0, np.nan, 1e-20]
    table = pd.DataFrame({"x": cells, "w": ["red", "blue", "red", None, "red"], "y": cells})
    # Raised where a result is a number of that kind.
    with np.errstate(under="raise"):
        records = own.apply(table, where="t", fill_target=True)
    sizes = np.abs(np.column_stack([records.features, records.targets]))
    assert ((sizes == 0) | (sizes >= LEAST_SIZE)).all()


def test_an_owner_with_other_dtypes_gets_the_same_records():
    feature_map, texts = fit(components=3), loans(seed=1)
    typed = texts.assign(
        amount=texts["amount"].str.replace(",", "").astype(np.int64),
        term=texts["term"].str.extract(r"(\d+)")[0].astype(float),
        issued=pd.to_datetime(texts["issued"], format="%b-%Y"),
        int_rate=texts["int_rate"].str.rstrip("%").astype(float),
    ).drop(columns=["empty", "plan"])
    a, b = (feature_map.apply(table, where="owner") for table in (texts, typed))
    np.testing.assert_array_equal(a.features, b.features)
    np.testing.assert_array_equal(a.targets, b.targets)


def test_equal_public_records_give_equal_text():
    assert fit(components=3).to_json() == fit(components=3).to_json()
    assert fit(components=3).digest != fit(components=2).digest
    assert fit(loans(seed=2)).digest != fit().digest


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"components": 3, "whiten": True, "l1_radius": 4.0},
        {"intercept": False, "l1_coverage": 1},
        {"target": "grade", "positive": ("A",), "category_order": "name"},
    ],
)
def test_text_and_map_are_the_same_thing(settings, tmp_path):
    feature_map = fit(**settings)
    text = feature_map.to_json()
    again = FeatureMap.from_json(text)
    assert FeatureMap.from_json(file_text(feature_map)) == feature_map
    assert (again.to_json(), again.digest) == (text, feature_map.digest)
    assert FeatureMap.from_json(json.dumps(json.loads(text))).digest == feature_map.digest
    (tmp_path / "map.json").write_text(text)
    loaded = load_feature_map(tmp_path / "map.json")
    a, b = (m.apply(loans(seed=3), where="owner") for m in (loaded, feature_map))
    np.testing.assert_array_equal(a.features, b.features)


def test_a_field_of_a_later_version_changes_no_text_until_it_is_used():
    class LaterRule(ColumnRule):
        lag: int = 0

    class LaterMap(FeatureMap):
        columns: tuple[LaterRule, ...]
        weights: tuple[float, ...] = ()

    now = fit(components=3)
    later = LaterMap.model_validate_json(now.to_json(), strict=True)
    assert later.to_json() == now.to_json()
    used = later.model_copy(update={"weights": (1.0,)})
    assert '"weights"' in used.to_json()
    assert LaterMap.model_validate_json(used.to_json(), strict=True) == used


def test_it_cannot_be_changed():
    feature_map = fit()
    with pytest.raises(ValueError, match="frozen"):
        feature_map.intercept = False
    assert dataclasses.is_dataclass(feature_map.domain)


def test_missing_columns_are_named():
    feature_map = fit()
    for name in ("amount", "int_rate"):
        with pytest.raises(InputError, match=f"bank-1: no column '{name}'"):
            feature_map.apply(loans().drop(columns=name), where="bank-1")


def test_unreadable_targets_are_counted_or_filled():
    table = loans()
    table.loc[[3, 7], "int_rate"] = ["", "high"]
    feature_map = fit()
    with pytest.raises(InputError, match=r"bank-1: target 'int_rate': 2 of 300 records"):
        feature_map.apply(table, where="bank-1")
    filled = feature_map.apply(table, where="bank-1", fill_target=True)
    np.testing.assert_array_equal(filled.targets[[3, 7]], [0.0, 0.0])
    whole = feature_map.apply(loans(), where="bank-1")
    np.testing.assert_array_equal(filled.features, whole.features)
    np.testing.assert_array_equal(
        np.delete(filled.targets, [3, 7]), np.delete(whole.targets, [3, 7])
    )


def test_public_records_without_a_target_do_not_count():
    table = loans()
    extra = table.iloc[:50].assign(int_rate="", amount="99,999,999")
    assert fit(pd.concat([table, extra])) == fit(table)


def test_classes_have_bound_one():
    feature_map = fit(target="grade", positive=("A",))
    records = feature_map.apply(loans(), where="public")
    assert feature_map.is_classification
    assert feature_map.domain.target_bound == 1.0
    np.testing.assert_array_equal(records.targets == 1, loans()["grade"] == "A")
    assert set(records.targets) == {-1.0, 1.0}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"columns": ["grade", "garde"]}, "no column 'garde' among the public records"),
        ({"drop": ["garde"]}, "no column 'garde'"),
        ({"target": "rate"}, "no column 'rate'"),
        ({"target": "term", "columns": ["empty"]}, "no input column varies"),
        ({"target": "term", "columns": ["grade", "term"]}, "columns: 'term' is the target; remove"),
        ({"columns": []}, "features.columns and features.drop leave no input column"),
        ({"columns": ["term"], "drop": ["term"]}, "leave no input column; name one"),
        ({"components": 9}, "components: got 9, expected at most 5"),
        ({"l1_radius": 1.0}, "l1_radius: got 1.0, expected more than 1"),
        ({"coverage": 0.4}, "coverage: got 0.4"),
        ({"componets": 3}, "componets is not a known key"),
        ({"target": None}, "set public and target to fit"),
        ({"public": None}, "set public and target to fit"),
        ({"map": "m.json"}, "remove target"),
    ],
)
def test_wrong_settings_are_one_sentence(settings, sentence):
    with pytest.raises(InputError, match=sentence) as caught:
        fit(**settings)
    assert "\n" not in str(caught.value)


def test_more_columns_than_a_map_may_have_are_one_sentence(monkeypatch):
    """Of 10,003 columns the fit ended in a traceback, after minutes."""
    monkeypatch.setattr(common.map_fitting, "LARGEST_COUNT", 2)
    with pytest.raises(InputError, match=r"3 input columns, but .* has at most 1; name fewer in"):
        fit(columns=["grade", "amount", "term"], components=1)


@pytest.mark.parametrize(("largest", "settings"), [(8, {"components": 3}), (11, {})])
def test_a_map_that_could_not_be_read_again_is_not_made(monkeypatch, largest, settings):
    monkeypatch.setattr(common.features, "LARGEST_ENTRIES", largest)
    with pytest.raises(InputError, match=f"csv: a feature map of more than {largest} numbers"):
        fit(**settings)


def test_fewer_public_records_than_features_are_refused():
    few = "4 public records are too few for 5 features; give more public records or fewer columns"
    with pytest.raises(InputError, match=few):
        fit(loans(4, seed=5), category_order="name")
    with pytest.raises(InputError, match="there is only 1 public record, which is not enough"):
        fit(loans(1, seed=5))


@functools.cache
def rotated():
    return fit(components=3).to_json()


def broken(change):
    values = json.loads(rotated())
    change(values)
    return json.dumps(values)


def put(*path, value):
    def change(values):
        for key in path[:-1]:
            values = values[key]
        values[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "1", "[" * 100_000, '{"format": "copriv-feature-map"}', "\ud800"]
    + [
        broken(change)
        for change in (
            put("format", value="other"),
            put("version", value=2),
            put("extra", value=1),
            put("num_public_records", value=0),
            put("bounds", value=[]),
            put("bounds", value=[1.0, 2.0]),
            put("bounds", value=[1.0] * 10_001),
            put("bounds", 0, value=-1.0),
            put("bounds", 0, value=float("nan")),
            put("bounds", 0, value=float("inf")),
            put("bounds", 0, value="1.0"),
            put("bounds", 0, value=True),
            put("bounds", 0, value=10**400),
            put("rotation", value=None),
            put("rotation", 0, value=[1.0]),
            put("rotation", 0, 0, value=float("-inf")),
            put("columns", value=[]),
            put("columns", 1, "name", value="grade"),
            put("columns", 1, "name", value="int_rate"),
            put("columns", 0, "kind", value="hash"),
            put("columns", 0, "scale", value=0.0),
            put("columns", 0, "scale", value=-1.0),
            put("columns", 0, "low", value=1e9),
            put("columns", 0, "codes", value={"A": "x"}),
            put("columns", 0, "center", value=1e300),
            put("target", "bound", value=0.0),
            put("target", "bound", value=None),
            put("target", "fill", value=1e9),
            put("target", "positive", value="A"),
            put("l1_radius", value=1.0),
            put("l1_radius", value=-1.0),
            put("l1_radius", value=float("nan")),
            put("intercept", value=2),
        )
    ],
    ids=range(41),
)
def test_a_strangers_map_is_checked(text):
    with pytest.raises(InputError, match=r"^feature map: ") as caught:
        FeatureMap.from_json(text)
    assert len(str(caught.value)) < 300


def test_the_constant_counts_among_the_features():
    def widen(values):
        del values["columns"][1:]
        values.update(bounds=[1.0] * 10_000, rotation=[[1.0]] * 10_000)

    with pytest.raises(InputError, match="more than 10000 features"):
        FeatureMap.from_json(broken(widen))


def test_a_giant_text_is_refused_unread():
    with pytest.raises(InputError, match="longer than 64 MB"):
        FeatureMap.from_json(" " * (64 * 2**20 + 1))
    with pytest.raises(InputError, match="more than 2000000 numbers"):
        FeatureMap.from_json("[" + "0," * 2_000_001 + "0]")


def test_a_map_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(InputError, match=r"map\.json: cannot be read"):
        load_feature_map(tmp_path / "map.json")
    (tmp_path / "map.json").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"map\.json: not a feature map"):
        load_feature_map(tmp_path / "map.json")


def example(name):
    study = tomllib.loads((EXAMPLES / f"{name}.toml").read_text())
    return study, check_settings(FeatureSettings, study["features"], where=name)


def test_the_hospitals_model_predicts_on_each_owners_records():
    study, settings = example("hospitals")
    path = EXAMPLES / study["data"]["path"]
    assert path.stat().st_size <= 2 * 2**20
    assert settings.public is not None
    public = read_table(settings.public, base=EXAMPLES, default=TablePlace(path=path))
    feature_map = fit_feature_map(public, settings, source=str(path))
    assert feature_map.dropped == {}
    known = feature_map.apply(public, where="public")
    theta = np.linalg.lstsq(known.features, known.targets, rcond=None)[0]
    assert np.abs(theta).max() < study["model"]["theta_max"]
    table = pd.read_parquet(path)[:-5000]
    for owner in study["owners"]:
        mine = table[table["Facility Name"] == owner["data"]["where"]["Facility Name"]]
        assert len(mine) > 4000
        records = feature_map.apply(mine, where=owner["name"])
        errors = records.targets - records.features @ theta
        assert errors.var() < 0.95 * records.targets.var()


def test_the_lending_inputs_leave_out_what_comes_after_the_loan():
    _, settings = example("lending")
    assert settings.columns is not None
    outcomes = (
        "pymnt",
        "recover",
        "total_rec",
        "out_prncp",
        "settle",
        "hardship",
        "status",
        "last_f",
    )
    allowed = {"verification_status", "initial_list_status"}
    assert not [c for c in settings.columns if c not in allowed and any(o in c for o in outcomes)]
    assert not {"id", "member_id", "url", "desc", "title", "emp_title"} & set(settings.columns)
    assert {"grade", "sub_grade"} <= set(settings.columns)


def test_a_strangers_key_steers_no_terminal():
    for text in ('{"\\u001b[2J\\u001b]0;owned\\u0007": 1}', '{"' + "\\u001b[31m" * 5000 + '": 1}'):
        with pytest.raises(InputError) as refused:
            FeatureMap.from_json(text)
        assert str(refused.value).isprintable()
        assert len(str(refused.value)) < 500


def test_a_strangers_columns_in_a_sentence_steer_no_terminal():
    table = json.loads(fit().to_json())
    table["columns"][0]["\x1b[2J"] = 1
    with pytest.raises(InputError, match=r"\[2J of entry 1 of columns: extra inputs") as refused:
        FeatureMap.from_json(json.dumps(table))
    assert str(refused.value).isprintable()


def test_a_reason_for_leaving_a_column_out_is_short():
    table = json.loads(fit().to_json())
    table["dropped"] = {"x": "z" * 200}
    assert FeatureMap.from_json(json.dumps(table)).dropped == table["dropped"]
    table["dropped"] = {"x": "z" * 201}
    with pytest.raises(InputError, match="a reason in dropped has more than 200 characters"):
        FeatureMap.from_json(json.dumps(table))


@pytest.mark.parametrize("place", ["input", "target"])
def test_a_strangers_long_name_of_a_column_makes_no_long_sentence(place):
    """A model's file may come from anywhere; so may the map in it."""
    long = "y" * 200_000
    names = {"input": long, "target": "t"} if place == "input" else {"input": "x", "target": long}
    rule = ColumnRule(
        name=names["input"], kind="number", fill=0.0, low=0.0, high=1.0, center=0.0, scale=1.0
    )
    target = TargetRule(name=names["target"], bound=1.0, fill=0.0)
    feature_map = FeatureMap(
        source="s",
        num_public_records=1,
        target=target,
        intercept=True,
        bounds=(1.0,),
        columns=(rule,),
    )
    table = pd.DataFrame({"x": [0.5], "t": [0.5]})
    model = Model(feature_map=feature_map, loss=Squared(), theta=np.zeros(2))
    with pytest.raises(InputError, match="no column 'yyy") as refused:
        feature_map.apply(table, where="table")
    assert len(str(refused.value)) < 500
    with pytest.raises(InputError, match="no column 'yyy") as refused:
        sample_of(model, table, where="table")
    assert len(str(refused.value)) < 500


CODES = {"amount": [0, "-9"], "grade": "Z", "issued": ["Dec-9999"], "int_rate": [99]}
SPELT = {"amount": ["0", "0.0", " -9"], "grade": ["Z", " Z "], "issued": ["9999-12-01"]}


def coded(table):
    """The table with codes for missing in every fourth row, each spelt in all ways."""
    table = table.copy()
    for name, spellings in (SPELT | {"int_rate": ["99%", "99.0"]}).items():
        rows = range(0, len(table), 4)
        table.loc[rows, name] = np.resize(np.array(spellings, dtype=object), len(rows))
    return table


def emptied(table):
    table = table.copy()
    table.loc[range(0, len(table), 4), [*CODES]] = ""
    return table


def test_a_code_for_missing_is_an_empty_cell_of_any_owner():
    feature_map = fit(coded(loans()), missing=CODES)
    plain = fit(emptied(loans()))
    assert [rule.model_copy(update={"missing": ()}) for rule in feature_map.columns] == [
        *plain.columns
    ]
    assert feature_map.target.model_copy(update={"missing": ()}) == plain.target
    again = FeatureMap.from_json(feature_map.to_json())
    assert again == feature_map
    others = loans(seed=3)
    found = again.apply(coded(others), where="owner", fill_target=True)
    wanted = plain.apply(emptied(others), where="owner", fill_target=True)
    np.testing.assert_array_equal(found.features, wanted.features)
    np.testing.assert_array_equal(found.targets, wanted.targets)
    unnamed = plain.apply(coded(others), where="owner", fill_target=True)
    assert (found.features != unnamed.features).any(axis=0)[:2].all()


def test_a_class_that_stands_for_none_is_no_class():
    table = loans().assign(paid=np.resize(["yes", "no", "9"], 300))
    feature_map = fit(table, target="paid", positive="yes", missing={"paid": 9})
    found = feature_map.target.raw(table["paid"])
    np.testing.assert_array_equal(found[:3], [1.0, -1.0, np.nan])
    assert feature_map.target.public_values == ("no", "yes")
    with pytest.raises(InputError, match=r"missing.paid: 'yes' is also class \+1"):
        fit(table, target="paid", positive="yes", missing={"paid": ["yes"]})


def test_a_map_without_codes_says_nothing_of_them():
    assert "missing" not in fit().to_json()
    told = json.loads(fit(coded(loans()), missing=CODES).to_json())
    assert [column["missing"] for column in told["columns"] if "missing" in column] == [
        ["Z"],
        ["-9", "0"],
        ["Dec-9999"],
    ]
    assert told["target"]["missing"] == ["99"]


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ({"amuont": [0]}, "features.missing: no column 'amuont'"),
        ({"amount": []}, "expected one value that says that there is none, or a list"),
        ({"amount": [[0]]}, "expected one value that says that there is none, or a list"),
        ({"amount": ""}, "expected one value that says that there is none, or a list"),
        ({"amount": [*range(21)]}, "expected at most 20 values, these are 21; empty the cells"),
        (
            {"amount": ["5000+"]},
            "features.missing.amount: '5000+' is read as 5000, so that every 5000 would be none, "
            "too; give 5000 if that is meant, or empty these cells",
        ),
    ],
    ids=range(6),
)
def test_what_cannot_be_a_code_is_refused_in_one_sentence(missing, said):
    with pytest.raises(InputError) as refused:
        fit(missing=missing)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_date_of_toml_is_a_code_as_its_text_is():
    coded = {"left": [dt.date(9999, 12, 31)]}
    settings = {"public": {"path": "t.csv"}, "target": "paid", "missing": coded}
    assert FeatureSettings.model_validate(settings).missing == {"left": ("9999-12-31",)}


def test_a_code_that_no_record_has_is_doubted():
    with pytest.warns(DoubtWarning, match=r"features.missing.amount: no public record .* has 98"):
        fit(coded(loans()), missing={"amount": [0, 98]})


@pytest.mark.parametrize("positive", [float("nan"), [1, float("inf")], {"a": 1}, []])
def test_what_is_no_value_of_class_plus_one_is_one_sentence(positive):
    """Of nan there were five, about features.positive.str and other keys that there are not."""
    with pytest.raises(InputError) as told:
        check_settings(
            FeatureSettings,
            {"public": {"path": "p.csv"}, "target": "y", "positive": positive},
            where="s.toml",
        )
    assert str(told.value).endswith("expected one value, or a list of values, of class +1")
    assert "\n" not in str(told.value)
