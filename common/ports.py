"""Whether an address of this machine can be listened at: known before anything is made."""

from __future__ import annotations

import socket

from common.tls import host_and_port

__all__ = ["check_free"]


def check_free(address: str) -> None:
    """Bind to HOST:PORT and let it go; nobody can connect meanwhile.

    Args:
      address: HOST:PORT; the host may have several addresses, of which one is enough.

    Raises:
      OSError: It is taken, it is not this machine's, or the host is unknown.

    >>> check_free("127.0.0.1:0")
    """
    host, port = host_and_port(address)
    failures = []
    for family, kind, _, _, place in socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    ):
        try:
            with socket.socket(family, kind) as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                tried.bind(place)
        except OSError as error:
            failures.append(error)
        else:
            return
    raise failures[0]
