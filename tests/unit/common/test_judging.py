"""Models are judged in raw units, beside each other, and clamps are told from noise."""

from dataclasses import replace
from io import StringIO

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from common.best_fit import fit_near
from common.errors import InputError
from common.judged_text import in_words, quality_sentences, show_judged
from common.judging import judge, sample_of
from common.quality import Estimate
from common.texts import number_words


def fitted(model, table):
    records = model.feature_map.apply(table, where="table")
    zero = np.zeros(model.feature_map.num_features)
    return replace(model, theta=fit_near(records, model.loss, center=zero, weight=1e-6))


@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge"])
def test_a_fitted_model_is_better_than_another_and_says_by_how_much(
    make_model, strange_table, loss
):
    model = fitted(make_model(loss), strange_table)
    sample = sample_of(model, strange_table, where="table")
    x = sample.records.features
    assert model.public_theta is not None
    judged = judge(
        sample, {"common": model.margins(x), "public": model.margins(x, model.public_theta)}
    )
    gap = judged.better_by["public"]
    common, public = (judged.models[name][judged.main].value for name in ("common", "public"))
    assert common is not None
    assert public is not None
    less_is_better = loss != "hinge"
    assert gap.value == pytest.approx(public - common if less_is_better else common - public)
    assert gap.low is not None
    assert gap.low > 0
    assert judged.main in judged.as_json()["models"]["common"]


def test_rmse_is_in_the_units_of_the_target(make_model, strange_table):
    model = make_model()
    sample = sample_of(model, strange_table, where="table")
    judged = judge(sample, {"common": model.margins(sample.records.features)})
    off = model.predictions(strange_table, where="table")["prediction"] - strange_table["y"]
    assert judged.models["common"]["rmse"].value == pytest.approx(np.sqrt(np.mean(off**2)))


def test_clamping_costs_where_records_lie_beyond_the_bounds(make_model):
    rng = np.random.default_rng(2)
    amount = np.concatenate([rng.gamma(2.0, 10.0, size=900), rng.uniform(300, 900, size=100)])
    table = pd.DataFrame(
        {"amount": amount, "is new": 0.0, "grade": "A", "code": "7", "when": "2010-01-15"}
    )
    table["y"] = 3 * amount + rng.normal(size=1000)
    judged = judge(sample_of(make_model(), table, where="t"), {"common": np.zeros(1000)})
    assert judged.clamping.unclamped < 5 < 100 < judged.clamping.clamped
    far = replace(judged, clamping=replace(judged.clamping, clamped=26061.2))
    assert "has RMSE 26,061 within the public bounds" in quality_sentences(far)[-1]
    near = table[table["amount"] < 30]
    judged = judge(sample_of(make_model(), near, where="t"), {"common": np.zeros(len(near))})
    assert judged.clamping.clamped < 2 * judged.clamping.unclamped


def test_of_classes_without_probabilities_clamping_costs_records_that_are_told_rightly(make_model):
    """The larger the better: nearly all are told where nothing is clamped, and half beyond it."""
    amount = np.random.default_rng(2).uniform(300, 900, size=1000)
    others = {"is new": 0.0, "grade": "A", "code": "7", "when": "2010-01-15"}
    classes = np.where(amount > 600, "late", "paid")
    table = pd.DataFrame({"amount": amount, "class": classes} | others)
    model = make_model("hinge")
    sample = sample_of(model, table, where="table")
    judged = judge(sample, {"common": model.margins(sample.records.features)})
    assert judged.clamping.measure == "accuracy"
    assert judged.clamping.clamped < 0.6
    assert judged.clamping.unclamped > 0.95


def test_records_without_a_target_are_left_out_and_counted(make_model, strange_table):
    table = strange_table.copy()
    table.loc[:9, "y"] = np.nan
    sample = sample_of(make_model(), table, where="t")
    assert (len(sample), sample.without_target) == (990, 10)
    with pytest.raises(InputError, match="no record has a readable target 'y'"):
        sample_of(make_model(), table.loc[:9], where="t")
    with pytest.raises(InputError, match=r"t\.csv: no column 'y'"):
        sample_of(make_model(), table.drop(columns="y"), where="t.csv")
    with pytest.raises(InputError, match=r"no column 'y', .* on; did you mean 'Y'\?; give a table"):
        sample_of(make_model(), table.rename(columns={"y": "Y"}), where="t.csv")


