"""The command ``copriv certs``: who needs a certificate, and a table of all that were issued."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from common.errors import InputError
from common.names import check_name
from common.tls import Role, host_and_port
from learner.network.certificates import Issued, Party, make_certificates
from learner.planning.settings import StudySettings


def run_certs(
    settings: StudySettings | None,
    *,
    owners: Sequence[str],
    learners: Sequence[str],
    out: Path,
    days: int,
    renew: bool,
    console: Console,
) -> None:
    """Make a study's certificates, and show them all in a table.

    Args:
      settings: The study, whose owners need no option; or None.
      owners: NAME=HOST[,HOST] of owners that serve, NAME of owners that attach.
      learners: NAME of learners that ask, NAME=HOST[,HOST] of learners that listen too.
      out: Where the folders of the CA and all parties are.
      days: How long a new certificate is valid.
      renew: Whether to replace all certificates.
      console: Where to print.

    Raises:
      InputError: No owner is named, owners have no learner to go to, or a file cannot be written.
    """
    parties = _parties(settings, owners, learners, has_ca=(out / "ca").is_dir())
    study = settings.name if settings else "a study"
    issued = make_certificates(out, parties, study=study, days=days, renew=renew)
    console.print(_table(issued))
    console.print(
        f"Give each party its folder; {out / 'ca'} stays here: its key makes more of them.",
        highlight=False,
    )


def _parties(
    settings: StudySettings | None, owners: Sequence[str], learners: Sequence[str], *, has_ca: bool
) -> list[Party]:
    """Owners by the study's addresses, unless an option gives others; then the learners."""
    found = {party.name: party for party in _of_study(settings)} if settings else {}
    for option in owners:
        party = _party("owner", option)
        found[party.name] = party
    if not found and not has_ca and settings is not None:
        raise InputError(
            f"certs: no owner of {settings.name} has an address; give each one its address = "
            "HOST:PORT, or --owner NAME=HOST here"
        )
    if not found and not has_ca:
        raise InputError(
            "certs: no owner is named; give --owner NAME=HOST, or a STUDY.toml, or with --out the "
            "folder of a study that has its CA"
        )
    parties = [*found.values(), *(_party("learner", option) for option in learners)]
    attaching = [party.name for party in parties if party.role == "owner" and party.may_call]
    if attaching and not any(p.role == "learner" and p.may_be_called for p in parties):
        raise InputError(
            f"certs: {attaching[0]} has no host, so it goes to the learner, and no learner has "
            f"one either; give --owner {attaching[0]}=HOST, or --learner NAME=HOST"
        )
    return parties


def _of_study(settings: StudySettings) -> list[Party]:
    """The owners of a study that serve at an address, or that come to the learner."""
    attaching = settings.algorithm.initiative == "owner"
    return [
        Party(
            name=entry.name,
            role="owner",
            hosts=() if attaching or not entry.address else (host_and_port(entry.address)[0],),
        )
        for entry in settings.owners
        if attaching or entry.address is not None
    ]


def _party(role: Role, option: str) -> Party:
    """The party of NAME or NAME=HOST[,HOST]."""
    name, equals, listed = option.partition("=")
    hosts = tuple(host.strip() for host in listed.split(",")) if equals else ()
    if not all(hosts):
        raise InputError(f"--{role} {option}: expected NAME, NAME=HOST or NAME=HOST,HOST")
    try:
        return Party(name=check_name(name), role=role, hosts=hosts)
    except ValueError as error:
        raise InputError(
            f"--{role} {option}: {error}; write NAME, NAME=HOST or NAME=HOST,HOST"
        ) from None


def _table(issued: Sequence[Issued]) -> Table:
    """Who has a certificate, for which names, and until when."""
    heads = ("folder", "name", "role", "may", "for", "expires", "")
    table = Table(*heads, box=box.SIMPLE_HEAD, pad_edge=False)
    for one in issued:
        called = "serve" if one.party.role == "owner" else "listen"
        calls = "attach" if one.party.role == "owner" else "ask"
        deeds = [called] * one.party.may_be_called + [calls] * one.party.may_call
        table.add_row(
            str(one.folder),
            one.party.name,
            one.party.role,
            ", ".join(deeds),
            ", ".join(one.party.names),
            f"{one.expires:%Y-%m-%d}",
            "new" if one.made else "kept",
        )
    return table
