"""How a table's columns fit a feature map, for the eyes of whoever holds the records.

A cell that cannot be read, a category that nobody knows and a number beyond the bounds are all
replaced by something public, silently, because a word about them would be an answer about records.
So whoever holds the records looks here: an owner's officer, or who simulates, predicts, evaluates.
Nothing of this reaches a study over the network.
"""

from __future__ import annotations

import difflib
import itertools
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from common.columns import category_keys
from common.errors import DoubtWarning, InputError
from common.features import FeatureMap
from common.fitting import ColumnRule, TargetRule

__all__ = ["ColumnSeen", "faults_of", "look_at_columns", "warn_of_misfits"]

# From here on too many are filled.
MOST_FILLED = 0.5
MOST_FILLED_TARGETS = 0.1
# Of the public records about one in a hundred is cut.
MOST_CUT = 0.2
MOST_UNKNOWN = 0.1
# In deviations of the public records.
MOST_DRIFT = 1.5
LEAST_SPREAD = 0.05
# Fewer values say nothing of a spread.
FEWEST_FOR_SPREAD = 20
SHOWN_CATEGORIES = 3
LONGEST_CATEGORY = 40
# Sentences that a command prints, and the owners and the records of each that it looks at.
MOST_TOLD = 5
MOST_OWNERS = 200
FEWEST_RECORDS = 20


@dataclass(frozen=True, kw_only=True)
class ColumnSeen:
    """One column under its rule; all shares are of the owner's records.

    Args:
      name: The column, by its name in the map.
      kind: number, date, category or target.
      filled: Share without a readable value, which get the public one.
      cut: Share beyond the public bounds, which are moved to them.
      unknown: Share of categories that the map does not know.
      strange: The most frequent of those.
      known: The categories of the map.
      drift: Mean against the public mean, in public deviations.
      spread: Deviation against the public one; None where too few values or a category.
      ratio: Middle value over the public one, or None.
    """

    name: str
    kind: str
    filled: float
    cut: float
    unknown: float = 0.0
    strange: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    drift: float
    spread: float | None = None
    ratio: float | None = None


def look_at_columns(
    table: pd.DataFrame, feature_map: FeatureMap, *, has_target: bool = True
) -> tuple[ColumnSeen, ...]:
    """Every column of the map, the target last if it is looked at.

    Raises:
      InputError: A column is not there.
    """
    needed = feature_map.columns_needed if has_target else feature_map.columns_needed[:-1]
    for name in needed:
        if name not in table.columns:
            raise InputError(f"no column {name!r}, which the feature map needs")
    seen = tuple(_seen(rule, table[rule.name]) for rule in feature_map.columns)
    if not has_target:
        return seen
    return (*seen, _seen_target(feature_map.target, table[feature_map.target.name]))


def _seen(rule: ColumnRule, column: pd.Series) -> ColumnSeen:
    raw = rule.raw(column)
    there = raw[~np.isnan(raw)]
    scaled = (np.clip(there, rule.low, rule.high) - rule.center) / rule.scale
    is_category = rule.kind == "category"
    strange = _strange(rule, column) if is_category else Counter()
    enough = not is_category and len(there) >= FEWEST_FOR_SPREAD
    return ColumnSeen(
        name=rule.name,
        kind=rule.kind,
        filled=_share(np.isnan(raw)),
        cut=0.0 if is_category else _share((raw < rule.low) | (raw > rule.high)),
        unknown=sum(strange.values()) / max(1, len(raw)),
        strange=tuple(name for name, _ in strange.most_common(SHOWN_CATEGORIES)),
        known=tuple(rule.codes),
        drift=float(scaled.mean()) if there.size else 0.0,
        spread=float(scaled.std()) if enough else None,
        ratio=_ratio(there, rule.fill, rule.scale) if rule.kind == "number" else None,
    )


