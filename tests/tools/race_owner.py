"""Ask an owner everything at once from many connections, and count what it gave for its budget.

Two learners share a few names of studies and ask in no order: they enrol under terms that change,
ask next, earlier and far numbers at the same and at other models, moments, curvature and
validation, one at a time or several on a stream that they cut at any moment, offers, close, and
enrol again. Meanwhile the owner is killed or stopped and starts again.

It exits 1 if a number of a study was answered for two models or in two ways, if two numbers had the
same noise, if all that was given is more than the lifetime budget, more than was promised or more
than the ledger says, or if a call ended with a status that is none of its refusals.

Usage: python tests/tools/race_owner.py [--seconds 60] [--threads 12] [--lives 8] [--block 1]
                                        [--seed 1]
"""

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import tomli_w
from lone_owner import write_owner

from common.codec import query_to_pb, terms_to_pb
from common.pb import copriv_pb2 as pb
from common.terms import Query, StudyTerms
from owner.ledger_reading import read_studies, verify_ledger

ROOT = Path(__file__).resolve().parents[2]
LIFETIME = Fraction(40)
# Studies that are asked at the same time, and how many others take their place in a second.
STUDIES, A_SECOND, LENGTH = 12, 2.0, 4
LEARNERS = {"ada": "a-token-of-ada-that-is-long", "bob": "a-token-of-bob-that-is-long"}
EPSILONS = ("1/3", "1", "7/9", "1/999999999999999999", "999999999999999999/1000000000000000000")
REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAVAILABLE,
    # While it is killed.
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
}
QUICKLY_BACK = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 100)]
Answer = tuple[str, bytes]


@dataclass
class Seen:
    """What all connections together were told."""

    answers: dict[tuple[str, int], set[Answer]] = field(default_factory=lambda: defaultdict(set))
    agreed: dict[str, set[tuple[Any, ...]]] = field(default_factory=lambda: defaultdict(set))
    statuses: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    # The number that a study is asked next, as far as anybody knows.
    next: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def status(self, call, code, details):
        with self.lock:
            self.statuses[f"{call} {code.name}"] += 1
            if code not in REFUSALS:
                self.faults.append(f"{call}: {code.name}: {details[:200]}")

    def answered(self, query, response):
        theta = hashlib.sha256(query.theta.data).hexdigest()
        with self.lock:
            self.statuses["Answer OK"] += 1
            self.answers[query.study_id, query.sequence].add((theta, response.gradient.data))
            self.next[query.study_id] = max(self.next[query.study_id], query.sequence + 1)
            if (response.study_id, response.sequence) != (query.study_id, query.sequence):
                self.faults.append(f"an answer to another question: {query.study_id}")


class Lives:
    """The owner's process, which dies now and then."""

    def __init__(self, settings):
        self.settings = settings
        self.port = 0
        self.process = self.begin()

    def begin(self):
        listen = f"127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "owner.cli", "serve", str(self.settings)]
        with (self.settings.parent / "log").open("a") as log:
            process = subprocess.Popen(
                [*command, "--listen", listen],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
            )
        assert process.stdout is not None
        self.port = int(process.stdout.readline().split()[3].rstrip(","))
        return process

    def end(self, number):
        self.process.send_signal(number)
        self.process.wait(60)

    def again(self, number):
        self.end(number)
        self.process = self.begin()


