"""Shards on the disk, beside the ledger: for records that do not fit the memory.

A file holds the targets and the features of one shard, as they are added up, and is mapped into
memory: the system reads what is needed and drops what is not. It is named after the records'
fingerprint, the feature map and the storage, so other records never get an old file.

Guarantees:
  * Folder and files are this user's alone (0700, 0600).
  * An existing file is used only if its SHA-256 is the one noted when it was complete: a flipped
    bit would be a record beyond its bounds. Otherwise it is made again.
  * At most :data:`KEPT_FILES` are kept, whatever maps learners send.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from common.errors import InputError
from common.files import open_regular, unwritten, write_whole
from common.own_files import is_own_folder, own_folder
from common.terms import Records
from owner.stored import Storage

log = logging.getLogger("copriv.owner")

KEPT_FILES = 4
# Of format 1 features may be smaller than arithmetic of one speed allows.
FORMAT = "copriv-shard-2"
PRIVATE = 0o600
LOCK = "lock"
# Features begin at a page of memory.
PAGE = 4096
# Of a SHA-256.
DIGITS = 64


class ShardCache:
    """The files of one owner's shards.

    Args:
      folder: Where they are; it is made.
      fingerprint: What the ledger is bound to: which records they are of.

    Raises:
      InputError: The folder is not this user's alone.
    """

    def __init__(self, folder: Path, *, fingerprint: str) -> None:
        if own_folder(folder) is None:
            raise _not_own(folder)
        self._folder, self._fingerprint = folder, fingerprint

    def records(
        self,
        map_digest: str,
        shape: tuple[int, int],
        *,
        storage: Storage,
        fill: Callable[[Records], None],
    ) -> Records:
        """The records of a shard, mapped from its file, which is made if it is not there.

        Args:
          map_digest: The feature map's.
          shape: Numbers of records and features.
          storage: How features are stored.
          fill: Writes all records into their places, if the file has to be made.

        Raises:
          InputError: The disk is full, or the folder cannot be written.
        """
        path = self._path(map_digest, shape, storage)
        noted = path.with_suffix(".sha256")
        try:
            with self._alone():
                if not _is_whole(path, noted, _size(shape, storage)):
                    self._make(path, noted, shape, storage, fill)
                os.utime(path)
                self._prune(path)
                return _mapped(path, shape, storage, mode="r")
        except OSError as error:
            raise unwritten(
                error,
                f"{self._folder}: a shard cannot be kept there ({error.strerror}); "
                f"{_size(shape, storage) >> 20:,} MB are needed; make room, or set "
                "data.cache = false",
            ) from None

    def has(self, map_digest: str, shape: tuple[int, int], *, storage: Storage) -> bool:
        """Whether a shard has a file; whether that is whole is looked at when it is mapped."""
        return self._path(map_digest, shape, storage).exists()

    def _path(self, map_digest: str, shape: tuple[int, int], storage: Storage) -> Path:
        key = f"{FORMAT} {self._fingerprint} {map_digest} {shape} {storage}"
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.shard"

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait until no other thread or process makes files here, and keep others waiting."""
        handle = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            # Who was making these was killed.
            for draft in self._folder.glob("*.part"):
                draft.unlink(missing_ok=True)
            yield
        finally:
            os.close(handle)

    def _make(
        self,
        path: Path,
        noted: Path,
        shape: tuple[int, int],
        storage: Storage,
        fill: Callable[[Records], None],
    ) -> None:
        """Write a shard's file; until its digest is noted, it does not count."""
        noted.unlink(missing_ok=True)
        draft = path.with_suffix(".part")
        start = time.monotonic()
        # Not the file: its name would confirm a correct guess of all records.
        log.info("a shard of %d records is written to %s", shape[0], self._folder)
        try:
            handle = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
            try:
                # All of it now: a disk that fills up later would end the process.
                os.posix_fallocate(handle, 0, _size(shape, storage))
            finally:
                os.close(handle)
            records = _mapped(draft, shape, storage, mode="r+")
            fill(records)
            for array in (records.features, records.targets):
                _map_of(array).flush()
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)
        write_whole(noted, _digest(path), mode=PRIVATE)
        log.info("it took %.0f s", time.monotonic() - start)

    def _prune(self, used: Path) -> None:
        """Delete the files not used for longest; a process that has mapped one keeps it."""

        def last_use(file: Path) -> tuple[bool, int]:
            # The clock may have been set back since others were used.
            return file == used, file.stat().st_mtime_ns

        files = sorted(self._folder.glob("*.shard"), key=last_use)
        for file in files[:-KEPT_FILES]:
            file.with_suffix(".sha256").unlink(missing_ok=True)
            file.unlink(missing_ok=True)


def check_folder(folder: Path) -> str:
    """Refuse what no shards can be kept in, and say where they are; nothing is made.

    Raises:
      InputError: The folder is not this user's alone, or would not be.
    """
    if not is_own_folder(folder):
        raise _not_own(folder)
    return f"kept in {folder}"


def _not_own(folder: Path) -> InputError:
    return InputError(
        f"{folder}: shards are kept there, and it is not a folder of this user alone; "
        "chmod 700 it, or set data.cache = false"
    )


def _size(shape: tuple[int, int], storage: Storage) -> int:
    """The file's length."""
    return _features_at(shape[0]) + shape[0] * shape[1] * np.dtype(storage).itemsize


def _features_at(num_records: int) -> int:
    """Where features begin: behind the targets."""
    return -(-8 * num_records // PAGE) * PAGE


def _mapped(path: Path, shape: tuple[int, int], storage: Storage, *, mode: str) -> Records:
    """The records of a file."""
    targets = np.memmap(path, np.float64, mode, 0, (shape[0],))  # type: ignore[call-overload]
    at = _features_at(shape[0])
    features = np.memmap(path, storage, mode, at, shape)  # type: ignore[call-overload]
    return Records(features=np.asarray(features), targets=np.asarray(targets))


def _map_of(array: np.ndarray) -> np.memmap:
    """The map that an array is a view of."""
    assert isinstance(array.base, np.memmap)  # noqa: S101 (as _mapped makes it)
    return array.base


def _is_whole(path: Path, noted: Path, size: int) -> bool:
    """Whether a file is there as it was written."""
    try:
        with open_regular(noted) as file:
            digest = file.read(DIGITS + 1).decode("ascii")
        return path.stat().st_size == size and _digest(path) == digest
    except (OSError, UnicodeDecodeError):
        return False


def _digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
