"""The commands by which an owner takes part in a study of several sites, as they are typed."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from common.command import as_listed, checked_option, console, out_folder
from common.config import parse_epsilon
from common.errors import DoubtWarning
from common.texts import counted, printable
from common.typed_paths import A_FILE, A_TABLE, ANY_PATH
from common.typed_tables import reading_options, typed_place

if TYPE_CHECKING:
    from common.column_fit import ColumnSeen
    from common.joining import Invited
    from owner.checking import DryRun
    from owner.joining import Joining
    from owner.policy import OwnerSettings

accept_option = click.option(
    "--accept",
    "accepted",
    multiple=True,
    metavar="COLUMN",
    help="A column that does not look like the public one and is right; may be repeated.",
)


private_bounds_option = click.option(
    "--allow-private-bounds",
    is_flag=True,
    help="Take a feature map fitted on private records: only where those records are public.",
)
# A folder is refused where settings are read, which names the file to give.
settings_argument = click.argument("settings", metavar="OWNER.toml", type=ANY_PATH)

declare_option = click.option(
    "--declare",
    "declares",
    is_flag=True,
    help="Let learners know that you have looked at the columns, not what you saw.",
)


# The options for a study that no file describes.
study_numbers = as_listed(
    click.option(
        "--loss",
        metavar="NAME",
        help="The study's loss: squared, hinge, logistic or huber; by default one for the "
        "feature map's target.",
    ),
    click.option(
        "--delta",
        type=float,
        metavar="NUMBER",
        help="The error at which huber loss turns from squared to absolute.",
    ),
    click.option(
        "--theta-max",
        type=float,
        metavar="NUMBER",
        help="The largest absolute value of a coefficient; the default is 1.",
    ),
    click.option(
        "--responses", type=int, metavar="M", help="Responses promised; the default is 1000."
    ),
    click.option(
        "--epsilon",
        metavar="NUMBER",
        help="The study's budget; the default is all that the policy allows.",
    ),
    click.option(
        "--clip",
        type=float,
        metavar="NUMBER",
        help="The largest L1 norm of one record's gradient; longer ones are scaled down to it.",
    ),
    click.option(
        "--kappa",
        type=int,
        metavar="K",
        help="The most owners with the same record, or rows of a person; else the policy's.",
    ),
    click.option(
        "--curvature-share",
        type=float,
        metavar="NUMBER",
        help="Share of epsilon that a newton study spends on curvatures; the default is 0.3.",
    ),
)


@click.command()
@settings_argument
@click.option(
    "--study",
    type=ANY_PATH,
    metavar="STUDY.toml",
    help="Take loss, theta-max, responses, epsilon, clip and kappa from a study's file.",
)
@study_numbers
@click.option(
    "--features",
    type=A_FILE,
    metavar="FILE",
    help="A feature map, where the settings name none.",
)
@click.option(
    "--public",
    type=A_TABLE,
    metavar="TABLE",
    help="Public records, to measure a typical gradient on.",
)
@private_bounds_option
@accept_option
@declare_option
def check(
    *,
    settings: Path,
    study: Path | None,
    features: Path | None,
    public: Path | None,
    allow_private_bounds: bool,
    accepted: tuple[str, ...],
    declares: bool,
    **options: Any,
) -> None:
    """Show what OWNER.toml would promise, and with how much noise.

    Nothing is spent. Reads settings, certificate, records, feature map and ledger as serve does,
    and shows each column beside the map, here only: cells without a value, beyond the bounds or
    of unknown categories, and how far the mean is from the public one. Exit status 2: something
    cannot be used, or a column does not fit. 3: the policy or the budget would refuse the study.

    Example: copriv-owner check mount-sinai.toml --study hospitals.toml
    """
    # Here, because loading tables and feature maps would make --help slow.
    from common.config import load_settings  # noqa: PLC0415
    from owner.checking import dry_run  # noqa: PLC0415
    from owner.policy import OwnerSettings  # noqa: PLC0415
    from owner.trial_study import read_trial_study  # noqa: PLC0415

    loaded, base = load_settings(OwnerSettings, settings), settings.parent
    found = dry_run(
        loaded,
        base=base,
        trial=read_trial_study(study, owner=loaded.name, options=options),
        features=features,
        public=public,
        allow_private_bounds=allow_private_bounds,
    )
    show_site(found, loaded, base=base, accepted=accepted, declares=declares)


@click.command()
@settings_argument
@accept_option
@private_bounds_option
def doctor(settings: Path, *, accepted: tuple[str, ...], allow_private_bounds: bool) -> None:
    """Check that this machine is ready for OWNER.toml.

    No other site needs to be running, and nothing is written. A table of rules: versions,
    settings, certificate and its days, key and tokens, ports, clock, proxies, the ledger and its
    disk, memory, feature map and records. Each passes, fails with a reason and what to do, or is
    not checked. Exit status 2: something fails. copriv-owner check shows what a study would be
    promised.

    Example: copriv-owner doctor mount-sinai.toml
    """
    # Here, because loading tables and feature maps would make --help slow.
    from common.findings import show  # noqa: PLC0415
    from owner.doctor import Allowed, owner_findings  # noqa: PLC0415

    allowed = Allowed(accepted=accepted, private_bounds=allow_private_bounds)
    show(tuple(owner_findings(settings, allowed)))


def _mapping_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that put a table into the study's words."""
    for name, what, words in (
        ("spelling", "COLUMN:OWN=STUDY", "The study's spelling of a category of this table."),
        (
            "unit",
            "COLUMN=NUMBER",
            "What this table's numbers are multiplied by to be in the study's unit (degrees "
            "Fahrenheit need more than that: convert them in the table).",
        ),
        ("rename", "STUDY=OWN", "This table's name for one of the study's columns."),
    ):
        told = f"{words[:-1]}; may be repeated."
        command = click.option(f"--{name}", multiple=True, metavar=what, help=told)(command)
    return command


