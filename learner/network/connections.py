"""The owners of a study as the learner reaches them: at their ports, at ours, or in memory."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from common.errors import InputError
from common.expiry import Expiry
from common.features import FeatureMap
from common.open_files import allow_open_files
from common.small_files import read_secret
from common.terms import Records
from common.tls import Identity, Side, is_loopback, load_identity, refuse_plain_text
from common.wire import TOKEN_START
from learner.network.attachment_server import AttachmentServer
from learner.network.grpc_owner import GrpcOwner
from learner.network.processes import Hosting, owner_processes, read_owner
from learner.network.starting import OwnerProcess, StartingOwner
from learner.planning.sections import OwnerEntry
from learner.planning.settings import StudySettings
from learner.training.initiative import Requests
from learner.training.memory_owner import LocalShard, MemoryOwner
from learner.training.owners import Owner
from learner.training.study import Facts


@dataclass(frozen=True)
class Connections:
    """The owners in the order of the settings, and where their requests arrive, if they ask.

    Those ``in_memory`` are objects of this process. What they will say of themselves may be
    ``foreseen``. With TLS it is known when our own certificate ends (``expiry``).
    """

    owners: Sequence[Owner]
    requests: Requests | None = None
    in_memory: bool = False
    foreseen: Facts | None = None
    expiry: Expiry | None = None


@contextmanager
def remote_owners(
    settings: StudySettings,
    feature_map: FeatureMap,
    *,
    base: Path,
    insecure: bool = False,
    on_listening: Callable[[int], None] = lambda port: None,
) -> Iterator[Connections]:
    """Owners that run elsewhere; the learner's own shard, if it has one, is read here.

    Args:
      settings: The study.
      feature_map: The map for the learner's own shard.
      base: The folder that relative paths start from.
      insecure: Whether plain text may leave this machine.
      on_listening: Called with the port where owners are waited for.

    Raises:
      InputError: An address is missing or cannot be used, or the learner's own table cannot.
    """
    allow_open_files()
    if settings.algorithm.initiative == "owner":
        address = settings.network.listen
        if address is None:
            raise InputError(
                'network.listen is missing: with algorithm.initiative = "owner" the owners come '
                "to the learner; give HOST:PORT"
            )
        encrypted = settings.tls is not None
        refuse_plain_text("network.listen", address, tls=encrypted, insecure=insecure)
        identity = _identity(settings, base, side="server")
        tokens = [
            _token(settings, entry, address, base, encrypted=encrypted) for entry in settings.owners
        ]
        with _listening(settings, address, tokens, identity) as learner:
            on_listening(learner.port)
            yield Connections(learner.owners, learner, expiry=_expiry(identity, side="server"))
        return
    identity = _identity(settings, base, side="client")
    yield Connections(
        [
            _owner(settings, entry, feature_map, base=base, identity=identity, insecure=insecure)
            for entry in settings.owners
        ],
        expiry=_expiry(identity, side="client"),
    )


@contextmanager
def simulated_owners(
    settings: StudySettings,
    shards: Sequence[Records],
    hosting: Hosting,
    *,
    base: Path,
    folder: Path,
) -> Iterator[Connections]:
    """Owners as processes on this machine, except the one that is the learner.

    With the owners' initiative they bind no port, and come to ours.

    Owners start while something else is done: whether one has is known when it is first called.

    Args:
      settings: The study.
      shards: The owners' records, in the settings' order.
      hosting: How they run.
      base: The folder that relative paths start from.
      folder: The run folder.

    Raises:
      InputError: An owner that is to come to us did not start.
    """
    if hosting.parent is None:
        yield _memory_owners(settings, shards, hosting.insecure_noise_seed)
        return
    with ExitStack() as stack:
        learner = None
        if settings.algorithm.initiative == "owner":
            learner = stack.enter_context(_listening(settings, "127.0.0.1:0"))
        processes = stack.enter_context(
            owner_processes(
                settings,
                hosting,
                base=base,
                run_folder=folder,
                learner=f"127.0.0.1:{learner.port}" if learner else None,
            )
        )
        if learner is not None:
            for process in processes:
                process.port  # noqa: B018 (known once it has started)
            yield Connections(learner.owners, learner)
            return
        yield Connections(
            starting_owners(settings, shards, processes),
            foreseen=Facts(
                num_records=tuple(map(len, shards)), validation=("pooled",) * len(shards)
            ),
        )


def starting_owners(
    settings: StudySettings, shards: Sequence[Records], processes: Sequence[OwnerProcess]
) -> list[Owner]:
    """Owners that may still be starting, and the shard of the one that is the learner."""
    deadline = settings.network.deadline
    by_name = {process.name: process for process in processes}
    return [
        LocalShard(entry.name, shard)
        if entry.name == settings.learner.own
        else StartingOwner(by_name[entry.name], deadline=deadline)
        for entry, shard in zip(settings.owners, shards, strict=True)
    ]


def _memory_owners(
    settings: StudySettings, shards: Sequence[Records], seed: int | None
) -> Connections:
    """Owners as objects of this process, whose noise comes from a seed and protects nobody."""
    first = secrets.randbits(32) if seed is None else seed
    return Connections(
        [
            LocalShard(entry.name, shard)
            if entry.name == settings.learner.own
            else MemoryOwner(entry.name, shard, seed=first + index)
            for index, (entry, shard) in enumerate(zip(settings.owners, shards, strict=True))
        ],
        in_memory=True,
    )


def _identity(settings: StudySettings, base: Path, *, side: Side) -> Identity | None:
    """Our certificate, or None for plain text."""
    return None if settings.tls is None else load_identity(settings.tls, base=base, side=side)


def _expiry(identity: Identity | None, *, side: Side) -> Expiry | None:
    """When our certificate ends; None for plain text."""
    return None if identity is None else Expiry(identity, side=side)


def _listening(
    settings: StudySettings,
    address: str,
    tokens: Sequence[str | None] | None = None,
    identity: Identity | None = None,
) -> AttachmentServer:
    return AttachmentServer(
        [entry.name for entry in settings.owners],
        address,
        deadline=settings.network.deadline,
        patience=settings.network.patience,
        tokens=tokens,
        identity=identity,
    )


def _owner(
    settings: StudySettings,
    entry: OwnerEntry,
    feature_map: FeatureMap,
    *,
    base: Path,
    identity: Identity | None,
    insecure: bool,
) -> Owner:
    """One owner at its address, or the learner's own shard."""
    if entry.name == settings.learner.own:
        return LocalShard(entry.name, read_owner(settings, entry, feature_map, base=base))
    if entry.address is None:
        raise InputError(
            f"owners: {entry.name} has no address; give address = HOST:PORT, "
            "or use copriv simulate to start owners on this machine"
        )
    where, encrypted = f"owners.{entry.name}.address", identity is not None
    refuse_plain_text(where, entry.address, tls=encrypted, insecure=insecure)
    return GrpcOwner(
        entry.name,
        entry.address,
        deadline=settings.network.deadline,
        token=_token(settings, entry, entry.address, base, encrypted=encrypted),
        identity=identity,
    )


