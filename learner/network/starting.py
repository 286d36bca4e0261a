"""Owners on this machine that start while the learner does something else."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from common.errors import CoprivError, InputError, OwnerFailedError, UnreachableError
from common.terms import Enrollment, StudyTerms
from learner.network.grpc_owner import GrpcOwner
from learner.network.warm_parent import StartedOwner, WarmParent

STOP_SECONDS = 10.0
START_LINE = "serving on port "
ATTACH_LINE = "attaching to the learner"


class OwnerProcess:
    """An owner's process on this machine, which has started or is about to.

    Args:
      name: The owner's name.
      folder: Its folder, where its log is.
      arguments: Those of ``copriv-owner``.
    """

    def __init__(self, name: str, folder: Path, arguments: Sequence[str]) -> None:
        self.name = name
        self.process: StartedOwner | None = None
        self._folder = folder
        self._arguments = arguments
        self._port: Future[int] = Future()

    @property
    def port(self) -> int:
        """Where it serves, once it does; 0 where it binds none.

        Raises:
          InputError: It did not start; the sentence is the owner's.
          OwnerFailedError: The same, for no fault of what it was given.
        """
        return self._port.result()

    @property
    def address(self) -> str:
        """Where it serves, once it does."""
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """What it says."""
        return self._folder / "owner.log"

    @property
    def end(self) -> str | None:
        """What ended it, in words, and where its reason stands; None while it runs."""
        status = None if self.process is None else self.process.poll()
        if status is None:
            return None
        what = f"exit status {status}" if status >= 0 else f"signal {-status}"
        why = ", as where memory runs out" if status == -signal.SIGKILL else ""
        return f"it ended with {what}{why}; what it said is in {self.log}"

    def begin(self, parent: WarmParent) -> None:
        """Have it forked."""
        folder = self._folder.absolute()
        try:
            self.process = parent.start(self._arguments, folder=folder, log=self.log)
        except OSError as error:
            sentence = f"owner {self.name} did not start: {error.strerror}"
            self._port.set_exception(OwnerFailedError(sentence))
        except Exception as error:
            # As where memory runs out: whoever starts it goes on with the next.
            self._port.set_exception(error)

    def hear(self) -> None:
        """Wait until it has started, or has ended instead."""
        if self._port.done():
            return
        try:
            self._port.set_result(self._printed())
        except Exception as error:
            self._port.set_exception(error)

    def _printed(self) -> int:
        """The port of its first line; an owner that ends instead has logged why."""
        process = self.process
        line = "" if process is None else process.stdout.readline()
        if line.startswith(ATTACH_LINE):
            return 0
        if line.startswith(START_LINE):
            return int(line.removeprefix(START_LINE))
        status = None if process is None else process.wait()
        log = self.log
        lines = log.read_text(encoding="utf-8").strip().splitlines() if log.exists() else []
        nothing = f"exit status {status}, and {log} says nothing; is the disk full?"
        sentence = lines[-1].removeprefix("copriv-owner: ") if lines else nothing
        if lines and status is not None and status < 0:
            sentence = self.end or ""  # its last line is of before, and no reason
        kind = InputError if status == InputError.exit_status else OwnerFailedError
        raise kind(f"owner {self.name} did not start: {sentence}")


class StartingOwner(GrpcOwner):
    """An owner that is about to start: whoever calls it first waits until it serves.

    Every call may also raise what :attr:`OwnerProcess.port` does.

    Args:
      process: The owner's process.
      deadline: Seconds for one call.
    """

    def __init__(self, process: OwnerProcess, *, deadline: float) -> None:
        super().__init__(process.name, lambda: process.address, deadline=deadline)
        self._process = process

    def enroll(self, terms: StudyTerms) -> Enrollment:
        """Agree on a study; the same terms again return the same enrolment."""
        try:
            return super().enroll(terms)
        except OwnerFailedError as error:
            if "_channels" not in vars(self):  # it did not start, and says why
                raise
            raise OwnerFailedError(f"{error}: {self._process.log}") from None

    def _named(self, kind: type[CoprivError], detail: str) -> CoprivError:
        """An error that names the owner; who is not reached since it ended is not started again."""
        end = self._process.end if kind is UnreachableError else None
        return super()._named(kind, end or detail)


@contextmanager
def starting(owners: Sequence[OwnerProcess], parent: WarmParent) -> Iterator[None]:
    """Start owners in the background, and stop all that have begun at the end.

    A few start at the same time: hundreds would share the processors with the learner, and with
    each other.
    """
    over = threading.Event()
    starter = threading.Thread(
        target=_start_in_turn, args=(owners, parent, over), name="starter", daemon=True
    )
    starter.start()
    try:
        yield
    finally:
        over.set()
        terminated = _terminate(owners)
        starter.join(STOP_SECONDS)
        _terminate([owner for owner in owners if owner not in terminated])
        for owner in owners:
            if owner.process is not None:
                owner.process.stop(STOP_SECONDS)


def _start_in_turn(
    owners: Sequence[OwnerProcess], parent: WarmParent, over: threading.Event
) -> None:
    """Start one owner after the other, each when one of those before it serves."""
    # One waits for the disk while another computes.
    at_once = 2 * len(os.sched_getaffinity(0))
    begun: deque[OwnerProcess] = deque()
    for owner in owners:
        if len(begun) == at_once:
            begun.popleft().hear()
        if not over.is_set():
            owner.begin(parent)
        begun.append(owner)
    for owner in begun:
        owner.hear()


def _terminate(owners: Sequence[OwnerProcess]) -> set[OwnerProcess]:
    """Ask those that have begun to drain."""
    begun = {owner: owner.process for owner in owners if owner.process is not None}
    for process in begun.values():
        process.send_signal(signal.SIGTERM)
    return set(begun)
