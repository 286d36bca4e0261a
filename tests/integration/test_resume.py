"""The learner survives: whatever dies at whatever moment, the run ends and nobody pays twice."""

import json
import random
import shutil
import signal
import sqlite3
import threading
import time
from contextlib import ExitStack, closing, suppress
from fractions import Fraction
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import tomli_w
from forked import Forked
from forked import run as run_command
from free_ports import free_address

import learner.training.line
import learner.training.pace
from common.errors import BudgetSpentError, RefusedError, UnreachableError
from common.losses import Regulariser
from common.terms import Query, Response
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import PoissonClocks, each_alone, synchronous_rounds
from learner.algorithms.synchronous import SynchronousAverage
from learner.results.summary import read_summary
from learner.training.journal import Journal
from learner.training.line import OwnerLine
from learner.training.memory_owner import MemoryOwner
from learner.training.pace import Pace
from learner.training.runner import run
from owner.ledger_reading import read_studies
from owner.server import start_owner

NAMES = ("owner-a", "owner-b", "owner-c")
WEIGHTS = np.array([0.5, 0.3, 0.2])
KILLS = 5


class Crash(BaseException):
    """The learner dies here."""


class FaultyOwner(MemoryOwner):
    """Loses queries before or after they were charged, and is sometimes not there at all."""

    def __init__(self, *arguments, faults, **named):
        super().__init__(*arguments, **named)
        self.faults = faults
        self.calm = False
        # Queries that it was sent before their answers were waited for.
        self.ahead = 0

    def enroll(self, terms):
        self.sometimes(0.4, UnreachableError)
        return super().enroll(terms)

    def answer(self, query):
        self.sometimes(0.1, UnreachableError)
        response = super().answer(query)
        self.sometimes(0.1, UnreachableError)
        return response

    def sometimes(self, share, error):
        if not self.calm and self.faults.random() < share:
            raise error("trouble")

    @property
    def answered(self):
        """Responses of the training, which was enrolled first."""
        return next(iter(self._studies.values())).account.answered


class EagerOwner(FaultyOwner):
    """Charges what it is asked ahead while nobody waits for the answer."""

    charged: tuple[Query, Response] | None = None

    @property
    def answers_later(self):
        return True

    def send(self, query):
        self.ahead += 1
        self.charged = None
        with suppress(UnreachableError):
            self.charged = query, super().answer(query)

    def answer(self, query):
        charged, self.charged = self.charged, None
        if charged is None or charged[0].sequence != query.sequence:
            return super().answer(query)
        assert charged[0].theta.tobytes() == query.theta.tobytes()
        self.sometimes(0.1, UnreachableError)
        return charged[1]


class DyingJournal(Journal):
    """The learner may die before and after each word it writes."""

    def __init__(self, path, faults, share):
        self.faults, self.share, self.is_dead = faults, share, False
        super().__init__(path)

    def _note_end(self):
        """It never ends in order."""

    def die(self):
        # Who is dead keeps nothing any more.
        self.is_dead = self.is_dead or self.faults.random() < self.share
        if self.is_dead:
            raise Crash

    def append(self, entry):
        self.die()
        super().append(entry)
        self.die()

    def note(self, key, value):
        self.die()
        super().note(key, value)
        self.die()

    def keep_unanswered(self, owner, **query):
        self.die()
        super().keep_unanswered(owner, **query)
        self.die()


class LosingJournal(DyingJournal):
    """Writes as late as it may; what was not waited for is lost with the learner."""

    def __init__(self, path, faults, share):
        self.late = []
        self.writing = threading.Lock()
        super().__init__(path, faults, share)

    def append(self, entry):
        self.die()
        self.late.append(entry)

    def settle(self, repeats=None):
        self.die()
        with self.writing:
            due = len(self.late) if repeats is None else 0
            for owner, most in (repeats or {}).items():
                answers = [i for i, entry in enumerate(self.late) if owner in entry.responses]
                # One fewer than the owner repeats may stay behind.
                due = max([due, *(i + 1 for i in answers[: max(0, len(answers) - most + 1)])])
            if due:
                self._write(self.late[:due])
                del self.late[:due]
        self.die()


