"""What is decided is never silly, and is told with the number of the forecast."""

import itertools
import os
from dataclasses import fields, replace
from fractions import Fraction

import numpy as np
import pytest

from common.config import check_settings
from common.feature_settings import FeatureSettings
from common.map_fitting import fit_feature_map
from common.tables import TableSource
from learner.algorithms.clocks import count_per_owner
from learner.forecasting.candidate import Candidate
from learner.forecasting.questions import Question, ask
from learner.planning import deciding, design
from learner.planning.deciding import believed_ways, decide, decide_quietly
from learner.planning.decision import Decision, Expected, NotedAround
from learner.planning.design import under_noise
from learner.planning.ground import Ground
from learner.planning.plan import Plan
from learner.planning.proposal import NoiseError
from learner.planning.public_side import PublicSide, public_groups
from learner.planning.settings import StudySettings
from learner.planning.shares import counted_shares
from learner.planning.ways import WAYS, as_way, way_of, ways_of
from learner.results.run_folder import new_run_folder

SIZES = (300, 500, 200)
# So many that moments of four features could not be given noise, and gradients could.
MANY = 2**36


TICKS = {"name": "asynchronous"}


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


@pytest.fixture(scope="module")
def public(feature_map, public_table):
    records = feature_map.apply(public_table, where="x")
    # In groups that differ, as an owner's records do.
    labels = (records.targets > np.median(records.targets)).astype(np.intp)
    return PublicSide(
        feature_map=feature_map, records=records, labels=labels, known={"o0": 0, "o1": 1}
    )


@pytest.fixture(scope="module")
def chosen(public):
    """Everything left to "auto", for three owners with `SIZES`."""
    return decide(settings_of(algorithm=TICKS), public, num_records=SIZES, seed=1)


def plan_of(settings, decision, *, seed=1):
    return Plan(settings=settings, num_features=4, decision=decision, seed=seed)


# A clip that is typed leaves fewer candidates, and all horizons.
@pytest.mark.parametrize(
    ("owners", "epsilon", "clip"),
    [(14, 0.1, "auto"), (14, 3, 2.0), (60, 0.1, 2.0), (60, 10, "auto")],
)
def test_everyone_is_asked_and_heard(public, owners, epsilon, clip):
    sizes = np.random.default_rng(3).integers(40, 4000, owners).tolist()
    settings = settings_of(owners, epsilon=epsilon, algorithm=TICKS, privacy={"clip": clip})
    decision = decide_quietly(settings, public, num_records=sizes, seed=1)
    # The choice is the same for every seed of the clocks.
    for seed in (1, 2):
        plan = plan_of(settings, decision, seed=seed)
        # An answer reaches the central model when its owner is asked again.
        assert min(plan.responses) >= 2
        assert sum(plan.responses) == decision.horizon
        assert plan.responses == tuple(count_per_owner(plan.ticks(), owners))


def test_steps_from_the_public_model_do_not_give_it_up_for_a_doubt(table_maker):
    table, rng = table_maker(1200, seed=0), np.random.default_rng(5)
    odds = 0.6 * (table["column-0"] - 0.5 * table["column-1"]) + 1.2
    table["y"] = (rng.random(len(table)) < 1 / (1 + np.exp(-2 * odds))).astype(int)
    features = FeatureSettings(target="y", positive=1, public=TableSource())
    feature_map = fit_feature_map(table, features, source="public")
    records = feature_map.apply(table, where="public")
    classes = {
        "features": {"public": {"path": "p.csv"}, "target": "y", "positive": 1},
        "model": {"loss": "hinge", "theta_max": 0.5},
    }

    def settings(privacy=None, **numbers):
        ticks = TICKS | {"start": "public"} | numbers
        return settings_of(6, epsilon=1, algorithm=ticks, privacy=privacy, **classes)

    def decided_by(how, given):
        side = PublicSide(feature_map=feature_map, records=records, labels=None, known={})
        return how(given, side, num_records=[600] * 6, seed=1)

    chosen = decided_by(decide, settings())
    # Where owners differ as much as is assumed at most, a step twice as bad as nothing is best.
    assert chosen.forecast <= 1.25 * chosen.public
    # Whoever types the horizon and the clip, and does not look at forecasts, gets the same step.
    typed = settings({"clip": chosen.clip}, horizon=chosen.horizon)
    assert decided_by(decide_quietly, typed).constant == chosen.constant


def test_a_thousand_owners_are_chosen_for_in_bounded_memory_and_asked_twice_each(public):
    settings = settings_of(1000, privacy={"clip": 2.0})
    decision = decide_quietly(settings, public, num_records=[50] * 1000, seed=1)
    assert min(plan_of(settings, decision).responses) >= 2
    assert decision.horizon <= 6000


