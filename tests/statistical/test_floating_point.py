"""Floating point tells which value was hidden when noise is added to it as a float: not here."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from common.domain import Domain
from common.privacy import plan_noise
from owner.core import release
from owner.mechanism import SecureNoise

DRAWS = 20_000
SIGNIFICANCE = 1e-6


def share_off_grid(outputs, grid):
    """How many outputs are not whole multiples of the grid."""
    return float(np.mean(outputs / grid != np.rint(outputs / grid)))


@pytest.fixture
def plan(make_terms):
    """Noise of scale about 1, so that the textbook's numbers apply."""
    domain = Domain(feature_bound=np.ones(1), target_bound=1.0)
    terms = make_terms(responses=1, epsilon=Fraction(1), clip=0.5)
    return plan_noise(terms, domain, num_records=1)


def test_textbook_noise_betrays_the_value_it_hides():
    """Outputs of numpy's Laplace are off the grid 2^-53 with probability 0.27 at 0, never at 1."""
    noise = np.random.default_rng(1).laplace(size=DRAWS)
    at_zero, at_one = (share_off_grid(x + noise, 2.0**-53) for x in (0.0, 1.0))
    tolerance = 5 * np.sqrt(0.27 * 0.73 / DRAWS)
    assert at_zero == pytest.approx(0.27, abs=tolerance + 0.005)
    assert at_one == 0.0


def test_outputs_are_on_the_samplers_grid_whatever_they_hide(plan):
    grid = 2.0**plan.grid_exponent
    assert plan.noise_scale == pytest.approx(1.0, rel=1e-5)
    noise = SecureNoise(replace(plan, dimension=1)).draw(DRAWS)
    for hidden in (0.0, 1.0, 1 / 3, -1e-9, grid / 3):
        outputs = np.array([release(np.array([hidden]), draw, plan)[0] for draw in noise])
        assert share_off_grid(outputs, grid) == 0.0
        # Nothing finer than the grid, nothing coarser either: the same for each hidden value.
        for finer in (2.0**-53, grid):
            assert share_off_grid(outputs, finer) == 0.0
        odd = np.count_nonzero(np.rint(outputs / grid) % 2)
        assert stats.binomtest(int(odd), DRAWS).pvalue > SIGNIFICANCE


def test_noise_that_is_added_as_a_float_fails_the_same_test(plan):
    grid = 2.0**plan.grid_exponent
    outputs = 0.0 + np.random.default_rng(1).laplace(scale=plan.noise_scale, size=DRAWS)
    assert share_off_grid(outputs, grid) > 0.9
