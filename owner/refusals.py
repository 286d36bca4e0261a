"""What others may know of an error, and what of it the log keeps: never more than a trickle."""

from __future__ import annotations

import logging
import math
import threading
from dataclasses import dataclass

import grpc

from common.errors import BusyError, InputError, RefusedError
from common.texts import printable
from common.thread_limit import NO_MORE_THREADS, none_begins
from common.wire import status_of
from owner.access import RateLimit
from owner.ledger_rows import LedgerDiskError, LedgerError

log = logging.getLogger("copriv.owner")

# Exception text may carry records or paths, so the wire says only this.
FAILED = "the owner failed; its operator finds the reason in the owner's log"
REFUSALS_PER_SECOND = 1.0
# A traceback takes some thousand bytes.
FAILURES_PER_SECOND = 0.1


class SlowLog:
    """Log lines that others can cause: this many a second, and how many were left out.

    Args:
      level: The level of the lines.
      per_second: How many in the long run.
      burst: How many at once.
    """

    def __init__(self, level: int, *, per_second: float, burst: float) -> None:
        self._level = level
        self._rate = RateLimit(per_second=per_second, burst=burst)
        self._left_out = 0
        self._lock = threading.Lock()

    def say(self, sentence: str, *, error: Exception | None = None) -> None:
        """Log one line, with the traceback of an error if there is one; or only count it."""
        with self._lock:
            if self._rate.wait() > 0:
                self._left_out += 1
                return
            more, self._left_out = self._left_out, 0
        left_out = f" ({more} like it left out before)" if more else ""
        log.log(self._level, "%s%s", sentence, left_out, exc_info=error)


@dataclass(frozen=True)
class PublicRefusal:
    """What the other side may know of an error; asking again helps if there is a time for it."""

    status: grpc.StatusCode
    sentence: str
    retry_after_ms: int = 0


class Refusals:
    """Turns errors into public refusals.

    Guarantees:
      * Of an error that is no refusal the other side learns one fixed sentence.
      * A caller that is refused a million times does not fill the ledger's disk.
    """

    def __init__(self) -> None:
        self._refused = SlowLog(
            logging.WARNING, per_second=REFUSALS_PER_SECOND, burst=20 * REFUSALS_PER_SECOND
        )
        self._failed = SlowLog(logging.ERROR, per_second=FAILURES_PER_SECOND, burst=10)

    def public(self, error: Exception) -> PublicRefusal:
        """What the other side may know of an error; an unexpected one is logged here in full."""
        if not isinstance(error, RefusedError):
            told = _told(error)
            # Where a sentence says all, forty lines of how it came about would hide it, ten times
            # over.
            self._failed.say(f"a call failed{told}", error=None if told else error)
            return PublicRefusal(grpc.StatusCode.INTERNAL, FAILED)
        sentence = printable(error)
        self._refused.say(f"refused: {sentence}")
        wait = math.ceil(1000 * error.retry_after) if isinstance(error, BusyError) else 0
        return PublicRefusal(status_of(error), sentence, wait)


def _told(error: Exception) -> str:
    """What a sentence of the log says of a full disk, a table that was changed, or no thread."""
    if none_begins(error):
        return f": {NO_MORE_THREADS}"
    is_input = isinstance(error, InputError) and not isinstance(error, LedgerError)
    return f": {printable(error)}" if is_input or isinstance(error, LedgerDiskError) else ""
