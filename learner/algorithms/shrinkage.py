r"""One step from the public model, by noisy gradient and curvature whose noise is known.

The public records have a model :math:`\theta_0` and say what the loss looks like around it. Owners
send a noisy gradient :math:`\hat g` and curvature :math:`\hat H` of theirs at :math:`\theta_0`; a
step :math:`-\hat H^{-1} \hat g` would lead to their best model if it were not for the noise. Its
variance is public, so what it does can be taken back, as far as it is expected to:

1. In the coordinates where the public curvature is I, :math:`E = \hat H - I` is what owners differ
   by and noise. Each entry is kept as far as it is expected to be real
   (:mod:`learner.algorithms.wiener`), and no eigenvalue is taken to be less than twice what it
   varies by chance, or a quarter if that is less. Where owners were asked at several models, what
   their gradients change by from one to the next shows what noise has hidden.
2. The step's noise has a covariance with eigenvectors q and variances m. Along each the step is
   kept as far as it is expected to be real, given how far :math:`\theta_0` is off by chance. What
   the public records' own gradient asks for, at an edge of the box, is no news and is kept whole.

What the clip of gradients does to their mean is seen on the public records and taken off. All of it
is post-processing of what was released, so it costs no privacy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np

from common.arrays import Array, Matrix, Vector
from common.losses import Regulariser
from learner.algorithms.box_least_squares import box_least_squares
from learner.algorithms.wiener import ODDS, kept_apart, kept_entries, surely_real

# The least eigenvalue of the owners' curvature against the public one is so many times what it
# varies by chance, within these limits: less makes steps too long, more makes them shorter.
SURE, SMALLEST_RATIOS = 2.0, (0.01, 0.25)
# Directions in which the public records hardly say anything are left where they are.
SMALLEST_CURVATURE = 1e-9
TINY, SHORT = 1e-300, 1e-100
# A round that went this share of the way from the public model, or less, has not moved.
UNMOVED = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class Around:
    r"""The public model, and what public records say of the loss around it.

    Args:
      theta: The model :math:`\theta_0` that the step is from, the public one shrunk by a
        ridge (:attr:`learner.simulated.groups.PublicGroups.start`), shape (p,).
      curvature: Mean second derivative of the public records' loss there, under the clip,
        without g, shape (p, p).
      offset: What a gradient of the owners has too much there if their records are like the public
        ones: what the clip does to the public mean gradient, less the gradient of g, shape (p,).
      pull: The public records' own gradient there, with g's: 0 but where :math:`\theta_0` is at an
        edge of the box, and they would have it outside, shape (p,); None for 0.
      spread: Mean over directions of the variance of :math:`\theta_0` by chance, in coordinates
        where the curvature, with g, is I.
      curvature_spread: Mean variance of the curvature's entries by chance in these coordinates.
      drifts: Whether the owners' records may be far from the public ones: then some features may
        vary much more among them, and so may their rows of the curvature.
      doubt: How much of the entries' variance counts as curvature where noise hides it. In a
        direction in which the public curvature is c times smaller than its mean over features, c^2
        times as much.
      odds: How hard it is to believe that the owners' model is farther away than chance makes it:
        each doubling of its variance has odds of 2 to minus this before owners are asked. The
        larger, the less is believed.
    """

    theta: Vector
    curvature: Matrix
    offset: Vector
    spread: float
    curvature_spread: float
    pull: Vector | None = None
    drifts: bool = False
    doubt: float = 0.0
    odds: float = ODDS


@dataclass(frozen=True, kw_only=True, eq=False)
class StepNoise:
    """The variance of what was released.

    Args:
      entry: Of one entry of the curvature.
      gradient: Covariance of the gradient, shape (p, p).
    """

    entry: float
    gradient: Matrix


def shrunken_model(
    around: Around,
    curvature: Array,
    gradient: Array,
    noise: StepNoise,
    *,
    regulariser: Regulariser,
    theta_max: float,
) -> Array:
    r"""The model one shrunken step from the public one, in the box, shape (..., p).

    Args:
      around: The public model and what is known around it.
      curvature: The owners' noisy curvature there, without g, shape (..., p, p): many studies may
        be solved at once.
      gradient: Their noisy mean gradient there, without g's, shape (..., p).
      noise: What the noise's variance is.
      regulariser: The term g.
      theta_max: Half the side of the box.

    >>> around = Around(theta=np.zeros(1), curvature=2 * np.eye(1), offset=np.zeros(1), spread=1.0,
    ...     curvature_spread=0.1)
    >>> def model(variance):
    ...     noise = StepNoise(entry=0.0, gradient=variance * np.eye(1))
    ...     return shrunken_model(around, 2 * np.eye(1), np.array([-4.0]), noise,
    ...         regulariser=Regulariser(coefficient=0.0), theta_max=9.0)
    >>> model(0.0), model(1e9).round(3)
    (array([2.]), array([0.]))
    """
    blend = Blend.of(around, curvature, noise.entry, regulariser=regulariser)
    return blend.model(gradient - around.offset, noise.gradient, theta_max=theta_max)


@dataclass(frozen=True, kw_only=True, eq=False)
class Blend:
    """The owners' noisy curvature and the public one in one, and what follows from it.

    Args:
      around: The public model and what is known around it.
      curvature: The public curvature, with g, shape (p, p).
      basis: Where the public curvature is I, shape (p, d).
      values: Eigenvalues of the blend there, shape (..., d).
      vectors: Its eigenvectors, shape (..., d, d).
      doubt: Mean variance of what is not known of its entries, shape (...).
    """

    around: Around
    curvature: Matrix
    basis: Matrix
    values: Array
    vectors: Array
    doubt: Array

    @classmethod
    def of(
        cls,
        around: Around,
        curvature: Array,
        entry: float,
        *,
        regulariser: Regulariser,
        is_everywhere: bool = True,
    ) -> Blend:
        """The blend for the owners' curvature, shape (..., p, p), whose entries vary by this.

        Args:
          around: The public model and what is known around it.
          curvature: The owners' noisy curvature, without g.
          entry: The variance of one of its entries.
          regulariser: The term g.
          is_everywhere: Whether it is the same at every model, as that of squared loss.
        """
        public, basis = _whitened(around, regulariser)
        differs = basis.T @ (curvature - around.curvature) @ basis
        lengths = np.sum(basis**2, axis=0)
        # Entries beside the diagonal are sums of two products, those on it of one, twice.
        products = np.outer(lengths, lengths)
        variances = entry * products * (1.0 + np.eye(len(lengths)))
        floor, by_rows = around.curvature_spread, around.drifts
        shares = kept_entries(differs, variances, floor=floor, by_rows=by_rows)
        # A step that is too short is mended by the next; one twice too long never is. The noise is
        # as large as a ridge in the models' own coordinates, where its entries are alike: so one
        # direction in which public records do not vary makes no others' steps short.
        possible = np.sqrt(around.doubt) * _narrowness(around, public, basis)
        hidden = np.sqrt(len(lengths)) * np.minimum(np.sqrt(entry) * lengths, possible)
        # In a direction in which public records hardly vary the owners' curvature may be thousands
        # of times theirs, which nothing that other entries say makes probable. What classes have
        # at the models before says less of the next one.
        real = np.maximum(shares, surely_real(differs, variances)) if is_everywhere else shares
        blend = np.eye(len(lengths)) + real * differs + np.diag(hidden)
        values, vectors = np.linalg.eigh(blend)
        # What is not known of an entry; along a direction one beside the diagonal is there twice.
        unknown = shares * variances
        twice = 2.0 - np.eye(len(lengths))
        chance = np.sqrt(np.sum(vectors**2 * ((twice * unknown) @ vectors**2), axis=-2))
        return cls(
            around=around,
            curvature=public,
            basis=basis,
            values=np.maximum(values, np.clip(SURE * chance, *SMALLEST_RATIOS)),
            vectors=vectors,
            doubt=np.mean(unknown, axis=(-1, -2)),
        )

    def model(self, gradient: Array, noise: Array, *, theta_max: float) -> Array:
        """The model one shrunken step from the public one, in the box, shape (..., p).

        What is shrunk is what the gradient has beside the public records' own.

        Args:
          gradient: The owners' gradient at the public model, with g's, shape (..., p).
          noise: Covariance of its noise, shape (..., p, p).
          theta_max: Half the side of the box.
        """
        around, basis, vectors = self.around, self.basis, self.vectors
        inverse = (vectors / self.values[..., None, :]) @ vectors.swapaxes(-1, -2)
        pull = np.zeros(around.theta.size) if around.pull is None else around.pull
        step = _times(-inverse, _times(basis.T, gradient - pull))
        covariance = inverse @ basis.T @ noise @ basis @ inverse
        spreads, axes = np.linalg.eigh(covariance)
        along = _times(axes.swapaxes(-1, -2), step)
        noises = np.maximum(spreads, 0.0)
        along *= kept_apart(along, noises, floor=around.spread, odds=around.odds)
        way = _times(axes, along) - inverse @ (basis.T @ pull)
        theta = around.theta + _times(basis, way)
        inside = np.all(np.abs(theta) <= theta_max, axis=-1)
        for one in map(tuple, np.argwhere(~inside)):
            # The model of the box that loses least against one outside of it.
            matrix = self._curvature(one)
            theta[one] = box_least_squares(matrix, matrix @ theta[one], theta_max=theta_max)
        return theta

    def _curvature(self, study: tuple[int, ...]) -> Matrix:
        """The blend of one of the studies in the models' own coordinates, shape (p, p)."""
        values, vectors = self.values[study], self.vectors[study]
        differs = (vectors * (values - 1.0)) @ vectors.T
        return self.curvature + self._back @ differs @ self._back.T

    @cached_property
    def _into(self) -> Matrix:
        """The inverse of the basis, in the directions that there are, shape (d, p)."""
        return self.basis.T @ self.curvature

    @cached_property
    def _back(self) -> Matrix:
        """The same of the basis' transpose, by which gradients come back, shape (p, d)."""
        return self.curvature @ self.basis

    @property
    def _ridge(self) -> Matrix:
        """The curvature of g, which no response holds, shape (p, p)."""
        return self.curvature - self.around.curvature

    def taught(self, gradients: Sequence[tuple[Array, Array, float]]) -> Blend:
        r"""The blend once gradients at several models have shown how they change on the way.

        From one model to the next, s away, they change by y, where the blend M says Ms. Noise may
        have hidden that the owners' curvature is far from the public one; then each step is too
        long, and the next one longer still. What M lacks, :math:`y - Ms`, is kept as far as it is
        expected to be real, and where that is more curvature along s, M is changed to have it, and
        as little as it can be otherwise:

        .. math:: M - \frac{Ms\,s'M}{s'Ms} + \frac{yy'}{s'y}

        Args:
          gradients: As for :meth:`at_public`.

        References: Nocedal and Wright (2006), Numerical Optimization, section 6.1 (BFGS).
        """
        if len(gradients) == 1:
            return self
        basis, vectors = self.basis, self.vectors
        matrix = (vectors * self.values[..., None, :]) @ vectors.swapaxes(-1, -2)
        narrow = _narrowness(self.around, self.curvature, basis)
        lengths, floor = np.sum((basis / narrow) ** 2, axis=0), self.around.curvature_spread
        for (theta, gradient, variance), (other, then, another) in pairwise(gradients):
            way = _times(self._into, other - theta)
            length = np.sqrt(np.sum(way**2, axis=-1, keepdims=True)) + SHORT
            step, noise = way / length, (variance + another) * lengths
            told = _times(matrix, step)
            ridge = _times(self._ridge, other - theta)
            lacks = _times(basis.T, then - gradient + ridge) / length - told
            lacks *= kept_apart(lacks / narrow, noise / length**2, floor=floor)
            before = np.sum(told * step, axis=-1)[..., None, None]
            along = np.sum(lacks * step, axis=-1)[..., None, None]
            seen = told + lacks
            # Where a round hardly moved, gradients differ by rounding: there is nothing to learn.
            whole = _times(self._into, other - self.around.theta)
            has_moved = length > UNMOVED * np.sqrt(np.sum(whole**2, axis=-1, keepdims=True))
            is_more = (along > 0.0) & has_moved[..., None]
            change = _outer(seen) / np.where(is_more, before + along, 1.0)
            change -= _outer(told) / np.where(is_more, before, 1.0)
            matrix = matrix + np.where(is_more, change, 0.0)
        values, vectors = np.linalg.eigh(matrix)
        least = self.values.min(axis=-1, keepdims=True)
        return replace(self, values=np.maximum(values, least), vectors=vectors)

    def at_public(
        self,
        gradients: Sequence[tuple[Array, Array, float]],
        *,
        bend: float,
    ) -> tuple[Array, Array]:
        r"""Gradients of several models as one at the public model, and its noise's covariance.

        The gradient :math:`g_r` at :math:`\theta_r` tells one of
        :math:`g_r - \hat H(\theta_r - \theta_0)` at :math:`\theta_0`, as far as the blend is
        right. Each weighs by its noise and by what the doubt in :math:`\hat H` makes of the way
        from :math:`\theta_r` to the last of them, where the model is by now.

        Args:
          gradients: (model, shape (..., p); mean gradient there, shape (..., p); variance of a
            coordinate of its noise), in the order in which they were asked.
          bend: How much the curvature's entries vary on the way, beside the doubt.
        """
        around, basis = self.around, self.basis
        if len(gradients) == 1:
            [(_, gradient, variance)] = gradients
            return gradient - around.offset, variance * np.eye(around.theta.size)
        ways = [_times(self._into, theta - around.theta) for theta, _, _ in gradients]
        length = float(np.mean(np.sum(basis**2, axis=0)))
        doubt = self.doubt + bend
        total, weights = np.zeros_like(ways[-1]), np.zeros(ways[-1].shape[:-1])
        vectors = self.vectors.swapaxes(-1, -2)
        for way, (theta, told, variance) in zip(ways, gradients, strict=True):
            gradient = told - around.offset + _times(self._ridge, theta - around.theta)
            moved = _times(self.vectors, self.values * _times(vectors, way))
            far = np.sum((way - ways[-1]) ** 2, axis=-1)
            weight = 1.0 / (variance * length + doubt * far + TINY)
            total = total + weight[..., None] * (_times(basis.T, gradient) - moved)
            weights = weights + weight
        gradient = _times(self._back, total / weights[..., None])
        return gradient, (1.0 / (weights * length))[..., None, None] * np.eye(around.theta.size)


