r"""What a response is: its coordinates, how far one record moves them, and what it asks of terms.

A release is computed by owners alone (``owner.core.EXACT``); what both sides must agree on about it
is here.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from common.arrays import Vector
from common.domain import Domain
from common.gradient_bounds import domain_gradient_bound, rounded_gradient
from common.losses import LOSSES, Loss, loss_of
from common.moments import gram_change, moments_change, pack_moments, packed_length
from common.release import Release
from common.terms import StudyTerms
from common.validation import factors_of, num_coordinates

# What a factor or bound may be that comes with a study.
LEAST, MOST = 1e-100, 1e100
MOST_EDGES = 63


class Gradient(Release):
    """Response (4): the mean gradient at the query's model, shape (p,)."""

    name = "gradient"
    typical = "a typical gradient at theta = 0"

    def check(self, terms: StudyTerms) -> None:
        """Every loss has a gradient, at any clip, as often as is paid for."""

    def dimension(self, terms: StudyTerms, num_features: int) -> int:
        """One for each feature."""
        del terms
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
        """Moments are released once, say all of least squares only, with the domain's bound.

        Raises:
          ValueError: The terms ask for another loss, several responses, or a clip.
        """
        if not (
            LOSSES[terms.loss].is_quadratic
            and terms.responses == self.most_responses
            and terms.clip is None
        ):
            raise ValueError("moments need squared loss, one response and no clip")

    def dimension(self, terms: StudyTerms, num_features: int) -> int:
        """p(p+1)/2 + p."""
        del terms
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


class Newton(Release):
    r"""Curvature and gradient at the query's model, as often as is paid for.

    With the slopes s of the loss at :math:`\theta`, each scaled down to the clip, and its second
    derivatives :math:`\ell''` where the clip left a record as it is, 0 where it did not,

    .. math:: \Big(k\,\frac1{n_i}\sum \ell''\, x_a x_b\Big)_{a \le b}, \quad
              \frac1{n_i}\sum s\, x

    in this order. For squared loss these are twice the residual moments :math:`(X'X, -X'r)/n_i`.
    **Sensitivity.** A replaced record moves the second part by at most :math:`2\Xi`, as any
    gradient. With :math:`\ell'' \in [0, L]` it moves the sum of the first by at most
    :math:`k L D`, D of :func:`common.moments.gram_change`, whatever its :math:`\ell''` is. The
    whole is :math:`2\Xi + kLD`, and the factor k, which is public, splits epsilon between the two
    (:func:`curvature_scale`). That holds at any :math:`\theta`, so m responses, each with the
    noise of :math:`\epsilon_i/m`, are :math:`\epsilon_i`-private together, as gradients are.
    """

    name = "newton"
    needs_curvature = True
    typical = "a typical curvature and gradient"

    def check(self, terms: StudyTerms) -> None:
        """It needs a curvature, and says how both parts share epsilon."""
        scale = terms.curvature_scale
        if not (
            LOSSES[terms.loss].curvature is not None and scale is not None and _is_bound(scale)
        ):
            raise ValueError(
                "newton needs a loss without kinks and a curvature_scale "
                f"from {LEAST:g} to {MOST:g}"
            )

    def dimension(self, terms: StudyTerms, num_features: int) -> int:
        """p(p+1)/2 + p."""
        del terms
        return packed_length(num_features)

    def change(self, terms: StudyTerms, domain: Domain) -> float:
        r"""Both parts together, :math:`2\Xi + kLD`."""
        assert terms.curvature_scale is not None  # noqa: S101 (check has looked)
        moves = _curvature_change(loss_of(terms), domain)
        return 2.0 * gradient_bound(terms, domain) + terms.curvature_scale * moves

    def record_bound(self, terms: StudyTerms, domain: Domain) -> float:
        """A single record's part is never larger than the change."""
        return self.change(terms, domain)

    def rounded_size(self, terms: StudyTerms, domain: Domain) -> float:
        """The slopes' own, and that of each product."""
        return GRADIENT.rounded_size(terms, domain) + self.change(terms, domain)

    def typical_size(self, terms: StudyTerms, deviations: Vector) -> float:
        """The gradient's; the curvature has about as much of its share."""
        return GRADIENT.typical_size(terms, deviations)

    def described(self, terms: StudyTerms) -> str:
        """The loss, and that curvature comes with it."""
        return f"{terms.loss} loss, gradient and curvature"

    def bound_in_words(self, terms: StudyTerms, domain: Domain) -> str:
        """The bound of the gradient, and the share of the curvature."""
        share = 1.0 - 2.0 * gradient_bound(terms, domain) / self.change(terms, domain)
        spent = f"{share:.3g} of epsilon is for the curvature"
        return f"{GRADIENT.bound_in_words(terms, domain)}; {spent}"


