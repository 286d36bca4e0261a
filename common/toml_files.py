"""TOML as people and their programs write it: read, or refused in one sentence."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from common.errors import InputError
from common.files import permitted
from common.texts import first_few, number_hint, printable

# A study of half a million owners; a text is held in memory several times over.
LARGEST_TEXT = 64 * 2**20
# How the names of tables end that somebody may give in the place of settings.
_TABLES = (".csv", ".tsv", ".gz", ".parquet", ".pq", ".xlsx", ".duckdb", ".sqlite", ".db")
# How files of ours begin that may be given in the place of settings, and what takes them.
_OURS = {
    "copriv-invitation/": "an invitation, for copriv-owner join at the owner",
    "copriv-request/": "the request that copriv-owner join made, for copriv admit at the learner",
}
BEGINNING = 100
# Where Python's reader stopped, and what stands there after a key, without a comment.
_LINE = re.compile(r"\(at line ([0-9]+),", re.ASCII)
_VALUE = re.compile(r"[^=#]*+=[ \t]*+([^ \t\r#]++(?:[ \t]?%)?)[ \t\r]*+(?:#.*+)?", re.ASCII)
# What often stands in the line where the reader stopped, or in its words, and what to write.
_HINTS = tuple(
    (re.compile(mark, re.ASCII), hint)
    for mark, hint in (
        ("[\u2018-\u201f\u00ab\u00bb]", "quotes are \" or ', without any slant"),
        (r'"[^"\\]*+\\', "write a path with / in the place of \\"),
        (r"=[ \t]*+(?:None|null|nil)(?![A-Za-z0-9_])", "leave the key out where there is no value"),
        (
            r"=[ \t]*+(?:True|False|TRUE|FALSE)(?![A-Za-z0-9_])",
            "write true or false in small letters",
        ),
        ("=[ \t]*+[A-Za-z_\u00c0-\U0010ffff]", "a text stands in quotes"),
        (
            r"^Cannot declare \('owners',\)",
            "each owner stands below [[owners]], in double brackets",
        ),
        ("^Cannot declare", "this section is there already, so write its keys there"),
        ("^Cannot overwrite a value", "its key has a value already, so leave one out"),
    )
)
# So many of a folder's settings files are named.
NAMED = 3
# Python's reader takes memory as the square of a key's parts: 100,000 of them, 20 GB.
MOST_PARTS = 40
# To look through a quoted text takes memory for each of them, 70 MB in all.
MOST_BACKSLASHES = 10**6
_TEXT = r"""(?:"[^"\\\n]*+(?:\\.[^"\\\n]*+)*"|'[^'\n]*+')"""
_PART = rf"(?:(?<![A-Za-z0-9_-])[A-Za-z0-9_-]++|{_TEXT})"
# A key of too many parts, or else what hides points that are none of a key's: what is quoted, to
# its end or to where Python's reader gives up, and comments.
_POINTS = re.compile(
    rf"""(?P<key>(?<!\.)(?:{_PART}[ \t]*\.[ \t]*){{{MOST_PARTS}}})"""
    r"""|\"{3}[^"\\]*+(?:(?:(?s:\\.)|"{1,2}(?!"))[^"\\]*+)*"{0,5}|"[^"\\\n]*+(?:\\.[^"\\\n]*+)*"?"""
    r"""|'{3}[^']*+(?:'{1,2}(?!')[^']*+)*'{0,5}|'[^'\n]*+'?|\#[^\n]*+""",
    re.ASCII,
)


class _BackslashesError(ValueError):
    """A text has more of them than Python's reader is given."""


def read_toml(path: Path) -> dict[str, Any]:
    """The table of a TOML file.

    Raises:
      InputError: The file is missing, unreadable, endless or not TOML.
    """
    text = ""
    try:
        # A pipe is read, too: a shell puts one in the place of a typed file.
        # Some editors begin a text with a byte order mark, which nobody sees.
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(LARGEST_TEXT + 1)
        if len(text) > LARGEST_TEXT:
            raise InputError(f"{path}: longer than {LARGEST_TEXT >> 20} MB; give a TOML file")
        return parsed(text)
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder; give {_settings_in(path)}") from None
    except OSError as error:
        cure = permitted(error, "give the path of a TOML file")
        raise InputError(f"{path}: cannot be read ({error.strerror}); {cure}") from None
    except RecursionError:
        raise InputError(
            f"{path}: lists or tables are nested too deeply; write fewer levels"
        ) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, _BackslashesError) as error:
        raise InputError(f"{path}: {_why_not(path, text, error)}") from None
    except ValueError:
        raise InputError(
            f"{path}: a whole number has thousands of digits; write a smaller one"
        ) from None


def parsed(text: str) -> dict[str, Any]:
    """The table of a TOML text.

    Raises:
      ValueError: It is not TOML, or a whole number has more digits than Python writes down.
      RecursionError: It is nested too deeply, or may be: a key has more parts than any setting.

    >>> parsed("privacy.epsilon = 1")
    {'privacy': {'epsilon': 1}}
    """
    if text.count("\\") > MOST_BACKSLASHES:
        raise _BackslashesError(f"more than {MOST_BACKSLASHES:,} backslashes")
    if any(found["key"] for found in _POINTS.finditer(text)):
        raise RecursionError
    table = tomllib.loads(text)
    # Such a number is read without complaint if its digits are of another base.
    repr(table)
    return table


def _why_not(path: Path, text: str, error: ValueError) -> str:
    """Why a file is no TOML, and what to do."""
    if path.name.lower().endswith(_TABLES):
        return (
            "is a table; give the path of a TOML file, such as copriv init makes for a study, and "
            "copriv-owner init for an owner"
        )
    if isinstance(error, UnicodeDecodeError):
        return "not text in UTF-8; save it as UTF-8, or give a TOML file"
    for mark, what in _OURS.items():
        if f'"{mark}' in text[:BEGINNING]:
            return f"this is {what}; give a TOML file"
    return f"not valid TOML: {printable(error)}; correct that place{_hint(text, error)}"


def _hint(text: str, error: ValueError) -> str:
    """How what was probably meant is written, where TOML ends at it.

    >>> _hint("epsilon = 0,5", ValueError("Expected newline (at line 1, column 12)"))
    '; write a number without commas, 1,000 as 1000 and 0,5 as 0.5'
    >>> _hint("target = los", ValueError("Invalid value (at line 1, column 10)"))
    '; a text stands in quotes'
    """
    stopped = _LINE.search(str(error))
    line = text.split("\n")[int(stopped[1]) - 1] if stopped else ""
    value = _VALUE.fullmatch(line)
    number = number_hint(value[1]) if value else ""
    told = (f"; {hint}" for mark, hint in _HINTS if mark.search(line) or mark.search(str(error)))
    return number or next(told, "")


def _settings_in(folder: Path) -> str:
    """What to give in the place of a folder: the settings that lie there."""
    found = [printable(file) for file in sorted(folder.glob("*.toml")) if file.is_file()]
    if len(found) > 1:
        return f"one of {first_few(found, NAMED)}"
    return next(iter(found), "the path of a TOML file")
