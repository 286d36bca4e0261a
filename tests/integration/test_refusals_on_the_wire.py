"""Codes and public words of every refusal, tokens and limits, over real sockets."""

import contextlib
import hashlib
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import grpc
import numpy as np
import pytest
import tomli_w
from calls import methods
from forked import run
from listening import Listening

from common import codec
from common.errors import BudgetSpentError, MalformedError, PolicyError, UnreachableError
from common.pb import copriv_pb2 as pb
from common.terms import Query
from learner.network.grpc_owner import GrpcOwner
from owner.ledger_reading import read_studies
from owner.refusals import FAILED

TOKEN = "copriv_token-for-the-tests-only"  # noqa: S105
DIGEST = f"sha256:{hashlib.sha256(TOKEN.encode()).hexdigest()}"
Code = grpc.StatusCode


def connect(running, *, token=None, deadline=20):
    return GrpcOwner("owner-a", f"127.0.0.1:{running.port}", deadline=deadline, token=token)


def status_of(call):
    with pytest.raises(grpc.RpcError) as refused:
        call()
    return refused.value.code(), refused.value.details()


def test_every_refusal_has_its_code_its_words_and_charges_nothing(
    owner_folder, serve_owner, make_terms
):
    settings = owner_folder(epsilon_lifetime="1.5", losses=["squared"])
    running = serve_owner(settings)
    with grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel:
        stub = methods("DataOwner", channel)

        def enroll(**changes):
            return stub.Enroll(codec.terms_to_pb(make_terms(**changes)), timeout=10)

        def answer(sequence, theta=(0.1, 0.1, 0.1, 0.1), study="study-1"):
            query = Query(study_id=study, sequence=sequence, theta=np.array(theta))
            return stub.AnswerOnce(codec.query_to_pb(query), timeout=10)

        enroll(responses=2)
        first = answer(1)
        outside = float(np.nextafter(2.0, 3.0))
        close = pb.CloseRequest(study_id="none")
        vector = pb.Vector(length=4, data=b"12")
        short = pb.Query(study_id="study-1", sequence=2, theta=vector)
        expected = [
            (lambda: enroll(theta_max=-1.0), Code.INVALID_ARGUMENT, "theta_max must be"),
            (lambda: enroll(study_id="new", clip=0.0), Code.INVALID_ARGUMENT, "clip must be"),
            *(
                (
                    lambda bad=bad: enroll(
                        study_id="new", release="newton", responses=1, curvature_scale=bad
                    ),
                    Code.INVALID_ARGUMENT,
                    "without kinks and a curvature_scale from 1e-100 to 1e+100",
                )
                for bad in (None, float("nan"), -1.0, 0.0)
            ),
            (
                lambda: enroll(study_id="new", curvature_scale=1.0),
                Code.INVALID_ARGUMENT,
                "curvature_scale belongs to newton, not to gradient",
            ),
            (lambda: stub.AnswerOnce(short), Code.INVALID_ARGUMENT, "4 coordinates"),
            (lambda: answer(2, (0.0, 0.0, 0.0)), Code.INVALID_ARGUMENT, "agreed on 4"),
            (lambda: answer(2, (0, 0, 0, outside)), Code.INVALID_ARGUMENT, "leaves the box"),
            (lambda: answer(2, (0, 0, np.nan, 0)), Code.INVALID_ARGUMENT, "not a finite number"),
            (lambda: answer(3), Code.FAILED_PRECONDITION, "the next one is 2"),
            (lambda: answer(1, (0, 0, 0, 0)), Code.FAILED_PRECONDITION, "another theta"),
            (lambda: answer(1, study="none"), Code.FAILED_PRECONDITION, "enrol first"),
            (lambda: stub.Close(close), Code.FAILED_PRECONDITION, "enrol first"),
            (lambda: enroll(loss="hinge"), Code.PERMISSION_DENIED, "with other terms"),
            (
                lambda: enroll(study_id="new", loss="hinge"),
                Code.PERMISSION_DENIED,
                "only for the losses squared",
            ),
            (
                lambda: enroll(study_id="new", epsilon=Fraction(11)),
                Code.PERMISSION_DENIED,
                "at most 10 on one study",
            ),
            (
                lambda: enroll(study_id="new", epsilon=Fraction(2, 3)),
                Code.RESOURCE_EXHAUSTED,
                "but 0.5 of the lifetime budget is left",
            ),
        ]
        ledger = settings.parent / "ledger.sqlite"
        before = read_studies(ledger)[1]
        for call, code, words in expected:
            status, sentence = status_of(call)
            assert (status, words in sentence) == (code, True), (status, sentence, words)
            assert read_studies(ledger)[1] == before
        assert answer(1) == first
        answer(2)
        status, sentence = status_of(lambda: answer(3))
        assert (status, sentence) == (
            Code.RESOURCE_EXHAUSTED,
            "all 2 promised responses were given; 0 are left in this study",
        )


