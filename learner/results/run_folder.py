"""The folder a run leaves: settings, feature map, trace, model."""

from __future__ import annotations

import io
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tomli_w

from common.arrays import Matrix, Vector
from common.cells import holds_several, written
from common.config import check_settings, load_settings, with_absolute_paths
from common.errors import InputError, StoppedError
from common.features import FeatureMap, file_text
from common.files import empty_folder, is_empty, open_regular, unwritten, write_or_refuse
from common.texts import named
from learner.algorithms.clocks import Tick
from learner.planning.guard import NotBegunError
from learner.planning.settings import StudySettings
from learner.training.runner import Applied

# Where a run goes for which no folder is asked.
RUNS = Path("runs")
SETTINGS, JOURNAL = "study.toml", "journal.sqlite"
OTHER = "give the folder of a finished run"
EACH_LEARNS = "each-learns.json"
# By a file of theirs what other folders hold, and what to do.
NO_RUNS = {
    "forecast.json": "a forecast and no run; give the folder of a run, or open forecast.html there",
    "sweep.parquet": "a sweep and no run; give the folder of a run, or open sweep.html there",
    EACH_LEARNS: "a run of each owner, in folders of their names; give one of these, or several",
}
# What a run that goes on may have otherwise, beside its owners' addresses.
MAY_CHANGE = {"guard", "network", "tls"}
# Where a simulation keeps what its owners left: nothing if they were parts of its own process.
OWNERS = "owners"
PACKAGES = ("copriv", "grpcio", "numpy", "opendp", "pandas", "protobuf")
# Looked up at the start: an upgrade in mid-run replaces the files, but not the program that runs.
VERSIONS = {package: version(package) for package in PACKAGES}
# The columns of ``trace.parquet``, which are there even if nobody answered.
COLUMNS = {
    "k": "int64",
    "time": "float64",
    "owner": "object",
    "sequence": "int64",
    "wall_seconds": "float64",
    "theta": "object",
}
# Of which run a trace is, in what pandas keeps beside the columns.
STUDY_ID = "study_id"


@dataclass
class Trace:
    """What happened at each communication, for ``trace.parquet``."""

    names: Sequence[str]
    rows: list[Applied] = field(default_factory=list)

    def append(self, applied: Applied) -> None:
        """Keep one communication."""
        self.rows.append(applied)

    def central_models(self, num_features: int) -> Matrix:
        """The central model after each communication, shape (T, p); T may be 0."""
        models = [row.central_model for row in self.rows]
        return np.reshape(np.array(models, dtype=np.float64), (len(models), num_features))

    def ticks(self) -> list[Tick]:
        """The ticks that were answered, by whom they were."""
        return [Tick(row.entry.time, tuple(sorted(row.entry.responses))) for row in self.rows]

    def table(self, relative_fitness: Vector | None) -> pd.DataFrame:
        """One row for each response: k, time, owner, sequence, wall seconds, model."""
        rows = [
            {
                "k": row.k,
                "time": row.entry.time,
                "owner": self.names[owner],
                "sequence": sequence,
                "wall_seconds": row.entry.wall_seconds,
                "theta": row.central_model,
            }
            for row in self.rows
            for owner, (sequence, _) in row.entry.responses.items()
        ]
        table = pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)
        if relative_fitness is not None:
            table["relative_fitness"] = relative_fitness[table["k"].to_numpy() - 1]
        return table


def run_of(folder: Path, settings: StudySettings | None, *, base: Path) -> StudySettings | None:
    """The settings to continue a run with; None if nothing was begun in the folder.

    Args:
      folder: The run folder.
      settings: The study to continue; None takes the run's settings.
      base: The folder of the given study.

    Raises:
      InputError: Nothing was begun and no study is given, or the run is of another study.
    """
    if not (folder / SETTINGS).is_file():
        if settings is None:
            raise InputError(
                f"{_no_run(folder)}, or type copriv train STUDY.toml --resume "
                f"{shlex.quote(str(folder))} to start one"
            )
        return None
    begun = settings_of_run(folder)
    if settings is None:
        return begun
    given = _as_run(settings, base)
    others = list(_others(_fixed(given), _fixed(_as_run(begun, folder))))
    if others:
        raise InputError(
            f"{folder}: the run was begun with other settings ({named(others)}); set these as they "
            "were, perhaps by --set, leave out STUDY.toml to go on with all of them, or give "
            "another folder (only addresses, guard, [network] and [tls] may change)"
        )
    return check_settings(StudySettings, given, where=str(folder / SETTINGS))


