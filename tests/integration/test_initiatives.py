"""Broadcasts and owners that come by themselves, over real sockets, against the same in memory."""

import hashlib
import threading
import time
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import grpc
import numpy as np
import pandas as pd
import pytest
from calls import methods
from waiting import wait_until

from common.config import check_settings
from common.errors import CoprivError, PolicyError, UnreachableError
from common.pb import copriv_pb2 as pb
from common.terms import Query
from learner.algorithms.clocks import Tick
from learner.network.attachment_server import AttachmentServer
from learner.network.grpc_owner import GrpcOwner
from learner.planning.public_side import PublicSide
from learner.planning.settings import StudySettings
from learner.training.journal import Journal
from learner.training.line import OwnerLine
from learner.training.memory_owner import LocalShard, MemoryOwner
from learner.training.pace import Pace
from learner.training.runner import run
from learner.training.study import Watch, train
from owner.attaching import open_attachment
from owner.ledger_reading import read_studies

NAMES = ("owner-a", "owner-b", "owner-c")
HORIZON = 40


class CrashError(Exception):
    """The learner dies here."""


@pytest.fixture
def settings_files(owner_folder):
    return [
        owner_folder(name, seed=10 + i, num_records=200 + 50 * i) for i, name in enumerate(NAMES)
    ]


@pytest.fixture
def public(feature_map):
    return PublicSide(feature_map=feature_map, records=None)


def study(initiative, *, horizon=HORIZON, retries=3, groups=(), learner=None, **algorithm):
    table = {
        "name": "initiatives",
        "seed": 7,
        "profile": "published",
        "features": {"map": "features.json"},
        "model": {"theta_max": 2.0},
        "algorithm": {"horizon": horizon, "rho": 1e-3, "initiative": initiative} | algorithm,
        "privacy": {"epsilon": 5},
        "network": {"deadline": 10, "patience": 10, "retries": retries},
        "owners": [{"name": name} for name in NAMES],
        "groups": groups,
        "learner": learner or {},
    }
    return check_settings(StudySettings, table, where="test")


class Attached:
    """Owners in threads of this process that go to a learner, and bind no port."""

    def __init__(self, paths, address, *, stay=False):
        self.stops = [threading.Event() for _ in paths]
        self.attachments = [
            open_attachment(
                path,
                learner=address,
                stay=stay,
                insecure=False,
                insecure_noise_seed=i,
            )
            for i, path in enumerate(paths)
        ]
        self.failures = []
        self.threads = [
            threading.Thread(target=self._serve, args=(one, stop))
            for one, stop in zip(self.attachments, self.stops, strict=True)
        ]
        for thread in self.threads:
            thread.start()

    def _serve(self, attachment, stop):
        try:
            attachment.run(stop)
        except CoprivError as error:
            self.failures.append(error)

    def join(self):
        """Wait for owners that end by themselves."""
        for thread in self.threads:
            thread.join(15)
            assert not thread.is_alive()

    def stop(self):
        for stop in self.stops:
            stop.set()
        self.join()


@contextmanager
def attached(paths, address, *, stay=False):
    owners = Attached(paths, address, stay=stay)
    try:
        yield owners
    finally:
        owners.stop()


def listening(port=0):
    return AttachmentServer(NAMES, f"127.0.0.1:{port}", deadline=10, patience=10)


def go(settings, public, owners, journal, *, requests=None, die_at=None):
    """Train; ``die_at`` crashes the learner after this many communications."""
    rows = []

    def applied(row):
        rows.append(row)
        if row.k == die_at:
            raise CrashError

    kept = Journal(journal)
    try:
        outcome = train(
            settings, public, owners, journal=kept, requests=requests, watch=Watch(applied=applied)
        )
    except CrashError:
        return rows, None
    finally:
        kept.close()
    return rows, outcome


def trajectory(rows):
    return np.array([row.central_model for row in rows]).tobytes()


def spoke(rows):
    return [next(iter(row.entry.responses)) for row in rows]


