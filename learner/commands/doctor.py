"""``copriv doctor``: is the learner's own machine ready? No other machine is asked."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from common.certificates import days_left, holder
from common.errors import CoprivError, InputError
from common.findings import Finding, State, fails, found_by, passes, unchecked
from common.machine import (
    exposed_findings,
    folder_finding,
    machine_findings,
    memory_finding,
    mode_finding,
    port_finding,
    proxy_findings,
    written_findings,
)
from common.tables import open_source, placed
from common.texts import claimed, counted
from common.tls import TlsSettings, load_identity, refuse_plain_text
from learner.commands.options import load_study
from learner.network.connections import load_token
from learner.planning.public_side import prepare_public_side
from learner.planning.settings import StudySettings
from learner.results.run_folder import RUNS


def study_findings(path: Path, overrides: tuple[str, ...]) -> Iterator[Finding]:
    """What is right and wrong here for a study.

    Args:
      path: Its STUDY.toml.
      overrides: Changes of its settings, as typed.
    """
    yield from machine_findings(path)
    try:
        settings = load_study(path, overrides, None)
    except InputError as error:
        yield fails("settings", str(error))
        yield unchecked("all else", "the settings say where it is; fix them first")
        return
    base = path.parent
    yield passes(
        "settings", f"{path}: study {settings.name}, {counted(len(settings.owners), 'owner')}"
    )
    yield found_by("certificate", lambda: _certificate(settings, base))
    if settings.tls is not None:
        yield mode_finding("key", base / settings.tls.key)
        yield from written_findings("ca's mode", base / settings.tls.ca)
    yield from _tokens(settings, base)
    for rule, address in (
        ("listen", settings.network.listen),
        ("metrics", settings.network.metrics),
    ):
        if address is not None:
            yield port_finding(rule, address)
    yield from proxy_findings([one.address for one in settings.owners if one.address is not None])
    yield folder_finding("runs", RUNS.absolute())
    yield from _public_side(settings, base)


def _certificate(settings: StudySettings, base: Path) -> str:
    """Whose it is and how long it lasts; without one, whether one is needed."""
    if settings.tls is not None:
        return _holder(settings.tls, base, listens=settings.network.listen is not None)
    ways = [(f"owner {one.name}", one.address) for one in settings.owners if one.address]
    if settings.network.listen is not None:
        ways.append(("network.listen", settings.network.listen))
    for where, address in ways:
        refuse_plain_text(where, address, tls=False, insecure=False)
    return "none is needed: nothing leaves this machine"


def _holder(tls: TlsSettings, base: Path, *, listens: bool) -> str:
    identity = load_identity(tls, base=base, side="server" if listens else "client")
    party = holder(identity)
    return f"certificate of {claimed(party.name)}, {days_left(identity)}"


def _tokens(settings: StudySettings, base: Path) -> Iterator[Finding]:
    """Whether each token is where the settings say; none is shown."""
    places = {"network.token": settings.network.token}
    places |= {f"token of owner {one.name}": one.token for one in settings.owners}
    for setting, place in places.items():
        if place is not None:
            yield found_by("token", partial(_token, place, setting, base))
            yield from exposed_findings("token's mode", place, base=base)


def _token(place: str, setting: str, base: Path) -> str:
    load_token(place, base=base, setting=setting)
    return f"{setting} is there"


def _public_side(settings: StudySettings, base: Path) -> Iterator[Finding]:
    """The public records and the feature map, as every command about the study reads them."""
    public = settings.features.public
    if public is not None:
        chosen = placed(public, settings.data)
        if chosen.database is not None:
            yield unchecked("public side", "a database serves its records; copriv check asks it")
            return
        try:
            memory = memory_finding(open_source(chosen, base=base).num_bytes, chosen)
        except CoprivError as error:
            yield fails("public side", str(error))
            return
        yield memory
        if memory.state is State.FAILS:
            return
    yield found_by("public side", lambda: _features(settings, base))


def _features(settings: StudySettings, base: Path) -> str:
    side = prepare_public_side(settings, base=base)
    known = side.records
    records = "no public records" if known is None else counted(len(known), "public record")
    return f"{records}, a feature map of {counted(side.feature_map.num_features, 'feature')}"
