"""Owners that are forks of one warm parent are processes like any other."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from waiting import wait_until

from common.open_files import allow_open_files
from common.terms import Query
from learner.network.grpc_owner import GrpcOwner
from learner.network.warm_parent import StartedOwner, WarmParent, warm_parent

# What a serving owner has no use for; a study of 300 would hold it 300 times.
UNUSED = (
    *("IPython", "duckdb", "grpc_reflection.v1alpha", "joblib", "learner", "matplotlib", "scipy"),
    "sklearn",
)

# A parent that sleeps before each wait for a request, and hears of no signal between the two: no
# step of Python's is there. A fork that ends meanwhile ends just before its parent waits.
LATE = """
import ctypes, operator, socket
from functools import partial
from owner import parent
sleep = partial(ctypes.CDLL(None).usleep, 999_999)
class Late(socket.socket):
    def recvmsg(self, *given):
        *_, received = map(operator.call, (sleep, partial(super().recvmsg, *given)))
        return received
socket.socket = Late
parent.main()
"""


def serve(parent, settings):
    arguments = ["serve", settings.name, "--with-parent", "--listen", "127.0.0.1:0"]
    log = settings.parent / "owner.log"
    return parent.start(arguments, folder=settings.parent, log=log)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_each_fork_is_a_process_with_its_own_folder_ledger_log_and_status(owner_folder, tmp_path):
    folders = [owner_folder(name, seed=i) for i, name in enumerate(("a", "b"))]
    (tmp_path / "wrong.toml").write_text("name = 1\n")
    with warm_parent() as parent:
        owners = [serve(parent, path) for path in folders]
        wrong = serve(parent, tmp_path / "wrong.toml")
        said = [owner.stdout.readline() for owner in owners]
        assert all(line.startswith("serving on port ") for line in said), said
        assert len({*said}) == len({owner.pid for owner in owners}) == 2
        assert all((path.parent / "ledger.sqlite").stat().st_size for path in folders)
        assert wrong.wait(20) == 2
        assert "copriv-owner:" in (tmp_path / "owner.log").read_text()
        # One is asked to drain, one is killed; each end is told.
        for owner, number, status in zip(
            owners, (signal.SIGTERM, signal.SIGKILL), (0, -signal.SIGKILL), strict=True
        ):
            assert owner.poll() is None
            owner.send_signal(number)
            assert owner.wait(20) == status
        for owner in (*owners, wrong):
            owner.stop(0)


def test_forks_of_one_parent_draw_noise_of_their_own(owner_folder, make_terms):
    """Equal records and equal questions: what differs is the noise, which nothing may share."""
    query = Query(study_id="study-1", sequence=1, theta=np.zeros(4))
    with warm_parent() as parent:
        answers = []
        for name in ("a", "b"):
            forked = serve(parent, owner_folder(name))
            port = forked.stdout.readline().rpartition(" ")[2].strip()
            caller = GrpcOwner(name, f"127.0.0.1:{port}", deadline=20)
            caller.enroll(make_terms())
            answers.append(caller.answer(query).gradient)
            caller.disconnect()
            forked.stop(0)
    assert np.all(answers[0] != answers[1])


def test_the_parent_runs_one_thread_and_says_nothing_as_it_forks(tmp_path, capfd):
    """Python 3.12 and later warn of a fork of several threads, which may hold locks."""
    with warm_parent() as parent:
        owner = parent.start(["--version"], folder=tmp_path, log=tmp_path / "log")
        assert owner.wait(60) == 0
        threads = Path(f"/proc/{parent._process.pid}/task").glob("*/comm")
        names = [thread.read_text() for thread in threads]
        assert len(names) == 1, names
        owner.stop(0)
    assert capfd.readouterr().err == ""


def test_owners_start_whatever_the_encoding_of_the_terminal(owner_folder, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    with warm_parent() as parent:
        owner = serve(parent, owner_folder())
        assert owner.stdout.readline().startswith("serving on port ")
        owner.stop(0)


def test_a_fork_leaves_nothing_among_temporary_files(owner_folder, tmp_path, monkeypatch):
    duckdb = pytest.importorskip("duckdb")
    places = tmp_path / "temporary"
    places.mkdir()
    monkeypatch.setenv("TMPDIR", str(places))
    settings = owner_folder()
    shard = settings.parent / "shard.parquet"
    with duckdb.connect(str(settings.parent / "shard.duckdb")) as database:
        database.execute(f"create table t as select * from '{shard}'")
    given = settings.read_text().replace("shard.parquet", "shard.duckdb")
    settings.write_text(given.replace("[data]", '[data]\nquery = "select * from t"'))
    with warm_parent() as parent:
        owner = serve(parent, settings)
        assert owner.stdout.readline().startswith("serving on port ")
        assert list(places.glob("copriv-*"))
        owner.send_signal(signal.SIGTERM)
        assert owner.wait(20) == 0
        owner.stop(0)
    assert not list(places.glob("copriv-*"))


@pytest.mark.long
def test_many_forks_that_end_at_once_are_all_told_of(tmp_path):
    with warm_parent() as parent:
        for _ in range(3):
            crowd = [
                parent.start(["--version"], folder=tmp_path, log=tmp_path / "log")
                for _ in range(40)
            ]
            assert [owner.wait(60) for owner in crowd] == [0] * len(crowd)
            for owner in crowd:
                owner.stop(0)


def test_a_fork_that_ends_just_before_its_parent_waits_is_told_of(tmp_path, monkeypatch):
    """It was told with the next request or end: of the last one `copriv simulate` never heard."""
    begin = subprocess.Popen

    def late(command, **options):
        return begin([sys.executable, "-c", LATE, command[-1]], **options)

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", late)
        parent = WarmParent()
    try:
        for _ in range(2):
            owner = parent.start(["--version"], folder=tmp_path, log=tmp_path / "log")
            assert owner.wait(20) == 0
            owner.stop(0)
    finally:
        parent.close()


def test_a_parent_says_nothing_of_ends_that_nobody_hears_of_any_more(tmp_path, capfd):
    """As where the learner was killed: a traceback of its owners' parent stood on its terminal."""
    with warm_parent() as parent:
        unheard = parent.start(["--version"], folder=tmp_path, log=tmp_path / "log")
        unheard._status.close()
        assert unheard.stdout.read() != ""
        owner = parent.start(["--version"], folder=tmp_path, log=tmp_path / "log")
        assert owner.wait(60) == 0
        owner.stop(0)
        unheard.stdout.close()
    assert capfd.readouterr().err == ""


