"""``MODEL_CARD.md``: what a model is, for people who sign for it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

from common.files import write_or_refuse
from common.model import Model, read_model
from common.privacy import epsilon_in_words
from common.texts import counted, first_few
from learner.results.quality_words import UNMEASURED, no_better_than_guessing, quality_lines
from learner.results.summary import OwnerSummary, Summary
from learner.results.validation_words import validation_lines
from learner.results.verdict_words import (
    NAMED,
    amount_words,
    free_is_better,
    how_many_gain,
    never_asked,
)

NAMED_COLUMNS = 30
# What makes an address of a text, to be written as a sign of no meaning.
_ADDRESS = re.compile(r"(?<=:)/(?=/)|(?<=www)\.", re.IGNORECASE | re.ASCII)


def write_card(folder: Path, summary: Summary) -> Path:
    """Write the card of a finished run, from its summary and its model.

    Raises:
      InputError: The model cannot be read, or the card cannot be written.
    """
    path = folder / "MODEL_CARD.md"
    write_or_refuse(path, card_text(summary, read_model(folder)))
    return path


def card_text(summary: Summary, model: Model) -> str:
    """The card."""
    parts = [f"# Model card: {summary.study}", *_warnings(summary)]
    parts += ["## Purpose", *_purpose(summary, model)]
    parts += ["## Records and owners", *_owners(summary, model)]
    parts += ["## Privacy", *_privacy(summary)]
    parts += ["## Quality", *_quality(summary)]
    parts += ["## Limits", _listed(_limits(summary, model))]
    parts += ["## How it was made", _how(summary)]
    return "\n\n".join(parts) + "\n"


def _warnings(summary: Summary) -> list[str]:
    lines = []
    if summary.insecure_noise:
        lines.append("> **INSECURE**: the noise came from a seed and protected nobody.")
    if summary.own is not None:
        lines.append(
            f"> **UNPROTECTED**: made from the raw records of {summary.own}; it must not leave "
            f"{summary.own} unless something else protects it."
        )
    if summary.edge is not None:
        lines.append(f"> **WARNING**: {_plain(summary.edge, len(summary.edge))}.")
    return lines


def _purpose(summary: Summary, model: Model) -> list[str]:
    feature_map = model.feature_map
    names = [_plain(rule.name) for rule in feature_map.columns]
    what = _plain(feature_map.target_name)
    if model.has_classes:
        meaning = model.meaning_of_one
        what = f"whether {_plain(meaning, len(meaning))}"
    return [
        f"It predicts {what} from {first_few(names, NAMED_COLUMNS)}: a linear model by "
        f"{summary.loss} loss. It was trained with the algorithm {summary.algorithm} over "
        f"{counted(len(summary.owners), 'owner')} who did not show each other, or the learner, a "
        "record.",
        "Operator: add here what it is used for, and who answers for that.",
    ]


def _owners(summary: Summary, model: Model) -> list[str]:
    total = sum(owner.records for owner in summary.owners)
    rows = [
        "| owner | records | epsilon promised | epsilon spent | answers |",
        "|---|---:|---:|---:|---:|",
        *map(_owner_row, summary.owners),
    ]
    public = model.feature_map
    return [
        f"{total:,} records of {len(summary.owners)} owners. The feature map, with all bounds, was "
        f"fitted on {public.num_public_records:,} {public.source_kind} records of "
        f"{_plain(public.source) or 'a table'}.",
        "\n".join(rows),
    ]


def _owner_row(owner: OwnerSummary) -> str:
    if owner.epsilon == "inf":
        return f"| {owner.name} | {owner.records:,} | own records | - | {owner.responses:,} |"
    promised, spent = map(amount_words, map(Fraction, (owner.epsilon, owner.epsilon_spent)))
    return f"| {owner.name} | {owner.records:,} | {promised} | {spent} | {owner.responses:,} |"


def _privacy(summary: Summary) -> list[str]:
    if summary.insecure_noise:
        return ["Nothing is promised: the noise came from a seed."]
    by_epsilon: dict[str, list[str]] = {}
    for owner in summary.owners:
        by_epsilon.setdefault(owner.epsilon_spent if owner.epsilon != "inf" else "inf", []).append(
            owner.name
        )
    amounts = sorted(
        (math.inf if text == "inf" else Fraction(text), names) for text, names in by_epsilon.items()
    )
    lines = [
        # The records of an owner that is the learner are asked without noise.
        f"For {', '.join(names)}"
        f"{f', who spent epsilon {amount_words(spent)}' if isinstance(spent, Fraction) else ''}: "
        f"{epsilon_in_words(spent)}."
        for spent, names in amounts
    ]
    others = "" if summary.own is None else f" but {summary.own}"
    return [
        f"Each owner{others} added its own noise, and charged each answer to its own ledger before "
        "the answer left. That means:",
        _listed(lines),
        "Each record is protected by this epsilon: a person with several records is protected "
        "less.",
        "It holds for this study alone: what the same records spend in other studies adds up, and "
        "each owner's ledger has the sum. How many records an owner has, and the names of its "
        "columns, are public.",
    ]


def _quality(summary: Summary) -> list[str]:
    summary = _without_markup(summary)
    lines = []
    if summary.quality is not None:
        lines += quality_lines(summary.quality) + free_is_better(summary)
        lines += no_better_than_guessing(summary.quality)
    lines += validation_lines(summary)
    if summary.relative_fitness is not None:
        silent = summary.relative_fitness_noiseless
        without = "" if silent is None else f", without noise {silent:.3g}"
        free = summary.relative_fitness_public
        beside = "" if free is None else f", of the public model {free:.3g}"
        lines.append(
            f"Relative fitness {summary.relative_fitness:.3g} (0 is the best linear model of all "
            f"records){without}{beside}; {how_many_gain(summary)} owners gain from "
            "taking part."
        )
    if not lines:
        return [UNMEASURED]
    if summary.quality is not None:
        lines.append(f"Intervals: {summary.quality.intervals}.")
    if summary.validation is not None:
        lines.append(
            f"Intervals of what owners say: {summary.validation.coverage:.0%}, of noise and "
            "sampling together."
        )
    return [" ".join(lines)]


def _without_markup(summary: Summary) -> Summary:
    """The same summary, in which the words of owners and tables are plain."""
    missing = {_plain(name): _plain(why) for name, why in summary.validation_missing.items()}
    quality = summary.quality
    if quality is not None:
        quality = quality.model_copy(update={"target": _plain(quality.target)})
    return summary.model_copy(update={"validation_missing": missing, "quality": quality})


def _limits(summary: Summary, model: Model) -> list[str]:
    noise = "; copriv export --to json gives each coefficient's share of it"
    if model.coefficient_noise is None:
        noise = " of unknown size"
    lines = [
        "It is linear: it knows nothing of effects that depend on two columns together.",
        "Values beyond the public bounds count as if they were at the bounds; all categories that "
        "the public records do not have count as one category.",
        f"Its parameters carry noise{noise}.",
        "An owner that answers falsely can spoil it: answers are bounded, not proved.",
    ]
    if left := [owner.name for owner in summary.owners if owner.responses_left]:
        lines.append(f"Not all that was promised was answered: {first_few(left, NAMED)}.")
    if lost := [owner.name for owner in summary.owners if owner.responses_lost]:
        lines.append(f"Some answers were charged and lost in a crash: {first_few(lost, NAMED)}.")
    return lines + never_asked(summary)


def _how(summary: Summary) -> str:
    versions = ", ".join(f"{_plain(k)} {_plain(v)}" for k, v in sorted(summary.versions.items()))
    return (
        f"Study {_plain(summary.study_id)}: {summary.ticks:,} of {summary.horizon:,} "
        f"communications in {summary.wall_seconds:.2f} s, profile {summary.profile}. {versions}. "
        "summary.json has every number, study.toml the settings."
    )


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _plain(text: str, longest: int = 200) -> str:
    """A text in one line, without what Markdown or HTML would take for its own."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())[:longest]
    # Some readers make a link of an address that stands there as it is.
    line = "".join(f"\\{c}" if c in "\\`*_[]<>|#@$~&" else c for c in line)
    return _ADDRESS.sub(r"\\\g<0>", line)