def _token(
    settings: StudySettings, entry: OwnerEntry, address: str, base: Path, *, encrypted: bool
) -> str | None:
    """The token for one owner, read where the settings say."""
    has_own = entry.token is not None
    where = entry.token if has_own else settings.network.token
    if where is None:
        return None
    setting = f"owners.{entry.name}.token" if has_own else "network.token"
    check_token_route(address, encrypted=encrypted, setting=setting)
    return load_token(where, base=base, setting=setting)


def load_token(
    where: str, *, base: Path, setting: str, environment: Mapping[str, str] = os.environ
) -> str:
    """The token that "file:PATH" or "env:NAME" names.

    Settings name both what is sent and the address that it goes to, and may be a stranger's. So
    nothing is sent that was not made to be: no password, and no key of another program.

    Args:
      where: Where it is; the settings check its form.
      base: The folder of the study's file; relative paths start there.
      setting: The setting's name, for an error.
      environment: The environment's variables.

    Raises:
      InputError: There is no such file or variable, or it is empty or no token of copriv.

    >>> load_token("env:BANK", base=Path(), setting="token", environment={"BANK": "copriv_s3cret"})
    'copriv_s3cret'
    """
    token = read_secret(where, base=base, setting=setting, environment=environment)
    if not (token.isascii() and token.startswith(TOKEN_START)):
        raise InputError(
            f"{setting} = {where!r}: what it holds does not begin with {TOKEN_START}, as every "
            "token does, and is not sent; ask the owner for one that copriv-owner token has made"
        )
    return token


def check_token_route(address: str, *, encrypted: bool, setting: str) -> None:
    """Refuse to send a token unencrypted to another machine.

    Raises:
      InputError: The address is another machine's and the connection is plain text.

    >>> check_token_route("127.0.0.1:50051", encrypted=False, setting="token")
    """
    if not encrypted and not is_loopback(address):
        raise InputError(
            f"{setting}: {address} is another machine and the connection is not encrypted; a "
            "token would be readable on the way, use TLS"
        )
