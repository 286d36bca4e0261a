"""The files of a ledger: held by one process, and marked with how far the ledger has come.

SQLite keeps a ledger in three files, NAME, NAME-wal and NAME-shm; NAME-given and NAME.lock stand
beside them. The last charge or response may stand in only one of them. So each change of the ledger
marks how far it has come: on SQLite's files as an extended attribute, in NAME.lock, and at the
start of NAME-given. Whichever file survives shows what was given.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from common.files import disk_fails, lock_file, open_regular, real_path, sync_folder
from common.mounts import unshared_locks
from common.own_files import warn_of_others
from owner.ledger_given import GIVEN, MARK_BYTES, GivenLog
from owner.ledger_rows import LedgerError, in_the_way

log = logging.getLogger("copriv.owner")

# SQLite's own, which take a mark as an attribute only; the content of the others begins with it.
DATABASE = ("", "-wal", "-shm")
SUFFIXES = (*DATABASE, GIVEN, ".lock")
ATTRIBUTE = "user.copriv.generation"
# How much its log had noted came to it later.
MARK = re.compile(rb"generation ([ 0-9]{20}(?: [ 0-9]{8})?) ([0-9a-f]{8})\n")
# A ledger of version 2 counted its responses beside it.
OLD_MARK = re.compile(rb"([ 0-9]{20})\n")
READ_BYTES = 4 * 2**20
# What ``st_blocks`` counts, whatever the file system's own blocks are.
BLOCK_BYTES = 512
SURELY_OLD = 10**9
# What SQLite makes of a file before its first commit, which goes to the -wal.
ONE_PAGE = 4096

EMPTIED = (
    "the ledger is empty but studies or responses were given before; restore the newest copy of it "
    "and of the files beside it"
)
UNMARKED = (
    "nothing beside it shows how far it had come, as in a copy of this file alone; if it was "
    "copied while its owner served or after a crash, stop the owner: what was spent since would "
    "be spent again"
)
HIDDEN_LOCKS = (
    "its disk ({}) hides this machine's locks from others; served on two machines at once, one "
    "budget is spent twice: mount it without that option, or keep the ledger on another disk"
)
NO_FOLDER = "its folder is not there; mount the disk that holds it, make the folder"


@dataclass(frozen=True, order=True)
class Mark:
    """How far the ledger had come, by the furthest of its marks; 0 where there is none.

    Args:
      generation: How many changes it had come through.
      noted: How many responses of that generation stood in the log.
      responses: How many were given, where version 2 counted them.
    """

    generation: int = 0
    noted: int = 0
    responses: int = 0

    def __bool__(self) -> bool:
        """Whether anything was ever noted."""
        return self.generation > 0 or self.responses > 0


def read_mark(path: Path) -> Mark:
    """The furthest mark of all files of a ledger that are there.

    Raises:
      LedgerError: A mark is not what was written.
    """
    marks, responses = [(0, 0)], 0
    for suffix in DATABASE:
        # No file, no attribute, or a file system that keeps none.
        with contextlib.suppress(OSError):
            text = os.getxattr(f"{path}{suffix}", ATTRIBUTE)
            marks.append(_read_mark(text, path, suffix))
    for suffix in (GIVEN, ".lock"):
        with contextlib.suppress(FileNotFoundError):
            # One that was just made is empty, and after a power failure it may be zeros.
            text = _start_of(Path(f"{path}{suffix}")).strip(b"\0")
            old = OLD_MARK.fullmatch(text)
            if old:
                responses = int(old[1])
            elif text:
                marks.append(_read_mark(text, path, suffix))
    return Mark(*max(marks), responses)


def _start_of(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read(MARK_BYTES)


def _read_mark(text: bytes, path: Path, suffix: str) -> tuple[int, int]:
    """The numbers of a mark, if it is whole."""
    found = MARK.fullmatch(text)
    if found is None or _checksum(found[1]) != found[2]:
        raise LedgerError(
            f"{path}{suffix}: the mark of how far the ledger has come is damaged; restore the "
            "ledger with all its files from a copy"
        )
    return int(found[1][:20]), int(found[1][20:] or b"0")


def _mark_text(mark: Mark) -> bytes:
    numbers = b"%20d %8d" % (mark.generation, mark.noted)
    return b"generation %b %b\n" % (numbers, _checksum(numbers))


def _checksum(numbers: bytes) -> bytes:
    return hashlib.sha256(numbers).hexdigest()[:8].encode()


def _read_through(handle: int) -> None:
    """Read a file once from its start to its end, so that it is in memory.

    All of it is checked at the start, in the order of its rows; a disk reads it ten times faster
    in the file's own order. No more is read than takes room on a disk: a hole may have any size.
    """
    held = os.fstat(handle)
    left, read = min(held.st_size, held.st_blocks * BLOCK_BYTES), 0
    buffer = bytearray(min(READ_BYTES, left))
    while read < left and (count := os.preadv(handle, [buffer], read)):
        read += count


def is_held(path: Path) -> bool:
    """Whether a process serves from a ledger now.

    If none does, a process that begins at this very moment may be refused: ask only where no
    process could begin anyway.
    """
    try:
        os.close(lock_file(Path(f"{real_path(path)}.lock"), make=False))
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


class LedgerFiles:
    """The files of one ledger, held by this process alone.

    Guarantees:
      * No other process holds any of the files, under whatever name.
      * What the next start will find are the files that are written to, or nothing is written.

    Raises:
      LedgerError: The files cannot be written, are held by another process, or are not whole.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names = {suffix: f"{path}{suffix}" for suffix in SUFFIXES}
        self._folder_name = str(path.parent)
        # Closed only after SQLite's own: closing any handle of a file would drop its locks.
        self._handles: dict[str, int] = {}
        # Of what is held: device and number, which stay while a handle is open.
        self._inodes: dict[str, tuple[int, int]] = {}
        self._sizes: dict[str, int] = {}
        self._attributes = True
        self._generation = -1
        # The folder when all was in its place, if that was long enough after its last change.
        self._folder: tuple[int, int, int] | None = None
        try:
            # Made before the ledger, so only a copy is without it.
            has_lock = os.path.lexists(self._names[".lock"])
            self._hold(".lock")
            self.mark = read_mark(path)
            if self._is_empty("") and (self.mark or not self._is_empty("-wal")):
                raise LedgerError(f"{path}: {EMPTIED}")
            self._hold("")
            if not has_lock and not self.mark:
                self._check_copy()
            _read_through(self._handles[""])
            for suffix in ("-wal", "-shm", GIVEN):
                with contextlib.suppress(FileNotFoundError):
                    self._hold(suffix, make=False)
        except BaseException:
            self.close()
            raise

    def adopt(self) -> GivenLog:
        """Hold and watch the files that SQLite has made by now as well, and the log of charges."""
        for suffix in SUFFIXES:
            if suffix not in self._handles:
                self._hold(suffix, make=suffix == GIVEN)
        # Made for its owner alone; a copy that was restored may not be.
        warn_of_others(*(Path(f"{self._path}{suffix}") for suffix in SUFFIXES))
        if unshared := unshared_locks(self._path):
            log.warning("%s: %s", self._path, HIDDEN_LOCKS.format(unshared))
        # The log may have been made just now: after a power cut it must have its name.
        sync_folder(self._path.parent)
        self.check_in_place()
        return GivenLog(self._handles[GIVEN])

    def drop_log(self) -> None:
        """Delete the log of charges, of which nothing is needed any more."""
        self.check_in_place()
        Path(self._names[GIVEN]).unlink()

    def check_names(self) -> None:
        """Refuse to go on with a file that the next start will not find.

        Who moves, replaces or deletes a file changes its folder, and nobody can set back when that
        was. Only a folder that has changed since all was looked at is looked at again.
        """
        try:
            there = os.stat(self._folder_name)
        except OSError:
            raise self._lost("") from None
        changed = there.st_dev, there.st_ino, there.st_ctime_ns
        if changed == self._folder:
            return
        self.check_in_place()
        # Two changes within a tick of the system's clock have the same time.
        is_old = time.time_ns() - there.st_ctime_ns > SURELY_OLD
        self._folder = changed if is_old else None

    def check_in_place(self) -> None:
        """Refuse to go on with a file that the next start will not find, or not all of it."""
        for suffix, inode in self._inodes.items():
            try:
                there = os.stat(self._names[suffix])
            except OSError:
                raise self._lost(suffix) from None
            # None of them ever gets shorter while it is in use.
            if (there.st_dev, there.st_ino) != inode or there.st_size < self._sizes.get(suffix, 0):
                raise self._lost(suffix)
            self._sizes[suffix] = there.st_size

    def write_mark(self, mark: Mark) -> None:
        """Note on every file how far the ledger has come.

        Not synced, and a failure does not matter: a mark that lags makes its check weaker, and
        what it refers to is on the disk already.
        """
        text = _mark_text(mark)
        with contextlib.suppress(OSError):
            os.pwrite(self._handles[".lock"], text, 0)
            # What comes within a generation stands in the log itself.
            if mark.generation != self._generation:
                os.pwrite(self._handles[GIVEN], text, 0)
                self._generation = mark.generation
        if not self._attributes:
            return
        for suffix in DATABASE:
            try:
                os.setxattr(self._handles[suffix], ATTRIBUTE, text)
            except OSError as error:
                if error.errno == errno.ENOTSUP:
                    self._do_without_attributes()
                    return

    def close(self) -> None:
        """Release the files; after SQLite has."""
        for handle in self._handles.values():
            os.close(handle)
        self._handles.clear()
        self._inodes.clear()

    def _do_without_attributes(self) -> None:
        self._attributes = False
        log.warning(
            "%s: its file system keeps no extended attributes; only %s.lock shows whether the "
            "ledger is the newest, keep the two together",
            self._path,
            self._path.name,
        )

    def _check_copy(self) -> None:
        """Refuse a copy that lacks all charges, or warn of one that may lack some."""
        if self._is_empty(""):
            return
        if os.stat(self._path).st_size <= ONE_PAGE and self._is_empty("-wal"):
            # A ledger that is refused is left as it is.
            os.unlink(self._names[".lock"])
            raise LedgerError(
                f"{self._path}: the ledger holds nothing, as a copy that was made without the "
                "files beside it; restore it with all of them, or remove it if these records "
                "have never served"
            )
        log.warning("%s: %s", self._path, UNMARKED)

    def _is_empty(self, suffix: str) -> bool:
        """Whether a file is empty or not there."""
        try:
            return os.stat(f"{self._path}{suffix}").st_size == 0
        except OSError:
            return True

    def _lost(self, suffix: str) -> LedgerError:
        return LedgerError(
            f"{self._path}{suffix}: the ledger was moved or replaced while in use, or cut short; "
            "put the file back and start the owner again"
        )

    def _hold(self, suffix: str, *, make: bool = True) -> None:
        """Take one file for this process alone; the lock ends with the process."""
        try:
            # Readable by its owner only: the ledger holds what was asked of the records.
            path = Path(f"{self._path}{suffix}")
            handle = lock_file(path, make=make, far=suffix in DATABASE)
            self._handles[suffix], held = handle, os.fstat(handle)
            self._inodes[suffix] = held.st_dev, held.st_ino
        except BlockingIOError:
            raise LedgerError(
                f"{self._path}: another process holds this ledger; stop it first, two owners must "
                "not share one budget"
            ) from None
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not make:
                raise
            if disk_fails(error):
                raise  # in the words for all that its disk does not let it do
            if isinstance(error, FileNotFoundError):
                raise LedgerError(
                    f"{self._path}: {NO_FOLDER}, or give another path as `ledger` in the owner's "
                    "settings"
                ) from None
            raise in_the_way(error, self._path) or LedgerError(
                f"{self._path}: the ledger or its folder cannot be written ({error.strerror}); "
                "make it writable, or give a writable path as `ledger` in the owner's settings"
            ) from None
