"""``copriv forecast``: read what is public, ask the twin, and show the verdict."""

from __future__ import annotations

import json
import logging
import math
import warnings
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from common.config import check_settings
from common.errors import DoubtWarning, InputError
from common.extras import away_from_here
from common.features import FeatureMap
from common.files import real_path
from common.small_files import read_own
from common.tables import TableSource, read_table
from common.texts import counted, printable
from learner.commands.going_on import kept_in
from learner.forecasting.candidate import COMPARED, Candidate
from learner.forecasting.questions import (
    Question,
    answers_of,
    ask_together,
    fingerprint,
    points_of,
    questions,
    read_answers,
)
from learner.forecasting.verdict import Verdict, verdict
from learner.network.processes import read_owner, table_source
from learner.planning.deciding import decide_quietly
from learner.planning.decision import Decision
from learner.planning.public_side import prepare_public_side
from learner.planning.sections import OwnerEntry
from learner.planning.settings import StudySettings, has_table
from learner.planning.ways import WAYS, ways_of
from learner.results.forecast_page import write_forecast_page
from learner.results.forecast_text import print_verdict
from learner.results.progress import progress
from learner.results.run_folder import create_run_folder, write_json
from learner.simulated.sweeps import Sweep, Workers, run_sweep

log = logging.getLogger("copriv.learner")

VERDICT, ASKED = "forecast.json", "asked"
LARGEST_VERDICT = 16 * 2**20


def run_forecast(
    candidate: Candidate,
    *,
    out: Path | None,
    compare: Sequence[str],
    curves: bool,
    workers: Workers,
    console: Console,
) -> Path:
    """Forecast a study from public records, and say who gains; returns the folder.

    Args:
      candidate: The study.
      out: The folder; a forecast of the same study that was stopped there is continued.
      compare: Names of other algorithms.
      curves: Whether to look for the smallest epsilon, n_i and N, and the best T.
      workers: Who computes.
      console: Where to print.

    Raises:
      InputError: A name is none, the public records do not allow a forecast, or the folder holds
        the forecast of another study.
    """
    for name in compare:
        if name not in COMPARED:
            raise InputError(f"--compare {name}: expected one of {', '.join(COMPARED)}")
    settings = candidate.settings
    groups = candidate.groups  # refuses too few records before anything is computed
    asked = fingerprint({"study": Question(candidate=candidate)})
    folder = _folder(out, name=f"{settings.name}-forecast", asked=asked)
    with kept_in(folder, out):
        public, sites = counted(len(groups.records), "public record"), len(settings.owners)
        learning = f"deciding from {public} how {counted(sites, 'owner')} would learn"
        console.print(learning, highlight=False)
        with console.status("deciding"):
            decision = decide_quietly(
                settings,
                candidate.public,
                num_records=candidate.num_records,
                seed=candidate.ground.seed,
            )
        wanted = questions(candidate, compare=compare, curves=curves, base=decision)
        _say_what_is_left_out(candidate, compare, wanted)
        points = points_of(wanted)
        with progress(console, "forecast", total=len(points)) as advance:
            sweep = run_sweep(
                ask_together,
                {name: (point,) for name, point in points.items()},
                workers=workers,
                folder=folder / "points",
                fingerprint=fingerprint,
                read=read_answers,
                on_done=advance,
            )
        found = _found(candidate, decision, sweep)
        _leave(found, folder, asked=asked)
    print_verdict(found, console)
    return folder


def _say_what_is_left_out(
    candidate: Candidate, compare: Sequence[str], asked: Container[str]
) -> None:
    """Why ways that were named are not compared.

    Whoever names all of them, as the default does, means those that are possible.
    """
    if set(WAYS) <= set(compare):
        return
    possible = ways_of(candidate.settings)
    for name in compare:
        if f"by-{name}" in asked:
            continue
        why = (
            "its forecast is not believed, since the public records have too few of a class"
            if name in possible
            else "the study's loss, groups or learner do not allow it"
        )
        warnings.warn(f"--compare {name}: left out: {why}", DoubtWarning, stacklevel=2)