def start(owners, terms, journal, agreed, *, rounds, patience=60.0, most=None):
    """One start of the learner, as ``learner.training.study.train`` does it."""
    rows = []
    answered = [0] * len(owners)
    for entry in journal.entries():
        for owner, (sequence, _) in entry.responses.items():
            answered[owner] = sequence
    left_open = {
        owner: Query(study_id=terms.study_id, sequence=sequence, theta=theta)
        for owner, (sequence, theta) in journal.unanswered().items()
        if sequence == answered[owner] + 1
    }

    def keep(owner):
        return lambda query: journal.keep_unanswered(
            owner, sequence=query.sequence, theta=query.theta
        )

    lines = [
        OwnerLine(
            owner,
            terms,
            answered=answered[index],
            unanswered=left_open.get(index),
            keep=keep(index),
            retries=1,
        )
        for index, owner in enumerate(owners)
    ]
    rng = np.random.default_rng(5)
    common = {
        "weights": WEIGHTS,
        "num_features": 4,
        "horizon": terms.horizon,
        "theta_max": 2.0,
        "regulariser": Regulariser(coefficient=1e-5),
    }
    algorithm = (
        SynchronousAverage(**common, initial_step=0.1)
        if rounds
        else Asynchronous(**common, rho=1e-3)
    )
    ticks = synchronous_rounds(3) if rounds else PoissonClocks(each_alone(3), np.ones(3), rng=rng)
    try:
        for line, enrollment in zip(lines, agreed, strict=True):
            line.take_up(enrollment)
        run(
            algorithm,
            islice(ticks, most),
            lines,
            journal=journal,
            horizon=terms.horizon,
            pace=Pace(time_scale=0.0, patience=patience, in_flight=16),
            on_applied=rows.append,
        )
        assert [line.left for line in lines] == [None] * 3
    finally:
        for line in lines:
            line.stop()
    return rows


@pytest.mark.parametrize("kind", [DyingJournal, LosingJournal])
@pytest.mark.parametrize("owner_kind", [FaultyOwner, EagerOwner])
@pytest.mark.parametrize("rounds", [False, True])
def test_whatever_dies_at_whatever_moment_nobody_is_charged_twice(
    rounds, owner_kind, kind, make_terms, few_records, fast_folder, monkeypatch
):
    monkeypatch.setattr(learner.training.line, "SHORTEST_WAIT_SECONDS", 0.0002)
    monkeypatch.setattr(learner.training.line, "LONGEST_WAIT_SECONDS", 0.001)
    monkeypatch.setattr(learner.training.pace, "IDLE_SECONDS", 0.0005)
    terms = make_terms(horizon=25, responses=25)
    crashes = ahead = 0
    for seed in range(20):
        faults = random.Random(seed)
        owners = [owner_kind(name, few_records, seed=1, faults=faults) for name in NAMES]
        agreed = [MemoryOwner(name, few_records, seed=1).enroll(terms) for name in NAMES]
        path = fast_folder / f"{seed}.sqlite"
        rows = []
        while not rows:
            journal = kind(path, faults, share=0.05)
            try:
                rows = start(owners, terms, journal, agreed, rounds=rounds)
            except Crash:
                crashes += 1
            finally:
                journal.close()
        assert len(rows) == 25
        ahead += sum(owner.ahead for owner in owners)
        with closing(Journal(path)) as journal:
            entries = list(journal.entries())
        for index, owner in enumerate(owners):
            numbers = [e.responses[index][0] for e in entries if index in e.responses]
            assert numbers == list(range(1, len(numbers) + 1))
            # At most the one that was asked last, by an owner that is away at the end.
            assert owner.answered - len(numbers) in (0, 1)
        # The whole run once more from its journal: nothing is asked, the same models come out.
        answered = [owner.answered for owner in owners]
        with closing(Journal(path)) as journal:
            again = start(owners, terms, journal, agreed, rounds=rounds)
        models = [[row.central_model.tobytes() for row in both] for both in (rows, again)]
        assert models[0] == models[1]
        assert [owner.answered for owner in owners] == answered
    assert crashes > 40
    assert (ahead > 100) == (owner_kind is EagerOwner and not rounds)


