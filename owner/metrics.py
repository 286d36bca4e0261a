"""An owner's metrics for Prometheus: counts, times and budgets, which its ledger shows anyway."""

from __future__ import annotations

import math
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from common.expiry import Expiry
from common.metrics import SECONDS
from common.wire import STATUS_NAMES
from owner.answering import DataOwner
from owner.ledger_rows import LedgerError


class OwnerMetrics:
    """Counters of one owner process.

    Guarantees:
      * Counts of requests and epsilon depend on no record; durations might, a little.

    Args:
      owner: Whose calls are counted.
      expiry: When its certificate ends; None without TLS.
    """

    def __init__(self, owner: DataOwner, *, expiry: Expiry | None = None) -> None:
        self.registry = CollectorRegistry()
        self.responses = Counter(
            "copriv_responses_total", "Responses sent, replayed ones too.", registry=self.registry
        )
        self.refusals = Counter(
            "copriv_refusals_total", "Calls refused.", ["status"], registry=self.registry
        )
        # Else a rate would not see the first refusal of a kind.
        for status in STATUS_NAMES:
            self.refusals.labels(status)
        self.seconds = Histogram(
            "copriv_answer_seconds",
            "Time to answer one query.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self._follow("copriv_charges", "Responses charged to the ledger.", owner.charges)
        self._follow("copriv_epsilon_held", "Epsilon spent or reserved.", owner.epsilon_held)
        self._follow("copriv_epsilon_left", "Lifetime epsilon not held.", owner.epsilon_left)
        most = float(owner.policy.epsilon_per_study)
        self._follow("copriv_epsilon_per_study", "The most that a study may spend.", lambda: most)
        self._follow(
            "copriv_ledger_works",
            "0 from a failure of the ledger until it can be written again, else 1.",
            lambda: float(owner.ledger_works),
        )
        if expiry is not None:
            expiry.shown_in(self.registry)

    def _follow(self, name: str, description: str, value: Callable[[], float]) -> None:
        def known() -> float:
            """A ledger that is read no more hides nothing else: what it would say is no number."""
            try:
                return value()
            except LedgerError:
                return math.nan

        Gauge(name, description, registry=self.registry).set_function(known)