class Validation(Release):
    r"""How good the query's model is, once: :mod:`common.validation`.

    **Sensitivity.** A replaced record's bounded loss lies in [0, L] before and after, its
    difference in :math:`[-D, D]`, and it leaves one cell of the table for another. With the
    factors of the three parts, n_i times the response moves by at most

    .. math:: w_v L + 2 w_d D + 2 w_t = 1

    in L1 norm, whatever the records, the models and the loss are: each part is bounded record by
    record after it was computed, so no domain, box or rounding enters.
    """

    name = "validation"
    most_responses = 1
    takes_clip = False
    in_stretches = False
    typical = "a typical loss and table"

    def check(self, terms: StudyTerms) -> None:
        """It is released once, and its bounds, reference and edges are numbers that make sense."""
        if not (terms.responses == self.most_responses and terms.clip is None):
            raise ValueError("validation needs one response and no clip")
        if not (terms.loss_bound is not None and _is_bound(terms.loss_bound)):
            raise ValueError(f"validation needs a loss_bound from {LEAST:g} to {MOST:g}")
        if (terms.difference_bound is None) != (not terms.reference):
            raise ValueError("difference_bound and reference go together; give both or none")
        if not (terms.difference_bound is None or _is_bound(terms.difference_bound)):
            raise ValueError(f"difference_bound must be from {LEAST:g} to {MOST:g}")
        if not all(abs(value) <= terms.theta_max for value in terms.reference):
            raise ValueError("reference must be a model in the study's box")
        if terms.edges and not LOSSES[terms.loss].has_classes():
            raise ValueError(f"edges belong to losses for classes, not to {terms.loss}")
        rises = all(a < b for a, b in pairwise((-math.inf, *terms.edges, math.inf)))
        if len(terms.edges) > MOST_EDGES or not rises:
            raise ValueError(f"edges must be at most {MOST_EDGES} finite numbers, ascending")

    def dimension(self, terms: StudyTerms, num_features: int) -> int:
        """Loss, difference, and two for each bin."""
        del num_features
        return num_coordinates(terms)

    def change(self, terms: StudyTerms, domain: Domain) -> float:
        """All parts together: 1, in units of the answer times n_i; see common/validation.py.

        Raises:
          ValueError: The reference model has not one number for each feature.
        """
        if terms.reference and len(terms.reference) != domain.num_features:
            raise ValueError(
                f"reference: got {len(terms.reference)} numbers, expected one for each of the "
                f"{domain.num_features} features"
            )
        factors = factors_of(terms)
        assert terms.loss_bound is not None  # noqa: S101 (check has looked)
        both_ways = 2.0 * factors.difference * (terms.difference_bound or 0.0)
        return factors.loss * terms.loss_bound + both_ways + 2.0 * factors.cell

    def record_bound(self, terms: StudyTerms, domain: Domain) -> float:
        """A single record's part is never larger than the change."""
        return self.change(terms, domain)

    def rounded_size(self, terms: StudyTerms, domain: Domain) -> float:
        """Bounded after it was computed, a record's part carries no larger rounding."""
        return self.change(terms, domain)

    def typical_size(self, terms: StudyTerms, deviations: Vector) -> float:
        """The loss of predicting 0, and the whole table."""
        del deviations
        factors, loss = factors_of(terms), loss_of(terms)
        assert terms.loss_bound is not None  # noqa: S101 (check has looked)
        usual = min(float(loss.values(np.zeros(1), np.ones(1))[0]), terms.loss_bound)
        return factors.loss * usual + factors.cell

    def described(self, terms: StudyTerms) -> str:
        """That it is about a finished model."""
        return f"validation of a finished model by {terms.loss} loss"

    def bound_in_words(self, terms: StudyTerms, domain: Domain) -> str:
        """The bound of the loss."""
        del domain
        return f"one record's loss counts as at most {terms.loss_bound:.6g}"


