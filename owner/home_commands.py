"""The commands for an owner's own eyes: ``copriv-owner evaluate`` and ``personalise``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.progress import Progress

from common.command import console, out_file, plain_console
from common.errors import InputError
from common.typed_paths import ANY_PATH
from owner.site_commands import settings_argument

if TYPE_CHECKING:
    from owner.at_home import AtHome

run_argument = click.argument("run", metavar="RUN_MODEL", type=ANY_PATH)


@click.command()
@settings_argument
@run_argument
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def evaluate(settings: Path, run: Path, *, as_json: bool) -> None:
    """Say which model to use on the records of OWNER.toml.

    RUN_MODEL is a run's folder or its model.json. Compares the common model with the public
    records' model, one of this owner's records alone, and a personal one: the common model adapted
    to these records. All of it stays here: no query is answered, no epsilon is charged, the ledger
    is not opened.

    Example: copriv-owner evaluate mount-sinai.toml model.json
    """
    from common.judged_text import show_judged  # noqa: PLC0415 (keeps --help quick)
    from owner.at_home import advice  # noqa: PLC0415 (keeps --help quick)

    found = _found(settings, run)
    show_judged(found.judged, console(width=140), as_json=as_json)
    if not as_json:
        click.echo(advice(found.judged))
        click.echo(
            "Nothing was charged. Keep this to yourself: it reveals something about your records."
        )


@click.command()
@settings_argument
@run_argument
@out_file("The model's file; only its user may read it.", default=Path("personal.json"))
def personalise(settings: Path, run: Path, out: Path) -> None:
    """Adapt the common model to the records of OWNER.toml.

    Cross-validation says how far. The result is made from raw records without noise, so it must
    stay at home; its file says so. It is free: nothing leaves, nothing is charged. copriv predict
    and export take the file.

    Example: copriv-owner personalise mount-sinai.toml model.json --out personal.json
    """
    from common.files import refuse_to_replace, write_or_refuse  # noqa: PLC0415 (keeps --help quick)
    from common.judged_text import show_judged  # noqa: PLC0415 (keeps --help quick)
    from owner.at_home import advice, check_personal  # noqa: PLC0415 (keeps --help quick)

    refuse_to_replace(out, mark=b'"unprotected"', what="model of an owner's own")
    found = _found(settings, run)
    model = check_personal(found)
    write_or_refuse(out, model.to_json(), mode=0o600, cure="give another path with --out")
    show_judged(found.judged, console(width=140), as_json=False)
    click.echo(advice(found.judged))
    click.echo(
        f"{out}: made from the raw records of {model.unprotected} without noise (weight "
        f"{found.weight:.3g} towards the common model); it stays at home, nothing protects it"
    )


def _found(settings: Path, run: Path) -> AtHome:
    """The comparison, with a bar on a terminal.

    Raises:
      InputError: The two are the wrong way round, or one of them cannot be read.
    """
    from common.config import load_settings  # noqa: PLC0415 (keeps --help quick)
    from owner.at_home import evaluate_at_home  # noqa: PLC0415 (keeps --help quick)
    from owner.policy import OwnerSettings  # noqa: PLC0415 (keeps --help quick)

    # os.path says no of a path that is too long, where Path raises.
    if os.path.isdir(settings) and run.suffix == ".toml":
        raise InputError(
            f"{settings}: is a folder; give OWNER.toml first and the run after it: {run} {settings}"
        )
    loaded = load_settings(OwnerSettings, settings)
    stderr = plain_console(stderr=True)
    with Progress(console=stderr, disable=not stderr.is_terminal, transient=True) as bar:
        task = bar.add_task("models")
        return evaluate_at_home(
            loaded,
            base=settings.parent,
            run=run,
            on_fit=lambda done, total: bar.update(task, completed=done, total=total),
        )
