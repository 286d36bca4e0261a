"""``copriv sweep``: a study over a grid of settings and many seeds, on records that are here."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
from rich.console import Console

from common.arrays import Matrix, Vector
from common.errors import InputError
from common.small_files import read_own
from common.texts import counted
from learner.commands.going_on import kept_in
from learner.commands.study import read_owners
from learner.planning.boxes import edge_of
from learner.planning.decision import Decision
from learner.planning.grid import Experiment, Point
from learner.planning.public_side import PublicSide, read_public_side, with_groups
from learner.planning.roles import own_index
from learner.planning.settings import StudySettings
from learner.results.progress import progress
from learner.results.run_folder import (
    SETTINGS,
    create_run_folder,
    write_json,
    write_settings,
    write_table,
)
from learner.results.sweep_page import (
    incomparable,
    makes_no_difference,
    sweep_summary,
    sweep_table,
    write_sweep_page,
)
from learner.simulated.evaluation import union
from learner.simulated.sweeps import Failure, Sweep, Workers, holds_results, run_sweep
from learner.training.points import (
    Deciding,
    Repeating,
    blocks_of,
    decide_point,
    fingerprint,
    read_decided,
    read_repeated,
    records_digest,
    repeat_point,
)

MOST_SHOWN = 5
GRID = "grid.json"
# What a command line can hold, at most.
LARGEST_GRID = 16 * 2**20


@dataclass(frozen=True, kw_only=True, eq=False)
class Ground:
    """What is the same for points that read the same tables in the same way for the same model.

    Args:
      public: What is public.
      counts: The n_i of all owners.
      features: Their records, one owner after the other, shape (n, p).
      targets: Their targets, shape (n,).
    """

    public: PublicSide
    counts: tuple[int, ...]
    features: Matrix
    targets: Vector
    _digests: dict[int, str] = field(default_factory=dict, init=False)

    def digest(self, owners: int) -> str:
        """A text that identifies public records, their groups, and records of the first owners."""
        if owners not in self._digests:
            n, public = sum(self.counts[:owners]), self.public.records
            parts: list[Any] = [] if public is None else [public.features, public.targets]
            parts += [] if self.public.labels is None else [self.public.labels]
            parts += [self.features[:n], self.targets[:n]]
            self._digests[owners] = records_digest(*parts)
        return self._digests[owners]


@dataclass(frozen=True, kw_only=True, eq=False)
class How:
    """Who computes a sweep, and where it writes and prints."""

    folder: Path
    workers: Workers
    console: Console

    def run(self, what: str, work: Any, points: Mapping[str, tuple[Any, ...]], read: Any) -> Sweep:
        """Compute these points, or read those that are there.

        Args:
          what: What they are called while one waits.
          work: Computes a point of its arguments, on any process.
          points: The name of each point, and these arguments.
          read: Makes of what a file has what ``work`` returned, or raises.
        """
        with progress(self.console, what, total=len(points)) as advance:
            return run_sweep(
                work,
                points,
                workers=self.workers,
                folder=self.folder / "points",
                fingerprint=fingerprint,
                read=read,
                on_done=advance,
            )


def run_study_sweep(
    experiment: Experiment, *, out: Path | None, workers: Workers, console: Console
) -> Path:
    """Run a study at every point of a grid and at many seeds; returns the folder.

    Args:
      experiment: The study, its grid and the seeds.
      out: The folder; a sweep of the same study and grid that was stopped there is continued.
      workers: Who computes.
      console: Where to print.

    Raises:
      InputError: The tables cannot be read, or nothing could be computed.
    """
    points, seeds = len(experiment.points), experiment.seeds
    console.print(
        f"points {points:,} x seeds {seeds:,} = {counted(points * seeds, 'study', 'studies')}",
        highlight=False,
    )
    with _warnings_once():
        grounds = _read_grounds(experiment.points, base=experiment.base)
    was_there = out is not None and out.is_dir()
    goes_on = out is not None and (out / GRID).is_file()
    folder = _folder(out, experiment)
    how = How(folder=folder, workers=workers, console=console)
    gone = nullcontext() if goes_on else _gone_without_results(folder, was_there=was_there)
    with kept_in(folder, out), gone:
        write_settings(folder / SETTINGS, experiment.points[0].settings, base=experiment.base)
        edges = _edges(experiment, grounds, console)
        rows = _computed(experiment, grounds, how)
        _leave(folder, rows, experiment, console, doubts=edges)
    return folder


def _edges(experiment: Experiment, grounds: Sequence[Ground], console: Console) -> list[str]:
    """Warns of boxes that are too small for their public models, of a few."""
    found: dict[object, str | None] = {}
    for point, ground in zip(experiment.points, grounds, strict=True):
        key = id(ground), point.settings.model.model_dump_json()
        with suppress(InputError):  # of which the point itself is left out
            found[key] = found[key] if key in found else edge_of(point.settings, ground.public)
    edges = list(dict.fromkeys(filter(None, found.values())))[:MOST_SHOWN]
    for edge in edges:
        console.print(f"warning: {edge}", highlight=False)
    return edges


@contextmanager
def _gone_without_results(folder: Path, *, was_there: bool) -> Iterator[None]:
    """A new sweep of which nothing could be computed leaves nothing of its own."""
    points = folder / "points"
    try:
        yield
    except InputError:
        if not holds_results(points):
            for path in (folder / SETTINGS, folder / GRID, *points.glob("point-*.json")):
                path.unlink(missing_ok=True)
            for made in (points,) if was_there else (points, folder):
                with suppress(OSError):
                    made.rmdir()
        raise


def _computed(experiment: Experiment, grounds: Sequence[Ground], how: How) -> pd.DataFrame:
    """One row for each study that could be computed; a warning names what was left out."""
    points, seeds = experiment.points, experiment.seeds
    to_decide = _to_decide(experiment, grounds)
    decided = how.run("deciding", decide_point, to_decide, read_decided)
    decisions = {_number(name): result for name, result in decided.results.items()}
    failures = [_failed(points[_number(name)], its) for name, its in decided.failures.items()]
    if decisions:
        _print_time(decisions, seeds, how)
    to_repeat = _to_repeat(experiment, grounds, decisions)
    repeated = (
        how.run("repeating", repeat_point, to_repeat, read_repeated) if decisions else Sweep()
    )
    failures += [_failed(points[_number(name)], its) for name, its in repeated.failures.items()]
    for sentence in list(dict.fromkeys(failures))[:MOST_SHOWN]:
        how.console.print(f"left out: {sentence}", highlight=False)
    rows = _rows(points, decisions, repeated, to_repeat)
    if rows.empty:
        raise InputError(failures[0])
    return rows


@contextmanager
def _warnings_once() -> Iterator[None]:
    """A table that is read for several points warns once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for message, category in dict.fromkeys((str(one.message), one.category) for one in caught):
        warnings.warn(message, category, stacklevel=3)


