"""The learner from Python: few names, the command line's own results, scikit-learn's manner."""

import contextlib
import json
import re
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tomli_w
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

import learner
from common.errors import DoubtWarning, InputError
from learner import FederatedClassifier, FederatedRegressor, Run, simulate, sweep
from learner.planning.settings import is_elsewhere, load_study

MOMENTS = {"algorithm": {"name": "moments"}, "model": {"theta_max": 5.0}}
NEWTON = {"algorithm": {"name": "newton"}, "model": {"theta_max": 5.0}}
SHORT = {
    "algorithm": {"horizon": 20, "rho": 0.04},
    "privacy": {"clip": 10.0},
    "model": {"theta_max": 5.0},
}
# Checks of scikit-learn that do not pass, and why: none.
NOT_PASSED = {}


@pytest.mark.parametrize(
    "estimator",
    [
        FederatedRegressor(epsilon=1e6, settings=MOMENTS, random_state=0),
        FederatedClassifier(epsilon=1e6, settings=SHORT, random_state=0),
    ],
    ids=["regressor", "classifier"],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
@pytest.mark.filterwarnings("ignore::common.errors.DoubtWarning")
@pytest.mark.long
def test_scikit_learn_accepts_the_estimators(estimator):
    checked = check_estimator(estimator, on_fail=None, on_skip=None)
    failed = {one["check_name"] for one in checked if one["status"] == "failed"}
    assert failed == set(NOT_PASSED)
    assert len(checked) > 40


def records(count):
    rng = np.random.default_rng(1)
    table = pd.DataFrame(
        {
            "age": rng.uniform(20, 80, count),
            "ward": rng.choice(["a", "b", "New York"], count),
            "new": rng.random(count) < 0.5,
        }
    )
    days = 0.1 * table["age"] + 3.0 * (table["ward"] == "b") + rng.normal(size=count)
    return table, days.to_numpy(), rng.choice(["north", "south", "west"], count)


def test_ten_lines_train_over_three_owners():
    table, days, hospital = records(1500)
    model = FederatedRegressor(epsilon=5, settings=MOMENTS, random_state=1)
    model.fit(table, days, owners=hospital)
    assert model.score(table, days) > 0.5
    assert model.epsilon_spent_ == {"north": 5.0, "south": 5.0, "west": 5.0}
    assert model.charged_ is False
    raw = pd.DataFrame({"age": [50.0, None], "ward": ["b", "unheard of"], "new": [True, None]})
    assert np.all(np.isfinite(model.predict(raw)))
    assert model.coef_[0] == pytest.approx(0.1, abs=0.05)
    assert model.coef_noise_[0] > 0
    assert list(model.owners_["name"]) == ["north", "south", "west"]
    assert model.owners_["records"].sum() + model.public_records_ == 1500


@pytest.mark.usefixtures("without_forecasts")
def test_what_owners_tell_of_the_finished_model_is_part_of_what_an_estimator_spent():
    table, days, hospital = records(1500)
    settings = MOMENTS | {"privacy": {"validation": "1/10"}}
    model = FederatedRegressor(epsilon=5, settings=settings, random_state=1)
    model.fit(table, days, owners=hospital)
    assert model.epsilon_spent_ == {"north": 5.0, "south": 5.0, "west": 5.0}


@pytest.mark.usefixtures("without_forecasts")
def test_equal_seeds_give_equal_models_and_others_do_not():
    table, days, hospital = records(600)

    def fitted(seed):
        made = FederatedRegressor(epsilon=2, settings=MOMENTS, random_state=seed)
        return made.fit(table, days, owners=hospital).model_.theta

    np.testing.assert_array_equal(fitted(1), fitted(1))
    assert not np.allclose(fitted(1), fitted(2))


@pytest.mark.parametrize(
    "settings", [MOMENTS, NEWTON, SHORT], ids=["moments", "newton", "gradients"]
)
@pytest.mark.long
def test_the_standard_error_is_what_new_noise_does(settings):
    """Over 40 trainings a deviation is known to 11 %, the standard error itself to 10 %."""
    table, days, hospital = records(900)
    public = (table[:300], days[:300])
    fitted = [
        FederatedRegressor(
            epsilon=3, settings=settings, public=public, random_state=1000 * seed
        ).fit(table[300:], days[300:], owners=hospital[300:])
        for seed in range(40)
    ]
    happened = np.std([[*one.coef_, one.intercept_] for one in fitted], axis=0, ddof=1)[:-1]
    told = np.median([one.coef_noise_ for one in fitted], axis=0)
    # Together 15 %; three coefficients that go together count as one and a half.
    assert np.exp(np.mean(np.log(happened / told))) == pytest.approx(1.0, abs=0.36)


def test_a_guarded_estimator_is_not_fitted_where_what_is_free_is_better():
    table, days, hospital = records(300)
    model = FederatedRegressor(epsilon=1e-3, settings=MOMENTS, random_state=1)
    assert model.fit(table, days, owners=hospital).way_ == "moments"
    with pytest.raises(ValueError, match=r"forecast to beat .*; .* fit with guard=False"):
        model.set_params(guard=True).fit(table, days, owners=hospital)


@pytest.mark.usefixtures("without_forecasts")
def test_labels_go_through_pipelines_and_cross_validation():
    table, days, hospital = records(900)
    model = FederatedRegressor(epsilon=50, settings=MOMENTS, random_state=1)
    pipeline = make_pipeline(FunctionTransformer(lambda x: x.drop(columns="new")), model)
    pipeline.fit(table, days, federatedregressor__owners=hospital)
    assert len(pipeline[-1].coef_) == 2
    folds = KFold(3, shuffle=True, random_state=0)
    scores = cross_val_score(model, table, days, cv=folds, params={"owners": hospital})
    assert np.all(scores > 0.5)


@pytest.mark.usefixtures("without_forecasts")
@pytest.mark.parametrize("given", ["fit", "public"])
def test_what_pandas_holds_as_categories_are_names(given):
    """Numbers of wards were read as amounts without a word: R2 was 0.1 instead of 0.8."""
    rng = np.random.default_rng(1)
    ward, age = rng.choice([1, 2, 3, 4], 900), rng.uniform(20, 80, 900)
    days = np.array([0.0, 5.0, -5.0, 0.0])[ward - 1] + 0.02 * age + rng.normal(size=900)
    plain = pd.DataFrame({"age": age, "ward": ward})
    # Of columns that are left out it does not matter.
    table = plain.astype({"ward": "category"}).assign(old=pd.Series(ward, dtype="category"))
    model = FederatedRegressor(epsilon=50, settings=MOMENTS, random_state=1)
    model.set_params(settings=MOMENTS | {"features": {"drop": ["old"]}})
    if given == "public":
        model.set_params(public=(plain.assign(old=ward)[:300], days[:300]))
    model.fit(table[300:], days[300:], owners=np.arange(600) % 3)
    assert [rule.kind for rule in model.model_.feature_map.columns] == ["number", "category"]
    # Also of a table that holds them as numbers, or as texts.
    for kind in (int, float, str, "category"):
        assert model.score(plain.astype({"ward": kind}).assign(old=1), days) > 0.8


@pytest.mark.usefixtures("without_forecasts")
def test_public_records_of_ones_own_are_taken_and_nothing_is_given_away():
    table, days, hospital = records(900)
    late = days > np.median(days)
    model = FederatedClassifier(
        epsilon=50, settings=SHORT, public=(table[:300], late[:300]), random_state=1
    )
    model.fit(table[300:], late[300:], owners=hospital[300:])
    assert model.public_records_ == 300
    assert model.owners_["records"].sum() == 600
    chances = model.predict_proba(table)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.predict(table), chances[:, 1] > 0.5)


