"""Settings become plans: profiles, promises, ticks, and what is refused when it is loaded."""

from dataclasses import replace

import numpy as np
import pytest

from common.config import check_settings
from common.errors import InputError
from common.losses import Huber, loss_of
from common.terms import Records
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import count_per_owner
from learner.algorithms.moments import SecondMoments
from learner.algorithms.synchronous import SynchronousAverage, SynchronousDescent
from learner.planning.deciding import decide, decide_quietly
from learner.planning.decision import Decision
from learner.planning.plan import Plan
from learner.planning.public_side import PublicSide
from learner.planning.settings import StudySettings

NAMES = ("north", "south", "west")
COUNTS = (300, 500, 200)


def settings_of(*, profile=None, algorithm=None, privacy=None, loss="squared", model=None):
    table = {
        "name": "study",
        "features": {"public": {"path": "p.csv"}, "target": "y"},
        "model": model or {"loss": loss, "theta_max": 2.0},
        "algorithm": algorithm or {},
        "privacy": {"epsilon": 3} | (privacy or {}),
        "owners": [{"name": name} for name in NAMES],
    }
    return check_settings(
        StudySettings, table | ({"profile": profile} if profile else {}), where="study.toml"
    )


@pytest.fixture(scope="session")
def public(feature_map, public_table):
    return PublicSide(feature_map=feature_map, records=feature_map.apply(public_table, where="x"))


def plan_of(settings, public, *, seed=1):
    decision = decide_quietly(settings, public, num_records=COUNTS, seed=seed)
    return Plan(settings=settings, num_features=4, decision=decision, seed=seed)


def given(**changes):
    return {"horizon": 40, "rho": 1e-3} | changes


TICKS = {"name": "asynchronous"}


def test_recommended_is_the_default_and_leaves_the_algorithm_to_the_public_records():
    settings = settings_of()
    assert settings.profile == "recommended"
    assert settings.algorithm.name == "auto"
    # Whoever says anything of how ticks are made means ticks, and published studies do.
    for typed in (
        settings_of(algorithm={"horizon": 40}),
        settings_of(algorithm={"correction": "none"}),
        settings_of(privacy={"clip": 1.0}),
        settings_of(profile="published", algorithm=given()),
    ):
        assert typed.algorithm.name == "asynchronous"
    assert settings_of(privacy={"kappa": 2}).algorithm.name == "auto"
    assert settings_of(algorithm={"time_scale": 0.5}).algorithm.name == "auto"


@pytest.mark.parametrize("privacy", [{"clip": 3.0}, {"split": "schedule"}])
def test_what_auto_decides_for_each_way_is_not_set_beside_it(privacy):
    [key] = privacy
    with pytest.raises(InputError, match=rf'privacy\.{key} does not go with .*name = "auto"'):
        settings_of(algorithm={"name": "auto"}, privacy=privacy)
    assert settings_of(algorithm={"name": "auto"}, privacy={"clip": "auto"})


def test_recommended_ticks_leave_everything_to_the_public_records():
    settings = settings_of(algorithm=TICKS)
    assert settings.algorithm.start == "public"
    assert (settings.algorithm.horizon, settings.algorithm.step) == ("auto", "auto")
    assert settings.algorithm.average == "tail"
    assert (settings.privacy.split, settings.privacy.clip) == ("schedule", "auto")
    assert (settings.algorithm.clocks, settings.algorithm.correction) == ("records", "counted")


@pytest.mark.parametrize(
    ("algorithm", "privacy", "expected"),
    [
        ({"correction": "none"}, {}, ("given", "none")),
        ({"clocks": "given"}, {}, ("given", "counted")),
        # Promises of T each gain nothing from clocks that follow the records.
        ({}, {"split": "horizon"}, ("given", "none")),
        ({"initiative": "owner"}, {}, ("given", "none")),
        ({"name": "synchronous-1"}, {}, ("given", "none")),
    ],
)
def test_clocks_follow_the_records_where_the_schedule_counts_them(algorithm, privacy, expected):
    chosen = settings_of(algorithm=algorithm, privacy=privacy).algorithm
    assert (chosen.clocks, chosen.correction) == expected


