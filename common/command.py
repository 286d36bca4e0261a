"""What both commands share: log lines, and one sentence and an exit status for each error."""

from __future__ import annotations

import atexit
import errno
import gc
import logging
import os
import sys
import warnings

import click
from rich.console import Console

from common.errors import CoprivError, InputError, PrivacyLeakWarning
from common.logs import FORMATS

__all__ = ["console", "log_format_option", "run_command"]

log_format_option = click.option(
    "--log-format",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="How log lines on standard error look.",
)


def console(width: int = 160) -> Console:
    """Standard output; a file or a pipe gets lines of this width, enough for the tables."""
    own = Console()
    return own if own.is_terminal else Console(width=width)


def run_command(command: click.Command, name: str) -> None:
    """Run a command to the end of its process; our errors become one sentence and a status.

    Args:
      command: What is run.
      name: The command's name, which begins the sentence.
    """
    # gRPC's own log lines would stand beside our one sentence,
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # and it would log a traceback for every malformed message.
    logging.getLogger("grpc").setLevel(logging.CRITICAL)
    _show_leaks(name)
    # The process ends anyway: a last search for reference cycles would only delay it.
    atexit.register(gc.freeze)
    try:
        command(prog_name=name)
    except CoprivError as error:
        click.echo(f"{name}: {error}", err=True)
        sys.exit(error.exit_status)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        what = error.filename or "the output"
        click.echo(f"{name}: {what}: {error.strerror}; make room for it", err=True)
        sys.exit(InputError.exit_status)


def _show_leaks(name: str) -> None:
    """Print each :class:`PrivacyLeakWarning` as one sentence; other warnings are not shown."""

    def show(message: Warning | str, category: type[Warning], *_: object) -> None:
        if issubclass(category, PrivacyLeakWarning):
            click.echo(f"{name}: warning: {message}", err=True)

    warnings.simplefilter("always", PrivacyLeakWarning)
    warnings.showwarning = show  # type: ignore[assignment]
