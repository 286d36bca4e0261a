"""A journal's decision is read only if the study could have made it."""

import json
from functools import partial

import pytest

from common.config import check_settings
from common.errors import InputError
from learner.planning.deciding import decide, decide_quietly
from learner.planning.public_side import PublicSide
from learner.planning.settings import StudySettings
from learner.training.journal import Journal
from learner.training.noted_decision import noted_decision

SIZES = (300, 500, 200)
GIVEN = {"name": "asynchronous", "horizon": 40, "rho": 1e-3}
STUDIES = {
    "auto": {},
    "ticks": {"algorithm": GIVEN},
    "huber": {"algorithm": GIVEN, "model": {"loss": "huber", "delta": 0.5, "theta_max": 2.0}},
    "long": {"algorithm": GIVEN, "profile": "published"},
    "newton": {"algorithm": {"name": "newton", "rounds": 2}},
    "moments": {"algorithm": {"name": "moments", "start": "public"}},
    "moments from zero": {"algorithm": {"name": "moments", "start": "zero"}},
    "rounds": {"algorithm": {"name": "synchronous-2", "horizon": 9, "initial_step": 0.1}},
}


def study_of(name):
    table = {
        "name": "study",
        "features": {"public": {"path": "p.csv"}, "target": "y"},
        "model": {"theta_max": 2.0},
        "privacy": {"epsilon": 3},
        "owners": [{"name": f"o{i}"} for i in range(3)],
        "forecast": {"runs": 24, "worlds": 3},
    }
    return check_settings(StudySettings, table | STUDIES[name], where="study.toml")


@pytest.fixture(scope="module")
def told(feature_map, public_table):
    """What the journal of a study keeps, made once."""
    public = PublicSide(feature_map=feature_map, records=feature_map.apply(public_table, where="x"))
    kept = {}

    def of(name):
        if name not in kept:
            made = decide if name == "auto" else decide_quietly
            kept[name] = made(study_of(name), public, num_records=SIZES, seed=1).to_json()
        return json.loads(kept[name])

    return of


@pytest.mark.parametrize("name", STUDIES)
def test_what_a_study_decides_is_read_as_it_was_written(name, told):
    text = json.dumps(told(name))
    found = noted_decision(text, settings=study_of(name), num_features=4)
    assert found.to_json() == text


def test_a_whole_number_is_read_as_the_kind_that_it_stands_for(told):
    text = json.dumps(told("ticks") | {"constant": 1})
    found = noted_decision(text, settings=study_of("ticks"), num_features=4)
    assert isinstance(found.constant, float)


WRONG = [
    *(("ticks", "num_records", value) for value in ([3, 4], [2**63, 4, 5], [0, 4, 5])),
    *(("ticks", "horizon", value) for value in (0, 10**6 + 1, 2**63)),
    *(("long", "horizon", value) for value in (10**9 + 1, 10**12, 2**63)),
    *(("newton", "horizon", value) for value in (0, 2, 4, 63)),
    ("moments", "horizon", 6),
    *(("ticks", "constant", value) for value in (0.0, -1.0, float("inf"), 10**400)),
    *(("ticks", "clip", value) for value in (0.0, float("nan"))),
    *(("ticks", "parameters", value) for value in ({"a": 1}, {"delta": 1.0})),
    *(("huber", "parameters", {"delta": value}) for value in ("x", -1.0, True, None)),
    ("huber", "parameters", {}),
    *(("auto", "way", value) for value in ("x", None, "ticks\n")),
    ("ticks", "way", "newton"),
    *(("ticks", "validation", value) for value in ("1/0", "x", "1", "-1", "1e999999999", "nan")),
    *(("ticks", "start", value) for value in ([0.1], [2.1, 0.0, 0.0, 0.0])),
    ("ticks", "start", [float("nan"), 0.0, 0.0, 0.0]),
    *(("newton", key, None) for key in ("start", "around")),
    *((name, "scales", value) for name in ("newton", "moments") for value in ([], [0.0])),
    ("newton", "scales", [-1.0, 0.0, 0.0]),
    *(("newton", "counted", value) for value in ([1.0], [0.5] * 3, [1.5, -0.5, 0.0])),
    ("ticks", "validated_by", ["shown"]),
    ("ticks", "later", 1),
    ("auto", "alone", [0.5]),
    ("auto", "ways", {}),
]
AROUND = [
    *(("curvature", value) for value in ([], [1.0], [1.0] * 11, [float("inf")] * 10)),
    *(("curvature", [number] * 10) for number in (1e308, -1e200)),
    *(("offset", value) for value in ([], [0.0] * 5)),
    *(("pull", [0.0]), ("spread", float("nan")), ("curvature_scale", 0.0), ("doubt", -1.0)),
]


def refused(folder, table, name):
    journal = Journal(folder / "journal.sqlite")
    try:
        journal.note("decision", json.dumps(table))
        meaning = partial(noted_decision, settings=study_of(name), num_features=4)
        with pytest.raises(InputError, match=r"journal\.sqlite: it is damaged \(decision\); start"):
            journal.read("decision", meaning)
    finally:
        journal.close()


@pytest.mark.parametrize(("name", "key", "value"), WRONG)
def test_a_value_that_no_study_decides_is_one_sentence(tmp_path, told, name, key, value):
    refused(tmp_path, told(name) | {key: value}, name)


@pytest.mark.parametrize(("key", "value"), AROUND)
def test_what_is_known_around_the_start_fits_it(tmp_path, told, key, value):
    table = told("newton")
    refused(tmp_path, table | {"around": table["around"] | {key: value}}, "newton")


def test_a_forecast_that_is_no_number_is_one_that_a_study_may_have(told):
    """A public model that fits its few records perfectly leaves nothing to compare with."""
    nothing = dict.fromkeys(("relative_fitness", "low", "high"), float("nan"))
    changed = told("auto")
    changed |= {"public": float("inf"), "alone": [float("nan")] * 3, "forecast": float("nan")}
    changed["ways"] = dict.fromkeys(changed["ways"], nothing)
    text = json.dumps(changed)
    found = noted_decision(text, settings=study_of("auto"), num_features=4)
    assert found.to_json() == text
