"""The offers of a broadcasting learner that this owner accepts, and whether it does so right now.

An offer carries no model and an acceptance spends nothing, so this is about convenience and
never about privacy; it must not look at a record.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, time
from types import MappingProxyType
from typing import Annotated

from pydantic import AfterValidator, Field

from common.config import Settings, Share

# Offers of one learner over which the owner pauses at the same time. An honest one makes one of
# each study; each takes a thread, and those of others are to find one.
MOST_PAUSING = 8

_HOURS = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])", re.ASCII)


def _check_hours(text: str) -> str:
    """Refuse what is not a span of the day."""
    if not _HOURS.fullmatch(text):
        raise ValueError('expected a span of the day in UTC, such as "22:00-06:00"')
    return text


class OfferSettings(Settings):
    """The table ``[listening]`` of OWNER.toml: which offers the owner accepts.

    Args:
      probability: The chance that it accepts an offer.
      delay: How many seconds it pauses on average (exponentially) before it accepts.
      hours: The spans of the day, in UTC, in which it accepts offers; empty for always.
    """

    EXAMPLES = MappingProxyType({"hours": ["22:00-06:00"]})

    probability: Share = 1.0
    delay: Annotated[float, Field(ge=0, le=60)] = 0.0
    hours: tuple[Annotated[str, AfterValidator(_check_hours)], ...] = ()


def is_within(span: str, now: time) -> bool:
    """Whether a time of the day lies in a span, which may cross midnight.

    >>> [is_within("22:00-06:00", time(hour)) for hour in (23, 5, 6, 12)]
    [True, True, False, False]
    """
    start, end = (time.fromisoformat(part) for part in span.split("-"))
    return start <= now < end if start < end else now >= start or now < end


class Offers:
    """Says yes or no to offers, by the owner's settings and nothing else.

    Args:
      settings: The owner's table ``[listening]``.
      pause: Waits this many seconds.
      now: The time of the day, UTC.
    """

    def __init__(
        self,
        settings: OfferSettings,
        *,
        pause: Callable[[float], object],
        now: Callable[[], time] = lambda: datetime.now(UTC).time(),
    ) -> None:
        self._settings = settings
        self._pause = pause
        self._now = now
        self._lock = threading.Lock()
        self._pausing: Counter[str] = Counter()

    def accepts(self, learner: str) -> bool:
        """Whether the owner accepts an offer made now; an acceptance may take its time.

        Args:
          learner: Who makes it; beyond :data:`MOST_PAUSING` at once, its offers are declined.
        """
        settings, now = self._settings, self._now()
        if settings.hours and not any(is_within(span, now) for span in settings.hours):
            return False
        # The learner sees what becomes of its offers: a draw whose seed nobody else has, no secret.
        if secrets.SystemRandom().random() >= settings.probability:
            return False
        return settings.delay == 0 or self._pauses(learner)

    def _pauses(self, learner: str) -> bool:
        """Take the time of an acceptance, if the learner may have that; whether it did."""
        with self._lock:
            if self._pausing[learner] >= MOST_PAUSING:
                return False
            self._pausing[learner] += 1
        try:
            self._pause(secrets.SystemRandom().expovariate(1 / self._settings.delay))
        finally:
            with self._lock:
                self._pausing[learner] -= 1
        return True
