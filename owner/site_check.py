"""An owner's own check of its connection: its certificate, and the way to the learner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from common.certificates import check_own_name, days_left
from common.diagnosis import identify
from common.errors import InputError, UnreachableError, UntrustedError
from common.texts import claimed
from common.tls import Identity, Side, TlsSettings, load_identity
from owner.policy import OwnerSettings

HANDSHAKE_SECONDS = 5.0


def own_certificate(
    settings: OwnerSettings, tls: TlsSettings, *, base: Path
) -> tuple[Identity, str]:
    """The owner's own certificate, and a sentence on it.

    Raises:
      InputError: Its files do not fit, are another owner's or have expired.
    """
    side: Side = "client" if settings.attach.learner else "server"
    identity = load_identity(tls, base=base, side=side)
    check_own_name(identity, name=settings.name)
    return identity, f"certificate of {settings.name}, {days_left(identity)}"


def site_lines(settings: OwnerSettings, *, base: Path) -> Iterator[str]:
    """Sentences for the officer; nothing without ``[tls]``.

    Raises:
      InputError: Files do not fit, are another owner's or have expired, or the learner's do not.
    """
    if settings.tls is None:
        return
    goes = settings.attach.learner
    identity, sentence = own_certificate(settings, settings.tls, base=base)
    yield sentence
    if goes is None:
        return
    try:
        learner = identify(goes, identity, far="learner", timeout=HANDSHAKE_SECONDS)
    except UntrustedError as error:
        raise InputError(str(error)) from None
    except UnreachableError as error:
        yield f"the way to the learner is not checked: {error}"
        return
    yield f"the learner at {goes} is {claimed(learner.name)}, and accepts us"
