"""Owners as processes on this machine: real sockets, real ledgers, evaluation allowed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import tomli_w

from common.errors import InputError, OwnerFailedError
from common.files import write_whole
from common.tables import TableSource
from learner.planning.sections import OwnerEntry
from learner.planning.settings import StudySettings

__all__ = ["OwnerProcess", "owner_processes", "table_source"]

STOP_SECONDS = 10.0
START_LINE = "serving on port "
ATTACH_LINE = "attaching to the learner"


@dataclass(frozen=True)
class OwnerProcess:
    """A running owner on this machine; port 0 means that it binds none."""

    name: str
    process: subprocess.Popen[str]
    port: int
    folder: Path

    @property
    def address(self) -> str:
        """Where it serves."""
        return f"127.0.0.1:{self.port}"


def table_source(settings: StudySettings, entry: OwnerEntry, *, base: Path) -> TableSource:
    """An owner's table with an absolute path.

    Raises:
      InputError: The study names no table for it.
    """
    source = entry.data or TableSource()
    path = source.path or settings.data.path
    if path is None:
        raise InputError(
            f"owners: {entry.name} has no table; give data.path, or data = {{ path = ... }} there"
        )
    return source.model_copy(update={"path": (base / path).resolve()})


@contextmanager
def owner_processes(
    settings: StudySettings,
    *,
    base: Path,
    run_folder: Path,
    insecure_noise_seed: int | None,
    allow_private_bounds: bool = False,
    learner: str | None = None,
    studies: int = 1,
) -> Iterator[Sequence[OwnerProcess]]:
    """Start every owner of the study, and stop them all at the end, whatever happens.

    Each has its own folder in the run folder: settings, ledger, log. With the address of a
    ``learner`` they connect to it instead of serving at ports. Their lifetime budgets are for
    this number of ``studies``. An owner that is the learner gets no process.

    Raises:
      InputError: An owner did not start; the sentence is the owner's.
    """
    starting = []
    try:
        for index, entry in enumerate(settings.owners):
            if entry.name == settings.learner.own:
                continue
            folder = run_folder / "owners" / entry.name
            folder.mkdir(parents=True, exist_ok=True)
            source = table_source(settings, entry, base=base)
            epsilon = entry.epsilon or settings.privacy.epsilon
            write_whole(
                folder / "owner.toml",
                owner_toml(
                    entry,
                    source,
                    epsilon=epsilon,
                    kappa=settings.privacy.kappa,
                    studies=studies,
                    clock_seed=_clock_seed(settings, index),
                ),
            )
            seed = None if insecure_noise_seed is None else insecure_noise_seed + index
            process = _start(
                folder, seed, learner=learner, allow_private_bounds=allow_private_bounds
            )
            starting.append((entry.name, folder, process))
        yield [
            OwnerProcess(name, process, _port(name, process, folder, learner), folder)
            for name, folder, process in starting
        ]
    finally:
        _stop([process for _, _, process in starting])


def owner_toml(
    entry: OwnerEntry,
    source: TableSource,
    *,
    epsilon: Fraction,
    kappa: int,
    studies: int,
    clock_seed: int | None,
) -> str:
    """The settings file of an owner that agrees to exactly this study, so many times."""
    attach: dict[str, float] = {"clock_rate": entry.clock_rate}
    return tomli_w.dumps(
        {
            "name": entry.name,
            "listen": "127.0.0.1:0",
            "ledger": "ledger.sqlite",
            "features": "../../features.json",
            "data": source.model_dump(mode="json", exclude_defaults=True),
            "policy": {
                "epsilon_per_study": str(epsilon),
                "epsilon_lifetime": str(epsilon * studies),
                "kappa": kappa,
            },
            "listening": {"probability": entry.listening},
            "attach": attach if clock_seed is None else attach | {"seed": clock_seed},
        }
    )


def _clock_seed(settings: StudySettings, index: int) -> int | None:
    """The seed of an owner's own clock, so that a seeded study repeats."""
    if settings.seed is None:
        return None
    return int(np.random.SeedSequence([settings.seed, index]).generate_state(1)[0])


def _start(
    folder: Path, seed: int | None, *, learner: str | None, allow_private_bounds: bool
) -> subprocess.Popen[str]:
    """One owner process; it ends by itself when this process ends."""
    what = ["serve"] if learner is None else ["attach", "--learner", learner]
    command = [sys.executable, "-m", "owner.cli", *what, "owner.toml", "--with-parent"]
    if seed is not None:
        command += ["--insecure-noise-seed", str(seed)]
    if allow_private_bounds:
        command.append("--allow-private-bounds")
    environment: Mapping[str, str] = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    with (folder / "owner.log").open("a", encoding="utf-8") as log:
        return subprocess.Popen(  # noqa: S603
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )


def _port(name: str, process: subprocess.Popen[str], folder: Path, learner: str | None) -> int:
    """Wait for the line with the port, 0 for none; an owner that ends instead has logged why."""
    line = process.stdout.readline() if process.stdout else ""
    if learner is not None and line.startswith(ATTACH_LINE):
        return 0
    if line.startswith(START_LINE):
        return int(line.removeprefix(START_LINE))
    status = process.wait()
    lines = (folder / "owner.log").read_text(encoding="utf-8").strip().splitlines()
    sentence = lines[-1].removeprefix("copriv-owner: ") if lines else f"exit status {status}"
    kind = InputError if status == InputError.exit_status else OwnerFailedError
    raise kind(f"owner {name} did not start: {sentence}")


def _stop(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Ask all to drain, wait, and end those that do not."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
