"""The learner's metrics for Prometheus: the run's progress and who is away; no model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from common.errors import InputError
from common.expiry import Expiry
from common.metrics import SECONDS, metrics_served
from learner.planning.guard import NotBegunError
from learner.training.line import LocalLine, OwnerLine
from learner.training.line_state import LineState


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
        self._seconds = Histogram(
            "copriv_query_seconds",
            "Time that a response was waited for, by owner.",
            ["owner"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self._failures = Counter(
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
        """Follow the state of these owners, and time the answers of those elsewhere."""
        for line in lines:
            self._watch(line)

    def _watch(self, line: OwnerLine) -> None:
        name = line.owner.name
        self._away.labels(name).set_function(lambda: float(line.state.is_absent))
        self._left.labels(name).set_function(lambda: float(line.state is LineState.LEFT))
        self._held.labels(name).set_function(lambda: float(line.answered))
        if not isinstance(line, LocalLine):
            line.timed = partial(self._timed, name)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        """While an owner is asked."""
        with self._failures.labels(name).count_exceptions(), self._seconds.labels(name).time():
            yield

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