def test_the_horizons_split_has_no_horizon_that_leaves_an_owner_out(public):
    settings = settings_of(14, profile="published", algorithm={"horizon": "auto", "step": "auto"})
    for seed in (1, 2):
        decision = decide_quietly(settings, public, num_records=[500] * 14, seed=seed)
        plan = plan_of(settings, decision, seed=seed)
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


@pytest.mark.parametrize(
    ("algorithm", "epsilon"),
    [
        *itertools.product([TICKS, {"horizon": 40}], [0.05, 3, 300]),
        # The step is chosen for a horizon and its clip, whether it was chosen or typed.
        *itertools.product([{"horizon": 40, "correction": "none"}], [0.05, 300]),
        *itertools.product([{"horizon": 40, "clocks": "given"}], [0.05, 300]),
        ({"correction": "none"}, 3),
        ({"clocks": "given"}, 3),
    ],
)
def test_no_chosen_step_is_beyond_the_largest_stable_one(public, algorithm, epsilon):
    settings = settings_of(epsilon=epsilon, algorithm=algorithm)
    decision = decide_quietly(settings, public, num_records=(300, 5000, 200), seed=1)
    assert 0 < decision.constant <= decision.largest_stable


def test_horizon_and_clip_typed_in_as_chosen_get_the_same_step_and_forecast(public, chosen):
    typed = settings_of(algorithm={"horizon": chosen.horizon}, privacy={"clip": chosen.clip})
    assert decide(typed, public, num_records=SIZES, seed=1) == chosen
    only_the_horizon = settings_of(algorithm={"horizon": chosen.horizon})
    assert decide(only_the_horizon, public, num_records=SIZES, seed=1) == chosen


# Each leaves something open; what is typed keeps the search short.
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"algorithm": {"name": "synchronous-2", "horizon": 20}},
        {"profile": "published", "algorithm": {"horizon": 60, "step": "auto"}},
        {"groups": [["o0", "o2"]], "algorithm": {"horizon": 60}},
        {
            "forecast": {"runs": 24, "worlds": 3, "availability": 0.7},
            "algorithm": {"horizon": 60},
        },
    ],
)
def test_what_is_decided_is_told_with_the_number_of_the_forecast(public, changes):
    settings = settings_of(**changes)
    decision = decide(settings, public, num_records=SIZES, seed=1)
    candidate = Candidate(settings=settings, public=public, num_records=SIZES)
    assert ask(Question(candidate=candidate)).relative_fitness == decision.forecast


def test_the_choice_does_not_depend_on_the_clocks_seed(public, chosen):
    decided = [
        decide_quietly(settings_of(algorithm=TICKS), public, num_records=SIZES, seed=seed)
        for seed in (2, 3)
    ]
    assert {(made.horizon, made.clip) for made in decided} == {(chosen.horizon, chosen.clip)}


def test_owners_that_differ_are_put_into_the_forecast(public):
    settings = settings_of(epsilon=100, algorithm={"horizon": 100}, privacy={"clip": 2.0})
    sizes = (3000, 5000, 2000)
    apart = decide(settings, public, num_records=sizes, seed=1)
    alike = decide(settings, replace(public, labels=None, known={}), num_records=sizes, seed=1)
    # What a public group has of its own an owner of it has, too, and nobody else.
    assert min(apart.alone) > 10 * max(alike.alone)


def test_the_algorithm_that_is_left_open_is_the_one_forecast_to_be_best(public):
    settings, sizes = settings_of(), (300, 500, 200)
    assert settings.algorithm.name == "auto"
    decision = decide(settings, public, num_records=sizes, seed=1)
    told = decision.ways
    assert set(told) == set(WAYS) == set(ways_of(settings))
    assert decision.forecast == min(way.relative_fitness for way in told.values())
    assert decision.forecast == told[decision.way].relative_fitness
    for way in told.values():
        assert 0 <= way.low <= way.relative_fitness <= way.high
    assert decision.public > 0
    assert len(decision.alone) == 3
    # It is designed as it would be if its name were typed, and is forecast the same.
    named = as_way(settings, decision.way)
    alone = decide(named, public, num_records=sizes, seed=1)
    assert replace(alone, way=decision.way, ways=told) == decision
    assert plan_of(named, decision).horizon == decision.horizon


