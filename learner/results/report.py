"""A finished run for people: the printed table and ``report.html``."""

from __future__ import annotations

import base64
import html
from fractions import Fraction
from pathlib import Path

from rich import box
from rich.table import Table

from common.errors import InputError
from common.files import write_whole
from common.losses import PARAMETERS
from learner.results.summary import OwnerSummary, Summary

__all__ = ["choice_sentences", "owners_table", "sentences", "write_report"]

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 54rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; } th, td { padding: .3rem .8rem; text-align: right; }
th:first-child, td:first-child { text-align: left; } th { border-bottom: 2px solid #333; }
td { border-bottom: 1px solid #ccc; } img { max-width: 100%; }
.warning { background: #fee; border: 1px solid #c00; padding: .5rem 1rem; }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd; }
  img { background: white; } .warning { background: #400; } }
"""

# Sentences that begin so are shown as warnings.
WARNINGS = ("INSECURE", "UNPROTECTED")

PICTURES = (
    ("relative_fitness.png", "Relative fitness of the central model against k"),
    ("ticks.png", "Which owner spoke at each k"),
)


def columns(summary: Summary) -> list[str]:
    """The table's headings; what needs the union of the records only where it is known."""
    heads = ["owner", "records", "epsilon", "responses", "noise scale"]
    return heads + (["alone", "together", "gains"] if summary.is_evaluated else [])


def rows(summary: Summary) -> list[list[str]]:
    """The table's cells, one row for each owner."""
    return [_row(owner, summary) for owner in summary.owners]


def _row(owner: OwnerSummary, summary: Summary) -> list[str]:
    cells = [
        owner.name,
        f"{owner.records:,}",
        epsilon_text(owner.epsilon),
        f"{owner.responses:,}",
        "-" if owner.is_left_out else f"{owner.noise_scale:.3g}",
    ]
    if summary.is_evaluated:
        cells += [
            f"{owner.relative_fitness_alone:.3g}",
            f"{summary.relative_fitness:.3g}",
            "yes" if owner.gains else "no",
        ]
    return cells


def owners_table(summary: Summary) -> Table:
    """The table for a terminal."""
    table = Table(title=_title(summary), box=box.SIMPLE_HEAD, pad_edge=False)
    for index, head in enumerate(columns(summary)):
        table.add_column(head, justify="left" if index == 0 else "right", no_wrap=True)
    for row in rows(summary):
        table.add_row(*row)
    return table


def _title(summary: Summary) -> str:
    return f"{summary.study}: {summary.algorithm}, T = {summary.horizon:,}"


def sentences(summary: Summary) -> list[str]:
    """What the numbers say, in sentences."""
    lines = [
        f"{summary.ticks:,} communications in {summary.wall_seconds:.2f} s.",
        *choice_sentences(summary),
    ]
    idle = [owner.name for owner in summary.owners if owner.is_left_out]
    if idle:
        lines.append(
            f"The clocks never chose {', '.join(idle)}, which therefore promised and spent nothing."
        )
    if summary.is_evaluated:
        lines.append(_who_gains(summary))
    if summary.own is not None:
        lines.append(_unprotected(summary.own))
    if summary.insecure_noise:
        lines.append("INSECURE: the noise came from a seed and protected nobody.")
    return lines


def epsilon_text(text: str) -> str:
    """A budget for people; the learner's own shard has none."""
    return "own" if text == "inf" else f"{float(Fraction(text)):g}"


def _unprotected(name: str) -> str:
    return (
        f"UNPROTECTED: the model is made from the raw records of {name}, which were asked without "
        f"noise; it must not leave {name} unless something else protects it, and the queries "
        "showed the other owners models made from these records."
    )


def choice_sentences(summary: Summary) -> list[str]:
    """What was chosen for the study, and what it was forecast to reach."""
    step = summary.step
    parts = [f"T = {summary.horizon:,}"] if summary.horizon_chosen == "auto" else []
    if summary.clip_chosen == "auto" and summary.clip is not None:
        parts.append(f"clip = {summary.clip:.4g}")
    chosen = (name for name in PARAMETERS if getattr(summary, f"{name}_chosen") == "auto")
    parts += [f"{name} = {getattr(summary, name):.4g}" for name in chosen]
    if step.chosen == "auto":
        constants = {"rho": step.rho, "initial_step": step.initial_step}
        parts += [f"{name} = {value:.4g}" for name, value in constants.items() if value is not None]
    if not parts:
        return []
    forecast = step.forecast_relative_fitness
    expected = "" if forecast is None else f"; forecast relative fitness {forecast:.3g}"
    return [f"Chosen from the public records: {', '.join(parts)}{expected}."]


def _who_gains(summary: Summary) -> str:
    gaining = [owner.name for owner in summary.owners if owner.gains]
    reached = (
        f"Relative fitness together {summary.relative_fitness:.3g}, "
        f"without noise {summary.relative_fitness_noiseless:.3g}"
    )
    if summary.own is not None:
        verb = "gains" if gaining else "does not gain"
        return f"{reached}: {summary.own}, which alone has the model, {verb}."
    if not gaining:
        return f"{reached}: at this epsilon nobody gains from taking part."
    if len(gaining) == len(summary.owners):
        return f"{reached}: every owner gains from taking part."
    verb = "gains" if len(gaining) == 1 else "gain"
    return f"{reached}: {', '.join(gaining)} {verb} from taking part, the others do not."


def write_report(folder: Path, summary: Summary) -> Path:
    """One self-contained page with the table and the pictures of the run folder.

    Raises:
      InputError: The page cannot be written.
    """
    escape = html.escape
    head = "".join(f"<th>{escape(cell)}</th>" for cell in columns(summary))
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rows(summary)
    )
    paragraphs = "".join(
        f"<p{' class=warning' if line.startswith(WARNINGS) else ''}>{escape(line)}</p>"
        for line in sentences(summary)
    )
    pictures = "".join(
        f"<h2>{escape(title)}</h2>{_picture(folder / name, title)}"
        for name, title in PICTURES
        if (folder / name).is_file()
    )
    title = escape(_title(summary))
    path = folder / "report.html"
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><h1>{title}</h1>{paragraphs}"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{pictures}"
        "</body></html>\n"
    )
    try:
        write_whole(path, page)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror}); check the disk's space and the "
            "folder's permissions"
        ) from None
    return path


def _picture(path: Path, title: str) -> str:
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return f'<img alt="{html.escape(title)}" src="data:image/png;base64,{data}">'
