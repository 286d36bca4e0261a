"""Owners who answer in a simulation: real records, or mixtures of public ones that play them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from common.arrays import Array, Indices, Matrix, Vector
from common.terms import Records
from learner.algorithms.clocks import Groups
from learner.algorithms.shrinkage import whitening
from learner.simulated.evaluation import Evaluation, union
from learner.simulated.groups import PublicGroups
from learner.simulated.larger_owners import asked_together, group_shares
from learner.simulated.problem import Problem
from learner.simulated.replicates import (
    GradientFunction,
    ShardMoments,
    moment_gradients,
    record_gradients,
)

# Records for each feature at which half of an owner's own Gram matrix is its group's.
OWN_GRAM = 6.0
# Up to this many coordinates runs are as many as asked for.
FEW_COORDINATES = 64
UNITED_SEED = 0
# Shares that differ by less are the same.
ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """Owners played by public records, or the owners' own records where they are available.

    Real records (:meth:`of`) are all that there is of an owner. Of a mixture of public records,
    shards are a part. With squared loss its ``moments`` say the rest; with any other, more records
    are drawn of it, which owners learn from alone and which play them as one (``united``).

    Args:
      problem: What is learnt.
      weights: Shares n_i/n of the records, shape (N,).
      shards: Records that answer for each owner.
      moments: Each owner's exact moments; None unless the loss is squared.
      judging: Records on which fitness is judged, as if they were the union.
      learning: Records from which each owner would learn its own model; None where the moments
        of the mixture tell it.
      mixture: The whole distributions, to which the shards' gradients are corrected at the
        optimum; None where the shards are everything.
      differences: What each owner's mean gradient is off by beside that, shape (N, p); None for
        nothing.
      united: Records that play the owners as one; None where their moments or their own records
        do.
    """

    problem: Problem
    weights: Vector
    shards: Sequence[Records]
    moments: ShardMoments | None
    judging: Sequence[Records]
    learning: Sequence[Records] | None
    mixture: Mixture | None = None
    differences: Matrix | None = None
    united: Records | None = None

    @classmethod
    def of(cls, shards: Sequence[Records], problem: Problem) -> World:
        """The world of real shards: where they are public, or in an experiment."""
        sizes = np.array([len(shard) for shard in shards], dtype=np.float64)
        return cls(
            problem=problem,
            weights=sizes / sizes.sum(),
            shards=shards,
            moments=ShardMoments.of(shards) if problem.loss.is_quadratic else None,
            judging=shards,
            learning=shards,
        )

    @cached_property
    def evaluation(self) -> Evaluation:
        """Fitness on the union of the owners."""
        return Evaluation(shards=self.judging, problem=self.problem)

    @cached_property
    def theta_alone(self) -> Matrix:
        """Each owner's own model, shape (N, p)."""
        if self.learning is not None:
            return np.stack([self.problem.optimum(own) for own in self.learning])
        assert self.mixture is not None  # noqa: S101 (nothing else is without records)
        known = self.mixture.moments_alone()
        each = zip(known.gram, known.cross, strict=True)
        return np.stack([self.problem.optimum_of(gram, cross) for gram, cross in each])

    @cached_property
    def relative_fitness_alone(self) -> Vector:
        """Relative fitness on the union of each owner's own model, shape (N,)."""
        return self.evaluation.relative_fitness(self.theta_alone)

    def only(self, owners: Sequence[int]) -> World:
        """The same world with these owners taking part; fitness stays that on all owners."""
        kept = list(owners)
        weights = self.weights[kept]
        shares = weights / weights.sum()
        mixture = None if self.mixture is None else self.mixture.only(kept)
        united = self.united
        if mixture is not None and united is not None:
            rng = np.random.default_rng(UNITED_SEED)
            united = mixture.records_together(shares, len(united), rng=rng)
        return replace(
            self,
            weights=shares,
            shards=[self.shards[owner] for owner in kept],
            moments=None if self.moments is None else self.moments.at(kept),
            learning=None if self.learning is None else [self.learning[owner] for owner in kept],
            mixture=mixture,
            differences=None if self.differences is None else self.differences[kept],
            united=united,
        )

    def weighed(self, shares: Vector) -> World:
        """The same world where owners count by these shares; fitness stays that on all records.

        Records that play all owners as one stay what is judged on: what the shares change is their
        mean gradient, as it is at the public model.

        Args:
          shares: How much each owner's answer counts, shape (N,), summing to 1.
        """
        if np.allclose(shares, self.weights, rtol=ROUNDING, atol=0.0):
            return self
        if self.united is None or self.mixture is None:
            return replace(self, weights=shares)
        gradients = self.mixture.gradients
        apart = gradients - self.weights @ gradients
        before = 0.0 if self.differences is None else self.differences
        return replace(self, weights=shares, differences=before + apart)

    def _group_gradients(self, clip: float | None, groups: Groups) -> GradientFunction:
        """The exact mean gradients of fixed groups, each one larger owner (Remark 2 of [A])."""
        if self.moments is not None and clip is None and self.differences is None:
            shares = group_shares(groups, self.weights)
            pooled = [self.moments.at(g).pooled(own) for g, own in zip(groups, shares, strict=True)]
            gram, cross = (np.stack(each) for each in zip(*pooled, strict=True))
            return moment_gradients(ShardMoments(gram=gram, cross=cross))
        return asked_together(self.gradients(clip), groups, self.weights)

    def gradients(self, clip: float | None, groups: Groups = ()) -> GradientFunction:
        """The owners' exact mean gradients, or those of their groups, clipped if they are."""
        if groups:
            return self._group_gradients(clip, groups)
        moments = self.moments if clip is None else None
        if moments is not None:
            answers = moment_gradients(moments)
        else:
            answers = record_gradients(self.shards, loss=self.problem.loss, clip=clip)
        lacking = self.lacking(clip, is_whole=moments is not None)
        if not lacking.any():
            return answers

        def corrected(slots: Indices, thetas: Matrix) -> Matrix:
            answer: Matrix = answers(slots, thetas)
            answer += lacking[slots]
            return answer

        return corrected

    def lacking(self, clip: float | None, *, is_whole: bool) -> Matrix:
        """What each owner's answer lacks, shape (N, p): its shard is a part of it, or ``is_whole``.

        Moments are whole, and so are records that play all owners as one.
        """
        if (clip, is_whole) not in self._offsets:
            offsets = np.zeros((len(self.weights), self.judging[0].features.shape[1]))
            if self.mixture is not None and not is_whole:
                offsets = self.mixture.offsets(self.shards, clip)
            self._offsets[clip, is_whole] = (
                offsets if self.differences is None else offsets + self.differences
            )
        return self._offsets[clip, is_whole]

    @cached_property
    def _offsets(self) -> dict[tuple[float | None, bool], Matrix]:
        """What was computed of them."""
        return {}


