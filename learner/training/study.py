"""A study from its settings to its model: the same steps for owners anywhere."""

from __future__ import annotations

import secrets
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TypeVar

from common.arrays import Vector
from common.errors import InputError
from common.terms import Enrollment, OwnerDescription
from common.texts import printable
from learner.planning.deciding import decide
from learner.planning.decision import Decision
from learner.planning.guard import UndecidedError, check_guard
from learner.planning.plan import Plan
from learner.planning.proposal import check_noise
from learner.planning.public_side import PublicSide
from learner.planning.settings import StudySettings
from learner.planning.ways import resolved
from learner.training.agreement import refuse_misfits
from learner.training.claims import check_description
from learner.training.closing import end_study
from learner.training.enrolment import ENROLLMENTS, all_present, enrollments_of, lines_to
from learner.training.initiative import Requests, live_ticks
from learner.training.journal import Journal
from learner.training.journal_values import whole_number
from learner.training.line import OwnerLine
from learner.training.noted_decision import noted_decision
from learner.training.owners import Owner
from learner.training.pace import Pace
from learner.training.runner import Applied, run
from learner.training.validation import AGREES, Validated, validate

# Under which a journal keeps it.
STUDY_ID = "study_id"
UUID_CHARACTERS = 36

T = TypeVar("T")


