"""Start an owner: settings, shard, ledger, gRPC server; drain and stop it."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from wsgiref.simple_server import WSGIServer

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from common.channels import bind
from common.config import load_settings
from common.features import FeatureMap, load_feature_map
from common.tls import Identity, load_identity, refuse_plain_text
from owner.access import Access
from owner.answering import DataOwner
from owner.health import SERVICE
from owner.ledger import Ledger
from owner.loading import load_records
from owner.mechanism import secure_noise, seeded_noise_factory
from owner.metrics import OwnerMetrics, serve_metrics
from owner.policy import OwnerSettings
from owner.provenance import check_provenance
from owner.service import OwnerService, handlers
from owner.shard import fingerprint

__all__ = ["RunningOwner", "create_server", "open_owner", "pinned_map", "start_owner"]

log = logging.getLogger("copriv.owner")

CUT_OFF_SECONDS = 5.0
WORKERS = 16
LARGEST_MESSAGE = 96 * 2**20
OPTIONS = [
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    ("grpc.max_send_message_length", LARGEST_MESSAGE),
    # A second owner on the same port would share its queries silently.
    ("grpc.so_reuseport", 0),
    # Learners look every ten seconds whether we are there, also when nothing else is said.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # A learner that vanished without a word frees its thread.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
]


@dataclass(frozen=True)
class RunningOwner:
    """A serving owner: its port, and how to stop it."""

    owner: DataOwner
    server: grpc.Server
    health: health.HealthServicer
    port: int
    probes: grpc.Server | None = None
    metrics: WSGIServer | None = None

    def drain(self, *, grace: float) -> None:
        """Take no new call, let those under way finish, and release the ledger."""
        self.health.set(SERVICE, health_pb2.HealthCheckResponse.NOT_SERVING)
        # What does not end when it is cut off does not keep us from releasing the ledger.
        self.server.stop(grace).wait(grace + CUT_OFF_SECONDS)
        if self.probes is not None:
            self.probes.stop(None).wait(CUT_OFF_SECONDS)
        if self.metrics is not None:
            self.metrics.shutdown()
            self.metrics.server_close()
        self.owner.stop()


def open_owner(
    settings: OwnerSettings,
    *,
    base: Path,
    insecure_noise_seed: int | None,
    allow_private_bounds: bool = False,
) -> DataOwner:
    """The owner of a settings file: its records loaded and checked, its ledger held.

    Raises:
      InputError: The table, the feature map or the ledger cannot be used.
    """
    pinned = pinned_map(settings, base)
    raw, table = load_records(settings, base=base, pinned=pinned)
    access = Access(settings.policy, base=base)
    if pinned is not None:
        table.shard(pinned)
        check_provenance(
            pinned,
            raw,
            where=str(settings.features),
            allow_private_bounds=allow_private_bounds,
        )
    if insecure_noise_seed is not None:
        log.warning("INSECURE: noise comes from seed %d and protects nobody", insecure_noise_seed)
    ledger = Ledger(base / settings.ledger, owner=settings.name, fingerprint=fingerprint(raw))
    return DataOwner(
        name=settings.name,
        table=table,
        ledger=ledger,
        policy=settings.policy,
        access=access,
        pinned_map=pinned,
        noise=secure_noise
        if insecure_noise_seed is None
        else seeded_noise_factory(insecure_noise_seed),
        insecure_noise=insecure_noise_seed is not None,
        allow_private_bounds=allow_private_bounds,
        listening=settings.listening,
    )


def create_server(
    owner: DataOwner,
    address: str,
    *,
    identity: Identity | None = None,
    reflected: bool = False,
    metrics: OwnerMetrics | None = None,
) -> tuple[grpc.Server, health.HealthServicer, int]:
    """A server for an owner, not yet started, and the port it got.

    With an identity whoever shows no certificate of the CA gets nothing.

    Raises:
      InputError: The address cannot be used.
    """
    server = grpc.server(ThreadPoolExecutor(max_workers=WORKERS), options=OPTIONS)
    server.add_generic_rpc_handlers((handlers(OwnerService(owner, metrics)),))
    servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    if reflected:
        reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME), server)
    return server, servicer, bind(server, "listen", address, identity)


def _probe_server(servicer: health.HealthServicer, address: str) -> grpc.Server:
    """A plain-text port for probes that have no certificate: it tells only whether we serve."""
    server = grpc.server(ThreadPoolExecutor(max_workers=2), options=OPTIONS)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    bind(server, "health", address, None)
    return server


def start_owner(
    settings_path: Path,
    *,
    listen: str | None,
    insecure_noise_seed: int | None,
    allow_private_bounds: bool = False,
    insecure: bool = False,
) -> RunningOwner:
    """Load, check and serve the owner of a settings file.

    Raises:
      InputError: Anything in the settings, the records, the ledger or the address is wrong.
    """
    settings = load_settings(OwnerSettings, settings_path)
    address, base = listen or settings.listen, settings_path.parent
    refuse_plain_text("listen", address, tls=settings.tls is not None, insecure=insecure)
    identity = None
    if settings.tls is not None:
        identity = load_identity(settings.tls, base=base, side="server")
    owner = open_owner(
        settings,
        base=base,
        insecure_noise_seed=insecure_noise_seed,
        allow_private_bounds=allow_private_bounds,
    )
    try:
        counted = OwnerMetrics(owner)
        server, servicer, port = create_server(
            owner, address, identity=identity, reflected=settings.reflection, metrics=counted
        )
        probes = _probe_server(servicer, settings.health) if settings.health else None
        scraped = None
        if settings.metrics is not None:
            scraped = serve_metrics(counted.registry, settings.metrics, setting="metrics")
        server.start()
        if probes is not None:
            probes.start()
    except BaseException:
        owner.stop()
        raise
    servicer.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
    servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    return RunningOwner(owner, server, servicer, port, probes, scraped)


def pinned_map(settings: OwnerSettings, base: Path) -> FeatureMap | None:
    """The only feature map that the owner accepts, or None."""
    return load_feature_map(base / settings.features) if settings.features else None
