"""The model of a run, with what public records say beside it."""

from __future__ import annotations

from common.model import Model
from learner.planning.public_side import PublicSide
from learner.planning.validation import public_theta
from learner.results.coefficients import coefficient_noise
from learner.training.study import Outcome

__all__ = ["model_of"]


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
    )
