"""At home an owner learns which model to use, for free, and what it bends stays there."""

import dataclasses
import os

import numpy as np
import pytest

import owner.at_home
from common.best_fit import fit_near
from common.config import load_settings
from common.judging import sample_of
from common.model import read_model
from owner.at_home import WEIGHTS, advice, evaluate_at_home
from owner.policy import OwnerSettings


def best(make_model, table, loss="squared"):
    """A model that is as good as one can be on a table."""
    from dataclasses import replace  # noqa: PLC0415

    model = make_model(loss)
    records = model.feature_map.apply(table, where="table")
    zero = np.zeros(model.feature_map.num_features)
    return replace(model, theta=fit_near(records, model.loss, center=zero, weight=1e-6))


@pytest.fixture
def at_home(tmp_path, owner_folder):
    """Evaluates a model on an owner's table."""

    def go(table, model):
        path = owner_folder(table=table, pinned=model.feature_map)
        (tmp_path / "model.json").write_text(model.to_json())
        settings = load_settings(OwnerSettings, path)
        return evaluate_at_home(settings, base=path.parent, run=tmp_path / "model.json")

    return go


def other(table):
    """The same records under another law."""
    return table.assign(y=60 - table["y"])


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_common_model_of_the_same_law_is_kept(at_home, make_model, make_raw_table, loss):
    model = best(make_model, make_raw_table(3000, seed=1, strange=False), loss)
    found = at_home(make_raw_table(60, seed=2, strange=False), model)
    assert set(found.judged.models) == {"common", "public", "own", "personal"}
    assert advice(found.judged).startswith("Use the common model")
    assert found.weight is not None


def test_a_common_model_of_another_law_is_bent_as_far_as_own_records_say(
    at_home, make_model, make_raw_table
):
    table = make_raw_table(300, seed=2, strange=False)
    model = best(make_model, make_raw_table(3000, seed=1, strange=False))
    found = at_home(other(table), model)
    assert found.weight < 0.01
    assert "better than the common model beyond chance" in advice(found.judged)
    # Also where the own model is the best, the sentence names a command.
    only_own = dataclasses.replace(found.judged, better_by={"own": found.judged.better_by["own"]})
    assert "(copriv-owner personalise)" in advice(only_own)
    rmse = {name: own["rmse"].value for name, own in found.judged.models.items()}
    assert rmse["personal"] < 0.5 * rmse["common"]


def test_a_bent_model_is_judged_on_records_it_was_not_fitted_to(
    at_home, make_model, make_raw_table
):
    """Where targets are chance, no honest judge finds an own model better than their mean."""
    table = make_raw_table(40, seed=2, strange=False)
    rng = np.random.default_rng(1)
    table["y"] = 45 + 30 * rng.normal(size=len(table))
    found = at_home(table, best(make_model, table))
    own = found.judged.models["own"]["r2"].value
    assert own is not None
    assert own < 0.1


def test_how_far_a_model_is_bent_for_some_records_is_not_chosen_by_them(
    monkeypatch, make_model, make_raw_table
):
    """The personal model would look better than it is."""
    sample = sample_of(make_model(), make_raw_table(60, seed=2, strange=False), where="table")
    first = owner.at_home._folds(len(sample)) == 0
    targets = sample.records.targets

    def held_out(_, center, weight):
        # One weight tells the first fifth of the records, another one all the others.
        told = {WEIGHTS[0]: first, WEIGHTS[-1]: ~first}.get(weight, np.zeros(len(first), bool))
        return np.where(told, targets, targets + 100.0)

    monkeypatch.setattr(owner.at_home._Bent, "_held_out", held_out)
    bent = owner.at_home._Bent(sample, lambda *_: None)
    assert bent.weight == WEIGHTS[-1]
    np.testing.assert_array_equal(bent.personal, np.where(first, targets + 100.0, targets))


def test_few_records_say_so(at_home, make_model, make_raw_table):
    found = at_home(make_raw_table(10, seed=2, strange=False), make_model())
    assert found.personal is None
    assert "10 records are too few to learn from" in advice(found.judged)


def test_the_commands_cost_nothing_and_a_bent_model_says_that_it_stays_at_home(
    tmp_path, owner_folder, make_model, make_raw_table, typed
):
    model = make_model()
    settings = owner_folder(
        table=make_raw_table(100, seed=2, strange=True), pinned=model.feature_map
    )
    (tmp_path / "model.json").write_text(model.to_json())
    before = sorted(settings.parent.iterdir())
    said = typed("copriv-owner", "evaluate", settings, tmp_path)
    assert said.returncode == 0, said.stderr
    assert "Nothing was charged" in said.stdout
    out = tmp_path / "personal.json"
    made = typed("copriv-owner", "personalise", settings, tmp_path / "model.json", "--out", out)
    assert made.returncode == 0, made.stderr
    assert "stays at home" in made.stdout
    kept = settings.read_bytes()
    said = typed(
        "copriv-owner", "personalise", settings, tmp_path / "model.json", "--out", settings
    )
    assert (
        "already exists and is not a model of an owner's own, so it is left as it is" in said.stderr
    )
    assert settings.read_bytes() == kept
    assert sorted(settings.parent.iterdir()) == before
    assert os.stat(out).st_mode & 0o777 == 0o600
    personal = read_model(out)
    assert (personal.unprotected, personal.personal) == ("owner-a", True)
    assert not np.allclose(personal.theta, model.theta)
    # The learner's commands take it.
    make_raw_table(10, seed=3, strange=False).to_csv(tmp_path / "new.csv", index=False)
    predicted = typed(
        "copriv", "predict", out, "--data", tmp_path / "new.csv", "--out", tmp_path / "p.csv"
    )
    assert predicted.returncode == 0, predicted.stderr


@pytest.mark.parametrize("command", [["evaluate"], ["personalise", "--out", "personal.json"]])
def test_a_run_before_the_settings_is_told_their_order(tmp_path, typed, command):
    settings = tmp_path / "owner.toml"
    made = typed("copriv-owner", *command, tmp_path, settings)
    assert made.returncode == 2
    assert made.stderr == (
        f"copriv-owner: {tmp_path}: is a folder; give OWNER.toml first and the run after it: "
        f"{settings} {tmp_path}\n"
    )


def test_too_few_records_are_not_bent_to(tmp_path, owner_folder, make_model, make_raw_table, typed):
    model = make_model()
    settings = owner_folder(
        table=make_raw_table(9, seed=2, strange=False), pinned=model.feature_map
    )
    (tmp_path / "model.json").write_text(model.to_json())
    out = tmp_path / "personal.json"
    made = typed("copriv-owner", "personalise", settings, tmp_path, "--out", out)
    assert made.returncode == 2
    assert "9 records with a readable target are too few" in made.stderr
    assert not out.exists()
