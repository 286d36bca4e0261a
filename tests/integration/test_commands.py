"""The commands as people type them: real processes, real files, and every wrong input."""

import json
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tomli_w
from forked import Forked
from forked import run as run_command
from free_ports import free_address

from owner.server import start_owner

OWNERS = ("north", "south")


def copriv(*arguments, command="copriv"):
    return run_command(command, *arguments)


def sentence(result):
    """The one sentence of a refusal."""
    assert result.returncode == 2, result.stderr + result.stdout
    assert "Traceback" not in result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    return str(lines[0])


def write_study(folder, table, *, change):
    table.to_csv(folder / "records.csv", index=False)
    settings = {
        "name": "small",
        "seed": 1,
        "profile": "published",
        "data": {"path": "records.csv"},
        "features": {"public": {"rows": "-300:"}, "target": "y"},
        "model": {"loss": "squared", "theta_max": 2.0},
        "algorithm": {"horizon": 60, "rho": 1e-6},
        "privacy": {"epsilon": 5},
        "owners": [
            {"name": "north", "data": {"rows": ":300"}},
            {"name": "south", "data": {"rows": "300:600"}},
        ],
    }
    change(settings)
    path = folder / "study.toml"
    path.write_text(tomli_w.dumps(settings))
    return path


def as_it_is(settings):
    del settings


@pytest.fixture
def study(tmp_path, table_maker):
    """Writes a small study with its table and returns its path."""
    table = table_maker(900, seed=4)
    return lambda *, change=as_it_is: write_study(tmp_path, table, change=change)


@dataclass(frozen=True)
class Run:
    """A finished simulation: what the command said, and what it left."""

    folder: Path
    said: str

    def told(self):
        return json.loads((self.folder / "summary.json").read_text())


def simulated(study, folder, *options):
    result = copriv("simulate", study, "--out", folder, *options)
    assert result.returncode == 0, result.stderr
    return Run(folder, result.stdout)


TIME_SCALE = 0.02


@pytest.fixture(scope="module")
def real_time_run(tmp_path_factory, table_maker):
    """A run with secure noise, in real time."""
    folder = tmp_path_factory.mktemp("real-time")
    path = write_study(folder, table_maker(900, seed=4), change=as_it_is)
    changes = ("algorithm.rho=1e-5", "privacy.epsilon=7", f"algorithm.time_scale={TIME_SCALE}")
    options = [word for change in changes for word in ("--set", change)]
    return simulated(path, folder / "run", *options)


def test_simulate_leaves_a_complete_run_folder(real_time_run, typed):
    out, said, told = real_time_run.folder, real_time_run.said, real_time_run.told()
    assert said.rstrip().endswith(f"run folder: {out}")
    for word in ("owner", "records", "epsilon", "responses", "noise scale", "alone", "gains"):
        assert word in said
    assert [owner["name"] for owner in told["owners"]] == list(OWNERS)
    assert sum(owner["responses"] for owner in told["owners"]) == told["ticks"] == 60
    assert all(owner["epsilon"] == "7" for owner in told["owners"])
    assert told["insecure_noise"] is False
    assert told["relative_fitness"] >= 0
    trace = pd.read_parquet(out / "trace.parquet")
    assert trace["k"].tolist() == list(range(1, 61))
    np.testing.assert_allclose(trace["theta"].iloc[-1], told["theta"])
    assert trace["relative_fitness"].iloc[-1] == pytest.approx(told["relative_fitness"])
    for name in ("study.toml", "journal.sqlite", "model.json", "report.html", "features.json"):
        assert (out / name).stat().st_size > 0
    assert "http" not in (out / "report.html").read_text().replace("data:image", "")
    # The owners' ledgers agree with the summary.
    for owner in told["owners"]:
        ledger = out / "owners" / owner["name"] / "ledger.sqlite"
        study_entry = json.loads(typed("copriv-owner", "ledger", "export", ledger).stdout)
        assert study_entry["studies"][0]["answered"] == owner["responses"]
        assert study_entry["studies"][0]["epsilon_spent"] == owner["epsilon_spent"]


