"""copriv-owner check, audit and token, and private bounds, as people type them."""

import contextlib
import hashlib
import json
import os
import pty
import re
import shutil
import stat
import statistics
import subprocess
import sys
import tempfile
import tomllib
import warnings
from fractions import Fraction

import numpy as np
import pytest
import tomli_w
from click.testing import CliRunner
from forked import Ended, run
from ledgers import enroll, open_ledger
from maps import map_of
from rich.console import Console

import owner.audit
from common.config import check_settings
from common.errors import CoprivError
from common.features import FeatureMap
from common.losses import Squared
from common.releases import GRADIENT, curvature_scale, gradient_bound
from common.terms import Query
from common.texts import counted
from learner.network.connections import load_token
from learner.planning.settings import StudySettings
from learner.planning.split import ROUNDS
from owner.audit import audit, num_responses
from owner.audit_cases import CASES
from owner.checking import typical_answer
from owner.cli import cli
from owner.ledger import Ledger
from owner.ledger_reading import read_studies
from owner.mechanism import DrawnAhead, SecureNoise
from owner.server import start_owner
from owner.trial_study import ASSUMED_ROUNDS, leaves_algorithm


def owner_command(*arguments):
    """The command in this process, which is much quicker than one of its own."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    told = [str(warning.message) for warning in caught]
    if isinstance(result.exception, CoprivError):
        return Ended(result.exception.exit_status, result.stdout, str(result.exception))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Ended(result.exit_code, result.stdout, "\n".join(told) or result.stderr)


def refused(result, status):
    assert result.returncode == status, result
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    return result.stderr


@pytest.fixture
def study(tmp_path):
    def write(**privacy):
        table = {
            "model": {"loss": "squared", "theta_max": 2.0},
            "profile": "published",
            "algorithm": {"horizon": 10, "rho": 1},
            "privacy": {"epsilon": 1} | privacy,
            "owners": [{"name": "owner-a"}, {"name": "other", "epsilon": 9}],
        }
        path = tmp_path / "study.toml"
        path.write_text(tomli_w.dumps(table))
        return path

    return write


def test_check_tells_the_noise_that_an_enrolment_then_promises(
    owner_folder, study, make_terms, feature_map
):
    settings = owner_folder()
    checked = owner_command("check", settings, "--study", study())
    assert checked.returncode == 0, checked.stderr
    assert not (settings.parent / "ledger.sqlite").exists()
    told = float(re.findall(r"noise scale on each coordinate: (\S+)", checked.stdout)[0])
    running = start_owner(settings, listen=None, insecure_noise_seed=None)
    promised = running.owner.enroll(make_terms(), learner="anonymous").noise_scale
    running.drain(grace=0.1)
    assert told == pytest.approx(promised, rel=1e-5)
    typical = typical_answer(feature_map, make_terms(), records=None)
    ratio = float(re.findall(r"noise is (\S+) times a typical gradient", checked.stdout)[0])
    assert ratio == pytest.approx(4 * promised / typical, rel=0.01)
    for words in ("200 records", "promised epsilon 1", "confirms 1,", "nothing was charged"):
        assert words in checked.stdout
    again = owner_command("check", settings, "--epsilon", "1/3", "--clip", "0.5")
    assert "1 study, 9 of the lifetime epsilon 10 is left" in again.stdout
    assert "at most 0.5, by the clip" in again.stdout
    asked = ("check", settings, "--epsilon", "1", "--loss", "huber")
    huber = owner_command(*asked, "--delta", "0.001")
    assert "with huber loss" in huber.stdout
    exact = gradient_bound(make_terms(loss="huber", delta=0.001), feature_map.domain)
    assert f"at most {exact:.6g}, by the public bounds" in huber.stdout
    assert "huber loss needs delta" in refused(owner_command(*asked), 3)
    assert "epsilon 1/3" in again.stdout
    _, (entry,) = read_studies(settings.parent / "ledger.sqlite")
    assert (entry.account.answered, entry.epsilon) == (0, Fraction(1))


def test_check_says_where_each_number_is_from(owner_folder, tmp_path):
    """What the learner will choose is not assumed in silence."""
    settings, study = owner_folder(), tmp_path / "s.toml"
    base = 'owners = [{ name = "owner-a" }, { name = "b" }]\n[model]\ntheta_max = 2\n'
    study.write_text(f"{base}[privacy]\nepsilon = 1\n")
    told = owner_command("check", settings, "--study", study).stdout
    assert "the study leaves responses and clip to its learner's public records" in told
    assert "epsilon (of s.toml), theta_max (of s.toml)" in told
    # The number of responses is of no file: it was assumed.
    assert "responses (assumed: s.toml leaves it to its learner)" in told
    # One form for one quantity: what is promised, and what the noise library confirms.
    assert "would be promised epsilon 0.9" in told
    assert "the noise library confirms 0.9, " in told
    assert "9/10" not in told
    asked = ("--responses", "8", "--clip", "0.5")
    told = owner_command("check", settings, "--study", study, *asked).stdout
    assert "a study of 8 responses" in told
    assert "responses (as typed)" in told
    assert "leaves" not in told
    # A schedule promises an owner its own ticks, not the whole horizon.
    study.write_text(f"{base}[algorithm]\nhorizon = 16\n[privacy]\nepsilon = 1\nclip = 0.5\n")
    told = owner_command("check", settings, "--study", study).stdout
    assert "a study of 8 responses" in told
    assert "responses (about this owner's share of the schedule of s.toml)" in told
    assert "leaves its algorithm" not in told
    # Moments or Newton's steps have other noise than ticks, whatever is typed of responses.
    study.write_text(f'{base}[features]\npublic = {{ path = "p.csv" }}\n[privacy]\nepsilon = 1\n')
    told = owner_command("check", settings, "--study", study, *asked).stdout
    assert "the study leaves its algorithm to its learner's public records" in told
    assert "set algorithm.name in a copy of the study" in told
    told = owner_command("check", settings).stdout
    assert "responses (assumed: neither typed nor in a study), epsilon (all that" in told


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"profile": "published", "algorithm": {"horizon": 9, "rho": 1.0}},
        {"algorithm": {"name": "auto"}},
        {"algorithm": {"name": "moments"}},
        {"algorithm": {"time_scale": 0.5}},
        {"algorithm": {"horizon": 50}},
        {"privacy": {"epsilon": 1, "kappa": 2, "validation": "1/5"}},
        {"privacy": {"epsilon": 1, "clip": 2.0}},
        {"groups": [["owner-a", "b"]]},
        {"learner": {"own": "b", "shows_model": True}},
        {"owners": [{"name": "owner-a", "clock_rate": 2.0}, {"name": "b"}]},
        {"owners": [{"name": "owner-a", "clock_rate": 1.0}, {"name": "b"}]},
        {"features": {"map": "features.json"}},
    ],
)
def test_an_owner_knows_as_the_learner_whether_the_algorithm_is_left_open(changes):
    table = {
        "name": "s",
        "features": {"public": {"path": "p.csv"}, "target": "y"},
        "model": {"theta_max": 1.0},
        "privacy": {"epsilon": 1},
        "owners": [{"name": "owner-a"}, {"name": "b"}],
    } | changes
    settings = check_settings(StudySettings, table, where="s.toml")
    # Groups are asked by ticks alone, whose noise is told.
    is_open = settings.algorithm.name == "auto" and not settings.groups
    assert leaves_algorithm(table) == is_open


def test_the_rounds_that_an_owner_assumes_are_the_most_that_a_learner_chooses():
    assert max(ROUNDS) == ASSUMED_ROUNDS


def test_check_tells_the_noise_of_moments(owner_folder, make_terms, public_table, tmp_path):
    """A study that asks for moments gets one response for all that its training has."""
    settings = owner_folder()
    study = tmp_path / "moments.toml"
    study.write_text(tomli_w.dumps({"algorithm": {"name": "moments"}, "privacy": {"epsilon": 1}}))
    public_table.to_parquet(tmp_path / "public.parquet")
    told = []
    for options in ([], ["--public", tmp_path / "public.parquet"]):
        checked = owner_command("check", settings, "--study", study, *options)
        assert "a study of 1 response with release of second moments" in checked.stdout
        told.append(float(re.findall(r"typical moments, L1: (\S+)", checked.stdout)[0]))
    assert told[1] <= told[0] < 10 * told[1]
    scale = float(re.findall(r"noise scale on each coordinate: (\S+)", checked.stdout)[0])
    running = start_owner(settings, listen=None, insecure_noise_seed=None)
    terms = make_terms(release="moments", responses=1, theta_max=1.0, epsilon=Fraction(9, 10))
    promised = running.owner.enroll(terms, learner="anonymous").noise_scale
    running.drain(grace=0.1)
    assert scale == pytest.approx(promised, rel=1e-5)


def test_check_tells_the_noise_of_curvature_and_gradient(
    owner_folder, make_terms, feature_map, tmp_path
):
    """A study that asks for newton gets a response in each round, split as it says."""
    settings, study = owner_folder(), tmp_path / "newton.toml"
    running = start_owner(settings, listen=None, insecure_noise_seed=None)
    for said, share, rounds, options in (
        ({"curvature_share": 0.6, "rounds": 1}, 0.6, 1, ()),
        ({"curvature_share": "auto", "rounds": 2}, 0.3, 2, ()),
        # As many rounds as a learner may choose by itself.
        ({}, 0.3, max(ROUNDS), ()),
        ({"curvature_share": 0.6, "rounds": 1}, 0.25, 1, ("--curvature-share", "0.25")),
    ):
        table = {
            "algorithm": {"name": "newton"} | said,
            "model": {"theta_max": 2.0},
            "privacy": {"epsilon": 1, "clip": 1.5},
        }
        study.write_text(tomli_w.dumps(table))
        checked = owner_command("check", settings, "--study", study, *options)
        assert checked.returncode == 0, checked.stderr
        asked = (
            f"a study of {counted(rounds, 'response')} with squared loss, gradient and curvature"
        )
        assert asked in checked.stdout
        assert "gradient, L1: at most 1.5, by the clip" in checked.stdout
        assert f"; {share:g} of epsilon is for the curvature" in checked.stdout
        assert "0.1 of the epsilon 1 asked is kept to say once how good" in checked.stdout
        left = re.findall(r"leaves (.+) to its learner's", checked.stdout)
        open_ones = [("rounds", "responses"), ("curvature_share", "curvature-share")]
        expected = [words for key, words in open_ones if said.get(key, "auto") == "auto"]
        assert left == ([" and ".join(expected)] if expected else []), checked.stdout
        factor = curvature_scale(Squared(), feature_map.domain, bound=1.5, share=share)
        terms = make_terms(
            study_id=f"s-{share}-{len(said)}",
            release="newton",
            responses=rounds,
            clip=1.5,
            # A tenth of the 1 that is asked is kept for the finished model.
            epsilon=Fraction(9, 10),
            curvature_scale=factor,
        )
        scale = float(re.findall(r"noise scale on each coordinate: (\S+)", checked.stdout)[0])
        promised = running.owner.enroll(terms, learner="anonymous").noise_scale
        assert scale == pytest.approx(promised, rel=1e-5)
    running.drain(grace=0.1)
    study.write_text(tomli_w.dumps({"algorithm": {"name": "newton", "curvature_share": 1.0}}))
    assert "curvature_share: got 1.0" in refused(
        owner_command("check", settings, "--study", study), 2
    )
    kinked = owner_command(
        "check", settings, "--study", study, "--loss", "hinge", "--curvature-share", "0.5"
    )
    assert "newton needs a loss without kinks" in refused(kinked, 3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model = 3", "model: got 3, expected a table"),
        ('owners = ["x"]', "owners: expected a table"),
        ("[privacy]\nepsilon = [1, 2]", "epsilon: got [1, 2], expected a number"),
        ("[algorithm]\nhorizon = 0", "responses: got 0, expected a number greater than"),
        ("[algorithm]\nhorizon = -9", "responses: got -9, expected a number greater than"),
    ],
)
def test_check_explains_a_study_that_is_none(owner_folder, tmp_path, text, words):
    study = tmp_path / "wrong.toml"
    study.write_text(text)
    assert words in refused(owner_command("check", owner_folder(), "--study", study), 2)


def test_check_does_not_blame_the_study_for_what_was_typed(owner_folder, study):
    typed = ("check", owner_folder(), "--study", study(), "--loss", "square")
    told = refused(owner_command(*typed), 2)
    assert "options: loss: got 'square'" in told
    assert "study.toml" not in told


def test_check_measures_a_typical_gradient_on_public_records(
    owner_folder, public_table, feature_map, make_terms, tmp_path
):
    public_table.to_parquet(tmp_path / "public.parquet")
    checked = owner_command("check", owner_folder(), "--public", tmp_path / "public.parquet")
    told = float(re.findall(r"theta = 0, L1: (\S+) \(measured", checked.stdout)[0])
    records = feature_map.apply(public_table, where="test")
    exact = sum(
        abs(-2.0 * (records.features[:, j] * records.targets).mean())
        for j in range(feature_map.num_features)
    )
    assert told == pytest.approx(exact, rel=1e-4)
    # What the bounds alone say is an upper bound of the right size.
    assert exact <= typical_answer(feature_map, make_terms(), records=None) < 10 * exact


def test_check_refuses_curvatures_under_a_map_whose_features_are_all_0(
    owner_folder, feature_map, tmp_path
):
    nothing = feature_map.model_copy(
        update={"bounds": (0.0,) * len(feature_map.bounds), "intercept": False}
    )
    asked = tmp_path / "s.toml"
    asked.write_text(
        'owners = [{ name = "owner-a" }]\n[model]\ntheta_max = 2\n[privacy]\nepsilon = 1\n'
        '[algorithm]\nname = "newton"\n'
    )
    checked = owner_command("check", owner_folder(pinned=nothing), "--study", asked)
    assert "one record's gradient is bounded by 0, expected" in refused(checked, 3)


def test_check_says_what_noise_is_to_an_answer_of_nothing(
    owner_folder, public_table, feature_map, tmp_path
):
    path = tmp_path / "public.csv"
    known = {feature_map.target_name: feature_map.target.center}
    public_table.head(20).assign(**known).to_csv(path, index=False)
    checked = owner_command("check", owner_folder(), "--public", path)
    assert checked.returncode == 0, checked.stderr
    assert "L1: 0 (measured on public records)" in checked.stdout
    assert "is 0, so a response is noise alone" in checked.stdout


def test_check_refuses_what_an_enrolment_would_refuse(owner_folder):
    settings = owner_folder(epsilon_per_study="2", max_features=4, kappa=2)
    assert "at most 2 on one study" in refused(
        owner_command("check", settings, "--epsilon", "3"), 3
    )
    assert "kappa = 2" in refused(owner_command("check", settings, "--kappa", "1"), 3)
    assert "target" in refused(owner_command("check", settings, "--loss", "hinge"), 3)
    assert "responses" in refused(owner_command("check", settings, "--responses", "0"), 2)
    for name in ("responses", "kappa"):
        assert f"{name}: got" in refused(owner_command("check", settings, f"--{name}", 10**10), 2)
    assert "epsilon" in refused(owner_command("check", settings, "--epsilon", "much"), 2)
    assert "cannot be read" in refused(owner_command("check", settings, "--study", "absent"), 2)
    small = owner_folder(max_features=3)
    assert "at most 3" in refused(owner_command("check", small), 3)
    few = owner_folder(min_num_records=201)
    assert "fewer records" in refused(owner_command("check", few), 3)


def test_check_takes_no_other_map_than_the_owner_accepts(owner_folder, feature_map, tmp_path):
    """It looked at the owner's own in its place, and said nothing."""
    kept, other = tmp_path / "kept.json", tmp_path / "other.json"
    kept.write_text(feature_map.to_json())
    changed = json.loads(feature_map.to_json())
    changed["columns"][0]["fill"] += 0.125
    other.write_text(json.dumps(changed))
    settings = owner_folder()
    assert owner_command("check", settings, "--features", kept).returncode == 0
    told = refused(owner_command("check", settings, "--features", other), 2)
    assert "other.json: is another feature map than features.json, the only one" in told


