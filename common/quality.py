r"""How good predictions are, in the target's raw units, with intervals.

Every measure is a function of the records' weights, so that a bootstrap of the records is a draw of
weights: multinomial counts, n records drawn from n with replacement. Intervals are the central 95 %
of the measure over these draws (percentile bootstrap); records count as independent.

Of records that are all right every draw is alike, so the interval of a share that is right is the
exact one of Clopper and Pearson (1934), and that of two models' difference is by Agresti and Min
(2005), who add half a record to each cell of which model is right.

Draws of an AUC are too much alike, too, where a class has few records or is told apart nearly
without a mistake: of one positive record every draw has the same. Its interval is of the variance
of DeLong, DeLong and Clarke-Pearson (1988), with two records that are ranked above all others and
two below added to each class, as Agresti and Coull (1998) do for a share. The middle is the rarer
class's.

The calibration error is a sum of absolute values, which any draw makes larger: its draws lie above
it. Its interval is as far to either side, 0 at least, as the draws' bins move altogether.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from common.arrays import Flags, Indices, Vector

RESAMPLES = 200
COVERAGE = 0.95
BINS = 10
# How many deviations of a normal number hold that much.
DEVIATIONS = 1.959964
METHOD = f"percentile bootstrap over records, {RESAMPLES} draws, {COVERAGE:.0%}"
# Below this two predictions are the same to a table.
SMALLEST_SPREAD = 1e-300

Measure = Callable[[Vector], float]
"""The records' weights, shape (n,), to a number; not a number where it is not defined."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A measure with its interval; None where the records do not define it."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Bin:
    """Records whose predictions are next to each other: what was predicted, what was so.

    Args:
      count: How many.
      predicted: Their mean prediction.
      observed: Their mean target, or the share of the positive class.
    """

    count: int
    predicted: float
    observed: float


def measures(outputs: Vector, targets: Vector, *, kind: str) -> dict[str, Measure]:
    """The measures of predictions.

    Args:
      outputs: Numbers in raw units, probabilities, or margins, shape (n,).
      targets: Numbers in raw units, or the classes -1 and +1, shape (n,).
      kind: "number", "probability" or "score".

    >>> of = measures(np.array([1.0, 3.0]), np.array([1.0, 2.0]), kind="number")
    >>> round(of["rmse"](np.ones(2)), 6), of["mae"](np.ones(2))
    (0.707107, 0.5)
    """
    if kind == "number":
        return _of_numbers(outputs, targets)
    threshold = 0.5 if kind == "probability" else 0.0
    positive = targets > 0
    right = ((outputs > threshold) == positive).astype(np.float64)
    found: dict[str, Measure] = {"auc": _Auc(outputs, positive), "accuracy": _Share(right)}
    if kind == "probability":
        likelihood = np.where(positive, outputs, 1.0 - outputs)
        found["log_loss"] = _mean(-np.log(np.maximum(likelihood, 1e-15)))
        found["calibration_bias"] = _mean(outputs - positive)
        found["calibration_error"] = _CalibrationError(outputs, positive.astype(np.float64))
    return found


def how_made(named: Collection[str]) -> str:
    """How the intervals of some measures are made, in words.

    >>> how_made(["auc", "accuracy"])
    'percentile bootstrap over records, 200 draws, 95%; of accuracy exact; of AUC by its variance'
    """
    others = {"accuracy": "of accuracy exact", "auc": "of AUC by its variance"}
    return "; ".join([METHOD, *(words for name, words in others.items() if name in named)])


def of_guessing(targets: Vector, kind: str) -> dict[str, float]:
    """The measures of always predicting the same: the mean, the share, or the larger class.

    Args:
      targets: As of :func:`measures`.
      kind: As of :func:`measures`.

    >>> of_guessing(np.array([1.0, 3.0]), "number")
    {'rmse': 1.0, 'r2': 0.0}
    >>> of_guessing(np.array([-1.0, -1.0, -1.0, 1.0]), "score")
    {'auc': 0.5, 'accuracy': 0.75}
    """
    if kind == "number":
        with np.errstate(over="ignore"):
            return {"rmse": float(np.std(targets)), "r2": 0.0}
    share = float(np.mean(targets > 0))
    found = {"auc": 0.5, "accuracy": max(share, 1.0 - share)}
    if kind == "probability":
        found["log_loss"] = float(-sum(q * np.log(q) for q in (share, 1.0 - share) if q > 0))
    return found


