"""What to type after a command was stopped, or where it finds what an earlier one left."""

from __future__ import annotations

import shlex
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from common.command import ANEW, SAME, stoppable
from learner.results.run_folder import is_begun


def close_command(folder: Path, *, insecure: bool, abandon: bool = False) -> str:
    """What gives the unused epsilon of a run back.

    >>> close_command(Path("runs/a b"), insecure=False, abandon=True)
    "copriv close 'runs/a b' --abandon"
    """
    return _typed("close", folder, {"--abandon": abandon, "--insecure": insecure})


def _typed(command: str, folder: Path, flags: dict[str, bool]) -> str:
    given = [flag for flag, is_given in flags.items() if is_given]
    return " ".join(["copriv", command, shlex.quote(str(folder)), *given])


@dataclass(frozen=True)
class Training:
    """A run with owners that are elsewhere: it goes on.

    Args:
      folder: The run's.
      insecure: Whether --insecure was typed.
      resumes: Whether --resume was, so that the same command goes on.
    """

    folder: Path
    insecure: bool
    resumes: bool = False

    @property
    def resume(self) -> str:
        """The command that goes on.

        >>> Training(Path("runs/a"), insecure=True).resume
        'copriv train --resume runs/a --insecure'
        """
        return _typed("train --resume", self.folder, {"--insecure": self.insecure})

    @property
    def close(self) -> str | None:
        """The command that gives back what its owners still reserve."""
        return close_command(self.folder, insecure=self.insecure)

    def again(self) -> str:
        """How to go on, as a sentence ends."""
        if self.resumes:
            return SAME
        return f"`{self.resume}` goes on" if is_begun(self.folder) else ANEW

    def after_absence(self) -> str:
        """What to do when nobody answers."""
        return f"start them, then: {self.resume}"

    def after_end(self) -> str:
        """What to do when it can never go on."""
        abandon = close_command(self.folder, insecure=self.insecure, abandon=True)
        return f"; what owners still reserve for this one comes back by `{abandon}`"


@dataclass(frozen=True)
class Simulating:
    """A run whose owners end with it: it does not go on.

    Args:
      out: The folder that was typed, if any.
    """

    out: Path | None
    close: None = None

    def again(self) -> str:
        """How to begin again, as a sentence ends.

        >>> Simulating(None).again()
        'a simulation does not go on: type the same command again to start over'
        """
        what = "a simulation does not go on:"
        if self.out is None or not self.out.is_dir() or not any(self.out.iterdir()):
            return f"{what} {ANEW}"
        return f"{what} to start over, remove {self.out}, or give another folder with --out"

    def after_absence(self) -> str:
        """What to do when nobody answers."""
        return self.again()

    def after_end(self) -> str:
        """What to do when it can never go on: nothing, its owners ended with it."""
        return ""


def stoppable_run(run: Training | Simulating) -> AbstractContextManager[None]:
    """Ctrl-C anywhere in a run says what to do."""
    return stoppable(lambda: f"stopped; {run.again()}")


def kept_in(folder: Path, out: Path | None) -> AbstractContextManager[None]:
    """Ctrl-C while points are computed, each of which is kept in a folder; the same one goes on.

    Args:
      folder: Where they are.
      out: The folder that was typed, if any.
    """
    typed = SAME if out is not None else f"the same with --out {shlex.quote(str(folder))} goes on"
    return stoppable(lambda: f"stopped; {typed}, and what was computed is kept")
