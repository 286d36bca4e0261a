"""The line to one owner: sequence numbers, one unanswered query at most, absence and return.

A sequence number is asked for one theta only, ever: an owner that was charged for it answers
the same query again and refuses any other. So a query that was not answered stays the next one,
through absences and restarts of either side. An owner that does not answer is away; a background
thread enrols again, with the same terms, until it is back. An owner that refuses has left.

A number may be spent without an answer that anybody can have: an owner that charges in blocks was
killed, or it gave the answer for a theta that a restart of ours did not come to again. Then the
owner refuses the number, its enrolment says how many are spent, and the line goes on with the
next. The new query is durable before it is asked.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import datetime

from common.arrays import Vector
from common.errors import (
    BudgetSpentError,
    CoprivError,
    InputError,
    OrderError,
    OwnerFailedError,
    RefusedError,
    UnreachableError,
    UntrustedError,
)
from common.stopping import jitter
from common.terms import Enrollment, Query, Response, StudyTerms
from learner.algorithms.protocol import check_inside
from learner.training.claims import Promise, check_enrollment, check_response
from learner.training.line_state import LineAction, LineEvent, LineState, Numbers, after
from learner.training.owners import Owner

log = logging.getLogger("copriv.learner")

SHORTEST_WAIT_SECONDS = 0.05
LONGEST_WAIT_SECONDS = 2.0
LONGEST_VAIN_SECONDS = 10.0
# Who is away for longer is looked for in vain: what the search found of it is told, once.
WHY_AFTER_SECONDS = 10.0
# A query is repeated only while its tick is young; a deadline that ran out is an absence.
RETRY_SECONDS = 2.0


class _Contact:
    """Whether one owner is there, and the search for it while it is not."""

    def __init__(self, owner: Owner, terms: StudyTerms) -> None:
        self.owner = owner
        self._terms = terms
        # What is known of the owner.
        self.state = LineState.READY
        # The loop asks in one thread, who looks for the owner replies in another.
        self._changing = threading.Lock()
        self._away_since: tuple[float, datetime] | None = None
        # Why the owner has left the study for good.
        self.left: str | None = None
        self._reply: Enrollment | RefusedError | None = None
        self._search = _Search(owner, terms, self._on_reply)

    @property
    def status(self) -> str:
        """For people: nothing, or since when it is away, or that it has left."""
        if self.left is not None:
            return f"{self.owner.name} has left"
        away = self._away_since
        return "" if away is None else f"{self.owner.name} away since {away[1]:%H:%M:%S}"

    def refused(self, error: RefusedError) -> None:
        """The owner will not go on, or says what cannot be; the others do."""
        if self._after(LineEvent.REFUSED) is LineAction.PART:
            self.left, self._away_since = str(error), None
            log.warning("owner %s has left the study: %s", self.owner.name, error)

    def stop(self) -> None:
        """End the background thread."""
        self._search.stop()

    def _after(self, event: LineEvent) -> LineAction:
        """Go to the state after an event; what to do about it."""
        with self._changing:
            self.state, action = after(self.state, event)
        return action

    def _lost_sight(self, error: CoprivError) -> None:
        """The owner is away: begin to look for it."""
        self._away_since, self._reply = (time.monotonic(), datetime.now()), None
        log.warning("away since %s: %s", f"{self._away_since[1]:%H:%M:%S}", error)
        if self._after(LineEvent.LOST) is LineAction.LOOK:
            self._search.begin(str(error))

    def _on_reply(self, reply: Enrollment | RefusedError) -> None:
        """The owner replied to who looked for it."""
        self._reply = reply
        self._after(LineEvent.HEARD)


class OwnerLine(_Contact):
    """One owner as the loop sees it; :mod:`learner.training.line_state` says what can happen to it.

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
        super().__init__(owner, terms)
        # What is known of the owner's numbers.
        self.numbers = Numbers(answered, terms.responses)
        self.unanswered = unanswered
        self._keep = keep
        self._retries = retries
        # Entered while an answer is waited for.
        self.timed: Callable[[], AbstractContextManager[object]] = nullcontext
        self._agreed: Enrollment | None = None
        self._promise: Promise | None = None

    @property
    def answered(self) -> int:
        """Responses that are spent: the learner holds them, or they are lost."""
        return self.numbers.answered

    @property
    def is_level(self) -> bool:
        """Whether the owner is known to have given no answer that is not held here."""
        return self.state is LineState.LEFT or self.numbers.is_level

    @property
    def promised(self) -> int:
        """Responses that the owner promises in the whole study."""
        return self._terms.responses

    def enroll(self) -> Enrollment:
        """Enrol; a study that was agreed on before is compared with that.

        Raises:
          CoprivError: The owner is not there, refuses, or lost track of the study.
        """
        return self._accept(self.owner.enroll(self._terms))

    def take_up(self, agreed: Enrollment) -> None:
        """Go on with a study that an earlier start agreed on; the owner need not be there.

        Raises:
          InputError: Another owner is there.
        """
        self._agreed, self.numbers.in_doubt = agreed, True
        self.numbers.repeat(agreed.repeats)
        try:
            self.enroll()
        except InputError:
            raise
        except RefusedError as error:
            self.refused(error)
        except CoprivError as error:
            self._lost_sight(error)

    def ask(self, theta: Vector) -> Response | None:
        """The response at theta, or None while the owner is away or when it has left.

        After an absence it is the response to the query that was left unanswered.
        """
        if self.state is LineState.LEFT or self.numbers.over():
            return None
        query = self.unanswered or self.question(theta)
        if self.unanswered is None and self.state.is_absent:
            # An earlier start may have asked just this before it died: then it was charged.
            self.hold(query)
        if self.state is LineState.AWAY:
            return None
        try:
            if self.state is LineState.BACK:
                self._take_back()
            answered = self._numbered(query, theta)
            if answered is None:
                return None
            query, response = answered
            self._check(query, response)
        except RefusedError as error:
            self.refused(error)
            return None
        except (UnreachableError, OwnerFailedError) as error:
            self.numbers.in_doubt = True
            self.hold(query)
            self._lost_sight(error)
            return None
        self.unanswered = None
        self.numbers.took(query.sequence)
        self._search.answered()
        return response

    def question(self, theta: Vector) -> Query:
        """The next number, asked at theta."""
        check_inside(theta, self._terms.theta_max)
        return Query(study_id=self._terms.study_id, sequence=self.numbers.next, theta=theta)

    def _numbered(self, query: Query, theta: Vector) -> tuple[Query, Response] | None:
        """The answer to a query, or to the next number if that is spent; None if both are."""
        for _ in range(2):
            try:
                return query, self._answer(query)
            except (OrderError, BudgetSpentError):
                if not self._skips(query):
                    raise
            if self.numbers.over():
                break
            query = self.question(theta)
            self.hold(query)
        return None

    def _skips(self, query: Query) -> bool:
        """After a refusal: whether the query's number is spent, and is passed over."""
        if self.numbers.in_doubt:
            self.enroll()
        if not (more := self.numbers.pass_over(query.sequence)):
            return False
        self.unanswered = None
        log.warning(
            "owner %s: %d responses from number %d on are spent and nobody has them; it was killed "
            "while it charged in blocks, or this run was resumed without it; the run goes on",
            self.owner.name,
            more,
            query.sequence,
        )
        return True

    def _answer(self, query: Query) -> Response:
        """Ask, and after a broken connection ask again, a few times."""
        began = time.monotonic()
        for attempt in range(self._retries):
            try:
                return self._answer_once(query)
            except UnreachableError:
                self.numbers.in_doubt = True
                if time.monotonic() - began > RETRY_SECONDS:
                    raise
            self._search.stopping.wait(SHORTEST_WAIT_SECONDS * 2**attempt * jitter())
        return self._answer_once(query)

    def _answer_once(self, query: Query) -> Response:
        with self.timed():
            return self.owner.answer(query)

    def _check(self, query: Query, response: Response) -> None:
        """A response that is not one would poison the model for all."""
        if self._promise is None:
            raise OwnerFailedError(f"owner {self.owner.name} is asked before it has enrolled")
        check_response(response, query, self._promise, name=self.owner.name)

    def hold(self, query: Query) -> None:
        """This query stays the next one, whatever happens to either side; it is durable now."""
        if self.unanswered is None:
            self._keep(query)
            self.unanswered = query

    def _take_back(self) -> None:
        """Take the owner back, if its reply is the enrolment that was agreed on."""
        if isinstance(self._reply, RefusedError):
            raise self._reply
        if self._reply is not None:
            self._accept(self._reply)
        self._after(LineEvent.ACCEPTED)
        if self._away_since is not None:
            seconds = time.monotonic() - self._away_since[0]
            log.warning("owner %s is back after %.1f s", self.owner.name, seconds)
        self._away_since = None

    def _accept(self, enrollment: Enrollment) -> Enrollment:
        """Compare what the owner says with what was asked, what was agreed and what we hold."""
        name, agreed = self.owner.name, self._agreed
        if agreed is not None and replace(enrollment, answered=agreed.answered) != agreed:
            raise RefusedError(
                f"owner {name} came back with other records or another noise than it agreed to; "
                "ask its operator"
            )
        # Only of a study that has begun can numbers be spent that nobody has.
        most = 1 if agreed is None else self.promised
        self._promise = check_enrollment(
            enrollment, self._terms, name=name, held=self.numbers.answered, most=most
        )
        self._agreed = agreed or enrollment
        self.numbers.repeat(enrollment.repeats, charged=enrollment.answered)
        return enrollment


