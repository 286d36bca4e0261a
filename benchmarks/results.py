r"""The tables of docs/results.md: what each way of training reaches on real records.

    .venv/bin/python benchmarks/results.py DATA --out docs/results.md

DATA is a folder with the files named in ``families.FILES``. Two sections of the document are
written anew: ``families``, every way of training beside what is free and beside a trusted centre,
and ``comparison``, the papers' algorithms and the way from them to the recommended profile. With
``--parts`` only these; with ``--families`` or ``--rows`` some of the families' tables are printed
instead. Every number is a mean over seeds with its 95 % interval. A seed fixes the clocks and the
noise; runs are simulated with ``learner.simulated``, whose tests hold it to the loop that trains
over the network, and what a study leaves open is decided by ``learner.planning.deciding`` from the
public records, as ``copriv simulate`` does.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import centre
import tables
import texts
from families import FAMILIES
from record_cases import Case, papers_cards, papers_hospitals, papers_loans
from tables import Measured, Row, Run
from ways import (
    ASYNCHRONOUS,
    HORIZONS,
    ROUNDS,
    Changes,
    alone,
    best_of_grid,
    public_model,
    study,
)

from learner.reproduction.documents import replace_section

EPSILONS = (0.1, 1.0, 10.0)
PAPERS_EPSILONS = (*EPSILONS, 100.0)
LADDER_EPSILONS = (1.0, 10.0)
PARTS = ("families", "comparison")
# The families of the papers' own records.
WITH_GRID = ("hospitals", "loans")


class Known(NamedTuple):
    """A way that copriv has: what it is in a study's settings, and in words."""

    changes: Changes
    label: str
    words: str


WAYS: Mapping[str, Known] = {
    "asynchronous": Known(
        {"algorithm": ASYNCHRONOUS},
        "asynchronous",
        '*asynchronous* is `algorithm.name = "asynchronous"` of the recommended profile, from 0.',
    ),
    "moments": Known(
        {"algorithm": {"name": "moments", "start": "zero"}},
        "moments",
        '*moments* is `algorithm.name = "moments"`; squared loss only.',
    ),
    "newton": Known(
        {"algorithm": {"name": "newton"}},
        "newton",
        '*newton* is `algorithm.name = "newton"`: steps by noisy gradients and curvatures, begun '
        "at theta_0 shrunk by a ridge.",
    ),
    "auto": Known(
        {"algorithm": {"name": "auto"}},
        "**auto**",
        "*auto* is what the recommended profile does where a study names no algorithm: the way "
        "with the best forecast.",
    ),
}
"""A row each; what the settings refuse is left out."""

PAPERS: Mapping[str, Any] = {"l1_coverage": 1.0}
WHITENED: Mapping[str, Any] = {**PAPERS, "category_order": "name", "whiten": True}
LAST: Mapping[str, Any] = {**ASYNCHRONOUS, "average": "last"}
# One change after the other, from the papers' choices to the recommended ones.
LADDER: Mapping[str, Changes] = {
    "T and step from public records": {
        "algorithm": LAST,
        "privacy": {"sensitivity": "domain", "split": "horizon"},
    },
    "and clip": {"algorithm": LAST, "privacy": {"split": "horizon"}},
    "and schedule": {"algorithm": {**LAST, "correction": "none"}},
    "and clocks by the records, counted": {"algorithm": LAST},
}


def family_rows(diffprivlib: Path | None) -> dict[str, Row]:
    """The rows of a family's table."""
    return {
        "public": Row("public records alone", public_model, repeats=False),
        "alone": Row("an owner alone", alone, repeats=False),
        "published": Row("published, best of the grid", best_of_grid("published")),
        **{name: Row(known.label, study(known.changes)) for name, known in WAYS.items()},
        "centre-statistics": Row("trusted centre: noisy statistics", centre.statistics),
        "centre-descent": Row("trusted centre: noisy gradient descent", centre.descent),
        "centre-diffprivlib": Row("trusted centre: diffprivlib", centre.diffprivlib(diffprivlib)),
    }


def family_part(asked: argparse.Namespace, tell: Callable[[Sequence[str]], None]) -> None:
    """The families' tables and their summary, introduced when it is known what there is to say."""
    run = Run(asked.seeds, asked.jobs)
    rows = {name: row for name, row in family_rows(asked.diffprivlib).items() if name in asked.rows}
    all_measured: dict[str, Measured] = {}
    sections: list[str] = []
    for name in asked.families:
        case = FAMILIES[name](asked.data)
        own = {key: row for key, row in rows.items() if key != "published" or name in WITH_GRID}
        measured = all_measured[name] = tables.measure(case, own, EPSILONS, run)
        sections += tables.section(case, own, measured, EPSILONS, gaining=tuple(WAYS))
        summed = [texts.SUMMARY, "", *tables.summary(all_measured, tuple(WAYS), EPSILONS)]
        tell([_introduction(asked, all_measured), *summed, *sections])


