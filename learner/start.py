"""The command copriv."""

from __future__ import annotations

from common.start import start


def main() -> None:
    """Run it; nothing of it is imported before Ctrl-C ends it in a sentence."""
    start("copriv", "learner.cli")
