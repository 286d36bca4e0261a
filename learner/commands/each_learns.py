"""Every owner learns a model of its own: N studies, each with a different owner as the learner.

No central learner is needed: each owner asks its own shard exactly and the others privately.
Each owner therefore answers in N - 1 studies, and its lifetime budget has to cover them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from rich.console import Console

from common.errors import InputError
from common.files import make_folder
from common.texts import counted
from learner.commands.going_on import Simulating, stoppable_run
from learner.commands.run_start import RunStart, train_into
from learner.commands.study import read_owners
from learner.network.connections import Connections, starting_owners
from learner.network.processes import Hosting, owner_processes
from learner.planning.public_side import prepare_public_side
from learner.planning.roles import check_roles
from learner.planning.sections import LearnerSettings
from learner.planning.settings import StudySettings
from learner.results.report import print_by_name
from learner.results.run_folder import EACH_LEARNS, new_run_folder, write_features, write_json
from learner.results.summary import Summary
from learner.results.verdict_words import amount_words


def with_learner(settings: StudySettings, name: str) -> StudySettings:
    """The same study with this owner as the learner.

    Raises:
      InputError: The study's roles do not allow it.
    """
    changed = settings.model_copy(update={"learner": LearnerSettings(own=name, shows_model=True)})
    try:
        check_roles(changed)
    except ValueError as error:
        raise InputError(f"--each-learns: {error}") from None
    return changed


def run_each_learns(
    settings: StudySettings,
    hosting: Hosting,
    *,
    base: Path,
    out: Path | None,
    console: Console,
    noiseless: bool,
) -> Path:
    """Run the N studies with owners as processes here; returns the folder of all of them.

    Raises:
      CoprivError: Bad input, an owner that does not start, or one that refuses.
    """
    if settings.learner.own is not None:
        raise InputError("--each-learns: every owner learns in turn; remove learner.own")
    if len(settings.owners) == 1:
        raise InputError("--each-learns: one owner has nobody to learn with; name more owners")
    studies = [with_learner(settings, entry.name) for entry in settings.owners]
    public = prepare_public_side(settings, base=base)
    whole = read_owners(settings, public.feature_map, base=base)
    going_on = Simulating(out)
    with stoppable_run(going_on), new_run_folder(out, name=settings.name) as folder:
        write_features(folder / "features.json", public.feature_map)
        summaries = []
        with owner_processes(
            settings, hosting, base=base, run_folder=folder, studies=len(studies) - 1
        ) as processes:
            for process in processes:
                process.port  # noqa: B018 (known once it has started: nothing is spent before)
            for entry, study in zip(settings.owners, studies, strict=True):
                connections = Connections(starting_owners(study, whole.shards, processes))
                run = folder / entry.name
                make_folder(run)
                start = RunStart(run, study, public, base, going_on)
                summary = train_into(
                    start, connections, console=console, whole=whole, noiseless=noiseless
                )
                summaries.append(summary)
    result = table_of_results(summaries)
    _print_table(settings.name, result, console)
    write_json(folder / EACH_LEARNS, result)
    return folder


def table_of_results(summaries: Sequence[Summary]) -> list[dict[str, Any]]:
    """One row for each owner: its own model, what it would have had alone, and what it spent."""
    rows = []
    for summary in summaries:
        name = summary.own or ""
        mine = summary.owner(name)
        spent = sum((Fraction(other.owner(name).epsilon_spent) for other in summaries), Fraction(0))
        rows.append(
            {
                "name": name,
                "records": mine.records,
                "relative_fitness": summary.relative_fitness,
                "relative_fitness_alone": mine.relative_fitness_alone,
                "relative_fitness_public": summary.relative_fitness_public,
                "gains": mine.gains,
                "studies_answered": len(summaries) - 1,
                "epsilon_spent": str(spent),
            }
        )
    return rows


def _print_table(name: str, rows: Sequence[dict[str, Any]], console: Console) -> None:
    """The N results for a terminal."""
    heads = (
        *("learner", "records", "together", "alone", "public model", "gains", "answered in"),
        "epsilon spent",
    )
    cells = [
        (
            row["name"],
            f"{row['records']:,}",
            f"{row['relative_fitness']:.3g}",
            f"{row['relative_fitness_alone']:.3g}",
            "-" if (free := row["relative_fitness_public"]) is None else f"{free:.3g}",
            "yes" if row["gains"] else "no",
            counted(row["studies_answered"], "study", "studies"),
            amount_words(Fraction(row["epsilon_spent"])),
        )
        for row in rows
    ]
    print_by_name(console, f"{name}: every owner learns", heads, cells)
