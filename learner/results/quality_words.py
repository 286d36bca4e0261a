"""The quality of a run's model in sentences, in the target's raw units."""

from __future__ import annotations

from common.texts import number_words, printable, with_interval
from learner.results.summary import Interval, QualitySummary

MEASURES = {
    "rmse": "typical error (RMSE)",
    "log_loss": "log loss",
    "accuracy": "share predicted right (accuracy)",
}

UNMEASURED = (
    "Nobody has measured it: the learner has no records. Each owner can measure it at home, with "
    "copriv-owner evaluate."
)
AT_HOME = {"public": "the public one", "alone": "the owner's own, which has seen them,"}


def is_better(quality: QualitySummary, one: float, other: float) -> bool:
    """Whether one value of the measure is better than another."""
    return one > other if quality.measure == "accuracy" else one < other


def interval_words(interval: Interval) -> str:
    """A number with its interval, as ``8.05 (7.5 to 8.54)``."""
    return with_interval(interval.value, interval.low, interval.high)


def no_better_than_guessing(quality: QualitySummary) -> list[str]:
    """Whether a constant would do as well as the model: one sentence, or none."""
    common, guess = quality.common.value, quality.guess
    how = "no"
    if is_better(quality, common, guess):
        # Where a class is rare, a useful model may tell as many records right as a guess does.
        if quality.measure == "accuracy" or number_words(common) != number_words(guess):
            return []
        how = "hardly"
    return [f"The model is {how} better than always predicting the same."]


def quality_lines(quality: QualitySummary) -> list[str]:
    """What the quality says: the model, beside what needs no study."""
    measure = MEASURES[quality.measure]
    whose = f"the {quality.records:,} public records"
    if quality.on == "owners":
        whose = (
            f"all {quality.records:,} records of the owners, which only a simulation may look at"
        )
    lines = [
        f"The common model predicts {printable(quality.target)} with a {measure} of "
        f"{interval_words(quality.common)} on {whose}."
    ]
    if quality.on == "public":
        lines.append(
            "Nobody looked at the owners' records, which may differ; each owner can compare at "
            "home with copriv-owner evaluate."
        )
    beside = [f"always predicting the same: {number_words(quality.guess)}"]
    if quality.public is not None:
        seen = "" if quality.on == "owners" else ", which it has seen"
        beside.insert(0, f"the public records' own model{seen}: {interval_words(quality.public)}")
    lines.append(f"For comparison: {'; '.join(beside)}.")
    return lines + at_home_lines(quality)


def at_home_lines(quality: QualitySummary) -> list[str]:
    """How many owners have the best of the common model on their own records: a sentence, or none.

    >>> one = Interval(value=2.0)
    >>> at_home_lines(QualitySummary(measure="rmse", target="days", on="owners", records=9,
    ...     common=one, guess=3.0, intervals="none", at_home={"common": (2.0, 3.0, None),
    ...     "public": (2.5, 3.5, None), "alone": (1.8, 3.5, None)}))[0][:76]
    "On each owner's own records, with targets as they are beyond the public boun"
    """
    common = quality.at_home.get("common", ())
    wins = []
    for whose, words in AT_HOME.items():
        pairs = [
            (one, other)
            for one, other in zip(common, quality.at_home.get(whose, ()), strict=False)
            if one is not None and other is not None
        ]
        if pairs:
            better = sum(is_better(quality, one, other) for one, other in pairs)
            wins.append(f"{words} at {better:,} of {len(pairs):,}")
    if not wins:
        return []
    # The table's verdict is on targets as they are learnt from, and on all records.
    uncut = ", with targets as they are beyond the public bounds,"
    where = f"On each owner's own records{uncut if quality.measure == 'rmse' else ''}"
    return [
        f"{where} the common model is better than {', and than '.join(wins)} (whether an owner "
        "gains is judged by the loss on all records together, and may differ); "
        "copriv-owner evaluate judges an own model on records that it has not seen."
    ]
