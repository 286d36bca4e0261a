r"""What one owner computes: (shard, query) -> noised response; the caller charges it.

    Q_i(theta)     = (1/n_i) sum over the shard of grad loss             (3)
    Q_bar_i(theta) = Q_i(theta) + w,   w ~ Laplace(b) per coordinate     (4)

No file, clock, network or randomness here: noise comes in as integers on the plan's grid.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from common.arrays import Matrix, Units, Vector
from common.blas import one_blas_thread
from common.domain import without_specks
from common.errors import MalformedError
from common.losses import Loss, loss_of
from common.moments import pack_moments
from common.privacy import LARGEST_VALUE_UNITS, NoisePlan
from common.releases import GRADIENT, MOMENTS, NEWTON, VALIDATION
from common.stretches import BLOCK_CELLS
from common.terms import StudyTerms
from common.validation import tally
from owner.gradients import by_compiled_code, in_blocks, largest_slopes
from owner.shards import AnyShard, MomentShard, Shard
from owner.sums import SHARED_CELLS, blocks, in_order, margins

# Cells that a study reads, all responses together, before compiled code pays: it saves 0.1 to
# 0.3 ns of each and takes 0.9 s and 120 MB to load: ``python benchmarks/gradient.py``.
COMPILED_CELLS = 5 * 10**9


def mean_gradient(
    shard: Shard, theta: Vector, *, loss: Loss, clip: float | None, compiled: bool = False
) -> Vector:
    r"""Query (3): the mean of the records' gradients, each scaled down to L1 norm ``clip``.

    A record's gradient is :math:`s\,x` with slope s, so clipping it clips the slope to
    :math:`\pm C/\|x\|_1`. Unclipped squared loss needs only the moments:
    :math:`Q_i(\theta) = 2(X'X\theta - X'y)/n_i`.

    Args:
      shard: The owner's records.
      theta: Where the gradient is asked for, shape (p,).
      loss: The loss.
      clip: The L1 norm C, in gradient units; None for no clipping.
      compiled: Whether it is added by :mod:`owner.fused`, where numba and the loss's kernel are;
        by numpy in blocks it is the same to 1e-12.

    Returns:
      The exact mean gradient, shape (p,); it must not leave the owner.

    >>> from common.terms import Records
    >>> shard = Shard(Records(features=np.array([[1.0], [2.0]]), targets=np.zeros(2)))
    >>> from common.losses import Squared
    >>> mean_gradient(shard, np.array([1.0]), loss=Squared(), clip=None)
    array([5.])
    >>> mean_gradient(shard, np.array([1.0]), loss=Squared(), clip=2.0)
    array([2.])

    References: equation (3) of Farokhi et al. (2021).
    """
    if loss.is_quadratic and clip is None:
        return _gradient_by_moments(shard, theta)
    part = by_compiled_code(shard.records, theta, loss=loss, clip=clip) if compiled else None
    if part is None:
        part = in_blocks(shard.records, _norms(shard, clip), theta, loss=loss, clip=clip)
    threads = shard.threads if shard.records.features.size >= SHARED_CELLS else 1
    (total,) = in_order(part, len(shard.records), shard.num_features, threads=threads)
    mean: Vector = total / len(shard.records)
    return mean


def _gradient_by_moments(shard: AnyShard, theta: Vector) -> Vector:
    """The mean gradient of squared loss without a clip, shape (p,)."""
    exact: Vector = 2.0 * (shard.gram @ theta - shard.cross)
    return exact


def mean_curvature(shard: Shard, theta: Vector, *, loss: Loss, clip: float | None) -> Matrix:
    r"""The derivative of :func:`mean_gradient` in the model, shape (p, p).

    .. math:: \frac{1}{n_i} \sum_{|s|\,\|x\|_1 \le C} \ell''(\theta^\top x, y)\, x x^\top

    A record that the clip scales down pushes the same wherever the model is near by.

    Args:
      shard: The n_i records.
      theta: The model, shape (p,).
      loss: The loss, which has a curvature; s is its slope at the record.
      clip: The L1 norm C, in gradient units; None for no clipping.

    Returns:
      The exact mean curvature, symmetric; it must not leave the owner.

    >>> from common.terms import Records
    >>> shard = Shard(Records(features=np.array([[1.0], [2.0]]), targets=np.zeros(2)))
    >>> from common.losses import Squared
    >>> mean_curvature(shard, np.array([1.0]), loss=Squared(), clip=2.0)
    array([[1.]])
    """
    p, norms = shard.num_features, _norms(shard, clip)

    def part(start: int, stop: int) -> tuple[Matrix]:
        total = np.zeros((p, p))
        for chosen, x in blocks(shard.records.features, start, stop):
            z, y = margins(x, theta), shard.records.targets[chosen]
            curvatures = loss.curvatures(z, y)
            if clip is not None:
                # A product, since a selection may branch on each record.
                curvatures = curvatures * (
                    np.abs(loss.slopes(z, y)) <= largest_slopes(norms[chosen], clip)
                )
            total += (x * curvatures[:, None]).T @ x
        return (total,)

    (total,) = in_order(part, len(shard.records), p, threads=shard.threads)
    mean: Matrix = total / len(shard.records)
    return mean


def _norms(shard: Shard, clip: float | None) -> Vector:
    """What a clip needs to know of the records, shape (n,); nothing without one."""
    return shard.feature_norms if clip is not None else np.zeros(0)


@one_blas_thread()
def exact_answer(shard: AnyShard, theta: Vector, terms: StudyTerms) -> Vector:
    """What the study's response is before its noise, by the release that its terms name.

    Moments depend on no model; their only query carries any theta of the box. A shard of which
    only they are known is enough where :func:`owner.shards.by_moments` says so.

    **Time.** It follows from the shapes alone, as far as processors let it: numbers that they
    compute slowly with do not come up (:func:`common.domain.without_specks`), and nothing branches
    on a record.

    Returns:
      Shape (``Release.dimension``,); it must not leave the owner.
    """
    theta = without_specks(theta)
    if isinstance(shard, MomentShard):
        return _BY_MOMENTS[terms.release](shard, theta, terms)
    return EXACT[terms.release](shard, theta, terms)


def _gradient(shard: Shard, theta: Vector, terms: StudyTerms) -> Vector:
    """Query (3) at the query's model."""
    compiled = is_worth_compiling(shard, terms)
    return mean_gradient(shard, theta, loss=loss_of(terms), clip=terms.clip, compiled=compiled)


