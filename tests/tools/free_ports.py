"""Ports of this machine that stay free until a test binds them, or binds them again."""

import random
import socket
from pathlib import Path

__all__ = ["free_address", "free_port", "free_ports"]

# Connections get their own ports from above this one: a port below is taken by nobody by chance.
LOWEST, HIGHEST = 20_000, 30_000
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port():
    """A port of the loopback that nobody has."""
    return free_ports(1)[0]


def free_address():
    """The same as HOST:PORT."""
    return f"127.0.0.1:{free_port()}"


def free_ports(count):
    """This many different ports that nobody has."""
    ports = random.SystemRandom().sample(range(LOWEST, _highest()), 100 + count)
    free = [port for port in ports if is_free(port)]
    return free[:count]


def _highest():
    """The end of the ports that no connection gets."""
    if not RANGE.exists():
        return HIGHEST
    return max(LOWEST + 1_000, min(HIGHEST, int(RANGE.read_text().split()[0])))


def is_free(port):
    """Whether nobody has a port of the loopback."""
    with socket.socket() as one:
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
