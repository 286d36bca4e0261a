"""One training, from the start of a run to the files that it leaves in its folder."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from common.arrays import Vector
from common.command import stoppable
from common.errors import InputError, UnreachableError
from common.files import make_folder, refused, write_or_refuse
from common.model import Model
from learner.algorithms.protocol import OutsideBoxError
from learner.commands.display import Display
from learner.commands.going_on import Simulating, Training
from learner.commands.measuring import evaluate
from learner.network.connections import Connections
from learner.planning.public_side import PublicSide
from learner.planning.settings import StudySettings
from learner.planning.side_by_side import side_by_side
from learner.results.arrivals import Arrivals
from learner.results.card import write_card
from learner.results.coefficients import model_of
from learner.results.metrics import LearnerMetrics
from learner.results.progress import Stages
from learner.results.report import print_owners, sentences
from learner.results.report_page import write_report
from learner.results.run_folder import (
    JOURNAL,
    OWNERS,
    SETTINGS,
    STUDY_ID,
    Trace,
    is_begun,
    write_features,
    write_json,
    write_settings,
    write_table,
)
from learner.results.run_quality import Union
from learner.results.run_validation import with_quality
from learner.results.summary import Evaluated, Summary, summarise
from learner.training.closing import is_given_up
from learner.training.journal import Journal
from learner.training.memory_owner import LocalShard
from learner.training.study import Outcome, Watch, name_study, train


@dataclass(frozen=True, eq=False)
class RunStart:
    """A run that begins, or goes on.

    Args:
      folder: The run folder.
      settings: The study.
      public: The feature map and the public records.
      base: The folder that paths of the settings are in.
      going_on: What to type after Ctrl-C.
      stages: What was done before, where it is shown.
      begun: Whether the folder holds the run already.
    """

    folder: Path
    settings: StudySettings
    public: PublicSide
    base: Path
    going_on: Training | Simulating
    stages: Stages | None = None
    begun: bool = False


def train_into(
    start: RunStart,
    connections: Connections,
    *,
    console: Console,
    whole: Union | None = None,
    noiseless: bool = False,
) -> Summary:
    """Train, and write everything the run leaves; returns its summary.

    Args:
      start: What is trained, and where it is written.
      connections: The owners.
      console: Where to print.
      whole: A simulation's records, which it is compared with the best model of.
      noiseless: Whether the run without noise is made however long it takes.

    Raises:
      CoprivError: Ctrl-C, the study's guard, or an owner that refuses or is away, stopped it.
    """
    trace = Trace([owner.name for owner in connections.owners])
    if start.settings.learner.own is not None:
        # Where records of its own are asked exactly, what the run leaves is its user's.
        with refused(start.folder):
            start.folder.chmod(0o700)
    if isinstance(start.going_on, Simulating):
        # By it a simulation is known that was stopped: its owners are gone, wherever others are.
        make_folder(start.folder / OWNERS)
    outcome, study_id, edge = _trained(start, connections, trace, console)
    evaluated, psi, model = _measured(outcome, start.public, trace, whole, noiseless=noiseless)
    summary = summarise(
        outcome, study_id=study_id, evaluated=evaluated, in_memory=connections.in_memory, edge=edge
    )
    write_or_refuse(start.folder / "model.json", model.to_json())
    if whole is not None and evaluated is not None:
        whole = replace(whole, models_alone=evaluated.models_alone)
    summary = with_quality(summary, outcome, model, start.public, whole=whole)
    _write_results(start.folder, summary, trace, psi)
    print_summary(summary, console, has_shown_start=True)
    _print_unclosed(outcome.unclosed, start.going_on, console)
    return summary


def _trained(
    start: RunStart, connections: Connections, trace: Trace, console: Console
) -> tuple[Outcome, str, str | None]:
    """Train, shown as it goes; (what came of it, the study's id, what is said of an edge)."""
    folder, settings, going_on = start.folder, start.settings, start.going_on
    metrics = LearnerMetrics(expiry=connections.expiry)
    with ExitStack() as stack:
        journal = Journal(folder / JOURNAL)
        stack.callback(journal.close)
        _refuse_anothers(start, journal)
        # Before it has a name: where the port is taken, nothing of the run is there yet.
        stack.enter_context(metrics.served(settings.network.metrics))
        # A simulation's owners have read theirs.
        if isinstance(going_on, Training) and not start.begun:
            write_features(folder / "features.json", start.public.feature_map)
        study_id = name_study(settings, journal)
        # Once these settings are there, so is all that a resumed run needs.
        write_settings(folder / SETTINGS, settings, base=start.base)
        display = stack.enter_context(Display(console, trace, metrics, start.stages, start.public))
        arrivals = stack.enter_context(closing(_arrivals(settings, connections, display, going_on)))
        try:
            with stoppable(lambda: display.stopped(going_on.again())):
                if journal.noted("decision") is None:
                    display.plans()
                outcome = train(
                    settings,
                    start.public,
                    connections.owners,
                    journal=journal,
                    requests=connections.requests,
                    foreseen=connections.foreseen,
                    watch=Watch(
                        expected=arrivals.expected,
                        started=display.started,
                        enrolled=display.enrolled,
                        applied=display.applied,
                        missed=metrics.missed.inc,
                    ),
                )
        except UnreachableError as error:
            raise UnreachableError(f"{error}; {going_on.after_absence()}") from None
        except OutsideBoxError as error:
            raise InputError(f"{error}{going_on.after_end()}") from None
        return outcome, study_id, display.edge


def _refuse_anothers(start: RunStart, journal: Journal) -> None:
    """Refuse what another command made of the folder since this one looked; now we hold it.

    Raises:
      InputError: It began a run there, or ended ours.
    """
    folder = start.folder
    refuse_given_up(folder, journal)
    if start.begun and (folder / "summary.json").is_file():
        raise InputError(
            f"{folder}: another command has finished this run meanwhile; type copriv report "
            f"{shlex.quote(str(folder))}"
        )
    if not start.begun and is_begun(folder):
        raise InputError(
            f"{folder}: another command began a run there meanwhile, which is left as it is; give "
            "another folder"
        )


def refuse_given_up(folder: Path, journal: Journal) -> None:
    """Refuse to go on with a run whose owners were told that it is over.

    Raises:
      InputError: It is such a run.
    """
    if is_given_up(journal):
        raise InputError(
            f"{folder}: the run was given up with copriv close --abandon, and cannot go on; "
            "start a new one with copriv train STUDY.toml"
        )


def _measured(
    outcome: Outcome, public: PublicSide, trace: Trace, whole: Union | None, *, noiseless: bool
) -> tuple[Evaluated | None, Vector | None, Model]:
    """What a simulation's run is compared with, its relative fitness along the way, and the model.

    Both parts run the study again: the one without noise, the other many times with new noise.
    """
    if whole is None:
        return None, None, model_of(outcome, public)
    with side_by_side([lambda: model_of(outcome, public)]) as modelled:
        evaluated, psi = evaluate(outcome, trace, whole.shards, public, noiseless=noiseless)
        [model] = modelled()
    return evaluated, psi, model


def _print_unclosed(
    names: Sequence[str], going_on: Training | Simulating, console: Console
) -> None:
    """Who still holds what it did not spend."""
    if names and going_on.close is not None:
        console.print(
            f"{', '.join(names)}: away at the end, so what was not spent stays reserved there; "
            f"when back: {going_on.close}",
            highlight=False,
        )


def _arrivals(
    settings: StudySettings,
    connections: Connections,
    display: Display,
    going_on: Training | Simulating,
) -> Arrivals:
    """Who is not there yet: owners elsewhere, since those that are started here come in time."""
    remote = connections.owners if isinstance(going_on, Training) else ()
    return Arrivals(
        [owner.name for owner in remote if not isinstance(owner, LocalShard)],
        patience=settings.network.patience,
        on_all=display.arrived,
    )


def _write_results(folder: Path, summary: Summary, trace: Trace, psi: Vector | None) -> None:
    """The trace, the pages and, last, the summary."""
    table = trace.table(psi)
    table.attrs[STUDY_ID] = summary.study_id
    write_table(folder / "trace.parquet", table)
    write_card(folder, summary)
    write_report(folder, summary)
    # Last: a folder with a summary is a finished run.
    write_json(folder / "summary.json", summary.as_json())


def print_summary(summary: Summary, console: Console, *, has_shown_start: bool = False) -> None:
    """Print a run's table and what is to be said of it.

    Args:
      summary: What the run left.
      console: Where to print.
      has_shown_start: Whether what was decided at the start stands above already.
    """
    print_owners(summary, console)
    for sentence in sentences(summary, has_shown_start=has_shown_start):
        console.print(sentence, highlight=False)
