"""Where collaboration begins to pay is where the guard lets a study go on."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from common.config import check_settings
from learner.forecasting.candidate import COMPARED, Candidate
from learner.forecasting.questions import FACTORS, Answer, Question, ask, questions
from learner.forecasting.verdict import verdict
from learner.planning.decision import Decision, Expected
from learner.planning.ground import Ground
from learner.planning.guard import LEAST_GAIN
from learner.planning.public_side import PublicSide
from learner.planning.sections import LearnerSettings, OwnerEntry
from learner.planning.settings import StudySettings
from learner.planning.ways import WAYS
from learner.results.forecast_page import write_forecast_page
from learner.results.forecast_text import sentences

STUDY = {
    "name": "study",
    "seed": 1,
    "features": {"public": {"path": "p.csv"}, "target": "y"},
    "model": {"loss": "squared", "theta_max": 2.0},
    "privacy": {"epsilon": 1},
    "owners": [{"name": "a"}, {"name": "b"}],
}
PUBLIC = 0.01
# All of the noise is taken back: next to nothing is gained.
TINY_GAIN = PUBLIC * (1 - LEAST_GAIN / 2)
GAIN = PUBLIC / 2


def answer(fitness):
    return Answer(
        relative_fitness=fitness,
        by_world=[fitness] * 12,
        low=fitness,
        high=fitness,
        alone=[1.0, 1.0],
        public=PUBLIC,
        horizon=10,
        clip=None,
        constant=1.0,
        split="schedule",
        algorithm="newton",
    )


def with_ways(its):
    """Learnt by Newton's steps, with which ticks that are no better were compared."""
    return replace(its, ways={"newton": its.relative_fitness, "ticks": 2 * PUBLIC})


@pytest.fixture(scope="module")
def candidate(feature_map, public_table):
    records = feature_map.apply(public_table, where="x")
    labels = (records.targets > np.median(records.targets)).astype(np.intp)
    side = PublicSide(feature_map=feature_map, records=records, labels=labels, known={})
    settings = check_settings(StudySettings, STUDY, where="study.toml")
    return Candidate(settings=settings, public=side, num_records=(100, 100))


def told(candidate, at_least, above):
    """What is told where the smallest factor comes to one fitness, and all others to another."""

    def at(factor):
        return answer(at_least if factor == FACTORS[0] else above)

    answers = {"study": at(1.0)}
    answers |= {f"{kind}-{f:g}": at(f) for f in FACTORS for kind in ("epsilon", "size")}
    answers |= {f"ways-{f:g}": with_ways(at(f)) for f in FACTORS}
    answers["by-newton"] = at(1.0)
    return verdict(candidate, answers)


def test_only_an_owner_that_has_the_model_can_gain(candidate):
    learner = LearnerSettings(own="b", shows_model=True)
    settings = candidate.settings.model_copy(update={"learner": learner})
    found = told(replace(candidate, settings=settings), GAIN, GAIN)
    assert [owner.gains for owner in found.owners] == [False, True]
    assert [owner.epsilon for owner in found.owners] == ["1", "inf"]
    assert [owner.smallest_epsilon_factor is None for owner in found.owners] == [True, False]
    assert "gains: 1 owner of 2 gains: b" in sentences(found)
    assert all(owner.gains for owner in told(candidate, GAIN, GAIN).owners)


@pytest.mark.parametrize(
    ("better", "harms"),
    [(12, True), (10, True), (9, False), (6, False)],
)
def test_what_few_worlds_say_is_chance(candidate, better, harms):
    """One of four equal owners was said to harm the others: 25 public records moved the middle."""
    study = replace(answer(1.0), by_world=[1.0] * 12)
    other = replace(answer(0.8), by_world=[0.8] * better + [1.1] * (12 - better))
    found = verdict(candidate, {"study": study, "without-0": other, "unit-1": other})
    assert [owner.harms for owner in found.owners] == [harms, None]
    assert found.owners[1].one_more_epsilon_is_worth == pytest.approx(0.2 if harms else 0.0)
    assert any("makes things worse" in line for line in sentences(found)) == harms


@pytest.mark.parametrize(("without", "harms"), [(0.91, False), (0.89, True)])
def test_who_makes_others_hardly_worse_is_not_said_to(candidate, without, harms):
    """All worlds agree; it is less than a tenth."""
    answers = {"study": answer(1.0), "without-0": answer(without)}
    assert verdict(candidate, answers).owners[0].harms is harms