def test_real_time_waits_for_the_clocks(real_time_run):
    trace = pd.read_parquet(real_time_run.folder / "trace.parquet")
    assert (trace["wall_seconds"] >= trace["time"] * TIME_SCALE).all()


def test_a_report_is_made_again_from_its_summary(real_time_run, tmp_path, typed):
    out = tmp_path / "run"
    shutil.copytree(real_time_run.folder, out)
    page = (out / "report.html").read_text()
    (out / "report.html").unlink()
    again = copriv("report", out)
    assert again.returncode == 0, again.stderr
    *table, told = again.stdout.splitlines()
    assert told == f"report: {out / 'report.html'}"
    assert len(table) > 6
    assert set(table) <= set(real_time_run.said.splitlines())
    assert (out / "report.html").read_text() == page
    compared = typed(
        "copriv", "report", out, real_time_run.folder, "--out", tmp_path / "comparison.html"
    )
    assert compared.returncode == 0, compared.stderr
    assert "2 runs compared" in (tmp_path / "comparison.html").read_text()
    assert "is replaced" not in compared.stdout
    page = tmp_path / "comparison.html"
    again = typed("copriv", "report", real_time_run.folder, out, "--out", page)
    assert f"{page}: already exists and is replaced" in " ".join(again.stdout.split())
    table = tmp_path / "stays.csv"
    table.write_text("age,days\n")
    other = typed("copriv", "report", out, real_time_run.folder, "--out", table)
    assert "stays.csv: already exists and is not a page of compared runs, so" in sentence(other)
    assert table.read_text() == "age,days\n"
    one = typed("copriv", "report", out, "--out", tmp_path / "c.html")
    assert "the page of one run is" in sentence(one)
    twice = typed(
        "copriv", "report", out, out.parent / "." / out.name, "--out", tmp_path / "c.html"
    )
    assert "is given twice; name each run once" in sentence(twice)
    assert not (tmp_path / "c.html").exists()


def test_a_report_of_two_runs_in_one_folder_is_refused(real_time_run, tmp_path, typed):
    """It told the quality of one and the coefficients of the other."""
    out = tmp_path / "run"
    shutil.copytree(real_time_run.folder, out)
    model = json.loads((out / "model.json").read_text())
    model["theta"] = [-value for value in model["theta"]]
    (out / "model.json").write_text(json.dumps(model))
    page = (out / "report.html").read_text()
    told = sentence(typed("copriv", "report", out))
    assert "summary.json and model.json are of different runs; restore both from one copy" in told
    assert (out / "report.html").read_text() == page
    (out / "model.json").unlink()
    assert typed("copriv", "report", out).returncode == 0
    trace = pd.read_parquet(out / "trace.parquet")
    assert trace.attrs["study_id"] == json.loads((out / "summary.json").read_text())["study_id"]
    trace.attrs["study_id"] = "of-another"
    trace.to_parquet(out / "trace.parquet")
    told = sentence(typed("copriv", "report", out))
    assert "summary.json and trace.parquet are of different runs; restore both from one" in told
    trace.attrs.clear()  # as an earlier version left it
    trace.to_parquet(out / "trace.parquet")
    assert typed("copriv", "report", out).returncode == 0


def test_a_report_of_no_run_is_refused(tmp_path, typed):
    assert "holds no summary.json" in sentence(typed("copriv", "report", tmp_path))
    gone = typed("copriv", "report", tmp_path / "gone")
    assert "gone: there is no such folder; give the folder of a" in sentence(gone)
    (tmp_path / "sim" / "owners").mkdir(parents=True)
    (tmp_path / "sim" / "study.toml").touch()
    assert "holds no summary.json" in sentence(typed("copriv", "report", tmp_path / "sim"))
    (tmp_path / "sim" / "journal.sqlite").touch()
    begun = typed("copriv", "report", tmp_path / "sim")
    assert "the simulation has not finished, and does not go on" in sentence(begun)
    (tmp_path / "summary.json").write_text("{}")
    assert "study: field required" in sentence(typed("copriv", "report", tmp_path))


