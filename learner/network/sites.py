"""A look at the sites of a study from outside: nothing is enrolled, nothing is spent."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from common.diagnosis import identify
from common.errors import CoprivError
from common.tls import Identity
from learner.network.connections import Connections
from learner.network.grpc_owner import HANDSHAKE_SECONDS
from learner.planning.sections import OwnerEntry
from learner.training.agreement import Seen
from learner.training.enrolment import at_once
from learner.training.owners import Owner


def look_at_sites(
    connections: Connections,
    entries: Sequence[OwnerEntry],
    *,
    identity: Identity | None,
    encrypted: bool,
    deadline: float,
    expected: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> list[Seen]:
    """What is seen of all sites, which are looked at together.

    Args:
      connections: The lines to the owners.
      entries: The same owners in the study's settings.
      identity: Our certificate where we go to them; None for plain text, or where they come.
      encrypted: Whether certificates are used.
      deadline: Seconds that one answer may take.
      expected: Entered while an owner of a name is waited for.
    """

    def look(site: tuple[Owner, OwnerEntry]) -> Seen:
        owner, entry = site
        comes = connections.requests is not None
        where = f"{entry.address}" if entry.address and not comes else "the line that it opened"
        seen = Seen(where=where, encrypted=encrypted)
        try:
            if identity is not None and entry.address is not None:
                timeout = min(deadline, HANDSHAKE_SECONDS)
                peer = identify(
                    entry.address, identity, far="owner", name=entry.name, timeout=timeout
                )
                seen = replace(seen, peer=peer)
                if peer.name != entry.name:
                    return seen
            with expected(entry.name):
                return _described(owner, seen)
        except CoprivError as error:
            return replace(seen, failure=error)
        finally:
            # It is not over: an owner that came to us comes back for the study.
            owner.disconnect()

    return at_once(look, zip(connections.owners, entries, strict=True))


def _described(owner: Owner, seen: Seen) -> Seen:
    """The owner's words, and its clock against the time they took."""
    asked = time.time()
    description = owner.describe()
    answered, clock = time.time(), description.clock_ms / 1000
    # Whatever lies between question and answer may be right.
    skew = min(clock - asked, 0.0) if clock < answered else clock - answered
    return replace(seen, description=description, skew_seconds=skew if clock else None)
