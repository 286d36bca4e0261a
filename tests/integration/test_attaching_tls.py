"""Mutual TLS where owners come to the learner: who gets in, as whom, and what is said."""

import shutil
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import grpc
import pytest
import tomli_w
from calls import methods
from free_ports import free_address
from grpc.experimental.session_cache import ssl_session_cache_lru
from identities import an_hour_too_late, named, self_signed, tls_of, tls_table, unchecked
from waiting import wait_until

import common.channels
from common.channels import open_channel
from common.config import check_settings
from common.errors import CoprivError, InputError, PolicyError, UntrustedError
from common.pb import copriv_pb2 as pb
from common.tls import load_identity
from learner.network.attachment_server import AttachmentServer
from learner.network.certificates import Party, make_certificates
from learner.network.connections import remote_owners
from learner.network.grpc_owner import GrpcOwner
from learner.planning.public_side import PublicSide
from learner.planning.settings import StudySettings
from learner.training.journal import Journal
from learner.training.study import train
from owner.attaching import open_attachment
from owner.ledger_reading import read_studies
from owner.refusals import SlowLog

NAMES = ("owner-a", "owner-b", "owner-c")
LOOPBACK = ("localhost", "127.0.0.1")


def certs(out, *, hosts=LOOPBACK, **options):
    make_certificates(
        out,
        [
            *(Party(name=name, role="owner") for name in NAMES),
            Party(name="lab", role="learner", hosts=hosts),
            Party(name="server", role="owner", hosts=hosts),
            Party(name="asker", role="learner"),
            Party(name="owner-of-another-study", role="owner"),
        ],
        study="test",
        ca_days=100,
        **{"days": 90, "renew": False} | options,
    )
    return out


def expired(out, who, monkeypatch):
    """As ``certs``, but the certificate of one party ran out an hour ago."""
    certs(out)
    kept = out.with_name("kept")
    shutil.copytree(out, kept)
    with an_hour_too_late(monkeypatch):
        certs(out, renew=True, days=1)
    for name in {folder.name for folder in out.iterdir()} - {who}:
        shutil.copytree(kept / name, out / name, dirs_exist_ok=True)
    return out


@contextmanager
def listening(folder, *, check=True):
    """A learner that owners may come to; in plain text without a folder."""
    identity = None
    if folder is not None:
        identity = unchecked(folder)
        if check:
            identity = load_identity(tls_of(folder), base=Path("/"), side="server")
    with AttachmentServer(NAMES, "127.0.0.1:0", deadline=10, patience=10, identity=identity) as one:
        yield one


@pytest.fixture
def settings_file(owner_folder):
    def write(name, folder, **policy):
        also = {} if folder is None else {"tls": tls_table(folder)}
        return owner_folder(name, also=also, **policy)

    return write


def attach(path, address):
    """Go to the learner, until it says goodbye or one of the two does not trust the other."""
    open_attachment(path, learner=address, stay=False, insecure=False, insecure_noise_seed=1).run(
        threading.Event()
    )


@contextmanager
def attached(paths, address):
    failures = []

    def run(path):
        try:
            attach(path, address)
        except CoprivError as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    yield failures
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def study(**more):
    table = {
        "name": "attached",
        "seed": 7,
        "profile": "published",
        "features": {"map": "features.json"},
        "model": {"theta_max": 2.0},
        "algorithm": {"horizon": 30, "rho": 1e-3, "initiative": "owner"},
        "privacy": {"epsilon": 5},
        "network": {"deadline": 20, "patience": 20, "listen": "127.0.0.1:0"},
        "owners": [{"name": name} for name in NAMES],
    }
    return check_settings(StudySettings, table | more, where="test")


def test_owners_come_with_their_certificates_and_the_ledger_knows_the_learners(
    settings_file, feature_map, tmp_path
):
    folder = certs(tmp_path / "certs")
    paths = [settings_file(name, folder / name, learners=["lab"]) for name in NAMES]
    settings = study(tls=tls_table(folder / "lab"))
    port = []
    journal = Journal(tmp_path / "journal.sqlite")
    with (
        remote_owners(settings, feature_map, base=tmp_path, on_listening=port.append) as there,
        attached(paths, f"localhost:{port[0]}") as failures,
    ):
        public = PublicSide(feature_map=feature_map, records=None)
        outcome = train(settings, public, there.owners, journal=journal, requests=there.requests)
    journal.close()
    assert not failures
    assert sum(outcome.responses) == 30
    for path, answered in zip(paths, outcome.responses, strict=True):
        (entry,) = read_studies(path.parent / "ledger.sqlite")[1]
        assert (entry.learner, entry.account.answered) == ("lab", answered)
        assert entry.closed


