"""What the commands do, once their options are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from common.errors import InputError, UnreachableError
from common.tables import read_table
from common.terms import Records
from learner.network.connections import Connections, remote_owners, simulated_owners
from learner.network.processes import table_source
from learner.planning.plan import Plan
from learner.planning.proposal import problem_of
from learner.planning.public_side import PublicSide, prepare_public_side
from learner.planning.settings import StudySettings
from learner.results.metrics import LearnerMetrics, MeasuredOwner
from learner.results.progress import Advance, progress
from learner.results.report import owners_table, sentences, write_report
from learner.results.run_folder import (
    Measured,
    Trace,
    create_run_folder,
    run_of,
    summary,
    write_features,
    write_json,
    write_model,
    write_settings,
)
from learner.simulated.evaluation import Evaluation
from learner.training.journal import Journal
from learner.training.line import OwnerLine
from learner.training.memory_owner import OwnShard
from learner.training.study import Outcome, noiseless_model, train

__all__ = [
    "measure_with",
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
      settings: The study; None goes on with the one of ``resume``.
      base: The folder of the study's file.
      out: A new run folder.
      console: Where to tell.
      insecure: Whether plain text may leave this machine.
      resume: The folder of a run to go on with, or to begin in if nothing was begun there.

    Raises:
      CoprivError: Bad input, an owner that refuses, or owners that cannot be reached.
    """
    begun = None if resume is None else run_of(resume, settings, base=base)
    if begun is not None and resume is not None:
        return _go_on(resume, begun, console=console, insecure=insecure)
    assert settings is not None  # noqa: S101 (run_of refuses a folder without a study)
    public = prepare_public_side(settings, base=base)
    with _remote(settings, public, base=base, insecure=insecure, console=console) as connections:
        folder = resume or create_run_folder(out, name=settings.name)
        folder.mkdir(parents=True, exist_ok=True)
        write_features(folder / "features.json", public.feature_map)
        train_into(folder, settings, public, connections, base=base, console=console, measure=None)
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


def _go_on(folder: Path, settings: StudySettings, *, console: Console, insecure: bool) -> Path:
    """Take a run up where it ended; one that has finished is only shown."""
    if (folder / "summary.json").is_file():
        console.print(f"{folder}: this run has finished", highlight=False)
        report_run(folder, console=console)
        return folder
    agreed = settings.features.model_copy(update={"map": (folder / "features.json").absolute()})
    public = prepare_public_side(settings.model_copy(update={"features": agreed}), base=folder)
    with _remote(settings, public, base=folder, insecure=insecure, console=console) as connections:
        train_into(
            folder, settings, public, connections, base=folder, console=console, measure=None
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
    (folder / "features.json").write_text(public.feature_map.to_json(), encoding="utf-8")
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
            measure=measure_with(settings, public, shards),
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


Measure = Callable[[Trace, Outcome], tuple[Measured, Any]]


def train_into(
    folder: Path,
    settings: StudySettings,
    public: PublicSide,
    connections: Connections,
    *,
    base: Path,
    console: Console,
    measure: Measure | None,
) -> dict[str, Any]:
    """Train, and write everything the run leaves; returns its summary."""
    trace = Trace([owner.name for owner in connections.owners])
    with ExitStack() as stack:
        journal = Journal(folder / "journal.sqlite")
        stack.callback(journal.close)
        # Whoever finds these settings finds all that a resumed run needs.
        write_settings(folder / "study.toml", settings, base=base)
        metrics = LearnerMetrics()
        stack.enter_context(metrics.served(settings.network.metrics))
        advance: list[Advance] = []

        def started(plan: Plan) -> None:
            metrics.horizon.set(plan.horizon)
            shown = progress(console, "training", total=plan.horizon)
            advance.append(stack.enter_context(shown))

        def applied(now: Any) -> None:
            trace.append(now)
            metrics.ticks.set(now.k)
            advance[0](now.k)

        def watch(lines: Sequence[OwnerLine]) -> None:
            advance[0].watch(lines)
            metrics.watch(lines)

        try:
            outcome = train(
                settings,
                public,
                [
                    owner if isinstance(owner, OwnShard) else MeasuredOwner(owner, metrics)
                    for owner in connections.owners
                ],
                journal=journal,
                requests=connections.requests,
                on_applied=applied,
                on_started=started,
                on_missed=metrics.missed.inc,
                on_lines=watch,
            )
        except UnreachableError as error:
            sentence = f"{error}; start them, then: copriv train --resume {folder}"
            raise UnreachableError(sentence) from None
        study_id = journal.noted("study_id") or ""
    measured, psi = measure(trace, outcome) if measure else (None, None)
    trace_table = trace.table(psi)
    trace_table.to_parquet(folder / "trace.parquet", index=False)
    write_model(
        folder / "model.json",
        outcome.theta,
        public.feature_map,
        loss=settings.model.loss,
        own=settings.learner.own,
    )
    told = summary(settings, outcome, study_id=study_id, measured=measured)
    _draw(folder, told, trace_table, trace.names)
    write_report(folder, told)
    # Last: a folder with a summary is a finished run.
    write_json(folder / "summary.json", told)
    _print_summary(told, console)
    return told


def report_run(folder: Path, *, console: Console) -> Path:
    """Print a finished run's table and write its report again; returns the page.

    Raises:
      InputError: The folder holds no finished run.
    """
    try:
        told = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InputError(
            f"{folder}: holds no summary.json that can be read; give the folder of a finished run"
        ) from None
    _print_summary(told, console)
    return write_report(folder, told)


def _print_summary(told: dict[str, Any], console: Console) -> None:
    console.print(owners_table(told))
    for sentence in sentences(told):
        console.print(sentence, highlight=False)


def _draw(folder: Path, told: dict[str, Any], trace: Any, names: Sequence[str]) -> None:
    """The pictures, if matplotlib is installed."""
    try:
        from learner.results.plots import plot_relative_fitness, plot_ticks  # noqa: PLC0415
    except ModuleNotFoundError:
        return
    plot_ticks(trace, names, folder / "ticks.png")
    if "relative_fitness" in told:
        alone = [(owner["name"], owner["relative_fitness_alone"]) for owner in told["owners"]]
        plot_relative_fitness(trace, alone, folder / "relative_fitness.png")


def measure_with(settings: StudySettings, public: PublicSide, shards: Sequence[Records]) -> Measure:
    """What a simulation compares a run with: the best model of the union of the records."""
    return lambda trace, outcome: _measure(settings, public, shards, trace=trace, outcome=outcome)


def _measure(
    settings: StudySettings,
    public: PublicSide,
    shards: Sequence[Records],
    *,
    trace: Trace,
    outcome: Outcome,
) -> tuple[Measured, Any]:
    """Compare with the best model of the union of the records: only in a simulation."""
    evaluation = Evaluation(shards=shards, problem=problem_of(settings))
    psi = evaluation.relative_fitness(trace.central_models())
    noiseless = noiseless_model(
        settings, public.feature_map, shards, plan=outcome.plan, lived=trace.ticks()
    )
    measured = Measured(
        fitness=evaluation.fitness(outcome.theta),
        fitness_optimal=evaluation.fitness_optimal,
        relative_fitness=float(evaluation.relative_fitness(outcome.theta[None, :])[0]),
        relative_fitness_noiseless=float(evaluation.relative_fitness(noiseless[None, :])[0]),
        relative_fitness_alone=tuple(evaluation.relative_fitness_alone.tolist()),
    )
    return measured, psi
