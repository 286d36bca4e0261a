"""Warnings for operators about private files that others on the machine can read."""

from __future__ import annotations

import logging
from pathlib import Path

__all__ = ["warn_of_readers"]

log = logging.getLogger("copriv.files")


def warn_of_readers(path: Path) -> None:
    """Log a warning if others on this machine may read a file that only its owner should."""
    if path.stat().st_mode & 0o077:
        log.warning("%s can be read by others on this machine; chmod 600 it", path)
