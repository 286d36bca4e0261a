"""What is decided is never silly, and is told with the number of the forecast."""

from dataclasses import replace

import numpy as np
import pytest

from common.config import check_settings
from common.features import FeatureMap
from learner.algorithms.clocks import count_per_owner
from learner.forecast.candidate import Candidate
from learner.forecast.questions import Question, ask
from learner.planning.deciding import decide, decide_quietly
from learner.planning.plan import Decision, Plan
from learner.planning.public_side import PublicSide
from learner.planning.settings import StudySettings


def settings_of(owners=3, *, epsilon=3, algorithm=None, privacy=None, **changes):
    table = {
        "name": "study",
        "seed": 1,
        "features": {"public": {"path": "p.csv"}, "target": "y"},
        "model": {"loss": "squared", "theta_max": 2.0},
        "algorithm": algorithm or {},
        "privacy": {"epsilon": epsilon} | (privacy or {}),
        "owners": [{"name": f"o{i}"} for i in range(owners)],
        "forecast": {"runs": 24, "worlds": 3},
    }
    return check_settings(StudySettings, table | changes, where="study.toml")


@pytest.fixture(scope="session")
def public(feature_map: FeatureMap, public_table) -> PublicSide:
    records = feature_map.apply(public_table, where="x")
    # In groups that differ, as an owner's records do.
    labels = (records.targets > np.median(records.targets)).astype(np.intp)
    return PublicSide(
        feature_map=feature_map, records=records, labels=labels, known={"o0": 0, "o1": 1}
    )


def plan_of(settings, decision):
    return Plan(settings=settings, num_features=4, decision=decision, seed=1)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("owners", "epsilon"), [(14, 0.1), (14, 3), (60, 0.1), (60, 10)])
def test_everyone_is_asked_and_heard(public, owners, epsilon, seed):
    sizes = np.random.default_rng(3).integers(40, 4000, owners).tolist()
    settings = settings_of(owners, epsilon=epsilon)
    decision = decide_quietly(settings, public, num_records=sizes, seed=seed)
    plan = Plan(settings=settings, num_features=4, decision=decision, seed=seed)
    # An answer reaches the central model when its owner is asked again.
    assert min(plan.responses) >= 2
    assert sum(plan.responses) == decision.horizon
    assert plan.responses == tuple(count_per_owner(plan.ticks(), owners))


def test_a_thousand_owners_are_asked_twice_each(public):
    settings = settings_of(1000, privacy={"clip": 2.0})
    decision = decide_quietly(settings, public, num_records=[50] * 1000, seed=1)
    assert min(plan_of(settings, decision).responses) >= 2
    assert decision.horizon <= 6000


def test_the_horizons_split_has_no_horizon_that_leaves_an_owner_out(public):
    settings = settings_of(14, profile="published", algorithm={"horizon": "auto", "step": "auto"})
    for seed in (1, 2):
        decision = decide_quietly(settings, public, num_records=[500] * 14, seed=seed)
        plan = Plan(settings=settings, num_features=4, decision=decision, seed=seed)
        ticks = [tick for tick, _ in zip(plan.ticks(), range(plan.horizon), strict=False)]
        assert count_per_owner(ticks, 14).min() >= 1


def test_a_journal_of_before_keeps_its_ticks(public):
    settings = settings_of(14, algorithm={"horizon": 30, "rho": 1e-3}, privacy={"clip": 1.0})
    decision = decide(settings, public, num_records=[50] * 14, seed=1)
    begun = decision.to_json().replace(', "asks_everyone": true', "")
    assert "asks_everyone" not in begun
    old, new = (plan_of(settings, d) for d in (Decision.from_json(begun), decision))
    assert min(old.responses) < min(new.responses)
    assert [tick.time for tick in old.ticks()] == [tick.time for tick in new.ticks()]


@pytest.mark.parametrize("epsilon", [0.05, 3, 300])
@pytest.mark.parametrize(
    "algorithm", [{}, {"horizon": 40}, {"correction": "none"}, {"clocks": "given"}]
)
def test_no_chosen_step_is_beyond_the_largest_stable_one(public, epsilon, algorithm):
    settings = settings_of(epsilon=epsilon, algorithm=algorithm)
    decision = decide_quietly(settings, public, num_records=(300, 5000, 200), seed=1)
    assert 0 < decision.constant <= decision.largest_stable


def test_horizon_and_clip_typed_in_as_chosen_get_the_same_step_and_forecast(public):
    chosen = decide(settings_of(), public, num_records=(300, 500, 200), seed=1)
    typed = settings_of(algorithm={"horizon": chosen.horizon}, privacy={"clip": chosen.clip})
    assert decide(typed, public, num_records=(300, 500, 200), seed=1) == chosen
    only_the_horizon = settings_of(algorithm={"horizon": chosen.horizon})
    assert decide(only_the_horizon, public, num_records=(300, 500, 200), seed=1) == chosen


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"algorithm": {"name": "synchronous-2"}},
        {"profile": "published", "algorithm": {"horizon": 60, "step": "auto"}},
        {"groups": [["o0", "o2"]]},
        {"forecast": {"runs": 24, "worlds": 3, "availability": 0.7}},
    ],
)
def test_what_is_decided_is_told_with_the_number_of_the_forecast(public, changes):
    settings, sizes = settings_of(**changes), (300, 500, 200)
    decision = decide(settings, public, num_records=sizes, seed=1)
    candidate = Candidate(settings=settings, public=public, num_records=sizes)
    assert ask(Question(candidate=candidate)).relative_fitness == decision.forecast


def test_the_choice_does_not_depend_on_the_clocks_seed(public):
    decided = [
        decide_quietly(settings_of(), public, num_records=(900, 500, 700), seed=seed)
        for seed in (1, 2, 3)
    ]
    assert len({(made.horizon, made.clip) for made in decided}) == 1


def test_owners_that_differ_are_put_into_the_forecast(public):
    settings, sizes = settings_of(epsilon=100), (3000, 5000, 2000)
    apart = decide(settings, public, num_records=sizes, seed=1)
    alike = decide(settings, replace(public, labels=None, known={}), num_records=sizes, seed=1)
    assert apart.forecast != alike.forecast
