"""What version 0.1 wrote opens, goes on, and means the same in this version and in every later.

`python tests/tools/make_golden.py` made the files; they are never made anew. All goes through
what people and learners use: the commands, the wire, `Ledger` and `open_owner`.
"""

import dataclasses
import gzip
import json
import shutil
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import grpc
import numpy as np
import pandas as pd
import pytest
import tomli_w
from calls import methods

from common import codec
from common.config import load_settings
from common.features import FeatureMap, load_feature_map
from common.pb import copriv_pb2 as pb
from common.privacy import as_decimal
from common.tables import TableSource, read_table
from common.terms import Enrollment, Query, StudyTerms
from common.toml_files import read_toml
from owner.ledger import Ledger
from owner.policy import OwnerSettings
from owner.server import open_owner
from owner.shard import fingerprint

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "version-0.1"
MAPS = tuple(sorted(path.stem for path in (GOLDEN / "maps").glob("*.npy")))
PLACE = "@FOLDER@"
TOKENS = {"alpha": "golden-alpha", "beta": "golden-beta"}
INSECURE_SEED = 7
STATES = ("stopped", "killed")


def unpack(folder, out):
    """A copy of golden files: databases unpacked, PLACE as the folder they are in."""
    shutil.copytree(folder, out, dirs_exist_ok=True)
    for path in [path for path in out.rglob("*") if path.is_file()]:
        if path.suffix == ".gz":
            path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
            path.unlink()
        elif path.suffix in {".toml", ".json", ".log"}:
            path.write_text(path.read_text().replace(PLACE, str(out)))
    return out


# --- feature maps -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", MAPS)
def test_a_maps_text_and_digest_are_the_same(name):
    path = GOLDEN / "maps" / f"{name}.json"
    feature_map = load_feature_map(path)
    assert feature_map.to_json() == path.read_text()
    assert feature_map.digest == json.loads((GOLDEN / "maps" / "digests.json").read_text())[name]
    # A field that is new and at its default is no part of what was agreed on.
    assert FeatureMap.from_json(feature_map.to_json()) == feature_map


@pytest.mark.parametrize("table", ["table.parquet", "table.csv"])
@pytest.mark.parametrize("name", MAPS)
def test_a_map_gives_the_same_records_bit_for_bit(name, table):
    feature_map = load_feature_map(GOLDEN / "maps" / f"{name}.json")
    raw = read_table(TableSource(path=Path(table)), base=GOLDEN / "maps")
    records = feature_map.apply(raw, where=table)
    rows = np.concatenate([records.features, records.targets[:, None]], axis=1)
    expected = np.load(GOLDEN / "maps" / f"{name}.npy")
    assert rows.astype("<f8").tobytes() == expected.tobytes()
    assert len(np.unique(expected, axis=0)) > len(expected) / 2


# --- an owner and its ledger ------------------------------------------------------------------


class Wire:
    """The calls of a serving owner, as a learner makes them."""

    def __init__(self, channel):
        self._stub = methods("DataOwner", channel)

    def call(self, name, message, *, learner):
        token = (("authorization", f"Bearer {TOKENS[learner]}"),)
        return getattr(self._stub, name)(message, timeout=20, metadata=token)

    def enroll(self, study):
        message = codec.terms_to_pb(terms_of(study))
        return codec.enrollment_from_pb(self.call("Enroll", message, learner=study["learner"]))

    def answer(self, study, sequence, theta):
        query = Query(study_id=study["terms"]["study_id"], sequence=sequence, theta=theta)
        message = codec.query_to_pb(query)
        return self.call("AnswerOnce", message, learner=study["learner"]).gradient.data

    def left(self):
        told = self.call("Describe", pb.DescribeRequest(), learner="alpha")
        return codec.description_from_pb(told).epsilon_left

    def refuses(self, call):
        with pytest.raises(grpc.RpcError) as refused:
            call()
        return refused.value.code()


@contextmanager
def wire(running):
    with grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel:
        yield Wire(channel)


def terms_of(study):
    """A study's terms as this version has them; whatever is new has its default."""
    values = study["terms"]
    text = (GOLDEN / "maps" / f"{values['feature_map']}.json").read_text()
    return StudyTerms(**values | {"feature_map": text, "epsilon": Fraction(values["epsilon"])})


