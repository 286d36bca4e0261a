r"""How good a model is on the owners' own records, from their noisy answers.

Owner i's answer about a mean carries Laplace noise of a known scale b_i. All owners' records
together have the mean weighted by n_i/n, which carries :math:`\sum_i (n_i/n) w_i`. Two things make
it differ from what the model will do on more such records:

* *noise*, whose distribution is known exactly (:mod:`learner.planning.noise_width`);
* *sampling*: the records are a sample. Its deviation is :math:`s/\sqrt n`, with the deviation s
  from record to record taken from the public records, and never more than the bound and the mean
  allow, :math:`\sqrt{m(L-m)}`.

The interval is of both; the noise's own half-width stands beside it. An answer beyond what its
number can be, such as a share above 1, is moved to the nearest that can: no farther from the truth,
so the interval around that holds it as often. That of the difference to the public model is longer
by what the bound cuts off, to either side, as the public records have it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from pydantic import BaseModel, ConfigDict

from common.arrays import Matrix, Vector
from common.names import Name
from common.quality import COVERAGE
from common.validation import Factors, ValidationMeans, factors_of, unpack_validation
from learner.planning.noise_width import half_width
from learner.planning.validation import ValidationBounds
from learner.training.validation import Validated

# Where any share lies.
SHARE = (0.0, 1.0)
ALONE = "it answered, and lets reports show that only together with other owners' answers"


class Part(BaseModel):
    """A part of ``summary.json``: of finite numbers; keys that a later version adds are ignored."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class Measured(Part):
    """A number that was released with noise.

    ``noise`` is the half-width of the noise alone, ``low`` to ``high`` the interval of noise and
    sampling, ``exact`` the number without noise, which only a simulation knows; of a difference
    also without the bound on each record's.
    """

    value: float
    noise: float
    low: float
    high: float
    exact: float | None = None


class BinSummary(Part):
    """Records whose margins lie between two edges: their share, and how many are positive."""

    above: float | None = None
    up_to: float | None = None
    share: float
    positive: Measured | None = None


class OwnerMeasured(Part):
    """One owner that agrees to be shown."""

    name: Name
    loss: Measured
    difference: Measured | None = None
    accuracy: Measured | None = None


class ValidationSummary(Part):
    """How good the model is, by the owners who answered.

    ``loss`` is the mean loss, of which a record counts for ``loss_bound`` at most; ``difference``
    is what it has more than that of the public model, each record within ``difference_bound``.
    ``accuracy_of_guess`` is what always predicting the larger class would have.
    """

    owners: int
    records: int
    coverage: float
    loss: Measured
    loss_bound: float
    cut_off_in_public: float | None = None
    difference: Measured | None = None
    difference_bound: float | None = None
    rmse: Measured | None = None
    largest_error: float | None = None
    accuracy: Measured | None = None
    accuracy_of_guess: Measured | None = None
    table: tuple[BinSummary, ...] = ()
    by_owner: tuple[OwnerMeasured, ...] = ()


@dataclass(frozen=True, eq=False)
class _Part:
    """Owners whose answers are put together: all of them, or one.

    Args:
      means: What each answered, in its own units.
      noise: Scale of the noise in each response.
      weights: Their records' share, adding up to 1.
      records: All their records.
      exact: What each would have answered without noise; None where that is not known.
    """

    means: Sequence[ValidationMeans]
    noise: Vector
    weights: Vector
    records: int
    exact: Sequence[ValidationMeans] | None

    def measured(
        self,
        value: Callable[[ValidationMeans], float],
        *,
        factor: float,
        cells: int = 1,
        within: tuple[float, float],
        spread: Callable[[float], float],
    ) -> Measured:
        """A number that is linear in the answers: this many coordinates added, each with noise.

        Args:
          value: Reads it.
          factor: What a response has it multiplied by.
          cells: How many coordinates it adds up.
          within: The least and the most that it can be.
          spread: Its value to its deviation from record to record.
        """
        found = _nearest(self._mean(self.means, value), within)
        scales = np.tile(self.weights * self.noise / factor, cells)
        deviation = spread(found) / math.sqrt(self.records)
        whole = half_width(scales, deviation)
        return Measured(
            value=found,
            noise=half_width(scales, 0.0),
            low=_nearest(found - whole, within),
            high=_nearest(found + whole, within),
            exact=None if self.exact is None else self._mean(self.exact, value),
        )

    def table(self, every: Sequence[ValidationMeans]) -> Matrix:
        """The share of all records in each cell, by answers of all of these owners."""
        parts = [w * its.table for w, its in zip(self.weights, every, strict=True)]
        whole: Matrix = np.sum(parts, axis=0)
        return whole

    def _mean(
        self, every: Sequence[ValidationMeans], value: Callable[[ValidationMeans], float]
    ) -> float:
        return float(sum(w * value(its) for w, its in zip(self.weights, every, strict=True)))