class Asker(threading.Thread):
    """One connection of one of the learners, which asks anything."""

    def __init__(self, seen, port, maps, until, seed):
        super().__init__(daemon=True)
        self.seen, self.maps, self.until = seen, maps, until
        self.choices = random.Random(seed)
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}", QUICKLY_BACK)
        token = self.choices.choice([*LEARNERS.values()])
        self.metadata = (("authorization", f"Bearer {token}"),)

    def call(self, name, request, reply):
        method = self.channel.unary_unary(
            f"/copriv.v1.DataOwner/{name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=reply.FromString,
        )
        try:
            return method(request, timeout=20, metadata=self.metadata)
        except grpc.RpcError as error:
            self.seen.status(name, error.code(), error.details() or "")
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                time.sleep(0.1)
            return None

    def run(self):
        ways = (self.enroll, self.ask, self.cut_off, self.close, self.offer)
        while (left := self.until - time.monotonic()) > 0:
            oldest = int(1e6 - A_SECOND * left)
            study = f"s{self.choices.randrange(oldest, oldest + STUDIES)}"
            self.choices.choices(ways, (8, 60, 20, 0.3, 1))[0](study)
        self.channel.close()

    def terms(self, study):
        """Mostly those of the study's name, now and then others."""
        choices = random.Random(study) if self.choices.random() < 0.8 else self.choices
        release = choices.choice(["gradient", "gradient", "moments", "newton", "validation"])
        once = release in ("moments", "validation")
        responses = 1 if once else choices.choice([1, 3, 70, 1000])
        terms = StudyTerms(
            study_id=study,
            loss="squared",
            theta_max=2.0,
            feature_map=choices.choice(self.maps),
            horizon=responses,
            responses=responses,
            epsilon=Fraction(choices.choice(EPSILONS)),
            kappa=choices.choice([1, 1, 3]),
            clip=None if once else choices.choice([None, None, 0.5, 7.5, 1e308, 5e-324]),
            release=release,
        )
        if release == "newton":
            return replace(terms, curvature_scale=choices.choice([1.0, 1e-100]))
        return replace(terms, loss_bound=3.0) if release == "validation" else terms

    def enroll(self, study):
        reply = self.call("Enroll", terms_to_pb(self.terms(study)), pb.Enrollment)
        if reply is None:
            return
        promise = (reply.num_records, reply.responses, reply.noise_scale, str(reply.epsilon))
        with self.seen.lock:
            self.seen.statuses["Enroll OK"] += 1
            self.seen.agreed[study].add(promise)
            self.seen.next[study] = reply.answered + 1

    def query(self, study, ahead=0):
        """Mostly the next number, or one so far ahead of it."""
        last = self.seen.next[study] + ahead
        sequence = self.choices.choice([*[last] * 6, last + 1, max(0, last - 1), 0, 1, 2**63])
        model = self.choices.choice([0.0, 0.0, -0.0, 0.5, 5e-324, 2.0, 2.0000000000000004, np.nan])
        return query_to_pb(Query(study_id=study, sequence=sequence, theta=np.full(LENGTH, model)))

    def ask(self, study):
        query = self.query(study)
        for _ in range(self.choices.choice([1, 1, 2])):
            reply = self.call("AnswerOnce", query, pb.Response)
            if reply is not None:
                self.seen.answered(query, reply)

    def cut_off(self, study):
        """Several questions on one stream, of which some answers are read, if any."""
        queries = [self.query(study, ahead) for ahead in range(self.choices.randint(1, 6))]
        method = self.channel.stream_stream(
            "/copriv.v1.DataOwner/Answer",
            request_serializer=pb.Query.SerializeToString,
            response_deserializer=pb.Response.FromString,
        )
        call = method(iter(queries), timeout=20, metadata=self.metadata)
        try:
            for query, reply in zip(
                queries[: self.choices.randint(0, len(queries))], call, strict=False
            ):
                self.seen.answered(query, reply)
        except grpc.RpcError as error:
            self.seen.status("Answer", error.code(), error.details() or "")
        call.cancel()

    def close(self, study):
        if self.call("Close", pb.CloseRequest(study_id=study), pb.CloseSummary) is not None:
            with self.seen.lock:
                self.seen.statuses["Close OK"] += 1

    def offer(self, study):
        self.call("Offer", pb.OfferRequest(study_id=study), pb.OfferReply)


def write_settings(folder, block):
    """The owner's settings, and two maps."""
    path, text = write_owner(folder, "raced", epsilon_lifetime=str(LIFETIME), block=block)
    settings = tomllib.loads(path.read_text())
    settings["policy"]["enrollments_per_hour"] = 1_000_000
    settings["policy"]["tokens"] = {
        name: f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"
        for name, token in LEARNERS.items()
    }
    path.write_text(tomli_w.dumps(settings))
    return path, [text, text.replace('"source": "public"', '"source": "other"')]


def judge(seen, ledger):
    """What is wrong with all that was given."""
    faults = seen.faults
    for (study, sequence), answers in seen.answers.items():
        if len(answers) > 1:
            faults.append(f"{study}, number {sequence}: {len(answers)} answers")
    given = Counter(study for study, _ in seen.answers)
    noises = Counter(answer for answers in seen.answers.values() for _, answer in answers)
    faults += [f"a response was given {count} times" for count in noises.values() if count > 1]
    entries = {entry.study_id: entry for entry in read_studies(ledger)[1]}
    for study, count in given.items():
        entry = entries[study]
        if count > entry.account.answered or entry.account.answered > entry.account.promised:
            faults.append(f"{study}: {count} given, the ledger says {entry.account.answered}")
    faults += [
        f"{study}: agreed to {kinds}" for study, kinds in seen.agreed.items() if len(kinds) > 1
    ]
    spent = sum(entries[s].epsilon * n / entries[s].account.promised for s, n in given.items())
    held = sum(entry.epsilon_held for entry in entries.values())
    if spent > LIFETIME or held > LIFETIME:
        faults.append(f"{spent} spent, {held} held of {LIFETIME}")
    faults += verify_ledger(ledger)
    return {
        "answers": sum(seen.statuses[key] for key in seen.statuses if key.startswith("Answer")),
        "numbers_answered": len(seen.answers),
        "studies": len(entries),
        "epsilon_given": round(float(spent), 6),
        "epsilon_held": round(float(held), 6),
        "statuses": dict(sorted(seen.statuses.items())),
        "faults": faults[:20],
    }


def race(folder, *, seconds, threads, lives, block, seed):
    """Ask for so long, over this many of the owner's lives."""
    settings, maps = write_settings(folder, block)
    owner, seen = Lives(settings), Seen()
    choices = random.Random(seed)
    try:
        until = time.monotonic() + seconds
        askers = [Asker(seen, owner.port, maps, until, seed + i) for i in range(threads)]
        for asker in askers:
            asker.start()
        for _ in range(lives - 1):
            time.sleep(seconds / lives * choices.uniform(0.5, 1.0))
            owner.again(choices.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
        for asker in askers:
            asker.join(seconds + 60)
    finally:
        owner.end(signal.SIGTERM)
    return judge(seen, folder / "ledger.sqlite")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--threads", type=int, default=12)
    parser.add_argument("--lives", type=int, default=8)
    parser.add_argument("--block", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        found = race(Path(made), **vars(options))
    print(json.dumps(found, indent=2))
    sys.exit(bool(found["faults"]))
