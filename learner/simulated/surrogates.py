r"""Public records that play the owners, and differ from each other as the owners will.

Records of group g of the public table (a county, or a consecutive part) stand for an owner. Single
records' whitened gradients at the optimum of all vary by t within their groups, and groups by
D_g beyond chance (:mod:`learner.simulated.components`). Owners are taken to be draws of a Dirichlet
process around all records, :math:`\bar P`, that varies as much, of concentration
:math:`\alpha_g = t/D_g`. What is known of an owner whose group has m public records is then the
process

.. math:: P_i \sim \mathrm{DP}\big(m + \alpha_g,\; (1 - s)\,\bar P + s\,P_g\big), \qquad
          s = \frac{m}{m + \alpha_g}

and of n_i records that it has itself, of its size :math:`1/(1/n_i + 1/(m + \alpha_g))`: its group's
records with random weights, as far as they go, and records of everyone else's. An owner whose
group is not known is nowhere near any, but differs as much as groups do: a group at random plays
it with :math:`\sqrt{s}` for s, and its concentration is n_i. :math:`\bar P` is redrawn, too, and
so is which groups there are to play such owners.

**Without groups** all that is known is the order of the public table, and how records drift along
it (:mod:`learner.simulated.drift`). The owners' records lie before the public ones in the order of
the study, and have drifted, in each world as far as the table leaves it possible. Owner i's best
model is then off by a step :math:`\delta_i`: its targets are shifted by :math:`x^\top\delta_i`
(for classes a drift of the model is only warned of); with squared loss its own Gram matrix is that
of n_i consecutive records. The features of all owners together have moved, for every loss.

Where neither labels nor a drift show that owners differ, parts of one table differ by chance only.
A choice that must also hold for owners that differ *assumes* a difference: each owner's mean
gradient is off by a constant of its own, a tenth of what single records' gradients differ by,
weighted to cancel over all owners. (Counties of one state and years of one lender differ by 0.02 to
0.26 in that unit.) Without it horizons come out too short, and steps too long for owners that
differ.

Nothing private is looked at: groups come from the public table, n_i are public.

References: Ferguson (1973), A Bayesian analysis of some nonparametric problems.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from common.arrays import Indices, Matrix, Vector
from common.terms import Records
from learner.simulated.groups import PublicGroups
from learner.simulated.world import Mixture, World

UNKNOWN = -1
# Records that answer for one owner where answers need records; first-order exact, see `offsets`.
PLAYED_RECORDS = 600
# The same of all owners together, and the fewest of one.
ALL_PLAYED_RECORDS, FEWEST_PLAYED_RECORDS = 18_000, 50
# Records of all owners together where fitness needs records.
JUDGING_RECORDS, JUDGING_FACTOR = 12_000, 8
# What owners differ by where it is assumed, in deviations of a single record's gradient.
ASSUMED_DIFFERENCE = 0.1
# The worlds in which designs are compared, and the records that play an owner there.
CHOICE_WORLDS, CHOICE_RECORDS, CHOICE_SEED = 6, 200, 0
# What all owners together are assumed to be off by, at most: their features' means in a direction,
# in deviations, and their best model, in deviations of a single record's whitened gradient.
ASSUMED_SHIFT, ASSUMED_STEP = 1.0, 0.2
# Rows do not count as farther out, and means are not moved farther, than that many deviations.
FARTHEST, FARTHEST_SHIFT = 3.0, 2.0
# The least of the largest curvature that a shift counts on: far beyond delta Huber loss has none.
LEAST_CURVED = 0.25
# Rows drawn from all for one owner at most, and the least that an own row weighs.
MOST_OTHERS, LEAST_WEIGHT = 400, 1e-12


def _sketch(second: Matrix) -> Records:
    """Records with these second moments, p + 1 of them: squared loss sees no more."""
    values, vectors = np.linalg.eigh(second)
    root = np.sqrt(np.maximum(values, 0.0) * len(values))[:, None] * vectors.T
    return Records(features=np.ascontiguousarray(root[:, :-1]), targets=root[:, -1].copy())


def surrogate_world(
    public: PublicGroups,
    num_records: Vector,
    *,
    known: Sequence[int | None] = (),
    assumed: float = 0.0,
    played: int = PLAYED_RECORDS,
    tells: bool = False,
    rng: np.random.Generator,
) -> World:
    """A world in which public records play the owners.

    Args:
      public: The public records in groups.
      num_records: Each owner's n_i, shape (N,).
      known: The group that each owner is known to be, None where it is not known.
      assumed: How much owners differ from the public records and from each other where nothing
        says by how much: from 0 for not at all to 1 for as much as is assumed at most.
      played: Records that answer for one owner where answers need records.
      tells: Whether a study is forecast in it, and not designed.
      rng: Where the deal of groups, and of records to small owners, comes from.

    Raises:
      InputError: There are too few public records.
    """
    drawn = public.redraws.weights(rng=rng)
    weights = num_records / num_records.sum()
    if public.drifts and public.feature_drift is not None:
        away = weights @ public.feature_drift.path(num_records, rng=rng)
        drawn = drawn * _moved(public.standardised, away)
    if assumed and not public.drifts:
        drawn = drawn * _assumed(public, assumed, rng=rng)
    padded = [*known, *[None] * (len(num_records) - len(known))]
    sure = [g in public.usable for g in padded]
    # Where the order shows how owners differ, parts would count the same difference twice.
    by_order = _shifts_targets(public, tells=tells)
    dealt = [UNKNOWN] * len(padded) if by_order else _deal(public, padded, rng=rng)
    centre = drawn / drawn.sum()
    edges = np.cumsum(centre)
    edges /= edges[-1]
    parts = [
        _own_part(public, n_i, g, edges, sure=is_sure, rng=rng)
        for n_i, g, is_sure in zip(num_records, dealt, sure, strict=True)
    ]
    mixture = Mixture(
        public=public,
        centre=centre,
        rows=[rows for rows, _ in parts],
        own=[own for _, own in parts],
        kin=[_kin(public, n_i, g, rng=rng) for n_i, g in zip(num_records, dealt, strict=True)],
        shifts=_shifts(public, num_records, by_order=by_order, rng=rng),
    )
    apart = assumed and public.labels is None and not public.drifts
    differences = _draw_differences(public, weights, rng=rng) if apart else None
    return _world_of(mixture, weights, differences, played=played, rng=rng)


def worlds_to_choose_in(
    public: PublicGroups,
    num_records: Vector,
    known: Sequence[int | None],
    *,
    assumed: float = 1.0,
) -> list[World]:
    """A few worlds of few records, in which owners differ, where designs are compared.

    They differ by 0 to ``assumed`` times what is assumed at most where nothing shows by how much.
    """
    rng = np.random.default_rng(CHOICE_SEED)
    return [
        surrogate_world(
            public,
            num_records,
            known=known,
            assumed=assumed * (place / (CHOICE_WORLDS - 1)) ** 2,
            played=CHOICE_RECORDS,
            rng=rng,
        )
        for place in range(CHOICE_WORLDS)
    ]


def _deal(
    public: PublicGroups, known: Sequence[int | None], *, rng: np.random.Generator
) -> list[int]:
    """The group of each owner: its own if known, else one of the others at random.

    Strangers are of groups that the public table may not have. So which groups play them is drawn
    as Rubin's bootstrap of groups would have it: what N strangers have in common is then off by
    the chance in their own groups and by that in the G public ones, :math:`D(1/N + 1/G)`. Each
    group once would leave :math:`D(1/N - 1/G)`, nothing where there are as many of both.
    """
    if not public.usable:
        return [UNKNOWN] * len(known)
    given = [g if g in public.usable else None for g in known]
    free = [g for g in public.usable if g not in given] or public.usable
    likely = rng.standard_exponential(len(free))
    drawn = rng.choice(free, size=len(given), p=likely / likely.sum()).tolist()
    return [at_random if g is None else g for g, at_random in zip(given, drawn, strict=True)]


def _kin(public: PublicGroups, n_i: float, group: int, *, rng: np.random.Generator) -> Indices:
    """The rows of an owner's group, or as many of them as it has records; none without groups.

    Where the order shows how owners differ, they are consecutive ones from anywhere in the table.
    """
    if public.labels is None and public.drifts:
        size = int(min(n_i, len(public.records)))
        return np.arange(size) + rng.integers(len(public.records) - size + 1)
    if public.labels is None or group == UNKNOWN:
        return np.empty(0, dtype=np.intp)
    rows = public.groups[group]
    return rng.choice(rows, size=int(n_i), replace=False) if n_i < rows.size else rows


def _own_part(
    public: PublicGroups,
    n_i: float,
    group: int,
    edges: Vector,
    *,
    sure: bool,
    rng: np.random.Generator,
) -> tuple[Indices, Vector]:
    """Rows that an owner has more of than the mean has, and how much of it they are."""
    n, p = public.records.features.shape
    own = np.empty(0, dtype=np.intp) if group == UNKNOWN else public.groups[group]
    # How many independent records the owner is like, and its group's share s.
    counts, kept = n_i, 0.0
    found = public.components
    if own.size and found.all_groups:
        alike = found.within / float(found.each_group[group])
        kept = own.size / (own.size + alike)
        if sure:
            counts = 1.0 / (1.0 / n_i + 1.0 / (own.size + alike))
        else:
            kept = np.sqrt(kept)
    own = own if kept else own[:0]
    counts *= max(n - p, 1) / n  # residuals of p fitted parameters are too small by that
    other = min(MOST_OTHERS, int(np.ceil(2.0 * (1.0 - kept) * counts)))
    beside = min(1.0 - kept, np.sqrt(other * (1.0 - kept) / (2.0 * counts)))
    shapes = np.full(own.size, counts * kept / max(own.size, 1))
    weights = np.concatenate(
        [kept * _shares(shapes, rng=rng), beside * _shares(np.ones(other), rng=rng)]
    )
    # Rows of all, as often as P-bar has them.
    others = np.searchsorted(edges, rng.random(other), side="right")
    return np.concatenate([own, others]), weights


def _shares(shapes: Vector, *, rng: np.random.Generator) -> Vector:
    """Weights of a Dirichlet distribution, summing to 1, shape of ``shapes``."""
    drawn = np.maximum(rng.standard_gamma(shapes), LEAST_WEIGHT)
    return drawn / drawn.sum()


def _assumed(public: PublicGroups, strength: float, *, rng: np.random.Generator) -> Vector:
    """Weights of records whose features and best model have moved in a direction each, (n,)."""
    weights = np.ones(len(public.records))
    for rows, most in ((public.standardised, ASSUMED_SHIFT), (public.scores, ASSUMED_STEP)):
        direction = rng.standard_normal(rows.shape[1])
        along = rows @ direction
        deviation = float(along.std())
        if deviation > 0:
            weights *= _moved(along[:, None] / deviation, np.array([strength * most]))
    return weights


def _moved(rows: Matrix, shift: Vector) -> Vector:
    """Weights that move the mean of these rows by about as much, if they are standardised, (n,).

    An exponential tilt: of normal rows it moves the mean by exactly this, and nothing else. No row
    counts as farther out than ``FARTHEST``, and the mean is not moved as far as there are no rows.
    """
    size = float(np.linalg.norm(shift))
    if size == 0:
        return np.ones(len(rows))
    along = np.clip(rows @ (shift / size), -FARTHEST, FARTHEST)
    tilted = min(size, FARTHEST_SHIFT) * along
    return np.exp(tilted - tilted.max())


def _draw_differences(public: PublicGroups, weights: Vector, *, rng: np.random.Generator) -> Matrix:
    """What each owner's mean gradient is assumed to be off by, shape (N, p)."""
    root = public.gradient_root
    drawn = rng.standard_normal((weights.size, len(root))) @ root
    return ASSUMED_DIFFERENCE * (drawn - weights @ drawn)


