"""Poisson clocks: gaps are exponential, owners are drawn by their rates; wrong ones are told."""

from itertools import islice

import numpy as np
import pytest
from scipy import stats

from learner.algorithms.clocks import PoissonClocks, Tick, draw_slots, each_alone

TICKS = 20_000
# A right generator fails once in 10,000 seeds; a wrong one passes less than once in a million.
ACCEPT, REJECT = 1e-4, 1e-6


def gaps_fit(ticks, total_rate):
    """p-value of exponential gaps."""
    gaps = np.diff([0.0] + [tick.time for tick in ticks])
    return stats.kstest(gaps, stats.expon(scale=1 / total_rate).cdf).pvalue


def owners_fit(slots, shares):
    """p-value of independent owners with these shares, from pairs of consecutive ones."""
    shares = np.asarray(shares)
    pairs = np.reshape(slots, (-1, 2)) @ [len(shares), 1]
    counts = np.bincount(pairs, minlength=len(shares) ** 2)
    return stats.chisquare(counts, len(pairs) * np.outer(shares, shares).ravel()).pvalue


def ticks_of(rates, seed):
    clocks = PoissonClocks(each_alone(len(rates)), np.array(rates), rng=np.random.default_rng(seed))
    return list(islice(clocks, TICKS))


def slots_of(ticks):
    return [tick.owners[0] for tick in ticks]


@pytest.mark.parametrize("rates", [(1.0, 1.0, 1.0), (0.5, 2.0, 4.0), (3.0,)])
def test_gaps_are_exponential_with_the_total_rate(rates):
    assert gaps_fit(ticks_of(rates, seed=1), sum(rates)) > ACCEPT


def test_equal_clocks_make_owners_uniform_and_independent():
    assert owners_fit(slots_of(ticks_of((1.0, 1.0, 1.0), seed=2)), [1 / 3] * 3) > ACCEPT


def test_unequal_clocks_tick_by_their_rates():
    assert owners_fit(slots_of(ticks_of((1.0, 2.0, 5.0), seed=3)), [1 / 8, 2 / 8, 5 / 8]) > ACCEPT


def test_each_owner_alone_is_a_poisson_process_of_its_own_rate():
    ticks = ticks_of((1.0, 2.0, 5.0), seed=4)
    for owner, rate in enumerate((1.0, 2.0, 5.0)):
        assert gaps_fit([tick for tick in ticks if tick.owners == (owner,)], rate) > ACCEPT


def test_slots_of_many_runs_are_uniform_and_independent():
    slots = draw_slots(np.ones(3), horizon=200, replicates=100, rng=np.random.default_rng(5))
    assert owners_fit(slots.ravel(), [1 / 3] * 3) > ACCEPT
    assert owners_fit(slots.T.ravel(), [1 / 3] * 3) > ACCEPT


def test_uniform_gaps_are_rejected():
    times = np.cumsum(np.random.default_rng(6).uniform(0, 2 / 3, TICKS))
    assert gaps_fit([Tick(time, (0,)) for time in times], 3.0) < REJECT


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_a_rate_ten_percent_off_is_rejected(factor):
    assert gaps_fit(ticks_of((factor, factor, factor), seed=7), 3.0) < REJECT


def test_an_owner_that_ticks_ten_percent_more_often_is_rejected():
    assert owners_fit(slots_of(ticks_of((1.0, 1.0, 1.1), seed=8)), [1 / 3] * 3) < REJECT


def test_owners_in_turn_are_rejected():
    assert owners_fit([k % 3 for k in range(TICKS)], [1 / 3] * 3) < REJECT
