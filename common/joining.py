"""The two files by which an owner joins a study: an invitation there, a signing request back.

Neither holds a secret. Both are read as what they are, bytes from somebody else: of bounded size,
with exactly these keys, and nothing of them is believed before people have compared one
fingerprint of the two by telephone.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import Field, ValidationError

from common.certificates import UNREADABLE
from common.config import Address, Epsilon, LossName, Positive, Settings
from common.errors import InputError
from common.features import FeatureMap, file_text
from common.files import open_regular, permitted
from common.names import Name
from common.setting_errors import first_fault

S = TypeVar("S", bound=Settings)

LARGEST_INVITATION = 8 * 2**20
LARGEST_REQUEST = 2**16
LARGEST_PEM = 20_000
INVITATION, REQUEST = "an invitation of copriv invite", "a request of copriv-owner join"
# Where they come from.
MADE_BY = {
    INVITATION: "the learner makes one for each owner of its study: copriv invite",
    REQUEST: "the owner makes one of its invitation: copriv-owner join",
}
MAP_KEY = "feature_map"
GROUPS, GROUP = 4, 5

_Pem = Annotated[str, Field(max_length=LARGEST_PEM)]
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Invitation(Settings):
    """What one owner is asked, the feature map apart.

    Args:
      format: What this file is.
      study: The study's name.
      owner: The owner's name in it.
      learner: The learner's name, as its certificate will say.
      way: Whether the owner is called at a port, or goes to the learner's.
      address: That port, HOST:PORT.
      ca: The study's CA, PEM; only its certificates are accepted.
      loss: The study's loss.
      theta_max: Half the side of the box of models.
      epsilon: What the owner is asked to spend.
      kappa: In how many shards a record may be.
    """

    format: Literal["copriv-invitation/1"] = "copriv-invitation/1"
    study: Name
    owner: Name
    learner: Name
    way: Literal["serve", "attach"]
    address: Address
    ca: _Pem
    loss: LossName
    theta_max: Positive
    epsilon: Epsilon
    kappa: Annotated[int, Field(ge=1)] = 1


@dataclass(frozen=True, kw_only=True)
class Invited:
    """An invitation as it was read.

    Args:
      invitation: What is asked.
      feature_map: Columns with their kinds, categories and bounds.
      digest: SHA-256 of all of it, however the text is laid out.
    """

    invitation: Invitation
    feature_map: FeatureMap
    digest: str


class Request(Settings):
    """An owner's request for a certificate; its key stays where it was made.

    Args:
      format: What this file is.
      study: The study's name.
      owner: The owner's name.
      invitation: Digest of the invitation that it answers.
      signing_request: PKCS #10, PEM.
    """

    format: Literal["copriv-request/1"] = "copriv-request/1"
    study: Name
    owner: Name
    invitation: _Digest
    signing_request: _Pem

    def public_key(self, *, where: str) -> ec.EllipticCurvePublicKey:
        """The key that a certificate is asked for.

        Raises:
          InputError: It is no request for this owner's name, signed with its own key.
        """
        wrong = f"{where}: holds no signing request of copriv-owner join; ask for another"
        try:
            request = x509.load_pem_x509_csr(self.signing_request.encode("ascii", "replace"))
            names = request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            key, signed = request.public_key(), request.is_signature_valid
        except UNREADABLE:
            raise InputError(wrong) from None
        is_ours = isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name == "secp256r1"
        if not (signed and is_ours and [name.value for name in names] == [self.owner]):
            raise InputError(wrong)
        assert isinstance(key, ec.EllipticCurvePublicKey)  # noqa: S101 (is_ours)
        return key


def fingerprint(invitation: str, key: ec.EllipticCurvePublicKey) -> str:
    """What both ends compare by telephone: of the invitation and the owner's new key.

    A hundred bits: anyone who changes either on its way cannot find another of the same.

    Args:
      invitation: Digest of the invitation.
      key: The owner's.
    """
    spki = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    digest = hashlib.sha256(b"copriv join\0" + bytes.fromhex(invitation) + spki).digest()
    text = base64.b32encode(digest).decode("ascii")
    return "-".join(text[GROUP * i : GROUP * (i + 1)] for i in range(GROUPS))


def write_invitation(invitation: Invitation, feature_map: FeatureMap) -> tuple[str, str]:
    """The invitation's text, and its digest."""
    table = invitation.model_dump(mode="json") | {MAP_KEY: json.loads(file_text(feature_map))}
    return json.dumps(table, indent=1) + "\n", _digest_of(table)


