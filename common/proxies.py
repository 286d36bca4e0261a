"""Connections as gRPC makes them: straight, or through the HTTP proxy of the environment.

gRPC reads ``grpc_proxy``, ``https_proxy`` and ``http_proxy``, the first that is set, and leaves
out the hosts of ``no_grpc_proxy`` or ``no_proxy``; it asks the proxy to CONNECT. To this machine
we go straight. Our own handshakes go the same way, or they would look at another line than the
calls use.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import socket
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass

from common.texts import printable
from common.tls import is_loopback

PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
EXCEPTIONS = ("no_grpc_proxy", "no_proxy")
LONGEST_REPLY = 8192
LONGEST_STATUS = 80
# A socket that may wait for 0 seconds does not wait, and says so in other words.
SHORTEST_SECONDS = 0.001


class ProxyRefusedError(OSError):
    """The proxy of the environment does not connect us; its text is a sentence."""


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """An HTTP proxy, as a variable of the environment names it.

    Args:
      variable: The variable.
      host: The proxy's host.
      port: Its port.
      credentials: NAME:PASSWORD, or nothing; never shown.
    """

    variable: str
    host: str
    port: int
    credentials: str

    def __str__(self) -> str:
        """For a sentence; without the password."""
        return f"the proxy {self.host}:{self.port} of {self.variable}"

    def __repr__(self) -> str:
        """Without the password."""
        return f"Proxy({self.host}:{self.port})"


def proxy_for(host: str, environment: Mapping[str, str] = os.environ) -> Proxy | None:
    """The proxy that gRPC asks for a host, or None where it connects straight, as to this machine.

    >>> world = {"https_proxy": "http://proxy.example:3128", "no_proxy": ".lan, 127.0.0.0/8"}
    >>> proxy_for("bank.example", world)
    Proxy(proxy.example:3128)
    >>> proxy_for("ehr.lan", world), proxy_for("127.0.0.1", world), proxy_for("a", {})
    (None, None, None)
    >>> proxy_for("localhost", {"https_proxy": "http://proxy.example:3128"}) is None
    True
    """
    variable = next((name for name in PROXIES if environment.get(name)), None)
    if variable is None or is_loopback(f"{host}:0") or _is_excepted(host, environment):
        return None
    try:
        found = urllib.parse.urlsplit(environment[variable])
        port = found.port or 80
    except ValueError:
        return None
    if found.scheme != "http" or not found.hostname:
        return None
    credentials = "" if found.username is None else f"{found.username}:{found.password or ''}"
    return Proxy(
        variable=variable,
        host=found.hostname,
        port=port,
        credentials=urllib.parse.unquote(credentials),
    )


def _is_excepted(host: str, environment: Mapping[str, str]) -> bool:
    """Whether a host is one of those that no proxy is asked for."""
    listed = next((environment[name] for name in EXCEPTIONS if environment.get(name)), "")
    return any(_matches(host, entry.strip()) for entry in listed.split(",") if entry.strip())


def _matches(host: str, entry: str) -> bool:
    """Whether an exception is meant for a host: the end of its name, or its network."""
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return host.lower().endswith(entry.lower())


def open_connection(host: str, port: int, timeout: float) -> socket.socket:
    """A TCP connection, or a tunnel of the proxy's, each step within this many seconds.

    Raises:
      ProxyRefusedError: The proxy is not there, or does not connect us.
      OSError: As of ``socket.create_connection``.
    """
    proxy = proxy_for(host)
    if proxy is None:
        return socket.create_connection((host, port), timeout)
    try:
        connection = socket.create_connection((proxy.host, proxy.port), timeout)
    except OSError as error:
        reason = error.strerror or "no answer"
        raise ProxyRefusedError(
            f"{proxy} is not reached ({reason}); set {proxy.variable} right, or name the host "
            "in no_proxy"
        ) from None
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        _ask_for_tunnel(connection, proxy, target, due=time.monotonic() + timeout)
    except BaseException:
        connection.close()
        raise
    connection.settimeout(timeout)
    return connection


def _ask_for_tunnel(connection: socket.socket, proxy: Proxy, target: str, *, due: float) -> None:
    """CONNECT, and the proxy's whole answer read, so that what follows is the far side's."""
    lines = [f"CONNECT {target} HTTP/1.0", f"Host: {target}"]
    if proxy.credentials:
        secret = base64.b64encode(proxy.credentials.encode()).decode("ascii")
        lines.append(f"Proxy-Authorization: Basic {secret}")
    connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("ascii", "replace"))
    reply = b""
    while not reply.endswith(b"\r\n\r\n") and len(reply) < LONGEST_REPLY:
        # A byte at a time: the next ones may be the far side's. In all, not each, in time.
        connection.settimeout(max(due - time.monotonic(), SHORTEST_SECONDS))
        byte = connection.recv(1)
        if not byte:
            break
        reply += byte
    status = reply.partition(b"\r\n")[0].decode("ascii", "replace")
    words = status.split(" ", 2)
    if not (words[0].startswith("HTTP/") and len(words) > 1 and words[1] == "200"):
        shown = printable(status, LONGEST_STATUS) or "nothing"
        raise ProxyRefusedError(
            f"{proxy} does not connect to {target} (it says: {shown}); ask its operator to allow "
            "CONNECT to this host and port, or name the host in no_proxy"
        )