def test_what_solving_leaves_of_0_is_0(candidate, monkeypatch):
    """The only owner's own model, which is the best one, was forecast at 1.13e-29."""
    alone = np.array([1.13e-29, 0.2])
    worlds = np.full(12, 0.15)
    found = SimpleNamespace(
        interval=(0.1, 0.2), expected=0.15, by_world=worlds, alone=alone, public=0.3
    )
    monkeypatch.setattr("learner.forecasting.questions.expect", lambda *_, **__: found)
    base = Decision(num_records=(9,), horizon=1, clip=None, constant=0.0, way="newton")
    assert ask(Question(candidate=candidate, decision=base)).alone == [0.0, 0.2]


def test_a_study_of_one_owner_begins_to_pay_nowhere(candidate):
    """Its own model is the best one, at 0: a whole forecast was computed and then lost to this."""
    owners = (candidate.settings.owners[0],)
    alone = replace(
        candidate,
        settings=candidate.settings.model_copy(update={"owners": owners}),
        num_records=(100,),
    )
    its = replace(answer(GAIN), alone=[0.0])
    answers = {f"{kind}-{f:g}": its for f in FACTORS for kind in ("epsilon", "size")}
    found = verdict(alone, answers | {"study": its})
    assert [owner.gains for owner in found.owners] == [False]
    assert [owner.smallest_epsilon_factor for owner in found.owners] == [None]
    assert (found.smallest.epsilon, found.smallest.records) == (None, None)


def test_where_an_owner_is_the_learner_it_begins_to_pay_where_that_one_gains(candidate):
    owners = [OwnerEntry(name="a", epsilon=9), OwnerEntry(name="b"), OwnerEntry(name="c")]
    roles = {"learner": LearnerSettings(own="c", shows_model=True), "owners": tuple(owners)}
    mine = replace(
        candidate,
        settings=candidate.settings.model_copy(update=roles),
        num_records=(100, 100, 100),
    )
    # The own model of c is better than the common one, those of the others are worse.
    alone = [1.0, 1.0, GAIN]
    answers = {f"epsilon-{f:g}": replace(answer(2 * GAIN / f), alone=alone) for f in (1, 3)}
    # With two owners only, c is none of them.
    answers |= {f"owners-{count}": replace(answer(GAIN / 2), alone=alone) for count in (2, 3)}
    found = verdict(mine, answers | {"study": answers["epsilon-1"]})
    # Twice the middle one of what the others are asked to spend, 9 and 1.
    assert found.smallest.epsilon == pytest.approx(10)
    assert found.smallest.owners == 3
    assert any(line.startswith("collaboration begins to pay for c at") for line in sentences(found))


def test_where_the_guard_refuses_collaboration_does_not_begin_to_pay(candidate):
    found = told(candidate, TINY_GAIN, TINY_GAIN)
    assert found.smallest.epsilon is None
    assert found.smallest.epsilon_of_ways["newton"] is None
    assert not any(owner.gains for owner in found.owners)
    above = told(candidate, TINY_GAIN, GAIN).smallest
    assert FACTORS[0] < above.epsilon < FACTORS[1]
    assert FACTORS[0] < above.epsilon_of_ways["newton"] < FACTORS[1]
    assert above.or_below == ()


def test_where_a_way_is_level_with_the_public_model_its_beginning_is_read_at_most_twice_too_low(
    candidate,
):
    """Powers of ten left it five times too low: all noise is taken back until shortly before."""
    base = Decision(num_records=(9,), horizon=1, clip=None, constant=0.0, way="newton")
    asked = questions(candidate, compare=tuple(WAYS), curves=True, base=base)
    name = "ways-"
    tried = [float(each.removeprefix(name)) for each in asked if each.startswith(name)]
    begins = 0.5
    fitness = {f: PUBLIC if f < begins else PUBLIC / 4 for f in tried}
    answers = {f"{name}{f:g}": with_ways(answer(psi)) for f, psi in fitness.items()}
    compared = {"by-newton": answer(GAIN)}
    found = verdict(candidate, {"study": answer(GAIN), **compared, **answers}).smallest
    assert begins / 2 < found.epsilon_of_ways["newton"] < 2 * begins


