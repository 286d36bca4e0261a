"""``copriv forecast``: read what is public, ask the twin, and tell the verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from common.errors import InputError
from common.tables import TableSource, read_table
from learner.forecast.candidate import COMPARED, Candidate
from learner.forecast.questions import (
    answers_of,
    ask_together,
    fingerprint,
    points_of,
    questions,
)
from learner.forecast.verdict import verdict
from learner.network.processes import table_source
from learner.planning.deciding import decide_quietly
from learner.planning.public_side import prepare_public_side
from learner.planning.sections import OwnerEntry
from learner.planning.settings import StudySettings
from learner.results.progress import progress
from learner.results.run_folder import create_run_folder, write_json
from learner.simulated.sweeps import Sweep, run_sweep

__all__ = ["candidate_of", "run_forecast"]


def run_forecast(
    settings: StudySettings,
    *,
    base: Path,
    public: Path | None,
    out: Path | None,
    compare: Sequence[str],
    curves: bool,
    jobs: int,
    cluster: str | None,
    console: Console,
) -> Path:
    """Forecast a study from public records, and tell who gains; returns the folder.

    Args:
      settings: The study.
      base: The folder of its file.
      public: A table of public records in place of the study's.
      out: The folder; one that holds a forecast of the same study is gone on with.
      compare: Names of other algorithms.
      curves: Whether to look for the smallest epsilon, n_i and N, and the best T.
      jobs: Processes; -1 for one on each core.
      cluster: Address of a Dask scheduler, or None.
      console: Where to tell.

    Raises:
      InputError: The settings or the public records do not allow a forecast.
    """
    for name in compare:
        if name not in COMPARED:
            raise InputError(f"--compare {name}: expected one of {', '.join(COMPARED)}")
    candidate = candidate_of(settings, base=base, public=public)
    fits = candidate.groups  # refuses too few records before anything is computed
    folder = _folder(out, name=f"{settings.name}-forecast")
    with console.status(f"deciding from {len(fits.records):,} public records"):
        decision = decide_quietly(
            candidate.settings,
            candidate.public,
            num_records=candidate.num_records,
            seed=settings.seed or 0,
        )
    points = points_of(questions(candidate, compare=compare, curves=curves, base=decision))
    with progress(console, "forecast", total=len(points)) as advance:
        sweep = run_sweep(
            ask_together,
            {name: (point,) for name, point in points.items()},
            folder=folder / "points",
            jobs=jobs,
            cluster=cluster,
            fingerprint=fingerprint,
            on_done=advance,
        )
    if "study" not in sweep.results:
        raise InputError(f"forecast: the study itself failed: {_failure(sweep, 'study')}")
    told = verdict(candidate, answers_of(sweep.results))
    told["failures"] = {name: failure.error for name, failure in sweep.failures.items()}
    write_json(folder / "forecast.json", _plain(told))
    _draw(told, folder)
    _tell(told, console)
    return folder


def candidate_of(settings: StudySettings, *, base: Path, public: Path | None) -> Candidate:
    """The study with everything public that its forecast needs.

    Raises:
      InputError: Public records, a group or an owner's n_i cannot be had.
    """
    if public is not None:
        source = TableSource(path=public.resolve())
        features = settings.features.model_copy(update={"public": source})
        settings = settings.model_copy(update={"features": features})
    if settings.features.public is None:
        raise InputError(
            "forecast: no public records; give --public FILE, or features.public in the study"
        )
    side = prepare_public_side(settings, base=base)
    given = settings.forecast
    owners = [entry.name for entry in settings.owners]
    for key in {*given.groups, *given.records, *given.availability_of}:
        if key not in owners:
            raise InputError(f"forecast: {key!r} is no owner of this study; check its spelling")
    return Candidate(
        settings=settings,
        public=side,
        num_records=tuple(_num_records(settings, entry, base=base) for entry in settings.owners),
    )


def _num_records(settings: StudySettings, entry: OwnerEntry, *, base: Path) -> int:
    """An owner's n_i, which is public: told, or counted where its table is at hand."""
    told = settings.forecast.records.get(entry.name)
    if told is not None:
        return told
    if entry.data is None and settings.data.path is None:
        raise InputError(
            f"owners: the number of records of {entry.name} is not known; give "
            f'forecast.records = {{ "{entry.name}" = NUMBER }}'
        )
    return len(read_table(table_source(settings, entry, base=base), base=base))


