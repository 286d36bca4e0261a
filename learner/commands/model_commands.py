"""The commands about finished runs: ``copriv predict``, ``evaluate``, ``export``, ``report``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from common.command import console, out_file
from common.errors import InputError
from common.texts import counted
from common.typed_paths import A_FOLDER, A_TABLE, ANY_PATH
from common.typed_tables import reading_options, typed_place

FORMS = ("onnx", "sklearn", "json", "sql")

run_argument = click.argument("run", metavar="RUN", type=ANY_PATH)
data_option = click.option(
    "--data",
    type=A_TABLE,
    required=True,
    metavar="TABLE",
    help="A raw table, CSV, Parquet, a folder of them or a database, with the columns that the "
    "model was trained on, in the study's names and units: those of an OWNER.toml are not applied.",
)
out_option = out_file("The file to write.", required=True)
public_option = click.option(
    "--public",
    is_flag=True,
    help="Take the model of the public records alone, which is free, not the common one.",
)


@click.command()
@run_argument
@data_option
@out_option
@public_option
@reading_options
def predict(run: Path, data: Path, out: Path, *, public: bool, **typed: Any) -> None:
    """Write TABLE with a column of predictions by the model of RUN.

    RUN is a run's folder or a model's file. The column prediction is in the target's own units;
    for classes it is 1 where the target is expected to be the positive value, which the command
    names, beside a column probability or score. The name of the file says whether it is CSV or
    Parquet.

    Example: copriv predict runs/spring --data stays.csv --out predicted.csv
    """
    from learner.commands.use import predict_table  # noqa: PLC0415 (keeps --help quick)

    count, meaning = predict_table(run, typed_place(str(data), typed), out, public=public)
    click.echo(f"{out}: {counted(count, 'record')}")
    if meaning:
        click.echo(f"prediction 1 means {meaning}")


@click.command()
@run_argument
@data_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@reading_options
def evaluate(run: Path, data: Path, *, as_json: bool, **typed: Any) -> None:
    """Say how good the model of RUN is on TABLE.

    TABLE has the target; errors are in the target's own units. Also shows the model of the public
    records alone, which is free, and what clamping to the public bounds costs by itself. Intervals
    are 95 %; a line below the table says how they are made.

    Example: copriv evaluate runs/spring --data stays.csv
    """
    from common.judged_text import show_judged  # noqa: PLC0415 (keeps --help quick)
    from learner.commands.use import evaluate_model  # noqa: PLC0415 (as above)

    judged = evaluate_model(run, typed_place(str(data), typed))
    show_judged(judged, console(width=120), as_json=as_json)


@click.command()
@run_argument
@click.option("--to", "form", type=click.Choice(FORMS), required=True, help="The form to write.")
@out_option
@public_option
def export(run: Path, form: str, out: Path, *, public: bool) -> None:
    """Write the model of RUN with its whole pipeline.

    onnx: a graph that runs without copriv. sklearn: a fitted estimator (joblib; loading such a
    file runs what is in it, so load your own only). json: the steps and numbers, with rows to
    check a program by. sql: one query that adds the prediction to a table.

    Example: copriv export runs/spring --to onnx --out spring.onnx
    """
    from learner.commands.use import export_model  # noqa: PLC0415 (as above)

    export_model(run, form, out, public=public)
    click.echo(f"{form}: {out}")


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=A_FOLDER)
@out_file("The page that compares several runs; the default is comparison.html.", default=None)
def report(runs: tuple[Path, ...], out: Path | None) -> None:
    """Print the table of a finished run again, or compare several.

    Writes its report.html again, or one page that compares them.

    Example: copriv report runs/spring runs/autumn
    """
    from learner.commands.study import compare_runs, report_run  # noqa: PLC0415 (keeps --help quick)

    wide = console(width=120)
    if len(runs) > 1:
        page = compare_runs(runs, out=out or Path("comparison.html"), console=wide)
    elif out is not None:
        raise InputError(
            f"--out {out}: the page of one run is {runs[0] / 'report.html'}; leave --out away, or "
            "name several runs"
        )
    else:
        page = report_run(runs[0], console=wide)
    click.echo(f"report: {page}")
