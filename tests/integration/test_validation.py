"""Owners say once how good a finished model is: charged, replayed, and only if they agree."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import tomli_w

from common.errors import (
    BudgetSpentError,
    MalformedError,
    OrderError,
    PolicyError,
    UnreachableError,
)
from common.terms import Query
from learner.network.grpc_owner import GrpcOwner
from learner.training import validation
from owner.ledger_reading import read_studies, verify_ledger

pytestmark = pytest.mark.usefixtures("without_forecasts")
NAMES = ("owner-a", "owner-b", "owner-c", "owner-d")


@pytest.fixture
def start(owner_folder, serve_owner, table_maker, tmp_path):
    """Serve owners of these policies on validation, and write a study of them."""

    def started(*validation, **privacy):
        table_maker(500, seed=0).to_parquet(tmp_path / "public.parquet")
        entries = []
        for index, (name, agrees) in enumerate(zip(NAMES, validation, strict=False)):
            path = owner_folder(name, seed=index, validation=agrees, epsilon_lifetime="5")
            entries.append({"name": name, "address": f"127.0.0.1:{serve_owner(path).port}"})
        study = {
            "name": "spring",
            "seed": 4,
            "features": {
                "map": str(tmp_path / NAMES[0] / "features.json"),
                "public": {"path": "public.parquet"},
            },
            "model": {"theta_max": 2.0},
            "algorithm": {"name": "moments"},
            "privacy": {"epsilon": 5} | privacy,
            "network": {"deadline": 5, "patience": 2, "retries": 0},
            "owners": entries,
            "guard": False,
        }
        path = tmp_path / "study.toml"
        path.write_text(tomli_w.dumps(study))
        return path

    return started


def summary_of(run):
    return json.loads((run / "summary.json").read_text())


def spent(folder, name):
    _, studies = read_studies(folder / name / "ledger.sqlite")
    assert verify_ledger(folder / name / "ledger.sqlite") == []
    return [entry.epsilon * entry.account.answered for entry in studies]


def test_owners_that_agree_say_how_good_the_model_is_and_the_sum_is_what_was_promised(
    start, typed, tmp_path
):
    run = tmp_path / "run"
    trained = typed("copriv", "train", start("shown", "pooled", False, "pooled"), "--out", run)
    assert trained.returncode == 0, trained.stderr
    told = summary_of(run)
    assert [owner["epsilon"] for owner in told["owners"]] == ["5", "5", "9/2", "5"]
    assert [owner["epsilon_spent"] for owner in told["owners"]] == ["5", "5", "9/2", "5"]
    assert spent(tmp_path, "owner-a") == [Fraction(9, 2), Fraction(1, 2)]
    assert spent(tmp_path, "owner-c") == [Fraction(9, 2)]
    found = told["validation"]
    assert found["owners"] == 3
    assert [one["name"] for one in found["by_owner"]] == ["owner-a"]
    assert told["validation_missing"] == {"owner-c": "it does not say how good a model is"}
    said = " ".join(trained.stdout.split())
    assert "3 owners say, with noise, of their " in said
    assert " records: typical error (RMSE), where errors beyond " in said
    assert "No answer on how good the model is from owner-c" in said
    page = (run / "report.html").read_text()
    card = (run / "MODEL_CARD.md").read_text()
    for text in (page, card):
        assert "3 owners say, with noise" in text
    _, studies = read_studies(tmp_path / "owner-b" / "ledger.sqlite")
    assert all(entry.account.closed for entry in studies)


def test_no_report_tells_the_answer_of_an_owner_that_is_shown_only_with_others(
    start, typed, tmp_path
):
    """Two answers and one of them: the difference is the other one. Nor is one alone told."""
    run = tmp_path / "run"
    trained = typed("copriv", "train", start("shown", "pooled"), "--out", run)
    assert trained.returncode == 0, trained.stderr
    told = summary_of(run)
    assert told["validation"]["owners"] == 2
    assert not told["validation"].get("by_owner")
    assert "who agree to be shown" not in (run / "report.html").read_text()


def test_an_answer_that_is_shown_only_with_others_is_not_told_where_there_is_no_other(
    start, typed, tmp_path
):
    run = tmp_path / "run"
    trained = typed("copriv", "train", start("pooled", False), "--out", run)
    assert trained.returncode == 0, trained.stderr
    told = summary_of(run)
    assert "validation" not in told
    assert told["validation_missing"] == {
        "owner-a": "it answered, and lets reports show that only together with other owners' "
        "answers",
        "owner-b": "it does not say how good a model is",
    }
    assert told["owners"][0]["epsilon_spent"] == "5"
    said = " ".join(trained.stdout.split())
    assert "does not say how good a model is. What owner-a agreed to spend on it is spent." in said


@pytest.mark.parametrize("privacy", [{}, {"validation": 0}], ids=["nobody agrees", "off"])
def test_where_nobody_is_asked_the_training_has_all_of_epsilon(start, typed, tmp_path, privacy):
    agrees = "shown" if privacy else False
    run = tmp_path / "run"
    trained = typed("copriv", "train", start(agrees, agrees, **privacy), "--out", run)
    assert trained.returncode == 0, trained.stderr
    told = summary_of(run)
    assert [owner["epsilon_spent"] for owner in told["owners"]] == ["5", "5"]
    assert spent(tmp_path, "owner-a") == [Fraction(5)]
    assert "validation" not in told
    assert set(told.get("validation_missing", {})) == (set() if privacy else {"owner-a", "owner-b"})


def test_a_learner_that_dies_before_it_keeps_the_answer_is_told_the_same_again(
    start, typed, monkeypatch, tmp_path
):
    run, study = tmp_path / "run", start("shown")
    heard = []

    keep = validation._note

    def hears(journal, index, answer):
        heard.append(answer.response)
        if len(heard) == 1:
            raise MalformedError("died")
        keep(journal, index, answer)

    monkeypatch.setattr(validation, "_note", hears)
    assert typed("copriv", "train", study, "--out", run).returncode != 0
    resumed = typed("copriv", "train", "--resume", run)
    assert resumed.returncode == 0, resumed.stderr
    assert spent(tmp_path, "owner-a") == [Fraction(9, 2), Fraction(1, 2)]
    assert len(heard) > 1
    assert any(np.array_equal(heard[0], again) for again in heard[1:])


def test_an_owner_that_dies_meanwhile_is_named_and_gets_its_epsilon_back_later(
    start, typed, monkeypatch, tmp_path
):
    """It has agreed to answer and does not: the model is made, and close frees what is held."""
    run, study = tmp_path / "run", start("shown", "shown")
    with monkeypatch.context() as patch:

        def away(self, query):
            if self.name == "owner-b" and query.study_id.endswith(":validation"):
                patch.setattr(GrpcOwner, "close", unreached)
            return answers(self, query)

        def unreached(self, study_id):
            from common.errors import UnreachableError  # noqa: PLC0415

            raise UnreachableError("away")

        answers = GrpcOwner.answer
        patch.setattr(GrpcOwner, "answer", away)
        trained = typed("copriv", "train", study, "--out", run)
    assert trained.returncode == 0, trained.stderr
    assert "away at the end" in trained.stdout
    assert typed("copriv", "close", run).returncode == 0
    for name in NAMES[:2]:
        _, studies = read_studies(tmp_path / name / "ledger.sqlite")
        assert all(entry.account.closed for entry in studies)


def test_an_owner_whose_noise_comes_from_a_seed_since_the_training_is_not_asked(
    start, typed, monkeypatch, tmp_path
):
    """Its answer would have no protection, and the report says of all noise what it was before."""
    enrolls = GrpcOwner.enroll

    def seeded(self, terms):
        is_last = terms.study_id.endswith(":validation")
        agreed = enrolls(self, terms)
        return replace(agreed, insecure_noise=is_last and self.name == "owner-b")

    monkeypatch.setattr(GrpcOwner, "enroll", seeded)
    run = tmp_path / "run"
    trained = typed("copriv", "train", start("shown", "shown"), "--out", run)
    assert trained.returncode == 0, trained.stderr
    told = summary_of(run)
    assert not told["insecure_noise"]
    assert told["validation"]["owners"] == 1
    assert list(told["validation_missing"]) == ["owner-b"]
    assert "noise of another kind" in told["validation_missing"]["owner-b"]
    # Nothing was spent on it, and what was kept for it is free again.
    assert told["owners"][1]["epsilon_spent"] == "9/2"
    assert sum(spent(tmp_path, "owner-b")) == Fraction(9, 2)
    _, studies = read_studies(tmp_path / "owner-b" / "ledger.sqlite")
    assert all(entry.account.closed for entry in studies)


def test_an_owner_that_is_waited_for_at_the_end_is_told(start, typed, monkeypatch, tmp_path):
    """A finished training that says nothing for a minute looks as if it hung."""
    from common.errors import UnreachableError  # noqa: PLC0415

    enrolls, tried = GrpcOwner.enroll, []

    def late(self, terms):
        if self.name == "owner-b" and terms.study_id.endswith(":validation") and not tried:
            tried.append(terms)
            raise UnreachableError("away")
        return enrolls(self, terms)

    monkeypatch.setattr(GrpcOwner, "enroll", late)
    trained = typed("copriv", "train", start("shown", "shown"), "--out", tmp_path / "run")
    assert trained.returncode == 0, trained.stderr
    assert tried
    assert "waiting for owner-b to say how good the model is; gives up after" in trained.stderr
    assert "owner-a to say" not in trained.stderr


def test_an_owner_that_has_left_the_study_is_not_asked_of_its_model(
    start, typed, monkeypatch, tmp_path
):
    """Its officer may have closed the study: no more is spent for that."""
    answers = GrpcOwner.answer

    def refuses(self, query):
        if self.name == "owner-b" and not query.study_id.endswith(":validation"):
            raise OrderError("the study is closed; enrol for a new study")
        return answers(self, query)

    monkeypatch.setattr(GrpcOwner, "answer", refuses)
    run = tmp_path / "run"
    trained = typed("copriv", "train", start("shown", "shown"), "--out", run)
    assert trained.returncode == 0, trained.stderr
    told = summary_of(run)
    assert told["validation"]["owners"] == 1
    assert told["validation_missing"]["owner-b"].startswith("it has left the study (")
    assert spent(tmp_path, "owner-b") == [0]


@pytest.mark.parametrize("agrees", ["shown", False], ids=["validation", "training"])
def test_an_answer_that_is_lost_after_its_charge_counts_as_spent(
    start, typed, monkeypatch, tmp_path, agrees
):
    run, study, answers = tmp_path / "run", start(agrees, agrees), GrpcOwner.answer

    def loses(self, query):
        answer = answers(self, query)
        is_last = query.study_id.endswith(":validation") or not agrees
        if self.name == "owner-b" and is_last:
            raise UnreachableError("the line was cut")
        return answer

    monkeypatch.setattr(GrpcOwner, "answer", loses)
    trained = typed("copriv", "train", study, "--out", run)
    assert trained.returncode == 0, trained.stderr
    told, other = summary_of(run)["owners"][1], summary_of(run)["owners"][0]
    assert Fraction(told["epsilon_spent"]) == sum(spent(tmp_path, "owner-b")) == 5
    assert (other["epsilon_spent"], other["responses_in_doubt"]) == ("5", 0)
    said = " ".join(trained.stdout.split())
    if agrees:
        assert told["epsilon_for_validation"] == "1/2"
        assert "What owner-b agreed to spend on it counts as spent" in said
    else:
        assert (told["responses"], told["responses_in_doubt"]) == (0, 1)
        assert "Asked, and never heard of again: one answer each of owner-b." in said


def test_a_validation_is_answered_once_replayed_and_refused_outside_the_box(
    owner_folder, serve_owner, validation_terms, feature_map, tmp_path
):
    p = feature_map.num_features
    running = serve_owner(owner_folder("owner-a"))
    owner = GrpcOwner("owner-a", f"127.0.0.1:{running.port}", deadline=5.0)
    terms = validation_terms
    try:
        with pytest.raises(MalformedError, match="reference: got 1 numbers, expected one for each"):
            owner.enroll(replace(terms, reference=(0.0,)))
        agreed = owner.enroll(terms)
        assert owner.enroll(terms) == agreed
        theta = np.full(p, 0.25)
        query = Query(study_id=terms.study_id, sequence=1, theta=theta)
        with pytest.raises(MalformedError, match="leaves the box"):
            owner.answer(replace(query, theta=np.full(p, 9.0)))
        first = owner.answer(query)
        assert owner.answer(query).gradient.tobytes() == first.gradient.tobytes()
        assert first.gradient.shape == (2,)
        with pytest.raises(OrderError, match="given for another theta"):
            owner.answer(replace(query, theta=theta / 2))
        with pytest.raises(BudgetSpentError, match="all 1 promised responses"):
            owner.answer(replace(query, sequence=2))
        owner.close(terms.study_id)
    finally:
        owner.disconnect()
    assert spent(tmp_path, "owner-a") == [Fraction(1, 2)]


def test_an_owner_whose_policy_forbids_it_refuses_whoever_asks(
    owner_folder, serve_owner, make_terms
):
    running = serve_owner(owner_folder("owner-a", validation=False))
    owner = GrpcOwner("owner-a", f"127.0.0.1:{running.port}", deadline=5.0)
    try:
        assert owner.describe().validation == ""
        with pytest.raises(PolicyError, match="does not say how good a model is on its records"):
            owner.enroll(make_terms(release="validation", responses=1, horizon=1, loss_bound=2.0))
    finally:
        owner.disconnect()
