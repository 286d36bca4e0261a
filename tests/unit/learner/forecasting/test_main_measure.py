"""A forecast in the target's units is what models have on records like the public ones."""

import math

import numpy as np
import pytest

from common.fitting import TargetRule
from common.losses import Hinge, Huber, Logistic, Regulariser, Squared
from common.terms import Records
from learner.forecasting.main_measure import expected_quality
from learner.simulated.groups import PublicGroups
from learner.simulated.problem import Problem

FEATURES, PUBLIC, OTHERS, BOUND = 6, 400, 200_000, 1.5
DAYS = TargetRule(name="days", center=5.0, scale=4.0, bound=BOUND, fill=0.0)
ILL = TargetRule(name="ill", positive="yes", bound=1.0, fill=-1.0)
NEAR = 0.05


def numbers(rng, count):
    """Records whose targets are mostly within their bounds, and these in days."""
    x = rng.uniform(-1, 1, (count, FEATURES))
    y = x @ np.linspace(-0.5, 0.5, FEATURES) + 0.8 * rng.standard_normal(count)
    return Records(features=x, targets=np.clip(y, -BOUND, BOUND)), y * DAYS.scale + DAYS.center


def classes(rng, count):
    """Records of two classes, and these."""
    x = rng.uniform(-1, 1, (count, FEATURES))
    chance = 1 / (1 + np.exp(-x @ np.linspace(-2, 2, FEATURES)))
    y = np.where(rng.random(count) < chance, 1.0, -1.0)
    return Records(features=x, targets=y), y


def problem(loss):
    return Problem(loss=loss, regulariser=Regulariser(coefficient=1e-5), theta_max=9.0)


def measured(kind, theta, others, raw):
    margins = others.features @ theta
    if kind == "log_loss":
        return float(np.mean(np.log1p(np.exp(-raw * margins))))
    return float(np.sqrt(np.mean((margins * DAYS.scale + DAYS.center - raw) ** 2)))


@pytest.mark.parametrize(
    ("loss", "draw", "rule", "measure"),
    [(Squared(), numbers, DAYS, "rmse"), (Logistic(), classes, ILL, "log_loss")],
)
def test_each_model_has_that_on_records_like_the_public_ones(loss, draw, rule, measure):
    """In the mean of public tables; without the chance of the best model it is 1.5 % too good."""
    rng = np.random.default_rng(3)
    others, raw_others = draw(rng, OTHERS)
    best = problem(loss).optimum(others)
    direction = rng.standard_normal(FEATURES)
    theta = best + 0.4 * direction / np.linalg.norm(direction)
    fitness = [problem(loss).fitness(one, others) for one in (best, theta)]
    psi = fitness[1] / fitness[0] - 1
    founds = []
    for _ in range(40):
        records, raw = draw(rng, PUBLIC)
        groups = PublicGroups(problem=problem(loss), records=records, labels=None)
        founds.append(expected_quality(groups, raw, rule, fitness=(psi, 0.0, 2 * psi, psi / 2)))
    assert {one.measure for one in founds} == {measure}
    assert {one.target for one in founds} == {rule.name}
    found = {name: np.mean([getattr(one, name) for one in founds]) for name in ("best", "common")}
    # Root or not, the mean of 40 has a standard error of about half a percent.
    assert found["best"] == pytest.approx(measured(measure, best, others, raw_others), rel=0.013)
    assert found["common"] == pytest.approx(measured(measure, theta, others, raw_others), rel=0.02)
    for one in founds:
        assert one.best == one.interval_90[0] < one.public < one.common < one.interval_90[1]
        assert one.common < one.guess


def test_the_best_model_of_all_is_not_as_good_as_the_public_one_seems_on_its_own_records():
    """Of as many features as half of the records, chance is most of what is left."""
    rng = np.random.default_rng(4)
    seemed, found = [], []
    for _ in range(40):
        records, raw = numbers(rng, 3 * FEATURES)
        groups = PublicGroups(problem=problem(Squared()), records=records, labels=None)
        one = expected_quality(groups, raw, DAYS, fitness=(0.0, 0.0, 0.0, 0.0))
        found.append(one.best)
        seemed.append(measured("rmse", groups.theta_optimal, records, raw))
    others, raw_others = numbers(rng, OTHERS)
    true = measured("rmse", problem(Squared()).optimum(others), others, raw_others)
    assert np.mean(seemed) < (1 - 2 * NEAR) * true
    assert np.mean(found) > np.mean(seemed) + NEAR * true


@pytest.mark.parametrize("n", [12, 18, 60])
def test_the_chance_in_the_public_model_is_taken_off_however_few_records_there_are(n):
    """Of p features n records make it sigma^2 p/n too good in the mean."""
    rng, sigma = np.random.default_rng(7), 0.8
    rule = DAYS.model_copy(update={"bound": 99.0})
    best = []
    for _ in range(400):
        x = rng.uniform(-1, 1, (n, FEATURES))
        y = x @ np.linspace(-0.5, 0.5, FEATURES) + sigma * rng.standard_normal(n)
        groups = PublicGroups(
            problem=problem(Squared()), records=Records(features=x, targets=y), labels=None
        )
        raw = y * rule.scale + rule.center
        best.append(expected_quality(groups, raw, rule, fitness=(0.0, 0.0, 0.0, 0.0)).best)
    assert np.mean(np.square(best)) == pytest.approx((sigma * rule.scale) ** 2, rel=0.08)


@pytest.mark.parametrize("loss", [Hinge(), Huber(delta=0.5)])
def test_a_loss_that_determines_no_measure_has_none(loss):
    draw, rule = (classes, ILL) if loss.has_classes() else (numbers, DAYS)
    records, raw = draw(np.random.default_rng(5), PUBLIC)
    groups = PublicGroups(problem=problem(loss), records=records, labels=None)
    assert expected_quality(groups, raw, rule, fitness=(0.1, 0.0, 0.2, 0.1)) is None


def test_targets_that_are_missing_or_too_large_are_no_numbers_of_a_forecast():
    records, raw = numbers(np.random.default_rng(6), PUBLIC)
    groups = PublicGroups(problem=problem(Squared()), records=records, labels=None)
    fitness = (0.1, 0.0, 0.2, 0.1)
    whole = expected_quality(groups, raw, DAYS, fitness=fitness)
    few = np.where(np.arange(PUBLIC) < 5, np.nan, raw)
    assert expected_quality(groups, few, DAYS, fitness=fitness).best == pytest.approx(
        whole.best, rel=NEAR
    )
    unread = np.where(np.arange(PUBLIC) < 5, math.inf, raw)
    assert expected_quality(groups, unread, DAYS, fitness=fitness).best < math.inf
    giant = np.where(np.arange(PUBLIC) < 5, 1e200, raw)
    assert expected_quality(groups, giant, DAYS, fitness=fitness) is None
    assert expected_quality(groups, np.full(PUBLIC, np.nan), DAYS, fitness=fitness) is None
