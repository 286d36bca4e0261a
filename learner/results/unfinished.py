"""What a folder is that holds no finished run."""

from __future__ import annotations

import shlex
from pathlib import Path

from learner.results.run_folder import OWNERS, is_begun

__all__ = ["why_unfinished"]

OTHER = "give the folder of a finished run"


def why_unfinished(folder: Path) -> str:
    """Why there is no summary of a run in a folder, and what to do, as a sentence.

    >>> why_unfinished(Path("nowhere"))
    'nowhere: there is no such folder; give the folder of a finished run'
    """
    if not folder.exists():
        return f"{folder}: there is no such folder; {OTHER}"
    if not folder.is_dir():
        return f"{folder}: is a file; {OTHER}"
    for kind, its_file in (("forecast", "forecast.json"), ("sweep", "sweep.parquet")):
        if (folder / its_file).is_file():
            return (
                f"{folder}: this folder holds a {kind} and no run; give the folder of a run, or "
                f"open {kind}.html there"
            )
    # A study that was not run yet is a folder with its settings, too.
    if not (is_begun(folder) and (folder / "journal.sqlite").is_file()):
        return f"{folder}: holds no summary.json that can be read; {OTHER}"
    if (folder / OWNERS).is_dir():
        return f"{folder}: the simulation has not finished, and does not go on; {OTHER}"
    return (
        f"{folder}: the run has not finished; continue it with copriv train --resume "
        f"{shlex.quote(str(folder))}"
    )
