"""The commands ``copriv init``, with its options and questions, and ``copriv settings``."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from common.command import as_listed, ask, console, out_folder
from common.errors import InputError
from common.files import whole_folder
from common.names import name_of_table
from common.texts import LONGEST_NOTE, brief, counted, first_few, named, printable, shortened
from common.typed_tables import reading_options, typed_place

if TYPE_CHECKING:
    from learner.commands.raw_tables import Choices, Session

EPSILON = "1"
NAMED = 40

# The options that answer a question each.
choices = as_listed(
    click.option("--target", metavar="COLUMN", help="The column to predict."),
    click.option(
        "--owners",
        metavar="COLUMN|N",
        help="The column that says whose a record is, or N equal parts of the table, in its order.",
    ),
    click.option(
        "--positive",
        multiple=True,
        metavar="VALUE",
        help="A value of class +1, where the target is no number; may be repeated. Of two "
        "values the default is 1, true or yes, else the rarer.",
    ),
    click.option(
        "--public",
        metavar="ROWS",
        help="How many rows are public, or a range such as -500: for the last ones; the "
        "default is a tenth, 5,000 at most, dealt evenly where the table is sorted.",
    ),
    click.option(
        "--epsilon", metavar="NUMBER", help="Each owner's privacy budget; the default is 1."
    ),
    click.option(
        "--drop",
        multiple=True,
        metavar="COLUMN",
        help="A column that is no input; may be repeated.",
    ),
    click.option(
        "--categorical",
        multiple=True,
        metavar="COLUMN",
        help="A column whose numbers are names; may be repeated.",
    ),
    click.option(
        "--missing",
        multiple=True,
        metavar="COLUMN=VALUE",
        help="A value that says that there is none, such as age=999; may be repeated.",
    ),
    click.option(
        "--most",
        type=click.IntRange(1, 1000),
        help="The largest number of owners that a column makes; the default is 12.",
    ),
    click.option(
        "--split/--no-split",
        default=None,
        help="Write each owner's records, and public ones dealt evenly, into files; by default "
        "where the last rows differ from the others.",
    ),
)


@click.command()
@click.argument("table", metavar="TABLE")
@choices
@out_folder("The new study's folder; the default is the table's name.")
@click.option("--yes", is_flag=True, help="Ask nothing: choose what is not typed.")
@reading_options
def init(*, table: str, out: Path | None, yes: bool, **typed: Any) -> None:
    """Make a study from TABLE.

    Looks at the columns, asks for what was not typed, and writes study.toml with a comment on every
    key. It warns of identifiers, of columns that leak the target, of heavy tails, missing targets
    and dates. TABLE is a CSV or Parquet file, a folder of them, a database, or env:NAME of a
    PostgreSQL address with --query.

    Example: copriv init stays.csv --target los --owners Hospital.County --yes
    """
    from learner.commands.init import write_study  # noqa: PLC0415 (keeps --help quick)
    from learner.commands.raw_tables import Choices, checked_folder, open_session  # noqa: PLC0415

    folder = out or Path(name_of_table(table, otherwise="study"))
    checked_folder(folder)
    session = open_session(typed_place(table, typed), drop=typed["drop"])
    click.echo(f"{table}: {counted(session.look.num_records, 'row')}, {_columns(session)}")
    for line in session.notes:
        click.echo(f"note: {printable(line)}")
    choices = Choices(**typed)
    session = session.with_gaps(choices)
    for line in session.notes_of_codes(choices):
        click.echo(f"note: {printable(line)}")
    chosen = _asked(session, choices, yes=yes)
    with whole_folder(folder):
        name = name_of_table(folder.name, otherwise="study")
        path = write_study(session, chosen, folder, name=name, console=console(width=120))
    click.echo(f"next: copriv simulate {shlex.quote(str(path))}")


def _columns(session: Session) -> str:
    names = [f"{c.shown} ({c.kind_shown})" for c in session.look.columns.values()]
    return f"columns {first_few(names, NAMED)}"


def _asked(session: Session, choices: Choices, *, yes: bool) -> Choices:
    """The choices with what was open asked, or chosen; each is looked at before the next."""
    choices = _asked_target(session, choices, yes=yes)
    choices = _asked_owners(session, choices, yes=yes)
    if choices.public is None and not yes:
        number = session.public_rows(None).strip("-:")
        typed = ask("How many rows are public", check=session.public_rows, default=number)
        choices = replace(choices, public=typed)
    session.public_rows(choices.public)
    return _asked_split(session, _asked_epsilon(choices, yes=yes), yes=yes)


def _asked_target(session: Session, choices: Choices, *, yes: bool) -> Choices:
    """The choices with a target and, where it is of words, the values of class +1."""

    def check(name: str) -> None:
        session.check_target(name, choices, asks=not yes)

    if choices.target is None:
        if yes:
            raise InputError(
                f"init: the target cannot be chosen for you; give --target COLUMN, one of "
                f"{named(list(session.look.columns), NAMED)}"
            )
        choices = replace(choices, target=ask("Which column is to be predicted", check=check))
    target = choices.target or ""
    check(target)
    if yes or choices.positive:
        return choices
    classes = session.classes_to_choose_from(target)
    if classes:
        shown = brief(target)
        click.echo(printable(f"{shown} is {', '.join(shortened(classes[:NAMED]))}"))
        typed = ask(
            "Which of them are class +1 (with | between several)",
            check=lambda typed: session.check_target(
                target, replace(choices, positive=_values(typed)), asks=False
            ),
        )
        choices = replace(choices, positive=_values(typed))
    return choices


def _values(typed: str) -> tuple[str, ...]:
    return tuple(value.strip() for value in typed.split("|"))


def _asked_owners(session: Session, choices: Choices, *, yes: bool) -> Choices:
    """The choices with whose a record is."""

    def check(owners: str) -> None:
        session.parts(replace(choices, owners=owners), [])

    if choices.owners is None:
        found = session.look.candidates_for_owners()
        likely = [name for name in found if name != choices.target]
        owners = likely[0] if likely else "3"
        if not yes:
            names = named(likely) or "none"
            click.echo(f"Columns that may say whose a record is: {names}")
            question = "Whose is a record (a column, or a number)"
            owners = ask(question, check=check, default=owners)
        return replace(choices, owners=owners)
    check(choices.owners)
    return choices


def _asked_epsilon(choices: Choices, *, yes: bool) -> Choices:
    """The choices with a budget."""
    from learner.commands.raw_tables import checked_epsilon  # noqa: PLC0415 (keeps --help quick)

    if choices.epsilon is None:
        epsilon = EPSILON
        if not yes:
            click.echo("epsilon: nobody's odds of being recognised grow by more than e^epsilon")
            epsilon = ask("Each owner's epsilon", check=checked_epsilon, default=EPSILON)
        return replace(choices, epsilon=epsilon)
    checked_epsilon(choices.epsilon)
    return choices


def _asked_split(session: Session, choices: Choices, *, yes: bool) -> Choices:
    """The choices with whether records go to files, which they do where public ones are dealt."""
    if choices.split is not None:
        return choices
    why = session.why_deal(choices)
    if why:
        rows = session.public_rows(choices.public)
        does = "are dealt evenly" if yes else "are better dealt evenly"
        click.echo(
            printable(
                f"note: {why}; so public rows {does} over the table, and each owner's records go "
                f"to a file of their own; --public {rows} takes the last rows",
                LONGEST_NOTE,
            )
        )
    question = "Write each owner's records into a file of its own"
    return replace(choices, split=bool(why) if yes else click.confirm(question, bool(why)))


@click.command()
@click.argument("key", required=False)
@click.option("--json-schema", is_flag=True, help="Print a JSON schema, for editors.")
def settings(key: str | None, json_schema: bool) -> None:
    """Explain a KEY of STUDY.toml, or list all of them.

    Example: copriv settings privacy.epsilon
    """
    from common.settings_reference import show  # noqa: PLC0415 (keeps --help quick)
    from learner.planning.settings import StudySettings  # noqa: PLC0415

    click.echo(show(StudySettings, key, as_schema=json_schema))
