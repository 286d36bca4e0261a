"""How much of a model is kept, so that it tells records held out from it."""

from dataclasses import replace

import numpy as np
import pytest

from common.losses import LOSSES, Regulariser
from common.terms import Records
from learner.simulated.cross_validation import RIDGES, CrossValidation
from learner.simulated.problem import Problem

P = 4
SIGNS = np.array([1.0, -1.0, 1.0, 1.0])


def drawn(*, size, seed, n=60, loss="squared", box=9.0):
    """Records whose true model has coordinates of this size, and what they tell of others."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, P))
    noise = rng.normal(0, 1.0, n) if loss == "squared" else rng.logistic(size=n)
    targets = features @ (size * SIGNS) + noise
    if loss != "squared":
        targets = np.where(targets > 0, 1.0, -1.0)
    records = Records(features=features, targets=targets)
    regulariser = Regulariser(coefficient=1e-9)
    problem = Problem(loss=LOSSES[loss].example(), regulariser=regulariser, theta_max=box)
    return validation_of(problem, records)


def validation_of(problem, records):
    return CrossValidation(problem=problem, records=records, theta=problem.optimum(records))


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize(("size", "share"), [(0.0, 0.35), (0.1, 0.95), (3.0, 1.03)])
def test_a_shrunk_model_is_nearer_to_the_truth_in_the_mean(loss, size, share):
    errors = np.zeros(2)
    for seed in range(40):
        known = drawn(size=size, seed=seed, n=200, loss=loss)
        errors += [np.sum((m - size * SIGNS) ** 2) for m in (known.ridged, known.theta)]
    assert errors[0] / errors[1] < share


def test_it_is_the_ridge_regression_that_surely_tells_records_held_out_best():
    known = drawn(size=0.1, seed=8)
    models, losses = [], [[] for _ in RIDGES]

    def ridge(records, factor):
        x, y = records.features, records.targets
        gram = x.T @ x / len(y) + 1e-9 * np.eye(P)
        return np.linalg.solve(gram + factor * np.trace(gram) / P * np.eye(P), x.T @ y / len(y))

    for place, factor in enumerate(RIDGES):
        models.append(ridge(known.records, factor))
        for _, others, left in known.folds:
            losses[place] += ((left.targets - left.features @ ridge(others, factor)) ** 2).tolist()
    gains = np.array(losses[0]) - np.array(losses)
    errors = np.sqrt(gains.shape[1]) * gains.std(axis=1)
    best = int(np.argmax(gains.sum(axis=1) - 0.5 * errors))
    assert 0 < best < int(np.argmax(gains.sum(axis=1)))
    np.testing.assert_allclose(known.ridged, models[best], rtol=1e-6)


@pytest.mark.parametrize(("size", "most"), [(0.3, 3), (0.5, 1)])
def test_a_ridge_that_only_chance_favours_is_hardly_ever_taken(size, most):
    """The one that told records held out best made 7 and 2 of these 40 models much worse."""
    worse = 0
    for seed in range(40):
        known = drawn(size=size, seed=seed)
        shrunk, free = (np.sum((m - size * SIGNS) ** 2) for m in (known.ridged, known.theta))
        worse += bool(shrunk > 1.5 * free)
    assert worse <= most


def test_what_lies_far_outside_of_the_box_stays_at_its_edge_where_the_rest_is_shrunk():
    known = drawn(size=0.0, seed=4)
    # One coordinate is at an edge of a box that its model of no box is far beyond.
    far = known.records.targets + known.records.features @ np.array([9.0, 0, 0, 0])
    records = Records(features=known.records.features, targets=far)
    boxed = validation_of(replace(known.problem, theta_max=3.0), records)
    assert boxed.theta[0] == boxed.ridged[0] == 3.0
    assert np.abs(boxed.ridged).max() <= 3.0
    assert np.linalg.norm(boxed.ridged[1:]) < 0.9 * np.linalg.norm(boxed.theta[1:])


@pytest.mark.parametrize("box", [0.5, 1.0])
def test_a_model_of_classes_that_is_at_an_edge_is_shrunk_from_there(box):
    """Few records would have it outside, but those held out from it would not."""
    sure = drawn(size=0.6, seed=6, n=30, loss="logistic", box=box)
    assert sure.problem.at_edge(sure.theta).any()
    assert np.abs(sure.ridged).max() < 0.7 * box


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_few_records_are_enough(loss, n):
    known = drawn(size=1.0, seed=1, n=n, loss=loss)
    assert np.all(np.isfinite(known.ridged))
    assert np.abs(known.ridged).max() <= known.problem.theta_max
    if n == 1:
        np.testing.assert_array_equal(known.ridged, known.theta)


def test_records_of_one_fold_are_not_among_those_that_its_model_knows():
    known = drawn(size=1.0, seed=2, n=23)
    for model, others, left in known.folds:
        assert len(others) + len(left) == 23
        np.testing.assert_array_equal(model, known.problem.optimum(others))
        assert not set(map(tuple, others.features)) & set(map(tuple, left.features))