def test_an_owner_attaches_through_the_proxy_of_its_site(
    settings_file, make_terms, proxied, tmp_path
):
    # The learner's name means nothing here: only the proxy reaches it.
    folder = certs(tmp_path / "certs", hosts=("lab.example",))
    path = settings_file("owner-a", folder / "owner-a", learners=["lab"])
    with (
        listening(folder / "lab") as learner,
        proxied() as proxy,
        attached([path], f"lab.example:{learner.port}") as failures,
    ):
        assert learner.owners[0].enroll(make_terms()).num_records == 200
        learner.owners[0].disconnect(over=True)
    assert not failures
    assert proxy.asked_for.count(f"lab.example:{learner.port}") == 2


def test_an_owner_admits_the_learners_of_its_policy_only(settings_file, make_terms, tmp_path):
    folder = certs(tmp_path / "certs")
    path = settings_file("owner-a", folder / "owner-a", learners=["somebody-else"])
    with (
        listening(folder / "lab") as learner,
        attached([path], f"127.0.0.1:{learner.port}") as failures,
    ):
        with pytest.raises(PolicyError, match="does not serve this learner"):
            learner.owners[0].enroll(make_terms())
        learner.owners[0].disconnect(over=True)
    assert not failures


def test_an_owner_attaches_under_the_name_in_its_certificate_only(settings_file, tmp_path):
    folder = certs(tmp_path / "certs")
    with listening(folder / "lab") as learner:
        with pytest.raises(PolicyError, match="the certificate is owner-b's") as refusal:
            attach(settings_file("owner-a", folder / "owner-b"), f"127.0.0.1:{learner.port}")
        assert "cannot attach as owner-a" in str(refusal.value)
        with pytest.raises(PolicyError, match="an owner's certificate is needed"):
            attach(settings_file("owner-a", folder / "asker"), f"127.0.0.1:{learner.port}")
        assert not learner.anybody(lambda owner: True)


def test_an_owner_that_opens_many_streams_keeps_no_other_from_coming(
    settings_file, make_terms, tmp_path
):
    """More silent ones than the learner has threads for; nothing is read of a stranger's."""
    folder = certs(tmp_path / "certs")
    path = settings_file("owner-a", folder / "owner-a", learners=["lab"])
    over = threading.Event()
    with ExitStack() as opened, listening(folder / "lab") as learner:
        attach_by = []
        for name in ["owner-b", "asker", "owner-of-another-study"] * 20:
            identity = unchecked(folder / name)
            channel = opened.enter_context(
                open_channel(
                    f"127.0.0.1:{learner.port}", identity, [("grpc.use_local_subchannel_pool", 1)]
                )
            )
            stub = methods("Learner", channel)
            attach_by.append(stub.Attach)
        calls = [attach_stream(silence(over)) for attach_stream in attach_by]
        kept = 4
        while sum(call.is_active() for call in calls) > kept or any(map(is_crowded_out, calls)):
            for index, call in enumerate(calls):
                if is_crowded_out(call):
                    calls[index] = attach_by[index](silence(over))
            time.sleep(0.01)
        ended = Counter(call.code() for call in calls if not call.is_active())
        assert ended == {
            grpc.StatusCode.PERMISSION_DENIED: 40,
            grpc.StatusCode.UNAVAILABLE: 20 - kept,
        }
        with attached([path], f"127.0.0.1:{learner.port}") as failures:
            assert learner.owners[0].enroll(make_terms()).num_records == 200
            learner.owners[0].disconnect(over=True)
        over.set()
    assert not failures


def is_crowded_out(call):
    """Whether gRPC itself turned it away: on a busy machine others had not gone yet."""
    return not call.is_active() and call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def silence(over):
    """Nothing, until it is over."""
    over.wait(30)
    yield from ()


def test_a_learner_for_another_name_is_refused(settings_file, tmp_path):
    folder = certs(tmp_path / "certs", hosts=("lab.example", "10.9.8.7"))
    with (
        listening(folder / "lab") as learner,
        pytest.raises(InputError, match=r"is for lab, lab.example, 10.9.8.7, not for 127.0.0.1"),
    ):
        attach(settings_file("owner-a", folder / "owner-a"), f"127.0.0.1:{learner.port}")


@pytest.mark.parametrize("names", [(), ("lab\0stranger",), ("lab", "stranger")])
def test_a_learner_whose_certificate_names_nobody_is_refused(settings_file, tmp_path, names):
    folder = certs(tmp_path / "certs")
    named(folder, "lab", names)
    path = settings_file("owner-a", folder / "owner-a")
    refusal = pytest.raises(InputError, match="no common name that can be printed")
    with listening(folder / "lab", check=False) as learner, refusal:
        attach(path, f"127.0.0.1:{learner.port}")


