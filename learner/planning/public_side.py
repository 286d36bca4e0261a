"""What the learner knows before it talks to anybody: a feature map, and public records under it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from common.arrays import Indices, Vector
from common.column_faults import warn_of_misfits
from common.columns import category_key, category_keys
from common.errors import DoubtWarning, InputError, PrivacyLeakWarning
from common.features import FeatureMap, load_feature_map, with_target
from common.losses import LOSSES, PARAMETERS, Loss, loss_of
from common.map_fitting import fit_feature_map
from common.tables import TableSource, count_shared_rows, placed, read_table
from common.terms import Records
from common.texts import counted, named
from learner.planning.giveaways import warn_of_giveaways
from learner.planning.held_out import held_out_records
from learner.planning.plan import problem_of
from learner.planning.sections import ModelSettings
from learner.planning.settings import StudySettings, has_table
from learner.simulated.groups import FEWEST, PublicGroups, drifts_within
from learner.simulated.problem import Problem

# Records for each feature below which the public model is mostly chance: what it loses beyond the
# best one on other records is then as much as the best one loses, or more. This many are plenty.
FEWEST_FOR_EACH, PLENTY_FOR_EACH = 2, 10


@dataclass(frozen=True, kw_only=True)
class PublicSide:
    """What the learner knows before it talks to anybody.

    Args:
      feature_map: The map that it proposes to the owners.
      records: Its public records under this map, or None.
      labels: The group of each public record, shape (n,), -1 for none; None where they have none.
      known: The group that owners are known to be, by name.
      only_group_of: The column that names groups, where all of these are of one; None otherwise.
      raw_targets: The public records' targets in raw units, or classes -1 and +1, shape (n,).
    """

    feature_map: FeatureMap
    records: Records | None
    labels: Indices | None = None
    known: Mapping[str, int] = field(default_factory=dict)
    only_group_of: str | None = None
    raw_targets: Vector | None = None

    def loss(self, model: ModelSettings) -> Loss:
        """The loss that a study learns with; parameters left to "auto" follow the public records.

        Raises:
          InputError: A parameter is left to "auto", and the public records do not determine it.
        """
        open_ones = [name for name in PARAMETERS if getattr(model, name) == "auto"]
        if not open_ones:
            return loss_of(model)
        key = f'model.{open_ones[0]} = "auto"'
        if self.records is None or len(self.records) == 0:
            raise InputError(f"{key} needs public records; give features.public, or a NUMBER")
        try:
            return LOSSES[model.loss].fitted(self._residuals)
        except ValueError:
            raise InputError(
                f"{key}: the public records have residuals of 0, which say nothing; give a NUMBER"
            ) from None

    def problem(self, settings: StudySettings) -> Problem:
        """What a study learns, before anything is decided.

        Raises:
          InputError: As :meth:`loss`.
        """
        return problem_of(settings, self.loss(settings.model))

    @cached_property
    def _residuals(self) -> Vector:
        """What least squares on the public records leaves of their targets, shape (n,)."""
        assert self.records is not None  # noqa: S101 (whoever asks has looked)
        x, y = self.records.features, self.records.targets
        fitted: Vector = x @ np.linalg.lstsq(x, y, rcond=None)[0]
        return y - fitted


def public_groups(public: PublicSide, problem: Problem) -> PublicGroups:
    """The public records in groups.

    Raises:
      InputError: There are none, or fewer than features.
    """
    if public.records is None:
        raise InputError("forecast: needs public records; give --public TABLE")
    return PublicGroups(problem=problem, records=public.records, labels=public.labels)


def known_groups(public: PublicSide, settings: StudySettings) -> tuple[int | None, ...]:
    """The group that each owner of a study is known to be, or None."""
    return tuple(public.known.get(entry.name) for entry in settings.owners)


def strangers_sentence(
    groups: PublicGroups, public: PublicSide, settings: StudySettings
) -> str | None:
    """That forecasts let groups at random play some owners; None where none, or no group, is known.

    Args:
      groups: The public records in groups.
      public: What is public, with the groups that owners are known to be.
      settings: The study.
    """
    if groups.labels is None:
        return None
    known = zip(settings.owners, known_groups(public, settings), strict=True)
    unknown = [owner.name for owner, group in known if group not in groups.usable]
    if not unknown:
        return None
    return f"no public group stands for {named(unknown)}: groups at random play them"


def prepare_public_side(
    settings: StudySettings, *, base: Path, on_done: Callable[[str], None] = lambda what: None
) -> PublicSide:
    """Read or fit the feature map, and map the public records.

    Args:
      settings: The study.
      base: The folder of its file.
      on_done: Called with what is done: the reading, then the fitting.

    Warns:
      DoubtWarning: The public records are few for so many features, or of one of the owners'
        groups only; or a column gives the target away, names records, has numbers in two units, or
        is named and left out of the map; or no error reaches ``model.delta``.

    Raises:
      InputError: The public records or the saved map do not fit the study.
    """
    public, table = read_public_side(settings, base=base, on_done=on_done)
    return public if table is None else with_groups(public, settings, table)


def read_public_side(
    settings: StudySettings, *, base: Path, on_done: Callable[[str], None] = lambda what: None
) -> tuple[PublicSide, pd.DataFrame | None]:
    """The same before the records are taken in groups, and their table for :func:`with_groups`.

    All but the groups is the same for any ``[model]`` of the same loss. Arguments, warnings and
    errors are those of :func:`prepare_public_side`.
    """
    features = settings.features
    table, private = None, False
    if features.public is not None:
        table = read_table(features.public, base=base, default=settings.data)
        private = _warn_of_private_rows(settings, features.public, base=base)
        on_done(f"read {counted(len(table), 'public record')} of {_public_source(settings)}")
    if features.map is not None:
        feature_map = load_feature_map(base / features.map)
        if table is not None:
            warn_of_misfits({"the public records": table}, feature_map)
    else:
        assert table is not None  # noqa: S101 (settings without a map name public records)
        feature_map = fit_feature_map(
            table, features, source=_public_source(settings), private=private
        )
    _check_loss(settings, feature_map)
    records = None
    if table is not None and features.public is not None:
        missing = placed(features.public, settings.data).missing_target
        table = table[with_target(table, feature_map, missing, where="the public records")]
        table = table.reset_index(drop=True)
        records = held_out_records(feature_map, table, where="the public records")
        warn_of_public_records(table, feature_map)
    done = "read a feature map of" if features.map is not None else "fitted a feature map of"
    on_done(f"{done} {counted(feature_map.num_features, 'feature')}")
    warn_of_dropped(feature_map, features.columns or ())
    if table is None:
        return PublicSide(feature_map=feature_map, records=None), None
    targets = feature_map.target.raw(table[feature_map.target_name])
    return PublicSide(feature_map=feature_map, records=records, raw_targets=targets), table


def _check_loss(settings: StudySettings, feature_map: FeatureMap) -> None:
    """Refuse a loss of classes for a target of numbers, and the other way round."""
    if feature_map.is_classification != settings.loss_has_classes:
        classes = [name for name, kind in LOSSES.items() if kind.has_classes()]
        cure = (
            f"which has classes; take {' or '.join(classes)}, or leave features.positive out"
            if feature_map.is_classification
            else f"which is a number; {' and '.join(classes)} need features.positive, the value of "
            "the target that is class +1"
        )
        raise InputError(
            f"model.loss = {settings.model.loss!r} does not go with the target "
            f"{feature_map.target_name!r}, {cure}"
        )


def with_groups(public: PublicSide, settings: StudySettings, table: pd.DataFrame) -> PublicSide:
    """The same with the group of each public record, and of owners whose group is known.

    Args:
      public: What is public, without groups.
      settings: The study, whose model decides whether groups that nobody named are taken.
      table: The public records as they were read.

    Warns:
      DoubtWarning: They are of one of the owners' groups only, or no error reaches ``model.delta``.

    Raises:
      InputError: The column of groups is not there, or is a target of numbers.
    """
    _warn_of_delta(settings, public.feature_map)
    column = settings.forecast.group_column
    target = public.feature_map.target
    if column == target.name and target.positive is None:
        raise InputError(
            f"forecast.group_column: {column!r} is the target, a number that says nothing of whose "
            "a record is; name the column that does, or leave the setting out"
        )
    if column is not None:
        labels, known = _groups(settings, table, column)
        only = _only_group_of(settings, labels, column)
        return replace(public, labels=labels, known=known, only_group_of=only)
    if settings.forecast.groups:
        raise InputError(
            "forecast.groups: the public records have no groups; give forecast.group_column "
            "too, or leave the setting out"
        )
    column = _column_of_owners(settings, table)
    if column is None:
        return public
    labels, known = _groups(settings, table, column)
    # A group that is no owner's may be how a table marks its public rows, wherever they are from.
    only = _only_group_of(settings, labels, column) if known else None
    if only is not None:
        return replace(public, only_group_of=only)
    grouped = replace(public, labels=labels, known=known)
    return grouped if _groups_say_more(grouped, settings) else public


def _warn_of_delta(settings: StudySettings, feature_map: FeatureMap) -> None:
    """A delta that no error reaches, as one in the target's own unit often is, changes nothing."""
    delta, target = settings.model.delta, feature_map.target
    if not isinstance(delta, float) or delta <= target.bound:
        return
    warnings.warn(
        f"model.delta = {delta:g}: hardly an error reaches it, so Huber loss is squared loss here; "
        f"it counts in standard deviations of the target, one of which is {target.scale:.4g}, and "
        f'the bound of targets is {target.bound:.3g} of them; give a smaller one, or "auto"',
        DoubtWarning,
        stacklevel=2,
    )