def _seen_target(rule: TargetRule, column: pd.Series) -> ColumnSeen:
    raw = rule.raw(column)
    there = raw[~np.isnan(raw)]
    scaled = rule.scaled(there)
    with np.errstate(over="ignore"):
        beyond = np.abs((there - rule.center) / rule.scale) > rule.bound
    return ColumnSeen(
        name=rule.name,
        kind="target",
        filled=_share(np.isnan(raw)),
        cut=float(np.count_nonzero(beyond)) / max(1, len(raw)),
        # Classes may be rare here and frequent there.
        drift=float(scaled.mean()) if there.size and rule.positive is None else 0.0,
        ratio=_ratio(there, rule.center, rule.scale) if rule.positive is None else None,
    )


def _strange(rule: ColumnRule, column: pd.Series) -> Counter[str]:
    """How often each category occurs that the map does not know."""
    positions, keys = category_keys(column)
    counts = np.bincount(positions[positions >= 0], minlength=len(keys))
    found: Counter[str] = Counter()
    for key, count in zip(keys, counts, strict=True):
        if key is not None and key not in rule.codes:
            found[key] += int(count)
    return found


def _share(flags: np.ndarray) -> float:
    return float(np.count_nonzero(flags)) / max(1, len(flags))


def _ratio(there: np.ndarray, public: float, scale: float) -> float | None:
    """The middle value over the public one, where that is no zero among its neighbours."""
    middle = float(np.median(there)) if there.size else 0.0
    return middle / public if abs(public) > scale and np.isfinite(middle) else None


def faults_of(seen: ColumnSeen) -> Iterator[str]:
    """What is too much to pass in silence: one sentence each."""
    is_target = seen.kind == "target"
    if seen.filled >= (MOST_FILLED_TARGETS if is_target else MOST_FILLED):
        yield (
            f"{seen.filled:.0%} of the records have no readable value and get the public one; "
            "correct the column, or map another one to it"
        )
    if seen.unknown > MOST_UNKNOWN:
        spelt = ", ".join(_with_nearest(name, seen.known) for name in seen.strange)
        yield (
            f"{seen.unknown:.0%} of the records have categories that the map does not know, such "
            f"as {spelt}; spell them as the map does"
        )
    hint = ""
    if seen.ratio is not None and not 1 / 3 < seen.ratio < 3:
        hint = f" (the middle value is {seen.ratio:.3g} times the public one)"
    if seen.cut > MOST_CUT:
        yield (
            f"{seen.cut:.0%} of the records are beyond the public bounds and are cut{hint}; give "
            "the column in the map's unit"
        )
    elif abs(seen.drift) > MOST_DRIFT:
        yield f"its mean is {abs(seen.drift):.1f} public deviations away{hint}; look at its unit"
    elif seen.spread is not None and seen.spread < LEAST_SPREAD:
        yield f"its values differ {seen.spread:.2g} times as much as public ones{hint}; a unit?"


def _with_nearest(name: str, known: Sequence[str]) -> str:
    """A category, and the known one that it may stand for."""
    lowered = {other.lower(): other for other in known}
    near = difflib.get_close_matches(name.lower()[:LONGEST_CATEGORY], lowered, n=1)
    short = repr(name[:LONGEST_CATEGORY])
    return f"{short} (did you mean {lowered[near[0]][:LONGEST_CATEGORY]!r}?)" if near else short


def warn_of_misfits(
    tables: Mapping[str, pd.DataFrame], feature_map: FeatureMap, *, has_target: bool = True
) -> None:
    """Warn of columns that do not fit the map: a sentence each, the first few of them.

    Looked at are the first owners only, and those with records enough to tell a unit from chance.

    Args:
      tables: Raw records, by what a sentence begins with.
      feature_map: The map.
      has_target: Whether the target is looked at, too.

    Warns:
      DoubtWarning: A column does not fit.
    """
    looked = {where: t for where, t in tables.items() if len(t) >= FEWEST_RECORDS}
    found = [
        f"{where}: column {one.name!r}: {fault}"
        for where in list(looked)[:MOST_OWNERS]
        for one in look_at_columns(looked[where], feature_map, has_target=has_target)
        for fault in itertools.islice(faults_of(one), 1)
    ]
    for sentence in found[:MOST_TOLD]:
        warnings.warn(sentence, DoubtWarning, stacklevel=2)
    if len(found) > MOST_TOLD:
        more = f"and {len(found) - MOST_TOLD} more columns that do not fit"
        warnings.warn(more, DoubtWarning, stacklevel=2)
