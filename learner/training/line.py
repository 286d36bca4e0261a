"""The line to one owner: sequence numbers, one unanswered query at most, absence and return.

A sequence number is asked for one theta only, ever: an owner that was charged for it answers
the same query again and refuses any other. So a query that was not answered stays the next one,
through absences and restarts of either side. An owner that does not answer is away; a background
thread enrols again, with the same terms, until it is back. An owner that refuses has left.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import numpy as np

from common.arrays import Vector
from common.errors import CoprivError, OwnerFailedError, RefusedError, UnreachableError
from common.moments import packed_length
from common.terms import Enrollment, Query, Response, StudyTerms
from learner.training.owners import Owner

__all__ = ["LocalLine", "OwnerLine"]

log = logging.getLogger("copriv.learner")


SHORTEST_WAIT_SECONDS = 0.05
LONGEST_WAIT_SECONDS = 2.0
# A query is repeated only while its tick is young; a deadline that ran out is an absence.
RETRY_SECONDS = 2.0


class OwnerLine:
    """One owner as the loop sees it: it answers, it is away, or it has left.

    Args:
      owner: The owner.
      terms: The terms it enrols with.
      answered: Responses that the learner holds already.
      unanswered: The query that was asked and not answered before a crash, or None.
      keep: Called with the unanswered query when the owner goes away; must be durable.
      retries: How often a query whose connection broke is asked again before that.
    """

    def __init__(
        self,
        owner: Owner,
        terms: StudyTerms,
        *,
        answered: int = 0,
        unanswered: Query | None = None,
        keep: Callable[[Query], None] = lambda query: None,
        retries: int = 3,
    ) -> None:
        self.owner = owner
        self._terms = terms
        self._answered = answered
        self._unanswered = unanswered
        self._keep = keep
        self._retries = retries
        self._agreed: Enrollment | None = None
        self._away_since: float | None = None
        self._away_at: datetime | None = None
        self._left: str | None = None
        self._returned: Enrollment | RefusedError | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def answered(self) -> int:
        """Responses that the learner holds."""
        return self._answered

    @property
    def promised(self) -> int:
        """Responses that the owner promises in the whole study."""
        return self._terms.responses

    @property
    def has_returned(self) -> bool:
        """Whether an owner that was away has enrolled again and can be asked."""
        return self._away_since is not None and self._returned is not None

    @property
    def away_since(self) -> float | None:
        """Monotonic time since when the owner is away, or None."""
        return self._away_since

    @property
    def is_ready(self) -> bool:
        """Whether the owner is there, or is back from an absence."""
        return self._left is None and (self._away_since is None or self.has_returned)

    @property
    def left(self) -> str | None:
        """Why the owner has left the study for good, or None."""
        return self._left

    @property
    def status(self) -> str:
        """For people: nothing, or since when it is away, or that it has left."""
        if self._left is not None:
            return f"{self.owner.name} has left"
        away = self._away_at
        return "" if away is None else f"{self.owner.name} away since {away:%H:%M:%S}"

    def enroll(self) -> Enrollment:
        """Enrol for the first time.

        Raises:
          CoprivError: The owner is not there, refuses, or lost track of the study.
        """
        return self._accept(self.owner.enroll(self._terms))

    def take_up(self, agreed: Enrollment) -> None:
        """Go on with a study that an earlier start agreed on; the owner need not be there."""
        self._agreed = agreed
        try:
            self._accept(self.owner.enroll(self._terms))
        except RefusedError as error:
            self._leave(error)
        except CoprivError as error:
            self._miss(error)

    def ask(self, theta: Vector) -> Response | None:
        """The response at theta, or None while the owner is away or when it has left.

        After an absence it is the response to the query that was left unanswered.
        """
        if self._left is not None:
            return None
        query = self._unanswered or Query(
            study_id=self._terms.study_id, sequence=self._answered + 1, theta=theta
        )
        if self._unanswered is None and self._away_since is not None:
            # An earlier start may have asked just this before it died: then it was charged.
            self._hold(query)
        try:
            if self._away_since is not None and not self._is_back():
                return None
            response = self._answer(query)
            self._check(query, response)
        except RefusedError as error:
            self._leave(error)
            return None
        except (UnreachableError, OwnerFailedError) as error:
            self._hold(query)
            self._miss(error)
            return None
        self._unanswered = None
        self._answered += 1
        return response

    def stop(self) -> None:
        """End the background thread."""
        self._stopping.set()
        if self._thread is not None:
            # It may be waiting for an owner that is silent; it ends with its call.
            self._thread.join(SHORTEST_WAIT_SECONDS)

    def _answer(self, query: Query) -> Response:
        """Ask, and after a broken connection ask again, a few times."""
        began = time.monotonic()
        for attempt in range(self._retries):
            try:
                return self.owner.answer(query)
            except UnreachableError:
                if time.monotonic() - began > RETRY_SECONDS:
                    raise
            self._stopping.wait(SHORTEST_WAIT_SECONDS * 2**attempt * _jitter())
        return self.owner.answer(query)

    def _check(self, query: Query, response: Response) -> None:
        """A response that is not one would poison the model for all."""
        gradient = response.gradient
        if (response.study_id, response.sequence) != (query.study_id, query.sequence):
            raise RefusedError(
                f"owner {self.owner.name} answered number {response.sequence}, number "
                f"{query.sequence} was asked; ask its operator"
            )
        moments = self._terms.release == "moments"
        expected = packed_length(query.theta.size) if moments else query.theta.size
        if gradient.shape != (expected,) or not np.all(np.isfinite(gradient)):
            raise RefusedError(
                f"owner {self.owner.name} sent {gradient.size} coordinates or one that is not "
                f"finite, {expected} finite ones were expected; ask its operator"
            )

    def _hold(self, query: Query) -> None:
        """This query stays the next one, whatever happens to either side."""
        if self._unanswered is None:
            self._keep(query)
            self._unanswered = query

    def _leave(self, error: RefusedError) -> None:
        """The owner will not go on; the others do."""
        self._left = str(error)
        self._away_since = self._away_at = None
        log.warning("owner %s has left the study: %s", self.owner.name, error)

    def _miss(self, error: CoprivError) -> None:
        """The owner is away: begin to look for it."""
        self._away_since, self._away_at = time.monotonic(), datetime.now()
        self._returned = None
        log.warning("away since %s: %s", f"{self._away_at:%H:%M:%S}", error)
        self._thread = threading.Thread(target=self._look, name=f"look-{self.owner.name}")
        self._thread.daemon = True
        self._thread.start()

    def _look(self) -> None:
        """Enrol again until the owner answers; waits grow, with jitter."""
        wait = SHORTEST_WAIT_SECONDS
        while not self._stopping.wait(wait * _jitter()):
            try:
                self._returned = self.owner.enroll(self._terms)
            except RefusedError as error:
                self._returned = error
            except Exception as error:
                # Disconnected in the middle of a call: then the run is over.
                if not isinstance(error, CoprivError) and not self._stopping.is_set():
                    raise
                wait = min(2 * wait, LONGEST_WAIT_SECONDS)
                continue
            return

    def _is_back(self) -> bool:
        """Take the owner back if it has returned."""
        returned, since = self._returned, self._away_since
        if returned is None or since is None:
            return False
        if isinstance(returned, RefusedError):
            raise returned
        self._accept(returned)
        self._away_since = self._away_at = None
        seconds = time.monotonic() - since
        log.warning("owner %s is back after %.1f s", self.owner.name, seconds)
        return True

    def _accept(self, enrollment: Enrollment) -> Enrollment:
        """Compare what the owner says with what was agreed and what we hold."""
        if enrollment.answered - self._answered not in (0, 1):
            raise RefusedError(
                f"owner {self.owner.name} counts {enrollment.answered} responses, this run holds "
                f"{self._answered}; the study cannot go on with it, start a new run"
            )
        if self._agreed is None:
            self._agreed = enrollment
        elif replace(enrollment, answered=self._agreed.answered) != self._agreed:
            raise RefusedError(
                f"owner {self.owner.name} came back with other records or another noise than it "
                "agreed to; ask its operator"
            )
        return enrollment


class LocalLine(OwnerLine):
    """The line to the learner's own shard, which is never away and counts no answers."""

    def _accept(self, enrollment: Enrollment) -> Enrollment:
        """Nothing to compare: asking it again costs nothing and gives the same."""
        return enrollment


def _jitter() -> float:
    """Many learners should not knock at the same moment."""
    return random.uniform(0.5, 1.0)  # noqa: S311
