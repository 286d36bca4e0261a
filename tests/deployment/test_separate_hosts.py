"""Owners and learner on hosts of their own, over IPv4 and IPv6, on lines as bad as they come."""

import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, closing

import pytest
import tomli_w
from identities import tls_table

from learner.network.certificates import Party, make_certificates
from owner.ledger_reading import read_studies, verify_ledger

pytestmark = pytest.mark.trouble

NAMES = ("owner-a", "owner-b", "owner-c")
DISTURBANCES = 60
# Nothing here takes so long, unless something hangs.
LONGEST_WAIT_SECONDS = 900


class Federation:
    """Three owners and a learner, each on its own host."""

    def __init__(self, folder, table, network, stack, **study):
        self.folder, self.network, self.stack = folder, network, stack
        self.version = study.pop("version", 4)
        hosts = [network.address(index, self.version) for index in range(3)]
        make_certificates(
            folder / "certs",
            [
                *(
                    Party(name=n, role="owner", hosts=(h,))
                    for n, h in zip(NAMES, hosts, strict=True)
                ),
                Party(name="learner", role="learner"),
            ],
            study="test",
            days=90,
            ca_days=90,
            renew=False,
        )
        table.to_parquet(folder / "public.parquet")
        addresses = [f"[{h}]:50051" if ":" in h else f"{h}:50051" for h in hosts]
        for index, name in enumerate(NAMES):
            (folder / name).mkdir()
            table.iloc[100 * index : 100 * (index + 1)].to_parquet(folder / name / "shard.parquet")
            settings = {
                "name": name,
                "listen": addresses[index],
                "data": {"path": "shard.parquet", "columns": list(table)},
                "policy": {
                    "epsilon_per_study": "10",
                    "epsilon_lifetime": "100",
                    "learners": ["learner"],
                },
                "tls": tls_table(folder / "certs" / name),
            }
            (folder / name / "owner.toml").write_text(tomli_w.dumps(settings))
        deadline = study.pop("deadline", 5)
        algorithm = {"horizon": 200, "rho": 1e-3} | study.pop("algorithm", {})
        settings = {
            "name": "apart",
            "seed": 1,
            "guard": False,  # whatever its model comes to, it is about hosts and lines
            "features": {"public": {"path": "public.parquet"}, "target": "y"},
            "model": {"loss": "squared", "theta_max": 2.0},
            "algorithm": algorithm,
            "privacy": {"epsilon": 10, "split": "horizon"},
            "network": {"deadline": deadline, "patience": 120},
            "tls": tls_table(folder / "certs" / "learner"),
            "owners": [{"name": n, "address": a} for n, a in zip(NAMES, addresses, strict=True)],
        }
        self.horizon = algorithm["horizon"]
        (folder / "study.toml").write_text(tomli_w.dumps(settings))
        self.runs = []
        self.owners = [self.start_owner(index) for index in range(3)]
        self.learner = None
        stack.callback(self.stop)

    def start_owner(self, index):
        settings = self.folder / NAMES[index] / "owner.toml"
        with (self.folder / NAMES[index] / "owner.log").open("ab") as log:
            process = subprocess.Popen(
                self.network.inside(
                    self.network.owners[index],
                    *(sys.executable, "-m", "owner.cli", "serve", settings),
                ),
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert b"serving" in process.stdout.readline()
        return process

    @property
    def run(self):
        """The folder of the latest run."""
        return self.runs[-1]

    def begin(self):
        """A new run, as soon as the learner has enrolled everybody."""
        self.runs.append(self.folder / f"run{len(self.runs)}")
        self.start_learner()
        self.wait_until(lambda: self.lived() > 0)

    def lived(self):
        try:
            with closing(
                sqlite3.connect(f"file:{self.run}/journal.sqlite?mode=ro", uri=True)
            ) as db:
                return int(db.execute("SELECT count(*) FROM ticks").fetchone()[0])
        except sqlite3.OperationalError:
            return 0

    def wait_until(self, what):
        give_up = time.monotonic() + LONGEST_WAIT_SECONDS
        while not what():
            assert time.monotonic() < give_up, self.said()
            assert not self.is_over() or self.status() == 0, self.said()
            time.sleep(0.05)

    def start_learner(self):
        with (self.folder / "learner.log").open("ab") as log:
            self.learner = subprocess.Popen(
                self.network.inside(
                    self.network.learner,
                    *(sys.executable, "-m", "learner.cli", "train", self.folder / "study.toml"),
                    *("--resume", self.run),
                ),
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def is_over(self):
        return self.learner is not None and self.learner.poll() is not None

    def status(self):
        return self.learner.wait(LONGEST_WAIT_SECONDS)

    def said(self):
        return (self.folder / "learner.log").read_text()[-2000:]

    def stop(self):
        for process in (*self.owners, self.learner):
            if process is None:
                continue
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def check(self):
        """All runs ended, nothing was lost or charged twice, and ledgers equal journals.

        An owner that was away when a run ended could not close the study, and may have charged
        one answer more, whose query the journal holds. Returns whether there was none at the
        end of the last run.
        """
        all_closed = True
        ledgers = [self.folder / name / "ledger.sqlite" for name in NAMES]
        for ledger in ledgers:
            assert verify_ledger(ledger) == []
        for run in self.runs:
            told = json.loads((run / "summary.json").read_text())
            assert told["ticks"] == self.horizon
            with closing(sqlite3.connect(run / "journal.sqlite")) as db:
                rows = db.execute("SELECT owner, sequence FROM responses ORDER BY position")
                answers = rows.fetchall()
                held = dict(db.execute("SELECT owner, sequence FROM unanswered"))
            assert len(answers) == self.horizon
            all_closed = True
            for index, owner in enumerate(told["owners"]):
                numbers = [sequence for who, sequence in answers if who == index]
                assert numbers == list(range(1, len(numbers) + 1))
                assert owner["responses"] == len(numbers)
                studies = {entry.study_id: entry for entry in read_studies(ledgers[index])[1]}
                entry = studies[told["study_id"]]
                more = entry.account.answered - len(numbers)
                if entry.closed:
                    assert more == 0
                else:
                    all_closed = False
                    assert more == 0 or (more == 1 and held[index] == entry.account.answered)
                assert entry.account.answered <= entry.account.promised
        return all_closed


@pytest.fixture
def federation(make_network, table_maker, tmp_path):
    with ExitStack() as stack:
        yield lambda **study: Federation(
            tmp_path, table_maker(600, seed=9), make_network(3), stack, **study
        )


@pytest.mark.parametrize("version", [4, 6])
def test_three_hosts_over_a_slow_and_lossy_line(federation, version):
    made = federation(version=version, deadline=15, algorithm={"horizon": 60})
    for line in made.network.carrier.lines:
        line.delay, line.loss = 0.05, 0.05
    made.begin()
    assert made.status() == 0, made.said()
    made.check()


class Chaos:
    """One trouble after another; each leaves the federation as it found it."""

    def __init__(self, made, rng):
        self.made, self.rng = made, rng
        self.done = Counter()

    def one(self):
        """One trouble; a run that has ended is followed by another, so that there is one."""
        if self.made.is_over():
            assert self.made.status() == 0, self.made.said()
            self.made.begin()
        kind = self.rng.choice(
            ["kill owner", "pause owner", "cut", "loss", "delay", "kill learner", "all at once"]
        )
        getattr(self, kind.replace(" ", "_"))(self.rng.randrange(3))
        self.done[kind] += 1
        time.sleep(self.rng.uniform(0.0, 0.3))

    def rest(self):
        time.sleep(self.rng.uniform(0.2, 1.2))

    def kill_owner(self, index):
        self.made.owners[index].kill()
        self.made.owners[index].wait()
        self.rest()
        self.again(index)

    def again(self, index):
        old = self.made.owners[index]
        old.stdout.close()
        self.made.owners[index] = self.made.start_owner(index)

    def pause_owner(self, index):
        self.made.owners[index].send_signal(signal.SIGSTOP)
        self.rest()
        self.made.owners[index].send_signal(signal.SIGCONT)

    def cut(self, index):
        line = self.made.network.carrier.lines[index]
        line.cut = True
        self.rest()
        line.cut = False

    def loss(self, index):
        line = self.made.network.carrier.lines[index]
        line.loss = 0.1
        self.rest()
        line.loss = 0.0

    def delay(self, index):
        line = self.made.network.carrier.lines[index]
        line.delay = 0.2
        self.rest()
        line.delay = 0.0

    def kill_learner(self, _):
        self.made.learner.kill()
        self.made.learner.wait()
        # A run that had just ended is only shown.
        self.made.start_learner()
        self.rest()

    def all_at_once(self, index):
        """A learner dies while one owner dies and another is cut off."""
        other = (index + 1) % 3
        self.made.network.carrier.lines[other].cut = True
        self.made.owners[index].kill()
        self.made.owners[index].wait()
        self.kill_learner(index)
        self.made.network.carrier.lines[other].cut = False
        self.again(index)


def test_chaos(federation):
    # Three ticks for each unit of virtual time: a run takes at least 50 s.
    made = federation(algorithm={"horizon": 1500, "time_scale": 0.1})
    made.begin()
    chaos = Chaos(made, random.Random(7))
    began = time.monotonic()
    while sum(chaos.done.values()) < DISTURBANCES:
        chaos.one()
    troubled = time.monotonic() - began
    assert made.status() == 0, made.said()
    print(f"{DISTURBANCES} disturbances in {troubled:.0f} s: {dict(chaos.done)}")  # noqa: T201
    if not made.check():
        # The last trouble was the run's last moment too; the owners answer the next one.
        made.begin()
        assert made.status() == 0, made.said()
        assert made.check()
    for run in made.runs:
        told = json.loads((run / "summary.json").read_text())
        print(run.name, [owner["responses"] for owner in told["owners"]])  # noqa: T201
