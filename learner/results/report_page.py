"""``report.html``: a finished run on one self-contained page, the verdict first."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from common.arrays import Vector
from common.errors import InputError
from common.files import open_regular
from common.model import Model, read_model
from common.privacy import epsilon_in_words, strength
from common.texts import counted, number_words
from learner.results.charts import DASHED, FITNESS, Line, Mark, curve, strip, timeline
from learner.results.coefficients import coefficients
from learner.results.page import Cell, behind, listed, page, paragraphs, section, table, write_page
from learner.results.quality_words import MEASURES, UNMEASURED, interval_words
from learner.results.report import (
    choice_sentences,
    columns,
    lost_sentences,
    named_counts,
    rows,
    title,
    warnings,
    way_sentences,
)
from learner.results.summary import Summary
from learner.results.validation_part import validation_part
from learner.results.verdict_words import (
    amount_words,
    epsilons_spent,
    how_many_gain,
    notes,
    verdict_lines,
)

TRACE_COLUMNS = ["k", "owner", "relative_fitness"]
# A trace of more rows than any run has is not looked at.
LARGEST_TRACE = 20_000_000
# Values behind a picture, as a table for screen readers.
SHOWN_VALUES = 12


@dataclass(frozen=True, kw_only=True, eq=False)
class _Trace:
    """What the page needs of ``trace.parquet``."""

    k: Vector
    owner: pd.Categorical
    fitness: Vector | None


def write_report(folder: Path, summary: Summary) -> Path:
    """One self-contained page of a run folder.

    Raises:
      InputError: The page cannot be written.
    """
    trace, model = _read_trace(folder), _read_model(folder)
    return write_page(
        folder / "report.html",
        page(
            title(summary),
            _first(summary),
            _quality(summary, trace, model),
            _owners(summary),
            _communication(summary, trace),
            _budget(summary),
            _making(summary, model),
        ),
    )


def _read_trace(folder: Path) -> _Trace | None:
    """The trace, None where there is none that can be read."""
    path = folder / "trace.parquet"
    try:
        # A name is held once, however many rows a file of a few bytes says that it has.
        by_name = ["owner"]
        with open_regular(path) as opened, pq.ParquetFile(opened, read_dictionary=by_name) as file:
            if file.metadata.num_rows > LARGEST_TRACE:
                return None
            names = [name for name in TRACE_COLUMNS if name in file.schema_arrow.names]
            if not all(_is_small(file.schema_arrow.field(name)) for name in names):
                return None
            kept = file.read(columns=names).to_pandas()
        fitness = kept["relative_fitness"] if "relative_fitness" in names else None
        return _Trace(
            k=kept["k"].to_numpy(dtype=np.float64),
            owner=pd.Categorical(kept["owner"]),
            fitness=None if fitness is None else fitness.to_numpy(dtype=np.float64),
        )
    except Exception:  # Libraries have many names for a file that is no table.
        return None


def _is_small(column: pa.Field) -> bool:
    """Whether each cell takes a few bytes, whatever a file says that it holds: all but a name."""
    if column.name == "owner":
        return bool(pa.types.is_dictionary(column.type))
    return bool(pa.types.is_integer(column.type) or pa.types.is_floating(column.type))


def _read_model(folder: Path) -> Model | None:
    try:
        return read_model(folder)
    except InputError:
        return None


def _first(summary: Summary) -> str:
    """The first screen: warnings, verdict, what it came to."""
    verdict = verdict_lines(summary)
    spent = epsilons_spent(summary)
    tiles = []
    if summary.quality is not None:
        measure = MEASURES[summary.quality.measure]
        tiles.append((number_words(summary.quality.common.value), f"{measure}, common model"))
    if summary.is_evaluated and summary.own is None:
        tiles.append((how_many_gain(summary), "owners who gain from taking part"))
    if spent:
        tiles.append((amount_words(spent[-1]), "epsilon spent by the owner that spent most"))
    tiles.append((f"{summary.ticks:,} of {summary.horizon:,}", "communications"))
    return (
        paragraphs(warnings(summary), "warning")
        + paragraphs(verdict[:1], "verdict")
        + paragraphs(verdict[1:])
        + paragraphs(notes(summary), "note")
        + listed(tiles)
    )


def _quality(summary: Summary, trace: _Trace | None, model: Model | None) -> str:
    """How good the model is, and how it became so."""
    quality = summary.quality
    parts = []
    if quality is not None:
        rows: list[list[Cell | str]] = [
            ["common model", Cell(interval_words(quality.common), quality.common.value)]
        ]
        if quality.public is not None:
            rows.append(
                ["public model", Cell(interval_words(quality.public), quality.public.value)]
            )
        if quality.alone:
            ends = (min(quality.alone), max(quality.alone))
            words = " to ".join(dict.fromkeys(map(number_words, ends)))
            rows.append(["owners' own models", Cell(words, ends[0])])
        rows.append(
            ["always predicting the same", Cell(number_words(quality.guess), quality.guess)]
        )
        kind, whose = ("", " of all owners") if quality.on == "owners" else ("public ", "")
        count = f"{quality.records:,} {kind}records{whose}"
        meaning = "" if model is None else model.meaning_of_one
        what = f"whether {meaning}" if meaning else quality.target
        caption = f"{what}: {count}; {quality.intervals}"
        parts.append(table("quality", caption, ["model", MEASURES[quality.measure]], rows))
    parts.append(validation_part(summary))
    if summary.is_evaluated:
        free = summary.relative_fitness_public
        beside = "" if free is None else f" The public model, which is free, has {free:.3g}."
        reached = f"Relative fitness {summary.relative_fitness:.3g}{_cost_of_privacy(summary)}"
        parts.append(paragraphs([reached + beside]))
        parts.append(_fitness_curve(summary, trace))
    if not any(parts):
        parts = [paragraphs([UNMEASURED])]
    return section("Quality", *parts)


def _cost_of_privacy(summary: Summary) -> str:
    """What the noise made worse, where the same ticks were also run without it."""
    silent, reached = summary.relative_fitness_noiseless, summary.relative_fitness
    if silent is None or reached is None:
        return "."
    noiseless = f"; the same run without noise reaches {silent:.3g}"
    if reached > silent:
        return f"{noiseless}: the rest is the cost of privacy."
    return f"{noiseless}: here the noise did no harm."


def _fitness_curve(summary: Summary, trace: _Trace | None) -> str:
    """Relative fitness against k, and where the average begins."""
    if trace is None or trace.fitness is None or not trace.k.size:
        return ""
    known = np.isfinite(trace.fitness)  # of a very long run not all is looked at
    if not known.any():
        return ""
    k, fitness = trace.k[known], trace.fitness[known]
    lines = [Line(name="together", x=k, y=fitness)]
    free = summary.relative_fitness_public
    if free is not None:
        ends = k[[0, -1]]
        looks = {"color": "var(--soft)", "dashes": DASHED}
        lines.append(Line(name="public model", x=ends, y=np.full(2, free), **looks))
    marks = []
    if summary.average == "tail" and summary.horizon > 1:
        marks.append(Mark(at=summary.horizon / 2, text="here the average begins"))
    drawn = curve(
        "Relative fitness of the central model against communications",
        lines,
        x_label="communication k",
        y_label=FITNESS,
        marks=marks,
    )
    places = np.unique(np.linspace(0, k.size - 1, SHOWN_VALUES).astype(int))
    rows: list[list[Cell | str]] = [
        [Cell(f"{k[i]:,.0f}", float(k[i])), f"{fitness[i]:.3g}"] for i in places
    ]
    if marks:
        drawn += paragraphs(
            [
                "From the mark on, the curve shows the mean of the models since then. That mean is "
                "the common model; it is smoother than single models."
            ]
        )
    return drawn + behind(table("fitness", "Values of the curve", ["k", "relative fitness"], rows))


def _owners(summary: Summary) -> str:
    """One row for each owner, and all of them in one picture."""
    quality = summary.quality
    heads, cells = columns(summary), rows(summary)
    if quality is not None and quality.alone is not None:
        heads.append(f"own model's {quality.measure.replace('_', ' ')}")
        for row, value in zip(cells, quality.alone, strict=False):
            row.append(Cell(number_words(value), value))
    picture = ""
    if summary.is_evaluated and summary.relative_fitness is not None:
        values = [
            (owner.name, owner.relative_fitness_alone or 0.0, bool(owner.gains))
            for owner in summary.owners
        ]
        picture = strip(
            "Relative fitness of each owner's own model: circles gain, squares do not",
            values,
            label="relative fitness of the own model",
            marks=_marks(summary, summary.relative_fitness),
        )
    return section("Owners", picture, table("owners", counted(len(cells), "owner"), heads, cells))


def _marks(summary: Summary, together: float) -> list[Mark]:
    """What each owner's own model is seen beside."""
    marks = [Mark(at=together, text="together", color="var(--blue)")]
    free = summary.relative_fitness_public
    if free is not None:
        marks.append(Mark(at=free, text="public model", color="var(--gold)"))
    return marks


