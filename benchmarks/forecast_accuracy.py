"""Forecast against measured on real records: python benchmarks/forecast_accuracy.py --data FOLDER

Draws studies, forecasts each from public records, measures it on the owners' own, and writes the
table between its markers in docs/results.md. Points are kept in --out and not computed twice.
"""

from __future__ import annotations

import os
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import click
import numpy as np
import pandas as pd
from accuracy import compare_case, draw_cases, groups_of, overall, summarise

from learner.reproduction.documents import markdown_table, replace_section
from learner.reproduction.public_data import Family, Files, hospital_family, loan_family
from learner.simulated.groups import ends_of
from learner.simulated.sweeps import Workers, run_sweep

RESULTS = Path(__file__).resolve().parents[1] / "docs/results.md"


@click.command()
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Folder of the files.")
@click.option("--studies", default=60, show_default=True, help="Studies of each family.")
@click.option("--seed", default=2026, show_default=True)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("runs/forecast-accuracy"),
)
@click.option("--jobs", default=-1, show_default=True)
@click.option(
    "--cluster",
    default=None,
    help="Address of a Dask scheduler whose workers have benchmarks/ on their PYTHONPATH.",
)
@click.option("--write/--no-write", default=True, help="Whether to write docs/results.md.")
def main(  # noqa: PLR0917 (one for each option)
    data: Path, studies: int, seed: int, out: Path, jobs: int, cluster: str | None, write: bool
) -> None:
    families = families_in(data)
    dated = families[-1]
    by_name = {family.name: family for family in families}
    cases = list(draw_cases(families, per_family=studies, rng=np.random.default_rng(seed)))
    points = {
        f"{case.family}-{index:03d}": (by_name[case.family], case)
        for index, case in enumerate(cases)
    }
    sweep = run_sweep(
        compare_case,
        points,
        folder=out,
        workers=Workers(jobs=jobs, cluster=cluster),
        fingerprint=lambda family, case: f"{family.feature_map.digest[:16]} {case}",
        on_done=lambda done: print(f"{done} of {len(points)} studies", flush=True),
    )
    for name, failure in sweep.failures.items():
        print(f"{name} failed: {failure.error}")
    rows = pd.concat([pd.DataFrame(result["rows"]) for result in sweep.results.values()])
    rows.to_parquet(out / "rows.parquet")
    table, names_owner = summarise(rows), rows["family"] == dated.name
    total = [
        f"Hospitals and loans: {overall(rows[~names_owner])}",
        f"Loans with the issue date among their features: {overall(rows[names_owner])} Owners are "
        "consecutive rows, so the date names them: they differ from each other, and from the "
        "public records, by more than any public record tells.",
    ]
    print(table.to_string(index=False))
    print(*total, sep="\n")
    drifts = {family.name: ends_of(groups_of(family)) for family in families}
    lines = [
        "## Forecast against measured",
        "",
        f"`python benchmarks/forecast_accuracy.py --data FOLDER --studies {studies} --seed {seed}`",
        "",
        f"{len(sweep.results)} studies of 2 to 11 owners, epsilon 0.1 to 100, equal and unequal. "
        "The error is |log10(predicted/measured)| of mean relative fitness; a verdict is *clear* "
        "outside a 20 % band around break-even.",
        "",
        markdown_table(table),
        "",
        "\n\n".join(total),
        "",
        "Drift of the public records, as `copriv forecast` tells it: "
        + ", ".join(
            f"{name} {value:.3f}{' (warned of)' if warned else ''}"
            for name, (value, warned) in drifts.items()
        )
        + ".",
    ]
    if write:
        replace_section(RESULTS, "forecast-accuracy", "\n".join(lines))


def families_in(data: Path) -> list[Family]:
    """Hospitals, loans, and loans with their issue date, from the files of a folder."""
    files = Files.in_folder(data)
    loans = [loan_family(files.path("loans"), dated=dated) for dated in (False, True)]
    return [hospital_family(files.path("hospitals")), *loans]


if __name__ == "__main__":
    main()
