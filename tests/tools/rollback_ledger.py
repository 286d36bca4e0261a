"""Take files of a ledger away from an owner that serves, kill it, start it, and ask again.

For each proper subset of the ledger's files and each way to lose them (deleted, truncated,
replaced by an older copy, overwritten by one), with and without queries after it, with the older
copy taken before or after SQLite moved its log into the ledger: no number is answered for two
models, no more is answered than promised, no more epsilon is left than before.

Usage: python tests/tools/rollback_ledger.py [--every 1]
"""

import argparse
import itertools
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path

import numpy as np
from lone_owner import write_owner

from common.errors import CoprivError, OwnerFailedError, RefusedError, UnreachableError
from common.terms import Query, StudyTerms
from learner.network.grpc_owner import GrpcOwner
from owner.server import start_owner

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = ("", "-wal", "-shm", "-given", ".lock")
SUBSETS = [
    subset for size in range(1, len(SUFFIXES)) for subset in itertools.combinations(SUFFIXES, size)
]
PROMISED = 9
EPSILON = Fraction(1, 3)


def delete(file, _):
    file.unlink()


def truncate(file, _):
    os.truncate(file, 0)


def replace(file, older):
    """By a copy of its own, with the marks it had."""
    fresh = file.with_name("fresh")
    shutil.copy2(older, fresh)
    fresh.replace(file)


def roll_back(file, older):
    """In place: the file stays the same one."""
    content = older.read_bytes()
    with file.open("r+b") as written:
        written.write(content)
        written.truncate()


WAYS = (delete, truncate, replace, roll_back)


def live(settings, pages):
    """One life of an owner, which ends by a signal; or the sentence that refuses it."""
    try:
        running = start_owner(settings, listen=None, insecure_noise_seed=None)
    except CoprivError as error:
        print("refused", error, flush=True)
        return
    if pages:
        running.owner._ledger._held.db.execute(f"PRAGMA wal_autocheckpoint = {pages}")
    print(running.port, flush=True)
    signal.pause()


def lives():
    """Fork a life for each line "PAGES OWNER.toml" of standard input; kill all at "kill"."""
    logging.disable(logging.CRITICAL)
    children = []
    for line in sys.stdin:
        if line == "kill\n":
            while children:
                os.kill(children[-1], signal.SIGKILL)
                os.waitpid(children.pop(), 0)
            print("dead", flush=True)
            continue
        pages, settings = line.split(maxsplit=1)
        children.append(os.fork())
        if children[-1] == 0:
            try:
                live(Path(settings.strip()), int(pages))
            finally:
                os._exit(0)


class Owner:
    """An owner's lives, and every model that each of its numbers was answered for."""

    def __init__(self, process, folder, pages):
        self.process, self.folder, self.pages = process, folder, pages
        self.settings, self.feature_map = write_owner(folder, "rolled", epsilon_lifetime="1")
        self.answered = defaultdict(set)
        self.models = itertools.count(1)
        self.refused = ""

    def _say(self, line):
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def begin(self):
        """Start a life; None if the ledger is refused."""
        port, _, self.refused = self._say(f"{self.pages} {self.settings}").partition(" ")
        if port == "refused":
            return None
        return GrpcOwner("rolled", f"127.0.0.1:{port.strip()}", deadline=10)

    def kill(self):
        """End all lives by SIGKILL."""
        assert self._say("kill") == "dead\n"

    def enroll(self, owner, study):
        """Enrol; returns how many responses were given, None if it is refused."""
        terms = StudyTerms(
            study_id=study,
            loss="squared",
            theta_max=2.0,
            feature_map=self.feature_map,
            horizon=PROMISED,
            responses=PROMISED,
            epsilon=EPSILON,
        )
        try:
            return owner.enroll(terms).answered
        except (RefusedError, OwnerFailedError, UnreachableError):
            return None

    def ask(self, owner, study, sequence):
        """Ask with a model that was never asked with before."""
        theta = np.full(4, next(self.models) / 10000)
        try:
            owner.answer(Query(study_id=study, sequence=sequence, theta=theta))
        except (RefusedError, OwnerFailedError, UnreachableError):
            return False
        self.answered[study, sequence].add(theta.tobytes())
        return True

    def ask_on(self, owner, study, known):
        """Every number that may still be open, with other models: also those given already."""
        for sequence in range(1, PROMISED + 2):
            self.ask(owner, study, sequence)
        given = self.enroll(owner, study)
        for sequence in range((known if given is None else given) + 1, PROMISED + 2):
            self.ask(owner, study, sequence)

    def left(self, owner):
        try:
            return Fraction(owner.describe().epsilon_left)
        except (OwnerFailedError, UnreachableError):
            return None


