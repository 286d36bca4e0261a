"""Every number and every flag of both settings files is of its kind, or one sentence says so."""

import copy
from types import NoneType, UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

import numpy as np
import pandas as pd
import pytest
import tomli_w

from common.conditions import matches
from common.config import check_settings, load_settings
from common.errors import InputError
from common.setting_keys import keys_of
from learner.planning.settings import StudySettings
from owner.policy import OwnerSettings

STUDY = {
    "name": "s",
    "features": {"target": "t", "columns": ["a"], "public": {"path": "p.csv"}},
    "model": {"theta_max": 1},
    "algorithm": {},
    "privacy": {"epsilon": 1},
    "owners": [{"name": "a"}],
    "tls": {"ca": "c", "certificate": "c", "key": "k"},
}
OWNER = {
    "name": "s",
    "data": {"path": "a.csv"},
    "policy": {"epsilon_per_study": 1, "epsilon_lifetime": 2},
}
KINDS = {StudySettings: STUDY, OwnerSettings: OWNER}
# What a wrong value is for a kind: none of these is a number, or none a flag.
NO_NUMBERS = (True, False, "16", "no", [1])
NO_COUNTS = (*NO_NUMBERS, 2.0, 2.5)
NO_FLAGS = (0, 1, 1.0, "no", "true", [True])
# A cell of a column may be of any kind.
ANY_KIND = {"positive", "where"}
# A factor may be a fraction in quotes.
FRACTIONS = {"units"}


def kinds_in(annotation):
    """The kinds of value that an annotation allows, a dictionary's values included."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return kinds_in(parts[0])
    if origin is Literal:
        return {type(value) for value in parts}
    if origin in {Union, UnionType}:
        return set().union(*map(kinds_in, parts))
    if origin is dict:
        return kinds_in(parts[1])
    return {annotation} if isinstance(annotation, type) else set()


def wrong_values():
    """Each key that takes a number or a flag, with each value that is none."""
    for kind in KINDS:
        for key in keys_of(kind):
            kinds = kinds_in(key.field.annotation) - {NoneType}
            if key.section is not None or key.name in ANY_KIND:
                continue
            if float in kinds:
                wrong = NO_NUMBERS
            elif int in kinds:
                wrong = NO_COUNTS
            elif bool in kinds:
                wrong = NO_FLAGS
            else:
                continue
            inside = get_origin(key.field.annotation) is dict
            wrong = tuple(v for v in wrong if not (v == "16" and key.name in FRACTIONS))
            for value in wrong:
                if type(value) not in kinds:
                    given = {"a": value} if inside else value
                    yield pytest.param(kind, key.path, given, id=f"{key.path}={given!r}")


def changed(kind, path, value):
    """The settings with one key set."""
    table = copy.deepcopy(KINDS[kind])
    *sections, name = path.split(".")
    place = table
    for section in sections:
        place = place.setdefault(section, {})
        place = place[0] if isinstance(place, list) else place
    place[name] = value
    return table


@pytest.mark.parametrize(("kind", "path", "value"), [*wrong_values()])
def test_a_value_of_another_kind_is_refused_in_one_sentence_that_names_its_key(kind, path, value):
    with pytest.raises(InputError) as refused:
        check_settings(kind, changed(kind, path, value), where="file.toml")
    sentence = str(refused.value)
    assert sentence.count("\n") == 0
    name = path.removeprefix("owners.")
    place = path if name == path else f"{name} of entry 1 of owners"
    assert sentence.startswith(f"file.toml: {place}")
    assert "expected " in sentence


def test_both_files_have_many_keys_that_are_looked_at():
    looked_at = {given.values[1] for given in wrong_values()}
    assert len(looked_at) >= 50
    assert {"model.theta_max", "network.in_flight", "guard", "threads", "policy.kappa"} < looked_at


@pytest.mark.parametrize(
    ("path", "value"),
    [("model.theta_max", 2), ("network.deadline", 3), ("algorithm.time_scale", 0)],
)
def test_a_whole_number_is_good_where_any_number_is(path, value):
    settings = check_settings(StudySettings, changed(StudySettings, path, value), where="f")
    for part in path.split("."):
        settings = getattr(settings, part)
    assert isinstance(settings, float)
    assert settings == value


def test_what_is_typed_is_read_as_toml_and_then_held_to_its_kind(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(tomli_w.dumps({key: part for key, part in STUDY.items() if key != "tls"}))
    typed = ("network.in_flight=8", "model.theta_max=2", "guard=false", "seed=3")
    settings = load_settings(StudySettings, file, overrides=typed)
    assert (settings.network.in_flight, settings.model.theta_max) == (8, 2.0)
    assert (settings.guard, settings.seed) == (False, 3)
    for one, key in (('network.in_flight="8"', "network.in_flight"), ("guard=no", "guard")):
        with pytest.raises(InputError, match=key):
            load_settings(StudySettings, file, overrides=(one,))


def test_numbers_of_numpy_are_numbers_when_they_come_from_python(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(tomli_w.dumps({key: part for key, part in STUDY.items() if key != "tls"}))
    values = {
        "network.in_flight": np.int64(8),
        "model.theta_max": np.float32(2),
        "seed": np.int8(3),
    }
    settings = load_settings(StudySettings, file, values=values)
    assert (settings.network.in_flight, settings.model.theta_max, settings.seed) == (8, 2.0, 3)


@pytest.mark.parametrize("wrong", [["learner"], {"a": 1}, 1, True])
def test_an_initiative_that_is_no_text_is_refused_as_any_other(wrong):
    with pytest.raises(InputError, match=r"algorithm\.initiative: .*expected"):
        check_settings(
            StudySettings, changed(StudySettings, "algorithm.initiative", wrong), where="f"
        )


def test_a_profile_misspelt_is_one_mistake():
    with pytest.raises(InputError) as refused:
        check_settings(StudySettings, changed(StudySettings, "profile", "recomended"), where="f")
    assert str(refused.value) == (
        "f: profile: got 'recomended', expected 'published' or 'recommended'"
    )


@pytest.mark.parametrize("given", [True, [True, 2], {"min": 1}])
def test_a_condition_on_a_column_of_flags_is_no_number_of_ours(given):
    table = changed(OwnerSettings, "data.where", {"died": given})
    condition = check_settings(OwnerSettings, table, where="f").data.where["died"]
    assert matches(pd.Series([True, False]), condition).tolist() == [True, False]
