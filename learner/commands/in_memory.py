"""A study of shards in memory: owners in this process, for experiments on records that are here.

The algorithm, the noise's scale and the budgets are those of any study. Nothing is protected and no
ledger is charged, because the records are here anyway.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from common.arrays import Indices
from common.column_faults import warn_of_misfits
from common.columns import parse_numbers
from common.config import check_settings
from common.errors import DoubtWarning, InputError
from common.feature_settings import FeatureSettings
from common.looking import look_at
from common.losses import LOSSES
from common.map_fitting import fit_feature_map
from common.missing_codes import code_for_missing, code_note
from common.model import Model
from common.names import check_name
from common.number_marks import mark_notes
from common.tables import TableSource
from learner.planning.boxes import edge_of
from learner.planning.guard import GuardError
from learner.planning.held_out import held_out_records
from learner.planning.inputs import odd_cells
from learner.planning.public_side import PublicSide, warn_of_dropped, warn_of_public_records
from learner.planning.settings import StudySettings
from learner.planning.ways import way_of
from learner.results.coefficients import model_of
from learner.results.summary import owner_summaries
from learner.results.verdict_words import as_number
from learner.training.journal import Journal
from learner.training.memory_owner import MemoryOwner
from learner.training.study import Outcome, train

# Sections that are filled in, or mean nothing where nobody serves.
FIXED = ("owners", "data", "network", "tls", "learner", "seed", "name", "guard")
# Settings of features that X, y and public take the place of.
OF_THE_RECORDS = ("public", "target", "positive", "map")


@dataclass(frozen=True, kw_only=True, eq=False)
class Trained:
    """A model of shards in memory, and what its owners would have spent.

    Args:
      model: The model.
      owners: One row for each owner: name, records, epsilon, responses, noise_scale.
      way: How it was learnt.
    """

    model: Model
    owners: pd.DataFrame
    way: str


def train_in_memory(
    records: pd.DataFrame,
    public: pd.DataFrame,
    *,
    labels: Indices,
    names: Sequence[str],
    settings: Mapping[str, Any],
    guard: bool,
    seed: int,
) -> Trained:
    """Train over owners in this process.

    Args:
      records: All owners' raw records, the target last.
      public: The public records, with the same columns.
      labels: Whose each record is, shape (n,).
      names: The owners' names.
      settings: The study's sections, as STUDY.toml has them; owners and target are filled in.
      guard: Whether to stop where the study is forecast to be no better than what is free.
      seed: Seed of the clocks and, per owner, of the noise.

    Raises:
      InputError: The settings or the records cannot be used, or the guard stops it.

    Warns:
      DoubtWarning: Cells of the records may mean something else than is read, or a column does not
        fit that of the public records, or should not be learnt from; or the box is too small for
        the public model.
    """
    known_as = _valid(names)
    target = str(records.columns[-1])
    study = _study(settings, known_as, target=target, guard=guard, seed=seed)
    study = _with_categories(study, records)
    _warn_of_cells(records, study.features)
    # Before the map says it in words of settings.
    if np.ptp(parse_numbers(public[target])) == 0:
        raise InputError("the public records' targets are all alike; give some that vary")
    feature_map = fit_feature_map(public, study.features, source="public")
    mapped = held_out_records(feature_map, public, where="the public records")
    side = PublicSide(feature_map=feature_map, records=mapped)
    _warn_of_public_side(study, side, public)
    by_owner = {f"owner {name}": records[labels == i] for i, name in enumerate(names)}
    warn_of_misfits(by_owner, feature_map)
    owners = [
        MemoryOwner(
            name, feature_map.apply(records[labels == i], where=name), seed=(seed + i) % 2**63
        )
        for i, name in enumerate(known_as)
    ]
    with tempfile.TemporaryDirectory(prefix="copriv-") as folder:
        journal = Journal(Path(folder) / "journal.sqlite")
        try:
            outcome = train(study, side, owners, journal=journal)
        except GuardError as error:
            cure = "raise epsilon, or fit with guard=False all the same"
            raise InputError(f"{error.problem}; {cure}") from None
        finally:
            journal.close()
    way = way_of(outcome.plan.settings)
    return Trained(model=model_of(outcome, side), owners=_owners(outcome, names), way=way)


def _warn_of_public_side(study: StudySettings, side: PublicSide, public: pd.DataFrame) -> None:
    """Warn of public records that a study should not learn from, or that its box is too small for.

    Args:
      study: The study.
      side: Its feature map and public records.
      public: These records, raw.
    """
    warn_of_public_records(public, side.feature_map)
    warn_of_dropped(side.feature_map, list(public.columns))
    edge = edge_of(study, side)
    if edge is not None:
        warnings.warn(edge, DoubtWarning, stacklevel=2)


def _warn_of_cells(records: pd.DataFrame, features: FeatureSettings) -> None:
    """Warn of cells that mean something else than is read, as ``copriv init`` does."""
    left = {*features.drop, *features.categorical, features.target}
    looked = look_at(records[[name for name in records.columns if name not in left]])
    # That a column of plain dates is one is no doubt.
    odd = [c for c in looked.columns.values() if c.kind != "date" or c.unsure_date or c.has_times]
    notes = mark_notes(None, base=Path(), table=records)
    cure = "name it in features.missing"
    amounts = looked.columns.values()
    notes += [f"{c.shown}: {code_note(c, cure)}" for c in amounts if code_for_missing(c)]
    for note in (*notes, *(note for column in odd for note in odd_cells(column))):
        warnings.warn(note, DoubtWarning, stacklevel=2)


def sections(
    given: Mapping[str, Any], *, epsilon: object, loss: str, theta_max: float, positive: str | None
) -> dict[str, Any]:
    """The sections of a study that an estimator's settings mean.

    Args:
      given: The sections that somebody gave; they come before the rest.
      epsilon: Each owner's budget.
      loss: The estimator's own loss; another has to be of the same kind.
      theta_max: The bound of its coefficients.
      positive: The value of class +1; None for numbers.

    Raises:
      InputError: A setting would mean something else here than in a study.

    >>> sections({}, epsilon=1, loss="squared", theta_max=1, positive=None)["model"]
    {'loss': 'squared', 'theta_max': 1}
    """
    if not isinstance(given, Mapping):
        raise InputError(
            f"settings: got a {type(given).__name__}, expected sections of STUDY.toml, such as "
            '{"model": {"loss": "huber", "delta": "auto"}}'
        )
    # The caller has the records: ``score`` says more than a noisy answer would.
    own: dict[str, Any] = {
        "privacy": {"epsilon": epsilon, "validation": 0},
        "model": {"loss": loss, "theta_max": theta_max},
        "features": {} if positive is None else {"positive": positive},
    }
    wrong = [key for key, its in given.items() if key in FIXED or not isinstance(its, Mapping)]
    if wrong:
        raise InputError(
            f"settings: {min(wrong)!r} cannot be set here; expected sections of STUDY.toml such as "
            "model, algorithm, privacy and features"
        )
    if "epsilon" in given.get("privacy", {}):
        raise InputError("settings: privacy.epsilon cannot be set here; epsilon=NUMBER says it")
    for key in OF_THE_RECORDS:
        if key in dict(given.get("features", {})):
            raise InputError(
                f"settings: features.{key} cannot be set here; the records given say it"
            )
    merged = {key: values | dict(given.get(key, {})) for key, values in own.items()}
    chosen = LOSSES.get(merged["model"]["loss"])
    if chosen is not None and chosen.has_classes() != LOSSES[loss].has_classes():
        kind = "Classifier" if chosen.has_classes() else "Regressor"
        raise InputError(
            f"settings: model.loss = {chosen.name!r} is of another kind of target; use "
            f"Federated{kind}"
        )
    return dict(given) | merged


def _valid(names: Sequence[str]) -> Sequence[str]:
    """The names that a study knows its owners by: their own, unless one is no name.

    >>> _valid(["north", "south"]), _valid(["Mount Sinai Hospital", "south"])
    (['north', 'south'], ['owner-1', 'owner-2'])
    """
    try:
        return [check_name(name) for name in names]
    except ValueError:
        return [f"owner-{i}" for i in range(1, len(names) + 1)]


def _study(
    settings: Mapping[str, Any], names: Sequence[str], *, target: str, guard: bool, seed: int
) -> StudySettings:
    """The settings of the study."""
    given = dict(settings)
    features = {"public": TableSource(), "target": target} | given.pop("features", {})
    return check_settings(
        StudySettings,
        given
        | {
            "name": "memory",
            "seed": seed,
            "guard": guard,
            "features": FeatureSettings.model_validate(features),
            "owners": [{"name": name} for name in names],
        },
        where="settings",
    )


def _with_categories(study: StudySettings, records: pd.DataFrame) -> StudySettings:
    """The study with the columns that pandas holds as categories as such, whatever they look like.

    Args:
      study: The study.
      records: All owners' raw records.
    """
    held = [name for name, kind in records.dtypes.items() if isinstance(kind, pd.CategoricalDtype)]
    both = tuple(dict.fromkeys([*study.features.categorical, *map(str, held)]))
    features = study.features.model_copy(update={"categorical": both})
    return study.model_copy(update={"features": features})


def _owners(outcome: Outcome, names: Sequence[str]) -> pd.DataFrame:
    """What each owner promised and spent, on training and on validation."""
    summaries = owner_summaries(outcome.plan.settings, outcome)
    rows = [
        {
            "name": name,
            "records": its.records,
            "epsilon": as_number(its.epsilon),
            "responses": its.responses,
            "epsilon_spent": as_number(its.epsilon_spent),
            "noise_scale": its.noise_scale,
        }
        for name, its in zip(names, summaries, strict=True)
    ]
    return pd.DataFrame(rows)