def _introduction(asked: argparse.Namespace, measured: Mapping[str, Measured]) -> str:
    """What the families and rows are, of those that there are."""
    there = {row for family in measured.values() for row, _ in family}
    words = [f"- {known.words}" for name, known in WAYS.items() if name in there]
    named = [f"- {' '.join((FAMILIES[name].__doc__ or '').split())}" for name in measured]
    return texts.FAMILIES.format(
        seeds=asked.seeds,
        horizons=", ".join(map(str, HORIZONS)),
        families="\n".join(named),
        ways="\n".join(words),
        diffprivlib="" if "centre-diffprivlib" in there else texts.WITHOUT_DIFFPRIVLIB,
    )


def papers_rows() -> dict[str, Row]:
    """The rows of a table with the papers' algorithms."""
    grids = {
        kind: Row(f"{kind}, best of the grid", best_of_grid(kind))
        for kind in ("published", "synchronous-1", "synchronous-2")
    }
    ours = {name: Row(name, study(WAYS[name].changes)) for name in ("asynchronous", "moments")}
    return {"public": Row("public records alone", public_model, repeats=False), **grids, **ours}


def compare(case: Case, run: Run) -> tuple[Measured, list[str]]:
    """The papers' algorithms on a case, and how it reads."""
    rows = papers_rows()
    measured = tables.measure(case, rows, PAPERS_EPSILONS, run)
    lines = tables.section(
        case, rows, measured, PAPERS_EPSILONS, gaining=("published", "asynchronous")
    )
    times = [
        tables.ratio(measured["published", e], measured["asynchronous", e]) for e in PAPERS_EPSILONS
    ]
    return measured, [*lines[:-1], f"| published / asynchronous | {' | '.join(times)} |", ""]


def ladder(papers: Measured, default: Measured, case: Case, run: Run) -> list[str]:
    """From the papers' choices to the recommended ones, one change after the other."""
    steps = {name: Row(name, study(changes)) for name, changes in LADDER.items()}
    measured = tables.measure(case, steps, LADDER_EPSILONS, run)

    def row(label: str, found: Measured, name: str) -> list[str]:
        return [label, *(tables.interval(found[name, e].psi) for e in LADDER_EPSILONS)]

    rows = [
        row("published, best of the grid in hindsight", papers, "published"),
        row("and bound: a public L1 radius", default, "published"),
        *(row(name, measured, name) for name in LADDER),
        row("and tail average = asynchronous", default, "asynchronous"),
    ]
    return tables.markdown(tables.by_epsilon(LADDER_EPSILONS), rows)


def card_table(data: Path, run: Run) -> list[str]:
    """Hinge loss: relative fitness by epsilon and n_i at T = 100."""
    fixed = {"T = 100": Row("", study({"algorithm": {**ASYNCHRONOUS, "horizon": 100}}))}
    rows = []
    for size in (1000, 2000, 6000):
        found = tables.measure(papers_cards(data, size), fixed, PAPERS_EPSILONS, run)
        cells = [tables.interval(found["T = 100", e].psi) for e in PAPERS_EPSILONS]
        rows.append([f"n_i = {size:,}", *cells])
    return tables.markdown(tables.by_epsilon(PAPERS_EPSILONS), rows)


def papers_part(asked: argparse.Namespace, tell: Callable[[Sequence[str]], None]) -> None:
    """The papers' algorithms on loans and hospitals under three maps, and on credit cards."""
    run, data = Run(asked.seeds, asked.jobs), asked.data
    text = [texts.PAPERS.format(seeds=asked.seeds, rounds=", ".join(map(str, ROUNDS)))]
    for name, cut in (("Loans", papers_loans), ("Hospitals", papers_hospitals)):
        papers, lines = compare(cut(data, f"{name}, the papers' bound", **PAPERS), run)
        case = cut(data, f"{name}, default map")
        default, more = compare(case, run)
        steps = ladder(papers, default, case, run)
        text += [*lines, *more, f"### {name}, one change after the other", "", *steps]
        text += compare(cut(data, f"{name}, whitened", **WHITENED), run)[1]
        tell(text)
    tell([*text, "### Credit cards, hinge loss, T = 100", "", texts.CARDS, *card_table(data, run)])


def arguments() -> argparse.Namespace:
    """What is typed."""
    parser = argparse.ArgumentParser(description=__doc__)
    rows = tuple(family_rows(None))
    parser.add_argument("data", type=Path, help="the folder of the record files")
    parser.add_argument("--out", type=Path, default=Path("docs/results.md"))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--families", nargs="+", choices=tuple(FAMILIES), default=tuple(FAMILIES))
    parser.add_argument("--rows", nargs="+", choices=rows, default=rows)
    parser.add_argument("--diffprivlib", type=Path, help="an interpreter that has diffprivlib")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    began = time.monotonic()
    is_whole = len(asked.families) == len(FAMILIES) and len(asked.rows) == len(family_rows(None))
    for part, work in (("families", family_part), ("comparison", papers_part)):
        if part not in asked.parts or (part == "comparison" and not is_whole):
            continue
        told: dict[str, str] = {}

        def tell(lines: Sequence[str], part: str = part, told: dict[str, str] = told) -> None:
            """Written as it comes: the whole takes a while."""
            told[part] = "\n".join(lines)
            if is_whole:
                replace_section(asked.out, part, told[part])

        work(asked, tell)
        if not is_whole:
            print(told[part])
        print(f"{part}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
