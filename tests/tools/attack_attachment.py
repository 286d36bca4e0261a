"""Both ends of a stream that an owner opens: owners that attach and lie, learners that lie to them.

Owners: a real training listens, a lying owner attaches beside an honest one, or alone.
Learners: a real owner attaches to a learner that sends its own bytes.

Usage: python tests/tools/attack_attachment.py [--only WORDS] [--table]
"""

import queue
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import grpc
import numpy as np
import tomli_w
from attack_learner import (
    DEADLINE,
    ESCAPES,
    HORIZON,
    LONGEST_SENTENCE,
    PATIENCE,
    PATIENCE_ALONE,
    THETA_MAX,
    Listener,
    World,
    tell,
    typed,
)
from google.protobuf.message import Message

from common import codec
from common.errors import CoprivError
from common.pb import copriv_pb2 as pb
from common.terms import Query, StudyTerms
from learner.network.attachment_server import AttachmentServer
from learner.planning.public_side import PublicSide
from learner.training.journal import Journal
from learner.training.memory_owner import MemoryOwner
from learner.training.study import train
from owner.attaching import open_attachment
from owner.ledger_reading import read_studies

LOOK_SECONDS, LONGEST_SECONDS = 1.0, 30.0
ATTACH = "/copriv.v1.Learner/Attach"
NO_MESSAGE = b"\xff\xff\xff\x01no"


@dataclass
class Outcome:
    """What became of one attack."""

    name: str
    ended: str
    expected: str
    sentence: str = ""
    status: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    def check(self):
        if self.ended not in self.expected.split(" or "):
            self.faults.append(f"ended {self.ended}, expected {self.expected}")
        if self.ended == "error" and self.status not in (2, 3, 4):
            self.faults.append(f"exit status {self.status}")
        if not self.sentence.isprintable() or len(self.sentence) > LONGEST_SENTENCE:
            self.faults.append(f"a sentence that is none: {self.sentence!r:.200}")
        if self.ended == "error" and self.sentence.rstrip().endswith(":"):
            self.faults.append(f"no reason: {self.sentence!r}")
        if self.seconds > LONGEST_SECONDS:
            self.faults.append(f"{self.seconds:.1f} s")
        return self


# --- owners that lie ---------------------------------------------------------------------------

# Each takes what a message of the learner asks for and the honest messages: what is sent instead.


def honest(kind, messages):
    return messages


def at(kind, *content):
    """Other content in place of the honest messages of this kind."""
    return lambda now, messages: list(content) if now == kind else messages


def changed(kind, change):
    """The first honest message of this kind is changed in place."""

    def lie(now, messages):
        if now == kind:
            change(messages[0])
        return messages

    return lie


def asks_at(when):
    """Requests of updates at such a time."""

    def lie(now, messages):
        for message in messages:
            if message.HasField("request"):
                message.request.time = when
        return messages

    return lie


def refuses(**content):
    """Queries are refused like this."""

    def change(message):
        message.refusal.CopyFrom(pb.Refusal(**content))

    return changed("query", change)


def another_kind(message):
    message.description.CopyFrom(pb.OwnerDescription(name="liar"))


def setting(field_name, **values):
    def change(message):
        for key, value in values.items():
            setattr(getattr(message, field_name), key, value)

    return change


def gone(kind):
    return at(kind)


REQUEST = pb.OwnerMessage(request=pb.UpdateRequest(time=1.0))
STRAY = pb.OwnerMessage(call=10**6, closed=pb.CloseSummary())