@pytest.fixture(params=STATES)
def golden_owner(request, tmp_path):
    """An owner's settings beside its records and its ledger, and what the ledger means."""
    folder = tmp_path / "owner"
    folder.mkdir()
    for name in ("OWNER.toml", "shard.parquet"):
        shutil.copy(GOLDEN / "owner" / name, folder)
    unpack(GOLDEN / "owner" / request.param, folder)
    return folder / "OWNER.toml", json.loads((folder / "meaning.json").read_text())


def studies_of(meaning, *, insecure=False):
    return [study for study in meaning["studies"] if study["insecure"] is insecure]


def test_a_ledger_holds_and_has_spent_the_same(golden_owner, typed):
    settings, meaning = golden_owner
    path = settings.with_name("ledger.sqlite")
    held, spent = (Fraction(meaning[key]) for key in ("epsilon_held", "epsilon_spent"))
    # Before an owner of this version has seen it, and after.
    for _ in range(2):
        shown = typed("copriv-owner", "ledger", "show", path)
        assert shown.returncode == 0, shown.stderr
        # Never less than it is.
        told = f"{as_decimal(held, digits=4, up=True)} of the lifetime budget is spent or reserved"
        assert told in shown.stdout
        for study in meaning["studies"]:
            name, values = study["terms"]["study_id"], study["terms"]
            line = next(row for row in shown.stdout.splitlines() if row.split()[:1] == [name])
            count = f"{study['answered']} of {values['responses']}"
            epsilon = as_decimal(Fraction(values["epsilon"]), digits=4, up=True)
            for cell in (study["learner"], epsilon, count):
                assert cell in line
            assert ("INSECURE" in line) is study["insecure"]
            assert line.rstrip().endswith(" open") is not study["closed"]
        verified = typed("copriv-owner", "ledger", "verify", path)
        assert verified.returncode == 0, verified.stderr
        assert "sound: every charge is as it was written, and counted once" in verified.stdout
        table = read_table(TableSource(path=Path("shard.parquet")), base=settings.parent)
        ledger = Ledger(path, owner="golden-owner", fingerprint=fingerprint([table]))
        try:
            assert ledger.epsilon_held() == held
            assert ledger.epsilon_spent() == spent
            assert ledger.responses == sum(study["answered"] for study in meaning["studies"])
        finally:
            ledger.close()


def test_an_owner_opens_on_its_old_ledger_with_the_same_budget(golden_owner):
    settings, meaning = golden_owner
    loaded = load_settings(OwnerSettings, settings)
    owner = open_owner(loaded, base=settings.parent, insecure_noise_seed=None)
    try:
        assert owner.epsilon_held() == pytest.approx(float(Fraction(meaning["epsilon_held"])))
    finally:
        owner.stop()


def test_the_same_terms_again_return_the_same_enrolment(golden_owner, serve_owner):
    settings, meaning = golden_owner
    lifetime = Fraction(read_toml(settings)["policy"]["epsilon_lifetime"])
    with wire(serve_owner(settings)) as owner:
        left = owner.left()
        # What is told of the budget is rounded down.
        assert 0 <= lifetime - Fraction(meaning["epsilon_held"]) - left < Fraction(1, 10**6)
        for study in studies_of(meaning):
            if study["closed"]:
                refused = owner.refuses(lambda study=study: owner.enroll(study))
                assert refused == grpc.StatusCode.FAILED_PRECONDITION
                continue
            told, terms = owner.enroll(study), study["terms"]
            assert told == Enrollment(
                num_records=60,
                responses=terms["responses"],
                answered=study["answered"],
                noise_scale=study["noise_scale"],
                epsilon=Fraction(terms["epsilon"]),
                insecure_noise=False,
            )
            other = dataclasses.replace(terms_of(study), theta_max=1.5)
            refused = owner.refuses(
                lambda study=study, other=other: owner.call(
                    "Enroll", codec.terms_to_pb(other), learner=study["learner"]
                )
            )
            assert refused == grpc.StatusCode.PERMISSION_DENIED
        assert owner.left() == left


def test_the_last_query_is_replayed_and_the_next_is_answered(golden_owner, serve_owner):
    settings, meaning = golden_owner
    with wire(serve_owner(settings)) as owner:
        left = owner.left()
        answered = 0
        for study in studies_of(meaning):
            if not study["answered"]:
                continue
            last, theta = study["answered"], np.array(study["last_theta"])
            if study["closed"]:
                refused = owner.refuses(lambda s=study, n=last, t=theta: owner.answer(s, n, t))
                assert refused == grpc.StatusCode.FAILED_PRECONDITION
                continue
            expected = bytes.fromhex(study["last_response"])
            assert owner.answer(study, last, theta) == expected
            refused = owner.refuses(lambda s=study, n=last, t=theta: owner.answer(s, n, t / 2))
            assert refused == grpc.StatusCode.FAILED_PRECONDITION
            if last == study["terms"]["responses"]:
                refused = owner.refuses(lambda s=study, n=last, t=theta: owner.answer(s, n + 1, t))
                assert refused == grpc.StatusCode.RESOURCE_EXHAUSTED
                continue
            assert owner.answer(study, last + 1, theta) != expected
            answered += 1
        assert answered >= 2
        assert owner.left() == left