def summarise_validation(
    validated: Validated,
    *,
    names: Sequence[str],
    num_records: Sequence[int],
    exact: Sequence[ValidationMeans] | None = None,
    raw_scale: float | None = None,
) -> ValidationSummary | None:
    """What the owners' answers come to.

    Args:
      validated: The bounds and the answers.
      names: The owners' names.
      num_records: Their n_i.
      exact: What each owner would have answered without noise, and without the bound on
        differences; only a simulation knows.
      raw_scale: Raw units of the target for one unit of the model's, for squared loss.

    Returns:
      None where nobody answered.
    """
    answering = [i for i, answer in enumerate(validated.answers) if answer.response is not None]
    bounds = validated.bounds
    if bounds is None or not answering:
        return None

    def part(which: Sequence[int]) -> _Part:
        sizes = np.array([num_records[i] for i in which], dtype=np.float64)
        return _Part(
            means=[_means_of(validated, i) for i in which],
            noise=np.array([validated.answers[i].noise_scale for i in which]),
            weights=sizes / sizes.sum(),
            records=int(sizes.sum()),
            exact=None if exact is None else [exact[i] for i in which],
        )

    everybody = part(answering)
    factors = factors_of(validated.terms[0])
    whole = _of(everybody, bounds, factors)
    shown = [i for i in answering if validated.answers[i].shown]
    loss = whole["loss"]
    return ValidationSummary(
        owners=len(answering),
        records=everybody.records,
        coverage=COVERAGE,
        loss_bound=bounds.loss_bound,
        cut_off_in_public=bounds.cut_off,
        difference_bound=bounds.difference_bound,
        rmse=None if raw_scale is None else _rooted(loss, raw_scale),
        largest_error=None if raw_scale is None else math.sqrt(bounds.loss_bound) * raw_scale,
        accuracy_of_guess=_guess(everybody, bounds, factors) if bounds.edges else None,
        table=_table(everybody, bounds, factors) if bounds.edges else (),
        by_owner=tuple(
            OwnerMeasured(name=names[i], **_of(part([i]), bounds, factors)) for i in shown
        ),
        **whole,
    )


def as_agreed(validated: Validated, *, own: int | None) -> Validated:
    """The answers, as far as numbers that are made of them keep what each owner agreed to.

    If all answers but one may be shown by name, what all say together tells that one, too. So
    nobody is shown then; and where it is the only answer, it counts as none.

    Args:
      validated: The bounds and the answers.
      own: The owner that is the learner, who says of its own records what it wants.
    """
    answers = validated.answers
    pooled = [i for i, one in enumerate(answers) if one.response is not None and not one.shown]
    if len(pooled) != 1 or pooled == [own]:
        return validated
    kept = [replace(one, shown=False) for one in answers]
    if sum(one.response is not None for one in answers) == 1:
        kept[pooled[0]] = replace(answers[pooled[0]], response=None, missing=ALONE)
    return replace(validated, answers=tuple(kept))


def missing_from(validated: Validated, names: Sequence[str]) -> dict[str, str]:
    """The owners that did not answer, or whose answer is not told, and why."""
    return {
        name: answer.missing
        for name, answer in zip(names, validated.answers, strict=True)
        if answer.response is None
    }


def _means_of(validated: Validated, index: int) -> ValidationMeans:
    """What one owner answered, in its own units."""
    response = validated.answers[index].response
    assert response is not None  # noqa: S101 (only those who answered are asked for)
    return unpack_validation(response, validated.terms[index])


