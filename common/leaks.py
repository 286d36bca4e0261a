"""How a command line shows that public numbers were taken from private records."""

from __future__ import annotations

import warnings

import click

from common.errors import PrivacyLeakWarning

__all__ = ["show_leaks"]


def show_leaks(command: str) -> None:
    """Print each :class:`PrivacyLeakWarning` as one sentence; other warnings are not shown."""

    def show(message: Warning | str, category: type[Warning], *_: object) -> None:
        if issubclass(category, PrivacyLeakWarning):
            click.echo(f"{command}: warning: {message}", err=True)

    warnings.simplefilter("always", PrivacyLeakWarning)
    warnings.showwarning = show  # type: ignore[assignment]
