"""What every side of the wire agrees on: sizes, keepalive, header names, statuses of errors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib import metadata
from typing import Any

import grpc

from common.errors import (
    BudgetSpentError,
    BusyError,
    CoprivError,
    IdentityError,
    MalformedError,
    OrderError,
    OwnerFailedError,
    PolicyError,
    RefusedError,
    UnreachableError,
)
from common.texts import printable

PROGRAM_VERSION = metadata.version("copriv")

Options = list[tuple[str, int]]
# Pairs of key and value, in whichever of gRPC's own kinds.
Metadata = Iterable[Any]

# A model or response of ten million coordinates.
LARGEST_MESSAGE = 96 * 2**20
# gRPC itself refuses a larger one, in these words and with the status of a spent budget.
_TOO_LARGE = re.compile(
    r"(?:SERVER: Received|CLIENT: Sent|(SERVER: Sent|CLIENT: Received)) message larger than max "
    r"\(([0-9]{1,20}) vs\. ([0-9]{1,20})\)",
    re.ASCII,
)
# It stops unpacking one there, and does not say how large it would have been.
_UNPACKED = "Decompressed message larger than max"

# What gRPC says of a call that it ends for its headers, that a proxy has enough of, or whose frames
# it cannot read, with the statuses of a spent budget, of a policy and of a failure; and of a page
# that a proxy answers, with many.
_ENDED = re.compile(
    r"received metadata size exceeds|RST_STREAM|Stream removed|No status received", re.ASCII
)
_PAGE = re.compile(r"Received http2 header with status: [0-9]{3}", re.ASCII)
_BORROWED = (
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
)

AUTHORIZATION = "authorization"
BEARER = "Bearer "
RETRY_AFTER = "retry-after-ms"
# Milliseconds as another machine writes them: at most eleven days, and never at once again.
SHORTEST_WAIT_SECONDS = 0.01
_MILLISECONDS = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)


def size_options(largest: int = LARGEST_MESSAGE) -> Options:
    """Accept messages of at most this many bytes, and send any that the other side accepts."""
    return [
        ("grpc.max_receive_message_length", largest),
        ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ]


def calls_at_once(most: int) -> Options:
    """Take so many calls of a connection at once; further ones wait at the caller's.

    Nobody is known before the headers of a call are read. gRPC ends them at 16 MB, which a stranger
    makes of 4 kB, and holds those of all calls of a connection.
    """
    return [("grpc.max_concurrent_streams", most)]


# So many bytes are read at once. Without a bound gRPC makes room for whatever has come, and keeps
# that as long as a part of it: hundreds of megabytes of one who sends faster than is read.
BOUNDED_READS: Options = [("grpc.experimental.tcp_max_read_buffer_size", 2**20)]
# So many calls wait until the program comes to them; who comes then is cancelled, and asks again. A
# stranger's headers make a megabyte of each, and gRPC would let thousands wait.
FEW_WAIT: Options = [
    ("grpc.server.max_pending_requests", 256),
    ("grpc.server.max_pending_requests_hard_limit", 256),
]
# Of who opens the connection. A firewall forgets quiet lines, and a side that vanished without a
# word is noticed by its silence.
CLIENT_OPTIONS: Options = [
    *size_options(),
    *BOUNDED_READS,
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
]
# Of who opens another channel after each failure: none inherits how often others have failed.
RECONNECT_OPTIONS: Options = [
    ("grpc.use_local_subchannel_pool", 1),
    # The time one attempt may take: TCP and TLS need several round trips of a slow line.
    ("grpc.min_reconnect_backoff_ms", 5_000),
]
SERVER_OPTIONS: Options = [
    *BOUNDED_READS,
    *FEW_WAIT,
    # A second server on the same port would share its calls silently.
    ("grpc.so_reuseport", 0),
    # The other side looks every ten seconds whether we are there, also when nothing else is said.
    # Who looks more often is answered too: gRPC takes a second to blame a caller for 170 kB of it.
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    # A side that vanished without a word frees what it held.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
]

# Strangers connect and say nothing: a handshake takes no longer than on a slow line, and a
# connection without a call is closed; who needs it again opens another, and notices nothing.
QUIET_OPTIONS: Options = [
    ("grpc.server_handshake_timeout_ms", 20_000),
    ("grpc.max_connection_idle_ms", 300_000),
]

# Read both ways: of an error its own class or the nearest above it counts, of a status the first
# row. RefusedError stands for refusals to come.
_STATUSES: Sequence[tuple[type[CoprivError], grpc.StatusCode]] = (
    (BudgetSpentError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (MalformedError, grpc.StatusCode.INVALID_ARGUMENT),
    (OrderError, grpc.StatusCode.FAILED_PRECONDITION),
    (PolicyError, grpc.StatusCode.PERMISSION_DENIED),
    (IdentityError, grpc.StatusCode.UNAUTHENTICATED),
    (RefusedError, grpc.StatusCode.ABORTED),
    (UnreachableError, grpc.StatusCode.UNAVAILABLE),
    (BusyError, grpc.StatusCode.UNAVAILABLE),
    (UnreachableError, grpc.StatusCode.DEADLINE_EXCEEDED),
    (UnreachableError, grpc.StatusCode.CANCELLED),
    (OwnerFailedError, grpc.StatusCode.INTERNAL),
)
# gRPC's statuses, by the numbers that cross the wire.
NUMBERED = {status.value[0]: status for status in grpc.StatusCode}
# The names of those that errors have.
STATUS_NAMES = frozenset(status.name for status in dict(reversed(_STATUSES)).values())


def status_of(error: Exception) -> grpc.StatusCode:
    """The gRPC status of an error; INTERNAL for what is none of ours.

    >>> class TooDeepError(OrderError): ...
    >>> status_of(TooDeepError("no")).name, status_of(KeyError("no")).name
    ('FAILED_PRECONDITION', 'INTERNAL')
    """
    for kind in type(error).__mro__:
        for row, status in _STATUSES:
            if row is kind:
                return status
    return grpc.StatusCode.INTERNAL


def error_of(status: grpc.StatusCode) -> type[CoprivError]:
    """Our error for a gRPC status; the far side failed if it is none that we know."""
    return next((kind for kind, known in _STATUSES if known is status), OwnerFailedError)


def said_with(status: grpc.StatusCode, details: str | None) -> str:
    """What the far side said with a status, fit for a sentence; never nothing.

    >>> said_with(grpc.StatusCode.UNAUTHENTICATED, " ")
    'UNAUTHENTICATED, without a reason'
    """
    return printable(details).strip() or f"{status.name}, without a reason"


def too_large(status: grpc.StatusCode, details: str | None) -> str | None:
    """What was larger than its receiver takes, in bytes; None if that is not what happened.

    >>> words = "SERVER: Received message larger than max (3000 vs. 1000)"
    >>> too_large(grpc.StatusCode.RESOURCE_EXHAUSTED, words)
    'our message of 3000 bytes is larger than the 1000 that are taken'
    >>> too_large(grpc.StatusCode.RESOURCE_EXHAUSTED, "Decompressed message larger than max")
    'its message is compressed, and larger than the 100663296 bytes that are taken'
    >>> too_large(grpc.StatusCode.RESOURCE_EXHAUSTED, "the budget is spent")
    """
    if status is not grpc.StatusCode.RESOURCE_EXHAUSTED:
        return None
    if _UNPACKED in (details or ""):
        # Nothing here compresses, so it is never ours.
        return (
            f"its message is compressed, and larger than the {LARGEST_MESSAGE} bytes that are taken"
        )
    found = _TOO_LARGE.search(details or "")
    if found is None:
        return None
    whose = "its" if found[1] else "our"
    return f"{whose} message of {found[2]} bytes is larger than the {found[3]} that are taken"


def ended_on_the_way(status: grpc.StatusCode, details: str | None) -> bool:
    """Whether a call was ended by gRPC or a proxy, whatever its status, and the owner said nothing.

    >>> words = "received metadata size exceeds hard limit (value length 20014 vs. 16384)"
    >>> ended_on_the_way(grpc.StatusCode.RESOURCE_EXHAUSTED, words)
    True
    >>> page = "Received http2 header with status: 403"
    >>> ended_on_the_way(grpc.StatusCode.PERMISSION_DENIED, page)
    True
    """
    said = details or ""
    return bool(_PAGE.search(said) or (status in _BORROWED and _ENDED.search(said)))


def error_numbered(number: int) -> type[CoprivError]:
    """Our error for the number of a gRPC status, as an attached owner sends it.

    >>> error_numbered(8).__name__, error_numbered(-1).__name__
    ('BudgetSpentError', 'OwnerFailedError')
    """
    return error_of(NUMBERED[number]) if number in NUMBERED else OwnerFailedError


# What a stranger's settings name as a token may be a secret of another program: it is not sent.
TOKEN_START = "copriv_"  # noqa: S105 (how each begins)


def token_metadata(token: str | None) -> tuple[tuple[str, str], ...]:
    """The headers that say who asks; none without a token."""
    return () if token is None else ((AUTHORIZATION, BEARER + token),)


def token_in(metadata: Metadata | None) -> str | None:
    """The token that somebody sent in its headers.

    >>> token_in([("te", "trailers"), *token_metadata("secret")])
    'secret'
    """
    for key, value in metadata or ():
        if key == AUTHORIZATION:
            return str(value).removeprefix(BEARER)
    return None


def retry_after(metadata: Metadata | None) -> float | None:
    """Seconds after which a busy owner wants to be asked again; None if it does not say.

    >>> retry_after([(RETRY_AFTER, "1500")]), retry_after([(RETRY_AFTER, "9" * 400)])
    (1.5, None)
    """
    for key, value in metadata or ():
        if key == RETRY_AFTER and _MILLISECONDS.fullmatch(str(value)):
            return max(int(value) / 1000.0, SHORTEST_WAIT_SECONDS)
    return None
