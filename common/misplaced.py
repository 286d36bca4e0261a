"""Options that were typed on the wrong side of a command's name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click


@contextmanager
def placing_options(group: click.Group, name: str) -> Iterator[None]:
    """Say where an option belongs that the group or one of its commands knows.

    Raises:
      click.NoSuchOption: An option is not known where it was typed.

    >>> group = click.Group(commands=[click.Command("run", params=[click.Option(["--out"])])])
    >>> with placing_options(group, "make"):
    ...     raise click.NoSuchOption("--out")
    Traceback (most recent call last):
    click.exceptions.NoSuchOption: ... Write it behind the command: make COMMAND --out
    """
    try:
        yield
    except click.NoSuchOption as error:
        typed = error.option_name
        is_behind = error.ctx is not None and error.ctx.command is not group
        if is_behind and _knows(group, typed):
            place = f"before the command: {name} {typed}"
        elif not is_behind and any(_knows(own, typed) for own in group.commands.values()):
            place = f"behind the command: {name} COMMAND {typed}"
        else:
            raise
        told = f"{error.message} Write it {place}"
        raise click.NoSuchOption(typed, message=told, ctx=error.ctx) from None


def _knows(command: click.Command, option: str) -> bool:
    return any(option in parameter.opts for parameter in command.params)
