"""The stack of docker-compose.yml for real: up, and then one trouble after another."""

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from common.toml_files import read_toml

ROOT = Path(__file__).resolve().parents[2]
OWNERS = ("mount-sinai", "nyu-langone", "montefiore")
PROJECT = "copriv-test"
# Real seconds for one unit of virtual time, in which three owners make three ticks: the shortest
# run takes some 25 s. Where the machine is so slow that trouble comes too late, a longer one.
TIME_SCALE = 0.05
HORIZONS = (1500, 4000, 8000)
# Nothing here takes so long, unless something hangs.
LONGEST_WAIT_SECONDS = 900

pytestmark = pytest.mark.docker


def compose_command():
    plugin = ["docker", "compose"]
    if subprocess.run([*plugin, "version"], capture_output=True, check=False).returncode == 0:
        return plugin
    return ["docker-compose"] if shutil.which("docker-compose") else None


def docker(*arguments, check=True):
    result = subprocess.run(
        ["docker", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_WAIT_SECONDS,
    )
    if check:
        assert result.returncode == 0, result.stderr
    return result.stdout.strip()


class Stack:
    """The stack under a project name of its own, with runs in a folder of the test's."""

    def __init__(self, runs):
        self.runs = runs
        self.command = [*(compose_command() or ()), "-p", PROJECT]
        self.study = ROOT / "deploy/compose/study.toml"

    def compose(self, *arguments, run="compose"):
        environment = os.environ | {
            "COPRIV_RUNS": str(self.runs),
            "COPRIV_RUN": run,
            "COPRIV_STUDY": str(self.study),
        }
        return subprocess.run(
            [*self.command, *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=LONGEST_WAIT_SECONDS,
        )

    def up(self, run):
        """Everything in the background."""
        result = self.compose("up", "-d", "--no-build", run=run)
        assert result.returncode == 0, result.stderr

    def container(self, service):
        return docker(
            *("ps", "-aq", "--filter", f"label=com.docker.compose.project={PROJECT}"),
            *("--filter", f"label=com.docker.compose.service={service}"),
        )

    def users(self, service):
        """Who the service's lasting processes are, whatever its settings say.

        A health check's process comes and goes: those that a later look still finds count.
        """
        found = []
        for pause in (2, 0):
            told = docker("top", self.container(service), "-eo", "pid,uid").splitlines()[1:]
            found.append({tuple(process.split()) for process in told})
            time.sleep(pause)
        return {user for _, user in set.intersection(*found)}

    def answers(self, run):
        """Owner index -> responses in the run's journal; nothing while there is none."""
        path = self.runs / run / "journal.sqlite"
        try:
            with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
                rows = db.execute("SELECT owner, count(*) FROM responses GROUP BY owner")
                return dict(rows.fetchall())
        except sqlite3.OperationalError:
            return {}

    def lived(self, run):
        return sum(self.answers(run).values())

    def is_finished(self, run):
        return (self.runs / run / "summary.json").exists()

    def wait_until(self, what):
        give_up = time.monotonic() + LONGEST_WAIT_SECONDS
        while not what():
            assert time.monotonic() < give_up, self.compose("logs", "--tail=30").stdout
            time.sleep(0.05)

    def wait_for_learner(self):
        container = self.container("learner")
        self.wait_until(lambda: docker("inspect", "-f", "{{.State.Running}}", container) == "false")
        return int(docker("inspect", "-f", "{{.State.ExitCode}}", container))

    def ledger(self, owner):
        """An owner's ledger, by its own tool, while it serves or not."""
        shown = subprocess.run(
            [
                *("docker", "run", "--rm", "--network", "none", "--user", "10001:10001"),
                *("-v", f"{PROJECT}_ledger-{owner}:/ledger", "copriv-owner:latest"),
                *("ledger", "export", "/ledger/ledger.sqlite"),
            ],
            capture_output=True,
            text=True,
            check=True,
            timeout=LONGEST_WAIT_SECONDS,
        )
        return json.loads(shown.stdout)

    def check(self, run):
        """The run has ended, and every ledger agrees with its journal.

        An owner that was away at the end could not close the study, and may have charged one
        answer more, whose query the journal holds. Returns whether there was none.
        """
        told = json.loads((self.runs / run / "summary.json").read_text())
        horizon = told["ticks"]
        assert horizon == told["horizon"]
        path = self.runs / run / "journal.sqlite"
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            highest = dict(db.execute("SELECT owner, max(sequence) FROM responses GROUP BY owner"))
            held = dict(db.execute("SELECT owner, sequence FROM unanswered"))
        journal = self.answers(run)
        assert sum(journal.values()) == horizon
        all_closed = True
        for index, owner in enumerate(told["owners"]):
            entries = {e["study_id"]: e for e in self.ledger(owner["name"])["studies"]}
            entry = entries[told["study_id"]]
            assert owner["responses"] == journal[index] == highest[index]
            more = entry["answered"] - journal[index]
            if entry["closed"] is None:
                all_closed = False
                assert more == 0 or (more == 1 and held[index] == entry["answered"])
            else:
                assert more == 0
            assert entry["answered"] <= entry["promised"] <= horizon
            assert entry["insecure_noise"] is False
        return all_closed


def longer_study(target, horizon):
    """The shipped study, long enough for trouble in the middle of it."""
    text = (ROOT / "deploy/compose/study.toml").read_text()
    longer = f"[algorithm]\nhorizon = {horizon}\ntime_scale = {TIME_SCALE}"
    text = text.replace("[algorithm]", longer)
    # Every missed tick is made up for, so that the run must reach its horizon.
    text = text.replace("[privacy]", '[privacy]\nsplit = "horizon"')
    target.write_text(f"guard = false\n{text}")
    assert read_toml(target)["algorithm"]["time_scale"] == TIME_SCALE
    return target


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    if shutil.which("docker") is None or not docker("version", "-f", "{{.Server}}", check=False):
        pytest.skip("NO DOCKER ENGINE: the stack of docker-compose.yml WAS NOT TESTED")
    if compose_command() is None:
        pytest.skip("NO COMPOSE TOOL: the stack of docker-compose.yml WAS NOT TESTED")
    folder = tmp_path_factory.mktemp("compose")
    made = Stack(folder / "runs")
    made.runs.mkdir()
    made.compose("down", "-v", "--remove-orphans")
    yield made
    made.compose("down", "-v", "--remove-orphans")


def test_up_trains_and_leaves_the_run_folder_on_the_host(stack):
    began = time.monotonic()
    result = stack.compose("up", "--no-build", "--exit-code-from", "learner", run="first")
    seconds = time.monotonic() - began
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr
    print(f"docker compose up: {seconds:.1f} s to a finished run")  # noqa: T201
    summary = (stack.runs / "first" / "summary.json").read_text()
    assert [owner["name"] for owner in json.loads(summary)["owners"]] == list(OWNERS)
    for name in ("report.html", "model.json", "trace.parquet"):
        assert (stack.runs / "first" / name).stat().st_size > 0
    assert stack.check("first")


def test_containers_are_confined_and_owners_are_alone(stack):
    stack.study = longer_study(stack.runs.parent / "study.toml", HORIZONS[0])
    stack.up("confined")
    stack.wait_until(lambda: stack.lived("confined") >= 10)
    addresses = {}
    for service in ("prepare", "certs", *OWNERS, "learner"):
        assert stack.users(service) == {"10001"}, service
    for service in (*OWNERS, "learner"):
        told = json.loads(docker("inspect", stack.container(service)))[0]
        assert told["Config"]["User"] == "10001:10001"
        assert told["HostConfig"]["ReadonlyRootfs"]
        assert told["HostConfig"]["CapDrop"] == ["ALL"]
        assert not told["HostConfig"]["PortBindings"]
        networks = told["NetworkSettings"]["Networks"]
        assert len(networks) == (3 if service == "learner" else 1)
        addresses[service] = [network["IPAddress"] for network in networks.values()]
    reach = (
        "import socket,sys\n"
        "for host in sys.argv[1:]:\n"
        "    try: socket.create_connection((host, 50051), 5); print(host, 'reached')\n"
        "    except OSError: print(host, 'cut off')\n"
    )
    for owner in OWNERS:
        others = [address for other in OWNERS if other != owner for address in addresses[other]]
        said = docker("exec", stack.container(owner), "python3", "-c", reach, *others, "127.0.0.1")
        assert said.count("cut off") == 2, said
        assert "127.0.0.1 reached" in said
        missing = (
            "import importlib.util as u, shutil\n"
            "print([m for m in ('learner', 'matplotlib', 'joblib', 'pip') if u.find_spec(m)],"
            "[t for t in ('cc', 'gcc', 'copriv', 'apt') if shutil.which(t)])"
        )
        python = "/opt/copriv/bin/python"
        assert docker("exec", stack.container(owner), python, "-c", missing) == "[] []"
    assert stack.wait_for_learner() == 0
    stack.check("confined")


def trouble_kill(stack, run):
    docker("kill", stack.container("montefiore"))
    time.sleep(3)
    docker("start", stack.container("montefiore"))


def trouble_pause(stack, run):
    docker("pause", stack.container("nyu-langone"))
    time.sleep(8)
    docker("unpause", stack.container("nyu-langone"))


def trouble_network(stack, run):
    network, container = f"{PROJECT}_mount-sinai", stack.container("mount-sinai")
    docker("network", "disconnect", network, container)
    time.sleep(4)
    docker("network", "connect", "--alias", "mount-sinai", network, container)


def trouble_learner(stack, run):
    docker("kill", stack.container("learner"))
    before = stack.lived(run)
    docker("start", stack.container("learner"))
    stack.wait_until(lambda: stack.lived(run) >= before + 10 or stack.is_finished(run))
    docker("restart", "-t", 1, stack.container("learner"))


@pytest.mark.parametrize("trouble", [trouble_kill, trouble_pause, trouble_network, trouble_learner])
def test_a_run_survives(stack, trouble):
    survived = False
    for horizon in HORIZONS:
        stack.study = longer_study(stack.runs.parent / "study.toml", horizon)
        run = f"{trouble.__name__}-{horizon}"
        stack.up(run)
        stack.wait_until(lambda run=run: stack.lived(run) >= 200)
        trouble(stack, run)
        before = stack.answers(run)
        status = stack.wait_for_learner()
        assert status == 0, docker("logs", "--tail", 20, stack.container("learner"))
        everybody_was_there = stack.check(run)
        after = stack.answers(run)
        # Everybody took part again after the trouble.
        survived = everybody_was_there and all(after[owner] > before[owner] for owner in range(3))
        if survived:
            break
    assert survived
