"""A plain HTTP port with Prometheus metrics, the same for owners and learners."""

from __future__ import annotations

from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server

from common.errors import InputError
from common.tls import host_and_port

__all__ = ["SECONDS", "serve_metrics"]

# Upper ends of the histograms' buckets for the time of one query.
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 30)


def serve_metrics(registry: CollectorRegistry, address: str, *, setting: str) -> WSGIServer:
    """Serve a registry over plain HTTP.

    Args:
      registry: What is shown.
      address: HOST:PORT.
      setting: The setting that gave the address, for an error.

    Returns:
      The running server; ``shutdown()`` and then ``server_close()`` end it.

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
