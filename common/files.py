"""Files that others rely on: written whole or not at all, held by one process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from common.errors import DiskError, InputError

# What a file is stands in its first bytes.
FIRST_BYTES = 200
# The disk, what this user may have of it, or what a file may be, is full.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# SQLite's own numbers for the same: SQLITE_IOERR, SQLITE_FULL.
SQLITE_FAILS = (10, 13)
# An exclusive lock, as the system takes it, on one byte that no file is long enough to have.
FAR_LOCK = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 2**62, 1, 0)
MAKE_ROOM = "check the disk's space and the folder's permissions"
ANOTHER_USERS = "type this as the user that it belongs to"


def write_whole(path: Path, content: str | bytes, *, mode: int | None = None) -> None:
    """Write a file whole or not at all; it is on the disk when this returns.

    Guarantees:
      * A reader finds the content before or the content after, whenever this process or the
        machine stops.
      * With a ``mode`` the content is never readable by more than it says, not even at first.
      * Of processes that write it at once the last one's content stays, whole.
      * What a writer leaves that is killed is removed by the next one of the same file.

    Args:
      path: The file; another one of this name is replaced, a device or a pipe never.
      content: Text, which is written as UTF-8, or bytes.
      mode: The file's permissions; None leaves them to the process's umask.

    Raises:
      OSError: The folder cannot be written, the disk is full, or it is no regular file.
    """
    # A folder says so itself. Under root a file in the place of /dev/null would be everybody's.
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise _irregular(path)
    _remove_drafts(path.parent, of=re.escape(path.name))
    draft, handle = _new_draft(path, 0o666 if mode is None else mode)
    try:
        with os.fdopen(handle, "wb") as file:
            if mode is not None:
                os.fchmod(handle, mode)
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(handle)
            # Before it is closed, and its lock with it: nobody takes it for left behind.
            os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _new_draft(path: Path, mode: int) -> tuple[Path, int]:
    """A new file beside another one, under a name of its own, locked while its writer lives."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    while True:
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        with contextlib.suppress(FileExistsError):
            handle = os.open(draft, flags, mode)
            if _is_kept(draft, handle):
                return draft, handle
            os.close(handle)


def _is_kept(draft: Path, handle: int) -> bool:
    """Lock a new draft; False if another writer took it for left behind before that."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: nobody removes drafts there
        return True
    return draft.exists()


def _remove_drafts(folder: Path, *, of: str) -> None:
    """Remove drafts of files whose names match a pattern, where no writer holds their lock."""
    pattern = rf"(?s)\.{of}\.[0-9a-f]{{8}}\.part"
    with contextlib.suppress(OSError):  # of a folder that cannot be listed
        for name in os.listdir(folder):
            if re.fullmatch(pattern, name) and not (folder / name).is_symlink():
                _remove_if_left(folder / name)


def _remove_if_left(draft: Path) -> None:
    with contextlib.suppress(OSError):
        handle = lock_file(draft, make=False)
        try:
            # No other file comes to have this name.
            draft.unlink()
        finally:
            os.close(handle)


def sync_folder(folder: Path) -> None:
    """The names in a folder outlast a power cut, where it may be read and its file system can."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EINVAL):
            raise


def write_or_refuse(
    path: Path, content: str | bytes, *, mode: int | None = None, cure: str = MAKE_ROOM
) -> None:
    """Write a file that somebody asked for, as :func:`write_whole` does.

    Args:
      path: The file; another one of this name is replaced.
      content: Text or bytes.
      mode: The file's permissions.
      cure: What to do if it cannot be written.

    Raises:
      InputError: It cannot be written; nothing of it is left.
    """
    try:
        with refused(path, cure=cure):
            write_whole(path, content, mode=mode)
    except UnicodeEncodeError:
        raise InputError(
            f"{path}: cannot be written (a name in it is not UTF-8); rename what has that name"
        ) from None


def refuse_to_replace(path: Path, *, mark: bytes, what: str) -> None:
    """Refuse to write over a file that is something else, such as the table that is read.

    Args:
      path: The file that is to be written.
      mark: What stands in the first bytes of a file that may be replaced.
      what: What such a file is.

    Raises:
      InputError: There is another one.
    """
    if not os.path.isfile(path):
        return
    with refused(path, cure="give another path with --out"), path.open("rb") as file:
        first = file.read(FIRST_BYTES)
    if first and mark not in first:
        raise InputError(
            f"{path}: already exists and is not a {what}, so it is left as it is; give another "
            "path with --out"
        )