def _moments(shard: AnyShard, theta: Vector, terms: StudyTerms) -> Vector:
    """The packed second moments, whatever the model."""
    del theta, terms
    return pack_moments(shard.gram, shard.cross)


def _newton(shard: Shard, theta: Vector, terms: StudyTerms) -> Vector:
    """Curvature, times its factor, and gradient at the query's model."""
    loss, clip = loss_of(terms), terms.clip
    assert terms.curvature_scale is not None  # noqa: S101 (the release has looked)
    curvature = terms.curvature_scale * mean_curvature(shard, theta, loss=loss, clip=clip)
    return pack_moments(curvature, mean_gradient(shard, theta, loss=loss, clip=clip))


def _validation(shard: Shard, theta: Vector, terms: StudyTerms) -> Vector:
    """How good the query's model is, and how much better than the reference."""
    reference = without_specks(np.array(terms.reference)) if terms.reference else None
    with np.errstate(over="ignore", invalid="ignore"):
        z = _all_margins(shard, theta)
        others = None if reference is None else _all_margins(shard, reference)
    return tally(z, shard.records.targets, others, loss=loss_of(terms), terms=terms)


def _all_margins(shard: Shard, theta: Vector) -> Vector:
    """The margins of all records, shape (n,)."""
    x = shard.records.features
    return np.concatenate([margins(rows, theta) for _, rows in blocks(x, 0, len(x))])


EXACT: dict[str, Callable[[Shard, Vector, StudyTerms], Vector]] = {
    GRADIENT.name: _gradient,
    MOMENTS.name: _moments,
    NEWTON.name: _newton,
    VALIDATION.name: _validation,
}
"""The exact answer of each of ``common.releases.RELEASES``."""
_BY_MOMENTS: dict[str, Callable[[MomentShard, Vector, StudyTerms], Vector]] = {
    GRADIENT.name: lambda shard, theta, _: _gradient_by_moments(shard, theta),
    MOMENTS.name: _moments,
}