def test_check_says_what_to_do_where_the_budget_is_spent(owner_folder, make_terms):
    settings = owner_folder(epsilon_per_study="1", epsilon_lifetime="1")
    running = start_owner(settings, listen=None, insecure_noise_seed=None)
    running.owner.enroll(make_terms(epsilon=Fraction(1)), learner="anonymous")
    running.drain(grace=0.1)
    done = owner_command("check", settings)
    said = refused(done, 3)
    assert "but 0 of the lifetime budget is left; close studies that are over, which frees" in said
    assert "have not spent (copriv-owner ledger close), or raise policy.epsilon_lifetime" in said
    # No epsilon is small enough where nothing is left, as one may be where something is.
    assert "--epsilon" not in said
    settings.write_text(settings.read_text().replace('"1"', '"1.5"'))
    said = refused(owner_command("check", settings), 3)
    assert "but 0.5 of the lifetime budget is left; give a smaller --epsilon, or raise" in said
    # What is known without a budget is shown: the columns, the ledger, the map.
    for words in (
        "drift",
        "column-0",
        "1 study, 0 of the lifetime epsilon 1 is left",
        "4 features",
    ):
        assert words in done.stdout, words
    assert "would be promised" not in done.stdout


def test_check_finds_a_ledger_of_other_records(owner_folder, table_maker):
    settings = owner_folder()
    start_owner(settings, listen=None, insecure_noise_seed=None).drain(grace=0.1)
    table_maker(200, seed=99).to_parquet(settings.parent / "shard.parquet")
    assert "other records" in refused(owner_command("check", settings), 2)


