"""The learner's metrics for Prometheus: the run's progress and who is away; no model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from common.errors import InputError
from common.expiry import Expiry
from common.metrics import SECONDS, metrics_served
from common.terms import Enrollment, OwnerDescription, Query, Response, StudyTerms
from learner.planning.guard import NotBegunError
from learner.results.arrivals import Arrivals
from learner.training.line import OwnerLine
from learner.training.line_state import LineState
from learner.training.memory_owner import LocalShard
from learner.training.owners import Owner


class PortError(NotBegunError, InputError):
    """Their port cannot be used."""


class LearnerMetrics:
    """Counters of one start of a run.

    Args:
      expiry: When the learner's certificate ends; None without TLS.
    """

    def __init__(self, *, expiry: Expiry | None = None) -> None:
        self.registry = CollectorRegistry()
        if expiry is not None:
            expiry.shown_in(self.registry)
        self.seconds = Histogram(
            "copriv_query_seconds",
            "Time that a response was waited for, by owner.",
            ["owner"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.failures = Counter(
            "copriv_query_failures_total",
            "Queries that brought no response, by owner.",
            ["owner"],
            registry=self.registry,
        )
        self.missed = Counter(
            "copriv_missed_ticks_total", "Ticks that nobody answered.", registry=self.registry
        )
        self.ticks = Gauge("copriv_ticks", "Communications applied.", registry=self.registry)
        self.horizon = Gauge("copriv_horizon", "Communications asked for.", registry=self.registry)
        self._away = self._by_owner("copriv_owner_away", "1 while the owner is away.")
        self._left = self._by_owner("copriv_owner_left", "1 once the owner has refused for good.")
        self._held = self._by_owner("copriv_responses", "Responses that are spent.")

    def _by_owner(self, name: str, description: str) -> Gauge:
        return Gauge(name, description, ["owner"], registry=self.registry)

    def watch(self, lines: Sequence[OwnerLine]) -> None:
        """Follow the state of these owners."""
        for line in lines:
            self._watch(line)

    def _watch(self, line: OwnerLine) -> None:
        name = line.owner.name
        self._away.labels(name).set_function(lambda: float(line.state.is_absent))
        self._left.labels(name).set_function(lambda: float(line.state is LineState.LEFT))
        self._held.labels(name).set_function(lambda: float(line.answered))

    def timed(self, owners: Sequence[Owner], *, arrivals: Arrivals) -> list[Owner]:
        """The same owners, the answers of those elsewhere timed."""
        return [
            owner if isinstance(owner, LocalShard) else TimedOwner(owner, self, arrivals=arrivals)
            for owner in owners
        ]

    @contextmanager
    def served(self, address: str | None) -> Iterator[None]:
        """Serve them over plain HTTP while the run lasts, if an address is given.

        Raises:
          PortError: The address cannot be used.
        """
        with ExitStack() as stack:
            try:
                stack.enter_context(
                    metrics_served(self.registry, address, setting="network.metrics")
                )
            except InputError as error:
                raise PortError(str(error)) from None
            yield


class TimedOwner:
    """An owner whose answers are timed, and whose arrival is noted."""

    def __init__(self, owner: Owner, metrics: LearnerMetrics, *, arrivals: Arrivals) -> None:
        self.name, self.answers_later = owner.name, owner.answers_later
        self._owner, self._arrivals = owner, arrivals
        self._seconds = metrics.seconds.labels(owner.name)
        self._failures = metrics.failures.labels(owner.name)

    def describe(self) -> OwnerDescription:
        """What the owner is and what it would agree to."""
        with self._arrivals.expected(self.name):
            return self._owner.describe()

    def enroll(self, terms: StudyTerms) -> Enrollment:
        """Agree on a study; the same terms again return the same enrolment."""
        return self._owner.enroll(terms)

    def send(self, query: Query) -> None:
        """Ask, and leave the answer to :meth:`answer` of the same query."""
        self._owner.send(query)

    def answer(self, query: Query) -> Response:
        """One charged, noised mean gradient."""
        with self._failures.count_exceptions(), self._seconds.time():
            return self._owner.answer(query)

    def offer(self, study_id: str) -> bool:
        """Whether the owner accepts an offer to be the next one asked."""
        return self._owner.offer(study_id)

    def close(self, study_id: str) -> None:
        """End the study; what it did not use returns to the owner's budget."""
        self._owner.close(study_id)

    def disconnect(self, *, over: bool = False) -> None:
        """Disconnect."""
        self._owner.disconnect(over=over)