def _of(part: _Part, bounds: ValidationBounds, factors: Factors) -> dict[str, Measured]:
    """Loss, difference and accuracy, as far as they were asked for."""
    found = {
        "loss": part.measured(
            lambda its: its.loss,
            factor=factors.loss,
            within=(0.0, bounds.loss_bound),
            spread=lambda m: _loss_spread(m, bounds),
        )
    }
    if bounds.difference_bound is not None:
        most = bounds.difference_bound
        spread = bounds.difference_spread or most
        cut = part.measured(
            lambda its: its.difference or 0.0,
            factor=factors.difference,
            within=(-most, most),
            spread=lambda _: spread,
        )
        ends = {"low": cut.low - bounds.cut_below, "high": cut.high + bounds.cut_above}
        found["difference"] = cut.model_copy(update=ends)
    if bounds.edges:
        below = bounds.edges.index(0.0) + 1

        def right(its: ValidationMeans) -> float:
            assert its.table is not None  # noqa: S101 (there are edges)
            return float(its.table[:below, 0].sum() + its.table[below:, 1].sum())

        cells = len(bounds.edges) + 1
        found["accuracy"] = part.measured(
            right, factor=factors.cell, cells=cells, within=SHARE, spread=_binary_spread
        )
    return found


def _guess(part: _Part, bounds: ValidationBounds, factors: Factors) -> Measured:
    """The share of the larger class, by the table: what always predicting it would get right."""
    larger = int(np.argmax(part.table(part.means).sum(axis=0)))

    def share(its: ValidationMeans) -> float:
        assert its.table is not None  # noqa: S101 (there are edges)
        return float(its.table[:, larger].sum())

    cells = len(bounds.edges) + 1
    guess = part.measured(
        share, factor=factors.cell, cells=cells, within=SHARE, spread=_binary_spread
    )
    if guess.exact is None:
        return guess
    # The noise may have made the other class the larger one.
    return guess.model_copy(update={"exact": max(guess.exact, 1.0 - guess.exact)})


def _nearest(value: float, within: tuple[float, float]) -> float:
    """The nearest value between two ends."""
    return min(max(value, within[0]), within[1])


def _loss_spread(mean: float, bounds: ValidationBounds) -> float:
    """Deviation of the bounded loss from record to record, for this mean."""
    most = math.sqrt(mean * (bounds.loss_bound - mean))
    if bounds.loss_spread is None or bounds.loss_mean is None or not bounds.loss_mean > 0:
        return most
    return min(most, bounds.loss_spread * max(1.0, mean / bounds.loss_mean))


def _binary_spread(share: float) -> float:
    return math.sqrt(share * (1.0 - share))


def _rooted(loss: Measured, scale: float) -> Measured:
    """The root of a mean squared loss, in raw units."""

    def root(value: float) -> float:
        return math.sqrt(max(value, 0.0)) * scale

    ends = root(loss.value - loss.noise), root(loss.value + loss.noise)
    return Measured(
        value=root(loss.value),
        noise=(ends[1] - ends[0]) / 2.0,
        low=root(loss.low),
        high=root(loss.high),
        exact=None if loss.exact is None else root(loss.exact),
    )


def _table(part: _Part, bounds: ValidationBounds, factors: Factors) -> tuple[BinSummary, ...]:
    """Each bin: which share of the records, and which share of these is positive."""
    scales = part.weights * part.noise / factors.cell
    rows = []
    for k, (negative, positive) in enumerate(part.table(part.means)):
        share = float(negative + positive)
        found = None
        # Where noise is as large as the bin, a share of it says nothing.
        if share > half_width(np.tile(scales, 2), 0.0):
            found = _ratio(part, k, float(positive) / share, share=share, scales=scales)
        rows.append(
            BinSummary(
                above=bounds.edges[k - 1] if k else None,
                up_to=bounds.edges[k] if k < len(bounds.edges) else None,
                share=_nearest(share, SHARE),
                positive=found,
            )
        )
    return tuple(rows)


def _ratio(part: _Part, k: int, ratio: float, *, share: float, scales: Vector) -> Measured:
    """The share of positives in a bin, with the noise that is in it to first order."""
    ratio = _nearest(ratio, SHARE)
    both = np.concatenate([scales * abs(1.0 - ratio), scales * abs(ratio)]) / share
    deviation = _binary_spread(ratio) / math.sqrt(max(share * part.records, 1.0))
    whole = half_width(both, deviation)
    known = None
    if part.exact is not None:
        cells = part.table(part.exact)[k]
        known = float(cells[1] / cells.sum()) if cells.sum() > 0 else None
    return Measured(
        value=ratio,
        noise=half_width(both, 0.0),
        low=_nearest(ratio - whole, SHARE),
        high=_nearest(ratio + whole, SHARE),
        exact=known,
    )
