"""Owners that lie, flood, fall silent and send nonsense, each against a real training.

Every mode is a gRPC server of its own that sends its own bytes. Beside an honest owner a run must
end in one sentence that names the liar, or finish without it; alone it must end in one sentence.

Usage: python tests/tools/attack_learner.py [--only WORDS]
"""

import argparse
import json
import logging
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pandas as pd
from google.protobuf.message import Message
from maps import map_of

from common import codec
from common.config import check_settings
from common.errors import CoprivError
from common.pb import copriv_pb2 as pb
from learner.network.grpc_owner import GrpcOwner
from learner.planning.public_side import PublicSide
from learner.planning.settings import StudySettings
from learner.training.journal import Journal
from learner.training.line_state import LineState
from learner.training.memory_owner import MemoryOwner
from learner.training.study import Watch, train

HORIZON, THETA_MAX = 12, 2.0
DEADLINE, PATIENCE = 2.0, 4.0
# Where nobody is honest, nobody is worth waiting for.
PATIENCE_ALONE = 1.0
HONEST_ANSWERS = 2
LONGEST_SENTENCE = 700
ESCAPES = "\x1b[2J\x1b[31m\u202eroot\r\n\x07" + "x" * 3000
METHODS = {"Describe": pb.DescribeRequest, "Enroll": pb.StudyTerms, "Answer": pb.Query}
METHODS |= {"Offer": pb.OfferRequest, "Close": pb.CloseRequest}

Reply = Any
# What a mode makes of the honest message: a message, bytes, several of them, or it raises.
Lie = Callable[[Any, grpc.ServicerContext], Reply]


@dataclass
class Mode:
    """One way to misbehave: in which method, how, and what must come of it beside an honest owner.

    ``ends``: "error" (the run ends in a sentence), "left" or "away" (it finishes without the
    liar), "fine" (nothing that anybody has to mind), or several of these.
    """

    name: str
    method: str
    lie: Lie
    ends: str
    initiative: str = "learner"
    # Honest until this many answers were given.
    honest_answers: int = HONEST_ANSWERS
    # What it sends takes a thousandth of its size on the line.
    compressed: bool = False


# Tells no lie.
HONEST = Mode("honest", "", lambda message, context: message, "fine")


@dataclass
class Outcome:
    """What became of one run."""

    mode: Mode
    alone: bool
    ended: str
    status: int
    sentence: str
    seconds: float
    faults: list[str] = field(default_factory=list)


class Liar(grpc.GenericRpcHandler):
    """A server that is an honest owner in memory, but for one lie."""

    def __init__(self, mode, honest):
        self.mode, self.honest = mode, honest
        self.lock = threading.Lock()
        self.answered = 0
        self.over = threading.Event()

    def service(self, details):
        method = details.method.rsplit("/", 1)[1]
        if method == "Answer":
            return grpc.stream_stream_rpc_method_handler(self.stream)
        # On the wire a single call; but one that may end without a message.
        return grpc.stream_stream_rpc_method_handler(
            lambda requests, context: self.unary(method, next(requests), context)
        )

    def unary(self, method, request, context):
        message = METHODS[method].FromString(request)
        with self.lock:
            honest = getattr(self, method.lower())(message)
        yield from encoded(self.mode.lie(honest, context) if self.lies(method) else honest)

    def lies(self, method):
        if self.mode.method == "Enroll again":
            return method == "Enroll" and self.answered >= self.mode.honest_answers
        return method == self.mode.method

    def stream(self, requests, context):
        if self.mode.name == "answers before it is asked":
            yield pb.Response(study_id="early", sequence=1).SerializeToString()
        for request in requests:
            query = pb.Query.FromString(request)
            if self.answered >= self.mode.honest_answers:
                if self.mode.method == "Answer":
                    yield from encoded(self.mode.lie(self.answer(query), context))
                    continue
                if self.mode.method == "Enroll again":
                    context.abort(grpc.StatusCode.UNAVAILABLE, "away")
            yield self.answer(query).SerializeToString()
            self.answered += 1

    def describe(self, request):
        return codec.description_to_pb(self.honest.describe())

    def enroll(self, request):
        return codec.enrollment_to_pb(self.honest.enroll(codec.terms_from_pb(request)))

    def answer(self, request):
        with self.lock:
            return codec.response_to_pb(self.honest.answer(codec.query_from_pb(request)))

    def offer(self, request):
        return pb.OfferReply(accepted=True)

    def close(self, request):
        return pb.CloseSummary()


