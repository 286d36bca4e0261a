"""``copriv-owner doctor``: is the owner's own machine ready? No other machine is asked."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from common.column_fit import count_empty_rows, look_at_columns
from common.config import load_settings
from common.errors import CoprivError, InputError
from common.features import FeatureMap
from common.files import real_path
from common.findings import Finding, State, fails, found_by, passes, unchecked
from common.machine import (
    exposed_findings,
    folder_finding,
    machine_findings,
    memory_finding,
    mode_finding,
    port_finding,
    proxy_findings,
    reading_finding,
    written_findings,
)
from common.mounts import unshared_locks
from common.tables import open_source
from common.texts import counted
from common.tls import refuse_plain_text
from owner.access import Access
from owner.column_report import records_in_words, refuse_faults
from owner.ledger_checks import check_shard
from owner.ledger_files import ATTRIBUTE, HIDDEN_LOCKS, NO_FOLDER, is_held
from owner.ledger_reading import read_meta, refuse_lost, verify_ledger
from owner.ledger_rows import LedgerError
from owner.loading import load_records, named_columns, pinned_map, shards_folder, stays_far
from owner.policy import OwnerSettings
from owner.provenance import check_provenance
from owner.shard_cache import check_folder
from owner.site_check import own_certificate


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """What is right although it does not look so.

    Args:
      accepted: Columns that do not look like the public ones.
      private_bounds: As ``--allow-private-bounds`` of ``serve``.
    """

    accepted: Collection[str]
    private_bounds: bool


def owner_findings(path: Path, allowed: Allowed) -> Iterator[Finding]:
    """What is right and wrong here for the owner of an OWNER.toml."""
    yield from machine_findings(path)
    try:
        settings = load_settings(OwnerSettings, path)
    except InputError as error:
        yield fails("settings", str(error))
        yield unchecked("all else", "the settings say where it is; fix them first")
        return
    base = path.parent
    yield passes("settings", f"{path}: owner {settings.name}")
    yield from _line(settings, base)
    # What counts is where a link leads, as when it is served.
    yield from _ledger(real_path(base / settings.ledger.path))
    yield from _records(settings, base, allowed)


def _line(settings: OwnerSettings, base: Path) -> Iterator[Finding]:
    """Certificate, learners' tokens, ports, and proxies on the way."""
    goes = settings.attach.learner
    where, address = ("attach.learner", goes) if goes else ("listen", settings.listen)
    tls = settings.tls
    if tls is None:
        yield found_by("certificate", lambda: _in_plain_text(where, address))
    else:
        yield found_by("certificate", lambda: own_certificate(settings, tls, base=base)[1])
        yield mode_finding("key", base / tls.key)
        yield from written_findings("ca's mode", base / tls.ca)
    yield found_by("learners", lambda: _learners(settings, base))
    ports = {"listen": None if goes else address, "health": settings.health}
    for rule, taken in (ports | {"metrics": settings.metrics}).items():
        if taken is not None:
            yield port_finding(rule, taken, serves=partial(is_held, base / settings.ledger.path))
    yield from proxy_findings([goes] if goes else [])


def _in_plain_text(where: str, address: str) -> str:
    refuse_plain_text(where, address, tls=False, insecure=False)
    return "none is needed: nothing leaves this machine"


def _learners(settings: OwnerSettings, base: Path) -> str:
    policy = settings.policy
    Access(policy, base=base)
    return f"served are {', '.join((*policy.learners, *policy.tokens)) or 'any that are let in'}"


def _ledger(path: Path) -> Iterator[Finding]:
    """The ledger's folder, its file system, and the ledger if there is one."""
    try:
        has_folder, is_there = path.parent.exists(), path.exists()
    except OSError as error:
        yield fails(
            "ledger's disk",
            f"{path}: cannot be looked at ({error.strerror}); type this as the user who serves it",
        )
        return
    if not has_folder:
        # Serving makes none: it may be that of a disk that is not mounted.
        yield fails("ledger's disk", f"{path}: {NO_FOLDER}, or correct `ledger`")
        return
    yield folder_finding("ledger's disk", path.parent)
    if unshared := unshared_locks(path.parent):
        yield fails("ledger's locks", f"{path}: {HIDDEN_LOCKS.format(unshared)}")
    if not is_there:
        yield found_by("ledger", lambda: _no_ledger(path))
        return
    yield mode_finding("ledger's mode", path)
    try:
        wrong = verify_ledger(path)
    except CoprivError as error:
        wrong = [str(error)]
    if wrong:
        yield fails("ledger", "\n".join(wrong))
    else:
        yield passes("ledger", f"{path}: sound; {_attributes(path)}")


