"""Send an owner malformed messages over real sockets, and check that none changes anything.

Two owner processes: one with budget left gets messages that are wrong on purpose, one whose
budget is all reserved and answered gets messages damaged at random.

Usage: python tests/tools/fuzz_owner.py --messages 100000 [--seed 1]
"""

import argparse
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from fractions import Fraction
from pathlib import Path

import grpc
import numpy as np
from lone_owner import write_owner

from common import codec
from common.features import FeatureMap
from common.pb import copriv_pb2 as pb
from common.terms import Query, StudyTerms
from owner.ledger_reading import read_studies, verify_ledger

ROOT = Path(__file__).resolve().parents[2]
SERVICE = "/copriv.v1.DataOwner"
THETA_MAX = 0.7
WINDOW = 64
REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
LONGEST_SENTENCE = 400
# Parts of exception texts and of paths.
SECRETS = ("Traceback", "Error", "sqlite", "fuzz-", "shard.", ".py")


class FuzzedOwner:
    """An owner process with one study in which some responses were given."""

    def __init__(self, folder, *, spent):
        folder.mkdir()
        _, feature_map = write_owner(
            folder,
            "fuzzed",
            epsilon_lifetime="1" if spent else "100",
            enrollments_per_hour=10**9,
        )
        self.feature_map = FeatureMap.from_json(feature_map)
        self.ledger = folder / "ledger.sqlite"
        self.log = (folder / "log").open("w")
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "owner.cli", "serve", str(folder / "owner.toml")),
                "--with-parent",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            cwd=ROOT,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.channel = grpc.insecure_channel(
            f"127.0.0.1:{line.split()[-1]}",
            options=[("grpc.max_send_message_length", -1)],
        )
        self.terms = StudyTerms(
            study_id="open",
            loss="squared",
            theta_max=THETA_MAX,
            feature_map=self.feature_map.to_json(),
            horizon=10,
            responses=3 if spent else 10,
            epsilon=Fraction(1),
        )
        self.enrol()
        self.last = [self.charged(sequence) for sequence in (1, 2, 3)][-1]
        self.before = read_studies(self.ledger)[1]

    def send(self, method, message):
        return self.channel.unary_unary(f"{SERVICE}/{method}")(message, timeout=30)

    def enrol(self):
        self.send("Enroll", codec.terms_to_pb(self.terms).SerializeToString())

    def ask(self, sequence):
        return self.send("AnswerOnce", query(sequence, np.full(4, 0.1 * sequence)))

    def charged(self, sequence):
        """A response that is in the ledger when it arrives here."""
        response = self.ask(sequence)
        (entry,) = read_studies(self.ledger)[1]
        assert entry.account.answered == sequence, "a response was released before its charge"
        assert entry.account.responses.joined.endswith(
            pb.Response.FromString(response).gradient.data
        )
        return response

    @property
    def resident_bytes(self):
        """Memory of the owner process."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def check_untouched(self):
        """Alive, nothing charged, nothing enrolled, and the last response still replayed."""
        assert self.process.poll() is None, "the owner has crashed"
        assert read_studies(self.ledger)[1] == self.before
        assert self.ask(3) == self.last

    def end(self):
        self.channel.close()
        self.process.terminate()
        assert self.process.wait(20) == 0
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        self.log.close()
        assert verify_ledger(self.ledger) == []
        logged = Path(self.log.name).read_text()
        assert "Traceback" not in logged
        assert len(logged) < 100_000, "refusals fill the log"


def query(sequence, theta, study="open"):
    made = codec.query_to_pb(Query(study_id=study, sequence=sequence, theta=theta))
    return made.SerializeToString()


def wrong_query(rng):
    """A query that must be refused: responses 1 to 3 were given, 4 is next."""
    theta = np.array([rng.uniform(-THETA_MAX, THETA_MAX) for _ in range(4)])
    bad_numbers = [math.nan, math.inf, -math.inf, 1e308, -1e308, THETA_MAX * 2]
    bad_numbers += [math.nextafter(THETA_MAX, 1), -math.nextafter(THETA_MAX, 1)]
    kind = rng.randrange(7)
    if kind == 0:
        bad = rng.choice(bad_numbers)
        theta[rng.randrange(4)] = bad
        words = "leaves the box" if math.isfinite(bad) else "not a finite number"
        return "AnswerOnce", query(4, theta), words
    if kind == 1:
        size = rng.choice([0, 1, 3, 5, 8, 1000, 50_000])
        return "AnswerOnce", query(4, np.zeros(size)), f"theta has {size} coordinates"
    if kind == 2:
        sequence = rng.choice([0, 1, 2, 3, 5, 6, 11, 2**31, 2**63, 2**64 - 1])
        words = "given for another theta" if 1 <= sequence <= 3 else "out of order"
        return "AnswerOnce", query(sequence, theta), words
    if kind == 3:
        study = rng.choice(["", "Open", "open ", "x" * 10_000, "\0", "öpen", "../open"])
        return "AnswerOnce", query(4, theta, study), "no such study"
    message = pb.Query(study_id="open", sequence=4)
    message.theta.length = rng.choice([0, 3, 5, 2**32 - 1, 10**9])
    message.theta.data = theta.astype("<f8").tobytes()[: rng.choice([0, 7, 31, 32])]
    if message.theta.length * 8 == len(message.theta.data):
        message.theta.length = 4_000_000
    if kind == 4:
        message.ClearField("theta")
    if kind == 5:
        return "AnswerOnce", rng.randbytes(rng.randrange(1, 60)), ""
    words = "theta has 0 coordinates" if kind == 4 else "a vector declares"
    return "AnswerOnce", message.SerializeToString(), words


def wrong_terms(owner):
    """Enrolments that must be refused although the budget has room."""
    good = codec.terms_to_pb(owner.terms)
    maps = list(wrong_maps(owner.feature_map))
    numbers = [math.nan, math.inf, -math.inf, -1.0, 0.0, -0.0, 5e-324, 2.0**-1030, 1e308]
    rationals = [("0", "1"), ("-1", "1"), ("1", "0"), ("", ""), ("1", ""), ("1e3", "1")]
    rationals += [("5e-324", "1"), ("1", "1" + "0" * 60), ("9" * 61, "1"), ("9" * 60, "1")]
    rationals += [("1.5", "1"), ("٣", "1"), ("2", "1"), ("1", "9" * 19), ("NaN", "1"), ("+1", "1")]

    def make(rng):
        message = pb.StudyTerms()
        message.CopyFrom(good)
        message.study_id = f"new-{rng.randrange(10**9)}"
        kind = rng.randrange(9)
        if kind == 0:
            numerator, denominator = rng.choice(rationals)
            message.epsilon.numerator, message.epsilon.denominator = numerator, denominator
        elif kind == 1:
            message.theta_max = rng.choice(numbers)
        elif kind == 2:
            message.clip = rng.choice(numbers[:-1])
        elif kind == 3:
            message.responses = rng.choice([0, 11, 2**31, 2**64 - 1])
        elif kind == 4:
            message.horizon = rng.choice([0, 9, 10**9 + 1, 2**64 - 1])
        elif kind == 5:
            message.loss = rng.choice(["", "Squared", "hinge", "huber", "x" * 10_000, "\0"])
            message.delta = rng.choice(numbers[:-1])
        elif kind == 6:
            message.study_id = rng.choice(["", " ", "a b", "x" * 129, "ö", "a\nb", "../x"])
        elif kind == 7:
            message.study_id, message.kappa = "open", rng.choice([0, 2, 2**32 - 1])
        else:
            message.feature_map = rng.choice(maps)
        return "Enroll", message.SerializeToString(), ""

    return make


def wrong_maps(feature_map):
    """Texts that are no feature map, or none of this owner's."""
    text = feature_map.to_json()
    yield from ("", "null", "[]", "{}", "NaN", "[" * 50_000, '{"a":' * 5_000, text[:-3], "\0")
    yield from ("1" * 5_000, text.replace(":", ";"), "x" * 100_000)

    def changed(**changes):
        return json.dumps(json.loads(text) | changes)

    yield changed(bounds=[])
    yield changed(bounds=[math.nan] * 3)
    yield changed(bounds=[math.inf] * 3)
    yield changed(bounds=[-1.0] * 3)
    yield changed(bounds=[1e300] * 3)
    yield changed(bounds=[0.0] * 3, intercept=False)
    yield changed(bounds=[1.0] * 100_000)
    yield changed(bounds=[1.0] * 2_000, rotation=[[0.0] * 3] * 2_000)
    yield changed(l1_radius=-1.0)
    yield changed(l1_radius=0.5)
    yield changed(version=2)
    yield changed(source_kind="private")
    yield changed(extra=1)
    columns = json.loads(text)["columns"]
    yield changed(columns=columns[:1] * 3)
    yield changed(columns=[{**columns[0], "name": "x" * 100_000}, *columns[1:]])
    yield changed(columns=[{**columns[0], "low": 1.0, "high": -1.0}, *columns[1:]])
    yield changed(columns=[{**columns[0], "scale": 5e-324}, *columns[1:]])
    yield changed(columns=[{**columns[0], "fill": "NaN"}, *columns[1:]])
    yield changed(columns=[{**columns[0], "kind": "secret"}, *columns[1:]])