def test_check_and_doctor_find_a_ledger_that_is_lost_as_serve_does(owner_folder, make_terms):
    settings = owner_folder()
    running = start_owner(settings, listen=None, insecure_noise_seed=None)
    running.owner.enroll(make_terms(), learner="anonymous")
    running.drain(grace=0.1)
    (settings.parent / "ledger.sqlite").unlink()
    for command in ("check", "serve"):
        assert "the ledger is empty but studies" in refused(owner_command(command, settings), 2)
    found = run("copriv-owner", "doctor", settings)
    assert found.returncode == 2
    assert "the ledger is empty" in found.stdout
    assert not (settings.parent / "ledger.sqlite").exists()


@pytest.mark.parametrize("command", ["check", "doctor"])
def test_the_officer_is_told_which_values_leave_a_record_out_of_the_public_count(
    owner_folder, feature_map, table_maker, command
):
    """Whoever wrote the map chose them: the count would tell whether a record has such a value."""
    table = table_maker(200, seed=1)
    hidden = str(table[feature_map.target_name][7])
    codes = ("999", "-1", "998", "-2", hidden)
    target = feature_map.target.model_copy(update={"missing": codes})
    pinned = feature_map.model_copy(update={"target": target})
    data = {"path": "shard.parquet", "missing_target": "drop"}
    settings = owner_folder(table=table, pinned=pinned, also={"data": data})
    said = " ".join(owner_command(command, settings).stdout.split())
    assert "199 records" in said
    assert (
        "1 record has no target that can be read (the study takes '999', '-1', '998', '-2' or "
        f"'{hidden}' for none), and n_i, which is public, leaves them out" in said
    )