def _only_group_of(settings: StudySettings, labels: Indices, column: str) -> str | None:
    """The column, where the public records are of one of its groups and owners are several."""
    sizes = np.bincount(labels[labels >= 0])
    if len(settings.owners) < 2 or np.count_nonzero(sizes >= FEWEST) != 1:
        return None
    warnings.warn(
        f"features.public: its records are of one {column!r} only, so nothing says how the owners "
        "differ from them: forecasts may be several times too good, and another way of learning "
        "may be better than the one that is chosen; give records of several, if there are any",
        DoubtWarning,
        stacklevel=2,
    )
    return column


def _column_of_owners(settings: StudySettings, table: pd.DataFrame) -> str | None:
    """The public records' column whose values distinguish the owners, by ``data.where``."""
    wheres = [entry.data.where if entry.data else {} for entry in settings.owners]
    for column in wheres[0] if wheres else ():
        values = [where.get(column) for where in wheres]
        groups = {category_key(value) for value in values if isinstance(value, str | int | float)}
        if column in table.columns and len(groups) == len(wheres):
            return column
    return None


def _groups_say_more(public: PublicSide, settings: StudySettings) -> bool:
    """Whether groups say more of the owners than the order of the public table.

    They do not where there is one only, or where records of a group change along the table: the
    owners' may then lie beyond its end.
    """
    try:
        groups = public_groups(public, public.problem(settings))
    except InputError:  # Too few records; whoever needs them reports it.
        return False
    return len(groups.usable) > 1 and not drifts_within(groups)


