"""What both sides must agree on, nothing else."""

import os
from importlib import metadata

# Measured with this version of gRPC, its older loop answers a stream a third sooner than its event
# engine (docs/performance.md). It looks when it is first used, so this stands before any import.
if metadata.version("grpcio").startswith("1.85."):
    os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")

# gRPC writes the other side's words for the end of a connection as they came, past our own log and
# into whatever terminal or notebook this is. It looks when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

# gRPC would begin its threads anew in a copy of this process, and a copy of the learner would then
# write on the lines of owners that are attached: what both write is no TLS any more. Copies use no
# gRPC, whatever the environment says. It looks when it is first used.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

# gRPC's own resolver misses an address of /etc/hosts that stands there for another name, too, and
# knows no source of names but that file and DNS: hosts that every other program reached were not.
# It looks when it is first used.
os.environ.setdefault("GRPC_DNS_RESOLVER", "native")

# gRPC takes the suites of TLS 1.2 from a variable, old ones too. It may name fewer than gRPC would
# take by itself, and no others. It looks when it is first used.
_SUITES = {
    f"ECDHE-{key}-{cipher}"
    for key in ("ECDSA", "RSA")
    for cipher in ("AES128-GCM-SHA256", "AES256-GCM-SHA384")
}
_named = os.environ.pop("GRPC_SSL_CIPHER_SUITES", "").split(":")
if _SUITES.intersection(_named):
    os.environ["GRPC_SSL_CIPHER_SUITES"] = ":".join(filter(_SUITES.__contains__, _named))

# Arrow's own allocator asks for huge pages, which the system clears whole when they are first
# touched: of a table that is read once that is most of the work, and memory that nobody uses.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
