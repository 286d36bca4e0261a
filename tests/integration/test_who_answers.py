"""An owner answers under the study's name for it only if it is that owner."""

import pytest
import tomli_w
from identities import tls_of, tls_table

from common.errors import InputError
from common.tls import load_identity
from learner.network.certificates import Party, make_certificates
from learner.network.grpc_owner import GrpcOwner
from owner.ledger_reading import read_studies

NAMES = ("owner-a", "owner-b")


@pytest.fixture
def certs(tmp_path):
    parties = [Party(name=name, role="owner", hosts=("127.0.0.1",)) for name in NAMES]
    learner = Party(name="lab", role="learner")
    out = tmp_path / "certs"
    make_certificates(out, [*parties, learner], study="t", days=90, ca_days=100, renew=False)
    return out


@pytest.fixture
def serve(owner_folder, serve_owner):
    """Starts an owner, with the certificate of a folder or in plain text."""

    def start(name, certificate=None):
        also = {} if certificate is None else {"tls": tls_table(certificate)}
        return serve_owner(owner_folder(name, also=also))

    return start


def nothing_enrolled(folder):
    return all(not read_studies(folder / name / "ledger.sqlite")[1] for name in NAMES)


@pytest.mark.parametrize("encrypted", [True, False])
def test_swapped_addresses_are_refused_before_anything_is_enrolled(
    certs, serve, make_terms, tmp_path, encrypted
):
    running = {name: serve(name, certs / name if encrypted else None) for name in NAMES}
    who = load_identity(tls_of(certs / "lab"), base=tmp_path, side="client")
    swapped = dict(zip(NAMES, reversed(running.values()), strict=True))
    for name, one in swapped.items():
        owner = GrpcOwner(
            name, f"127.0.0.1:{one.port}", deadline=5, identity=who if encrypted else None
        )
        # A run that is resumed enrols without asking for a description first.
        with pytest.raises(InputError, match="address"):
            owner.enroll(make_terms())
        owner.disconnect()
    assert nothing_enrolled(tmp_path)


def test_a_run_over_swapped_addresses_ends_in_a_sentence(certs, serve, typed, tmp_path):
    running = {name: serve(name, certs / name) for name in NAMES}
    study = {
        "name": "spring",
        "profile": "published",
        "features": {"map": str(tmp_path / "owner-a" / "features.json")},
        "model": {"theta_max": 2.0},
        "algorithm": {"horizon": 6, "rho": 1e-3},
        "privacy": {"epsilon": 1},
        "network": {"deadline": 5, "patience": 5},
        "tls": tls_table(certs / "lab"),
        "owners": [
            {"name": name, "address": f"127.0.0.1:{one.port}"}
            for name, one in zip(NAMES, reversed(running.values()), strict=True)
        ],
    }
    path, run = tmp_path / "study.toml", tmp_path / "run"
    path.write_text(tomli_w.dumps(study))
    said = typed("copriv", "train", path, "--out", run)
    assert said.returncode == 2
    assert "owner owner-a at 127.0.0.1:" in said.stderr
    assert "the certificate there is that of 'owner-b'" in said.stderr
    # So is one that was begun and is resumed at other addresses.
    right = list(reversed(study["owners"]))
    names = [{"name": name, "address": o["address"]} for name, o in zip(NAMES, right, strict=True)]
    path.write_text(tomli_w.dumps(study | {"owners": names}))
    assert nothing_enrolled(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("learner.training.study.run", _stops)
        assert typed("copriv", "train", path, "--resume", run).returncode == 2
    path.write_text(tomli_w.dumps(study))
    resumed = typed("copriv", "train", path, "--resume", run)
    assert resumed.returncode == 2
    assert "the certificate there is that of 'owner-b'" in resumed.stderr


def _stops(*_, **__):
    raise InputError("stopped after the enrolment")


def test_an_owner_does_not_start_with_another_owners_certificate(certs, owner_folder, serve, typed):
    with pytest.raises(InputError, match="is that of 'owner-b', and this owner's name is"):
        serve("owner-a", certs / "owner-b")
    path = owner_folder("owner-b", also={"tls": tls_table(certs / "owner-b")})
    checked = typed("copriv-owner", "check", path)
    assert checked.returncode == 0, checked.stderr
    assert "certificate of owner-b, 89 days left" in checked.stdout
    path = owner_folder("owner-b", also={"tls": tls_table(certs / "owner-a")})
    checked = typed("copriv-owner", "check", path)
    assert checked.returncode == 2
    assert "is that of 'owner-a'" in checked.stderr
