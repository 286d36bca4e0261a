"""Kill an owner again and again while two learners train with it, and count what it gave.

With --block the owner charges this many responses at once; each kill may then cost one block.

Usage: python tests/tools/kill_owner.py --kills 220 [--seed 1] [--block 64]
"""

import argparse
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np
from lone_owner import write_owner

from common.errors import BudgetSpentError, UnreachableError
from common.losses import Regulariser
from common.terms import Query, StudyTerms
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import PoissonClocks, each_alone
from learner.network.grpc_owner import GrpcOwner
from learner.training.journal import Journal
from learner.training.line import OwnerLine
from learner.training.pace import Pace
from learner.training.runner import run
from owner.ledger_reading import read_studies, verify_ledger

ROOT = Path(__file__).resolve().parents[2]
MORTAL = ROOT / "tests" / "tools" / "mortal_owner.py"
STEPS = (
    "before_charge",
    "in_transaction",
    "at_commit",
    "after_commit",
    "before_note",
    "in_note",
    "after_note",
    "before_send",
    "after_send",
)
ONCE_A_BLOCK = ("in_transaction", "at_commit", "after_commit")
# A block that an owner chose is noted nowhere.
NOTES = ("before_note", "in_note", "after_note")
RESPONSES = 150
# A kill costs a block: a study must be worth some kills.
BLOCKS = 40
LEARNERS = 2
LONGEST_LIFE_SECONDS = 0.25
# So many lives in a row that do not come to their step: the step is no longer one of the owner's.
MOST_VAIN_LIVES = 12


