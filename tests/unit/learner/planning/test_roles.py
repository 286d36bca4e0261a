"""Groups, clock rates, initiative and an owner as the learner: what the settings mean."""

from fractions import Fraction
from itertools import islice

import numpy as np
import pytest
import tomli_w

from common.config import check_settings
from common.errors import InputError
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import count_per_owner
from learner.commands.each_learns import with_learner
from learner.planning.deciding import decide
from learner.planning.decision import Decision
from learner.planning.plan import Plan
from learner.planning.proposal import propose
from learner.planning.public_side import PublicSide
from learner.planning.roles import clock_rates, epsilons_of, groups_of
from learner.planning.settings import StudySettings, check_forecast, load_study

NAMES = ("a", "b", "c", "d")


def study(**changes):
    table = {
        "name": "roles",
        "profile": "published",
        "features": {"map": "features.json"},
        "model": {"theta_max": 1.0},
        "algorithm": {"horizon": 50, "rho": 1e-3},
        "privacy": {"epsilon": 2},
        "owners": [{"name": name, "data": {"path": "x.csv"}} for name in NAMES],
    }
    for key, value in changes.items():
        table[key] = table[key] | value if isinstance(value, dict) and key in table else value
    return check_settings(StudySettings, table, where="study.toml")


def plan(settings):
    decision = Decision(num_records=(100, 200, 300, 400), horizon=50, clip=None, constant=1e-3)
    return Plan(settings=settings, num_features=2, decision=decision, seed=3)


def test_of_many_owners_an_error_names_the_first():
    many = [{"name": f"owner-{i}"} for i in range(3000)]
    with pytest.raises(InputError, match="owner-0, owner-1, ") as refused:
        study(owners=many, groups=[["a"]])
    assert len(str(refused.value)) < 500
    many[0]["clock_rate"] = 2.0
    with pytest.raises(InputError, match="owner-19 and 2980 more are asked by one clock"):
        study(owners=many, groups=[[each["name"] for each in many]])
    del many[0]["clock_rate"]
    records = {f"stranger-{i}": 5 for i in range(3000)}
    with pytest.raises(InputError, match="are not owners of this study") as refused:
        check_forecast(study(owners=many, forecast={"records": records}))
    assert len(str(refused.value)) < 1000


