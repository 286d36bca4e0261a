"""A model's file comes back as it was written, and a stranger's is one sentence at worst."""

import json
from dataclasses import replace

import numpy as np
import pytest

from common.errors import InputError
from common.losses import Huber
from common.model import model_from_json, read_model


def test_what_is_written_is_read_the_same(make_model, tmp_path):
    for loss in ("squared", "logistic", "huber"):
        model = make_model(loss)
        noise = np.ones(len(model.feature_map.columns) + 1)
        marked = replace(model, unprotected="a", personal=True, insecure_noise=True)
        assert not marked.of_public_records(where="a").insecure_noise
        for one in (model, replace(marked, coefficient_noise=noise)):
            (tmp_path / "model.json").write_text(one.to_json())
            again = read_model(tmp_path)
            assert again.to_json() == one.to_json()
            assert again.loss == one.loss
            assert again.insecure_noise is one.insecure_noise
            np.testing.assert_array_equal(again.theta, one.theta)


def test_coefficients_of_small_units_may_be_large(make_model):
    # A column in units of 1e-9 and a target of 1e12: one more unit is 1e21 of the target.
    model = make_model()
    large = replace(model, coefficient_noise=np.full(len(model.feature_map.columns) + 1, 1e21))
    again = model_from_json(large.to_json(), where="model.json")
    np.testing.assert_array_equal(again.coefficient_noise, large.coefficient_noise)


def test_what_settings_allow_is_read_again(make_model):
    # delta and theta_max have no upper end of their own.
    model = make_model("huber")
    large = replace(model, loss=Huber(delta=1e16), theta=np.full(len(model.theta), -1e16))
    again = model_from_json(large.to_json(), where="model.json")
    assert again.loss == large.loss
    np.testing.assert_array_equal(again.theta, large.theta)


def test_a_file_of_the_first_version_is_a_model(make_model):
    table = json.loads(make_model().to_json())
    del table["public_theta"]
    model = model_from_json(json.dumps(table), where="model.json")
    assert model.public_theta is None
    assert model.coefficient_noise is None


def change(key, value):
    def go(table):
        return table | {key: value}

    return go


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda table: {}, "format: field required"),
        (lambda table: [], "should be an object"),
        (change("format", "copriv-model/2"), "format"),
        (change("theta", [1.0]), "theta has 1 numbers, expected 6"),
        (change("theta", [float("nan")] * 6), "theta"),
        (change("theta", ["1"] * 6), "entry 1 of theta"),
        (change("public_theta", [1e300] * 6), "entry 1 of public_theta"),
        (change("loss", "logistic"), "does not go with the target"),
        (change("loss", "steep"), "loss must be one of"),
        (change("delta", 1.0), "delta does not belong to squared loss"),
        (change("unprotected", "[/bold]"), "unprotected"),
        (change("feature_map", {}), "feature_map"),
        (change("coefficient_noise", [0.0]), "coefficient_noise has 1 numbers"),
        (change("coefficient_noise", [float("inf")] * 6), "entry 1 of coefficient_noise"),
    ],
    ids=range(14),
)
def test_a_damaged_model_is_one_sentence(make_model, damage, words):
    text = json.dumps(damage(json.loads(make_model().to_json())))
    with pytest.raises(InputError) as refusal:
        model_from_json(text, where="model.json")
    said = str(refusal.value)
    assert words in said
    assert said.startswith("model.json: ")
    assert "\n" not in said


@pytest.mark.parametrize(
    "text", ["", "[" * 100_000, '{"theta": [' + "1," * 3_000_000, b"\xff\xfe", "9" * 5000]
)
def test_a_hostile_text_is_refused_quickly(text):
    with pytest.raises(InputError, match=r"^model\.json: "):
        model_from_json(text, where="model.json")


def test_a_folder_without_a_model_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "absent.json"):
        with pytest.raises(InputError, match="cannot be read"):
            read_model(path)


def test_a_table_without_a_target_is_predicted_and_without_a_column_refused(
    make_model, strange_table
):
    model = make_model("logistic")
    found = model.predictions(strange_table.drop(columns=["y", "class"]), where="t.csv")
    assert set(found["prediction"]) == {0, 1}
    np.testing.assert_array_equal(found["prediction"], found["probability"] > 0.5)
    with pytest.raises(InputError, match=r"t\.csv: no column 'grade'"):
        model.predictions(strange_table.drop(columns="grade"), where="t.csv")


def test_a_model_says_what_its_prediction_1_stands_for(make_model):
    assert make_model().meaning_of_one == ""
    model = make_model("logistic")
    assert model.meaning_of_one == "class = late"
    others = ("paid\x1b[31m", *(f"v{i}" for i in range(9)))
    target = model.feature_map.target.model_copy(update={"also_positive": others})
    feature_map = model.feature_map.model_copy(update={"target": target})
    assert replace(model, feature_map=feature_map).meaning_of_one == (
        "class = late or paid [31m or v0 or v1 or v2 or v3 or 5 more"
    )


def test_a_strangers_key_steers_no_terminal(make_model):
    table = json.loads(make_model().to_json())
    table["feature_map"]["\x1b[2J"] = 1
    with pytest.raises(InputError) as refused:
        model_from_json(json.dumps(table), where="model.json")
    assert str(refused.value).isprintable()


def test_public_values_of_the_target_are_kept_where_older_programs_pass_over_them(make_model):
    model = make_model("logistic")
    text = model.to_json()
    again = model_from_json(text, where="m")
    assert again.feature_map == model.feature_map
    assert again.feature_map.target.public_values == ("late", "on time")
    table = json.loads(text)
    assert "public_values" not in table["feature_map"]["target"]
    del table["public_values"]
    assert model_from_json(json.dumps(table), where="m").feature_map.digest == (
        model.feature_map.digest
    )
    assert "public_values" not in json.loads(make_model("squared").to_json())
