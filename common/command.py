"""What both commands share: log lines, and one sentence and an exit status for each error."""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click
from pydantic_core import PydanticSerializationError
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from common.config import check_address
from common.errors import (
    CoprivError,
    DiskError,
    DoubtWarning,
    InputError,
    PrivacyLeakWarning,
    StoppedError,
)
from common.extras import needing_extras
from common.files import NO_ROOM, is_nowhere
from common.logs import FORMATS
from common.memory_limit import limit_memory
from common.misplaced import placing_options
from common.open_files import allow_open_files
from common.places import check_typed
from common.stopping import (
    UNREAD_STATUS,
    UnreadError,
    leave_no_core,
    leave_unread,
    told_to_end,
)
from common.texts import number_hint, printable
from common.thread_limit import NO_MORE_THREADS, NO_THREAD_STATUS, need_threads, none_begins
from common.typed_paths import A_FILE, A_FOLDER

Function = TypeVar("Function", bound=Callable[..., Any])
Typed = TypeVar("Typed")
Meant = TypeVar("Meant")

# More objects than before, and Python looks for garbage among the young ones.
OBJECTS_MADE = 50_000
# How letters are printed that a terminal does not have.
ESCAPED = "backslashreplace"
# No sentence of ours has a longer line, whatever names and paths stand in it.
LONGEST_LINE = 20_000
ANEW = "type the same command again to start over"
SAME = "type the same command again to go on"
STOPPED = f"stopped; {ANEW}"
TOO_LARGE = (
    "the machine's memory does not hold what was asked; give smaller files, or run it where there "
    "is more memory"
)
NOWHERE = "the folder where this is typed was removed; cd to one that is there"

log_format_option = click.option(
    "--log-format",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="How log lines on standard error look.",
)

noise_seed_option = click.option(
    "--insecure-noise-seed",
    type=click.IntRange(min=0),
    metavar="SEED",
    help="INSECURE: repeatable noise that protects nobody; only for experiments on public records.",
)


def out_file(text: str, **more: Any) -> Callable[[Function], Function]:
    """The option --out of a command that writes one file; more is click's, such as `default`."""
    return _out("FILE", A_FILE, text, more)


def out_folder(text: str, **more: Any) -> Callable[[Function], Function]:
    """The option --out of a command that writes a folder; more is click's, such as `default`."""
    return _out("FOLDER", A_FOLDER, text, more)


def as_listed(*options: Callable[[Function], Function]) -> Callable[[Function], Function]:
    """Several options as one decorator; --help lists them as they stand."""

    def decorated(command: Function) -> Function:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


def checked_option(option: str, typed: Typed, check: Callable[[Typed], Meant]) -> Meant:
    """What an option means; ``check`` raises a ``ValueError`` where it means nothing.

    Raises:
      InputError: It means nothing; the sentence names the option.

    >>> checked_option("--parts", "3", int)
    3
    """
    try:
        return check(typed)
    except ValueError as error:
        hint = number_hint(str(typed)) if "number" in str(error) else ""
        raise InputError(f"{option}: got {typed!r}, {error}{hint}") from None