def lying_owners():
    """Name to (how a run beside an honest owner may end, the lie)."""
    return {
        "asks at a time that is no number": ("fine", asks_at(float("nan"))),
        "asks at the end of time": ("fine", asks_at(float("inf"))),
        "asks before time began": ("fine", asks_at(-1.0)),
        "asks at 1e300": ("fine", asks_at(1e300)),
        "asks again and again for time 0": ("fine", asks_at(0.0)),
        "asks 100,000 times": ("fine", at("start", *[REQUEST] * 100_000)),
        "never asks": ("fine", at("start")),
        "replies to calls of nobody": ("fine", at("start", *[STRAY] * 100_000)),
        "says hello again and again": (
            "fine",
            at("start", *[pb.OwnerMessage(hello=pb.Hello(name="honest"))] * 1000),
        ),
        "sends bytes that are no message": ("fine", at("start", NO_MESSAGE)),
        "sends empty messages": ("fine", at("start", *[b""] * 1000)),
        "replies under another number": ("fine", changed("query", lambda m: setattr(m, "call", 9))),
        "replies by another message": ("fine", changed("query", another_kind)),
        "replies by bytes that are none": ("fine", at("query", NO_MESSAGE)),
        "never replies": ("fine", gone("query")),
        "replies twice": ("fine", lambda now, m: [*m, *m] if now == "query" else m),
        "answers for another study": ("fine", changed("query", setting("response", study_id="x"))),
        "answers another number": (
            "fine",
            changed("query", setting("response", sequence=2**64 - 1)),
        ),
        "refuses in words that move the cursor": ("fine", refuses(status=7, sentence=ESCAPES)),
        "refuses with a status of nobody": ("fine", refuses(status=2**32 - 1, sentence="no")),
        "refuses with status 0": ("fine", refuses(status=0, sentence="")),
        "asks for patience for ever": (
            "fine",
            refuses(status=14, sentence="busy", retry_after_ms=2**64 - 1),
        ),
        "asks for patience again and again": (
            "fine",
            refuses(status=14, sentence="busy", retry_after_ms=1),
        ),
        "describes itself with no records": (
            "error",
            changed("describe", setting("description", num_records=0)),
        ),
        "describes itself as another": (
            "error",
            changed("describe", setting("description", name=ESCAPES)),
        ),
        "describes itself with millions of columns without a name": (
            "error",
            at("describe", b"\x08\x01\x22\x80\xda\xc4\x09" + b"\x1a\x00" * 10_000_000),
        ),
        "never describes itself": ("error", gone("describe")),
        "enrols with noise of 1e-300": (
            "error",
            changed("enroll", setting("enrollment", noise_scale=1e-300)),
        ),
        "enrols for twice the responses": (
            "error",
            changed("enroll", setting("enrollment", responses=2 * HORIZON)),
        ),
        "never enrols": ("error", gone("enroll")),
        "never closes": ("fine", gone("close")),
        "closes with another message": ("fine", changed("close", another_kind)),
    }


class AttachedOwner(threading.Thread):
    """An owner in memory on a stream that it opens again and again, with one lie."""

    def __init__(self, name, world, index, port, lie):
        super().__init__(daemon=True)
        self.owner = MemoryOwner(name, world.shards[index], seed=index)
        self.owner_name, self.port, self.lie = name, port, lie
        self.rng = np.random.default_rng(index)
        self.time = 0.0
        self.over = threading.Event()

    def run(self):
        while not self.over.wait(0.02):
            with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
                outgoing = queue.SimpleQueue()
                hello = pb.OwnerMessage(hello=pb.Hello(name=self.owner_name))
                outgoing.put(hello.SerializeToString())
                call = channel.stream_stream(ATTACH)(iter(outgoing.get, None))
                try:
                    for content in call:
                        self.heard(pb.LearnerMessage.FromString(content), outgoing)
                except grpc.RpcError as error:
                    if error.code() is grpc.StatusCode.PERMISSION_DENIED:
                        return
                finally:
                    outgoing.put(None)

    def heard(self, message, outgoing):
        kind = message.WhichOneof("content") or ""
        if kind == "goodbye":
            self.over.set()
            return
        if kind == "start":
            self.time = message.start.time
        replies = [] if kind == "start" else [self.reply(kind, message)]
        if kind in ("start", "query"):
            self.time += float(self.rng.exponential())
            replies.append(pb.OwnerMessage(request=pb.UpdateRequest(time=self.time)))
        for reply in self.lie(kind, replies):
            outgoing.put(reply.SerializeToString() if isinstance(reply, Message) else reply)

    def reply(self, kind, message):
        told = pb.OwnerMessage(call=message.call)
        try:
            if kind == "describe":
                told.description.CopyFrom(codec.description_to_pb(self.owner.describe()))
            elif kind == "enroll":
                terms = codec.terms_from_pb(message.enroll)
                told.enrollment.CopyFrom(codec.enrollment_to_pb(self.owner.enroll(terms)))
            elif kind == "query":
                query = codec.query_from_pb(message.query)
                told.response.CopyFrom(codec.response_to_pb(self.owner.answer(query)))
            else:
                told.closed.CopyFrom(pb.CloseSummary())
        except CoprivError as error:
            told.refusal.CopyFrom(pb.Refusal(status=9, sentence=str(error)))
        return told


def attack_learner(world, name, *, alone, folder):
    """A training that listens, and a lying owner that comes."""
    expected, lie = lying_owners()[name]
    where = "alone" if alone else "beside an honest owner"
    # Whoever says nothing wrong, or only asks too eagerly, may take part.
    told = Outcome(f"owner {name}, {where}", "fine", "error or fine" if alone else expected)
    names = ["liar"] if alone else ["liar", "honest"]
    began = time.monotonic()
    public = PublicSide(feature_map=world.feature_map, records=None)
    journal = Journal(folder / "journal.sqlite")
    patience = PATIENCE_ALONE if alone else PATIENCE
    with AttachmentServer(names, "127.0.0.1:0", deadline=DEADLINE, patience=patience) as learner:
        owners = [
            AttachedOwner(one, world, index, learner.port, lie if one == "liar" else honest)
            for index, one in enumerate(names)
        ]
        for owner in owners:
            owner.start()
        try:
            trained = train(
                world.study("owner", alone=alone),
                public,
                learner.owners,
                journal=journal,
                requests=learner,
            )
        except CoprivError as error:
            told.ended, told.status, told.sentence = "error", error.exit_status, str(error)
        except BaseException as error:
            told.faults.append(f"not an error of ours: {error!r:.300}")
        else:
            if not (np.all(np.isfinite(trained.theta)) and trained.ticks == HORIZON):
                told.faults.append(f"a wrong model after {trained.ticks}: {trained.theta}")
        finally:
            for owner in owners:
                owner.over.set()
            journal.close()
    told.seconds = time.monotonic() - began
    return told.check()


