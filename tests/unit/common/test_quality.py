"""Measures of quality are those of the textbooks, and intervals hold what they say."""

import numpy as np
import pytest
from scipy.stats import binomtest, norm
from sklearn import metrics

from common.quality import calibration, difference, estimates, measures

RNG = np.random.default_rng(3)
Y = RNG.normal(size=400)
NUMBERS = Y + RNG.normal(size=400)
CLASSES = np.where(RNG.random(400) < 0.3, 1.0, -1.0)
CHANCES = np.clip(np.round(0.3 + 0.2 * CLASSES + 0.2 * RNG.normal(size=400), 2), 0.01, 0.99)
ONES = np.ones(400)


def test_measures_of_numbers_are_those_of_scikit_learn():
    found = {name: measure(ONES) for name, measure in measures(NUMBERS, Y, kind="number").items()}
    assert found["rmse"] == pytest.approx(metrics.root_mean_squared_error(Y, NUMBERS))
    assert found["mae"] == pytest.approx(metrics.mean_absolute_error(Y, NUMBERS))
    assert found["r2"] == pytest.approx(metrics.r2_score(Y, NUMBERS))
    assert found["calibration_bias"] == pytest.approx(np.mean(NUMBERS - Y))
    assert found["calibration_slope"] == pytest.approx(np.polyfit(NUMBERS, Y, 1)[0])


def test_measures_of_classes_are_those_of_scikit_learn():
    found = {
        name: one(ONES) for name, one in measures(CHANCES, CLASSES, kind="probability").items()
    }
    assert found["auc"] == pytest.approx(metrics.roc_auc_score(CLASSES, CHANCES))
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(CLASSES > 0, CHANCES > 0.5))
    assert found["log_loss"] == pytest.approx(metrics.log_loss(CLASSES > 0, CHANCES))


@pytest.mark.parametrize("kind", ["number", "probability", "score"])
def test_a_weight_of_two_is_a_record_twice(kind):
    outputs, targets = (NUMBERS, Y) if kind == "number" else (CHANCES, CLASSES)
    weights = RNG.integers(0, 3, size=400).astype(float)
    rows = np.repeat(np.arange(400), weights.astype(int))
    once = measures(outputs, targets, kind=kind)
    again = measures(outputs[rows], targets[rows], kind=kind)
    for name in set(once) - {"calibration_error"}:
        assert once[name](weights) == pytest.approx(again[name](np.ones(len(rows)))), name


def test_what_is_not_defined_is_none():
    rng = np.random.default_rng(1)
    same = measures(np.ones(9), np.ones(9), kind="number")
    found = estimates(same, 9, rng=rng)
    assert found["r2"].value is None
    assert found["rmse"].value == 0
    alone = estimates(measures(np.ones(5), np.ones(5), kind="score"), 5, rng=rng)
    assert alone["auc"].value is None
    one = estimates(measures(np.ones(1), np.zeros(1), kind="number"), 1, rng=rng)
    assert (one["rmse"].value, one["rmse"].low) == (1.0, None)


def test_intervals_cover_the_truth_as_often_as_they_say_and_no_more_often():
    rng = np.random.default_rng(4)
    covered = 0
    for _ in range(100):
        errors = rng.normal(size=200)
        of = {"rmse": measures(errors, np.zeros(200), kind="number")["rmse"]}
        found = estimates(of, 200, rng=rng)["rmse"]
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 1.0 <= found.high
    # 95 of 100, with a deviation of 2.2; a bootstrap of 200 records falls a little short.
    assert 87 <= covered <= 99


def test_a_difference_on_the_same_records_is_known_better_than_each_of_both():
    rng = np.random.default_rng(5)
    one = measures(NUMBERS, Y, kind="number")["rmse"]
    other = measures(NUMBERS + 0.1, Y, kind="number")["rmse"]
    gap = difference(one, other, 400, rng=rng)
    alone = estimates({"rmse": one}, 400, rng=rng)["rmse"]
    assert gap.low is not None
    assert gap.high is not None
    assert alone.low is not None
    assert alone.high is not None
    assert gap.high - gap.low < 0.3 * (alone.high - alone.low)