@pytest.mark.usefixtures("without_forecasts")
def test_a_rare_class_has_room_for_its_base_rate():
    rng = np.random.default_rng(7)
    x, owners = rng.normal(size=(6000, 1)), np.arange(6000) % 3
    is_fraud = rng.random(6000) < 0.01
    model = FederatedClassifier(epsilon=1e3, settings=SHORT, random_state=1)
    model.fit(x, is_fraud, owners=owners)
    assert model.model_.public_theta[-1] == pytest.approx(np.log(0.01 / 0.99), abs=0.4)


@pytest.mark.parametrize(
    ("changes", "owners", "words"),
    [
        ({"public_share": 2}, None, "public_share: got 2"),
        (
            {"public_share": "30%"},
            None,
            "public_share: got '30%', expected a share between 0 and 1",
        ),
        ({"epsilon": -1}, None, "privacy.epsilon"),
        ({"random_state": -1}, None, "random_state: got -1, expected None or a whole number"),
        ({"random_state": 10**30}, None, "random_state: got 10+, expected None or a whole number"),
        ({"settings": "privacy.epsilon=1"}, None, "settings: got a str, expected sections of"),
        ({"settings": []}, None, "settings: got a list, expected sections of STUDY.toml"),
        ({"settings": {"guard": True}}, None, "'guard' cannot be set here"),
        ({"settings": {"owners": {}}}, None, "'owners' cannot be set here"),
        ({"settings": {"algorithm": {"horizont": 3}}}, None, "algorithm.horizont"),
        ({"settings": {"features": {"target": "age"}}}, None, "features.target cannot be set here"),
        ({"settings": {"privacy": {"epsilon": 1}}}, None, "privacy.epsilon cannot be set here"),
        ({"settings": {"features": {"positive": 1}}}, None, "features.positive cannot be set here"),
        ({"out": "runs/nowhere"}, None, "out is the run folder of a study"),
        ({"settings": {"model": "squared"}}, None, "'model' cannot be set here; expected sections"),
        ({"settings": {"model": {"loss": "logistic"}}}, None, "use FederatedClassifier"),
        ({"settings": {"model": {"loss": "square"}}}, None, "did you mean 'squared'"),
        ({}, ["a"], "owners: got 1 labels for 300 records; give one for each"),
        ({}, "ward", "owners: got 1 labels for 300 records; give one for each"),
        ({}, ["a"] + ["b"] * 299, "owners: a has 1 of the records, and all of these would be"),
        ({}, [None] * 300, "a record has no owner"),
        ({}, ["a", "b", float("nan")] * 100, "a record has no owner"),
        ({"public": records(50)[0]}, None, r"public: got a DataFrame, expected \(X, y\)"),
        (
            {"public": records(50)[:2], "public_share": 0.5},
            None,
            "public_share is not read where public is given; leave it out",
        ),
        ({"public": (records(50)[0], np.ones(40))}, None, "public: .*: 50 in X, 40 in y"),
    ],
)
def test_what_cannot_be_fitted_is_a_value_error(changes, owners, words):
    table, days, _ = records(300)
    with pytest.raises(ValueError, match=words):
        FederatedRegressor(**({"settings": MOMENTS} | changes)).fit(table, days, owners=owners)


