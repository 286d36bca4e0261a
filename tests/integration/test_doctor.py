"""``doctor`` finds what is wrong on one's own machine, asks nobody and leaves no trace."""

import shutil
import socket
from types import SimpleNamespace

import pytest
import tomli_w
from identities import tls_table

import common.machine
from common.config import load_settings
from common.proxies import EXCEPTIONS, PROXIES
from learner.network.certificates import Party, make_certificates
from owner.ledger import Ledger
from owner.loading import load_records
from owner.policy import OwnerSettings

PARTIES = (
    Party(name="owner-a", role="owner", hosts=("127.0.0.1",)),
    Party(name="owner-b", role="owner", hosts=("127.0.0.1",)),
    Party(name="lab", role="learner"),
)


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certs")
    make_certificates(folder, PARTIES, study="t", days=90, ca_days=100, renew=False)
    return folder


@pytest.fixture
def doctor(typed, tmp_path, monkeypatch):
    """What doctor says on one line, after which every file is what and where it was."""
    monkeypatch.chdir(tmp_path)
    for name in (*PROXIES, *EXCEPTIONS):
        monkeypatch.delenv(name, raising=False)

    def files():
        # SQLite leaves its own two beside any ledger that is read: an index, and an empty log.
        found = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        return {
            path: content
            for path, content in found.items()
            if not path.name.endswith("-shm") and (content or not path.name.endswith("-wal"))
        }

    def run(name, *arguments):
        before = files()
        said = typed(name, "doctor", *arguments)
        assert files() == before
        out = " ".join(said.stdout.split())
        return SimpleNamespace(status=said.returncode, out=out, err=said.stderr)

    return run


def fails(said, *words):
    """Exactly one rule fails, and this is said of it."""
    assert said.status == 2, said
    assert said.out.count(" FAILS ") == 1, said.out
    assert "nothing was spent or written" in said.err
    for word in words:
        assert word in said.out