def settings_of_run(folder: Path) -> StudySettings:
    """The settings with which a run was begun.

    Raises:
      InputError: None was begun in the folder, or its journal is lost.
    """
    if not (folder / SETTINGS).is_file():
        raise InputError(_no_run(folder))
    # Without a journal nobody knows what was asked: a run that went on would charge it again.
    if not is_begun(folder) and not (folder / "summary.json").is_file():
        raise InputError(
            f"{folder}: holds {SETTINGS}, but no {JOURNAL}: it is not the folder of a run, or its "
            "journal was lost; give the folder of a run, or put its journal back"
        )
    return load_settings(StudySettings, folder / SETTINGS)


def _no_run(folder: Path) -> str:
    """That a folder holds nothing of a run."""
    return f"{folder}: no run was started there; give the folder of a run"


def _fixed(table: dict[str, Any]) -> dict[str, Any]:
    """What a run cannot change once it has begun."""
    owners = [{k: v for k, v in owner.items() if k != "address"} for owner in table["owners"]]
    return {k: v for k, v in table.items() if k not in MAY_CHANGE} | {"owners": owners}


def _others(one: Mapping[str, Any], other: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """The keys that only one of two tables has, or whose values differ.

    >>> list(_others({"seed": 1, "model": {"loss": "huber", "delta": 2}}, {"model": {"delta": 3}}))
    ['model.delta', 'model.loss', 'seed']
    """
    for key in sorted({*one, *other}):
        ours, theirs = one.get(key), other.get(key)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            yield from _others(ours, theirs, f"{above}{key}.")
        elif ours != theirs:
            yield f"{above}{key}"


def is_begun(folder: Path) -> bool:
    """Whether a run was begun there: with its settings, all that going on needs is there.

    A study that was not run yet is a folder with its settings, too.
    """
    return (folder / SETTINGS).is_file() and (folder / JOURNAL).is_file()


def create_run_folder(out: Path | None, *, name: str, trains: bool = False) -> Path:
    """A new folder: the one asked for, or ``runs/NAME-DATE-TIME``.

    Args:
      out: The folder asked for.
      name: What another one's name begins with.
      trains: Whether a run in it may go on later.

    Raises:
      InputError: It exists and is not empty, or cannot be made.
    """
    folder = out or RUNS / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    try:
        if out is None:
            return _made(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if not is_empty(folder):
            there = _what_is_there(folder, trains=trains)
            raise InputError(f"{folder}: {there}; give another one with --out")
    except OSError as error:
        raise unwritten(
            error,
            f"{folder}: the run folder cannot be made ({error.strerror}); give another with --out",
        ) from None
    return folder


def _made(folder: Path) -> Path:
    """A folder that nobody had: of commands that begin in the same second each gets its own."""
    numbered, serial = folder, 1
    # By itself: where it is a link that leads nowhere, no other name has a place either.
    folder.parent.mkdir(parents=True, exist_ok=True)
    while True:
        try:
            numbered.mkdir()
            return numbered
        except FileExistsError:
            serial += 1
            numbered = folder.with_name(f"{folder.name}-{serial}")


def _what_is_there(folder: Path, *, trains: bool) -> str:
    """What a folder that is not empty holds, and how to go on with that."""
    simulated = (folder / OWNERS).is_dir()
    if not trains or simulated or not is_begun(folder) or (folder / "summary.json").is_file():
        return "the run folder is not empty"
    again = f"copriv train --resume {shlex.quote(str(folder))}"
    return (
        f"a run was begun there; go on with {again} (STUDY.toml before --resume where an owner's "
        "address has changed)"
    )


@contextmanager
def new_run_folder(out: Path | None, *, name: str, trains: bool = False) -> Iterator[Path]:
    """A new folder for a run, which leaves nothing if it is stopped while no owner knows of it.

    Raises:
      InputError: As :func:`create_run_folder` says.
    """
    # Path.exists raises where this user may not look.
    was_there = os.path.exists(out or RUNS)
    folder = create_run_folder(out, name=name, trains=trains)
    try:
        yield folder
    except (NotBegunError, KeyboardInterrupt, StoppedError) as error:
        # What was stopped by hand before it began could not go on.
        kept = "summary.json" if isinstance(error, NotBegunError) else SETTINGS
        if not any(folder.rglob(kept)):
            empty_folder(folder, keep=out is not None and was_there)
            if out is None and not was_there:
                with suppress(OSError):
                    RUNS.rmdir()
        raise


def write_settings(path: Path, settings: StudySettings, *, base: Path) -> None:
    """The study as it was run, overrides included, with absolute paths to its tables."""
    write_or_refuse(path, tomli_w.dumps(_as_run(settings, base)))


def _as_run(settings: StudySettings, base: Path) -> dict[str, Any]:
    """The study as a table that can be loaded again from anywhere, defaults included."""
    settings = with_absolute_paths(settings, base)
    table = settings.model_dump(mode="json", exclude_none=True)
    # A saved map goes with none of the settings for fitting one, not even with their defaults.
    table["features"] = settings.features.model_dump(
        mode="json", exclude_none=True, exclude_unset=True
    )
    return table


def write_features(path: Path, feature_map: FeatureMap) -> None:
    """The feature map as it was agreed on; a resumed run must propose the same."""
    write_or_refuse(path, file_text(feature_map))


def write_table(path: Path, table: pd.DataFrame, *, mode: int | None = None) -> None:
    """Write a table as Parquet whole or not at all."""
    write_or_refuse(path, parquet_bytes(table), mode=mode)


def run_of_trace(path: Path) -> str | None:
    """The id of the run that a trace is of; None where it does not say so, or cannot be read."""
    import pyarrow.parquet as pq  # noqa: PLC0415 (keeps --help quick)

    try:
        with open_regular(path) as file:
            noted = pq.read_schema(file).pandas_metadata["attributes"][STUDY_ID]
    except Exception:  # Libraries have many names for a file that is no table.
        return None
    return str(noted)


def parquet_bytes(table: pd.DataFrame) -> bytes:
    """A table as a Parquet file has it: of cells that no type of Parquet holds their texts."""
    mixed = [name for name, column in table.items() if not _is_of_one_kind(column)]
    made = io.BytesIO()
    texts = {str(name): table[name].map(_text) for name in mixed}
    table.assign(**texts).to_parquet(made, index=False)
    return made.getvalue()


def _text(cell: object) -> str | None:
    """A cell's text; of several values in one cell, what a CSV file has."""
    return str(cell) if holds_several(cell) else written(cell)


def _is_of_one_kind(column: pd.Series) -> bool:
    """Whether one type of Parquet holds all cells, as it need not where a database had them."""
    import pyarrow as pa  # noqa: PLC0415 (keeps --help quick)

    if column.dtype != np.object_:
        return True
    try:
        cells = pa.array(column, from_pandas=True)
    except (pa.ArrowException, OverflowError):
        return False
    # Databases have such, Parquet has none.
    return not pa.types.is_interval(cells.type)


def write_json(path: Path, value: object) -> None:
    """Write JSON whole or not at all."""
    write_or_refuse(path, json.dumps(value, indent=2) + "\n")


def why_unfinished(folder: Path) -> str:
    """Why there is no summary of a run in a folder, and what to do, as a sentence.

    >>> why_unfinished(Path("nowhere"))
    'nowhere: there is no such folder; give the folder of a finished run'
    """
    if not folder.exists():
        return f"{folder}: there is no such folder; {OTHER}"
    if not folder.is_dir():
        return f"{folder}: is a file; {OTHER}"
    for its_file, what in NO_RUNS.items():
        if (folder / its_file).is_file():
            return f"{folder}: this folder holds {what}"
    if not is_begun(folder):
        return f"{folder}: holds no summary.json that can be read; {OTHER}"
    if (folder / OWNERS).is_dir():
        return f"{folder}: the simulation has not finished, and does not go on; {OTHER}"
    return (
        f"{folder}: the run has not finished; continue it with copriv train --resume "
        f"{shlex.quote(str(folder))}"
    )