def test_a_message_that_is_too_large_is_not_a_budget_that_is_spent(
    owner_folder, serve_owner, make_terms
):
    running = serve_owner(owner_folder(max_map_bytes=10_000, max_features=100))
    owner = connect(running)
    words = (
        r"our message of 2[0-9]{6} bytes is larger than .* policy.max_features and max_map_bytes"
    )
    with pytest.raises(MalformedError, match=words):
        owner.enroll(make_terms(feature_map="[" * 2_000_000))
    # A query on the stream is told apart as well, and a real refusal still is one.
    owner.enroll(make_terms(responses=1))
    with pytest.raises(MalformedError, match="is larger than"):
        owner.answer(Query(study_id="study-1", sequence=1, theta=np.zeros(300_000)))
    owner.answer(Query(study_id="study-1", sequence=1, theta=np.zeros(4)))
    with pytest.raises(BudgetSpentError, match="all 1 promised responses were given"):
        owner.answer(Query(study_id="study-1", sequence=2, theta=np.zeros(4)))
    owner.disconnect()


def test_a_message_that_unpacks_to_more_than_is_taken_is_not_read(owner_folder, serve_owner):
    """Of either side: 100 MB of zeros take 100 kB on the line."""
    bomb = bytes(110_000_000)
    options = [("grpc.max_send_message_length", -1)]
    running = serve_owner(owner_folder())
    address, packed = f"127.0.0.1:{running.port}", grpc.Compression.Gzip
    with grpc.insecure_channel(address, options=options, compression=packed) as channel:
        enroll = channel.unary_unary("/copriv.v1.DataOwner/Enroll")
        status, _ = status_of(lambda: enroll(bomb, timeout=60))
        assert status is Code.RESOURCE_EXHAUSTED

    describe = grpc.unary_unary_rpc_method_handler(lambda request, context: bomb)
    handlers = grpc.method_handlers_generic_handler("copriv.v1.DataOwner", {"Describe": describe})
    server = grpc.server(ThreadPoolExecutor(1), options=options, compression=packed)
    server.add_generic_rpc_handlers((handlers,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    owner = GrpcOwner("owner-a", f"127.0.0.1:{port}", deadline=60)
    try:
        with pytest.raises(MalformedError, match="its message is compressed, and larger than the"):
            owner.describe()
    finally:
        owner.disconnect()
        server.stop(None)


def frame(kind, flags, stream, content=b""):
    """A frame of HTTP/2."""
    head = len(content).to_bytes(3, "big") + bytes([kind, flags])
    return head + stream.to_bytes(4, "big") + content


class Impatient(Listening):
    """A proxy that ends each call with the code for a caller of whom it has enough."""

    def treat(self, near):
        near.sendall(frame(4, 0, 0))
        with contextlib.suppress(OSError), near.makefile("rb") as sent:
            sent.read(24)
            while head := sent.read(9):
                sent.read(int.from_bytes(head[:3], "big"))
                if head[3] == 4 and not head[4]:
                    near.sendall(frame(4, 1, 0))
                if head[3] == 1:
                    number = int.from_bytes(head[5:], "big")
                    near.sendall(frame(3, 0, number, (11).to_bytes(4, "big")))


def test_a_call_that_grpc_ends_on_its_way_is_not_a_budget_that_is_spent(
    owner_folder, serve_owner, make_terms
):
    """For long headers of either side, or since somebody between the two has enough."""
    query = Query(study_id="study-1", sequence=1, theta=np.zeros(4))
    words = r"gRPC ended the call \(.*\); ask its operator, or whoever runs a proxy on the way"

    def tried(owner):
        for call in (owner.describe, lambda: owner.answer(query)):
            with pytest.raises(UnreachableError, match=words):
                call()
        owner.disconnect()

    tried(connect(serve_owner(owner_folder()), token="copriv_" + "a" * 20_000))

    def long_headers(_, context):
        context.set_trailing_metadata([("reason", "a" * 20_000)])
        context.abort(Code.ABORTED, "no")

    one, many = grpc.unary_unary_rpc_method_handler, grpc.stream_unary_rpc_method_handler
    methods = {"Describe": one(long_headers), "Answer": many(long_headers)}
    server = grpc.server(ThreadPoolExecutor(2))
    handlers = grpc.method_handlers_generic_handler("copriv.v1.DataOwner", methods)
    server.add_generic_rpc_handlers((handlers,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    tried(GrpcOwner("owner-a", f"127.0.0.1:{port}", deadline=20))
    server.stop(None)
    proxy = Impatient()
    tried(GrpcOwner("owner-a", f"127.0.0.1:{proxy.port}", deadline=20))
    proxy.stop()


def test_an_unexpected_failure_says_one_fixed_sentence(
    owner_folder, serve_owner, make_terms, monkeypatch, caplog
):
    running = serve_owner(owner_folder())
    owner = connect(running)
    owner.enroll(make_terms())

    def fails(*_, **__):
        raise ValueError("record 17 of /secret/shard.csv is 3.14159")

    monkeypatch.setattr("owner.answering.exact_answer", fails)
    with grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel:
        stub = methods("DataOwner", channel)
        query = codec.query_to_pb(Query(study_id="study-1", sequence=1, theta=np.zeros(4)))
        for call in (lambda: stub.AnswerOnce(query), lambda: next(stub.Answer(iter([query])))):
            assert status_of(call) == (Code.INTERNAL, FAILED)
    owner.disconnect()
    assert "3.14159" in caplog.text


def test_a_token_opens_the_owner_and_nothing_else_does(owner_folder, serve_owner, make_terms):
    settings = owner_folder(tokens={"bank-a": DIGEST})
    running = serve_owner(settings)
    with grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel:
        stub = methods("DataOwner", channel)
        terms = codec.terms_to_pb(make_terms())
        query = codec.query_to_pb(Query(study_id="study-1", sequence=1, theta=np.zeros(4)))
        for metadata in ((), (("authorization", "Bearer wrong"),), (("authorization", DIGEST),)):
            for call in (
                lambda m=metadata: stub.Describe(pb.DescribeRequest(), metadata=m),
                lambda m=metadata: stub.Enroll(terms, metadata=m),
                lambda m=metadata: stub.AnswerOnce(query, metadata=m),
                lambda m=metadata: next(stub.Answer(iter([query]), metadata=m)),
                lambda m=metadata: stub.Close(pb.CloseRequest(study_id="s"), metadata=m),
            ):
                status, sentence = status_of(call)
                assert status is Code.UNAUTHENTICATED
                assert "token" in sentence
                assert DIGEST[7:20] not in sentence
    for token in (None, TOKEN[:-1]):
        stranger = connect(running, token=token)
        with pytest.raises(PolicyError, match="token"):
            stranger.enroll(make_terms())
        stranger.disconnect()
    owner = connect(running, token=TOKEN)
    owner.enroll(make_terms())
    owner.answer(Query(study_id="study-1", sequence=1, theta=np.zeros(4)))
    owner.close("study-1")
    owner.disconnect()
    assert read_studies(settings.parent / "ledger.sqlite")[1][0].learner == "bank-a"


def test_a_busy_owner_is_asked_again_and_no_tick_is_lost(owner_folder, serve_owner, make_terms):
    running = serve_owner(owner_folder(queries_per_second=20))
    owner = connect(running)
    owner.enroll(make_terms(responses=40, horizon=40))
    began = time.monotonic()
    answers = {
        owner.answer(Query(study_id="study-1", sequence=k, theta=np.zeros(4))).gradient.tobytes()
        for k in range(1, 41)
    }
    # The bucket holds a second's worth, so twenty more take at least most of a second.
    assert time.monotonic() - began > 0.5
    assert len(answers) == 40
    owner.disconnect()


def test_a_learner_that_will_not_wait_is_told_that_the_owner_is_busy(owner_folder, serve_owner):
    owner = connect(serve_owner(owner_folder(queries_per_second=0.02)), deadline=10)
    owner.describe()
    with pytest.raises(UnreachableError, match=r"takes no further query .* ask again then"):
        owner.describe()
    owner.disconnect()


def test_too_many_enrolments_are_refused_with_the_time_to_come_back(
    owner_folder, serve_owner, make_terms
):
    running = serve_owner(owner_folder(enrollments_per_hour=2))
    owner = connect(running)
    for study in ("a", "b", "a", "b", "a"):
        owner.enroll(make_terms(study_id=study))
    with grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel:
        stub = methods("DataOwner", channel)
        with pytest.raises(grpc.RpcError) as refused:
            stub.Enroll(codec.terms_to_pb(make_terms(study_id="c")))
    assert refused.value.code() is Code.UNAVAILABLE
    wait = dict(refused.value.trailing_metadata())["retry-after-ms"]
    assert 1_700_000 < int(wait) <= 1_800_000
    owner.disconnect()


def test_training_sends_the_token_that_the_study_names(
    owner_folder, serve_owner, public_table, tmp_path
):
    running = serve_owner(owner_folder(tokens={"bank-a": DIGEST}, epsilon_per_study="10"))
    public_table.to_parquet(tmp_path / "public.parquet")
    (tmp_path / "bank.token").write_text(TOKEN + "\n")

    def train(token):
        study = {
            "name": "t",
            "features": {"public": {"path": "public.parquet"}, "target": "y"},
            "model": {"theta_max": 2.0},
            "algorithm": {"horizon": 20, "rho": 1e-6},
            "privacy": {"epsilon": 1},
            "network": {"deadline": 5.0} | ({"token": token} if token else {}),
            "owners": [{"name": "owner-a", "address": f"127.0.0.1:{running.port}"}],
        }
        path = tmp_path / "study.toml"
        path.write_text(tomli_w.dumps(study))
        out = tmp_path / f"run-{token is None}"
        return run("copriv", "train", path, "--out", out, "--yes")

    refused = train(None)
    assert refused.returncode == 3, refused.stderr
    assert "wants a token" in refused.stderr
    trained = train("file:bank.token")
    assert trained.returncode == 0, trained.stderr
    told = json.loads((tmp_path / "run-False" / "summary.json").read_text())
    assert told["ticks"] == 20
    kept = "".join(p.read_text() for p in (tmp_path / "run-False").glob("*.toml"))
    assert TOKEN not in kept


def test_streams_of_two_learners_do_not_wait_for_each_other(owner_folder, serve_owner, make_terms):
    running = serve_owner(owner_folder(queries_per_second=1000))
    answered = []

    def learner(study):
        owner = connect(running)
        owner.enroll(make_terms(study_id=study))
        for k in range(1, 11):
            owner.answer(Query(study_id=study, sequence=k, theta=np.zeros(4)))
        answered.append(study)
        owner.disconnect()

    threads = [threading.Thread(target=learner, args=(f"s{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(answered) == 4
