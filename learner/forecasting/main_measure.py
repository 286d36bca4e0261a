r"""What a forecast means in the measure that people compare models by.

Relative fitness is how far a model is from the best one. Whether that is worth a study depends on
how good the best one is, and the public records tell it: the mean loss of their own model
:math:`\theta_0` on them is too small, since it was made from them. A model of relative fitness
:math:`\psi` loses :math:`\psi f^*` more than the best one.

For squared loss the best one loses :math:`t / 2(n - p)` more than that, with t the trace of
:class:`learner.simulated.groups.PublicGroups`, which residuals of p fitted parameters make too
small by :math:`(n - p)/n`. It is the mean squared error after the map, and the measure is its root
in the target's raw units, errors beyond the public bounds included as the public records show them.
For logistic loss the measure is the log loss itself, and the best one's
is what the middle world has (:class:`learner.simulated.cross_validation.CrossValidation`). Other
losses do not determine such a measure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from common.arrays import Vector
from common.fitting import TargetRule
from common.losses import Logistic, Squared
from common.quality import of_guessing
from learner.simulated.groups import PublicGroups


@dataclass(frozen=True, kw_only=True)
class ExpectedQuality:
    """How good models are expected to be on records as hard to predict as the public ones.

    Args:
      measure: "rmse", in the target's raw units, or "log_loss"; less is better.
      target: The column that is predicted.
      best: Of the best model of all records.
      common: Of the common model.
      interval_90: Between these are nine runs in ten.
      public: Of the public records' model.
      guess: Of always predicting the same.
    """

    measure: str
    target: str
    best: float
    common: float
    interval_90: tuple[float, float]
    public: float
    guess: float


def expected_quality(
    groups: PublicGroups,
    raw_targets: Vector,
    rule: TargetRule,
    *,
    fitness: tuple[float, float, float, float],
) -> ExpectedQuality | None:
    """A forecast in the main measure of its model.

    Args:
      groups: The public records.
      raw_targets: Their targets in raw units, or classes -1 and +1, shape (n,).
      rule: How the map reads the target.
      fitness: Expected relative fitness of the common model, its 90 % interval's ends, and that of
        the public model.

    Returns:
      None for hinge and Huber loss, and where targets are missing or too large for a sum of
      squares.
    """
    loss, theta = groups.problem.loss, groups.theta_optimal
    known = np.isfinite(raw_targets)
    if not known.any():
        return None
    seen = groups.problem.fitness(theta, groups.records)
    if isinstance(loss, Squared):
        chance = groups.trace / (2 * max(len(groups.records) - theta.size, 1))
        measure, kind, unit = "rmse", "number", rule.scale**2
        outputs = groups.records.features[known] @ theta * rule.scale + rule.center
        with np.errstate(over="ignore"):
            of_best = float(np.mean((raw_targets[known] - outputs) ** 2)) + unit * chance
    elif isinstance(loss, Logistic):
        chance = math.sqrt(math.prod(groups.outside.fitness)) - seen
        measure, kind, unit = "log_loss", "probability", 1.0
        of_best = loss.mean_value(theta, groups.records.features, groups.records.targets) + chance
    else:
        return None

    def of(psi: float) -> float:
        loss_of_it = of_best + unit * (seen + chance) * psi
        return math.sqrt(loss_of_it) if measure == "rmse" else loss_of_it

    common, low, high, public = map(of, fitness)
    guess = of_guessing(raw_targets[known], kind)[measure]
    if not all(map(math.isfinite, (common, low, high, public, guess))):
        return None
    return ExpectedQuality(
        measure=measure,
        target=rule.name,
        best=of(0.0),
        common=common,
        interval_90=(low, high),
        public=public,
        guess=guess,
    )
