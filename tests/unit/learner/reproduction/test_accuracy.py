"""Studies drawn from families, whatever the number and size of their owners."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from common.features import FeatureSettings
from common.map_fitting import fit_feature_map
from common.tables import TableSource
from learner.reproduction.accuracy import Family, draw_cases


def family_of(*sizes: int) -> Family:
    rng = np.random.default_rng(1)
    table = pd.DataFrame(rng.normal(size=(max(sizes), 2)), columns=["x", "y"])
    settings = FeatureSettings(public=TableSource(), target="y")
    feature_map = fit_feature_map(table, settings, source="public")
    records = feature_map.apply(table, where="public")
    shards = {
        f"owner-{i}": feature_map.apply(table.iloc[:size], where="owner")
        for i, size in enumerate(sizes)
    }
    return Family(
        name="few",
        feature_map=feature_map,
        public=records,
        public_labels=None,
        shards=shards,
        labels=dict.fromkeys(shards),
    )


@pytest.mark.parametrize("sizes", [(303, 294, 200, 123), (50, 4000, 40, 700, 600)])
def test_few_and_small_owners_make_studies_that_can_be_measured(sizes: tuple[int, ...]) -> None:
    family = family_of(*sizes)
    cases = list(draw_cases([family], per_family=40, rng=np.random.default_rng(2)))
    assert {len(case.owners) for case in cases} == set(range(2, len(sizes) + 1))
    for case in cases:
        assert len(set(case.owners)) == len(case.owners)
        assert len(case.num_records) == len(case.epsilon) == len(case.owners)
        records = family.records_of(case)  # raises where a study asks for more than there is
        assert tuple(map(len, records)) == case.num_records
        assert all(
            size >= min(300, len(family.shards[name]))
            for name, size in zip(case.owners, case.num_records, strict=True)
            if len(set(case.num_records)) > 1
        )


def test_owners_with_records_enough_have_the_smallest_number_at_least() -> None:
    family = family_of(*range(2000, 2012))
    for case in draw_cases([family], per_family=20, rng=np.random.default_rng(3)):
        assert min(case.num_records) >= 300
        assert len(case.owners) <= 11