def _of_numbers(outputs: Vector, targets: Vector) -> dict[str, Measure]:
    with np.errstate(over="ignore"):
        errors = outputs - targets
        squared = errors**2

    def r2(weights: Vector) -> float:
        mean = np.average(targets, weights=weights)
        spread = np.average((targets - mean) ** 2, weights=weights)
        if not SMALLEST_SPREAD < spread < math.inf:
            return math.nan
        return float(1.0 - np.average(squared, weights=weights) / spread)

    def slope(weights: Vector) -> float:
        at, mean = np.average(outputs, weights=weights), np.average(targets, weights=weights)
        spread = np.average((outputs - at) ** 2, weights=weights)
        if not SMALLEST_SPREAD < spread < math.inf:
            return math.nan
        return float(np.average((outputs - at) * (targets - mean), weights=weights) / spread)

    return {
        "rmse": lambda weights: float(np.sqrt(np.average(squared, weights=weights))),
        "mae": _mean(np.abs(errors)),
        "r2": r2,
        "calibration_bias": _mean(errors),
        "calibration_slope": slope,
    }


def _mean(values: Vector) -> Measure:
    """The weighted mean of a value of each record."""
    return lambda weights: float(np.average(values, weights=weights))


class _Auc:
    """Chance that a positive record is ranked above a negative one; equal ones count half.

    Args:
      outputs: What records are ranked by, shape (n,).
      positive: Which are of the positive class, shape (n,).
    """

    def __init__(self, outputs: Vector, positive: Flags) -> None:
        self._order = np.argsort(outputs, kind="stable")
        ranked = outputs[self._order]
        self._starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]])
        self._positive = positive[self._order]

    def __call__(self, weights: Vector) -> float:
        """The AUC of weighted records."""
        ones, zeros = self._by_rank(weights)
        pairs = ones.sum() * zeros.sum()
        if not pairs > 0:
            return math.nan
        return float(np.sum(ones * _before(zeros)) / pairs)

    def estimate(self) -> Estimate:
        """The AUC with its interval; None of one class alone."""
        whole = np.ones(len(self._order))
        value = self(whole)
        if not math.isfinite(value):
            return Estimate(value=None)
        ones, zeros = self._by_rank(whole)
        of_ones = _with_four(_before(zeros) / zeros.sum(), ones)
        of_zeros = _with_four(1.0 - _before(ones) / ones.sum(), zeros)
        middle = (of_ones if ones.sum() <= zeros.sum() else of_zeros)[0]
        reach = DEVIATIONS * math.sqrt(of_ones[1] + of_zeros[1])
        return Estimate(
            value=value,
            low=max(0.0, min(middle - reach, value)),
            high=min(1.0, max(middle + reach, value)),
        )

    def _by_rank(self, weights: Vector) -> tuple[Vector, Vector]:
        """The weight of the positive and of the negative records at each rank."""
        its = weights[self._order]
        ones = np.add.reduceat(np.where(self._positive, its, 0.0), self._starts)
        zeros = np.add.reduceat(np.where(self._positive, 0.0, its), self._starts)
        return ones, zeros


def _before(weights: Vector) -> Vector:
    """The weight of what is ranked below each rank, and half of what is at it."""
    return np.cumsum(weights) - 0.5 * weights


def _with_four(shares: Vector, counts: Vector) -> tuple[float, float]:
    """Mean of a class's shares, each between 0 and 1, and its variance, with two 0 and two 1 more.

    Args:
      shares: Of the other class, how much each of its records is ranked rightly against.
      counts: How many records have that share.
    """
    shares, counts = np.r_[shares, 0.0, 1.0], np.r_[counts, 2.0, 2.0]
    mean = float(np.average(shares, weights=counts))
    return mean, float(np.average((shares - mean) ** 2, weights=counts) / counts.sum())


def _places(outputs: Vector) -> Indices:
    """The bin of each record: as many records in each, equal predictions in one, shape (n,)."""
    edges = np.unique(np.quantile(outputs, np.linspace(0, 1, BINS + 1)[1:-1]))
    return np.searchsorted(edges, outputs, side="left").astype(np.intp)


class _CalibrationError:
    """Mean over the bins of what prediction and share differ by."""

    def __init__(self, outputs: Vector, observed: Vector) -> None:
        self._places, self._off = _places(outputs), outputs - observed
        self._whole = self._by_bin(np.ones(len(outputs)))

    def __call__(self, weights: Vector) -> float:
        """The error of weighted records."""
        return float(np.abs(self._by_bin(weights)).sum())

    def moved(self, weights: Vector) -> float:
        """How far the bins are from those of all records: the error moves by no more."""
        return float(np.abs(self._by_bin(weights) - self._whole).sum())

    def _by_bin(self, weights: Vector) -> Vector:
        """What prediction and share differ by in each bin, times its share of the records."""
        off = np.bincount(self._places, weights=weights * self._off)
        found: Vector = off / weights.sum()
        return found


