"""``copriv simulate``, ``train`` and ``report``: from a study's settings to its run folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pandas as pd
from rich.console import Console

from common.arrays import Vector
from common.errors import UnreachableError
from common.tables import read_table
from common.terms import Records
from learner.network.connections import Connections, remote_owners, simulated_owners
from learner.network.processes import table_source
from learner.planning.plan import Plan
from learner.planning.proposal import problem_of
from learner.planning.public_side import PublicSide, prepare_public_side
from learner.planning.settings import StudySettings
from learner.results.metrics import LearnerMetrics, TimedOwner
from learner.results.progress import Advance, progress
from learner.results.report import owners_table, sentences, write_report
from learner.results.run_folder import (
    Trace,
    create_run_folder,
    run_of,
    write_features,
    write_json,
    write_model,
    write_settings,
)
from learner.results.summary import Evaluated, Summary, read_summary, summarise
from learner.simulated.evaluation import Evaluation
from learner.training.journal import Journal
from learner.training.line import OwnerLine
from learner.training.memory_owner import LocalShard
from learner.training.runner import Applied
from learner.training.study import Outcome, noiseless_model, train

__all__ = [
    "evaluate_with",
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
) -> Path:
    """Train with owners that run elsewhere; returns the run folder.

    Args:
      settings: The study; None continues the one of ``resume``.
      base: The folder of the study's file.
      out: A new run folder.
      console: Where to print.
      insecure: Whether plain text may leave this machine.
      resume: The folder of a run to continue, or to begin in if it holds none.

    Raises:
      CoprivError: Bad input, an owner that refuses, or owners that cannot be reached.
    """
    begun = None if resume is None else run_of(resume, settings, base=base)
    if begun is not None and resume is not None:
        return _continue(resume, begun, console=console, insecure=insecure)
    assert settings is not None  # noqa: S101 (run_of refuses a folder without a study)
    public = prepare_public_side(settings, base=base)
    with _remote(settings, public, base=base, insecure=insecure, console=console) as connections:
        folder = resume or create_run_folder(out, name=settings.name)
        folder.mkdir(parents=True, exist_ok=True)
        write_features(folder / "features.json", public.feature_map)
        train_into(folder, settings, public, connections, base=base, console=console, evaluate=None)
    return folder


def _remote(
    settings: StudySettings, public: PublicSide, *, base: Path, insecure: bool, console: Console
) -> AbstractContextManager[Connections]:
    """The owners that run elsewhere."""

    def listening(port: int) -> None:
        console.print(f"listening on port {port} for owners", highlight=False)

    return remote_owners(
        settings, public.feature_map, base=base, insecure=insecure, on_listening=listening
    )


def _continue(folder: Path, settings: StudySettings, *, console: Console, insecure: bool) -> Path:
    """Continue a run where it ended; one that has finished is only shown."""
    if (folder / "summary.json").is_file():
        console.print(f"{folder}: this run has finished", highlight=False)
        report_run(folder, console=console)
        return folder
    agreed = settings.features.model_copy(update={"map": (folder / "features.json").absolute()})
    public = prepare_public_side(settings.model_copy(update={"features": agreed}), base=folder)
    with _remote(settings, public, base=folder, insecure=insecure, console=console) as connections:
        train_into(
            folder, settings, public, connections, base=folder, console=console, evaluate=None
        )
    return folder


def run_simulation(
    settings: StudySettings,
    *,
    base: Path,
    out: Path | None,
    insecure_noise_seed: int | None,
    allow_private_bounds: bool,
    console: Console,
) -> Path:
    """Start the owners here, train over real sockets, evaluate; returns the run folder.

    Raises:
      CoprivError: Bad input, or an owner that does not start.
    """
    public = prepare_public_side(settings, base=base)
    shards = read_shards(settings, public, base=base)
    folder = create_run_folder(out, name=settings.name)
    write_features(folder / "features.json", public.feature_map)
    with simulated_owners(
        settings,
        shards,
        base=base,
        folder=folder,
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
            evaluate=evaluate_with(settings, public, shards),
        )
    return folder


def read_shards(settings: StudySettings, public: PublicSide, *, base: Path) -> list[Records]:
    """All owners' records on this machine, after the feature map."""
    return [
        public.feature_map.apply(
            read_table(table_source(settings, entry, base=base), base=base), where=entry.name
        )
        for entry in settings.owners
    ]


# The trace and the outcome of a run -> what they come to, and psi after each communication.
Evaluate = Callable[[Trace, Outcome], tuple[Evaluated, Vector]]