# --- learners that lie -------------------------------------------------------------------------

# Each makes what a learner sends on one stream; that may read what the owner sends.


def sends(*messages, then="waits"):
    """These messages, each after a hello; then it waits, or ends the stream."""

    def script(requests, context):
        next(requests)
        yield from messages
        if then == "waits":
            waiting = threading.Event()
            context.add_callback(waiting.set)
            waiting.wait(20)

    return script


def aborts(code, details):
    def script(requests, context):
        context.abort(code, details)
        yield b""

    return script


def fails(requests, context):
    yield b""
    raise RuntimeError(ESCAPES)


def too_much(requests, context):
    yield bytes(100_663_297)


def with_token(token):
    def script(requests, context):
        context.send_initial_metadata((("authorization", token),))
        yield pb.LearnerMessage(call=1, describe=pb.DescribeRequest())
        next(requests), next(requests)

    return script


def start(when=0.0, scale=0.0):
    return pb.LearnerMessage(start=pb.ClockStart(time=when, time_scale=scale))


def terms_of(world, **changes):
    values = {
        "study_id": "attack",
        "loss": "squared",
        "theta_max": THETA_MAX,
        "feature_map": world.feature_map.to_json(),
        "horizon": 10,
        "responses": 10,
        "epsilon": Fraction(1),
    }
    return codec.terms_to_pb(StudyTerms(**(values | changes)))


def lying_learners(world):
    """Name to (how the owner may end, what the learner does)."""
    describe = pb.LearnerMessage(call=1, describe=pb.DescribeRequest())
    enroll = pb.LearnerMessage(call=1, enroll=terms_of(world))

    def asks(**changes):
        values = {"study_id": "attack", "sequence": 1, "theta": np.zeros(4)}
        query = codec.query_to_pb(Query(**(values | changes)))
        return pb.LearnerMessage(call=2, query=query)

    bad_epsilon = terms_of(world)
    bad_epsilon.epsilon.numerator = "9" * 100_000
    short = asks()
    short.query.theta.length = 2**32 - 1
    denied, down = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAVAILABLE
    ends, on = "error", "goes on"
    return {
        "a clock of endless steps": (ends, sends(start(scale=float("inf")))),
        "a clock of steps that are no number": (ends, sends(start(scale=float("nan")))),
        "a clock that runs backwards": (ends, sends(start(scale=-1.0))),
        "a clock that starts at no time": (ends, sends(start(when=float("nan")))),
        "a clock that starts after the end": (ends, sends(start(when=float("inf")))),
        "a clock that starts before time": (ends, sends(start(when=-1.0))),
        "a clock of steps of 1e308 seconds": (on, sends(start(scale=1e308))),
        "100,000 starts of the clock": (on, sends(*[start()] * 100_000)),
        "bytes that are no message": (on, sends(NO_MESSAGE)),
        "empty messages": (on, sends(*[b""] * 10_000)),
        "100 MB": (on, too_much),
        "a refusal that moves the cursor": (ends, aborts(denied, ESCAPES)),
        "a refusal without words": (ends, aborts(grpc.StatusCode.UNAUTHENTICATED, "")),
        "no such method": (ends, aborts(grpc.StatusCode.UNIMPLEMENTED, ESCAPES)),
        "no time": (on, aborts(down, ESCAPES)),
        "an exception": (on, fails),
        "streams that end at once": (on, sends(then="ends")),
        "silence": (on, sends()),
        "goodbye, and more questions": (
            "over",
            sends(pb.LearnerMessage(goodbye=pb.Goodbye()), *[describe] * 1000),
        ),
        "calls without a number": (on, sends(pb.LearnerMessage(describe=pb.DescribeRequest()))),
        "a call of nothing": (on, sends(pb.LearnerMessage(call=7))),
        "the same call twice": (on, sends(describe, describe)),
        "call 2^64 - 1": (
            on,
            sends(pb.LearnerMessage(call=2**64 - 1, describe=pb.DescribeRequest())),
        ),
        "100,000 calls, and reads nothing": (on, sends(*[describe] * 100_000)),
        "a token of 7 kB": (on, with_token("Bearer " + "t" * 7_000)),
        "a query of no study": (on, sends(asks())),
        "a close of no study": (on, sends(pb.LearnerMessage(call=1, close=pb.CloseRequest()))),
        "a study in an endless box": (
            on,
            sends(pb.LearnerMessage(call=1, enroll=terms_of(world, theta_max=float("inf")))),
        ),
        "an epsilon of 100,000 digits": (on, sends(pb.LearnerMessage(call=1, enroll=bad_epsilon))),
        "a feature map of 1 MB of nothing": (
            on,
            sends(pb.LearnerMessage(call=1, enroll=terms_of(world, feature_map="[" * 10**6))),
        ),
        "a model that is no number": (on, sends(enroll, asks(theta=np.full(4, np.nan)))),
        "a model outside the box": (on, sends(enroll, asks(theta=np.full(4, 9.0)))),
        "a model of another length": (on, sends(enroll, asks(theta=np.zeros(5)))),
        "a model of 2^32 - 1 coordinates": (on, sends(enroll, short)),
        "number 2^64 - 1": (on, sends(enroll, asks(sequence=2**64 - 1))),
    }


