"""``copriv init``: from a raw table to a study that runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console

from common.annotated import annotated
from common.config import check_settings, load_settings, parse_epsilon, with_absolute_paths
from common.errors import InputError
from common.features import FeatureMap, FeatureSettings
from common.files import make_folder, write_or_refuse
from common.looking import Look, look_at
from common.losses import LOSSES
from common.map_fitting import fit_feature_map
from common.number_marks import mark_notes
from common.row_filters import parse_rows
from common.suggestions import among_columns
from common.tables import TableSource, read_header, read_table
from common.target_fitting import count_values
from common.terms import Records
from common.texts import printable
from learner.planning.boxes import roomy_box
from learner.planning.drafting import (
    MOST_OWNERS,
    Inputs,
    Part,
    Target,
    choose_inputs,
    choose_target,
    equal_parts,
    far_out_notes,
    parts_by_column,
)
from learner.planning.public_side import prepare_public_side
from learner.planning.settings import StudySettings
from learner.results.run_folder import write_table

__all__ = ["Choices", "Session", "open_session"]

MOST_PUBLIC = 5000
PUBLIC_SHARE = 0.1
FEWEST_PER_FEATURE = 10


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What was typed; None is asked, or chosen.

    Args:
      target: The column to predict.
      positive: The values of class +1.
      owners: The column that says whose a record is, or a number of equal parts.
      public: How many rows are public, or which.
      epsilon: Each owner's budget.
      drop: Columns that are no input.
      most: How many owners at most.
      split: Whether each owner's records, and the public ones, go to files of their own.
    """

    target: str | None = None
    positive: tuple[str, ...] = ()
    owners: str | None = None
    public: str | None = None
    epsilon: str | None = None
    drop: tuple[str, ...] = ()
    most: int = MOST_OWNERS
    split: bool | None = None


@dataclass(frozen=True)
class Session:
    """A table that was read, and what it looks like.

    Args:
      source: Where it is, absolute.
      table: Its rows.
      look: Its columns.
      notes: What is to be known of its file.
    """

    source: TableSource
    table: pd.DataFrame
    look: Look
    notes: Sequence[str] = ()

    @property
    def likely_owners(self) -> list[str]:
        """Columns that may say whose a record is."""
        return self.look.candidates_for_owners()

    def classes_to_choose_from(self, target: str) -> list[str]:
        """The values of a target of words of which some must be class +1; none elsewhere."""
        column = self.look.columns.get(target)
        if column is None or column.kind == "number" or column.distinct == 2:
            return []
        return list(count_values(self.table[target]))

    def public_rows(self, typed: str | None) -> str:
        """The range of the public rows: as typed, or the last ones."""
        count = len(self.table)
        if typed is not None and ":" in typed:
            return typed
        number = min(MOST_PUBLIC, max(1, int(count * PUBLIC_SHARE))) if typed is None else None
        try:
            number = int(typed or 0) if number is None else number
        except ValueError:
            number = 0
        if not 0 < number < count:
            raise InputError(
                f"--public: got {typed!r}, expected a number of rows below {count:,}, or a range "
                'such as "-5000:"'
            )
        return f"-{number}:"

    def needs_files(self, choices: Choices) -> bool:
        """Whether public rows at the end leave out half of the owners, as in sorted tables."""
        owners = choices.owners or ""
        if owners not in self.look.columns or (choices.public or "").count(":"):
            return False
        public = self.table[owners].iloc[read_rows(self.table, self.public_rows(choices.public))]
        return bool(public.nunique() <= self.table[owners].nunique() / 2)

    def write(self, choices: Choices, out: Path, *, name: str, console: Console) -> Path:
        """The study of these choices, as a file that runs; returns it.

        Raises:
          InputError: A choice does not fit the table, or the folder cannot be written.
        """
        target, notes = choose_target(self.table, self.look, choices.target or "", choices.positive)
        owners = choices.owners if choices.owners in self.look.columns else None
        inputs = choose_inputs(self.look, target, owners=owners, drop=choices.drop)
        public = self._public(choices)
        parts, left = self._parts(choices, public)
        feature_map, records = self._mapped(target, inputs, public)
        for line in (*notes, *inputs.warnings, *far_out_notes(self.look, feature_map), *left):
            console.print(f"note: {printable(line)}", highlight=False)
        box = roomy_box(LOSSES[_loss(target)](), records)
        values = _values(name, target, inputs, box, choices.epsilon)
        _make(out)
        values |= (
            self._split(out, public, parts) if choices.split else self._in_place(choices, parts)
        )
        features = values["features"] | {"public": values.pop("public")}
        if target.missing:
            values["data"]["missing_target"] = "drop"
        path = out / "study.toml"
        text = annotated(
            StudySettings,
            values | {"features": features},
            title=f"{name}: {target.name} from {len(inputs.columns)} columns of "
            f"{len(parts)} owners. Written by copriv init; every key that could be set is here.",
        )
        write_or_refuse(path, text)
        found = prepare_public_side(load_settings(StudySettings, path), base=out)
        if len(public) < FEWEST_PER_FEATURE * found.feature_map.num_features:
            console.print(
                f"note: {len(public):,} public records are few for "
                f"{found.feature_map.num_features} features; give more with --public, or leave "
                "columns out with --drop",
                highlight=False,
            )
        console.print(
            f"{path}: {len(parts)} owners with {sum(len(p.places) for p in parts):,} records, "
            f"{len(public):,} public records, {found.feature_map.num_features} features",
            highlight=False,
        )
        return path

    def _public(self, choices: Choices) -> NDArray[np.intp]:
        """The places of the public rows: of the range, or dealt evenly where files are split."""
        places = read_rows(self.table, self.public_rows(choices.public))
        if not choices.split or (choices.public is not None and ":" in choices.public):
            return places
        # The same table gives the same study; what is public is no secret.
        order = np.random.default_rng(0).permutation(len(self.table))
        return np.sort(order[: len(places)])

    def _parts(self, choices: Choices, public: NDArray[np.intp]) -> tuple[list[Part], list[str]]:
        available = np.setdiff1d(np.arange(len(self.table)), public)
        owners = choices.owners or ""
        if owners in self.look.columns:
            return parts_by_column(self.table[owners], available, most=choices.most)
        if owners.isascii() and owners.isdigit() and 1 <= int(owners) <= len(available):
            return equal_parts(available, int(owners)), []
        raise InputError(
            f"--owners: no column {owners!r}{among_columns(owners, self.look.columns)}; or give a "
            "number of equal parts"
        )

    def _mapped(
        self, target: Target, inputs: Inputs, public: NDArray[np.intp]
    ) -> tuple[FeatureMap, Records]:
        """The feature map of the public rows, and these under it."""
        settings = _features(target, inputs)
        table = self.table.iloc[public].reset_index(drop=True)
        fitted = fit_feature_map(
            table, FeatureSettings(public=TableSource(), **settings), source="public"
        )
        known = ~np.isnan(fitted.target.raw(table[target.name]))
        return fitted, fitted.apply(table[known].reset_index(drop=True), where="public")

    def _in_place(self, choices: Choices, parts: Sequence[Part]) -> dict[str, Any]:
        """The table's own rows, by range and condition."""
        rows = self.public_rows(choices.public)
        if not rows.startswith("-") or not rows.endswith(":"):
            raise InputError(
                f"--public {rows}: owners are given the rows before the public ones, so these must "
                'be the last, such as "-5000:"; or add --split'
            )
        others = f":{rows[:-1]}"
        owners = [
            {"name": part.name, "data": {"rows": others, "where": part.where}}
            if part.where
            else {"name": part.name, "data": {"rows": f"{part.places[0]}:{part.places[-1] + 1}"}}
            for part in parts
        ]
        place = self.source.model_dump(mode="json", exclude_defaults=True)
        return {"data": place, "public": {"rows": rows}, "owners": owners}

    def _split(self, out: Path, public: NDArray[np.intp], parts: Sequence[Part]) -> dict[str, Any]:
        """Each owner's records, and the public ones, in files of their own."""
        make_folder(out / "owners")
        write_table(out / "public.parquet", self.table.iloc[public])
        for part in parts:
            write_table(out / "owners" / f"{part.name}.parquet", self.table.iloc[part.places])
        return {
            "data": {},
            "public": {"path": "public.parquet"},
            "owners": [
                {"name": part.name, "data": {"path": f"owners/{part.name}.parquet"}}
                for part in parts
            ],
        }