def test_the_feature_map_is_written_once_for_all_owners(public):
    plan = plan_of(settings_of(profile="published", algorithm=given()), public)
    texts = [terms.feature_map for terms in plan.terms(public.feature_map, study_id="s")]
    assert texts[0] == public.feature_map.to_json()
    assert all(text is texts[0] for text in texts)


def test_the_schedules_counts_are_remark_4s_frequencies(public):
    plan = plan_of(settings_of(algorithm=given(), privacy={"clip": 1.0}), public)
    counts = np.array(plan.responses, dtype=float)
    assert len(set(counts)) > 1
    np.testing.assert_allclose(plan.algorithm.inverse_frequency, counts.mean() / counts)
    assert not plan.algorithm.counted
    # Five standard errors of a share.
    longer = plan_of(settings_of(algorithm=given(horizon=4000), privacy={"clip": 1.0}), public)
    assert np.array(longer.responses) / 4000 == pytest.approx(np.array(COUNTS) / 1000, abs=0.04)


def test_an_owner_that_the_schedule_leaves_out_is_asked_nothing(public):
    settings = settings_of(algorithm=given(horizon=2), privacy={"clip": 1.0})
    plan = plan_of(settings, public)
    assert min(plan.responses) == 0
    assert np.all(np.isfinite(plan.algorithm.inverse_frequency))


def test_explicit_keys_override_the_profile():
    settings = settings_of(
        algorithm={"horizon": 50, "rho": 0.5, "average": "last"},
        privacy={"sensitivity": "domain", "split": "horizon"},
    )
    assert (settings.algorithm.horizon, settings.algorithm.rho) == (50, 0.5)
    assert settings.algorithm.step is None
    assert settings.algorithm.average == "last"
    assert (settings.privacy.split, settings.privacy.clip) == ("horizon", None)
    assert settings_of(privacy={"clip": 2.0}).privacy.clip == 2.0


def test_published_is_the_papers_own():
    settings = settings_of(profile="published", algorithm=given())
    assert settings.algorithm.average == "last"
    assert (settings.privacy.sensitivity, settings.privacy.split) == ("domain", "horizon")


def test_a_schedule_promises_each_owner_its_own_count_and_ends(public):
    plan = plan_of(settings_of(algorithm=given(), privacy={"clip": 1.0}), public)
    ticks = list(plan.ticks())
    assert len(ticks) == 40 == sum(plan.responses)
    assert plan.responses == tuple(count_per_owner(ticks, 3))
    assert [t.owners for t in plan.ticks()] == [t.owners for t in ticks]
    assert [terms.responses for terms in plan.terms(public.feature_map, study_id="s")] == list(
        plan.responses
    )


def test_the_horizons_split_promises_every_owner_all_and_draws_the_same_clocks(public):
    algorithm = given(clocks="given")
    scheduled = plan_of(settings_of(algorithm=algorithm, privacy={"clip": 1.0}), public)
    papers = plan_of(settings_of(profile="published", algorithm=algorithm), public)
    assert papers.responses == (40, 40, 40)
    ticks = iter(papers.ticks())
    assert [next(ticks) for _ in range(40)] == list(scheduled.ticks())
    next(ticks)  # an owner that misses a tick is waited for by drawing more