def encoded(reply):
    """The bytes of whatever a lie returned."""
    for one in reply if isinstance(reply, (list, Iterator)) else [reply]:
        yield one.SerializeToString() if isinstance(one, Message) else one


# --- the lies ----------------------------------------------------------------------------------


def says(**changes):
    """The honest message with other fields."""

    def lie(message, context):
        for name, value in changes.items():
            known = getattr(message, name)
            if isinstance(value, Message):
                known.CopyFrom(value)
            elif isinstance(value, list):
                del known[:]
                known.extend(value)
            else:
                setattr(message, name, value)
        return message

    return lie


def aborts(code, details="no", retry_after=None):
    """No reply, but a status."""

    def lie(message, context):
        if retry_after is not None:
            context.set_trailing_metadata((("retry-after-ms", retry_after),))
        context.abort(code, details)

    return lie


def replies(*content):
    """These bytes."""
    return lambda message, context: list(content)


def silent(message, context):
    """No reply at all while anybody waits."""
    gone = threading.Event()
    context.add_callback(gone.set)
    gone.wait(10)
    return []


def late(message, context):
    time.sleep(1.5 * DEADLINE)
    return message


def fails(message, context):
    raise RuntimeError(ESCAPES)


def gradient(values):
    """An answer of these coordinates."""
    return says(gradient=codec.vector_to_pb(np.asarray(values, dtype=np.float64)))


def flood(message, context):
    """The answer, and many more."""
    content = message.SerializeToString()
    for _ in range(200_000):
        if not context.is_active():
            return
        yield content


def too_much(message, context):
    return bytes(100_663_297)


def bomb(message, context):
    return bytes(110_000_000)


def long_trailers(message, context):
    """The honest message, and more behind it than is read."""
    context.set_trailing_metadata(tuple((f"k{k}", "v" * 1000) for k in range(100)))
    return message


def rational(above, below="1"):
    return pb.Rational(numerator=above, denominator=below)


UNAVAILABLE, DENIED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.PERMISSION_DENIED


