"""The quality of models for people: a table with sentences, or one JSON object."""

from __future__ import annotations

import json
import math

from rich import box
from rich.console import Console
from rich.table import Table

from common.judging import Judged
from common.quality import Estimate
from common.texts import counted, number_words, printable, with_interval

# How people call the measures.
WORDS = {
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R2",
    "auc": "AUC",
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "calibration_bias": "bias (prediction - target)",
    "calibration_slope": "calibration slope",
    "calibration_error": "calibration error",
}

# The column of what needs no model.
GUESS = "always the same"
# The AUC of guesses.
CHANCE = 0.5
# Draws of fewer records hardly differ from each other.
FEWEST_DRAWN = 20


def show_judged(judged: Judged, console: Console, *, as_json: bool) -> None:
    """Print the quality, as a table with sentences or as JSON."""
    if as_json:
        console.file.write(json.dumps(judged.as_json(), indent=2) + "\n")
        return
    console.print(quality_table(judged))
    for sentence in quality_sentences(judged):
        console.print(sentence, highlight=False)


def quality_table(judged: Judged) -> Table:
    """Each model's measures, one column for each model, and those of always predicting the same."""
    title = f"{printable(judged.target)}: {counted(judged.records, 'record')}"
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("measure", no_wrap=True)
    for name in judged.models:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(GUESS, justify="right", no_wrap=True)
    for measure, word in WORDS.items():
        rows = [model[measure] for model in judged.models.values() if measure in model]
        if rows:
            guess = judged.guess.get(measure, math.nan)
            guessed = number_words(guess) if math.isfinite(guess) else "-"
            table.add_row(word, *map(in_words, rows), guessed)
    return table


def in_words(estimate: Estimate) -> str:
    """A number with its interval.

    >>> in_words(Estimate(value=2.0, low=1.0, high=3.25)), in_words(Estimate(value=None))
    ('2 (1 to 3.25)', '-')
    """
    if estimate.value is None:
        return "-"
    return with_interval(estimate.value, estimate.low, estimate.high)


def _compared(gap: Estimate, name: str, measure: str) -> str:
    """Whether the common model is better or worse than another one beyond chance, and by how much.

    >>> _compared(Estimate(value=-2.0, low=-3.0, high=-1.0), "own", "MAE")
    'The common model is worse by 2 (1 to 3) than the own one in MAE.'
    >>> _compared(Estimate(value=-2.0, low=-3.0, high=1.0), "own", "MAE")
    'The common model cannot be told from the own one in MAE: here it is worse by 2 (-1 to 3).'
    """
    found = f"better by {in_words(gap)}"
    if gap.value is not None and gap.value < 0:
        found = f"worse by {in_words(_turned(gap))}"
    if gap.low is not None and gap.high is not None and gap.low <= 0 <= gap.high:
        return (
            f"The common model cannot be told from the {name} one in {measure}: here it is {found}."
        )
    return f"The common model is {found} than the {name} one in {measure}."


def _turned(gap: Estimate) -> Estimate:
    """The same difference the other way round."""
    value, low, high = (None if end is None else -end for end in (gap.value, gap.high, gap.low))
    return Estimate(value=value, low=low, high=high)


def _rarer(judged: Judged) -> int:
    """How many records the rarer class has; 0 where no probability of it is predicted."""
    if judged.positives is None or judged.kind != "probability":
        return 0
    return min(judged.positives, judged.records - judged.positives)


def _is_reversed(judged: Judged) -> bool:
    """Whether the common model, and the public one, take one class for the other, beyond chance."""
    shared = [judged.models[name] for name in ("common", "public") if name in judged.models]
    highest = [measured["auc"].high for measured in shared if "auc" in measured]
    return bool(highest) and all(high is not None and high < CHANCE for high in highest)


def quality_sentences(judged: Judged) -> list[str]:
    """What the table does not say."""
    lines = [f"Intervals: {judged.intervals}."]
    if judged.records < FEWEST_DRAWN:
        lines.append(
            f"So few records say little, and their intervals are too short: give {FEWEST_DRAWN} or "
            "more."
        )
    rarer = _rarer(judged)
    if 0 < rarer < FEWEST_DRAWN <= judged.records:
        lines.append(
            f"The rarer class has only {counted(rarer, 'record')} here, so intervals of what is no "
            f"AUC or accuracy are too short: give {FEWEST_DRAWN} of each class or more."
        )
    if "own" in judged.models:
        lines.append("own and personal: by cross-validation, on records they were not fitted to.")
    if judged.without_target:
        left = counted(judged.without_target, "record")
        lines.append(f"Left out: {left} without a readable target.")
    if judged.positives in (0, judged.records):
        of = "No" if judged.positives == 0 else "Every"
        lines.append(
            f"{of} record of the {judged.records:,} has {judged.positive}: of one class alone AUC "
            "is undefined, and no measure says how well classes are told apart; look at how the "
            "target is spelt."
        )
    if _is_reversed(judged):
        lines.append(
            f"AUC is below {CHANCE}: what is predicted to be {judged.positive} mostly is not; look "
            "whether the target's values are swapped here."
        )
    main = WORDS[judged.main]
    for name, gap in judged.better_by.items():
        lines.append(_compared(gap, name, main))
    found = judged.clamping
    if found is not None:
        lines.append(
            f"Clamping alone: the best fit of these records has {main} "
            f"{number_words(found.clamped, 4)} within the public bounds, "
            f"{number_words(found.unclamped, 4)} without them."
        )
    return lines
