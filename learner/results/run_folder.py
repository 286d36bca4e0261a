"""The folder a run leaves: trace, model, summary."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tomli_w
from numpy.typing import NDArray

from common.config import check_settings, load_settings
from common.errors import InputError
from common.features import FeatureMap
from common.losses import Loss
from learner.algorithms.clocks import Tick
from learner.planning.plan import Plan, kind_of
from learner.planning.settings import StudySettings
from learner.training.runner import Applied
from learner.training.study import Outcome

__all__ = [
    "Measured",
    "Trace",
    "create_run_folder",
    "plan_facts",
    "run_of",
    "summary",
    "write_features",
    "write_json",
    "write_model",
    "write_settings",
]

Vector = NDArray[np.float64]

VERSIONS = ("copriv", "grpcio", "numpy", "opendp", "pandas", "protobuf")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What only a simulation can know, because it may look at the union of the records.

    Args:
      fitness: f of the model.
      fitness_optimal: f of the best model in the box.
      relative_fitness: psi of the model.
      relative_fitness_noiseless: psi of the same run without noise.
      relative_fitness_alone: psi of each owner's own model.
    """

    fitness: float
    fitness_optimal: float
    relative_fitness: float
    relative_fitness_noiseless: float
    relative_fitness_alone: tuple[float, ...]


@dataclass
class Trace:
    """What happened at each communication, for ``trace.parquet``."""

    names: Sequence[str]
    rows: list[Applied] = field(default_factory=list)

    def append(self, applied: Applied) -> None:
        """Keep one communication."""
        self.rows.append(applied)

    def central_models(self) -> NDArray[np.float64]:
        """The central model after each communication, shape (T, p)."""
        return np.array([row.central_model for row in self.rows])

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
        table = pd.DataFrame(rows)
        if relative_fitness is not None and len(table):
            table["relative_fitness"] = relative_fitness[table["k"].to_numpy() - 1]
        return table


def run_of(folder: Path, settings: StudySettings | None, *, base: Path) -> StudySettings | None:
    """The settings to go on with in a run folder; None if nothing was begun there.

    Args:
      folder: The run folder.
      settings: The study to go on with; None takes the run's own.
      base: The folder of the given study.

    Raises:
      InputError: Nothing was begun and no study is given, or the run is of another study.
    """
    path = folder / "study.toml"
    if not path.is_file():
        if settings is None:
            raise InputError(
                f"{folder}: no run was begun there; give the folder of a run, or STUDY.toml to "
                "begin one"
            )
        return None
    begun = load_settings(StudySettings, path)
    if settings is None:
        return begun
    given = _as_run(settings, base)
    if _fixed(given) != _fixed(_as_run(begun, folder)):
        raise InputError(
            f"{folder}: the run was begun with other settings; leave out STUDY.toml to go on with "
            "them, or give another folder (only addresses, [network] and [tls] may change)"
        )
    return check_settings(StudySettings, given, where=str(path))


def _fixed(table: dict[str, Any]) -> dict[str, Any]:
    """What a run cannot change once it has begun."""
    owners = [{k: v for k, v in owner.items() if k != "address"} for owner in table["owners"]]
    return {k: v for k, v in table.items() if k not in {"network", "tls"}} | {"owners": owners}


