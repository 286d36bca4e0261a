"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from common.command import as_listed, noise_seed_option, out_folder
from common.typed_paths import A_FILE, A_TABLE, ANY_PATH

if TYPE_CHECKING:
    from learner.planning.settings import StudySettings

# A folder is refused where settings are read, which names the file to give.
study_argument = click.argument("study", metavar="STUDY.toml", type=ANY_PATH)

overrides_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change one setting, such as privacy.epsilon=1; may be repeated.",
)

data_option = click.option(
    "--data",
    type=A_TABLE,
    metavar="TABLE",
    help="The table to use instead of data.path.",
)

# The options that every command about a study with a folder of results has.
study_options = as_listed(
    overrides_option,
    data_option,
    out_folder("Where the results go; the default is a new folder in runs/."),
)

# The options of a simulation alone.
simulation_options = as_listed(
    click.option(
        "--in-memory",
        is_flag=True,
        help="INSECURE: owners as parts of this process, for thousands of them: no sockets, no "
        "ledgers, seeded noise.",
    ),
    click.option(
        "--noiseless",
        is_flag=True,
        help="Also repeat the run without noise, however long it takes.",
    ),
    noise_seed_option,
    click.option(
        "--allow-private-bounds",
        is_flag=True,
        help="Let owners serve a feature map fitted on their records, where those are public "
        "anyway.",
    ),
)

yes_option = click.option(
    "--yes",
    is_flag=True,
    help="Go on even if the study is forecast to be no better than what is free (guard = false).",
)


def _some_jobs(_: click.Context, __: click.Parameter, value: int) -> int:
    """A number of processes, as joblib counts them: from below, -1 is one on each core."""
    if value == 0:
        raise click.BadParameter("0 processes compute nothing; give -1 for one on each core, or 1")
    return value


jobs_option = click.option(
    "--jobs",
    type=click.IntRange(max=1024),
    default=-1,
    callback=_some_jobs,
    help="Processes; -1, the default, uses all cores, -2 all but one, and so on.",
)

cluster_option = click.option(
    "--cluster",
    metavar="ADDRESS",
    help="Address of a Dask scheduler to compute on: one of your own, since it sees the records.",
)

days_option = click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=365,
    show_default=True,
    help="How long a new certificate is valid.",
)

# The public tables that the papers' figures need.
table_options = as_listed(
    click.option(
        "--loans", type=A_FILE, metavar="FILE", help="Lending Club's table of accepted loans."
    ),
    click.option(
        "--facilities",
        type=A_FILE,
        metavar="FILE",
        help="New York's hospital stays (SPARCS) with the column Facility Name.",
    ),
    click.option(
        "--cards", type=A_FILE, metavar="FILE", help="creditcard.csv of ULB and Worldline."
    ),
)


def load_study(
    study: Path, overrides: tuple[str, ...], data: Path | None, *, yes: bool = False
) -> StudySettings:
    """The study of a file, with what was typed in place of its settings.

    Args:
      study: The path of STUDY.toml.
      overrides: ``KEY=VALUE`` texts of ``--set``.
      data: The table of ``--data``, in place of ``data.path``.
      yes: Whether ``--yes`` was typed, which is ``guard = false``.

    Raises:
      InputError: The file cannot be read, or a setting is wrong.
    """
    from learner.planning import settings  # noqa: PLC0415 (keeps --help quick)

    return settings.load_study(study, overrides=(*overrides, *["guard=false"] * yes), data=data)