def test_a_simulation_that_was_stopped_is_not_resumed(study, tmp_path, typed):
    """Its owners have no address, and the advice to give them one led nowhere."""
    folder = tmp_path / "sim"
    (folder / "owners").mkdir(parents=True)
    (folder / "study.toml").write_text(study().read_text())
    (folder / "journal.sqlite").touch()
    said = sentence(typed("copriv", "train", "--resume", folder))
    assert "this is a simulation, whose owners end with it, so it does not go on" in said


def test_a_table_may_have_an_apostrophe_in_its_name(study, tmp_path, typed):
    path = study(change=lambda settings: settings.pop("data"))
    table = (tmp_path / "records.csv").rename(tmp_path / "the owner's.csv")
    result = typed("copriv", "features", "fit", path, "--data", table, "--out", tmp_path / "map")
    assert result.returncode == 0, result.stderr


@pytest.fixture(scope="module")
def seeded_runs(tmp_path_factory, table_maker):
    """Three runs of one study with insecure noise; the second and third use a saved map."""
    folder, table = tmp_path_factory.mktemp("seeded"), table_maker(900, seed=4)
    path = write_study(folder, table, change=as_it_is)
    first = simulated(path, folder / "run0", "--insecure-noise-seed", 3)
    fitted = copriv("features", "fit", path, "--out", folder / "features.json")
    assert fitted.returncode == 0, fitted.stderr
    assert "4 features from 3 columns of 300 public records" in fitted.stdout
    path = write_study(
        folder, table, change=lambda settings: settings.update(features={"map": "features.json"})
    )
    seeds = enumerate((3, 4), start=1)
    others = [simulated(path, folder / f"run{i}", "--insecure-noise-seed", s) for i, s in seeds]
    return [first, *others]


def test_a_seed_below_0_is_refused(study):
    path = study()
    for more in ((), ("--in-memory",)):
        result = copriv("simulate", path, "--insecure-noise-seed", -1, *more)
        assert result.returncode == 2
        assert "-1 is not in the range" in result.stderr


def test_a_simulation_in_memory_is_known_as_one_before_it_has_finished(
    seeded_runs, tmp_path, typed
):
    """With addresses in its study it went on with the owners there, in a study that they join."""
    path = seeded_runs[0].folder.parent / "study.toml"
    run = simulated(path, tmp_path / "run", "--in-memory")
    (run.folder / "summary.json").unlink()
    settings = (run.folder / "study.toml").read_text()
    reached = settings.replace("{ name = ", '{ address = "127.0.0.1:9", name = ')
    assert reached != settings
    (run.folder / "study.toml").write_text(reached)
    for command in (("train", "--resume"), ("report",), ("close", "--abandon")):
        said = sentence(typed("copriv", *command, run.folder))
        assert "simulat" in said
        assert "train --resume" not in said


def test_owners_in_memory_answer_as_processes_do_and_the_run_says_so(seeded_runs, tmp_path):
    path = seeded_runs[0].folder.parent / "study.toml"
    run = simulated(path, tmp_path / "run", "--insecure-noise-seed", 3, "--in-memory")
    told = run.told()
    assert told["theta"] == seeded_runs[1].told()["theta"]
    assert told["in_memory"] is told["insecure_noise"] is True
    assert "IN MEMORY" in run.said
    assert "IN MEMORY" in (run.folder / "report.html").read_text()
    assert not list((run.folder / "owners").iterdir())
    assert "in_memory" not in seeded_runs[1].told()
    assert json.loads((run.folder / "model.json").read_text())["insecure_noise"] is True
    exported = copriv("export", run.folder, "--to", "sql", "--out", tmp_path / "model.sql")
    assert "INSECURE: the noise of this model" in exported.stderr
    assert "INSECURE" in (tmp_path / "model.sql").read_text()
    records = run.folder.parent / "records.csv"
    judged = copriv("evaluate", run.folder, "--data", records)
    assert "INSECURE: the noise of this model" in judged.stderr