def test_private_bounds_are_named_by_check_and_serve(owner_folder, table_maker):
    records = table_maker(300, seed=7)
    own = map_of(records, private=True)
    settings = owner_folder(table=records, pinned=own)
    served = run("copriv-owner", "serve", settings)
    assert served.returncode == 2
    for said in (refused(owner_command("check", settings), 2), served.stderr):
        assert "column-0, column-1, column-2, of the target y" in said
        assert "--allow-private-bounds" in said
    allowed = run("copriv-owner", "check", settings, "--allow-private-bounds")
    assert allowed.returncode == 0
    assert allowed.stderr.startswith("copriv-owner: warning: ")
    assert "no epsilon holds" in allowed.stderr


def test_a_simulation_with_public_records_of_an_owner_needs_the_flag(tmp_path, table_maker):
    table_maker(600, seed=4).to_csv(tmp_path / "records.csv", index=False)
    path = tmp_path / "study.toml"
    settings = {
        "name": "leaky",
        "profile": "published",
        "data": {"path": "records.csv"},
        "features": {"public": {"rows": "-301:"}, "target": "y"},
        "model": {"theta_max": 2.0},
        "algorithm": {"horizon": 10, "rho": 1e-6},
        "privacy": {"epsilon": 1},
        "owners": [{"name": "north", "data": {"rows": ":300"}}],
    }
    path.write_text(tomli_w.dumps(settings))

    def simulate(*options):
        return run("copriv", "simulate", path, *options, cwd=tmp_path)

    stopped = simulate("--out", "a")
    assert stopped.returncode == 2
    assert "warning: features.public: 1 of its records are also owner north's" in stopped.stderr
    assert "owner north did not start" in stopped.stderr
    allowed = simulate("--out", "b", "--allow-private-bounds")
    assert allowed.returncode == 0, allowed.stderr


