"""Public records as records look that a feature map was not fitted on.

The codes of categories are ordered by their mean public target. The public records' own codes
therefore know their targets, the more the fewer records a category has, and a model of them
believes such a column more than it deserves on the records of anybody else.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from common.arrays import Indices, Vector
from common.columns import category_keys
from common.features import FeatureMap
from common.fitting import PRIOR_RECORDS, ColumnRule, category_means
from common.terms import Records

FOLDS, FOLDS_SEED = 10, 0
# The code of one of fewer categories is next to nothing of one record's target.
FEWEST_CATEGORIES = 20
# Records whose mean says as much as the average where all of a category have the same target, and
# where categories do not differ.
LEAST_PRIOR, MOST_PRIOR = 1e-9, 1e9


def held_out_records(feature_map: FeatureMap, table: pd.DataFrame, *, where: str) -> Records:
    """The public records under their map, each coded as if it had not been there to order codes.

    In ten-fold cross-validation, a record's category stands where its mean target stands among the
    means of all categories if its own fold's records have the mean that the other folds give:
    there the nearest category lends its code. Codes by name, and those of a map that was fitted on
    other records, stay.

    Args:
      feature_map: The map.
      table: The public records, raw, each with a readable target.
      where: What they are called in an error.

    Raises:
      InputError: A column is missing, or targets cannot be read.

    References: Micci-Barreca (2001), on means of targets as codes of categories.
    """
    coded = [rule for rule in feature_map.columns if len(rule.codes) >= FEWEST_CATEGORIES]
    if not coded or feature_map.target_name not in table.columns:
        return feature_map.apply(table, where=where)
    targets = feature_map.target.scaled(feature_map.target.raw(table[feature_map.target_name]))
    folds = np.random.default_rng(FOLDS_SEED).permutation(len(table)) % FOLDS
    changed = {
        rule.name: _lent(rule, table[rule.name], targets, folds)
        for rule in coded
        if rule.name in table.columns
    }
    return feature_map.apply(table.assign(**changed), where=where)


def _lent(rule: ColumnRule, column: pd.Series, targets: Vector, folds: Indices) -> pd.Series:
    """The column with the categories whose codes its cells have where they are held out."""
    places, distinct = category_keys(column)
    keys = np.array([*distinct, None], dtype=object)[places]
    means = category_means(keys.tolist(), targets)
    names = np.array(sorted(rule.codes, key=rule.codes.__getitem__), dtype=object)
    known = np.array([means.get(name, np.nan) for name in names.tolist()])
    # Ordered by name, or fitted on other records: then these targets are nothing to the codes.
    if not np.all(np.diff(known) >= 0):
        return column
    number = {name: place for place, name in enumerate(names.tolist())}
    rows = np.array([number.get(key, -1) for key in keys.tolist()])
    held, lent = rows >= 0, keys.copy()
    prior = _prior(rows[held], targets[held], len(names))
    average, size = float(targets.mean()), len(names)
    for fold in range(FOLDS):
        inside, rest = held & (folds == fold), held & (folds != fold)
        count, own = (np.bincount(rows[part], minlength=size) for part in (rest, inside))
        total = np.bincount(rows[rest], targets[rest], size)
        expected = average + (total - count * average) / (count + prior)
        # As many records of that mean stand for the fold's, so that the average counts as before.
        total += own * expected
        anew = (total + PRIOR_RECORDS * average) / (count + own + PRIOR_RECORDS)
        above = np.clip(np.searchsorted(known, anew), 1, size - 1)
        nearest = above - (anew - known[above - 1] < known[above] - anew)
        lent[inside] = names[nearest[rows[inside]]]
    return pd.Series(lent, index=column.index, dtype=object)


def _prior(rows: Indices, targets: Vector, size: int) -> float:
    """How many records of a category say as much of its mean as the average does.

    One-way analysis of variance: categories' means vary by D, records within them by t, and a mean
    of t/D records is as far off as that of all records.
    """
    count = np.maximum(np.bincount(rows, minlength=size), 1)
    mean = np.bincount(rows, targets, size) / count
    n = len(rows)
    t = float(np.sum((targets - mean[rows]) ** 2)) / max(n - size, 1)
    between = float(count @ (mean - targets.mean()) ** 2) - (size - 1) * t
    D = between / max(n - float(count @ count) / n, 1.0)
    return float(np.clip(t / D, LEAST_PRIOR, MOST_PRIOR)) if D > 0 else MOST_PRIOR
