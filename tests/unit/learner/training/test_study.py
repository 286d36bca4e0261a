"""A training that fails lets go of its owners; one that is resumed reads its journal once."""

import json
from contextlib import closing

import pytest

from common.config import check_settings
from common.errors import InputError, OrderError, PolicyError, RefusedError
from learner.planning.public_side import PublicSide
from learner.planning.settings import StudySettings
from learner.results.run_folder import new_run_folder
from learner.training import study
from learner.training.journal import Journal
from learner.training.memory_owner import MemoryOwner
from learner.training.study import Facts, Watch, train

NAMES = ("north", "south")
HORIZON = 8


class CrashError(Exception):
    """The learner dies here."""


class Watched(MemoryOwner):
    """An owner that keeps how it was disconnected."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.let_go = []

    def disconnect(self, *, over=False):
        self.let_go.append(over)


@pytest.fixture
def owners(feature_map, table_maker):
    records = feature_map.apply(table_maker(60, seed=1), where="test")
    return [Watched(name, records, seed=i) for i, name in enumerate(NAMES)]


@pytest.fixture
def settings():
    table = {
        "name": "unit",
        "seed": 7,
        "profile": "published",
        "features": {"map": "features.json"},
        "model": {"theta_max": 2.0},
        "algorithm": {"horizon": HORIZON, "rho": 1e-3},
        "privacy": {"epsilon": 1},
        "owners": [{"name": name} for name in NAMES],
    }
    return check_settings(StudySettings, table, where="test")


def dies_at(k):
    def applied(now):
        if now.k == k:
            raise CrashError

    return applied


@pytest.mark.parametrize("when", ["planning", "training"])
def test_a_training_that_fails_disconnects_every_owner_and_says_no_goodbye(
    when, owners, settings, feature_map, tmp_path
):
    def fails(*_):
        if when == "planning":
            raise RefusedError("not like this")

    public = PublicSide(feature_map=feature_map, records=None)
    with (
        closing(Journal(tmp_path / "journal.sqlite")) as journal,
        pytest.raises(RefusedError if when == "planning" else CrashError),
    ):
        train(
            settings,
            public,
            owners,
            journal=journal,
            watch=Watch(started=fails, applied=dies_at(3)),
        )
    assert [owner.let_go for owner in owners] == [[False], [False]]


def test_a_training_that_is_over_says_goodbye(owners, settings, feature_map, tmp_path):
    public = PublicSide(feature_map=feature_map, records=None)
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        train(settings, public, owners, journal=journal)
    assert [owner.let_go for owner in owners] == [[True], [True]]


def test_a_note_that_a_damaged_journal_does_not_find_again_is_one_sentence(
    owners, settings, feature_map, tmp_path, monkeypatch
):
    """As where a page's keys are out of order."""
    public = PublicSide(feature_map=feature_map, records=None)
    monkeypatch.setattr(Journal, "noted", lambda *_: None)
    with (
        closing(Journal(tmp_path / "journal.sqlite")) as journal,
        pytest.raises(InputError, match=r"journal\.sqlite: it is damaged \(study_id\)"),
    ):
        train(settings, public, owners, journal=journal)


@pytest.mark.parametrize("key", ["responses", "num_records"])
def test_an_enrolment_to_something_else_is_not_believed(
    key, owners, settings, feature_map, tmp_path
):
    public = PublicSide(feature_map=feature_map, records=None)
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        train(settings, public, owners, journal=journal)
        facts = json.loads(journal.noted("enrollments") or "")
        facts[1][key] += 1
        journal.note("enrollments", json.dumps(facts))
        with pytest.raises(InputError, match=r"it is damaged \(enrollments\)"):
            train(settings, public, owners, journal=journal)


def test_a_resume_reads_its_journal_once(owners, settings, feature_map, tmp_path):
    public = PublicSide(feature_map=feature_map, records=None)
    path = tmp_path / "journal.sqlite"
    with closing(Journal(path)) as journal, pytest.raises(CrashError):
        train(settings, public, owners, journal=journal, watch=Watch(applied=dies_at(5)))
    statements = []
    with closing(Journal(path)) as journal:
        journal._db.set_trace_callback(statements.append)
        outcome = train(settings, public, owners, journal=journal)
        journal._db.set_trace_callback(None)
    assert outcome.ticks == HORIZON
    reads = [one for one in statements if one.startswith("SELECT position")]
    assert sorted(one.split(" FROM ")[1].split()[0] for one in reads) == ["responses", "ticks"]


class Closes(Watched):
    """An owner whose study is over once it is closed, and maybe after its first answer."""

    gives = HORIZON

    def enroll(self, terms):
        if terms.study_id in self._studies and self._studies[terms.study_id].account.closed:
            raise OrderError("the study is closed")
        return super().enroll(terms)

    def answer(self, query):
        if query.sequence > self.gives:
            raise PolicyError("no more")
        return super().answer(query)


