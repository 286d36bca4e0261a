"""Serve an owner whose disk fills up, and report what it answers before, meanwhile and after.

It exits 1 if a response was given that is not charged, if one was lost or changed, if an answer
is refused otherwise than in one sentence, if its health says otherwise, or if the owner starts
where there is no room.

Usage: full_disk_owner.py OWNER.toml {disk|limit}

``disk`` fills the file system of the owner's folder, which must be a small one of its own;
``limit`` takes the room away by the process's limit on the size of its files.
"""

import json
import resource
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
from waiting import comes_about

from common.errors import CoprivError, OwnerFailedError, UnreachableError
from common.terms import Query, StudyTerms
from learner.network.grpc_owner import GrpcOwner
from owner.health import ask_health
from owner.ledger_reading import read_studies, verify_ledger
from owner.metrics import OwnerMetrics
from owner.refusals import FAILED
from owner.server import start_owner


def take_room(folder, mode):
    if mode == "limit":
        size = (folder / "ledger.sqlite-wal").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, resource.RLIM_INFINITY))
        return
    with (folder / "ballast").open("wb", buffering=0) as ballast:
        for size in (4096, 512, 1):
            try:
                while True:
                    ballast.write(b"x" * size)
            except OSError:
                continue


def give_room(folder, mode):
    if mode == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    else:
        (folder / "ballast").unlink()


def serves(port):
    """Whether the owner there says that it serves."""
    try:
        ask_health(f"127.0.0.1:{port}", seconds=20)
    except UnreachableError:
        return False
    return True


def enrols(owner, terms):
    """Whether a learner that looks for the owner would take it back."""
    try:
        owner.enroll(terms)
    except OwnerFailedError:
        return False
    return True


def metric(running):
    """What whoever watches is told of the ledger."""
    return OwnerMetrics(running.owner).registry.get_sample_value("copriv_ledger_works")


def main(settings, mode):
    folder = settings.parent
    told = {}
    running = start_owner(settings, listen=None, insecure_noise_seed=None)
    owner = GrpcOwner("owner-a", f"127.0.0.1:{running.port}", deadline=20)
    terms = StudyTerms(
        study_id="s",
        loss="squared",
        theta_max=2.0,
        feature_map=(folder / "features.json").read_text(),
        horizon=5000,
        responses=5000,
        epsilon=Fraction(1),
    )
    owner.enroll(terms)

    def ask(sequence):
        query = Query(study_id="s", sequence=sequence, theta=np.full(4, sequence / 5000))
        return owner.answer(query).gradient.tobytes()

    answers = {sequence: ask(sequence) for sequence in (1, 2, 3)}
    take_room(folder, mode)
    sequence, refusals = 4, []
    while len(refusals) < 5:
        try:
            answers[sequence] = ask(sequence)
            sequence += 1
        except CoprivError as error:
            refusals.append(str(error).partition(": ")[2])
    told["refusals"] = sorted(set(refusals))
    told["given_before_it_was_full"] = sequence - 1
    told["counted_while_full"] = read_studies(folder / "ledger.sqlite")[1][0].account.answered
    told["replayed_while_full"] = ask(sequence - 1) == answers[sequence - 1]
    told["serves_while_full"] = serves(running.port)
    told["metrics"] = [metric(running)]
    told["enrols_while_full"] = enrols(owner, terms)
    give_room(folder, mode)
    told["serves_by_itself"] = comes_about(lambda: serves(running.port), seconds=30)
    told["metrics"].append(metric(running))
    told["enrols_after"] = enrols(owner, terms)
    answers[sequence] = ask(sequence)
    told["replayed_after"] = ask(sequence) == answers[sequence]
    told["serves_after"] = serves(running.port)
    answers[sequence + 1] = ask(sequence + 1)
    told["answered_after"] = read_studies(folder / "ledger.sqlite")[1][0].account.answered
    told["different"] = len(set(answers.values()))
    owner.disconnect()
    running.drain(grace=0.2)
    told["findings"] = verify_ledger(folder / "ledger.sqlite")
    take_room(folder, mode)
    command = [sys.executable, "-c", "from owner.cli import main; main()", "serve", str(settings)]
    start = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    told["start_on_a_full_disk"] = start.stderr
    told["its_status"] = start.returncode
    give_room(folder, mode)
    faults = faults_of(told)
    print(json.dumps(told | {"faults": faults}))
    sys.exit(1 if faults else 0)


def faults_of(told):
    """What an owner on a full disk must not do, and did."""
    given = told["given_before_it_was_full"]
    claims = {
        "answers were refused otherwise": told["refusals"] == [FAILED],
        "what was given is not what was charged": told["counted_while_full"] == given >= 3,
        "a response was not replayed": told["replayed_while_full"] and told["replayed_after"],
        "room did not bring it back": told["answered_after"] == told["different"] == given + 2,
        "its health is told otherwise": told["serves_after"] and not told["serves_while_full"],
        "whoever watches is told otherwise": told["metrics"] == [0, 1],
        "an owner that cannot charge was taken back": not told["enrols_while_full"],
        "room did not bring it back while nobody asked": told["serves_by_itself"],
        "it does not enrol again": told["enrols_after"],
        "the ledger is damaged": told["findings"] == [],
        "it started, or did not say why not": "check the disk's space"
        in told["start_on_a_full_disk"],
        "no supervisor starts it again when there is room": told["its_status"] == 4,
    }
    return [fault for fault, holds in claims.items() if not holds]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