@pytest.mark.parametrize("best", ["newton", "ticks from zero"])
def test_steps_from_a_model_that_is_not_believed_compete_and_are_told_if_taken(
    public, best, monkeypatch
):
    def taken(forecasts, *, trusts_public_model, public):
        assert not trusts_public_model
        assert set(forecasts) == set(WAYS)
        return best

    monkeypatch.setattr(deciding, "best_way", taken)
    monkeypatch.setattr(deciding.Ground, "trusts_public_model", False)
    decision = decide(settings_of(), public, num_records=SIZES, seed=1)
    assert decision.way == best
    assert ("newton" in decision.ways) == (best == "newton")
    assert set(WAYS) - set(decision.ways) <= {"newton"}


def test_ways_are_compared_by_what_they_come_to_in_each_world(public, monkeypatch):
    seen = {}

    def last_of(forecasts, *, trusts_public_model, public):
        assert trusts_public_model
        assert 0 < public < np.inf
        seen.update(forecasts)
        return list(forecasts)[-1]

    monkeypatch.setattr(deciding, "best_way", last_of)
    settings = settings_of()
    decision = decide(settings, public, num_records=SIZES, seed=1)
    assert decision.way == list(seen)[-1]
    for way, by_world in seen.items():
        assert by_world.shape == (settings.forecast.worlds,)
        assert np.median(by_world) == decision.ways[way].relative_fitness


@pytest.mark.parametrize("way", ["newton", "moments"])
def test_how_far_owners_are_believed_to_be_is_decided_for_the_study_as_it_will_run(
    public, way, monkeypatch
):
    seen = {}

    def choose_odds(proposal, worlds):
        seen["proposal"], seen["worlds"] = proposal, worlds
        return 4.0

    monkeypatch.setattr(design, "choose_odds", choose_odds)
    decision = decide_quietly(settings_of(algorithm=WAYS[way]), public, num_records=SIZES, seed=1)
    assert decision.around.odds == 4.0
    assert seen["proposal"].clip == decision.clip
    promised = seen["proposal"].algorithm.rounds if way == "newton" else 1
    assert seen["proposal"].unit_scales * promised == pytest.approx(decision.scales)
    assert len(seen["worlds"]) > 1


@pytest.mark.parametrize("way", ["newton", "moments", "ticks"])
def test_steps_begin_at_the_public_model_less_its_chance_and_ticks_at_the_model_itself(public, way):
    few = replace(public, records=public.records.at(np.arange(12)), labels=None, known={})
    settings = settings_of(algorithm=WAYS[way])
    decision = decide_quietly(settings, few, num_records=SIZES, seed=1)
    groups = public_groups(few, few.problem(settings))
    assert np.abs(groups.start).sum() < np.abs(groups.theta_optimal).sum()
    begins_at = groups.theta_optimal if way == "ticks" else groups.start
    assert decision.start == tuple(begins_at)


@pytest.mark.parametrize("way", ["newton", "moments"])
def test_the_curvature_is_doubted_where_records_drift_and_another_step_follows(public, way):
    def around_of(side):
        settings = settings_of(algorithm=WAYS[way])
        return decide_quietly(settings, side, num_records=SIZES, seed=1).around

    order = np.argsort(public.records.targets)
    drifting = replace(public, records=public.records.at(order), labels=None, known={})
    steady = around_of(public)
    assert not steady.drifts
    assert steady.doubt == 0.0
    around = around_of(drifting)
    assert around.drifts
    assert around.curvature_spread >= max(steady.curvature_spread, 0.01)
    # Moments are asked for once, so nothing would mend a step that is too short.
    assert around.doubt == (around.curvature_spread if way == "newton" else 0.0)


@pytest.mark.parametrize("way", ["newton", "moments"])
def test_answers_count_by_the_noise_of_the_gradient_that_all_rounds_tell(public, monkeypatch, way):
    """Of R rounds it has 1/R of the variance; of moments it is 2 (A theta_0 - b)."""
    asked = []

    def count(groups, sizes, scales, *, known):
        asked.append(scales)
        return counted_shares(groups, sizes, scales, known=known)

    monkeypatch.setattr(design, "counted_shares", count)
    settings = as_way(settings_of(), way)
    decision = decide_quietly(settings, public, num_records=SIZES, seed=1)
    start, rounds = np.array(decision.start), decision.horizon / len(SIZES)
    assert (rounds > 1) is (way == "newton")
    factor = rounds**-0.5 if way == "newton" else 2.0 * np.sqrt(1.0 + start @ start)
    for scales in asked:
        # Once for a scale that the grid of the noise has not yet rounded.
        assert scales == pytest.approx(factor * np.array(decision.scales), rel=1e-4)
    assert len(asked) == (2 if way == "newton" else 1)


