"""Column rules: what public records decide, and that owners' columns follow it."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from common.errors import DoubtWarning, InputError
from common.fitting import ColumnRule, are_shares, fit_column
from common.map_fitting import fit_rotation
from common.target_fitting import fit_target

TARGETS = np.arange(100.0)


def fit(cells, **options):
    defaults = {"coverage": 1.0, "order": "target", "max_categories": 60, "categorical": False}
    column = pd.Series(cells, name="x")
    return fit_column(column, TARGETS[: len(column)], **{**defaults, **options})


def rule(cells, **options):
    fitted = fit(cells, **options)
    assert isinstance(fitted, ColumnRule)
    return fitted


def test_public_records_decide_the_kind():
    assert rule([" 36 months", " 60 months"] * 50).kind == "number"
    assert rule(["Dec-2011", "Jan-2010"] * 50).kind == "date"
    assert rule(["RENT", "OWN"] * 50).kind == "category"
    assert rule([1, 2] * 50, categorical=True).kind == "category"
    assert rule(["1"] * 48 + ["2"] * 48 + ["what?"] * 4).kind == "number"
    assert rule(["1"] * 45 + ["2"] * 45 + ["what?"] * 10).kind == "category"


@pytest.mark.parametrize("fit_on", [["36", "60"], [36, 60], [" 36 months", " 60 months"]])
@pytest.mark.parametrize(
    "owners",
    [
        ["36", "60"],
        [36, 60],
        [36.0, 60.0],
        ["36.0", "60.0"],
        [" 36 months", "60 months"],
        [Decimal(36), Decimal(60)],
    ],
)
def test_owners_columns_of_any_dtype_map_equally(fit_on, owners):
    fitted = rule(fit_on * 50)
    np.testing.assert_array_equal(fitted.standardised(pd.Series(owners)), [-1.0, 1.0])


def test_columns_that_say_nothing_are_left_out_with_a_reason():
    assert fit([None] * 100) == "no values"
    assert fit(["", "n/a"] * 50) == "no values"
    assert fit([1e300] * 100) == "only numbers beyond 1e+15"
    assert fit([1_600_000_000_000_000_000 + i for i in range(100)]) == "only numbers beyond 1e+15"
    assert fit([7] * 100) == "constant"
    assert fit(["n"] * 100) == "constant"
    assert fit([0] * 999 + [1], coverage=0.99) == "constant"
    assert fit([f"word {i}" for i in range(100)]) == "free text"
    assert fit([*"abc", "d"] * 25, max_categories=3) == "free text"
    assert rule([*"abc", " "] * 25, max_categories=3).codes.keys() == set("abc")


def test_numbers_are_clamped_to_the_central_public_values():
    fitted = rule(np.arange(100.0), coverage=0.9)
    assert (fitted.low, fitted.high, fitted.fill) == (4.95, 94.05, 49.5)
    cells = pd.Series([-1e9, np.inf, np.nan, 50.0])
    np.testing.assert_array_equal(fitted.clamped(cells), [4.95, 94.05, 49.5, 50.0])


@pytest.mark.parametrize("offset", [0, 1e9, -1e12, 999_999_999_999_000])
def test_a_column_far_from_0_is_read_as_one_near_it(offset):
    """As of readings that begin at a serial number: nine digits would make a constant of it."""
    near, there = rule(np.arange(100.0)), rule(offset + np.arange(100.0))
    cells = pd.Series([-5.0, 0.0, 49.5, 7.0, 99.0, 1e3])
    expected = near.standardised(cells)
    np.testing.assert_allclose(there.standardised(offset + cells), expected, atol=0.01)
    assert there.low < there.fill < there.high


def test_public_records_are_standardised():
    cells = np.random.default_rng(0).exponential(size=100)
    z = rule(cells, coverage=0.95).standardised(pd.Series(cells))
    assert abs(z.mean()) < 1e-7
    assert abs(z.std() - 1) < 1e-7


def test_codes_by_mean_lie_as_far_apart_as_the_means_do():
    """Mice of 20 g and 25 g and rats of 160 g had the codes 0, 1 and 2."""
    weights = {"mouse": 20.0, "vole": 25.0, "rat": 160.0}
    cells = pd.Series([*weights] * 200, name="species")
    targets = cells.map(weights).to_numpy(dtype=np.float64)
    options = {"coverage": 0.99, "max_categories": 9, "categorical": False}
    found = fit_column(cells, targets, order="mean", **options)
    assert isinstance(found, ColumnRule)
    mouse, vole, rat = (found.codes[name] for name in weights)
    assert mouse == found.low == 0.0
    assert rat == found.high == 4.0
    assert (vole - mouse) / (rat - mouse) == pytest.approx(5 / 140, rel=0.01)
    # The average record stands at the mean of all.
    assert found.unknown == found.fill == pytest.approx(np.mean([mouse, vole, rat]), rel=0.01)
    ranked = fit_column(cells, targets, order="target", **options)
    assert isinstance(ranked, ColumnRule)
    assert sorted(ranked.codes, key=ranked.codes.__getitem__) == [*weights]
    alike = fit_column(cells, np.ones(len(cells)), order="mean", **options)
    assert isinstance(alike, ColumnRule)
    assert len(set(alike.codes.values())) == 3


def test_codes_follow_the_mean_target():
    fitted = rule(["z"] * 50 + ["a"] * 50)
    assert fitted.codes == {"z": 0.0, "a": 3.0}
    assert {fitted.unknown, fitted.fill} == {1.0, 2.0}


def test_codes_follow_the_name_when_asked():
    fitted = rule(["z"] * 50 + ["a"] * 50, order="name")
    assert fitted.codes == {"a": 0.0, "z": 1.0}
    assert (fitted.unknown, fitted.fill) == (2.0, 3.0)


def test_unknown_and_missing_have_codes_of_their_own():
    fitted = rule(["z"] * 40 + ["a"] * 40 + [None] * 20)
    coded = fitted.clamped(pd.Series(["z", "a", "new", None, "Z"]))
    assert len(set(coded)) == 4
    assert coded[2] == coded[4] == fitted.unknown
    # Missing public records have the highest targets, so their code is the highest.
    assert coded[3] == fitted.fill == 3.0
    assert coded.min() == fitted.low


def test_a_rare_category_is_drawn_to_the_average():
    # One record of the highest target does not outrank forty that are high.
    fitted = rule(["low"] * 59 + ["high"] * 40 + ["rare"])
    assert fitted.codes["low"] < fitted.codes["rare"] < fitted.codes["high"]


def test_percent_signs_follow_the_public_column():
    signed = rule(["10.65%", "7.51%"] * 50)
    plain = rule([10.65, 7.51] * 50)
    shares = rule([0.1065, 0.0751] * 50)
    cells = pd.Series(["10.65%"])
    assert signed.raw(cells) == signed.raw(pd.Series([10.65])) == plain.raw(cells) == 10.65
    assert shares.raw(cells) == pytest.approx(0.1065)


@pytest.mark.parametrize(("larger", "shares"), [(0, True), (2, True), (8, False)])
def test_numbers_are_shares_where_hardly_any_is_larger(larger, shares):
    """Among 400 a few typed as 12 for 12 % do not make percents of the others."""
    cells = np.append(np.linspace(0.01, 0.9, 400 - larger), np.full(larger, 12.0))
    assert are_shares(pd.Series(cells)) is shares
    assert not are_shares(pd.Series([f"{100 * cell:.0f}%" for cell in cells]))


def test_target_has_mean_zero_and_unit_variance_within_its_bound():
    column = pd.Series([f"{value}%" for value in range(100)], name="y")
    fitted = fit_target(column, positive=None, coverage=0.9, where="public")
    scaled = fitted.scaled(fitted.raw(column))
    assert abs(scaled.mean()) < 1e-7
    assert np.mean(np.abs(scaled) < fitted.bound) == pytest.approx(0.9, abs=0.011)
    assert fitted.scaled(np.array([np.nan]))[0] == 0.0


@pytest.mark.parametrize("positive", [1, "1", 1.0, True])
def test_classes_are_minus_and_plus_one(positive):
    column = pd.Series(["0", "1", "1.0", "2", None], name="y")
    fitted = fit_target(column, positive=(positive,), coverage=0.9, where="public")
    np.testing.assert_array_equal(fitted.raw(column), [-1, 1, 1, -1, np.nan])
    np.testing.assert_array_equal(fitted.scaled(fitted.raw(column)), [-1, 1, 1, -1, -1])


@pytest.mark.parametrize(
    ("cells", "typed"),
    [
        (["a", "a", "b"], '["b"]'),
        ([1, 1], '["1"]'),
        ([None, None], '["VALUE"]'),
        (['the "b"', "a", "a"], r'["the \"b\""]'),
        ([*"abcdefg"], '["VALUE"]'),
        (["a" * 101, "b", "b"], '["VALUE"]'),
    ],
)
def test_targets_that_are_no_varying_numbers_are_refused(cells, typed):
    """The sentence has the setting of classes as one types it."""
    with pytest.raises(InputError, match="target 'y': expected numbers that vary") as refused:
        fit_target(pd.Series(cells, name="y"), positive=None, coverage=0.9, where="public")
    assert str(refused.value).endswith(f"class +1, such as features.positive = {typed}")


@pytest.mark.parametrize(
    ("cells", "share"), [([1e300, -1e300], "100%"), ([*range(1, 10), 1e16], "10%")]
)
def test_targets_too_large_to_be_read_are_refused(cells, share):
    # Without them the rule would be one of the few others.
    said = rf"target 'y': {share} of the values are beyond 1e\+15; give it in a larger unit"
    with pytest.raises(InputError, match=said):
        fit_target(pd.Series(cells, name="y"), positive=None, coverage=0.9, where="public")


def test_a_target_that_is_far_larger_than_it_varies_is_centred_on_its_mean():
    column = pd.Series(1234567890.123 + 1e-3 * np.arange(10.0), name="y")
    fitted = fit_target(column, positive=None, coverage=1.0, where="public")
    scaled = fitted.scaled(fitted.raw(column))
    assert abs(scaled.mean()) < 1e-3
    assert 1.5 < fitted.bound < 1.7


@pytest.mark.parametrize("cells", [["a", "a"], ["b", "b"]])
def test_classes_need_both_kinds(cells):
    with pytest.raises(InputError, match=r"no record (is of class -1|equals 'a'); the column has"):
        fit_target(pd.Series(cells, name="y"), positive="a", coverage=0.9, where="public")


def test_components_are_uncorrelated_and_ordered():
    rng = np.random.default_rng(1)
    z = rng.normal(size=(500, 4)) @ rng.normal(size=(4, 4))
    z = (z - z.mean(axis=0)) / z.std(axis=0)
    rotation = fit_rotation(z, components=3, whiten=False, where="public")
    assert np.all(rotation.max(axis=1) == np.abs(rotation).max(axis=1))
    plain = z @ rotation.T
    covariance = plain.T @ plain / 500
    assert np.all(np.diff(np.diag(covariance)) < 0)
    np.testing.assert_allclose(covariance, np.diag(np.diag(covariance)), atol=1e-12)
    white = z @ fit_rotation(z, components=None, whiten=True, where="public").T
    np.testing.assert_allclose(white.T @ white / 500, np.eye(4), atol=1e-9)


def test_more_components_than_directions_are_refused():
    z = np.random.default_rng(1).normal(size=(50, 2))
    with pytest.raises(InputError, match="components: got 3, expected at most 2"):
        fit_rotation(np.c_[z, z.sum(axis=1)], components=3, whiten=True, where="public")


def test_several_values_are_one_class():
    column = pd.Series([0, 1, "2.0", "", 4, 3], name="num")
    fitted = fit_target(column, positive=(4, 1, 2, 3), coverage=0.9, where="public")
    np.testing.assert_array_equal(fitted.raw(column), [-1, 1, 1, np.nan, 1, 1])
    # Their order says nothing, so it is no part of the map.
    assert fitted == fit_target(column, positive=(1, 2, 3, 4), coverage=0.9, where="public")
    alone = fit_target(column, positive=(1,), coverage=0.9, where="public")
    assert "also_positive" not in alone.model_dump()


def test_a_value_that_no_public_record_has_is_doubted():
    column = pd.Series(["yes", "no"], name="y")
    with pytest.warns(DoubtWarning, match="no public record of 'y' equals 'maybe'; correct it"):
        fit_target(column, positive=("yes", "maybe"), coverage=0.9, where="public")


def test_one_of_more_than_two_values_is_doubted():
    column = pd.Series([0, 0, 1, 2, 3, 4], name="num")
    with pytest.warns(DoubtWarning, match=r"positive = 1 makes .*'0' \(2\), '2' \(1\), .*\[1\] if"):
        fit_target(column, positive=1, coverage=0.9, where="public")


@pytest.mark.parametrize(
    ("positive", "why"),
    [
        (1, r"no record equals '1'; the column has 'no' \(2\) and 'yes' \(1\).*positive = 'yes'\?"),
        (("may", "be"), "no record equals 'be' or 'may'"),
        (("yes", "no"), "no record is of class -1"),
    ],
)
def test_values_that_make_no_two_classes_are_refused(positive, why):
    with pytest.raises(InputError, match=why):
        fit_target(
            pd.Series(["yes", "no", "no"], name="y"), positive=positive, coverage=0.9, where="p"
        )


def test_the_value_that_says_yes_is_proposed_and_not_the_rarer():
    """Who typed yes for truth values was told to type the one that says no."""
    column = pd.Series([True, True, False], name="ill")
    with pytest.raises(InputError, match=r"no record equals 'yes'; .*: positive = '1'\?"):
        fit_target(column, positive="yes", coverage=0.9, where="p")
    words = pd.Series(["Ja", "Ja", "Nein"], name="ill")
    with pytest.raises(InputError, match=r"such as features.positive = \[\"Ja\"\]"):
        fit_target(words, positive=None, coverage=0.9, where="p")


@pytest.mark.parametrize("positive", [1, 0])
def test_public_records_of_one_class_are_to_be_replaced_whatever_was_typed(positive):
    column = pd.Series([1, 1, 1], name="ill")
    with pytest.raises(InputError, match=r"'1' \(3\); give public records of both classes"):
        fit_target(column, positive=positive, coverage=0.9, where="p")
