"""``copriv simulate``, ``train`` and ``report``: from a study's settings to its run folder."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from pathlib import Path

import pandas as pd
from rich.console import Console

from common.arrays import Vector
from common.column_faults import warn_of_misfits
from common.command import stoppable
from common.errors import InputError, UnreachableError
from common.features import FeatureMap
from common.files import make_folder, refuse_to_replace, refused, write_or_refuse
from common.terms import Records
from common.texts import counted
from learner.commands.display import Display, listening
from learner.commands.going_on import Simulating, Training, stoppable_run
from learner.commands.measuring import Evaluate, evaluate_with
from learner.network.connections import Connections, remote_owners, simulated_owners
from learner.network.processes import owner_tables
from learner.network.warm_parent import WarmParent
from learner.planning.public_side import PublicSide, prepare_public_side
from learner.planning.settings import StudySettings
from learner.results.arrivals import Arrivals
from learner.results.card import write_card
from learner.results.coefficients import model_of
from learner.results.compare import ONE_DRAW, comparison_table, verdict, write_comparison
from learner.results.metrics import LearnerMetrics
from learner.results.progress import Stages
from learner.results.report import print_owners, sentences
from learner.results.report_page import write_report
from learner.results.run_folder import (
    JOURNAL,
    OWNERS,
    Trace,
    new_run_folder,
    run_of,
    write_features,
    write_json,
    write_settings,
    write_table,
)
from learner.results.run_quality import Union
from learner.results.run_validation import with_quality
from learner.results.summary import Summary, read_summary, summarise
from learner.training.closing import is_given_up
from learner.training.journal import Journal
from learner.training.memory_owner import LocalShard
from learner.training.study import train

__all__ = [
    "compare_runs",
    "read_shards",
    "report_run",
    "run_simulation",
    "run_training",
    "train_into",
]


def run_training(
    settings: StudySettings | None,
    *,
    base: Path,
    out: Path | None,
    console: Console,
    insecure: bool = False,
    resume: Path | None = None,
    yes: bool = False,
) -> Path:
    """Train with owners that run elsewhere; returns the run folder.

    Args:
      settings: The study; None continues the one of ``resume``.
      base: The folder of the study's file.
      out: A new run folder.
      console: Where to print.
      insecure: Whether plain text may leave this machine.
      resume: The folder of a run to continue, or to begin in if it holds none.
      yes: Whether a run that the guard has stopped goes on.

    Raises:
      CoprivError: Bad input, an owner that refuses, or owners that cannot be reached.
    """
    begun = None if resume is None else run_of(resume, settings, base=base)
    if begun is not None and resume is not None:
        begun = begun.model_copy(update={"guard": False}) if yes else begun
        going_on = Training(resume, insecure, resumes=True)
        with stoppable_run(going_on):
            return _continue(going_on, begun, console=console)
    assert settings is not None  # noqa: S101 (run_of refuses a folder without a study)
    if resume is not None:
        console.print(f"{resume}: no run is there yet, so a new one begins there", highlight=False)
    stages = Stages(console)
    public = prepare_public_side(settings, base=base, on_done=stages)
    with (
        _remote(settings, public, base=base, insecure=insecure, console=console) as connections,
        nullcontext(resume)
        if resume
        else new_run_folder(out, name=settings.name, trains=True) as folder,
        stoppable_run(going_on := Training(folder, insecure, resumes=resume is not None)),
    ):
        make_folder(folder)
        write_features(folder / "features.json", public.feature_map)
        train_into(
            folder,
            settings,
            public,
            connections,
            base=base,
            console=console,
            evaluate=None,
            stages=stages,
            going_on=going_on,
        )
    return folder


def _remote(
    settings: StudySettings, public: PublicSide, *, base: Path, insecure: bool, console: Console
) -> AbstractContextManager[Connections]:
    """The owners that run elsewhere."""
    told = listening(console)
    return remote_owners(
        settings, public.feature_map, base=base, insecure=insecure, on_listening=told
    )


def _continue(going_on: Training, settings: StudySettings, *, console: Console) -> Path:
    """Continue a run where it ended; one that has finished is only shown."""
    folder, insecure = going_on.folder, going_on.insecure
    if (folder / "summary.json").is_file():
        console.print(f"{folder}: this run has finished", highlight=False)
        report_run(folder, console=console)
        return folder
    if (folder / OWNERS).is_dir():
        raise InputError(
            f"{folder}: this is a simulation, whose owners end with it, so it does not go on; "
            "start over with copriv simulate, into another folder"
        )
    with closing(Journal(folder / JOURNAL)) as journal:
        if is_given_up(journal):
            raise InputError(
                f"{folder}: the run was given up with copriv close --abandon, and cannot go on; "
                "start a new one with copriv train STUDY.toml"
            )
    agreed = settings.features.model_copy(update={"map": (folder / "features.json").absolute()})
    public = prepare_public_side(settings.model_copy(update={"features": agreed}), base=folder)
    with _remote(settings, public, base=folder, insecure=insecure, console=console) as connections:
        train_into(
            folder,
            settings,
            public,
            connections,
            base=folder,
            console=console,
            evaluate=None,
            going_on=going_on,
        )
    return folder


def run_simulation(
    settings: StudySettings,
    *,
    base: Path,
    out: Path | None,
    parent: WarmParent | None,
    insecure_noise_seed: int | None,
    allow_private_bounds: bool,
    console: Console,
    noiseless: bool = False,
) -> Path:
    """Start the owners here, train over real sockets, evaluate; returns the run folder.

    Args:
      settings: The study.
      base: The folder of its file.
      out: A new run folder.
      parent: What forks the owners; None for owners in this process, without sockets and ledgers.
      insecure_noise_seed: Repeatable noise that protects nobody.
      allow_private_bounds: Whether owners serve a map fitted on their records.
      console: Where to print.
      noiseless: Whether the run without noise is made even where it is long.

    Raises:
      CoprivError: Bad input, or an owner that does not start.
    """
    stages = Stages(console)
    public = prepare_public_side(settings, base=base, on_done=stages)
    feature_map = public.feature_map
    tables = owner_tables(settings, settings.owners, feature_map, base=base)
    shards = _mapped(settings, feature_map, tables)
    warn_of_misfits(_by_owner(settings, tables), feature_map)
    records = sum(map(len, shards))
    stages(f"read {counted(records, 'record')} of {counted(len(shards), 'owner')}")
    going_on = Simulating(out)
    with stoppable_run(going_on), new_run_folder(out, name=settings.name) as folder:
        write_features(folder / "features.json", public.feature_map)
        with simulated_owners(
            settings,
            shards,
            base=base,
            folder=folder,
            parent=parent,
            insecure_noise_seed=insecure_noise_seed,
            allow_private_bounds=allow_private_bounds,
        ) as connections:
            train_into(
                folder,
                settings,
                public,
                connections,
                base=base,
                console=console,
                evaluate=evaluate_with(settings, public, shards, noiseless=noiseless),
                raw=(shards, [feature_map.target.raw(t[feature_map.target_name]) for t in tables]),
                stages=stages,
                going_on=going_on,
            )
    return folder


def read_shards(settings: StudySettings, public: PublicSide, *, base: Path) -> list[Records]:
    """All owners' records on this machine, after the feature map; warns of what does not fit."""
    tables = owner_tables(settings, settings.owners, public.feature_map, base=base)
    warn_of_misfits(_by_owner(settings, tables), public.feature_map)
    return _mapped(settings, public.feature_map, tables)