class Refuses:
    """An owner that refuses from its second answer on."""

    def __init__(self, owner):
        self._owner, self._asked = owner, 0

    def __getattr__(self, name):
        return getattr(self._owner, name)

    def answer(self, query):
        self._asked += 1
        if self._asked > 1:
            raise BudgetSpentError("the budget is spent")
        return self._owner.answer(query)


def lines_of(owners, terms, algorithm_horizon):
    lines = [OwnerLine(owner, terms) for owner in owners]
    for line in lines:
        line.enroll()
    algorithm = Asynchronous(
        weights=WEIGHTS,
        num_features=4,
        horizon=algorithm_horizon,
        rho=1e-3,
        theta_max=2.0,
        regulariser=Regulariser(coefficient=1e-5),
    )
    return lines, algorithm


@pytest.mark.parametrize("refusing", [1, 3])
def test_an_owner_that_refuses_for_good_leaves_and_the_others_go_on(
    refusing, make_terms, few_records, caplog
):
    owners = [MemoryOwner(name, few_records, seed=1) for name in NAMES]
    owners[:refusing] = [Refuses(owner) for owner in owners[:refusing]]
    terms = make_terms(horizon=30, responses=30)
    lines, algorithm = lines_of(owners, terms, 30)
    rows = []

    def train():
        clocks = PoissonClocks(each_alone(3), np.ones(3), rng=np.random.default_rng(5))
        pace = Pace(time_scale=0.0, patience=60.0)
        run(algorithm, clocks, lines, journal=None, horizon=30, pace=pace, on_applied=rows.append)

    if refusing == 3:
        with pytest.raises(RefusedError, match="all owners have left the study"):
            train()
        assert len(rows) == 3
        return
    train()
    assert len(rows) == 30
    assert lines[0].answered == 1
    assert lines[0].left is not None
    assert "owner owner-a has left the study: the budget is spent" in caplog.text
    assert lines[0].status == "owner-a has left"


def test_a_number_is_asked_for_one_theta_only(make_terms, few_records, monkeypatch):
    """A query that seemed lost may still arrive: asking its number anew would end the study."""
    monkeypatch.setattr(learner.training.line, "SHORTEST_WAIT_SECONDS", 0.001)

    class Delayed(MemoryOwner):
        """The first query arrives only after the owner has enrolled again."""

        held: Query | None = None
        enrolled = 0

        def enroll(self, terms):
            told = super().enroll(terms)
            self.enrolled += 1
            if self.enrolled == 2 and self.held is not None:
                super().answer(self.held)
            return told

        def answer(self, query):
            if self.held is None:
                self.held = query
                raise UnreachableError("lost, or so it seems")
            return super().answer(query)

    line = OwnerLine(Delayed("owner-a", few_records, seed=1), make_terms(), retries=0)
    line.enroll()
    assert line.ask(np.full(4, 0.1)) is None
    assert "owner-a away since" in line.status
    give_up = time.monotonic() + 20
    while (response := line.ask(np.full(4, 0.2))) is None and time.monotonic() < give_up:
        time.sleep(0.002)
    line.stop()
    assert line.left is None
    assert response.sequence == line.answered == 1


class Gate(MemoryOwner):
    """An owner that can be away."""

    is_away = False

    def enroll(self, terms):
        if self.is_away:
            raise UnreachableError("away")
        return super().enroll(terms)

    def answer(self, query):
        if self.is_away:
            raise UnreachableError("away")
        return super().answer(query)