def _narrowness(around: Around, public: Matrix, basis: Matrix) -> Vector:
    """By how much more the owners' curvature may differ in each direction, 1 or more.

    Where drifting public records hardly vary, the owners' may vary as they do elsewhere.
    """
    if not around.drifts:
        return np.ones(basis.shape[1])
    mean = np.trace(public) / len(public)
    return np.maximum(mean * np.sum(basis**2, axis=0), 1.0)


def _outer(vector: Array) -> Array:
    """Products of vectors (..., n) with themselves, shape (..., n, n)."""
    return vector[..., :, None] * vector[..., None, :]


def _times(matrix: Array, vector: Array) -> Array:
    """Products of matrices (..., m, n) and vectors (..., n), shape (..., m)."""
    return (matrix @ vector[..., None])[..., 0]


@lru_cache(maxsize=8)
def _whitened(around: Around, regulariser: Regulariser) -> tuple[Matrix, Matrix]:
    """The public curvature, with g, and its whitening: the same for all responses around it."""
    public = around.curvature + regulariser.strong_convexity * np.eye(around.theta.size)
    return public, whitening(public)


def whitening(curvature: Matrix, *, least: float = SMALLEST_CURVATURE) -> Matrix:
    """A matrix B with B' H B = I in the directions that H says something of, shape (p, d).

    Args:
      curvature: H >= 0, shape (p, p).
      least: Directions of less than this share of its largest eigenvalue are left out.

    >>> whitening(np.diag([0.0, 4.0]))
    array([[0. ],
           [0.5]])
    """
    values, vectors = np.linalg.eigh(curvature)
    kept = values > values[-1] * least
    return vectors[:, kept] / np.sqrt(values[kept])
