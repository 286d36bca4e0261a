"""The commands ``copriv-owner init``, with its questions, and ``copriv-owner settings``."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from common.command import as_listed, ask, out_file
from common.config import parse_epsilon
from common.errors import InputError
from common.names import name_of_table
from common.texts import counted, named, printable
from common.typed_tables import reading_options, typed_place

NAMED = 20
QUESTIONS = {
    "name": "The owner's name",
    "epsilon_per_study": "The most that one study may spend (epsilon)",
    "epsilon_lifetime": "The most that all studies together may ever spend (epsilon)",
}


# The options that answer a question each.
answers_options = as_listed(
    click.option("--name", metavar="NAME", help="The owner's name; the default is the table's."),
    click.option(
        "--column",
        "columns",
        multiple=True,
        metavar="COLUMN",
        help="A column that learners may use; may be repeated. By default all but identifiers "
        "and free text.",
    ),
    click.option(
        "--epsilon-per-study",
        metavar="NUMBER",
        help="The most for one study; the default is 1.",
    ),
    click.option(
        "--epsilon-lifetime",
        metavar="NUMBER",
        help="The most for all studies; the default is 3.",
    ),
    click.option(
        "--learner",
        "learners",
        multiple=True,
        metavar="NAME",
        help="A learner that is served, by its certificate's name; may be repeated.",
    ),
    click.option(
        "--listen",
        default="127.0.0.1:50051",
        show_default=True,
        metavar="HOST:PORT",
        help="Where it serves.",
    ),
)


@click.command()
@click.argument("table", metavar="TABLE")
@answers_options
@out_file("Where the settings go.", default=Path("owner.toml"))
@click.option("--yes", is_flag=True, help="Ask nothing: choose what is not typed.")
@reading_options
def init(*, table: str, out: Path, yes: bool, **typed: Any) -> None:
    """Write OWNER.toml for TABLE.

    TABLE is a path, or env:NAME of a PostgreSQL address with --query. Looks at the columns, asks
    for what was not typed, says what an epsilon promises, and writes a comment on every key.
    Nothing is served and nothing spent.

    Example: copriv-owner init stays.csv --name mount-sinai --learner lab --yes
    """
    from common.privacy import epsilon_in_words  # noqa: PLC0415 (keeps --help quick)
    from owner.init import (  # noqa: PLC0415 (keeps --help quick)
        Answers,
        checked_budget,
        checked_lifetime,
        checked_name,
        look_at_table,
        usable,
        write_settings,
    )

    if out.suffix != ".toml":
        raise InputError(
            f"--out {out}: expected a file ending in .toml, such as {out / 'owner.toml'}"
        )
    place = typed_place(table, typed)
    look, notes = look_at_table(place)
    for line in notes:
        click.echo(f"note: {printable(line)}")
    checks: dict[str, tuple[str, Callable[[str], object]]] = {
        "name": (name_of_table(table, otherwise="owner"), checked_name),
        "epsilon_per_study": ("1", partial(checked_budget, "--epsilon-per-study")),
        "epsilon_lifetime": ("3", lambda it: checked_lifetime(it, typed["epsilon_per_study"])),
    }
    for field, (default, check) in checks.items():
        if typed[field] is None:
            typed[field] = default if yes else ask(QUESTIONS[field], check=check, default=default)
        check(typed[field])
    answers = Answers(**typed | {"columns": typed["columns"] or usable(look)})
    records, served = write_settings(place, look, answers, out=out)
    click.echo(f"{out}: {counted(records, 'record')}; learners may use {named(served, NAMED)}")
    for field in ("epsilon_per_study", "epsilon_lifetime"):
        value = getattr(answers, field)
        click.echo(f"policy.{field} = {value}: {epsilon_in_words(parse_epsilon(value))}")
    if not answers.learners:
        click.echo("any learner with a certificate of the study's CA is served; see --learner")
    click.echo(f"next: copriv-owner check {shlex.quote(str(out))}")


@click.command()
@click.argument("key", required=False)
@click.option("--json-schema", is_flag=True, help="Print a JSON schema, for editors.")
def settings(key: str | None, json_schema: bool) -> None:
    """Explain a KEY of OWNER.toml, or list all of them.

    Example: copriv-owner settings policy.epsilon_lifetime
    """
    from common.settings_reference import show  # noqa: PLC0415 (keeps --help quick)
    from owner.policy import OwnerSettings  # noqa: PLC0415

    click.echo(show(OwnerSettings, key, as_schema=json_schema))
