r"""Public records that play the owners, and differ from each other as the owners will.

Records of group g of the public table (a county, or a consecutive part) stand for an owner. Their
mean gradient at the optimum of all, :math:`v_g`, says how much the group differs; its excess
fitness :math:`q_g = v_g^\top H^{-1} v_g` is what a model of the group alone would lose, twice.
But a group of :math:`m` public records differs by chance too, by :math:`t/m` in the mean with
:math:`t = \mathrm{tr}(H^{-1}\,\mathrm{Cov}\,\nabla\ell)`, and an owner of :math:`n_i` records by
:math:`t/n_i`. So the owner's distribution is the mixture

.. math:: P_i = (1 - s_i)\,\bar P + s_i\,P_g, \qquad
          s_i^2 = \frac{\max(q_g - t/m, 0) + t/n_i}{q_g}

of the group's records and of all of them: it differs as much as an owner of its size is expected
to. Where it is not known which group an owner is, q_g is the mean over the groups, and the groups
are dealt out at random.

**Without groups** all that is known is the order of the public table. Where its parts differ more
than by chance, what they differ by grows with their distance like a random walk, say; the walk
goes on through the owners' records, which lie before the public ones in the order of the study.
Owner i's best model is then off by a step :math:`\delta_i` of that walk: its targets are shifted by
:math:`x^\top\delta_i` (squared loss only; for classes a drift is only warned of).

Nothing private is looked at: groups come from the public table, n_i are public.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from common.errors import InputError
from common.losses import Loss, Regulariser
from common.terms import Records
from learner.clocks import Groups
from learner.evaluation import Evaluation, optimum
from learner.experiments.replicates import (
    GradientFunction,
    Moments,
    moment_gradients,
    record_gradients,
)

__all__ = [
    "NOTABLE_DRIFT",
    "Model",
    "PublicGroups",
    "World",
    "consecutive_parts",
    "drift",
    "play_owners",
]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Labels = NDArray[np.intp]

UNKNOWN = -1
# Records that answer for one owner where answers need records; first-order exact, see `offsets`.
PLAYED_RECORDS = 1500
# Records of all owners together where fitness needs records.
JUDGING_RECORDS = 12_000
# Parts of the public table that are compared to find a drift, and by how many deviations of
# chance they must differ.
WALK_PARTS = 10
DEVIATIONS = 4.0
# A model loses this share of its fitness from one end of the public table to the other.
NOTABLE_DRIFT = 0.02
# Steps of the walk through each table.
WALK_STEPS = 24
# Consecutive parts that play the owners where there are no labels.
PARTS = 12


@dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """What is learnt: the loss, the regulariser and the box."""

    loss: Loss
    regulariser: Regulariser
    theta_max: float

    def optimum(self, records: Records) -> Vector:
        """The best model of the box on these records, shape (p,)."""
        return optimum(
            records, loss=self.loss, regulariser=self.regulariser, theta_max=self.theta_max
        )

    def gradients(self, theta: Vector, records: Records, clip: float | None) -> Matrix:
        """Each record's gradient, scaled down to L1 norm ``clip``, shape (n, p)."""
        slopes = self.loss.slopes(records.features @ theta, records.targets)
        if clip is not None:
            with np.errstate(divide="ignore"):
                largest = clip / np.abs(records.features).sum(axis=1)
            slopes = np.clip(slopes, -largest, largest)
        rows: Matrix = slopes[:, None] * records.features
        return rows


