"""Seen from outside: metrics on both sides, JSON log lines, the health port, reflection."""

import errno
import hashlib
import json
import math
import os
import re
import resource
import socket
import struct
import threading
import time
import urllib.request
from contextlib import ExitStack, suppress

import grpc
import numpy as np
import pytest
import tomli_w
from cryptography import x509
from forked import Forked
from free_ports import free_port, is_free
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from identities import tls_of, tls_table
from waiting import wait_until

from common.errors import InputError, OrderError, OwnerFailedError, UnreachableError
from common.expiry import Expiry
from common.metrics import ASKING_SECONDS, OPEN_CONNECTIONS
from common.terms import Query
from common.tls import load_identity
from common.wire import token_metadata
from learner.network.attachment_server import AttachmentServer
from learner.network.certificates import Party, make_certificates
from learner.network.grpc_owner import GrpcOwner
from learner.results.metrics import LearnerMetrics
from learner.training.line import OwnerLine
from learner.training.memory_owner import MemoryOwner
from owner.attaching import open_attachment
from owner.health import ask_health
from owner.ports import Port
from owner.refusals import FAILED
from owner.server import start_owner


def scrape(port):
    """Sample name with labels -> value."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
        lines = page.read().decode().splitlines()
    samples = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in samples}


def test_an_owner_that_does_not_begin_to_serve_gives_its_metrics_port_back(
    owner_folder, monkeypatch
):
    port, start = free_port(), Port.start

    def fails_once(server):
        monkeypatch.setattr(Port, "start", start)
        raise RuntimeError("gRPC's server did not begin, as where memory runs out")

    monkeypatch.setattr(Port, "start", fails_once)
    path = owner_folder(also={"metrics": f"127.0.0.1:{port}"})
    with pytest.raises(RuntimeError, match="did not begin"):
        start_owner(path, listen="127.0.0.1:0", insecure_noise_seed=None)
    assert is_free(port)


def test_an_owner_tells_counts_times_and_budget_and_nothing_else(
    owner_folder, serve_owner, make_terms
):
    port = free_port()
    path = owner_folder(epsilon_lifetime="4", also={"metrics": f"127.0.0.1:{port}"})
    running = serve_owner(path)
    remote = GrpcOwner("owner-a", f"127.0.0.1:{running.port}", deadline=20)
    remote.enroll(make_terms())
    for sequence in (1, 2, 2):
        remote.answer(Query(study_id="study-1", sequence=sequence, theta=np.zeros(4)))
    with pytest.raises(Exception, match="out of order"):
        remote.answer(Query(study_id="study-1", sequence=9, theta=np.zeros(4)))
    remote.disconnect()
    told = scrape(port)
    assert told["copriv_responses_total"] == 3
    assert told["copriv_charges"] == 2
    assert told["copriv_epsilon_held"] == 1
    assert told["copriv_epsilon_left"] == 3
    assert told["copriv_epsilon_per_study"] == 10
    assert told['copriv_refusals_total{status="FAILED_PRECONDITION"}'] == 1
    assert told['copriv_refusals_total{status="RESOURCE_EXHAUSTED"}'] == 0
    assert told["copriv_answer_seconds_count"] == 4
    assert told["copriv_ledger_works"] == 1
    names = {re.split(r"[{ ]", name)[0] for name in told}
    assert {re.sub(r"_(total|created|bucket|count|sum)$", "", name) for name in names} == {
        *("copriv_responses", "copriv_charges", "copriv_epsilon_held", "copriv_epsilon_left"),
        *("copriv_refusals", "copriv_answer_seconds", "copriv_ledger_works"),
        "copriv_epsilon_per_study",
    }


@pytest.mark.parametrize("what", ["the folder is gone", "a note fails"])
def test_whoever_watches_is_told_that_a_ledger_fails(
    owner_folder, serve_owner, make_terms, monkeypatch, what
):
    """Until a charge succeeds again; after a note that failed, until the owner is started again."""
    port = free_port()
    path = owner_folder(also={"metrics": f"127.0.0.1:{port}"})
    running = serve_owner(path)
    remote = GrpcOwner("owner-a", f"127.0.0.1:{running.port}", deadline=20)
    remote.enroll(make_terms())

    def ask(sequence):
        query = Query(study_id="study-1", sequence=sequence, theta=np.zeros(4))
        return remote.answer(query).gradient.tobytes()

    before = [ask(1), ask(2)]
    assert scrape(port)["copriv_ledger_works"] == 1
    with monkeypatch.context() as patch:
        if what == "a note fails":
            patch.setattr(os, "fdatasync", fail)
        else:
            path.parent.rename(path.parent.with_name("away"))
        with pytest.raises(OwnerFailedError, match=FAILED):
            ask(3)
    told = scrape(port)
    assert (told["copriv_ledger_works"], told["copriv_charges"]) == (0, 2)
    if what == "a note fails":
        with pytest.raises(OwnerFailedError, match=FAILED):
            ask(3)
        assert math.isnan(scrape(port)["copriv_epsilon_left"])
        running.drain(grace=0.1)
        running = serve_owner(path)
        remote.disconnect()
        remote = GrpcOwner("owner-a", f"127.0.0.1:{running.port}", deadline=20)
        remote.enroll(make_terms())
    else:
        path.parent.with_name("away").rename(path.parent)
    assert ask(2) == before[1]
    ask(3)
    remote.disconnect()
    told = scrape(port)
    assert (told["copriv_ledger_works"], told["copriv_charges"]) == (1, 3)
    assert told["copriv_epsilon_left"] == 9


def test_an_owner_that_attaches_tells_the_same(owner_folder, make_terms):
    port = free_port()
    path = owner_folder(also={"metrics": f"127.0.0.1:{port}"})
    with AttachmentServer(["owner-a"], "127.0.0.1:0", deadline=10, patience=10) as learner:
        address = f"127.0.0.1:{learner.port}"

        def attached():
            return open_attachment(
                path, learner=address, stay=False, insecure=False, insecure_noise_seed=1
            )

        with socket.socket() as taken:
            taken.bind(("127.0.0.1", port))
            with pytest.raises(InputError, match="metrics = '127"):
                attached().run(threading.Event())
        stop = threading.Event()
        going = threading.Thread(target=attached().run, args=(stop,))
        going.start()
        (owner,) = learner.owners
        owner.enroll(make_terms())
        for sequence in (1, 2, 2):
            owner.answer(Query(study_id="study-1", sequence=sequence, theta=np.zeros(4)))
        with pytest.raises(OrderError):
            owner.answer(Query(study_id="study-1", sequence=9, theta=np.zeros(4)))
        told = scrape(port)
        stop.set()
    going.join(20)
    assert not going.is_alive()
    with pytest.raises(OSError, match="refused"):
        scrape(port)
    assert (told["copriv_responses_total"], told["copriv_charges"]) == (3, 2)
    assert told['copriv_refusals_total{status="FAILED_PRECONDITION"}'] == 1
    assert told["copriv_answer_seconds_count"] == 4
    assert told["copriv_ledger_works"] == 1


def test_an_owner_that_attaches_tries_a_full_disk_while_nobody_asks(owner_folder, make_terms):
    port = free_port()
    path = owner_folder(also={"metrics": f"127.0.0.1:{port}"})
    with AttachmentServer(["owner-a"], "127.0.0.1:0", deadline=10, patience=10) as learner:
        command = ("attach", path, "--learner", f"127.0.0.1:{learner.port}")
        process = Forked("copriv-owner", *command)
        try:
            (owner,) = learner.owners
            owner.enroll(make_terms())

            def ask():
                for sequence in range(1, 4):
                    owner.answer(Query(study_id="study-1", sequence=sequence, theta=np.zeros(4)))

            size = path.with_name("ledger.sqlite-wal").stat().st_size
            any_size = resource.RLIM_INFINITY
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size + 100, any_size))
            with pytest.raises(OwnerFailedError, match=FAILED):
                ask()
            told = scrape(port)["copriv_ledger_works"]
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (any_size, any_size))
            wait_until(lambda: scrape(port)["copriv_ledger_works"] == 1)
        finally:
            process.terminate()
            said = process.communicate(20)[1]
    assert told == 0
    assert "the ledger can be written again" in said


def fail(handle):
    raise OSError(errno.EIO, "Input/output error")


def test_both_sides_tell_when_their_certificate_ends(owner_folder, serve_owner, tmp_path):
    """Also after it was renewed, without a restart and before anybody connects."""
    certs, port = tmp_path / "certs", free_port()

    def end_of(party, *, renew=False):
        parties = [
            Party(name="owner-a", role="owner", hosts=("127.0.0.1",)),
            Party(name="lab", role="learner"),
        ]
        make_certificates(
            certs, parties, study="test", days=90 if renew else 40, ca_days=100, renew=renew
        )
        certificate = (certs / party / "certificate.pem").read_bytes()
        return x509.load_pem_x509_certificate(certificate).not_valid_after_utc.timestamp()

    first = end_of("owner-a")
    tls = tls_table(certs / "owner-a")
    serve_owner(owner_folder(also={"metrics": f"127.0.0.1:{port}", "tls": tls}))
    assert scrape(port)["copriv_certificate_end_seconds"] == first
    again = end_of("owner-a", renew=True)
    assert scrape(port)["copriv_certificate_end_seconds"] == again > first

    identity = load_identity(tls_of(certs / "lab"), base=tmp_path, side="client")
    metrics, port = LearnerMetrics(expiry=Expiry(identity, side="client")), free_port()
    with metrics.served(f"127.0.0.1:{port}"):
        assert scrape(port)["copriv_certificate_end_seconds"] == end_of("lab")
    metrics, port = LearnerMetrics(), free_port()
    with metrics.served(f"127.0.0.1:{port}"):
        assert "copriv_certificate_end_seconds" not in scrape(port)


def test_a_metrics_address_that_is_taken_is_named(owner_folder, serve_owner):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(InputError, match=f"metrics = '{address}'"):
            serve_owner(owner_folder(also={"metrics": address}))


@pytest.mark.parametrize("setting", ["listen", "health", "metrics"])
def test_an_owner_whose_port_is_taken_makes_no_ledger(owner_folder, serve_owner, setting):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        path = owner_folder(also={setting: address})
        before = {file.name for file in path.parent.iterdir()}
        sentence = (
            re.escape(f"{setting} = '{address}': ") + ".*cannot be used .*; give another HOST"
        )
        with pytest.raises(InputError, match=sentence):
            serve_owner(path)
        if setting == "metrics":
            with pytest.raises(InputError, match=sentence):
                open_attachment(
                    path, learner=address, stay=False, insecure=False, insecure_noise_seed=1
                )
        assert {file.name for file in path.parent.iterdir()} == before
    serve_owner(path)
    # A second start of it finds the ledger held, which says more.
    with pytest.raises(InputError, match="another process holds this ledger; stop it first"):
        serve_owner(path)


def test_an_owner_that_does_not_start_leaves_no_port_bound(owner_folder, serve_owner, monkeypatch):
    # As where it is taken after the owner has looked.
    monkeypatch.setattr("owner.server.refuse_taken", lambda *_, **__: None)
    port, health = free_port(), free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        path = owner_folder(
            also={
                "listen": f"127.0.0.1:{port}",
                "health": f"127.0.0.1:{health}",
                "metrics": f"127.0.0.1:{taken.getsockname()[1]}",
            }
        )
        with pytest.raises(InputError) as refusal:
            serve_owner(path)
        # The error is held on to: what it refers to is not collected either.
        assert "metrics" in str(refusal.value)
        # gRPC lets go of a port in a thread of its own.
        wait_until(lambda: is_free(port) and is_free(health))


def test_a_learner_whose_metrics_port_is_taken_leaves_no_port_bound_and_no_run(
    tmp_path, typed, feature_map
):
    (tmp_path / "features.json").write_text(feature_map.to_json())
    port = free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        path = tmp_path / "study.toml"
        path.write_text(
            tomli_w.dumps(
                {
                    "name": "small",
                    "profile": "published",
                    "features": {"map": "features.json"},
                    "model": {"theta_max": 1.0},
                    "algorithm": {"horizon": 2, "rho": 1.0, "initiative": "owner"},
                    "privacy": {"epsilon": 1},
                    "network": {
                        "listen": f"127.0.0.1:{port}",
                        "metrics": f"127.0.0.1:{taken.getsockname()[1]}",
                    },
                    "owners": [{"name": "a"}],
                }
            )
        )
        result = typed("copriv", "train", path, "--out", tmp_path / "run")
        assert result.returncode == 2
        assert "network.metrics" in result.stderr
        assert not (tmp_path / "run").exists()
        # What a resumed command finds is no run either: the same one begins it.
        result = typed("copriv", "train", path, "--resume", tmp_path / "run")
        assert "network.metrics" in result.stderr
        assert not (tmp_path / "run" / "study.toml").exists()
        with socket.socket() as again:
            again.bind(("127.0.0.1", port))


def test_the_learner_tells_how_the_run_goes_and_who_is_away(few_records, make_terms):
    class Lost(MemoryOwner):
        def answer(self, query):
            raise UnreachableError("lost")

    metrics = LearnerMetrics()
    metrics.horizon.set(7)
    owners = [MemoryOwner("here", few_records, seed=1), Lost("gone", few_records, seed=1)]
    lines = [OwnerLine(owner, make_terms(), retries=0) for owner in owners]
    metrics.watch(lines)
    port = free_port()
    with metrics.served(f"127.0.0.1:{port}"):
        for line in lines:
            line.enroll()
            line.ask(np.zeros(4))
            line.stop()
        told = scrape(port)
    assert told["copriv_horizon"] == 7
    assert told['copriv_owner_away{owner="here"}'] == 0
    assert told['copriv_owner_away{owner="gone"}'] == 1
    assert told['copriv_responses{owner="here"}'] == 1
    assert told['copriv_query_failures_total{owner="gone"}'] == 1
    assert told['copriv_query_seconds_count{owner="here"}'] == 1
    with pytest.raises(OSError, match="refused"):
        scrape(port)


def test_the_health_port_tells_whether_it_serves_and_nothing_else(owner_folder, serve_owner):
    port = free_port()
    running = serve_owner(owner_folder(also={"health": f"127.0.0.1:{port}"}))
    ask_health(f"127.0.0.1:{port}", seconds=5)
    elsewhere = GrpcOwner("owner-a", f"127.0.0.1:{port}", deadline=5)
    with pytest.raises(Exception, match="not found"):
        elsewhere.describe()
    elsewhere.disconnect()
    running.server.stop(None)
    running.health.set(serving=False)
    with pytest.raises(UnreachableError, match="does not serve"):
        ask_health(f"127.0.0.1:{port}", seconds=5)
    with pytest.raises(UnreachableError, match="no answer"):
        ask_health(f"127.0.0.1:{free_port()}", seconds=5)


@pytest.mark.parametrize("reflected", [False, True])
def test_reflection_is_off_unless_the_settings_say_so(reflected, owner_folder, serve_owner):
    running = serve_owner(owner_folder(also={"reflection": reflected}))
    with grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        if reflected:
            (told,) = stub.ServerReflectionInfo(iter([asked]), timeout=5)
            services = {service.name for service in told.list_services_response.service}
            assert "copriv.v1.DataOwner" in services
        else:
            with pytest.raises(grpc.RpcError) as refusal:
                list(stub.ServerReflectionInfo(iter([asked]), timeout=5))
            assert refusal.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_reflection_is_as_guarded_as_every_other_call(owner_folder, serve_owner):
    digest = hashlib.sha256(b"copriv_token-for-the-tests-only").hexdigest()
    also = {"reflection": True, "idle_seconds": 0.5}
    tokens = {"ann": f"sha256:{digest}"}
    running = serve_owner(owner_folder(also=also, tokens=tokens, calls_per_learner=2))
    with grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel:
        method = channel.stream_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
        )
        said = [b"", b"\xff" * 50, reflection_pb2.ServerReflectionRequest().SerializeToString()]
        for token, statuses in (
            ("copriv_another", ["UNAUTHENTICATED"] * 3),
            ("copriv_token-for-the-tests-only", [None, "INVALID_ARGUMENT", None]),
        ):
            metadata = token_metadata(token)
            told = [
                status_of_all(method(iter([one]), metadata=metadata, timeout=5)) for one in said
            ]
            assert told == statuses
        stop = threading.Event()
        silent = [
            method(iter(lambda: stop.wait() and None, None), metadata=metadata, timeout=20)
            for _ in range(3)
        ]
        # One is too many, and the others end by themselves.
        assert sorted(map(str, map(status_of_all, silent))) == ["None", "None", "UNAVAILABLE"]
        stop.set()


def status_of_all(call):
    """How a stream ends."""
    try:
        list(call)
    except grpc.RpcError as error:
        return str(error.code().name)
    return None


def test_log_lines_are_json_when_asked_for(owner_folder):
    words = ("--log-format", "json", "serve", owner_folder(), "--insecure-noise-seed", 1)
    process = Forked("copriv-owner", *words)
    assert process.stdout.readline().startswith("serving on port")
    time.sleep(0.1)
    process.terminate()
    _, said = process.communicate(timeout=20)
    assert process.returncode == 0
    warned, noted = map(json.loads, said.strip().splitlines())
    assert noted["level"] == "info"
    assert "a new ledger is made" in noted["message"]
    assert warned["level"] == "warning"
    assert "INSECURE" in warned["message"]
    assert set(noted) == set(warned) == {"time", "level", "logger", "message"}


def test_whoever_says_nothing_or_nonsense_at_the_metrics_port_hinders_nobody_and_is_not_logged(
    owner_folder, serve_owner, capfd
):
    port = free_port()
    serve_owner(owner_folder(also={"metrics": f"127.0.0.1:{port}"}))
    nonsense = (
        b"GET / HTTP/1.0\r\nAccept: application/openmetrics-text; version=x.y\r\n\r\n",
        b"GET / HTTP/1.0\r\nExpect: \xff\r\n",
        b"\0",
    )
    threads = threading.active_count()
    with ExitStack() as silent:
        for _ in range(100):
            silent.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
        for content in nonsense:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as rude:
                rude.sendall(content)
                # It hangs up without reading: what is sent to it fails.
                rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert scrape(port)["copriv_charges"] == 0
        wait_until(lambda: threading.active_count() <= threads + OPEN_CONNECTIONS)
    said = capfd.readouterr()
    assert "Traceback" not in said.err + said.out


def test_a_request_at_the_metrics_port_is_read_no_further_than_any_scrapers_goes():
    """Sixteen strangers with 99 long headers each took a gigabyte, and most of a core."""
    port = free_port()
    with (
        LearnerMetrics().served(f"127.0.0.1:{port}"),
        socket.create_connection(("127.0.0.1", port), timeout=20) as rude,
    ):
        began = time.monotonic()
        with suppress(ConnectionError):
            rude.sendall(b"GET / HTTP/1.0\r\n" + (b"k: " + b"v" * 60_000 + b"\r\n") * 50)
            while rude.recv(65536):
                pass
        # Not only when it has said nothing for long.
        assert time.monotonic() - began < ASKING_SECONDS / 2
