"""A study from its settings to its model: the same steps for owners anywhere."""

from __future__ import annotations

import json
import secrets
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

from common.arrays import Vector
from common.errors import (
    CoprivError,
    InputError,
    UnreachableError,
    UntrustedError,
)
from common.features import FeatureMap
from common.terms import Enrollment, Query, Records
from learner.algorithms.clocks import Tick
from learner.planning.deciding import decide
from learner.planning.plan import Decision, Plan
from learner.planning.public_side import PublicSide
from learner.planning.settings import StudySettings
from learner.training.claims import check_description
from learner.training.initiative import Requests, live_ticks
from learner.training.journal import Journal
from learner.training.line import LocalLine, OwnerLine
from learner.training.memory_owner import LocalShard, MemoryOwner
from learner.training.owners import Owner
from learner.training.runner import Applied, Pace, run

__all__ = ["Outcome", "noiseless_model", "train"]

T = TypeVar("T")

START_WAIT_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A finished training.

    Args:
      theta: The model, shape (p,).
      enrollments: What each owner promised.
      responses: How many responses each owner gave.
      plan: What ran, with what was chosen for it.
      ticks: Communications applied.
      wall_seconds: Seconds of training.
    """

    theta: Vector
    enrollments: tuple[Enrollment, ...]
    responses: tuple[int, ...]
    plan: Plan
    ticks: int
    wall_seconds: float


def train(
    settings: StudySettings,
    public: PublicSide,
    owners: Sequence[Owner],
    *,
    journal: Journal,
    requests: Requests | None = None,
    on_started: Callable[[Plan], None] = lambda plan: None,
    on_applied: Callable[[Applied], None] = lambda applied: None,
    on_missed: Callable[[], None] = lambda: None,
    on_lines: Callable[[Sequence[OwnerLine]], None] = lambda lines: None,
) -> Outcome:
    """Enrol the owners, choose the step, train, and close the study; or continue from the journal.

    Args:
      settings: The study.
      public: The feature map and the public records.
      owners: The owners, in the order of the settings.
      journal: The run's durable trace.
      requests: Where owners' requests arrive; needed when they have the initiative.
      on_started: Called with the plan before anybody is enrolled.
      on_applied: Called after each communication.
      on_missed: Called after each tick that nobody answered.
      on_lines: Called with the lines to the owners, before anybody is enrolled.

    Raises:
      CoprivError: An owner is not there, refuses, or stays away; see its exit status.
    """
    with _let_go(owners):
        seed = int(_once(journal, "seed", lambda: str(_seed(settings))))
        study_id = _once(journal, "study_id", lambda: f"{settings.name}-{uuid.uuid4()}")
        plan = _plan(settings, public, owners, journal=journal, seed=seed)
        on_started(plan)
        lines = _lines(plan, public.feature_map, owners, journal=journal, study_id=study_id)
        on_lines(lines)
        pace = Pace(time_scale=settings.algorithm.time_scale, patience=settings.network.patience)
        last = _Last(on_applied)
        with _stopped(lines):
            enrollments = _enrollments(journal, lines, plan=plan)
            theta = run(
                plan.algorithm,
                _ticks(plan, lines, pace, study_id=study_id, requests=requests, journal=journal),
                lines,
                journal=journal,
                horizon=plan.horizon,
                pace=pace,
                on_applied=last,
                on_missed=on_missed,
            )
        for owner, enrollment in zip(owners, enrollments, strict=True):
            _close(owner, study_id, is_enrolled=enrollment.responses > 0)
    return Outcome(
        theta=theta,
        enrollments=enrollments,
        responses=tuple(line.answered for line in lines),
        plan=plan,
        ticks=last.ticks,
        wall_seconds=last.wall_seconds,
    )


def _ticks(
    plan: Plan,
    lines: Sequence[OwnerLine],
    pace: Pace,
    *,
    study_id: str,
    requests: Requests | None,
    journal: Journal,
) -> Iterable[Tick]:
    """The ticks of the run, whoever makes them."""
    live = live_ticks(
        plan.settings.algorithm,
        lines,
        study_id=study_id,
        requests=requests,
        journal=journal,
        pace=pace,
    )
    return plan.ticks() if live is None else live


class _Last:
    """Passes each communication on, and keeps how many there were and how long they took."""

    def __init__(self, on_applied: Callable[[Applied], None]) -> None:
        self._on_applied = on_applied
        self.ticks = 0
        self.wall_seconds = 0.0

    def __call__(self, now: Applied) -> None:
        self.ticks, self.wall_seconds = now.k, now.entry.wall_seconds
        self._on_applied(now)


def noiseless_model(
    settings: StudySettings,
    feature_map: FeatureMap,
    shards: Sequence[Records],
    *,
    plan: Plan,
    past: Iterable[Tick],
) -> Vector:
    """The model of the same ticks without noise: the cost of privacy is counted from it.

    Only a simulation has the shards. Ticks that owners had a say in are taken from the run.
    """
    ticks = plan.ticks() if settings.algorithm.initiative == "learner" else past
    names = [entry.name for entry in settings.owners]
    owners = [
        MemoryOwner(name, shard, seed=None) for name, shard in zip(names, shards, strict=True)
    ]
    terms = plan.terms(feature_map, study_id="noiseless")
    lines = [OwnerLine(owner, its) for owner, its in zip(owners, terms, strict=True)]
    for line, responses in zip(lines, plan.responses, strict=True):
        if responses:
            line.enroll()
    return run(
        plan.algorithm,
        ticks,
        lines,
        journal=None,
        horizon=plan.horizon,
        pace=Pace(time_scale=0.0, patience=settings.network.patience),
    )


@contextmanager
def _let_go(owners: Sequence[Owner]) -> Iterator[None]:
    """Disconnect all owners if this fails; the study stays open, the run can be resumed."""
    try:
        yield
    except BaseException:
        for owner in owners:
            owner.disconnect()
        raise


@contextmanager
def _stopped(lines: Sequence[OwnerLine]) -> Iterator[None]:
    """Look for no owner any more when this ends."""
    try:
        yield
    finally:
        for line in lines:
            line.stop()


def _seed(settings: StudySettings) -> int:
    """The clocks' seed: given, or drawn; it is public either way."""
    return secrets.randbits(32) if settings.seed is None else settings.seed