def test_a_learner_of_another_ca_or_none_is_refused(settings_file, tmp_path):
    ours, theirs = certs(tmp_path / "ours"), certs(tmp_path / "theirs")
    forged = self_signed(tmp_path / "forged", "lab")
    path = settings_file("owner-a", ours / "owner-a")
    for folder, fault in ((theirs / "lab", "not of our CA"), (forged, "self-signed")):
        with listening(folder, check=False) as learner:
            with pytest.raises(InputError, match=f"its certificate is {fault}") as refusal:
                attach(path, f"127.0.0.1:{learner.port}")
            assert "files that were made for this study" in str(refusal.value)


def test_an_expired_certificate_is_refused_on_either_side(settings_file, tmp_path, monkeypatch):
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    folder = expired(tmp_path / "1" / "certs", "lab", monkeypatch)
    with pytest.raises(
        InputError, match=r"if the clock is right, copriv admit .*copriv certs --renew"
    ):
        load_identity(tls_of(folder / "lab"), base=Path("/"), side="server")
    with (
        listening(folder / "lab", check=False) as learner,
        pytest.raises(InputError, match=r"its certificate expired on 2.*copriv invite renews it"),
    ):
        attach(settings_file("owner-a", folder / "owner-a"), f"127.0.0.1:{learner.port}")
    folder = expired(tmp_path / "2" / "certs", "owner-a", monkeypatch)
    path = settings_file("owner-a", folder / "owner-a")
    with listening(folder / "lab") as learner:
        with pytest.raises(
            InputError,
            match=r"certificate\.pem has expired .*; if the clock is right, copriv admit",
        ):
            attach(path, f"127.0.0.1:{learner.port}")
        # One that does not look at its own files is turned away by the learner.
        for place in ("owner.attaching", "owner.route"):
            monkeypatch.setattr(
                f"{place}.load_identity", lambda *_, **__: unchecked(folder / "owner-a")
            )
        with pytest.raises(InputError, match=r"it refuses our certificate.*copriv admit"):
            attach(path, f"127.0.0.1:{learner.port}")


def test_a_visitor_without_a_certificate_gets_nothing(settings_file, tmp_path):
    folder = certs(tmp_path / "certs")
    ca = (folder / "owner-a" / "ca.pem").read_bytes()
    with listening(folder / "lab") as learner:
        address = f"127.0.0.1:{learner.port}"
        with pytest.raises(InputError, match="it asks for TLS and a certificate"):
            attach(settings_file("owner-a", None), address)
        with grpc.secure_channel(address, grpc.ssl_channel_credentials(ca)) as channel:
            stub = methods("Learner", channel)
            hello = pb.OwnerMessage(hello=pb.Hello(name="owner-a"))
            with pytest.raises(grpc.RpcError) as refusal:
                next(stub.Attach(iter([hello]), timeout=5))
            assert refusal.value.code() is grpc.StatusCode.UNAVAILABLE
        assert not learner.anybody(lambda owner: True)


def test_an_owner_that_resumes_a_session_whose_certificate_has_expired_is_turned_away(
    tmp_path, monkeypatch
):
    folder = certs(tmp_path / "certs")
    options = (
        ("grpc.ssl_session_cache", ssl_session_cache_lru(1)),
        ("grpc.use_local_subchannel_pool", 1),
    )

    def attach_twice(port):
        """As whom nobody is: the second stream's session is the first one's, resumed."""
        for _ in range(2):
            with open_channel(f"localhost:{port}", unchecked(folder / "owner-a"), options) as line:
                hello = pb.OwnerMessage(hello=pb.Hello(name="owner-b"))
                with pytest.raises(grpc.RpcError) as refusal:
                    next(methods("Learner", line).Attach(iter([hello]), timeout=5))
        return refusal.value.details()

    with listening(folder / "lab") as learner:
        assert "the certificate is owner-a's" in attach_twice(learner.port)
        soon = datetime.now(UTC) + timedelta(days=91)
        monkeypatch.setattr(common.channels, "datetime", Mock(now=lambda _: soon))
        assert "names no such owner" in attach_twice(learner.port)


def test_an_owner_with_tls_does_not_talk_to_a_learner_in_plain_text(settings_file, tmp_path):
    folder = certs(tmp_path / "certs")
    with listening(None) as learner, pytest.raises(InputError, match="it does not speak TLS"):
        attach(settings_file("owner-a", folder / "owner-a"), f"127.0.0.1:{learner.port}")