def one_case(owner, subset, way, *, busy):
    """Serve, lose files, be asked again if busy, be killed, start, be asked; what became of it."""
    older = owner.folder / "older"
    older.mkdir()
    first = owner.begin()
    assert first is not None, owner.refused
    owner.enroll(first, "one")
    for sequence in (1, 2, 3):
        assert owner.ask(first, "one", sequence)
    ledger = owner.folder / "ledger.sqlite"
    for suffix in SUFFIXES:
        shutil.copy2(f"{ledger}{suffix}", f"{older}/ledger.sqlite{suffix}")
    for sequence in (4, 5, 6):
        assert owner.ask(first, "one", sequence)
    owner.enroll(first, "two")
    assert owner.ask(first, "two", 1)
    left = owner.left(first)
    assert left is not None
    for suffix in subset:
        way(Path(f"{ledger}{suffix}"), older / f"ledger.sqlite{suffix}")
    outcome = "quiet"
    if busy:
        second = owner.begin()
        assert second is None, "two owners serve one ledger"
        outcome = "went on" if owner.ask(first, "one", 7) else "stopped"
        for study in ("one", "two"):
            owner.ask_on(first, study, known=3)
        if owner.left(first) is not None:
            left = min(left, owner.left(first) or left)
    first.disconnect()
    owner.kill()
    again = owner.begin()
    if again is None:
        assert len(owner.refused.splitlines()) == 1
        assert "another process" not in owner.refused, owner.refused
        return f"{outcome}, then refused"
    now = owner.left(again)
    assert now is not None
    assert now <= left, f"{now} left, {left} before"
    for study in ("one", "two", "three", "four"):
        owner.enroll(again, study)
        owner.ask_on(again, study, known=0)
    again.disconnect()
    owner.kill()
    return f"{outcome}, then started"


def check(owner):
    """No number for two models, no more than promised, and no more than the lifetime budget."""
    for number, models in owner.answered.items():
        assert len(models) == 1, f"{number} was answered for {len(models)} models"
        assert number[1] <= PROMISED
    assert EPSILON * len(owner.answered) / PROMISED <= 1


def all_cases(every):
    process = subprocess.Popen(
        [sys.executable, __file__, "--lives"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    counts = defaultdict(Counter)
    wrong = []
    cases = itertools.product(SUBSETS, WAYS, (True, False), (0, 4))
    for number, (subset, way, busy, pages) in enumerate(cases):
        if number % every != number // every % every:
            continue
        case = f"{way.__name__} {subset}, busy {busy}, log of {pages} pages"
        with tempfile.TemporaryDirectory() as made:
            owner = Owner(process, Path(made), pages)
            try:
                counts[way.__name__][one_case(owner, subset, way, busy=busy)] += 1
                check(owner)
            except AssertionError as error:
                wrong.append(f"{case}: {error}")
            finally:
                owner.kill()
    assert process.stdin is not None
    process.stdin.close()
    process.wait(30)
    total = sum(sum(found.values()) for found in counts.values())
    return {"cases": total, "ways": {k: dict(v) for k, v in counts.items()}, "wrong": wrong}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="Only one case in this many.")
    parser.add_argument("--lives", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.lives:
        lives()
        return
    found = all_cases(options.every)
    print(json.dumps(found, indent=2))
    sys.exit(1 if found["wrong"] else 0)


if __name__ == "__main__":
    main()
