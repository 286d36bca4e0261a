"""TLS of our own, beside gRPC's: each step of it ends in time, whatever the other side sends.

``ssl.SSLSocket`` looks at its time limit only where it has to wait for more. A side that sends
requests for another handshake, or session tickets, faster than they are passed over keeps it for
ever: the former before it has shown any certificate.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

# What is passed over at once, between two looks at the time.
CHUNK_BYTES = 2**14
# A socket that may wait for 0 seconds does not wait, and says so in other words.
SHORTEST_SECONDS = 0.001


class Secured:
    """A connection after a handshake.

    Args:
      context: Our side of it.
      connection: A TCP connection; each step may take as long as its timeout says.
      host: Whom the certificate must be for, where the context looks at it.

    Raises:
      ssl.SSLError: The handshake failed.
      TimeoutError: It did not end in time.
      OSError: The connection ended.
    """

    def __init__(
        self, context: ssl.SSLContext, connection: socket.socket, host: str | None = None
    ) -> None:
        self._connection, self._seconds = connection, connection.gettimeout() or SHORTEST_SECONDS
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._step(self._tls.do_handshake)

    @property
    def certificate(self) -> Mapping[str, Any]:
        """The certificate that the other side has shown; empty where it was not looked at."""
        return self._tls.getpeercert() or {}

    def speaks(self) -> bool:
        """Whether the other side says anything; False if it hangs up.

        Raises:
          ssl.SSLError: It refuses us.
          TimeoutError: It says nothing in time.
          OSError: The connection ended.
        """
        try:
            return bool(self._step(lambda: self._tls.read(1)))
        except ssl.SSLEOFError:
            return False

    def _step(self, step: Callable[[], T]) -> T:
        """What comes of a step, which gets more of what the other side sends until it is over."""
        due = time.monotonic() + self._seconds
        while True:
            try:
                done = step()
            except ssl.SSLWantReadError:
                self._send(due)
                self._receive(due)
                continue
            except ssl.SSLError:
                # Why we hang up, if that is still heard.
                with contextlib.suppress(OSError):
                    self._send(due)
                raise
            self._send(due)
            return done

    def _send(self, due: float) -> None:
        if self._outgoing.pending:
            self._wait_until(due)
            self._connection.sendall(self._outgoing.read())

    def _receive(self, due: float) -> None:
        self._wait_until(due)
        received = self._connection.recv(CHUNK_BYTES)
        if received:
            self._incoming.write(received)
        else:
            self._incoming.write_eof()

    def _wait_until(self, due: float) -> None:
        left = due - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(max(left, SHORTEST_SECONDS))