def train_into(
    folder: Path,
    settings: StudySettings,
    public: PublicSide,
    connections: Connections,
    *,
    base: Path,
    console: Console,
    evaluate: Evaluate | None,
) -> Summary:
    """Train, and write everything the run leaves; returns its summary."""
    trace, metrics = Trace([owner.name for owner in connections.owners]), LearnerMetrics()
    with ExitStack() as stack:
        journal = Journal(folder / "journal.sqlite")
        stack.callback(journal.close)
        # Once these settings are there, so is all that a resumed run needs.
        write_settings(folder / "study.toml", settings, base=base)
        stack.enter_context(metrics.served(settings.network.metrics))
        display = stack.enter_context(_Display(console, trace, metrics))
        try:
            outcome = train(
                settings,
                public,
                [
                    owner if isinstance(owner, LocalShard) else TimedOwner(owner, metrics)
                    for owner in connections.owners
                ],
                journal=journal,
                requests=connections.requests,
                on_applied=display.applied,
                on_started=display.started,
                on_missed=metrics.missed.inc,
                on_lines=display.watch,
            )
        except UnreachableError as error:
            sentence = f"{error}; start them, then: copriv train --resume {folder}"
            raise UnreachableError(sentence) from None
        study_id = journal.noted("study_id") or ""
    evaluated, psi = evaluate(trace, outcome) if evaluate else (None, None)
    summary = summarise(settings, outcome, study_id=study_id, evaluated=evaluated)
    write_model(
        folder / "model.json",
        outcome.theta,
        public.feature_map,
        loss=outcome.plan.loss,
        own=settings.learner.own,
    )
    _write_results(folder, summary, trace, psi)
    _print_summary(summary, console)
    return summary


class _Display(ExitStack):
    """Keeps the trace of a run, and shows how it goes: the progress line and the metrics."""

    def __init__(self, console: Console, trace: Trace, metrics: LearnerMetrics) -> None:
        super().__init__()
        self._console = console
        self._trace = trace
        self._metrics = metrics
        self._advance: Advance | None = None

    def started(self, plan: Plan) -> None:
        """The horizon is known."""
        self._metrics.horizon.set(plan.horizon)
        shown = progress(self._console, "training", total=plan.horizon)
        self._advance = self.enter_context(shown)

    def watch(self, lines: Sequence[OwnerLine]) -> None:
        """These are the owners."""
        if self._advance is not None:
            self._advance.watch(lines)
        self._metrics.watch(lines)

    def applied(self, communication: Applied) -> None:
        """One more communication."""
        self._trace.append(communication)
        self._metrics.ticks.set(communication.k)
        if self._advance is not None:
            self._advance(communication.k)


def _write_results(folder: Path, summary: Summary, trace: Trace, psi: Vector | None) -> None:
    """The trace, the pictures, the page and, last, the summary."""
    table = trace.table(psi)
    table.to_parquet(folder / "trace.parquet", index=False)
    _draw(folder, summary, table, trace.names)
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


def _print_summary(summary: Summary, console: Console) -> None:
    console.print(owners_table(summary))
    for sentence in sentences(summary):
        console.print(sentence, highlight=False)


def _draw(folder: Path, summary: Summary, trace: pd.DataFrame, names: Sequence[str]) -> None:
    """The pictures, if matplotlib is installed."""
    try:
        from learner.results.plots import plot_relative_fitness, plot_ticks  # noqa: PLC0415
    except ModuleNotFoundError:
        return
    plot_ticks(trace, names, folder / "ticks.png")
    if summary.is_evaluated:
        alone = [(owner.name, owner.relative_fitness_alone or 0.0) for owner in summary.owners]
        plot_relative_fitness(trace, alone, folder / "relative_fitness.png")


def evaluate_with(
    settings: StudySettings, public: PublicSide, shards: Sequence[Records]
) -> Evaluate:
    """What a simulation compares a run with: the best model of the union of the records."""
    return lambda trace, outcome: _evaluate(settings, public, shards, trace=trace, outcome=outcome)


def _evaluate(
    settings: StudySettings,
    public: PublicSide,
    shards: Sequence[Records],
    *,
    trace: Trace,
    outcome: Outcome,
) -> tuple[Evaluated, Vector]:
    """Compare with the best model of the union of the records: only in a simulation."""
    evaluation = Evaluation(shards=shards, problem=problem_of(settings, outcome.plan.loss))
    psi = evaluation.relative_fitness(trace.central_models(outcome.theta.size))
    noiseless = noiseless_model(
        settings, public.feature_map, shards, plan=outcome.plan, past=trace.ticks()
    )
    evaluated = Evaluated(
        fitness=evaluation.fitness(outcome.theta),
        fitness_optimal=evaluation.fitness_optimal,
        relative_fitness=float(evaluation.relative_fitness(outcome.theta[None, :])[0]),
        relative_fitness_noiseless=float(evaluation.relative_fitness(noiseless[None, :])[0]),
        relative_fitness_alone=tuple(evaluation.relative_fitness_alone.tolist()),
    )
    return evaluated, psi
