"""How good models are on a raw table that is here: the same for everyone who has the records.

Nothing of this leaves by itself: a study's learner judges on records it may read, an owner on its
own, for its own eyes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from common.arrays import Matrix, Vector
from common.best_fit import fit_near
from common.errors import InputError
from common.features import FeatureMap
from common.model import Model
from common.quality import (
    Bin,
    Estimate,
    Measure,
    calibration,
    difference,
    estimates,
    how_made,
    measures,
    of_guessing,
)
from common.suggestions import LONGEST_SHOWN, did_you_mean
from common.terms import Records

# The draws of the intervals are the same for equal records.
SEED = 20210919
# A best fit of fewer records for each feature says more of chance than of clamps.
RECORDS_PER_FEATURE = 10
SMALLEST_WEIGHT = 1e-6
# Deviations beyond which a number stays outside of sums of squares.
WIDE = 1e6
# What a model is compared by, and whether less of it is better.
MAIN = {"number": ("rmse", True), "probability": ("log_loss", True), "score": ("accuracy", False)}


def kind_of_model(model: Model) -> str:
    """What a model's predictions are: "number", "probability" or "score"."""
    if not model.has_classes:
        return "number"
    return "probability" if model.has_probabilities else "score"


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """The records of a table whose target can be read, as a model's map sees them.

    Args:
      model: Whose map and target.
      records: The mapped records, n of them.
      raw_targets: Their targets in raw units, or classes -1 and +1, shape (n,).
      table: Their raw cells.
      without_target: How many records of the table were left out.
    """

    model: Model
    records: Records
    raw_targets: Vector
    table: pd.DataFrame
    without_target: int

    def __len__(self) -> int:
        """The number n of records."""
        return len(self.records)

    @property
    def kind(self) -> str:
        """What predictions are: "number", "probability" or "score"."""
        return kind_of_model(self.model)

    def margins(self) -> dict[str, Vector]:
        """Of the model, "common", and of the public records' where there is one, shape (n,)."""
        model, features = self.model, self.records.features
        margins = {"common": model.margins(features)}
        if model.public_theta is not None:
            margins["public"] = model.margins(features, model.public_theta)
        return margins

    def measures(self, margins: Vector) -> Mapping[str, Measure]:
        """The measures of a model with these margins on the sample."""
        return measures(self.model.outputs(margins), self.raw_targets, kind=self.kind)

    def loses(self, margins: Vector) -> float:
        """The main measure as a loss: the smaller the better."""
        name, less_is_better = MAIN[self.kind]
        value = self.measures(margins)[name](np.ones(len(self)))
        return value if less_is_better else 1.0 - value


def sample_of(model: Model, table: pd.DataFrame, *, where: str) -> Sample:
    """The records to judge a model on.

    Raises:
      InputError: A column is missing, or no record has a readable target.
    """
    target = model.feature_map.target
    if target.name not in table.columns:
        raise InputError(
            f"{where}: no column {target.name[:LONGEST_SHOWN]!r}, the target that quality is "
            f"measured on{did_you_mean(target.name, map(str, table.columns))}; give a table with it"
        )
    raw = target.raw(table[target.name])
    kept = np.isfinite(raw)
    if not kept.any():
        raise InputError(
            f"{where}: no record has a readable target {target.name!r}; give records that have one"
        )
    table = table[kept].reset_index(drop=True)
    return Sample(
        model=model,
        records=model.feature_map.apply(table, where=where),
        raw_targets=raw[kept],
        table=table,
        without_target=int(np.count_nonzero(~kept)),
    )