@pytest.fixture
def killed_late(make_terms, few_records, tmp_path, monkeypatch):
    """Owners of which many answers were lost with the learner; and another start, with patience."""
    monkeypatch.setattr(learner.training.line, "SHORTEST_WAIT_SECONDS", 0.002)
    monkeypatch.setattr(learner.training.line, "LONGEST_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(learner.training.pace, "IDLE_SECONDS", 0.005)
    terms = make_terms(horizon=60, responses=60)
    owners = [Gate(name, few_records, seed=1) for name in NAMES]
    agreed = [owner.enroll(terms) for owner in owners]
    path = tmp_path / "journal.sqlite"

    class Dies(LosingJournal):
        def append(self, entry):
            super().append(entry)
            if entry.position == 37:
                raise Crash

    with closing(Dies(path, random.Random(0), 0.0)) as journal, pytest.raises(Crash):
        start(owners, terms, journal, agreed, rounds=False)
    assert len(journal.late) > 20

    def again(patience):
        with closing(Journal(path)) as journal:
            return start(owners, terms, journal, agreed, rounds=False, patience=patience)

    return owners, again


def check_nothing_lost(owners, rows):
    """The learner holds every answer that was charged."""
    assert len(rows) == 60
    for index, owner in enumerate(owners):
        (study,) = owner._studies.values()
        assert sum(index in row.entry.responses for row in rows) == study.account.answered


def test_a_start_that_did_not_ask_for_what_was_missing_leaves_it_to_the_next(
    killed_late, monkeypatch
):
    owners, again = killed_late
    owners[0].is_away = True

    def give_up(seconds):
        raise KeyboardInterrupt

    # Its operator gives up while it waits.
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=give_up)
    with monkeypatch.context() as patched:
        patched.setattr(learner.training.pace, "time", clock)
        with pytest.raises(KeyboardInterrupt):
            again(60.0)
    back = threading.Timer(0.3, lambda: setattr(owners[0], "is_away", False))
    back.start()
    check_nothing_lost(owners, again(60.0))


def test_a_start_that_finds_nobody_loses_nothing(killed_late):
    owners, again = killed_late
    for owner in owners:
        owner.is_away = True
    with pytest.raises(UnreachableError, match=r"no owner answered for 0\.3 seconds"):
        again(0.3)
    for owner in owners:
        owner.is_away = False
    check_nothing_lost(owners, again(60.0))


def test_starts_that_find_nobody_use_up_no_tick(make_terms, few_records, tmp_path, monkeypatch):
    """A supervisor starts a run again and again: it came to its end while nobody was there."""
    monkeypatch.setattr(learner.training.line, "SHORTEST_WAIT_SECONDS", 0.002)
    monkeypatch.setattr(learner.training.pace, "IDLE_SECONDS", 0.005)
    terms = make_terms(horizon=60, responses=60)

    class Leaves(Gate):
        def answer(self, query):
            self.is_away = self.is_away or query.sequence == self.leaves_at
            return super().answer(query)

    def answered(vain_starts):
        owners = [Leaves(name, few_records, seed=1) for name in NAMES]
        agreed = [owner.enroll(terms) for owner in owners]

        def begin(*, is_away, leaves_at):
            for owner in owners:
                owner.is_away, owner.leaves_at = is_away, leaves_at
            with closing(Journal(tmp_path / f"{vain_starts}.sqlite")) as journal:
                return start(owners, terms, journal, agreed, rounds=False, patience=0.05, most=60)

        for is_away in (False, *[True] * vain_starts):
            with pytest.raises(UnreachableError, match=r"no owner answered for 0\.05 seconds"):
                begin(is_away=is_away, leaves_at=7)
        return [row.entry.position for row in begin(is_away=False, leaves_at=None)]

    assert answered(vain_starts=5) == answered(vain_starts=0)


# --- real processes ---------------------------------------------------------------------------