def test_where_only_the_smallest_tried_pays_nothing_begins(candidate):
    """Owners with few records gain from company, and more of them with many records again."""
    found = told(candidate, GAIN, TINY_GAIN)
    assert (found.smallest.epsilon, found.smallest.records) == (None, None)
    assert found.owners[0].smallest_epsilon_factor is None
    assert found.smallest.or_below == ()
    said = "begins to pay for half of the owners at no epsilon that was tried; at no n_i that was"
    assert any(said in line for line in sentences(found))


def test_where_the_smallest_tried_pays_it_may_begin_below(candidate, tmp_path):
    found = told(candidate, GAIN, GAIN)
    assert found.smallest.epsilon == FACTORS[0]
    assert set(found.smallest.or_below) == {"epsilon", "records", "newton"}
    assert set(found.as_json()["smallest"]["or_below"]) == {"epsilon", "records", "newton"}
    words = "0.01, the smallest tried, or below"
    pays, beats = [line for line in sentences(found) if "the smallest tried" in line]
    assert f"an epsilon of {words}; at an n_i of 1, the smallest tried, or below" in pays
    assert f"beats the public model: newton at {words}" in beats
    page = write_forecast_page(tmp_path, found).read_text()
    assert f">{words}</td>" in page
    surer = replace(found, smallest=replace(found.smallest, or_below=()))
    assert not any("the smallest tried" in line for line in sentences(surer))


def test_the_way_that_auto_takes_is_said_with_the_reason(candidate):
    found = {"ticks from zero": 0.004, "ticks": 0.002}
    ways = {way: Expected(relative_fitness=psi, low=psi, high=psi) for way, psi in found.items()}
    base = Decision(
        num_records=(100, 100),
        horizon=10,
        clip=None,
        constant=1.0,
        way="ticks from zero",
        ways=ways,
        public=PUBLIC,
    )
    auto = verdict(candidate, {"study": answer(0.004)}, base=base)
    line = next(line for line in sentences(auto) if line.startswith("it would be learnt by"))
    assert "by ticks from zero: forecast 0.004, ticks 0.002, public model 0.01; what begins" in line
    assert auto.as_json()["way"] == "ticks from zero"
    named = verdict(candidate, {"study": answer(0.004)}, base=replace(base, way=None))
    assert not any("learnt by" in line for line in sentences(named))


@pytest.mark.parametrize("way", ["newton", "ticks from zero"])
def test_steps_from_a_model_that_is_not_believed_are_compared_only_if_taken(
    candidate, way, monkeypatch
):
    """The run itself did not tell of them, and the table of its forecast did."""
    monkeypatch.setattr(Ground, "trusts_public_model", False)
    base = Decision(num_records=(9,), horizon=1, clip=None, constant=0.0, way=way)
    asked = questions(candidate, compare=tuple(WAYS), curves=True, base=base)
    assert ("by-newton" in asked) == (way == "newton")
    assert set(WAYS) - {name.removeprefix("by-") for name in asked} <= {"newton"}


def test_a_page_says_once_who_gains(candidate, tmp_path):
    found = verdict(candidate, {"study": answer(GAIN)})
    page = write_forecast_page(tmp_path, found).read_text()
    (line,) = (line for line in sentences(found) if line.startswith("gains: "))
    said = line.removeprefix("gains: ")
    assert page.count(said) == 1
    assert f"It is expected that {said}. The common model" in page


def test_no_loss_is_called_none(candidate, tmp_path):
    page = write_forecast_page(tmp_path, verdict(candidate, {"study": answer(0.0004)})).read_text()
    assert "is expected to have less than 0.1% more loss than the best model" in page


def test_public_records_of_one_group_are_warned_of_whether_or_not_they_are_labelled(candidate):
    """``data.where`` may tell it, too, and then the records have no labels."""
    of_one = replace(candidate.public, labels=None, only_group_of="site")
    study = {"study": answer(GAIN)}
    warned = verdict(replace(candidate, public=of_one), study).warnings
    assert any("of one group only" in warning for warning in warned)
    assert not any("of one group only" in warning for warning in verdict(candidate, study).warnings)


def test_owners_that_no_column_tells_apart_are_told_to_have_worse_models_than_is_forecast(
    candidate,
):
    unlabelled = replace(candidate, public=replace(candidate.public, labels=None))
    alone = unlabelled.with_owners([0])
    for asked, warns in ((unlabelled, True), (candidate, False), (alone, False)):
        study = {"study": answer(GAIN)}
        warned = verdict(asked, study).warnings
        assert warns == any("forecast.group_column" in warning for warning in warned)