def damaged(owner):
    """Messages damaged at random, to an owner that has nothing left to give."""
    terms = codec.terms_to_pb(owner.terms)
    terms.study_id = "other"
    bases = [("Enroll", terms.SerializeToString())]
    bases += [("AnswerOnce", query(sequence, np.full(4, 0.3))) for sequence in (1, 2, 3, 4, 5)]

    def at_random(rng):
        """A message of the right form and arbitrary content."""
        if rng.random() < 0.5:
            size = rng.choice([0, 1, 3, 4, 4, 4, 5, 100])
            theta = np.frombuffer(rng.randbytes(8 * size), dtype="<f8")
            sequence = rng.choice([0, 1, 2, 4, 5, rng.getrandbits(64)])
            return "AnswerOnce", query(sequence, theta), ""
        message = pb.StudyTerms()
        message.CopyFrom(terms)
        message.theta_max, message.clip = np.frombuffer(rng.randbytes(16), dtype="<f8")
        message.responses = message.horizon = rng.getrandbits(rng.randrange(1, 64))
        message.epsilon.numerator = str(rng.getrandbits(rng.randrange(1, 250)))
        message.epsilon.denominator = str(rng.getrandbits(rng.randrange(1, 250)))
        message.kappa = rng.getrandbits(32)
        return "Enroll", message.SerializeToString(), ""

    def make(rng):
        if rng.random() < 0.5:
            return at_random(rng)
        method, message = rng.choice(bases)
        content = bytearray(message)
        for _ in range(rng.randrange(1, 6)):
            place = rng.randrange(len(content))
            match rng.randrange(4):
                case 0:
                    content[place] ^= 1 << rng.randrange(8)
                case 1:
                    del content[place : place + rng.randrange(1, 9)]
                case 2:
                    content[place:place] = rng.randbytes(rng.randrange(1, 9))
                case _:
                    content[place : place + 8] = struct.pack("<d", rng.choice([math.nan, 1e300]))
            content = content or bytearray(b"\0")
        return method, bytes(content), ""

    return make


