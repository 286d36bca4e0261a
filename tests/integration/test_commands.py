"""The commands as people type them: real processes, real files, and every wrong input."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w

from owner.server import RunningOwner

OWNERS = ("north", "south")


def copriv(*arguments: object, command: str = "learner.cli") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", command, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def sentence(result: subprocess.CompletedProcess[str], status: int = 2) -> str:
    """The one sentence of a refusal."""
    assert result.returncode == status, result.stderr + result.stdout
    assert "Traceback" not in result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


@pytest.fixture
def study(tmp_path: Path, table_maker: Callable[..., pd.DataFrame]) -> Callable[..., Path]:
    """Writes a small study with its table and returns its path."""

    def write(*, change: Callable[[dict[str, Any]], None] = lambda settings: None) -> Path:
        table_maker(900, seed=4).to_csv(tmp_path / "records.csv", index=False)
        settings: dict[str, Any] = {
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
        path = tmp_path / "study.toml"
        path.write_text(tomli_w.dumps(settings))
        return path

    return write


def test_simulate_leaves_a_complete_run_folder(study: Callable[..., Path], tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = copriv(
        "simulate",
        study(),
        "--out",
        out,
        "--set",
        "algorithm.rho=1e-5",
        "--set",
        "privacy.epsilon=7",
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.rstrip().endswith(f"run folder: {out}")
    for word in ("owner", "records", "epsilon", "responses", "noise scale", "alone", "gains"):
        assert word in result.stdout
    told = json.loads((out / "summary.json").read_text())
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
    for picture in ("relative_fitness.png", "ticks.png"):
        assert (out / picture).read_bytes().startswith(b"\x89PNG")
    assert "http" not in (out / "report.html").read_text().replace("data:image", "")
    # The owners' ledgers agree with the summary.
    for owner in told["owners"]:
        ledger = out / "owners" / owner["name"] / "ledger.sqlite"
        shown = copriv("ledger", "export", ledger, command="owner.cli")
        study_entry = json.loads(shown.stdout)["studies"][0]
        assert study_entry["answered"] == owner["responses"]
        assert study_entry["epsilon_spent"] == owner["epsilon_spent"]


def test_equal_insecure_seeds_give_equal_models_and_say_that_they_are_insecure(
    study: Callable[..., Path], tmp_path: Path
) -> None:
    thetas = []
    for index, seed in enumerate((3, 3, 4)):
        out = tmp_path / f"run{index}"
        result = copriv("simulate", study(), "--out", out, "--insecure-noise-seed", seed)
        assert "INSECURE" in result.stdout
        told = json.loads((out / "summary.json").read_text())
        assert told["insecure_noise"] is True
        assert "INSECURE" in (out / "report.html").read_text()
        assert "INSECURE" in (out / "owners" / "north" / "owner.log").read_text()
        thetas.append(told["theta"])
    assert thetas[0] == thetas[1] != thetas[2]


def test_features_fit_saves_the_map_that_a_study_can_use(
    study: Callable[..., Path], tmp_path: Path
) -> None:
    path = study()
    saved = tmp_path / "features.json"
    result = copriv("features", "fit", path, "--out", saved)
    assert result.returncode == 0, result.stderr
    assert "4 features from 3 columns of 300 public records" in result.stdout
    path = study(change=lambda s: s.update(features={"map": "features.json"}))
    out = tmp_path / "run"
    assert copriv("simulate", path, "--out", out).returncode == 0
    assert (out / "features.json").read_text() == saved.read_text()


def test_train_reaches_owners_that_run_elsewhere(
    study: Callable[..., Path],
    tmp_path: Path,
    owner_folder: Callable[..., Path],
    serve_owner: Callable[..., RunningOwner],
    feature_map: Any,
) -> None:
    running = [serve_owner(owner_folder(name, seed=i)) for i, name in enumerate(OWNERS)]
    (tmp_path / "features.json").write_text(feature_map.to_json())

    def elsewhere(settings: dict[str, Any]) -> None:
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
    assert not (out / "relative_fitness.png").exists()


def test_real_time_waits_for_the_clocks(study: Callable[..., Path], tmp_path: Path) -> None:
    out = tmp_path / "run"
    scale = 0.05
    result = copriv(
        *("simulate", study(), "--out", out, "--set", f"algorithm.time_scale={scale}"),
    )
    assert result.returncode == 0, result.stderr
    trace = pd.read_parquet(out / "trace.parquet")
    assert (trace["wall_seconds"] >= trace["time"] * scale).all()


def test_a_report_is_made_again_from_its_summary(
    study: Callable[..., Path], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    first = copriv("simulate", study(), "--out", out)
    page = (out / "report.html").read_text()
    (out / "report.html").unlink()
    again = copriv("report", out)
    assert again.returncode == 0, again.stderr
    *table, told = again.stdout.splitlines()
    assert told == f"report: {out / 'report.html'}"
    assert len(table) > 6
    assert set(table) <= set(first.stdout.splitlines())
    assert (out / "report.html").read_text() == page
    assert "holds no summary.json" in sentence(copriv("report", tmp_path))


def test_an_owner_serves_until_it_is_told_to_stop(owner_folder: Callable[..., Path]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "owner.cli", "serve", str(owner_folder())],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("serving on port ")
    with socket.create_connection(("127.0.0.1", int(line.split()[-1])), timeout=5):
        pass
    process.terminate()
    assert process.wait(15) == 0
    process.stdout.close()


def no_target(settings: dict[str, Any]) -> None:
    settings["features"]["target"] = "price"


def wrong_key(settings: dict[str, Any]) -> None:
    settings["privacy"]["epsilom"] = 1


def wrong_value(settings: dict[str, Any]) -> None:
    settings["privacy"]["epsilon"] = -1


def no_rows(settings: dict[str, Any]) -> None:
    settings["owners"][0]["data"] = {"rows": "5000:"}


def no_file(settings: dict[str, Any]) -> None:
    settings["data"]["path"] = "absent.csv"


def same_name(settings: dict[str, Any]) -> None:
    settings["owners"][1]["name"] = "north"


def no_step(settings: dict[str, Any]) -> None:
    del settings["algorithm"]["rho"]


def no_address(settings: dict[str, Any]) -> None:
    del settings["owners"][0]["data"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (no_target, ["no column 'price'"]),
        (wrong_key, ["study.toml", "privacy.epsilom", "not a known key"]),
        (wrong_value, ["privacy.epsilon", "-1", "greater than 0"]),
        (no_rows, ["empty shard"]),
        (no_file, ["absent.csv", "no such file"]),
        (same_name, ["'north' stands twice"]),
        (no_step, ["rho = NUMBER", 'step = "auto"']),
    ],
)
def test_a_wrong_study_is_refused_in_one_sentence_and_leaves_nothing(
    study: Callable[..., Path], tmp_path: Path, change: Any, words: list[str]
) -> None:
    out = tmp_path / "run"
    said = sentence(copriv("simulate", study(change=change), "--out", out))
    assert all(word in said for word in words), said
    assert not out.exists()


def test_a_study_file_that_is_absent_or_no_toml_is_refused(tmp_path: Path) -> None:
    assert "cannot be read" in sentence(copriv("simulate", tmp_path / "absent.toml"))
    broken = tmp_path / "broken.toml"
    broken.write_text("name = = 3")
    assert "not valid TOML" in sentence(copriv("train", broken))


def test_training_without_addresses_is_refused(study: Callable[..., Path]) -> None:
    assert "north has no address" in sentence(copriv("train", study()))


def test_an_owner_that_is_not_there_is_named(study: Callable[..., Path], tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def elsewhere(settings: dict[str, Any]) -> None:
        settings["network"] = {"deadline": 1, "patience": 1}
        settings["owners"] = [{"name": "north", "address": f"127.0.0.1:{port}"}]

    said = sentence(copriv("train", study(change=elsewhere), "--out", tmp_path / "run"))
    assert f"owner north at 127.0.0.1:{port}" in said
    assert "start it, or check its address" in said


def test_a_port_in_use_is_refused_in_one_sentence(owner_folder: Callable[..., Path]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = copriv("serve", owner_folder(), "--listen", address, command="owner.cli")
    assert "the port may be taken" in sentence(result)


def test_nan_targets_are_refused_in_one_sentence(
    owner_folder: Callable[..., Path], table_maker: Callable[..., pd.DataFrame]
) -> None:
    table = table_maker(50, seed=1)
    table.loc[3:5, "y"] = np.nan
    said = sentence(copriv("serve", owner_folder(table=table), command="owner.cli"))
    assert "3 of 50 records have no readable value" in said
    said = sentence(
        copriv("serve", owner_folder(table=table.drop(columns="y")), command="owner.cli")
    )
    assert "no column 'y'" in said


def test_a_wrong_key_of_an_owner_is_named(owner_folder: Callable[..., Path]) -> None:
    path = owner_folder(epsilon_per_sturdy="1")
    said = sentence(copriv("serve", path, command="owner.cli"))
    assert "policy.epsilon_per_sturdy" in said


def test_a_run_folder_in_use_is_not_written_to(study: Callable[..., Path], tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / "precious").write_text("keep")
    assert "not empty" in sentence(copriv("simulate", study(), "--out", out))
    assert [path.name for path in out.iterdir()] == ["precious"]
