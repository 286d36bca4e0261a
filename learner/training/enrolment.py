"""Owners agree to a study before it, and are let go of after it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any, TypeVar

from common.errors import CoprivError, InputError, UnreachableError, UntrustedError
from common.terms import Enrollment
from learner.planning.plan import Plan
from learner.training.journal import Journal
from learner.training.line import OwnerLine

__all__ = ["MOST_AT_ONCE", "enrollments_of", "present"]

T = TypeVar("T")

START_WAIT_SECONDS = 0.2
# Owners that are asked at the same time, each by a thread: of thousands the others wait.
MOST_AT_ONCE = 256


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
    enrollment = present(line.enroll, patience=patience)
    if enrollment.num_records != num_records:
        raise InputError(
            f"owner {line.owner.name} enrols with {enrollment.num_records} records, it described "
            f"itself with {num_records}; start a new run"
        )
    return enrollment


def present(call: Callable[[], T], *, patience: float) -> T:
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


def enrollments_of(
    journal: Journal, lines: Sequence[OwnerLine], *, plan: Plan, on_enrolled: Callable[[], None]
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
        on_enrolled()
        return enrollments
    enrollments = tuple(_from_facts(facts) for facts in json.loads(noted))
    if len(journal.past) < plan.horizon:
        taken_up = [(line, e) for line, e in zip(lines, enrollments, strict=True) if e.responses]
        with ThreadPoolExecutor(max_workers=min(len(lines), MOST_AT_ONCE)) as executor:
            list(executor.map(lambda pair: pair[0].take_up(pair[1]), taken_up))
    on_enrolled()
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
