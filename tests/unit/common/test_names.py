"""One rule of names for owners, learners and studies, wherever they are typed or sent."""

import pytest

from common.config import check_settings
from common.errors import InputError, MalformedError
from common.names import check_name, repeated
from learner.planning.settings import StudySettings
from owner.policy import OwnerSettings, Policy, check_terms

# Folders' own signs, separators, endings that a pattern with $ would let through, other scripts.
NO_NAMES = ("", ".", "..", "../x", "a/b", "a b", "a\n", "a\x00", "é", "١", "a" * 65, "-\\", "~é")
NAMES = ("a", "...", "..a", ".a", "mount-sinai_2.north", "a" * 64, "-")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_letters_digits_and_three_signs(name):
    assert check_name(name) == name


def test_names_of_a_crowd_are_compared_once_each():
    class Counted(str):
        compared = 0

        def __eq__(self, other):
            Counted.compared += 1
            return str(self) == other

        __hash__ = str.__hash__

    crowd = [Counted(f"owner-{i}") for i in range(2_000)]
    assert repeated([*crowd, "owner-7", "owner-7"]) == ["owner-7"]
    assert Counted.compared < 4 * len(crowd)


@pytest.mark.parametrize("name", NO_NAMES)
def test_what_is_no_name_is_refused_in_one_sentence(name):
    with pytest.raises(ValueError, match=r"letters a-z, digits and \. _ - only"):
        check_name(name)


def test_a_sign_that_is_allowed_too_makes_no_folders_sign_a_name():
    assert check_name("..@", also="@") == "..@"
    for name in (".", "..", "a/b", "a:b"):
        with pytest.raises(ValueError, match="- @ only, and neither"):
            check_name(name, also="@")


@pytest.mark.parametrize("name", [".", "..", "../x", "a b"])
def test_no_setting_and_no_message_takes_what_is_no_name(name, make_terms):
    policy = {"epsilon_per_study": 1, "epsilon_lifetime": 1}
    owner = {"name": name, "data": {"path": "t.csv"}, "policy": policy}
    study = {
        "name": "study",
        "features": {"map": "features.json"},
        "model": {"theta_max": 1.0},
        "algorithm": {},
        "privacy": {"epsilon": 1},
        "owners": [{"name": "north"}],
    }
    rule = r"letters a-z, digits and \. _ - "
    with pytest.raises(InputError, match=f"OWNER.toml: name: .*{rule}only"):
        check_settings(OwnerSettings, owner, where="OWNER.toml")
    with pytest.raises(InputError, match=f"S.toml: name: .*{rule}only"):
        check_settings(StudySettings, study | {"name": name}, where="S.toml")
    with pytest.raises(InputError, match=f"S.toml: name of entry 1 of owners: .*{rule}only"):
        check_settings(StudySettings, study | {"owners": [{"name": name}]}, where="S.toml")
    tokens = policy | {"tokens": {name: "file:t"}}
    with pytest.raises(InputError, match=f"tokens: .*{rule}@ only"):
        check_settings(Policy, tokens, where="policy")
    with pytest.raises(MalformedError, match=f"study_id: .*{rule}: only"):
        check_terms(make_terms(study_id=name))


@pytest.mark.parametrize("option", ["--owner", "--learner"])
@pytest.mark.parametrize("name", [".", "..", "../x"])
def test_certs_writes_nothing_beside_its_folder(option, name, tmp_path, typed):
    told = typed("copriv", "certs", "--owner", "a=h", option, f"{name}=h", "--out", tmp_path / "c")
    assert told.returncode == 2
    assert (
        f"{option} {name}=h: expected a name of up to 64 letters a-z, digits and . _" in told.stderr
    )
    assert list(tmp_path.iterdir()) == []
