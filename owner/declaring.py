"""What the owner's officer declares: that the columns were looked at under a feature map.

Learners are told that they were, never what was seen: a verdict that depends on records would
be an answer about them. So the declaration is the officer's own, whatever the look showed.
"""

from __future__ import annotations

import re
from pathlib import Path

from common.errors import InputError
from common.files import open_regular, write_or_refuse
from owner.policy import OwnerSettings

_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)


def declare(settings: OwnerSettings, digest: str, *, base: Path) -> Path:
    """Keep that the columns were looked at under the map of this digest; returns the file.

    Raises:
      InputError: It cannot be written.
    """
    path = _path(settings, base)
    write_or_refuse(path, digest + "\n")
    return path


def read_declared(settings: OwnerSettings, *, base: Path) -> str:
    """The digest that was declared, or "" for none.

    Raises:
      InputError: The file holds something else.
    """
    path = _path(settings, base)
    try:
        with open_regular(path) as file:
            text = file.read(100).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); make it readable for this user"
        ) from None
    if not _DIGEST.fullmatch(text):
        raise InputError(f"{path}: expected the digest of a feature map; remove the file")
    return text


class Declared:
    """What is declared at the moment that a learner asks: an officer may declare while we serve.

    Args:
      settings: The owner's settings.
      base: The folder of their file.

    Raises:
      InputError: The file holds something else as the owner starts.
    """

    def __init__(self, settings: OwnerSettings, *, base: Path) -> None:
        self._settings, self._base = settings, base
        read_declared(settings, base=base)

    def __call__(self) -> str:
        """The digest, or "" for none; a file that cannot be read later declares nothing."""
        try:
            return read_declared(self._settings, base=self._base)
        except InputError:
            return ""


def _path(settings: OwnerSettings, base: Path) -> Path:
    return base / f"{settings.name}.declared"
