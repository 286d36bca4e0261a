"""The public records as they could also have been, and the models that go with them."""

from dataclasses import replace

import numpy as np
import pytest

from common.losses import LOSSES, Regulariser
from common.terms import Records
from learner.simulated.problem import Problem
from learner.simulated.redraws import Redraws

P, DRAWS = 4, 300


def redraws_of(*, size, seed, n=60, loss="squared"):
    """Records whose true model has so large coordinates; their features have a curvature of I."""
    rng = np.random.default_rng(seed)
    x = np.linalg.qr(rng.normal(size=(n, P)))[0] * np.sqrt(n / 2.0)
    margins = x @ np.array([size, -size, size, size])
    noise = rng.normal(0, 0.5, n) if loss == "squared" else rng.logistic(size=n)
    targets = margins + noise
    if loss != "squared":
        targets = np.where(targets > 0, 1.0, -1.0)
    records = Records(features=x, targets=targets)
    regulariser = Regulariser(coefficient=1e-9)
    problem = Problem(loss=LOSSES[loss].example(), regulariser=regulariser, theta_max=9.0)
    return Redraws(problem=problem, records=records, theta=problem.optimum(records))


def bootstrap():
    """The weights of 60 records without a tilt."""
    drawn = np.random.default_rng(5).standard_exponential(60)
    alone = np.maximum(1.0 + np.sqrt(60 / (60 - P)) * (drawn - 1.0), 1e-9)
    return alone / alone.mean()


def models_of(redraws):
    """The weighted records' best models, shape (DRAWS, P)."""
    x, y = redraws.records.features, redraws.records.targets
    found = []
    for seed in range(DRAWS):
        weights = redraws.weights(rng=np.random.default_rng(seed))
        gram = (x.T * weights) @ x
        found.append(np.linalg.solve(gram, x.T @ (weights * y)))
    return np.array(found)


def test_a_model_far_beyond_chance_is_off_by_as_much_as_it_may_be():
    redraws = redraws_of(size=8.0, seed=9)
    n, x = 60, redraws.records.features
    weights = np.array([redraws.weights(rng=np.random.default_rng(k)) for k in range(DRAWS)])
    assert weights.min() > 0
    assert weights.mean(axis=1) == pytest.approx(np.ones(DRAWS), rel=1e-12)
    assert np.var(weights) == pytest.approx(n / (n - P), rel=0.15)
    # The mean excess fitness of weighted optima to first order, where the curvature is I.
    gradients = 2.0 * (x @ redraws.theta - redraws.records.targets)[:, None] * x
    pulls = weights @ gradients / n
    trace = np.mean(np.sum(gradients**2, axis=1))
    assert np.mean(np.sum(pulls**2, axis=1)) == pytest.approx(trace / (n - P), rel=0.15)


def test_what_is_chance_in_a_model_is_not_in_the_models_of_redrawn_records():
    sizes = []
    for seed in range(12):
        redraws = redraws_of(size=0.0, seed=seed)
        sizes.append(np.mean(models_of(redraws) ** 2) / np.mean(redraws.theta**2))
    # The bootstrap alone has twice the chance.
    assert np.mean(sizes) < 1.2


@pytest.mark.parametrize("told", [0.0, 2.0, 12.0])
def test_a_coordinate_is_redrawn_as_the_horseshoe_has_it(told):
    """The mean and variance of the true coordinate given the seen one, by the prior's integral."""
    redraws = redraws_of(size=3.0, seed=1, n=1000)
    known = redraws._coordinates
    scores, variance = known.scores, known.variances / (1000 - P)
    model = np.sqrt(told * variance)
    redraws = replace(redraws, theta=known.basis @ model)
    vars(redraws)["_coordinates"] = known
    models = []
    for seed in range(4 * DRAWS):
        weights = redraws.weights(rng=np.random.default_rng(seed))
        models.append(model - (weights @ scores) / 1000)
    # lambda = tan(a) is half-Cauchy for a uniform angle; kept is the square of its sine.
    kept = np.sin(np.linspace(0.0, np.pi / 2, 20_001)[1:-1]) ** 2
    likely = np.sqrt(1.0 - kept) * np.exp(-0.5 * (1.0 - kept) * told)
    mean, square = (np.average(kept**power, weights=likely) for power in (1, 2))
    standard = np.array(models) / np.sqrt(variance)
    assert standard.mean() == pytest.approx(mean * np.sqrt(told), abs=0.1)
    assert standard.var() == pytest.approx(mean + (square - mean**2) * told, rel=0.15)


def test_a_model_that_a_box_holds_back_is_as_sure_as_its_records_are():
    redraws = redraws_of(size=0.3, seed=4, n=1000)
    far = redraws.records.targets + 9.0 * redraws.records.features[:, 0]
    records = Records(features=redraws.records.features, targets=far)
    problem = replace(redraws.problem, theta_max=0.01)
    redraws = Redraws(problem=problem, records=records, theta=problem.optimum(records))
    known = redraws._coordinates
    draws = (redraws.weights(rng=np.random.default_rng(seed)) for seed in range(2 * DRAWS))
    moved = np.array([weights @ known.scores for weights in draws]) / 1000
    # Along what the box holds back the model of the box is no larger than its chance.
    assert abs(known.of(redraws.theta)[-1]) < np.sqrt(known.variances[-1] / 1000)
    assert np.var(moved[:, -1]) == pytest.approx(known.variances[-1] / (1000 - P), rel=0.2)


def test_records_without_chance_have_the_bootstrap_alone():
    redraws = redraws_of(size=3.0, seed=1)
    exact = redraws.records.features @ redraws.theta
    records = Records(features=redraws.records.features, targets=exact)
    theta = redraws.problem.optimum(records)
    weights = replace(redraws, records=records, theta=theta).weights(rng=np.random.default_rng(5))
    assert weights == pytest.approx(bootstrap(), rel=1e-4)


def test_a_model_of_classes_is_kept_as_far_as_it_is_beyond_chance():
    def away(size):
        """How far redrawn gradients move the model along itself, as a share of it."""
        redraws = redraws_of(size=size, seed=3, n=300, loss="logistic")
        scores = redraws._coordinates.scores
        model = redraws._coordinates.of(redraws.theta)
        draws = (redraws.weights(rng=np.random.default_rng(seed)) for seed in range(DRAWS))
        return -np.mean([weights @ scores @ model / 300 for weights in draws]) / (model @ model)

    assert away(0.0) < -0.15
    assert away(2.0) == pytest.approx(0.0, abs=0.1)


def test_a_loss_with_kinks_has_the_bootstrap_alone():
    redraws = redraws_of(size=0.0, seed=2, loss="hinge")
    weights = redraws.weights(rng=np.random.default_rng(5))
    np.testing.assert_array_equal(weights, bootstrap())


def test_equal_generators_redraw_equally():
    redraws = redraws_of(size=0.1, seed=2)
    first, again = (redraws.weights(rng=np.random.default_rng(7)) for _ in range(2))
    np.testing.assert_array_equal(first, again)