@pytest.mark.parametrize(("way", "sizes"), [("newton", (3000, 3000, 60)), ("moments", (60, 60, 6))])
def test_what_small_owners_add_of_noise_counts_less(public, way, sizes):
    settings = settings_of(algorithm=WAYS[way])
    decision = decide_quietly(settings, public, num_records=sizes, seed=1)
    counted = plan_of(settings, decision).algorithm.weights
    assert counted.tolist() == list(decision.counted)
    assert counted.sum() == pytest.approx(1.0)
    assert counted[0] == pytest.approx(counted[1])
    assert 0 < counted[2] < sizes[2] / sum(sizes)
    alike = decide_quietly(settings, public, num_records=(500, 500, 500), seed=1)
    assert not alike.counted
    assert plan_of(settings, alike).algorithm.weights.tolist() == [1 / 3] * 3


@pytest.mark.parametrize(("way", "sizes"), [("newton", (3000, 3000, 60)), ("moments", (60, 60, 6))])
def test_a_design_under_other_budgets_is_the_same_but_for_their_noise(public, way, sizes):
    settings = settings_of(algorithm=WAYS[way])
    decision = decide_quietly(settings, public, num_records=sizes, seed=1)

    def under(studied):
        ground = Ground(settings=studied, public=public, num_records=sizes, seed=1)
        return under_noise(studied, ground, decision)

    assert under(settings) == decision
    owners = [own.model_copy(update={"epsilon": Fraction(90)}) for own in settings.owners[2:]]
    quiet = under(settings.model_copy(update={"owners": (*settings.owners[:2], *owners)}))
    assert quiet.scales[2] < 0.2 * decision.scales[2]
    # Without a count of its own an owner counts by its records.
    counted = quiet.counted or [size / sum(sizes) for size in sizes]
    assert counted[2] > decision.counted[2]
    assert replace(quiet, scales=decision.scales, counted=decision.counted) == decision


def test_moments_as_the_papers_know_them_count_by_the_records(public):
    """They begin at no public model, so nothing is known of how far owners differ from it."""
    settings = settings_of(algorithm={"name": "moments", "start": "zero"})
    assert not decide_quietly(settings, public, num_records=(60, 60, 6), seed=1).counted


def test_a_decision_with_everything_set_is_read_again_as_it_was_written():
    noted = NotedAround(
        curvature=(1.0, 0.25, 1 / 3),
        offset=(-1e-17, 2.0),
        spread=0.1,
        curvature_spread=0.2,
        curvature_scale=0.7,
        pull=(0.0, -0.3),
        drifts=True,
        doubt=0.3,
        odds=3.0,
    )
    for each in fields(NotedAround):
        assert getattr(noted, each.name), f"{each.name} is set"
    made = Decision(
        num_records=(3, 4),
        horizon=9,
        clip=0.1,
        constant=1 / 7,
        parameters={"delta": 0.3},
        forecast=0.25,
        largest_stable=2.5,
        asks_everyone=True,
        start=(0.1, -0.2),
        around=noted,
        scales=(0.5, 0.0),
        counted=(0.75, 0.25),
        way="newton",
        ways={"newton": Expected(relative_fitness=0.25, low=0.1, high=0.4)},
        public=0.5,
        shrunk=0.4,
        alone=(0.3, 0.6),
        validation="1/10",
        validated_by=("shown", ""),
    )
    for each in fields(Decision):
        assert getattr(made, each.name), f"{each.name} is set"
    assert Decision.from_json(made.to_json()) == made
    around = noted.around(np.array(made.start))
    assert around.curvature.tolist() == [[1.0, 0.25], [0.25, 1 / 3]]
    assert NotedAround.of(around, curvature_scale=0.7) == noted
    assert around.pull.tolist() == [0.0, -0.3]
    inside = replace(noted, pull=())
    assert inside.around(np.array(made.start)).pull is None
    assert NotedAround.of(inside.around(np.array(made.start)), curvature_scale=0.7) == inside
    # A journal of an earlier version knows nothing of what came later.
    old = Decision.from_json('{"num_records": [3], "horizon": 2, "clip": null, "constant": 0.5}')
    assert old == Decision(num_records=(3,), horizon=2, clip=None, constant=0.5)