class Study:
    """Three owners in real processes, and learners that are started and killed at will."""

    def __init__(self, folder, table, stack, horizon):
        self.folder, self.horizon = folder, horizon
        table.to_parquet(folder / "public.parquet")
        self.owners = {}
        for index, name in enumerate(NAMES):
            path = folder / name
            path.mkdir()
            table.iloc[100 * index : 100 * (index + 1)].to_parquet(path / "shard.parquet")
            settings = {
                "name": name,
                "data": {"path": "shard.parquet", "columns": list(table)},
                "policy": {"epsilon_per_study": "10", "epsilon_lifetime": "100"},
            }
            (path / "owner.toml").write_text(tomli_w.dumps(settings))
            process = Forked(
                "copriv-owner", "serve", path / "owner.toml", "--insecure-noise-seed", index
            )
            stack.callback(process.communicate)
            stack.callback(process.terminate)
            self.owners[name] = (path, int(process.stdout.readline().split()[-1]))
        self.path = folder / "study.toml"
        self.path.write_text(
            tomli_w.dumps(
                {
                    "name": "killed",
                    "seed": 1,
                    "features": {"public": {"path": "public.parquet"}, "target": "y"},
                    "model": {"loss": "squared", "theta_max": 2.0},
                    "algorithm": {"horizon": horizon, "rho": 1e-3},
                    "privacy": {"epsilon": 10},
                    "owners": [
                        {"name": name, "address": f"127.0.0.1:{port}"}
                        for name, (_, port) in self.owners.items()
                    ],
                }
            )
        )

    def start(self, run_folder):
        return Forked("copriv", "train", self.path, "--resume", run_folder)

    def finish(self, run_folder):
        process = self.start(run_folder)
        _, said = process.communicate(timeout=600)
        assert process.returncode == 0, said
        return json.loads((run_folder / "summary.json").read_text())


def lived(run_folder):
    """How many communications the journal holds; -1 before there is a journal."""
    try:
        with closing(
            sqlite3.connect(f"file:{run_folder / 'journal.sqlite'}?mode=ro", uri=True, timeout=5)
        ) as db:
            return int(db.execute("SELECT count(*) FROM ticks").fetchone()[0])
    except sqlite3.OperationalError:
        return -1


@pytest.fixture
def start_study(tmp_path, table_maker):
    with ExitStack() as stack:
        yield lambda horizon: Study(tmp_path, table_maker(600, seed=9), stack, horizon)


def killed_and_resumed(study, kills, rng):
    """Kill at random moments, compare with an unbroken run, and the journals with the ledgers."""
    whole = study.finish(study.folder / "whole")
    broken = study.folder / "broken"
    # A few in the seconds before the first tick, the others while ticks are lived.
    for kill in range(kills):
        process = study.start(broken)
        if kill % 5 == 4:
            before, over = lived(broken), time.monotonic() + rng.uniform(0.0, 1.5)
            while lived(broken) == before and time.monotonic() < over:
                time.sleep(0.001)
        else:
            share = (kill + rng.random()) / (kills + 1)
            while lived(broken) < share * study.horizon and process.poll() is None:
                time.sleep(0.001)
            time.sleep(rng.uniform(0.0, 0.004))
        process.kill()
        process.communicate()
    assert 0 < lived(broken) < study.horizon
    told = study.finish(broken)
    assert told["theta"] == whole["theta"]
    assert told["ticks"] == whole["ticks"] == study.horizon
    traces = [pd.read_parquet(run / "trace.parquet") for run in (study.folder / "whole", broken)]
    for column in ("k", "owner", "sequence", "time"):
        assert traces[0][column].tolist() == traces[1][column].tolist()
    assert np.stack(traces[0]["theta"]).tobytes() == np.stack(traces[1]["theta"]).tobytes()
    for owner in told["owners"]:
        _, studies = read_studies(study.owners[owner["name"]][0] / "ledger.sqlite")
        counts = [entry.account.answered for entry in studies]
        # Training and validation, of the unbroken run and of this one.
        assert counts == [owner["responses"], 1] * 2
        assert all(entry.account.closed for entry in studies)
        assert sum(entry.epsilon_held for entry in studies[2:]) == Fraction(owner["epsilon_spent"])
    # A run that has finished is only shown.
    assert study.finish(broken) == told


