"""An owner's own Poisson clock, and what waits to be sent on its stream."""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Iterator

import numpy as np

from common.errors import MalformedError
from common.pb import copriv_pb2 as pb

# A learner has one call under way, and an owner one request.
MOST_WAITING = 64

Send = Callable[[pb.OwnerMessage], None]


class Outgoing:
    """What waits to be sent; a learner that asks again before it has read its answers is left."""

    def __init__(self) -> None:
        self._messages: queue.SimpleQueue[pb.OwnerMessage | None] = queue.SimpleQueue()

    @property
    def is_full(self) -> bool:
        """Whether so much waits that nobody can be reading."""
        return self._messages.qsize() > MOST_WAITING

    def put(self, message: pb.OwnerMessage) -> None:
        """Send one message, or none if nobody reads."""
        if not self.is_full:
            self._messages.put(message)

    def messages(self) -> Iterator[pb.OwnerMessage]:
        """What is sent, until the end."""
        return iter(self._messages.get, None)

    def end(self) -> None:
        """Send nothing more."""
        self._messages.put(None)


class OwnClock:
    """The owner's own Poisson clock: at each tick it asks for an update, one at a time."""

    def __init__(self, send: Send, *, rate: float, rng: np.random.Generator) -> None:
        self._send = send
        self._rate = rate
        self._rng = rng
        self._time = 0.0
        self._scale = 0.0
        self._asked = False
        self._timer: threading.Timer | None = None

    def start(self, start: pb.ClockStart) -> None:
        """Tick from now on; exponential gaps remember nothing, so a clock may start anywhere.

        Raises:
          MalformedError: The time or its scale is negative or not finite.
        """
        if not (0 <= start.time < math.inf and 0 <= start.time_scale < math.inf):
            raise MalformedError(
                f"a start of the clock at {start.time:.6g} with {start.time_scale:.6g} seconds for "
                "one unit of time, expected finite numbers of 0 or more"
            )
        self.stop()
        self._time, self._scale = start.time, start.time_scale
        self._wind()

    def answered(self) -> None:
        """A query was answered: if it was our update, wait for the next tick."""
        if self._asked:
            self._wind()

    def stop(self) -> None:
        """Tick no more."""
        self._asked = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wind(self) -> None:
        """Draw the next gap, and ask when it has passed."""
        self._asked = False
        gap = float(self._rng.exponential(1.0 / self._rate))
        self._time += gap
        if self._scale == 0:
            self._ask()
        else:
            # A timer that waits longer than threads can is an error when it starts.
            wait = min(gap * self._scale, threading.TIMEOUT_MAX)
            self._timer = threading.Timer(wait, self._ask)
            self._timer.daemon = True
            self._timer.start()

    def _ask(self) -> None:
        self._asked = True
        self._send(pb.OwnerMessage(request=pb.UpdateRequest(time=self._time)))