@pytest.mark.parametrize(
    ("algorithm", "kind", "responses"),
    [
        (given(), Asynchronous, None),
        (given(name="synchronous-1"), SynchronousDescent, (40, 40, 40)),
        (
            {"name": "synchronous-2", "horizon": 40, "initial_step": 0.5},
            SynchronousAverage,
            (40,) * 3,
        ),
        ({"name": "moments"}, SecondMoments, (1, 1, 1)),
    ],
)
def test_each_name_is_its_algorithm(public, algorithm, kind, responses):
    privacy = {} if algorithm.get("name") == "moments" else {"clip": 1.0}
    plan = plan_of(settings_of(algorithm=algorithm, privacy=privacy), public)
    assert isinstance(plan.algorithm, kind)
    np.testing.assert_allclose(plan.algorithm.weights, np.array(COUNTS) / 1000)
    assert responses is None or plan.responses == responses
    releases = {terms.release for terms in plan.terms(public.feature_map, study_id="s")}
    assert releases == {"moments" if kind is SecondMoments else "gradient"}


def test_moments_visit_each_owner_once_when_its_clock_first_ticks(public):
    ticks = list(plan_of(settings_of(algorithm={"name": "moments"}), public).ticks())
    assert sorted(tick.owners[0] for tick in ticks) == [0, 1, 2]
    assert [tick.time for tick in ticks] == sorted(tick.time for tick in ticks)


def test_rules_are_selectable(public):
    for name in ("asynchronous", "synchronous-1"):
        printed, corrected, default = (
            plan_of(
                settings_of(profile="published", algorithm=given(name=name) | rule), public
            ).algorithm
            for rule in ({"rule": "printed"}, {"rule": "corrected"}, {})
        )
        if name == "asynchronous":
            assert (printed.rule, corrected.rule, default.rule) == (
                "printed",
                "corrected",
                "printed",
            )
        else:
            assert [a.projection for a in (printed, corrected, default)] == [False, True, True]


def test_everything_automatic_is_decided_from_public_facts_and_again_the_same(public):
    settings = settings_of(algorithm=TICKS)
    first = decide(settings, public, num_records=COUNTS, seed=1)
    assert first == decide(settings, public, num_records=COUNTS, seed=1)
    assert first.horizon > 1
    assert first.clip is not None
    assert first.constant > 0
    assert first.forecast is not None
    assert Decision.from_json(first.to_json()) == first
    # More records for every owner: less noise, a better forecast.
    richer = decide(settings, public, num_records=[100 * n for n in COUNTS], seed=1)
    assert richer.forecast < first.forecast


def test_the_step_alone_is_chosen_for_a_published_study(public):
    settings = settings_of(profile="published", algorithm={"horizon": 40, "step": "auto"})
    decision = decide(settings, public, num_records=COUNTS, seed=1)
    assert (decision.horizon, decision.clip) == (40, None)
    assert 0 < decision.constant <= decision.largest_stable * (1 + 1e-12)


@pytest.mark.parametrize(
    ("section", "changes", "words"),
    [
        (
            "algorithm",
            {"name": "moments", "horizon": 9},
            "algorithm.horizon belongs to asynchronous",
        ),
        ("algorithm", {"horizon": "auto", "rho": 1.0}, 'horizon = "auto" needs step = "auto"'),
        (
            "algorithm",
            given(name="synchronous-2"),
            "algorithm.rho belongs to asynchronous and synchronous-1",
        ),
        ("algorithm", given(initial_step=1.0), "initial_step belongs to synchronous-2"),
        ("algorithm", given(step="auto"), 'either rho = NUMBER or step = "auto"'),
        ("algorithm", given(name="synchronous-1", average="tail"), "average"),
        ("algorithm", {"horizon": 0}, "algorithm.horizon"),
        ("privacy", {"clip": -1}, "privacy.clip"),
        ("privacy", {"split": "sometimes"}, "privacy.split"),
        ("privacy", {"kappa": 0}, "privacy.kappa"),
        ("privacy", {"sensitivity": "domain", "clip": 1.0}, 'sensitivity = "clip"'),
    ],
)
def test_what_does_not_fit_is_refused_when_loaded_in_one_sentence(section, changes, words):
    with pytest.raises(InputError) as caught:
        settings_of(**{section: changes})
    assert words in str(caught.value)
    assert str(caught.value).startswith("study.toml: ")
    assert "\n" not in str(caught.value)


