r"""With what bounds owners are asked how good a finished model is.

All of it comes from the public records under the finished model, from n_i and from epsilon. A bound
cuts off what lies beyond it, and the noise grows with it. With losses v_j of public records, the
bound L of the loss is the largest of them with which the noise of all owners together stays small
beside the mean,

.. math:: L = \max\Big\{v_j : L h \le \tfrac{1}{25}\, \frac1m\sum_j\min(v_j, L)\Big\}

with the half-width h of the noise for each unit of the bound, but not below their 90 % quantile.
The bound D of a difference is where what is cut off and the noise's deviation u are smallest
together,

.. math:: D = \arg\min_{D} \Big(\frac1m \sum_j (|d_j| - D)_+\Big)^2 + (D u)^2.

What is cut off above D and below -D need not be the same: few records that one model gets very
wrong stand against many that the other gets a little wrong. Both are reported, since the mean of
all differences may lie beyond that of the cut ones by as much. The public model knows the public
records too well for either, so a fifth of them is compared by a public model of the others.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace

import numpy as np
from pydantic import TypeAdapter

from common.arrays import Vector
from common.features import FeatureMap
from common.releases import LEAST, MOST
from common.terms import Records, StudyTerms
from common.validation import Factors, factors_of, validation_study
from learner.planning.noise_width import half_width
from learner.planning.plan import Plan
from learner.planning.public_side import PublicSide
from learner.simulated.groups import consecutive_parts
from learner.simulated.problem import Problem

# Below this quantile of the public losses no bound is looked for: it would cut most of them.
LOWEST_QUANTILE = 0.9
CANDIDATES = 60
# The public records are compared in this many parts.
PARTS = 5
# Bins of the calibration table; the margin 0 is always between two of them.
BINS = 8
# The noise's half-width beside the mean loss: a twentieth, with room for owners whose records are
# told better than the public ones.
PRECISION = 0.04
# Without public records a loss counts as at most this many times that of predicting 0, which is the
# squared distance of two opposite targets.
WORST = 4.0
# Smaller bounds than this part of the worst loss would bound rounding. And a model that is sure of
# all public records' classes has next to no loss there, whatever it has elsewhere.
SMALLEST_PART, SMALLEST_OF_CLASSES = 1e-9, 1e-2


@dataclass(frozen=True, kw_only=True)
class ValidationBounds:
    """The bounds of what each owner says of a finished model; the journal keeps them.

    Args:
      loss_bound: The bound L.
      difference_bound: The bound D; None without public records.
      reference: The model of the public records; empty without them.
      edges: Margins between the bins of the calibration table; empty for numbers.
      loss_mean: Mean of the public records' bounded loss; None without them.
      loss_spread: Its deviation from record to record.
      difference_spread: That of the bounded difference.
      cut_off: Share of the public records' mean loss that lies beyond the bound.
      cut_below: How much of their mean difference lies below -D.
      cut_above: How much of it lies above D.
    """

    loss_bound: float
    difference_bound: float | None = None
    reference: tuple[float, ...] = ()
    edges: tuple[float, ...] = ()
    loss_mean: float | None = None
    loss_spread: float | None = None
    difference_spread: float | None = None
    cut_off: float | None = None
    cut_below: float = 0.0
    cut_above: float = 0.0

    def to_json(self) -> str:
        """The text for the journal.

        >>> bounds = ValidationBounds(loss_bound=4.0, edges=(0.0,))
        >>> ValidationBounds.from_json(bounds.to_json()) == bounds
        True
        """
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ValidationBounds:
        """The bounds of :meth:`to_json`.

        Raises:
          ValueError: They are not such a text.
        """
        noted = TypeAdapter(cls).validate_json(text, strict=True)
        bounds = (noted.loss_bound, noted.difference_bound)
        spreads = (noted.loss_mean, noted.loss_spread, noted.difference_spread, noted.cut_off)
        others = (*noted.reference, *noted.edges, *spreads, noted.cut_below, noted.cut_above)
        if not all(each is None or LEAST <= each <= MOST for each in bounds):
            raise ValueError("no bounds")
        if not all(abs(each or 0.0) <= MOST for each in others):
            raise ValueError("no spreads")
        return noted


def public_theta(plan: Plan, public: PublicSide) -> Vector | None:
    """The best model of the public records, shape (p,), which anybody has without a study.

    None where there are none, or fewer than features.
    """
    if public.records is None or len(public.records) < plan.num_features:
        return None
    return plan.problem.optimum(public.records)


def validation_bounds(plan: Plan, public: PublicSide, theta: Vector) -> ValidationBounds:
    """The bounds with which owners are asked of a finished model.

    Args:
      plan: What ran.
      public: The feature map and the public records.
      theta: The model, shape (p,).
    """
    loss, box = plan.loss, plan.settings.model.theta_max
    edges = _edges(None)
    records, other = public.records, public_theta(plan, public)
    worst = WORST * float(
        loss.values(np.zeros(1), np.array([public.feature_map.domain.target_bound]))[0]
    )
    classes = plan.settings.loss_has_classes
    if records is None or other is None:
        return ValidationBounds(loss_bound=worst, edges=edges if classes else ())
    other = np.clip(other, -box, box)
    margins = records.features @ theta
    values = loss.values(margins, records.targets)
    others = loss.values(_unseen(plan.problem, records), records.targets)
    bounds = ValidationBounds(
        loss_bound=worst,
        difference_bound=worst,
        reference=tuple(other.tolist()),
        edges=_edges(margins) if classes else (),
    )
    scales, factors = _noise(plan, bounds)
    least = (SMALLEST_OF_CLASSES if classes else SMALLEST_PART) * worst
    tried = _candidates(values, least, worst)
    bound = _precise(tried, values, half_width(scales / factors.loss, 0.0))
    differences = values - others
    values, whole = np.minimum(values, bound), values.mean()
    deviation = math.sqrt(2.0 * float(np.sum(scales**2))) / factors.difference
    sizes = np.abs(differences)
    within = _balanced(_candidates(sizes, least, bound), sizes, deviation)
    beyond = differences - np.clip(differences, -within, within)
    return replace(
        bounds,
        loss_bound=bound,
        difference_bound=within,
        loss_mean=float(values.mean()),
        loss_spread=float(values.std()),
        difference_spread=float(np.clip(differences, -within, within).std()),
        cut_off=float(1.0 - values.mean() / whole) if whole > 0 else 0.0,
        cut_below=float(np.maximum(-beyond, 0.0).mean()),
        cut_above=float(np.maximum(beyond, 0.0).mean()),
    )


def _unseen(problem: Problem, records: Records) -> Vector:
    """Margins of public records at the public model of those in other parts, shape (m,)."""
    parts = consecutive_parts(len(records), PARTS)
    margins = np.empty(len(records))
    for part in range(PARTS):
        inside = parts == part
        theta = np.clip(
            problem.optimum(records.at(np.nonzero(~inside)[0])),
            -problem.theta_max,
            problem.theta_max,
        )
        margins[inside] = records.features[inside] @ theta
    return margins


def validation_terms(
    plan: Plan, feature_map: FeatureMap, bounds: ValidationBounds, *, study_id: str
) -> list[StudyTerms]:
    """What each owner is asked to agree to, in the order of the settings."""
    settings, text = plan.settings, feature_map.to_json()
    return [
        StudyTerms(
            study_id=validation_study(study_id),
            **plan.loss.as_terms(),
            theta_max=settings.model.theta_max,
            feature_map=text,
            horizon=1,
            responses=1,
            epsilon=settings.for_validation(entry),
            kappa=settings.privacy.kappa,
            release="validation",
            loss_bound=bounds.loss_bound,
            difference_bound=bounds.difference_bound,
            reference=bounds.reference,
            edges=bounds.edges,
        )
        for entry in settings.owners
    ]


def _noise(plan: Plan, bounds: ValidationBounds) -> tuple[Vector, Factors]:
    """Scales of the owners' noise in the mean of all responses, and its factors for bounds of 1."""
    settings = plan.settings
    epsilons = np.array([float(settings.for_validation(entry)) for entry in settings.owners])
    unit = StudyTerms(
        study_id="unit",
        loss=plan.loss.name,
        theta_max=1.0,
        feature_map="",
        horizon=1,
        responses=1,
        epsilon=settings.for_validation(settings.owners[0]),
        loss_bound=1.0,
        difference_bound=1.0,
        reference=bounds.reference,
        edges=bounds.edges,
    )
    scales = settings.privacy.kappa / epsilons / sum(plan.decision.num_records)
    return scales, factors_of(unit)


