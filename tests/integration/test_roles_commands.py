"""Owners that come by themselves, and owners that learn, as people type it: real processes."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tomli_w
from forked import Forked, run

from common.errors import BudgetSpentError
from common.losses import Squared
from common.terms import Query
from learner.network.grpc_owner import GrpcOwner
from owner.core import mean_gradient
from owner.ledger_reading import read_studies
from owner.shards import Shard

NAMES = ("north", "south")
LISTEN_STATE = "0A"
Process = subprocess.Popen[str] | Forked


def command(what, *arguments, prefix=()):
    return [*prefix, sys.executable, "-m", what, *map(str, arguments)]


def finish(process):
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def copriv(*arguments):
    return run("copriv", *arguments)


def start(*arguments):
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextmanager
def ended(process):
    """Whatever happens, the process does not stay."""
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def study_file(folder, feature_map, **changes):
    (folder / "features.json").write_text(feature_map.to_json())
    settings = {
        "name": "small",
        "seed": 1,
        "profile": "published",
        "features": {"map": "features.json"},
        "model": {"loss": "squared", "theta_max": 2.0},
        "algorithm": {"horizon": 40, "rho": 1e-6},
        "privacy": {"epsilon": 5},
        "owners": [{"name": name} for name in NAMES],
    }
    for key, value in changes.items():
        known = settings.get(key)
        settings[key] = known | value if isinstance(known, dict) else value
    path = folder / "study.toml"
    path.write_text(tomli_w.dumps(settings))
    return path


def listening_sockets(pid):
    """Inodes of the TCP sockets that a process listens on."""
    listening = {
        line.split()[9]
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        if line.split()[3] == LISTEN_STATE
    }
    held = {os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()}
    return [inode for inode in listening if f"socket:[{inode}]" in held]


def port_of(learner):
    # Before it, what was read and fitted.
    lines = iter(learner.stdout.readline, "")
    line = next((line for line in lines if line.startswith("listening")), "")
    assert line.startswith("listening on port "), line + finish(learner)[2]
    return int(line.split()[3])


def test_owners_that_bind_no_port_train_and_end_with_the_study(tmp_path, owner_folder, feature_map):
    path = study_file(
        tmp_path,
        feature_map,
        algorithm={"initiative": "owner", "time_scale": 0.02},
        network={"listen": "127.0.0.1:0"},
    )
    out = tmp_path / "run"
    with ExitStack() as stack:
        learner = stack.enter_context(ended(Forked("copriv", "train", path, "--out", out)))
        address = f"127.0.0.1:{port_of(learner)}"
        owners = []
        for i, name in enumerate(NAMES):
            settings = owner_folder(name, seed=i)
            attach = ("attach", settings, "--learner", address)
            owners.append(stack.enter_context(ended(Forked("copriv-owner", *attach))))
        for owner in owners:
            assert owner.stdout.readline() == f"attaching to the learner at {address}\n"
        assert listening_sockets(learner.pid)
        assert [listening_sockets(owner.pid) for owner in owners] == [[], []]
        status, _, said = finish(learner)
        assert status == 0, said
        assert [finish(owner)[0] for owner in owners] == [0, 0]
    told = json.loads((out / "summary.json").read_text())
    assert told["ticks"] == 40
    assert told["initiative"] == "owner"
    assert all(owner["responses"] > 0 for owner in told["owners"])
    for owner in told["owners"]:
        _, studies = read_studies(tmp_path / owner["name"] / "ledger.sqlite")
        assert studies[0].account.answered == owner["responses"]
        assert studies[0].closed


RELAY = """
import socket, sys, threading
def pump(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
    except OSError:
        pass
    b.close()
door = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("open", flush=True)
while True:
    inside, _ = door.accept()
    outside = socket.create_connection((sys.argv[3], int(sys.argv[4])))
    for pair in ((inside, outside), (outside, inside)):
        threading.Thread(target=pump, args=pair, daemon=True).start()
"""


def can_make_namespaces():
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"copriv-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return made.returncode == 0


@contextmanager
def namespaces():
    """learner -- gateway -- owners: the learner has no route to the owners' network."""
    names = {role: f"copriv-{role}-{os.getpid()}" for role in ("learner", "gateway", "owners")}

    def ip(*arguments):
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

    try:
        for name in names.values():
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        for number, role in ((1, "learner"), (2, "owners")):
            a, b = f"cp{number}a{os.getpid() % 10**6}", f"cp{number}b{os.getpid() % 10**6}"
            ip("link", "add", a, "netns", names[role], "type", "veth", "peer", "name", b,
               "netns", names["gateway"])  # fmt: skip
            ip("-n", names[role], "addr", "add", f"10.77.{number}.2/24", "dev", a)
            ip("-n", names["gateway"], "addr", "add", f"10.77.{number}.1/24", "dev", b)
            ip("-n", names[role], "link", "set", a, "up")
            ip("-n", names["gateway"], "link", "set", b, "up")
        yield names
    finally:
        for name in names.values():
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def test_owners_train_with_a_learner_that_has_no_route_to_them(tmp_path, owner_folder, feature_map):
    if not can_make_namespaces():
        pytest.skip("NOT TESTED: a learner without a route to the owners (needs root, iproute2)")
    path = study_file(
        tmp_path,
        feature_map,
        algorithm={"initiative": "owner"},
        network={"listen": "10.77.1.2:50060"},
    )
    with ExitStack() as stack:
        names = stack.enter_context(namespaces())
        inside = {role: ("ip", "netns", "exec", name) for role, name in names.items()}
        ping = "import socket; socket.create_connection(('10.77.2.2', 50051), timeout=2)"
        reached = subprocess.run(
            [*inside["learner"], sys.executable, "-c", ping],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Network is unreachable" in reached.stderr
        out = tmp_path / "run"
        arguments = ("train", path, "--out", out, "--insecure")
        train = command("learner.cli", *arguments, prefix=inside["learner"])
        learner = stack.enter_context(ended(start(*train)))
        port_of(learner)
        relay = [*inside["gateway"], sys.executable, "-c", RELAY]
        door = stack.enter_context(ended(start(*relay, "10.77.2.1", "50060", "10.77.1.2", "50060")))
        assert door.stdout.readline() == "open\n"
        owners = [
            stack.enter_context(
                ended(
                    start(
                        *command(
                            "owner.cli",
                            "attach",
                            owner_folder(name, seed=i),
                            "--learner",
                            "10.77.2.1:50060",
                            "--insecure",
                            prefix=inside["owners"],
                        )
                    )
                )
            )
            for i, name in enumerate(NAMES)
        ]
        status, _, said = finish(learner)
        assert status == 0, said
        assert [finish(owner)[0] for owner in owners] == [0, 0]
    assert json.loads((out / "summary.json").read_text())["ticks"] == 40


def test_an_owner_without_a_learners_address_is_told(owner_folder, typed):
    result = typed("copriv-owner", "attach", owner_folder())
    assert result.returncode == 2
    assert "attach.learner is missing" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_an_owner_that_waits_for_a_learner_stops_when_told(owner_folder):
    attach = ("attach", owner_folder(), "--learner", "127.0.0.1:9")
    with ended(Forked("copriv-owner", *attach)) as process:
        process.stdout.readline()
        process.terminate()
        assert process.wait(15) == 0


def test_training_where_nobody_listens_or_comes_is_refused(tmp_path, feature_map, typed):
    path = study_file(tmp_path, feature_map, algorithm={"initiative": "owner"})
    result = typed("copriv", "train", path, "--out", tmp_path / "run")
    assert result.returncode == 2
    assert "network.listen is missing" in result.stderr
    assert not (tmp_path / "run").exists()
    path = study_file(
        tmp_path,
        feature_map,
        algorithm={"initiative": "owner"},
        network={"listen": "127.0.0.1:0", "patience": 0.3, "deadline": 0.5},
    )
    result = copriv("train", path, "--out", tmp_path / "run")
    assert result.returncode == 2
    assert "owner north is not attached" in result.stderr


# An owner as the learner


@pytest.fixture
def shards(owner_folder):
    return [owner_folder(name, seed=20 + i) for i, name in enumerate(NAMES)]


def own_study(tmp_path, feature_map, shards, port, **changes):
    return study_file(
        tmp_path,
        feature_map,
        learner={"own": "north", "shows_model": True},
        owners=[
            {"name": "north", "data": {"path": str(shards[0].parent / "shard.parquet")}},
            {"name": "south", "address": f"127.0.0.1:{port}"},
        ],
        **changes,
    )


def test_an_owner_that_learns_asks_itself_exactly_and_the_others_privately(
    tmp_path, feature_map, shards, serve_owner
):
    running = serve_owner(shards[1])
    path = own_study(tmp_path, feature_map, shards, running.port)
    out = tmp_path / "run"
    result = copriv("train", path, "--out", out)
    assert result.returncode == 0, result.stderr
    told = json.loads((out / "summary.json").read_text())
    own, other = told["owners"]
    assert told["own"] == "north"
    # Its own exact answers stand in the journal.
    assert out.stat().st_mode & 0o077 == 0
    assert (own["epsilon"], own["epsilon_spent"], own["noise_scale"]) == ("inf", "0", 0.0)
    assert own["responses"] + other["responses"] == 40
    assert other["noise_scale"] > 0
    assert Fraction(other["epsilon_spent"]) == Fraction(5) * other["responses"] / 40
    # The own ledger is not touched, and every output says what became of the records.
    assert not (shards[0].parent / "ledger.sqlite").exists()
    assert "UNPROTECTED" in result.stdout
    assert "UNPROTECTED" in (out / "report.html").read_text()
    assert json.loads((out / "model.json").read_text())["unprotected"] == "north"


def test_an_own_shard_must_be_acknowledged(tmp_path, feature_map, shards, typed):
    path = own_study(tmp_path, feature_map, shards, 1)
    options = ("--set", "learner.shows_model=false", "--out", tmp_path / "run")
    result = typed("copriv", "train", path, *options)
    assert result.returncode == 2
    assert "learner.shows_model = true" in result.stderr
    assert not (tmp_path / "run").exists()


def test_every_owner_learns_and_answers_the_others_from_one_lifetime_budget(
    tmp_path, table_maker, feature_map
):
    names = ("north", "south", "west")
    table_maker(900, seed=4).to_parquet(tmp_path / "records.parquet")
    path = study_file(
        tmp_path,
        feature_map,
        data={"path": "records.parquet"},
        algorithm={"horizon": 30, "rho": 1e-5},
        privacy={"kappa": 2},
        owners=[
            {"name": name, "data": {"rows": f"{300 * i}:{300 * (i + 1)}"}}
            for i, name in enumerate(names)
        ],
    )
    out = tmp_path / "each"
    result = copriv("simulate", path, "--each-learns", "--out", out)
    assert result.returncode == 0, result.stderr
    told = json.loads((out / "each-learns.json").read_text())
    assert [row["name"] for row in told] == list(names)
    models = [json.loads((out / name / "summary.json").read_text())["theta"] for name in names]
    assert models[0] != models[1] != models[2]
    for row in told:
        summary = json.loads((out / row["name"] / "summary.json").read_text())
        assert summary["own"] == row["name"]
        assert (out / row["name"]).stat().st_mode & 0o077 == 0
        noise = [o["noise_scale"] for o in summary["owners"] if o["name"] != row["name"]]
        assert noise == pytest.approx([theorem_1(feature_map, 300, 30, kappa=2) / 5] * 2, rel=1e-5)
        for key in ("relative_fitness", "relative_fitness_public"):
            assert row[key] == summary.get(key)
        assert [o["name"] for o in summary["owners"] if o["gains"]] in ([], [row["name"]])
        _, studies = read_studies(out / "owners" / row["name"] / "ledger.sqlite")
        assert len(studies) == row["studies_answered"] == 2
        spent = sum(entry.epsilon_spent for entry in studies)
        assert Fraction(row["epsilon_spent"]) == spent <= 2 * Fraction(5)
        # All records are on this machine, as in any simulation.
        assert (summary["quality"]["on"], summary["quality"]["records"]) == ("owners", 900)
    assert "every owner learns" in result.stdout
    assert "public model" in result.stdout.partition("every owner learns")[2]


# kappa


def theorem_1(feature_map, num_records, m, *, kappa):
    """b epsilon = 2 Xi m kappa/n of squared loss in a box of half side 2."""
    bound = feature_map.domain.feature_l1_bound
    xi = 2 * (2.0 * bound + feature_map.domain.target_bound) * bound
    return 2 * xi * m * kappa / num_records


def test_kappa_multiplies_the_noise_that_arrives(
    owner_folder, serve_owner, feature_map, make_terms
):
    m, kappa, theta = 400, 3, np.full(4, 0.1)
    path = owner_folder(kappa=kappa)
    running = serve_owner(path)
    owner = GrpcOwner("owner-a", f"127.0.0.1:{running.port}", deadline=20)
    records = feature_map.apply(pd.read_parquet(path.parent / "shard.parquet"), where="test")
    terms = make_terms(horizon=m, responses=m, kappa=kappa)
    enrollment = owner.enroll(terms)
    expected = theorem_1(feature_map, 200, m, kappa=kappa)
    assert enrollment.noise_scale == pytest.approx(expected, rel=1e-5)
    exact = mean_gradient(Shard(records), theta, loss=Squared(), clip=None)
    noise = np.array(
        [
            owner.answer(Query(study_id="study-1", sequence=k, theta=theta)).gradient - exact
            for k in range(1, m + 1)
        ]
    )
    # |w| has mean b and standard deviation b: four standard errors of the mean of 4 m draws.
    error = 4 / np.sqrt(noise.size)
    measured = np.mean(np.abs(noise))
    assert measured == pytest.approx(expected, rel=error)
    assert measured != pytest.approx(theorem_1(feature_map, 200, m, kappa=kappa - 1), rel=error)
    with pytest.raises(BudgetSpentError):
        owner.answer(Query(study_id="study-1", sequence=m + 1, theta=theta))
    owner.disconnect()
