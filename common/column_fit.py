"""How a table's columns fit a feature map, for the eyes of whoever holds the records.

A cell that cannot be read, a category that nobody knows and a number beyond the bounds are all
replaced by something public, silently, because a word about them would be an answer about records.
So whoever holds the records looks here: an owner's officer, or who simulates, predicts, evaluates.
Nothing of this reaches a study over the network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from common.arrays import Flags, Vector
from common.errors import InputError
from common.features import FeatureMap
from common.fitting import ColumnRule, TargetRule
from common.suggestions import same_words
from common.target_fitting import count_values

# Fewer values say nothing of a spread.
FEWEST_FOR_SPREAD = 20
SHOWN_CATEGORIES = 3
# In deviations.
NORMAL_MIDDLE_HALF = 1.349
# Bounds are written with nine digits, and scaled and back: of the range, and of the numbers.
ROUNDED, WRITTEN = 1e-6, 1e-9
# Two columns look swapped where both are so far from their own public records, in deviations, and
# so much nearer to each other's.
FAR, NEARER = 0.75, 0.4
# So do two labels whose share is so far from the public one, and so near to the other label's.
OTHER_SHARE, SAME_SHARE = 0.3, 0.1


@dataclass(frozen=True, kw_only=True)
class ClassesSeen:
    """How a target of two classes is spelt; all shares are of the records that have one.

    Args:
      positive: The values that are class +1.
      records: How many records have a target.
      share: Share of class +1.
      values: The most frequent values.
      alike: Values that seem to be spellings of class +1, and count as class -1.
      share_alike: Their share.
    """

    positive: tuple[str, ...]
    records: int
    share: float
    values: tuple[str, ...]
    alike: tuple[str, ...]
    share_alike: float


@dataclass(frozen=True, kw_only=True)
class ColumnSeen:
    """One column under its rule; all shares are of the owner's records.

    Args:
      name: The column, by its name in the map.
      kind: number, date, category or target.
      filled: Share without a readable value, which get the public one.
      cut: Share beyond the public bounds, which are moved to them.
      unknown: Share of categories that the map does not know, or of classes that no public
        record has; None where the map has none.
      strange: The most frequent of those.
      num_strange: How many different ones there are.
      known: The categories of the map, or the classes that it knows of.
      missing: Values that the map takes for none.
      drift: Mean against the public mean, in public deviations; None where no value can be read,
        and of classes, whose public share no map holds.
      spread: Deviation against the public one; None where too few values or a category.
      ratio: Middle value over the public one, or None.
      width: How far apart the middle half of its values lies, before any cut, against public
        values of a normal distribution, or None.
      classes: How a target of classes is spelt, None for all else.
      middle: Its middle value, in the map's unit, or None where it is not a number.
      like: The column whose public values its values are like, while that one's are like its
        own; empty for none.
      is_turned: Whether its two values are shared out as public ones are with labels swapped.
    """

    name: str
    kind: str
    filled: float
    cut: float
    unknown: float | None = None
    strange: tuple[str, ...] = ()
    num_strange: int = 0
    known: tuple[str, ...] = ()
    missing: tuple[str, ...]
    drift: float | None = None
    spread: float | None = None
    ratio: float | None = None
    width: float | None = None
    classes: ClassesSeen | None = None
    middle: float | None = None
    like: str = ""
    is_turned: bool = False


# The largest numbers there are differ by more than any number.
@np.errstate(over="ignore", invalid="ignore")
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
    seen = _with_swaps(
        [_seen(rule, table[rule.name]) for rule in feature_map.columns], feature_map.columns
    )
    if not has_target:
        return seen
    return (*seen, _seen_target(feature_map.target, table[feature_map.target.name]))


def count_empty_rows(
    table: pd.DataFrame, feature_map: FeatureMap, *, has_target: bool = True
) -> int:
    """How many records have no readable value in any column of the map, nor a target if any."""
    target, rows = feature_map.target, table
    if has_target:
        rows = table[np.isnan(target.raw(table[target.name]))]
    for rule in feature_map.columns:
        rows = rows[np.isnan(rule.raw(rows[rule.name]))]
    return len(rows)


def are_cut(values: Vector, low: float, high: float) -> Flags:
    """Which numbers are beyond the bounds by more than these are rounded; gaps are not.

    >>> are_cut(np.array([0.0, 1 / 3, 0.34, np.nan]), 0.0, 0.333333333).tolist()
    [False, False, True, False]
    """
    slack = ROUNDED * (high - low) + WRITTEN * max(abs(low), abs(high))
    return np.asarray((values < low - slack) | (values > high + slack))


def _seen(rule: ColumnRule, column: pd.Series) -> ColumnSeen:
    raw = rule.raw(column)
    there = raw[~np.isnan(raw)]
    scaled = (np.clip(there, rule.low, rule.high) - rule.center) / rule.scale
    is_category = rule.kind == "category"
    strange = _strange(_counts(column, rule), rule.codes) if is_category else Counter()
    enough = not is_category and len(there) >= FEWEST_FOR_SPREAD
    return ColumnSeen(
        name=rule.name,
        kind=rule.kind,
        filled=_share(np.isnan(raw)),
        cut=0.0 if is_category else _share(are_cut(raw, rule.low, rule.high)),
        unknown=strange.total() / max(1, len(raw)) if is_category else None,
        strange=_most_frequent(strange),
        num_strange=len(strange),
        known=tuple(rule.codes),
        missing=rule.missing,
        drift=float(scaled.mean()) if there.size else None,
        spread=float(scaled.std()) if enough else None,
        ratio=_ratio(there, rule.fill, rule.scale) if rule.kind == "number" else None,
        width=_width(there, rule.scale) if rule.kind == "number" else None,
        middle=float(np.median(there)) if rule.kind == "number" and there.size else None,
        is_turned=_is_turned(rule, there),
    )


def _with_swaps(seen: Sequence[ColumnSeen], rules: Sequence[ColumnRule]) -> tuple[ColumnSeen, ...]:
    """The same, where columns of numbers say which other one they seem to be swapped with."""
    numbers = [
        (index, one.middle, one.width * rule.scale, rule.fill, rule.scale)
        for index, (one, rule) in enumerate(zip(seen, rules, strict=True))
        if one.middle is not None and np.isfinite(one.middle) and one.width
    ]
    if len(numbers) < 2:
        return tuple(seen)
    places, middle, width, fill, scale = map(np.array, zip(*numbers, strict=True))
    own = _away(middle, width, fill, scale)
    far = np.nonzero(own > FAR)[0]
    like = {}
    # One by one: all pairs of ten thousand columns take gigabytes.
    for i in far:
        there = _away(middle[i], width[i], fill[far], scale[far])
        back = _away(middle[far], width[far], fill[i], scale[i])
        nearer = (there < NEARER * own[i]) & (back < NEARER * own[far])
        if nearer.any():
            nearest = far[np.argmin(np.where(nearer, there, np.inf))]
            like[int(places[i])] = seen[int(places[nearest])].name
    return tuple(replace(one, like=like.get(index, "")) for index, one in enumerate(seen))


def _away(
    middle: Vector | float, width: Vector | float, fill: Vector | float, scale: Vector | float
) -> Vector:
    """How far values of such a middle and width lie from public ones, in deviations of these."""
    return np.asarray(np.abs(middle - fill) / scale + np.abs(np.log(width / scale)))


def _is_turned(rule: ColumnRule, values: Vector) -> bool:
    """Whether two values are shared out as public ones would be with their labels swapped."""
    labels = _two_labels(rule)
    if labels is None or len(values) < FEWEST_FOR_SPREAD:
        return False
    if rule.kind != "category" and not np.isin(values, labels).all():
        return False
    first, second = labels
    public = (rule.center - first) / (second - first)
    share = (float(values.mean()) - first) / (second - first)
    return abs(share - public) > OTHER_SHARE and abs(1 - share - public) < SAME_SHARE


def _two_labels(rule: ColumnRule) -> tuple[float, float] | None:
    """The codes of two categories, or the bounds of numbers that have no others, as truth has."""
    if rule.kind == "category":
        codes = tuple(rule.codes.values())
        return (codes[0], codes[1]) if len(codes) == 2 and codes[0] != codes[1] else None
    ends = (rule.center - rule.low) * (rule.high - rule.center)
    # Nothing within the bounds deviates as far as what lies on them alone.
    return (rule.low, rule.high) if 0 < ends <= rule.scale**2 * (1 + ROUNDED) else None


def _seen_target(rule: TargetRule, column: pd.Series) -> ColumnSeen:
    raw = rule.raw(column)
    filled = _share(np.isnan(raw))
    if rule.positive is not None:
        return _seen_classes(rule, _counts(column, rule), filled=filled, num_records=len(raw))
    there = raw[~np.isnan(raw)]
    reach = rule.bound * rule.scale
    cut = are_cut(there, rule.center - reach, rule.center + reach)
    return ColumnSeen(
        name=rule.name,
        kind="target",
        filled=filled,
        cut=float(np.count_nonzero(cut)) / max(1, len(raw)),
        missing=rule.missing,
        drift=float(rule.scaled(there).mean()) if there.size else None,
        ratio=_ratio(there, rule.center, rule.scale),
        width=_width(there, rule.scale),
    )


def _seen_classes(
    rule: TargetRule, counts: Counter[str], *, filled: float, num_records: int
) -> ColumnSeen:
    """Classes may be rare here and frequent there, so their mean says nothing: their words do."""
    positive = rule.class_values
    known = tuple(dict.fromkeys((*positive, *rule.public_values)))
    unknown = _strange(counts, known)
    strange = unknown if rule.public_values else Counter[str]()
    alike = Counter({name: unknown[name] for name in same_words(unknown, positive)})
    there = max(1, counts.total())
    return ColumnSeen(
        name=rule.name,
        kind="target",
        filled=filled,
        cut=0.0,
        unknown=strange.total() / max(1, num_records) if rule.public_values else None,
        strange=_most_frequent(strange),
        known=known,
        missing=rule.missing,
        classes=ClassesSeen(
            positive=positive,
            records=counts.total(),
            share=sum(counts[name] for name in positive) / there,
            values=_most_frequent(counts),
            alike=_most_frequent(alike),
            share_alike=alike.total() / there,
        ),
    )


def _counts(column: pd.Series, rule: ColumnRule | TargetRule) -> Counter[str]:
    """How often each category occurs that the map does not take for none."""
    return _strange(Counter(count_values(column)), rule.missing)


def _strange(counts: Counter[str], known: Collection[str]) -> Counter[str]:
    """The categories that are none of the known ones."""
    return Counter({name: count for name, count in counts.items() if name not in known})


def _most_frequent(counts: Counter[str]) -> tuple[str, ...]:
    return tuple(name for name, _ in counts.most_common(SHOWN_CATEGORIES))


def _share(flags: Flags) -> float:
    return float(np.count_nonzero(flags)) / max(1, len(flags))


def _ratio(there: Vector, public: float, scale: float) -> float | None:
    """The middle value over the public one, if that is no zero among its neighbours.

    None where one is below zero and the other is not, which no unit makes of each other.
    """
    middle = float(np.median(there)) if there.size else 0.0
    is_told = abs(public) > scale and np.isfinite(middle) and middle * public >= 0
    return middle / public if is_told else None


def _width(there: Vector, scale: float) -> float | None:
    """The middle half's width over that of a normal distribution of the public deviation."""
    if len(there) < FEWEST_FOR_SPREAD:
        return None
    low, high = np.quantile(there, [0.25, 0.75])
    width = (high - low) / (NORMAL_MIDDLE_HALF * scale)
    return float(width) if np.isfinite(width) else None
