"""The command ``copriv sweep``, as it is typed."""

from __future__ import annotations

from pathlib import Path

import click

from common.command import console
from learner.commands.options import cluster_option, jobs_option, study_argument, study_options


@click.command()
@study_argument
@study_options
@click.option(
    "--grid",
    multiple=True,
    metavar="KEY=V,V,...",
    help="Values of one setting, such as privacy.epsilon=0.1,1,10; commas separate them, and "
    "numbers have a decimal point. May be repeated; every combination is a point. owners=3,10 runs "
    "the study with its first 3 owners and with its first 10. A value may be a whole table, where "
    'keys go together: \'model={loss="squared", theta_max=1},{loss="huber", delta="auto", '
    "theta_max=1}'.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 999_999),
    default=20,
    show_default=True,
    metavar="NUMBER",
    help="Runs at each point, at the seeds 1, 2, 3, ...",
)
@jobs_option
@cluster_option
def sweep(
    *,
    study: Path,
    overrides: tuple[str, ...],
    data: Path | None,
    out: Path | None,
    grid: tuple[str, ...],
    seeds: int,
    jobs: int,
    cluster: str | None,
) -> None:
    """Run STUDY.toml in memory over a grid of settings and seeds.

    For experiments on records that are all here: no owner is started and no budget charged. The
    run of seed 7 is that of `copriv simulate --set seed=7 --insecure-noise-seed 7000000`, where
    what the study leaves open is chosen once for each point. Leaves sweep.parquet, one row for
    each run, and sweep.html. The same --out continues a sweep that was stopped.

    Example: copriv sweep examples/hospitals.toml --grid privacy.epsilon=1,10 --seeds 50
    """
    from learner.commands.sweep import run_study_sweep  # noqa: PLC0415 (keeps --help quick)
    from learner.planning.grid import experiment_of, parse_grid  # noqa: PLC0415 (as above)
    from learner.simulated.sweeps import Workers  # noqa: PLC0415 (as above)

    folder = run_study_sweep(
        experiment_of(study, parse_grid(grid), seeds=seeds, overrides=overrides, data=data),
        out=out,
        workers=Workers(jobs=jobs, cluster=cluster),
        console=console(width=120),
    )
    click.echo(f"sweep folder: {folder}")
