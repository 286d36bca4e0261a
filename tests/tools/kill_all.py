"""Kill three owners and their learner at random moments, while owners are asked ahead.

Studies follow one another until there were this many kills. Whoever was killed is started again at
once: owners on their ports, the learner with --resume. Each study must end by itself, charge nobody
for more than was promised, and hold what was charged; what a kill costs is counted.

Usage: python tests/tools/kill_all.py --kills 200 [--seed 1] [--block 64]
"""

import argparse
import json
import random
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, closing
from fractions import Fraction
from pathlib import Path

import tomli_w
from forked import Forked
from free_ports import free_ports
from lone_owner import write_owner

from common.toml_files import read_toml
from learner.training.journal import Journal
from owner.ledger_reading import read_studies, verify_ledger

NAMES = ("owner-a", "owner-b", "owner-c")
HORIZON = 900
MOST_KILLS = 12
LONGEST_LIFE_SECONDS = 0.6
# Owners that start again on a busy machine are waited for.
PATIENCE = 60
LONGEST_STUDY_SECONDS = 150.0


class Study:
    """Three owners, their learner, and what becomes of them."""

    def __init__(self, folder, *, block, seed):
        self.run, self._path = folder / "run", folder / "study.toml"
        self.owners = {}
        addresses = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
        for name, port in addresses.items():
            (folder / name).mkdir()
            path, feature_map = write_owner(folder / name, name, epsilon_lifetime="1", block=block)
            listen = {"listen": f"127.0.0.1:{port}"}
            path.write_text(tomli_w.dumps(read_toml(path) | listen))
            self.owners[name] = path
        (folder / "features.json").write_text(feature_map)
        study = {
            "name": "killed",
            "seed": seed,
            "profile": "published",
            "features": {"map": str(folder / "features.json")},
            "model": {"loss": "squared", "theta_max": 2.0},
            "algorithm": {"horizon": HORIZON, "rho": 1e-3},
            "privacy": {"epsilon": 1, "split": "schedule"},
            "network": {"deadline": 5, "patience": PATIENCE},
            "owners": [
                {"name": name, "address": f"127.0.0.1:{port}"} for name, port in addresses.items()
            ],
        }
        self._path.write_text(tomli_w.dumps(study))
        self.lives = {name: self._begin(name) for name in (*NAMES, "learner")}

    def _begin(self, name):
        """A new life."""
        if name == "learner":
            return Forked("copriv", "train", self._path, "--resume", self.run)
        return Forked("copriv-owner", "serve", self.owners[name])

    def kill(self, *names):
        """End these at the same time, and start them again."""
        for name in names:
            self.lives[name].kill()
        for name in names:
            self.lives[name].communicate()
            self.lives[name] = self._begin(name)

    @property
    def is_over(self):
        """Whether the learner has ended."""
        return self.lives["learner"].poll() is not None

    def end(self):
        """End whoever still lives."""
        for life in self.lives.values():
            life.kill()
            life.communicate()

    def counts(self):
        """What was promised, charged and is held, after the learner has ended in order."""
        told = self.lives["learner"].communicate(timeout=LONGEST_STUDY_SECONDS)
        status = self.lives["learner"].returncode
        assert status == 0, f"the learner ended with status {status}: {told[1][-2000:]}"
        with closing(Journal(self.run / "journal.sqlite")) as journal:
            entries = list(journal.entries())
        counts = Counter(ticks=len(entries))
        for index, (name, path) in enumerate(self.owners.items()):
            self.lives[name].terminate()
            self.lives[name].communicate()
            numbers = [e.responses[index][0] for e in entries if index in e.responses]
            assert numbers == sorted(set(numbers)), f"{name}: a number is held twice"
            ledger = path.parent / "ledger.sqlite"
            assert verify_ledger(ledger) == []
            _, (study,) = read_studies(ledger)
            assert study.account.answered <= study.account.promised
            assert study.epsilon_held <= Fraction(1)
            assert not numbers or numbers[-1] <= study.account.answered
            counts.update(
                promised=study.account.promised,
                charged=study.account.answered,
                held=len(numbers),
            )
        return counts


def trouble(study, choices, most):
    """Kill some of them, again and again, for as long as the learner is at it."""
    kills = Counter()
    victims = [*NAMES, "learner"]
    while not study.is_over and kills.total() < most:
        time.sleep(choices.uniform(0.0, LONGEST_LIFE_SECONDS))
        together = min(choices.choice((1, 1, 1, 2)), most - kills.total())
        names = choices.sample(victims, together)
        if not study.is_over:
            study.kill(*names)
            kills.update("learner" if name == "learner" else "owner" for name in names)
    return kills


def main():
    """Print what came of it, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--block", type=int, default=1)
    asked = parser.parse_args()
    choices = random.Random(asked.seed)
    kills = Counter()
    counts = Counter()
    while kills.total() < asked.kills:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            study = Study(Path(folder), block=asked.block, seed=choices.randrange(1000))
            stack.callback(study.end)
            kills += trouble(study, choices, min(MOST_KILLS, asked.kills - kills.total()))
            counts += study.counts()
            counts["studies"] += 1
    lost = counts["charged"] - counts["held"]
    print(json.dumps({"kills": kills, **counts, "lost": lost}, indent=1))


if __name__ == "__main__":
    main()
