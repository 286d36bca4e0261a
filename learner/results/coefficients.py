r"""The model in raw units: what one more unit of a raw column changes, and how far noise moved it.

.. math:: \hat y = \text{intercept} + \sum_j \beta_j\, \text{column}_j, \qquad
          \beta_j = \frac{s_y}{s_j} (R^\top\theta)_j

It holds for records within the public bounds and the L1 radius; others are clamped first. R is the
map's rotation, s_j and s_y the scales of column and target. A category's column is its integer
code. For classes the sum is the margin: under logistic loss log-odds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from common.arrays import Matrix, Vector
from common.errors import InputError
from common.features import FeatureMap
from common.model import Model
from learner.algorithms.asynchronous import Asynchronous
from learner.planning.plan import Plan
from learner.planning.proposal import propose
from learner.planning.public_side import PublicSide, known_groups, public_groups
from learner.planning.validation import public_theta
from learner.simulated.stability import largest_stable_step
from learner.simulated.studies import run_study, shortened
from learner.simulated.surrogates import surrogate_world
from learner.simulated.world import runs_worth
from learner.training.study import Outcome

INTERCEPT = "(intercept)"
# The standard error is itself known to a tenth of it; of many features, whose runs take long, to
# a fifth.
RUNS, FEWEST_RUNS = 48, 12
SEED = 20210920


@dataclass(frozen=True, kw_only=True)
class Coefficient:
    """One column's part of the prediction.

    Args:
      column: Its name; "(intercept)" for the constant.
      kind: Its kind in the feature map; "" for the constant.
      value: Change of the prediction for one more unit of the raw column.
      noise_standard_error: How far the owners' noise moves it, one deviation; None if unknown.
    """

    column: str
    kind: str
    value: float
    noise_standard_error: float | None


def in_raw_units(feature_map: FeatureMap, thetas: Matrix) -> Matrix:
    """Models over features as coefficients of raw columns and, last, the intercept.

    Args:
      feature_map: The map.
      thetas: Models, shape (..., p).

    Returns:
      Shape (..., d + 1).
    """
    constant = thetas[..., -1] if feature_map.intercept else np.zeros(thetas.shape[:-1])
    slopes = thetas[..., : len(feature_map.bounds)]
    if feature_map.rotation is not None:
        slopes = slopes @ np.array(feature_map.rotation, dtype=np.float64)
    centers = np.array([rule.center for rule in feature_map.columns])
    scales = np.array([rule.scale for rule in feature_map.columns])
    target = feature_map.target
    per_unit = slopes / scales
    intercept = target.center + target.scale * (constant - per_unit @ centers)
    return np.concatenate([target.scale * per_unit, intercept[..., None]], axis=-1)


def coefficients(model: Model) -> list[Coefficient]:
    """The coefficients of a model in raw units, the intercept last."""
    values = in_raw_units(model.feature_map, model.theta)
    noise = model.coefficient_noise
    named = [(rule.name, rule.kind) for rule in model.feature_map.columns]
    return [
        Coefficient(
            column=column,
            kind=kind,
            value=float(value),
            noise_standard_error=None if noise is None else float(noise[j]),
        )
        for j, ((column, kind), value) in enumerate(
            zip([*named, (INTERCEPT, "")], values, strict=True)
        )
    ]


def coefficient_noise(plan: Plan, public: PublicSide) -> Vector | None:
    """Standard errors of the raw coefficients that the owners' noise makes, shape (d + 1,).

    The study is run again and again on public records that play the owners, at the same ticks with
    new noise: what the coefficients differ by is the noise's doing. Nothing private is looked at.

    Args:
      plan: What ran.
      public: The feature map and the public records.

    Returns:
      None where there are no public records, or too few.
    """
    if public.records is None:
        return None
    # The clocks' seed of this run, whether it was given or drawn: the ticks stay the same.
    settings = plan.settings.model_copy(update={"seed": plan.seed})
    rng = np.random.default_rng(SEED)
    try:
        proposal = propose(settings, public.feature_map, plan.decision, seed=plan.seed)
        groups = public_groups(public, plan.problem)
        known = known_groups(public, settings)
        world = surrogate_world(groups, proposal.num_records, known=known, rng=rng)
    except InputError:  # Too few public records, or an algorithm that nothing simulates.
        return None
    stable = np.inf
    if isinstance(proposal.algorithm, Asynchronous):
        stable = largest_stable_step(proposal.algorithm, groups.records, loss=plan.loss)
    proposal = shortened(proposal, largest_stable=stable)
    runs = max(runs_worth(RUNS, public.feature_map.num_features), FEWEST_RUNS)
    thetas = run_study(proposal, world, runs=runs, rng=rng)
    noise: Vector = np.std(in_raw_units(public.feature_map, thetas), axis=0, ddof=1)
    return noise if np.all(np.isfinite(noise)) else None


def model_of(outcome: Outcome, public: PublicSide) -> Model:
    """What ``model.json`` holds of a training that has just ended."""
    plan = outcome.plan
    return Model(
        feature_map=public.feature_map,
        loss=plan.loss,
        theta=outcome.theta,
        public_theta=public_theta(plan, public),
        coefficient_noise=coefficient_noise(plan, public),
        unprotected=plan.settings.learner.own,
        insecure_noise=any(enrolled.insecure_noise for enrolled in outcome.enrollments),
    )