def open_session(place: Mapping[str, str]) -> Session:
    """Read a table and look at it.

    Args:
      place: Settings of a table, as :class:`~common.tables.TablePlace` has them.

    Raises:
      InputError: It cannot be read, or has two columns of one name.
    """
    given = check_settings(TableSource, place, where="init")
    source = with_absolute_paths(given, Path.cwd())
    header = read_header(source, base=Path())
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"init: the column name {twice!r} occurs twice; rename one")
    table = read_table(source, base=Path())
    notes = mark_notes(source, base=Path(), table=table)
    return Session(source, table, look_at(table), notes)


def read_rows(table: pd.DataFrame, rows: str) -> NDArray[np.intp]:
    """The places of a range of rows.

    Raises:
      InputError: It is no range.
    """
    try:
        return np.arange(len(table))[parse_rows(rows)]
    except ValueError as error:
        raise InputError(f"--public {rows}: {error}") from None


def _features(target: Target, inputs: Inputs) -> dict[str, Any]:
    """The section [features], but for the public records."""
    chosen: dict[str, Any] = {"target": target.name, "columns": inputs.columns}
    if inputs.categorical:
        chosen["categorical"] = inputs.categorical
    if target.positive:
        chosen["positive"] = target.positive
    return chosen


def _loss(target: Target) -> str:
    """The loss that a target is learnt with."""
    return "logistic" if target.positive else "squared"


def _values(
    name: str, target: Target, inputs: Inputs, box: float, epsilon: str | None
) -> dict[str, Any]:
    """What the study's file says, but for its tables."""
    try:
        budget = parse_epsilon(epsilon)
    except ValueError as error:
        raise InputError(f"--epsilon: got {epsilon!r}, {error}") from None
    return {
        "name": name,
        "profile": "recommended",
        "features": _features(target, inputs),
        "model": {"loss": _loss(target), "theta_max": box},
        "algorithm": {"name": "auto"},
        "privacy": {"epsilon": int(budget) if budget.denominator == 1 else str(Fraction(budget))},
    }


def _make(out: Path) -> None:
    """The new folder."""
    make_folder(out, cure="give another --out")
    if any(out.iterdir()):
        raise InputError(f"{out}: the folder is not empty; give another one with --out")
