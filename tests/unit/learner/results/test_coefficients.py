"""Coefficients in raw units add up to the prediction, within the public bounds."""

import numpy as np
import pytest

from learner.results.coefficients import INTERCEPT, coefficients


@pytest.mark.parametrize("settings", [{}, {"components": 3}, {"intercept": False}])
def test_raw_columns_times_their_coefficients_and_the_intercept_are_the_prediction(
    make_model, make_raw_table, settings
):
    model = make_model(**({"l1_coverage": 1.0} | settings))
    table = make_raw_table(200, seed=3, strange=False)
    *slopes, last = coefficients(model)
    assert last.column == INTERCEPT
    raw = np.column_stack([rule.clamped(table[rule.name]) for rule in model.feature_map.columns])
    assert [one.column for one in slopes] == [rule.name for rule in model.feature_map.columns]
    told = raw @ [one.value for one in slopes] + last.value
    predicted = model.predictions(table, where="t")["prediction"]
    # Components are bounded by themselves, which no sum of columns is: most records are within.
    assert np.mean(np.abs(told - predicted) < 1e-6 * np.abs(predicted).max()) > 0.8
