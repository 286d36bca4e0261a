"""Addresses of this machine that are listened at: whether one can be is known beforehand."""

from __future__ import annotations

import socket

from common.errors import InputError
from common.tls import host_and_port


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


def unusable(setting: str, address: str, error: OSError) -> InputError:
    """For an address that a setting gave and that cannot be listened at.

    >>> print(unusable("metrics", "here:1", OSError(98, "Address already in use")))
    metrics = 'here:1': cannot be used (Address already in use); give another HOST:PORT
    """
    return InputError(
        f"{setting} = {address!r}: cannot be used ({error.strerror}); give another HOST:PORT"
    )
