"""Owners are waited for at the start, and agree to the study."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import partial
from typing import Any, TypeVar

from common.errors import CoprivError, InputError, UnreachableError, UntrustedError
from common.features import FeatureMap
from common.privacy import noted_amount
from common.releases import release_of
from common.terms import Enrollment, Query
from learner.planning.plan import Plan
from learner.training.claims import largest_answer
from learner.training.journal import Journal
from learner.training.journal_values import finite
from learner.training.line import LocalLine, OwnerLine
from learner.training.memory_owner import LocalShard
from learner.training.owners import Owner

S = TypeVar("S")
T = TypeVar("T")

# Between two looks for an owner that is not there: each a half longer, up to the last.
START_WAIT_SECONDS, LATER_WAITS, LAST_WAIT_SECONDS = 0.2, 1.5, 1.0
# Owners that are asked at the same time, each by a thread: of thousands the others wait.
MOST_AT_ONCE = 64
# Under which a journal keeps what owners agreed to.
ENROLLMENTS = "enrollments"
# Owners are being disconnected, so that some may have closed the study already.
OVER = "over"


def at_once(call: Callable[[S], T], owners: Iterable[S]) -> list[T]:
    """What comes of the same call for each owner, in their order; many are made at the same time.

    One that raises ends this: those that have not begun are not made, others are not waited for.
    """
    given = list(owners)
    executor = ThreadPoolExecutor(max_workers=max(1, min(len(given), MOST_AT_ONCE)))
    try:
        return list(executor.map(call, given))
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


def _enroll(line: OwnerLine, *, num_records: int, responses: int) -> Enrollment:
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
    enrollment = line.enroll()
    if enrollment.num_records != num_records:
        raise InputError(
            f"owner {line.owner.name} enrolled with {enrollment.num_records} records, but "
            f"described itself with {num_records}; start a new run"
        )
    return enrollment


def present(
    call: Callable[[], T],
    *,
    patience: float,
    waits: Callable[[], None] = lambda: None,
    over: threading.Event | None = None,
) -> T:
    """A call at the start: an owner that stays away is a wrong address or not started.

    Args:
      call: Asks the owner.
      patience: Seconds after which no other attempt is made.
      waits: Called once, if the owner is waited for.
      over: Set where nobody needs the owner any more.

    Raises:
      InputError: The owner stays away.
      CoprivError: It refuses or fails; this is not tried again.
    """
    give_up = time.monotonic() + patience
    over = over or threading.Event()
    is_waiting, wait = False, START_WAIT_SECONDS
    while True:
        try:
            return call()
        except CoprivError as error:
            if _refuses(error) or time.monotonic() >= give_up:
                raise _at_the_start(error) from None
            if not is_waiting:
                waits()
            is_waiting = True
            if over.wait(wait):
                raise _at_the_start(error) from None
            wait = min(LATER_WAITS * wait, LAST_WAIT_SECONDS)


def all_present(calls: Sequence[Callable[[], T]], *, patience: float) -> list[T]:
    """What comes of each owner's call at the start, in their order.

    All are tried at the same time; those that are not there are then waited for together, and each
    is tried once more at least.

    Args:
      calls: Each asks one owner.
      patience: Seconds for which those that are not there are waited for, the first try included.

    Raises:
      CoprivError: Of the first in order that refuses, or stays away.
    """
    give_up = time.monotonic() + patience
    replies = at_once(_tried, calls)
    refused = next((reply for reply in replies if _refuses(reply)), None)
    if isinstance(refused, CoprivError):
        raise _at_the_start(refused)
    missing = next((reply for reply in replies if isinstance(reply, CoprivError)), None)
    # An owner that connects to the learner is waited for within the call.
    if missing is not None and time.monotonic() >= give_up:
        raise _at_the_start(missing)
    over = threading.Event()

    def waited_for(tried: tuple[Callable[[], T], T | CoprivError]) -> T:
        call, reply = tried
        if not isinstance(reply, CoprivError):
            return reply
        return present(call, patience=give_up - time.monotonic(), over=over)

    try:
        return at_once(waited_for, zip(calls, replies, strict=True))
    finally:
        over.set()


def _at_the_start(error: CoprivError) -> CoprivError:
    """Who is not reached may have another address; an owner that failed, or a disk, may do better.

    >>> _at_the_start(UnreachableError("away")).exit_status
    2
    """
    return InputError(str(error)) if isinstance(error, UnreachableError) else error


def _tried(call: Callable[[], T]) -> T | CoprivError:
    """What comes of a call, be it an error."""
    try:
        return call()
    except CoprivError as error:
        return error


def _refuses(reply: object) -> bool:
    """Whether it is an error that waiting does not help."""
    is_away = isinstance(reply, UnreachableError) and not isinstance(reply, UntrustedError)
    return isinstance(reply, CoprivError) and not is_away


def lines_to(
    plan: Plan, feature_map: FeatureMap, owners: Sequence[Owner], *, journal: Journal, study_id: str
) -> list[OwnerLine]:
    """One line to each owner, at the place where the journal ends.

    Args:
      plan: What each is asked.
      feature_map: What its records are read by.
      owners: The owners, in the order of the settings.
      journal: The run's durable trace.
      study_id: The study's id.

    Raises:
      InputError: A tick of the journal is damaged, missing, or of an owner or size unknown to it.
    """
    all_terms = plan.terms(feature_map, study_id=study_id)
    length = release_of(all_terms[0]).dimension(all_terms[0], plan.num_features)
    largest = [
        # What is computed in this process is finite.
        sys.float_info.max
        if isinstance(owner, LocalShard)
        else largest_answer(terms, num_records=count)
        for owner, terms, count in zip(owners, all_terms, plan.decision.num_records, strict=True)
    ]
    journal.check(largest=largest, length=length)
    answered = [0] * len(owners)
    for entry in journal.past:
        for owner, (sequence, _) in entry.responses.items():
            answered[owner] = sequence
    unanswered = {
        owner: Query(study_id=study_id, sequence=sequence, theta=theta)
        for owner, (sequence, theta) in journal.unanswered().items()
        if sequence > answered[owner]
    }

    def keep(owner: int) -> Callable[[Query], None]:
        return lambda query: journal.keep_unanswered(
            owner, sequence=query.sequence, theta=query.theta
        )

    return [
        (LocalLine if isinstance(owner, LocalShard) else OwnerLine)(
            owner,
            terms,
            # Numbers before an unanswered one are spent, whoever has their answers.
            answered=max(answered[index], unanswered[index].sequence - 1)
            if index in unanswered
            else answered[index],
            unanswered=unanswered.get(index),
            keep=keep(index),
            retries=plan.settings.network.retries,
        )
        for index, (owner, terms) in enumerate(zip(owners, all_terms, strict=True))
    ]


def enrollments_of(
    journal: Journal, lines: Sequence[OwnerLine], *, plan: Plan, on_enrolled: Callable[[], None]
) -> tuple[Enrollment, ...]:
    """What each owner promised: agreed on at the first start, taken up at later ones.

    Args:
      journal: Keeps what was promised, before anybody is asked a question.
      lines: The owners.
      plan: What each is asked to promise.
      on_enrolled: Called once all have agreed, at every start.

    Raises:
      CoprivError: An owner refuses, stays away, or promises something else.
    """
    enrollments = journal.read(ENROLLMENTS, partial(_noted_of_plan, plan=plan))
    if enrollments is None:
        calls = [
            partial(_enroll, line, num_records=count, responses=responses)
            for line, count, responses in zip(
                lines, plan.decision.num_records, plan.responses, strict=True
            )
        ]
        enrollments = tuple(all_present(calls, patience=plan.settings.network.patience))
        journal.note(ENROLLMENTS, json.dumps([_public_facts(e) for e in enrollments]))
    elif len(journal.past) < plan.horizon and journal.noted(OVER) is None:
        taken_up = [(line, e) for line, e in zip(lines, enrollments, strict=True) if e.responses]
        at_once(lambda pair: pair[0].take_up(pair[1]), taken_up)
    on_enrolled()
    return enrollments


def note_over(journal: Journal) -> None:
    """Keep that no owner is asked any more, before the first is disconnected."""
    journal.note(OVER, "yes")


def noted_enrollments(text: str, *, owners: int) -> tuple[Enrollment, ...]:
    """The enrolments that a journal keeps, one for each owner.

    Raises:
      Exception: Whatever a text raises that is not what was written.
    """
    enrollments = tuple(_from_facts(facts) for facts in json.loads(text))
    if len(enrollments) != owners:
        raise ValueError("of other owners")
    return enrollments


def _noted_of_plan(text: str, *, plan: Plan) -> tuple[Enrollment, ...]:
    """The enrolments that a journal keeps, to what the plan asks of its owners.

    Raises:
      Exception: As :func:`noted_enrollments`.
    """
    noted = noted_enrollments(text, owners=len(plan.settings.owners))
    agreed = [(each.num_records, each.responses) for each in noted]
    if agreed != [*zip(plan.decision.num_records, plan.responses, strict=True)]:
        raise ValueError("to something else")
    return noted


def _from_facts(facts: dict[str, Any]) -> Enrollment:
    """The enrolment of :func:`_public_facts`."""
    noted = Enrollment(answered=0, **facts | {"epsilon": noted_amount(facts["epsilon"])})
    counts = (noted.num_records, noted.responses, noted.repeats)
    if not all(type(each) is int and each >= 0 for each in counts):
        raise ValueError("no counts")
    if finite(noted.noise_scale) < 0 or type(noted.insecure_noise) is not bool:
        raise ValueError("no noise")
    return noted


def _public_facts(enrollment: Enrollment) -> dict[str, object]:
    return {
        "num_records": enrollment.num_records,
        "responses": enrollment.responses,
        "noise_scale": enrollment.noise_scale,
        "epsilon": str(enrollment.epsilon),
        "insecure_noise": enrollment.insecure_noise,
        "repeats": enrollment.repeats,
    }