def test_moments_are_for_squared_loss_and_the_domains_bound():
    with pytest.raises(InputError, match=r'"moments" needs model.loss = "squared"'):
        settings_of(algorithm={"name": "moments"}, loss="logistic")
    with pytest.raises(InputError, match=r"privacy.sensitivity"):
        settings_of(algorithm={"name": "moments"}, privacy={"clip": 1.0})


def test_delta_is_decided_from_public_residuals_and_promised_to_every_owner(public):
    model = {"loss": "huber", "delta": "auto", "theta_max": 2.0}
    settings = settings_of(profile="published", algorithm=given(), model=model)
    decision = decide(settings, public, num_records=COUNTS, seed=1)
    x, y = public.records.features, public.records.targets
    residuals = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
    assert decision.parameters == {"delta": Huber.fitted(residuals).delta}
    assert Decision.from_json(decision.to_json()) == decision
    # A run that is resumed learns with what was decided, whatever the public records are then.
    plan = Plan(settings=settings, num_features=4, decision=decision, seed=1)
    sent = plan.terms(public.feature_map, study_id="s")
    assert {loss_of(terms) for terms in sent} == {plan.loss} == {Huber(**decision.parameters)}
    fixed = settings_of(profile="published", algorithm=given(), model=model | {"delta": 0.25})
    alone = replace(public, records=None)
    assert decide(fixed, alone, num_records=COUNTS, seed=1).parameters == {"delta": 0.25}
    with pytest.raises(InputError, match=r'model.delta = "auto" needs public records'):
        decide(settings, alone, num_records=COUNTS, seed=1)
    exact = replace(public, records=Records(features=x, targets=np.zeros(len(y))))
    with pytest.raises(InputError, match=r'model.delta = "auto": .* give a NUMBER'):
        decide(settings, exact, num_records=COUNTS, seed=1)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"loss": "huber"}, 'huber loss needs delta = NUMBER or delta = "auto"'),
        ({"loss": "huber", "delta": 0}, "model.delta: got 0, expected a number from 1e-100"),
        ({"loss": "huber", "delta": "small"}, "model.delta: got 'small', expected a number from"),
        ({"loss": "squared", "delta": 1.0}, "delta does not belong to squared loss; remove it"),
        ({"loss": "absolute"}, "model.loss: got 'absolute', expected one of squared, hinge"),
    ],
)
def test_each_loss_has_its_own_parameters(model, words):
    with pytest.raises(InputError) as caught:
        settings_of(model=model | {"theta_max": 2.0})
    assert words in str(caught.value)


def test_a_schedule_needs_clocks_that_can_be_drawn_ahead(public):
    settings = settings_of(privacy={"clip": 1.0}, algorithm=given(horizon=2_000_000))
    with pytest.raises(InputError, match="at most 1,000,000"):
        decide(settings, public, num_records=COUNTS, seed=1)


def test_auto_without_public_records_names_the_key(public):
    alone = replace(public, records=None)
    with pytest.raises(InputError, match=r"algorithm.name = .auto. needs public records"):
        decide(settings_of(), alone, num_records=COUNTS, seed=1)
    from_zero = settings_of(algorithm=TICKS | {"start": "zero"})
    with pytest.raises(InputError, match=r"algorithm.horizon = .auto. needs public records"):
        decide(from_zero, alone, num_records=COUNTS, seed=1)
    with pytest.raises(InputError, match=r"algorithm.start: the public model needs public records"):
        decide(settings_of(algorithm=TICKS), alone, num_records=COUNTS, seed=1)
    with pytest.raises(InputError, match=r"privacy.clip"):
        decide(settings_of(algorithm=given(start="zero")), alone, num_records=COUNTS, seed=1)
    empty = Records(features=np.zeros((0, 4)), targets=np.zeros(0))
    with pytest.raises(InputError, match="no public records"):
        decide(settings_of(), replace(public, records=empty), num_records=COUNTS, seed=1)
