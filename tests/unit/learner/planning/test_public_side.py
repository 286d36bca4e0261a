"""Whose table is whose, and records without a target."""

import warnings

import numpy as np
import pandas as pd
import pytest

from common.config import check_settings
from common.errors import DoubtWarning, InputError
from learner.commands.forecast import candidate_of
from learner.network.processes import read_owner, table_source
from learner.planning.public_side import prepare_public_side
from learner.planning.settings import StudySettings

ELSEWHERE = [{"name": "a", "address": "127.0.0.1:1"}, {"name": "b", "address": "127.0.0.1:2"}]


@pytest.fixture
def study(tmp_path, table_maker):
    """A study on a table of the learner's, two of its records without a target."""
    table = table_maker(300, seed=1)
    table.loc[[0, 299], "y"] = None
    table.to_parquet(tmp_path / "mine.parquet")

    def settings(**changes):
        base = {
            "name": "s",
            "data": {"path": "mine.parquet", "missing_target": "drop"},
            "features": {"public": {"rows": "100:"}, "target": "y"},
            "model": {"theta_max": 1},
            "algorithm": {},
            "privacy": {"epsilon": 1},
            "owners": ELSEWHERE,
        }
        return check_settings(StudySettings, base | changes, where="s.toml")

    return settings


@pytest.mark.parametrize(
    "owners",
    [{"owners": ELSEWHERE}, {"owners": [{"name": "a"}], "network": {"listen": "127.0.0.1:0"}}],
)
def test_the_learners_table_is_never_taken_for_a_remote_owners(study, tmp_path, owners):
    settings = study(**owners)
    # No warning that the public records are an owner's, and no map that says so.
    assert prepare_public_side(settings, base=tmp_path).feature_map.source_kind == "public"
    with pytest.raises(InputError, match=r"number of records of a(, b)? is not known"):
        candidate_of(settings, base=tmp_path, public=None)
    with pytest.raises(InputError, match="a has its table elsewhere; to run it on this machine"):
        table_source(settings, settings.owners[0], base=tmp_path)


def test_a_column_that_is_named_and_left_out_of_the_map_is_told_of(study, tmp_path):
    table = pd.read_parquet(tmp_path / "mine.parquet")
    table.assign(rare=np.arange(300) < 50).to_parquet(tmp_path / "mine.parquet")
    first, *_ = (name for name in table.columns if name != "y")
    named = {"public": {"rows": "100:"}, "target": "y", "columns": [first, "rare"]}
    with pytest.warns(DoubtWarning, match="nothing is learnt from rare, since the public records"):
        prepare_public_side(study(features=named), base=tmp_path)
    with warnings.catch_warnings(record=True) as said:
        prepare_public_side(study(), base=tmp_path)
    assert not any("nothing is learnt" in str(warning.message) for warning in said)


def test_records_without_a_target_are_left_out_or_refused(study, tmp_path):
    settings = study(owners=[{"name": "a", "data": {"rows": ":100"}}])
    public = prepare_public_side(settings, base=tmp_path)
    assert public.records is not None
    assert len(public.records) == 199
    assert len(read_owner(settings, settings.owners[0], public.feature_map, base=tmp_path)) == 99
    counted = candidate_of(settings, base=tmp_path, public=None)
    assert counted.num_records == (99,)
    for missing in ({}, {"missing_target": "refuse"}):
        refusing = study(data={"path": "mine.parquet", **missing})
        with pytest.raises(InputError, match=r"1 of 200 records.*missing_target"):
            prepare_public_side(refusing, base=tmp_path)


def test_few_public_records_for_so_many_features_are_told_and_enough_are_not(study, tmp_path):
    def public(rows):
        settings = study(features={"public": {"rows": rows}, "target": "y"})
        return prepare_public_side(settings, base=tmp_path)

    p = public("100:").feature_map.num_features
    with pytest.warns(DoubtWarning, match=rf"{2 * p - 1} records for .* give {10 * p} or more"):
        public(f"100:{100 + 2 * p - 1}")
    assert len(public(f"100:{100 + 2 * p}").records) == 2 * p


def _of_sites(tmp_path, *, trend=0.0, public=":400", **changes):
    """The public side of owners told apart by a column, their model in 6,000 rows drifting so."""
    rng = np.random.default_rng(5)
    x, place = rng.normal(size=6000), np.linspace(-1, 1, 6000)
    y = (1 + trend * place) * x + rng.normal(size=6000)
    site = rng.choice(["a", "b", "c"], size=6000)
    pd.DataFrame({"x": x, "y": y, "site": site, "one": "a"}).to_parquet(tmp_path / "sites.parquet")
    base = {
        "name": "s",
        "data": {"path": "sites.parquet"},
        "features": {"public": {"rows": public}, "target": "y", "columns": ["x"]},
        "model": {"theta_max": 2},
        "privacy": {"epsilon": 1},
        "owners": [
            {"name": f"at-{s}", "data": {"rows": "2000:", "where": {"site": s}}} for s in "abc"
        ],
    }
    settings = check_settings(StudySettings, base | changes, where="s.toml")
    return prepare_public_side(settings, base=tmp_path)


