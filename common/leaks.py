"""What an operator is told before something private becomes public by accident."""

from __future__ import annotations

import logging
from pathlib import Path

__all__ = ["warn_of_readers"]

log = logging.getLogger("copriv.files")


def warn_of_readers(path: Path) -> None:
    """Log that others on this machine may read a file that is its owner's alone."""
    if path.stat().st_mode & 0o077:
        log.warning("%s can be read by others on this machine; chmod 600 it", path)
