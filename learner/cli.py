"""The command ``copriv``, for people who run a study."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from common.command import (
    ANEW,
    SAME,
    Commands,
    console,
    log_format_option,
    out_file,
    out_folder,
    run_command,
    stoppable,
)
from common.errors import InputError
from common.files import refuse_to_replace, write_or_refuse
from common.logs import start_logging
from common.texts import counted
from common.typed_paths import A_FILE, A_FOLDER, A_TABLE, ANY_PATH
from learner.commands.init_command import init, settings
from learner.commands.model_commands import evaluate, export, predict, report
from learner.commands.options import (
    cluster_option,
    data_option,
    days_option,
    jobs_option,
    load_study,
    overrides_option,
    simulation_options,
    study_argument,
    study_options,
    table_options,
    yes_option,
)
from learner.commands.sites import admit, check, close, doctor, invite
from learner.commands.sweep_command import sweep
from learner.network.warm_parent import warm_parent


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="copriv")
@log_format_option
def cli(log_format: str) -> None:
    """Train one model on records that several owners keep to themselves.

    Example: copriv simulate examples/hospitals.toml
    """
    start_logging(log_format)


@cli.command()
@study_argument
@study_options
@simulation_options
@click.option(
    "--each-learns",
    is_flag=True,
    help="One study for each owner, in which it is the learner and the others answer it.",
)
@yes_option
def simulate(
    *,
    study: Path,
    overrides: tuple[str, ...],
    data: Path | None,
    out: Path | None,
    each_learns: bool,
    in_memory: bool,
    noiseless: bool,
    yes: bool,
    **flags: Any,
) -> None:
    """Start every owner of STUDY.toml here, train, and evaluate.

    Owners are processes of their own behind real sockets. Because all records are on this machine,
    the result is compared with the best model of their union: for experiments, not for secrets.

    Example: copriv simulate examples/hospitals.toml --set privacy.epsilon=1
    """
    if each_learns and in_memory:
        raise InputError("--each-learns: its owners keep one ledger for all; leave out --in-memory")
    if in_memory and flags["allow_private_bounds"]:
        raise InputError(
            "--allow-private-bounds: owners in memory serve any feature map; leave it out"
        )
    with ExitStack() as stack:
        # It imports what owners need while this process imports what it needs.
        parent = None if in_memory else stack.enter_context(warm_parent())
        loaded = load_study(study, overrides, data, yes=yes)
        if in_memory and loaded.algorithm.initiative == "owner":
            raise InputError(
                '--in-memory: with algorithm.initiative = "owner" owners come over sockets; leave '
                "out --in-memory, or set another initiative"
            )
        from learner.commands.each_learns import run_each_learns  # noqa: PLC0415 (keeps --help quick)
        from learner.commands.study import run_simulation  # noqa: PLC0415 (as above)
        from learner.network.processes import Hosting  # noqa: PLC0415 (as above)

        folder = (run_each_learns if each_learns else run_simulation)(
            loaded,
            Hosting(parent=parent, **flags),
            base=study.parent,
            out=out,
            console=console(width=120),
            noiseless=noiseless,
        )
    click.echo(f"run folder: {folder}")


@cli.command()
@click.argument("study", metavar="[STUDY.toml]", type=ANY_PATH, required=False)
@study_options
@click.option(
    "--resume",
    type=A_FOLDER,
    metavar="RUN",
    help="Continue the run in this folder; with STUDY.toml, begin it there if it holds none.",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="INSECURE: plain text to owners on other machines, which others can read and change.",
)
@yes_option
def train(
    *,
    study: Path | None,
    overrides: tuple[str, ...],
    data: Path | None,
    out: Path | None,
    resume: Path | None,
    insecure: bool,
    yes: bool,
) -> None:
    """Train with the owners of STUDY.toml, which serve elsewhere.

    A run that was killed, or that gave up with exit status 4 because all owners were away,
    continues with --resume: nobody is charged twice. Owners that are away miss their turns.

    Example: copriv train study.toml --out runs/spring
    """
    if study is None and (resume is None or overrides or data):
        raise InputError("train: give STUDY.toml, or --resume RUN without --set and --data")
    if resume is not None and out is not None:
        raise InputError("train: give either --resume RUN or --out FOLDER")
    # What a run is begun in goes on, also where Ctrl-C comes before anything was read there.
    begun = resume is not None and (resume / "study.toml").is_file()
    with stoppable(lambda: f"stopped; {SAME if begun else ANEW}"):
        from learner.commands.study import run_training  # noqa: PLC0415 (keeps --help quick)

        folder = run_training(
            None if study is None else load_study(study, overrides, data, yes=yes),
            base=Path() if study is None else study.parent,
            out=out,
            resume=resume,
            insecure=insecure,
            yes=yes,
            console=console(width=120),
        )
    click.echo(f"run folder: {folder}")


@cli.command()
@study_argument
@study_options
@click.option(
    "--public",
    type=A_TABLE,
    metavar="TABLE",
    help="A table of public records, all of its rows, in place of features.public.",
)
@click.option(
    "--compare",
    default=("ticks,ticks from zero,moments,newton,published",),
    show_default=True,
    multiple=True,
    metavar="NAMES",
    help="Ways of learning to compare, also synchronous-1 and synchronous-2; an empty text for "
    "none; may be repeated.",
)
@click.option(
    "--quick",
    is_flag=True,
    help="Only the verdict, without the smallest epsilon, records and number of owners at which it "
    "pays, and without the best T, the number of communications.",
)
@jobs_option
@cluster_option
def forecast(  # noqa: PLR0917 (one for each option)
    study: Path,
    overrides: tuple[str, ...],
    data: Path | None,
    out: Path | None,
    public: Path | None,
    compare: tuple[str, ...],
    quick: bool,
    jobs: int,
    cluster: str | None,
) -> None:
    """Forecast from public records how good STUDY.toml would be.

    Asks no owner and spends nothing. Leaves forecast.html, forecast.json, the points of the
    sweep and, where matplotlib is installed, forecast.png; the same --out continues a forecast
    that was stopped.

    Example: copriv forecast examples/hospitals.toml --quick
    """
    from learner.commands.forecast import (  # noqa: PLC0415 (keeps --help quick)
        candidate_of,
        run_forecast,
    )
    from learner.simulated.sweeps import Workers  # noqa: PLC0415 (as above)

    folder = run_forecast(
        candidate_of(load_study(study, overrides, data), base=study.parent, public=public),
        out=out,
        compare=[name.strip() for name in ",".join(compare).split(",") if name.strip()],
        curves=not quick,
        workers=Workers(jobs=jobs, cluster=cluster),
        console=console(width=120),
    )
    click.echo(f"forecast folder: {folder}")


@cli.command()
@click.argument("study", metavar="[STUDY.toml]", type=ANY_PATH, required=False)
@click.option(
    "--owner",
    "owners",
    multiple=True,
    metavar="NAME[=HOST,...]",
    help="An owner and the DNS names and IP addresses it is reached under; may be repeated.",
)
@click.option(
    "--learner",
    "learners",
    multiple=True,
    metavar="NAME[=HOST,...]",
    help="A learner, with hosts if owners come to it (copriv-owner attach); may be repeated.",
)
@out_folder("Where the folders of the CA and all parties are.", default=Path("certs"))
@days_option
@click.option("--renew", is_flag=True, help="Replace all certificates, with the same CA.")
def certs(
    *,
    study: Path | None,
    owners: tuple[str, ...],
    learners: tuple[str, ...],
    out: Path,
    days: int,
    renew: bool,
) -> None:
    """Make a study's CA, and a certificate for each party.

    The owners of STUDY.toml need no --owner. Certificates that are valid for 30 more days are
    kept, so the command may run every day. Give each party its own folder, and nobody the folder
    ca.

    Example: copriv certs --owner mount-sinai=ehr.example,10.0.0.7 --learner learner --out certs
    """
    from learner.commands.certs import run_certs  # noqa: PLC0415 (keeps --help quick)

    settings = None if study is None else load_study(study, (), None)
    run_certs(
        settings,
        owners=owners,
        learners=learners or ("learner",),
        out=out,
        days=days,
        renew=renew,
        console=console(width=120),
    )


@cli.command()
@click.argument("figures", metavar="all|A2|...|S11", nargs=-1, required=True)
@click.option(
    "--data",
    type=A_FOLDER,
    metavar="FOLDER",
    help="A folder with lending/, sparcs/ and creditcard/, for tables that are not given.",
)
@table_options
@out_folder("Where the figures and their numbers go.", default=Path("runs/figures"))
@click.option(
    "--document",
    type=A_FILE,
    metavar="FILE",
    help="Write the findings into this document, between its markers for figures; its rows of "
    "other figures stay.",
)
@cluster_option
def reproduce(
    figures: tuple[str, ...],
    data: Path | None,
    out: Path,
    document: Path | None,
    cluster: str | None,
    **tables: Path | None,
) -> None:
    """Make the figures of both papers on real records.

    A2 to A11 are of the paper of 2021, S2 to S11 of that of 2020. The records do not come with
    copriv: bring the public tables that the figures need. Each figure leaves an SVG and its
    numbers as Parquet. Owners are as large as the tables allow.

    Example: copriv reproduce A4 S6 --loans loans.csv
    """
    from learner.reproduction.reproduce import run_reproduction  # noqa: PLC0415

    run_reproduction(
        figures,
        data=data,
        tables=tables,
        out=out,
        document=document,
        console=console(width=120),
        cluster=cluster,
    )
    click.echo(f"figures: {out}")


@cli.group()
def features() -> None:
    """The feature map: from raw tables to bounded records."""


@features.command("fit")
@study_argument
@overrides_option
@data_option
@out_file("Where the feature map goes.", default=Path("features.json"))
def features_fit(study: Path, overrides: tuple[str, ...], data: Path | None, out: Path) -> None:
    """Fit the feature map of STUDY.toml on its public records.

    It is saved as JSON, for the owners to apply.

    Example: copriv features fit examples/hospitals.toml --out features.json
    """
    from common.features import file_text  # noqa: PLC0415 (keeps --help quick)
    from learner.planning.public_side import prepare_public_side  # noqa: PLC0415 (as above)

    refuse_to_replace(out, mark=b'"copriv-feature-map"', what="feature map")
    feature_map = prepare_public_side(
        load_study(study, overrides, data), base=study.parent
    ).feature_map
    write_or_refuse(out, file_text(feature_map), cure="give another path with --out")
    click.echo(
        f"{out}: {counted(feature_map.num_features, 'feature')} from "
        f"{counted(len(feature_map.columns), 'column')} of "
        f"{counted(feature_map.num_public_records, 'public record')}, digest "
        f"{feature_map.digest[:16]}"
    )


for command in (
    init,
    settings,
    invite,
    admit,
    check,
    doctor,
    close,
    predict,
    evaluate,
    export,
    report,
    sweep,
):
    cli.add_command(command)


def main() -> None:
    """Run the command."""
    # Many small products: threads of the linear algebra would wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    run_command(cli, "copriv")


if __name__ == "__main__":
    main()