def _read_grounds(points: Sequence[Point], *, base: Path) -> list[Ground]:
    """What each point stands on; tables that are read alike are read once, for all owners.

    Whether public records are taken in groups depends on the model, too, and records do not.
    """
    largest = max((point.settings for point in points), key=lambda its: len(its.owners))
    read: dict[str, tuple[Ground, pd.DataFrame | None]] = {}
    found: dict[str, Ground] = {}
    grounds = []
    for point in points:
        whole = point.settings.model_copy(update={"owners": largest.owners})
        parts = {"features", "data", "forecast", "owners"}
        tables = f"{whole.model_dump_json(include=parts)} {whole.network.listen} {whole.model.loss}"
        key = f"{tables} {whole.model.model_dump_json()}"
        if tables not in read:
            read[tables] = _read_ground(whole, base=base)
        if key not in found:
            ground, table = read[tables]
            public = ground.public if table is None else with_groups(ground.public, whole, table)
            found[key] = replace(ground, public=public)
        grounds.append(found[key])
    return grounds


def _read_ground(whole: StudySettings, *, base: Path) -> tuple[Ground, pd.DataFrame | None]:
    """The records of all owners, and the public ones with their table, not yet in groups."""
    public, table = read_public_side(whole, base=base)
    shards = read_owners(whole, public.feature_map, base=base).shards
    records = union(shards)
    ground = Ground(
        public=public,
        counts=tuple(map(len, shards)),
        features=records.features,
        targets=records.targets,
    )
    return ground, table


def _folder(out: Path | None, experiment: Experiment) -> Path:
    """A new folder, or the one of the same sweep, which may have had fewer seeds."""
    texts = [point.settings.model_dump_json() for point in experiment.points]
    options = {key: list(values) for key, values in experiment.grid.items()}
    mine = json.loads(json.dumps({"grid": options, "points": joblib.hash(texts)}, default=str))
    if out is not None and (out / GRID).is_file():
        try:
            is_mine = json.loads(read_own(out / GRID, most=LARGEST_GRID)) == mine
        except (ValueError, RecursionError, OSError):
            is_mine = False
        if not is_mine:
            raise InputError(
                f"{out}: holds the points of a sweep of other settings or another grid; "
                "give another folder with --out"
            )
        return out
    folder = create_run_folder(out, name=f"{experiment.name}-sweep")
    # First: where it is, a sweep that was killed here goes on.
    write_json(folder / GRID, mine)
    return folder