def test_calibration_has_every_record_once():
    bins = calibration(CHANCES, (CLASSES > 0).astype(float))
    assert sum(one.count for one in bins) == 400
    assert sum(one.count * one.predicted for one in bins) == pytest.approx(CHANCES.sum())
    assert [one.predicted for one in bins] == sorted(one.predicted for one in bins)


@pytest.mark.parametrize("off", [0.0, 0.03, 0.15])
def test_the_calibration_errors_interval_holds_it_and_covers_the_truth(off):
    """Of 200 tables with a known error at most 5 % miss it, and 3 deviations of that for chance."""
    rng = np.random.default_rng(11)
    missed = 0
    for _ in range(200):
        chances = rng.uniform(0.2, 0.8, 300)
        classes = np.where(rng.random(300) < chances + off, 1.0, -1.0)
        of = {"error": measures(chances, classes, kind="probability")["calibration_error"]}
        found = estimates(of, 300, rng=rng)["error"]
        assert found.value is not None
        assert found.low is not None
        assert found.high is not None
        assert 0 <= found.low <= found.value <= found.high
        missed += not found.low <= off <= found.high
    assert missed <= 200 * 0.05 + 3 * (200 * 0.05 * 0.95) ** 0.5


@pytest.mark.parametrize(("count", "right"), [(20, 0.95), (50, 0.99), (1000, 0.999), (100, 0.8)])
def test_the_interval_of_a_share_holds_it_also_where_hardly_a_record_is_wrong(count, right):
    rng = np.random.default_rng(5)
    held, trials = 0, 300
    for _ in range(trials):
        outputs = np.where(rng.random(count) < right, 1.0, -1.0)
        share = measures(outputs, np.ones(count), kind="score")["accuracy"]
        accuracy = estimates({"accuracy": share}, count, rng=rng)["accuracy"]
        assert 0 <= accuracy.low <= accuracy.value <= accuracy.high <= 1
        assert accuracy.low < accuracy.high
        held += accuracy.low <= right <= accuracy.high
    assert held >= 0.95 * trials - 3 * (trials * 0.95 * 0.05) ** 0.5