def create_run_folder(out: Path | None, *, name: str) -> Path:
    """A new folder: the one asked for, or ``runs/NAME-DATE-TIME``.

    Raises:
      InputError: It exists and is not empty, or cannot be made.
    """
    folder = out or Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    serial = 1
    while out is None and folder.exists():
        serial += 1
        folder = folder.with_name(f"{name}-{datetime.now():%Y%m%d-%H%M%S}-{serial}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InputError(f"{folder}: the run folder is not empty; give another one with --out")
    except OSError as error:
        raise InputError(
            f"{folder}: the run folder cannot be made ({error.strerror}); give another with --out"
        ) from None
    return folder


def summary(
    settings: StudySettings,
    outcome: Outcome,
    *,
    study_id: str,
    measured: Measured | None,
) -> dict[str, Any]:
    """The run's summary, as documented in ``docs/summary.md``."""
    result: dict[str, Any] = {
        "study": settings.name,
        "study_id": study_id,
        "algorithm": settings.algorithm.name,
        **outcome.plan.loss.as_terms(),
        "horizon": outcome.plan.horizon,
        "seed": outcome.plan.seed,
        "insecure_noise": any(e.insecure_noise for e in outcome.enrollments),
        **plan_facts(outcome.plan),
        "versions": {package: version(package) for package in VERSIONS},
        "wall_seconds": outcome.wall_seconds,
        "ticks": outcome.ticks,
        "queries_per_second": sum(outcome.responses) / max(outcome.wall_seconds, 1e-9),
        "theta": outcome.theta.tolist(),
        "owners": [
            {
                "name": entry.name,
                "records": enrollment.num_records,
                "epsilon": str(enrollment.epsilon),
                "responses": responses,
                "noise_scale": enrollment.noise_scale,
                "epsilon_spent": str(enrollment.epsilon * responses / max(enrollment.responses, 1)),
                "responses_left": enrollment.responses - responses,
            }
            for entry, enrollment, responses in zip(
                settings.owners, outcome.enrollments, outcome.responses, strict=True
            )
        ],
    }
    if settings.learner.own is not None:
        _add_own(result, settings.learner.own)
    if measured is not None:
        _add_measured(result, measured)
    return result


def _add_own(result: dict[str, Any], own: str) -> None:
    """Mark the owner that is the learner: nothing is promised to its records, nothing charged."""
    result["own"] = own
    for owner in result["owners"]:
        if owner["name"] == own:
            owner["epsilon"] = "inf"


def plan_facts(plan: Plan) -> dict[str, Any]:
    """How the study trains: what its settings say, and what was chosen for them."""
    settings, decision = plan.settings, plan.decision
    algorithm, privacy = settings.algorithm, settings.privacy
    step: dict[str, Any] = {"chosen": "auto" if algorithm.step else "given"}
    constant = kind_of(settings).constant
    if constant is None:
        step = {"chosen": "none"}
    else:
        step[constant] = decision.constant
    if decision.largest_stable is not None:
        step["largest_stable_rho"] = decision.largest_stable
    if decision.forecast is not None:
        step["forecast_relative_fitness"] = decision.forecast
    return {
        "profile": settings.profile,
        "split": privacy.split,
        "initiative": algorithm.initiative,
        "clocks": algorithm.clocks,
        "correction": algorithm.correction,
        "groups": [list(group) for group in settings.groups],
        "average": algorithm.average,
        "horizon": plan.horizon,
        "horizon_chosen": "auto" if algorithm.horizon == "auto" else "given",
        "clip": decision.clip,
        "clip_chosen": "auto" if privacy.clip == "auto" else "given",
        "step": step,
        **{
            f"{name}_chosen": "auto" if getattr(settings.model, name) == "auto" else "given"
            for name in decision.parameters
        },
    }


def _add_measured(result: dict[str, Any], measured: Measured) -> None:
    result |= {
        "fitness": measured.fitness,
        "fitness_optimal": measured.fitness_optimal,
        "relative_fitness": measured.relative_fitness,
        "relative_fitness_noiseless": measured.relative_fitness_noiseless,
    }
    for owner, alone in zip(result["owners"], measured.relative_fitness_alone, strict=True):
        owner["relative_fitness_alone"] = alone
        # A model that stays with the owner that learnt it is of no use to the others.
        has_model = result.get("own", owner["name"]) == owner["name"]
        owner["gains"] = has_model and measured.relative_fitness < alone


def write_settings(path: Path, settings: StudySettings, *, base: Path) -> None:
    """The study as it was run, overrides included, with absolute paths to its tables."""
    _write_whole(path, tomli_w.dumps(_as_run(settings, base)))


def _as_run(settings: StudySettings, base: Path) -> dict[str, Any]:
    """The study as a table that can be loaded again from anywhere, defaults included."""
    table = settings.model_dump(mode="json", exclude_none=True)
    # A saved map goes with none of the settings for fitting one, not even with their defaults.
    table["features"] = settings.features.model_dump(
        mode="json", exclude_none=True, exclude_unset=True
    )
    _make_absolute(table, base)
    return table


def write_features(path: Path, feature_map: FeatureMap) -> None:
    """The feature map as it was agreed on; a resumed run must propose the same."""
    _write_whole(path, feature_map.to_json())


def _make_absolute(table: dict[str, Any], base: Path) -> None:
    """Resolve every path of the settings against the folder they were written for."""
    for key, value in table.items():
        if isinstance(value, dict):
            _make_absolute(value, base)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, dict):
                    _make_absolute(item, base)
        elif key == "token" and value.startswith("file:"):
            table[key] = f"file:{(base / value.removeprefix('file:')).resolve()}"
        elif key in {"path", "map", "ca", "certificate", "key"}:
            table[key] = str((base / value).resolve())


def write_json(path: Path, value: object) -> None:
    """Write JSON whole or not at all."""
    _write_whole(path, json.dumps(value, indent=2) + "\n")


def _write_whole(path: Path, text: str) -> None:
    """The whole text or nothing, on the disk when it returns."""
    draft = path.with_name(path.name + ".part")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


def write_model(
    path: Path, theta: Vector, feature_map: FeatureMap, *, loss: Loss, own: str | None = None
) -> None:
    """The model with the feature map it needs, so that it can be used elsewhere.

    A model that an owner made from its own raw records names it as ``unprotected``.
    """
    write_json(
        path,
        ({} if own is None else {"unprotected": own})
        | {
            "format": "copriv-model/1",
            **loss.as_terms(),
            "features": list(feature_map.feature_names),
            "theta": theta.tolist(),
            "feature_map": json.loads(feature_map.to_json()),
        },
    )
