"""Which way of learning is taken where none is named."""

import numpy as np
import pytest

from learner.planning.decision import Decision, Expected
from learner.planning.guard import ways_sentence
from learner.planning.ways import LEVEL, TICKS_FROM_ZERO, WAYS, best_way, why_taken

SHARED = np.array([0.2, 0.5, 0.6, 0.9, 4.0])


def best(**forecasts):
    named = {name.replace("_", " "): np.array(own) for name, own in forecasts.items()}
    return best_way(named, trusts_public_model=True)


def test_one_world_that_is_far_off_decides_nothing():
    assert best(ticks=[0.1, 0.1, 0.1], newton=[0.02, 0.02, 9.0]) == "newton"
    assert best(ticks=[0.1, 0.1, 0.1], newton=[0.2, 0.2, 1e-6]) == "ticks"


def test_ways_are_compared_world_by_world():
    # Worse in the middle of its own worlds, but best or next to it in each.
    assert best(ticks=[1.0, 5.0, 6.0], newton=[2.0, 4.9, 9.0]) == "ticks"


def test_how_hard_a_world_is_for_all_ways_changes_nothing():
    rng = np.random.default_rng(0)
    found = set()
    for _ in range(200):
        easy = {way: rng.lognormal(sigma=0.5, size=12) for way in WAYS}
        hardness = rng.lognormal(sigma=3.0, size=12)
        hard = {way: own * hardness for way, own in easy.items()}
        ways = {best_way(each, trusts_public_model=True) for each in (easy, hard)}
        assert len(ways) == 1
        found |= ways
    assert found == set(WAYS)


@pytest.mark.parametrize("order", [list(WAYS), list(WAYS)[::-1]])
def test_of_level_ways_newton_is_taken_and_else_what_leans_least_on_the_public_model(order):
    inside, outside = LEVEL * 0.99, LEVEL * 1.01
    times = {"moments": 1.0, "ticks": inside, TICKS_FROM_ZERO: inside, "newton": inside}
    for level in ("newton", TICKS_FROM_ZERO, "ticks", "moments"):
        forecasts = {way: times[way] * SHARED for way in order}
        # No way is forecast four times better than the public model.
        public = 3.9 * float(np.median(SHARED))
        assert best_way(forecasts, trusts_public_model=True, public=public) == level
        times[level] = outside


def test_moments_that_are_best_are_taken_where_they_hardly_lean_on_the_public_model():
    """Nothing clips them: wherever the owners' model is, they are right."""
    middle, level = float(np.median(SHARED)), 0.99 * LEVEL

    def taken(newton, moments, public):
        forecasts = {"newton": newton * SHARED, "moments": moments * SHARED}
        return best_way(forecasts, trusts_public_model=True, public=public * middle)

    assert taken(level, 1.0, public=4.1) == "moments"
    assert taken(level, 1.0, public=3.9) == "newton"
    # Forecasts that are level are of moments that turn out worse.
    assert taken(1.0, 1.01, public=9.0) == "newton"


def test_a_forecast_of_nothing_is_compared_too():
    assert best(ticks=[0.0, 0.0], newton=[0.1, 0.2]) == "ticks"
    assert best(ticks=[0.0, 0.0], newton=[0.0, 0.0]) == "newton"


def test_ticks_from_zero_are_believed_where_public_records_are_few_of_a_class():
    forecasts = {"ticks": SHARED, TICKS_FROM_ZERO: 4.5 * SHARED}
    assert best_way(forecasts, trusts_public_model=False) == TICKS_FROM_ZERO
    assert best_way(forecasts, trusts_public_model=True) == "ticks"
    # A quarter of the middle forecast from 0 is 0.675.
    assert best_way(forecasts, trusts_public_model=False, public=0.68) == TICKS_FROM_ZERO
    assert best_way(forecasts, trusts_public_model=False, public=0.67) == "ticks"
    forecasts[TICKS_FROM_ZERO] = 5.5 * SHARED
    assert best_way(forecasts, trusts_public_model=False) == "ticks"


@pytest.mark.parametrize(
    ("forecasts", "is_told"),
    [
        ({TICKS_FROM_ZERO: 0.562, "ticks": 0.199}, True),
        ({TICKS_FROM_ZERO: 0.21, "ticks": 0.199}, False),
        ({TICKS_FROM_ZERO: 0.562, "ticks": 0.199, "moments": 1.0}, False),
    ],
)
def test_the_factor_that_decided_for_ticks_from_zero_is_told(forecasts, is_told):
    expected = {
        way: Expected(relative_fitness=psi, low=psi, high=psi) for way, psi in forecasts.items()
    }
    decision = Decision(
        num_records=(9,),
        horizon=1,
        clip=None,
        constant=0.0,
        way=TICKS_FROM_ZERO,
        ways=expected,
        public=0.9,
    )
    line = ways_sentence(decision, own=TICKS_FROM_ZERO)
    assert line is not None
    assert ("only if forecast 4 times better" in line) == is_told
    assert ("only if forecast 4 times better" in why_taken(TICKS_FROM_ZERO, forecasts)) == is_told
    assert why_taken("ticks", forecasts) == ""


@pytest.mark.parametrize(("better", "is_told"), [(0.99 / LEVEL, True), (1.01 / LEVEL, False)])
def test_another_way_is_told_of_where_it_is_better_than_level(better, is_told):
    forecasts = {"ticks": 0.1, "newton": 0.1 * better}
    expected = {
        way: Expected(relative_fitness=psi, low=psi, high=psi) for way, psi in forecasts.items()
    }
    decision = Decision(
        num_records=(9,), horizon=1, clip=None, constant=0.0, ways=expected, public=0.5
    )
    line = ways_sentence(decision, own="ticks")
    told = '; newton is forecast to be better: algorithm.name = "auto" chooses among all ways'
    assert line.endswith(told) == is_told
    # Which one that is, only the comparison of all knows.
    assert "would take" not in line
    # Who begins is a key of ticks alone: beside it "auto" is refused.
    owners_begin = ways_sentence(decision, own="ticks", initiative="owner") or ""
    assert ('"auto" without algorithm.initiative chooses' in owners_begin) == is_told


@pytest.mark.parametrize(("reached", "is_told"), [(0.41, True), (0.399, True), (0.39, False)])
def test_a_gain_that_is_the_ridge_of_the_public_model_alone_is_told(reached, is_told):
    """Nobody needs owners for that."""
    expected = {"newton": Expected(relative_fitness=reached, low=reached, high=reached)}
    decision = Decision(
        num_records=(9,), horizon=1, clip=None, constant=0.0, ways=expected, public=0.5, shrunk=0.4
    )
    line = ways_sentence(decision, own="newton") or ""
    told = "; the public model shrunk by a ridge, with which newton begins, is no worse: 0.4, and"
    assert (told in line) == is_told