def test_numbers_that_no_option_can_have_are_refused(study, tmp_path):
    out = tmp_path / "run"
    grid = ("--grid", "privacy.epsilon=1", "--seeds", 2)
    for words in (
        ("simulate", study(), "--in-memory", "--insecure-noise-seed", -1),
        ("sweep", study(), *grid, "--jobs", 0),
        ("sweep", study(), *grid, "--jobs", 1_000_000),
        ("forecast", study(), "--quick", "--jobs", 0),
    ):
        said = copriv(*words, "--out", out)
        assert said.returncode == 2, said.stderr
        assert "Traceback" not in said.stderr
        assert f"Invalid value for '{words[-2]}': " in said.stderr
        assert not out.exists()


def test_a_simulation_warns_of_an_owner_whose_columns_do_not_fit(study, tmp_path):
    path = study()
    table = pd.read_csv(tmp_path / "records.csv")
    column = next(name for name in table.columns if name != "y")
    table.loc[:299, column] *= 1000.0
    table.to_csv(tmp_path / "records.csv", index=False)
    result = copriv("simulate", path, "--out", tmp_path / "run", "--in-memory")
    assert result.returncode == 0, result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"copriv: warning: owner north: column '{column}': ")


def test_what_the_guard_stops_leaves_no_folder_so_that_yes_goes_on_there(study, tmp_path):
    path, out = study(), tmp_path / "run"
    path.write_text(
        path.read_text()
        .replace('profile = "published"\n', "guard = true\n")
        .replace("epsilon = 5", "epsilon = 1e-6")
    )
    told = sentence(copriv("simulate", path, "--out", out, "--in-memory"))
    assert "go on with --yes" in told
    assert not out.exists()
    simulated(path, out, "--in-memory", "--yes")
    assert sentence(copriv("simulate", path, "--out", out, "--in-memory")).endswith("with --out")
    assert (out / "summary.json").is_file()


def test_owners_in_memory_cannot_come_to_the_learner(study, tmp_path):
    path = study(change=lambda settings: settings["algorithm"].update(initiative="owner"))
    told = sentence(copriv("simulate", path, "--in-memory", "--out", tmp_path / "run"))
    assert "--in-memory" in told
    assert not (tmp_path / "run").exists()
    assert "--in-memory" in sentence(copriv("simulate", study(), "--in-memory", "--each-learns"))
    told = sentence(copriv("simulate", study(), "--in-memory", "--allow-private-bounds"))
    assert "owners in memory serve any feature map" in told


def test_equal_insecure_seeds_give_equal_models_and_say_that_they_are_insecure(seeded_runs):
    for run in seeded_runs:
        assert "INSECURE" in run.said
        assert run.told()["insecure_noise"] is True
        assert "INSECURE" in (run.folder / "report.html").read_text()
        assert "INSECURE" in (run.folder / "owners" / "north" / "owner.log").read_text()
    thetas = [run.told()["theta"] for run in seeded_runs]
    assert thetas[0] == thetas[1] != thetas[2]


def test_features_fit_saves_the_map_that_a_study_can_use(seeded_runs):
    saved = (seeded_runs[0].folder.parent / "features.json").read_text()
    assert [(run.folder / "features.json").read_text() for run in seeded_runs] == [saved] * 3


def test_train_reaches_owners_that_run_elsewhere(
    study, tmp_path, owner_folder, serve_owner, feature_map
):
    running = [serve_owner(owner_folder(name, seed=i)) for i, name in enumerate(OWNERS)]
    (tmp_path / "features.json").write_text(feature_map.to_json())

    def elsewhere(settings):
        settings["features"] = {"map": "features.json"}
        settings["owners"] = [
            {"name": name, "address": f"127.0.0.1:{one.port}"}
            for name, one in zip(OWNERS, running, strict=True)
        ]

    out = tmp_path / "run"
    result = copriv("train", study(change=elsewhere), "--out", out)
    assert result.returncode == 0, result.stderr
    told = json.loads((out / "summary.json").read_text())
    assert told["ticks"] == 60
    # Only a simulation may look at the union of the records.
    assert not {"fitness", "relative_fitness"} & set(told)


def test_an_owner_serves_until_it_is_told_to_stop(owner_folder):
    process = Forked("copriv-owner", "serve", owner_folder())
    line = process.stdout.readline()
    assert line.startswith("serving on port ")
    with socket.create_connection(("127.0.0.1", int(line.split()[-1])), timeout=5):
        pass
    process.terminate()
    process.communicate(15)
    assert process.returncode == 0


