"""Where a feature map's bounds come from: what an owner can check of it by itself.

The answer is for the owner's operator alone: told by ``check`` and ``doctor``, and by a warning
where a map is served. Sent to a learner, or seen from whether an owner serves, it would be an
answer about the records.
"""

from __future__ import annotations

import warnings

import pandas as pd

from common.errors import InputError, PrivacyLeakWarning
from common.features import FeatureMap
from common.map_numbers import center_and_scale
from common.texts import first_few
from owner.raw_rows import RawRows

FLAG = "--allow-private-bounds"
NAMED_COLUMNS = 5
LONGEST_NAME = 40


def bounds_in_words(feature_map: FeatureMap) -> str:
    """Which bounds a map carries, for a warning."""
    names = [rule.name[:LONGEST_NAME] for rule in feature_map.columns]
    radius = "" if feature_map.l1_radius is None else " and the L1 radius"
    target = feature_map.target_name[:LONGEST_NAME]
    return f"the bounds of {first_few(names, NAMED_COLUMNS)}, of the target {target}{radius}"


def was_fitted_on(feature_map: FeatureMap, table: pd.DataFrame | RawRows) -> bool:
    """Whether a map's numbers are the statistics of exactly these records.

    A map notes the mean and the deviation of each column, to nine digits. Those of other
    records do not agree in all of them, unless every column has only a few distinct values.

    Args:
      feature_map: A map whose columns the table has.
      table: The owner's raw records.
    """
    if len(table) < 2 or feature_map.num_public_records > len(table):
        return False
    numbers = [rule for rule in feature_map.columns if rule.kind != "category"]
    if not numbers:
        return False
    for rule in numbers:
        clamped = rule.clamped(table[rule.name])
        if (rule.center, rule.scale) != center_and_scale(clamped):
            return False
    return True


def check_provenance(
    feature_map: FeatureMap,
    table: pd.DataFrame | RawRows,
    *,
    where: str,
    allow_private_bounds: bool,
) -> None:
    """Refuse the owner's own feature map if its bounds were taken from private records.

    Args:
      feature_map: The map.
      table: The owner's records.
      where: What the map is called in an error.
      allow_private_bounds: Whether the flag that allows it was given.

    Raises:
      InputError: They were, and the flag that allows it was not given.

    Warns:
      PrivacyLeakWarning: They were, and the flag was given.
    """
    if feature_map.source_kind == "private":
        why = "it says itself that it was fitted on private records"
    elif was_fitted_on(feature_map, table):
        why = "its numbers are the statistics of exactly this owner's records"
    else:
        return
    leak = f"{where}: {bounds_in_words(feature_map)} were taken from private records: {why}"
    if not allow_private_bounds:
        raise InputError(
            f"{leak}; fit the map on public records, or add {FLAG} if these records are public"
        )
    warnings.warn(f"{leak}; no epsilon holds for them", PrivacyLeakWarning, stacklevel=2)
