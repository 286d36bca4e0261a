"""``copriv-owner join``: what an invitation asks, how the table fits it, and what is set so."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from common.cells import month_words
from common.column_faults import taken_for_none
from common.column_fit import ColumnSeen, count_empty_rows, look_at_columns
from common.config import check_settings, with_absolute_paths
from common.copies import copy_notes
from common.date_marks import date_notes
from common.errors import InputError
from common.features import FeatureMap
from common.files import real_path
from common.fitting import ColumnRule, TargetRule
from common.frequencies import frequency_notes
from common.joining import Invited
from common.looking import PLAINLY, Look, look_at
from common.missing_codes import code_for_missing, code_note
from common.names import learner_words
from common.number_marks import mark_notes
from common.privacy import epsilon_in_words, in_short
from common.tables import read_table
from common.texts import brief, counted, exact_text, named
from common.tls import host_and_port, is_loopback
from common.totals import refuse_totals
from common.two_units import two_units_note
from common.typed_tables import place_below
from owner.init import LEAVE_EMPTY
from owner.joining_checks import check_columns_typed, check_lifetime, check_spellings_held
from owner.loading import load_records
from owner.policy import OwnerSettings, PrivateSource
from owner.provenance import check_provenance
from owner.translation import stored_names_of, translated, with_hints

SHOWN_CATEGORIES = 6
# This many of the table's own columns are named where one of the study's is missing.
NAMED = 12


@dataclass(frozen=True, kw_only=True)
class Joining:
    """What the owner's officer typed.

    Args:
      table: The table and how it is read, as in ``[data]``: path or database, query, separator,
        decimal, dates, encoding. Its paths start where the officer types.
      folder: Where the owner's files go.
      beside: The folder of the invitation: the request goes there, the certificate comes there.
      epsilon_lifetime: The most that the records ever spend; None for what this study asks.
      rename, units, spellings: As in ``[data]``.
      allow_private_bounds: Whether the feature map may have been fitted on these records.
    """

    table: Mapping[str, str]
    folder: Path
    beside: Path
    epsilon_lifetime: Fraction | None
    rename: Mapping[str, str]
    units: Mapping[str, float]
    spellings: Mapping[str, Mapping[str, str]]
    allow_private_bounds: bool

    @property
    def where(self) -> str:
        """What the table is called in an error."""
        return self.table.get("path") or self.table["database"]


def asked_in_words(invited: Invited) -> Iterator[str]:
    """What an invitation asks, for the officer; whoever wrote it steers no terminal."""
    asked, feature_map = invited.invitation, invited.feature_map
    yield (
        f"study {asked.study} of {learner_words(asked.learner)} invites {asked.owner}: epsilon "
        f"{in_short(asked.epsilon)}, {asked.loss} loss, no coefficient beyond "
        f"{asked.theta_max:g}, to {asked.way} at {asked.address}"
    )
    yield f"epsilon {in_short(asked.epsilon)}: {epsilon_in_words(asked.epsilon)}"
    yield (
        f"feature map {feature_map.digest[:16]}: {counted(feature_map.num_features, 'feature')}, "
        f"target {brief(feature_map.target_name)}"
        f"{taken_for_none(feature_map.target.missing)}"
    )
    for rule in feature_map.columns:
        name = brief(rule.name)
        yield f"  {name}: {_meaning(rule)}{taken_for_none(rule.missing)}"


def _meaning(rule: ColumnRule) -> str:
    """What a column must hold."""
    if rule.kind == "category":
        return f"one of {named(_set_apart(rule.codes), SHOWN_CATEGORIES)}"
    if rule.kind == "date":
        return f"a date, mostly from {month_words(rule.low)} to {month_words(rule.high)}"
    return f"a number, mostly from {rule.low:g} to {rule.high:g}"


def _set_apart(names: Iterable[str]) -> list[str]:
    """Names in quotation marks, if one of them has the comma that would stand between them.

    >>> _set_apart(["Médecine, interne", "Chirurgie"]), _set_apart(["F", "M"])
    (["'Médecine, interne'", "'Chirurgie'"], ['F', 'M'])
    """
    names = list(names)
    return [f"'{name}'" for name in names] if any("," in name for name in names) else names


def settings_of(invited: Invited, joining: Joining) -> dict[str, Any]:
    """OWNER.toml as a table."""
    asked = invited.invitation
    lifetime = joining.epsilon_lifetime or asked.epsilon
    data: dict[str, Any] = {**place_below(joining.table, joining.folder)}
    data |= {
        key: given
        for key in ("rename", "units", "spellings")
        if (given := dict(getattr(joining, key)))
    }
    certificate = joining.beside / f"{asked.owner}.certificate.pem"
    policy = {
        "epsilon_per_study": exact_text(asked.epsilon),
        "epsilon_lifetime": exact_text(lifetime),
        "kappa": asked.kappa,
        "learners": [asked.learner],
    }
    way: dict[str, Any] = {"attach": {"learner": asked.address}}
    if asked.way == "serve":
        way = {"listen": _listen(asked.address)}
    tables = {
        "data": data,
        "policy": policy,
        "tls": {
            "ca": "ca.pem",
            "certificate": os.path.relpath(real_path(certificate), real_path(joining.folder)),
            "key": "key.pem",
        },
    }
    plain = {"name": asked.owner, "ledger": "ledger.sqlite", "features": "features.json"}
    return plain | way | tables


def _listen(address: str) -> str:
    """Where to listen so that the address is reached: a name may stand for another machine's."""
    if is_loopback(address):
        return address
    host, port = host_and_port(address)
    try:
        is_new = ipaddress.ip_address(host).version == 6
    except ValueError:
        is_new = False
    return f"[::]:{port}" if is_new else f"0.0.0.0:{port}"