def test_classes_that_are_swapped_in_a_table_are_doubted(make_model, strange_table):
    model = make_model("logistic")
    sample = sample_of(model, strange_table, where="t")
    right = sample.raw_targets + np.random.default_rng(0).normal(size=len(sample))
    told = "\n".join(quality_sentences(judge(sample, {"common": right, "public": right})))
    assert "AUC is below" not in told
    told = "\n".join(quality_sentences(judge(sample, {"common": -right, "public": -right})))
    assert "AUC is below 0.5: what is predicted to be class = late mostly is not; look" in told
    # One model alone may be a bad one.
    told = "\n".join(quality_sentences(judge(sample, {"common": -right, "public": right})))
    assert "AUC is below" not in told


def test_large_numbers_are_written_out_in_tables():
    assert (
        in_words(Estimate(value=72963.2, low=70810.0, high=-2600.4)) == "72,963 (70,810 to -2,600)"
    )


def test_a_difference_that_may_be_chance_is_no_verdict(make_model, strange_table):
    rng = np.random.default_rng(0)
    model = make_model()
    sample = sample_of(model, strange_table.assign(y=rng.normal(size=len(strange_table))), where="")
    chance = rng.normal(size=(2, len(sample)))
    judged = judge(sample, {"common": chance[0], "public": chance[1], "own": 9.0 + chance[0]})
    gap = judged.better_by["public"]
    assert gap.low is not None
    assert gap.high is not None
    assert gap.low < 0 < gap.high
    public, own = (line for line in quality_sentences(judged) if line.startswith("The common"))
    assert public.startswith("The common model cannot be told from the public one in RMSE: here it")
    assert own.startswith("The common model is better by ")


def test_one_record_says_worse_and_not_better_by_less_than_nothing(make_model, strange_table):
    model = make_model()
    sample = sample_of(model, strange_table[:1].assign(y=5.0), where="table")
    best = sample.records.targets
    judged = judge(sample, {"common": best + 0.1, "public": best})
    (said,) = [line for line in quality_sentences(judged) if line.startswith("The common model is")]
    assert "worse by " in said
    assert "-" not in said


@pytest.mark.parametrize(("num", "is_told"), [(3, True), (20, False)])
def test_few_records_are_said_to_say_little(make_model, strange_table, num, is_told):
    sample = sample_of(make_model(), strange_table.head(num), where="t")
    told = quality_sentences(judge(sample, {"common": np.zeros(len(sample))}))
    assert any("So few records say little" in line for line in told) == is_told


@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge"])
def test_what_needs_no_model_stands_beside_each(make_model, strange_table, loss):
    """A model that says the same of every record has those measures."""
    model = make_model(loss)
    sample = sample_of(model, strange_table, where="table")
    targets, count = sample.raw_targets, len(sample)
    if loss == "squared":
        rule = model.feature_map.target
        same = (np.mean(targets) - rule.center) / rule.scale
    else:
        share = np.mean(targets > 0)
        same = np.log(share / (1 - share)) if loss == "logistic" else share - 0.5
    judged = judge(sample, {"common": np.full(count, same)})
    assert judged.guess.keys() <= judged.models["common"].keys()
    assert judged.main in judged.guess
    for measure, guess in judged.guess.items():
        assert judged.models["common"][measure].value == pytest.approx(guess, abs=1e-9)
    told = StringIO()
    show_judged(judged, Console(file=told, width=200), as_json=False)
    assert "always the same" in told.getvalue()
    shown = {
        line.split()[0]: line.split()[-1] for line in told.getvalue().splitlines() if line.strip()
    }
    assert shown[{"rmse": "RMSE", "log_loss": "log", "accuracy": "accuracy"}[judged.main]] == (
        number_words(judged.guess[judged.main])
    )


@pytest.mark.parametrize(("num", "is_told"), [(3, True), (19, True), (20, False), (0, False)])
def test_few_records_of_a_class_are_said_to_make_intervals_too_short(
    make_model, strange_table, num, is_told
):
    """Of three positives among 1,000, the interval of the log loss holds in 87 of 100 tables."""
    model = make_model("logistic")
    sample = sample_of(model, strange_table, where="t")
    judged = judge(sample, {"common": np.zeros(len(sample))})
    for positives in (num, len(sample) - num):
        told = "\n".join(quality_sentences(replace(judged, positives=positives)))
        assert (f"The rarer class has only {num} records here" in told) == is_told