def with_setting(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return path


def test_a_sound_owner_passes_and_the_certificate_is_told(doctor, owner_folder, certs):
    path = owner_folder(also={"tls": tls_table(certs / "owner-a")})
    said = doctor("copriv-owner", path)
    assert said.status == 0, said
    assert "certificate of owner-a, 89 days left" in said.out
    assert "200 records, and every column fits the feature map" in said.out
    assert "mode 600" in said.out
    assert "ledger.sqlite: made at the first start" in said.out


@pytest.mark.parametrize(("left", "state"), [(2**30, "pass"), (400 * 2**20, "not checked")])
def test_a_table_that_is_not_held_passes_only_where_memory_is_left_to_read_it(
    doctor, owner_folder, monkeypatch, left, state
):
    monkeypatch.setattr(common.machine, "available_bytes", lambda: left)
    said = doctor("copriv-owner", with_setting(owner_folder(), "[data]", "[data]\ncache = true"))
    assert said.status == 0, said
    assert f"memory {state} records stay where they are" in said.out
    assert ("400 MiB are left, and only 1,024 are surely enough" in said.out) == (left < 2**30)


def test_a_ca_that_ends_before_the_certificate_is_told_of(doctor, owner_folder, tmp_path):
    """Whoever renews the certificate alone is let in no longer than its CA lasts."""
    party = Party(name="owner-a", role="owner", hosts=("127.0.0.1",))
    certs = tmp_path / "certs"
    make_certificates(certs, [party], study="s", days=90, ca_days=10, renew=False)
    path = owner_folder(also={"tls": tls_table(certs / "owner-a")})
    said = doctor("copriv-owner", path)
    assert said.status == 0, said
    assert "owner-a, 89 days left, but its CA ends before it: 9 days left" in " ".join(
        said.out.split()
    )


def test_a_certificate_of_another_and_a_key_for_all_are_found(doctor, owner_folder, certs):
    path = owner_folder(also={"tls": tls_table(certs / "owner-b")})
    fails(doctor("copriv-owner", path), "is that of 'owner-b'")
    key = certs / "owner-b" / "key.pem"
    key.chmod(0o644)
    try:
        said = doctor("copriv-owner", path)
    finally:
        key.chmod(0o600)
    assert "others can read it (mode 644); chmod 600 it" in said.out


def test_a_ca_that_everybody_could_add_to_is_found(doctor, owner_folder, certs, tmp_path):
    """Whoever writes it lets in a certificate of his own, under any learner's name."""
    own = tmp_path / "ca.pem"
    shutil.copy(certs / "owner-a" / "ca.pem", own)
    path = owner_folder(also={"tls": tls_table(certs / "owner-a") | {"ca": str(own)}})
    own.chmod(0o664)
    assert "ca's mode" not in doctor("copriv-owner", path).out
    own.chmod(0o666)
    fails(doctor("copriv-owner", path), f"{own}: others can write it (mode 666); chmod o-w it")


def test_a_databases_address_that_others_can_read_is_found(doctor, owner_folder):
    query = {"database": "file:address", "query": "select 1"}
    path = owner_folder(also={"data": query})
    fails(doctor("copriv-owner", path), "address FAILS database = 'file:address': the file cannot")
    address = path.parent / "address"
    address.write_text("postgresql://u:p@h/d")
    address.chmod(0o640)
    fails(doctor("copriv-owner", path), "address: others can read it (mode 640); chmod 600 it")
    address.chmod(0o600)
    said = doctor("copriv-owner", path)
    assert said.status == 0, said
    assert "address pass the database of file:address is named" in said.out


def test_every_fault_of_the_settings_is_told(doctor, owner_folder):
    path = with_setting(owner_folder(epsilon_per_studie=1), 'name = "', 'nam = "')
    said = doctor("copriv-owner", path)
    fails(said, "nam ", "epsilon_per_studie", "all else not checked")


def test_a_port_that_is_taken_is_found(doctor, owner_folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        path = with_setting(owner_folder(), "127.0.0.1:0", f"127.0.0.1:{port}")
        fails(doctor("copriv-owner", path), f"127.0.0.1:{port} is taken; stop what listens there")
    assert doctor("copriv-owner", path).status == 0


def test_an_owner_that_serves_already_is_told_as_such(doctor, owner_folder, serve_owner):
    path = owner_folder()
    running = serve_owner(path)
    with_setting(path, "127.0.0.1:0", f"127.0.0.1:{running.port}")
    said = doctor("copriv-owner", path)
    assert said.status == 0, said.out
    assert f"127.0.0.1:{running.port} is taken: this owner serves already" in said.out
    # Another that has served, and does not now.
    other = with_setting(owner_folder("owner-b"), "127.0.0.1:0", f"127.0.0.1:{running.port}")
    lock = load_settings(OwnerSettings, other).ledger.path
    (other.parent / f"{lock}.lock").touch()
    fails(doctor("copriv-owner", other), f"{running.port} is taken; stop what listens there")


def test_plain_text_to_others_is_found(doctor, owner_folder):
    path = with_setting(owner_folder(), "127.0.0.1:0", "0.0.0.0:0")
    fails(doctor("copriv-owner", path), "leaves this machine without TLS; give [tls]")


def test_a_unit_that_is_another_is_found(doctor, owner_folder, table_maker):
    table = table_maker(200, seed=1)
    table["column-0"] = table["column-0"] * 365
    path = owner_folder(table=table)
    fails(doctor("copriv-owner", path), "column 'column-0'", "are beyond the public bounds")
    assert doctor("copriv-owner", path, "--accept", "column-0").status == 0


def test_a_ledger_in_no_folder_is_found_as_when_it_is_served(doctor, owner_folder):
    path = with_setting(owner_folder(), "ledger.sqlite", "gone/ledger.sqlite")
    fails(doctor("copriv-owner", path), "ledger's disk FAILS", "its folder is not there; mount")


def test_a_disk_that_keeps_its_locks_to_this_machine_is_found(doctor, owner_folder, mounted):
    path = owner_folder()
    mounted("nfs", "rw,nolock")
    said = doctor("copriv-owner", path)
    fails(said, "ledger's locks FAILS", "its disk (nfs, nolock) hides", "one budget is spent twice")


def test_a_ledger_of_links_in_a_circle_is_found(doctor, owner_folder):
    path = owner_folder()
    (path.parent / "ledger.sqlite").symlink_to("ledger.sqlite")
    fails(doctor("copriv-owner", path), "ledger FAILS", "lead in a circle")


def test_shards_in_a_folder_of_others_are_found_as_when_they_are_served(doctor, owner_folder):
    path = with_setting(owner_folder(), "[data]", "[data]\ncache = true")
    folder = path.parent / "ledger.sqlite.shards"
    folder.mkdir(mode=0o755)
    fails(doctor("copriv-owner", path), "shards FAILS", f"{folder}: shards are", "chmod 700 it")
    folder.chmod(0o700)
    assert "shards pass kept in" in doctor("copriv-owner", path).out
    folder.rmdir()
    assert "shards pass kept in" in doctor("copriv-owner", path).out
    assert not folder.exists()
    # Of a disk that is not mounted one finding tells, and nobody need chmod what is not there.
    with_setting(path, "ledger.sqlite", "away/ledger.sqlite")
    fails(doctor("copriv-owner", path), "ledger's disk FAILS", "its folder is not there")


def test_a_link_is_looked_at_where_it_leads(doctor, owner_folder, serve_owner, tmp_path):
    """Before, the disk was that of the link, and a ledger of none was made at the first start."""
    path = owner_folder()
    link, disk = path.parent / "ledger.sqlite", tmp_path / "disk"
    link.symlink_to(disk / "real.sqlite")
    fails(doctor("copriv-owner", path), "ledger's disk FAILS", "its folder is not there; mount")
    disk.mkdir()
    running = serve_owner(path)
    with_setting(path, "127.0.0.1:0", f"127.0.0.1:{running.port}")
    assert f"{running.port} is taken: this owner serves already" in doctor("copriv-owner", path).out


def test_a_damaged_ledger_is_found(doctor, owner_folder):
    path = owner_folder()
    ledger = path.parent / "ledger.sqlite"
    records = load_records(load_settings(OwnerSettings, path), base=path.parent, pinned=None)
    Ledger(ledger, owner="owner-a", fingerprint=records.fingerprint).close()
    said = doctor("copriv-owner", path)
    assert said.status == 0, said
    assert "ledger.sqlite: sound;" in said.out
    ledger.write_bytes(b"no database" * 100)
    fails(doctor("copriv-owner", path), "ledger FAILS")


def test_a_ledger_of_other_records_is_found(doctor, owner_folder):
    path = owner_folder()
    Ledger(path.parent / "ledger.sqlite", owner="owner-a", fingerprint="f").close()
    said = doctor("copriv-owner", path)
    assert "ledger.sqlite: sound;" in said.out
    fails(said, "records FAILS", "(it was begun for the owner owner-a);")


def write_study(folder, feature_map, **changes):
    (folder / "features.json").write_text(feature_map.to_json())
    study = {
        "name": "spring",
        "profile": "published",
        "features": {"map": "features.json"},
        "model": {"theta_max": 2.0},
        "algorithm": {"horizon": 6, "rho": 1e-3},
        "privacy": {"epsilon": 1},
        "owners": [{"name": "owner-a", "address": "127.0.0.1:1"}],
    }
    path = folder / "study.toml"
    path.write_text(tomli_w.dumps(study | changes))
    return path


def test_a_sound_study_passes_while_no_owner_is_up(doctor, tmp_path, feature_map, certs):
    path = write_study(tmp_path, feature_map, tls=tls_table(certs / "lab"))
    said = doctor("copriv", path)
    assert said.status == 0, said
    assert "certificate of lab, 89 days left" in said.out
    assert "no public records, a feature map of 4 features" in said.out


def test_a_study_that_cannot_run_here_is_told_why(doctor, tmp_path, feature_map, monkeypatch):
    path = write_study(tmp_path, feature_map)
    fails(doctor("copriv", path, "--set", "network.token=file:gone"), "the file cannot be read")
    fails(doctor("copriv", path, "--set", "features.map=gone.json"), "give a feature map's JSON")
    token = path.parent / "token"
    token.write_text("copriv_" + "a" * 43)
    token.chmod(0o644)
    said = doctor("copriv", path, "--set", "network.token=file:token")
    assert "token's mode FAILS" in said.out
    assert "token: others can read it (mode 644); chmod 600 it" in said.out
    fails(doctor("copriv", path, "--set", "privacy.epsylon=1"), "did you mean")
    monkeypatch.setenv("https_proxy", "http://name:secret@proxy.example:3128")
    said = doctor("copriv", path)
    assert "none is asked (https_proxy is set)" in said.out
    assert "secret" not in said.out