def _communication(summary: Summary, trace: _Trace | None) -> str:
    """When each owner answered, and what was missed."""
    lines = [
        f"{summary.ticks:,} of {counted(summary.horizon, 'communication')} in "
        f"{summary.wall_seconds:.2f} s, {summary.queries_per_second:,.0f} responses a second."
    ]
    missed = summary.horizon - summary.ticks
    if missed > 0:
        lines.append(
            f"{counted(missed, 'tick was', 'ticks were')} missed: nobody was there to answer. "
            "Missed ticks are not repeated."
        )
    short = [owner for owner in summary.owners if owner.responses_left and not owner.is_left_out]
    if summary.split == "schedule" and short:
        left = [(owner.name, owner.responses_left) for owner in short]
        lines.append(f"Away at some of their ticks, so answers are left: {named_counts(left)}.")
    lines += lost_sentences(summary)
    picture = ""
    if trace is not None and trace.k.size:
        names = [owner.name for owner in summary.owners]
        picture = timeline(
            names,
            [trace.k[trace.owner == name] for name in names],
            horizon=summary.horizon,
            marks=[Mark(at=summary.ticks, text="the run ended here")] if missed > 0 else [],
        )
    return section("Communication", paragraphs(lines), picture)


def _budget(summary: Summary) -> str:
    """What privacy was promised and spent."""
    rows: list[list[Cell | str]] = []
    for owner in summary.owners:
        if owner.epsilon == "inf":
            rows.append([owner.name, "own records", "-", "-", "none"])
            continue
        promised, spent = Fraction(owner.epsilon), Fraction(owner.epsilon_spent)
        rows.append(
            [
                owner.name,
                Cell(amount_words(promised), float(promised)),
                Cell(amount_words(spent), float(spent)),
                Cell(amount_words(promised - spent, up=False), float(promised - spent)),
                strength(spent) if not summary.insecure_noise else "none",
            ]
        )
    heads = ["owner", "promised", "spent", "not spent", "protection"]
    lines = []
    most = max(epsilons_spent(summary), default=Fraction(0))
    if most > 0 and not summary.insecure_noise:
        means = epsilon_in_words(most)
        lines.append(f"Epsilon {amount_words(most)}, the most that was spent: {means}.")
    if any(isinstance(row[3], Cell) and (row[3].value or 0) > 0 for row in rows):
        lines.append(
            "What was not spent is given back to the owner's lifetime budget when the study closes."
        )
        if summary.split == "horizon":
            lines.append(
                'With split = "horizon" every owner is ready for all T questions and is asked a '
                'part of them, so most of each budget stays; split = "schedule" sizes each for its '
                "own."
            )
    return section(
        "Privacy budget", paragraphs(lines), table("budget", "Epsilon of each owner", heads, rows)
    )


