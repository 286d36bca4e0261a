"""How good a model is, for the summary: measured where records are here, and as owners say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from common.arrays import Vector
from common.features import FeatureMap
from common.model import Model
from common.terms import Records
from common.validation import tally
from learner.planning.public_side import PublicSide
from learner.results.run_quality import Union, quality_of_run
from learner.results.summary import Summary
from learner.results.validated import missing_from, summarise_validation
from learner.training.study import Outcome
from learner.training.validation import Validated

__all__ = ["with_quality"]


def with_quality(
    summary: Summary, outcome: Outcome, model: Model, public: PublicSide, *, whole: Union | None
) -> Summary:
    """The summary with how good the model is: as measured here, and by the owners' answers.

    Args:
      summary: Of the run.
      outcome: Of the run.
      model: What it made.
      public: The feature map and the public records.
      whole: The owners' records, which only a simulation has.
    """
    summary = summary.with_quality(quality_of_run(model, public, whole))
    shards = None if whole is None else whole.shards
    return _with_validation(summary, outcome, public.feature_map, shards)


def _with_validation(
    summary: Summary,
    outcome: Outcome,
    feature_map: FeatureMap,
    shards: Sequence[Records] | None,
) -> Summary:
    """The summary with the owners' answers about the model, and who did not answer."""
    validated = outcome.validated
    if validated is None:
        return summary
    names = [owner.name for owner in summary.owners]
    found = summarise_validation(
        validated,
        names=names,
        num_records=[owner.records for owner in summary.owners],
        exact=None if shards is None else _exact(validated, outcome, shards),
        raw_scale=feature_map.target.scale if outcome.plan.loss.is_quadratic else None,
    )
    missing = missing_from(validated, names)
    changes = {"validation": found, "validation_missing": missing}
    return summary.model_copy(update={key: value for key, value in changes.items() if value})


def _exact(validated: Validated, outcome: Outcome, shards: Sequence[Records]) -> list[Vector]:
    """What each owner would have answered without noise; None where nobody was asked."""
    return [
        tally(
            shard.features @ outcome.theta,
            shard.targets,
            shard.features @ np.array(terms.reference) if terms.reference else None,
            loss=outcome.plan.loss,
            terms=terms,
        )
        for terms, shard in zip(validated.terms, shards, strict=bool(validated.terms))
    ]