def no_target(settings):
    settings["features"]["target"] = "price"


def wrong_key(settings):
    settings["privacy"]["epsilom"] = 1


def wrong_value(settings):
    settings["privacy"]["epsilon"] = -1


def no_rows(settings):
    settings["owners"][0]["data"] = {"rows": "5000:"}


def no_file(settings):
    settings["data"]["path"] = "absent.csv"


def same_name(settings):
    settings["owners"][1]["name"] = "north"


def same_address(settings):
    for owner in settings["owners"]:
        owner["address"] = "127.0.0.1:50051"


def no_step(settings):
    del settings["algorithm"]["rho"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (no_target, ["no column 'price'"]),
        (wrong_key, ["study.toml", "privacy.epsilom", "not a known key"]),
        (wrong_value, ["privacy.epsilon", "-1", "greater than 0"]),
        (no_rows, ["no records"]),
        (no_file, ["absent.csv", "no such file"]),
        (same_name, ["'north' is given twice"]),
        (same_address, ["owners: the address '127.0.0.1:50051' is given twice"]),
        (no_step, ["rho = NUMBER", 'step = "auto"']),
    ],
)
def test_a_wrong_study_is_refused_in_one_sentence_and_leaves_nothing(
    study, tmp_path, typed, change, words
):
    out = tmp_path / "run"
    arguments = ("simulate", study(change=change), "--out", out)
    said = sentence(typed("copriv", *arguments))
    assert all(word in said for word in words), said
    assert not out.exists()
    if change is no_target:
        # A process of its own says the same.
        assert sentence(copriv(*arguments)) == said
        assert not out.exists()


def test_a_study_file_that_is_absent_or_no_toml_is_refused(tmp_path, typed):
    said = sentence(typed("copriv", "simulate", tmp_path / "absent.toml"))
    assert "cannot be read" in said
    broken = tmp_path / "broken.toml"
    broken.write_text("name = = 3")
    assert "not valid TOML" in sentence(typed("copriv", "train", broken))


def test_training_without_addresses_is_refused(study, typed):
    assert "north has no address" in sentence(typed("copriv", "train", study()))


def test_an_owner_that_is_not_there_is_named(study, tmp_path):
    address = free_address()

    def elsewhere(settings):
        settings["network"] = {"deadline": 1, "patience": 1}
        settings["owners"] = [{"name": "north", "address": address}]

    said = sentence(copriv("train", study(change=elsewhere), "--out", tmp_path / "run"))
    assert f"owner north at {address}" in said
    assert "start it, or check its address" in said


def test_a_port_in_use_is_refused_in_one_sentence(owner_folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = copriv("serve", owner_folder(), "--listen", address, command="copriv-owner")
    assert f"listen = '{address}': cannot be used (Address already in use)" in result.stderr
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)


def test_unreadable_targets_are_counted_for_the_operator_and_refused_by_nobody(
    owner_folder, table_maker, typed
):
    table = table_maker(50, seed=1)
    table.loc[3:5, "y"] = np.nan
    settings = owner_folder(table=table)
    checked = typed("copriv-owner", "check", settings)
    assert checked.returncode == 0, checked.stderr
    assert "y: 6.0% of the records have no target that can be read" in checked.stdout
    start_owner(settings, listen=None, insecure_noise_seed=None).drain(grace=0.1)
    said = sentence(typed("copriv-owner", "serve", owner_folder(table=table.drop(columns="y"))))
    assert "no column 'y'" in said


def test_a_wrong_key_of_an_owner_is_named(owner_folder, typed):
    path = owner_folder(epsilon_per_sturdy="1")
    assert "policy.epsilon_per_sturdy" in sentence(typed("copriv-owner", "serve", path))


def test_a_run_folder_in_use_is_not_written_to(study, tmp_path, typed):
    out = tmp_path / "run"
    out.mkdir()
    (out / "precious").write_text("keep")
    assert "not empty" in sentence(typed("copriv", "simulate", study(), "--out", out))
    assert [path.name for path in out.iterdir()] == ["precious"]
