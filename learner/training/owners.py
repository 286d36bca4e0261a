"""What the loop talks to: one owner, over the network or in memory."""

from __future__ import annotations

from typing import Protocol

from common.terms import Enrollment, OwnerDescription, Query, Response, StudyTerms


class Owner(Protocol):
    """A data owner as the learner sees it.

    Every call may raise ``RefusedError`` (the owner will not) or ``UnreachableError``
    (the owner is away; the same call may be made again later and is charged once).
    """

    @property
    def name(self) -> str:
        """The owner's name in the study."""

    def describe(self) -> OwnerDescription:
        """What the owner is and what it would agree to."""

    def enroll(self, terms: StudyTerms) -> Enrollment:
        """Agree on a study; the same terms again return the same enrolment."""

    @property
    def answers_later(self) -> bool:
        """Whether it works while nobody waits for it, so that :meth:`send` gains something."""

    def send(self, query: Query) -> None:
        """Ask, and leave the answer to :meth:`answer` of the same query.

        It raises nothing: what is wrong is found when the answer is waited for.
        """

    def answer(self, query: Query) -> Response:
        """One charged, noised mean gradient."""

    def offer(self, study_id: str) -> bool:
        """Whether the owner would take a query of the study now; charges nothing."""

    def close(self, study_id: str) -> None:
        """End the study; what it did not use returns to the owner's budget."""

    def disconnect(self, *, over: bool = False) -> None:
        """Disconnect, and wake whoever waits in a call.

        Args:
          over: Whether the study is over; an owner that came to us then need not come back.
        """
