"""How a CSV file is written, as far as its user says, and which of it can be meant."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

from common.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How a CSV file is written; None is found out.

    Args:
      separator: One character.
      encoding: A name that Python knows.
      decimal: "." or ",".
      dates: "month-first" or "day-first".
    """

    separator: str | None
    encoding: str | None
    decimal: str | None
    dates: str | None

    def refuse_elsewhere(self, title: str) -> None:
        """Refuse a table that is no CSV file, if anything is said of how one is written.

        Raises:
          InputError: Something is.
        """
        for name, value in vars(self).items():
            if value is not None:
                raise InputError(f"{title}: {name} is for CSV files only; remove {name}")


def _encoding(name: str) -> str:
    try:
        return codecs.lookup(name).name
    except LookupError:
        raise ValueError('expected an encoding such as "utf-8", "latin-1" or "cp1252"') from None


def _separator(text: str) -> str:
    if len(text) != 1 or text.isalnum() or text in '"\r\n':
        raise ValueError(
            "expected one character that is no letter, digit, quotation mark or line break, such "
            "as , or ; (a tab is $'\\t' in a shell, \"\\t\" in TOML)"
        )
    return text


Encoding = Annotated[str, AfterValidator(_encoding)]
Separator = Annotated[str, AfterValidator(_separator)]
