"""``copriv invite`` and ``copriv admit``: the sites of a study get their files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console

from common.certificates import UNREADABLE, certificates_alone, holder
from common.errors import InputError
from common.files import make_folder, real_path, write_or_refuse
from common.joining import (
    LARGEST_PEM,
    Invitation,
    fingerprint,
    read_request,
    write_invitation,
)
from common.privacy import epsilon_in_words, in_short
from common.small_files import read_own
from common.tls import Identity, host_and_port, load_identity
from learner.network.admission import Guest, admit, invited_before, read_guests, write_guests
from learner.network.certificates import CA_FOLDER, Issued, Party, make_certificates
from learner.planning.boxes import edge_of
from learner.planning.public_side import PublicSide, prepare_public_side
from learner.planning.sections import OwnerEntry
from learner.planning.settings import StudySettings

DAYS = 365


def invite_owners(
    settings: StudySettings,
    *,
    base: Path,
    certs: Path,
    out: Path,
    learner: str,
    reached_at: str | None,
    console: Console,
) -> None:
    """Write one invitation for each owner, and the study's CA and the learner's files if missing.

    Args:
      settings: The study.
      base: The folder of its file.
      certs: The folder of CA and learner.
      out: Where the invitations go.
      learner: The learner's name.
      reached_at: HOST:PORT under which owners reach the learner, where they come to it.
      console: Where to print.

    Raises:
      InputError: An address or ``[tls]`` is missing, or a file cannot be written.
    """
    addresses = _addresses(settings, reached_at)
    public = prepare_public_side(settings, base=base)
    identity, own = _identity(settings, base, certs, learner, reached_at)
    guests, before = {}, invited_before(certs)
    make_folder(out, cure="give another --out")
    for entry in settings.owners:
        if entry.name not in addresses:
            continue
        address = addresses[entry.name]
        invitation = _invitation(settings, entry, address, identity)
        text, digest = write_invitation(invitation, public.feature_map)
        path = out / f"{entry.name}.invitation"
        # The owner may be another user here, whatever the learner's umask.
        write_or_refuse(path, text, mode=0o644, cure="give another --out")
        hosts = (host_and_port(address)[0],) if invitation.way == "serve" else ()
        guests[entry.name] = Guest(hosts=hosts, invitation=digest)
        console.print(f"{path}: {entry.name} will {invitation.way}", highlight=False)
    write_guests(certs, settings.name, guests)
    for line in (*_renewed_in_words(own), *_asked_in_words(settings, public)):
        console.print(line, highlight=False)
    if before not in (None, settings.name):
        console.print(
            f"note: {certs} knew the owners of {before}, and now knows those of {settings.name} in "
            f"their place: none of {before} is admitted and no certificate of it renewed, until "
            f"copriv invite is typed with its STUDY.toml; give each study a --certs of its own",
            highlight=False,
        )
    console.print(
        "Send each owner its file; nothing in it is secret. When its request comes back: "
        "copriv admit REQUEST",
        highlight=False,
    )


def _renewed_in_words(own: Issued) -> Iterator[str]:
    """That the learner has another certificate than before, if it has."""
    if own.made:
        yield (
            f"{own.folder}: {own.party.name}'s own key and certificate are new, and valid until "
            f"{own.expires:%Y-%m-%d}"
        )


def _asked_in_words(settings: StudySettings, public: PublicSide) -> Iterator[str]:
    """What every epsilon that is asked promises, and that the box is too small for any model."""
    asked = [entry for entry in settings.owners if entry.name != settings.learner.own]
    for epsilon in sorted({settings.promised(entry) for entry in asked}):
        yield f"epsilon {in_short(epsilon)}: {epsilon_in_words(epsilon)}"
    edge = edge_of(settings, public)
    if edge is not None:
        yield f"warning: {edge}"


def _addresses(settings: StudySettings, reached_at: str | None) -> dict[str, str]:
    """The port of each owner's line; the learner's own records need none."""
    comes = settings.algorithm.initiative == "owner"
    if comes and reached_at is None:
        raise InputError(
            "invite: the owners come to the learner; give --address HOST:PORT, where they reach it"
        )
    if reached_at is not None and not comes:
        raise InputError(
            f"--address {reached_at}: the learner goes to the owners, at the addresses in the "
            'study; leave it out, or set algorithm.initiative = "owner"'
        )
    found = {}
    for entry in settings.owners:
        address = reached_at if comes else entry.address
        if entry.name == settings.learner.own:
            continue
        if address is None:
            raise InputError(
                f"owners: {entry.name} has no address; give address = HOST:PORT, where it will "
                "be reached"
            )
        found[entry.name] = address
    return found


def _identity(
    settings: StudySettings, base: Path, certs: Path, learner: str, reached_at: str | None
) -> tuple[Identity, Issued]:
    """The learner's certificate, which is made with the CA where they are missing."""
    if settings.tls is None:
        folder = os.path.relpath(certs / learner, base)
        raise InputError(
            f'invite: [tls] is missing in the study; add ca = "{folder}/ca.pem", certificate = '
            f'"{folder}/certificate.pem" and key = "{folder}/key.pem", which are made here'
        )
    comes = settings.algorithm.initiative == "owner"
    hosts = (host_and_port(reached_at)[0],) if comes and reached_at else ()
    _check_authority(base / settings.tls.ca, certs, learner)
    (own,) = make_certificates(
        certs,
        [Party(name=learner, role="learner", hosts=hosts)],
        study=settings.name,
        days=DAYS,
        renew=False,
        option="--certs",
    )
    return load_identity(settings.tls, base=base, side="server" if comes else "client"), own