def is_worth_compiling(shard: Shard, terms: StudyTerms) -> bool:
    """Whether compiled code saves a study more than it costs to load.

    It follows from public numbers alone, so an owner in memory and one in a process of its own
    add in the same order.
    """
    cells = shard.records.features.size
    few = cells <= BLOCK_CELLS or cells * terms.responses < COMPILED_CELLS
    return not few and not (loss_of(terms).is_quadratic and terms.clip is None)


def warm(
    shard: Shard, terms: StudyTerms, *, kept_in: Callable[[], str | None] = lambda: None
) -> None:
    """Compute and compile now what all answers of a study have in common, and no answer itself.

    Args:
      shard: The owner's records.
      terms: The study's terms.
      kept_in: Returns the folder for compiled code, of this user alone, or None where none is kept;
        asked only if something is compiled.

    >>> from fractions import Fraction
    >>> from common.terms import Records
    >>> shard = Shard(Records(features=np.ones((2, 1)), targets=np.zeros(2)))
    >>> warm(shard, StudyTerms(study_id="s", loss="squared", theta_max=1.0, feature_map="",
    ...     horizon=1, responses=1, epsilon=Fraction(1)))
    """
    loss, theta = loss_of(terms), np.zeros(shard.num_features)
    if terms.release == GRADIENT.name and is_worth_compiling(shard, terms):
        part = by_compiled_code(shard.records, theta, loss=loss, clip=terms.clip, kept_in=kept_in)
        if part is not None:
            part(0, 1)
            return
    if terms.release != MOMENTS.name and terms.clip is not None:
        _ = shard.feature_norms
    elif terms.release == MOMENTS.name or loss.is_quadratic:
        _ = shard.gram


def release(gradient: Vector, noise: Units, plan: NoisePlan) -> Vector:
    """Response (4): the gradient on the plan's grid plus integer noise, in gradient units.

    Args:
      gradient: The exact mean gradient, shape (p,).
      noise: Integer Laplace noise in grid units, shape (p,), used for no other response.
      plan: The study's noise.

    Returns:
      Shape (p,), whole multiples of 2 to the plan's ``grid_exponent``.

    Raises:
      MalformedError: A shape is wrong, or the gradient is not finite.

    References: (4) of Farokhi et al. (2021).
    """
    if gradient.shape != (plan.dimension,) or noise.shape != (plan.dimension,):
        raise MalformedError(f"the query does not have the {plan.dimension} coordinates agreed on")
    # Products with powers of 2 are exact, and much sooner there than np.ldexp's.
    units = np.rint(gradient * (1.0 / plan.grid))
    # Neither can happen to records within their bounds; NaN would be cast to some number.
    if not np.abs(units).max() <= LARGEST_VALUE_UNITS:
        raise MalformedError("the query has no finite answer within the study's bounds")
    # Exact in 64 bits (NoisePlan bounds both); the rounding to a float comes after the noise.
    return (units.astype(np.int64) + noise).astype(np.float64) * plan.grid


def seeded_noise(plan: NoisePlan, *, rng: np.random.Generator) -> Units:
    """Laplace noise from a seed, in grid units, shape (p,): for experiments, it protects nobody."""
    draws = rng.laplace(scale=plan.scale_units, size=plan.dimension)
    return np.rint(np.clip(draws, -LARGEST_VALUE_UNITS, LARGEST_VALUE_UNITS)).astype(np.int64)


def check_theta(theta: Vector, *, dimension: int, theta_max: float) -> None:
    """Refuse a query whose answer the sensitivity does not cover.

    Args:
      theta: The query's model.
      dimension: The number p of coordinates that the study agreed on.
      theta_max: Half the side of its box, L-infinity norm.

    Raises:
      MalformedError: A wrong length, a coordinate that is not finite, or outside the box.

    >>> check_theta(np.array([0.5, -0.5]), dimension=2, theta_max=0.5)
    """
    if theta.shape != (dimension,):
        raise MalformedError(
            f"theta has {theta.size} coordinates, the study agreed on {dimension}; "
            "ask with a model of the study's length"
        )
    # One pass for both: whatever is not finite is not inside either.
    if not np.abs(theta).max() <= theta_max:
        if not np.isfinite(theta).all():
            raise MalformedError("theta has a coordinate that is not a finite number")
        raise MalformedError(
            f"theta leaves the box of half side {theta_max} that the study agreed on; "
            "project it before asking"
        )