class Liar(grpc.GenericRpcHandler):
    """A learner's server that sends what it likes."""

    def __init__(self, script):
        self.script = script

    def service(self, details):
        def attach(requests, context):
            for one in self.script(requests, context):
                yield one.SerializeToString() if isinstance(one, Message) else one

        return grpc.stream_stream_rpc_method_handler(attach)


def open_owner(world, folder, address):
    world.tables[1].to_parquet(folder / "shard.parquet")
    settings = {
        "name": "honest",
        "data": {"path": "shard.parquet"},
        "policy": {"epsilon_per_study": "1", "epsilon_lifetime": "1"},
    }
    (folder / "owner.toml").write_text(tomli_w.dumps(settings))
    return open_attachment(
        folder / "owner.toml",
        learner=address,
        stay=False,
        insecure=False,
        insecure_noise_seed=1,
    )


def attack_owner(world, name, *, folder):
    """A real owner that attaches to a lying learner."""
    expected, script = lying_learners(world)[name]
    server = grpc.server(
        ThreadPoolExecutor(max_workers=8), options=[("grpc.max_send_message_length", -1)]
    )
    server.add_generic_rpc_handlers((Liar(script),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    attachment = open_owner(world, folder, f"127.0.0.1:{port}")
    told = Outcome(f"learner sends {name}", "over", expected)
    stop, began = threading.Event(), time.monotonic()

    def run():
        try:
            attachment.run(stop)
        except CoprivError as error:
            told.ended, told.status, told.sentence = "error", error.exit_status, str(error)
        except BaseException as error:
            told.faults.append(f"not an error of ours: {error!r:.300}")

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(LOOK_SECONDS)
    if thread.is_alive():
        # Told to stop, it ends at once and in peace, whatever its learner does.
        told.ended = "goes on"
        stop.set()
        thread.join(10)
        if thread.is_alive():
            told.faults.append("it does not stop")
    server.stop(None)
    told.seconds = time.monotonic() - began
    _, studies = read_studies(folder / "ledger.sqlite")
    if any(entry.account.answered for entry in studies):
        told.faults.append("a nonsensical query was charged")
    return told.check()


# --- all of them -------------------------------------------------------------------------------


def run_all(only):
    listener, world = Listener(), World()
    with tempfile.TemporaryDirectory() as parent, ThreadPoolExecutor(max_workers=24) as pool:
        folders = (Path(parent) / str(number) for number in range(10**6))

        def folder():
            own = next(folders)
            own.mkdir()
            return own

        running = [
            pool.submit(attack_learner, world, name, alone=alone, folder=folder())
            for name in lying_owners()
            if only in name
            for alone in (False, True)
        ]
        running += [
            pool.submit(attack_owner, world, name, folder=folder())
            for name in lying_learners(world)
            if only in name
        ]
        outcomes = [one.result() for one in running]
    return outcomes, listener.faults


def main():
    options = typed(__doc__)
    outcomes, faults = run_all(options.only)
    if options.table:
        for one in outcomes:
            head = f"{one.name:65} {one.ended:8} {one.status} {one.seconds:4.1f} s"
            print(f"{head}  {one.sentence[:150]}")
    faults += [f"{one.name}: {fault}" for one in outcomes for fault in one.faults]
    counts = {
        "owners": sum(one.name.startswith("owner") for one in outcomes) // 2,
        "learners": sum(one.name.startswith("learner") for one in outcomes),
        "ended": {
            kind: sum(one.ended == kind for one in outcomes)
            for kind in ("error", "fine", "goes on", "over")
        },
    }
    tell(counts, outcomes, faults)


if __name__ == "__main__":
    main()
