r"""How much of noisy values is expected to be real, where the variance of their noise is known.

A value z is a true one of variance :math:`\tau^2` and noise of variance m, so Wiener's filter keeps
:math:`\tau^2/(\tau^2+m)`. How large :math:`\tau^2` is, is not known: values determine it
together, and where few of them may be far larger than the others, each determines its own as well.

References: Wiener (1949), Extrapolation, Interpolation, and Smoothing of Stationary Time Series.
Carvalho, Polson and Scott (2010), The horseshoe estimator for sparse signals, on variances of one's
own.
"""

from __future__ import annotations

import math

import numpy as np

from common.arrays import Array, Indices, Matrix, Vector
from common.moments import upper_triangle

# Variances from the least to this many doublings of it are thought possible.
DOUBLINGS = 40
# The odds of each, 2 to minus this, and how much each value counts against them.
ODDS, COUNTED = 1.5, 0.75
SMALLEST_VARIANCE, SMALLEST = 1e-12, 1e-300
# A row of a matrix may vary by more than the others: by powers of 4, whose odds are 2 to
# minus this for each doubling. Rows are looked at this many times, each given the others.
POWERS, ROW_ODDS, SWEEPS = 10, 2.5, 2
# A value by itself may vary by more than the others: by powers of 4, with the same odds.
OWN_POWERS = 12
# How rarely the loudest entry of noise alone is taken to be real.
RARELY = 0.01
# To know how much values vary, this many of them are enough.
ENOUGH = 4096
# Numbers in memory at a time: 16 MB.
CELLS = 2_000_000


def kept(
    values: Array,
    noise: Array,
    *,
    floor: float,
    factors: Array | None = None,
) -> Array:
    r"""How much of each of many values is expected to be real, in [0, 1], shape of ``values``.

    What is kept is the mean of :math:`\tau^2/(\tau^2+m)` over all :math:`\tau^2`, each as probable
    as the values make it. Before they are seen, every doubling of it has odds of :math:`2^{-3/2}`,
    so large noise is not believed where believing it would cost much. After that the odds are times

    .. math:: \prod_z \Big(\frac{1}{\sqrt s}\big(1 + \tfrac{z^2}{2s}\big)^{-5/2}\Big)^{3/4},
              \qquad s = m + \tau^2

    where each factor is Student's t with 4 degrees of freedom and variance s: sums of a few Laplace
    draws have tails as heavy as this. They count less than once, because one draw moves many
    values. Of more than 4,096 values evenly spaced ones are multiplied, each for all that it
    stands for.

    Args:
      values: The noisy values of one study, or of many, shape (..., m).
      noise: The variance of the noise of each, shape (m,) or (..., m).
      floor: The least variance of the true values.
      factors: By how much the variance of each true value is more than the others', shape
        (..., m); None for all alike.

    >>> kept(np.array([9.0, -8.0, 7.0]), np.ones(3), floor=0.01).round(2)
    array([0.6, 0.6, 0.6])
    >>> kept(np.array([0.9, -0.8, 0.7]), np.ones(3), floor=0.01).round(2)
    array([0.02, 0.02, 0.02])
    """
    real = _variances(floor) if factors is None else _variances(floor) * factors[..., None, :]
    whole = noise[..., None, :] + real
    shares = _posterior(values, whole)
    return (shares[..., None, :] @ (real / whole))[..., 0, :]


