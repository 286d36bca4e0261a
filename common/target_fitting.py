"""The rule of the target, fitted on public records: a number, or the values of class +1."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
import pandas as pd

from common.affirmed import affirmed
from common.columns import category_key, category_keys, parse_numbers
from common.errors import DoubtWarning, InputError
from common.fitting import (
    LARGEST_NUMBER,
    MOST_PUBLIC_VALUES,
    READABLE_SHARE,
    SMALLEST_SCALE,
    TargetRule,
    are_shares,
)
from common.map_numbers import center_and_scale, tidy
from common.setting_errors import as_toml
from common.texts import shortened

# A longer value is a text and no name of a class.
LONGEST_PUBLIC_VALUE = 100
# This many values are named in a sentence.
NAMED_VALUES = 6


def fit_target(
    column: pd.Series,
    *,
    positive: str | float | tuple[str | float, ...] | None,
    coverage: float,
    where: str,
) -> TargetRule:
    """Centre, scale and bound of the public targets; or the class that counts as +1.

    Args:
      column: The public records' target.
      positive: The value or values that are class +1; None for a number.
      coverage: Share of the public targets within the bound.
      where: What the records are called in an error.

    Raises:
      InputError: The targets are no numbers, all alike, too large, or all of one class.
    """
    name = str(column.name)
    if positive is not None:
        return _fit_classes(column, positive, where=where)
    shares = are_shares(column)
    raw = parse_numbers(column, shares=shares)
    raw = raw[np.isfinite(raw)]
    readable = np.abs(raw) <= LARGEST_NUMBER
    if raw.size and np.mean(readable) < READABLE_SHARE:
        raise InputError(
            f"{where}: target {name!r}: {1.0 - np.mean(readable):.0%} of the values are beyond "
            f"{LARGEST_NUMBER:g}; give it in a larger unit"
        )
    raw = raw[readable]
    center, scale = center_and_scale(raw) if raw.size else (0.0, 0.0)
    bound = tidy(np.quantile(np.abs(raw - center), coverage) / scale) if scale > 0 else 0.0
    if not (scale >= SMALLEST_SCALE and bound > 0):
        raise InputError(
            f"{where}: target {name!r}: expected numbers that vary in the public records; for "
            f"classes name the values of class +1, such as features.positive = {_named(column)}"
        )
    return TargetRule(name=name, shares=shares, center=center, scale=scale, bound=bound, fill=0.0)


def _named(column: pd.Series) -> str:
    """The one of two values that says yes, or the rarest of a few, as the setting is typed.

    >>> _named(pd.Series(["yes", "no", "yes"])), _named(pd.Series([None]))
    ('["yes"]', '["VALUE"]')
    """
    counts = count_values(column)
    one = affirmed(counts) if counts else ""
    is_short = one.isprintable() and 0 < len(one) <= LONGEST_PUBLIC_VALUE
    return as_toml([one if is_short and len(counts) <= NAMED_VALUES else "VALUE"])


def _fit_classes(
    column: pd.Series, positive: str | float | tuple[str | float, ...], *, where: str
) -> TargetRule:
    """The rule of a target with two classes, both of them among the public records.

    Warns:
      DoubtWarning: One value is named, and it is one of more than two.
    """
    given = positive if isinstance(positive, tuple) else (positive,)
    keys = sorted({category_key(value) or "" for value in given})
    rule = TargetRule(
        name=str(column.name), positive=keys[0], also_positive=tuple(keys[1:]), bound=1.0, fill=-1.0
    )
    counts = count_values(column)
    missing = [key for key in keys if key not in counts]
    if len(missing) == len(keys) or not counts.keys() - set(keys):
        wrong = "no record is of class -1"
        if len(missing) == len(keys):
            wrong = f"no record equals {' or '.join(map(repr, missing))}"
        few = f": positive = {affirmed(counts)!r}?" if len(counts) == 2 else ""
        cure = f"set features.positive to the values of class +1{few}"
        if len(counts) == 1:
            cure = "give public records of both classes"
        raise InputError(
            f"{where}: target {rule.name!r}: {wrong}; the column has {counts_in_words(counts)}; "
            f"{cure}"
        )
    if missing:
        warnings.warn(
            f"features.positive: no public record of {rule.name!r} equals "
            f"{' or '.join(map(repr, missing))}; correct it, unless it is only rare",
            DoubtWarning,
            stacklevel=2,
        )
    if not isinstance(positive, tuple) and len(counts) > 2:
        others = {key: count for key, count in counts.items() if key != keys[0]}
        warnings.warn(
            f"features.positive = {positive!r} makes every other value of {rule.name!r} class -1: "
            f"{counts_in_words(others)}; write positive = [{positive!r}] if that is meant, or list "
            "all values of class +1",
            DoubtWarning,
            stacklevel=2,
        )
    return rule.model_copy(update={"public_values": _noted(counts)})


def _noted(counts: Mapping[str, int]) -> tuple[str, ...]:
    """The values that the map's file names: all of them, or none where they are no words."""
    is_short = max(map(len, counts)) <= LONGEST_PUBLIC_VALUE
    return tuple(sorted(counts)) if is_short and len(counts) <= MOST_PUBLIC_VALUES else ()


def count_values(column: pd.Series) -> dict[str, int]:
    """How often each value stands in a column, the most frequent first.

    >>> count_values(pd.Series(["yes", "no", " no", None]))
    {'no': 2, 'yes': 1}
    """
    positions, keys = category_keys(column)
    counts = dict(zip(keys, np.bincount(positions[positions >= 0]).tolist(), strict=True))
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def counts_in_words(counts: Mapping[str, int]) -> str:
    """Values and how often each is there.

    Long values are shortened so that they stay different.

    >>> counts_in_words({"no": 1200, "yes": 30})
    "'no' (1,200) and 'yes' (30)"
    """
    few = list(counts)[:NAMED_VALUES]
    short = shortened(few)
    named = [f"{name!r} ({counts[key]:,})" for name, key in zip(short, few, strict=True)]
    more = len(counts) - len(named)
    if more:
        return f"{', '.join(named)} and {more} more"
    return " and ".join(filter(None, [", ".join(named[:-1]), *named[-1:]])) or "no value"
