"""A default that the recommended profile overrides is said to be so where the key is explained."""

import pytest

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