def in_memory(rows, outcome, paths, feature_map):
    """The trajectory of the same owner sequence and insecure seeds, without a network."""
    owners = [
        MemoryOwner(
            name,
            feature_map.apply(pd.read_parquet(path.parent / "shard.parquet"), where=name),
            seed=i,
        )
        for i, (name, path) in enumerate(zip(NAMES, paths, strict=True))
    ]
    terms = outcome.plan.terms(feature_map, study_id="again")
    lines = [OwnerLine(owner, own) for owner, own in zip(owners, terms, strict=True)]
    for line in lines:
        line.enroll()
    again = []
    run(
        outcome.plan.algorithm,
        [Tick(row.entry.time, tuple(row.entry.responses)) for row in rows],
        lines,
        journal=None,
        horizon=outcome.plan.horizon,
        pace=Pace(time_scale=0.0, patience=10.0),
        on_applied=again.append,
    )
    return trajectory(again)


def ledger_counts(paths):
    counts = []
    for path in paths:
        _, studies = read_studies(path.parent / "ledger.sqlite")
        counts.append(sum(entry.account.answered for entry in studies))
    return counts


# Owner-requested updates


@pytest.mark.parametrize("correction", ["none", "counted"])
def test_owner_requested_updates_equal_in_memory_bit_for_bit(
    settings_files, public, tmp_path, correction
):
    settings = study("owner", correction=correction)
    with (
        listening() as learner,
        attached(settings_files, f"127.0.0.1:{learner.port}") as owners,
    ):
        journal = tmp_path / "journal.sqlite"
        rows, outcome = go(settings, public, learner.owners, journal, requests=learner)
        owners.join()  # the learner said goodbye
        assert not owners.failures
    assert outcome is not None
    assert len(rows) == HORIZON
    assert set(spoke(rows)) == {0, 1, 2}
    times = [row.entry.time for row in rows]
    assert times == sorted(times)
    assert times[0] > 0
    assert trajectory(rows) == in_memory(rows, outcome, settings_files, public.feature_map)
    assert ledger_counts(settings_files) == list(np.bincount(spoke(rows), minlength=3))


def test_seeded_clocks_of_the_owners_repeat(owner_folder, public, tmp_path):
    sequences = []
    for attempt in range(2):
        paths = []
        for i, name in enumerate(NAMES):
            path = owner_folder(name, seed=10 + i, also={"attach": {"seed": i}})
            (path.parent / "ledger.sqlite").unlink(missing_ok=True)
            (path.parent / "ledger.sqlite.lock").unlink(missing_ok=True)
            paths.append(path)
        with listening() as learner, attached(paths, f"127.0.0.1:{learner.port}"):
            journal = tmp_path / f"journal{attempt}.sqlite"
            rows, _ = go(study("owner"), public, learner.owners, journal, requests=learner)
        sequences.append([(*row.entry.responses, row.entry.time) for row in rows])
    assert sequences[0] == sequences[1]


def test_owners_find_a_learner_that_was_killed_and_go_on_bit_for_bit(
    settings_files, public, tmp_path, caplog
):
    """Their logs say when it is away, and when it is there again."""
    settings, journal = study("owner"), tmp_path / "journal.sqlite"
    with ExitStack() as stack:
        first = listening()
        back = f"the learner at 127.0.0.1:{first.port} is there\n"
        owners = stack.enter_context(attached(settings_files, f"127.0.0.1:{first.port}"))
        with first:
            before, nothing = go(settings, public, first.owners, journal, requests=first, die_at=15)
            assert nothing is None
        wait_until(lambda: "no line to the learner at 127.0.0.1" in caplog.text)
        assert back not in caplog.text
        second = stack.enter_context(listening(first.port))
        rows, outcome = go(settings, public, second.owners, journal, requests=second)
        owners.join()
    assert back in caplog.text
    assert outcome is not None
    # What the journal had kept is not asked again.
    assert [row.entry.wall_seconds for row in rows[:15]] == [
        row.entry.wall_seconds for row in before
    ]
    assert trajectory(rows).startswith(trajectory(before))
    assert trajectory(rows) == in_memory(rows, outcome, settings_files, public.feature_map)
    assert sum(ledger_counts(settings_files)) == HORIZON


