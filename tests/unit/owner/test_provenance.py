"""Bounds that were taken from private records: found where they can be, and refused."""

from pathlib import Path

import pytest
from maps import map_of

from common.errors import InputError, PrivacyLeakWarning
from common.tables import TableSource, count_shared_rows
from learner.planning.public_side import prepare_public_side
from learner.planning.settings import StudySettings
from owner.provenance import bounds_in_words, check_provenance, was_fitted_on
from owner.server import start_owner


def test_a_map_fitted_on_exactly_an_owners_records_is_recognised(table_maker, feature_map):
    records = table_maker(300, seed=7)
    own = map_of(records)
    assert was_fitted_on(own, records)
    assert not was_fitted_on(own, records.iloc[1:])
    assert not was_fitted_on(feature_map, records)


def test_private_bounds_are_refused_and_named(table_maker):
    records = table_maker(300, seed=7)
    own = map_of(records)
    told = own.model_copy(update={"source_kind": "private"})
    for leaking in (own, told):
        with pytest.raises(InputError, match="column-0, column-1, column-2, of the target y"):
            check_provenance(leaking, records, where="f.json", allow_private_bounds=False)
        with pytest.warns(PrivacyLeakWarning, match="no epsilon holds"):
            check_provenance(leaking, records, where="f.json", allow_private_bounds=True)


def test_records_do_not_decide_whether_a_map_is_served(owner_folder, table_maker):
    """Else who knows all but one, and writes the map for a guess, would see whether it is right."""
    records = table_maker(300, seed=7)
    neighbour = records.copy()
    neighbour.iloc[0] += 1.0
    guess = map_of(records)
    with pytest.warns(PrivacyLeakWarning, match="statistics of exactly this owner's records"):
        start_owner(
            owner_folder("a", table=records, pinned=guess), listen=None, insecure_noise_seed=None
        ).drain(grace=0.1)
    start_owner(
        owner_folder("b", table=neighbour, pinned=guess), listen=None, insecure_noise_seed=None
    ).drain(grace=0.1)


def test_serving_private_bounds_needs_the_flag(owner_folder, table_maker):
    records = table_maker(300, seed=7)
    own = map_of(records, private=True)
    path = owner_folder(table=records, pinned=own)
    with pytest.raises(InputError, match="--allow-private-bounds"):
        start_owner(path, listen=None, insecure_noise_seed=None)
    with pytest.warns(PrivacyLeakWarning):
        running = start_owner(
            path, listen=None, insecure_noise_seed=None, allow_private_bounds=True
        )
    running.drain(grace=0.1)


def test_many_columns_are_named_in_short(table_maker):
    wide = map_of(table_maker(300, seed=1, num_columns=9))
    assert bounds_in_words(wide).startswith("the bounds of column-0, ")
    assert "column-4 and 4 more" in bounds_in_words(wide)


@pytest.fixture
def study(tmp_path, table_maker):
    table_maker(600, seed=3).to_csv(tmp_path / "all.csv", index=False)
    table_maker(100, seed=4).to_csv(tmp_path / "other.csv", index=False)

    def make(public, owner):
        return StudySettings.model_validate(
            {
                "name": "s",
                "data": {"path": tmp_path / "all.csv"},
                "features": {"public": public, "target": "y"},
                "model": {"theta_max": 1.0},
                "algorithm": {"horizon": 10, "rho": 1.0},
                "privacy": {"epsilon": 1},
                "owners": [owner],
            }
        )

    return make


def test_public_rows_that_are_an_owners_warn_and_mark_the_map(study, tmp_path):
    settings = study({"rows": "-300:"}, {"name": "north", "data": {"rows": ":301"}})
    with pytest.warns(PrivacyLeakWarning, match="1 of its records are also owner north's"):
        assert prepare_public_side(settings, base=tmp_path).feature_map.source_kind == "private"
    linked = tmp_path / "link.csv"
    linked.symlink_to(tmp_path / "all.csv")
    settings = study({}, {"name": "north", "data": {"path": str(linked), "rows": "7:8"}})
    with pytest.warns(PrivacyLeakWarning, match="owner north's"):
        prepare_public_side(settings, base=tmp_path)


@pytest.mark.parametrize(
    "owner",
    [
        {"name": "north", "data": {"rows": ":300"}},
        {"name": "north", "data": {"path": "other.csv"}},
        {"name": "north", "address": "elsewhere:1"},
    ],
)
def test_public_rows_of_nobody_are_public(study, tmp_path, owner):
    settings = study({"rows": "-300:"}, owner)
    side = prepare_public_side(settings, base=tmp_path)
    assert side.feature_map.source_kind == "public"
    assert '"source_kind": "public"' in side.feature_map.to_json()


def test_shared_rows_are_counted_by_place_and_condition(tmp_path, table_maker):
    table = table_maker(40, seed=3)
    table["group"] = ["a", "b"] * 20
    table.to_parquet(tmp_path / "t.parquet")
    source = TableSource(path=Path("t.parquet"), rows="-20:")
    others = [
        TableSource(path=Path("t.parquet"), where={"group": "a"}),
        TableSource(path=Path("t.parquet"), rows=":20"),
        TableSource(path=Path("absent.parquet")),
    ]
    assert count_shared_rows(source, others, base=tmp_path) == [10, 0, 0]
