"""A feature map is fitted on public records; equal records give equal maps."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd

from common.arrays import Matrix
from common.columns import category_key, end_in_words, have_values, with_gaps
from common.errors import DoubtWarning, InputError
from common.feature_settings import FeatureSettings
from common.features import LARGEST_COUNT, FeatureMap, check_entries, file_text
from common.fitting import ColumnRule, TargetRule, fit_column
from common.map_numbers import tidy
from common.suggestions import among_columns
from common.target_fitting import fit_target
from common.texts import counted, printable

# A direction with less than this share of the largest variance is rounding, not information.
SMALLEST_VARIANCE = 1e-6


def fit_feature_map(
    table: pd.DataFrame, settings: FeatureSettings, *, source: str, private: bool = False
) -> FeatureMap:
    """The feature map of public records; equal records give equal maps.

    Args:
      table: The public records, raw.
      settings: How to fit.
      source: The file that they are from; its name is noted in the map, its folder is not.
      private: True when some owner's records are among them; the map says so for ever.

    Raises:
      InputError: A column is missing, the target cannot be read, a code for missing is read as
        another number, the records are too few, or the map would have too many numbers.
    """
    where = Path(source).name
    if len(table) == 1:
        raise InputError(f"{where}: there is only 1 public record, which is not enough; give more")
    names = _input_names(table, settings, where)
    _warn_of_unseen(table, settings, where)
    table = with_gaps(table, settings.missing)
    raw_target = table[str(settings.target)]
    target = fit_target(
        raw_target, positive=settings.positive, coverage=settings.coverage, where=where
    )
    if private:
        # The values of private records are no public ones.
        target = target.model_copy(update={"public_values": ()})
    target = _with_missing(target, settings)
    table = table[~np.isnan(target.raw(raw_target))]
    rules, dropped = _fit_columns(table, names, target, settings)
    _check_number(rules, settings, where)
    z = np.stack([rule.standardised(table[rule.name]) for rule in rules], axis=1)
    rotation = None
    if settings.components is not None or settings.whiten:
        rotation = fit_rotation(
            z, components=settings.components, whiten=settings.whiten, where=where
        )
    features = z if rotation is None else z @ rotation.T
    num_features = features.shape[1] + settings.intercept
    if len(table) < num_features:
        raise InputError(
            f"{where}: {len(table)} public records are too few for {num_features} features; give "
            "more public records or fewer columns"
        )
    bounds = np.quantile(np.abs(features), settings.coverage, axis=0)
    found = FeatureMap(
        source=where,
        source_kind="private" if private else "public",
        num_public_records=len(table),
        target=target,
        intercept=settings.intercept,
        l1_radius=_radius(np.clip(features, -bounds, bounds), settings, where),
        bounds=tuple(map(tidy, bounds)),
        columns=tuple(rules),
        rotation=None if rotation is None else tuple(tuple(map(tidy, row)) for row in rotation),
        dropped=dropped,
    )
    check_entries(file_text(found).count(","), where=where)  # as whoever reads it counts them
    return found


def _check_number(rules: list[ColumnRule], settings: FeatureSettings, where: str) -> None:
    """Refuse no input column, and more than a feature map may have.

    Raises:
      InputError: Their number is one of these.
    """
    if not rules:
        raise InputError(f"{where}: no input column varies among the public records; give others")
    if len(rules) + settings.intercept > LARGEST_COUNT:
        raise InputError(
            f"{where}: {counted(len(rules), 'input column')}, but a feature map has at most "
            f"{LARGEST_COUNT - settings.intercept:,}; name fewer in features.columns"
        )


def _radius(features: Matrix, settings: FeatureSettings, where: str) -> float | None:
    """The bound on the L1 norm of clamped features and the constant, None for none."""
    if settings.l1_radius is not None:
        if not settings.l1_radius > settings.intercept:
            raise InputError(
                f"{where}: l1_radius: got {settings.l1_radius}, expected more than 1: the constant "
                "feature counts"
            )
        return settings.l1_radius
    if settings.l1_coverage == 1.0:
        return None
    norms = np.abs(features).sum(axis=1) + settings.intercept
    return tidy(np.quantile(norms, settings.l1_coverage))


def _input_names(table: pd.DataFrame, settings: FeatureSettings, where: str) -> list[str]:
    """The input columns that the settings ask for, all of them in the table."""
    inputs = settings.columns if settings.columns is not None else list(map(str, table.columns))
    named = {
        "target": [settings.target],
        "columns": settings.columns or (),
        "drop": settings.drop,
        "categorical": settings.categorical,
        "missing": tuple(settings.missing),
    }
    for key, names in named.items():
        for name in names:
            if name not in table.columns:
                raise InputError(
                    f"features.{key}: no column {name!r} among the public records of {where}"
                    f"{among_columns(str(name), map(str, table.columns))}"
                )
    left_out = {settings.target, *settings.drop}
    if not (names := list(dict.fromkeys(name for name in inputs if name not in left_out))):
        raise InputError(
            f"{where}: features.columns and features.drop leave no input column; name one at "
            "least, or leave both keys out to use all columns but the target"
        )
    return names


def _fit_columns(
    table: pd.DataFrame, names: list[str], target: TargetRule, settings: FeatureSettings
) -> tuple[list[ColumnRule], dict[str, str]]:
    """The rule of each column that says something, and why the others do not."""
    targets = target.scaled(target.raw(table[target.name]))
    rules: list[ColumnRule] = []
    dropped: dict[str, str] = {}
    for name in names:
        fitted = fit_column(
            table[name],
            targets,
            coverage=settings.coverage,
            order=settings.category_order,
            max_categories=settings.max_categories,
            categorical=name in settings.categorical,
        )
        if isinstance(fitted, str):
            dropped[name] = fitted
        else:
            rules.append(_with_missing(fitted, settings))
    return rules, dropped


def _warn_of_unseen(table: pd.DataFrame, settings: FeatureSettings, where: str) -> None:
    """Say which values that say that there is none no cell has.

    Warns:
      DoubtWarning: There are some.
    """
    for name, values in settings.missing.items():
        unseen = [value for value in values if not have_values(table[name], [value]).any()]
        if unseen:
            warnings.warn(
                f"features.missing.{printable(name)}: no public record of {where} has "
                f"{printable(' or '.join(unseen))}; correct it, unless it is only rare",
                DoubtWarning,
                stacklevel=3,
            )


Rule = TypeVar("Rule", ColumnRule, TargetRule)


def _with_missing(rule: Rule, settings: FeatureSettings) -> Rule:
    """The rule of a column, which knows the values that say that there is none.

    Raises:
      InputError: One of them is read as a number that others may have.
    """
    codes = settings.missing.get(rule.name, ())
    is_number = rule.positive is None if isinstance(rule, TargetRule) else rule.kind == "number"
    for wrong in filter(None, map(end_in_words, codes if is_number else ())):
        raise InputError(f"features.missing.{rule.name}: {wrong}")
    keys = {category_key(value) or "" for value in codes}
    return rule.model_copy(update={"missing": tuple(sorted(keys))})


def fit_rotation(z: Matrix, *, components: int | None, whiten: bool, where: str) -> Matrix:
    """Principal directions of standardised columns as rows, largest variance first.

    Args:
      z: Standardised public columns, shape (n, d).
      components: How many directions; None for all that carry variance.
      whiten: Scale each direction so that its component has unit variance.
      where: What the records are called in an error.

    Raises:
      InputError: The columns have fewer independent directions than asked for, or these would
        have more numbers than a map may have.
    """
    variances, directions = np.linalg.eigh(z.T @ z / len(z))
    variances, directions = variances[::-1], directions[:, ::-1].T
    rank = int(np.count_nonzero(variances > SMALLEST_VARIANCE * variances[0]))
    wanted = components or rank
    if wanted > rank:
        raise InputError(
            f"{where}: components: got {wanted}, expected at most {rank}: the public records' "
            "columns have no more independent directions"
        )
    directions = directions[:wanted]
    check_entries(directions.size, where=where)
    # An eigenvector's sign is arbitrary; its largest entry is made positive.
    largest = np.argmax(np.abs(directions), axis=1)
    directions = directions * np.sign(directions[np.arange(wanted), largest])[:, None]
    if whiten:
        directions = directions / np.sqrt(variances[:wanted])[:, None]
    return np.ascontiguousarray(directions, dtype=np.float64)
