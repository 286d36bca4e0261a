"""How good a model is, for the summary: measured where records are here, and as owners say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from common.arrays import Vector
from common.losses import Loss
from common.model import Model
from common.terms import Records, StudyTerms
from common.validation import ValidationMeans, tally, unpack_validation
from learner.planning.public_side import PublicSide
from learner.results.run_quality import Union, quality_of_run
from learner.results.summary import Summary
from learner.results.validated import as_agreed, missing_from, summarise_validation
from learner.training.study import Outcome


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
    changes: dict[str, object] = {"quality": quality_of_run(model, public, whole)}
    validated, loss = outcome.validated, outcome.plan.loss
    if validated is not None:
        names = [owner.name for owner in summary.owners]
        if whole is None:
            own = None if summary.own is None else names.index(summary.own)
            validated = as_agreed(validated, own=own)
        changes["validation_missing"] = missing_from(validated, names)
        changes["validation"] = summarise_validation(
            validated,
            names=names,
            num_records=[owner.records for owner in summary.owners],
            exact=None
            if whole is None
            else exact_means(validated.terms, whole.shards, outcome.theta, loss=loss),
            raw_scale=public.feature_map.target.scale if loss.is_quadratic else None,
        )
    return summary.model_copy(update={key: value for key, value in changes.items() if value})


def exact_means(
    terms: Sequence[StudyTerms], shards: Sequence[Records], theta: Vector, *, loss: Loss
) -> list[ValidationMeans]:
    """What owners of these records would answer without noise, and without a bound on differences.

    Args:
      terms: What each was asked; nothing where nobody was.
      shards: Their records.
      theta: The model, shape (p,).
      loss: The loss.
    """
    return [
        _exact_mean(its, shard, theta, loss=loss)
        for its, shard in zip(terms, shards, strict=bool(terms))
    ]


def _exact_mean(terms: StudyTerms, shard: Records, theta: Vector, *, loss: Loss) -> ValidationMeans:
    y, margins = shard.targets, shard.features @ theta
    reference = shard.features @ np.array(terms.reference) if terms.reference else None
    means = unpack_validation(tally(margins, y, reference, loss=loss, terms=terms), terms)
    if reference is None:
        return means
    differences = loss.values(margins, y) - loss.values(reference, y)
    return replace(means, difference=float(differences.mean()))
