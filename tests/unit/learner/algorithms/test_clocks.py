"""Clocks: what holds whatever is drawn; the distributions are in tests/statistical."""

import itertools
import math
from itertools import islice

import numpy as np
import pytest

from common.errors import InputError
from learner.algorithms.clocks import (
    PoissonClocks,
    Tick,
    count_per_owner,
    draw_slots,
    each_alone,
    synchronous_rounds,
    with_everyone,
)


def clocks(groups=((0,), (1,), (2,)), rates=(1.0, 2.0, 3.0), seed=1, **options):
    return PoissonClocks(groups, np.array(rates), rng=np.random.default_rng(seed), **options)


def test_the_sequence_does_not_depend_on_the_block_size():
    reference = list(islice(clocks(), 500))
    for block in (1, 7, 500, 4096):
        assert list(islice(clocks(block=block), 500)) == reference


def test_drawing_ahead_gives_the_ticks_that_come_later():
    one_by_one = clocks()
    assert [next(one_by_one) for _ in range(50)] == list(islice(clocks(), 50))


def test_time_goes_forward():
    times = [tick.time for tick in islice(clocks(block=16), 200)]
    assert times[0] > 0
    assert all(a < b for a, b in itertools.pairwise(times))


def test_equal_seeds_tick_equally_and_others_do_not():
    assert list(islice(clocks(seed=5), 20)) == list(islice(clocks(seed=5), 20))
    assert list(islice(clocks(seed=5), 20)) != list(islice(clocks(seed=6), 20))


def test_a_clock_belongs_to_its_whole_group():
    groups = ((0, 3), (1,), (2, 4))
    ticks = list(islice(clocks(groups), 100))
    assert {tick.owners for tick in ticks} == set(groups)


def test_synchronous_rounds_ask_everyone_at_whole_times():
    assert list(islice(synchronous_rounds(3), 3)) == [
        Tick(time, (0, 1, 2)) for time in (1.0, 2.0, 3.0)
    ]


def test_counts_add_up_to_the_responses():
    ticks = list(islice(clocks(((0, 2), (1,)), rates=(1.0, 1.0)), 100))
    counts = count_per_owner(ticks, 4)
    assert counts[0] == counts[2] == sum(tick.owners == (0, 2) for tick in ticks)
    assert counts[0] + counts[1] == 100
    assert counts[3] == 0
    assert count_per_owner([], 2).tolist() == [0, 0]


def test_slots_of_many_runs_name_every_clock():
    slots = draw_slots(np.ones(4), horizon=50, replicates=7, rng=np.random.default_rng(1))
    assert slots.shape == (50, 7)
    assert set(np.unique(slots)) == {0, 1, 2, 3}


@pytest.mark.parametrize("rates", [(1.0, 0.0, 1.0), (1.0, -1.0, 1.0), (1.0, math.nan, 1.0)])
def test_rates_must_be_positive(rates):
    with pytest.raises(InputError, match=r"clock rates: .*above 0"):
        clocks(rates=rates)
    with pytest.raises(InputError, match=r"clock rates: .*above 0"):
        draw_slots(np.array(rates), horizon=1, replicates=1, rng=np.random.default_rng(1))


def test_infinite_rates_are_refused():
    with pytest.raises(InputError, match="clock rates"):
        clocks(rates=(1.0, math.inf, 1.0))


def test_each_clock_has_one_rate():
    with pytest.raises(InputError, match="2 for 3 clocks"):
        clocks(rates=(1.0, 1.0))
    with pytest.raises(InputError, match="0 for 0 clocks"):
        clocks(groups=(), rates=())


@pytest.mark.parametrize("groups", [((0,), (), (1,)), ((0,), (0, 1), (2,))])
def test_groups_are_disjoint_and_not_empty(groups):
    with pytest.raises(InputError, match="groups: "):
        clocks(groups)


def test_each_alone_is_one_clock_per_owner():
    assert each_alone(2) == ((0,), (1,))


@pytest.mark.parametrize(
    ("owners", "horizon"), [(3, 6), (3, 100), (14, 28), (14, 40), (60, 120), (1000, 2500)]
)
def test_a_schedule_that_asks_everyone_asks_each_owner_twice(owners, horizon):
    rates = np.random.default_rng(1).uniform(0.05, 3.0, owners)
    drawn = draw_slots(rates, horizon=horizon, replicates=1, rng=np.random.default_rng(2))[:, 0]
    handed = with_everyone(drawn, owners)
    counts = np.bincount(handed, minlength=owners)
    assert counts.min() >= 2
    # No more ticks are handed on than are missing.
    missing = np.maximum(2 - np.bincount(drawn, minlength=owners), 0).sum()
    assert np.sum(handed != drawn) == missing


def test_a_schedule_is_handed_on_one_tick_at_a_time_from_who_has_most():
    rng = np.random.default_rng(4)
    for owners, horizon in ((3, 7), (14, 30), (40, 90), (60, 300)):
        rates = rng.uniform(0.02, 3.0, owners)
        drawn = draw_slots(rates, horizon=horizon, replicates=1, rng=rng)[:, 0]
        expected, counts = drawn.copy(), np.bincount(drawn, minlength=owners)
        for k, slot in enumerate(np.repeat(np.arange(owners), np.maximum(2 - counts, 0))):
            donor = np.argmax(np.bincount(expected, minlength=owners))
            places = np.nonzero(expected == donor)[0]
            expected[places[int(len(places) * ((k + 1) * (5**0.5 - 1) / 2 % 1.0))]] = slot
        assert np.array_equal(with_everyone(drawn, owners), expected)


def test_a_schedule_with_too_few_ticks_for_two_asks_everyone_once():
    drawn = np.zeros(14, dtype=np.intp)
    assert sorted(with_everyone(drawn, 10)) == [0, 0, 0, 0, 0, *range(1, 10)]
    assert np.array_equal(with_everyone(drawn, 15), drawn)


def test_a_schedule_that_asks_everyone_already_is_left_alone():
    drawn = np.array([0, 1, 1, 0, 2, 2, 0])
    assert np.array_equal(with_everyone(drawn, 3), drawn)
