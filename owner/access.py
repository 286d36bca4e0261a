"""Which learner asks, and how often it may: tokens, and limits on the rate of requests."""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from common.errors import BusyError, IdentityError, InputError
from common.own_files import warn_of_others
from common.small_files import read_own
from common.wire import TOKEN_START
from owner.policy import ANONYMOUS, Policy, check_learner

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})", re.ASCII)
# Any other name TOML wants in quotes; learners' names have none in them.
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
SHORTEST_TOKEN = 24
HOUR_SECONDS = 3600.0


class RateLimit:
    """A bucket of requests that fills at a steady rate.

    Args:
      per_second: How many requests a second in the long run.
      burst: How many may come at once.
      clock: Seconds, monotonic.

    >>> limit = RateLimit(per_second=2.0, burst=1, clock=lambda: 0.0)
    >>> limit.wait(), limit.wait()
    (0.0, 0.5)
    """

    def __init__(
        self, *, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._left = burst
        self._at = clock()
        self._lock = threading.Lock()

    def wait(self) -> float:
        """Take one request, or say in how many seconds there will be one."""
        with self._lock:
            now = self._clock()
            self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
            self._at = now
            if self._left < 1.0:
                return (1.0 - self._left) / self._per_second
            self._left -= 1.0
            return 0.0

    def give_back(self) -> None:
        """Give one request back that was taken."""
        with self._lock:
            self._left += 1.0


class Access:
    """Identifies a caller, and refuses callers unknown or too frequent.

    Guarantees:
      * Tokens are kept and compared as SHA-256 digests, in a time that says nothing of them.
      * Limits count each learner for itself: nobody is slowed down by another.

    Args:
      policy: The owner's policy.
      base: The folder of its settings file; token files start there.
      clock: Seconds, monotonic.

    Raises:
      InputError: A token's file cannot be read, or holds too little.
    """

    def __init__(
        self, policy: Policy, *, base: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._policy = policy
        self._digests: Mapping[str, bytes] = {
            learner: _digest(learner, where, base) for learner, where in policy.tokens.items()
        }
        self._clock = clock
        self._limits: dict[tuple[str, str], RateLimit] = {}
        self._lock = threading.Lock()

    def identify(self, *, token: str | None, certificate: str | None) -> str:
        """The learner's name: by its token if it sends one, else by its certificate.

        Raises:
          IdentityError: The token is not known, or the owner wants one and there is none; or the
            certificate has not one common name, or one that cannot be printed, or has expired.
        """
        if token is not None:
            return self._by_token(token)
        if certificate is None and self._digests:
            raise IdentityError(
                "this owner wants a token of its learners; ask its officer for yours"
            )
        # A name that has a token is not given for a certificate, unless the policy lists it.
        if certificate in self._digests and certificate not in self._policy.learners:
            raise IdentityError("this owner wants this learner's token; send it")
        if certificate == "":
            raise IdentityError(
                "the certificate has no common name, or several, or has expired; come with one "
                "that names you"
            )
        # It stands in the log and in tables that people read.
        if certificate is not None and not certificate.isprintable():
            raise IdentityError("the certificate's name has characters that cannot be printed")
        return ANONYMOUS if certificate is None else certificate

    @property
    def calls_per_learner(self) -> int:
        """How many calls of one learner may be open at once."""
        return self._policy.calls_per_learner

    def admit(self, *, token: str | None, certificate: str | None) -> str:
        """The name of a learner that this owner serves.

        Raises:
          IdentityError: See :meth:`identify`.
          PolicyError: The owner does not serve it.
        """
        learner = self.identify(token=token, certificate=certificate)
        check_learner(self._policy, learner)
        return learner

    def admit_query(self, learner: str) -> None:
        """Count one request of a learner.

        Raises:
          PolicyError: The owner does not serve it.
          BusyError: It asks too often.
        """
        check_learner(self._policy, learner)
        rate = self._policy.queries_per_second
        if rate is not None:
            self._admit("query", learner, per_second=rate, burst=max(1.0, rate))

    def uncount_query(self, learner: str) -> None:
        """Count a request no more that was admitted, and for which nothing could be done yet."""
        with self._lock:
            limit = self._limits.get(("query", learner))
        if limit is not None:
            limit.give_back()

    def admit_enrollment(self, learner: str) -> None:
        """Count one new study of a learner.

        Raises:
          BusyError: It enrols too often.
        """
        rate = self._policy.enrollments_per_hour
        self._admit("enrolment", learner, per_second=rate / HOUR_SECONDS, burst=float(rate))

    def _admit(self, kind: str, learner: str, *, per_second: float, burst: float) -> None:
        # Names come from the policy or from the owner's certificate authority, so they are few.
        key = (kind, learner)
        with self._lock:
            limit = self._limits.get(key)
            if limit is None:
                limit = RateLimit(per_second=per_second, burst=burst, clock=self._clock)
                self._limits[key] = limit
        wait = limit.wait()
        if wait > 0:
            seconds = f"{wait:.3f}" if wait < 10 else f"{math.ceil(wait)}"
            raise BusyError(
                f"this owner takes no further {kind} of this learner for {seconds} seconds; "
                "nothing was charged, ask again then",
                retry_after=wait,
            )

    def _by_token(self, token: str) -> str:
        presented = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        known = None
        # Every digest is compared, so that the time does not show which one came close.
        for learner, digest in self._digests.items():
            if hmac.compare_digest(digest, presented):
                known = learner
        if known is None:
            raise IdentityError("the token is not one that this owner knows; ask it for yours")
        return known


def _digest(learner: str, where: str, base: Path) -> bytes:
    """The digest of a learner's token, from the settings or from the token's file."""
    match = _DIGEST.fullmatch(where)
    if match is not None:
        return bytes.fromhex(match[1])
    token = read_token(base / where.removeprefix("file:"), setting=f"policy.tokens.{learner}")
    return hashlib.sha256(token.encode()).digest()


def read_token(path: Path, *, setting: str) -> str:
    """The token that a file holds.

    Raises:
      InputError: The file cannot be read, or the token is none that a learner sends, or too short
        to be secret.
    """
    try:
        token = read_own(path).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        # Of what it holds nothing is said.
        reason = error.strerror if isinstance(error, OSError) else "it is no ASCII"
        raise InputError(
            f"{setting}: {path}: the token cannot be read ({reason}); give a file with one, as "
            "copriv-owner token makes"
        ) from None
    warn_of_others(path)
    if len(token) < SHORTEST_TOKEN or not token.startswith(TOKEN_START):
        raise InputError(
            f"{setting}: {path}: expected a token of at least {SHORTEST_TOKEN} characters that "
            f"begins with {TOKEN_START}; make one with copriv-owner token"
        )
    return token


def new_token_line(learner: str, token: str) -> str:
    """The line of ``[policy.tokens]`` for a token.

    >>> new_token_line("bank-a", "x" * 32)[:22]
    'bank-a = "sha256:c62e4'
    """
    key = learner if _BARE_KEY.fullmatch(learner) else f'"{learner}"'
    return f'{key} = "sha256:{hashlib.sha256(token.encode()).hexdigest()}"'
