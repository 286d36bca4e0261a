"""Tables of owners that a simulation plays: a column that is missing is named, and what is near."""

import pandas as pd
import pytest

from common.config import load_settings
from common.errors import InputError
from learner.network.processes import owner_tables, owner_toml
from learner.planning.public_side import prepare_public_side
from learner.planning.settings import StudySettings
from owner.policy import OwnerSettings

STUDY = """
name = "pay"
features = { public = { path = "public.csv" }, target = "wage" }
model = { theta_max = 1 }
privacy = { epsilon = 1 }
owners = [{ name = "north", data = { path = "north.csv" } }]
"""


@pytest.mark.parametrize(
    ("column", "other", "hint"),
    [
        ("years", "year", "; did you mean 'year'?"),
        ("wage", "salary", "; the columns are years, school, salary, town"),
    ],
    ids=["input", "target"],
)
def test_a_column_of_another_name_is_told_with_all_that_the_table_has(
    tmp_path, column, other, hint
):
    """The target's was a traceback, and of an input those were named that the map needs."""
    table = pd.DataFrame({"years": [*range(8)] * 5, "school": 12, "wage": [3, 9, 5, 7] * 10})
    table.to_csv(tmp_path / "public.csv", index=False)
    north = table.rename(columns={column: other}).assign(town="x")
    north.to_csv(tmp_path / "north.csv", index=False)
    (tmp_path / "study.toml").write_text(STUDY)
    settings = load_settings(StudySettings, tmp_path / "study.toml")
    feature_map = prepare_public_side(settings, base=tmp_path).feature_map
    with pytest.raises(InputError) as refused:
        owner_tables(settings, settings.owners, feature_map, base=tmp_path)
    said = f"owner north: no column '{column}', which the feature map needs{hint}"
    assert str(refused.value) == said


def test_owners_of_a_simulation_take_a_model_of_more_features_than_owners_elsewhere(tmp_path):
    """They refused it, after a plan that had taken ten minutes."""
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    settings = load_settings(StudySettings, tmp_path / "study.toml")
    (tmp_path / "owner.toml").write_text(
        owner_toml(settings, 0, base=tmp_path, studies=1), encoding="utf-8"
    )
    policy = load_settings(OwnerSettings, tmp_path / "owner.toml").policy
    assert policy.max_features >= 100_000