@click.command()
@click.argument("file", metavar="INVITATION", type=A_FILE)
@click.option(
    "--data",
    required=True,
    metavar="TABLE",
    help="The records: anything that data.path may name, or env:NAME or file:PATH of a PostgreSQL "
    "address with --query.",
)
@out_folder("Where settings, key and ledger go.", default=Path())
@_mapping_options
@click.option(
    "--epsilon-lifetime",
    metavar="NUMBER",
    help="The most that the records ever spend; the default is what this study asks.",
)
@accept_option
@private_bounds_option
@declare_option
@reading_options
def join(
    file: Path,
    *,
    data: str,
    out: Path,
    epsilon_lifetime: str | None,
    accepted: tuple[str, ...],
    allow_private_bounds: bool,
    declares: bool,
    **words: Any,
) -> None:
    """Join the study of an invitation.

    Makes settings, a key, and a request to send back. Shows what is asked and how each column fits,
    here only, and writes nothing if one does not: map it with --rename, --unit and --spelling, or
    pass one that is right with --accept. The request and, later, the certificate are beside
    INVITATION; the key never leaves FOLDER. Tell the learner the fingerprint by telephone.

    Example: copriv-owner join bank.invitation --data loans.csv --rename income=pay
    """
    from common.joining import read_invitation  # noqa: PLC0415
    from owner.joining import Joining  # noqa: PLC0415
    from owner.translation import parse_pairs, parse_spellings  # noqa: PLC0415

    joining = Joining(
        table=typed_place(data, words),
        folder=out,
        beside=file.parent,
        epsilon_lifetime=None
        if epsilon_lifetime is None
        else checked_option("--epsilon-lifetime", epsilon_lifetime, parse_epsilon),
        rename=parse_pairs("--rename", words["rename"]),
        units={
            name: float(checked_option("--unit", factor, parse_epsilon))
            for name, factor in parse_pairs("--unit", words["unit"]).items()
        },
        spellings=parse_spellings(words["spelling"]),
        allow_private_bounds=allow_private_bounds,
    )
    _join(read_invitation(file), joining, accepted=accepted, declares=declares)