def test_a_query_that_was_charged_when_the_learner_died_is_asked_again_not_lost(
    settings_files, public, tmp_path, monkeypatch
):
    settings, path = study("owner"), tmp_path / "journal.sqlite"
    append, appended = Journal.append, 0

    def dies(self, entry):
        nonlocal appended
        appended += 1
        if appended == 12:
            raise CrashError  # the owner was charged; the response is not in the journal
        append(self, entry)

    with ExitStack() as stack:
        first = listening()
        owners = stack.enter_context(attached(settings_files, f"127.0.0.1:{first.port}"))
        with first, monkeypatch.context() as patch:
            patch.setattr(Journal, "append", dies)
            before, _ = go(settings, public, first.owners, path, requests=first)
        assert len(before) == 11
        assert sum(ledger_counts(settings_files)) == 12
        second = stack.enter_context(listening(first.port))
        rows, outcome = go(settings, public, second.owners, path, requests=second)
        owners.join()
    assert outcome is not None
    assert sum(ledger_counts(settings_files)) == HORIZON
    assert trajectory(rows) == in_memory(rows, outcome, settings_files, public.feature_map)


def test_an_owner_that_restarts_is_waited_for_by_nobody_and_comes_back(
    settings_files, public, tmp_path
):
    settings = study("owner", horizon=400)
    with ExitStack() as stack:
        learner = stack.enter_context(listening())
        address = f"127.0.0.1:{learner.port}"
        stack.enter_context(attached(settings_files[:2], address))
        leaves = Attached(settings_files[2:], address)
        restarted = []
        stack.callback(lambda: [one.stop() for one in restarted])

        def applied(row):
            if row.k == 50:
                leaves.stop()
            if row.k == 150:
                restarted.append(Attached(settings_files[2:], address))
                wait_until(lambda: learner.owners[2].stream is not None)
            rows.append(row)

        rows = []
        journal = Journal(tmp_path / "journal.sqlite")
        train(
            settings,
            public,
            learner.owners,
            journal=journal,
            requests=learner,
            watch=Watch(applied=applied),
        )
        journal.close()
    who = spoke(rows)
    assert len(who) == 400
    assert 2 in who[:50]
    assert 2 not in who[51:150]
    assert 2 in who[151:]
    assert sum(ledger_counts(settings_files)) == 400


def test_owners_that_stay_wait_for_the_next_study(settings_files, public, tmp_path):
    with ExitStack() as stack:
        first = listening()
        owners = stack.enter_context(attached(settings_files, f"127.0.0.1:{first.port}", stay=True))
        with first:
            rows, _ = go(
                study("owner"), public, first.owners, tmp_path / "1.sqlite", requests=first
            )
        assert len(rows) == HORIZON
        with listening(first.port) as second:
            rows, _ = go(
                study("owner"), public, second.owners, tmp_path / "2.sqlite", requests=second
            )
        assert len(rows) == HORIZON
        assert all(thread.is_alive() for thread in owners.threads)
    for path in settings_files:
        _, studies = read_studies(path.parent / "ledger.sqlite")
        assert [bool(entry.closed) for entry in studies] == [True, True]


def test_real_time_requests_are_taken_as_they_arrive(settings_files, public, tmp_path):
    settings = study("owner", time_scale=0.005)
    with (
        listening() as learner,
        attached(settings_files, f"127.0.0.1:{learner.port}") as owners,
    ):
        journal = tmp_path / "journal.sqlite"
        rows, outcome = go(settings, public, learner.owners, journal, requests=learner)
        owners.join()
    assert outcome is not None
    times = [row.entry.time for row in rows]
    assert times == sorted(times)
    assert trajectory(rows) == in_memory(rows, outcome, settings_files, public.feature_map)


