"""Crowd an owner with strangers that are silent, and see whether its learner notices.

In each round the answers of an admitted learner are timed, undisturbed and then in a crowd: calls
that send no message, by callers without a token or with a certificate that the owner does not
list, probes that never say what they ask, and connections that say nothing at all. At the end
many honest studies ask at once.

It exits 1 if the learner noticed: if in none of the rounds an answer took less than --slower times
as long as undisturbed, if the owner's health was not told, if its memory grew by more than
--megabytes, or if a study did not finish. With --enough it goes no more rounds than that takes.

Usage: python tests/tools/crowd_owner.py [--idle 200] [--silent 1000] [--studies 64] [--rounds 5]
                                         [--slower 1.5] [--megabytes 100] [--enough]
"""

import argparse
import asyncio
import hashlib
import json
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import grpc
import numpy as np
import pandas as pd
import tomli_w
from grpc_health.v1 import health_pb2, health_pb2_grpc
from identities import tls_of, tls_table
from maps import map_of

from common.channels import open_channel
from common.terms import Query, StudyTerms
from common.tls import load_identity
from learner.network.certificates import Party, make_certificates
from learner.network.grpc_owner import GrpcOwner

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "the-token-of-the-learner-let-in"  # noqa: S105
CALLS = ("DataOwner/Answer", "DataOwner/AnswerOnce", "DataOwner/Enroll", "DataOwner/Describe")
QUERIES = 200


