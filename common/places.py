r"""Where files are, as people type it: paths that settings, tables and pages can name.

A file's name may be any bytes, but settings, pages and tables' readers take UTF-8 alone. A path of
other bytes is refused where it comes in, so that nothing is made that could not be finished.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, PlainSerializer

from common.errors import InputError
from common.files import real_path
from common.texts import printable

EXPECTED_PATH = "expected a path in UTF-8; rename the file or folder"
EXPECTED_LOCALE = (
    "expected a locale that takes letters beyond ASCII for this path; set LC_ALL=C.UTF-8"
)

_FILE = "file:"
_SECRET_PLACE = re.compile(r"(?:file|env):[^\r\n\0]+", re.ASCII)


def check_typed(text: str) -> str:
    r"""Check that what was typed is UTF-8, and return it.

    Raises:
      InputError: It has other bytes, which Python keeps as surrogates.

    >>> check_typed("bad-\udcff")
    Traceback (most recent call last):
    common.errors.InputError: 'bad-\xff': expected a path in UTF-8; rename the file or folder
    """
    if not _is_utf8(text):
        shown = printable(os.fsencode(text).decode("utf-8", "backslashreplace"))
        if _is_of_the_locale(text):
            raise InputError(f"'{shown}': {EXPECTED_LOCALE}")
        raise InputError(f"'{shown}': {EXPECTED_PATH}")
    return text


def _is_of_the_locale(text: str) -> bool:
    """Whether the bytes of a text are UTF-8: Python read them by a locale of fewer characters."""
    try:
        os.fsencode(text).decode("utf-8")
    except UnicodeError:
        return False
    return True


def _is_utf8(text: str) -> bool:
    """Whether a text can be written down."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def absolute_place(path: Path) -> Path:
    """The absolute path behind symbolic links.

    Raises:
      InputError: It, or the folder that we are in, is not UTF-8.
    """
    return Path(check_typed(str(real_path(path))))


def _check_place(path: Path) -> Path:
    """Check that a path may be one of a file, and return it.

    Raises:
      ValueError: No file has this name, or nothing could name it.
    """
    if "\0" in str(path):
        raise ValueError("expected a path without the character NUL")
    if not _is_utf8(str(path)):
        raise ValueError(EXPECTED_LOCALE if _is_of_the_locale(str(path)) else EXPECTED_PATH)
    return path


def of_windows(path: Path) -> str:
    r"""What to do about a path as Windows has them: a part of a sentence, empty for any other.

    Between double quotes of TOML, the backslash of \table.csv makes a tab.

    >>> of_windows(Path("..\\stays.csv")), of_windows(Path("../stays.csv"))
    ('write / between folders and files; ', '')
    """
    is_one = "\\" in str(path) or not str(path).isprintable()
    return "write / between folders and files; " * is_one


Place = Annotated[Path, AfterValidator(_check_place)]


class SecretText(str):
    """A text that says where a secret is, so that a path in it is known by its type."""

    __slots__ = ()

    def below(self, base: Path) -> SecretText:
        """The same place with an absolute path."""
        if not self.startswith(_FILE):
            return self
        return SecretText(f"{_FILE}{absolute_place(base / self.removeprefix(_FILE))}")


class PastedSecretError(ValueError):
    """A secret stands where it should be said where it is: no sentence or log may repeat it."""


def _secret_place(text: str) -> SecretText:
    """Where a secret is: "file:PATH" or "env:NAME"."""
    is_place = _SECRET_PLACE.fullmatch(text) is not None
    if not is_place and (text.startswith("copriv_") or "://" in text):
        raise PastedSecretError(
            "this is the secret itself; write it into a file that only you can read, and here "
            '"file:PATH", or "env:NAME" of a variable that holds it'
        )
    if not is_place:
        raise ValueError(
            f'expected "file:PATH" or "env:NAME"; if that is a file, write "file:{text[:80]}"'
        )
    return SecretText(text)


SecretPlace = Annotated[str, AfterValidator(_secret_place), PlainSerializer(str)]