def test_owners_beyond_the_first_thousand_handles_are_told_of():
    """Each takes two of the learner's, and some calls of the system take no handle beyond 1,023."""
    allow_open_files()
    (output, its_output), (status, its_status) = os.pipe(), os.pipe()
    high = fcntl.fcntl(status, fcntl.F_DUPFD_CLOEXEC, 2000)
    os.close(status)
    owner = StartedOwner(output, high)
    os.write(its_status, b"1\n")
    assert owner.poll() is None
    assert owner.wait(0.01) is None
    os.write(its_status, b"7\n")
    assert owner.wait() == 7
    for handle in (its_output, its_status):
        os.close(handle)
    owner.stop(0)


def test_forks_end_with_the_process_that_asked_for_them(owner_folder):
    with warm_parent() as parent:
        owner = serve(parent, owner_folder())
        assert owner.stdout.readline().startswith("serving on port ")
        pid = owner.pid
    wait_until(lambda: not is_alive(pid))
    owner.stop(0)


def test_a_parent_that_is_gone_is_an_owner_that_has_ended(owner_folder):
    parent = WarmParent()
    parent._process.kill()
    parent._process.wait()
    owner = serve(parent, owner_folder())
    assert owner.stdout.readline() == ""
    assert owner.wait(5) == -signal.SIGKILL
    owner.stop(0)
    parent.close()


def test_an_owner_whose_log_cannot_be_opened_leaves_no_handle_open(tmp_path):
    with warm_parent() as parent:
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(FileNotFoundError):
            parent.start(["--version"], folder=tmp_path, log=tmp_path / "none" / "log")
        assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("seconds", [0.0, 0.03, 0.1, 0.3])
def test_an_interrupt_while_it_imports_is_no_traceback_and_ends_nothing(seconds, tmp_path, capfd):
    """A Ctrl-C reaches all processes of a terminal, also one that has hardly begun."""
    with warm_parent() as parent:
        time.sleep(seconds)
        parent._process.send_signal(signal.SIGINT)
        owner = parent.start(["--version"], folder=tmp_path, log=tmp_path / "log")
        assert owner.wait(60) == 0
        owner.stop(0)
    assert capfd.readouterr().err == ""


def test_a_serving_owner_imports_nothing_that_it_does_not_use():
    code = (
        "import sys, importlib, owner.parent as parent\n"
        "[importlib.import_module(name) for name in parent.PRELOADED]\n"
        f"print(*sorted(set({UNUSED}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