def test_a_study_under_an_insecure_seed_is_not_taken_up_under_secure_noise(
    golden_owner, serve_owner
):
    settings, meaning = golden_owner
    (study,) = studies_of(meaning, insecure=True)
    theta = np.array(study["last_theta"])
    with wire(serve_owner(settings)) as owner:
        refused = owner.refuses(lambda: owner.answer(study, study["answered"], theta))
        assert refused == grpc.StatusCode.FAILED_PRECONDITION


def test_a_study_under_an_insecure_seed_is_taken_up_under_one(golden_owner, serve_owner):
    settings, meaning = golden_owner
    (study,) = studies_of(meaning, insecure=True)
    theta = np.array(study["last_theta"])
    with wire(serve_owner(settings, insecure_noise_seed=INSECURE_SEED)) as owner:
        told = owner.enroll(study)
        assert told.insecure_noise
        assert told.answered == study["answered"]
        assert told.noise_scale == study["noise_scale"]
        expected = bytes.fromhex(study["last_response"])
        assert owner.answer(study, study["answered"], theta) == expected
        assert owner.answer(study, study["answered"] + 1, theta) != expected


# --- runs -------------------------------------------------------------------------------------


def test_a_run_folder_can_be_reported(tmp_path, typed):
    folder = unpack(GOLDEN / "simulated", tmp_path / "simulated") / "run"
    before = (folder / "summary.json").read_text()
    told = typed("copriv", "report", folder)
    assert told.returncode == 0, told.stderr
    assert (folder / "summary.json").read_text() == before
    page = (folder / "report.html").read_text()
    for name in ("owner-a", "owner-b", "owner-c"):
        assert name in told.stdout
        assert name in page


def test_the_settings_of_a_run_simulate_it_again(tmp_path, typed):
    folder = unpack(GOLDEN / "simulated", tmp_path / "simulated")
    told = typed(
        *("copriv", "simulate", folder / "run" / "study.toml"),
        *("--out", folder / "again", "--insecure-noise-seed", 1),
        # A later version asks before it trains a model that is forecast to be no better than free.
        "--yes",
    )
    assert told.returncode == 0, told.stderr
    before, again = (
        json.loads((folder / run / "summary.json").read_text()) for run in ("run", "again")
    )
    # What is "auto" may be chosen otherwise by a later version; what was asked and spent may not.
    for key in ("horizon", "seed", "ticks", "profile", "split", "clocks", "correction", "average"):
        assert again[key] == before[key]
    for key in ("name", "records", "epsilon", "responses", "epsilon_spent"):
        assert [o[key] for o in again["owners"]] == [o[key] for o in before["owners"]]


def test_the_journal_of_a_killed_run_resumes(tmp_path, serve_owner, typed):
    folder = unpack(GOLDEN / "killed", tmp_path / "killed")
    meaning = json.loads((folder / "meaning.json").read_text())
    study = read_toml(folder / "study.toml")
    for index, entry in enumerate(study["owners"]):
        running = serve_owner(folder / entry["name"] / "OWNER.toml", insecure_noise_seed=index)
        entry["address"] = f"127.0.0.1:{running.port}"
    (folder / "study.toml").write_text(tomli_w.dumps(study))
    told = typed("copriv", "train", folder / "study.toml", "--resume", folder / "run")
    assert told.returncode == 0, told.stderr
    summary = json.loads((folder / "run" / "summary.json").read_text())
    assert summary["ticks"] == study["algorithm"]["horizon"]
    assert {o["name"]: o["responses"] for o in summary["owners"]} == meaning["owners"]
    # What was journalled is replayed bit for bit; what is answered anew differs by rounding only.
    trace = pd.read_parquet(folder / "run" / "trace.parquet")
    before = meaning["ticks_before_the_kill"]
    assert np.stack(trace["theta"])[:before].tolist() == meaning["models_before_the_kill"]
    assert summary["theta"] == pytest.approx(meaning["theta"], rel=1e-6, abs=1e-9)
