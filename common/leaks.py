"""What an operator is told before something private becomes public by accident."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import click

from common.errors import PrivacyLeakWarning

__all__ = ["show_leaks", "warn_of_readers"]

log = logging.getLogger("copriv.files")


def show_leaks(command: str) -> None:
    """Print each :class:`PrivacyLeakWarning` as one sentence; other warnings are not shown."""

    def show(message: Warning | str, category: type[Warning], *_: object) -> None:
        if issubclass(category, PrivacyLeakWarning):
            click.echo(f"{command}: warning: {message}", err=True)

    warnings.simplefilter("always", PrivacyLeakWarning)
    warnings.showwarning = show  # type: ignore[assignment]


def warn_of_readers(path: Path) -> None:
    """Log that others on this machine may read a file that is its owner's alone."""
    if path.stat().st_mode & 0o077:
        log.warning("%s can be read by others on this machine; chmod 600 it", path)
