"""Start an owner: settings, shard, ledger, gRPC server; drain and stop it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import grpc
from google.protobuf.message import Message

from common.addresses import check_free, unusable
from common.batches import release_unused
from common.certificates import check_own_name
from common.config import load_settings
from common.errors import InputError
from common.expiry import Expiry
from common.losses import LOSSES
from common.metrics import metrics_served
from common.open_files import allow_open_files
from common.tls import Identity, load_identity, refuse_plain_text
from common.wire import QUIET_OPTIONS, SERVER_OPTIONS, Options, calls_at_once, size_options
from owner.access import Access
from owner.answering import DataOwner
from owner.calls import Calls
from owner.declaring import Declared
from owner.health import SERVICE
from owner.ledger import Ledger
from owner.ledger_files import is_held
from owner.loading import load_to_serve, pinned_map
from owner.mechanism import secure_noise, seeded_noise_factory
from owner.mending import Mending
from owner.metrics import OwnerMetrics
from owner.open_study import StudyMaker
from owner.policy import OwnerSettings, Policy
from owner.ports import Port, on_loop
from owner.probes import OPEN_PROBES, Probes
from owner.provenance import check_provenance
from owner.service import Method, OwnerService

log = logging.getLogger("copriv.owner")

HEALTH = "grpc.health.v1.Health"
OPTIONS = [*SERVER_OPTIONS, *QUIET_OPTIONS]
LARGEST_PROBE = 2**16
# Beyond those that a learner may hold, so that one which asks for more is told so.
MORE_CALLS = 32


@dataclass(frozen=True)
class RunningOwner:
    """A serving owner: its port, and how to stop it."""

    owner: DataOwner
    server: Port
    calls: Calls
    health: Probes
    mending: Mending
    probes: Port | None
    metrics: ExitStack

    @property
    def port(self) -> int:
        """The number of its port."""
        return self.server.number

    def drain(self, *, grace: float) -> None:
        """Take no new call, let those under way finish, and release the ledger."""
        self.health.set(serving=False)
        self.mending.stop()
        on_loop(self.calls.end())
        self.server.stop(grace)
        if self.probes is not None:
            self.probes.stop(None)
        self.metrics.close()
        self.calls.close()
        self.owner.stop()


def open_owner(
    settings: OwnerSettings,
    *,
    base: Path,
    insecure_noise_seed: int | None,
    allow_private_bounds: bool = False,
) -> DataOwner:
    """The owner of a settings file: its records loaded and checked, its ledger held.

    Args:
      settings: The owner's settings.
      base: The folder that relative paths start from.
      insecure_noise_seed: Seed of noise that protects nobody; None for real noise.
      allow_private_bounds: Whether it takes a feature map fitted on private records.

    Raises:
      InputError: The table, the feature map or the ledger cannot be used.
    """
    pinned = pinned_map(settings, base)
    loaded = load_to_serve(settings, base=base, pinned=pinned)
    # What reading took beyond the records goes back to the system.
    release_unused()
    access = Access(settings.policy, base=base)
    if pinned is not None:
        # A learner may have written the map, with what follows from its guess of all records: of a
        # map that does not say itself where it is from, records do not decide whether we serve.
        check_provenance(
            pinned,
            loaded.rows,
            where=str(settings.features),
            allow_private_bounds=allow_private_bounds or pinned.source_kind != "private",
        )
        loaded.table.keep_only(pinned, by_moments=_mostly_moments(settings.policy))
    if insecure_noise_seed is not None:
        log.warning("INSECURE: noise comes from seed %d and protects nobody", insecure_noise_seed)
    checked = Declared(settings, base=base)
    ledger = Ledger(
        base / settings.ledger.path,
        owner=settings.name,
        fingerprint=loaded.fingerprint,
        block=settings.ledger.block,
    )
    return DataOwner(
        name=settings.name,
        ledger=ledger,
        maker=StudyMaker(
            table=loaded.table,
            policy=settings.policy,
            noise=partial(secure_noise, threads=settings.num_threads)
            if insecure_noise_seed is None
            else seeded_noise_factory(insecure_noise_seed),
            insecure_noise=insecure_noise_seed is not None,
            pinned_map=pinned,
            allow_private_bounds=allow_private_bounds,
        ),
        access=access,
        offers=settings.listening,
        checked=checked,
    )


def create_server(
    calls: Calls,
    health: Probes,
    address: str,
    *,
    options: Options,
    identity: Identity | None = None,
    reflected: bool = False,
) -> Port:
    """A server for an owner's calls, not yet started.

    Args:
      calls: The owner's calls.
      health: What probes are told.
      address: HOST:PORT; port 0 takes a free one.
      options: gRPC's.
      identity: Callers that show no certificate of its CA get nothing; None for plain text.
      reflected: Whether tools may ask which calls there are.

    Raises:
      InputError: The address cannot be used.
    """

    def fill(server: grpc.aio.Server) -> None:
        calls.add_to(server, SERVICE)
        health.add_to(server)
        if reflected:
            calls.add_to(server, *_reflection())

    return Port(fill, "listen", address, identity=identity, options=options)


def _reflection() -> tuple[str, dict[str, Method]]:
    """The service that tells tools which calls there are, and its call."""
    from grpc_reflection.v1alpha import (  # noqa: PLC0415 (few owners ask for it)
        reflection,
        reflection_pb2,
    )

    servicer = reflection.ReflectionServicer((SERVICE, HEALTH))

    def reply(request: Any, learner: str) -> Message:
        del learner
        (told,) = servicer.ServerReflectionInfo(iter([request]), None)
        return cast("Message", told)

    method = Method(reflection_pb2.ServerReflectionRequest, reply, streams=True)
    return reflection.SERVICE_NAME, {"ServerReflectionInfo": method}


def _probe_server(health: Probes, address: str) -> Port:
    """A plain-text port for probes that have no certificate: it says only whether we serve."""
    options = [*OPTIONS, *size_options(LARGEST_PROBE), *calls_at_once(OPEN_PROBES)]
    return Port(health.add_to, "health", address, identity=None, options=options)


def start_owner(
    settings_path: Path,
    *,
    listen: str | None,
    insecure_noise_seed: int | None,
    allow_private_bounds: bool = False,
    insecure: bool = False,
    on_opened: Callable[[], object] = lambda: None,
    on_fault: Callable[[], object] = lambda: None,
) -> RunningOwner:
    """Load and check the owner of a settings file, call ``on_opened``, and serve it.

    Args:
      settings_path: OWNER.toml.
      listen: HOST:PORT in place of the settings' address.
      insecure_noise_seed: Seed of noise that protects nobody; None for real noise.
      allow_private_bounds: Whether it takes a feature map fitted on private records.
      insecure: Whether plain text may leave this machine.
      on_opened: Called once the owner is open, before it serves.
      on_fault: Called once its ledger can be used by another start only, maybe more than once.

    Raises:
      InputError: Anything in the settings, the records, the ledger or the address is wrong.
    """
    settings = load_settings(OwnerSettings, settings_path)
    address, base = listen or settings.listen, settings_path.parent
    if settings.attach.learner and not listen and "listen" not in settings.model_fields_set:
        raise InputError(
            f"{settings_path}: attach.learner = {settings.attach.learner!r}: this owner goes to "
            "its learner; type copriv-owner attach, or say where to serve with --listen"
        )
    refuse_plain_text("listen", address, tls=settings.tls is not None, insecure=insecure)
    identity = _own_identity(settings, base)
    ports = {"listen": address, "health": settings.health, "metrics": settings.metrics}
    refuse_taken(ports, ledger=base / settings.ledger.path)
    owner = open_owner(
        settings,
        base=base,
        insecure_noise_seed=insecure_noise_seed,
        allow_private_bounds=allow_private_bounds,
    )
    return _serve(
        owner,
        settings,
        base,
        address,
        identity=identity,
        on_opened=on_opened,
        on_fault=on_fault,
    )


def refuse_taken(ports: Mapping[str, str | None], *, ledger: Path) -> None:
    """Refuse addresses that cannot be listened at before a ledger is made.

    One that somebody takes after this is refused when it is bound, and a new ledger stays.

    Args:
      ports: HOST:PORT by the setting that names it; None for none.
      ledger: The owner's ledger.

    Raises:
      InputError: One of them is taken, or is not this machine's.
    """
    for setting, address in ports.items():
        if address is None:
            continue
        try:
            check_free(address)
        except OSError as error:
            # An owner that serves already is told so by its ledger.
            if not is_held(ledger):
                raise unusable(setting, address, error) from None


def _serve(
    owner: DataOwner,
    settings: OwnerSettings,
    base: Path,
    address: str,
    *,
    identity: Identity | None,
    on_opened: Callable[[], object],
    on_fault: Callable[[], object],
) -> RunningOwner:
    """Serve an owner that is open; what was started is stopped again if anything fails."""
    with ExitStack() as stack:
        stack.callback(owner.stop)
        on_opened()
        # Connections that say nothing must not use up the number.
        allow_open_files()
        expiry = None if identity is None else Expiry(identity, side="server")
        counted = OwnerMetrics(owner, expiry=expiry)
        health = Probes()
        mending = Mending(owner, health.ledger_works, on_fault=on_fault)
        service = OwnerService(owner, counted, on_ledger=mending.used)
        calls = Calls(service, idle_seconds=settings.idle_seconds)
        stack.callback(calls.close)
        server = create_server(
            calls,
            health,
            address,
            options=_options(settings, base),
            identity=identity,
            reflected=settings.reflection,
        )
        stack.callback(server.stop, None)
        probes = None
        if settings.health is not None:
            probes = _probe_server(health, settings.health)
            stack.callback(probes.stop, None)
        metrics = stack.enter_context(ExitStack())
        metrics.enter_context(metrics_served(counted.registry, settings.metrics, setting="metrics"))
        server.start()
        if probes is not None:
            probes.start()
        stack.pop_all()
    health.set(serving=True)
    return RunningOwner(owner, server, calls, health, mending, probes, metrics)


def _own_identity(settings: OwnerSettings, base: Path) -> Identity | None:
    """The certificate that says who this owner is; None without TLS."""
    if settings.tls is None:
        return None
    identity = load_identity(settings.tls, base=base, side="server")
    check_own_name(identity, name=settings.name)
    return identity


def _mostly_moments(policy: Policy) -> bool:
    """Whether the studies that a policy allows will mostly need second moments alone."""
    return not policy.validation and all(LOSSES[name].is_quadratic for name in policy.losses)


def _options(settings: OwnerSettings, base: Path) -> Options:
    """How much is taken at its port, of one message and of one connection."""
    most = settings.policy.calls_per_learner + MORE_CALLS
    return [*OPTIONS, *size_options(_largest_request(settings, base)), *calls_at_once(most)]


def _largest_request(settings: OwnerSettings, base: Path) -> int:
    """Bytes of the largest message that could be agreed to, and room to say why one is not."""
    policy = settings.policy
    features = (base / settings.features).stat().st_size if settings.features else 0
    return 2**20 + 2 * max(policy.max_map_bytes, features) + 16 * policy.max_features
