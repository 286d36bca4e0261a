"""``copriv check`` finds each fault of a site before anything is spent."""

import os
import socket
import threading
import time
from contextlib import ExitStack
from datetime import timedelta
from types import SimpleNamespace

import pytest
import tomli_w
from identities import tls_table

import learner.network.certificates
from common.features import FeatureMap
from learner.network.certificates import Party, make_certificates
from owner.attaching import open_attachment
from owner.ledger_reading import read_studies
from owner.server import start_owner

NAMES = ("owner-a", "owner-b")
LOOPBACK = ("127.0.0.1",)
# It means nothing here: only a proxy reaches it.
FAR = "site.example"


def make_certs(out, *, hosts=(*LOOPBACK, FAR), days=90):
    parties = [Party(name=name, role="owner", hosts=hosts) for name in NAMES]
    learner = Party(name="lab", role="learner")
    make_certificates(out, [*parties, learner], study="t", days=days, ca_days=100, renew=days < 0)
    return out


def write_owner(folder, name, table, feature_map, **changes):
    folder.mkdir(parents=True, exist_ok=True)
    table.to_parquet(folder / "shard.parquet")
    (folder / "features.json").write_text(feature_map.to_json())
    settings = {
        "name": name,
        "data": {"path": "shard.parquet", "columns": list(feature_map.columns_needed)},
        "policy": {"epsilon_per_study": "2", "epsilon_lifetime": "3"},
    }
    path = folder / "owner.toml"
    path.write_text(tomli_w.dumps(settings | changes))
    return path


@pytest.fixture(scope="module")
def site(tmp_path_factory, feature_map, table_maker):
    """Two sound owners over mutual TLS, and what other owners are made of."""
    folder = tmp_path_factory.mktemp("sites")
    certs = make_certs(folder / "certs")
    table = table_maker(200, seed=3)
    with ExitStack() as stack:

        def serve(where, name, certificate, **changes):
            its, tls = changes.pop("table", table), tls_table(certificate)
            path = write_owner(folder / where, name, its, feature_map, tls=tls, **changes)
            running = start_owner(path, listen=None, insecure_noise_seed=None)
            stack.callback(running.drain, grace=0)
            return running

        sound = {name: serve(name, name, certs / name).port for name in NAMES}
        map_file = folder / "owner-a" / "features.json"
        yield SimpleNamespace(
            folder=folder, certs=certs, serve=serve, sound=sound, map=map_file, table=table
        )


def write_study(folder, site, *ports, **changes):
    """A study whose owners are at these ports."""
    study = {
        "name": "spring",
        "profile": "published",
        "features": {"map": str(site.map)},
        "model": {"theta_max": 2.0},
        "algorithm": {"horizon": 6, "rho": 1e-3},
        "privacy": {"epsilon": 1},
        "network": {"deadline": 5, "patience": 1},
        "tls": tls_table(site.certs / "lab"),
        "owners": [
            {"name": name, "address": f"127.0.0.1:{at}"}
            for name, at in zip(NAMES, ports, strict=True)
        ],
    }
    path = folder / "study.toml"
    path.write_text(tomli_w.dumps(study | changes))
    return path


@pytest.fixture
def check(site, typed, tmp_path):
    """``copriv check`` of a study whose first owner is at this port, and the second is sound."""

    def run(port, *options, second=None, **changes):
        path = write_study(tmp_path, site, port, second or site.sound["owner-b"], **changes)
        said = typed("copriv", "check", path, *options)
        on_one_line = " ".join(said.stdout.split())
        return SimpleNamespace(status=said.returncode, out=on_one_line, err=said.stderr)

    return run


def fails(said, rule, *words, site="owner-a"):
    """This rule fails at this site, with these words, and no other fails anywhere."""
    assert said.status == 2, said
    assert f"{site}: {rule} FAILS:" in said.out, said.out
    assert said.out.count(" FAILS: ") == 1, said.out
    assert "1 rule fails at 1 of 2 sites; nothing was spent" in said.err
    for word in words:
        assert word in said.out


def test_sound_sites_pass_and_nothing_is_spent(check, site):
    said = check(site.sound["owner-a"], "--all")
    assert said.status == 0, said
    assert "nothing fails; nothing was spent" in said.out
    # What both share is one sentence.
    for words in (
        *("certificate passes: of our CA, 89 days left", "clock passes: within 1 s of ours"),
        *("budget passes: 1 asked, 3 left", "columns passes: it has all"),
        "records is not checked: units, categories and gaps",
    ):
        assert said.out.count(f"owner-a, owner-b: {words}") == said.out.count(words) == 1, words
    for name in NAMES:
        assert said.out.count(f"{name}: reached passes: at 127.0.0.1:{site.sound[name]}") == 1
    for name in NAMES:
        assert read_studies(site.folder / name / "ledger.sqlite")[1] == []