def look(invited: Invited, joining: Joining) -> tuple[int, int, tuple[ColumnSeen, ...]]:
    """The number of records, that of empty ones, and how the columns fit; nothing is written.

    Raises:
      InputError: The table cannot be read, a column is missing, what was typed does nothing, or the
        map was fitted on these records.
    """
    source = _source_of(joining)
    check_lifetime(joining.epsilon_lifetime, asked=invited.invitation.epsilon)
    check_columns_typed(
        invited.feature_map,
        rename=joining.rename,
        units=joining.units,
        spellings=joining.spellings,
    )
    # In its own words first: which of them the table has is seen no more in the study's.
    renamed = replace(joining, units={}, spellings={})
    table = settings_of(invited, renamed)
    # The folder that the settings' own path starts from is not there yet.
    table["data"] |= {"path": source.path, "database": source.database}
    settings = check_settings(OwnerSettings, table, where="the invitation")
    raw = load_records(settings, base=joining.folder, pinned=None).raw
    missing = [name for name in invited.feature_map.columns_needed if name not in raw.columns]
    if missing:
        needed = invited.feature_map.columns_needed
        names = [str(name) for name in raw.columns if name not in needed]
        shown = [brief(name) for name in missing]
        sentences = "; ".join(with_hints(shown, names))
        others = f"; its other columns are {named(names, NAMED)}" if names else ""
        raise InputError(
            f"{joining.where}: {sentences}{others}; --rename STUDY=OWN maps a column; where there "
            "is none, the study may leave it out (features.columns), or the table has it empty and "
            "--accept passes it"
        )
    check_spellings_held(joining.spellings, raw)
    words = PrivateSource(
        units=dict(joining.units),
        spellings={name: dict(spelt) for name, spelt in joining.spellings.items()},
    )
    study = translated(raw, words, where=joining.where)
    check_provenance(
        invited.feature_map,
        study,
        where="the invitation",
        allow_private_bounds=joining.allow_private_bounds,
    )
    empty = count_empty_rows(study, invited.feature_map)
    return len(raw), empty, look_at_columns(study, invited.feature_map)


def _unread_numbers(feature_map: FeatureMap, joining: Joining, seen: Look) -> Iterator[str]:
    """Which numbers have a form that is not read, so that all of them count as gaps."""
    for rule in _amounts(feature_map):
        column = seen.columns.get(joining.rename.get(rule.name, rule.name))
        # Dates have notes of their own, and a spelling says how the texts are meant.
        is_said = rule.name in joining.spellings or getattr(rule, "kind", "") == "date"
        if column is not None and column.unread_number and not is_said:
            yield f"{column.shown}: {column.unread_words}; {PLAINLY}"


def _amounts(feature_map: FeatureMap) -> list[ColumnRule | TargetRule]:
    """The rules of numbers and dates."""
    target = feature_map.target
    rules: list[ColumnRule | TargetRule] = [r for r in feature_map.columns if r.kind != "category"]
    return rules + [target] * (target.positive is None)


def _odd_numbers(feature_map: FeatureMap, joining: Joining, seen: Look) -> Iterator[str]:
    """Which numbers may be in two units, or stand for missing values and are not named so."""
    for rule in _amounts(feature_map):
        column = seen.columns.get(joining.rename.get(rule.name, rule.name))
        # In other units it is not the study's.
        named = () if rule.name in joining.units else rule.missing
        if column is not None and code_for_missing(column) not in {"", *named}:
            yield f"{column.shown}: {code_note(column, LEAVE_EMPTY)}"
        if column is not None and (note := two_units_note(column)):
            yield f"{column.shown}: {note}"


def marks(invited: Invited, joining: Joining) -> list[str]:
    """What numbers and dates may mean otherwise in the columns that are asked for.

    And of all columns, which records may be copies or of one person, and which count others.

    Raises:
      InputError: The table cannot be read, or a row of it holds totals.
    """
    source = _source_of(joining)
    names = stored_names_of(source, invited.feature_map.columns_needed)
    table = read_table(source, base=Path())
    seen = look_at(table)
    refuse_totals(seen, where=joining.where)
    needed = [name for name in names if name in table]
    dates = (rule.name for rule in invited.feature_map.columns if rule.kind == "date")
    stored = [joining.rename.get(name, name) for name in dates]
    asked = invited.invitation.kappa
    return [
        *mark_notes(source, base=Path(), table=table[needed]),
        *date_notes(table, stored),
        *_unread_numbers(invited.feature_map, joining, seen),
        *_odd_numbers(invited.feature_map, joining, seen),
        *copy_notes(seen, kappa="the study's privacy.kappa", protected=asked),
        *frequency_notes(seen),
    ]


def _source_of(joining: Joining) -> PrivateSource:
    """The table as it was typed to be read, with its own names of the study's columns."""
    typed = {**joining.table, "rename": joining.rename}
    return with_absolute_paths(check_settings(PrivateSource, typed, where="--data"), Path())
