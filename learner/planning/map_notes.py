"""What the feature map of the public rows makes of a raw table, in sentences for its holder."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pandas as pd

from common.column_fit import are_cut
from common.columns import category_keys, parse_months, parse_numbers
from common.features import FeatureMap
from common.fitting import NO_VARIATION, TOO_LARGE
from common.looking import Column, Look
from common.target_fitting import count_values
from common.texts import brief, counted, number_words
from learner.planning.drafting import Target, missing_note

# From here on the categories of this many records, which no public one has, teach nothing.
UNKNOWN = 0.1
# From here on those that public records have are known from so few that chance orders them.
MOSTLY_UNKNOWN = 0.5


def dropped_notes(feature_map: FeatureMap, public: pd.DataFrame, *, is_dealt: bool) -> list[str]:
    """Which columns the feature map leaves out, since the public records say too little of them.

    Args:
      feature_map: Fitted on the public records.
      public: These, raw.
      is_dealt: Whether they are dealt evenly already.
    """
    more = f"give more with --public{'' if is_dealt else ', or deal them evenly with --split'}"
    notes = []
    for name, why in feature_map.dropped.items():
        says, cure = f"has {why}", ("give it in a larger unit" if why == TOO_LARGE else more)
        if why == NO_VARIATION:
            says = "does not vary"
            if len(count_values(public[name])) > 1:
                says = "hardly varies"
                cure = "if it matters, add it to features.columns and set features.coverage = 1"
        notes.append(
            f"{brief(name)}: left out: it {says} among the public records, so "
            f"nothing can be learnt from it; {cure}"
        )
    return notes


def unknown_shares(records: pd.DataFrame, feature_map: FeatureMap) -> dict[str, float]:
    """Columns many of whose categories the public records have not, such as names of persons.

    Args:
      records: The owners', n rows.
      feature_map: Fitted on the public ones.

    Returns:
      Of each the share of the records that have such a category.
    """
    shares = {}
    for rule in feature_map.columns:
        counts = count_values(records[rule.name]) if rule.kind == "category" else {}
        unknown = sum(count for key, count in counts.items() if key not in rule.codes)
        shares[rule.name] = unknown / max(1, len(records))
    return {name: share for name, share in shares.items() if share > UNKNOWN}


def unknown_notes(shares: Mapping[str, float], left_out: Collection[str]) -> list[str]:
    """What becomes of such columns.

    Args:
      shares: As :func:`unknown_shares` has them.
      left_out: Those of them that are no inputs.
    """
    notes = []
    for name, share in shares.items():
        what = f"{share:.0%} of the owners' records have values that no public record has"
        shown = brief(name)
        if name in left_out:
            notes.append(
                f"{shown}: left out: {what}, and those of the others are known from few; give more "
                "with --public, write larger groups, or add it to features.columns all the same"
            )
        else:
            notes.append(
                f"{shown}: {what}, and teach nothing there; leave it out with --drop, or give more "
                "with --public"
            )
    return notes


def far_out_notes(look: Look, feature_map: FeatureMap) -> list[str]:
    """What becomes of outliers: whether the bounds of public records cut them."""
    target = feature_map.target
    reach = target.bound * target.scale
    bounds = {
        rule.name: (rule.low, rule.high) for rule in feature_map.columns if rule.kind == "number"
    }
    notes = [_far_out_note(look.columns[name], *limits) for name, limits in bounds.items()]
    if target.positive is None:
        limits = (target.center - reach, target.center + reach)
        note = _far_out_note(look.columns[target.name], *limits, what="target ")
        more = '; loss = "huber" with delta = "auto" minds far targets less' if note else ""
        notes.insert(0, note + more)
    return [note for note in notes if note]


def unread_notes(
    look: Look, public: pd.DataFrame, columns: Sequence[str], target: Target | None
) -> list[str]:
    """Which columns of numbers or dates have cells that say something else, or are infinite.

    Args:
      look: The table.
      public: Its public rows, of which an example is.
      columns: The inputs that are no names.
      target: What is predicted; None to say nothing of it.
    """
    names = "; clean them, or give the column with --categorical if its values are names"
    inputs = [look.columns[name] for name in columns]
    notes = [_unread_note(c, public[c.name]) + names for c in inputs if c.unread]
    notes += [f"{c.shown}: {c.infinite_words}" for c in inputs if c.infinite_words]
    if target is not None and not target.positive:
        column = look.columns[target.name]
        if column.unread:
            note = _unread_note(column, public[target.name])
            notes.insert(0, f"target {note}; clean them")
        if column.infinite_words:
            notes.insert(0, f"target {column.shown}: {column.infinite_words}")
    return notes


def _unread_note(column: Column, public: pd.Series) -> str:
    """How many cells of a column of numbers or dates are none, and one of the public ones."""
    parse = parse_numbers if column.kind == "number" else parse_months
    positions, keys = category_keys(public)
    odd = positions[np.isnan(parse(public)) & (positions >= 0)]
    example = f", such as {brief(keys[odd[0]])!r}" if odd.size else ""
    return (
        f"{column.shown}: cells that are not {column.kind}s and count as empty: "
        f"{column.unread:,}{example}"
    )


def _far_out_note(column: Column, low: float, high: float, *, what: str = "") -> str:
    """What becomes of one column's outliers, empty where it has none."""
    far = column.far_out
    if not far.size:
        return ""
    cut = int(np.count_nonzero(are_cut(far, low, high)))
    bounds = f"the public bounds ({number_words(low, 6)} to {number_words(high, 6)})"
    some = f"{cut:,} of them " if cut < far.size else ""
    become = f"{some}cut at {bounds}" if cut else f"within {bounds}"
    asked = missing_note(column)
    code = f"; {asked}" if asked else ""
    return f"{what}{column.shown}: {counted(far.size, 'outlier')}, {become}{code}"
