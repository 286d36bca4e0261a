"""An owner's process on this machine as the learner sees it, from before it has started."""

from __future__ import annotations

from common.terms import Enrollment, OwnerDescription, Query, Response, StudyTerms
from learner.network.grpc_owner import GrpcOwner
from learner.network.processes import OwnerProcess

__all__ = ["StartingOwner"]


class StartingOwner:
    """An owner whose port is not known yet: whoever calls it first waits for that.

    Args:
      process: The owner's process.
      deadline: Seconds for one call.

    Every call may raise what :class:`GrpcOwner` raises, and what :attr:`OwnerProcess.port` does.
    """

    def __init__(self, process: OwnerProcess, *, deadline: float) -> None:
        self._process = process
        self._deadline = deadline
        self._reached: GrpcOwner | None = None

    @property
    def name(self) -> str:
        """The owner's name in the study."""
        return self._process.name

    def _owner(self) -> GrpcOwner:
        if self._reached is None:
            process = self._process
            self._reached = GrpcOwner(process.name, process.address, deadline=self._deadline)
        return self._reached

    def describe(self) -> OwnerDescription:
        """What the owner is and what it would agree to."""
        return self._owner().describe()

    def enroll(self, terms: StudyTerms) -> Enrollment:
        """Agree on a study; the same terms again return the same enrolment."""
        return self._owner().enroll(terms)

    def answer(self, query: Query) -> Response:
        """One charged, noised mean gradient."""
        return self._owner().answer(query)

    def offer(self, study_id: str) -> bool:
        """Whether the owner would take a query of the study now; charges nothing."""
        return self._owner().offer(study_id)

    def close(self, study_id: str) -> None:
        """End the study; what it did not use returns to the owner's budget."""
        self._owner().close(study_id)

    def disconnect(self, *, over: bool = False) -> None:
        """Let go of the connection, and of whoever waits in a call."""
        if self._reached is not None:
            self._reached.disconnect(over=over)
