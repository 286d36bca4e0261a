"""Many points of an experiment, on all cores or on a cluster, that can be stopped and resumed.

A point is a name and the arguments of one call. Each result is a file of its own, written whole
or not at all; a point whose file is there is not computed again, unless another version of copriv
wrote it. A point that fails is recorded with its error, the others go on, and a resumed sweep tries
it once more.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import version
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import joblib

from common.blas import one_blas_thread
from common.errors import CoprivError, DoubtWarning, InputError
from common.files import make_folder, open_regular, write_or_refuse
from common.small_files import read_own
from common.stopping import interrupts_held
from common.texts import LONGEST_NOTE, printable
from common.thread_limit import need_threads
from common.trials import end_with
from learner.simulated.cluster import LostCall, computed_on

# More than the result of any point takes on the disk.
LARGEST_RESULT = 64 * 2**20
# Looked up at the start, as an upgrade changes the files, but not the program that computes.
VERSION = version("copriv")
# Joblib's own limit of processes.
LIMIT = "LOKY_MAX_CPU_COUNT"
ENDED = (
    "--jobs: a process that computed was ended, as where memory runs out; give fewer with --jobs, "
    "and type the command again"
)
OTHER_VERSION = (
    "a worker of the cluster returned something else than this version of copriv does; install the "
    "same version on all of them"
)
# Of a Python that begins: no file of the folder where it does is imported by accident.
SAFE_PATH = "PYTHONSAFEPATH"

# Itself, and the threads of its libraries and joblib's.
THREADS_OF_EACH = 4

Result = Mapping[str, Any]
Work = Callable[..., Result]


@dataclass(frozen=True)
class Failure:
    """A point that failed: what was said, and where in the code."""

    error: str
    trace: str


@dataclass(frozen=True)
class Sweep:
    """What a sweep came to.

    Args:
      results: What each point returned, by its name, in the order of the points.
      failures: The points that failed.
    """

    results: dict[str, Result] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Workers:
    """Who computes points.

    Args:
      jobs: Processes on this machine; -1 for one on each core, 1 for none beside this one.
      cluster: Address of a Dask scheduler that computes in place of this machine.
    """

    jobs: int = -1
    cluster: str | None = None

    def processes(self) -> int | None:
        """How many processes of this machine compute; None where a cluster does.

        Raises:
          InputError: The environment has no number where joblib takes its limit from.
        """
        if self.cluster is not None:
            return None
        try:
            joblib.cpu_count()
        except ValueError:
            limit = printable(os.environ.get(LIMIT, ""), 40)
            raise InputError(
                f"the environment has {LIMIT}={limit!r}: expected a whole number, the most "
                "processes that may compute; correct or unset it"
            ) from None
        return joblib.effective_n_jobs(self.jobs)


def run_sweep(
    work: Work,
    points: Mapping[str, tuple[Any, ...]],
    *,
    workers: Workers,
    folder: Path | None = None,
    fingerprint: Callable[..., str] = lambda *arguments: str(joblib.hash(arguments)),
    read: Callable[..., Result] = lambda kept, *arguments: kept,
    on_done: Callable[[int], None] = lambda done: None,
) -> Sweep:
    """Compute every point that is not on disk yet.

    Args:
      work: A function of a module, called with each point's arguments; it returns what JSON can
        hold.
      points: The arguments of each point by its name.
      workers: Who computes.
      folder: Where results are kept; None keeps none.
      fingerprint: A text that identifies a point's arguments: equal for equal ones.
      read: Makes a result of what was kept, given the point's arguments; it raises whatever it
        likes where the work returns nothing of the kind, and the point is computed again.
      on_done: Called with how many points are done.

    Raises:
      InputError: The cluster cannot be reached or went away, a process that computed was ended,
        the folder cannot be written, or the environment has no number where it limits processes.

    Warns:
      DoubtWarning: Another version of copriv computed points that are kept.
    """
    workers.processes()  # refuses before anything is written
    prints = {name: fingerprint(*arguments) for name, arguments in points.items()}
    done: dict[str, Result] = {}
    failures: dict[str, Failure] = {}

    def read_point(name: str, kept: Any) -> Result:
        return read(kept, *points[name])

    if folder is not None:
        make_folder(folder)
        done = _found(folder, prints, read_point)
    on_done(len(done))
    missing = {name: arguments for name, arguments in points.items() if name not in done}
    found = (
        _computed_here(work, missing, jobs=workers.jobs)
        if workers.cluster is None
        else _computed_there(work, missing, workers.cluster, read_point)
    )
    for name, result in found:
        if isinstance(result, Failure):
            failures[name] = result
        else:
            done[name] = result
        if folder is not None:
            _keep(folder, name, prints[name], result)
        on_done(len(done) + len(failures))
    ordered = {name: done[name] for name in points if name in done}
    return Sweep(results=ordered, failures=failures)


def _computed_here(
    work: Work, points: Mapping[str, tuple[Any, ...]], *, jobs: int
) -> Iterator[tuple[str, Result | Failure]]:
    """The results in the order in which they come."""
    # It is 1, too, where this machine lets nobody begin such processes.
    processes = joblib.effective_n_jobs(jobs)
    if processes == 1 or not points:
        yield from (_guarded(work, name, *points[name]) for name in points)
        return
    _need_processes(processes)
    calls = (joblib.delayed(_guarded)(work, name, *points[name]) for name in points)
    # Left to themselves they would wait five minutes for more of who was killed.
    ending = {"initializer": end_with, "initargs": (os.getpid(),)}
    with _safe_path(), joblib.parallel_config(backend="loky", inner_max_num_threads=1, **ending):
        # They end with this process. A terminal's Ctrl-C is theirs, too, and those that begin would
        # take it for an error. What Python's own tracker holds back it lets through for all.
        resource_tracker.ensure_running()
        found: Any = None
        try:
            with interrupts_held():
                found = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(calls)
            yield from found
        except BrokenExecutor:
            raise InputError(ENDED) from None
        except KeyboardInterrupt as stopped:
            # What was begun and is not waited for would be waited for at this process's end.
            if found is not None:
                with suppress(KeyboardInterrupt), _quiet_threads():
                    found.throw(stopped)
            raise


@cache
def _need_processes(count: int) -> None:
    """See, once, that this process and others may begin what they need: joblib may wait for ever.

    Raises:
      RuntimeError: They may not.
    """
    need_threads(THREADS_OF_EACH * (1 + count))


def _computed_there(
    work: Work,
    points: Mapping[str, tuple[Any, ...]],
    cluster: str,
    read: Callable[[str, Any], Result],
) -> Iterator[tuple[str, Result | Failure]]:
    """The same on a cluster, whose workers may have another version, or end."""
    if points:
        # Each argument by itself: large arrays that points share are then sent once.
        calls = {name: (work, name, *arguments) for name, arguments in points.items()}
        for name, said in computed_on(cluster, _guarded, calls):
            yield name, _checked(said, partial(read, name))


def _checked(said: Any, read: Callable[[Any], Result]) -> Result | Failure:
    """What a worker returned, or how it failed."""
    if isinstance(said, LostCall):
        return Failure(error=said.reason, trace="")
    try:
        _, result = said
        if isinstance(result, Failure):
            return Failure(error=printable(result.error, LONGEST_NOTE), trace=str(result.trace))
        # As it would be read from its file.
        return read(json.loads(json.dumps(result)))
    except Exception:  # whatever another program makes of the work
        return Failure(error=OTHER_VERSION, trace=traceback.format_exc())


@contextmanager
def _quiet_threads() -> Iterator[None]:
    """A thread of joblib's that has just begun may fail over what is taken from it."""
    before, threading.excepthook = threading.excepthook, lambda _: None
    try:
        yield
    finally:
        threading.excepthook = before