def test_a_token_is_made_once_and_its_line_holds_only_the_digest(tmp_path):
    target = tmp_path / "bank.token"
    made = owner_command("token", "bank-a", "--out", target)
    assert made.returncode == 0, made.stderr
    token = target.read_text().strip()
    assert len(token) >= 50
    assert load_token(f"file:{target}", base=tmp_path, setting="t") == token
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    digest = hashlib.sha256(token.encode()).hexdigest()
    assert made.stdout == f'[policy.tokens]\nbank-a = "sha256:{digest}"\n'
    assert "cannot be made" in refused(owner_command("token", "bank-a", "--out", target), 2)
    assert target.read_text().strip() == token


@pytest.mark.parametrize("name", ["", "bank a", "..", "../bank", "anonymous", "a" * 65, 'x"'])
def test_a_token_is_made_only_for_a_name_that_settings_take(tmp_path, name):
    target = tmp_path / "bank.token"
    words = "other than anonymous" if name == "anonymous" else "a-z, digits and . _ - @ only"
    assert words in refused(owner_command("token", name, "--out", target), 2)
    assert not target.exists()


def test_the_line_of_a_token_is_toml(tmp_path):
    for name in ("bank-a", "ann@bank.example"):
        made = owner_command("token", name, "--out", tmp_path / name)
        assert list(tomllib.loads(made.stdout)["policy"]["tokens"]) == [name]


