r"""What a response is: its coordinates, how far one record moves them, and what it asks of terms.

A release is computed by owners alone (``owner.core.EXACT``); what both sides must agree on about it
is here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from common.arrays import Vector
from common.domain import Domain
from common.losses import LOSSES, domain_gradient_bound, loss_of, rounded_gradient
from common.moments import moments_change, pack_moments, packed_length
from common.terms import StudyTerms

__all__ = ["GRADIENT", "MOMENTS", "RELEASES", "Release", "gradient_bound", "release_of"]


class Release(ABC):
    """One kind of response.

    Attributes:
      name: Its name on the wire.
      most_responses: How many of them a study may ask an owner for; None for any number.
      quadratic_only: Whether it is for squared loss alone.
      takes_clip: Whether gradients may be clipped for it.
      typical: What a response usually is, in words for the owner's operator.
    """

    name: ClassVar[str]
    most_responses: ClassVar[int | None] = None
    quadratic_only: ClassVar[bool] = False
    takes_clip: ClassVar[bool] = True
    typical: ClassVar[str]

    @abstractmethod
    def check(self, terms: StudyTerms) -> None:
        """Refuse terms that this release is not defined for.

        Raises:
          ValueError: The sentence says what it needs.
        """

    @abstractmethod
    def dimension(self, num_features: int) -> int:
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


class Gradient(Release):
    """Response (4): the mean gradient at the query's model, shape (p,)."""

    name = "gradient"
    typical = "a typical gradient at theta = 0"

    def check(self, terms: StudyTerms) -> None:
        """Every loss has a gradient, at any clip, as often as is paid for."""

    def dimension(self, num_features: int) -> int:
        """One for each feature."""
        return num_features

    def change(self, terms: StudyTerms, domain: Domain) -> float:
        r"""One gradient goes and another comes: :math:`2\Xi`."""
        return 2.0 * gradient_bound(terms, domain)

    def record_bound(self, terms: StudyTerms, domain: Domain) -> float:
        r"""The bound :math:`\Xi`."""
        return gradient_bound(terms, domain)

    def rounded_size(self, terms: StudyTerms, domain: Domain) -> float:
        """What the loss says of its slopes, before any clip."""
        return rounded_gradient(loss_of(terms), domain, theta_max=terms.theta_max)

    def typical_size(self, terms: StudyTerms, deviations: Vector) -> float:
        """The loss's slope at 0 times the deviations, at most the clip."""
        slope = float(np.abs(loss_of(terms).slopes(np.zeros(1), np.ones(1))[0]))
        typical = slope * float(deviations.sum())
        return typical if terms.clip is None else min(typical, terms.clip)

    def described(self, terms: StudyTerms) -> str:
        """The loss."""
        return f"{terms.loss} loss"

    def bound_in_words(self, terms: StudyTerms, domain: Domain) -> str:
        """The bound and where it comes from."""
        bound = gradient_bound(terms, domain)
        by = "the public bounds" if bound != terms.clip else "the clip"
        return f"one record's gradient, L1: at most {bound:.6g}, by {by}"


class SecondMoments(Release):
    """The packed second moments of :mod:`common.moments`, once for the whole epsilon."""

    name = "moments"
    most_responses = 1
    quadratic_only = True
    takes_clip = False
    typical = "typical moments"

    def check(self, terms: StudyTerms) -> None:
        """Moments are told once, say all of least squares only, and are bounded by the domain."""
        if not (
            LOSSES[terms.loss].is_quadratic
            and terms.responses == self.most_responses
            and terms.clip is None
        ):
            raise ValueError("moments need squared loss, one response and no clip")

    def dimension(self, num_features: int) -> int:
        """p(p+1)/2 + p."""
        return packed_length(num_features)

    def change(self, terms: StudyTerms, domain: Domain) -> float:
        """Whatever the loss: :func:`common.moments.moments_change`."""
        del terms
        return moments_change(domain)

    def record_bound(self, terms: StudyTerms, domain: Domain) -> float:
        """A single record's moments may be as large as their change."""
        return self.change(terms, domain)

    def rounded_size(self, terms: StudyTerms, domain: Domain) -> float:
        """Each product is rounded at its own size."""
        return self.change(terms, domain)

    def typical_size(self, terms: StudyTerms, deviations: Vector) -> float:
        """The products of the deviations."""
        del terms
        return float(pack_moments(np.outer(deviations, deviations), deviations).sum())

    def described(self, terms: StudyTerms) -> str:
        """That it is moments."""
        del terms
        return "release of second moments"

    def bound_in_words(self, terms: StudyTerms, domain: Domain) -> str:
        """The change of the sum."""
        return f"one record moves their sum, L1: by at most {self.change(terms, domain):.6g}"


GRADIENT, MOMENTS = Gradient(), SecondMoments()
RELEASES: dict[str, Release] = {release.name: release for release in (GRADIENT, MOMENTS)}
"""Every release, by its name."""


def release_of(terms: StudyTerms) -> Release:
    """The release that terms name.

    Raises:
      ValueError: There is none of this name.
    """
    if terms.release not in RELEASES:
        raise ValueError(f"release must be one of {', '.join(RELEASES)}")
    return RELEASES[terms.release]


def gradient_bound(terms: StudyTerms, domain: Domain) -> float:
    """The bound Xi on one record's gradient under these terms: the clip, or the domain's bound.

    A clip larger than the domain's bound changes nothing, so the smaller one counts.
    """
    bound = domain_gradient_bound(loss_of(terms), domain, theta_max=terms.theta_max)
    return bound if terms.clip is None else min(bound, terms.clip)
