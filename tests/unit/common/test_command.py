"""What both commands print is printed as it is."""

from __future__ import annotations

import io

import pytest
from rich.table import Table

from common.command import console, plain_console

STRANGE = ("see [/policy] for [bold red]more", "[link=https://x.example]here[/link]", "a :smile: b")


@pytest.mark.parametrize("text", STRANGE)
def test_what_rich_would_take_for_its_own_signs_is_printed_as_it_is(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Table(title=text)
    table.add_column(text)
    table.add_row(text)
    for part in (text, table):
        console().print(part)
    lines = capsys.readouterr().out.splitlines()
    assert sum(text in line for line in lines) == 4


def test_a_terminal_is_led_nowhere_by_a_text() -> None:
    screen = io.StringIO()
    plain_console(file=screen, force_terminal=True, width=200).print(STRANGE[1], highlight=False)
    assert screen.getvalue() == STRANGE[1] + "\n"