class _Search:
    """Looks for an owner that is away, in a thread of its own, and hands on what it replies."""

    def __init__(
        self, owner: Owner, terms: StudyTerms, on_reply: Callable[[Enrollment | RefusedError], None]
    ) -> None:
        self._owner = owner
        self._terms = terms
        self._on_reply = on_reply
        self.stopping = threading.Event()
        self._wait = SHORTEST_WAIT_SECONDS
        self._thread: threading.Thread | None = None

    def answered(self) -> None:
        """The owner has answered: when it goes away next time, it is looked for at once."""
        self._wait = SHORTEST_WAIT_SECONDS

    def begin(self, why: str) -> None:
        """Look for the owner until it replies, or for as long as the run lasts.

        Why it is away, a question in mid-run has no time to find out, and this has.

        One that replies again and again, and answers nothing, is looked for ever more rarely: each
        time costs it an enrolment, and us a tick and two lines of the log.
        """
        self._thread = threading.Thread(
            target=self._look, args=(why,), name=f"look-{self._owner.name}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self.stopping.set()
        if self._thread is not None:
            # It may be waiting for an owner that is silent; it ends with its call.
            self._thread.join(SHORTEST_WAIT_SECONDS)

    def _look(self, why: str) -> None:
        """Enrol again until the owner replies; waits grow, with jitter."""
        told = explained = False
        long_away = time.monotonic() + WHY_AFTER_SECONDS
        while not self.stopping.wait(self._wait * jitter()):
            try:
                reply: Enrollment | RefusedError = self._owner.enroll(self._terms)
            except RefusedError as error:
                reply = error
            except CoprivError as error:
                # Waiting alone does not help: somebody must act, and hears of it once.
                if isinstance(error, UntrustedError | InputError):
                    if not told:
                        log.warning("%s; the run looks for it again until that is mended", error)
                    told = True
                elif time.monotonic() > long_away and not explained and str(error) != why:
                    log.warning("still away: %s", error)
                    explained = True
                self._wait = max(self._wait, min(2 * self._wait, LONGEST_WAIT_SECONDS))
                continue
            self._wait = min(2 * self._wait, LONGEST_VAIN_SECONDS)
            self._on_reply(reply)
            return


class LocalLine(OwnerLine):
    """The line to the learner's own shard, which is never away and counts no answers."""

    @property
    def is_level(self) -> bool:
        """It gives the same answer to the same question, however often."""
        return True

    def _accept(self, enrollment: Enrollment) -> Enrollment:
        """Nothing to compare: asking it again costs nothing and gives the same."""
        self.numbers.repeat(enrollment.repeats)
        return enrollment

    def _check(self, query: Query, response: Response) -> None:
        """It is computed in this process."""


def hears(line: OwnerLine) -> bool:
    """Whether a question reaches the owner now: it is there, and owes a response."""
    return line.state.can_be_asked and line.answered < line.promised
