"""A class that an owner spells otherwise is found where its officer looks, before it counts."""

import tomllib

import pytest
import tomli_w

from common.config import check_settings
from common.errors import DoubtWarning
from common.features import file_text
from learner.planning.public_side import prepare_public_side
from learner.planning.settings import StudySettings


@pytest.fixture
def owner(owner_folder, make_model, make_raw_table):
    """An owner of a study of classes, whose target is changed."""

    def make(change):
        feature_map = make_model("logistic").feature_map
        table = make_raw_table(300, seed=9, strange=False)
        table["class"] = change(table["class"])
        path = owner_folder(table=table, pinned=feature_map)
        (path.parent / "features.json").write_text(file_text(feature_map))
        return path

    return make


def upper(column):
    return column.str.upper()


def never_late(column):
    return column.mask(column == "late", "on time")


@pytest.mark.parametrize("command", ["check", "doctor"])
def test_a_class_that_is_spelt_otherwise_is_refused_until_it_is_mapped(owner, typed, command):
    path = owner(upper)
    said = typed("copriv-owner", command, path)
    assert said.returncode == 2
    told = " ".join((said.stdout + said.stderr).split())
    assert "column 'class': 100% of the records have values that no public record has" in told
    assert "'LATE' (did you mean 'late'?)" in told
    assert "data.spellings of OWNER.toml" in told
    assert typed("copriv-owner", command, path, "--accept", "class").returncode == 0
    settings = tomllib.loads(path.read_text())
    settings["data"]["spellings"] = {"class": {"LATE": "late", "ON TIME": "on time"}}
    path.write_text(tomli_w.dumps(settings))
    said = typed("copriv-owner", command, path)
    assert said.returncode == 0, said.stderr
    assert "'class'" not in said.stdout + said.stderr


@pytest.mark.parametrize("command", ["check", "doctor"])
def test_a_class_that_is_absent_is_a_doubt_and_no_fault(owner, typed, command):
    path = owner(never_late)
    said = typed("copriv-owner", command, path)
    assert said.returncode == 0, said.stderr
    told = " ".join((said.stdout + said.stderr).split())
    assert "column 'class': no record is of the class 'late'; the records have " in told
    assert "unless the class is only rare here" in told
    said = typed("copriv-owner", command, path, "--accept", "class")
    assert "no record is of the class" not in said.stdout + said.stderr


def test_public_records_that_a_saved_map_does_not_fit_are_told(
    tmp_path, make_model, make_raw_table
):
    (tmp_path / "features.json").write_text(file_text(make_model("logistic").feature_map))
    table = {
        "name": "small",
        "features": {"map": "features.json", "public": {"path": "public.parquet"}},
        "model": {"loss": "logistic", "theta_max": 2.0},
        "owners": [{"name": "north", "address": "127.0.0.1:1"}],
        "privacy": {"epsilon": 1},
    }
    settings = check_settings(StudySettings, table, where="test")
    public = make_raw_table(300, seed=9, strange=False)
    public.to_parquet(tmp_path / "public.parquet")
    prepare_public_side(settings, base=tmp_path)
    public.assign(**{"class": upper(public["class"])}).to_parquet(tmp_path / "public.parquet")
    with pytest.warns(DoubtWarning, match="the public records: column 'class': 100% of the"):
        prepare_public_side(settings, base=tmp_path)
