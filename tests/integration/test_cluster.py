"""A sweep on a Dask cluster of this machine gives what it gives here."""

import importlib
import io
import json
import math
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pytest
from clusters import local_cluster
from free_ports import free_port
from rich.console import Console
from waiting import comes_about, wait_until

from common.errors import InputError
from learner.reproduction.reproduce import run_reproduction
from learner.simulated.cluster import computed_on
from learner.simulated.sweeps import Workers, run_sweep

HOSPITALS = Path(__file__).resolve().parents[2] / "examples" / "hospitals.parquet"

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of Dask's own, which is not ours to mend
]


def test_a_cluster_computes_the_same_points(tmp_path):
    points = {str(x): (x,) for x in range(-1, 6)}
    with local_cluster() as address:
        there = run_sweep(root, points, workers=Workers(cluster=address), folder=tmp_path)
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

    with local_cluster() as address:
        reproduce("there", address)
    reproduce("here", None)
    for name in ("A8.parquet", "A9.parquet"):
        there, here = (tmp_path / folder / name for folder in ("there", "here"))
        assert there.read_bytes() == here.read_bytes()


def root(x):
    return {"root": math.sqrt(x)}


def bad(name, array):
    """What a worker of another version may do, or one that ends."""
    if name == "ends":
        os._exit(9)
    if name == "fails":
        raise RuntimeError("\x1b[2J[/red]\r\n" + "x" * 100_000)
    return {"sum": "none" if name == "differs" else float(array.sum())}


def a_sum(kept, *arguments):
    return {"sum": float(kept["sum"])}


def process():
    return {"process": os.getpid()}


def slow(begun):
    if begun is not None:
        Path(begun).touch()
        time.sleep(60)
    return {"process": os.getpid()}


def started(stack, *arguments):
    """A part of a cluster in a process of its own."""
    command = [sys.executable, "-m", "distributed.cli.dask_" + arguments[0], *arguments[1:]]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    path = os.pathsep.join(p for p in (str(Path(__file__).parents[2]), *sys.path) if p)
    running = subprocess.Popen(
        [*command, "--no-dashboard"], env=os.environ | {"PYTHONPATH": path}, **quiet
    )
    stack.callback(running.wait)
    stack.callback(running.kill)
    return running


def test_an_array_that_points_share_is_sent_once(monkeypatch):
    sent, submit = [], distributed.Client.submit

    def watched(client, work, *arguments, **options):
        sent.extend(each for each in arguments if isinstance(each, np.ndarray))
        return submit(client, work, *arguments, **options)

    monkeypatch.setattr(distributed.Client, "submit", watched)
    shared, other = np.ones(3), np.ones(3)
    points = {str(k): ("adds", array) for k, array in enumerate([shared, shared, other, shared])}
    with local_cluster() as address:
        found = run_sweep(bad, points, workers=Workers(cluster=address), read=a_sum)
    assert found.results == {name: {"sum": 3.0} for name in points}
    assert [array is shared for array in sent] == [True, False]


@pytest.mark.parametrize("said", [b"\0" * 1000, b"HTTP/1.1 200 OK\r\n\r\nhello", b""])
def test_what_is_no_scheduler_is_told_of_in_a_sentence(said, monkeypatch):
    monkeypatch.setattr("learner.simulated.cluster.CONNECT_SECONDS", 1)
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


