"""The owners' answers about the model on their own records, in sentences and rows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from fractions import Fraction

from common.errors import DoubtWarning
from common.privacy import as_decimal
from common.texts import counted, named, number_words, printable, with_interval
from learner.results.quality_words import MEASURES
from learner.results.summary import Summary
from learner.results.validated import ALONE, BinSummary, Measured, ValidationSummary
from learner.results.verdict_words import NAMED, free_is_better


def validation_lines(summary: Summary) -> list[str]:
    """How good the model is by the owners' answers, whether it beats the free one, who is absent.

    Empty where no owner was to be asked.
    """
    found, missing = summary.validation, summary.validation_missing
    own = None if summary.own in missing else summary.own
    lines = [] if found is None else [_how_good(found, own), *_better(found)]
    if found is not None and found.by_owner:
        lines.append(_by_owner(found))
    if missing:
        reasons = _first_few([f"{name}: {printable(why)}" for name, why in missing.items()])
        lines.append(f"No answer on how good the model is from {reasons}. {_kept(summary)}")
    return lines


def warn_if_worse(summary: Summary, *, cure: str) -> None:
    """Warn of a model that is worse than the one that is free, as a simulation or its owners say.

    Warns:
      DoubtWarning: It is.
    """
    how = _worse(summary)
    if how:
        warnings.warn(
            f"this model is worse than the public records' own, which is free{how}; {cure}",
            DoubtWarning,
            stacklevel=2,
        )


def _worse(summary: Summary) -> str:
    """Who says by how much the model is worse than the free one; empty where nobody does."""
    common, free = summary.relative_fitness, summary.relative_fitness_public
    if common is not None and free is not None:
        words_of_both = number_words(common), number_words(free)
        if common > free and len({*words_of_both}) == 2:
            return f": relative fitness {' against '.join(words_of_both)}"
        return _raw(summary)
    found = summary.validation
    if found is None or found.difference is None:
        return ""
    low = found.difference.low
    return f", by the owners' answers{_loss_words(found, low)}" if low > 0 else ""


def _raw(summary: Summary) -> str:
    """By how much it is worse in raw units, though not by relative fitness.

    Of classes told right it may be either by chance: the loss decides.
    """
    quality = summary.quality
    if not free_is_better(summary) or quality is None or quality.measure == "accuracy":
        return ""
    assert quality.public is not None  # noqa: S101 (which was compared)
    both = number_words(quality.common.value), number_words(quality.public.value)
    return f": {MEASURES[quality.measure]} {' against '.join(both)}"


def _kept(summary: Summary) -> str:
    """What became of the epsilon of those that gave no answer."""
    missing = summary.validation_missing
    unsure = [
        owner.name
        for owner in summary.owners
        if owner.name in missing and owner.epsilon_for_validation != "0"
    ]
    if unsure and ALONE in missing.values():
        return f"What {named(unsure, NAMED)} agreed to spend on it is spent."
    if unsure:
        return (
            f"What {named(unsure, NAMED)} agreed to spend on it counts as spent: the answer may "
            "have been lost after it was charged."
        )
    if summary.validation is None:
        return "What was kept for it is not spent."
    who = "It" if len(summary.validation_missing) == 1 else "They"
    return f"{who} spent nothing on it."


def measure_rows(found: ValidationSummary) -> list[tuple[str, Measured, bool]]:
    """Each number in the answers, with its name, and whether the noise drowns it."""
    rows = []
    drowned = is_drowned(found.loss, found.loss_bound)
    if found.rmse is not None and found.largest_error is not None:
        most = number_words(found.largest_error)
        rows.append((f"typical error (RMSE), each at most {most}", found.rmse, drowned))
    if found.accuracy is not None:
        name = "share predicted right (accuracy)"
        rows.append((name, found.accuracy, is_drowned(found.accuracy, 1.0)))
    if found.accuracy_of_guess is not None:
        guess = found.accuracy_of_guess
        rows.append(("the same of always predicting the larger class", guess, is_drowned(guess, 1)))
    rows.append((loss_name(found), found.loss, drowned))
    if found.difference is not None:
        width = 2.0 * (found.difference_bound or 0.0)
        name = "mean loss less that of the public model"
        rows.append((name, found.difference, is_drowned(found.difference, width)))
    return rows


def loss_name(found: ValidationSummary) -> str:
    """What the mean loss is a mean of: without the bound it may be several times as much."""
    return f"mean loss, each at most {number_words(found.loss_bound)}"


def bin_rows(found: ValidationSummary, *, probabilities: bool) -> list[tuple[str, str, str]]:
    """The calibration table: what was predicted, the share of the records, the share of positives.

    Args:
      found: What the answers come to.
      probabilities: Whether margins mean probabilities.
    """
    rows = []
    for each in found.table:
        observed = "too few to say" if each.positive is None else words(each.positive, _percent)
        rows.append((_edges(each, probabilities), f"{each.share:.1%}", observed))
    return rows


def words(measured: Measured, text: Callable[[float], str] = number_words) -> str:
    """A number with its interval, the noise's part, and the exact one where it is known.

    >>> words(Measured(value=8.05, noise=0.1, low=7.9, high=8.2, exact=8.0))
    '8.05 (7.9 to 8.2; the noise alone makes +/- 0.1; exactly 8)'
    """
    return (
        f"{text(measured.value)} ({text(measured.low)} to {text(measured.high)}; the noise alone "
        f"makes +/- {text(measured.noise)}{_exactly(measured, text)})"
    )


def _exactly(measured: Measured, text: Callable[[float], str]) -> str:
    """The number without noise, where it is known."""
    return "" if measured.exact is None else f"; exactly {text(measured.exact)}"


def _unknown(measured: Measured, most: float, text: Callable[[float], str] = number_words) -> str:
    """A number that the noise drowns."""
    exact = "" if measured.exact is None else f" (exactly {text(measured.exact)})"
    return f"unknown, for the noise is larger than {text(most)}, the most that it can be{exact}"


def _percent(share: float) -> str:
    return f"{share:.1%}"


def is_drowned(measured: Measured, width: float) -> bool:
    """Whether the noise reaches over all that a number can be, so that the answer says nothing."""
    return measured.noise >= width


def _whose(found: ValidationSummary, own: str | None) -> str:
    """Who says it, of how many records; the learner knows what its own shard says exactly."""
    its, says = ("its", "says") if found.owners == 1 else ("their", "say")
    others = counted(found.owners - (own is not None), "owner")
    if own is None:
        who = f"{others} {says}, with noise,"
    elif found.owners == 1:
        who = f"{own}, the learner, {says} exactly"
    else:
        who = f"{others}, with noise, and {own}, the learner, exactly, {says}"
    return f"{who} of {its} {found.records:,} records: "


def _how_good(found: ValidationSummary, own: str | None) -> str:
    whose = _whose(found, own)
    drowned = is_drowned(found.loss, found.loss_bound)
    if found.rmse is not None and found.largest_error is not None:
        beyond = number_words(found.largest_error)
        rmse = _unknown(found.rmse, found.largest_error) if drowned else words(found.rmse)
        return (
            f"{whose}typical error (RMSE), where errors beyond {beyond} count as {beyond} and "
            "targets beyond the public bounds as if at the bounds, "
            f"{rmse}.{_cut_off(found)}"
        )
    bound = number_words(found.loss_bound)
    mean = _unknown(found.loss, found.loss_bound) if drowned else words(found.loss)
    loss = f"mean loss, where losses beyond {bound} count as {bound}, {mean}.{_cut_off(found)}"
    right = found.accuracy
    if right is None:
        return whose + loss
    drowned = is_drowned(right, 1.0)
    share = _unknown(right, 1.0, _percent) if drowned else words(right, _percent)
    return f"{whose}share predicted right {share}{_beside_guess(found)}; {loss}"


def _beside_guess(found: ValidationSummary) -> str:
    """What a share predicted right is to be compared with: of rare classes any guess has much."""
    guess = found.accuracy_of_guess
    if guess is None or is_drowned(guess, 1.0):
        return ""
    return (
        f", of always predicting the larger class {_percent(guess.value)} "
        f"({_percent(guess.low)} to {_percent(guess.high)}{_exactly(guess, _percent)})"
    )


def _cut_off(found: ValidationSummary) -> str:
    """How much that leaves out, judged by the public records."""
    cut = found.cut_off_in_public
    if not cut:
        return ""
    return f" On the public records that leaves out {cut:.1%} of the loss."


def _better(found: ValidationSummary) -> list[str]:
    """Whether the model is better than the one that is free."""
    less = found.difference
    if less is None:
        return []
    bound = found.difference_bound or 0.0
    by = "By its answer" if found.owners == 1 else "By their answers"
    if is_drowned(less, 2.0 * bound):
        differs = _unknown(less, bound)
        return [
            f"{by} it cannot be told from the public records' model, which is free. By "
            f"how much its mean loss differs is {differs}: only a larger epsilon or more records "
            "would decide."
        ]
    verdict = "it cannot be told from the public records' model, which is free"
    if less.high < 0:
        verdict = f"it is better than the public records' model{_loss_words(found, less.high)}"
    elif less.low > 0:
        verdict = (
            f"it is worse than the public records' model{_loss_words(found, less.low)}, and copriv "
            "predict and copriv export take that one with --public"
        )
    return [
        f"{by} {verdict}. Its mean loss less that of the public records' model is "
        f"{words(less)}: below 0 it is better. Each record's difference counts as at most "
        f"{number_words(bound)}; the interval allows for that as far as the public records show it."
    ]


def _loss_words(found: ValidationSummary, end: float) -> str:
    """How much more or less loss than the free model an end of the difference's interval says.

    The difference is of whole losses, so it is a part of the free model's whole loss: as much as
    the interval of the bounded one has at most, and what public records have beyond the bound.
    """
    kept = 1.0 - (found.cut_off_in_public or 0.0)
    free = found.loss.high / kept - end if kept > 0 else 0.0
    sign = "more" if end > 0 else "less"
    if free <= 0:
        return f", with {sign} loss"
    return f": at least {as_decimal(Fraction(100 * abs(end) / free), digits=2)}% {sign} loss"


def _by_owner(found: ValidationSummary) -> str:
    """Those who agree to be shown."""

    def text(loss: Measured) -> str:
        if is_drowned(loss, found.loss_bound):
            return "unknown for noise"
        return with_interval(loss.value, loss.low, loss.high)

    losses = _first_few([f"{one.name} {text(one.loss)}" for one in found.by_owner])
    return f"Mean loss by owner, of those who agree to be shown: {losses}."


def _first_few(parts: Sequence[str]) -> str:
    """What is said of the first owners, and of how many more it is not."""
    more = f"; and {len(parts) - NAMED} more" if len(parts) > NAMED else ""
    return "; ".join(parts[:NAMED]) + more


def _edges(each: BinSummary, probabilities: bool) -> str:
    """Between which predictions a bin is."""

    def text(margin: float | None, end: str) -> str:
        if margin is None:
            return end
        return f"{0.5 + 0.5 * math.tanh(0.5 * margin):.3f}" if probabilities else f"{margin:.3g}"

    low, high = ("0", "1") if probabilities else ("least", "most")
    return f"{text(each.above, low)} to {text(each.up_to, high)}"