def test_a_killed_learner_resumes_bit_for_bit_and_charges_nobody_twice(start_study):
    killed_and_resumed(start_study(400), KILLS, random.Random(20))


def test_two_copies_of_a_run_that_go_on_at_once_are_given_no_number_twice(start_study):
    """Somebody copied the folder, and resumes both: of each number an owner knows one answer."""
    study = start_study(400)
    folders = [study.folder / "run", study.folder / "copy"]
    process = study.start(folders[0])
    while lived(folders[0]) < 100:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.001)
    process.send_signal(signal.SIGSTOP)
    shutil.copytree(*folders)
    process.kill()
    process.communicate()
    both = [study.start(folder) for folder in folders]
    said = [process.communicate(timeout=600)[1] for process in both]
    statuses = [process.returncode for process in both]
    assert 0 in statuses, said
    assert set(statuses) <= {0, 3}, said
    held = [responses_in(folder) for folder in folders]
    assert all(held[0][number] == held[1][number] for number in held[0].keys() & held[1].keys())
    for index, (path, _) in enumerate(study.owners.values()):
        training, *_ = read_studies(path / "ledger.sqlite")[1]
        given = {number for owner, number in held[0].keys() | held[1].keys() if owner == index}
        assert given <= set(range(1, training.account.answered + 1))
        assert training.account.answered <= training.account.promised


def responses_in(run_folder):
    """What a journal holds: (owner, number) -> response."""
    with closing(sqlite3.connect(run_folder / "journal.sqlite")) as db:
        rows = db.execute("SELECT owner, sequence, gradient FROM responses")
        return {(owner, number): gradient for owner, number, gradient in rows}


@pytest.mark.trouble
def test_forty_kills_later_the_model_is_the_same(start_study):
    killed_and_resumed(start_study(3000), 40, random.Random(21))


def test_an_owner_that_starts_later_than_the_learner_is_waited_for(
    owner_folder, serve_owner, tmp_path
):
    address = free_address()
    settings_path = owner_folder("owner-a", also={"listen": address})
    study = {
        "name": "alone",
        "seed": 1,
        "profile": "published",
        "features": {"map": str(settings_path.parent / "features.json")},
        "model": {"loss": "squared", "theta_max": 2.0},
        "algorithm": {"horizon": 20, "rho": 1e-3},
        "privacy": {"epsilon": 10},
        "network": {"deadline": 0.5, "patience": 60},
        "owners": [{"name": "owner-a", "address": address}],
    }
    path, out = tmp_path / "study.toml", tmp_path / "run"
    path.write_text(tomli_w.dumps(study))
    process = Forked("copriv", "train", path, "--out", out)
    # The journal is there before anybody is asked; then more than a deadline passes.
    while not (out / "journal.sqlite").exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)
    time.sleep(1.0)
    assert process.poll() is None, process.communicate()[1]
    serve_owner(settings_path)
    _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert json.loads((out / "summary.json").read_text())["ticks"] == 20


def test_what_a_killed_owner_loses_of_a_block_is_counted(owner_folder, tmp_path):
    address = free_address()
    settings_path = owner_folder("owner-a", also={"listen": address, "ledger": {"block": 64}})
    study = {
        "name": "blocks",
        "seed": 1,
        "profile": "published",
        "features": {"map": str(settings_path.parent / "features.json")},
        "model": {"loss": "squared", "theta_max": 2.0},
        # Two milliseconds between ticks, so that the owner is killed in the middle.
        "algorithm": {"horizon": 500, "rho": 1e-3, "time_scale": 0.003},
        "privacy": {"epsilon": 10},
        "owners": [{"name": "owner-a", "address": address}],
    }
    path, out = tmp_path / "study.toml", tmp_path / "run"
    path.write_text(tomli_w.dumps(study))
    owner = Forked("copriv-owner", "serve", settings_path)
    learner = Forked("copriv", "train", path, "--out", out)
    while lived(out) < 100:
        assert learner.poll() is None, learner.communicate()[1]
        time.sleep(0.001)
    owner.kill()
    owner.communicate()
    owner = Forked("copriv-owner", "serve", settings_path)
    printed, said = learner.communicate(timeout=600)
    owner.kill()
    owner.communicate()
    assert learner.returncode == 0, said
    summary = read_summary(out)
    (summarised,) = summary.owners
    assert 0 < summarised.responses_lost < 64
    assert (summarised.responses, summarised.responses_left) == (500, 0)
    assert summary.ticks == 500 - summarised.responses_lost
    lost = f"Charged, but lost in a crash: owner-a ({summarised.responses_lost})."
    assert lost in (out / "report.html").read_text()
    assert lost in " ".join(printed.split())


