"""The constants of a bound's shape are those that the costs were made with."""

import numpy as np
import pytest

from learner.reproduction.shapes import fit_constants


def test_fitting_finds_both_constants():
    rng = np.random.default_rng(4)
    n, S = rng.uniform(1e3, 1e5, 30), 10 ** rng.uniform(-2, 2, 30)
    x = np.sqrt(S) / n
    fitted = fit_constants(n, S, 0.9 * x + 600.0 * x**2)
    assert fitted.sqrt_term == pytest.approx(0.9, rel=1e-6)
    assert fitted.linear_term == pytest.approx(600.0, rel=1e-6)
    assert fitted.largest_misfit < 1e-6
    only_square = fit_constants(n, S, 600.0 * x**2 * np.exp(rng.normal(0, 0.01, 30)))
    assert only_square.sqrt_term * np.median(x) < 0.02 * 600.0 * np.median(x) ** 2


@pytest.mark.parametrize(
    ("n", "S", "costs"),
    [([1.0], [1.0, 2.0], [1.0]), ([], [], []), ([0.0], [1.0], [1.0]), ([1.0], [1.0], [np.nan])],
)
def test_impossible_costs_are_refused(n, S, costs):
    with pytest.raises(ValueError, match="costs: expected"):
        fit_constants(np.array(n), np.array(S), np.array(costs))
