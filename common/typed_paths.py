"""Paths that are typed, of files and of folders: one of the other kind is refused in a sentence."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import click

from common.files import ANOTHER_USERS
from common.texts import brief

EMPTY = "got '', as of a shell's variable that has no value; give a path"


class _Typed(click.Path):
    """A path of a file, of a folder, or of either, which need not be there."""

    def __init__(self, *, is_folder: bool | None) -> None:
        super().__init__(path_type=Path)
        self._is_folder = is_folder

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, unless the other kind is there."""
        if not str(value):
            self.fail(EMPTY, param, ctx)
        path = Path(value)
        try:
            is_file, is_folder = path.is_file(), path.is_dir()
            if (is_file or is_folder) and not os.access(path, os.R_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            whose = f"{ANOTHER_USERS}, or " if isinstance(error, PermissionError) else ""
            self.fail(f"{brief(path)}: {error.strerror}; {whose}give another path", param, ctx)
        if self._is_folder and is_file:
            self.fail(f"{path} is a file; give a folder", param, ctx)
        if self._is_folder is False and is_folder:
            self.fail(f"{path} is a folder; give a file", param, ctx)
        return super().convert(value, param, ctx)


A_FILE, A_FOLDER = _Typed(is_folder=False), _Typed(is_folder=True)
# Whoever reads it says what is wrong with it.
ANY_PATH = click.Path(path_type=Path, readable=False)
# A folder of files is one table.
A_TABLE = _Typed(is_folder=None)
