r"""What an owner answers about a model: its loss, by how much it beats another, and a table.

A study asks each owner for it once, by a release of its own (``common.releases.Validation``). Of
a record with margin z at the model and :math:`z_0` at a public *reference* model it counts

.. math:: v = \min(\ell(z, y), L), \qquad
          d = \operatorname{clip}(\ell(z, y) - \ell(z_0, y), \pm D),

with public bounds L and D and, for classes, one of the cells (bin of z, class) of a calibration
table. The response holds the means of v and d and the share of the records in each cell, each
times a factor that gives it its part of epsilon (:func:`factors_of`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from common.arrays import Matrix, Vector
from common.losses import Loss
from common.terms import StudyTerms

# How loss, difference and table share epsilon, as far as a response holds them. Both sides must
# know the same: other numbers are another release.
LOSS_PART, DIFFERENCE_PART, TABLE_PART = 2, 1, 2
# What the name of a study of its own ends with.
SUFFIX = ":validation"


@dataclass(frozen=True, kw_only=True)
class Factors:
    """What each part is multiplied by; 0 for one that the response does not hold.

    Args:
      loss: Of the mean bounded loss.
      difference: Of the mean bounded difference.
      cell: Of each cell of the table.
    """

    loss: float
    difference: float
    cell: float


@dataclass(frozen=True, kw_only=True)
class ValidationMeans:
    """A response in its own units, with the noise that is in it.

    Args:
      loss: Mean bounded loss.
      difference: Mean bounded difference to the reference model; None where there is none.
      table: Share of the records in each cell, shape (bins, 2), the classes -1 and +1 in this
        order; None for numbers.
    """

    loss: float
    difference: float | None
    table: Matrix | None


def validation_study(study_id: str) -> str:
    """The name of the study in which owners say how good the model of a study is.

    >>> validation_study("spring-1")
    'spring-1:validation'
    """
    return study_id + SUFFIX


def other_part(study_id: str) -> str:
    """The name of what comes out of the same epsilon: of a training its validation, or back.

    >>> other_part("spring-1"), other_part("spring-1:validation")
    ('spring-1:validation', 'spring-1')
    """
    trained = study_id.removesuffix(SUFFIX)
    return trained if trained != study_id else validation_study(study_id)


def factors_of(terms: StudyTerms) -> Factors:
    r"""The factors by which a response holds its parts.

    With the shares :math:`q_v + q_d + q_t = 1` of what a response holds,

    .. math:: w_v = q_v / L, \qquad w_d = q_d / 2D, \qquad w_t = q_t / 2

    so that one replaced record moves n_i times the response by at most
    :math:`w_v L + 2 w_d D + 2 w_t = 1`.

    >>> from fractions import Fraction
    >>> terms = StudyTerms(study_id="s", loss="squared", theta_max=1.0, feature_map="", horizon=1,
    ...     responses=1, epsilon=Fraction(1), release="validation", loss_bound=4.0,
    ...     difference_bound=0.5, reference=(0.0,))
    >>> factors_of(terms)
    Factors(loss=0.16666666666666666, difference=0.3333333333333333, cell=0.0)
    """
    assert terms.loss_bound is not None  # noqa: S101 (the release has looked)
    compares, counts = terms.difference_bound is not None, bool(terms.edges)
    parts = LOSS_PART + DIFFERENCE_PART * compares + TABLE_PART * counts
    return Factors(
        loss=LOSS_PART / parts / terms.loss_bound,
        difference=DIFFERENCE_PART / parts / (2.0 * (terms.difference_bound or 1.0)) * compares,
        cell=TABLE_PART / parts / 2.0 * counts,
    )


def num_coordinates(terms: StudyTerms) -> int:
    """The number of coordinates of a response: loss, difference, two for each bin.

    >>> from fractions import Fraction
    >>> terms = StudyTerms(study_id="s", loss="hinge", theta_max=1.0, feature_map="", horizon=1,
    ...     responses=1, epsilon=Fraction(1), release="validation", loss_bound=4.0,
    ...     edges=(-1.0, 0.0, 1.0))
    >>> num_coordinates(terms)
    9
    """
    cells = 2 * (len(terms.edges) + 1) if terms.edges else 0
    return 1 + (terms.difference_bound is not None) + cells


def tally(
    margins: Vector, targets: Vector, reference: Vector | None, *, loss: Loss, terms: StudyTerms
) -> Vector:
    """The exact response for records of these margins, shape (:func:`num_coordinates`,).

    Whatever a record is, it counts for no more than the bounds: a loss that overflows, or is no
    number, counts as L, one that rounding took below 0 as 0, and a difference of two that overflow
    as 0. No step branches on a record, so
    the time that it takes reveals nothing of them.

    Args:
      margins: Of each record at the model, shape (n,).
      targets: Shape (n,).
      reference: The margins at the reference model, shape (n,); None where there is none.
      loss: The loss.
      terms: The study's terms.

    >>> from fractions import Fraction
    >>> from common.losses import Squared
    >>> terms = StudyTerms(study_id="s", loss="squared", theta_max=1.0, feature_map="", horizon=1,
    ...     responses=1, epsilon=Fraction(1), release="validation", loss_bound=4.0)
    >>> tally(np.array([1.0, 9.0]), np.zeros(2), None, loss=Squared(), terms=terms)
    array([0.625])
    """
    assert terms.loss_bound is not None  # noqa: S101 (the release has looked)
    factors, L = factors_of(terms), terms.loss_bound
    with np.errstate(over="ignore", invalid="ignore"):
        values = _finite(loss.values(margins, targets))
        # Both ends: beside a bound of 1e-100 the rounding of a library's logarithm is not small.
        parts = [np.array([factors.loss * np.minimum(np.maximum(values, 0.0), L).mean()])]
        if reference is not None and terms.difference_bound is not None:
            # Not of the bounded losses: what L cuts off is more of one model than of the other.
            differences = values - _finite(loss.values(reference, targets))
            D = terms.difference_bound
            bounded = np.minimum(np.maximum(differences, -D), D)
            parts.append(np.array([factors.difference * bounded.mean()]))
    if terms.edges:
        parts.append(factors.cell * (_cells(margins, targets, terms.edges) / len(targets)))
    return np.concatenate(parts)


def unpack_validation(response: Vector, terms: StudyTerms) -> ValidationMeans:
    """A response in its own units.

    >>> from fractions import Fraction
    >>> terms = StudyTerms(study_id="s", loss="squared", theta_max=1.0, feature_map="", horizon=1,
    ...     responses=1, epsilon=Fraction(1), release="validation", loss_bound=4.0)
    >>> unpack_validation(np.array([0.625]), terms)
    ValidationMeans(loss=2.5, difference=None, table=None)
    """
    factors, compares = factors_of(terms), terms.difference_bound is not None
    cells = response[1 + compares :]
    return ValidationMeans(
        loss=float(response[0]) / factors.loss,
        difference=float(response[1]) / factors.difference if compares else None,
        table=cells.reshape(-1, 2) / factors.cell if terms.edges else None,
    )


def _finite(values: Vector) -> Vector:
    """Losses, and the largest number in place of one that overflows or is no number."""
    finite: Vector = np.fmin(values, np.finfo(np.float64).max)
    return finite


def _cells(margins: Vector, targets: Vector, edges: Sequence[float]) -> Vector:
    """How many records are in each bin and of each class, -1 first, shape (2 (edges + 1),).

    >>> _cells(np.array([-1.0, 0.0, 2.0, np.nan]), np.array([1.0, -1.0, 1.0, 1.0]), (0.0, 1.0))
    array([1, 1, 0, 0, 0, 2])
    """
    is_positive = targets > 0
    # Of each class those beyond each edge. A margin that is no number lies beyond all of them.
    beyond = [np.zeros(len(margins), dtype=np.bool_), *(margins <= edge for edge in edges)]
    counts = [
        (np.count_nonzero(~below & ~is_positive), np.count_nonzero(~below & is_positive))
        for below in beyond
    ]
    return -np.diff(np.array([*counts, (0, 0)]), axis=0).reshape(-1)