def barrage(owner, makes, *, messages, rng):
    """Send messages, many at a time; each must be refused in public words."""
    statuses = Counter()
    waiting = deque()
    calls = {
        name: owner.channel.unary_unary(f"{SERVICE}/{name}") for name in ("Enroll", "AnswerOnce")
    }

    def settle():
        call, words = waiting.popleft()
        status, sentence = call.code(), call.details()
        assert status in REFUSALS, (status, sentence)
        assert words in sentence, (words, sentence)
        assert len(sentence) <= LONGEST_SENTENCE, len(sentence)
        assert sentence.isprintable(), sentence
        assert not any(word in sentence for word in SECRETS), sentence
        statuses[status.name] += 1

    for _ in range(messages):
        method, content, words = rng.choice(makes)(rng)
        waiting.append((calls[method].future(content, timeout=60), words))
        if len(waiting) > WINDOW:
            settle()
    while waiting:
        settle()
    return statuses


def streams(owner, *, count, rng):
    """Streams that begin well with a replay and end with a wrong query: only that is refused."""
    stream = owner.channel.stream_stream(f"{SERVICE}/Answer")
    for _ in range(count):
        answers = stream(iter([query(3, np.full(4, 0.3)), wrong_query(rng)[1]]), timeout=30)
        got = []
        try:
            got += list(answers)
        except grpc.RpcError as error:
            assert error.code() in REFUSALS  # noqa: PT017
        assert got in ([owner.last], [])
    return 2 * count


def fuzz(folder, *, messages, seed):
    """Send this many malformed messages, and tell what came of them."""
    rng = random.Random(seed)
    began = time.monotonic()
    told = {"statuses": Counter(), "messages": 0}
    for spent in (False, True):
        owner = FuzzedOwner(folder / f"spent-{spent}", spent=spent)
        makes = [damaged(owner)] if spent else [wrong_query, wrong_terms(owner)]
        # What the first messages need (buffers, threads, caches) is not growth.
        warm_up = messages // 10
        told["statuses"] += barrage(owner, makes, messages=warm_up, rng=rng)
        memory = owner.resident_bytes
        rest = messages // 2 - warm_up
        told["statuses"] += barrage(owner, makes, messages=rest, rng=rng)
        told["messages"] += messages // 2
        if not spent:
            told["messages"] += streams(owner, count=messages // 100, rng=rng)
        told[f"megabytes_grown_{'spent' if spent else 'open'}"] = round(
            (owner.resident_bytes - memory) / 2**20, 1
        )
        owner.check_untouched()
        owner.end()
    told["statuses"] = dict(told["statuses"])
    told["seconds"] = round(time.monotonic() - began, 1)
    return told


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as made:
        result = fuzz(Path(made), messages=options.messages, seed=options.seed)
    print(json.dumps(result, indent=2))
