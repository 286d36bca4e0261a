"""Public bounds of records: how much one record can be is known before any record is."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from common.arrays import Matrix, Vector, either

# What is nearer to 0 is 0. Products and differences of such numbers, of their products and so on
# stay above 1e-308, under which many processors compute tens of times as slowly.
LEAST_SIZE = 1e-30


@dataclass(frozen=True, kw_only=True)
class Domain:
    """Public bounds that every admissible record keeps, so that one record's influence is bounded.

    They come from public records or from common knowledge, never from a private shard.

    Args:
      feature_bound: Largest absolute value of each feature, shape (p,), in feature units,
        the constant feature included.
      target_bound: Largest absolute target, in target units.
      l1_radius: Optional bound on the L1 norm of a record's features, to which longer
        records are scaled down.
    """

    feature_bound: Vector
    target_bound: float
    l1_radius: float | None = None

    def __post_init__(self) -> None:
        """Refuse bounds that bound nothing."""
        if not (np.all(np.isfinite(self.feature_bound)) and np.all(self.feature_bound >= 0)):
            raise ValueError("feature_bound: expected finite values of at least 0")
        if not 0 <= self.target_bound < math.inf:
            raise ValueError(f"target_bound: got {self.target_bound}, expected a finite value >= 0")
        if self.l1_radius is not None and not 0 < self.l1_radius < math.inf:
            raise ValueError(f"l1_radius: got {self.l1_radius}, expected a finite value > 0")

    @property
    def num_features(self) -> int:
        """The number p of features."""
        return int(self.feature_bound.shape[0])

    @property
    def feature_l1_bound(self) -> float:
        """Largest L1 norm of one record's features.

        >>> Domain(feature_bound=np.array([1.0, 2.0]), target_bound=1.0).feature_l1_bound
        3.0
        """
        box = float(np.sum(self.feature_bound))
        return box if self.l1_radius is None else min(box, self.l1_radius)


def without_specks(values: Matrix) -> Matrix:
    """The same numbers, and 0 in place of those nearer to it than :data:`LEAST_SIZE`.

    Records and the models that they are asked at are made of such numbers only, and so is what a
    feature map computes with: else how long an answer or an enrolment takes would reveal how many
    records have a value, since whoever asks may choose a model or a map of which that value makes
    numbers that are slow to compute with.

    >>> without_specks(np.array([1.0, -1e-310, 1e-29]))
    array([1.e+00, 0.e+00, 1.e-29])
    """
    return either(np.abs(values) < LEAST_SIZE, 0.0, values)
