"""What is one user's alone: files that others may neither read nor replace, private folders."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from common.files import real_path

log = logging.getLogger("copriv.files")


def warn_of_others(path: Path, *beside: Path) -> None:
    """Log a warning if others on this machine may read or replace files of one user alone.

    Args:
      path: A file.
      beside: More files of its folder.
    """
    for each in (path, *beside):
        if is_read_by_others(each.stat()):
            log.warning("%s can be read by others on this machine; chmod 600 it", each)
    _warn_of_folder(path)


def warn_of_writers(path: Path) -> None:
    """Log a warning if others on this machine may write a file that says who is let in."""
    if is_written_by_all(path.stat()):
        log.warning("%s can be written by others on this machine; chmod o-w it", path)
    _warn_of_folder(path)


def _warn_of_folder(path: Path) -> None:
    """Log a warning if others may replace a file, whatever its own mode is."""
    folder = everybodys_folder(path)
    if folder is not None:
        log.warning("%s can be replaced by others on this machine; chmod o-w %s", path, folder)


def is_written_by_all(found: os.stat_result) -> bool:
    """Whether every user of this machine may write a file; a group may, as in folders above."""
    return bool(found.st_mode & stat.S_IWOTH)


def is_read_by_others(found: os.stat_result) -> bool:
    """Whether others on this machine may read a file of one user alone, or write to it.

    What root owns may be read by a group: so a secret is lent to a service that runs as another
    user, as in Kubernetes.
    """
    is_lent = found.st_uid == 0 and os.geteuid() != 0
    return bool(found.st_mode & (0o037 if is_lent else 0o077))


def everybodys_folder(path: Path) -> Path | None:
    """The nearest folder above in which everybody may replace what leads to a path, if any.

    Looked at are the folders of the path as it stands and those where its links lead. What a group
    may write to passes: many systems give each user a group of its own, which may write to all
    folders of the user, and who is in it is decided by who runs the machine.

    Raises:
      OSError: A folder above cannot be looked at.
    """
    for folder in (*path.absolute().parents, *real_path(path).parents):
        mode = folder.stat().st_mode if folder.exists() else 0
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return folder
    return None


def own_folder(path: Path) -> Path | None:
    """A folder of this user alone, made if it is missing; None if it is or could become another's.

    See :func:`is_own_folder`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return None
    return path if is_own_folder(path) else None


def is_own_folder(path: Path) -> bool:
    """Whether a folder is this user's alone, or would be if it were made now.

    It is not if it is a link or another user's, if others may enter it, or if they may replace it
    because a folder above is everybody's to write.
    """
    try:
        replaceable = everybodys_folder(path) is not None
        found = path.lstat() if os.path.lexists(path) else None
    except OSError:
        return False
    if found is None:
        return not replaceable
    mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return mine and not found.st_mode & 0o077 and not replaceable


@cache
def private_folder() -> str:
    """A folder of this user alone, gone with this process; "" where none can be made."""
    try:
        folder = tempfile.mkdtemp(prefix="copriv-")
    except OSError:
        return ""
    atexit.register(remove_private_folder)
    return folder


def remove_private_folder() -> None:
    """Remove the private folder if there is one, for processes that end by ``os._exit``."""
    if private_folder.cache_info().currsize and private_folder():
        shutil.rmtree(private_folder(), ignore_errors=True)


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
