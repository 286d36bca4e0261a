"""The way from an attached owner to its learner: in plain text, or by mutual TLS."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc

from common.channels import open_channel
from common.diagnosis import identify, why_unreachable
from common.errors import UntrustedError
from common.tls import TlsSettings, load_identity
from common.wire import Options

HANDSHAKE_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Route:
    """How one learner is reached.

    Args:
      address: Its HOST:PORT.
      tls: Our certificate's files; None speaks plain text.
      base: The folder that relative paths start from.
    """

    address: str
    tls: TlsSettings | None
    base: Path

    def open(self, options: Options) -> tuple[grpc.Channel, str | None]:
        """A channel, and the learner's name as its certificate says; None in plain text.

        The channel is bound to that name, which copriv certs puts among a certificate's: nobody
        else of the same CA can take its place. Our files are read again, so renewed ones are in
        use from the next stream on.

        Raises:
          InputError: Our files do not fit each other, or have expired.
          UntrustedError: The learner's certificate does not fit, or it refuses ours.
          UnreachableError: Nobody is there.
        """
        if self.tls is None:
            return open_channel(self.address, None, options), None
        identity = load_identity(self.tls, base=self.base, side="client")
        learner = identify(self.address, identity, far="learner", timeout=HANDSHAKE_SECONDS)
        expected = None if learner.role is None else learner.name
        channel = open_channel(self.address, identity, options, expected=expected)
        return channel, learner.name

    def explain(self) -> str:
        """Why nobody was reached in plain text; nothing by TLS, where :meth:`open` has looked.

        Raises:
          UntrustedError: It speaks TLS, so trying again is in vain.
        """
        if self.tls is not None:
            return ""
        cause = why_unreachable(self.address, None, far="learner", timeout=HANDSHAKE_SECONDS)
        if cause.certificates:
            raise UntrustedError(f"learner at {self.address}: {cause.sentence}")
        return cause.sentence