def test_a_token_that_a_full_disk_does_not_take_leaves_no_file(tmp_path, monkeypatch):
    target = tmp_path / "bank.token"
    # The kernel's own full disk, in place of the file that was just made.
    monkeypatch.setattr(os, "fdopen", lambda handle, *_, **__: open("/dev/full", "w"))  # noqa: SIM115
    assert "make room" in refused(owner_command("token", "bank", "--out", target), 4)
    assert not target.exists()


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_a_full_disk_does_not_take_is_one_sentence(tmp_path, unbuffered):
    """Python writes what it has buffered once more as it ends, and has a status for that."""
    ledger = tmp_path / "ledger.sqlite"
    Ledger(ledger, owner="a", fingerprint="f").close()
    command = [sys.executable, "-m", "owner.cli", "ledger", "export", str(ledger)]
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command,
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, len(done.stderr.splitlines())) == (4, 1)
    assert "No space left on device; make room" in done.stderr


# gRPC takes %e0 for a byte in hexadecimal.
ASKED_IN_A_ZONE = """
from owner.health import ask_health
from owner.probes import Probes
from owner.ports import Port
probes = Probes()
probes.set(serving=True)
port = Port(probes.add_to, "health", "[fe80::1%e0]:0", identity=None, options=[])
port.start()
ask_health(f"[fe80::1%e0]:{port.number}", seconds=20)
port.stop(None)
"""


def test_health_is_asked_at_an_address_of_one_link():
    link = (
        "ip link add e0 type veth peer name e1 && ip address add fe80::1/64 dev e0 nodad && "
        "ip link set e0 up && ip link set e1 up && ip link set lo up"
    )
    within = ["unshare", "-rn", "sh", "-c", f'{link} && exec "$@"', "sh"]
    if shutil.which("unshare") is None or subprocess.run([*within, "true"], check=False).returncode:
        pytest.skip("no network of its own may be made here")
    command = [*within, sys.executable, "-c", ASKED_IN_A_ZONE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("typed", "status"), [(("serve", "none.toml"), 2), (("health", "127.0.0.1:1"), 4)]
)
def test_a_command_whose_sentence_finds_no_room_has_its_exit_status_all_the_same(typed, status):
    """A supervisor starts again what ends with another one."""
    command = [sys.executable, "-m", "owner.cli", *typed]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=full, timeout=60, check=False)
    assert done.returncode == status


WRITES_TO_A_FULL_DISK = """
import click
from common.command import run_command

def main():
    with open("/dev/full", "w") as full:
        full.write("x")

run_command(click.command(main), "copriv")
"""


def test_a_full_disk_is_one_sentence_where_there_is_no_output():
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", WRITES_TO_A_FULL_DISK],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (4, 1)


@pytest.mark.parametrize("address", ["foo", "127.0.0.1:65536", "127.0.0.1:1x", ":1"])
def test_an_address_that_is_none_is_refused(owner_folder, address):
    """A port beyond 65535 would be another port."""
    settings = owner_folder()
    for command in (
        ("serve", settings, "--listen", address),
        ("attach", settings, "--learner", address),
        ("health", address),
    ):
        said = owner_command(*command)
        assert said.returncode == 2
        assert "expected HOST:PORT with a port up to 65535" in said.stderr
    text = settings.read_text().replace("127.0.0.1:0", address)
    settings.write_text(text)
    assert "listen: got" in refused(owner_command("serve", settings), 2)
    assert not (settings.parent / "ledger.sqlite").exists()


def test_a_seed_that_no_noise_can_have_is_refused(owner_folder):
    said = owner_command("serve", owner_folder(), "--insecure-noise-seed", "-1")
    assert said.returncode == 2


