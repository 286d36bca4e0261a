"""A default that the recommended profile overrides is said to be so where the key is explained."""

import pytest

from common.config import check_settings
from common.errors import InputError
from common.setting_keys import keys_of
from common.settings_reference import default_of, meaning_of
from learner.planning.sections import with_profile_defaults
from learner.planning.settings import StudySettings


def overridden():
    """The keys that the recommended profile fills otherwise than their defaults."""
    shown = {key.path: default_of(key).strip('"') for key in keys_of(StudySettings)}
    found = set()
    for algorithm in ({}, {"name": "asynchronous"}, {"name": "newton"}):
        filled = with_profile_defaults(algorithm, {"epsilon": 1}, has_public=not algorithm)
        for section, values in zip(("algorithm", "privacy"), filled, strict=True):
            found |= {
                f"{section}.{key}"
                for key, value in values.items()
                if key not in algorithm
                and key != "epsilon"
                and str(value) != shown[f"{section}.{key}"]
            }
    return found | {"privacy.validation", "algorithm.start"}


def test_the_profile_overrides_something():
    assert {"privacy.split", "algorithm.average", "algorithm.clocks"} <= overridden()


@pytest.mark.parametrize("path", sorted(overridden()))
def test_what_the_profile_takes_is_said_beside_the_default(path):
    (key,) = [key for key in keys_of(StudySettings) if key.path == path]
    assert "recommended" in meaning_of(key)


@pytest.mark.parametrize("section", ["algorithm", "privacy"])
def test_a_section_that_is_no_table_is_told_as_that_alone(section):
    """With privacy = 1 it was also said that algorithm lacks a horizon, which need not be typed."""
    study = {
        "name": "spring",
        "features": {"public": {"path": "p.csv"}, "target": "y"},
        "model": {"theta_max": 1.0},
        "privacy": {"epsilon": 1},
        "owners": [{"name": "north"}],
    }
    with pytest.raises(InputError) as told:
        check_settings(StudySettings, study | {section: 1}, where="s.toml")
    expected = f"s.toml: {section}: got 1, expected a table of settings, such as [{section}]"
    assert str(told.value) == expected
