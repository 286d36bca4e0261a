"""What every kind of response states of itself; the kinds are in ``common.releases``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from common.arrays import Vector
from common.domain import Domain
from common.terms import StudyTerms


class Release(ABC):
    """One kind of response.

    Attributes:
      name: Its name on the wire.
      most_responses: How many of them a study may ask an owner for; None for any number.
      quadratic_only: Whether it is for squared loss alone.
      needs_curvature: Whether it is for losses without kinks alone.
      takes_clip: Whether gradients may be clipped for it.
      in_stretches: Whether all its sums over records are those of :mod:`common.stretches`.
      typical: What a response usually is, in words for the owner's operator.
    """

    name: ClassVar[str]
    most_responses: ClassVar[int | None] = None
    quadratic_only: ClassVar[bool] = False
    needs_curvature: ClassVar[bool] = False
    takes_clip: ClassVar[bool] = True
    in_stretches: ClassVar[bool] = True
    typical: ClassVar[str]

    @abstractmethod
    def check(self, terms: StudyTerms) -> None:
        """Refuse terms that this release is not defined for.

        Raises:
          ValueError: The sentence says what it needs.
        """

    @abstractmethod
    def dimension(self, terms: StudyTerms, num_features: int) -> int:
        """The number of coordinates of one response."""

    @abstractmethod
    def change(self, terms: StudyTerms, domain: Domain) -> float:
        """Largest L1 change of n_i times one response when one of n_i records is replaced."""

    @abstractmethod
    def record_bound(self, terms: StudyTerms, domain: Domain) -> float:
        """Largest L1 norm of what one record adds to n_i times a response."""

    @abstractmethod
    def rounded_size(self, terms: StudyTerms, domain: Domain) -> float:
        """Size of the numbers whose rounding one record's part carries, L1 norm."""

    @abstractmethod
    def typical_size(self, terms: StudyTerms, deviations: Vector) -> float:
        """L1 norm of a usual exact response, from features' deviations and unit targets."""

    @abstractmethod
    def described(self, terms: StudyTerms) -> str:
        """What the responses are made with, in words for the owner's operator."""

    @abstractmethod
    def bound_in_words(self, terms: StudyTerms, domain: Domain) -> str:
        """How far one record moves a response, in words for the owner's operator."""