def test_names_of_learners_are_shown_as_they_are(tmp_path):
    ledger = open_ledger(tmp_path / "ledger.sqlite")
    enroll(ledger, "s:smile:", responses=1, learner="bank [/red] [1]")
    ledger.close()
    shown = owner_command("ledger", "show", tmp_path / "ledger.sqlite").stdout
    assert "s:smile:" in shown
    assert "bank [/red] [1]" in shown


@pytest.mark.long
def test_the_audit_prints_a_bound_beside_every_promise(monkeypatch, fast_folder):
    monkeypatch.setattr(tempfile, "tempdir", str(fast_folder))
    result = owner_command("audit", "--trials", "300")
    assert result.returncode == 0, result.stderr
    assert "no attack broke the promise; a bound of 0 is of" in result.stdout
    rows = re.findall(r"(\w+, [a-z ()]+?) +one response +1\.000 +(\S+)", result.stdout)
    assert [name for name, _ in rows] == [case.name for case in CASES]
    assert all(float(bound) <= 1 for _, bound in rows)
    # So few trials may show nothing of one case; of half of the eight gradients, once in thousands.
    gradients = {case.name for case in CASES if case.release is GRADIENT}
    assert statistics.median(float(bound) for name, bound in rows if name in gradients) > 0.1


def test_the_audit_ends_with_status_3_where_a_promise_is_broken(monkeypatch, fast_folder):
    class HalfTheNoise(SecureNoise):
        def draw(self, count):
            return super().draw(count) // 2

    def attack(folder, **options):
        def half(plan):
            return DrawnAhead(HalfTheNoise(plan), vectors=64, block=32)

        return audit(folder, noise=half, cases=CASES[:1], **options)

    monkeypatch.setattr(tempfile, "tempdir", str(fast_folder))
    monkeypatch.setattr(owner.audit, "audit", attack)
    said = refused(owner_command("audit", "--trials", "1000"), 3)
    assert "1 of 3 attacks broke the promise (first: squared, domain, one response)" in said


def test_an_audit_of_more_responses_than_memory_holds_is_refused():
    result = owner_command("audit", "--trials", str(10**23))
    assert result.returncode == 2
    assert "is not in the range 100<=x<=10000000" in result.stderr


def test_the_audit_shows_its_progress_in_lines_elsewhere(monkeypatch):
    def answered(folder, *, trials, on_response, **_):
        for _ in range(num_responses(trials)):
            on_response()
        return []

    monkeypatch.setattr(owner.audit, "audit", answered)
    told = owner_command("audit", "--trials", "100").stderr.splitlines()
    total = num_responses(100)
    assert told[0] == f"responses: {total // 10:,} of {total:,}"
    assert len(told) == 10


def test_the_audit_shows_its_progress_on_a_terminal(fast_folder):
    terminal, side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "owner.cli", "audit", "--trials", "100"],
        stdout=subprocess.PIPE,
        stderr=side,
        text=True,
        env={**os.environ, "TMPDIR": str(fast_folder)},
    )
    os.close(side)
    shown = b""
    # The terminal ends when the process does: Linux says so with an error.
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 4096):
            shown += part
    os.close(terminal)
    table, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"responses" in shown
    assert b"100%" in shown
    assert b"enrolled" not in shown, "its own studies are no news"
    assert "no attack broke the promise" in table
    assert "%" not in table


def test_a_ledger_fits_80_columns_and_says_what_is_left(owner_folder, make_terms, monkeypatch):
    settings = owner_folder()
    running = start_owner(settings, listen=None, insecure_noise_seed=None)
    name = "spring-2f0c6d1e-6a50-4a5e-9c49-0d5b7a1f2c3d"
    running.owner.enroll(make_terms(study_id=name, epsilon=Fraction(5, 2)), learner="anonymous")
    running.drain(grace=0.1)
    monkeypatch.setattr("owner.ledger_commands.console", lambda: Console(width=80))
    ledger = settings.parent / "ledger.sqlite"
    said = owner_command("ledger", "show", ledger, "--settings", settings)
    assert said.returncode == 0, said.stderr
    lines = said.stdout.splitlines()
    assert all(len(line.rstrip()) <= 80 for line in lines if "lifetime" not in line)
    # A long name is folded, and nothing of it is lost.
    rows = [line.split()[0] for line in lines[4:] if line.strip()]
    assert "".join(rows).startswith(name)
    first = next(line for line in lines if line.strip().startswith("spring-"))
    assert "0 of 10" in first
    assert first.rstrip().endswith(" open")
    assert "5/2" not in said.stdout
    assert (
        "2.5 of the lifetime budget of 10 is spent or reserved: 0 spent, 2.5 left to open studies; "
        "7.5 is left"
    ) in said.stdout