def kept_apart(values: Array, noise: Array, *, floor: float, odds: float = ODDS) -> Array:
    r"""The same of a few values, any of which may be real though the others are not.

    As in :func:`kept`, but a true value has the variance :math:`4^k\tau^2`, k = 0 to 11, with odds
    of :math:`2^{-5k}`, each value its own; and every doubling of :math:`\tau^2` has :math:`2^{-a}`.
    A value of variance s = m + 4^k tau^2 is taken to be logistic, whose tails fall off like a
    Laplace draw's:

    .. math:: \frac{1}{\beta}\,\frac{e^{-|z|/\beta}}{(1 + e^{-|z|/\beta})^2},
              \qquad \beta = \frac{\sqrt{3s}}{\pi}

    So a value that is far beyond its noise is kept though the others are nothing: the louder its
    noise is beside the floor, the farther it must be.

    Args:
      values: The noisy values of one study, or of many, shape (..., m).
      noise: The variance of the noise of each, shape (m,) or (..., m).
      floor: The least variance of the true values.
      odds: The a above: the larger, the less is believed to be far above the floor.

    >>> kept_apart(np.array([9.0, -8.0, 7.0]), np.ones(3), floor=0.01).round(2)
    array([0.96, 0.96, 0.96])
    >>> kept_apart(np.array([9.0, -0.8, 0.7]), np.ones(3), floor=0.5).round(2)
    array([0.79, 0.63, 0.63])
    >>> kept_apart(np.array([9.0, -8.0, 7.0]), np.ones(3), floor=0.01, odds=3.0).round(2)
    array([0.52, 0.52, 0.51])
    """
    # Variances of single values, from the floor to the highest that one of its own may have.
    highest = DOUBLINGS + 2 * (OWN_POWERS - 1)
    real = _variances(floor, highest)
    whole = noise[..., None, :] + real
    each = _logistic(values[..., None, :], whole)
    each = np.exp(each - each.max(axis=-2, keepdims=True))
    together = np.maximum(_of_own(each), SMALLEST)
    shares = _of_own(each * (real / whole)) / together
    seen = COUNTED * np.log(together).sum(axis=-1)
    probable = _normalised(seen - odds * np.log(2.0) * np.arange(DOUBLINGS))
    return (probable[..., None, :] @ shares)[..., 0, :]


def _of_own(each: Array) -> Array:
    """What values of variances of their own come to for each common one, (..., DOUBLINGS, m)."""
    weights = 2.0 ** (-2.0 * ROW_ODDS * np.arange(OWN_POWERS))
    places = (slice(2 * k, 2 * k + DOUBLINGS) for k in range(OWN_POWERS))
    return sum(
        weight * each[..., place, :]
        for weight, place in zip((weights / weights.sum()).tolist(), places, strict=True)
    )


def _logistic(values: Array, whole: Array) -> Array:
    """Logarithm of the logistic density of these variances, each value by itself."""
    beta = np.sqrt(3.0 * whole) / np.pi
    far = np.abs(values) / beta
    return -np.log(beta) - far - 2.0 * np.log1p(np.exp(-far))


def kept_entries(matrices: Array, noise: Matrix, *, floor: float, by_rows: bool) -> Array:
    """How much of each entry of symmetric matrices is expected to be real, in [0, 1].

    Args:
      matrices: One noisy matrix or many, shape (..., d, d).
      noise: The variance of the noise of each entry, shape (d, d).
      floor: The least variance of the true entries.
      by_rows: Whether some rows may vary more than the others (:func:`row_factors`).

    Returns:
      Shares as of :func:`kept`, shape (..., d, d).

    >>> kept_entries(np.full((2, 2), 9.0), np.eye(2), floor=0.01, by_rows=False).round(2)
    array([[0.96, 1.  ],
           [1.  , 0.96]])
    """
    rows, columns = upper_triangle(len(noise))
    many = matrices.reshape(math.prod(matrices.shape[:-2]), *noise.shape)
    shares = np.empty(many.shape)
    # Some matrices at a time: each takes a cell for every entry and every variance it may have.
    step = 1 + CELLS // (1 + DOUBLINGS * noise.size)
    for first in range(0, len(many), step):
        some = slice(first, first + step)
        factors = row_factors(many[some], noise, floor=floor) if by_rows else None
        real = kept(
            _of_entries(many[some], rows, columns),
            noise[rows, columns],
            floor=floor,
            factors=None if factors is None else _both(factors, rows, columns),
        )
        shares[some, rows, columns] = shares[some, columns, rows] = real
    return shares.reshape(matrices.shape)


