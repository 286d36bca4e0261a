"""Whatever a record holds, its features are its own and within the public bounds."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.feature_settings import FeatureSettings
from common.features import FeatureMap
from common.fitting import ColumnRule, TargetRule
from common.map_fitting import fit_feature_map
from common.tables import TableSource

NAMES = ("amount", "grade", "issued", "y")


def public_table():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "amount": rng.lognormal(8, 1, size=200),
            "grade": rng.choice(list("ABCDE"), size=200),
            "issued": rng.choice(["Dec-2011", "Jan-2010", "Jun-2009"], size=200),
            "y": rng.normal(size=200),
        }
    )


OPTIONS = {
    "columns": {"l1_coverage": 1.0},
    "radius": {"l1_radius": 1.7},
    "components": {"components": 2, "coverage": 0.9},
    "whitened": {"whiten": True, "l1_coverage": 0.5, "intercept": False},
    "classes": {"positive": ("A",), "target": "grade"},
}
MAPS = {
    name: fit_feature_map(
        public_table(),
        FeatureSettings(**{"public": TableSource(), "target": "y", **options}),
        source="public.csv",
    )
    for name, options in OPTIONS.items()
}

CELLS = st.one_of(
    st.none(),
    st.floats(),
    st.integers(),
    st.booleans(),
    st.text(max_size=12),
    st.from_regex(r"\A[<$-]? ?[0-9,.e-]{0,9}[%+]?( years)?\Z"),
    st.sampled_from(["A", "B", " C ", "Dec-2011", "2011-12-01", "9" * 400, "inf", "nan", "-1e999"]),
    st.decimals(),
    st.dates(),
    st.just(10**400),
    st.just(pd.NaT),
    st.just(Decimal("-Infinity")),
    st.just(dt.datetime(9999, 12, 31)),
)
TABLES = st.lists(st.tuples(CELLS, CELLS, CELLS, CELLS), min_size=1, max_size=8)


def frame(rows):
    columns = zip(NAMES, zip(*rows, strict=True), strict=True)
    return pd.DataFrame({name: pd.Series(list(cells), dtype=object) for name, cells in columns})


def assert_within(records, feature_map):
    domain = feature_map.domain
    assert np.all(np.abs(records.features) <= domain.feature_bound)
    assert np.all(np.abs(records.targets) <= domain.target_bound)
    if domain.l1_radius is not None:
        assert np.all(np.abs(records.features).sum(axis=1) <= domain.l1_radius)


# Drawing a table takes longer than mapping it, so every map gets each of them.
@settings(max_examples=200, deadline=None)
@given(rows=TABLES)
def test_records_lie_within_the_domain_exactly(rows):
    table = frame(rows)
    for feature_map in MAPS.values():
        assert_within(feature_map.apply(table, where="t", fill_target=True), feature_map)


@settings(max_examples=100, deadline=None)
@given(rows=TABLES)
def test_each_record_is_mapped_by_itself(rows):
    table, alone = frame(rows), [frame([row]) for row in rows]
    for feature_map in MAPS.values():
        together = feature_map.apply(table, where="t", fill_target=True)
        for i, one in enumerate(alone):
            mapped = feature_map.apply(one, where="t", fill_target=True)
            np.testing.assert_array_equal(mapped.features[0], together.features[i])
            np.testing.assert_array_equal(mapped.targets[0], together.targets[i])


@pytest.mark.parametrize("name", MAPS)
def test_replacing_one_of_many_records_changes_its_row_only(name):
    table = pd.concat([public_table()] * 20, ignore_index=True)
    before = MAPS[name].apply(table, where="t")
    table.loc[1234, ["amount", "grade", "issued"]] = [1e9, "never seen", ""]
    after = MAPS[name].apply(table, where="t")
    others = np.arange(len(table)) != 1234
    np.testing.assert_array_equal(after.features[others], before.features[others])
    assert np.any(after.features[1234] != before.features[1234])


NUMBERS = st.floats(-1e15, 1e15)
SCALES = st.floats(1e-15, 1e15)


@settings(max_examples=200, deadline=None)
@given(
    data=st.data(),
    rows=TABLES,
    rotation=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=3),
    radius=st.none() | st.floats(1.001, 1e15),
    bound=st.floats(1e-300, 1e15),
)
def test_a_strangers_map_cannot_leave_its_own_bounds(data, rows, rotation, radius, bound):
    low, high = sorted([data.draw(NUMBERS), data.draw(NUMBERS)])
    rules = [
        ColumnRule(
            name=name,
            kind=data.draw(st.sampled_from(["number", "date", "category"])),
            codes={"A": data.draw(NUMBERS)},
            unknown=data.draw(NUMBERS),
            fill=data.draw(NUMBERS),
            low=low,
            high=high,
            center=data.draw(NUMBERS),
            scale=data.draw(SCALES),
        )
        for name in ("amount", "grade")
    ]
    target = TargetRule(
        name="y", center=data.draw(NUMBERS), scale=data.draw(SCALES), bound=bound, fill=-bound
    )
    feature_map = FeatureMap(
        source="s",
        num_public_records=1,
        target=target,
        intercept=True,
        l1_radius=radius,
        bounds=tuple(data.draw(st.floats(0, 1e15)) for _ in rotation),
        columns=tuple(rules),
        rotation=tuple(rotation),
    )
    assert FeatureMap.from_json(feature_map.to_json()) == feature_map
    assert_within(feature_map.apply(frame(rows), where="t", fill_target=True), feature_map)