def _by_owner(settings: StudySettings, tables: Sequence[pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The owners' tables by what a sentence about one begins with."""
    named = zip(settings.owners, tables, strict=True)
    return {f"owner {entry.name}": table for entry, table in named}


def _mapped(
    settings: StudySettings, feature_map: FeatureMap, tables: Sequence[pd.DataFrame]
) -> list[Records]:
    """The owners' records of their tables."""
    named = zip(tables, settings.owners, strict=True)
    return [feature_map.apply(table, where=entry.name) for table, entry in named]


def _keep_at_home(folder: Path, settings: StudySettings) -> None:
    """Where records of the learner's own are asked exactly, what the run leaves is its user's."""
    if settings.learner.own is not None:
        with refused(folder):
            folder.chmod(0o700)


def train_into(
    folder: Path,
    settings: StudySettings,
    public: PublicSide,
    connections: Connections,
    *,
    base: Path,
    console: Console,
    evaluate: Evaluate | None,
    raw: tuple[Sequence[Records], Sequence[Vector]] | None = None,
    stages: Stages | None = None,
    going_on: Training | Simulating,
) -> Summary:
    """Train, and write everything the run leaves; returns its summary.

    A simulation has ``evaluate``, and ``raw`` records and targets. ``going_on`` is for Ctrl-C.

    Raises:
      CoprivError: Ctrl-C, the study's guard, or an owner that refuses or is away, stopped it.
    """
    trace, metrics = Trace([owner.name for owner in connections.owners]), LearnerMetrics()
    _keep_at_home(folder, settings)
    with ExitStack() as stack:
        journal = Journal(folder / JOURNAL)
        stack.callback(journal.close)
        # Once these settings are there, so is all that a resumed run needs.
        write_settings(folder / "study.toml", settings, base=base)
        stack.enter_context(metrics.served(settings.network.metrics))
        display = stack.enter_context(Display(console, trace, metrics, stages, public))
        arrivals = stack.enter_context(closing(_arrivals(settings, connections, display, going_on)))
        try:
            with stoppable(lambda: display.stopped(going_on.again())):
                outcome = train(
                    settings,
                    public,
                    metrics.timed(connections.owners, arrivals=arrivals),
                    journal=journal,
                    requests=connections.requests,
                    foreseen=connections.foreseen,
                    on_applied=display.applied,
                    on_started=display.started,
                    on_missed=metrics.missed.inc,
                    on_enrolled=display.enrolled,
                )
        except UnreachableError as error:
            raise UnreachableError(f"{error}; {going_on.after_absence()}") from None
        study_id = journal.noted("study_id") or ""
    evaluated, psi = evaluate(trace, outcome) if evaluate else (None, None)
    in_memory, edge = connections.in_memory, display.edge
    summary = summarise(
        outcome, study_id=study_id, evaluated=evaluated, in_memory=in_memory, edge=edge
    )
    model = model_of(outcome, public)
    write_or_refuse(folder / "model.json", model.to_json())
    whole = None if raw is None or evaluated is None else Union(*raw, evaluated.models_alone)
    summary = with_quality(summary, outcome, model, public, whole=whole)
    _write_results(folder, summary, trace, psi)
    _print_summary(summary, console, has_shown_start=True)
    _print_unclosed(outcome.unclosed, going_on, console)
    return summary


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
    write_table(folder / "trace.parquet", trace.table(psi))
    write_card(folder, summary)
    write_report(folder, summary)
    # Last: a folder with a summary is a finished run.
    write_json(folder / "summary.json", summary.as_json())


def report_run(folder: Path, *, console: Console) -> Path:
    """Print a finished run's table and write its report again; returns the page.

    Raises:
      InputError: The folder holds no finished run, or its summary is damaged.
    """
    summary = read_summary(folder)
    _print_summary(summary, console)
    return write_report(folder, summary)


def compare_runs(folders: Sequence[Path], *, out: Path, console: Console) -> Path:
    """Print several finished runs beside each other, and write a page of them.

    Raises:
      InputError: A folder holds no finished run or is given twice, or the page cannot be written,
        as in the place of another file.
    """
    refuse_to_replace(out, mark=b" runs compared</title>", what="page of compared runs")
    places = [folder.resolve() for folder in folders]
    twice = next(
        (each for each, at in zip(folders, places, strict=True) if places.count(at) > 1), None
    )
    if twice is not None:
        raise InputError(f"report: {twice} is given twice; name each run once")
    runs = {str(folder): read_summary(folder) for folder in folders}
    if out.exists():
        console.print(f"{out}: is there already and is replaced (--out)", highlight=False)
    console.print(comparison_table(runs))
    console.print(f"{verdict(runs)} {ONE_DRAW}", highlight=False)
    return write_comparison(runs, out)


def _print_summary(summary: Summary, console: Console, *, has_shown_start: bool = False) -> None:
    print_owners(summary, console)
    for sentence in sentences(summary, has_shown_start=has_shown_start):
        console.print(sentence, highlight=False)
