"""Hosts of our own: network namespaces joined by lines that can be slow, lossy or cut."""

import fcntl
import heapq
import os
import random
import secrets
import select
import shutil
import struct
import subprocess
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count

import pytest

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000


def ip(*arguments):
    subprocess.run(["ip", *map(str, arguments)], check=True, capture_output=True, timeout=30)


@dataclass
class Line:
    """One line between two hosts, and its present state."""

    ends: tuple[int, int]
    delay: float = 0.0
    loss: float = 0.0
    cut: bool = False
    last: dict[int, float] = field(default_factory=dict)


class Lines(threading.Thread):
    """Carries packets between the ends of all lines, late or not at all where it shall be so.

    A kernel's own emulator would do as well, but not every kernel has one.
    """

    def __init__(self):
        super().__init__(name="lines", daemon=True)
        self.lines = []
        self._waiting = []
        self._serial = count()
        self._random = random.Random(1)
        self._over = threading.Event()

    def run(self):
        while not self._over.is_set():
            ends = {end: (line, side) for line in self.lines for side, end in enumerate(line.ends)}
            wait = 0.02
            if self._waiting:
                wait = min(wait, max(0.0, self._waiting[0][0] - time.monotonic()))
            for end in select.select(list(ends), [], [], wait)[0]:
                line, side = ends[end]
                self._take(line, line.ends[1 - side], os.read(end, 65536))
            while self._waiting and self._waiting[0][0] <= time.monotonic():
                _, _, end, packet = heapq.heappop(self._waiting)
                self._deliver(end, packet)

    def _take(self, line, to, packet):
        if line.cut or self._random.random() < line.loss:
            return
        if line.delay == 0.0:
            self._deliver(to, packet)
            return
        due = time.monotonic() + line.delay
        heapq.heappush(self._waiting, (due, next(self._serial), to, packet))

    @staticmethod
    def _deliver(end, packet):
        try:
            os.write(end, packet)
        except OSError:
            # The other end is down: lost, as on any line.
            return

    def stop(self):
        self._over.set()
        self.join()


class Network:
    """The learner's host, and a line from it to each owner's host; owners do not meet."""

    def __init__(self, owners):
        self.tag = f"cp{secrets.token_hex(3)}"
        self.learner = f"{self.tag}-learner"
        self.owners = [f"{self.tag}-owner{index}" for index in range(owners)]
        self._stack = ExitStack()
        self.carrier = Lines()
        try:
            for host in (self.learner, *self.owners):
                ip("netns", "add", host)
                self._stack.callback(ip, "netns", "del", host)
                ip("-n", host, "link", "set", "lo", "up")
            for index in range(owners):
                self.carrier.lines.append(self._line(index))
            self.carrier.start()
        except BaseException:
            self._stack.close()
            raise
        self._stack.callback(self.carrier.stop)

    def _line(self, index):
        ends = []
        for side, host in ((1, self.learner), (2, self.owners[index])):
            name = f"{self.tag}{'ab'[side - 1]}{index}"
            end = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
            self._stack.callback(os.close, end)
            request = struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI)
            fcntl.ioctl(end, TUNSETIFF, request)
            ip("link", "set", name, "netns", host)
            ip("-n", host, "addr", "add", f"10.77.{index}.{side}/24", "dev", name)
            ip("-n", host, "addr", "add", f"fd77:{index}::{side}/64", "dev", name, "nodad")
            ip("-n", host, "link", "set", name, "up")
            ends.append(end)
        return Line((ends[0], ends[1]))

    def address(self, index, version):
        return f"10.77.{index}.2" if version == 4 else f"fd77:{index}::2"

    @staticmethod
    def inside(host, *command):
        """A command as it is run on a host."""
        return ["ip", "netns", "exec", host, *map(str, command)]

    def close(self):
        self._stack.close()


@pytest.fixture
def make_network():
    if os.geteuid() != 0 or shutil.which("ip") is None or not os.path.exists("/dev/net/tun"):
        pytest.skip("NOT ROOT, NO iproute2 OR NO TUN: SEPARATE HOSTS WERE NOT TESTED")
    with ExitStack() as stack:

        def make(owners):
            network = Network(owners)
            stack.callback(network.close)
            return network

        yield make
