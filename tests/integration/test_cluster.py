"""A sweep on a Dask cluster of this machine gives what it gives here."""

import io
import math
import socket
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from rich.console import Console

from common.errors import InputError
from learner.reproduction.reproduce import run_reproduction
from learner.simulated.sweeps import Workers, run_sweep

HOSPITALS = Path(__file__).resolve().parents[2] / "examples" / "hospitals.parquet"

distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of Dask's own, which is not ours to mend
]


def test_a_cluster_computes_the_same_points(tmp_path):
    points = {str(x): (x,) for x in range(-1, 6)}
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        there = run_sweep(
            root, points, workers=Workers(cluster=cluster.scheduler_address), folder=tmp_path
        )
    here = run_sweep(root, points, workers=Workers(jobs=1))
    assert there.results == here.results
    assert set(there.failures) == set(here.failures) == {"-1"}


@pytest.mark.long
def test_figures_of_a_cluster_have_the_same_bytes(tmp_path):
    def reproduce(out, cluster):
        run_reproduction(
            ["A8", "A9"],
            data=None,
            tables={"facilities": HOSPITALS},
            out=tmp_path / out,
            document=None,
            console=Console(file=io.StringIO()),
            cluster=cluster,
        )

    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        reproduce("there", cluster.scheduler_address)
    reproduce("here", None)
    for name in ("A8.parquet", "A9.parquet"):
        there, here = (tmp_path / folder / name for folder in ("there", "here"))
        assert there.read_bytes() == here.read_bytes()


def root(x):
    return {"root": math.sqrt(x)}


@pytest.mark.parametrize("said", [b"\0" * 1000, b"HTTP/1.1 200 OK\r\n\r\nhello", b""])
def test_what_is_no_scheduler_is_told_of_in_a_sentence(said, monkeypatch):
    monkeypatch.setattr("learner.simulated.sweeps.CONNECT_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as answered:

        def answer():
            with suppress(OSError):
                while True:
                    answered.enter_context(server.accept()[0]).sendall(said)

        threading.Thread(target=answer, daemon=True).start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        try:
            with pytest.raises(InputError, match="no Dask scheduler answers there"):
                run_sweep(root, {"one": (4.0,)}, workers=Workers(cluster=address))
        finally:
            server.shutdown(socket.SHUT_RDWR)


def test_an_address_of_another_kind_is_told_of_in_a_sentence():
    with pytest.raises(InputError, match="no Dask scheduler answers there"):
        run_sweep(root, {"one": (4.0,)}, workers=Workers(cluster="tls://127.0.0.1:1"))
