"""The owners of a study as the learner reaches them: at their ports, at ours, or in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from common.errors import InputError
from common.features import FeatureMap
from common.tables import read_table
from common.terms import Records
from common.tls import Identity, Side, load_identity, refuse_plain_text
from learner.network.grpc_owner import GrpcOwner
from learner.network.listening import ListeningLearner
from learner.network.processes import owner_processes, table_source
from learner.network.tokens import check_token_route, load_token
from learner.planning.sections import OwnerEntry
from learner.planning.settings import StudySettings
from learner.training.initiative import Requests
from learner.training.memory_owner import LocalShard
from learner.training.owners import Owner

__all__ = ["Connections", "remote_owners", "simulated_owners"]


@dataclass(frozen=True)
class Connections:
    """The owners in the order of the settings, and where their requests arrive, if they ask."""

    owners: Sequence[Owner]
    requests: Requests | None = None


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
            yield Connections(learner.owners, learner)
        return
    identity = _identity(settings, base, side="client")
    yield Connections(
        [
            _owner(settings, entry, feature_map, base=base, identity=identity, insecure=insecure)
            for entry in settings.owners
        ]
    )


@contextmanager
def simulated_owners(
    settings: StudySettings,
    shards: Sequence[Records],
    *,
    base: Path,
    folder: Path,
    insecure_noise_seed: int | None,
    allow_private_bounds: bool,
) -> Iterator[Connections]:
    """Owners as processes on this machine, except the one that is the learner.

    With the owners' initiative they bind no port, and come to ours.

    Raises:
      InputError: An owner did not start.
    """
    own, deadline = settings.learner.own, settings.network.deadline
    with ExitStack() as stack:
        learner = None
        if settings.algorithm.initiative == "owner":
            nothing = [None] * len(settings.owners)
            learner = stack.enter_context(_listening(settings, "127.0.0.1:0", nothing))
        processes = stack.enter_context(
            owner_processes(
                settings,
                base=base,
                run_folder=folder,
                insecure_noise_seed=insecure_noise_seed,
                allow_private_bounds=allow_private_bounds,
                learner=f"127.0.0.1:{learner.port}" if learner else None,
            )
        )
        if learner is not None:
            yield Connections(learner.owners, learner)
            return
        addresses = {process.name: process.address for process in processes}
        yield Connections(
            [
                LocalShard(entry.name, shard)
                if entry.name == own
                else GrpcOwner(entry.name, addresses[entry.name], deadline=deadline)
                for entry, shard in zip(settings.owners, shards, strict=True)
            ]
        )


def _identity(settings: StudySettings, base: Path, *, side: Side) -> Identity | None:
    """Our certificate, or None for plain text."""
    return None if settings.tls is None else load_identity(settings.tls, base=base, side=side)


def _listening(
    settings: StudySettings,
    address: str,
    tokens: Sequence[str | None],
    identity: Identity | None = None,
) -> ListeningLearner:
    return ListeningLearner(
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
        table = read_table(table_source(settings, entry, base=base), base=base)
        return LocalShard(entry.name, feature_map.apply(table, where=entry.name))
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
    settings: StudySettings,
    entry: OwnerEntry,
    address: str,
    base: Path,
    *,
    encrypted: bool,
) -> str | None:
    """The token for one owner, read where the settings say."""
    has_own = entry.token is not None
    where = entry.token if has_own else settings.network.token
    if where is None:
        return None
    setting = f"owners.{entry.name}.token" if has_own else "network.token"
    check_token_route(address, encrypted=encrypted, setting=setting)
    return load_token(where, base=base, setting=setting)