def test_a_ledger_says_as_much_is_left_as_its_owner_does(owner_folder, make_terms):
    """What was spent before kappa was raised counts that many times more."""
    settings = owner_folder()
    running = start_owner(settings, listen=None, insecure_noise_seed=None)
    running.owner.enroll(make_terms(epsilon=Fraction(2)), learner="anonymous")
    query = Query(study_id="study-1", sequence=1, theta=np.zeros(4))
    running.owner.answer(query, learner="anonymous")
    running.owner.close("study-1", learner="anonymous")
    running.drain(grace=0.1)
    with_kappa = settings.read_text().replace("[policy]", "[policy]\nkappa = 3")
    settings.write_text(with_kappa)
    ledger = settings.parent / "ledger.sqlite"
    said = owner_command("ledger", "show", ledger, "--settings", settings)
    assert said.stdout.endswith("; 9.4 is left, since kappa = 3 adds 0.4 to what was spent\n")
    assert "9.4 of the lifetime epsilon 10 is left" in owner_command("check", settings).stdout


def test_what_is_left_by_the_settings_of_another_owner_is_doubted(owner_folder, make_terms):
    """Of the wrong OWNER.toml the lifetime budget was taken without a word."""
    settings = owner_folder()
    start_owner(settings, listen=None, insecure_noise_seed=None).drain(grace=0.1)
    ledger = settings.parent / "ledger.sqlite"
    text = settings.read_text()
    name = tomllib.loads(text)["name"]
    other = settings.with_name("other.toml")
    other.write_text(text.replace(f'"{name}"', '"south"').replace("ledger.sqlite", "its.sqlite"))
    said = owner_command("ledger", "show", ledger, "--settings", other)
    assert said.returncode == 0
    assert f"is of {name}, and {other} is of south, whose ledger is " in said.stderr
    # Another study may know the owner by another name, and a copy is of the same one.
    other.write_text(text.replace(f'"{name}"', '"south"'))
    for mine in (settings, other):
        said = owner_command("ledger", "show", ledger, "--settings", mine)
        assert said.stderr == ""
    settings.write_text(text.replace("ledger.sqlite", "its.sqlite"))
    assert owner_command("ledger", "show", ledger, "--settings", settings).stderr == ""


def test_check_shows_the_columns_to_the_officer_and_refuses_those_that_do_not_fit(
    owner_folder, table_maker
):
    table = table_maker(200, seed=1)
    table["column-1"] *= 365
    table["column-2"] = "n/a"
    settings = owner_folder(table=table)
    told = owner_command("check", settings, "--declare")
    assert told.returncode == 2
    assert re.search(r"column-1 +number +0.0% +9\d.\d%", told.stdout)
    assert re.search(r"column-2 +number +100.0% +0.0%", told.stdout)
    first, second, cure = told.stderr.splitlines()
    assert "column 'column-1': 9" in first
    assert "beyond the public bounds" in first
    assert "column 'column-2': 100% of the records have no readable value" in second
    assert "--accept COLUMN" in cure
    # What is declared says that somebody looked, whatever was seen.
    declared = settings.parent / "owner-a.declared"
    assert "not what you saw" in told.stdout
    assert FeatureMap.from_json((settings.parent / "features.json").read_text()).digest == (
        declared.read_text().strip()
    )
    accepted = owner_command("check", settings, "--accept", "column-1", "--accept", "column-2")
    assert accepted.returncode == 0, accepted.stderr
    running = start_owner(settings, listen=None, insecure_noise_seed=None)
    assert running.owner.describe(learner="anonymous").checked_map_digest == (
        declared.read_text().strip()
    )
    running.drain(grace=0.1)
    digest = declared.read_text()
    declared.write_text("looked\n")
    with pytest.raises(CoprivError, match="expected the digest of a feature map") as refused:
        start_owner(settings, listen=None, insecure_noise_seed=None)
    # A start that failed holds no ledger, also while its error is looked at.
    declared.write_text(digest)
    start_owner(settings, listen=None, insecure_noise_seed=None).drain(grace=0.1)
    assert refused.value.__traceback__ is not None