def address_value(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """An option's or argument's HOST:PORT, as click's callback."""
    try:
        return None if value is None else check_address(value)
    except ValueError as error:
        raise click.BadParameter(f"got {value!r}, {error}") from None


def console(width: int = 160) -> Console:
    """Standard output; a file or a pipe gets lines of this width, enough for the tables."""
    stdout = plain_console()
    return stdout if stdout.is_terminal else plain_console(width=width)


def ask(question: str, *, check: Callable[[str], object], default: str | None = None) -> str:
    """An answer that is typed; one that cannot be used is asked for again, with the reason.

    Args:
      question: What is asked.
      check: Raises InputError for an answer that cannot be used.
      default: What an empty line stands for; None for nothing.
    """

    def checked(typed: str) -> str:
        try:
            check(typed)
        except InputError as error:
            raise click.BadParameter(printable(error)) from None
        return typed

    answer: str = click.prompt(question, default=default, value_proc=checked)
    return answer


class _PlainConsole(Console):
    """A console that cuts no number off and breaks no path: a wide table has its names folded."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print, as rich does; what no folding makes narrow enough goes beyond the width.

        A sentence that is not read on a terminal is one line; so is one with a word that is longer
        than a line, since a path or a command is to be copied whole.
        """
        tables = [shown for shown in objects if isinstance(shown, Table)]
        for table in tables:
            _keep_whole(table)
        usual: dict[str, Any] = {"crop": False} if tables else {}
        if all(isinstance(shown, str) for shown in objects):
            usual["soft_wrap"] = not self.is_terminal or self._has_longer_word(objects)
        super().print(*objects, **usual | options)

    def on_broken_pipe(self) -> None:
        """Nobody reads on, as behind ``| head``: stop as by Ctrl-C.

        Raises:
          UnreadError: Always.
        """
        leave_unread()
        raise UnreadError

    def _has_longer_word(self, texts: Iterable[str]) -> bool:
        """Whether a word would be broken in two."""
        return any(cell_len(word) > self.width for text in texts for word in text.split())


def _keep_whole(table: Table) -> None:
    """Keep words in columns of numbers, and all that must not be wrapped, in one piece."""
    for column in table.columns:
        cells = [str(cell) for cell in (column.header, *column.cells)]
        is_number = column.justify == "right"
        if is_number and column.no_wrap:
            column.no_wrap = not any(" " in cell.strip() for cell in cells)
        whole = [part for cell in cells for part in (cell.split() if is_number else [cell])]
        if is_number or column.no_wrap:
            column.min_width = max(column.min_width or 0, *map(cell_len, whole), 1)
        column.overflow = "fold"


def plain_console(**options: Any) -> Console:
    """A console that prints texts as they are, in tables too; options are rich's.

    Names of columns and sentences of owners may hold what rich would take for its own signs: [/b]
    would end the command, [link=...] would lead a reader elsewhere.
    """
    return _PlainConsole(markup=False, emoji=False, **options)


@contextlib.contextmanager
def stoppable(sentence: Callable[[], str]) -> Iterator[None]:
    """Ctrl-C as an error of ours, also where a library has made an error of its own of it.

    Raises:
      StoppedError: Ctrl-C was typed; it says the sentence.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise StoppedError(sentence()) from None
    except PydanticSerializationError as error:
        if KeyboardInterrupt.__name__ not in str(error):
            raise
        raise StoppedError(sentence()) from None


class Commands(click.Group):
    """A command of several; Ctrl-C ends it with status 130, as it ends other programs."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Read what was typed.

        Raises:
          InputError: It is not UTF-8.
          StoppedError: Ctrl-C was typed.
        """
        with stoppable(lambda: STOPPED):
            typed = [check_typed(text) for text in args]
            with placing_options(self, info_name or ""):
                return super().make_context(info_name, typed, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run what was typed.

        Raises:
          StoppedError: Ctrl-C was typed, and nothing has a sentence of its own for it.
          InputError: A question was asked where nobody can answer.
        """
        try:
            with stoppable(lambda: STOPPED), placing_options(self, ctx.info_name or ""):
                try:
                    return super().invoke(ctx)
                except (UnreadError, BrokenPipeError):
                    # Who wants the first lines of a list, and no more, is told nothing.
                    leave_unread()
                    ctx.exit(UNREAD_STATUS)
        except click.Abort as error:
            # The cursor is behind the question.
            if sys.stderr.isatty():
                click.echo(err=True)
            if not isinstance(error.__context__, EOFError):
                raise StoppedError(STOPPED) from None
            raise InputError(
                "a question cannot be answered, since nobody is typing; give --yes, or one of the "
                "options that --help lists"
            ) from None


def run_command(command: click.Command, name: str) -> None:
    """Run a command to the end of its process; our errors become one sentence and a status.

    Args:
      command: What is run.
      name: The command's name, which begins the sentence.
    """
    told: list[int] = []
    try:
        # Also until the command looks for Ctrl-C itself.
        with stoppable(lambda: STOPPED):
            _prepare(name)
            told = told_to_end()
            allow_open_files()
            need_threads()
            with needing_extras("this command"):
                command(prog_name=name)
    except CoprivError as error:
        _tell(f"{name}: {error}")
        if isinstance(error.__context__, UnreadError):
            sys.exit(UNREAD_STATUS)
        was_told = told and isinstance(error, StoppedError)
        sys.exit(128 + told[0] if was_told else error.exit_status)
    except MemoryError:
        _tell(f"{name}: {TOO_LARGE}")
        sys.exit(InputError.exit_status)
    except (OSError, RuntimeError) as error:
        if none_begins(error):
            _tell(f"{name}: {NO_MORE_THREADS}")
            sys.exit(NO_THREAD_STATUS)
        if isinstance(error, FileNotFoundError) and is_nowhere():
            _tell(f"{name}: {NOWHERE}")
            sys.exit(InputError.exit_status)
        if not isinstance(error, OSError) or error.errno not in NO_ROOM:
            raise
        _drop_unwritten(sys.stdout)
        what = error.filename or "the output"
        _tell(f"{name}: {what}: {error.strerror}; make room for it")
        sys.exit(DiskError.exit_status)


def _prepare(name: str) -> None:
    """What holds for this process, whatever it runs."""
    # gRPC would log a traceback for every malformed message.
    logging.getLogger("grpc").setLevel(logging.CRITICAL)
    _open_closed_streams()
    _show_leaks(name)
    _print_anything()
    limit_memory()
    leave_no_core()
    # Commands import when they begin: to look for garbage among what stays takes a tenth of that.
    gc.set_threshold(OBJECTS_MADE, *gc.get_threshold()[1:])
    atexit.register(_leave_garbage)


def _tell(sentence: str) -> None:
    """Say why a command ends; where standard error has no room, the exit status still does."""
    with contextlib.suppress(OSError):
        click.echo(_unmoving(sentence), err=True)
    _drop_unwritten(sys.stderr)


def _unmoving(sentence: str) -> str:
    """A sentence whose names, which a stranger may have chosen, neither move a cursor nor flood."""
    return "\n".join(printable(line, LONGEST_LINE) for line in sentence.split("\n"))


def _drop_unwritten(stream: TextIO) -> None:
    """What finds no room is not written again at the end, which would be another exit status."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _open_closed_streams() -> None:
    """A stream that was closed (``>&-``) leaves its number to the next file or socket.

    It may be a ledger's, and libraries print to 1 and 2 without asking.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Takes the lowest number that is free, which is this stream's.
            opened = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 (stays open)
            setattr(sys, name, opened)


def _print_anything() -> None:
    """Names that a terminal of another encoding has no letters for are no reason to end."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors != ESCAPED:
            stream.reconfigure(errors=ESCAPED)


def _leave_garbage() -> None:
    """A last search for reference cycles would only delay the end of the process.

    DuckDB needs it: it prints a line for each of its objects that was not looked for.
    """
    (gc.unfreeze if "duckdb" in sys.modules else gc.freeze)()


def _out(
    metavar: str, kind: click.Path, text: str, more: dict[str, Any]
) -> Callable[[Function], Function]:
    """The option --out; a default is shown where there is one."""
    shown = more.get("default") is not None
    return click.option("--out", type=kind, metavar=metavar, help=text, show_default=shown, **more)


def _show_leaks(name: str) -> None:
    """Print our own warnings as one sentence each; others are not shown."""

    def show(message: Warning | str, category: type[Warning], *_: object) -> None:
        if issubclass(category, PrivacyLeakWarning | DoubtWarning):
            click.echo(_unmoving(f"{name}: warning: {message}"), err=True)

    warnings.simplefilter("always", PrivacyLeakWarning)
    warnings.simplefilter("always", DoubtWarning)
    warnings.showwarning = show  # type: ignore[assignment]
