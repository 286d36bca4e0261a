"""Where no further thread or process begins, a command ends in a sentence, whoever needs it."""

import _thread
import json
import os
import socket
import subprocess
import sys

import pytest
from waiting import wait_until

from common.channels import need_grpc, open_channel
from common.errors import OwnerFailedError
from common.thread_limit import FEWEST, NO_MORE_THREADS, NO_THREAD_STATUS, need_threads
from learner.network.attachment_server import AttachmentServer
from learner.network.starting import OwnerProcess
from learner.network.warm_parent import StartedOwner
from learner.simulated import sweeps
from learner.simulated.sweeps import Workers, run_sweep
from owner.parent import fork_for_each
from owner.ports import Port

NO_THREAD = RuntimeError("can't start new thread")
NO_FORK = BlockingIOError(11, "Resource temporarily unavailable")


def ended(command, **environment):
    said = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    return said.returncode, said.stderr


@pytest.fixture
def most_threads(monkeypatch):
    """Lets so many of the threads that begin from now on run at once, as a pids limit does."""
    begin, running = _thread.start_new_thread, []

    def limit(most):
        def begun(run, arguments):
            if len(running) == most:
                raise RuntimeError("can't start new thread")
            running.append(run)

            def to_its_end():
                run(*arguments)
                running.remove(run)

            begin(to_its_end, ())

        monkeypatch.setattr(_thread, "start_new_thread", begun)
        return running

    return limit


def test_all_threads_that_are_needed_are_tried_at_once_and_end(most_threads):
    running = most_threads(8)
    need_threads(8)
    wait_until(lambda: not running)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        need_threads(9)
    wait_until(lambda: not running)


@pytest.mark.parametrize("command", ["", "    os.fork()\n"])
def test_a_command_that_may_begin_nothing_is_one_sentence(command):
    thing = "os.fork" if command else "_thread.start_new_thread"
    error = NO_FORK if command else NO_THREAD
    program = (
        "import _thread, os, click\n"
        "from common.command import run_command\n"
        "@click.command()\n"
        "def main():\n"
        f"    pass\n{command}"
        f"def refused(*_): raise {error!r}\n"
        f"{thing} = refused\n"
        "run_command(main, 'copriv')\n"
    )
    said = ended([sys.executable, "-c", program])
    assert said == (NO_THREAD_STATUS, f"copriv: {NO_MORE_THREADS}\n")


def test_a_library_that_presses_ctrl_c_for_want_of_a_thread_is_no_user_who_stops(tmp_path):
    """As OpenBLAS does while it is imported."""
    (tmp_path / "late.py").write_text(
        "import _thread, signal\n"
        f"def refused(*_): raise {NO_THREAD!r}\n"
        "_thread.start_new_thread = refused\n"
        "signal.raise_signal(signal.SIGINT)\n"
    )
    program = "from common.start import start; start('copriv', 'late')"
    said = ended(
        [sys.executable, "-c", program], PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path])
    )
    assert said == (NO_THREAD_STATUS, f"copriv: {NO_MORE_THREADS}\n")


def test_grpc_is_begun_only_where_its_threads_may_begin(most_threads):
    """It would end the process by a signal."""
    need_grpc.cache_clear()
    most_threads(FEWEST - 1)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        open_channel("127.0.0.1:1", None, ())
    with pytest.raises(RuntimeError, match="can't start new thread"):
        Port(lambda server: None, "listen", "127.0.0.1:0", identity=None, options=())
    with pytest.raises(RuntimeError, match="can't start new thread"):
        AttachmentServer(["a"], "127.0.0.1:0", deadline=1, patience=1)


def test_processes_of_a_sweep_begin_only_where_their_threads_may(most_threads, tmp_path):
    """Joblib would wait for ever."""
    sweeps._need_processes.cache_clear()
    most_threads(sweeps.THREADS_OF_EACH * 3 - 1)
    points = {f"p{i}": (i,) for i in range(3)}
    with pytest.raises(RuntimeError, match="can't start new thread"):
        run_sweep(dict, points, workers=Workers(jobs=2), folder=tmp_path)
    assert not [*tmp_path.iterdir()]


def test_an_owner_that_cannot_be_forked_says_so(monkeypatch, tmp_path):
    class Parent:
        """The parent, in this process."""

        def start(self, arguments, *, folder, log):
            here, there = socket.socketpair()
            output, its_output = os.pipe()
            status, its_status = os.pipe()
            content = json.dumps({"arguments": arguments, "folder": str(folder)}).encode()
            with here, there, log.open("ab") as errors:
                handles = [os.open(os.devnull, os.O_RDONLY), its_output, os.dup(errors.fileno())]
                socket.send_fds(here, [len(content).to_bytes(4, "little")], [*handles, its_status])
                here.sendall(content)
                for handle in (*handles, its_status):
                    os.close(handle)
                here.shutdown(socket.SHUT_WR)
                assert fork_for_each(there) is None
            return StartedOwner(output, status)

    def refused():
        raise NO_FORK

    monkeypatch.setattr(os, "fork", refused)
    owner = OwnerProcess("a", tmp_path, ["serve"])
    owner.begin(Parent())
    owner.hear()
    with pytest.raises(OwnerFailedError) as told:
        _ = owner.port
    assert str(told.value) == f"owner a did not start: {NO_MORE_THREADS}"