def test_an_officers_declaration_is_told_and_nothing_else(check, site):
    folder = site.folder / "declared"
    folder.mkdir()
    digest = FeatureMap.from_json(site.map.read_text()).digest
    running = site.serve("declared", "owner-a", site.certs / "owner-a")
    assert "owner-a, owner-b: records is not checked" in check(running.port, "--all").out
    # The officer declares while the owner serves.
    (folder / "owner-a.declared").write_text(digest + "\n")
    said = check(running.port, "--all")
    assert said.status == 0
    assert "owner-a: records passes: its officer declares to have looked" in said.out
    assert "owner-b: records is not checked" in said.out
    # What cannot be read any more declares nothing, and stops nobody.
    (folder / "owner-a.declared").unlink()
    os.mkfifo(folder / "owner-a.declared")
    said = check(running.port, "--all")
    assert said.status == 0
    assert "owner-a, owner-b: records is not checked" in said.out


def test_a_wrong_ca_is_found(check, site):
    other = make_certs(site.folder / "other-certs")
    port = site.serve("other-ca", "owner-a", other / "owner-a").port
    fails(
        check(port), "certificate", "not of our CA, so this may be anybody", "made for this study"
    )


def test_an_expired_certificate_is_found(check, site, monkeypatch):
    old = site.folder / "old-certs"
    (old / "ca").mkdir(parents=True)
    for path in (site.certs / "ca").iterdir():
        (old / "ca" / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(learner.network.certificates, "CLOCK_SKEW", timedelta(days=9))
    make_certs(old, days=-1)
    # One that expires while it serves.
    monkeypatch.setattr("common.tls._check", lambda *_: None)
    port = site.serve("expired", "owner-a", old / "owner-a").port
    fails(check(port), "certificate", "expired on 2", "copriv admit", "copriv certs --renew")


def test_a_certificate_for_another_host_is_found(check, site):
    elsewhere = site.folder / "elsewhere"
    (elsewhere / "ca").mkdir(parents=True)
    for path in (site.certs / "ca").iterdir():
        (elsewhere / "ca" / path.name).write_bytes(path.read_bytes())
    make_certs(elsewhere, hosts=("bank.example",))
    port = site.serve("elsewhere-owner", "owner-a", elsewhere / "owner-a").port
    fails(check(port), "certificate", "is for bank.example, not for 127.0.0.1")


def test_swapped_addresses_are_found(check, site):
    said = check(site.sound["owner-b"], second=site.sound["owner-a"])
    assert said.status == 2
    for name, other in (NAMES, NAMES[::-1]):
        assert f"{name}: name FAILS: the certificate there is that of '{other}'" in said.out


def test_a_missing_column_is_found(check, site):
    columns = {"data": {"path": "shard.parquet", "columns": ["column-0", "column-2", "y"]}}
    port = site.serve("missing", "owner-a", site.certs / "owner-a", **columns).port
    fails(check(port), "columns", "it names no column 'column-1'", "adds or maps")


def test_a_budget_too_small_is_found(check, site):
    said = check(site.sound["owner-a"], privacy={"epsilon": "2.5"})
    assert said.status == 2
    assert (
        "owner-a, owner-b: budget FAILS: the study asks for epsilon 2.5, but it spends at most 2"
        in said.out
    )
    policy = {"policy": {"epsilon_per_study": "2", "epsilon_lifetime": "1/3"}}
    port = site.serve("poor", "owner-a", site.certs / "owner-a", **policy).port
    said = check(port)
    fails(said, "budget", "asks for epsilon 1, but 1/3 of its lifetime budget is left")
    assert "is left; ask it for less (epsilon in its [[owners]]), or ask its officer" in said.out
    # Here everything is spent on nothing that could be closed: nobody is told that it would help.
    assert "closing a study frees only what it has not spent" in said.out


def test_a_run_that_one_owner_would_refuse_enrols_nobody(site, typed, tmp_path):
    policy = {"policy": {"epsilon_per_study": "1/2", "epsilon_lifetime": "3"}}
    port = site.serve("frugal", "owner-b", site.certs / "owner-b", **policy).port
    path = write_study(tmp_path, site, site.sound["owner-a"], port)
    said = typed("copriv", "train", path, "--out", tmp_path / "run")
    assert said.returncode == 3
    assert (
        "owner owner-b: budget: the study asks for epsilon 1, but it spends at most" in said.stderr
    )
    assert "no owner was enrolled" in said.stderr
    assert not (tmp_path / "run").exists()
    for name in ("owner-a", "frugal"):
        assert read_studies(site.folder / name / "ledger.sqlite")[1] == []


@pytest.mark.parametrize("version", ["", "0.0.9"])
def test_another_version_is_found(check, site, monkeypatch, version):
    monkeypatch.setattr("owner.answering.PROGRAM_VERSION", version)
    said = check(site.sound["owner-a"])
    told = f"it runs version {version}" if version else "a version too old to say which"
    assert "owner-a, owner-b: version FAILS: it runs" in said.out
    assert told in said.out
    assert said.status == 2
    assert "1 rule fails at 2 of 2 sites" in said.err


@pytest.mark.parametrize(("hours", "way"), [(1, "ahead of"), (-1, "behind")])
def test_a_clock_off_by_an_hour_is_found(check, site, monkeypatch, hours, way):
    shifted = SimpleNamespace(
        time_ns=lambda: time.time_ns() + hours * 3600 * 10**9, sleep=time.sleep
    )
    monkeypatch.setattr("owner.answering.time", shifted)
    said = check(site.sound["owner-a"])
    assert said.status == 2
    assert f"owner-a, owner-b: clock FAILS: its clock is 60 minutes {way} ours" in said.out


def test_a_closed_port_is_found(check):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    said = check(port)
    fails(said, "reached", "nothing listens there; start it, or check its address")
    # All else there is unknown, and needs no line of its own.
    assert said.out.count("owner-a: ") == 1


def far_owners(site):
    return [{"name": name, "address": f"{FAR}:{site.sound[name]}"} for name in NAMES]


def test_a_proxy_in_between_is_found(check, site, proxied):
    with proxied(refuses=True) as proxy:
        said = check(0, owners=far_owners(site))
    assert said.status == 2
    told = f"the proxy {proxy.address} of https_proxy does not connect to {FAR}:"
    assert f"owner-a: reached FAILS: owner owner-a at {FAR}:{site.sound['owner-a']}" in said.out
    assert told in said.out
    assert "(it says: HTTP/1.1 403 not [2Jhere)" in said.out


def test_a_proxy_that_connects_is_gone_through(check, site, proxied):
    with proxied() as proxy:
        said = check(0, owners=far_owners(site))
    assert said.status == 0, said
    assert len(proxy.asked_for) >= 4


def test_no_proxy_is_asked_for_what_stays_on_this_machine(check, site, proxied):
    with proxied(refuses=True) as proxy:
        said = check(site.sound["owner-a"])
    assert said.status == 0, said
    assert not [target for target in proxy.asked_for if str(site.sound["owner-a"]) in target]


def test_sites_that_come_to_the_learner_are_checked_on_the_line_they_open(check, site, feature_map):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    make_certificates(
        site.folder / "lines",
        [Party(name="owner-a", role="owner"), Party(name="lab", role="learner", hosts=LOOPBACK)],
        study="t",
        days=90,
        ca_days=100,
        renew=False,
    )
    tls = tls_table(site.folder / "lines" / "owner-a")
    path = write_owner(site.folder / "comes", "owner-a", site.table, feature_map, tls=tls)
    attachment = open_attachment(
        path,
        learner=f"127.0.0.1:{port}",
        stay=True,
        insecure=False,
        insecure_noise_seed=None,
    )
    stop = threading.Event()
    coming = threading.Thread(target=attachment.run, args=(stop,))
    coming.start()
    said = check(
        1,
        "--all",
        algorithm={"horizon": 6, "rho": 1e-3, "initiative": "owner"},
        network={"deadline": 5, "patience": 4, "listen": f"127.0.0.1:{port}"},
        tls=tls_table(site.folder / "lines" / "lab"),
    )
    # It was not told that the study is over: it comes back for it.
    assert coming.is_alive()
    stop.set()
    coming.join()
    fails(said, "reached", "owner owner-b is not attached", site="owner-b")
    assert "waiting for owner-a, owner-b to come, at most 4 s (network.patience)" in said.out
    # It says who has not come yet.
    told = [line.split("waiting for ")[1] for line in said.err.splitlines() if "waiting" in line]
    assert told[-1].split(";")[0] == "owner-b"
    assert "owner-a: certificate passes: of our CA" in said.out
    assert "owner-a: budget passes: 1 asked, 3 left" in said.out
