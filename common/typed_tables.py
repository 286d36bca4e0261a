"""A table as it is typed: where it is, and the options that say how it is read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from common.command import as_listed
from common.errors import InputError
from common.files import real_path
from common.typed_paths import EMPTY

# The options of :func:`reading_options`.
READING = ("query", "separator", "decimal", "dates", "encoding")


# How a table that is typed is read; :func:`typed_place` takes these options.
reading_options = as_listed(
    click.option("--query", metavar="SELECT", help="What to read from a database."),
    click.option(
        "--separator",
        metavar="CHARACTER",
        help="What separates the cells of a CSV file; by default found in its header.",
    ),
    click.option(
        "--decimal",
        type=click.Choice([".", ","]),
        help="The decimal point of a CSV file's numbers; by default a comma where ; separates.",
    ),
    click.option(
        "--dates",
        type=click.Choice(["month-first", "day-first"]),
        help="The order of a CSV file's dates such as 7/1/2020; by default month-first.",
    ),
    click.option(
        "--encoding",
        metavar="NAME",
        help="The encoding of a CSV file; by default each cell is UTF-8 or Windows-1252.",
    ),
)


def typed_place(table: str, typed: dict[str, Any]) -> dict[str, str]:
    """Settings of a table that is typed; the options of its reading are taken out of the others.

    >>> typed_place("env:STAYS", {"query": "select 1", "decimal": None, "name": "a"})
    {'database': 'env:STAYS', 'query': 'select 1'}
    >>> typed_place("postgresql://ann:s3cret@db.example/stays", {})
    Traceback (most recent call last):
    common.errors.InputError: a database's address may hold a password, so it is not typed: ...

    Raises:
      InputError: Nothing is typed, or a database's address itself; what it holds is not repeated.
    """
    if not table:
        raise InputError(f"the table: {EMPTY} of a file or a folder, or env:NAME")
    if table.startswith(("postgresql:/", "postgres:/")):
        raise InputError(
            "a database's address may hold a password, so it is not typed: write it into a file "
            "that only you can read and give file:PATH, or env:NAME of a variable that holds it"
        )
    place = {"database" if table.startswith(("env:", "file:")) else "path": table}
    options = {key: typed.pop(key, None) for key in READING}
    return place | {key: value for key, value in options.items() if value}


def place_below(place: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The same settings of a table in a file of another folder than that where they were typed.

    >>> place_below({"path": "bank/loans.csv", "decimal": ","}, Path("bank"))
    {'path': 'loans.csv', 'decimal': ','}
    >>> place_below({"database": "file:address"}, Path("bank"))
    {'database': 'file:../address'}
    """
    key = "path" if "path" in place else "database"
    told = place[key]
    kind = "" if key == "path" else told.partition(":")[0] + ":"
    if kind == "env:":
        return dict(place)
    real = real_path(Path(told.removeprefix(kind)))
    return {**place, key: f"{kind}{os.path.relpath(real, real_path(folder))}"}