def make_folder(path: Path, *, cure: str = MAKE_ROOM) -> None:
    """Make a folder, and those that it lies in, unless it is there.

    Raises:
      InputError: It cannot be made.
    """
    with refused(path, cure=cure):
        path.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def whole_folder(path: Path) -> Iterator[None]:
    """A new folder is filled whole or is gone again: then the same may be tried once more.

    Args:
      path: The folder; one that held something before is left as it is.
    """
    was_there = os.path.isdir(path)
    is_new = not was_there or is_empty(path)
    try:
        yield
    except BaseException:
        if is_new:
            empty_folder(path, keep=was_there)
        raise


def is_empty(folder: Path) -> bool:
    """Whether a folder holds nothing, but for drafts of writers that were killed: they are removed.

    Raises:
      OSError: It is none, or cannot be listed.
    """
    _remove_drafts(folder, of=".+")
    return not any(folder.iterdir())


def empty_folder(path: Path, *, keep: bool) -> None:
    """Remove what a folder holds, and the folder unless its maker, who chose its mode, keeps it."""
    with contextlib.suppress(OSError):
        for held in list(path.iterdir()):
            is_folder = held.is_dir() and not held.is_symlink()
            shutil.rmtree(held, ignore_errors=True) if is_folder else held.unlink()
        if not keep:
            path.rmdir()


@contextlib.contextmanager
def refused(path: Path, *, cure: str = MAKE_ROOM) -> Iterator[None]:
    """What the system does not let write is one sentence about the path."""
    try:
        yield
    except OSError as error:
        raise unwritten(
            error, f"{path}: cannot be written ({error.strerror or error}); {cure}"
        ) from None


def permitted(error: BaseException, cure: str) -> str:
    """What to do: of what another user keeps no other place, and no copy, is meant.

    >>> permitted(PermissionError(13, "Permission denied"), "restore it from a copy")
    'type this as the user that it belongs to, or let this one read and write it'
    >>> permitted(FileNotFoundError(2, "No such file or directory"), "restore it from a copy")
    'restore it from a copy'
    """
    if isinstance(error, PermissionError):
        return f"{ANOTHER_USERS}, or let this one read and write it"
    return cure


def unwritten(error: Exception, sentence: str) -> InputError:
    """The error for what could not be written, with the status of why: see :func:`disk_fails`."""
    return DiskError(sentence) if disk_fails(error) else InputError(sentence)


def disk_fails(error: BaseException) -> bool:
    """Whether the disk is full or fails, as the system or SQLite says: it may work later.

    A path that may not be written is a setting. So is a disk that is read-only, also one that
    became so: it is unmounted to be repaired, and whoever starts meanwhile finds no ledger there.

    >>> disk_fails(OSError(errno.ENOSPC, "")), disk_fails(OSError(errno.EROFS, ""))
    (True, False)
    """
    if isinstance(error, OSError):
        return error.errno in (*NO_ROOM, errno.EIO)
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in SQLITE_FAILS


def real_path(path: Path) -> Path:
    """The absolute path behind symbolic links; of a loop of them, which nobody can open, itself."""
    return Path(os.path.realpath(path))


def is_nowhere() -> bool:
    """Whether the folder where this is typed was removed, to which all relative paths belong."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def lock_file(path: Path, *, make: bool = True, far: bool = False) -> int:
    """Take a file for this process alone.

    Args:
      path: The file.
      make: Whether it is made if it is missing, for its user only, and not where a link leads.
      far: Whether it is a database of SQLite, which locks bytes of it, too. An NFS client makes a
        lock on all bytes of ``flock``, and no byte would be left for SQLite. So one is locked that
        is further than any file is long.

    Returns:
      The open file; the lock ends with ``os.close`` or with the process.

    Raises:
      BlockingIOError: Another process holds it.
      FileNotFoundError: It is missing and not to be made, or its folder is missing.
      OSError: It cannot be opened for writing, or is no regular file.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        handle = os.open(path, flags)
    except FileNotFoundError:
        if not make:
            raise
        handle = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        _check_regular(handle, path)
        if not far or not _lock_far(handle):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _lock_far(handle: int) -> bool:
    """Lock the far byte of an open file; False where the system knows no such locks."""
    try:
        fcntl.fcntl(handle, fcntl.F_OFD_SETLK, FAR_LOCK)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return False
        raise
    return True


def open_regular(path: Path) -> BinaryIO:
    """Open a file to be read; one that would make us wait for ever is refused.

    Raises:
      OSError: It cannot be read, or it is a pipe, a device or a folder.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _check_regular(handle, path)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _check_regular(handle: int, path: Path) -> None:
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        raise _irregular(path)


def _irregular(path: Path) -> OSError:
    return OSError(errno.EINVAL, f"{path.name or path} is no regular file", str(path))