@dataclass
class Lives:
    """The owner's lives: starts one after another on one port, and kills them."""

    settings: Path
    choices: random.Random
    block: int = 1
    kills: int = 0
    port: int = 0
    vain: int = 0
    steps: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def __post_init__(self):
        self.process = subprocess.Popen(
            [sys.executable, str(MORTAL), str(self.settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
        )

    def begin(self, step="-", number=0):
        """Start a life; returns its process id."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{self.port} {step} {number}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline().split()
        assert len(line) == 2, "the owner did not start again"
        self.port = int(line[0])
        return int(line[1])

    def wait_for_death(self):
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "dead\n"

    def die_at(self, step, *, busy):
        """One life that kills itself at a step of one of its first answers."""
        pid = self.begin(step, self.choices.randint(1, 2 if step in ONCE_A_BLOCK else 20))
        while not select.select([self.process.stdout], [], [], 0.05)[0]:
            if not busy():
                # The learners finished before it came to that.
                os.kill(pid, signal.SIGKILL)
                self.wait_for_death()
                self.vain += 1
                assert self.vain < MOST_VAIN_LIVES, f"no life comes to the step {step}"
                return
        self.wait_for_death()
        self.vain = 0
        self.kills += 1
        self.steps[step] += 1

    def die_at_random(self):
        """One life that is killed at a random moment."""
        pid = self.begin()
        time.sleep(self.choices.uniform(0.0, LONGEST_LIFE_SECONDS))
        os.kill(pid, signal.SIGKILL)
        self.wait_for_death()
        self.kills += 1
        self.steps["random"] += 1

    def end(self):
        """End the life under way, if there is one, and the process that begins them."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        # A life ends with the input that began it.
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


class Witness(GrpcOwner):
    """An owner over the network that remembers every answer it ever gave."""

    def __init__(self, port):
        super().__init__("mortal", f"127.0.0.1:{port}", deadline=10)
        self.seen = defaultdict(set)
        self.models = defaultdict(set)

    def answer(self, query):
        response = super().answer(query)
        self.seen[query.sequence].add(response.gradient.tobytes())
        self.models[query.sequence].add(query.theta.tobytes())
        return response


@dataclass
class Run:
    """One learner's run with the owner, from enrolment to its last response."""

    study_id: str
    feature_map: str
    port: int
    journal: Path
    responses: int
    finished: bool = False

    def __post_init__(self):
        self.witness = Witness(self.port)
        self.terms = StudyTerms(
            study_id=self.study_id,
            loss="squared",
            theta_max=2.0,
            feature_map=self.feature_map,
            horizon=self.responses,
            responses=self.responses,
            epsilon=Fraction(1, 3),
        )
        # Where a check fails it would look for its owner for ever.
        self.thread = threading.Thread(target=self._go, daemon=True)
        self.thread.start()

    def _go(self):
        journal = Journal(self.journal)
        line = OwnerLine(self.witness, self.terms)
        while True:
            try:
                line.enroll()
                break
            except Exception:  # The owner may be dead right now.
                time.sleep(0.05)
        run(
            Asynchronous(
                weights=np.ones(1),
                num_features=4,
                horizon=self.responses,
                rho=1e-3,
                theta_max=2.0,
                regulariser=Regulariser(coefficient=1e-5),
            ),
            PoissonClocks(each_alone(1), np.ones(1), rng=np.random.default_rng(5)),
            [line],
            journal=journal,
            horizon=self.responses,
            # On a busy machine many lives end before their owner has answered.
            pace=Pace(time_scale=0.0, patience=600.0),
        )
        line.stop()
        self.journalled = {
            entry.responses[0][0]: entry.responses[0][1].tobytes() for entry in journal.entries()
        }
        journal.close()
        self.finished = True

    def check(self):
        """Every number was answered with one response, and the learner holds that one."""
        assert self.finished, "the learner's run did not finish"
        seen = self.witness.seen
        assert set(seen) <= set(range(1, self.responses + 1))
        assert all(len(answers) == 1 for answers in seen.values())
        assert all(len(models) == 1 for models in self.witness.models.values())
        assert self.journalled == {k: next(iter(v)) for k, v in seen.items()}
        assert len(set(self.journalled.values())) == len(seen)

    @property
    def lost(self):
        """Responses that were spent and that nobody has."""
        return self.responses - len(self.witness.seen)


def kill(folder, *, kills, seed, block=1):
    """Kill the owner ``kills`` times under load: at each step in turn, and at random moments."""
    settings, feature_map = write_owner(
        folder, "mortal", epsilon_lifetime="100000", enrollments_per_hour=100000, block=block
    )
    lives = Lives(settings, random.Random(seed), block)
    try:
        return killed(lives, feature_map, folder, kills=kills)
    finally:
        lives.end()


def killed(lives, feature_map, folder, *, kills):
    """What came of this many kills."""
    runs = []
    responses = RESPONSES if lives.block == 1 else BLOCKS * lives.block
    steps = [step for step in STEPS if lives.block == 1 or step not in NOTES]
    began = time.monotonic()
    # The first life only takes a port.
    pid = lives.begin()
    os.kill(pid, signal.SIGKILL)
    lives.wait_for_death()
    while lives.kills < kills:
        batch = [
            Run(f"s{n}", feature_map, lives.port, folder / f"{n}.sqlite", responses)
            for n in range(len(runs), len(runs) + LEARNERS)
        ]
        before = lives.kills
        runs += batch

        def busy(batch=batch):
            return any(one.thread.is_alive() for one in batch)

        while lives.kills < kills and busy():
            turn = lives.kills
            if turn % 2 == 0 and turn // 2 < 3 * len(steps):
                lives.die_at(steps[turn // 2 % len(steps)], busy=busy)
            else:
                lives.die_at_random()
        pid = lives.begin()
        for one in batch:
            one.thread.join(90)
            one.check()
            # Strict charges lose nothing; a block is lost to each kill at most.
            assert one.lost <= (0 if lives.block == 1 else lives.block * (lives.kills - before))
        if lives.kills < kills:
            os.kill(pid, signal.SIGKILL)
            lives.wait_for_death()
    for one in runs:
        _refuses_more(one)
        one.witness.disconnect()
    os.kill(pid, signal.SIGKILL)
    lives.wait_for_death()
    ledger = folder / "ledger.sqlite"
    entries = read_studies(ledger)[1]
    assert [entry.account.answered for entry in entries] == [responses] * len(runs)
    assert all(entry.epsilon_spent == Fraction(1, 3) for entry in entries)
    assert verify_ledger(ledger) == []
    return {
        "kills": lives.kills,
        "by_step": dict(lives.steps),
        "studies": len(runs),
        "responses": sum(len(one.witness.seen) for one in runs),
        "promised": responses * len(runs),
        "lost": sum(one.lost for one in runs),
        "lost_for_each_kill": round(sum(one.lost for one in runs) / lives.kills, 1),
        "charged": sum(entry.account.answered for entry in entries),
        "most_different_answers_to_one_number": max(
            len(answers) for one in runs for answers in one.witness.seen.values()
        ),
        "seconds": round(time.monotonic() - began, 1),
    }


def _refuses_more(one):
    query = Query(study_id=one.study_id, sequence=one.responses + 1, theta=np.zeros(4))
    for _ in range(100):
        try:
            one.witness.answer(query)
        except BudgetSpentError:
            return
        except UnreachableError:
            time.sleep(0.05)
            continue
        raise AssertionError("a response beyond the promised ones was given")
    raise AssertionError("the owner did not come back")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=220)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--block", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        found = kill(Path(made), kills=options.kills, seed=options.seed, block=options.block)
        print(json.dumps(found, indent=2))
