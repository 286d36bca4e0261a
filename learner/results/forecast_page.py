"""``forecast.html``: a forecast on one self-contained page, the verdict first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from common.texts import counted, number_words, percent_words
from learner.forecasting.main_measure import ExpectedQuality
from learner.forecasting.questions import Answer
from learner.forecasting.verdict import Smallest, Verdict
from learner.results.charts import DASHED, FITNESS, Line, Mark, curve, strip
from learner.results.forecast_text import OWNERS, gains, owner_row, sentences, smallest_words
from learner.results.page import Cell, behind, listed, page, paragraphs, section, table, write_page
from learner.results.quality_words import MEASURES

CURVES = {
    "epsilon": "factor on every epsilon",
    "size": "factor on every owner's records",
    "owners": "number of owners N",
    "horizon": "horizon T, communications",
}


def write_forecast_page(folder: Path, verdict: Verdict) -> Path:
    """The page of a forecast, in its folder.

    Raises:
      InputError: It cannot be written.
    """
    title = f"{verdict.study}: forecast from {verdict.public_records:,} public records"
    parts = [_first(verdict), _owners(verdict)]
    if verdict.algorithms:
        parts.append(_algorithms(verdict))
    curves = {
        kind: verdict.curves[kind] for kind in CURVES if len(verdict.curves.get(kind, {})) > 1
    }
    if curves:
        drawn = "".join(_curve(kind, answers) for kind, answers in curves.items())
        ways = _ways(verdict.smallest)
        parts.append(section("Where it begins to pay", drawn, ways))
    parts.append(_making(verdict))
    return write_page(folder / "forecast.html", page(title, *parts))


def _first(verdict: Verdict) -> str:
    """The verdict, what warns against it, and what it comes to."""
    lines = sentences(verdict)
    gaining = sum(owner.gains for owner in verdict.owners)
    low, high = verdict.interval_90
    count = len(verdict.owners)
    words = (
        f"It is expected that {gains(verdict)}. The common model is expected to have "
        f"{percent_words(verdict.relative_fitness)} more loss than the best model of all records. "
        "No owner was asked, and nothing was spent."
    )
    return (
        paragraphs([line for line in lines if line.startswith("warning: ")], "warning")
        + paragraphs([words], "verdict")
        + paragraphs([line for line in lines if not line.startswith(("warning: ", "gains: "))])
        + listed(
            [
                (f"{verdict.relative_fitness:.3g}", "expected relative fitness"),
                (f"{low:.3g} to {high:.3g}", "nine runs in ten"),
                (f"{verdict.relative_fitness_public:.3g}", "public model, which is free"),
                *_quality(verdict.quality),
                (f"{gaining} of {count}", "owners expected to gain"),
                (f"{verdict.design['horizon']:,}", "communications T"),
            ]
        )
    )


def _quality(quality: ExpectedQuality | None) -> list[tuple[str, str]]:
    """The common and the public model in the measure that people compare models by."""
    if quality is None:
        return []
    measure = MEASURES[quality.measure]
    return [
        (number_words(quality.common), f"{measure}, common model"),
        (number_words(quality.public), f"{measure}, public model"),
    ]


def _owners(verdict: Verdict) -> str:
    """One row for each owner, and all of them in one picture."""
    heads = [*OWNERS[:-1], "one more epsilon"]
    picture = strip(
        "Expected relative fitness of each owner's own model: circles gain, squares do not",
        [(owner.name, owner.relative_fitness_alone, owner.gains) for owner in verdict.owners],
        label="relative fitness of the own model",
        marks=[
            Mark(at=verdict.relative_fitness, text="together", color="var(--blue)"),
            Mark(at=verdict.relative_fitness_public, text="public model", color="var(--gold)"),
        ],
    )
    rows = [owner_row(owner, verdict, better=", better") for owner in verdict.owners]
    return section("Owners", picture, table("owners", counted(len(rows), "owner"), heads, rows))


def _algorithms(verdict: Verdict) -> str:
    """What other algorithms would come to, beside what is free."""
    rows: list[list[Cell | str]] = [
        [
            name,
            Cell(f"{answer.relative_fitness:.3g}", answer.relative_fitness),
            f"{answer.low:.3g} to {answer.high:.3g}",
            Cell(f"{answer.horizon:,}", answer.horizon),
            "-" if answer.clip is None else f"{answer.clip:.3g}",
        ]
        for name, answer in verdict.algorithms.items()
    ]
    free = verdict.relative_fitness_public
    rows.append(["public model", Cell(f"{free:.3g}", free), "-", "-", "-"])
    heads = ["algorithm", "expected", "nine runs in ten", "T", "clip"]
    return section("Other algorithms", table("algorithms", "At the same epsilon", heads, rows))


def _curve(kind: str, answers: Mapping[str, Answer]) -> str:
    """Expected relative fitness against one quantity, beside what needs no study."""
    points = sorted(((float(x), answer) for x, answer in answers.items()), key=lambda p: p[0])
    x = np.array([point[0] for point in points])

    def line(name: str, values: list[float], color: str, dashes: str = "") -> Line:
        # The own model of an only owner is the best one: 0 has no place on such an axis.
        y = np.array(values)
        return Line(name=name, x=x[y > 0], y=y[y > 0], color=color, dashes=dashes)

    alone = [float(np.median(answer.alone)) for _, answer in points]
    lines = [
        line("", [answer.low for _, answer in points], "var(--band)"),
        line("nine runs in ten", [a.high for _, a in points], "var(--band)"),
        line("alone, middle owner", alone, "var(--gold)", DASHED),
        line("public model", [a.public for _, a in points], "var(--soft)", DASHED),
        line("together", [a.relative_fitness for _, a in points], "var(--blue)"),
    ]
    title = f"Expected relative fitness against {CURVES[kind]}"
    drawn = curve(title, lines, x_label=CURVES[kind], y_label=FITNESS, log_x=True)
    rows: list[list[Cell | str]] = [
        [
            Cell(f"{value:g}", value),
            f"{answer.relative_fitness:.3g}",
            f"{answer.low:.3g} to {answer.high:.3g}",
            f"{middle:.3g}",
            f"{answer.public:.3g}",
        ]
        for (value, answer), middle in zip(points, alone, strict=True)
    ]
    heads = [CURVES[kind], "together", "nine runs in ten", "alone, middle owner", "public model"]
    return drawn + behind(table(f"curve-{kind}", title, heads, rows))


def _ways(smallest: Smallest) -> str:
    """Where each way of learning begins to beat what is free."""
    rows: list[list[Cell | str]] = [
        [way, Cell(smallest_words(smallest, way, value), value)]
        for way, value in smallest.epsilon_of_ways.items()
    ]
    if not rows:
        return ""
    caption = "The smallest epsilon at which each way of learning beats the public model"
    return table("ways", caption, ["learnt by", "smallest epsilon"], rows)


def _making(verdict: Verdict) -> str:
    """The study as it was forecast."""
    design = {key: "-" if value is None else value for key, value in verdict.design.items()}
    rows: list[list[Cell | str]] = [
        [key, f"{value:,.4g}" if isinstance(value, float) else str(value)]
        for key, value in design.items()
    ]
    rows.append(["change along the public table", f"{verdict.drift:.2g}"])
    failed = [f"{name}: {why}" for name, why in verdict.failures.items()]
    return section(
        "How it was made",
        paragraphs(["Public records played the owners; docs/forecast.md says how."]),
        table("made", "The study", ["what", "is"], rows),
        paragraphs(failed),
    )