def test_a_learner_shows_its_token_and_waits_for_a_busy_owner(owner_folder, make_terms):
    token = "a-token-of-enough-length"  # noqa: S105
    path = owner_folder(
        tokens={"bank": f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"},
        queries_per_second=5.0,
    )
    for sent, known in ((token, True), ("another-token-of-enough-length", False), (None, False)):
        with (
            AttachmentServer(
                ["owner-a"], "127.0.0.1:0", deadline=10, patience=10, tokens=[sent]
            ) as learner,
            attached([path], f"127.0.0.1:{learner.port}"),
        ):
            owner = learner.owners[0]
            if not known:
                with pytest.raises(PolicyError, match="token"):
                    owner.enroll(make_terms())
                continue
            owner.enroll(make_terms())
            began = time.monotonic()
            for k in range(1, 8):
                owner.answer(Query(study_id="study-1", sequence=k, theta=np.zeros(4)))
            # Five at once, then one every fifth of a second: it waited and was not refused.
            assert time.monotonic() - began > 0.3
    _, studies = read_studies(path.parent / "ledger.sqlite")
    assert [(entry.learner, entry.account.answered) for entry in studies] == [("bank", 7)]


def test_a_stranger_is_turned_away_and_told_why(settings_files):
    with AttachmentServer(["somebody-else"], "127.0.0.1:0", deadline=5, patience=5) as learner:
        attachment = open_attachment(
            settings_files[0],
            learner=f"127.0.0.1:{learner.port}",
            stay=False,
            insecure=False,
            insecure_noise_seed=None,
        )
        with pytest.raises(PolicyError, match="this study names no such owner"):
            attachment.run(threading.Event())


def test_a_visitor_that_says_nothing_is_cut_off(settings_files):
    del settings_files
    silent = threading.Event()
    with (
        AttachmentServer(NAMES, "127.0.0.1:0", deadline=0.3, patience=5) as learner,
        grpc.insecure_channel(f"127.0.0.1:{learner.port}") as channel,
    ):

        def nothing():
            silent.wait(20)
            yield from ()

        call = methods("Learner", channel).Attach(nothing())
        with pytest.raises(grpc.RpcError):
            next(call)
        silent.set()


def test_an_owner_that_comes_again_and_again_and_never_asks_keeps_no_other_waiting():
    """Each new stream, and whatever came on it, began its silence anew."""
    over = threading.Event()
    with (
        AttachmentServer(["restless", "north"], "127.0.0.1:0", deadline=0.5, patience=5) as learner,
        grpc.insecure_channel(f"127.0.0.1:{learner.port}") as channel,
    ):

        def come(name, message):
            def said():
                yield pb.OwnerMessage(hello=pb.Hello(name=name))
                yield message
                over.wait(20)

            return methods("Learner", channel).Attach(said())

        def come_again():
            while not over.wait(0.1):
                calls.append(come("restless", pb.OwnerMessage(call=1, closed=pb.CloseSummary())))

        def next_request(timeout, *waited_for):
            ready = waited_for.__contains__
            return learner.next_request(now=0.0, time_scale=0.0, ready=ready, timeout=timeout)

        calls = [come("north", pb.OwnerMessage(request=pb.UpdateRequest(time=1.0)))]
        restless = threading.Thread(target=come_again)
        restless.start()
        wait_until(lambda: all(owner.stream is not None for owner in learner.owners))
        try:
            assert next_request(10.0, 0, 1) == (1, 1.0)
            # It is asked to come back as often as any that is silent.
            wait_until(lambda: next_request(0.05, 0) or learner.owners[0].fault, seconds=10)
            assert "was attached 3 times and asked for no update" in learner.owners[0].fault
        finally:
            over.set()
            restless.join()


def test_whose_silence_is_over_is_cut_off_also_while_nothing_else_happens():
    """It was looked at when something came, or when the wait was over."""
    over = threading.Event()
    with (
        AttachmentServer(["silent", "north"], "127.0.0.1:0", deadline=0.3, patience=5) as learner,
        grpc.insecure_channel(f"127.0.0.1:{learner.port}") as channel,
    ):

        def said(name, *messages):
            yield pb.OwnerMessage(hello=pb.Hello(name=name))
            yield from messages
            over.wait(20)

        asks = pb.OwnerMessage(request=pb.UpdateRequest(time=1.0))
        attach = methods("Learner", channel).Attach
        calls = [attach(said("silent")), attach(said("north", asks))]
        wait_until(lambda: all(owner.stream is not None for owner in learner.owners))
        try:
            first = learner.next_request(now=0.0, time_scale=0.0, ready=lambda _: True, timeout=10)
            assert first == (1, 1.0)
        finally:
            over.set()
        del calls


def test_an_owner_that_falls_silent_is_unreachable_and_must_come_back():
    with (
        AttachmentServer(NAMES, "127.0.0.1:0", deadline=0.3, patience=5) as learner,
        grpc.insecure_channel(f"127.0.0.1:{learner.port}") as channel,
    ):
        over = threading.Event()

        def hello_only():
            yield pb.OwnerMessage(hello=pb.Hello(name="owner-a"))
            over.wait(20)

        call = methods("Learner", channel).Attach(hello_only())
        owner = learner.owners[0]
        with pytest.raises(UnreachableError, match="did not answer in time"):
            owner.answer(Query(study_id="s", sequence=1, theta=np.zeros(4)))
        with pytest.raises(UnreachableError, match="is not attached"):
            owner.answer(Query(study_id="s", sequence=1, theta=np.zeros(4)))
        assert next(call).HasField("query")
        over.set()


# Broadcast


def remote(running):
    return [
        GrpcOwner(name, f"127.0.0.1:{one.port}", deadline=10)
        for name, one in zip(NAMES, running, strict=True)
    ]


def test_broadcast_equals_in_memory_and_losers_spend_nothing(
    settings_files, serve_owner, public, tmp_path
):
    running = [serve_owner(path, insecure_noise_seed=i) for i, path in enumerate(settings_files)]
    settings = study("broadcast")
    rows, outcome = go(settings, public, remote(running), tmp_path / "journal.sqlite")
    assert outcome is not None
    assert len(rows) == HORIZON
    assert trajectory(rows) == in_memory(rows, outcome, settings_files, public.feature_map)
    # Every offer went to all three; only the winners were charged.
    assert ledger_counts(settings_files) == list(np.bincount(spoke(rows), minlength=3))
    for path, spent in zip(settings_files, np.bincount(spoke(rows), minlength=3), strict=True):
        _, studies = read_studies(path.parent / "ledger.sqlite")
        assert studies[0].epsilon_spent == Fraction(5) * int(spent) / HORIZON


def test_an_offer_spends_nothing_and_a_full_or_deaf_owner_declines(
    owner_folder, serve_owner, make_terms
):
    path = owner_folder()
    running = serve_owner(path)
    owner = GrpcOwner("owner-a", f"127.0.0.1:{running.port}", deadline=10)
    owner.enroll(make_terms(responses=1))
    assert all(owner.offer("study-1") for _ in range(20))
    assert ledger_counts([path]) == [0]
    owner.answer(Query(study_id="study-1", sequence=1, theta=np.zeros(4)))
    assert not owner.offer("study-1")
    with pytest.raises(CoprivError, match="enrol first"):
        owner.offer("another")
    owner.disconnect()


def test_who_seldom_listens_seldom_speaks_and_nobody_waits_for_the_deaf(
    owner_folder, serve_owner, public, tmp_path
):
    now = datetime.now(UTC)
    hours = f"{now + timedelta(hours=2):%H:%M}-{now + timedelta(hours=3):%H:%M}"
    hears = ({"probability": 0.02}, {"hours": [hours]}, {})
    running = [
        serve_owner(owner_folder(name, seed=i, also={"listening": listens}))
        for i, (name, listens) in enumerate(zip(NAMES, hears, strict=True))
    ]
    rows, _ = go(study("broadcast"), public, remote(running), tmp_path / "journal.sqlite")
    counts = np.bincount(spoke(rows), minlength=3)
    assert counts[0] <= 12  # at most 40 offers at 2 %, or a few more that nobody else took
    assert counts[1] == 0
    assert counts[2] >= 28


def test_a_broadcast_run_goes_on_after_a_crash_with_the_winners_it_had(
    settings_files, serve_owner, public, tmp_path
):
    running = [serve_owner(path, insecure_noise_seed=i) for i, path in enumerate(settings_files)]
    settings, journal = study("broadcast", correction="counted"), tmp_path / "journal.sqlite"
    before, _ = go(settings, public, remote(running), journal, die_at=15)
    rows, outcome = go(settings, public, remote(running), journal)
    assert outcome is not None
    assert trajectory(rows).startswith(trajectory(before))
    assert trajectory(rows) == in_memory(rows, outcome, settings_files, public.feature_map)
    assert sum(ledger_counts(settings_files)) == HORIZON
    assert outcome.ticks == HORIZON


# Groups, and the own shard


class Around:
    """An owner, in which a test changes one thing."""

    def __init__(self, owner):
        self._owner = owner
        self._asked = 0

    def __getattr__(self, name):
        return getattr(self._owner, name)

    def answer(self, query):
        self._asked += 1
        return self._owner.answer(query)


class LosesOneAnswer(Around):
    """Its fifth response is charged and lost on the way; then it is away until it may return."""

    def __init__(self, owner):
        super().__init__(owner)
        self.may_return, self.is_back = threading.Event(), threading.Event()

    def enroll(self, terms):
        if self._asked < 5:
            return self._owner.enroll(terms)
        assert self.may_return.wait(10)
        enrollment = self._owner.enroll(terms)
        self.is_back.set()
        return enrollment

    def answer(self, query):
        response = super().answer(query)
        if self._asked == 5:
            raise UnreachableError("the line broke")
        return response


class WaitsForAnother(Around):
    """Three responses after the loss it waits until the other has returned."""

    def __init__(self, owner, other):
        super().__init__(owner)
        self._other = other

    def answer(self, query):
        response = super().answer(query)
        if self._asked == 8:
            self._other.may_return.set()
            assert self._other.is_back.wait(10)
        return response


def test_a_group_goes_on_without_an_absent_member_and_loses_none_of_its_charged_answers(
    settings_files, serve_owner, public, tmp_path
):
    running = [serve_owner(path, insecure_noise_seed=i) for i, path in enumerate(settings_files)]
    owners = remote(running)
    settings = study("learner", horizon=300, retries=0, groups=[["owner-a", "owner-b"]])
    flaky = LosesOneAnswer(owners[1])
    three = [WaitsForAnother(owners[0], flaky), flaky, owners[2]]
    rows, outcome = go(settings, public, three, tmp_path / "journal.sqlite")
    assert outcome is not None
    answered = [tuple(sorted(row.entry.responses)) for row in rows]
    assert set(answered) == {(0, 1), (0,), (2,)}
    first_alone = answered.index((0,))
    assert answered[:first_alone].count((0, 1)) == 4
    assert answered.count((0,)) >= 4  # the lost one, and three while it may not return
    assert (0, 1) in answered[first_alone:]  # it came back
    # Every charged response was applied once, in the order of its number.
    for owner, count in enumerate(ledger_counts(settings_files)):
        applied = [row.entry.responses[owner][0] for row in rows if owner in row.entry.responses]
        assert applied == list(range(1, count + 1))


def test_a_grouped_run_over_grpc_equals_in_memory_bit_for_bit(
    settings_files, serve_owner, public, tmp_path
):
    running = [serve_owner(path, insecure_noise_seed=i) for i, path in enumerate(settings_files)]
    settings = study("learner", groups=[["owner-c", "owner-a"]], correction="rates")
    rows, outcome = go(settings, public, remote(running), tmp_path / "journal.sqlite")
    assert outcome is not None
    assert {tuple(row.entry.responses) for row in rows} == {(0, 2), (1,)}
    assert trajectory(rows) == in_memory(rows, outcome, settings_files, public.feature_map)


def test_a_run_with_an_own_shard_goes_on_after_a_crash_bit_for_bit(
    settings_files, serve_owner, public, tmp_path
):
    running = [serve_owner(path, insecure_noise_seed=i) for i, path in enumerate(settings_files)]
    table = pd.read_parquet(settings_files[1].parent / "shard.parquet")
    records = public.feature_map.apply(table, where="own")
    settings = study("learner", learner={"own": "owner-b", "shows_model": True})

    def owners():
        others = remote(running)
        return [others[0], LocalShard("owner-b", records), others[2]]

    whole, _ = go(settings, public, owners(), tmp_path / "whole.sqlite")
    # The noise of a new study of equal terms begins again.
    journal = tmp_path / "journal.sqlite"
    before, _ = go(settings, public, owners(), journal, die_at=15)
    rows, outcome = go(settings, public, owners(), journal)
    assert outcome is not None
    assert trajectory(rows).startswith(trajectory(before))
    assert trajectory(rows) == trajectory(whole)
    asked = np.bincount(spoke(rows), minlength=3)
    assert outcome.responses == tuple(asked)
    assert ledger_counts(settings_files[::2]) == [2 * asked[0], 2 * asked[2]]
    assert ledger_counts(settings_files[1:2]) == [0]
