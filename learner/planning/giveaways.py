"""Columns of a study that give its target away, or name records, as its public records show."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pandas as pd

from common.copies import names_persons
from common.errors import DoubtWarning
from common.features import FeatureMap
from common.looking import look_at
from common.texts import named
from common.two_units import two_units_note
from learner.planning.leakage import explained_together, explained_variance

# So many cells show what there is to see.
ENOUGH_CELLS = 1_000_000
# Columns that explain less of the target are asked about where a study is made, and meant here.
SURELY = 0.995


def warn_of_giveaways(table: pd.DataFrame, feature_map: FeatureMap) -> None:
    """Warn of what a study learns from and should not: `copriv init` leaves such columns out.

    Args:
      table: The public records, with the columns that the map needs.
      feature_map: The map.

    Warns:
      DoubtWarning: A column says nearly all of the target by itself, or several do together; it
        has another value in nearly every record, or seems to name persons.
    """
    for sentence in _giveaways(table, feature_map):
        warnings.warn(f"features: {sentence}", DoubtWarning, stacklevel=2)


def _giveaways(table: pd.DataFrame, feature_map: FeatureMap) -> Iterator[str]:
    names = [rule.name for rule in feature_map.columns]
    some = table.iloc[:: 1 + len(table) * len(names) // ENOUGH_CELLS]
    target = feature_map.target.raw(some[feature_map.target_name])
    columns = look_at(some[names]).columns.values()
    leaks = [column.name for column in columns if explained_variance(column, target) >= SURELY]
    if leaks:
        yield (
            f"{named(leaks)}: so nearly the target {feature_map.target_name} that it may be a "
            "leak, or the same under another name; leave it out with features.drop, unless it is "
            "known before the target is"
        )
    share, parts = explained_together(list(columns), target)
    # No target lies between two dates by chance, if it is known to a day or so only.
    if share >= SURELY or (parts and all(column.kind == "date" for column in parts)):
        yield (
            f"{named([column.name for column in parts])}: together they explain {share:.0%} of the "
            f"target {feature_map.target_name}, as two dates do the time between them; leave one "
            "out with features.drop, unless all are known before the target is"
        )
    amounts = {rule.name for rule in feature_map.columns if rule.kind == "number"}
    numbers = [column for column in columns if column.name in amounts]
    if feature_map.target.positive is None:
        numbers += look_at(some[[feature_map.target_name]]).columns.values()
    yield from (f"{c.shown}: {note}" for c in numbers if (note := two_units_note(c)))
    names = [column.name for column in columns if column.is_identifier]
    if names:
        yield (
            f"{named(names)}: has another value in nearly every public record, so it teaches "
            "nothing and may give persons away; leave it out with features.drop"
        )
    persons = [c.name for c in columns if c.name not in names and names_persons(c)]
    if persons:
        yield (
            f"{named(persons)}: seems to name persons, so it teaches nothing of others and may "
            "give them away; leave it out with features.drop"
        )
