"""Public records are coded as records that codes were not ordered by."""

import numpy as np
import pandas as pd
import pytest
from maps import map_of

from learner.planning.held_out import held_out_records


def table_of(records, categories, *, effect, seed):
    """Records of many categories, whose targets differ by the effect."""
    effects = effect * np.random.default_rng(1).standard_normal(categories)
    rng = np.random.default_rng(seed)
    drawn = rng.integers(categories, size=records)
    return pd.DataFrame(
        {
            "place": [f"place {c}" for c in drawn],
            "size": rng.uniform(-1, 1, records),
            "y": effects[drawn] + rng.standard_normal(records),
        }
    )


def weight_of_place(records):
    return float(np.linalg.lstsq(records.features, records.targets, rcond=None)[0][0])


@pytest.mark.parametrize("effect", [0.0, 0.7])
def test_a_model_of_public_records_believes_a_category_as_others_do(effect):
    public = table_of(3000, 400, effect=effect, seed=2)
    others = table_of(20_000, 400, effect=effect, seed=3)
    feature_map = map_of(public)
    honest = weight_of_place(held_out_records(feature_map, public, where="public"))
    inside = weight_of_place(feature_map.apply(public, where="public"))
    outside = weight_of_place(feature_map.apply(others, where="others"))
    assert inside > outside + 0.1
    assert honest == pytest.approx(outside, abs=0.04)


def test_only_codes_that_these_targets_ordered_change():
    public, others = (table_of(3000, 400, effect=0.7, seed=seed) for seed in (2, 3))
    by_name = map_of(public, category_order="name")
    few = table_of(3000, 10, effect=0.7, seed=4)
    for feature_map, table in ((by_name, public), (map_of(public), others), (map_of(few), few)):
        held_out = held_out_records(feature_map, table, where="public")
        assert np.array_equal(held_out.features, feature_map.apply(table, where="").features)


def test_a_category_of_one_record_stands_where_the_average_does():
    public = table_of(200, 400, effect=0.0, seed=2)
    public["place"] = [f"place {c}" for c in range(len(public))]
    feature_map = map_of(public, l1_coverage=1.0)
    codes = held_out_records(feature_map, public, where="public").features[:, 0]
    own = feature_map.apply(public, where="public").features[:, 0]
    assert np.ptp(codes) == 0
    assert np.mean(own < codes[0]) == pytest.approx(0.5, abs=0.1)


def test_where_a_fold_holds_a_category_alone_it_stands_at_the_average_of_classes_too():
    """The mean of two classes is far from 0, where a category of no records would stand."""
    rng = np.random.default_rng(2)
    places = [f"common {c}" for c in rng.integers(20, size=2000)] + [f"rare {c}" for c in range(40)]
    died = rng.uniform(size=len(places)) < 0.1
    public = pd.DataFrame({"place": places, "y": np.where(died, "died", "home")})
    feature_map = map_of(public, positive=["died"], l1_coverage=1.0)
    codes = held_out_records(feature_map, public, where="public").features[:, 0]
    common, rare = codes[:2000], codes[2000:]
    assert np.ptp(rare) == 0
    assert np.mean(common < rare[0]) == pytest.approx(0.5, abs=0.15)


def test_targets_numbers_and_bounds_stay():
    public = table_of(3000, 400, effect=0.7, seed=2)
    public.loc[::7, "place"] = None
    feature_map = map_of(public)
    held_out = held_out_records(feature_map, public, where="public")
    plain = feature_map.apply(public, where="public")
    assert np.array_equal(held_out.targets, plain.targets)
    # A record whose features are longer than the public bound is scaled down as a whole.
    short = np.abs(plain.features).sum(axis=1) < 0.9 * feature_map.domain.feature_l1_bound
    short &= np.abs(held_out.features).sum(axis=1) < 0.9 * feature_map.domain.feature_l1_bound
    assert np.array_equal(held_out.features[short, 1:], plain.features[short, 1:])
    missing = public["place"].isna().to_numpy() & short
    assert np.array_equal(held_out.features[missing], plain.features[missing])
    assert np.all(np.abs(held_out.features) <= feature_map.domain.feature_bound)