def test_a_public_model_at_an_edge_of_its_box_is_one_of_the_warnings(candidate, tmp_path):
    """So the page and forecast.json have it, not only the terminal."""
    settings = candidate.settings
    model = settings.model.model_copy(update={"theta_max": 1e-3})
    narrow = replace(candidate, settings=settings.model_copy(update={"model": model}))
    for asked, warns in ((narrow, True), (candidate, False)):
        found = verdict(asked, {"study": answer(GAIN)})
        told = write_forecast_page(tmp_path, found).read_text()
        for text in (told, *found.as_json()["warnings"][:1]):
            assert warns == ("the public model is at an edge of its box" in text)


@pytest.fixture
def known(candidate, public_table):
    """The same, whose public records have their raw targets."""
    rule = candidate.public.feature_map.target
    raw = rule.raw(public_table[rule.name])
    return replace(candidate, public=replace(candidate.public, raw_targets=raw))


def test_the_forecast_is_told_in_raw_units_where_the_loss_has_them(candidate, known):
    said = "is expected to be predicted with a typical error (RMSE) of"
    found = verdict(known, {"study": answer(GAIN)})
    assert any(said in line for line in sentences(found))
    assert found.as_json()["quality"]["common"] == found.quality.common
    assert found.quality.best < found.quality.common < found.quality.public < found.quality.guess
    unread = verdict(candidate, {"study": answer(GAIN)})
    assert not any(said in line for line in sentences(unread))
    assert unread.as_json()["quality"] is None


def test_the_page_has_the_forecast_in_raw_units(candidate, known, tmp_path):
    page = write_forecast_page(tmp_path, verdict(known, {"study": answer(GAIN)})).read_text()
    assert "typical error (RMSE), common model" in page
    bare = write_forecast_page(tmp_path, verdict(candidate, {"study": answer(GAIN)})).read_text()
    assert "typical error (RMSE)" not in bare


def test_a_unit_of_relative_fitness_that_is_not_known_is_one_of_the_warnings(candidate, tmp_path):
    """Of few records of classes; squared loss of the same ones has none."""
    few = candidate.public.records.at(np.arange(8))
    classes = replace(few, targets=np.where(few.targets > np.median(few.targets), 1.0, -1.0))
    public = replace(candidate.public, records=classes, labels=None, raw_targets=classes.targets)
    for loss, warns in (("logistic", True), ("squared", False)):
        model = candidate.settings.model.model_copy(update={"loss": loss, "theta_max": 20.0})
        settings = candidate.settings.model_copy(update={"model": model})
        asked = replace(candidate, settings=settings, public=public)
        found = verdict(asked, {"study": answer(GAIN)})
        told = write_forecast_page(tmp_path, found).read_text()
        for text in (told, " ".join(found.warnings)):
            assert warns == ("times as much on public records held out" in text)
        assert warns == (found.quality is None)


def test_more_owners_of_the_kind_are_no_owner_that_is_there(candidate):
    """Of bank, bank-2 and bank-3 the fourth was bank-3 once more, which no study can have."""
    names = ["bank", "bank-2", "bank-3"]
    first, *_ = candidate.settings.owners
    owners = tuple(first.model_copy(update={"name": name, "address": None}) for name in names)
    settings = candidate.settings.model_copy(update={"owners": owners})
    like = replace(candidate, settings=settings, num_records=(100,) * 3)
    more = like.with_owners([place % 3 for place in range(13)])
    assert [owner.name for owner in more.settings.owners[:3]] == names
    assert len({owner.name for owner in more.settings.owners}) == 13
    assert more.with_algorithm("newton").settings.owners == more.settings.owners


def test_more_owners_of_the_kind_serve_nowhere_yet(candidate):
    """Each had the address of the one it is like, so no way of learning could be compared."""
    known = [
        owner.model_copy(update={"address": f"{owner.name}.example:1"})
        for owner in candidate.settings.owners
    ]
    settings = candidate.settings.model_copy(update={"owners": tuple(known)})
    more = replace(candidate, settings=settings).with_owners([0, 1, 0, 1, 0])
    for way in COMPARED:
        owners = more.with_algorithm(way).settings.owners
        assert [owner.address for owner in owners] == [*(k.address for k in known), *[None] * 3]