def _folder(out: Path | None, *, name: str) -> Path:
    """A new folder, or the one of a forecast that was stopped."""
    if out is not None and (out / "points").is_dir():
        return out
    return create_run_folder(out, name=name)


def _failure(sweep: Sweep, name: str) -> str:
    failure = sweep.failures.get(name)
    return failure.error if failure else "it was not computed"


def _plain(value: Any) -> Any:
    """What JSON can hold: numbers that are none become null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.bool_ | np.integer | np.floating):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _draw(told: Mapping[str, Any], folder: Path) -> None:
    """The picture, if matplotlib is installed."""
    try:
        from learner.results.forecast_picture import draw_forecast  # noqa: PLC0415
    except ModuleNotFoundError:
        return
    draw_forecast(told, folder / "forecast.png")


def _tell(told: Mapping[str, Any], console: Console) -> None:
    """The table and the sentences."""
    low, high = told["interval_90"]
    console.print(
        f"expected relative fitness {told['relative_fitness']:.3g}, nine runs in ten between "
        f"{low:.3g} and {high:.3g}, from {told['public_records']:,} public records",
        highlight=False,
    )
    console.print(_owners_table(told))
    if told["algorithms"]:
        console.print(_algorithms_table(told))
    for sentence in sentences(told):
        console.print(sentence, highlight=False)


def _owners_table(told: Mapping[str, Any]) -> Table:
    table = Table(
        "owner", "records", "epsilon", "alone", "together", "gains", "without it", "+1 epsilon"
    )
    for owner in told["owners"]:
        without = owner.get("relative_fitness_without", math.nan)
        table.add_row(
            owner["name"],
            f"{owner['records']:,}",
            owner["epsilon"],
            f"{owner['relative_fitness_alone']:.3g}",
            f"{told['relative_fitness']:.3g}",
            "yes" if owner["gains"] else "no",
            "-" if math.isnan(without) else f"{without:.3g}{' better' if owner['harms'] else ''}",
            f"{-owner['one_more_epsilon_is_worth']:+.2g}",
        )
    return table


def _algorithms_table(told: Mapping[str, Any]) -> Table:
    table = Table("algorithm", "expected", "90 % of runs", "T", "clip", "split")
    for name, row in told["algorithms"].items():
        table.add_row(
            name,
            f"{row['relative_fitness']:.3g}",
            f"{row['low']:.3g} .. {row['high']:.3g}",
            f"{row['horizon']:,}",
            "-" if row["clip"] is None else f"{row['clip']:.3g}",
            row["split"] if row["algorithm"] == "asynchronous" else "-",
        )
    return table


def sentences(told: Mapping[str, Any]) -> list[str]:
    """The verdict in words."""
    said = [f"warning: {warning}" for warning in told["warnings"]]
    gaining = [owner["name"] for owner in told["owners"] if owner["gains"]]
    said.append(
        f"gains: {', '.join(gaining) or 'nobody'} ({len(gaining)} of {len(told['owners'])} owners)"
    )
    said += [
        f"{owner['name']} makes things worse for the others: without it they are expected at "
        f"{owner['relative_fitness_without']:.3g} in place of {told['relative_fitness']:.3g}; "
        "a larger epsilon there would mend it"
        for owner in told["owners"]
        if owner.get("harms")
    ]
    if told["curves"]["epsilon"]:
        said += _threshold_sentences(told["smallest"])
    best = _best(told["curves"])
    if best:
        said.append("best found: " + ", ".join(best))
    if told.get("failures"):
        said.append(f"{len(told['failures'])} points failed; forecast.json names them")
    return said


def _threshold_sentences(smallest: Mapping[str, float | None]) -> list[str]:
    """Where it begins to pay for the owner in the middle."""
    words = {
        "epsilon": "an epsilon of",
        "records": "n_i of",
        "owners": "a number of owners of",
    }
    told = [
        f"{words[key]} {value:,.3g}" if value else f"{words[key]} none that was tried"
        for key, value in smallest.items()
    ]
    return ["collaboration begins to pay for half of the owners at " + ", or ".join(told)]


def _best(curves: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[str]:
    """The best horizon, clip and split that were tried."""
    found = []
    for kind, word in (("horizon", "T"), ("clip", "clip"), ("split", "split")):
        if curves.get(kind):
            name, row = min(curves[kind].items(), key=lambda item: item[1]["relative_fitness"])
            text = f"{row['clip']:.3g}" if kind == "clip" and row["clip"] else name
            found.append(f"{word} = {text} ({row['relative_fitness']:.3g})")
    return found
