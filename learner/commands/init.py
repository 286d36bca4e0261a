"""``copriv init``: from a raw table to a study that runs."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from common.annotated import annotated
from common.arrays import Flags, Indices
from common.config import load_settings
from common.errors import DoubtWarning, InputError
from common.feature_settings import FeatureSettings
from common.features import FeatureMap
from common.files import make_folder, write_or_refuse
from common.frequencies import frequency_notes
from common.losses import LOSSES
from common.map_fitting import fit_feature_map
from common.names import not_among
from common.tables import TableSource
from common.target_fitting import count_values
from common.terms import Records
from common.texts import LONGEST_NOTE, counted, printable, shortened
from common.two_units import unit_of_owners_note
from learner.commands.raw_tables import Choices, Session, checked_epsilon, checked_folder
from learner.planning.boxes import roomy_box
from learner.planning.dealing import Shift, in_words, shifts
from learner.planning.drafting import Part, Target, among_whose, choose_target
from learner.planning.inputs import Inputs, choose_inputs, features_section
from learner.planning.map_notes import (
    MOSTLY_UNKNOWN,
    dropped_notes,
    far_out_notes,
    unknown_notes,
    unknown_shares,
    unread_notes,
)
from learner.planning.public_side import PLENTY_FOR_EACH, prepare_public_side
from learner.planning.settings import StudySettings
from learner.results.run_folder import write_table

# Fewer rows of a part differ from the others by chance alone.
FEWEST_OF_A_PART = 50


def write_study(
    session: Session, choices: Choices, out: Path, *, name: str, console: Console
) -> Path:
    """The study of these choices, as a file that runs; returns it.

    Args:
      session: The table, looked at.
      choices: What was typed, asked or chosen.
      out: The new study's folder.
      name: The study's name.
      console: Where to print.

    Raises:
      InputError: A choice does not fit the table, or the folder cannot be written.
    """
    target, notes = choose_target(
        session.table, session.look, choices.target or "", choices.positive
    )
    owners = choices.owners if choices.owners in session.look.columns else None
    inputs = choose_inputs(
        session.look, target, owners=owners, drop=choices.drop, categorical=choices.categorical
    )
    public = session.public(choices)
    parts, left = session.parts(choices, public, target)
    draft = _Draft(session, choices, target, inputs, public, parts)
    draft.check_public()
    draft, about_map = _teaching(draft)
    for line in (*notes, *draft.inputs.warnings, *about_map, *_notes(draft, left)):
        console.print(f"note: {printable(line, LONGEST_NOTE)}", highlight=False)
    _, records = draft.mapped
    values = draft.values(name, roomy_box(LOSSES[_loss(target)](), records))
    checked_folder(out, make=True)
    values |= draft.split(out) if choices.split else draft.in_place()
    values["features"] |= {"public": values.pop("public")}
    if target.missing:
        values["data"]["missing_target"] = "drop"
    path = out / "study.toml"
    title = (
        f"{name}: {target.shown} from {len(draft.inputs.columns)} columns of {len(parts)} owners. "
        "Written by copriv init; every key that could be set is here. A default holds unless the "
        "profile chooses otherwise, which is then said there."
    )
    write_or_refuse(path, annotated(StudySettings, values, title=title))
    with _told_already():
        found = prepare_public_side(load_settings(StudySettings, path), base=out)
    for line in draft.counts(path, found.feature_map.num_features):
        console.print(line, highlight=False)
    return path


def _notes(draft: _Draft, left: Sequence[str]) -> tuple[str, ...]:
    """What to know of the table, its public rows and its owners, and of rows that nobody has."""
    look, target = draft.session.look, draft.target
    public = draft.session.table.iloc[draft.public]
    return (
        *frequency_notes(look, target=target.name),
        *unread_notes(look, public, draft.inputs.numeric, target),
        *far_out_notes(look, draft.mapped[0]),
        *left,
        *draft.notes_of_public(),
        *draft.notes_of_parts(),
        *draft.notes_of_units(),
        *_notes_of_persons(draft),
    )


@dataclass(frozen=True)
class _Draft:
    """A study that is being written; ``public`` are the places of its public rows."""

    session: Session
    choices: Choices
    target: Target
    inputs: Inputs
    public: Indices
    parts: Sequence[Part]

    @cached_property
    def known(self) -> Flags:
        """Which rows have a target: the others are no records."""
        return ~np.isnan(self.target.values)

    @property
    def num_public(self) -> int:
        """How many public records there are."""
        return int(np.count_nonzero(self.known[self.public]))

    def check_public(self) -> None:
        """Refuse public rows that leave none for owners, or teach nothing of the target.

        Raises:
          InputError: They are not the last, none is of one of the classes, or all say the same.
        """
        rows = self.session.public_rows(self.choices.public)
        if not self.choices.split and not (rows.startswith("-") and rows.endswith(":")):
            raise InputError(
                f"--public {rows}: owners are given the rows before the public ones, so these must "
                'be the last, such as "-5000:"; or add --split'
            )
        target, values = self.target, self.target.values
        ours = values[self.public][self.known[self.public]]
        evenly = "" if self.choices.split else ", deal them evenly with --split"
        if len(self.public) == 1:
            raise InputError("--public: there is only 1 public row; give more")
        if not target.positive:
            if not ours.size or not np.ptp(ours) > 0:
                raise InputError(
                    f"--public: the {len(self.public):,} public rows have no two values of "
                    f"{target.shown}; give more{evenly}, or another --target"
                )
            return
        for sign, name in ((1.0, "+1"), (-1.0, "-1")):
            count = int(np.count_nonzero(values == sign))
            if not np.any(ours == sign):
                raise InputError(
                    f"--public: none of the {len(self.public):,} public rows is of class {name} of "
                    f"{target.shown}, which {count:,} of all {len(values):,} rows are; give more"
                    f"{evenly}, or name other values of class +1 with --positive"
                )

    @cached_property
    def mapped(self) -> tuple[FeatureMap, Records]:
        """The feature map of the public rows, and these under it.

        Raises:
          InputError: They are too few, or no column varies among them.
        """
        settings = features_section(self.target, self.inputs, self.choices.codes)
        table = self.session.table.iloc[self.public].reset_index(drop=True)
        try:
            with _told_already():
                fitted = fit_feature_map(
                    table, FeatureSettings(public=TableSource(), **settings), source="public"
                )
        except InputError as error:
            columns = len(self.inputs.columns)
            few = (
                f"{self.num_public:,} public records are too few for {columns} columns; give "
                f"{columns + 1} or more, or leave columns out with --drop"
            )
            raise InputError(f"--public: {error if self.num_public > columns else few}") from None
        known = table[self.known[self.public]].reset_index(drop=True)
        return fitted, fitted.apply(known, where="public")

    def notes_of_public(self) -> Iterator[str]:
        """What to know of the public rows beside the others."""
        target = self.target
        found = self._shifts(self.public)
        if found:
            cure = (
                "give more with --public"
                if self.session.is_dealt(self.choices)
                else "--split and a number for --public deal them evenly"
            )
            yield (
                f"the public rows differ from the others in {in_words(found)}; bounds, settings "
                f"and forecast come from them: if that is not wanted, {cure}"
            )
        if len(target.positive) > 1:
            there = count_values(self.session.table[target.name].iloc[self.public])
            lacking = [value for value in target.positive if value not in there]
            if lacking:
                yield f"--positive: no public row is {' or '.join(map(repr, shortened(lacking)))}"

    def notes_of_parts(self) -> Iterator[str]:
        """What to know of equal parts: of a sorted table they are owners that differ."""
        if self.parts[0].where or len(self.parts) == 1:
            return
        for part in (self.parts[0], self.parts[-1]):
            found = self._shifts(part.places) if len(part.places) >= FEWEST_OF_A_PART else []
            if found:
                yield (
                    f"--owners {len(self.parts)}: each part is a stretch of the table, and "
                    f"{part.name} differs from the other rows in {in_words(found)}; if owners are "
                    "to be alike, shuffle the table's rows first"
                )
                return

    def notes_of_units(self) -> Iterator[str]:
        """Which owners' numbers look as if they were in another unit than the others'."""
        owners = {part.name: part.places for part in self.parts}
        for name in (self.target.name, *self.inputs.columns):
            column = self.session.look.columns[name]
            if note := unit_of_owners_note(column, owners):
                yield f"{column.shown}: {note}"

    def _shifts(self, places: Indices) -> list[Shift]:
        """The columns that count and in which these rows differ from the others."""
        counts = {self.target.name, *self.inputs.columns}
        return [found for found in shifts(self.session.look, places) if found.name in counts]

    def values(self, name: str, box: float) -> dict[str, Any]:
        """What the study's file says, but for its tables."""
        return {
            "name": name,
            "profile": "recommended",
            "features": features_section(self.target, self.inputs, self.choices.codes),
            "model": {"loss": _loss(self.target), "theta_max": box},
            "algorithm": {},
            "privacy": {"epsilon": checked_epsilon(self.choices.epsilon)},
        }

    def in_place(self) -> dict[str, Any]:
        """The table's own rows, by range and condition."""
        rows = self.session.public_rows(self.choices.public)
        others = f":{rows[:-1]}"
        owners = [
            {"name": part.name, "data": {"rows": others, "where": part.where}}
            if part.where
            else {"name": part.name, "data": {"rows": f"{part.places[0]}:{part.places[-1] + 1}"}}
            for part in self.parts
        ]
        place = self.session.source.model_dump(mode="json", exclude_defaults=True)
        return {"data": place, "public": {"rows": rows}, "owners": owners}

    def split(self, out: Path) -> dict[str, Any]:
        """Each owner's records, and the public ones, in files of their own."""
        table = self.session.raw
        make_folder(out / "owners")
        public = table.iloc[self.public]
        groups: dict[str, Any] = {}
        if self.session.is_dealt(self.choices):
            public, groups = _with_owners(self, public)
        write_table(out / "public.parquet", public)
        for part in self.parts:
            own = table.iloc[part.places]
            # Private records, even if others may read the table that they come from.
            write_table(out / "owners" / f"{part.name}.parquet", own, mode=0o600)
        return {
            **groups,
            "data": {},
            "public": {"path": "public.parquet"},
            "owners": [
                {"name": part.name, "data": {"path": f"owners/{part.name}.parquet"}}
                for part in self.parts
            ],
        }

    def counts(self, path: Path, num_features: int) -> Iterator[str]:
        """How many records there are of whom: all rows are accounted for."""
        if self.num_public < PLENTY_FOR_EACH * num_features:
            yield (
                f"note: {self.num_public:,} public records are few for {num_features} features; "
                "give more with --public, or leave columns out with --drop"
            )
        records = sum(int(np.count_nonzero(self.known[part.places])) for part in self.parts)
        nobodys = int(np.count_nonzero(self.known)) - records - self.num_public
        missing = self.target.missing
        left = [f"{nobodys:,} {'is' if nobodys == 1 else 'are'} of no owner"] * (nobodys > 0)
        left += [f"{missing:,} {'has' if missing == 1 else 'have'} no target"] * (missing > 0)
        rest = f"; of {len(self.known):,} rows {' and '.join(left)}" if left else ""
        yield (
            f"{path}: {counted(len(self.parts), 'owner')} with {counted(records, 'record')}, "
            f"{counted(self.num_public, 'public record')}, {counted(num_features, 'feature')}{rest}"
        )


