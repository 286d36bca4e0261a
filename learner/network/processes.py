"""Owners as processes on this machine: real sockets, real ledgers, evaluation allowed."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import tomli_w

from common.config import with_absolute_paths
from common.errors import InputError, OwnerFailedError
from common.features import FeatureMap, with_target
from common.tables import TableSource, placed, read_tables
from common.terms import Records
from learner.network.warm_parent import StartedOwner, WarmParent
from learner.planning.sections import OwnerEntry
from learner.planning.settings import StudySettings, has_table

__all__ = ["OwnerProcess", "owner_processes", "owner_tables", "read_owner", "table_source"]

STOP_SECONDS = 10.0
START_LINE = "serving on port "
ATTACH_LINE = "attaching to the learner"


@dataclass
class OwnerProcess:
    """An owner on this machine, which has started or is about to."""

    name: str
    process: StartedOwner
    folder: Path
    _port: int | None = None

    @property
    def port(self) -> int:
        """Where it serves, once it does; 0 where it binds none. One thread asks at a time.

        Raises:
          InputError: It did not start; the sentence is the owner's.
          OwnerFailedError: The same, for no fault of what it was given.
        """
        if self._port is None:
            self._port = _port(self.name, self.process, self.folder)
        return self._port

    @property
    def address(self) -> str:
        """Where it serves, once it does."""
        return f"127.0.0.1:{self.port}"


def table_source(settings: StudySettings, entry: OwnerEntry, *, base: Path) -> TableSource:
    """An owner's table, with absolute paths.

    Raises:
      InputError: The study names no table for it.
    """
    if not has_table(settings, entry):
        raise InputError(
            f"owners: {entry.name} has its table elsewhere; to play it here, give data = "
            "{ path = ... } there"
        )
    source = placed(entry.data or TableSource(), settings.data)
    if source.path is None and source.database is None:
        raise InputError(
            f"owners: {entry.name} has no table; give data.path, or data = {{ path = ... }} there"
        )
    return with_absolute_paths(source, base)


def read_owner(
    settings: StudySettings, entry: OwnerEntry, feature_map: FeatureMap, *, base: Path
) -> Records:
    """The records of an owner whose table is here, under the feature map.

    Raises:
      InputError: The table cannot be used, or records have no target and are not left out.
    """
    (table,) = owner_tables(settings, [entry], feature_map, base=base)
    return feature_map.apply(table, where=entry.name)


def owner_tables(
    settings: StudySettings,
    entries: Sequence[OwnerEntry],
    feature_map: FeatureMap,
    *,
    base: Path,
) -> list[pd.DataFrame]:
    """The raw records of owners whose tables are here, with the columns that the map needs.

    Raises:
      InputError: A table cannot be used, or records have no target and are not left out.
    """
    sources = [table_source(settings, entry, base=base) for entry in entries]
    tables = []
    for entry, source, raw in zip(
        entries,
        sources,
        read_tables(sources, base=base, columns=feature_map.columns_needed),
        strict=True,
    ):
        keep = with_target(raw, feature_map, source.missing_target, where=entry.name)
        tables.append(raw if keep.all() else raw[keep].reset_index(drop=True))
    return tables


@contextmanager
def owner_processes(
    settings: StudySettings,
    *,
    base: Path,
    run_folder: Path,
    parent: WarmParent,
    insecure_noise_seed: int | None,
    allow_private_bounds: bool = False,
    learner: str | None = None,
    studies: int = 1,
) -> Iterator[Sequence[OwnerProcess]]:
    """Begin to start every owner of the study, and stop them all at the end, whatever happens.

    They are forks of a warm ``parent``, each a process with its own folder in the run folder:
    settings, ledger, log. With the address of a
    ``learner`` they connect to it instead of serving at ports. Their lifetime budgets are for
    this number of ``studies``. An owner that is the learner gets no process.

    Whether an owner has started is known where its port is asked for.
    """
    starting: list[OwnerProcess] = []
    try:
        for index, entry in enumerate(settings.owners):
            if entry.name == settings.learner.own:
                continue
            folder = run_folder / "owners" / entry.name
            folder.mkdir(parents=True)
            source = table_source(settings, entry, base=base)
            epsilon = entry.epsilon or settings.privacy.epsilon
            content = owner_toml(
                entry,
                source,
                epsilon=epsilon,
                kappa=settings.privacy.kappa,
                studies=studies,
                clock_seed=_clock_seed(settings, index),
            )
            # Nobody looks for it after a crash of the machine: a simulation does not go on.
            (folder / "owner.toml").write_text(content, encoding="utf-8")
            seed = None if insecure_noise_seed is None else insecure_noise_seed + index
            process = _start(
                parent, folder, seed, learner=learner, allow_private_bounds=allow_private_bounds
            )
            starting.append(OwnerProcess(entry.name, process, folder))
        yield starting
    finally:
        _stop([owner.process for owner in starting])


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
    parent: WarmParent,
    folder: Path,
    seed: int | None,
    *,
    learner: str | None,
    allow_private_bounds: bool,
) -> StartedOwner:
    """One owner process; it ends by itself when this process ends."""
    what = ["serve"] if learner is None else ["attach", "--learner", learner]
    arguments = [*what, "owner.toml", "--with-parent"]
    if seed is not None:
        arguments += ["--insecure-noise-seed", str(seed)]
    if allow_private_bounds:
        arguments.append("--allow-private-bounds")
    return parent.start(arguments, folder=folder.absolute(), log=folder / "owner.log")


def _port(name: str, process: StartedOwner, folder: Path) -> int:
    """Wait for the line with the port, 0 for none; an owner that ends instead has logged why."""
    line = process.stdout.readline()
    if line.startswith(ATTACH_LINE):
        return 0
    if line.startswith(START_LINE):
        return int(line.removeprefix(START_LINE))
    status = process.wait()
    lines = (folder / "owner.log").read_text(encoding="utf-8").strip().splitlines()
    sentence = lines[-1].removeprefix("copriv-owner: ") if lines else f"exit status {status}"
    kind = InputError if status == InputError.exit_status else OwnerFailedError
    raise kind(f"owner {name} did not start: {sentence}")


def _stop(processes: Sequence[StartedOwner]) -> None:
    """Ask all to drain, wait, and end those that do not."""
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        process.stop(STOP_SECONDS)
