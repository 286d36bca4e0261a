"""Owners as processes on this machine: real sockets, real ledgers, evaluation allowed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import tomli_w

from common.config import with_absolute_paths
from common.errors import InputError
from common.features import FeatureMap, with_target
from common.files import make_folder, refused
from common.suggestions import check_columns
from common.tables import TableSource, place_of, placed, read_header, read_tables
from common.terms import Records
from learner.network.starting import OwnerProcess, starting
from learner.network.warm_parent import WarmParent
from learner.planning.sections import OwnerEntry
from learner.planning.settings import StudySettings, has_table
from learner.planning.shared_records import Rows, warn_of_shared_records

# An owner of a simulation agrees to the study that it was started for, however wide.
MOST_FEATURES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Hosting:
    """How a study's owners run on this machine.

    Args:
      parent: Forks them; None for objects of this process, without sockets and ledgers.
      insecure_noise_seed: Seed of noise that protects nobody; None for real noise.
      allow_private_bounds: Whether they take a feature map fitted on their records.
    """

    parent: WarmParent | None
    insecure_noise_seed: int | None = None
    allow_private_bounds: bool = False

    def flags(self, index: int) -> list[str]:
        """The options of ``copriv-owner serve`` and ``attach`` for one of them.

        >>> Hosting(parent=None, insecure_noise_seed=7, allow_private_bounds=True).flags(2)
        ['--insecure-noise-seed', '9', '--allow-private-bounds']
        """
        allowed = ["--allow-private-bounds"] if self.allow_private_bounds else []
        if self.insecure_noise_seed is None:
            return allowed
        return ["--insecure-noise-seed", str(self.insecure_noise_seed + index), *allowed]


def table_source(settings: StudySettings, entry: OwnerEntry, *, base: Path) -> TableSource:
    """An owner's table, with absolute paths.

    Raises:
      InputError: The study names no table for it.
    """
    if not has_table(settings, entry):
        raise InputError(
            f"owners: {entry.name} has its table elsewhere; to run it on this machine, give "
            "it data = { path = ... } in the study"
        )
    source = placed(entry.data or TableSource(), settings.data)
    if source.path is None and source.database is None:
        raise InputError(
            f"owners: {entry.name} has no table; give data.path, or give it data = {{ path = ... }}"
        )
    return with_absolute_paths(source, base)


def read_owner(
    settings: StudySettings, entry: OwnerEntry, feature_map: FeatureMap, *, base: Path
) -> Records:
    """The records of an owner whose table is here, under the feature map.

    Args:
      settings: The study.
      entry: The owner's entry there.
      feature_map: The study's feature map.
      base: The folder that relative paths start from.

    Raises:
      InputError: The table cannot be used, or records have no target and are not left out.
    """
    (table,) = owner_tables(settings, [entry], feature_map, base=base)
    return feature_map.apply(table, where=entry.name)


def owner_tables(
    settings: StudySettings, entries: Sequence[OwnerEntry], feature_map: FeatureMap, *, base: Path
) -> list[pd.DataFrame]:
    """The raw records of owners whose tables are here, with the columns that the map needs.

    Args:
      settings: The study.
      entries: The owners' entries there.
      feature_map: The study's feature map.
      base: The folder that relative paths start from.

    Raises:
      InputError: A table cannot be used, or records have no target and are not left out.

    Warns:
      DoubtWarning: A record is several owners', and privacy.kappa does not say so.
    """
    needed = feature_map.columns_needed
    sources = [table_source(settings, entry, base=base) for entry in entries]
    tables, places = [], []
    for entry, source, (raw, rows) in zip(
        entries, sources, read_tables(sources, base=base, columns=needed), strict=True
    ):
        # Only what is needed was read: the header has the names that may be meant.
        if set(needed).difference(map(str, raw.columns)):
            check_columns(needed, read_header(source, base=base), where=f"owner {entry.name}")
        keep = with_target(raw, feature_map, source.missing_target, where=entry.name)
        tables.append(raw if keep.all() else raw[keep].reset_index(drop=True))
        places.append(Rows(place_of(source), rows[keep]))
    names = [entry.name for entry in entries]
    warn_of_shared_records(names, tables, places, kappa=settings.privacy.kappa)
    return tables


@contextmanager
def owner_processes(
    settings: StudySettings,
    hosting: Hosting,
    *,
    base: Path,
    run_folder: Path,
    learner: str | None = None,
    studies: int = 1,
) -> Iterator[Sequence[OwnerProcess]]:
    """Begin to start every owner of the study, and stop them all at the end, whatever happens.

    Each is a process with its own folder in the run folder: settings, ledger, log. An owner that
    is the learner gets none. Whether an owner has started is known where its port is asked for.

    Args:
      settings: The study.
      hosting: How they run; it has a parent.
      base: The folder that relative paths start from.
      run_folder: The run folder.
      learner: HOST:PORT of a learner that they connect to; None where they serve at ports.
      studies: How many studies their lifetime budgets are for.
    """
    assert hosting.parent is not None  # noqa: S101 (objects of this process need none of this)
    # They end by themselves when this process does.
    what = ["serve"] if learner is None else ["attach", "--learner", learner]
    command = [*what, "owner.toml", "--with-parent"]
    owners = []
    for index, entry in enumerate(settings.owners):
        if entry.name == settings.learner.own:
            continue
        folder = run_folder / "owners" / entry.name
        make_folder(folder)
        content = owner_toml(settings, index, base=base, studies=studies)
        # Nobody looks for it after a crash of the machine: a simulation does not go on.
        with refused(folder / "owner.toml"):
            (folder / "owner.toml").write_text(content, encoding="utf-8")
        owners.append(OwnerProcess(entry.name, folder, [*command, *hosting.flags(index)]))
    with starting(owners, hosting.parent):
        yield owners


def owner_toml(settings: StudySettings, index: int, *, base: Path, studies: int) -> str:
    """The settings file of an owner that agrees to exactly this study, this many times.

    Args:
      settings: The study; a seed of its own makes the owner's clock repeat.
      index: Which of its owners.
      base: The folder that relative paths start from.
      studies: How many studies the lifetime budget is for.
    """
    entry = settings.owners[index]
    epsilon = settings.promised(entry)
    attach: dict[str, float] = {"clock_rate": entry.clock_rate}
    if settings.seed is not None:
        seeds = np.random.SeedSequence([settings.seed, index])
        attach["seed"] = int(seeds.generate_state(1)[0])
    return tomli_w.dumps(
        {
            "name": entry.name,
            "listen": "127.0.0.1:0",
            "ledger": "ledger.sqlite",
            "features": "../../features.json",
            "data": table_source(settings, entry, base=base).model_dump(
                mode="json", exclude_defaults=True
            ),
            "policy": {
                "epsilon_per_study": str(epsilon),
                "epsilon_lifetime": str(epsilon * studies),
                "kappa": settings.privacy.kappa,
                "max_features": MOST_FEATURES,
            },
            "listening": {"probability": entry.listening},
            "attach": attach,
        }
    )
