"""A finished run for people: the printed table and ``report.html``."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from common.losses import PARAMETERS

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


def columns(summary: Mapping[str, Any]) -> list[str]:
    """The table's headings; what needs the union of the records only where it is known."""
    heads = ["owner", "records", "epsilon", "responses", "noise scale"]
    return heads + (["alone", "together", "gains"] if "relative_fitness" in summary else [])


def rows(summary: Mapping[str, Any]) -> list[list[str]]:
    """The table's cells, one row for each owner."""
    return [_row(owner, summary) for owner in summary["owners"]]


def _row(owner: Mapping[str, Any], summary: Mapping[str, Any]) -> list[str]:
    cells = [
        owner["name"],
        f"{owner['records']:,}",
        epsilon_text(owner["epsilon"]),
        f"{owner['responses']:,}",
        "-" if owner_is_left_out(owner) else f"{owner['noise_scale']:.3g}",
    ]
    if "relative_fitness" in summary:
        cells += [
            f"{owner['relative_fitness_alone']:.3g}",
            f"{summary['relative_fitness']:.3g}",
            "yes" if owner["gains"] else "no",
        ]
    return cells


def owners_table(summary: Mapping[str, Any]) -> Table:
    """The table for a terminal."""
    table = Table(
        title=f"{summary['study']}: {summary['algorithm']}, T = {summary['horizon']:,}",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for index, head in enumerate(columns(summary)):
        table.add_column(head, justify="left" if index == 0 else "right", no_wrap=True)
    for row in rows(summary):
        table.add_row(*row)
    return table


def sentences(summary: Mapping[str, Any]) -> list[str]:
    """What the numbers say, in sentences."""
    told = [
        f"{summary['ticks']:,} communications in {summary['wall_seconds']:.2f} s.",
        *choice_sentences(summary),
    ]
    idle = [owner["name"] for owner in summary["owners"] if owner_is_left_out(owner)]
    if idle:
        told.append(
            f"The clocks never drew {', '.join(idle)}, which therefore promised and spent nothing."
        )
    if "relative_fitness" in summary:
        told.append(_who_gains(summary))
    if "own" in summary:
        told.append(_own(summary["own"]))
    if summary["insecure_noise"]:
        told.append("INSECURE: the noise came from a seed and protected nobody.")
    return told


def epsilon_text(text: str) -> str:
    """A budget for people; the learner's own shard has none."""
    return "own" if text == "inf" else f"{float(Fraction(text)):g}"


def _own(name: str) -> str:
    return (
        f"UNPROTECTED: the model is made from the raw records of {name}, which were asked without "
        f"noise; it must not leave {name} unless something else protects it, and the queries "
        "showed the other owners models made from these records."
    )


def owner_is_left_out(owner: Mapping[str, Any]) -> bool:
    """Whether the schedule has no tick for an owner."""
    return bool(owner["responses"] + owner["responses_left"] == 0)


def choice_sentences(facts: Mapping[str, Any]) -> list[str]:
    """What was chosen for the study, and by what forecast."""
    step = facts["step"]
    parts = [f"T = {facts['horizon']:,}"] if facts["horizon_chosen"] == "auto" else []
    if facts["clip_chosen"] == "auto":
        parts.append(f"clip = {facts['clip']:.4g}")
    chosen = (name for name in PARAMETERS if facts.get(f"{name}_chosen") == "auto")
    parts += [f"{name} = {facts[name]:.4g}" for name in chosen]
    if step["chosen"] == "auto":
        parts += [f"{name} = {step[name]:.4g}" for name in ("rho", "initial_step") if name in step]
    if not parts:
        return []
    forecast = step.get("forecast_relative_fitness")
    told = "" if forecast is None else f"; forecast relative fitness {forecast:.3g}"
    return [f"Chosen from the public records: {', '.join(parts)}{told}."]


def _who_gains(summary: Mapping[str, Any]) -> str:
    gaining = [owner["name"] for owner in summary["owners"] if owner["gains"]]
    reached = (
        f"Relative fitness together {summary['relative_fitness']:.3g}, "
        f"without noise {summary['relative_fitness_noiseless']:.3g}"
    )
    if "own" in summary:
        verb = "gains" if gaining else "does not gain"
        return f"{reached}: {summary['own']}, which alone has the model, {verb}."
    if not gaining:
        return f"{reached}: at this epsilon nobody gains from taking part."
    if len(gaining) == len(summary["owners"]):
        return f"{reached}: every owner gains from taking part."
    verb = "gains" if len(gaining) == 1 else "gain"
    return f"{reached}: {', '.join(gaining)} {verb} from taking part, the others do not."


def write_report(folder: Path, summary: Mapping[str, Any]) -> Path:
    """One self-contained page with the table and the pictures of the run folder."""
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
    title = escape(f"{summary['study']}: {summary['algorithm']}, T = {summary['horizon']:,}")
    path = folder / "report.html"
    path.write_text(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><h1>{title}</h1>{paragraphs}"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{pictures}"
        "</body></html>\n",
        encoding="utf-8",
    )
    return path


def _picture(path: Path, title: str) -> str:
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return f'<img alt="{html.escape(title)}" src="data:image/png;base64,{data}">'