def test_an_owner_cannot_play_the_learner_nor_question_another_owner(
    settings_file, serve_owner, tmp_path
):
    folder = certs(tmp_path / "certs")
    with (
        listening(folder / "server") as learner,
        pytest.raises(InputError, match="was not made for a learner that listens"),
    ):
        attach(settings_file("owner-a", folder / "owner-a"), f"127.0.0.1:{learner.port}")
    running = serve_owner(settings_file("server", folder / "server"))
    address = f"127.0.0.1:{running.port}"
    for name, sentence in (("owner-a", "answers learners only"), ("server", "refuses our cert")):
        curious = GrpcOwner("server", address, deadline=5, identity=unchecked(folder / name))
        with pytest.raises((PolicyError, UntrustedError), match=sentence):
            curious.describe()
        curious.disconnect()


def test_off_loopback_plain_text_must_be_typed_on_both_sides(settings_file, feature_map, tmp_path):
    sentence = r"leaves this machine without TLS.*--insecure"
    with pytest.raises(InputError, match=f"attach.learner.*{sentence}"):
        attach(settings_file("owner-a", None), "lab.example:50060")
    settings = study(network={"listen": "0.0.0.0:0"})
    with (
        pytest.raises(InputError, match=f"network.listen.*{sentence}"),
        remote_owners(settings, feature_map, base=tmp_path),
    ):
        pass


def test_a_learner_that_was_there_may_mend_its_certificate(
    settings_file, make_terms, tmp_path, monkeypatch
):
    ours, theirs = certs(tmp_path / "ours"), certs(tmp_path / "theirs")
    path = settings_file("owner-a", ours / "owner-a")
    complained = threading.Event()

    def warn(_, sentence, **__):
        if "not of our CA" in sentence:
            complained.set()

    monkeypatch.setattr(SlowLog, "say", warn)

    def start(folder, address):
        return AttachmentServer(
            NAMES, address, deadline=60, patience=60, identity=unchecked(folder)
        )

    first = start(ours / "lab", "127.0.0.1:0")
    address = f"127.0.0.1:{first.port}"
    with attached([path], address) as failures:
        with first:
            first.owners[0].enroll(make_terms())
        with start(theirs / "lab", address):
            assert complained.wait(60)
        with start(ours / "lab", address) as last:
            last.owners[0].enroll(make_terms())
            last.owners[0].disconnect(over=True)
    assert not failures


def test_an_owner_that_waits_for_its_first_learner_outlasts_half_of_a_renewal(
    settings_file, make_terms, tmp_path, monkeypatch
):
    """It ended with a status after which no unit starts it again."""
    folder, address = certs(tmp_path / "certs"), free_address()
    key = folder / "owner-a" / "key.pem"
    good, waits, complained = key.read_bytes(), threading.Event(), threading.Event()
    said = []

    def warn(_, sentence, **__):
        (waits if sentence.startswith("no line to the learner at") else complained).set()
        said.append(sentence)

    monkeypatch.setattr(SlowLog, "say", warn)
    with attached([settings_file("owner-a", folder / "owner-a")], address) as failures:
        assert waits.wait(30)
        key.write_bytes((folder / "owner-b" / "key.pem").read_bytes())
        wait_until(lambda: complained.is_set() or failures)
        key.write_bytes(good)
        if not failures:
            ours = load_identity(tls_of(folder / "lab"), base=Path("/"), side="server")
            with AttachmentServer(
                NAMES, address, deadline=60, patience=60, identity=ours
            ) as learner:
                learner.owners[0].enroll(make_terms())
                learner.owners[0].disconnect(over=True)
    assert not failures
    assert said[1].startswith(f"tls.key: {key} is not the key of")
    assert said[1].endswith("; trying again until that is mended")


def test_copriv_certs_knows_owners_that_attach(tmp_path, typed):
    path, out = tmp_path / "study.toml", tmp_path / "certs"
    table = study().model_dump(mode="json", exclude_unset=True)
    path.write_text(tomli_w.dumps(table))
    command = ("copriv", "certs", path, "--out", out)
    nobody = typed(*command)
    assert nobody.returncode == 2
    assert "owner-a has no host, so it goes to the learner" in nobody.stderr
    assert not out.exists()
    made = typed(*command, "--learner", "lab=lab.example,::1")
    assert made.returncode == 0, made.stderr
    assert made.stdout.count("attach") == 3
    assert "listen, ask" in made.stdout
    load_identity(tls_of(out / "lab"), base=Path("/"), side="server")
    for name in NAMES:
        load_identity(tls_of(out / name), base=Path("/"), side="client")
        with pytest.raises(InputError, match="was made to call, not to be called"):
            load_identity(tls_of(out / name), base=Path("/"), side="server")