def _to_decide(experiment: Experiment, grounds: Sequence[Ground]) -> dict[str, tuple[Any, ...]]:
    """The calls that decide what each point leaves open."""
    calls: dict[str, tuple[Any, ...]] = {}
    for number, (point, ground) in enumerate(zip(experiment.points, grounds, strict=True)):
        owners = len(point.settings.owners)
        what = Deciding(
            settings=point.settings,
            public=ground.public,
            num_records=ground.counts[:owners],
            records=ground.digest(owners),
            seeds=experiment.seeds,
        )
        calls[f"point-{number:05d}"] = (what, ground.features, ground.targets)
    return calls


def _to_repeat(
    experiment: Experiment,
    grounds: Sequence[Ground],
    decisions: Mapping[int, Mapping[str, Any]],
) -> dict[str, tuple[Any, ...]]:
    """The calls that run each decided point, in blocks of seeds."""
    calls: dict[str, tuple[Any, ...]] = {}
    for number, its in decisions.items():
        point, ground = experiment.points[number], grounds[number]
        for block in blocks_of(experiment.seeds, its["horizon"]):
            what = Repeating(
                settings=point.settings,
                feature_map=ground.public.feature_map,
                decision=Decision.from_json(its["decision"]),
                records=ground.digest(len(point.settings.owners)),
                seeds=block,
            )
            name = f"point-{number:05d}-seeds-{block[0]:06d}-{block[-1]:06d}"
            calls[name] = (what, ground.features, ground.targets)
    return calls


def _print_time(decisions: Mapping[int, Mapping[str, Any]], seeds: int, how: How) -> None:
    """About how long all seeds take, from what a few ticks of each point took."""
    work = sum(its["seconds"] * len(blocks_of(seeds, its["horizon"])) for its in decisions.values())
    on, count = "of one core's work", how.workers.processes()
    if count is not None:
        on, work = f"on {count} process{'es' if count > 1 else ''}", work / count
    minutes = f"{work / 60:,.0f} minutes" if work > 120 else f"{max(work, 1):.0f} s"
    how.console.print(f"all seeds take about {minutes} {on}", highlight=False)


def _number(name: str) -> int:
    """The number of a point, from its name or that of a block of its seeds.

    >>> _number("point-00012"), _number("point-00012-seeds-000001-000100")
    (12, 12)
    """
    return int(name.split("-")[1])


def _failed(point: Point, failure: Failure) -> str:
    """The sentence about a point that could not be computed."""
    return f"{point.words}: {failure.error}" if point.words else failure.error


def _rows(
    points: Sequence[Point],
    decisions: Mapping[int, Mapping[str, Any]],
    repeated: Sweep,
    calls: Mapping[str, tuple[Any, ...]],
) -> pd.DataFrame:
    """One row for each study, points and seeds in their order."""
    parts = []
    for name, result in repeated.results.items():
        number, seeds = _number(name), calls[name][0].seeds
        point, its = points[number], decisions[number]
        alone, free = np.array(its["alone"]), its["public"]
        psi = np.array(result["relative_fitness"])
        beaten = np.minimum(alone, np.inf if free is None else free)
        local = own_index(point.settings)
        # A model that stays with the owner that learnt it is of no use to the others.
        beaten = beaten if local is None else beaten[local : local + 1]
        columns = {"point": number} | {key: _cell(value) for key, value in point.place.items()}
        columns |= {"seed": np.array(seeds), "way": its["way"], "horizon": its["horizon"]}
        columns |= {
            "num_owners": len(alone),
            "relative_fitness": psi,
            "relative_fitness_public": np.nan if free is None else free,
            "relative_fitness_alone": alone.mean(),
            "gains": (psi[:, None] < beaten).sum(axis=1),
        }
        parts.append(pd.DataFrame(columns))
    if not parts:
        return pd.DataFrame()
    rows = pd.concat(parts, ignore_index=True)
    for key in points[0].place:
        if rows[key].dtype == object:  # numbers beside words: words are what all can be
            rows[key] = rows[key].astype(str)
    return rows


def _cell(value: object) -> object:
    """A value of the grid as a table holds it."""
    is_plain = isinstance(value, str | int | float)
    return value if is_plain else json.dumps(value, default=str)


def _leave(
    folder: Path,
    rows: pd.DataFrame,
    experiment: Experiment,
    console: Console,
    *,
    doubts: Sequence[str],
) -> None:
    """The rows, their table and the page, which has the ``doubts`` before its notes."""
    keys = list(experiment.grid)
    write_table(folder / "sweep.parquet", rows)
    summary = sweep_summary(rows, keys)
    console.print(sweep_table(summary, keys))
    same = [key for key in keys if makes_no_difference(rows, key)]
    notes = [f"each value of {key} gives the same runs" for key in same]
    notes += incomparable([k for k in keys if k not in same and len(experiment.grid[k]) > 1])
    for note in notes:
        console.print(f"note: {note}", highlight=False)
    title = f"{experiment.name}: sweep of {counted(len(rows), 'study', 'studies')}"
    write_sweep_page(folder, title, summary, keys, [*doubts, *notes])
