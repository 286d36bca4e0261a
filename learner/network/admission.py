"""Who was invited, and certificates for those who come: kept beside the CA's key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import Field

from common.config import Settings
from common.errors import InputError
from common.files import permitted, write_or_refuse
from common.joining import Request
from common.names import Name
from common.small_files import read_own
from learner.network.certificates import CA_FOLDER, Party, sign_request

FILE = "invited.json"
# Some hundred bytes for each of 10,000 owners.
LARGEST_LIST = 16 * 2**20


class Guest(Settings):
    """One owner that was invited.

    Args:
      hosts: What it is reached under; none for one that comes to the learner.
      invitation: Digest of its invitation.
    """

    hosts: tuple[str, ...]
    invitation: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class GuestList(Settings):
    """The owners of a study, as they were invited.

    Args:
      format: What this file is.
      study: The study's name.
      owners: The owners by name.
    """

    format: Literal["copriv-invited/1"] = "copriv-invited/1"
    study: Name
    owners: dict[Name, Guest]


def write_guests(certs: Path, study: str, owners: Mapping[str, Guest]) -> None:
    """Keep who was invited, beside the CA.

    Raises:
      InputError: It cannot be written.
    """
    guests = GuestList(study=study, owners=dict(owners))
    text = json.dumps(guests.model_dump(mode="json"), indent=1) + "\n"
    write_or_refuse(certs / CA_FOLDER / FILE, text, mode=0o600)


def invited_before(certs: Path) -> str | None:
    """The study whose owners were invited; None where nobody was, or nobody can tell."""
    try:
        return read_guests(certs).study
    except InputError:
        return None


def read_guests(certs: Path) -> GuestList:
    """Who was invited.

    Raises:
      InputError: Nobody was, or the file is damaged.
    """
    path = certs / CA_FOLDER / FILE
    try:
        return GuestList.model_validate_json(read_own(path, most=LARGEST_LIST))
    except OSError as error:
        cure = "type copriv invite first, or give the folder of its files with --certs"
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); {permitted(error, cure)}"
        ) from None
    except ValueError:
        raise InputError(f"{path}: is damaged; type copriv invite again") from None


def admit(
    guests: GuestList, request: Request, *, where: str, certs: Path, days: int
) -> tuple[ec.EllipticCurvePublicKey, bytes]:
    """The key of a request, and a certificate for it; the request's own hosts count for nothing.

    Args:
      guests: Who was invited.
      request: What came back.
      where: Its file, for a sentence.
      certs: The folder of the study's certificates.
      days: How long the certificate is valid.

    Raises:
      InputError: It is of nobody who was invited, or answers another invitation.
    """
    guest = guests.owners.get(request.owner)
    if request.study != guests.study or guest is None:
        raise InputError(
            f"{where}: asks for {request.owner} of {request.study}, but invited to {guests.study} "
            f"are {', '.join(guests.owners)}; to let {request.owner} in, type copriv invite with "
            f"the STUDY.toml of {request.study}"
        )
    if request.invitation != guest.invitation:
        raise InputError(
            f"{where}: {request.owner} answers another invitation than the latest; send it the "
            "latest, and ask for a new request"
        )
    key = request.public_key(where=where)
    party = Party(name=request.owner, role="owner", hosts=guest.hosts)
    return key, sign_request(certs, party, key, days=days)
