"""How good a run's model is, in the target's raw units, on the records that may be looked at.

After ``simulate`` these are the owners' own records; after ``train`` the public ones, which are no
owner's and say what they can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from common.arrays import Matrix, Vector
from common.judging import MAIN, kind_of_model
from common.model import Model
from common.quality import Estimate, Measure, estimates, how_made, measures, of_guessing
from common.terms import Records
from learner.planning.public_side import PublicSide
from learner.results.summary import Interval, QualitySummary
from learner.simulated.evaluation import union

SEED = 20210922


@dataclass(frozen=True, eq=False)
class Union:
    """All owners' records, which only a simulation has.

    Args:
      shards: Each owner's records after the feature map.
      raw_targets: Their targets in raw units, or classes -1 and +1.
      models_alone: Each owner's own model, shape (N, p), or None.
    """

    shards: Sequence[Records]
    raw_targets: Sequence[Vector]
    models_alone: Matrix | None = None


def quality_of_run(model: Model, public: PublicSide, whole: Union | None) -> QualitySummary | None:
    """The quality on the union of the owners' records, or else on the public ones.

    Returns:
      None where there are neither.
    """
    if whole is not None:
        records, targets = union(whole.shards), np.concatenate(whole.raw_targets)
        found = _quality(model, records, targets, on="owners", alone=whole.models_alone)
        return found and found.model_copy(update={"at_home": _at_home(model, whole)})
    if public.records is None or public.raw_targets is None:
        return None
    return _quality(model, public.records, public.raw_targets, on="public", alone=None)


def _quality(
    model: Model, records: Records, targets: Vector, *, on: str, alone: Matrix | None
) -> QualitySummary | None:
    """The main measure of each model on records whose target can be read."""
    measure = _main_measure(model, records, targets)
    if measure is None:
        return None
    targets = targets[np.isfinite(targets)]
    judged = {"common": measure(model.theta)}
    if model.public_theta is not None:
        judged["public"] = measure(model.public_theta)
    # On the same draws of records.
    found = {
        whose: _interval(one)
        for whose, one in estimates(judged, len(targets), rng=np.random.default_rng(SEED)).items()
    }
    common = found["common"]
    if common is None:
        return None
    kind = kind_of_model(model)
    facts: dict[str, Any] = {"measure": MAIN[kind][0], "on": on}
    return QualitySummary(
        **facts,
        target=model.feature_map.target_name,
        records=len(targets),
        common=common,
        public=found.get("public"),
        guess=of_guessing(targets, kind)[MAIN[kind][0]],
        alone=None
        if alone is None
        else tuple(measure(theta)(np.ones(len(targets))) for theta in alone),
        intervals=how_made([MAIN[kind][0]]),
    )


def _at_home(model: Model, whole: Union) -> dict[str, tuple[float | None, ...]]:
    """Each model's main measure on each owner's own records; None where none can be judged on.

    An owner's own model, "alone", was made from these records.
    """
    count = len(whole.shards)
    models: dict[str, Sequence[Vector]] = {"common": [model.theta] * count}
    if model.public_theta is not None:
        models["public"] = [model.public_theta] * count
    if whole.models_alone is not None:
        models["alone"] = list(whole.models_alone)
    judges = [
        _main_measure(model, shard, targets)
        for shard, targets in zip(whole.shards, whole.raw_targets, strict=True)
    ]

    def of_all(thetas: Sequence[Vector]) -> Iterator[float | None]:
        for judge, theta, targets in zip(judges, thetas, whole.raw_targets, strict=True):
            ones = np.ones(np.count_nonzero(np.isfinite(targets)))
            yield None if judge is None else judge(theta)(ones)

    return {whose: tuple(of_all(thetas)) for whose, thetas in models.items()}


def _main_measure(
    model: Model, records: Records, targets: Vector
) -> Callable[[Vector], Measure] | None:
    """A model's theta to its main measure on the records whose target can be read, if any."""
    known = np.isfinite(targets)
    if not known.any():
        return None
    features, observed = records.features[known], targets[known]
    kind = kind_of_model(model)

    def measure(theta: Vector) -> Measure:
        outputs = model.outputs(model.margins(features, theta))
        return measures(outputs, observed, kind=kind)[MAIN[kind][0]]

    return measure


def _interval(estimate: Estimate) -> Interval | None:
    if estimate.value is None:
        return None
    return Interval(value=estimate.value, low=estimate.low, high=estimate.high)