@dataclass(frozen=True, kw_only=True, eq=False)
class PublicGroups:
    """The public records in groups, with what the groups differ by.

    Args:
      model: What is learnt.
      records: The public records, n of them.
      labels: The group of each record, from 0, -1 for none, shape (n,); None where nothing is
        known but the order.
    """

    model: Model
    records: Records
    labels: Labels | None

    def __post_init__(self) -> None:
        """Refuse too few records."""
        n, p = self.records.features.shape
        if n < p:
            raise InputError(
                f"forecast: {n} public records for {p} features; give at least as many records "
                "as features"
            )

    @cached_property
    def groups(self) -> list[NDArray[np.intp]]:
        """The rows of each group that has enough of them to say something."""
        n, p = self.records.features.shape
        labels = consecutive_parts(n, PARTS) if self.labels is None else self.labels
        rows = [np.nonzero(labels == g)[0] for g in range(int(labels.max()) + 1)]
        return [own if own.size >= 2 * p else np.empty(0, dtype=np.intp) for own in rows]

    @cached_property
    def usable(self) -> list[int]:
        """The groups that may play an owner."""
        return [g for g, rows in enumerate(self.groups) if rows.size]

    @cached_property
    def theta_optimal(self) -> Vector:
        """The best model of all public records, shape (p,)."""
        return self.model.optimum(self.records)

    @cached_property
    def whitening(self) -> Matrix:
        """A matrix B with BB' = H^(-1), H the Hessian of the mean loss, shape (p, d)."""
        x = self.records.features
        curvature = self.model.loss.curvature or 1.0
        hessian = curvature * x.T @ x / len(self.records)
        hessian += self.model.regulariser.strong_convexity * np.eye(x.shape[1])
        values, vectors = np.linalg.eigh(hessian)
        kept = values > values[-1] * 1e-12
        whitening: Matrix = vectors[:, kept] / np.sqrt(values[kept])
        return whitening

    @cached_property
    def scores(self) -> Matrix:
        """Whitened gradients of each record at the optimum, mean 0, shape (n, d)."""
        gradients = self.model.gradients(self.theta_optimal, self.records, None)
        scores: Matrix = (gradients - gradients.mean(axis=0)) @ self.whitening
        return scores

    @cached_property
    def trace(self) -> float:
        """The t of chance: what one record's gradient differs by."""
        return float(np.mean(np.sum(self.scores**2, axis=1)))

    @cached_property
    def excess(self) -> Vector:
        """The q_g of each group, chance included; NaN where there are too few records."""
        return np.array(
            [
                float(np.sum(self.scores[rows].mean(axis=0) ** 2)) if rows.size else np.nan
                for rows in self.groups
            ]
        )

    @cached_property
    def difference(self) -> float:
        """Mean of q_g - t/m over the groups: what groups differ by beyond chance, at least 0."""
        usable = self.usable
        if len(usable) < 2:
            return 0.0
        chance = self.trace / np.array([self.groups[g].size for g in usable])
        return max(0.0, float(np.mean(self.excess[usable] - chance)))

    @cached_property
    def walk(self) -> Matrix | None:
        """Covariance of the random walk of whitened gradients for one row, shape (d, d).

        None where the parts of the table differ no more than by chance.
        """
        n = len(self.records)
        m = n // WALK_PARTS
        if m < 2 * self.records.features.shape[1]:
            return None
        means = self.scores[: m * WALK_PARTS].reshape(WALK_PARTS, m, -1).mean(axis=1)
        chance = 2.0 * self.scores.T @ self.scores / n / m
        # Neighbours: the increments of a walk are independent, longer differences are not.
        steps = np.diff(means, axis=0)
        total = steps.T @ steps - len(steps) * chance
        rows = len(steps) * m * (2.0 / 3.0)  # means over parts are smoother than the walk
        beyond = float(np.trace(total))
        # Deviation of the sum of squared differences of neighbours where nothing drifts.
        deviation = float(np.sqrt(2 * (6 * len(steps) - 2) * np.sum((chance / 2) ** 2)))
        if beyond < DEVIATIONS * deviation:
            return None
        values, vectors = np.linalg.eigh(total)
        positive = (vectors * np.maximum(values, 0.0)) @ vectors.T
        covariance: Matrix = positive * (beyond / np.trace(positive) / rows)
        return covariance