@dataclass(frozen=True, kw_only=True)
class Clamping:
    """What the public bounds alone cost: best fits of these records with and without clamps.

    Args:
      measure: What they are compared by, in raw units.
      clamped: Of the best fit on the records as every owner clamps them.
      unclamped: Of the best fit on the same columns without a clamp.
    """

    measure: str
    clamped: float
    unclamped: float


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The quality of models on one table.

    Args:
      target: The column that is predicted.
      kind: "number", "probability" or "score".
      records: How many records were judged on.
      without_target: How many had no readable target.
      models: Each model's measures, by its name.
      guess: The measures of always predicting the same.
      better_by: What "common" loses less than another in the main measure: positive is better.
      calibration: Predictions of "common" beside what was so.
      clamping: What clamping alone costs; None where there are too few records.
      positive: What class +1 is, as "died = yes"; nothing where the target is a number.
      positives: How many records are of it; None where the target is a number.
    """

    target: str
    kind: str
    records: int
    without_target: int
    models: Mapping[str, Mapping[str, Estimate]]
    guess: Mapping[str, float]
    better_by: Mapping[str, Estimate]
    calibration: tuple[Bin, ...]
    clamping: Clamping | None
    positive: str
    positives: int | None

    @property
    def main(self) -> str:
        """The measure that models are compared by."""
        return MAIN[self.kind][0]

    @property
    def intervals(self) -> str:
        """How the intervals were made."""
        return how_made(self.models["common"])

    def as_json(self) -> dict[str, Any]:
        """In plain values."""
        return {"main_measure": self.main} | asdict(self) | {"intervals": self.intervals}


def judge(sample: Sample, margins: Mapping[str, Vector]) -> Judged:
    """The quality of models on a sample, and how much better "common" is than each other.

    Args:
      sample: The records.
      margins: Each model's margins on them, by its name, shape (n,); "common" must be there.
    """
    named = {name: sample.measures(of_model) for name, of_model in margins.items()}
    main, less_is_better = MAIN[sample.kind]
    observed = sample.raw_targets
    if sample.kind != "number":
        observed = (observed > 0).astype(np.float64)

    def better(other: str) -> Estimate:
        pair = (named[other][main], named["common"][main])
        one, two = pair if less_is_better else pair[::-1]
        return difference(one, two, len(sample), rng=np.random.default_rng(SEED))

    return Judged(
        target=sample.model.feature_map.target_name,
        kind=sample.kind,
        records=len(sample),
        without_target=sample.without_target,
        models={
            name: estimates(of_model, len(sample), rng=np.random.default_rng(SEED))
            for name, of_model in named.items()
        },
        guess=of_guessing(sample.raw_targets, sample.kind),
        better_by={name: better(name) for name in named if name != "common"},
        calibration=()
        if sample.kind == "score"
        else calibration(sample.model.outputs(margins["common"]), observed),
        clamping=clamping(sample),
        positive=sample.model.meaning_of_one,
        positives=int(observed.sum()) if sample.kind != "number" else None,
    )


def clamping(sample: Sample) -> Clamping | None:
    """What the clamps alone cost on a sample; None where it is too small, or finds no best fit."""
    feature_map = sample.model.feature_map
    if len(sample) < RECORDS_PER_FEATURE * feature_map.num_features:
        return None
    targets = sample.records.targets
    if not sample.model.has_classes:
        rule = feature_map.target
        targets = np.clip((sample.raw_targets - rule.center) / rule.scale, -WIDE, WIDE)
    wide = Records(features=_unclamped(feature_map, sample.table), targets=targets)
    try:
        fits = [_best_loss(sample, records) for records in (sample.records, wide)]
    except np.linalg.LinAlgError:
        return None
    name, less_is_better = MAIN[sample.kind]
    clamped, unclamped = fits if less_is_better else (1.0 - fits[0], 1.0 - fits[1])
    return Clamping(measure=name, clamped=clamped, unclamped=unclamped)


def _unclamped(feature_map: FeatureMap, table: pd.DataFrame) -> Matrix:
    """Features that nothing clamps, shape (n, p): what clamps cost is seen by them."""
    rules = [
        rule.model_copy(
            update={"low": rule.center - WIDE * rule.scale, "high": rule.center + WIDE * rule.scale}
        )
        for rule in feature_map.columns
    ]
    wide = feature_map.model_copy(update={"columns": tuple(rules)})
    x = wide.unbounded_features(table)
    return np.concatenate([x, np.ones((len(x), 1))], axis=1) if feature_map.intercept else x


def _best_loss(sample: Sample, records: Records) -> float:
    """The main measure, as a loss, of the best fit on records, in the sample itself."""
    features: Matrix = records.features
    center = np.zeros(features.shape[1])
    theta = fit_near(records, sample.model.loss, center=center, weight=SMALLEST_WEIGHT)
    return sample.loses(features @ theta)