@contextmanager
def _safe_path() -> Iterator[None]:
    """Processes that begin meanwhile import nothing from the folder where a command was typed."""
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = before


@one_blas_thread()
def _guarded(work: Work, name: str, *arguments: Any) -> tuple[str, Result | Failure]:
    """One point; its failure is a result too."""
    try:
        return name, work(*arguments)
    except Exception as error:  # recorded, and the other points go on
        is_sentence = isinstance(error, CoprivError)
        message = str(error) if is_sentence else f"{type(error).__name__}: {error}"
        return name, Failure(error=message, trace=traceback.format_exc())


def _found(
    folder: Path, prints: Mapping[str, str], read: Callable[[str, Any], Result]
) -> dict[str, Result]:
    """Results on disk of points with the same arguments."""
    found, others = {}, False
    for name, expected in prints.items():
        # What is not there, damaged or changed is computed again.
        with suppress(Exception), open_regular(folder / f"{name}.json") as file:
            kept = json.loads(file.read(LARGEST_RESULT))
            if (kept["arguments"], kept["checksum"]) != (expected, _checksum(kept["result"])):
                continue
            if kept.get("version") == VERSION:
                found[name] = read(name, kept["result"])
            else:
                others = True
    if others:
        warnings.warn(
            f"{folder}: another version of copriv computed points that are kept there; this one "
            f"({VERSION}) computes them anew",
            DoubtWarning,
            stacklevel=3,
        )
    return found


def holds_results(folder: Path) -> bool:
    """Whether a folder of :func:`run_sweep` keeps what a point came to, and not failures alone."""
    for path in folder.glob("*.json"):
        try:
            kept = json.loads(read_own(path, most=LARGEST_RESULT))
        except (ValueError, RecursionError, OSError):
            continue
        if isinstance(kept, dict) and "result" in kept:
            return True
    return False


def _checksum(result: Result) -> str:
    """A checksum that shows whether a result was changed since it was written.

    >>> _checksum({"loss": (0.5,)}) == _checksum({"loss": [0.5]}) != _checksum({"loss": [0.25]})
    True
    """
    return hashlib.sha256(json.dumps(result).encode()).hexdigest()


def _keep(folder: Path, name: str, arguments: str, result: Result | Failure) -> None:
    """Write one point whole or not at all."""
    kept: dict[str, Any] = {"point": name, "version": VERSION, "arguments": arguments}
    if isinstance(result, Failure):
        kept |= {"error": result.error, "trace": result.trace}
    else:
        kept |= {"result": result, "checksum": _checksum(result)}
    write_or_refuse(folder / f"{name}.json", json.dumps(kept, indent=1))
