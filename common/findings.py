"""What became of a rule, one sentence for each: the form of every diagnosis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from rich import box
from rich.table import Table
from rich.text import Text

from common.command import console
from common.errors import CoprivError, InputError


class State(Enum):
    """What became of one rule."""

    PASSES = "pass"
    FAILS = "FAILS"
    UNCHECKED = "not checked"


# Wider than any finding.
ONE_LINE = 100_000
STYLES = {State.PASSES: "green", State.FAILS: "bold red", State.UNCHECKED: "dim"}


@dataclass(frozen=True)
class Finding:
    """One rule.

    Args:
      rule: Its name.
      state: What became of it.
      words: What was found; where it fails, why and what to do.
    """

    rule: str
    state: State
    words: str


def passes(rule: str, words: str) -> Finding:
    """The rule holds."""
    return Finding(rule, State.PASSES, words)


def fails(rule: str, words: str) -> Finding:
    """The rule does not hold; the words say why, and what to do."""
    return Finding(rule, State.FAILS, words)


def unchecked(rule: str, words: str) -> Finding:
    """Nobody has looked; the words say why not."""
    return Finding(rule, State.UNCHECKED, words)


def found_by(rule: str, look: Callable[[], str]) -> Finding:
    """What a look at something finds: its words, or the sentence of the error that it raises."""
    try:
        return passes(rule, look())
    except CoprivError as error:
        return fails(rule, str(error))


def show(found: Sequence[Finding]) -> None:
    """Print a table of rules; in a file or a pipe each finding is one line, to search and copy.

    Raises:
      InputError: A rule fails; it names those that do.
    """
    out, table = console(width=ONE_LINE), Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("rule", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("found", overflow="fold")
    for one in found:
        mark = Text(one.state.value, style=STYLES[one.state])
        table.add_row(Text(one.rule), mark, Text(one.words))
    out.print(table)
    failed = list(dict.fromkeys(one.rule for one in found if one.state is State.FAILS))
    if failed:
        raise InputError(
            f"some checks failed ({', '.join(failed)}); fix what the table says and type the same "
            "command again; nothing was spent or written"
        )
    out.print("nothing fails here; nothing was spent or written", highlight=False)