def _shifts_targets(public: PublicGroups, *, tells: bool) -> bool:
    """Whether owners' targets drift as the order shows; classes do not.

    With Huber loss they do in forecasts only: designs chosen where they do came to no better.
    """
    loss = public.problem.loss
    has_shifts = loss.is_quadratic or (tells and not loss.has_classes())
    return has_shifts and public.drifts and bool(public.score_drifts)


def _shifts(
    public: PublicGroups, num_records: Vector, *, by_order: bool, rng: np.random.Generator
) -> Matrix:
    """What each owner's best model is off by as the order shows, shape (N, p)."""
    shifts = np.zeros((num_records.size, public.records.features.shape[1]))
    if not by_order:
        return shifts
    for drift in public.score_drifts:
        shifts -= drift.path(num_records, rng=rng) @ public.whitening.T
    # What a shift does to a gradient is up to the curvature that there is, not to the largest.
    problem = public.problem
    mean = float(problem.curvatures(public.theta_optimal, public.records, None).mean())
    return shifts / max(mean / (problem.loss.curvature or 1.0), LEAST_CURVED)


def _world_of(
    mixture: Mixture,
    weights: Vector,
    differences: Matrix | None,
    *,
    played: int,
    rng: np.random.Generator,
) -> World:
    """The world of a mixture: exact for squared loss, else of drawn records."""
    public, owners = mixture.public, range(weights.size)
    size = min(played, PLAYED_RECORDS, ALL_PLAYED_RECORDS // weights.size)
    size = max(size, FEWEST_PLAYED_RECORDS)
    shards = [mixture.records_of(owner, size, rng=rng) for owner in owners]
    # An only owner's records are all that there are: no model is better than its own.
    is_only = weights.size == 1
    if public.problem.loss.is_quadratic:
        everyone = [_sketch(np.tensordot(weights, mixture.second, axes=1))]
        return World(
            problem=public.problem,
            weights=weights,
            shards=shards,
            moments=mixture.moments(),
            judging=everyone,
            learning=everyone if is_only else None,
            mixture=mixture,
            differences=differences,
        )
    judging = min(JUDGING_RECORDS, JUDGING_FACTOR * size)
    united = mixture.records_together(weights, judging, rng=rng)
    drawn = [mixture.records_of(owner, judging // 2, rng=rng) for owner in owners]
    return World(
        problem=public.problem,
        weights=weights,
        shards=shards,
        moments=None,
        judging=[united],
        learning=[united] if is_only else drawn,
        mixture=mixture,
        differences=differences,
        united=united,
    )