def read_invitation(path: Path) -> Invited:
    """The invitation of a file.

    Raises:
      InputError: It is not one, or its CA is no CA or has expired.
    """
    table, digest, _ = _read_table(path, INVITATION)
    if _is(Request, table):
        raise InputError(
            f"{path}: this is the request that copriv-owner join made, for copriv admit; give the "
            ".invitation that the learner sent"
        )
    given = table.pop(MAP_KEY, None)
    feature_map = FeatureMap.from_json(json.dumps(given), where=f"{path}: {MAP_KEY}")
    invitation = _checked(Invitation, table, path)
    _check_ca(invitation.ca, path)
    return Invited(invitation=invitation, feature_map=feature_map, digest=digest)


def read_request(path: Path) -> Request:
    """The request of a file.

    Raises:
      InputError: It is not one.
    """
    table, _, size = _read_table(path, REQUEST)
    if _is(Invitation, table):
        raise InputError(
            f"{path}: this is an invitation, for copriv-owner join at the owner; give the .request "
            "that comes back"
        )
    if size > LARGEST_REQUEST:
        raise _no_file_of(path, REQUEST)
    return _checked(Request, table, path)


def _read_table(path: Path, what: str) -> tuple[dict[str, Any], str, int]:
    """The JSON object of a file that somebody else wrote, its digest, and how many bytes it has.

    The file may be replaced or gone by the time it is read, so it is opened once. It may be as
    large as an invitation, so that one is known for what it is where a request is asked for.
    """
    try:
        with open_regular(path) as file:
            content = file.read(LARGEST_INVITATION + 1)
    except OSError as error:
        cure = permitted(error, f"give {what}")
        raise InputError(f"{path}: cannot be read ({error.strerror}); {cure}") from None
    try:
        is_small = len(content) <= LARGEST_INVITATION
        # Some mail programs and editors begin a text with a byte order mark.
        table = json.loads(content.decode("utf-8-sig")) if is_small else None
        if isinstance(table, dict):
            return table, _digest_of(table), len(content)
    except (ValueError, RecursionError):
        pass
    raise _no_file_of(path, what)


def _no_file_of(path: Path, what: str) -> InputError:
    """For a file that is something else, such as a study's settings."""
    if path.suffix == ".toml":
        return InputError(f"{path}: is a TOML file and not {what}; {MADE_BY[what]}")
    return InputError(f"{path}: is not {what}; ask for another")


def _is(kind: type[Settings], table: dict[str, Any]) -> bool:
    """Whether a table says that it is of this kind."""
    return bool(table.get("format") == kind.model_fields["format"].default)


def _checked(kind: type[S], table: dict[str, Any], path: Path) -> S:
    """The table as settings; the sentence shows nothing of it but printable words."""
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        key, fault = first_fault(error)
        raise InputError(f"{path}: {key or 'the file'}: {fault}; ask for another file") from None


def _check_ca(pem: str, path: Path) -> None:
    """Refuse what is no CA's certificate."""
    try:
        ca = x509.load_pem_x509_certificate(pem.encode("ascii", "replace"))
        is_ca = ca.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        expires = ca.not_valid_after_utc
    except UNREADABLE:
        is_ca = False
    if not is_ca:
        raise InputError(f"{path}: ca: is not a CA's certificate; ask for another file")
    if expires < datetime.now(UTC):
        raise InputError(
            f"{path}: ca: the study's CA expired on {expires:%Y-%m-%d}; set this machine's clock "
            "right, or ask for another file"
        )


def _digest_of(table: dict[str, Any]) -> str:
    """SHA-256 of the content, however it is laid out."""
    text = json.dumps(table, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