def test_owners_who_are_told_apart_by_a_column_are_known_by_it(tmp_path):
    public = _of_sites(tmp_path)
    assert public.labels is not None
    assert sorted(public.known) == ["at-a", "at-b", "at-c"]
    sites = pd.read_parquet(tmp_path / "sites.parquet")["site"][:400]
    for s in "abc":
        assert (public.labels[sites == s] == public.known[f"at-{s}"]).all()
    named = _of_sites(tmp_path, forecast={"group_column": "site"})
    assert (named.labels == public.labels).all()
    assert named.known == public.known


def test_a_group_is_one_however_it_is_spelt_and_an_empty_cell_is_of_none(tmp_path):
    of_csv = {"data": {"path": "sites.csv"}, "forecast": {"group_column": "site"}}
    _of_sites(tmp_path)
    table = pd.read_parquet(tmp_path / "sites.parquet")
    table.to_csv(tmp_path / "sites.csv", index=False)
    plain = _of_sites(tmp_path, **of_csv)
    assert plain.labels is not None
    table.loc[:99:2, "site"] += " "
    table.loc[100:199, "site"] = " "
    table.loc[200:249, "site"] = "n/a"
    table.to_csv(tmp_path / "sites.csv", index=False)
    public = _of_sites(tmp_path, **of_csv)
    expected = plain.labels.copy()
    expected[100:250] = -1
    np.testing.assert_array_equal(public.labels, expected)
    assert public.known == plain.known


@pytest.mark.parametrize(
    "changes",
    [
        # Records of one site change along the table.
        {"trend": 0.9, "public": ":2000"},
        # One group; a condition that is no group; two owners of one group; no such column.
        {"features": {"public": {"where": {"site": "a"}}, "target": "y", "columns": ["x"]}},
        {"owners": [{"name": "p", "data": {"where": {"site": ["a", "b"]}}}]},
        {
            "owners": [
                {"name": n, "data": {"where": {"site": "a"}, "rows": r}}
                for n, r in (("p", "9:"), ("q", ":9"))
            ]
        },
        {"owners": [{"name": "p", "data": {"rows": "2000:"}}]},
        {"owners": ELSEWHERE},
    ],
)
@pytest.mark.filterwarnings(
    "ignore::common.errors.PrivacyLeakWarning", "ignore:.*of one 'site' only"
)
def test_where_a_column_tells_less_than_the_order_nobody_is_known(tmp_path, changes):
    public = _of_sites(tmp_path, **changes)
    assert public.labels is None
    assert not public.known


def test_public_records_of_one_of_the_owners_groups_are_warned_of(tmp_path):
    public = {"where": {"site": "a"}, "rows": ":300"}
    of_one = {"features": {"public": public, "target": "y", "columns": ["x"]}}
    found = []
    for changes in (of_one, of_one | {"forecast": {"group_column": "site"}}):
        with pytest.warns(DoubtWarning, match="its records are of one 'site' only, so nothing"):
            found.append(_of_sites(tmp_path, **changes))
    assert [public.only_group_of for public in found] == ["site", "site"]
    assert _of_sites(tmp_path).only_group_of is None
    others = [{"name": s, "data": {"where": {"site": s}}} for s in "bc"]
    # The rows may be called so because they are public.
    marked = _of_sites(tmp_path, **of_one | {"owners": others})
    assert marked.only_group_of is None
    assert marked.labels is None
    alone = of_one | {"owners": [{"name": "all", "data": {"rows": "2000:"}}]}
    assert _of_sites(tmp_path, **alone, forecast={"group_column": "site"}).only_group_of is None


def test_a_named_column_holds_whatever_the_order_tells(tmp_path):
    drifting = {"trend": 0.9, "public": ":2000"}
    public = _of_sites(tmp_path, **drifting, forecast={"group_column": "site"})
    assert sorted(public.known) == ["at-a", "at-b", "at-c"]


@pytest.mark.parametrize("factor", [1, 1000])
def test_a_delta_that_no_error_reaches_is_told_of_whatever_the_targets_unit(
    study, tmp_path, factor
):
    """It counts in deviations, and one in the target's own unit was squared loss without a word."""
    table = pd.read_parquet(tmp_path / "mine.parquet")
    table.assign(y=table["y"] * factor).to_parquet(tmp_path / "mine.parquet")
    huber = {"theta_max": 1, "loss": "huber"}
    with pytest.warns(DoubtWarning, match=r"delta = 50: hardly an error reaches it"):
        prepare_public_side(study(model=huber | {"delta": 50}), base=tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepare_public_side(study(model=huber | {"delta": 0.5}), base=tmp_path)


def test_a_target_of_numbers_names_no_groups(study, tmp_path):
    with pytest.raises(InputError, match=r"group_column: 'y' is the target"):
        prepare_public_side(study(forecast={"group_column": "y"}), base=tmp_path)