@dataclass(frozen=True, kw_only=True, eq=False)
class Mixture:
    r"""Each owner's distribution over public records, their targets shifted by x'delta_i.

    Rows of its own, in the shares it has of them, and P-bar for the rest of it.

    Args:
      public: The public records.
      centre: Weights of the records in P-bar, shape (n,), summing to 1.
      rows: The rows that each owner has more of than all have; a row may be there twice.
      own: How much of the owner each of them is; the rest is P-bar.
      kin: The rows of each owner's group, as many as it has records, none where it is not known.
      shifts: The delta_i, shape (N, p).
    """

    public: PublicGroups
    centre: Vector
    rows: Sequence[Indices]
    own: Sequence[Vector]
    kin: Sequence[Indices]
    shifts: Matrix

    def only(self, owners: Sequence[int]) -> Mixture:
        """The distributions of these owners."""
        return replace(
            self,
            rows=[self.rows[owner] for owner in owners],
            own=[self.own[owner] for owner in owners],
            kin=[self.kin[owner] for owner in owners],
            shifts=self.shifts[list(owners)],
        )

    def weights_of(self, owner: int) -> Vector:
        """Weights of the public records for this owner, shape (n,), summing to 1."""
        weights: Vector = (1.0 - self.own[owner].sum()) * self.centre
        np.add.at(weights, self.rows[owner], self.own[owner])
        return weights

    def together(self, shares: Vector) -> Vector:
        """Weights of the public records for all owners as one, shape (n,)."""
        beside = [1.0 - own.sum() for own in self.own]
        weights: Vector = float(shares @ beside) * self.centre
        for rows, own, part in zip(self.rows, self.own, shares, strict=True):
            np.add.at(weights, rows, part * own)
        return weights

    @property
    def gradients(self) -> Matrix:
        """The owners' mean gradients at the optimum of all public records, shape (N, p)."""
        each = self.public.gradients
        centre = self.centre @ each
        means = [self._mean(owner, each, centre, None) for owner in range(len(self.own))]
        return np.stack(means)

    def _mean(self, owner: int, each: Matrix, centre: Vector, clip: float | None) -> Vector:
        """An owner's mean gradient; ``each`` are those of public records, ``centre`` is P-bar's."""
        own, public = self.own[owner], self.public
        if self.shifts[owner].any():
            moved = public.problem.slopes(public.theta_optimal, self._shifted(owner), clip)
            return (self.weights_of(owner) * moved) @ public.records.features
        return (1.0 - own.sum()) * centre + own @ each.take(self.rows[owner], axis=0)

    def offsets(self, shards: Sequence[Records], clip: float | None) -> Matrix:
        """What the shards' mean gradients lack at the optimum, shape (N, p)."""
        problem, anchor = self.public.problem, self.public.theta_optimal
        records = self.public.records
        each = problem.gradients(anchor, records, clip)
        centre = self.centre @ each
        whole = np.stack([self._mean(owner, each, centre, clip) for owner in range(len(shards))])
        # Owners of a mixture answer with as many records each.
        x = np.stack([shard.features for shard in shards])
        y = np.concatenate([shard.targets for shard in shards])
        answering = Records(features=x.reshape(len(y), -1), targets=y)
        slopes = problem.slopes(anchor, answering, clip).reshape(len(shards), 1, -1)
        answered: Matrix = (slopes @ x)[:, 0] / x.shape[1]
        return whole - answered

    @cached_property
    def second(self) -> Array:
        """Second moments of features and target of each owner, shape (N, p + 1, p + 1)."""
        records = self.public.records
        rows_of_all = np.column_stack([records.features, records.targets])
        centre = _weighted(rows_of_all, self.centre)
        matrices = []
        for rows, own, shift in zip(self.rows, self.own, self.shifts, strict=True):
            whole = (1.0 - own.sum()) * centre + _weighted(rows_of_all.take(rows, axis=0), own)
            # With the target y + x'delta.
            move = np.eye(len(shift) + 1)
            move[:-1, -1] = shift
            matrices.append(move.T @ whole @ move)
        return np.stack(matrices)

    def moments_alone(self) -> ShardMoments:
        r"""The moments of each owner where it learns alone.

        A mixture's Gram matrix is nearer to everyone's than an owner's own is, and a model learnt
        from it is too good: features that are constant within a group say nothing to its owner. So
        an owner has the Gram matrix of its group, as far as the group's m records determine it,
        :math:`m/(m+6p)`, else the group's means and what all groups vary by within.

        What pulls it from the public optimum :math:`\theta_0` is the mixture's mean gradient there,
        :math:`v = G\theta_0 - b`, which varies by chance as :math:`\sigma^2 G`. An owner's own
        varies as :math:`\sigma^2 G_i`, with its own Gram matrix, and v taken as it is would move
        its model too far where its features vary less than everyone's. So v is carried over,

        .. math:: \theta_i = \theta_0 - G_i^{-1}\, T v, \qquad
                  T = G^{-1/2} \big(G^{1/2} G_i G^{1/2}\big)^{1/2} G^{-1/2}, \qquad T G T = G_i

        Where only the order of the table is known, T is I: tables show less of a drift than there
        is, and own models would be too good.

        References: Olkin and Pukelsheim (1982), The distance between two random vectors with given
        dispersion matrices, on T.
        """
        theta, p, known = self.public.theta_optimal, self.shifts.shape[1], self.moments()
        has_groups = self.public.labels is not None
        for owner, rows in enumerate(self.kin):
            if not len(rows):
                continue
            pull = known.gram[owner] @ theta - known.cross[owner]
            x = self.public.records.features.take(rows, axis=0)
            mean = x.mean(axis=0)
            share = len(rows) / (len(rows) + OWN_GRAM * p)
            gram = share * x.T @ x / len(rows)
            gram += (1.0 - share) * (np.outer(mean, mean) + self.public.within)
            if has_groups:
                pull = carried(pull, known.gram[owner], gram)
            known.gram[owner], known.cross[owner] = gram, gram @ theta - pull
        return known

    def moments(self) -> ShardMoments:
        """Each owner's moments."""
        return ShardMoments(
            gram=self.second[:, :-1, :-1].copy(), cross=self.second[:, :-1, -1].copy()
        )

    def records_of(self, owner: int, size: int, *, rng: np.random.Generator) -> Records:
        """Systematically drawn records, spread evenly over margins and targets."""
        records = self.public.drawn(self.weights_of(owner), size, rng=rng)
        shift = records.features @ self.shifts[owner]
        return Records(features=records.features, targets=records.targets + shift)

    def records_together(self, shares: Vector, size: int, *, rng: np.random.Generator) -> Records:
        """The same of all owners as one, who have these shares of the records."""
        if self.shifts.any():
            counts = np.maximum(np.round(shares * size), 1.0).astype(int).tolist()
            return union([self.records_of(i, count, rng=rng) for i, count in enumerate(counts)])
        return self.public.drawn(self.together(shares), size, rng=rng)

    def _shifted(self, owner: int) -> Records:
        """All public records with this owner's targets."""
        x = self.public.records.features
        return Records(features=x, targets=self.public.records.targets + x @ self.shifts[owner])


