"""What a model of the public records is worth on records that it was not fitted to.

A model of classes fits the records that it is learnt from better than others, and may fit few of
them perfectly: they know neither it nor the best fitness of others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from common.arrays import Vector
from common.terms import Records
from learner.simulated.problem import Problem

__all__ = ["CrossValidation"]

FOLDS, FOLDS_SEED = 5, 0
# The calibration slope of a model that is twice too sure of what it has not seen.
LEAST_SLOPE = 0.5
# How far, as a deviation, records held out may easily ask for another part of a model to be kept.
EASILY = 0.2


@dataclass(frozen=True, kw_only=True, eq=False)
class CrossValidation:
    """Five-fold cross-validation of the best model of some records.

    Args:
      problem: What is learnt.
      records: The records, n of them.
      theta: Their best model, shape (p,).

    >>> from common.losses import Logistic, Regulariser
    >>> x = np.repeat([[1.0], [-1.0]], 20, axis=0)
    >>> problem = Problem(loss=Logistic(), regulariser=Regulariser(coefficient=0.0), theta_max=9.0)
    >>> known = Records(features=x, targets=np.r_[-1.0, np.ones(19), 1.0, -np.ones(19)])
    >>> CrossValidation(problem=problem, records=known, theta=problem.optimum(known)).is_overfit
    False
    >>> tossed = Records(features=x, targets=np.tile([1.0, 1.0, -1.0, -1.0], 10))
    >>> CrossValidation(problem=problem, records=tossed, theta=problem.optimum(tossed)).is_overfit
    True
    """

    problem: Problem
    records: Records
    theta: Vector

    @cached_property
    def folds(self) -> list[tuple[Vector, Records]]:
        """The best model of all folds but one, and the records of that one."""
        labels = np.random.default_rng(FOLDS_SEED).permutation(len(self.records)) % FOLDS
        found = []
        for fold in range(min(FOLDS, len(self.records))):
            others, left = np.nonzero(labels != fold)[0], np.nonzero(labels == fold)[0]
            model = self.problem.optimum(self.records.at(others))
            found.append((model, self.records.at(left)))
        return found

    @cached_property
    def is_overfit(self) -> bool:
        r"""Whether a model of these records is more than twice too sure of others.

        Its calibration slope, the s at which margins times s lose least on the records held out,
        is below a half. The loss is convex in s, so that its derivative there decides.

        References: Cox (1958), Two further applications of a model for binary regression; Copas
        (1983), Regression, prediction and shrinkage.
        """
        derivative = 0.0
        for model, left in self.folds:
            margins = left.features @ model
            slopes = self.problem.loss.slopes(LEAST_SLOPE * margins, left.targets)
            derivative += float(slopes @ margins)
        return derivative > 0.0

    def kept(self, most: float) -> float:
        r"""How much of the model is kept, at most this much, so that it fits records held out.

        .. math:: \arg\min_{0 \le s \le k}
                  \sum_r \ell(s\,\theta_{-r}^\top x_r, y_r) + \frac{(s - k)^2}{2\sigma^2}

        with :math:`\theta_{-r}` learnt without record r. Alone the first term gives the
        calibration slope, which a few records do not know well; the second holds it near k unless
        they are sure. Where classes can be told apart without a mistake, their model has no
        length: any larger one fits them better, and others worse.

        Args:
          most: The k.

        References: Van Houwelingen and le Cessie (1990), Predictive value of statistical models.
        """
        if most <= 0.0:
            return 0.0
        from scipy.optimize import minimize_scalar  # noqa: PLC0415 (training starts without it)

        held_out = [(left.features @ model, left.targets) for model, left in self.folds]

        def loss(s: float) -> float:
            each = (self.problem.loss.values(s * m[None], y).sum() for m, y in held_out)
            return float(sum(each)) + (s - most) ** 2 / (2.0 * EASILY**2)

        return float(minimize_scalar(loss, bounds=(0.0, most), method="bounded").x)

    @cached_property
    def fitness(self) -> tuple[float, float]:
        """Fitness of the model on its own records, and on records held out, which is no less."""
        inside = self.problem.fitness(self.theta, self.records)
        outside = sum(
            self.problem.fitness(model, left) * len(left) / len(self.records)
            for model, left in self.folds
        )
        return inside, max(outside, inside)

    @property
    def wrong(self) -> float:
        """The share of the records held out whose class is told wrongly."""
        told = sum(int(np.sum(left.targets * (left.features @ m) > 0.0)) for m, left in self.folds)
        return 1.0 - told / len(self.records)

    def honest(self, worlds: int) -> tuple[Vector, Vector]:
        r"""Factors for relative fitness, and psi of the model of these records, in so many worlds.

        The model's fitness f on its own records is less than others' best, and :math:`f_{cv}` on
        records held out is more. Nothing tells where between them that is, and it is the unit of
        relative fitness. So world w of W has another one,

        .. math:: f_w^* = f^{1-u} f_{cv}^u, \qquad u = (w + 1/2)/W

        the middle one half-way. Where the two are near each other it matters little where. Where
        these records' classes can be told apart nearly without a mistake, f is next to nothing and
        :math:`f_{cv}` many times larger; half of their sum would have psi below 1, however bad the
        model is.

        Args:
          worlds: How many worlds.

        Returns:
          The factors :math:`f/f_w^*` that simulated relative fitness is times, and the psi
          :math:`f_{cv}/f_w^* - 1` of the model, shapes (W,).

        References: Efron (1983), on the optimism of a rule's apparent error.

        >>> from common.losses import Logistic, Regulariser
        >>> problem = Problem(loss=Logistic(), regulariser=Regulariser(coefficient=0.0),
        ...     theta_max=9.0)
        >>> records = Records(features=np.ones((5, 1)), targets=np.array([1.0, 1, 1, 1, -1]))
        >>> known = CrossValidation(problem=problem, records=records, theta=np.ones(1))
        >>> known.__dict__["fitness"] = 0.01, 1.0
        >>> [each.round(3).tolist() for each in known.honest(3)]
        [[0.464, 0.1, 0.022], [45.416, 9.0, 1.154]]
        """
        inside, outside = self.fitness
        place = (np.arange(worlds) + 0.5) / worlds
        more = outside / inside
        factor: Vector = more**-place
        return factor, factor * more - 1.0