def consecutive_parts(num_records: int, parts: int) -> Labels:
    """Labels of consecutive parts of equal size, shape (n,).

    >>> consecutive_parts(5, 2).tolist()
    [0, 0, 0, 1, 1]
    """
    return (np.arange(num_records) * parts // num_records).astype(np.intp)


def drift(public: PublicGroups) -> float:
    r"""How much more the two ends of the public table differ than chance explains, in [0, inf).

    :math:`\tfrac12(\|v_1 - v_2\|_{H^{-1}}^2 - t(1/m_1+1/m_2)) / f(\theta^*)` for the first and
    the last third: what a model loses, relative to its fitness, from one end of the table to the
    other. Where there are labels, what groups differ by does not count. Above ``NOTABLE_DRIFT``
    the records change along the table, and the private ones may be beyond its ends.
    """
    scores = public.scores
    if public.labels is not None:
        scores = scores.copy()
        for rows in public.groups:
            if rows.size:
                scores[rows] -= scores[rows].mean(axis=0)
    third = max(1, len(public.records) // 3)
    squared = float(np.sum((scores[:third].mean(axis=0) - scores[-third:].mean(axis=0)) ** 2))
    beyond = max(0.0, squared - 2.0 * public.trace / third)
    return 0.5 * beyond / World.of([public.records], public.model).evaluation.fitness_optimal


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
    mixture: _Mixture | None = None

    @classmethod
    def of(cls, shards: Sequence[Records], model: Model) -> World:
        """The world of real shards: where they are public, or in an experiment."""
        sizes = np.array([len(shard) for shard in shards], dtype=np.float64)
        return cls(
            model=model,
            weights=sizes / sizes.sum(),
            shards=shards,
            moments=Moments.of(shards) if model.loss.name == "squared" else None,
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
class _Mixture:
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


def _sketch(second: Matrix) -> Records:
    """Records with these second moments, p + 1 of them: squared loss sees no more."""
    values, vectors = np.linalg.eigh(second)
    root = np.sqrt(np.maximum(values, 0.0) * len(values))[:, None] * vectors.T
    return Records(features=np.ascontiguousarray(root[:, :-1]), targets=root[:, -1].copy())


def play_owners(
    public: PublicGroups,
    num_records: Vector,
    *,
    known: Sequence[int | None] = (),
    rng: np.random.Generator,
) -> World:
    """A world in which public records play the owners.

    Args:
      public: The public records in groups.
      num_records: Each owner's n_i, shape (N,).
      known: The group that each owner is known to be, None where it is not known.
      rng: Where the deal of groups, and of records to small owners, comes from.

    Raises:
      InputError: There are too few public records.
    """
    weights = num_records / num_records.sum()
    padded = [*known, *[None] * (len(num_records) - len(known))]
    sure = [g in public.usable for g in padded]
    walks = public.labels is None and public.model.loss.name == "squared"
    walk = public.walk if walks else None
    # Where the order tells how owners differ, parts would count the same difference twice.
    dealt = _deal(public, padded, rng=rng) if walk is None else [UNKNOWN] * len(padded)
    own = _own_weights(public, num_records, dealt, rng=rng)
    every = np.full(len(public.records), 1.0 / len(public.records))
    # Where all groups are known, all of them together are known better than the public mean.
    centre = weights @ own if all(sure) else every
    share = np.array(
        [
            _share(public, n_i, g, own_i, sure=is_sure)
            for n_i, g, own_i, is_sure in zip(num_records, dealt, own, sure, strict=True)
        ]
    )
    shifts = np.zeros((len(num_records), public.records.features.shape[1]))
    if walk is not None:
        shifts = _walk(public, walk, num_records, rng=rng)
    mixture = _Mixture(
        public=public,
        weights=(1 - share)[:, None] * centre + share[:, None] * own,
        shifts=shifts,
    )
    return _world_of(mixture, weights, rng=rng)


def _deal(
    public: PublicGroups, known: Sequence[int | None], *, rng: np.random.Generator
) -> list[int]:
    """The group of each owner: its own if known, else one at random, each as rarely as possible."""
    if not public.usable:
        return [UNKNOWN] * len(known)
    given = [g if g in public.usable else None for g in known]
    free = [g for g in public.usable if g not in given] or public.usable
    deck: list[int] = []
    while len(deck) < len(known):
        deck += rng.permutation(free).tolist()
    cards = iter(deck)
    return [next(cards) if g is None else g for g in given]


def _own_weights(
    public: PublicGroups,
    num_records: Vector,
    dealt: Sequence[int],
    *,
    rng: np.random.Generator,
) -> Matrix:
    """Weights of each owner's own records, shape (N, n): its group, or as many of it as it has."""
    own = np.zeros((len(dealt), len(public.records)))
    for i, (g, n_i) in enumerate(zip(dealt, num_records, strict=True)):
        rows = np.arange(len(public.records)) if g == UNKNOWN else public.groups[g]
        if n_i < rows.size:
            rows = rng.choice(rows, size=int(n_i), replace=False)
        own[i, rows] = 1.0 / rows.size
    return own


def _share(public: PublicGroups, n_i: float, group: int, own: Vector, *, sure: bool) -> float:
    """The s_i of the mixture."""
    m = int(np.count_nonzero(own))
    chance = public.trace / m
    if group == UNKNOWN:
        beyond, seen = 0.0, chance
    elif sure:
        of_group = public.trace / public.groups[group].size
        beyond = max(0.0, float(public.excess[group]) - of_group)
        seen = beyond + chance
    else:
        beyond, seen = public.difference, public.difference + chance
    return float(np.sqrt(min(1.0, (beyond + public.trace / n_i) / seen)))


def _walk(
    public: PublicGroups, covariance: Matrix, num_records: Vector, *, rng: np.random.Generator
) -> Matrix:
    """What each owner's best model is off by where the drift goes on, shape (N, p)."""
    sizes = np.append(num_records, float(len(public.records)))
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    # From the public table, the last one, back through the owners' tables.
    rows = np.repeat(sizes / WALK_STEPS, WALK_STEPS)
    steps = rng.standard_normal((rows.size, len(values))) * np.sqrt(rows)[:, None] @ root.T
    path = np.cumsum(steps[::-1], axis=0)[::-1]
    means = path.reshape(sizes.size, WALK_STEPS, -1).mean(axis=1)
    shifts: Matrix = -(means[:-1] - means[-1]) @ public.whitening.T
    return shifts


def _world_of(mixture: _Mixture, weights: Vector, *, rng: np.random.Generator) -> World:
    """The world of a mixture: exact for squared loss, else of drawn records."""
    model, owners = mixture.public.model, range(weights.size)
    shards = [mixture.drawn(owner, PLAYED_RECORDS, rng=rng) for owner in owners]
    if model.loss.name == "squared":
        return World(
            model=model,
            weights=weights,
            shards=shards,
            moments=mixture.moments(),
            judging=[_sketch(np.tensordot(weights, mixture.second, axes=1))],
            theta_alone=np.stack([model.optimum(_sketch(own)) for own in mixture.second]),
            mixture=mixture,
        )
    everyone = replace(mixture, weights=(weights @ mixture.weights)[None])
    alone = [mixture.drawn(owner, JUDGING_RECORDS // 2, rng=rng) for owner in owners]
    return World(
        model=model,
        weights=weights,
        shards=shards,
        moments=None,
        judging=[everyone.drawn(0, JUDGING_RECORDS, rng=rng)],
        theta_alone=np.stack([model.optimum(own) for own in alone]),
        mixture=mixture,
    )