@pytest.mark.parametrize("is_public", [False, True])
@pytest.mark.parametrize(
    ("of", "words"),
    [
        (lambda n: ["yes", "no"] * (n // 2), "^(public: )?y has 'yes', which is no number; a reg"),
        (lambda n: np.array(["yes", "no"] * (n // 2), object), "FederatedClassifier takes two"),
        (lambda n: [1.5] * (n - 1) + ["many"], "^(public: )?y has 'many', which is no number"),
        (lambda n: pd.date_range("2020-01-01", periods=n), "y has Timestamp"),
        (lambda n: [1.5] * n, "^the public records' targets are all alike; give some that vary$"),
    ],
)
def test_a_regressor_says_in_its_own_words_what_is_no_target(of, words, is_public):
    """It said which setting of a study names the classes, or that Python compares no texts."""
    table, days, _ = records(300)
    given = {"public": (records(50)[0], of(50))} if is_public else {}
    model = FederatedRegressor(settings=MOMENTS, **given)
    with pytest.raises(ValueError, match=words) as refused:
        model.fit(table, days if is_public else of(300))
    assert "positive" not in str(refused.value)


@pytest.mark.usefixtures("without_forecasts")
def test_numbers_may_come_as_texts_among_numbers():
    """As of a column of which one cell was typed otherwise."""
    table, days, _ = records(300)
    mixed = np.array([str(day) if i % 2 else day for i, day in enumerate(days)], object)
    fitted = [
        FederatedRegressor(epsilon=1e6, settings=MOMENTS, random_state=1).fit(table, targets)
        for targets in (days, mixed)
    ]
    assert fitted[0].coef_.tolist() == fitted[1].coef_.tolist()


@pytest.mark.usefixtures("without_forecasts")
def test_columns_without_texts_for_names_are_known_by_their_places():
    """Their coefficients were all 0, and an array was refused."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(600, 2))
    frame = pd.DataFrame(x)
    target = 3.0 * x[:, 0] + rng.normal(size=600)
    model = FederatedRegressor(epsilon=1e6, settings=MOMENTS, random_state=1)
    named = model.fit(x, target).coef_
    np.testing.assert_array_equal(model.fit(frame, target).coef_, named)
    assert named[0] == pytest.approx(3.0, abs=0.2)
    np.testing.assert_array_equal(model.predict(x), model.predict(frame))


@pytest.mark.parametrize("stray", ["Yes", "maybe", None, 1])
def test_public_classes_that_the_owners_do_not_have_are_refused(stray):
    """They counted as the first class, without a word."""
    table, days, hospital = records(600)
    is_long = np.where(days > np.median(days), "yes", "no").astype(object)
    public = is_long[:200].copy()
    public[5] = stray
    model = FederatedClassifier(public=(table[:200], public), random_state=1)
    expected = "1 of 200 records have no target" if stray is None else "expected 'no' or 'yes'"
    with pytest.raises(ValueError, match=f"public: .*{expected}"):
        model.fit(table[200:], is_long[200:].astype(str), owners=hospital[200:])


def test_public_records_of_one_class_are_refused():
    table, days, _ = records(600)
    is_long = np.where(days > np.median(days), "yes", "no")
    model = FederatedClassifier(public=(table[:200], np.full(200, "no")), random_state=1)
    with pytest.raises(ValueError, match=r"public: y has the class 'no' alone"):
        model.fit(table[200:], is_long[200:])


@pytest.mark.usefixtures("without_forecasts")
def test_numbers_may_be_of_numpy():
    table, days, hospital = records(600)
    settings = {"algorithm": {"name": "asynchronous", "horizon": np.int64(20)}}
    model = FederatedRegressor(epsilon=np.int64(3), settings=settings, random_state=np.int64(1))
    model.fit(table, days, owners=hospital)
    assert set(model.epsilon_spent_.values()) == {3.0}


@pytest.fixture
def study(tmp_path, table_maker):
    table_maker(900, seed=4).to_parquet(tmp_path / "records.parquet")
    path = tmp_path / "study.toml"
    path.write_text(
        tomli_w.dumps(
            {
                "name": "small",
                # What a run is like is looked at, not whether it pays.
                "guard": False,
                "seed": 1,
                "data": {"path": "records.parquet"},
                "features": {"public": {"rows": "-300:"}, "target": "y"},
                "model": {"loss": "squared", "theta_max": 2.0},
                "algorithm": {"name": "moments"},
                "privacy": {"epsilon": 5},
                "owners": [
                    {"name": "north", "data": {"rows": ":300"}},
                    {"name": "south", "data": {"rows": "300:600"}},
                ],
            }
        )
    )
    return path


@pytest.mark.filterwarnings("ignore:.*protected nobody")
def test_the_command_line_gives_the_same_model_bit_for_bit(study, tmp_path, typed):
    run = simulate(study, out=tmp_path / "python", insecure_noise_seed=3)
    said = typed(
        "copriv", "simulate", study, "--out", tmp_path / "typed", "--insecure-noise-seed", 3
    )
    assert said.returncode == 0, said.stderr
    other = Run.load(tmp_path / "typed")
    for ask in (other.predict, other.evaluate):
        with pytest.raises(InputError, match="table: got a str, expected a pandas data frame"):
            ask("stays.csv")
    assert other.summary.theta == run.summary.theta
    assert other.model.to_json() == run.model.to_json()
    # A run is its tables.
    assert list(run.owners["epsilon_spent"]) == [5.0, 5.0]
    assert len(run.trace) == 2
    assert list(run.coefficients["column"])[-1] == "(intercept)"
    table = pd.read_parquet(tmp_path / "records.parquet")
    with pytest.warns(DoubtWarning, match="protected nobody"):
        assert run.evaluate(table).models["common"]["r2"].value > 0.5
    with pytest.warns(DoubtWarning, match="protected nobody"):
        assert list(run.predict(table[5:9]).index) == [5, 6, 7, 8]
    assert run.plot().axes
    twice = pd.concat([table, table[table.columns[:1]]], axis=1)
    for ask in (run.predict, run.evaluate):
        with pytest.raises(InputError, match=r"table: the column name .* occurs twice; rename"):
            ask(twice)
    run.predict(table, public=True)
    far = table.assign(**{table.columns[0]: "1;5"})
    for ask in (run.predict, run.evaluate):
        with pytest.warns(DoubtWarning, match=f"table: column {table.columns[0]!r}: "):
            ask(far)
    summed = pd.concat([table.abs(), table[["y"]].abs().sum().to_frame().T])
    with pytest.raises(InputError, match=r"table: row 901 below the header is not a record: its y"):
        run.evaluate(summed)


def with_commas(numbers):
    return [f"{number:.1f}".replace(".", ",") for number in numbers]


@pytest.mark.usefixtures("without_forecasts")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t, _: t.assign(age=with_commas(t["age"])), "^age: cells such as .*decimal comma"),
        (lambda t, _: t.assign(age=[f"{x:.0f} kg" for x in t["age"]]), "^age: .* not read"),
        (lambda t, _: t.assign(age=t["age"].where(t["age"] > 30, -999)), "^age: -999 stands"),
        (
            lambda t, h: t.assign(age=t["age"] * np.where(h == "west", 1e3, 1)),
            "owner west: .*'age'",
        ),
        (lambda t, _: t.assign(id=[f"P{i}" for i in range(len(t))]), "^features: id: "),
        (lambda t, _: t.assign(same=1), "^features.columns: nothing is learnt from same"),
        (
            lambda t, _: t.assign(days=records(len(t))[1]),
            "^features: days: so nearly the target y ",
        ),
    ],
    ids=["commas", "units", "code", "owner", "names", "constant", "leak"],
)
def test_a_fit_warns_of_what_init_and_simulate_warn_of(change, words):
    """Numbers with a decimal comma became names: R2 fell from 0.98 to 0.41 without a word."""
    table, days, hospital = records(900)
    model = FederatedRegressor(
        epsilon=50, settings=MOMENTS, public=(table[:300], days[:300]), random_state=1
    )
    changed = change(table, hospital)
    if "west" not in words:
        model.set_params(public=(changed[:300], days[:300]))
    with pytest.warns(DoubtWarning) as told:
        model.fit(changed[300:], days[300:], owners=hospital[300:])
    assert any(re.search(words, str(one.message)) for one in told), [str(o.message) for o in told]


@pytest.mark.usefixtures("without_forecasts")
@pytest.mark.parametrize("shuffled", ["y", "owners", "public"])
def test_rows_that_have_the_labels_of_others_in_another_order_are_told(shuffled):
    """They went together by place: nothing was learnt, and nobody was told."""
    table, days, hospital = records(900)
    its = {"y": pd.Series(days), "owners": pd.Series(hospital)}
    its["public"] = (table[:300], its["y"][:300][:: -1 if shuffled == "public" else 1])
    for name in ("y", "owners"):
        its[name] = its[name][300:][:: -1 if shuffled == name else 1]
    model = FederatedRegressor(epsilon=50, settings=MOMENTS, random_state=1, public=its["public"])
    name = "y" if shuffled == "public" else shuffled
    words = rf"^{name}: its rows have the labels of X in another order.* {name}.loc\[X.index\]"
    with pytest.warns(DoubtWarning, match=words):
        model.fit(table[300:], its["y"], owners=its["owners"])


@pytest.mark.usefixtures("without_forecasts")
def test_a_score_tells_of_classes_that_are_none_of_both():
    """Of classes in capitals the score was 0, without a word."""
    table, days, hospital = records(900)
    long = np.where(days > 6, "yes", "no")
    model = FederatedClassifier(epsilon=50, settings=SHORT, random_state=1)
    right = model.fit(table, long, owners=hospital).score(table, long)
    words = r"^y: 1 of 900 records have another class than 'no' and 'yes', such as 'Yes', and count"
    for other in (["Yes", *long[1:]], pd.Series(["Yes", *long[1:]], dtype="category")):
        with pytest.warns(DoubtWarning, match=words):
            assert model.score(table, other) == pytest.approx(right, abs=1 / 900 + 1e-12)


def test_a_fit_says_that_its_box_is_too_small():
    """Of columns that follow each other R2 was 0.1 instead of nearly 1, without a word."""
    rng = np.random.default_rng(1)
    common, own, rest = rng.normal(size=(3, 900))
    table, days = np.column_stack([common, common + 0.2 * own]), own + 0.5 * rest
    model = FederatedRegressor(epsilon=1e4, random_state=1)
    model.set_params(settings={"algorithm": {"name": "moments"}})
    with pytest.warns(DoubtWarning, match="edge of its box .*; enlarge model.theta_max, which is"):
        tight = model.fit(table, days, owners=np.arange(900) % 3).score(table, days)
    model.set_params(settings=MOMENTS | {"model": {"theta_max": 20}})
    roomy = model.fit(table, days, owners=np.arange(900) % 3).score(table, days)
    assert tight < roomy - 0.1


@pytest.mark.usefixtures("without_forecasts")
def test_a_prediction_warns_of_what_does_not_fit():
    table, days, hospital = records(900)
    model = FederatedRegressor(epsilon=50, settings=MOMENTS, random_state=1)
    model.fit(table, days, owners=hospital)
    for change, words in (
        ({"age": 1e3 * table["age"]}, "^X: column 'age': 100% of the records are beyond"),
        ({"age": with_commas(table["age"])}, "^age: cells such as .* have a decimal comma"),
        ({"ward": "A"}, "^X: column 'ward': .* the map does not know"),
        ({"age": None}, "^X: column 'age': 100% of the records have no readable value"),
    ):
        with pytest.warns(DoubtWarning) as told:
            model.score(table.assign(**change), days)
        assert any(re.search(words, str(o.message)) for o in told), [str(o.message) for o in told]
    blank = pd.DataFrame(None, index=[0, 1], columns=table.columns, dtype=object)
    with pytest.warns(DoubtWarning, match="^X: 2 rows have no value that is read in any column"):
        model.predict(blank)


def test_an_estimator_runs_the_study_of_a_file(study, tmp_path):
    model = FederatedRegressor(study=study, out=tmp_path / "run").fit()
    assert model.charged_ is False
    assert model.run_.summary.study == "small"
    table = pd.read_parquet(tmp_path / "records.parquet")
    assert model.score(table[model.feature_names_in_], table["y"]) > 0.5


@pytest.mark.parametrize(
    ("overrides", "spends"),
    [
        ({}, False),
        ({"network.listen": "127.0.0.1:0"}, False),
        ({"algorithm": {"name": "asynchronous", "initiative": "owner"}}, False),
        (
            {
                "algorithm": {"name": "asynchronous", "initiative": "owner"},
                "network.listen": "127.0.0.1:0",
            },
            True,
        ),
        ({"owners": [{"name": "north", "address": "127.0.0.1:1"}]}, True),
    ],
)
def test_an_estimator_spends_what_owners_elsewhere_hold(study, overrides, spends):
    assert is_elsewhere(load_study(study, overrides=overrides)) is spends


@pytest.mark.parametrize(
    ("changes", "records_here", "name"),
    [
        ({"epsilon": 0.1}, {}, "epsilon"),
        ({"settings": MOMENTS}, {}, "settings"),
        ({"public": (np.ones((3, 1)), np.ones(3))}, {}, "public"),
        ({"random_state": 0}, {}, "random_state"),
        ({}, {"X": np.ones((3, 1)), "y": np.ones(3)}, "X"),
        ({}, {"owners": ["a", "b"]}, "owners"),
    ],
)
def test_what_the_study_of_a_file_does_not_look_at_is_refused(study, changes, records_here, name):
    """An epsilon of 0.1 was not heard, and every fold of other records ran the same study."""
    with pytest.raises(ValueError, match=f"^{name} is not read where study is given"):
        FederatedRegressor(study=study, **changes).fit(**records_here)


def test_an_estimator_of_another_kind_runs_no_study(study, tmp_path):
    """A classifier of numbers predicted 0 and 1, and owners had spent their budgets on it."""
    with pytest.raises(ValueError, match=r"study\.toml: its target is of another kind; use"):
        FederatedClassifier(study=study, out=tmp_path / "run").fit()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("grid", "seeds", "words"),
    [
        ("privacy.epsilon=1", 2, "grid: got privacy.epsilon=1, expected values by key, such as"),
        ({"privacy.epsilon": 1}, 2, "grid privacy.epsilon: got 1, expected a list of values"),
        ({"privacy.epsilon": "1,10"}, 2, "got 1,10, expected a list of values"),
        ({"privacy.epsilon": []}, 2, "expected a list of values"),
        ({"privacy.epsilon": [1, 1.0]}, 2, "1.0 is given twice"),
        ({"seed": [1, 2]}, 2, "seeds are not part of the grid"),
        ({"privacy.epsilon": [1]}, 0, "seeds: got 0, expected a whole number of 1 or more"),
        ({"privacy.epsilon": [1]}, range(2), "seeds: got range"),
    ],
)
def test_what_is_no_grid_is_told(study, grid, seeds, words):
    with pytest.raises(InputError, match=words):
        sweep(study, grid, seeds=seeds)


def test_a_grid_may_be_of_numpy(study, tmp_path):
    """Its numbers were texts in the table, in quotes."""
    grid = {"privacy.epsilon": np.array([5, 10]), "owners": np.arange(1, 3)}
    rows = sweep(study, grid, seeds=1, jobs=1, out=tmp_path / "swept")
    assert set(rows["privacy.epsilon"]) == {5, 10}
    assert set(rows["owners"]) == {1, 2}


def test_settings_are_changed_by_keys(study):
    for overrides in (
        {"privacy.epsilon": 2},
        {"privacy": {"epsilon": np.int64(2)}},
        ("privacy.epsilon=2",),
        "privacy.epsilon=2",
    ):
        assert float(load_study(study, overrides=overrides).privacy.epsilon) == 2


def test_import_learner_loads_nothing_heavy():
    code = (
        "import sys, learner; light = set(sys.modules); from learner import simulate; "
        "print(sorted({'numpy', 'pandas'} & light), "
        "sorted({'sklearn', 'matplotlib', 'opendp', 'onnx'} & set(sys.modules)))"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert said.stdout.strip() == "[] []"
    assert set(learner.__all__) >= {"simulate", "train", "forecast", "Run"}
    with pytest.raises(AttributeError, match="nothing"):
        learner.nothing  # noqa: B018


def test_the_notebook_runs(monkeypatch, capsys):
    examples = Path(__file__).parents[2] / "examples"
    monkeypatch.chdir(examples)
    cells = json.loads((examples / "hospitals.ipynb").read_text())["cells"]
    shared = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec("".join(cell["source"]), shared)  # noqa: S102
    assert "R2 0." in capsys.readouterr().out
    assert np.all(np.isfinite(shared["model"].predict(shared["new"])))


@pytest.mark.parametrize("place", [0, 1])
def test_the_python_of_the_document_runs(place, tmp_path, monkeypatch):
    """Each block by itself, as somebody copies it: one took a table that it had not read."""
    root = Path(__file__).parents[2]
    text = (root / "docs/model.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 2
    (tmp_path / "examples").symlink_to(root / "examples")
    monkeypatch.chdir(tmp_path)
    shared = {}
    exec(blocks[place], shared)  # noqa: S102
    if place:
        assert shared["model"].score(shared["X"], shared["y"]) > 0.3
    else:
        assert len(shared["run"].predict(shared["table"])) == len(shared["table"])


def test_how_an_owner_ends_a_connection_is_not_written_as_it_says_it():
    """gRPC has a log of its own, which would bring it to a notebook or a terminal."""

    def frame(kind, content):
        return struct.pack(">I", len(content))[1:] + bytes([kind, 0, 0, 0, 0, 0]) + content

    def serve():
        with contextlib.suppress(OSError):
            while True:
                line = opened.enter_context(listener.accept()[0])
                # Settings, and a goodbye with a reason.
                reason = struct.pack(">II", 0, 2) + b"\x1b[31mOWNED\n"
                line.sendall(frame(4, b"") + frame(7, reason))

    code = """
from learner import train
from common.errors import CoprivError
from learner.network.grpc_owner import GrpcOwner
try:
    GrpcOwner("north", "127.0.0.1:%d", deadline=1.0).describe()
except CoprivError as error:
    print(error)
"""
    with contextlib.ExitStack() as opened:
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        threading.Thread(target=serve, daemon=True).start()
        port = listener.getsockname()[1]
        ended = subprocess.run(
            [sys.executable, "-c", code % port], capture_output=True, text=True, check=True
        )
        listener.shutdown(socket.SHUT_RDWR)
    assert "owner north" in ended.stdout
    assert ended.stderr == ""


def test_what_a_masked_array_masks_is_a_gap_and_no_value():
    """Such as the 999 that some instruments write; scikit-learn itself looks behind the mask."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(300, 2))
    y = x @ [1.0, 2.0]
    is_masked = rng.random(x.shape) < 0.02
    masked = np.ma.masked_array(np.where(is_masked, 999.0, x), mask=is_masked)
    model = FederatedRegressor(epsilon=1e5, random_state=1, settings=MOMENTS).fit(masked, y)
    gaps = np.where(is_masked, np.nan, x)
    other = FederatedRegressor(epsilon=1e5, random_state=1, settings=MOMENTS).fit(gaps, y)
    assert np.array_equal(model.predict(masked), other.predict(gaps))
    assert model.score(masked, y) > 0.7
    with pytest.raises(ValueError, match="y contains NaN"):
        model.fit(x, np.ma.masked_array(y, mask=is_masked[:, 0]))
    with pytest.raises(ValueError, match="a record has no owner"):
        model.fit(x, y, owners=np.ma.masked_array(np.zeros(300, int), mask=is_masked[:, 0]))


def test_a_table_of_another_library_keeps_its_dates():
    table, days, owners = records(300)
    table["day"] = pd.date_range("2020-01-01", periods=300)
    models = [
        FederatedRegressor(epsilon=1e3, settings=MOMENTS, random_state=1).fit(
            X, days, owners=owners
        )
        for X in (table, pa.Table.from_pandas(table, preserve_index=False))
    ]
    assert list(models[1].feature_names_in_) == list(table.columns)
    assert np.array_equal(models[0].coef_, models[1].coef_)
    assert np.array_equal(models[0].predict(table), models[1].predict(pa.table(table)))


@pytest.mark.parametrize("call", [simulate, learner.train, learner.forecast, Run.load])
def test_what_is_no_path_is_told(call):
    with pytest.raises(InputError, match=r"(study|folder): got a dict, expected the (path|folder)"):
        call({"privacy": {"epsilon": 1}})
    if call != Run.load:
        with pytest.raises(InputError, match="data: got a DataFrame, expected the path of a table"):
            call("study.toml", data=pd.DataFrame())


def test_a_table_of_another_library_is_refused_with_the_way_to_a_data_frame(study, tmp_path):
    run = simulate(study, out=tmp_path / "run", insecure_noise_seed=3)
    table = pd.read_parquet(tmp_path / "records.parquet")
    wrong = {
        "got a pyarrow.Table, expected a pandas data frame; its to_pandas() makes": pa.table(table),
        "got a pandas.Series, expected a pandas data frame; its to_frame() makes": table.iloc[:, 0],
        "got a numpy.ndarray, expected a pandas data frame; read the file": table.to_numpy(),
        "got a list, expected a pandas data frame; read the file": [1],
    }
    for words, given in wrong.items():
        for ask in (run.predict, run.evaluate):
            with pytest.raises(InputError, match=re.escape(f"table: {words}")):
                ask(given)


@pytest.mark.parametrize("gap", [None, np.nan, pd.NA])
@pytest.mark.parametrize("form", ["list", "array", "series", "texts"])
def test_a_class_that_is_missing_is_told_as_one(gap, form):
    """numpy and pandas fail on None and pd.NA in words of their own, or take NaN for a class."""
    classes = np.array(["no", "yes"] * 50, dtype=object)
    classes[3] = gap
    given = {
        "list": classes.tolist(),
        "array": classes,
        "series": pd.Series(classes),
        "texts": pd.Series(classes, dtype="string"),
    }[form]
    with pytest.raises(ValueError, match=r"^Input y contains NaN or None: 1 of 100 records have"):
        FederatedClassifier().fit(np.ones((100, 1)), given, owners=np.arange(100) % 2)