def modes():
    """All of them."""
    describe = {
        "no records": says(num_records=0),
        "2^64 - 1 records": says(num_records=2**64 - 1),
        "another name": says(name="south"),
        "no name": says(name=""),
        "a name that moves the cursor": says(name=ESCAPES),
        "a name of 5 MB": says(name="n" * 5_000_000),
        "200,000 columns": says(columns=["c"] * 200_000),
        "millions of columns without a name": replies(b"\x1a\x00" * 10_000_000),
        "a column of 1 MB": says(columns=["c" * 1_000_000]),
        "200,000 losses": says(losses=["l"] * 200_000),
        "a digest that is none": says(feature_map_digest=ESCAPES),
        "a digest of 1 MB": says(feature_map_digest="a" * 1_000_000),
        "a budget of 1/0": says(epsilon_left=rational("1", "0")),
        "a negative budget": says(epsilon_per_study=rational("-1")),
        "bytes that are no message": replies(b"\xff\xff\xff\x01no"),
        "an empty message": replies(b""),
        "an end without a message": replies(),
        "two messages": lambda m, c: [m, m],
        "100 MB": too_much,
        "silence": silent,
        "100 kB of trailers": long_trailers,
        "retry-after of 400 nines": aborts(UNAVAILABLE, retry_after="9" * 400),
        "a refusal that moves the cursor": aborts(DENIED, ESCAPES),
    }
    enroll = {
        "no records": says(num_records=0),
        "other records than described": says(num_records=99),
        "other records and their noise": lambda m, c: says(
            num_records=99, noise_scale=m.noise_scale * 100 / 99
        )(m, c),
        "2^64 - 1 records": says(num_records=2**64 - 1),
        "twice the responses": says(responses=2 * HORIZON),
        "no responses": says(responses=0),
        "another epsilon": says(epsilon=rational("2")),
        "no epsilon": says(epsilon=rational("0")),
        "an epsilon of 60 digits": says(epsilon=rational("9" * 60, "7" * 60)),
        "an epsilon of 100,000 digits": says(epsilon=rational("9" * 100_000)),
        "an epsilon in other digits": says(epsilon=rational("٣")),
        "an epsilon of letters": says(epsilon=rational(ESCAPES)),
        "noise of 1e-300": says(noise_scale=1e-300),
        "half the noise": lambda m, c: says(noise_scale=m.noise_scale / 2)(m, c),
        "noise that is no number": says(noise_scale=float("nan")),
        "endless noise": says(noise_scale=float("inf")),
        "negative noise": says(noise_scale=-1.0),
        "answers that nobody has": says(answered=7),
        "2^64 - 1 answers": says(answered=2**64 - 1),
        "bytes that are no message": replies(b"\xff\xff\xff\x01no"),
        "an empty message": replies(b""),
        "an end without a message": replies(),
        "silence": silent,
        "a busy owner for ever": aborts(UNAVAILABLE, "busy", retry_after="1"),
        "a failure": fails,
    }
    away = {
        "retry-after of 400 nines": aborts(UNAVAILABLE, retry_after="9" * 400),
        "retry-after of 16 digits": aborts(UNAVAILABLE, retry_after="9" * 16),
        "retry-after below 0": aborts(UNAVAILABLE, retry_after="-5"),
        "retry-after of nothing": aborts(UNAVAILABLE, retry_after=""),
        "retry-after of 0": aborts(UNAVAILABLE, retry_after="0"),
        "retry-after of 1 for ever": aborts(UNAVAILABLE, retry_after="1"),
        "retry-after in words": aborts(UNAVAILABLE, retry_after="inf"),
        "an unknown failure": aborts(grpc.StatusCode.DATA_LOSS, ESCAPES),
        "an exception": fails,
        "a status without words": aborts(grpc.StatusCode.UNKNOWN, ""),
        "the stream's end": replies(),
        "silence": silent,
        "an answer that is late": late,
    }
    left = {
        "a budget that is spent": aborts(grpc.StatusCode.RESOURCE_EXHAUSTED, ESCAPES),
        "a refusal that moves the cursor": aborts(DENIED, ESCAPES),
        "a refusal of the token": aborts(grpc.StatusCode.UNAUTHENTICATED, "who?"),
        "a complaint": aborts(grpc.StatusCode.INVALID_ARGUMENT, "malformed"),
        "another study": says(study_id=ESCAPES),
        "a study's name of 5 MB": says(study_id="s" * 5_000_000),
        "the number before": says(sequence=HONEST_ANSWERS),
        "number 0": says(sequence=0),
        "number 2^64 - 1": says(sequence=2**64 - 1),
        "one coordinate more": gradient(np.zeros(5)),
        "one coordinate less": gradient(np.zeros(3)),
        "no coordinates": gradient([]),
        "two million coordinates": gradient(np.zeros(2_000_000)),
        "no number": gradient([0, np.nan, 0, 0]),
        "an infinity": gradient([0, 0, -np.inf, 0]),
        "a coordinate of 1e300": gradient([1e300, 0, 0, 0]),
        "a coordinate beyond any noise": gradient([0, 0, 0, 1e9]),
        "a wrong length": says(gradient=pb.Vector(length=5, data=bytes(32))),
        "2^32 - 1 coordinates in no bytes": says(gradient=pb.Vector(length=2**32 - 1)),
        "bytes that are no doubles": says(gradient=pb.Vector(length=4, data=bytes(31))),
        "bytes that are no message": replies(b"\xff\xff\xff\x01no"),
        "an empty message": replies(b""),
    }
    again = {
        "other records": says(num_records=99),
        "another noise": says(noise_scale=1.0),
        "another epsilon": says(epsilon=rational("2")),
        "answers that nobody has": says(answered=9),
        "answers that are forgotten": says(answered=0),
        "secure noise all at once": says(insecure_noise=False),
        "bytes that are no message": replies(b"\xff\xff\xff\x01no"),
        "a refusal": aborts(DENIED, ESCAPES),
    }
    offer = {
        "bytes that are no message": ("left", replies(b"\xff\xff\xff\x01no")),
        "an end without a message": ("left", replies()),
        "a refusal that moves the cursor": ("left", aborts(DENIED, ESCAPES)),
        "retry-after of 400 nines": ("away", aborts(UNAVAILABLE, retry_after="9" * 400)),
        "a failure": ("away", fails),
        "silence": ("away", silent),
    }
    close = {
        "bytes that are no message": replies(b"\xff\xff\xff\x01no"),
        "an end without a message": replies(),
        "a refusal": aborts(DENIED, ESCAPES),
        "retry-after of 400 nines": aborts(UNAVAILABLE, retry_after="9" * 400),
        "silence": silent,
    }
    return [
        *(Mode(f"describes: {n}", "Describe", lie, "error") for n, lie in describe.items()),
        *(Mode(f"enrols: {n}", "Enroll", lie, "error") for n, lie in enroll.items()),
        *(Mode(f"answers: {n}", "Answer", lie, "away") for n, lie in away.items()),
        *(Mode(f"answers: {n}", "Answer", lie, "left") for n, lie in left.items()),
        # On a slow machine the deadline comes before the size is known.
        Mode("answers: 100 MB", "Answer", too_much, "left or away"),
        *(
            Mode(f"{does}: 110 MB in 110 kB", method, bomb, ends, compressed=True)
            for does, method, ends in (
                ("describes", "Describe", "error"),
                ("enrols", "Enroll", "error"),
                ("answers", "Answer", "left or away"),
            )
        ),
        Mode("answers twice", "Answer", lambda m, c: [m, m], "left", honest_answers=0),
        Mode("answers without end", "Answer", flood, "left", honest_answers=0),
        Mode("answers before it is asked", "Answer", silent, "left", honest_answers=0),
        *(
            Mode(f"comes back: {n}", "Enroll again", lie, "left or away")
            for n, lie in again.items()
        ),
        *(
            Mode(f"is offered: {n}", "Offer", lie, ends, initiative="broadcast")
            for n, (ends, lie) in offer.items()
        ),
        Mode(
            "accepts offers, answers nothing",
            "Answer",
            silent,
            "away or fine",
            initiative="broadcast",
        ),
        *(Mode(f"is closed: {n}", "Close", lie, "fine") for n, lie in close.items()),
    ]


