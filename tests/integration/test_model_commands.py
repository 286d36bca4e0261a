"""What is trained over the network on raw tables is used: predict, evaluate, export."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import tomli_w

from common.errors import DoubtWarning
from common.model import read_model
from learner import Run, train
from learner.commands.use import EXPORTS

OWNERS = ("north", "south")


@pytest.fixture
def trained(tmp_path, make_model, make_raw_table, owner_folder, serve_owner):
    """A run over the network, of owners with gaps and unknown categories."""
    feature_map = make_model().feature_map
    ports = [
        serve_owner(
            owner_folder(
                name, table=make_raw_table(400, seed=5 + i, strange=True), pinned=feature_map
            )
        ).port
        for i, name in enumerate(OWNERS)
    ]
    (tmp_path / "features.json").write_text(feature_map.to_json())
    make_raw_table(300, seed=9, strange=False).to_parquet(tmp_path / "public.parquet")
    study = tmp_path / "study.toml"
    study.write_text(
        tomli_w.dumps(
            {
                "name": "small",
                "seed": 1,
                "guard": False,
                "features": {"map": "features.json", "public": {"path": "public.parquet"}},
                "model": {"loss": "squared", "theta_max": 2.0},
                "algorithm": {"horizon": 20, "rho": 0.01},
                "privacy": {"epsilon": 5, "clip": 3.0},
                "owners": [
                    {"name": name, "address": f"127.0.0.1:{port}"}
                    for name, port in zip(OWNERS, ports, strict=True)
                ],
            }
        )
    )
    return train(study, out=tmp_path / "run")


@pytest.mark.filterwarnings("ignore:this model is worse than the public:UserWarning")
def test_a_model_that_is_evaluated_on_a_table_of_its_own_study_is_doubted(
    trained, tmp_path, strange_table, typed
):
    strange_table.to_csv(tmp_path / "new.csv", index=False)
    link = tmp_path / "link.parquet"
    link.symlink_to("public.parquet")
    words = f"link.parquet: the study of {trained.folder} has records of this table, so its models"
    assert words in typed("copriv", "evaluate", trained.folder, "--data", link).stderr
    for run, data in ((trained.folder, "new.csv"), (trained.folder / "model.json", "link.parquet")):
        said = typed("copriv", "evaluate", run, "--data", tmp_path / data)
        assert said.returncode == 0
        assert "has records of this table" not in said.stderr
    # What is no study has no tables.
    settings = trained.folder / "study.toml"
    for strange in ("name = [", settings.read_text().replace("public.parquet", "a\\u0000b")):
        settings.write_text(strange)
        said = typed("copriv", "evaluate", trained.folder, "--data", link)
        assert said.returncode == 0, said.stderr
        assert "has records of this table" not in said.stderr


# What the owners say of it is noise.
@pytest.mark.filterwarnings("ignore:this model is worse than the public:UserWarning")
@pytest.mark.filterwarnings("ignore:when. 2011-13-01 is not read:common.errors.DoubtWarning")
@pytest.mark.filterwarnings("ignore:X. column:common.errors.DoubtWarning")
def test_what_was_trained_over_the_network_predicts_the_same_everywhere(
    trained, tmp_path, strange_table, typed
):
    strange_table.to_parquet(tmp_path / "new.parquet")
    strange_table.to_csv(tmp_path / "new.csv", index=False)
    for data, out in (("new.parquet", "p.csv"), ("new.csv", "p.parquet")):
        made = typed(
            "copriv", "predict", trained.folder, "--data", tmp_path / data, "--out", tmp_path / out
        )
        assert made.returncode == 0, made.stderr
        assert "1,000 records" in made.stdout
    for form in ("onnx", "sklearn", "json", "sql"):
        made = typed(
            "copriv", "export", trained.folder, "--to", form, "--out", tmp_path / f"model.{form}"
        )
        assert made.returncode == 0, made.stderr
    with pytest.warns(DoubtWarning, match="table: column"):
        wanted = trained.predict(strange_table)["prediction"].to_numpy()
    found = pd.read_csv(tmp_path / "p.csv")
    assert list(found.columns) == [*strange_table.columns, "prediction"]
    np.testing.assert_allclose(found["prediction"], wanted, atol=1e-9)
    np.testing.assert_allclose(
        pd.read_parquet(tmp_path / "p.parquet")["prediction"], wanted, atol=1e-9
    )
    rules = trained.model.feature_map.columns
    estimator = joblib.load(tmp_path / "model.sklearn")
    raw = strange_table[[rule.name for rule in rules]]
    np.testing.assert_allclose(estimator.predict(raw), wanted, atol=1e-6)
    # Of Python 3.15 it has no wheel yet.
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    feeds = {
        rule.name: raw[rule.name].to_numpy(float if rule.kind == "number" else object)[:, None]
        for rule in rules
    }
    np.testing.assert_allclose(session.run(None, feeds)[0][:, 0], wanted, atol=1e-6)
    # Noise and the public model are there too, from public records alone.
    model = read_model(trained.folder)
    assert model.public_theta is not None
    assert np.all(trained.coefficients["noise_standard_error"] > 0)


def test_the_public_model_is_used_where_it_is_asked_for_and_told_of_where_it_is_better(
    trained, tmp_path, make_raw_table, typed
):
    table, data = make_raw_table(300, seed=9, strange=False), tmp_path / "new.csv"
    table.to_csv(data, index=False)
    path = trained.folder / "summary.json"
    told = json.loads(path.read_text())
    told |= {"fitness": 1.4, "fitness_optimal": 1.0}
    told |= {"relative_fitness": 0.4, "relative_fitness_public": 0.1}
    told["owners"] = [
        owner | {"relative_fitness_alone": 0.3, "gains": False} for owner in told["owners"]
    ]
    path.write_text(json.dumps(told))
    free, common = tmp_path / "free.csv", tmp_path / "common.csv"
    for out, more in ((free, ["--public"]), (common, [])):
        for command in (("predict", "--data", data), ("export", "--to", "json")):
            into = out if command[0] == "predict" else out.with_suffix(".json")
            said = typed("copriv", command[0], trained.folder, *command[1:], "--out", into, *more)
            assert said.returncode == 0, said.stderr
            warned = "relative fitness 0.4 against 0.1; --public takes that one" in said.stderr
            assert warned == (not more)
    run = Run.load(trained.folder)
    with pytest.warns(DoubtWarning, match=r"predict\(table, public=True\) takes that one"):
        assert np.allclose(run.predict(table)["prediction"], pd.read_csv(common)["prediction"])
    wanted = run.model.outputs(
        run.model.margins(
            run.model.feature_map.features_of(table, where=""), run.model.public_theta
        )
    )
    np.testing.assert_allclose(run.predict(table, public=True)["prediction"], wanted)
    np.testing.assert_allclose(pd.read_csv(free)["prediction"], wanted)
    assert free.with_suffix(".json").read_text() != common.with_suffix(".json").read_text()


def test_without_public_records_there_is_no_public_model(
    tmp_path, make_model, make_raw_table, typed
):
    model, data = tmp_path / "model.json", tmp_path / "new.csv"
    model.write_text(replace(make_model(), public_theta=None).to_json())
    make_raw_table(300, seed=9, strange=False).to_csv(data, index=False)
    said = typed(
        "copriv", "predict", model, "--data", data, "--out", tmp_path / "o.csv", "--public"
    )
    assert said.returncode == 2
    assert "model.json: no model of public records stands beside this one" in said.stderr
    assert not (tmp_path / "o.csv").exists()


def test_evaluate_tells_quality_beside_the_public_model(trained, tmp_path, strange_table, typed):
    strange_table.to_csv(tmp_path / "new.csv", index=False)
    arguments = ("evaluate", trained.folder, "--data", tmp_path / "new.csv")
    said = typed("copriv", *arguments)
    assert said.returncode == 0, said.stderr
    for word in ("RMSE", "MAE", "R2", "common", "public", "than the public one in RMSE"):
        assert word in said.stdout
    told = json.loads(typed("copriv", *arguments, "--json").stdout)
    assert told["records"] == 1000
    assert told["models"].keys() == {"common", "public"}
    interval = told["models"]["common"]["rmse"]
    assert interval["low"] < interval["value"] < interval["high"]
    assert told["clamping"]["measure"] == "rmse"


def test_predict_and_evaluate_say_which_columns_do_not_fit(
    tmp_path, make_model, make_raw_table, typed
):
    model, data = tmp_path / "model.json", tmp_path / "new.csv"
    model.write_text(make_model().to_json())
    table = make_raw_table(300, seed=9, strange=False)
    for factor, is_told in ((1.0, False), (1000.0, True)):
        table.assign(amount=table["amount"] * factor).to_csv(data, index=False)
        for command in (("predict", "--out", tmp_path / "out.csv"), ("evaluate", "--json")):
            said = typed("copriv", command[0], model, "--data", data, *command[1:])
            assert said.returncode == 0, said.stderr
            words = f"copriv: warning: {data}: column 'amount': "
            assert [line.startswith(words) for line in said.stderr.splitlines()] == [True] * is_told
            assert "warning" not in said.stdout


def test_a_table_is_read_as_it_is_typed_and_points_that_may_group_are_told_of(
    tmp_path, make_model, make_raw_table, typed
):
    model, data, out = tmp_path / "model.json", tmp_path / "new.csv", tmp_path / "out.parquet"
    model.write_text(make_model().to_json())
    # Too few records for a sentence about units.
    table = make_raw_table(10, seed=9, strange=False).round().astype({"is new": int, "y": int})
    table["amount"] = np.arange(1000, 1010)

    def predicted(*more):
        said = typed("copriv", "predict", model, "--data", data, "--out", out, *more)
        assert said.returncode == 0, said.stderr
        return pd.read_parquet(out)["prediction"].tolist(), said.stderr

    table.to_csv(data, index=False)
    plain, told = predicted()
    assert told == ""
    table.assign(amount=[f"{x:,}".replace(",", ".") for x in table["amount"]]).to_csv(
        data, index=False, sep=";"
    )
    grouped, told = predicted()
    assert grouped != plain
    assert "warning: amount: cells such as 1.000 are read as decimals; if the point groups" in told
    assert predicted("--decimal", ",") == (plain, "")
    quality = typed("copriv", "evaluate", model, "--data", data, "--decimal", ",", "--json")
    assert (quality.returncode, quality.stderr) == (0, "")
    # A target that is not read at all, and the reason.
    table.assign(y=table["y"] + 0.5).to_csv(data, index=False, decimal=",")
    unread = typed("copriv", "evaluate", model, "--data", data)
    assert unread.returncode == 2
    assert "warning: y: cells such as" in unread.stderr
    assert 'say so with decimal = "," (--decimal ,)' in unread.stderr


def test_dates_that_may_be_meant_otherwise_are_told_of(tmp_path, make_model, make_raw_table, typed):
    model, data, out = tmp_path / "model.json", tmp_path / "new.csv", tmp_path / "out.csv"
    model.write_text(make_model().to_json())
    table = make_raw_table(10, seed=9, strange=False)
    for mark, is_told in (("/", True), ("-", False)):
        days = [f"01/0{1 + i % 9}/2012" if mark == "/" else f"2012-0{1 + i % 9}" for i in range(10)]
        table.assign(when=days).to_csv(data, index=False)
        for command in (("predict", "--out", out), ("evaluate", "--json")):
            said = typed("copriv", command[0], model, "--data", data, *command[1:])
            assert said.returncode == 0, said.stderr
            words = "warning: when: 01/01/2012 is read as month/day/year; if that is not meant"
            assert (words in said.stderr) == is_told


@pytest.mark.parametrize(("mode", "is_open"), [(0o755, True), (0o700, False)])
def test_predictions_are_for_nobody_who_cannot_come_to_the_table(
    make_model, make_raw_table, typed, mode, is_open
):
    """Everybody may read the table, but the way to it is closed."""
    # The folders that pytest makes are all for their user alone.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "own").mkdir()
        model, data, out = folder / "model.json", folder / "own" / "new.csv", folder / "out.csv"
        model.write_text(make_model().to_json())
        make_raw_table(10, seed=9, strange=False).to_csv(data, index=False)
        data.chmod(0o644)
        data.parent.chmod(mode)
        said = typed("copriv", "predict", model, "--data", data, "--out", out)
        assert said.returncode == 0, said.stderr
        assert bool(out.stat().st_mode & 0o044) == is_open


def test_predictions_are_the_same_whichever_way_dates_are_written(
    tmp_path, make_model, make_raw_table, typed
):
    model, data, out = tmp_path / "model.json", tmp_path / "new.csv", tmp_path / "out.csv"
    model.write_text(make_model().to_json())
    days = pd.date_range("2012-01-01", periods=300)
    table = make_raw_table(300, seed=9, strange=False)
    found = []
    for form, more in (("%Y-%m-%d", ()), ("%d.%m.%Y", ("--dates", "day-first"))):
        table.assign(when=days.strftime(form)).to_csv(data, index=False)
        said = typed("copriv", "predict", model, "--data", data, "--out", out, *more)
        assert (said.returncode, "when" in said.stderr) == (0, False), said.stderr
        found.append(pd.read_csv(out)["prediction"].tolist())
    assert found[0] == found[1]


def test_nothing_is_written_over_a_file_that_is_something_else(
    tmp_path, make_model, make_raw_table, typed
):
    """A table, a model or settings where another file was to go were gone without a word."""
    model, data = tmp_path / "model.json", tmp_path / "new.csv"
    model.write_text(make_model().to_json())
    make_raw_table(300, seed=9, strange=False).to_csv(data, index=False)
    study = tmp_path / "study.toml"
    study.write_text(
        tomli_w.dumps(
            {
                "name": "s",
                "features": {"public": {"path": "new.csv"}, "target": "y"},
                "model": {"theta_max": 2.0},
                "privacy": {"epsilon": 1},
                "owners": [{"name": "north", "address": "127.0.0.1:1"}],
            }
        )
    )
    other = tmp_path / "other.csv"
    make_raw_table(10, seed=3, strange=False).to_csv(other, index=False)
    before = {path: path.read_bytes() for path in (model, data, study, other)}
    fits = ("copriv", "features", "fit", study)
    predicts = ("copriv", "predict", model, "--data", data)
    exports = {form: ("copriv", "export", model, "--to", form) for form in EXPORTS}
    for command, taken in (
        *((fits, path) for path in before),
        (predicts, other),
        *((command, path) for command in exports.values() for path in before),
    ):
        said = typed(*command, "--out", taken)
        assert said.returncode == 2, command
        assert "already exists and " in said.stderr
        assert "; give another path with --out" in said.stderr
    assert {path: path.read_bytes() for path in before} == before
    # What such a command has made before is made anew.
    for command, name in ((fits, "f.json"), (predicts, "p.csv"), (predicts, "p.parquet")):
        for _ in range(2):
            said = typed(*command, "--out", tmp_path / name)
            assert said.returncode == 0, said.stderr
    for form, command in exports.items():
        for _ in range(2):
            assert typed(*command, "--out", tmp_path / f"m.{form}").returncode == 0


def test_a_folder_of_files_is_one_table(tmp_path, make_model, make_raw_table, typed):
    """As everywhere else: a pattern for the same files was taken."""
    model, stays, out = tmp_path / "model.json", tmp_path / "stays", tmp_path / "out.csv"
    model.write_text(make_model().to_json())
    stays.mkdir()
    for i in range(2):
        make_raw_table(60, seed=i, strange=False).to_csv(stays / f"{i}.csv", index=False)
    said = typed("copriv", "predict", model, "--data", stays, "--out", out)
    assert said.returncode == 0, said.stderr
    assert len(pd.read_csv(out)) == 120
    assert "120 records" in typed("copriv", "evaluate", model, "--data", stays).stdout


def test_evaluate_refuses_a_row_of_totals(tmp_path, make_model, make_raw_table, typed):
    """One such row outweighs all errors of the others."""
    model, data = tmp_path / "model.json", tmp_path / "new.csv"
    model.write_text(make_model().to_json())
    table = make_raw_table(300, seed=9, strange=False)
    table["y"] = table["y"].abs()
    pd.concat([table, pd.DataFrame({"y": [table["y"].sum()]})]).to_csv(data, index=False)
    said = typed("copriv", "evaluate", model, "--data", data)
    assert said.returncode == 2
    assert "row 301 below the header is not a record: its y" in said.stderr


def test_predict_tells_of_empty_rows(tmp_path, make_model, make_raw_table, typed):
    """Each had a prediction like any other."""
    model, data, out = tmp_path / "model.json", tmp_path / "new.csv", tmp_path / "out.csv"
    model.write_text(make_model().to_json())
    table = make_raw_table(300, seed=9, strange=False)
    pd.concat([table, pd.DataFrame({"y": [1.0]})]).to_csv(data, index=False)
    said = typed("copriv", "predict", model, "--data", data, "--out", out)
    assert said.returncode == 0
    assert "1 row has no value that is read in any column of the model" in " ".join(
        said.stderr.split()
    )


def test_evaluate_says_that_all_records_are_of_one_class(
    tmp_path, make_model, make_raw_table, typed
):
    model, data = tmp_path / "model.json", tmp_path / "new.csv"
    model.write_text(make_model("logistic").to_json())
    table = make_raw_table(300, seed=9, strange=False)
    other = next(value for value in table["class"].unique() if value != "late")

    def evaluated(cells):
        table.assign(**{"class": cells}).to_csv(data, index=False)
        said = typed("copriv", "evaluate", model, "--data", data)
        assert said.returncode == 0, said.stderr
        as_json = typed("copriv", "evaluate", model, "--data", data, "--json")
        return said.stderr, " ".join(said.stdout.split()), json.loads(as_json.stdout)

    told, out, found = evaluated(table["class"])
    assert "of one class alone" not in out
    assert told == ""
    assert found["positives"] == (table["class"] == "late").sum()
    told, out, found = evaluated(other)
    assert "No record of the 300 has class = late: of one class alone AUC is undefined" in out
    assert "no record is of the class 'late'" in told
    assert found["positives"] == 0
    told, out, _ = evaluated("late")
    assert "Every record of the 300 has class = late" in out
    assert "every record is of the class 'late'" in told
    told, out, _ = evaluated(table["class"].str.upper())
    assert "No record of the 300 has class = late" in out
    assert "'LATE' (did you mean 'late'?)" in told
    assert found["positive"] == "class = late"


def test_evaluate_says_that_a_model_is_a_personal_one(tmp_path, make_model, make_raw_table, typed):
    model, data = tmp_path / "personal.json", tmp_path / "new.csv"
    make_raw_table(300, seed=9, strange=False).to_csv(data, index=False)
    for bent in (True, False):
        model.write_text(replace(make_model(), unprotected="north", personal=bent).to_json())
        said = typed("copriv", "evaluate", model, "--data", data, "--json")
        assert said.returncode == 0, said.stderr
        assert ("the one that north adapted to its own records" in said.stderr) == bent


@pytest.mark.parametrize("unprotected", [None, "north"])
def test_what_is_made_of_a_model_that_nothing_protects_is_for_nobody_else(
    make_model, make_raw_table, typed, unprotected
):
    forms = ("json", "sql", "onnx", "sklearn")
    # The folders that pytest makes are all for their user alone, and so are predictions there.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        model, data, out = (folder / each for each in ("model.json", "new.csv", "out.csv"))
        make_raw_table(30, seed=9, strange=False).to_csv(data, index=False)
        data.chmod(0o644)
        model.write_text(replace(make_model(), unprotected=unprotected).to_json())
        exports = [("export", model, "--to", form) for form in forms]
        for arguments in (*exports, ("predict", model, "--data", data)):
            said = typed("copriv", *arguments, "--out", out)
            assert said.returncode == 0, said.stderr
            assert (out.stat().st_mode & 0o077 == 0) == (unprotected is not None)
            out.unlink()


def test_predict_says_which_class_the_prediction_1_is(tmp_path, make_model, strange_table, typed):
    strange_table.to_csv(tmp_path / "new.csv", index=False)
    (tmp_path / "model.json").write_text(make_model("logistic").to_json())
    arguments = ("--data", tmp_path / "new.csv", "--out", tmp_path / "out.csv")
    said = typed("copriv", "predict", tmp_path / "model.json", *arguments)
    assert "prediction 1 means class = late" in said.stdout


@pytest.mark.parametrize("name", ["copriv_c0", "Copriv_Margin"])
def test_an_input_called_as_what_an_export_computes_is_one_sentence(
    tmp_path, make_model, typed, name
):
    run, out = tmp_path / "model.json", tmp_path / "out"
    run.write_text(make_model("squared").to_json().replace('"amount"', f'"{name}"'))
    for form in ("onnx", "sql"):
        said = typed("copriv", "export", run, "--to", form, "--out", out)
        assert said.returncode == 2
        assert said.stderr.startswith(f"copriv: {run}: the model's own input {name!r} has the name")
        assert not out.exists()
    assert typed("copriv", "export", run, "--to", "json", "--out", out).returncode == 0


@pytest.mark.parametrize("form", ["onnx", "sql"])
def test_an_input_without_a_name_is_one_sentence(tmp_path, make_model, typed, form):
    """Parquet has such columns, but no graph and no query."""
    run, out = tmp_path / "model.json", tmp_path / "out"
    run.write_text(make_model("squared").to_json().replace('"amount"', '""'))
    said = typed("copriv", "export", run, "--to", form, "--out", out)
    assert said.returncode == 2
    assert said.stderr.startswith(f"copriv: {run}: an input of the model has an empty name")
    assert not out.exists()
    assert typed("copriv", "export", run, "--to", "json", "--out", out).returncode == 0


@pytest.mark.parametrize("name", ['\\" FROM accounts --', "amount\0"])
def test_an_input_whose_name_would_end_elsewhere_in_a_database_is_one_sentence(
    tmp_path, make_model, typed, name
):
    run, out = tmp_path / "model.json", tmp_path / "out"
    hostile = json.dumps(name)
    run.write_text(make_model("squared").to_json().replace('"amount"', hostile))
    said = typed("copriv", "export", run, "--to", "sql", "--out", out)
    assert said.returncode == 2
    assert "has a backslash or the character 0 in its name" in said.stderr
    assert not out.exists()
    assert typed("copriv", "export", run, "--to", "json", "--out", out).returncode == 0


@pytest.mark.parametrize("name", ["m.json", "m.SQL", "m.joblib"])
def test_an_export_to_a_name_of_another_form_is_one_sentence(tmp_path, make_model, typed, name):
    run, out = tmp_path / "model.json", tmp_path / "other" / name
    run.write_text(make_model("squared").to_json())
    said = typed("copriv", "export", run, "--to", "onnx", "--out", out)
    assert said.returncode == 2
    assert said.stderr.startswith(f"copriv: --out {out}: is named as --to ")
    assert said.stderr.endswith("or a file ending in .onnx\n")
    assert not out.parent.exists()


@pytest.mark.parametrize(("loss", "name"), [("squared", "prediction"), ("logistic", "probability")])
def test_an_input_called_as_what_a_prediction_adds_is_one_sentence(
    tmp_path, make_model, typed, loss, name
):
    text, run = make_model(loss).to_json(), tmp_path / "model.json"
    run.write_text(text.replace('"amount"', f'"{name}"'))
    for form in ("onnx", "sql"):
        said = typed("copriv", "export", run, "--to", form, "--out", tmp_path / "out")
        assert said.returncode == 2
        assert said.stderr.startswith(f"copriv: {run}: the model's own input {name!r} has the name")
    (tmp_path / "t.csv").write_text(f"{name}\n1\n")
    arguments = ("--data", tmp_path / "t.csv", "--out", tmp_path / "out.csv")
    assert "train again" in typed("copriv", "predict", run, *arguments).stderr
    said = typed("copriv", "export", run, "--to", "json", "--out", tmp_path / "out")
    assert said.returncode == 0, said.stderr


def test_what_cannot_be_used_is_one_sentence_and_leaves_nothing(
    tmp_path, make_model, strange_table, typed
):
    run, data, out = tmp_path / "run", tmp_path / "new.csv", tmp_path / "out.csv"
    run.mkdir()
    strange_table.to_csv(data, index=False)

    def said(*arguments):
        result = typed("copriv", *arguments)
        assert result.returncode == 2, result.stdout
        (line,) = result.stderr.strip().splitlines()
        assert not out.exists()
        return str(line)

    assert "cannot be read" in said("predict", run, "--data", data, "--out", out)
    for way in (("predict", "--out", out), ("evaluate",)):
        assert "too long" in said(way[0], tmp_path / ("a" * 300), "--data", data, *way[1:])
    for held, told in (("forecast.json", "a forecast and no run"), ("journal.sqlite", "--resume")):
        folder = tmp_path / held
        folder.mkdir()
        for name in (held, "study.toml"):
            (folder / name).write_text("")
        assert told in said("predict", folder, "--data", data, "--out", out)
        assert told in said("evaluate", folder, "--data", data)
        assert told in said("export", folder, "--to", "json", "--out", out)
    (run / "model.json").write_text(make_model().to_json())
    # What an export wrote is no model that can be read back.
    for form in ("json", "sql"):
        exported = tmp_path / f"exported.{form}"
        assert typed("copriv", "export", run, "--to", form, "--out", exported).returncode == 0
        assert "its model.json (an export cannot be read back)" in said(
            "evaluate", exported, "--data", data
        )
    assert "ending in .csv" in said("predict", run, "--data", data, "--out", tmp_path / "out.txt")
    assert "no such file" in said("predict", run, "--data", tmp_path / "absent.csv", "--out", out)
    assert "cannot be written" in said(
        "predict", run, "--data", data, "--out", tmp_path / "absent" / "out.csv"
    )
    strange_table.assign(prediction=1).to_csv(data, index=False)
    assert "already has a column 'prediction'" in said("predict", run, "--data", data, "--out", out)
    strange_table.drop(columns="grade").to_csv(data, index=False)
    # An owner's table may have names of its own, which its other commands translate.
    names = "(rename of an OWNER.toml is not applied here: give a table with the study's own names)"
    for words in ("no column 'grade'", names):
        assert words in said("predict", run, "--data", data, "--out", out)
        assert words in said("evaluate", run, "--data", data)
    (run / "model.json").write_text("{}")
    assert "damaged" in said("export", run, "--to", "json", "--out", out)