GRADIENT, MOMENTS, NEWTON = Gradient(), SecondMoments(), Newton()
VALIDATION = Validation()
RELEASES: dict[str, Release] = {
    release.name: release for release in (GRADIENT, MOMENTS, NEWTON, VALIDATION)
}
"""Every release, by its name."""


def release_of(terms: StudyTerms) -> Release:
    """The release that terms name.

    Raises:
      ValueError: There is none of this name, or the terms carry numbers of another one.

    >>> from fractions import Fraction
    >>> release_of(StudyTerms(study_id="s", loss="squared", theta_max=1.0, feature_map="",
    ...     horizon=1, responses=1, epsilon=Fraction(1), release="moments")).name
    'moments'
    """
    if terms.release not in RELEASES:
        raise ValueError(f"release must be one of {', '.join(RELEASES)}")
    if terms.curvature_scale is not None and terms.release != NEWTON.name:
        raise ValueError(f"curvature_scale belongs to {NEWTON.name}, not to {terms.release}")
    asked = (terms.loss_bound, terms.difference_bound, terms.reference or None, terms.edges or None)
    if terms.release != VALIDATION.name and any(value is not None for value in asked):
        raise ValueError(
            "loss_bound, difference_bound, reference and edges belong to validation, not to "
            f"{terms.release}"
        )
    return RELEASES[terms.release]


def _is_bound(value: float) -> bool:
    """Whether a number can bound what is summed; NaN cannot."""
    return LEAST <= value <= MOST


def gradient_bound(terms: StudyTerms, domain: Domain) -> float:
    """The bound Xi on one record's gradient under these terms: the clip, or the domain's bound.

    A clip larger than the domain's bound changes nothing, so the smaller one counts.

    Returns:
      The bound, in gradient units, L1 norm.

    >>> from fractions import Fraction
    >>> terms = StudyTerms(study_id="s", loss="squared", theta_max=1.0, feature_map="", horizon=1,
    ...     responses=1, epsilon=Fraction(1), clip=5.0)
    >>> domains = [Domain(feature_bound=np.ones(1), target_bound=y) for y in (1.0, 9.0)]
    >>> [gradient_bound(terms, domain) for domain in domains]
    [4.0, 5.0]

    References: Assumption 2 of Farokhi et al. (2021).
    """
    bound = domain_gradient_bound(loss_of(terms), domain, theta_max=terms.theta_max)
    return bound if terms.clip is None else min(bound, terms.clip)


def curvature_scale(loss: Loss, domain: Domain, *, bound: float, share: float) -> float:
    r"""The factor k that spends this share q of epsilon on the curvature of a Newton release.

    .. math:: k = \frac{2\Xi}{L D} \cdot \frac{q}{1 - q}

    so that the sensitivity :math:`2\Xi + kLD` is :math:`2\Xi/(1-q)`, and the noise of the
    gradient is 1/(1-q) times what it would be without the curvature.

    Args:
      loss: The loss, which has a curvature.
      domain: The public bounds that every record keeps.
      bound: The bound Xi on the L1 norm of one record's gradient.
      share: The share q, between 0 and 1.

    Returns:
      The factor k, in gradient units for each unit of curvature.

    >>> from common.losses import Squared
    >>> domain = Domain(feature_bound=np.ones(2), target_bound=1.0, l1_radius=1.0)
    >>> curvature_scale(Squared(), domain, bound=4.0, share=0.5)
    2.0
    """
    return 2.0 * bound / _curvature_change(loss, domain) * share / (1.0 - share)


def _curvature_change(loss: Loss, domain: Domain) -> float:
    """Largest L1 change of the sum of packed curvatures, L D, when one record is replaced."""
    assert loss.curvature is not None  # noqa: S101 (the release has looked)
    return loss.curvature * gram_change(domain)
