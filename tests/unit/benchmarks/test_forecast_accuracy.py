"""The studies whose forecasts are compared with what was measured."""

import numpy as np
import pandas as pd
import pytest

from learner.reproduction.public_data import LOAN_COLUMNS


@pytest.fixture(scope="module")
def forecast_accuracy(benchmark):
    return benchmark("forecast_accuracy")


def test_families_are_hospitals_and_loans_with_and_without_their_date(forecast_accuracy, tmp_path):
    rng = np.random.default_rng(1)
    loans = pd.DataFrame(rng.normal(size=(10_400, len(LOAN_COLUMNS))), columns=list(LOAN_COLUMNS))
    loans["issue_d"] = np.arange(len(loans))
    loans["int_rate"] = np.linspace(5.0, 20.0, len(loans))  # told by the date alone
    stays = pd.DataFrame(rng.normal(size=(640, 2)), columns=["age", "los"])
    stays["Hospital.County"] = np.where(rng.random(640) < 0.5, "Kings", "Bronx")
    for name, table in (("lending/lc_2007_2011_x", loans), ("sparcs/sparcs_2020_x", stays)):
        (tmp_path / name).parent.mkdir()
        table.to_parquet(tmp_path / f"{name}.parquet")
    families = forecast_accuracy.families_in(tmp_path)
    assert [family.name for family in families] == ["hospitals", "loans", "dated-loans"]
    assert len(families[0].shards) == 2
    used = ["issue_d" in family.feature_map.model_dump_json() for family in families[1:]]
    assert used == [False, True]