def _found(candidate: Candidate, decision: Decision, sweep: Sweep) -> Verdict:
    """What all points together say."""
    if "study" not in sweep.results:
        failure = sweep.failures.get("study")
        reason = failure.error if failure else "it was not computed"
        raise InputError(f"forecast: the study itself failed ({reason}); correct that first")
    failures = {name: failure.error for name, failure in sweep.failures.items()}
    return verdict(candidate, answers_of(sweep.results), failures, base=decision)


def candidate_of(settings: StudySettings, *, base: Path, public: Path | None) -> Candidate:
    """The study with everything public that its forecast needs.

    Args:
      settings: The study.
      base: The folder of its file.
      public: A table of public records in place of the study's.

    Raises:
      InputError: Public records, a group or an owner's n_i cannot be had.
    """
    if public is not None:
        source = check_settings(TableSource, {"path": real_path(public)}, where="--public")
        features = settings.features.model_copy(update={"public": source})
        settings = settings.model_copy(update={"features": features})
    if settings.features.public is None:
        raise InputError(
            "forecast: no public records; give --public TABLE, or features.public in the study"
        )
    side = prepare_public_side(settings, base=base)
    return Candidate(
        settings=settings,
        public=side,
        num_records=tuple(
            _num_records(settings, entry, side.feature_map, base=base) for entry in settings.owners
        ),
    )


def _is_counted(settings: StudySettings, entry: OwnerEntry) -> bool:
    """Whether an owner's n_i is given, or its table is here to be counted."""
    default = settings.data.path or settings.data.database
    is_here = has_table(settings, entry) and (entry.data is not None or default is not None)
    return entry.name in settings.forecast.records or is_here


def _num_records(
    settings: StudySettings, entry: OwnerEntry, feature_map: FeatureMap, *, base: Path
) -> int:
    """An owner's n_i, which is public: from the settings, or counted where its table is here."""
    given = settings.forecast.records.get(entry.name)
    if given is not None:
        return given
    if not _is_counted(settings, entry):
        untold = [other.name for other in settings.owners if not _is_counted(settings, other)]
        # What is given already stays: a table of one key replaces the whole of it.
        numbers = dict.fromkeys(untold, "NUMBER") | settings.forecast.records
        wanted = ", ".join(f'"{name}" = {number}' for name, number in numbers.items())
        raise InputError(
            f"owners: the number of records of {', '.join(untold)} is not known; give "
            f"forecast.records = {{ {wanted} }}"
        )
    source = table_source(settings, entry, base=base)
    if source.missing_target is not None:
        return len(read_owner(settings, entry, feature_map, base=base))
    return len(read_table(source, base=base, columns=()))


def _folder(out: Path | None, *, name: str, asked: str) -> Path:
    """A new folder, or the one of a forecast of the same study, stopped or finished."""
    if out is not None and (out / "points").is_dir():
        if _asked_there(out / VERDICT) not in (None, asked):
            raise InputError(
                f"{out}: holds the forecast of another study, or of this one with other settings "
                "or records; give another folder with --out"
            )
        return out
    return create_run_folder(out, name=name)


def _asked_there(path: Path) -> object:
    """What the forecast that is kept in a file was of; None where nobody can say."""
    try:
        kept = json.loads(read_own(path, most=LARGEST_VERDICT))
    except (OSError, ValueError, RecursionError):
        return None
    return kept.get(ASKED) if isinstance(kept, dict) else None


def _plain(value: Any) -> Any:
    """What JSON can hold: NaN and infinities become null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.bool_ | np.integer | np.floating):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _leave(found: Verdict, folder: Path, *, asked: str) -> None:
    """The verdict, its page and, if matplotlib is installed and finds a folder, its picture."""
    write_json(folder / VERDICT, _plain(found.as_json() | {ASKED: asked}))
    write_forecast_page(folder, found)
    try:
        with away_from_here():
            from learner.results.forecast_picture import draw_forecast  # noqa: PLC0415
    except ModuleNotFoundError:
        return
    except OSError as error:
        # It keeps what it knows of fonts in the home, or else in a temporary folder.
        log.warning("no forecast.png is drawn: %s", printable(error))
        return
    draw_forecast(found, folder / "forecast.png")
