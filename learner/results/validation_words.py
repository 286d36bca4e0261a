"""The owners' answers about the model on their own records, in sentences and rows."""

from __future__ import annotations

import math

from learner.results.privacy_words import number_words
from learner.results.summary import Summary
from learner.results.validated import BinSummary, Measured, ValidationSummary

__all__ = ["bin_rows", "measure_rows", "validation_lines"]

NAMED = 6


def validation_lines(summary: Summary) -> list[str]:
    """How good the model is by the owners' answers, whether it beats the free one, who is absent.

    Empty where no owner was to be asked.
    """
    found, missing = summary.validation, summary.validation_missing
    lines = [] if found is None else [_how_good(found), *_better(found)]
    if found is not None and found.by_owner:
        lines.append(_by_owner(found))
    if missing:
        reasons = "; ".join(f"{name}: {why}" for name, why in list(missing.items())[:NAMED])
        more = f"; and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        kept = (
            "What was kept for it is not spent." if found is None else "They spent nothing on it."
        )
        lines.append(f"No answer on how good the model is from {reasons}{more}. {kept}")
    return lines


def measure_rows(found: ValidationSummary) -> list[tuple[str, Measured]]:
    """Each number in the answers, with its name."""
    rows = []
    if found.rmse is not None:
        rows.append(("typical error (RMSE)", found.rmse))
    if found.accuracy is not None:
        rows.append(("share predicted right (accuracy)", found.accuracy))
    rows.append(("mean loss", found.loss))
    if found.difference is not None:
        rows.append(("mean loss less that of the public model", found.difference))
    return rows


def bin_rows(found: ValidationSummary, *, probabilities: bool) -> list[tuple[str, str, str]]:
    """The calibration table: what was predicted, the share of the records, the share of positives.

    Args:
      found: What the answers come to.
      probabilities: Whether margins mean probabilities.
    """
    rows = []
    for each in found.table:
        observed = "too few to say" if each.positive is None else words(each.positive, percent=True)
        rows.append((_edges(each, probabilities), f"{max(each.share, 0.0):.1%}", observed))
    return rows


def words(measured: Measured, *, percent: bool = False) -> str:
    """A number with its interval, the noise's part, and the exact one where it is known.

    >>> words(Measured(value=8.05, noise=0.1, low=7.9, high=8.2, exact=8.0))
    '8.05 (7.9 to 8.2; the noise alone makes +/- 0.1; exactly 8)'
    """

    def text(value: float) -> str:
        return f"{value:.1%}" if percent else number_words(value)

    exact = "" if measured.exact is None else f"; exactly {text(measured.exact)}"
    return (
        f"{text(measured.value)} ({text(measured.low)} to {text(measured.high)}; the noise alone "
        f"makes +/- {text(measured.noise)}{exact})"
    )


def _how_good(found: ValidationSummary) -> str:
    owners = "1 owner" if found.owners == 1 else f"{found.owners} owners"
    whose = f"On their own {found.records:,} records {owners} say, with noise: "
    if found.rmse is not None and found.largest_error is not None:
        beyond = number_words(found.largest_error)
        return (
            f"{whose}typical error (RMSE), with errors beyond {beyond} counted as "
            f"{beyond}{_cut_off(found)}: {words(found.rmse)}. Targets beyond the public bounds "
            "count as if at the bounds."
        )
    bound = number_words(found.loss_bound)
    loss = (
        f"mean loss {words(found.loss)}; losses beyond {bound} count as {bound}{_cut_off(found)}."
    )
    if found.accuracy is None:
        return whose + loss
    return f"{whose}share predicted right {words(found.accuracy, percent=True)}; {loss}"


def _cut_off(found: ValidationSummary) -> str:
    """How much that leaves out, judged by the public records."""
    cut = found.cut_off_in_public
    if not cut:
        return ""
    return f" (of the public records' loss that leaves out {cut:.1%})"


def _better(found: ValidationSummary) -> list[str]:
    """Whether the model is better than the one that is free."""
    less = found.difference
    if less is None:
        return []
    free = found.loss.value - less.value

    def at_least(end: float) -> str:
        return f": at least {abs(end) / free:.1%}" if free > 0 else ":"

    verdict = "it cannot be told from the public records' model, which is free"
    if less.high < 0:
        verdict = f"it is better than the public records' model{at_least(less.high)} less loss"
    elif less.low > 0:
        verdict = f"it is worse than the public records' model{at_least(less.low)} more loss"
    most = number_words(found.difference_bound or 0.0)
    return [
        f"By their answers {verdict}. Its mean loss differs by {words(less)}; a record's "
        f"difference counts as at most {most}, for which the interval allows."
    ]


def _by_owner(found: ValidationSummary) -> str:
    """Those who agree to be shown."""
    losses = "; ".join(
        f"{one.name} {number_words(one.loss.value)} ({number_words(one.loss.low)} to "
        f"{number_words(one.loss.high)})"
        for one in found.by_owner[:NAMED]
    )
    more = f"; and {len(found.by_owner) - NAMED} more" if len(found.by_owner) > NAMED else ""
    return f"Mean loss by owner, of those who agree to be shown: {losses}{more}."


def _edges(each: BinSummary, probabilities: bool) -> str:
    """Between which predictions a bin is."""

    def text(margin: float | None, end: str) -> str:
        if margin is None:
            return end
        return f"{0.5 + 0.5 * math.tanh(0.5 * margin):.3f}" if probabilities else f"{margin:.3g}"

    low, high = ("0", "1") if probabilities else ("least", "most")
    return f"{text(each.above, low)} to {text(each.up_to, high)}"
