"""The end of a study: each owner gives what it did not spend back to its own budget."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterable, Sequence
from functools import partial

from pydantic import TypeAdapter

from common.errors import CoprivError, OrderError
from common.terms import Enrollment
from common.validation import validation_study
from learner.training.enrolment import ENROLLMENTS, at_once, note_over, noted_enrollments
from learner.training.journal import Journal
from learner.training.owners import Owner

CLOSED = "closed"
_NAMES = TypeAdapter(list[str])
# Its study is closed with some of its owners, maybe with all.
GIVEN_UP = "given_up"


def end_study(
    owners: Sequence[Owner],
    study_id: str,
    *,
    enrollments: Sequence[Enrollment],
    journal: Journal,
    validates: bool,
) -> tuple[str, ...]:
    """Close the study with each owner that promised responses, and disconnect from all.

    Args:
      owners: The owners.
      study_id: The study.
      enrollments: What each promised.
      journal: The run's.
      validates: Whether they were asked how good the model is, in a study of its own.

    Returns:
      The owners that were away; their unused epsilon stays reserved until they are closed too.
      One that an earlier start closed holds nothing, so it is not asked again.
    """
    closed = _closed(journal)

    def is_closed(pair: tuple[Owner, Enrollment]) -> bool:
        owner, enrollment = pair
        try:
            if owner.name in closed:
                return True
            if enrollment.responses:
                owner.close(study_id)
            if validates:
                close_validation(owner, study_id)
        except CoprivError:
            return False
        finally:
            owner.disconnect(over=True)
        return True

    note_over(journal)
    done = at_once(is_closed, zip(owners, enrollments, strict=True))
    names = [owner.name for owner in owners]
    note_closed(journal, itertools.compress(names, done))
    return tuple(name for name, its in zip(names, done, strict=True) if not its)


def close_validation(owner: Owner, study_id: str) -> None:
    """Close the study in which the owner was asked how good the model is, if it agreed to it."""
    with contextlib.suppress(OrderError):
        owner.close(validation_study(study_id))


def note_closed(journal: Journal, names: Iterable[str]) -> None:
    """Keep that these owners hold nothing any more."""
    journal.note(CLOSED, json.dumps(sorted({*_closed(journal), *names})))


def note_given_up(journal: Journal, *, was: bool = True) -> None:
    """Keep that the run was given up, before the first owner hears of it; or that none could be."""
    journal.note(GIVEN_UP, "yes" if was else "no")


def is_given_up(journal: Journal) -> bool:
    """Whether the run was given up before its end."""
    return journal.noted(GIVEN_UP) == "yes"


def open_promises(names: Sequence[str], journal: Journal) -> list[str]:
    """The owners that may still hold epsilon for the run's study.

    Args:
      names: All owners, in the order of the settings.
      journal: The run's; owners it says nothing of may have enrolled before a crash.
    """
    enrolled = journal.read(ENROLLMENTS, partial(noted_enrollments, owners=len(names)))
    promised = [1] * len(names) if enrolled is None else [each.responses for each in enrolled]
    closed = _closed(journal)
    return [
        name
        for name, responses in zip(names, promised, strict=True)
        if responses and name not in closed
    ]


def _closed(journal: Journal) -> list[str]:
    return journal.read(CLOSED, _NAMES.validate_json) or []