@pytest.mark.parametrize(
    ("changes", "ways"),
    [
        ({}, ["newton", "ticks from zero", "ticks", "moments"]),
        ({"model": {"loss": "logistic", "theta_max": 2.0}}, ["newton", "ticks from zero", "ticks"]),
        ({"model": {"loss": "hinge", "theta_max": 2.0}}, ["ticks from zero", "ticks"]),
        ({"groups": [["o0", "o2"]]}, ["ticks from zero", "ticks"]),
        (
            {"learner": {"own": "o1", "shows_model": True}},
            ["newton", "ticks from zero", "ticks", "moments"],
        ),
    ],
)
def test_the_ways_are_those_that_loss_and_roles_allow(changes, ways):
    settings = settings_of(**changes)
    assert ways_of(settings) == ways
    for way in ways:
        learnt = as_way(settings, way)
        assert way_of(learnt) == way
        # All else of the study is as it was.
        kept = set(StudySettings.model_fields) - {"algorithm", "privacy"}
        assert {key: getattr(learnt, key) for key in kept} == {
            key: getattr(settings, key) for key in kept
        }
        assert learnt.privacy.epsilon == settings.privacy.epsilon


@pytest.mark.parametrize(
    "roles", [{"groups": [["o0", "o2"]]}, {"learner": {"own": "o1", "shows_model": True}}]
)
def test_groups_and_an_owner_as_the_learner_are_no_worse_off_than_what_is_free(
    public, chosen, roles
):
    """They begin at the public model, and the best of what they allow is taken."""
    settings = settings_of(epsilon=0.1, **roles)
    decision = decide(settings, public, num_records=SIZES, seed=1)
    assert settings.algorithm.name == "auto"
    assert set(decision.ways) == set(ways_of(settings))
    candidate = Candidate(settings=settings, public=public, num_records=SIZES)
    assert set(believed_ways(settings, candidate.ground)) == set(ways_of(settings))
    ticks = decide(settings_of(algorithm=TICKS, **roles), public, num_records=SIZES, seed=1)
    assert ticks.start == chosen.start
    assert chosen.start is not None


@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge"])
def test_ticks_of_the_recommended_profile_begin_at_the_public_model(loss):
    model = {"loss": loss, "theta_max": 2.0}
    assert settings_of(algorithm=TICKS, model=model).algorithm.start == "public"
    from_zero = TICKS | {"start": "zero"}
    assert settings_of(algorithm=from_zero, model=model).algorithm.start == "zero"
    published = settings_of(
        profile="published", algorithm={"horizon": 9, "step": "auto"}, model=model
    )
    assert published.algorithm.start == "zero"


def test_an_algorithm_that_is_no_way_is_told_by_its_name():
    for algorithm in ({"name": "synchronous-1"}, {"name": "synchronous-2"}):
        assert way_of(settings_of(algorithm=algorithm)) == algorithm["name"]
    from_zero = {"name": "moments", "start": "zero"}
    assert way_of(settings_of(algorithm=from_zero)) == "moments"


@pytest.mark.parametrize(
    "algorithm", [{"name": "moments"}, {"name": "asynchronous", "horizon": 20, "rho": 1e-3}]
)
def test_an_owner_that_could_not_draw_its_noise_is_named(public, algorithm):
    settings = settings_of(algorithm=algorithm, privacy=clip_of(algorithm))
    with pytest.raises(NoiseError, match=r"owner o2, with 549,755,813,888 records: num_records"):
        decide(settings, public, num_records=(300, 5000, 2**39), seed=1)


@pytest.mark.parametrize("way", ["auto", "moments"])
def test_a_budget_that_no_noise_fits_leaves_no_run_and_asks_for_more(public, tmp_path, way):
    settings = settings_of(algorithm={"name": way}, privacy={"epsilon": "1e-14"})
    with (
        pytest.raises(NoiseError, match="epsilon: too small for any noise that can be drawn; give"),
        new_run_folder(tmp_path / "run", name="a"),
    ):
        decide(settings, public, num_records=(300, 5000, 300), seed=1)
    assert not (tmp_path / "run").exists()


def clip_of(algorithm):
    return {} if algorithm["name"] == "moments" else {"clip": 1.0}


@pytest.mark.parametrize("algorithm", [TICKS, {"name": "auto"}])
def test_ways_that_are_designed_side_by_side_have_the_same_bits(public, monkeypatch, algorithm):
    settings, found = settings_of(algorithm=algorithm), []
    for processors in ({0}, {0, 1}):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, its=processors: its)
        found.append(decide(settings, public, num_records=SIZES, seed=1))
    assert len(found[0].ways) >= 3
    assert found[0] == found[1]


def test_auto_leaves_out_what_owners_could_not_draw_the_noise_of(public, monkeypatch):
    monkeypatch.setattr(deciding, "ways_of", lambda _: ["ticks from zero", "moments"])
    settings = settings_of(algorithm={"name": "auto"}, forecast={"runs": 10, "worlds": 2})
    decision = decide(settings, public, num_records=(300, 5000, MANY), seed=1)
    assert (decision.way, set(decision.ways)) == ("ticks from zero", {"ticks from zero"})
