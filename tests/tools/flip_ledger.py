"""Flip single bits of an owner's ledger and open it as serving does: refused, or nothing changed.

A life of an owner leaves a ledger with its logs, as a SIGKILL does. Each flip hits a fresh copy.
One in the log of what was given may also make a block count as spent to its end.

Usage: python tests/tools/flip_ledger.py --flips 10000 [--serves 25] [--seed 1]
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
from lone_owner import write_owner
from waiting import killed_at_its_end

from common.config import load_settings
from common.tables import read_table
from common.terms import Query, StudyTerms
from owner.account import Account, Kept
from owner.ledger import Ledger
from owner.ledger_reading import read_studies, verify_ledger
from owner.ledger_rows import LedgerError, epsilon_uncounted, promise_faults
from owner.policy import OwnerSettings
from owner.server import open_owner
from owner.shard import fingerprint

ROOT = Path(__file__).resolve().parents[2]
GIVEN = "ledger.sqlite-given"
FILES = ("ledger.sqlite", "ledger.sqlite-wal", GIVEN, "ledger.sqlite.lock")
LEARNER = "anonymous"


def live(settings_path, feature_map):
    """Lives of an owner: studies open and closed, with and without responses."""
    settings = load_settings(OwnerSettings, settings_path)
    plan = {"whole": 150, "some": 5, "none": 0, "open": 70, "last": 3}
    for turn in range(2):
        owner = open_owner(settings, base=settings_path.parent, insecure_noise_seed=None)
        for name, asked in plan.items():
            study = f"{name}-{turn}"
            terms = StudyTerms(
                study_id=study,
                loss="squared",
                theta_max=2.0,
                feature_map=feature_map,
                horizon=150,
                responses=150,
                epsilon=Fraction(1, 3),
            )
            owner.enroll(terms, learner=LEARNER)
            for sequence in range(1, asked + 1):
                query = Query(study_id=study, sequence=sequence, theta=np.full(4, sequence / 150))
                owner.answer(query, learner=LEARNER)
            if name in {"some", "none"}:
                owner.close(study, learner=LEARNER)
            if turn and name == "some":
                # From here on the log alone knows.
                owner._ledger._held.db.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        if not turn:
            owner.stop()


def killed_owner(folder):
    """A folder as a killed owner leaves it; returns its settings."""
    settings, feature_map = write_owner(folder, "flipped", epsilon_lifetime="10")
    killed_at_its_end(lambda: live(settings, feature_map))
    for name in FILES:
        assert (folder / name).stat().st_size > 0
    return settings


def spent_to_the_end(found, truth):
    """Whether all is as it was, but that more of some accounts counts as answered."""
    if isinstance(found, tuple) and not isinstance(found, Account):
        alike = isinstance(truth, tuple) and len(found) == len(truth)
        return alike and all(map(spent_to_the_end, found, truth))
    if isinstance(found, list):
        return len(found) == len(truth) and all(map(spent_to_the_end, found, truth))
    if isinstance(found, Account) and found != truth and found.answered >= truth.answered:
        lost = found.responses == Kept() and not any(found.digests[-1:])
        return lost and found.promised == truth.promised
    return bool(found == truth)


def told(entries):
    """Everything that is promised, answered and spent, and what was last said."""
    return [
        (
            entry.study_id,
            entry.learner,
            entry.epsilon,
            entry.epsilon_held,
            entry.noise_scale,
            entry.insecure_noise,
            entry.account,
            entry.agreed_terms if entry.terms else None,
        )
        for entry in entries
    ]


def served(path, shard):
    """What an owner that starts on the ledger holds; then it goes on by one charge."""
    ledger = Ledger(path, owner="flipped", fingerprint=shard)
    try:
        entries = list(ledger.studies())
        epsilon_uncounted(entries, kappa=2)
        faults = [fault for entry in entries for fault in promise_faults(entry)]
        assert not faults, faults
        found = told(entries), ledger.epsilon_held()
        assert ledger.responses == sum(entry.account.answered for entry in entries)
        answered = found[0][-1][6].answered
        ledger.charge(study_id="last-1", sequence=answered + 1, digest="0" * 64, response=b"r")
        ledger.close_study("open-1")
    finally:
        ledger.close()
    assert verify_ledger(path) == []
    return found


def shown(path, _):
    """What people are shown of the ledger, if it is found sound."""
    findings = verify_ledger(path)
    if findings:
        raise LedgerError(findings[0])
    return told(read_studies(path)[1])


class Flips:
    """Flips on copies of one ledger, and what became of them."""

    def __init__(self, folder, *, seed):
        self.settings = killed_owner(folder)
        self.folder = folder
        self.choices = random.Random(seed)
        self.counts = Counter()
        self.wrong = []
        settings = load_settings(OwnerSettings, self.settings)
        self.shard = fingerprint([read_table(settings.data, base=folder)])
        self.truth = {look: self.look(look, None) for look in (served, shown)}
        assert all(not isinstance(found, str) for found in self.truth.values()), self.truth

    def chosen(self):
        """A file, a byte of it and a bit; half of all flips hit the ledger's own file."""
        (name,) = self.choices.choices(FILES, [0.45, 0.35, 0.15, 0.05])
        size = (self.folder / name).stat().st_size
        if name == GIVEN:
            # Behind what it says there are zeros only.
            size = len((self.folder / name).read_bytes().rstrip(b"\0"))
        # One in ten near the beginning, where what holds for the whole file stands.
        if self.choices.random() < 0.1:
            size = min(size, 120)
        return name, self.choices.randrange(size), self.choices.randrange(8)

    def copy(self, to, flip):
        for name in (*FILES, "ledger.sqlite-shm"):
            # With the marks on the files.
            shutil.copy2(self.folder / name, to / name)
        if flip is not None:
            name, position, bit = flip
            with (to / name).open("r+b") as file:
                file.seek(position)
                (byte,) = file.read(1)
                file.seek(position)
                file.write(bytes([byte ^ 1 << bit]))

    def look(self, look, flip):
        """What is found in a copy, or the sentence that refuses it."""
        with tempfile.TemporaryDirectory(dir=self.folder) as made:
            self.copy(Path(made), flip)
            try:
                return look(Path(made) / FILES[0], self.shard)
            except LedgerError as error:
                return str(error)

    def flip(self):
        flip = self.chosen()
        self.counts[f"in {flip[0]}"] += 1
        for look, truth in self.truth.items():
            try:
                found = self.look(look, flip)
            except Exception as error:
                self.counts["tracebacks"] += 1
                self.wrong.append(f"{flip} {look.__name__}: {type(error).__name__}: {error}")
                continue
            if isinstance(found, str):
                self.counts[f"{look.__name__}: refused"] += 1
                if "\n" in found:
                    self.wrong.append(f"{flip} {look.__name__}: not one line: {found}")
            elif found == truth:
                self.counts[f"{look.__name__}: nothing changed"] += 1
            elif flip[0] == GIVEN and spent_to_the_end(found, truth):
                self.counts[f"{look.__name__}: spent to the end"] += 1
            else:
                self.counts[f"{look.__name__}: changed unnoticed"] += 1
                self.wrong.append(f"{flip} {look.__name__}: changed unnoticed")

    def serve(self):
        """A real start of the command on a flipped copy."""
        flip = self.chosen()
        with tempfile.TemporaryDirectory(dir=self.folder) as made:
            self.copy(Path(made), flip)
            for name in ("owner.toml", "shard.parquet"):
                shutil.copy2(self.folder / name, made)
            process = subprocess.Popen(
                [sys.executable, "-m", "owner.cli", "serve", f"{made}/owner.toml"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
            assert process.stdout is not None
            serves = process.stdout.readline().startswith("serving on port")
            process.terminate()
            errors = process.communicate(timeout=60)[1]
        self.counts["started" if serves else "start refused"] += 1
        one_sentence = process.returncode == 2 and len(errors.strip().splitlines()) == 1
        if "Traceback" in errors or not (serves or one_sentence):
            self.counts["tracebacks"] += 1
            self.wrong.append(f"{flip} serve: {process.returncode}, {errors}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=10000)
    parser.add_argument("--serves", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
        flips = Flips(Path(made), seed=options.seed)
        for _ in range(options.flips):
            flips.flip()
        for _ in range(options.serves):
            flips.serve()
    counts = {"flips": options.flips, "tracebacks": 0} | dict(sorted(flips.counts.items()))
    print(json.dumps(counts | {"wrong": flips.wrong[:20]}, indent=2))
    sys.exit(1 if flips.wrong else 0)


if __name__ == "__main__":
    main()
