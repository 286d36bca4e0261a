"""Public records as records look that a feature map was not fitted on.

The codes of categories are ordered by their mean public target. The public records' own codes
therefore know their targets, the more the fewer records a category has, and a model of them
believes such a column more than it deserves on the records of anybody else.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from common.arrays import Vector
from common.columns import category_keys
from common.features import FeatureMap
from common.fitting import ColumnRule, category_means
from common.terms import Records

__all__ = ["held_out_records"]

FOLDS, FOLDS_SEED = 10, 0
# The code of one of fewer categories is next to nothing of one record's target.
FEWEST_CATEGORIES = 20


def held_out_records(feature_map: FeatureMap, table: pd.DataFrame, *, where: str) -> Records:
    """The public records under their map, each coded as if it had not been there to order codes.

    In ten-fold cross-validation, a record's category stands where its mean target over the other
    folds stands among the means of all categories: there the nearest category lends its code. Codes
    by name, and those of a map that was fitted on other records, stay.

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


def _lent(
    rule: ColumnRule, column: pd.Series, targets: Vector, folds: NDArray[np.intp]
) -> pd.Series:
    """The column with the categories whose codes its cells have where they are held out."""
    places, distinct = category_keys(column)
    keys = np.array([*distinct, None], dtype=object)[places]
    means = category_means(keys.tolist(), targets)
    names = np.array(sorted(rule.codes, key=rule.codes.__getitem__), dtype=object)
    known = np.array([means.get(name, np.nan) for name in names.tolist()])
    # Ordered by name, or fitted on other records: then these targets are nothing to the codes.
    if not np.all(np.diff(known) >= 0):
        return column
    lent = keys.copy()
    for fold in range(FOLDS):
        rest = category_means(keys[folds != fold].tolist(), targets[folds != fold])
        average = float(np.mean(targets[folds != fold]))
        for row in np.nonzero((folds == fold) & (keys != None))[0]:  # noqa: E711 (elementwise)
            mean = rest.get(keys[row], average)
            lent[row] = names[np.argmin(np.abs(known - mean))]
    return pd.Series(lent, index=column.index, dtype=object)
