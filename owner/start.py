"""The command copriv-owner."""

from __future__ import annotations

from common.start import start

__all__ = ["main"]


def main() -> None:
    """Run it; nothing of it is imported before Ctrl-C ends it in a sentence."""
    start("copriv-owner", "owner.cli")