def surely_real(matrices: Array, noise: Matrix) -> Array:
    r"""How much of each entry of symmetric matrices is real, however much the others vary.

    Of m Laplace draws of deviation s none is beyond :math:`t s` with :math:`t = \ln(100m)/\sqrt2`,
    but once in a hundred times, and sums of several reach less far. An entry z beyond that is kept
    as far as :math:`1 - t^2s^2/z^2`.

    Args:
      matrices: One noisy matrix or many, shape (..., d, d).
      noise: The variance of the noise of each entry, shape (d, d).

    Returns:
      Shares in [0, 1], shape (..., d, d); 0 for all that noise may have made.

    >>> surely_real(np.array([[400.0, 3.0], [3.0, 0.2]]), np.ones((2, 2))).round(3)
    array([[1., 0.],
           [0., 0.]])
    """
    entries = max(1, len(noise) * (len(noise) + 1) // 2)
    far = math.log(entries / RARELY) / math.sqrt(2.0)
    chance = far**2 * noise
    return 1.0 - chance / np.maximum(np.maximum(matrices**2, chance), SMALLEST)


def row_factors(matrices: Array, noise: Matrix, *, floor: float) -> Array:
    r"""By how much each row of symmetric matrices varies more than the others, 1 or more.

    A true entry has the variance :math:`\tau^2 r_j r_k`. The factor :math:`r_j` is the mean, in its
    logarithm, over powers of 4, given the other rows' factors and the :math:`\tau^2` that goes with
    them. Its odds are :math:`2^{-5/2}` for each doubling before entries are seen, and as in
    :func:`kept` after that; so one large entry alone does not make a row large.

    Args:
      matrices: One matrix or many, shape (..., d, d).
      noise: The variance of the noise of each entry, shape (d, d).
      floor: The least variance of the true entries.

    Returns:
      The factors, shape (..., d).

    >>> matrix = np.full((6, 6), 0.1)
    >>> matrix[2] = matrix[:, 2] = 5.0
    >>> row_factors(matrix, np.full((6, 6), 0.01), floor=0.01).round()
    array([ 1.,  1., 54.,  1.,  1.,  1.])
    """
    rows, columns = upper_triangle(len(noise))
    doublings, real = np.arange(0.0, 2.0 * POWERS, 2.0), _variances(floor)
    entries = _of_entries(matrices, rows, columns)
    factors: Array = np.ones(matrices.shape[:-1])
    for _ in range(SWEEPS):
        own = real * _both(factors, rows, columns)[..., None, :]
        shares = _posterior(entries, noise[rows, columns] + own)
        middle = real[0, 0] * 2.0 ** _mean(shares, np.arange(float(DOUBLINGS)))
        others = (middle[..., None] * factors)[..., None, None, :]
        whole = noise[:, None, :] + others * 2.0 ** doublings[:, None]
        odds = COUNTED * _likelihood(matrices[..., :, None, :], whole)
        found = _normalised(odds - ROW_ODDS * np.log(2.0) * doublings)
        factors = 2.0 ** _mean(found, doublings)
    return factors


def _of_entries(matrices: Array, rows: Indices, columns: Indices) -> Array:
    """The entries at these places, of one matrix or of many.

    In one order of memory, so that sums over many studies have the bits of each by itself.
    """
    return np.ascontiguousarray(matrices[..., rows, columns])


def _both(factors: Array, rows: Indices, columns: Indices) -> Array:
    """The factor of an entry's row times that of its column, in the same order of memory."""
    return factors.take(rows, axis=-1) * factors.take(columns, axis=-1)


def _variances(floor: float, count: int = DOUBLINGS) -> Array:
    """The variances that true values may have, each twice the one before, shape (count, 1)."""
    # Of a whole number numpy makes 16 bits.
    return np.ldexp(float(max(floor, SMALLEST_VARIANCE)), np.arange(count))[:, None]


def _posterior(values: Array, whole: Array) -> Array:
    """How probable each variance is, of values (..., m) that vary by (..., DOUBLINGS, m)."""
    some, counted = slice(None), COUNTED
    if values.shape[-1] > ENOUGH:
        # Evenly spaced ones: of a matrix they come from all of its rows and columns.
        some = np.arange(ENOUGH) * values.shape[-1] // ENOUGH
        counted = COUNTED * values.shape[-1] / ENOUGH
    seen = counted * _likelihood(values[..., None, some], whole[..., some])
    return _normalised(seen - ODDS * np.log(2.0) * np.arange(DOUBLINGS))


def _likelihood(values: Array, whole: Array) -> Array:
    """Logarithm of Student's t with 4 degrees of freedom and these variances, over all values."""
    each = -0.5 * np.log(whole) - 2.5 * np.log1p(values**2 / (2.0 * whole))
    return each.sum(axis=-1)


def _mean(shares: Array, values: Vector) -> Array:
    """The mean of values under probabilities (..., m), the same for one study and for many."""
    return (shares * values).sum(axis=-1)


def _normalised(odds: Array) -> Array:
    """Probabilities of odds, given as logarithms along the last axis."""
    weights = np.exp(odds - odds.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)
