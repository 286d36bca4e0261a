"""Owners who answer in a simulation: real records, or mixtures of public ones that play them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from common.arrays import Labels, Matrix, Vector
from common.terms import Records
from learner.algorithms.clocks import Groups
from learner.forecast.groups import Model, PublicGroups
from learner.simulated.evaluation import Evaluation
from learner.simulated.replicates import (
    GradientFunction,
    Moments,
    moment_gradients,
    record_gradients,
)

__all__ = ["Mixture", "World"]


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """Owners played by public records, or the owners' own records where they are at hand.

    Args:
      model: What is learnt.
      weights: Shares n_i/n of the records, shape (N,).
      shards: Records that answer for each owner.
      moments: Each owner's exact moments; None unless the loss is squared.
      judging: Records on which fitness is told, as if they were the union.
      theta_alone: Each owner's own model, shape (N, p).
      mixture: The whole distributions, to which the shards' gradients are corrected at the
        optimum; None where the shards are everything.
    """

    model: Model
    weights: Vector
    shards: Sequence[Records]
    moments: Moments | None
    judging: Sequence[Records]
    theta_alone: Matrix
    mixture: Mixture | None = None

    @classmethod
    def of(cls, shards: Sequence[Records], model: Model) -> World:
        """The world of real shards: where they are public, or in an experiment."""
        sizes = np.array([len(shard) for shard in shards], dtype=np.float64)
        return cls(
            model=model,
            weights=sizes / sizes.sum(),
            shards=shards,
            moments=Moments.of(shards) if model.loss.is_quadratic else None,
            judging=shards,
            theta_alone=np.stack([model.optimum(shard) for shard in shards]),
        )

    @cached_property
    def evaluation(self) -> Evaluation:
        """Fitness on the union of the owners."""
        return Evaluation(
            shards=self.judging,
            loss=self.model.loss,
            regulariser=self.model.regulariser,
            theta_max=self.model.theta_max,
        )

    @cached_property
    def relative_fitness_alone(self) -> Vector:
        """Relative fitness on the union of each owner's own model, shape (N,)."""
        return self.evaluation.relative_fitness(self.theta_alone)

    def only(self, owners: Sequence[int]) -> World:
        """The same world with these owners taking part; fitness stays that on all owners."""
        kept = list(owners)
        weights = self.weights[kept]
        moments = self.moments
        if moments is not None:
            moments = Moments(gram=moments.gram[kept], cross=moments.cross[kept])
        mixture = self.mixture
        if mixture is not None:
            mixture = replace(mixture, weights=mixture.weights[kept], shifts=mixture.shifts[kept])
        return replace(
            self,
            weights=weights / weights.sum(),
            shards=[self.shards[owner] for owner in kept],
            moments=moments,
            theta_alone=self.theta_alone[kept],
            mixture=mixture,
        )

    def group_gradients(self, groups: Groups, clip: float | None) -> GradientFunction:
        """The exact mean gradients of fixed groups, each one larger owner (Remark 2 of [A])."""
        if self.moments is not None and clip is None:
            shares = [self.weights[list(g)] / self.weights[list(g)].sum() for g in groups]
            merged = Moments(
                gram=np.stack(
                    [
                        np.tensordot(own, self.moments.gram[list(g)], axes=1)
                        for own, g in zip(shares, groups, strict=True)
                    ]
                ),
                cross=np.stack(
                    [
                        own @ self.moments.cross[list(g)]
                        for own, g in zip(shares, groups, strict=True)
                    ]
                ),
            )
            return moment_gradients(merged)
        each = self.gradients(clip)
        size = max(map(len, groups))
        # A group's members in rows, filled up with its first at weight 0.
        members = np.array([[*g, *[g[0]] * (size - len(g))] for g in groups])
        share = np.array(
            [
                [*self.weights[list(g)] / self.weights[list(g)].sum(), *[0.0] * (size - len(g))]
                for g in groups
            ]
        )

        def answer(slots: Labels, thetas: Matrix) -> Matrix:
            total = np.zeros_like(thetas)
            for place in range(size):
                total += share[slots, place][:, None] * each(members[slots, place], thetas)
            return total

        return answer

    def gradients(self, clip: float | None) -> GradientFunction:
        """The owners' exact mean gradients, clipped if they are."""
        if self.moments is not None and clip is None:
            return moment_gradients(self.moments)
        answers = record_gradients(self.shards, loss=self.model.loss, clip=clip)
        if self.mixture is None:
            return answers
        offsets = self.mixture.offsets(self.shards, clip)

        def corrected(slots: Labels, thetas: Matrix) -> Matrix:
            answer: Matrix = answers(slots, thetas)
            answer += offsets[slots]
            return answer

        return corrected


@dataclass(frozen=True, kw_only=True, eq=False)
class Mixture:
    """Each owner's distribution over public records, their targets shifted by x'delta_i.

    Args:
      public: The public records.
      weights: Weights of the records for each owner, shape (N, n), rows sum to 1.
      shifts: The delta_i, shape (N, p).
    """

    public: PublicGroups
    weights: Matrix
    shifts: Matrix

    def records_of(self, owner: int) -> Records:
        """All public records with this owner's targets."""
        x = self.public.records.features
        return Records(features=x, targets=self.public.records.targets + x @ self.shifts[owner])

    def offsets(self, shards: Sequence[Records], clip: float | None) -> Matrix:
        """What the shards' mean gradients lack at the optimum, shape (N, p)."""
        model, anchor = self.public.model, self.public.theta_optimal
        missing = np.empty_like(self.shifts)
        for owner, (own, shard) in enumerate(zip(self.weights, shards, strict=True)):
            whole = own @ model.gradients(anchor, self.records_of(owner), clip)
            missing[owner] = whole - model.gradients(anchor, shard, clip).mean(axis=0)
        return missing

    @cached_property
    def second(self) -> NDArray[np.float64]:
        """Second moments of features and target of each owner, shape (N, p + 1, p + 1)."""
        matrices = []
        for owner, own in enumerate(self.weights):
            records = self.records_of(owner)
            rows = np.column_stack([records.features, records.targets])
            matrices.append((rows * own[:, None]).T @ rows)
        return np.stack(matrices)

    def moments(self) -> Moments:
        """Each owner's moments."""
        return Moments(gram=self.second[:, :-1, :-1].copy(), cross=self.second[:, :-1, -1].copy())

    def drawn(self, owner: int, size: int, *, rng: np.random.Generator) -> Records:
        """Systematically drawn records, spread evenly over margins and targets."""
        records = self.records_of(owner)
        margins = records.features @ self.public.theta_optimal
        order = np.lexsort((margins, records.targets))
        edges = np.cumsum(self.weights[owner][order])
        places = (np.arange(size) + rng.random()) / size * edges[-1]
        rows = order[np.minimum(np.searchsorted(edges, places), len(order) - 1)]
        return Records(features=records.features[rows], targets=records.targets[rows])
