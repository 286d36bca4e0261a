"""What ``copriv-owner join`` writes: settings, a private key, and the request that is sent back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import tomli_w
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID

from common.certificates import key_pem
from common.errors import InputError
from common.features import file_text
from common.files import make_folder, write_or_refuse
from common.joining import Invited, Request, fingerprint, read_request
from owner.joining import Joining, settings_of

ELSEWHERE = "give another --out"
CARRY_AWAY = (
    "the request goes where the invitation is: copy that to a folder of your own and join there"
)


def write_all(invited: Invited, joining: Joining) -> tuple[Path, str]:
    """Write the owner's files, and the request; returns the settings and the fingerprint.

    Guarantees:
      * The private key is made here, is readable by its owner only, and is in no other file.
      * The request comes last: where it is, all else is.
      * After a join that was killed the same one goes on, with the key that it made.

    Raises:
      InputError: The owner has joined already, or a file cannot be written.
    """
    folder, asked = joining.folder, invited.invitation
    note = (
        f"# Written by copriv-owner join for the study {asked.study}. Records that have answered\n"
        "# before keep their ledger: give its path below, for a new one counts from 0.\n"
    )
    settings, made = folder / "owner.toml", folder / "key.pem"
    sent = joining.beside / f"{asked.owner}.request"
    # In the order in which they are written; the key is made behind two that tell whose it is.
    contents = {
        folder / "ca.pem": asked.ca,
        folder / "features.json": file_text(invited.feature_map),
        made: "",
        settings: note + tomli_w.dumps(settings_of(invited, joining)),
    }
    there = [path for path in contents if path.exists()]
    if there and (sent.exists() or not _is_unfinished(contents, there, made)):
        raise InputError(
            f"{there[0]}: already exists{_about_joined(sent, made, invited)}give another --out, "
            "and set ledger in its owner.toml to the ledger that these records have: a new one "
            "counts from 0"
        )
    if sent.exists():
        about = _about_sent(sent, invited)
        raise InputError(f"{sent}: already exists {about}; remove it to join again")
    key = _key(made) if made in there else ec.generate_private_key(ec.SECP256R1())
    request = Request(
        study=asked.study,
        owner=asked.owner,
        invitation=invited.digest,
        signing_request=_signing_request(asked.owner, key),
    )
    contents |= {made: key_pem(key).decode(), sent: request.model_dump_json(indent=1) + "\n"}
    # The learner may be another user here, whatever the owner's umask.
    modes = {made: 0o600, folder / "ca.pem": 0o644, sent: 0o644}
    _write(folder, {path: contents[path] for path in contents if path not in there}, modes)
    return settings, fingerprint(invited.digest, key.public_key())


def _is_unfinished(contents: Mapping[Path, str], there: Sequence[Path], made: Path) -> bool:
    """Whether the files are what the same join leaves that was killed: the first of all of them."""
    if there != [*contents][: len(there)]:
        return False
    try:
        return all(path == made or path.read_bytes() == contents[path].encode() for path in there)
    except OSError:
        return False


def _key(path: Path) -> ec.EllipticCurvePrivateKey:
    """The key that an earlier join made."""
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except (OSError, TypeError, ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{path}: is not the key that join made; give another --out")
    return key


def _about_joined(sent: Path, made: Path, invited: Invited) -> str:
    """Which request belongs to the key of an earlier join, for who did not see how it ended."""
    try:
        key, shown = _request_there(sent, invited)
        is_its = shown and _key(made).public_key() == key
    except InputError:
        return "; "
    if not is_its:
        return "; "
    return f", from a join that is done: send {sent}, whose fingerprint is {shown}; to join again, "


def _about_sent(sent: Path, invited: Invited) -> str:
    """What a request that already exists is."""
    try:
        _, shown = _request_there(sent, invited)
    except InputError:
        return "and is not a request of this program"
    if shown:
        return f"from an earlier join into another folder, whose key it needs (fingerprint {shown})"
    return "and answers another invitation than this one"


def _request_there(sent: Path, invited: Invited) -> tuple[ec.EllipticCurvePublicKey, str]:
    """The key of an earlier request, and its fingerprint if it answers this invitation.

    Raises:
      InputError: It is no request.
    """
    request = read_request(sent)
    key = request.public_key(where=str(sent))
    return key, fingerprint(invited.digest, key) if request.invitation == invited.digest else ""


def _write(folder: Path, contents: Mapping[Path, str], modes: Mapping[Path, int]) -> None:
    """Write all files or none, each with its permissions."""
    written = []
    make_folder(folder, cure=ELSEWHERE)
    try:
        for path, content in contents.items():
            # The request is the one file that is not in the folder of --out.
            cure = CARRY_AWAY if path.suffix == ".request" else ELSEWHERE
            write_or_refuse(path, content, mode=modes.get(path), cure=cure)
            written.append(path)
    except InputError:
        for path in written:
            path.unlink(missing_ok=True)
        raise


def _signing_request(name: str, key: ec.EllipticCurvePrivateKey) -> str:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject)
    signed = request.sign(key, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM).decode("ascii")