def _check_authority(ours: Path, certs: Path, learner: str) -> None:
    """Refuse another CA than that of ``[tls]``, ours: what it signs the study does not trust."""
    made, signer = certs / learner / "ca.pem", certs / CA_FOLDER / "certificate.pem"
    if real_path(ours) == real_path(made):
        return
    try:
        same = read_own(ours) == read_own(signer)
    except OSError:
        same = False
    if not same:
        folder = ours.parent.parent
        such = f", such as {folder}" * (folder / CA_FOLDER).is_dir()
        raise InputError(
            f"--certs {certs}: its CA is not the one of the study, whose tls.ca is {ours}; give "
            f"--certs as the folder of that CA{such}, or let [tls] name the files in "
            f"{certs / learner}"
        )


def _invitation(
    settings: StudySettings, entry: OwnerEntry, address: str, identity: Identity
) -> Invitation:
    """What one owner is asked."""
    return Invitation(
        study=settings.name,
        owner=entry.name,
        learner=holder(identity).name,
        way="attach" if settings.algorithm.initiative == "owner" else "serve",
        address=address,
        ca=_ca_of(identity),
        loss=settings.model.loss,
        theta_max=settings.model.theta_max,
        epsilon=settings.promised(entry),
        kappa=settings.privacy.kappa,
    )


def _ca_of(identity: Identity) -> str:
    """The study's CA; whatever else stands in its file is not sent to anybody.

    Raises:
      InputError: There is more of it than an invitation has room for, or it cannot be read.
    """
    try:
        alone = certificates_alone(identity.ca)
    except UNREADABLE:
        alone = ""
    if not 0 < len(alone) <= LARGEST_PEM:
        raise InputError(
            f"tls.ca: {identity.paths.ca} has certificates that cannot be read, or more of them "
            "than an invitation has room for; leave only the study's CA in it"
        )
    return alone


def admit_requests(
    paths: Sequence[Path], *, certs: Path, days: int, agree: Callable[[str], bool], console: Console
) -> None:
    """Sign the requests of owners that were invited; each certificate goes beside its request.

    Args:
      paths: The requests.
      certs: The folder of the study's certificates.
      days: How long a certificate is valid.
      agree: Whether the owner reads the same fingerprint; asked with a question.
      console: Where to print.

    Raises:
      InputError: A file is no request, or its owner was not invited; the ones before it are signed.
    """
    guests = read_guests(certs)
    for path in paths:
        request = read_request(path)
        key, certificate = admit(guests, request, where=str(path), certs=certs, days=days)
        words = fingerprint(request.invitation, key)
        console.print(f"{request.owner}: fingerprint {words}", highlight=False)
        if not agree(f"Does {request.owner} read the same to you?"):
            raise InputError(
                f"{path}: not admitted, since the fingerprints must be the same; ask "
                f"{request.owner} for its request again"
            )
        target = path.with_name(f"{request.owner}.certificate.pem")
        write_or_refuse(target, certificate, mode=0o644)
        console.print(f"{target}: send it back to {request.owner}", highlight=False)
