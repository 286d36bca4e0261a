"""What an owner tells Prometheus: counts, times and budgets, which its ledger shows anyway."""

from __future__ import annotations

from collections.abc import Callable
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from common.errors import InputError
from common.tls import host_and_port
from owner.answering import DataOwner

__all__ = ["OwnerMetrics", "serve_metrics"]

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


class OwnerMetrics:
    """Counters of one owner process.

    Guarantees:
      * Counts of requests and epsilon depend on no record; durations might, a little.
    """

    def __init__(self, owner: DataOwner) -> None:
        self.registry = CollectorRegistry()
        self.responses = Counter(
            "copriv_responses_total", "Responses sent, replayed ones too.", registry=self.registry
        )
        self.refusals = Counter(
            "copriv_refusals_total", "Calls refused.", ["status"], registry=self.registry
        )
        self.seconds = Histogram(
            "copriv_answer_seconds",
            "Time to answer one query.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self._budget("copriv_charges", "Responses charged to the ledger.", owner.charges)
        self._budget("copriv_epsilon_held", "Epsilon spent or reserved.", owner.epsilon_held)
        self._budget("copriv_epsilon_left", "Lifetime epsilon not held.", owner.epsilon_left)

    def _budget(self, name: str, told: str, value: Callable[[], float]) -> None:
        Gauge(name, told, registry=self.registry).set_function(value)


def serve_metrics(registry: CollectorRegistry, address: str, *, setting: str) -> WSGIServer:
    """Serve a registry over plain HTTP; returns what stops it.

    Raises:
      InputError: The address cannot be used.
    """
    host, port = host_and_port(address)
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        raise InputError(
            f"{setting} = {address!r}: cannot be used ({error.strerror}); give another HOST:PORT"
        ) from None
    return server