def _no_ledger(path: Path) -> str:
    if path.is_symlink():  # where links lead has been looked up
        raise InputError(f"{path}: links that lead in a circle; give a file's path as `ledger`")
    refuse_lost(path)
    return f"{path}: made at the first start"


def _attributes(path: Path) -> str:
    """Whether the file system keeps extended attributes, as far as reading one shows."""
    try:
        os.getxattr(path, ATTRIBUTE)
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return f"no extended attributes here, so keep {path.name}.lock beside it"
    return "extended attributes are kept"


def _records(settings: OwnerSettings, base: Path, allowed: Allowed) -> Iterator[Finding]:
    """The feature map, the memory that the table takes, and how its columns fit."""
    try:
        pinned = pinned_map(settings, base)
    except InputError as error:
        yield fails("feature map", str(error))
        yield unchecked("records", "they are read under the feature map; fix it first")
        return
    if pinned is not None:
        yield passes(
            "feature map", f"{counted(pinned.num_features, 'feature')}, {pinned.digest[:16]}"
        )
    if settings.data.database is not None:
        yield found_by("address", lambda: f"{open_source(settings.data, base=base).title} is named")
        yield from exposed_findings("address's mode", settings.data.database, base=base)
        yield unchecked("records", "a database serves them; copriv-owner check asks it")
        return
    try:
        source = open_source(settings.data, base=base)
        if stays_far(settings.data, source):
            yield reading_finding()
            yield found_by("shards", lambda: check_folder(shards_folder(settings, base)))
            yield unchecked("records", "they are read where they are when the owner serves")
            return
        held = len(named_columns(settings, pinned)) or len(source.names)
        needed = source.num_bytes * held // max(1, len(source.names))
        memory = memory_finding(needed, settings.data)
    except CoprivError as error:
        yield fails("records", str(error))
        return
    yield memory
    if memory.state is State.FAILS:
        yield unchecked("records", "they do not go into the memory")
        return
    yield found_by("records", lambda: _fit(settings, base, pinned, allowed))


def _fit(settings: OwnerSettings, base: Path, pinned: FeatureMap | None, allowed: Allowed) -> str:
    """What ``copriv-owner check`` looks at before any study is proposed."""
    loaded = load_records(settings, base=base, pinned=pinned)
    _check_ledger(base / settings.ledger.path, loaded.fingerprint)
    records = counted(len(loaded.raw), "record")
    if len(loaded.raw) < settings.policy.min_num_records:
        raise InputError(
            f"{records}, fewer than policy.min_num_records = "
            f"{settings.policy.min_num_records}; lower it, or wait for more records"
        )
    if pinned is None:
        return f"{records}; no feature map is set to look under"
    loaded.table.shard(pinned)
    check_provenance(
        pinned,
        loaded.raw,
        where=str(settings.features),
        allow_private_bounds=allowed.private_bounds,
    )
    seen = look_at_columns(loaded.raw, pinned)
    doubts = refuse_faults(seen, accepted=allowed.accepted)
    fit = "but look at this" if doubts else "and every column fits the feature map"
    empty = count_empty_rows(loaded.raw, pinned)
    told = records_in_words(seen, empty_rows=empty, left_out=loaded.left_out)
    return "\n".join([f"{records}, {fit}", *told, *doubts])


def _check_ledger(path: Path, fingerprint: str) -> None:
    """Refuse the ledger of other records; one that cannot be read has a rule of its own.

    Raises:
      LedgerError: It belongs to other records.
    """
    try:
        meta = read_meta(path)
    except LedgerError:
        return
    check_shard(meta, path, fingerprint=fingerprint)