@dataclass(frozen=True)
class Facts:
    """What a study is decided on of what owners describe.

    Args:
      num_records: Each owner's n_i.
      validation: How each validates a finished model, "" for not at all.
    """

    num_records: tuple[int, ...]
    validation: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A finished training.

    Args:
      theta: The model, shape (p,).
      enrollments: What each owner promised.
      responses: How many responses each owner charged.
      lost: How many of these never arrived: owners that are killed spend some that nobody holds.
      in_doubt: How many more each may have charged: a question that was never answered, 0 or 1.
      plan: What ran, with what was chosen for it.
      ticks: Communications applied.
      wall_seconds: Seconds of training.
      unclosed: Owners that were away at the end and keep what they did not spend reserved.
      validated: What the owners said of the model; None where they were not asked.
    """

    theta: Vector
    enrollments: tuple[Enrollment, ...]
    responses: tuple[int, ...]
    lost: tuple[int, ...]
    in_doubt: tuple[int, ...]
    plan: Plan
    ticks: int
    wall_seconds: float
    unclosed: tuple[str, ...] = ()
    validated: Validated | None = None


def _nobody(*_: object) -> None:
    """Nobody is told."""


@dataclass(frozen=True, kw_only=True)
class Watch:
    """Who is told how a training goes.

    Args:
      expected: Entered with each owner's name while it is asked for the first time.
      started: Called with the plan and the lines to the owners before anybody is enrolled.
      enrolled: Called when all have agreed.
      applied: Called after each communication.
      missed: Called after each tick that nobody answered.
    """

    expected: Callable[[str], AbstractContextManager[object]] = nullcontext
    started: Callable[[Plan, Sequence[OwnerLine]], None] = _nobody
    enrolled: Callable[[], None] = _nobody
    applied: Callable[[Applied], None] = _nobody
    missed: Callable[[], None] = _nobody


NOBODY = Watch()


def train(
    settings: StudySettings,
    public: PublicSide,
    owners: Sequence[Owner],
    *,
    journal: Journal,
    requests: Requests | None = None,
    foreseen: Facts | None = None,
    watch: Watch = NOBODY,
) -> Outcome:
    """Enrol the owners, train, ask how good the model is, and close; or go on from the journal.

    Args:
      settings: The study.
      public: The feature map and the public records.
      owners: The owners, in the order of the settings.
      journal: The run's durable trace.
      requests: Where owners' requests arrive; needed when they have the initiative.
      foreseen: What owners are known to say: decided on while they start, and again if it differs.
      watch: Who is told how it goes.

    Raises:
      CoprivError: The guard stops it, or an owner is not there, refuses, or stays away.
    """
    with _disconnected_on_failure(owners):
        study_id = name_study(settings, journal)
        plan = _plan(settings, public, owners, watch.expected, journal=journal, foreseen=foreseen)
        lines = lines_to(plan, public.feature_map, owners, journal=journal, study_id=study_id)
        watch.started(plan, lines)
        if journal.noted(ENROLLMENTS) is None:
            check_guard(plan.settings, plan.decision)
        last = _Last(watch.applied)
        with ExitStack() as at_the_end:
            for line in lines:
                at_the_end.callback(line.stop)
            enrollments = enrollments_of(journal, lines, plan=plan, on_enrolled=watch.enrolled)
            theta = _run(plan, lines, last, watch.missed, journal=journal, requests=requests)
        # While the owners are there; those that are away then are named.
        validated = validate(
            plan, public, lines, theta, enrollments=enrollments, journal=journal, study_id=study_id
        )
        unclosed = end_study(
            owners,
            study_id,
            enrollments=enrollments,
            journal=journal,
            validates=bool(plan.settings.privacy.validation),
        )
    return Outcome(
        theta=theta,
        enrollments=enrollments,
        responses=tuple(line.answered for line in lines),
        lost=last.lost(lines),
        in_doubt=tuple(int(line.unanswered is not None) for line in lines),
        plan=plan,
        ticks=last.ticks,
        wall_seconds=last.wall_seconds,
        unclosed=unclosed,
        validated=validated,
    )


def _run(
    plan: Plan,
    lines: Sequence[OwnerLine],
    on_applied: Callable[[Applied], None],
    on_missed: Callable[[], None],
    *,
    journal: Journal,
    requests: Requests | None,
) -> Vector:
    """The ticks of the plan, whoever makes them; the model."""
    pace = _pace(plan.settings)
    live = live_ticks(
        plan.settings.algorithm,
        lines,
        study_id=journal.noted(STUDY_ID) or "",
        requests=requests,
        journal=journal,
        pace=pace,
    )
    return run(
        plan.algorithm,
        plan.ticks() if live is None else live,
        lines,
        journal=journal,
        horizon=plan.horizon,
        pace=pace,
        on_applied=on_applied,
        on_missed=on_missed,
    )


def _pace(settings: StudySettings) -> Pace:
    """How time goes in this run."""
    time_scale, network = settings.algorithm.time_scale, settings.network
    # Ticks that owners make, or that are due at a time, are not known ahead.
    is_known = settings.algorithm.initiative == "learner" and time_scale == 0
    most = network.in_flight if is_known else 1
    return Pace(
        time_scale=time_scale, patience=network.patience, deadline=network.deadline, in_flight=most
    )


class _Last:
    """Passes each communication on; keeps how many there were, from whom, how long they took."""

    def __init__(self, on_applied: Callable[[Applied], None]) -> None:
        self._on_applied = on_applied
        self.ticks = 0
        self.wall_seconds = 0.0
        self.held: Counter[int] = Counter()

    def __call__(self, now: Applied) -> None:
        self.held.update(now.entry.responses.keys())
        self.ticks, self.wall_seconds = now.k, now.entry.wall_seconds
        self._on_applied(now)

    def lost(self, lines: Sequence[OwnerLine]) -> tuple[int, ...]:
        """Each owner's charged responses that are in no communication."""
        return tuple(max(0, line.answered - self.held[i]) for i, line in enumerate(lines))


@contextmanager
def _disconnected_on_failure(owners: Sequence[Owner]) -> Iterator[None]:
    """Disconnect all owners if this fails; the study stays open, the run can be resumed."""
    try:
        yield
    except BaseException:
        for owner in owners:
            owner.disconnect()
        raise


def name_study(settings: StudySettings, journal: Journal) -> str:
    """The study's id: drawn at its first start, before anything else is noted.

    Args:
      settings: The study.
      journal: The run's durable trace.

    Raises:
      InputError: The journal is damaged.
    """
    return _kept(journal, STUDY_ID, lambda: f"{settings.name}-{uuid.uuid4()}", str)