def _groups(
    settings: StudySettings, table: pd.DataFrame, column: str
) -> tuple[Indices, dict[str, int]]:
    """The group of each public record, and of owners whose group is known."""
    if column not in table.columns:
        raise InputError(
            f"forecast: no column {column!r} among the public records, which "
            "forecast.group_column names; give records with it, or leave the setting out"
        )
    codes, names = category_keys(table[column])
    known = {}
    for entry in settings.owners:
        given = settings.forecast.groups.get(entry.name)
        value = given if given is not None or entry.data is None else entry.data.where.get(column)
        key = category_key(value) if isinstance(value, str | int | float) else None
        if key is not None and key in names:
            known[entry.name] = names.index(key)
        elif given is not None:
            raise InputError(
                f"forecast.groups: no public record is of group {given!r}; name another"
            )
    return codes, known


def _warn_of_private_rows(settings: StudySettings, public: TableSource, *, base: Path) -> bool:
    """Whether the public records are also an owner's, as far as this study file shows."""
    owners = [entry for entry in settings.owners if has_table(settings, entry)]
    sources = [entry.data or TableSource() for entry in owners]
    shared = count_shared_rows(public, sources, base=base, default=settings.data)
    for entry, count in zip(owners, shared, strict=True):
        if count:
            warnings.warn(
                f"features.public: {count} of its records are also owner {entry.name}'s: the "
                "bounds of every feature and of the target, and all else that is chosen from "
                "public records, tell about private ones; take other records",
                PrivacyLeakWarning,
                stacklevel=2,
            )
    return any(shared)


def warn_of_public_records(table: pd.DataFrame, feature_map: FeatureMap) -> None:
    """Warn that public records are few, or have columns that a study should not learn from.

    Args:
      table: The public records, raw, each with a readable target.
      feature_map: The map.

    Warns:
      DoubtWarning: They are, or one is there.
    """
    n, p = len(table), feature_map.num_features
    if p <= n < FEWEST_FOR_EACH * p:
        warnings.warn(
            f"features.public: {counted(n, 'record')} for {counted(p, 'feature')}: their "
            "model is mostly chance, and so are all forecasts; give "
            f"{PLENTY_FOR_EACH * p} or more, or use fewer columns",
            DoubtWarning,
            stacklevel=2,
        )
    warn_of_giveaways(table, feature_map)


def warn_of_dropped(feature_map: FeatureMap, columns: Sequence[str]) -> None:
    """Warn of columns that the study names and the feature map leaves out."""
    dropped = [name for name in columns if name in feature_map.dropped]
    if dropped:
        whys = dict.fromkeys(feature_map.dropped[name] for name in dropped)
        warnings.warn(
            f"features.columns: nothing is learnt from {named(dropped)}, since the public records "
            f"have too little there ({', '.join(whys)}); give public records with more, or leave "
            "such columns out",
            DoubtWarning,
            stacklevel=2,
        )


def _public_source(settings: StudySettings) -> str:
    public = settings.features.public
    source = placed(public or TableSource(), settings.data)
    return source.path.name if source.path else source.database or ""