def rates(*values):
    return [{"name": name, "clock_rate": rate} for name, rate in zip(NAMES, values, strict=True)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"groups": [["a", "x"]]}, ["groups", "'x' is not an owner"]),
        ({"groups": [["a", "b"], ["b", "c"]]}, ["groups", "'b' stands in two groups"]),
        ({"groups": [["a", "a"]]}, ["groups", "'a' stands in two groups"]),
        ({"groups": [[]]}, ["groups", "empty"]),
        (
            {"owners": rates(1, 0, 1, 1)},
            ["clock_rate of entry 2 of owners", "got 0", "greater than 0"],
        ),
        ({"owners": rates(1, -2, 1, 1)}, ["clock_rate of entry 2 of owners", "-2"]),
        (
            {"owners": rates(1, 2, 1, 1), "groups": [["a", "b"]]},
            ["groups", "owners.clock_rate", "a, b"],
        ),
        ({"privacy": {"kappa": 0}}, ["privacy.kappa", "got 0", "greater than or equal to 1"]),
        ({"seed": 2**53}, ["seed", "got 9007199254740992", "equal to 9007199254740991"]),
        (
            {"algorithm": {"initiative": "owner"}, "privacy": {"split": "schedule"}},
            ["privacy.split", "algorithm.initiative", "owner"],
        ),
        (
            {"algorithm": {"initiative": "broadcast"}, "privacy": {"split": "schedule"}},
            ["privacy.split", "algorithm.initiative", "broadcast"],
        ),
        ({"algorithm": {"initiative": "nobody"}}, ["algorithm.initiative", "nobody"]),
        ({"algorithm": {"time_scale": 1e300}}, ["algorithm.time_scale", "got 1e+300", "31536000"]),
        ({"algorithm": {"interval": 2.0}}, ["algorithm.interval", "broadcast"]),
        (
            {"algorithm": {"initiative": "owner"}, "groups": [["a", "b"]]},
            ["groups", "algorithm.initiative"],
        ),
        (
            {"algorithm": {"name": "synchronous-1"}, "groups": [["a", "b"]]},
            ["groups", "synchronous-1"],
        ),
        (
            {"algorithm": {"name": "synchronous-1", "correction": "counted"}},
            ["algorithm.correction", "synchronous-1"],
        ),
        (
            {"algorithm": {"name": "synchronous-1", "initiative": "broadcast"}},
            ["algorithm.initiative", "synchronous-1"],
        ),
        (
            {"algorithm": {"name": "synchronous-1", "clocks": "records"}},
            ["algorithm.clocks", "synchronous-1"],
        ),
        (
            {"algorithm": {"initiative": "owner", "clocks": "records"}},
            ["algorithm.clocks", "algorithm.initiative"],
        ),
        (
            {"algorithm": {"clocks": "records"}, "owners": rates(1, 2, 1, 1)},
            ["owners: b has a clock_rate", "algorithm.clocks"],
        ),
        ({"learner": {"own": "x", "shows_model": True}}, ["learner.own", "'x' is not an owner"]),
        ({"learner": {"own": "a"}}, ["learner.own", "learner.shows_model", "without noise"]),
        ({"learner": {"shows_model": True}}, ["learner.shows_model", "learner.own"]),
        (
            {
                "learner": {"own": "a", "shows_model": True},
                "algorithm": {"initiative": "owner"},
            },
            ["learner.own", "algorithm.initiative"],
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence_that_names_the_key(changes, words):
    with pytest.raises(InputError) as caught:
        study(**changes)
    sentence = str(caught.value)
    assert len(sentence.splitlines()) == 1
    assert all(word in sentence for word in words), sentence


def test_owners_without_a_group_are_alone():
    assert groups_of(study(groups=[["d", "b"]])) == ((1, 3), (0,), (2,))
    assert groups_of(study()) == ((0,), (1,), (2,), (3,))


def test_a_group_ticks_together_at_the_rate_of_its_clock():
    settings = study(owners=rates(4, 1, 1, 4), groups=[["a", "d"]])
    ticks = list(islice(plan(settings).ticks(), 6000))
    assert {tick.owners for tick in ticks} == {(0, 3), (1,), (2,)}
    counts = count_per_owner(ticks, 4) / 6000
    # Four standard errors of a share of 2/3.
    assert counts == pytest.approx([4 / 6, 1 / 6, 1 / 6, 4 / 6], abs=0.025)


def test_clocks_may_follow_the_records_of_owners_and_groups():
    settings = study(algorithm={"clocks": "records", "correction": "rates"}, groups=[["a", "d"]])
    assert clock_rates(settings, (100, 200, 300, 400)) == pytest.approx([1.5, 0.6, 0.9])
    assert plan(settings).algorithm.inverse_frequency == pytest.approx([2 / 3, 5 / 3, 10 / 9])


def test_a_schedule_promises_each_member_of_a_group_all_its_ticks():
    settings = study(owners=rates(3, 1, 1, 3), groups=[["a", "d"]], privacy={"split": "schedule"})
    promised = plan(settings).responses
    assert promised[0] == promised[3] > promised[1]
    assert promised[0] + promised[1] + promised[2] == 50


@pytest.mark.parametrize(
    ("correction", "factors", "counted"),
    [
        ("none", [1, 1, 1, 1], False),
        ("rates", [1.5, 0.75, 1.5, 0.75], False),
        ("counted", [1, 1, 1, 1], True),
    ],
)
def test_the_correction_reaches_the_algorithm(correction, factors, counted):
    settings = study(owners=rates(1, 2, 1, 2), algorithm={"correction": correction})
    algorithm = plan(settings).algorithm
    assert algorithm.inverse_frequency == pytest.approx(factors)  # mean rate over own rate
    assert algorithm.counted is counted


def test_kappa_reaches_the_terms_and_the_choice(feature_map):
    settings = study(privacy={"kappa": 4})
    terms = plan(settings).terms(feature_map, study_id="s")
    assert [own.kappa for own in terms] == [4] * 4
    assert epsilons_of(settings).tolist() == [0.5] * 4


def test_the_own_shard_has_no_noise_in_what_is_forecast():
    settings = study(learner={"own": "b", "shows_model": True})
    assert epsilons_of(settings).tolist() == [2, np.inf, 2, 2]


def test_each_learns_needs_the_learners_initiative():
    assert with_learner(study(), "c").learner.own == "c"
    with pytest.raises(InputError, match=r"algorithm\.initiative"):
        with_learner(study(algorithm={"initiative": "broadcast"}), "c")


def test_a_forecast_knows_rates_groups_and_the_own_shard(feature_map):
    public = PublicSide(feature_map=feature_map, records=None)
    counts, seeded = (100, 200, 300, 400), {"owners": rates(1, 2, 1, 2), "seed": 1}

    def proposal(**changes):
        settings = study(**(seeded | changes))
        decision = decide(settings, public, num_records=counts, seed=1)
        return propose(settings, feature_map, decision, seed=1)

    counted = proposal(algorithm={"correction": "counted"})
    known = proposal(algorithm={"correction": "rates"})
    assert counted.clock_rates.tolist() == [1, 2, 1, 2]
    assert counted.algorithm.inverse_frequency == pytest.approx(known.algorithm.inverse_frequency)
    assert known.algorithm.inverse_frequency == pytest.approx([1.5, 0.75, 1.5, 0.75])
    assert proposal().ticks is not None
    # Ticks that owners have a say in are not those that the seed would draw.
    assert proposal(algorithm={"initiative": "broadcast"}).ticks is None
    own = proposal(learner={"own": "b", "shows_model": True}).unit_scales
    assert own[1] == 0.0
    assert np.all(own[[0, 2, 3]] > 0)
    grouped = proposal(owners=rates(1, 1, 1, 1), groups=[["a", "b"]]).algorithm
    assert isinstance(grouped, Asynchronous)
    assert grouped.num_copies == 3


@pytest.mark.parametrize("name", ["asynchronous", "synchronous-1", "moments", "newton", "auto"])
def test_a_clock_rate_is_refused_where_all_owners_are_asked_equally(tmp_path, name):
    table = {
        "name": "roles",
        "features": {"map": "features.json"},
        "model": {"theta_max": 1.0},
        "algorithm": {"name": name},
        "privacy": {"epsilon": 2},
        "owners": [{"name": "a", "clock_rate": 2.0}, {"name": "b"}],
    }
    path = tmp_path / "study.toml"
    path.write_text(tomli_w.dumps(table))
    if name == "asynchronous":
        assert clock_rates(load_study(path), (100, 200)).tolist() == [2.0, 1.0]
        return
    with pytest.raises(InputError, match=f"^owners.clock_rate .* asynchronous, not to {name}; rem"):
        load_study(path)
    table["owners"][0]["clock_rate"] = 1.0
    path.write_text(tomli_w.dumps(table))
    load_study(path)


@pytest.mark.parametrize(
    ("table", "value"),
    [
        ("model", {"theta_max": 1e-300}),
        ("model", {"theta_max": 1e300}),
        ("model", {"loss": "huber", "delta": 1e-300}),
        ("privacy", {"sensitivity": "clip", "clip": 1e300}),
        ("privacy", {"sensitivity": "clip", "clip": 1e-300}),
    ],
)
def test_what_no_owner_takes_is_refused_before_it_is_planned(table, value):
    """The plan of such a box did not converge, and that of such a clip was called damaged."""
    with pytest.raises(InputError, match=r"1e-100 .* 1e\+100"):
        study(**{table: value})


def test_an_epsilon_that_owners_refuse_is_refused_with_the_settings():
    """An owner refused the digits of the part for training, or for validation, in its own words."""
    short = Fraction(1, 10**17)
    for privacy in (
        {"epsilon": f"1/{10**18 + 1}"},
        {"epsilon": f"{10**18 + 1}"},
        {"epsilon": str(short), "validation": "1/101"},
        {"epsilon": str(10**17), "validation": f"1/{10**18 + 1}"},
    ):
        with pytest.raises(InputError, match=r"study\.toml: epsilon .* 18 digits above or below"):
            study(privacy=privacy)
    with pytest.raises(InputError, match="18 digits"):
        study(owners=[{"name": "a"}, {"name": "b", "epsilon": f"1/{10**19}"}])
    settings = study(privacy={"epsilon": str(short), "validation": "1/10"})
    entry = settings.owners[0]
    asked = [settings.for_training(entry), settings.for_validation(entry)]
    assert asked == [Fraction(9, 10**18), Fraction(1, 10**18)]
