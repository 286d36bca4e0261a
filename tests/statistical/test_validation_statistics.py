"""What owners say of a finished model: the intervals hold, and are as narrow as was asked."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.validation import case_of, told
from learner.planning.noise_width import half_width

RUNS = 100


@pytest.fixture(scope="module")
def case():
    return case_of(epsilon=1.0, num_records=10_000)


@pytest.fixture(scope="module")
def runs(case):
    return list(told(case, range(RUNS)))


@pytest.mark.long
def test_the_interval_holds_the_exact_loss_in_95_of_100_runs_and_is_narrow(runs):
    """A tenth of epsilon 1, 10,000 records of three owners: at most 5 % of the loss to each side.

    The interval holds noise and sampling, and the exact loss differs by the noise alone: it is in
    it more often than in 95 of 100. Of the difference from the public model sampling is next to
    nothing, so its interval holds as often as the noise's own, with 95 %: that fewer than 86 of
    100 do happens once in 30,000.
    """
    for one in runs[:1]:
        assert one.records == pytest.approx(10_000, abs=3)
        assert one.loss.exact is not None
        assert one.loss.noise <= 0.05 * one.loss.exact
    assert stats.binom(RUNS, 0.95).cdf(85) < 1e-3
    for name, least in (("loss", 95), ("rmse", 95), ("difference", 86)):
        found = [getattr(one, name) for one in runs]
        assert sum(one.low <= one.exact <= one.high for one in found) >= least
        assert sum(abs(one.value - one.exact) <= one.noise for one in found) >= 86


@pytest.mark.long
def test_an_interval_of_half_the_noise_would_be_caught(runs):
    """It holds in 78 of 100 runs."""
    narrow = [abs(one.loss.value - (one.loss.exact or 0)) <= one.loss.noise / 2 for one in runs]
    assert sum(narrow) < 86


@pytest.mark.parametrize(
    ("scales", "deviation"), [([1.0], 0.0), ([1.0, 0.2, 3.0], 0.0), ([1.0, 1.0], 2.0)]
)
def test_the_half_width_of_a_sum_is_where_95_percent_of_draws_are(scales, deviation):
    rng = np.random.default_rng(3)
    draws = rng.laplace(scale=scales, size=(400_000, len(scales))).sum(axis=1)
    draws += rng.normal(scale=deviation, size=draws.size) if deviation else 0.0
    share = np.mean(np.abs(draws) <= half_width(scales, deviation))
    assert share == pytest.approx(0.95, abs=5 * np.sqrt(0.95 * 0.05 / draws.size))