def name_of_begun(settings: StudySettings, journal: Journal, *, path: Path) -> str:
    """The id of a study that was begun.

    Args:
      settings: The study.
      journal: The run's durable trace.
      path: Its file, for the sentence.

    Raises:
      InputError: It has none, or another's: it is not the file that :func:`name_study` wrote to.
    """
    name = journal.noted(STUDY_ID)
    if name is None:
        raise InputError(
            f"{path}: holds nothing of this run: it was lost, cut off or copied while the run went "
            "on; put the run's journal back, or start a new run (of the old one each owner's "
            "officer gives back what is unspent: copriv-owner ledger close)"
        )
    seed = journal.read("seed", whole_number)
    is_seeded_otherwise = settings.seed is not None and seed not in {None, settings.seed}
    if is_seeded_otherwise or name[:-UUID_CHARACTERS] != f"{settings.name}-":
        raise InputError(
            f"{path}: holds another run (study {printable(name)}, seed {seed}); put this run's "
            "journal back, or start a new run"
        )
    return name


def _kept(journal: Journal, key: str, make: Callable[[], str], meaning: Callable[[str], T]) -> T:
    """What a fact of the run means: noted at its first start, the same at every later one."""
    if journal.noted(key) is None:
        journal.note(key, make())
    value = journal.read(key, meaning)
    if value is None:
        # It was just noted: the file's keys are out of order.
        raise journal.damaged(key)
    return value


def _plan(
    settings: StudySettings,
    public: PublicSide,
    owners: Sequence[Owner],
    expected: Callable[[str], AbstractContextManager[object]],
    *,
    journal: Journal,
    foreseen: Facts | None,
) -> Plan:
    """The plan of this run: decided at its first start, the same at every later one."""
    # Given, or drawn; it is public either way.
    given = settings.seed
    drawn = secrets.randbits(32) if given is None else given
    seed = _kept(journal, "seed", lambda: str(drawn), whole_number)
    described: list[OwnerDescription] = []

    def made() -> str:
        ahead = None
        if foreseen is not None:
            ahead = _decided(settings, public, foreseen, seed=seed)
        described.extend(_descriptions(owners, expected, patience=settings.network.patience))
        facts = Facts(
            num_records=tuple(one.num_records for one in described),
            validation=tuple(
                one.validation if one.validation in AGREES else "" for one in described
            ),
        )
        if ahead is None or facts != foreseen:
            ahead = _decided(settings, public, facts, seed=seed)
        return ahead.to_json()

    p = public.feature_map.num_features
    meaning = partial(noted_decision, settings=settings, num_features=p)
    decision = _kept(journal, "decision", made, meaning)
    plan = Plan(settings=resolved(settings, decision), num_features=p, decision=decision, seed=seed)
    if described:
        # All that the study will ask for, the validation included.
        terms = [
            replace(its, epsilon=plan.settings.promised(entry))
            for its, entry in zip(
                plan.terms(public.feature_map, study_id=settings.name),
                plan.settings.owners,
                strict=True,
            )
        ]
        refuse_misfits(described, terms, public.feature_map)
        check_noise(plan, public.feature_map)
    return plan


def _descriptions(
    owners: Sequence[Owner],
    expected: Callable[[str], AbstractContextManager[object]],
    *,
    patience: float,
) -> list[OwnerDescription]:
    """What the owners say of themselves."""

    def asked(owner: Owner) -> OwnerDescription:
        with expected(owner.name):
            return owner.describe()

    described = all_present([partial(asked, owner) for owner in owners], patience=patience)
    return [
        check_description(description, name=owner.name)
        for owner, description in zip(owners, described, strict=True)
    ]


def _decided(settings: StudySettings, public: PublicSide, facts: Facts, *, seed: int) -> Decision:
    """What the settings leave to "auto", for owners that say this of themselves."""
    # What nobody would answer need not be kept for it.
    asked = settings if any(facts.validation) else settings.with_validation(Fraction(0))
    try:
        found = decide(asked, public, num_records=facts.num_records, seed=seed)
    except InputError as error:
        raise UndecidedError(str(error)) from None
    wanted = facts.validation if settings.privacy.validation else ()
    return replace(found, validated_by=wanted)
