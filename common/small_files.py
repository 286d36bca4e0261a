"""Files that are read whole, of which each has a size that it never passes."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

from common.errors import InputError
from common.files import open_regular

# A chain of certificates takes some thousand bytes.
LARGEST_SMALL = 2**20


def read_own(path: Path, *, most: int = LARGEST_SMALL) -> bytes:
    """The content of a file on a disk, such as a command of ours wrote, of at most so many bytes.

    Raises:
      OSError: It cannot be read, is a pipe, a device or a folder, or holds more.
    """
    with open_regular(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return content


def read_secret(
    where: str, *, base: Path, setting: str, environment: Mapping[str, str] = os.environ
) -> str:
    """The one line that "file:PATH" or "env:NAME" stands for.

    Args:
      where: Where it is; the settings check its form.
      base: The folder of the settings' file; relative paths start there.
      setting: The setting's name, for an error.
      environment: The environment's variables.

    Raises:
      InputError: There is no such file or variable, or it is empty or more than one line.

    >>> read_secret("env:BANK", base=Path(), setting="token", environment={"BANK": "s3cret"})
    's3cret'
    """
    kind, _, name = where.partition(":")
    if kind == "env":
        secret = environment.get(name, "").strip()
    else:
        try:
            # Not through a pipe: it is read for each owner, and each time a table is opened.
            secret = read_own(base / name).decode("utf-8-sig").strip()
        except (OSError, UnicodeDecodeError) as error:
            # Of what it holds nothing is said.
            reason = f" ({error.strerror})" if isinstance(error, OSError) else ""
            raise InputError(
                f"{setting} = {where!r}: the file cannot be read{reason}; give one with a single "
                "line"
            ) from None
    if not secret or not secret.isprintable():
        raise InputError(f"{setting} = {where!r}: is not set, or is not a single line; give one")
    return secret
