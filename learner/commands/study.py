"""``copriv simulate``, ``train`` and ``report``: from a study's settings to its run folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path

from rich.console import Console

from common.column_faults import warn_of_misfits
from common.errors import InputError
from common.features import FeatureMap
from common.files import make_folder, refuse_to_replace
from common.model import read_model
from common.texts import counted
from learner.commands.display import listening
from learner.commands.going_on import Simulating, Training, stoppable_run
from learner.commands.run_start import RunStart, print_summary, refuse_given_up, train_into
from learner.network.connections import remote_owners, simulated_owners
from learner.network.processes import Hosting, owner_tables
from learner.planning.public_side import prepare_public_side
from learner.planning.settings import StudySettings
from learner.results.compare import (
    compared_warnings,
    comparison_table,
    notes,
    verdict,
    write_comparison,
)
from learner.results.progress import Stages
from learner.results.report_page import write_report
from learner.results.run_folder import (
    JOURNAL,
    OWNERS,
    new_run_folder,
    run_of,
    run_of_trace,
    write_features,
)
from learner.results.run_quality import Union
from learner.results.summary import Summary, read_summary
from learner.training.journal import Journal
from learner.training.study import name_of_begun


def run_training(
    settings: StudySettings | None,
    *,
    base: Path,
    out: Path | None,
    console: Console,
    insecure: bool,
    resume: Path | None,
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
    stages, told = Stages(console), listening(console)
    public = prepare_public_side(settings, base=base, on_done=stages)
    with (
        remote_owners(
            settings, public.feature_map, base=base, insecure=insecure, on_listening=told
        ) as connections,
        nullcontext(resume)
        if resume
        else new_run_folder(out, name=settings.name, trains=True) as folder,
        stoppable_run(going_on := Training(folder, insecure, resumes=resume is not None)),
    ):
        make_folder(folder)
        start = RunStart(folder, settings, public, base, going_on, stages)
        train_into(start, connections, console=console)
    return folder


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
        # Noted before the run's settings are there: without it owners would be asked anew.
        name_of_begun(settings, journal, path=folder / JOURNAL)
        refuse_given_up(folder, journal)
    agreed = settings.features.model_copy(update={"map": (folder / "features.json").absolute()})
    public = prepare_public_side(settings.model_copy(update={"features": agreed}), base=folder)
    told = listening(console)
    with remote_owners(
        settings, public.feature_map, base=folder, insecure=insecure, on_listening=told
    ) as connections:
        start = RunStart(folder, settings, public, folder, going_on, begun=True)
        train_into(start, connections, console=console)
    return folder


def run_simulation(
    settings: StudySettings,
    hosting: Hosting,
    *,
    base: Path,
    out: Path | None,
    console: Console,
    noiseless: bool = False,
) -> Path:
    """Start the owners here, train over real sockets, evaluate; returns the run folder.

    Args:
      settings: The study.
      hosting: How its owners run.
      base: The folder of its file.
      out: A new run folder.
      console: Where to print.
      noiseless: Whether the run without noise is made even where it is long.

    Raises:
      CoprivError: Bad input, or an owner that does not start.
    """
    stages = Stages(console)
    public = prepare_public_side(settings, base=base, on_done=stages)
    whole = read_owners(settings, public.feature_map, base=base)
    records, owners = sum(map(len, whole.shards)), len(whole.shards)
    stages(f"read {counted(records, 'record')} of {counted(owners, 'owner')}")
    going_on = Simulating(out)
    with stoppable_run(going_on), new_run_folder(out, name=settings.name) as folder:
        write_features(folder / "features.json", public.feature_map)
        with simulated_owners(
            settings, whole.shards, hosting, base=base, folder=folder
        ) as connections:
            start = RunStart(folder, settings, public, base, going_on, stages)
            train_into(start, connections, console=console, whole=whole, noiseless=noiseless)
    return folder


def read_owners(settings: StudySettings, feature_map: FeatureMap, *, base: Path) -> Union:
    """All owners' records on this machine, after the feature map; warns of what does not fit."""
    tables = owner_tables(settings, settings.owners, feature_map, base=base)
    names = [entry.name for entry in settings.owners]
    shards = [
        feature_map.apply(table, where=name) for table, name in zip(tables, names, strict=True)
    ]
    by_owner = zip((f"owner {name}" for name in names), tables, strict=True)
    warn_of_misfits(dict(by_owner), feature_map)
    target = feature_map.target
    return Union(shards, [target.raw(table[feature_map.target_name]) for table in tables])


def report_run(folder: Path, *, console: Console) -> Path:
    """Print a finished run's table and write its report again; returns the page.

    Raises:
      InputError: The folder holds no finished run, or its summary is damaged or of another run than
        its model or its trace.
    """
    summary = read_summary(folder)
    _refuse_other_files(folder, summary)
    print_summary(summary, console)
    return write_report(folder, summary)


def _refuse_other_files(folder: Path, summary: Summary) -> None:
    """Refuse a folder whose files were put together: one report would tell of two runs.

    Raises:
      InputError: The model or the trace that lies there is not that of the run that the summary
        tells of.
    """
    try:
        theta = tuple(read_model(folder).theta.tolist())
    except InputError:
        theta = summary.theta  # the page says what can be said without it
    of_trace = run_of_trace(folder / "trace.parquet")
    is_its_own = {
        "model.json": theta == summary.theta,
        "trace.parquet": of_trace in {None, summary.study_id},
    }
    for name, its_own in is_its_own.items():
        if not its_own:
            raise InputError(
                f"{folder}: summary.json and {name} are of different runs; restore both from one "
                "copy"
            )


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
    if os.path.exists(out):
        console.print(f"{out}: already exists and is replaced (--out)", highlight=False)
    console.print(comparison_table(runs))
    for line in [" ".join([verdict(runs), *notes(runs)]), *compared_warnings(runs)]:
        console.print(line, highlight=False)
    return write_comparison(runs, out)
