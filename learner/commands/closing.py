"""``copriv close``: the epsilon that a run did not spend goes back to the owners' budgets."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path

from rich.console import Console

from common.command import stoppable
from common.errors import CoprivError, InputError, OrderError, RefusedError, UnreachableError
from common.features import load_feature_map
from learner.commands.going_on import Training, close_command
from learner.network.connections import remote_owners
from learner.planning.settings import StudySettings, is_elsewhere, with_remote_owners
from learner.results.run_folder import JOURNAL, OWNERS, is_begun, settings_of_run
from learner.training.claims import check_description
from learner.training.closing import (
    close_validation,
    is_given_up,
    note_closed,
    note_given_up,
    open_promises,
)
from learner.training.enrolment import at_once
from learner.training.journal import Journal
from learner.training.owners import Owner
from learner.training.study import name_of_begun


def close_run(folder: Path, *, abandon: bool, insecure: bool, console: Console) -> None:
    """Close a run's study with every owner that may still hold epsilon for it.

    Args:
      folder: The run folder.
      abandon: Whether to end a run that has not finished.
      insecure: Whether plain text may leave this machine.
      console: Where to print.

    Raises:
      InputError: The folder holds no run, or one that could still go on.
      UnreachableError: An owner is away; the others are closed.
      RefusedError: An owner refuses; the others are closed.
    """
    settings = settings_of_run(folder)
    _refuse_simulated(settings, folder)
    is_finished = (folder / "summary.json").is_file()
    if not is_begun(folder):
        raise InputError(
            f"{folder}: its {JOURNAL}, which says who may hold epsilon, is gone; put it back, or "
            "let each owner's officer type copriv-owner ledger close"
        )
    with closing(Journal(folder / JOURNAL)) as journal:
        # What was given up once cannot go on, so it need not be typed again.
        was_given_up = is_given_up(journal)
        if not (abandon or is_finished or was_given_up):
            raise InputError(
                f"{folder}: the run has not finished, and once its study is closed it cannot go "
                f"on; continue it with {Training(folder, insecure).resume}, or give it up with "
                "--abandon"
            )
        study_id = name_of_begun(settings, journal, path=folder / JOURNAL)
        promising = open_promises([entry.name for entry in settings.owners], journal)
        names = [name for name in promising if name != settings.learner.own]
        if not names:
            console.print(f"{folder}: no owner holds epsilon for this run", highlight=False)
            return
        feature_map = load_feature_map(folder / "features.json")
        only = with_remote_owners(settings, names)
        again = close_command(folder, insecure=insecure, abandon=abandon)
        with (
            stoppable(lambda: f"stopped; `{again}` closes those that are left"),
            remote_owners(only, feature_map, base=folder, insecure=insecure) as connections,
        ):
            if not is_finished:
                note_given_up(journal)
            failures = at_once(lambda owner: _close(owner, study_id), connections.owners)
        closed = [name for name, failure in zip(names, failures, strict=True) if not failure]
        note_closed(journal, closed)
        if not is_finished:
            note_given_up(journal, was=was_given_up or bool(closed))
    for name in closed:
        console.print(f"{name}: closed; what it did not spend is its own again", highlight=False)
    _raise_first([failure for failure in failures if failure], again)


def _refuse_simulated(settings: StudySettings, folder: Path) -> None:
    """A simulation's owners end with it: its run neither goes on nor has anything to close."""
    if not is_elsewhere(settings) or (folder / OWNERS).is_dir():
        raise InputError(
            f"{folder}: its owners were started here by copriv simulate and have ended; there is "
            "nothing to close"
        )


def _close(owner: Owner, study_id: str) -> CoprivError | None:
    """Close the study with one owner; why it did not work."""
    try:
        check_description(owner.describe(), name=owner.name)
        # Where it was never enrolled it holds nothing.
        with suppress(OrderError):
            owner.close(study_id)
        close_validation(owner, study_id)
    except CoprivError as error:
        return error
    finally:
        owner.disconnect(over=True)
    return None


def _raise_first(failures: list[CoprivError], again: str) -> None:
    """One sentence for all owners that are not closed."""
    if not failures:
        return
    reasons = "; ".join(str(failure) for failure in failures)
    away = [failure for failure in failures if isinstance(failure, UnreachableError)]
    kind = UnreachableError if away else RefusedError
    raise kind(f"not closed: {reasons}; then type {again} again")