def test_a_learner_killed_while_it_closes_does_not_say_that_owners_have_left(
    owners, settings, feature_map, tmp_path, monkeypatch, caplog
):
    # Ticks of a schedule that nobody answered leave a journal that is shorter than the horizon.
    privacy = settings.privacy.model_copy(update={"split": "schedule"})
    scheduled = settings.model_copy(update={"privacy": privacy})
    north, south = (Closes(one.name, one._shard.records, seed=i) for i, one in enumerate(owners))
    south.gives = 1
    public = PublicSide(feature_map=feature_map, records=None)
    path, end = tmp_path / "journal.sqlite", study.end_study

    def killed(*given, **named):
        end(*given, **named)
        raise CrashError

    with monkeypatch.context() as patch, closing(Journal(path)) as journal:
        patch.setattr(study, "end_study", killed)
        with pytest.raises(CrashError):
            train(scheduled, public, [north, south], journal=journal)
    caplog.clear()
    with closing(Journal(path)) as journal:
        outcome = train(scheduled, public, [north, south], journal=journal)
    assert 1 < outcome.ticks < HORIZON
    assert caplog.messages == []
    assert outcome.unclosed == ()


@pytest.mark.parametrize(
    ("split", "horizon", "words"),
    [
        ("horizon", 10**9, "owner north, with 60 records: epsilon: too small for this many"),
        ("schedule", 2 * 10**6, 'privacy.split = "schedule" draws the ticks ahead, at most'),
    ],
)
def test_a_horizon_that_cannot_be_is_refused_before_any_owner_knows_and_leaves_no_run(
    split, horizon, words, owners, settings, feature_map, tmp_path
):
    asked = settings.model_dump(mode="json", exclude_unset=True)
    asked["algorithm"]["horizon"] = horizon
    asked["privacy"] = {"epsilon": "1e-6", "split": split}
    public = PublicSide(feature_map=feature_map, records=None)
    with (
        pytest.raises(InputError, match=words),
        new_run_folder(tmp_path / "run", name="a") as folder,
        closing(Journal(folder / "journal.sqlite")) as journal,
    ):
        train(check_settings(StudySettings, asked, where="test"), public, owners, journal=journal)
    assert not (tmp_path / "run").exists()
    assert not any(one._studies for one in owners)


@pytest.mark.parametrize("key", ["seed", "horizon"])
def test_ticks_that_are_not_those_of_the_run_are_one_sentence(
    key, owners, settings, feature_map, tmp_path
):
    public = PublicSide(feature_map=feature_map, records=None)
    path = tmp_path / "journal.sqlite"
    with closing(Journal(path)) as journal, pytest.raises(CrashError):
        train(settings, public, owners, journal=journal, watch=Watch(applied=dies_at(5)))
    with closing(Journal(path)) as journal:
        if key == "seed":
            journal.note("seed", "8")
        else:
            decision = json.loads(journal.noted("decision") or "")
            journal.note("decision", json.dumps(decision | {"horizon": 3}))
            agreed = json.loads(journal.noted("enrollments") or "")
            agreed = [facts | {"responses": 3} for facts in agreed]
            journal.note("enrollments", json.dumps(agreed))
        with pytest.raises(InputError, match=r"journal\.sqlite: it is damaged \(ticks\); start"):
            train(settings, public, owners, journal=journal)


def test_an_owner_by_another_name_is_not_the_one_that_was_meant(
    owners, settings, feature_map, tmp_path, monkeypatch
):
    told = owners[0].describe()
    monkeypatch.setattr(owners[0], "describe", lambda: told)
    owners[0].name = "east"
    public = PublicSide(feature_map=feature_map, records=None)
    with (
        closing(Journal(tmp_path / "journal.sqlite")) as journal,
        pytest.raises(Exception, match="owner east says that its name is 'north'"),
    ):
        train(settings, public, owners, journal=journal)


@pytest.mark.parametrize(("counts", "decided"), [((60, 60), 1), ((60, 61), 2)])
def test_what_owners_were_known_to_say_is_decided_on_before_they_say_it(
    counts, decided, owners, settings, feature_map, tmp_path, monkeypatch
):
    decide, calls = study.decide, []

    def counted(*given, **named):
        calls.append(named["num_records"])
        return decide(*given, **named)

    monkeypatch.setattr(study, "decide", counted)
    public = PublicSide(feature_map=feature_map, records=None)
    foreseen = Facts(num_records=counts, validation=("pooled", "pooled"))
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        outcome = train(settings, public, owners, journal=journal, foreseen=foreseen)
    # What they do say counts.
    assert outcome.plan.decision.num_records == (60, 60)
    assert calls == [counts, (60, 60)][:decided]