def calibration(outputs: Vector, observed: Vector) -> tuple[Bin, ...]:
    """What was predicted beside what was so, in bins of about as many records.

    >>> calibration(np.array([1.0, 1.0]), np.array([0.0, 1.0]))
    (Bin(count=2, predicted=1.0, observed=0.5),)
    """
    places = _places(outputs)
    counts = np.bincount(places)
    sums = np.bincount(places, weights=outputs), np.bincount(places, weights=observed)
    return tuple(
        Bin(count=int(n), predicted=float(a / n), observed=float(b / n))
        for n, a, b in zip(counts, *sums, strict=True)
        if n
    )


class _Share:
    """The share of the records that are right.

    Args:
      right: 1 of each that is, else 0, shape (n,).
    """

    def __init__(self, right: Vector) -> None:
        self._right = right

    def __call__(self, weights: Vector) -> float:
        """The share of weighted records."""
        return float(np.average(self._right, weights=weights))

    def estimate(self) -> Estimate:
        """The share with its interval."""
        from scipy.special import betaincinv  # noqa: PLC0415 (nothing else here needs it)

        n, right, edge = len(self._right), float(self._right.sum()), (1.0 - COVERAGE) / 2.0
        return Estimate(
            value=right / n,
            low=float(betaincinv(right, n - right + 1.0, edge)) if right > 0 else 0.0,
            high=float(betaincinv(right + 1.0, n - right, 1.0 - edge)) if right < n else 1.0,
        )

    def less(self, other: _Share) -> Estimate:
        """By how much the other's share of the same records is smaller, with the interval."""
        apart = self._right - other._right
        total, differ, n = float(apart.sum()), float(np.abs(apart).sum()), len(apart) + 2.0
        half = DEVIATIONS * math.sqrt(differ + 1.0 - total**2 / n)
        value, middle, reach = total / len(apart), total / n, half / n
        return Estimate(
            value=value,
            low=max(-1.0, min(middle - reach, value)),
            high=min(1.0, max(middle + reach, value)),
        )


def estimates(
    named: Mapping[str, Measure], num_records: int, *, rng: np.random.Generator
) -> dict[str, Estimate]:
    """Each measure of all records, with its interval.

    Args:
      named: The measures.
      num_records: The number n of records.
      rng: Where the draws come from.
    """
    whole = np.ones(num_records)
    known = {name: own.estimate() for name, own in named.items() if isinstance(own, _Share | _Auc)}
    others = {name: own for name, own in named.items() if name not in known}
    folded = {n: own for n, own in others.items() if isinstance(own, _CalibrationError)}
    draws = {**others, **{name: own.moved for name, own in folded.items()}}
    drawn: dict[str, list[float]] = {name: [] for name in others}
    for _ in range(RESAMPLES if draws and num_records > 1 else 0):
        weights = _resampled(num_records, rng)
        for name, draw in draws.items():
            drawn[name].append(draw(weights))
    drawn_ends = {
        name: (_around if name in folded else _estimate)(measure(whole), np.array(drawn[name]))
        for name, measure in others.items()
    }
    found = known | drawn_ends
    return {name: found[name] for name in named}


def difference(
    one: Measure, other: Measure, num_records: int, *, rng: np.random.Generator
) -> Estimate:
    """What two models' measure differs by on the same records, with its interval.

    Args:
      one: What the first model's measure is made of, record by record.
      other: The same of the second model.
      num_records: How many records there are; each draw takes as many, with replacement.
      rng: Draws the records of the bootstrap, the same ones for both models.

    Returns:
      The first less the second, in the measure's unit, with the interval of :data:`COVERAGE`.
    """
    if isinstance(one, _Share) and isinstance(other, _Share):
        return one.less(other)
    both = {"difference": lambda weights: one(weights) - other(weights)}
    return estimates(both, num_records, rng=rng)["difference"]


def _resampled(num_records: int, rng: np.random.Generator) -> Vector:
    """How often each record is drawn, shape (n,)."""
    places = rng.integers(num_records, size=num_records)
    return np.bincount(places, minlength=num_records).astype(np.float64)


def _around(value: float, moved: Vector) -> Estimate:
    """A value that is no less than 0, and is off by no more than what moved."""
    if not moved.size:
        return Estimate(value=value)
    far = float(np.quantile(moved, COVERAGE))
    return Estimate(value=value, low=max(0.0, value - far), high=value + far)


def _estimate(value: float, drawn: Vector) -> Estimate:
    if not math.isfinite(value):
        return Estimate(value=None)
    known = drawn[np.isfinite(drawn)]
    if not known.size:
        return Estimate(value=value)
    edge = (1.0 - COVERAGE) / 2.0
    low, high = np.quantile(known, [edge, 1.0 - edge])
    return Estimate(value=value, low=float(low), high=float(high))