def many_files():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def few_files():
    """What a shell gives a process that does not ask for more."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))


class CrowdedOwner:
    """An owner process, in plain text with a token or by mutual TLS."""

    def __init__(self, folder, *, tls):
        folder.mkdir()
        rng = np.random.default_rng(1)
        table = pd.DataFrame(rng.normal(size=(300, 4)), columns=["a", "b", "c", "y"])
        table.to_parquet(folder / "shard.parquet")
        self.feature_map = map_of(table + 0.01)
        digest = hashlib.sha256(TOKEN.encode()).hexdigest()
        policy = {"epsilon_per_study": "1", "epsilon_lifetime": "1000"}
        policy |= {"learners": ["good"]} if tls else {"tokens": {"good": f"sha256:{digest}"}}
        settings = {"name": "crowded", "data": {"path": "shard.parquet"}, "policy": policy}
        self.good = self.stranger = None
        if tls:
            self.good, self.stranger = certify(folder)
            settings["tls"] = tls_table(folder / "certs" / "crowded")
        (folder / "owner.toml").write_text(tomli_w.dumps(settings))
        log = (folder / "log").open("w")
        command = [sys.executable, "-m", "owner.cli", "serve", str(folder / "owner.toml")]
        few_files()
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=ROOT, stderr=log
        )
        many_files()
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().split()[3].rstrip(","))
        self.address = f"127.0.0.1:{self.port}"

    def connect(self):
        token = TOKEN if self.good is None else None
        return GrpcOwner("crowded", self.address, deadline=20, token=token, identity=self.good)

    def megabytes(self):
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20

    def is_healthy(self):
        with open_channel(self.address, self.good, []) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            told = stub.Check(health_pb2.HealthCheckRequest(), timeout=5)
        return bool(told.status == health_pb2.HealthCheckResponse.SERVING)

    def stop(self):
        self.process.terminate()
        self.process.wait(20)


def certify(folder):
    """The certificates of the learner and of a stranger."""
    parties = [
        Party(name="crowded", role="owner", hosts=("127.0.0.1",)),
        Party(name="good", role="learner"),
        Party(name="stranger", role="learner"),
    ]
    make_certificates(folder / "certs", parties, study="crowd", ca_days=40, days=9, renew=False)
    good, stranger = (
        load_identity(tls_of(folder / "certs" / name), base=folder, side="client")
        for name in ("good", "stranger")
    )
    return good, stranger


def terms(feature_map, study, responses):
    return StudyTerms(
        study_id=study,
        loss="squared",
        theta_max=1.0,
        feature_map=feature_map.to_json(),
        horizon=responses,
        responses=responses,
        epsilon=Fraction(1, 10),
    )


def study(owner, name, responses):
    """One study from its enrolment to its last answer; the median time of an answer."""
    remote = owner.connect()
    remote.enroll(terms(owner.feature_map, name, responses))
    times = []
    for sequence in range(1, responses + 1):
        began = time.perf_counter()
        remote.answer(Query(study_id=name, sequence=sequence, theta=np.zeros(4)))
        times.append(time.perf_counter() - began)
    remote.disconnect()
    return statistics.median(times)


async def crowd(address, certificate, idle, silent):
    """Hold calls and connections open and say nothing, until standard input ends."""
    many_files()
    options = [("grpc.use_local_subchannel_pool", 1)]
    if certificate is None:
        channels = [grpc.aio.insecure_channel(address, options=options) for _ in range(4)]
    else:
        ca, chain, key = (
            Path(certificate[name]).read_bytes() for name in ("ca", "certificate", "key")
        )
        credentials = grpc.ssl_channel_credentials(ca, key, chain)
        channels = [grpc.aio.secure_channel(address, credentials, options) for _ in range(4)]
    names = [f"copriv.v1.{name}" for name in CALLS] + ["grpc.health.v1.Health/Check"]
    calls = [
        channels[k % 4].stream_stream(f"/{names[k % len(names)]}")(timeout=600) for k in range(idle)
    ]
    loop, host = asyncio.get_running_loop(), address.rpartition(":")
    sockets = [socket.create_connection((host[0], int(host[2]))) for _ in range(silent)]
    # Strangers without a name are refused one by one; the others stay.
    settled = time.monotonic() + 1.0
    while time.monotonic() < settled and not all(call.done() for call in calls):
        await asyncio.sleep(0.02)
    ended = Counter()
    for call in calls:
        ended[(await call.code()).name if call.done() else "open"] += 1
    print(json.dumps(ended), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    for each in sockets:
        each.close()
    for call in calls:
        call.cancel()


@contextmanager
def crowded(owner, folder, idle, silent):
    """A crowd of strangers in a process of its own: how their calls stand."""
    certificate = tls_table(folder / "certs" / "stranger") if owner.good else None
    told = json.dumps([owner.address, certificate, idle, silent])
    process = subprocess.Popen(
        [sys.executable, __file__, "--crowd", told],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.communicate(timeout=60)


def measure(options, folder, *, tls):
    """What an admitted learner notices of a crowd."""
    owner = CrowdedOwner(folder, tls=tls)
    try:
        study(owner, "warm", QUERIES)
        rounds, grown, healthy = [], 0.0, True
        before = owner.megabytes()
        stood = None
        for number in range(options.rounds):
            alone = study(owner, f"alone-{number}", QUERIES)
            with crowded(owner, folder, options.idle, options.silent) as calls:
                stood = calls
                among = study(owner, f"among-{number}", QUERIES)
                healthy = healthy and owner.is_healthy()
                grown = max(grown, owner.megabytes() - before)
            rounds.append((alone, among))
            if options.enough and among < options.slower * alone:
                break
        return {
            "milliseconds_alone": [round(1000 * alone, 3) for alone, _ in rounds],
            "milliseconds_in_the_crowd": [round(1000 * among, 3) for _, among in rounds],
            "ratio": round(statistics.median(among / alone for alone, among in rounds), 3),
            "smallest_ratio": round(min(among / alone for alone, among in rounds), 3),
            "health_answered": healthy,
            "megabytes_grown": round(grown, 1),
            "calls": stood,
            "studies_finished": at_once(owner, options.studies),
        }
    finally:
        owner.stop()


def at_once(owner, studies):
    """How many of this many studies finish that are asked on streams at the same time."""
    finished = []
    together = threading.Barrier(studies)

    def learn(name):
        remote = owner.connect()
        remote.enroll(terms(owner.feature_map, name, 5))
        for sequence in range(1, 6):
            remote.answer(Query(study_id=name, sequence=sequence, theta=np.zeros(4)))
            if sequence == 1:
                # Now every study holds its stream open.
                together.wait(60)
        finished.append(name)
        remote.disconnect()

    threads = [threading.Thread(target=learn, args=(f"honest-{k}",)) for k in range(studies)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return len(finished)


def faults_of(told, options):
    """What an admitted learner noticed."""
    noticed = {
        "answers were slow": not told["smallest_ratio"] < options.slower,
        "health was not told": not told["health_answered"],
        "memory grew": not told["megabytes_grown"] < options.megabytes,
        "studies did not finish": told["studies_finished"] != options.studies,
    }
    return [fault for fault, is_so in noticed.items() if is_so]


def main():
    parser = argparse.ArgumentParser()
    for name, value in (("idle", 200), ("silent", 1000), ("studies", 64), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--slower", type=float, default=1.5)
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--enough", action="store_true")
    parser.add_argument("--crowd")
    options = parser.parse_args()
    if options.crowd:
        asyncio.run(crowd(*json.loads(options.crowd)))
        return
    with tempfile.TemporaryDirectory(prefix="crowd-") as folder:
        told = {
            name: measure(options, Path(folder) / name, tls=name == "unlisted_certificate")
            for name in ("no_identity", "unlisted_certificate")
        }
    faults = {name: faults_of(found, options) for name, found in told.items()}
    print(json.dumps(told | {"faults": faults}, indent=1))
    sys.exit(1 if any(faults.values()) else 0)


if __name__ == "__main__":
    main()
