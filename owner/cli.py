"""The command copriv-owner: what a data owner types."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import secrets
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
from rich import box
from rich.progress import Progress
from rich.table import Table

from common.command import (
    Commands,
    address_value,
    console,
    log_format_option,
    noise_seed_option,
    out_file,
    plain_console,
    run_command,
)
from common.errors import InputError, RefusedError
from common.files import unwritten
from common.logs import start_logging
from common.stopping import GRACE_SECONDS, Stop, end_now
from owner.home_commands import evaluate, personalise
from owner.init_command import init
from owner.init_command import settings as settings_command
from owner.ledger_commands import ledger
from owner.site_commands import (
    check,
    doctor,
    join,
    private_bounds_option,
    settings_argument,
)

if TYPE_CHECKING:
    from owner.answering import DataOwner

HEALTH_SECONDS = 3.0
# Of an audit whose output is no terminal.
PROGRESS_LINES = 10


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="copriv")
@log_format_option
def cli(log_format: str) -> None:
    """Serve one data owner's records, under a privacy budget that stays with the owner.

    Example: copriv-owner serve mount-sinai.toml
    """
    # Who enrolled, for how much, and what came back, belongs in an owner's log.
    start_logging(log_format, level=logging.INFO)


@cli.command()
@click.argument("address", callback=address_value, metavar="HOST:PORT")
def health(address: str) -> None:
    """Ask the health port of an owner whether it serves.

    Exit status 0 if it does, else 4.

    Example: copriv-owner health 127.0.0.1:50052
    """
    from owner.health import ask_health  # noqa: PLC0415 (gRPC reads its settings when imported)

    ask_health(address, seconds=HEALTH_SECONDS)


@cli.command()
@settings_argument
@click.option(
    "--listen",
    metavar="HOST:PORT",
    callback=address_value,
    help="Serve here instead of the settings' address.",
)
@noise_seed_option
@private_bounds_option
@click.option(
    "--insecure",
    is_flag=True,
    help="INSECURE: plain text to other machines, and any learner that can reach the port.",
)
@click.option("--with-parent", is_flag=True, help="Also stop when standard input closes.")
def serve(
    *,
    settings: Path,
    listen: str | None,
    insecure_noise_seed: int | None,
    allow_private_bounds: bool,
    insecure: bool,
    with_parent: bool,
) -> None:
    """Serve the records of OWNER.toml until told to stop.

    Ctrl-C and SIGTERM stop it. Prints one line with the port once it answers. Every response is
    charged to the ledger before it leaves. Learners get the names of the columns in data.columns
    or in the settings' feature map, and may use no others; where neither is set they get no
    names.

    Example: copriv-owner serve mount-sinai.toml --listen 127.0.0.1:0
    """
    from owner.server import start_owner  # noqa: PLC0415 (gRPC reads its settings when imported)

    stop = Stop()
    running = start_owner(
        settings,
        listen=listen,
        insecure_noise_seed=insecure_noise_seed,
        allow_private_bounds=allow_private_bounds,
        insecure=insecure,
        on_opened=stop.take_signals,
        on_fault=stop.set,
    )
    click.echo(f"serving on port {running.port}")
    sys.stdout.flush()
    _keep_what_is_there()
    if with_parent:
        _stop_with_parent(stop)
    stop.wait()
    running.drain(grace=GRACE_SECONDS)
    _end(running.owner)


@cli.command()
@settings_argument
@click.option(
    "--learner",
    metavar="HOST:PORT",
    callback=address_value,
    help="The learner, instead of attach.learner.",
)
@click.option("--stay", is_flag=True, help="Wait for the next study when one is over.")
@click.option(
    "--insecure",
    is_flag=True,
    help="INSECURE: plain text to another machine; all on the way can read and change it.",
)
@noise_seed_option
@private_bounds_option
@click.option("--with-parent", is_flag=True, help="Also stop when standard input closes.")
def attach(
    settings: Path,
    *,
    learner: str | None,
    stay: bool,
    insecure: bool,
    insecure_noise_seed: int | None,
    allow_private_bounds: bool,
    with_parent: bool,
) -> None:
    """Connect to a listening learner and answer its queries.

    No port is opened on this side, except that of `metrics` if it is set. The owner asks for
    updates by a clock of its own, at random times.
    A broken connection is reopened until the learner says that the study is over: then the
    command ends with status 0, or waits for the next study with --stay. Beyond this
    machine both sides show certificates of the study.

    Example: copriv-owner attach mount-sinai.toml --learner study.example:50060
    """
    from owner.attaching import open_attachment  # noqa: PLC0415 (as in serve)

    stop = Stop()
    attached = open_attachment(
        settings,
        learner=learner,
        stay=stay,
        insecure=insecure,
        insecure_noise_seed=insecure_noise_seed,
        allow_private_bounds=allow_private_bounds,
    )
    stop.take_signals()
    click.echo(f"attaching to the learner at {attached.address}")
    sys.stdout.flush()
    if with_parent:
        _stop_with_parent(stop)
    attached.run(stop, grace=GRACE_SECONDS)
    _end(attached.owner)


@cli.command()
@click.option(
    "--trials",
    type=click.IntRange(100, 10_000_000),
    default=4000,
    show_default=True,
    help="How many responses each attack sees of a table.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0.5, 1, min_open=True, max_open=True),
    default=0.99,
    show_default=True,
    help="Probability that all lower bounds hold together.",
)
def audit(trials: int, confidence: float) -> None:
    """Attack the mechanism here, and bound epsilon from below.

    Serves pairs of worst-case tables that differ in one record, over real ledgers in a temporary
    folder, and prints the lower bound on epsilon that the answers show (Clopper and Pearson's)
    beside the promise; 0 only means that so few responses show nothing.
    Exit status 3: a bound is above its promise, so the mechanism must not be used.

    Example: copriv-owner audit --trials 20000
    """
    from owner.audit import audit as attack  # noqa: PLC0415 (keeps --help quick)
    from owner.audit import num_responses  # noqa: PLC0415

    stderr = plain_console(stderr=True)
    # Thousands of studies are opened and closed, which is no news.
    logging.getLogger("copriv").setLevel(logging.WARNING)
    try:
        made = tempfile.TemporaryDirectory(prefix="copriv-audit-")
    except OSError as error:
        why = f"no folder for the audit's ledgers ({error.strerror})"
        raise unwritten(error, f"{why}; set TMPDIR to one with room") from None
    with made as folder, Progress(console=stderr, disable=not stderr.is_terminal) as bar:
        findings = attack(
            Path(folder),
            trials=trials,
            confidence=confidence,
            on_response=_counting(bar, num_responses(trials)),
        )
    table = Table(title=f"{trials} responses of each shard", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("study")
    table.add_column("attack on")
    for head in ("promised", f"at least ({confidence:.4g})"):
        table.add_column(head, justify="right")
    for finding in findings:
        promised = f"{float(finding.promised):.3f}"
        table.add_row(finding.case.name, finding.attack, promised, f"{finding.lower_bound:.3f}")
    console().print(table)
    broken = [finding for finding in findings if not finding.holds]
    if broken:
        raise RefusedError(
            f"{len(broken)} of {len(findings)} attacks broke the promise "
            f"(first: {broken[0].case.name}, {broken[0].attack}); do not serve with this program"
        )
    click.echo("no attack broke the promise; a bound of 0 is of an attack that told nothing")


def _counting(bar: Progress, total: int) -> Callable[[], None]:
    """What is called after each response of an audit; without a bar it prints a line at times."""
    task = bar.add_task("responses", total=total)
    every = max(1, total // PROGRESS_LINES)

    def count() -> None:
        bar.advance(task)
        given = int(bar.tasks[task].completed)
        if bar.disable and given % every == 0:
            bar.console.print(f"responses: {given:,} of {total:,}", highlight=False)

    return count


@cli.command()
@click.argument("learner")
@out_file("Where the token goes; the default is LEARNER.token.")
def token(learner: str, out: Path | None) -> None:
    """Make a token for a learner.

    Prints the line of OWNER.toml that admits it. The file goes to the learner over a channel that
    keeps it secret; the line holds only the token's SHA-256.

    Example: copriv-owner token bank-a --out bank-a.token
    """
    from common.wire import TOKEN_START  # noqa: PLC0415 (keeps --help quick)
    from owner.access import new_token_line  # noqa: PLC0415
    from owner.policy import check_learner_name  # noqa: PLC0415

    try:
        check_learner_name(learner)
    except ValueError as error:
        raise InputError(f"{learner!r}: {error}") from None
    target = out or Path(f"{learner}.token")
    secret = TOKEN_START + secrets.token_urlsafe(32)
    try:
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise unwritten(
            error, f"{target}: cannot be made ({error.strerror}); give --out FILE"
        ) from None
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secret + "\n")
    except OSError as error:
        target.unlink()
        raise unwritten(
            error, f"{target}: cannot be written ({error.strerror}); make room"
        ) from None
    click.echo("[policy.tokens]")
    click.echo(new_token_line(learner, secret))


def _keep_what_is_there() -> None:
    """It is not looked through for garbage any more while somebody waits for an answer."""
    gc.collect()
    gc.freeze()


def _end(owner: DataOwner) -> NoReturn:
    """End the process of an owner that has stopped, with the status of why.

    Its ledger is released. What is made ready for a study may take a minute more, for nobody.
    """
    fault = owner.ledger_fault
    if fault is None:
        end_now(0)
    with contextlib.suppress(OSError):  # the log may be on the same disk
        click.echo(f"copriv-owner: {fault}", err=True)
    end_now(fault.exit_status)


def _stop_with_parent(stop: Stop) -> None:
    """Standard input ends when the parent process does."""

    def watch() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=watch, daemon=True).start()


for command in (init, check, doctor, join, ledger, settings_command, evaluate, personalise):
    cli.add_command(command)


def main() -> None:
    """Run the command."""
    run_command(cli, "copriv-owner")


if __name__ == "__main__":
    main()