@pytest.mark.parametrize("spread", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("true", [0.7, 0.9, 0.99])
@pytest.mark.parametrize(("ones", "zeros"), [(2, 200), (5, 200), (20, 200), (30, 30), (200, 8)])
def test_the_interval_of_an_auc_covers_the_truth_where_a_class_is_small_or_hardly_ever_wrong(
    ones, zeros, true, spread
):
    rng = np.random.default_rng(7)
    classes = np.r_[np.ones(ones), -np.ones(zeros)]
    shift = norm.ppf(true) * (1.0 + spread**2) ** 0.5
    held, trials = 0, 200
    for _ in range(trials):
        outputs = np.r_[rng.normal(shift, spread, ones), rng.normal(size=zeros)]
        of = {"auc": measures(outputs, classes, kind="score")["auc"]}
        auc = estimates(of, len(classes), rng=rng)["auc"]
        assert 0 <= auc.low <= auc.value <= auc.high <= 1
        held += auc.low <= true <= auc.high
    assert held >= 0.95 * trials - 3 * (trials * 0.95 * 0.05) ** 0.5


def test_the_interval_of_an_auc_of_many_records_is_no_longer_than_that_of_draws():
    rng = np.random.default_rng(8)
    classes = np.where(rng.random(2000) < 0.3, 1.0, -1.0)
    of = measures(classes + rng.normal(size=2000), classes, kind="score")["auc"]
    found = estimates({"auc": of}, 2000, rng=rng)["auc"]
    drawn = estimates({"auc": of.__call__}, 2000, rng=rng)["auc"]
    assert found.high - found.low == pytest.approx(drawn.high - drawn.low, rel=0.2)


def test_an_auc_without_a_mistake_is_no_certain_one():
    classes = np.r_[np.ones(10), -np.ones(90)]
    for sign, end in ((1, "low"), (-1, "high")):
        of = {"auc": measures(sign * classes, classes, kind="score")["auc"]}
        auc = estimates(of, 100, rng=np.random.default_rng(1))["auc"]
        assert auc.value == (sign + 1) / 2
        # All of ten pairs without a common record are right with a chance of 2.5 % at most.
        assert abs(getattr(auc, end) - auc.value) >= 1.0 - 0.025 ** (1 / 10)


def test_four_records_of_which_one_model_alone_is_right_do_not_decide():
    # Of two models as good as each other, one is right on all four at every eighth time.
    targets, one = np.ones(100), np.ones(100)
    for apart, decides in ((4, False), (8, True)):
        other = np.where(np.arange(100) < apart, -1.0, 1.0)
        pair = [measures(of, targets, kind="score")["accuracy"] for of in (one, other)]
        for sign, ordered in ((1, pair), (-1, pair[::-1])):
            gap = difference(*ordered, 100, rng=np.random.default_rng(1))
            assert gap.value == pytest.approx(sign * apart / 100)
            assert gap.low <= gap.value <= gap.high
            assert (gap.low > 0 or gap.high < 0) is decides


@pytest.mark.parametrize(("count", "right"), [(1, 0), (1, 1), (30, 0), (30, 7), (400, 399)])
def test_the_interval_of_a_share_is_the_exact_one(count, right):
    targets = np.where(np.arange(count) < right, 1.0, -1.0)
    named = {"accuracy": measures(np.ones(count), targets, kind="score")["accuracy"]}
    found = estimates(named, count, rng=np.random.default_rng(1))["accuracy"]
    exact = binomtest(right, count).proportion_ci(0.95, method="exact")
    assert (found.low, found.high) == pytest.approx(exact)


def test_the_interval_of_two_shares_difference_adds_half_a_record_to_each_cell():
    """Of 50 records 20 are told rightly by one model alone, and 3 by the other alone."""
    targets, one, other = np.ones(50), np.ones(50), np.ones(50)
    one[:3] = other[3:23] = -1.0
    pair = (measures(each, targets, kind="score")["accuracy"] for each in (one, other))
    found = difference(*pair, 50, rng=np.random.default_rng(1))
    alone, beside = 20.5 / 52, 3.5 / 52
    reach = norm.ppf(0.975) * np.sqrt((alone + beside - (alone - beside) ** 2) / 52)
    assert found.value == pytest.approx(17 / 50)
    assert (found.low, found.high) == pytest.approx(
        (alone - beside - reach, alone - beside + reach), rel=1e-6
    )


@pytest.mark.parametrize("share", [0.05, 0.95])
def test_an_aucs_interval_is_the_same_whichever_class_is_called_positive(share):
    rng = np.random.default_rng(5)
    targets = np.where(rng.random(300) < share, 1.0, -1.0)
    outputs = 1.2 * targets + rng.normal(size=300)
    found = [
        estimates(
            {"auc": measures(sign * outputs, sign * targets, kind="score")["auc"]}, 300, rng=rng
        )["auc"]
        for sign in (1.0, -1.0)
    ]
    one, other = ((each.value, each.low, each.high) for each in found)
    assert one == pytest.approx(other, abs=1e-12)
    assert one[1] < one[0] < one[2]


def test_measures_are_told_in_their_own_order():
    outputs = np.array([0.2, 0.7, 0.9, 0.4])
    named = measures(outputs, np.array([-1.0, 1.0, 1.0, 1.0]), kind="probability")
    assert [*estimates(named, 4, rng=np.random.default_rng(1))] == [*named]