# --- one run -----------------------------------------------------------------------------------


class World:
    """The public side, and honest records."""

    def __init__(self):
        rng = np.random.default_rng(1)
        self.tables = [
            pd.DataFrame(rng.normal(size=(n, 4)), columns=["a", "b", "c", "y"])
            for n in (300, 100, 120)
        ]
        self.feature_map = map_of(self.tables[0])
        self.shards = [self.feature_map.apply(table, where="attack") for table in self.tables[1:]]

    def study(self, initiative, *, alone):
        patience = PATIENCE_ALONE if alone else PATIENCE
        table = {
            "name": "attacked",
            "seed": 7,
            "profile": "published",
            "features": {"map": "features.json"},
            "model": {"theta_max": THETA_MAX},
            "algorithm": {"horizon": HORIZON, "rho": 1e-3, "initiative": initiative},
            "privacy": {"epsilon": 1},
            "network": {"deadline": DEADLINE, "patience": patience, "retries": 0},
            "owners": [{"name": "liar"}] if alone else [{"name": "liar"}, {"name": "honest"}],
        }
        return check_settings(StudySettings, table, where="attack")


def attack(world, mode, *, alone, folder):
    """One training with a liar, and what became of it."""
    with ExitStack() as stack:
        owners = [served(stack, mode, MemoryOwner("liar", world.shards[0], seed=1))]
        if not alone:
            # Behind a port, too: it is asked ahead while the liar is waited for.
            owners.append(served(stack, HONEST, MemoryOwner("honest", world.shards[1], seed=2)))
        return trained_with(owners, world, mode, alone=alone, folder=folder)