def _teaching(draft: _Draft) -> tuple[_Draft, list[str]]:
    """The same without columns of which public records say too little, and what to know of them."""
    feature_map, _ = draft.mapped
    places = np.concatenate([part.places for part in draft.parts])
    owners = draft.session.table.take(places[draft.known[places]])
    shares = unknown_shares(owners, feature_map)
    mostly = {name for name, share in shares.items() if share >= MOSTLY_UNKNOWN}
    strange = mostly - {*draft.choices.categorical}
    if len(strange) == len(feature_map.columns):
        strange = set()
    inputs = draft.inputs.without({*feature_map.dropped, *strange})
    public = draft.session.table.iloc[draft.public]
    is_dealt = draft.session.is_dealt(draft.choices)
    notes = dropped_notes(feature_map, public, is_dealt=is_dealt)
    notes += unknown_notes(shares, strange)
    return replace(draft, inputs=inputs), notes


def _notes_of_persons(draft: _Draft) -> Iterator[str]:
    """Where the records of persons are who have several."""
    persons, whose = draft.session.persons(draft.choices), draft.session.whose(draft.choices)
    if persons is None:
        return
    of_parts = [np.unique(whose[part.places]) for part in draft.parts]
    theirs, at = np.unique(np.concatenate(of_parts), return_counts=True)
    public = int(np.isin(theirs, whose[draft.public]).sum())
    apart = int(np.count_nonzero(at > 1))
    if public:
        yield (
            f"{persons.shown}: {public:,} of its values have public records and owners' ones; "
            "if it names persons, what is public of them is not protected: --split and a "
            "number for --public leave no such person"
        )
    if apart:
        yield (
            f"{persons.shown}: {apart:,} of its values have records at several owners; if "
            "it names persons, privacy.kappa counts those of all owners together"
        )
    if not public and not apart:
        yield f"{persons.shown}: the records of a value are all public, or all of one owner"


def _with_owners(draft: _Draft, public: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Dealt rows with a column that says among whose they lie, and its settings of forecasts.

    Else their order would count as that of last rows, which come after the owners'.
    """
    column = next(iter(draft.parts[0].where), None)
    if column is None:
        column = not_among(public.columns, "owner")
        public = public.assign(
            **{column: among_whose(draft.session.whose(draft.choices)[draft.public], draft.parts)}
        )
    # A forecast sees no row without a target.
    there = count_values(public[column][draft.known[draft.public]])
    groups = {part.name: part.where.get(column, part.name) for part in draft.parts}
    found = {name: group for name, group in groups.items() if group in there}
    return public, {"forecast": {"group_column": column, "groups": found}}


@contextlib.contextmanager
def _told_already() -> Iterator[None]:
    """Warnings in the words of this command's options."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoubtWarning)
        yield


def _loss(target: Target) -> str:
    """The loss that a target is learnt with."""
    return "logistic" if target.positive else "squared"
