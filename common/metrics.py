"""A plain HTTP port with Prometheus metrics, the same for owners and learners."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
import time
from collections.abc import Iterator
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from common.addresses import unusable
from common.tls import host_and_port

# Upper ends of the histograms' buckets for the time of one query.
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 30)
# Nobody is asked who it is here: when this many connections are open, a new one ends the oldest.
OPEN_CONNECTIONS = 16
# How long one may be silent before its request has come.
ASKING_SECONDS = 10.0
# No scraper's request is longer; what stands behind it is not read.
LONGEST_REQUEST = 2**14
# After a connection that could not be taken, where no further one can be open.
FULL_SECONDS = 0.2


@contextlib.contextmanager
def metrics_served(
    registry: CollectorRegistry, address: str | None, *, setting: str
) -> Iterator[None]:
    """Serve a registry over plain HTTP meanwhile; without an address nothing.

    Args:
      registry: What is shown.
      address: HOST:PORT.
      setting: The setting that gave the address, for an error.

    Raises:
      InputError: The address cannot be used.
    """
    if address is None:
        yield
        return
    host, port = host_and_port(address)
    try:
        (family, _, _, _, place), *_ = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        server = _Server(str(place[0]), port, family)
    except OSError as error:
        raise unusable(setting, address, error) from None
    server.set_app(make_wsgi_app(registry))
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


class _Beginning(io.RawIOBase):
    """What is read of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._left = connection, LONGEST_REQUEST

    def readable(self) -> bool:
        """It is there to be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """The next bytes; 0 of them where no more are read."""
        taken = self._connection.recv_into(memoryview(buffer)[: self._left])
        self._left -= taken
        return taken


class _Quiet(WSGIRequestHandler):
    """Requests are short, and fill no log: what goes wrong with one is in its status."""

    timeout = ASKING_SECONDS

    def setup(self) -> None:
        """Begin to read."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Beginning(self.connection))

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def get_stderr(self) -> io.StringIO:
        """Where a traceback goes, such as of a header that the library cannot read."""
        return io.StringIO()


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each connection, of which few are open.

    Args:
      host: Where it listens.
      port: Its port.
      family: The kind of address that the host is.
    """

    daemon_threads = True
    # Whoever comes among many need not knock again a second later.
    request_queue_size = 128

    def __init__(self, host: str, port: int, family: int) -> None:
        self.address_family = family
        self._open: dict[socket.socket, None] = {}
        self._changing = threading.Lock()
        super().__init__((host, port), _Quiet)

    def get_request(self) -> tuple[Any, Any]:
        """The next connection; one that cannot be taken knocks on, and is heard a little later."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(FULL_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Make room for the newest connection, and answer it in a thread."""
        with self._changing:
            self._open[request] = None
            if len(self._open) > OPEN_CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
                # Its thread wakes up and ends.
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._changing:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that has gone, or says nothing, is no news."""