@pytest.fixture
def cluster():
    """A scheduler and workers in processes of their own: what passes between them is pickled."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        local_cluster(processes=True) as address,
    ):
        yield address


def test_each_point_of_a_cluster_is_kept_whatever_becomes_of_others(cluster, tmp_path):
    """Workers end, fail, and answer as another version does."""
    points = {name: (name, np.zeros(3)) for name in ("a", "fails", "differs", "b")}
    # By itself: where a worker ends, what it was to compute next may be lost as well.
    ended = run_sweep(
        bad, {"ends": ("ends", np.zeros(3))}, workers=Workers(cluster=cluster)
    ).failures["ends"]
    assert ended.error.startswith("each worker of the cluster that computed it ended")
    found = run_sweep(bad, points, workers=Workers(cluster=cluster), folder=tmp_path, read=a_sum)
    assert found.results == {"a": {"sum": 0.0}, "b": {"sum": 0.0}}
    said = {name: failure.error for name, failure in found.failures.items()}
    assert said["fails"].startswith("RuntimeError: ")
    assert len(said["fails"]) < 1200
    assert said["fails"].isprintable()
    assert said["differs"].startswith("a worker of the cluster returned something else")
    files = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    kept = {name for name, content in files.items() if "result" in content}
    assert kept == {"a", "b"}


def test_a_worker_computes_even_if_it_is_the_only_one_of_its_cluster():
    with local_cluster(1, processes=True) as address:
        found = run_sweep(process, {"one": (), "two": ()}, workers=Workers(cluster=address))
    assert len(found.results) == 2
    assert all(result["process"] != os.getpid() for result in found.results.values())


def test_a_cluster_without_a_worker_is_told_of_in_a_sentence(monkeypatch):
    monkeypatch.setattr("learner.simulated.cluster.CONNECT_SECONDS", 1)
    with (
        local_cluster(0, processes=True) as address,
        pytest.raises(InputError, match="has no worker; start one, such as with dask worker tcp:"),
    ):
        run_sweep(root, {"one": (4.0,)}, workers=Workers(cluster=address))


def test_a_worker_without_copriv_is_told_of_in_a_sentence(tmp_path, monkeypatch):
    """It would end at its first call, and the command wait for ever."""
    (tmp_path / "only_here.py").write_text("def work():\n    return {}\n")
    with local_cluster(1, processes=True) as address:
        # The worker has started without it.
        monkeypatch.syspath_prepend(tmp_path)
        found = computed_on(address, importlib.import_module("only_here").work, {"one": ()})
        with pytest.raises(InputError, match=r"workers without copriv \(tcp://.*; install it"):
            next(found)


def test_a_scheduler_that_goes_away_loses_nothing_that_was_computed(tmp_path):
    address, begun = f"tcp://127.0.0.1:{free_port()}", tmp_path / "begun"
    with ExitStack() as stack:
        scheduler = started(stack, "scheduler", "--port", address.rpartition(":")[2])
        started(stack, "worker", address, "--nthreads", "1", "--no-nanny")
        wait_until(lambda: _listens(address))

        def end():
            wait_until(begun.exists)
            time.sleep(1)  # what is quick has arrived by then
            scheduler.kill()

        ending = threading.Thread(target=end)
        stack.callback(ending.join)
        ending.start()
        points = {"quick": (None,), "slow": (str(begun),)}
        with pytest.raises(InputError, match="the Dask scheduler went away; see that it and"):
            run_sweep(slow, points, workers=Workers(cluster=address), folder=tmp_path / "kept")
    again = run_sweep(slow, {"quick": (None,)}, folder=tmp_path / "kept", workers=Workers(jobs=1))
    assert "process" in again.results["quick"]
    assert again.results["quick"]["process"] != os.getpid()


def test_a_cluster_whose_last_worker_ends_is_told_of_while_it_waits(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("learner.simulated.cluster.LOOK_SECONDS", 0.2)
    address, begun = f"tcp://127.0.0.1:{free_port()}", tmp_path / "begun"
    said = "no worker is left; waiting for one, which dask worker tcp:"
    with ExitStack() as stack:
        scheduler = started(stack, "scheduler", "--port", address.rpartition(":")[2])
        worker = started(stack, "worker", address, "--nthreads", "1", "--no-nanny")
        wait_until(lambda: _listens(address))

        def end():
            wait_until(begun.exists)
            worker.kill()
            comes_about(lambda: said in caplog.text, seconds=20)
            scheduler.kill()

        ending = threading.Thread(target=end)
        stack.callback(ending.join)
        ending.start()
        with pytest.raises(InputError, match="the Dask scheduler went away"):
            run_sweep(slow, {"slow": (str(begun),)}, workers=Workers(cluster=address))
    assert caplog.text.count(said) == 1


def _listens(address):
    host, port = address.removeprefix("tcp://").split(":")
    with suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
        return True
    return False