def _making(summary: Summary, model: Model | None) -> str:
    """How it was made."""
    step = summary.step
    facts = {
        "study": summary.study_id,
        "loss": summary.loss,
        "profile": summary.profile,
        "split of the budget": summary.split,
        "initiative": summary.initiative,
        "clocks": f"{summary.clocks}, correction {summary.correction}",
        "result": "mean of the last half" if summary.average == "tail" else "last model",
        "clip": "the domain's bound" if summary.clip is None else f"{summary.clip:.4g}",
        "step": ", ".join(
            f"{name} = {value:.4g}"
            for name, value in (("rho", step.rho), ("initial_step", step.initial_step))
            if value is not None
        )
        or "none",
        "seed of the clocks": str(summary.seed),
        "versions": ", ".join(f"{k} {v}" for k, v in sorted(summary.versions.items())),
    }
    rows: list[list[Cell | str]] = [[key, value] for key, value in facts.items()]
    lines = [*way_sentences(summary), *choice_sentences(summary)]
    parts = [paragraphs(lines), table("made", "Settings", ["what", "is"], rows)]
    if model is not None:
        parts.append(_coefficients(model))
    return section("How it was made", *parts)


def _coefficients(model: Model) -> str:
    """The model in raw units."""
    rows: list[list[Cell | str]] = []
    for one in coefficients(model):
        noise = one.noise_standard_error
        rows.append(
            [
                one.column,
                one.kind or "-",
                Cell(f"{one.value:.4g}", one.value),
                "unknown" if noise is None else Cell(f"{noise:.2g}", noise),
            ]
        )
    what = "log-odds" if model.has_probabilities else "score" if model.has_classes else "prediction"
    caption = (
        f"Change of the {what} for one more unit of a raw column (of a category: of its code), "
        "within the public bounds"
    )
    heads = ["column", "kind", "coefficient", "standard error"]
    return behind(table("coefficients", caption, heads, rows), "The model in raw units")
