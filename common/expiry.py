"""When our own certificate ends, as a metric: whoever watches learns it before peers do."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

from common.channels import Renewals
from common.tls import Identity, Side


class Expiry:
    """The end of our own certificate or its CA's, whichever is first.

    It is that of the files that the next handshake would use: renewed ones count once they belong
    together.

    Args:
      identity: Our files, as they were read at the start.
      side: Who the certificate is shown by.
    """

    def __init__(self, identity: Identity, *, side: Side) -> None:
        # Who shakes hands logs what is wrong with renewed files.
        self._renewals = Renewals(identity, side=side, logs=False)
        self._end = _end_of(identity)

    def __call__(self) -> float:
        """Seconds since 1970; not a number where no certificate can be read."""
        renewed = self._renewals.fetch()
        if renewed is not None:
            self._end = _end_of(renewed)
        return self._end

    def shown_in(self, registry: CollectorRegistry) -> None:
        """Show it among a side's metrics."""
        Gauge(
            "copriv_certificate_end_seconds",
            "When the own certificate or its CA ends, whichever is first; seconds since 1970.",
            registry=registry,
        ).set_function(self)


def _end_of(identity: Identity) -> float:
    from common.certificates import end_of  # noqa: PLC0415 (plain text needs none of it)

    end = end_of(identity)
    return float("nan") if end is None else end.timestamp()