def middle(psi: Matrix) -> float:
    """The outcome of runs in several worlds in one number, from shape (W, R).

    It is between the mean, which one world that is far off decides, and the middle one, which tells
    nothing of what comes unluckily.
    """
    roots = np.sqrt(np.maximum(psi.mean(axis=1), 0.0))
    return float(np.mean(roots)) ** 2


def runs_worth(most: int, num_features: int) -> int:
    """How many runs say as much as this many of few coordinates.

    What a run comes to is a sum over coordinates, each with noise of its own: the more there are,
    the less runs differ, and each takes longer.

    >>> runs_worth(12, 8), runs_worth(12, 200), runs_worth(12, 5000)
    (12, 3, 1)
    """
    return max(1, most * FEW_COORDINATES // max(num_features, FEW_COORDINATES))


def carried(pull: Vector, before: Matrix, after: Matrix) -> Vector:
    """T v: what varies as one matrix, moved as little as it takes to vary as another, shape (p,).

    >>> carried(np.array([4.0, 1.0]), np.diag([4.0, 1.0]), np.diag([1.0, 9.0]))
    array([2., 3.])
    """
    white = whitening(before)
    root = white.T @ before
    values, vectors = np.linalg.eigh(root @ after @ root.T)
    along = vectors.T @ (white.T @ pull)
    return white @ (vectors @ (np.sqrt(np.maximum(values, 0.0)) * along))


def _weighted(rows: Matrix, weights: Vector) -> Matrix:
    """Second moments of these rows under these weights."""
    return (rows * weights[:, None]).T @ rows
