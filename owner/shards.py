"""An owner's records, kept so that queries are cheap; or only their second moments."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from common.arrays import Matrix, Vector
from common.losses import loss_of
from common.releases import GRADIENT, MOMENTS
from common.terms import Records, StudyTerms
from owner.sums import MomentStream, blocks, moment_sums

# A record of (nearly) zeros has a gradient of (nearly) zero, whatever its slope.
LEAST_NORM = 1e-100


def by_moments(terms: StudyTerms) -> bool:
    """Whether second moments are all that a study's answers need; that is public.

    >>> from fractions import Fraction
    >>> terms = StudyTerms(study_id="s", loss="squared", theta_max=1.0, feature_map="",
    ...     horizon=1, responses=1, epsilon=Fraction(1))
    >>> by_moments(terms)
    True
    """
    is_clipped = terms.clip is not None or not loss_of(terms).is_quadratic
    return terms.release == MOMENTS.name or (terms.release == GRADIENT.name and not is_clipped)


@dataclass(frozen=True)
class Shard:
    """An owner's records with what makes queries cheap.

    Args:
      records: The records.
      threads: How many threads add up their gradients and moments; the sums are the same to the
        last bit (:mod:`owner.sums`).
    """

    records: Records
    threads: int = 1

    @property
    def num_bytes(self) -> int:
        """About what it takes of memory: features, targets, norms."""
        if isinstance(self.records.features.base, np.memmap):
            # What is mapped is the system's to drop.
            return self.records.targets.nbytes
        return self.records.features.nbytes + 2 * self.records.targets.nbytes

    @property
    def num_features(self) -> int:
        """The number p of features."""
        return int(self.records.features.shape[1])

    @property
    def gram(self) -> Matrix:
        """Second moments X'X/n, shape (p, p)."""
        return self._moments[0]

    @property
    def cross(self) -> Vector:
        """Moments X'y/n, shape (p,)."""
        return self._moments[1]

    @cached_property
    def feature_norms(self) -> Vector:
        """L1 norm of each record's features, at least ``LEAST_NORM``, shape (n,)."""
        norms = np.empty(len(self.records))
        for chosen, x in blocks(self.records.features, 0, len(norms)):
            norms[chosen] = np.abs(x).sum(axis=1)
        return np.maximum(norms, LEAST_NORM, out=norms)

    @cached_property
    def _moments(self) -> tuple[Matrix, Vector]:
        """Both moments, of which one pass over the records is enough."""
        x, y = self.records.features, self.records.targets
        gram, cross = moment_sums(x, y, threads=self.threads)
        return gram / len(y), cross / len(y)


@dataclass(frozen=True)
class MomentShard:
    """The second moments of records that are not here.

    Args:
      gram: X'X/n, shape (p, p).
      cross: X'y/n, shape (p,).
    """

    gram: Matrix
    cross: Vector

    @classmethod
    def of_stream(cls, stream: MomentStream, *, num_records: int) -> MomentShard:
        """The moments of all records that went by, to the last bit those of :class:`Shard`."""
        gram, cross = stream.sums()
        return cls(gram / num_records, cross / num_records)

    @property
    def num_bytes(self) -> int:
        """What it takes of memory."""
        return self.gram.nbytes + self.cross.nbytes

    @property
    def num_features(self) -> int:
        """The number p of features."""
        return len(self.cross)


AnyShard = Shard | MomentShard