def _once(journal: Journal, key: str, make: Callable[[], str]) -> str:
    """A fact of the run: noted at its first start, the same at every later one."""
    value = journal.noted(key)
    if value is None:
        value = make()
        journal.note(key, value)
    return value


def _plan(
    settings: StudySettings,
    public: PublicSide,
    owners: Sequence[Owner],
    *,
    journal: Journal,
    seed: int,
) -> Plan:
    """The plan of this run: decided at its first start, the same at every later one."""

    def made() -> str:
        patience = settings.network.patience
        counts = [
            check_description(
                _present(owner.describe, patience=patience), name=owner.name
            ).num_records
            for owner in owners
        ]
        return decide(settings, public, num_records=counts, seed=seed).to_json()

    return Plan(
        settings=settings,
        num_features=public.feature_map.num_features,
        decision=Decision.from_json(_once(journal, "decision", made)),
        seed=seed,
    )


def _lines(
    plan: Plan,
    feature_map: FeatureMap,
    owners: Sequence[Owner],
    *,
    journal: Journal,
    study_id: str,
) -> list[OwnerLine]:
    """One line to each owner, at the place where the journal ends."""
    answered = [0] * len(owners)
    for entry in journal.past:
        for owner, (sequence, _) in entry.responses.items():
            answered[owner] = sequence
    unanswered = {
        owner: Query(study_id=study_id, sequence=sequence, theta=theta)
        for owner, (sequence, theta) in journal.unanswered().items()
        if sequence == answered[owner] + 1
    }

    def keep(owner: int) -> Callable[[Query], None]:
        return lambda query: journal.keep_unanswered(
            owner, sequence=query.sequence, theta=query.theta
        )

    return [
        (LocalLine if isinstance(owner, LocalShard) else OwnerLine)(
            owner,
            terms,
            answered=answered[index],
            unanswered=unanswered.get(index),
            keep=keep(index),
            retries=plan.settings.network.retries,
        )
        for index, (owner, terms) in enumerate(
            zip(owners, plan.terms(feature_map, study_id=study_id), strict=True)
        )
    ]


def _enroll(line: OwnerLine, *, num_records: int, responses: int, patience: float) -> Enrollment:
    """Enrol at the start; an owner that the schedule leaves out promises and spends nothing."""
    if responses == 0:
        return Enrollment(
            num_records=num_records,
            responses=0,
            answered=0,
            noise_scale=0.0,
            epsilon=Fraction(0),
            insecure_noise=False,
        )
    enrollment = _present(line.enroll, patience=patience)
    if enrollment.num_records != num_records:
        raise InputError(
            f"owner {line.owner.name} enrols with {enrollment.num_records} records, it described "
            f"itself with {num_records}; start a new run"
        )
    return enrollment


def _present(call: Callable[[], T], *, patience: float) -> T:
    """A call at the start: an owner that stays away is a wrong address or not started."""
    give_up = time.monotonic() + patience
    while True:
        try:
            return call()
        except CoprivError as error:
            waits = isinstance(error, UnreachableError) and not isinstance(error, UntrustedError)
            if waits and time.monotonic() < give_up:
                time.sleep(START_WAIT_SECONDS)
                continue
            if error.exit_status == 4:
                raise InputError(str(error)) from None
            raise


def _enrollments(
    journal: Journal, lines: Sequence[OwnerLine], *, plan: Plan
) -> tuple[Enrollment, ...]:
    """What each owner promised: agreed on at the first start, taken up at later ones."""
    noted = journal.noted("enrollments")
    if noted is None:
        enrollments = tuple(
            _enroll(
                line,
                num_records=count,
                responses=responses,
                patience=plan.settings.network.patience,
            )
            for line, count, responses in zip(
                lines, plan.decision.num_records, plan.responses, strict=True
            )
        )
        journal.note("enrollments", json.dumps([_public_facts(e) for e in enrollments]))
        return enrollments
    enrollments = tuple(_from_facts(facts) for facts in json.loads(noted))
    if len(journal.past) < plan.horizon:
        taken_up = [(line, e) for line, e in zip(lines, enrollments, strict=True) if e.responses]
        with ThreadPoolExecutor(max_workers=len(lines)) as executor:
            list(executor.map(lambda pair: pair[0].take_up(pair[1]), taken_up))
    return enrollments


def _from_facts(facts: dict[str, Any]) -> Enrollment:
    """The enrolment of :func:`_public_facts`."""
    return Enrollment(answered=0, **facts | {"epsilon": Fraction(facts["epsilon"])})


def _public_facts(enrollment: Enrollment) -> dict[str, object]:
    return {
        "num_records": enrollment.num_records,
        "responses": enrollment.responses,
        "noise_scale": enrollment.noise_scale,
        "epsilon": str(enrollment.epsilon),
        "insecure_noise": enrollment.insecure_noise,
    }


def _close(owner: Owner, study_id: str, *, is_enrolled: bool) -> None:
    """Give back what was not used; an owner that is away keeps it reserved."""
    try:
        if is_enrolled:
            owner.close(study_id)
    except CoprivError:
        return
    finally:
        owner.disconnect(over=True)