def served(stack, mode, owner):
    """An owner behind a port, who lies in one way."""
    server = grpc.server(
        ThreadPoolExecutor(max_workers=8),
        options=[("grpc.max_send_message_length", -1)],
        compression=grpc.Compression.Gzip if mode.compressed else None,
    )
    server.add_generic_rpc_handlers((Liar(mode, owner),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    stack.callback(server.stop, None)
    return GrpcOwner(owner.name, f"127.0.0.1:{port}", deadline=DEADLINE)


def trained_with(owners, world, mode, *, alone, folder):
    """One training, and what became of it."""
    journal = Journal(folder / "journal.sqlite")
    watched = []
    began = time.monotonic()
    outcome = Outcome(mode, alone, "fine", 0, "", 0.0)
    try:
        trained = train(
            world.study(mode.initiative, alone=alone),
            PublicSide(feature_map=world.feature_map, records=None),
            owners,
            journal=journal,
            watch=Watch(started=lambda _, lines: watched.extend(lines)),
        )
    except CoprivError as error:
        outcome.ended, outcome.status, outcome.sentence = "error", error.exit_status, str(error)
    except BaseException as error:
        outcome.faults.append(f"not an error of ours: {error!r:.300}")
    else:
        state = watched[0].state
        outcome.sentence = watched[0].left or watched[0].status
        if state is LineState.LEFT:
            outcome.ended = "left"
        elif state.is_absent or trained.responses[0] == 0:
            outcome.ended = "away"
        check_model(outcome, trained.theta, trained.responses)
    finally:
        outcome.seconds = time.monotonic() - began
        journal.close()
    check_outcome(outcome)
    return outcome


def check_model(outcome, theta, responses):
    """The model is one, and nothing of what the liar said after its honest answers is in it."""
    if not (np.all(np.isfinite(theta)) and np.max(np.abs(theta)) <= THETA_MAX):
        outcome.faults.append(f"a wrong model: {theta}")
    honest = outcome.mode.honest_answers
    if outcome.mode.name in ("answers twice", "answers without end"):
        honest = 1
    if outcome.mode.ends != "fine" and responses[0] > honest:
        outcome.faults.append(f"{responses[0]} answers of the liar were taken")


def check_outcome(outcome):
    """It ended as it had to, soon, and in one sentence that names the liar."""
    mode, sentence = outcome.mode, outcome.sentence
    expected = set(mode.ends.split(" or "))
    if outcome.alone and mode.ends != "fine":
        expected = {"error"}
    if outcome.ended not in expected:
        outcome.faults.append(f"ended {outcome.ended}, expected {mode.ends}")
    if outcome.ended == "error" and outcome.status not in (2, 3, 4):
        outcome.faults.append(f"exit status {outcome.status}")
    speaks = outcome.ended in ("error", "left")
    nameless = mode.initiative == "broadcast" and outcome.status == 4
    if speaks and not nameless and "liar" not in sentence and "no owner answered" not in sentence:
        outcome.faults.append("nobody is named")
    if not sentence.isprintable() or len(sentence) > LONGEST_SENTENCE:
        outcome.faults.append(f"a sentence of {len(sentence)} characters: {sentence!r:.200}")
    if speaks and sentence.rstrip().endswith(":"):
        outcome.faults.append(f"no reason: {sentence!r}")
    if outcome.seconds > 20 * (DEADLINE + PATIENCE):
        outcome.faults.append(f"{outcome.seconds:.1f} s")


class Listener(logging.Handler):
    """Log lines of ours that would disturb a terminal, and threads that end by an error."""

    def __init__(self):
        super().__init__()
        self.faults = []
        self.lines = 0
        ours = logging.getLogger("copriv")
        ours.handlers[:], ours.propagate = [self], False
        logging.getLogger("grpc").setLevel(logging.CRITICAL + 1)
        threading.excepthook = lambda crash: self.faults.append(
            f"a thread ended: {crash.exc_value!r:.300}"
        )

    def emit(self, record):
        line = record.getMessage()
        self.lines += 1
        if record.exc_info or not line.isprintable() or len(line) > LONGEST_SENTENCE:
            self.faults.append(f"log line: {line!r:.200} {record.exc_info}")


def run_all(only):
    """Every mode beside an honest owner, and alone."""
    listener, world = Listener(), World()
    chosen = [(mode, alone) for mode in modes() if only in mode.name for alone in (False, True)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(max_workers=24) as pool:

        def one(item):
            index, (mode, alone) = item
            own = Path(folder) / str(index)
            own.mkdir()
            return attack(world, mode, alone=alone, folder=own)

        outcomes = list(pool.map(one, enumerate(chosen)))
    return outcomes, listener


def typed(description):
    """The options of an attack."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--only", default="", help="modes whose names have these words")
    parser.add_argument("--table", action="store_true", help="one line for each run")
    return parser.parse_args()


def tell(counts, outcomes, faults):
    """Print what became of an attack, and end with 1 where anything was wrong."""
    slowest = round(max(one.seconds for one in outcomes), 1)
    print(json.dumps(counts | {"slowest_seconds": slowest, "faults": faults}, indent=1))
    sys.exit(1 if faults else 0)


def main():
    options = typed(__doc__)
    outcomes, listener = run_all(options.only)
    if options.table:
        for one in outcomes:
            where = "alone" if one.alone else "beside"
            told = f"{one.mode.name:50} {where:6} {one.ended:5} {one.status} {one.seconds:4.1f} s"
            print(f"{told}  {one.sentence[:150]}")
    faults = [
        f"{one.mode.name} ({'alone' if one.alone else 'beside an honest owner'}): {fault}"
        for one in outcomes
        for fault in one.faults
    ]
    counts = {
        "modes": len({one.mode.name for one in outcomes}),
        "runs": len(outcomes),
        "ended": {
            kind: sum(one.ended == kind for one in outcomes)
            for kind in ("error", "left", "away", "fine")
        },
        "log_lines": listener.lines,
    }
    tell(counts, outcomes, faults + listener.faults)


if __name__ == "__main__":
    main()
