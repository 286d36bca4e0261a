r"""The twin: a study as proposed, run on public records before anybody spends anything.

It returns a distribution, not a bound. The owners are played by public records
(:mod:`learner.simulated.surrogates`), the study is run by :mod:`learner.simulated.studies`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from common.arrays import Matrix, Vector
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.newton import NewtonStep
from learner.simulated.groups import PublicGroups
from learner.simulated.stability import largest_stable_step
from learner.simulated.studies import Proposal, run_in_worlds, shortened
from learner.simulated.surrogates import surrogate_world
from learner.simulated.world import World

# The share of the runs between the ends of an interval.
COVERAGE = 0.9
# Of n independent runs these shares' quantiles are too near each other by so many n-ths.
TOO_NEAR = 3.0
# Relative fitness that is no different from 0, and that is as good as none beside the middle one.
TINY, NEXT_TO_NONE = 1e-12, 1e-3


@dataclass(frozen=True, kw_only=True, eq=False)
class Forecast:
    """What a study is expected to come to.

    Args:
      relative_fitness: psi of the common model in each simulated run of each world, shape (W, R).
      relative_fitness_public: psi of the public model in each world, shape (W,).
      relative_fitness_shrunk: That of the public model shrunk by a ridge, shape (W,), where steps
        begin at it; None where they do not.
      factor: What relative fitness in each world is multiplied by, shape (W,).
      missing: What the public model in each world lacks of what it is worth on records that it was
        not fitted to, shape (W,).
      apart: The public records for each record of an owner, n_0/n_i, shape (N,).
      worlds: The worlds.
    """

    relative_fitness: Matrix
    relative_fitness_public: Vector
    relative_fitness_shrunk: Vector | None
    factor: Vector
    missing: Vector
    apart: Vector
    worlds: Sequence[World]

    @property
    def by_world(self) -> Vector:
        """The mean relative fitness over runs in each world, shape (W,)."""
        return np.asarray(self.relative_fitness.mean(axis=1))

    @property
    def expected(self) -> float:
        """The expected relative fitness: of the worlds' means over runs, the middle one.

        Worlds differ by how the owners may differ; one that is far off does not move the middle.
        """
        return float(np.median(self.by_world))

    @property
    def interval(self) -> tuple[float, float]:
        """The central interval into which nine runs in ten fall: :func:`prediction_interval`."""
        return prediction_interval(self.relative_fitness)

    @property
    def public(self) -> float:
        """The expected relative fitness of the model of the public records, which is free."""
        return float(np.median(self.relative_fitness_public))

    @property
    def shrunk(self) -> float | None:
        """That of the public model shrunk by a ridge, free too, where steps begin at it."""
        its = self.relative_fitness_shrunk
        return None if its is None else float(np.median(its))

    @property
    def alone(self) -> Vector:
        """The expected relative fitness of each owner's own model, shape (N,).

        Worlds know chance to first order, 1/n. What they lack beyond it at the public model, of
        n_0 records, an owner's own model lacks, too: as a second order, :math:`(n_0/n_i)^2` times
        as much; of fewer records than the public ones, where no order holds, as chance itself does.
        """
        own = self.factor[:, None] * np.stack([each.relative_fitness_alone for each in self.worlds])
        own += self.missing[:, None] * np.minimum(self.apart, self.apart**2)
        middle: Vector = np.median(own, axis=0)
        return middle


def prediction_interval(psi: Matrix) -> tuple[float, float]:
    r"""The central interval into which a run in one more world falls in nine cases of ten.

    Runs of a world are alike. With the variances B between worlds and V within them of
    :math:`\log\psi`, W worlds of R runs tell as much as

    .. math:: n = \frac{B + V}{B/W + V/(WR)}

    independent ones. Quantiles of so few are too near each other, since another run may lie beyond
    all of them: in logarithms the ends are moved away from the middle by the factor
    :math:`1 + 3/n`, with which they hold for normal ones.

    Args:
      psi: What runs come to, shape (W, R).

    Returns:
      Its ends, which are no nearer to each other than the runs' own quantiles.

    >>> alike = np.tile(np.array([[0.5], [1.0], [2.0]]), 8)
    >>> [round(end, 2) for end in prediction_interval(alike)]
    [0.25, 4.0]
    >>> [round(end, 2) for end in prediction_interval(np.full((3, 8), 0.5))]
    [0.5, 0.5]
    """
    edge = (1.0 - COVERAGE) / 2.0
    low, middle, high = np.quantile(psi, [edge, 0.5, 1.0 - edge])
    if middle > TINY:
        stretch = 1.0 + TOO_NEAR / _independent(np.log(np.maximum(psi / middle, NEXT_TO_NONE)))
        low = min(low, middle * max(low / middle, NEXT_TO_NONE) ** stretch)
        high = middle * (high / middle) ** stretch
    return float(low), float(high)


def _independent(values: Matrix) -> float:
    """How many independent runs tell as much as these of shape (W, R): from W to W times R.

    >>> draw = np.random.default_rng(1).standard_normal
    >>> round(_independent(draw((12, 8)))), round(_independent(draw((12, 1)) + np.zeros((12, 8))))
    (96, 12)
    """
    worlds, runs = values.shape
    within = float(values.var(axis=1, ddof=1).mean()) if runs > 1 else 0.0
    between = float(values.mean(axis=1).var(ddof=1)) if worlds > 1 else 0.0
    between = max(between - within / runs, 0.0)
    if between + within == 0.0:
        return float(worlds * runs)
    told: float = worlds * (between + within) / (between + within / runs)
    return told


def deal(
    public: PublicGroups,
    num_records: Vector,
    *,
    known: Sequence[int | None] = (),
    worlds: int,
    rng: np.random.Generator,
) -> list[World]:
    """Worlds in which public records play the owners, from public records and public facts only.

    Args:
      public: The public records in groups.
      num_records: The n_i of all owners whose union fitness is judged on, shape (N,).
      known: The group that each owner is known to be.
      worlds: How often public records are redrawn, and groups dealt to owners again.
      rng: Where the deal comes from; seed it with nothing private.
    """
    return [
        surrogate_world(public, num_records, known=known, tells=True, rng=rng)
        for _ in range(worlds)
    ]


def forecast(
    proposal: Proposal,
    public: PublicGroups,
    worlds: Sequence[World],
    *,
    runs: int,
    rng: np.random.Generator,
) -> Forecast:
    """The distribution of the study's outcome.

    Args:
      proposal: The study as proposed.
      public: The public records in groups.
      worlds: Where it is run, with the owners who take part.
      runs: Simulated runs over all worlds.
      rng: Where the noise and the ticks come from; seed it with nothing private.
    """
    limit = np.inf
    if isinstance(proposal.algorithm, Asynchronous):
        limit = largest_stable_step(proposal.algorithm, public.records, loss=public.problem.loss)
    proposal = shortened(proposal, largest_stable=limit)
    models = run_in_worlds(proposal, worlds, runs=max(1, runs // len(worlds)), rng=rng)
    psi = np.stack(
        [each.evaluation.relative_fitness(own) for each, own in zip(worlds, models, strict=True)]
    )
    algorithm = proposal.algorithm
    free, shrunk = _in_each(worlds, public.theta_optimal), None
    if isinstance(algorithm, NewtonStep):
        shrunk = _in_each(worlds, algorithm.around.theta)
    factor, missing = np.ones(len(worlds)), np.zeros(len(worlds))
    if not public.problem.loss.is_quadratic:
        factor, honest = public.outside.honest(len(worlds))
        # Whoever begins at the public model and stays there knows no more of other records than it
        # does: where worlds have drifted less far from it than other records are, that much is
        # missing. Whoever goes part of the way to the world's best model lacks what is left of it.
        begins_there = shrunk is not None or getattr(algorithm, "start", None) is not None
        missing = np.maximum(honest - factor * free, 0.0)
        left = _left(psi, free) if begins_there else np.zeros_like(psi)
        psi = factor[:, None] * psi + left * missing[:, None]
        if shrunk is not None:
            shrunk = factor * shrunk + _left(shrunk[:, None], free)[:, 0] * missing
        free = factor * free + missing
    return Forecast(
        relative_fitness=np.maximum(psi, 0.0),
        relative_fitness_public=np.maximum(free, 0.0),
        relative_fitness_shrunk=None if shrunk is None else np.maximum(shrunk, 0.0),
        factor=factor,
        missing=missing,
        apart=len(public.records) / proposal.num_records,
        worlds=worlds,
    )


def _in_each(worlds: Sequence[World], theta: Vector) -> Vector:
    """Psi of a model in each world, shape (W,)."""
    return np.concatenate([each.evaluation.relative_fitness(theta[None]) for each in worlds])


def _left(psi: Matrix, free: Vector) -> Matrix:
    """How much is left of the way from the public model to each world's best one, in [0, 1].

    Args:
      psi: What runs come to, shape (W, R).
      free: What the public model does in each world, shape (W,).

    >>> _left(np.array([[0.5, 3.0], [0.0, 0.0]]), np.array([2.0, 0.0]))
    array([[0.25, 1.  ],
           [1.  , 1.  ]])
    """
    whole = np.maximum(free, TINY)[:, None]
    left: Matrix = np.where(whole > TINY, np.clip(psi / whole, 0.0, 1.0), 1.0)
    return left
