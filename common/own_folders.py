"""Folders that are this user's alone: for what others must neither read nor replace."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path

__all__ = ["compiled_code_folder", "own_folder"]

log = logging.getLogger("copriv.files")


def own_folder(path: Path) -> Path | None:
    """A folder of this user alone, made if it is missing; None if it is or could become another's.

    It is refused if it is a link or another user's, if others may enter it, or if they may replace
    it because a folder above is everybody's to write.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
        above = [parent.stat().st_mode for parent in path.absolute().parents]
    except OSError:
        return None
    replaceable = any(mode & stat.S_IWOTH and not mode & stat.S_ISVTX for mode in above)
    mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return path if mine and not found.st_mode & 0o077 and not replaceable else None


def compiled_code_folder(environment: Mapping[str, str] = os.environ) -> str | None:
    """Where compiled code is kept from one process to the next: the user's own cache.

    What lies there is run. So nothing is kept, and each process compiles for itself, where there
    is no such folder or others may write to it.
    """
    try:
        base = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    folder = own_folder(base / "copriv" / "compiled") if base.is_absolute() else None
    if folder is None:
        log.warning(
            "compiled code is not kept: %s is not a folder of this user alone; chmod 700 it, or "
            "set XDG_CACHE_HOME",
            base / "copriv" / "compiled",
        )
    return None if folder is None else str(folder)
