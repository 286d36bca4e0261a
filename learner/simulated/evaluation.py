r"""How good a model is on the union of the records: fitness, its optimum, relative fitness.

This looks at all records at once, which no learner of a real study can do: it is for simulations,
for public records, and for an owner that compares a model with its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from common.arrays import Matrix, Vector
from common.errors import InputError
from common.terms import Records
from learner.simulated.problem import Problem, squared_moments

# Margins held at once when many models are evaluated: 32 MB.
LARGEST_BLOCK = 4_000_000
# Models times records that are looked at along a run, about a second; fewer records than these
# would say little, so very long runs are looked at in so many places.
ALONG, FEWEST_RECORDS, MOST_MODELS = 20_000_000, 4_000, 5_000
SAMPLE_SEED = 20210922


def union(shards: Sequence[Records]) -> Records:
    """All owners' records in one table, in the order of the owners."""
    return Records(
        features=np.concatenate([shard.features for shard in shards]),
        targets=np.concatenate([shard.targets for shard in shards]),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    r"""What computes the relative fitness :math:`\psi(\theta) = f(\theta)/f(\theta^*)-1`.

    The optimum on the union is computed once, when it is first needed; after that, squared loss
    needs the moments only, whatever the number of records.

    Args:
      shards: Each owner's records.
      problem: What is learnt.

    >>> from common.losses import Regulariser, Squared
    >>> shard = Records(features=np.ones((2, 1)), targets=np.array([1.0, 3.0]))
    >>> problem = Problem(loss=Squared(), regulariser=Regulariser(coefficient=0.0),
    ...     theta_max=9.0)
    >>> evaluation = Evaluation(shards=[shard], problem=problem)
    >>> evaluation.relative_fitness(np.array([[2.0], [4.0]])).round(9)
    array([0., 4.])
    """

    shards: Sequence[Records]
    problem: Problem

    @cached_property
    def records(self) -> Records:
        """The union of the shards."""
        return union(self.shards)

    @cached_property
    def theta_optimal(self) -> Vector:
        """The optimum theta* on the union, shape (p,)."""
        return self.problem.optimum(self.records)

    @cached_property
    def fitness_optimal(self) -> float:
        """The fitness f(theta*) on the union.

        Raises:
          InputError: It is 0, so that no fitness is relative to it.
        """
        value = self.fitness(self.theta_optimal)
        if not value > 0:
            raise InputError(
                f"fitness: its optimum is {value}, so relative fitness is not defined; "
                "use records that no model fits exactly"
            )
        return value

    def fitness(self, theta: Vector) -> float:
        """Fitness (2) of one model of shape (p,) on the union."""
        return self.problem.fitness(theta, self.records)

    def relative_fitness(self, thetas: Matrix) -> Vector:
        """Relative fitness psi of many models at once.

        Args:
          thetas: Models, shape (..., p).

        Returns:
          Their relative fitness, shape (...), at least 0 inside the box up to rounding.
        """
        rows = np.reshape(thetas, (-1, thetas.shape[-1]))
        squared = self.problem.loss.is_quadratic
        excess = self._squared_excess(rows) if squared else self._excess(rows)
        return np.reshape(excess / self.fitness_optimal, thetas.shape[:-1])

    @cached_property
    def relative_fitness_alone(self) -> Vector:
        """Relative fitness on the union of each owner's own optimum theta_i*, shape (N,)."""
        return self.relative_fitness(self.models_alone)

    @cached_property
    def models_alone(self) -> Matrix:
        """Each owner's own optimum theta_i*, shape (N, p)."""
        return np.stack([self.problem.optimum(shard) for shard in self.shards])

    def relative_fitness_along(self, thetas: Matrix) -> Vector:
        r"""Relative fitness of the models of a run, in bounded time.

        Exact for squared loss, and where models and records are few. Else it is the mean over a
        sample of records of what each loses more than the tangent at theta* says, beside the
        tangent of all records:

        .. math:: f(\theta) - f(\theta^*) \approx \frac1m \sum_{r} \big[\ell_r(\theta) -
            \ell_r(\theta^*) - v_r^\top(\theta - \theta^*)\big] + g(\theta) - g(\theta^*)
            + \bar v^\top(\theta - \theta^*)

        with v_r a record's slope at theta*. It is right on average, and near theta*, where a
        difference of sample means would be all error, its relative error is about
        :math:`1/\sqrt m`; with hinge loss m counts only records whose margin lies between.

        Args:
          thetas: The models in their order, shape (T, p).

        Returns:
          Their relative fitness, shape (T,). Of more than 5,000 models those between are not
          looked at, and are not a number.
        """
        count, n = len(thetas), sum(map(len, self.shards))
        if self.problem.loss.is_quadratic or count * n <= ALONG:
            return self.relative_fitness(thetas)
        psi = np.full(count, np.nan)
        places = np.unique(np.linspace(0, count - 1, min(count, MOST_MODELS)).astype(int))
        size = min(n, max(FEWEST_RECORDS, ALONG // len(places)))
        psi[places] = self._sampled_excess(thetas[places], size) / self.fitness_optimal
        return psi

    def _sampled_excess(self, thetas: Matrix, size: int) -> Vector:
        """About f(theta) - f(theta*), from this many records, shape (m,)."""
        loss, best, g = self.problem.loss, self.theta_optimal, self.problem.regulariser
        x, y = self.records.features, self.records.targets
        slopes = loss.slopes(x @ best, y)
        drawn = np.random.default_rng(SAMPLE_SEED).choice(len(y), size=size, replace=False)
        x_drawn, y_drawn = x[drawn], y[drawn]
        away = thetas - best
        there = loss.mean_value(best, x_drawn, y_drawn)
        blocks = np.array_split(thetas, 1 + len(thetas) * size // LARGEST_BLOCK)
        means = [loss.values(block @ x_drawn.T, y_drawn).mean(axis=1) for block in blocks]
        tangent = slopes @ x / len(y) - slopes[drawn] @ x_drawn / size
        excess: Vector = np.concatenate(means) - there + away @ tangent
        excess += g.coefficient * (np.sum(thetas**2, axis=1) - best @ best)
        return excess

    def _squared_excess(self, thetas: Matrix) -> Vector:
        """f(theta) - f(theta*) around theta*, so that nothing cancels, shape (m,)."""
        hessian, slope = self._squared_expansion
        away = thetas - self.theta_optimal
        return 0.5 * np.einsum("mi,mi->m", away @ hessian, away) + away @ slope

    @cached_property
    def _squared_expansion(self) -> tuple[Matrix, Vector]:
        """Hessian of f, and its gradient at theta*: 0 but where the box holds theta* back."""
        A, b = squared_moments(self.records, self.problem.regulariser)
        at_bound = self.problem.at_edge(self.theta_optimal)
        return 2.0 * A, np.where(at_bound, 2.0 * (A @ self.theta_optimal - b), 0.0)

    def _excess(self, thetas: Matrix) -> Vector:
        """f(theta) - f(theta*) for any loss, a block of models at a time, shape (m,)."""
        x, y = self.records.features, self.records.targets
        blocks = np.array_split(thetas, 1 + len(thetas) * len(y) // LARGEST_BLOCK)
        losses = [self.problem.loss.values(block @ x.T, y).mean(axis=1) for block in blocks]
        g = self.problem.regulariser.coefficient * np.sum(thetas**2, axis=1)
        return g + np.concatenate(losses) - self.fitness_optimal