def test_all_owners_away_is_status_4_and_the_run_can_be_resumed(
    owner_folder, serve_owner, table_maker, tmp_path, typed
):
    settings_path = owner_folder("owner-a")
    running = start_owner(settings_path, listen=None, insecure_noise_seed=1)
    table_maker(300, seed=2).to_parquet(tmp_path / "public.parquet")
    study = {
        "name": "alone",
        "seed": 1,
        "features": {"map": str(settings_path.parent / "features.json")},
        "model": {"loss": "squared", "theta_max": 2.0},
        "algorithm": {"horizon": 1000, "rho": 1e-3},
        "privacy": {"epsilon": 10, "sensitivity": "domain", "split": "horizon"},
        "network": {"patience": 1, "deadline": 5},
        "owners": [{"name": "owner-a", "address": f"127.0.0.1:{running.port}"}],
    }
    path, out = tmp_path / "study.toml", tmp_path / "run"
    path.write_text(tomli_w.dumps(study))
    process = Forked("copriv", "train", path, "--out", out)
    while lived(out) < 100:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.005)
    running.drain(grace=0.1)
    _, said = process.communicate(timeout=600)
    assert process.returncode == 4, said
    assert "no owner answered for 1 seconds (owner-a away since" in said
    assert f"copriv train --resume {out}" in said
    again = run_command("copriv", "train", "--resume", out)
    assert again.returncode == 4, again.stderr
    # Another port: addresses may change between two starts of a run.
    back = serve_owner(settings_path, insecure_noise_seed=1)
    study["owners"] = [{"name": "owner-a", "address": f"127.0.0.1:{back.port}"}]
    path.write_text(tomli_w.dumps(study))
    last = run_command("copriv", "train", path, "--resume", out)
    assert last.returncode == 0, last.stderr
    assert json.loads((out / "summary.json").read_text())["ticks"] == 1000
    # Another study does not go on with this run.
    path.write_text(tomli_w.dumps(study | {"seed": 2}))
    (out / "summary.json").unlink()
    other = typed("copriv", "train", path, "--resume", out)
    assert other.returncode == 2
    assert "begun with other settings" in other.stderr


def test_a_run_that_is_not_there_is_begun_in_so_many_words(tmp_path, public_table, typed):
    """A mistyped folder began a new run, and spent its owners' epsilon, without a word."""
    public_table.to_parquet(tmp_path / "public.parquet")
    study = {
        "name": "absent",
        "features": {"public": {"path": "public.parquet"}, "target": "y"},
        "model": {"loss": "squared", "theta_max": 2.0},
        "algorithm": {"name": "moments"},
        "privacy": {"epsilon": 1},
        "network": {"patience": 1, "deadline": 1},
        "owners": [{"name": "owner-a", "address": "127.0.0.1:1"}],
    }
    path, out = tmp_path / "study.toml", tmp_path / "mistyped"
    path.write_text(tomli_w.dumps(study))
    said = typed("copriv", "train", path, "--resume", out)
    assert said.returncode == 2
    told = " ".join((said.stdout + said.stderr).split())
    assert "mistyped: no run is there yet, so a new one begins there" in told