def _candidates(values: Vector, least: float, otherwise: float) -> Vector:
    """Quantiles of public values that can be bounds, ascending; one bound where none can."""
    tried = np.unique(np.quantile(values, np.linspace(LOWEST_QUANTILE, 1.0, CANDIDATES)))
    kept: Vector = tried[tried > least]
    return kept if kept.size else np.array([otherwise])


def _precise(tried: Vector, values: Vector, half: float) -> float:
    """The largest bound with a small noise beside the mean, else the smallest that is tried."""
    means = np.array([np.minimum(values, bound).mean() for bound in tried])
    precise = tried[tried * half <= PRECISION * means]
    return float(precise[-1] if precise.size else tried[0])


def _balanced(tried: Vector, values: Vector, deviation: float) -> float:
    """The bound that loses least to what it cuts off and to noise."""
    cut = np.array([np.maximum(values - bound, 0.0).mean() for bound in tried])
    return float(tried[np.argmin(cut**2 + (tried * deviation) ** 2)])


def _edges(margins: Vector | None) -> tuple[float, ...]:
    """Edges between which about as many public records lie; even odds without them."""
    if margins is None:
        shares = np.arange(1, BINS) / BINS
        return tuple(np.log(shares / (1.0 - shares)).tolist())
    inner = np.quantile(margins, np.arange(1, BINS) / BINS)
    return tuple(np.unique(np.append(inner, 0.0)).tolist())