def _join(invited: Invited, joining: Joining, *, accepted: Collection[str], declares: bool) -> None:
    """Show what is asked and what was found; write everything if it fits."""
    from common.config import load_settings  # noqa: PLC0415
    from owner.column_report import refuse_faults  # noqa: PLC0415
    from owner.declaring import declare  # noqa: PLC0415
    from owner.joining import asked_in_words, look, marks  # noqa: PLC0415
    from owner.joining_files import write_all  # noqa: PLC0415
    from owner.policy import OwnerSettings  # noqa: PLC0415

    for line in asked_in_words(invited):
        click.echo(line)
    count, empty_rows, seen = look(invited, joining)
    _show_columns(seen, empty_rows)
    for line in marks(invited, joining):
        click.echo(f"note: {printable(line)}")
    _warn_of(refuse_faults(seen, accepted=accepted))
    settings, fingerprint = write_all(invited, joining)
    if declares:
        owner = load_settings(OwnerSettings, settings)
        declare(owner, invited.feature_map.digest, base=joining.folder)
    asked = invited.invitation
    click.echo(
        f"{settings}: {counted(count, 'record')}; look it over, it is what learners may ask of them"
    )
    click.echo(
        "if these records have a ledger from another study, set ledger there to its path before "
        "you serve: a new one counts from 0, and the records would spend both budgets"
    )
    click.echo(f"{joining.beside / asked.owner}.request: send it to the learner")
    click.echo(f"fingerprint {fingerprint}: read it to the learner by telephone")
    click.echo(
        "when the learner sees the same, and the certificate is beside the request: "
        f"copriv-owner {asked.way} {shlex.quote(str(settings))}"
    )


def show_site(
    found: DryRun,
    settings: OwnerSettings,
    *,
    base: Path,
    accepted: Collection[str],
    declares: bool,
) -> None:
    """Print what the dry run found, columns and certificate included.

    Args:
      found: The dry run.
      settings: The owner's settings.
      base: The folder of their file.
      accepted: Columns that are right as they are.
      declares: Whether learners may know that the columns were looked at.

    Raises:
      InputError: A certificate or a column does not fit, or there is no map to look under.
      RefusedError: The owner would refuse the study; what was found is printed all the same.
    """
    # Here, because they would make --help slow.
    from common.errors import InputError  # noqa: PLC0415
    from owner.column_report import refuse_faults  # noqa: PLC0415
    from owner.declaring import declare  # noqa: PLC0415
    from owner.site_check import site_lines  # noqa: PLC0415

    if found.seen:
        _show_columns(found.seen, found.empty_rows, left_out=found.left_out)
    for line in (*site_lines(settings, base=base), *found.lines(settings)):
        click.echo(line)
    if found.refusal is not None:
        raise found.refusal
    if declares:
        if found.feature_map is None:
            raise InputError("--declare: there is no feature map to look under; give --features")
        path = declare(settings, found.feature_map.digest, base=base)
        click.echo(
            f"{path}: learners can see that you have looked at your columns under this map, "
            "not what you saw"
        )
    _warn_of(refuse_faults(found.seen, accepted=accepted))


def _show_columns(
    seen: Sequence[ColumnSeen], empty_rows: int, *, left_out: int | None = None
) -> None:
    """Print how each column fits, for the officer alone."""
    from owner.column_report import columns_table, notes_below  # noqa: PLC0415

    console(width=100).print(columns_table(seen))
    for note in notes_below(seen, empty_rows=empty_rows, left_out=left_out):
        click.echo(note)


def _warn_of(doubts: Sequence[str]) -> None:
    """Print what may be right and rarely is."""
    for sentence in doubts:
        warnings.warn(f"{sentence} (--accept passes it)", DoubtWarning, stacklevel=2)
