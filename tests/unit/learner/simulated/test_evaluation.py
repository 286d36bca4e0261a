"""Optima against certificates and independent solvers."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog
from sklearn.svm import LinearSVC

from common.errors import InputError
from common.losses import LOSSES, Huber, Regulariser
from common.terms import Records
from learner.simulated.evaluation import Evaluation, union
from learner.simulated.problem import Problem


def make_records(n=300, p=4, *, classes=True, seed=1):
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.normal(size=(n, p - 1)), np.ones(n)])
    z = x @ rng.uniform(-1, 1, p) + rng.normal(0, 0.7, n)
    return Records(features=x, targets=np.where(z > 0, 1.0, -1.0) if classes else z)


def problem_of(name, c, theta_max=50.0):
    return Problem(
        loss=LOSSES[name].example(), regulariser=Regulariser(coefficient=c), theta_max=theta_max
    )


def best(records, name, c, theta_max=50.0):
    problem = problem_of(name, c, theta_max)
    theta = problem.optimum(records)
    return theta, problem.fitness(theta, records)


def test_squared_optimum_is_the_closed_form():
    records = make_records(classes=False)
    x, y, c = records.features, records.targets, 0.01
    theta, _ = best(records, "squared", c)
    expected = np.linalg.solve(x.T @ x / len(y) + c * np.eye(4), x.T @ y / len(y))
    assert theta == pytest.approx(expected, rel=1e-11)


def test_squared_optimum_without_regulariser_copes_with_dependent_features():
    records = make_records(classes=False)
    twice = replace(records, features=np.hstack([records.features] * 2))
    assert best(twice, "squared", 0.0)[1] == pytest.approx(best(records, "squared", 0.0)[1])


@pytest.mark.parametrize("name", [name for name, kind in LOSSES.items() if kind.curvature])
@pytest.mark.parametrize("theta_max", [0.1, 0.4, 50.0])
@pytest.mark.parametrize("c", [1e-5, 0.5])
def test_smooth_optima_keep_the_conditions_of_the_box(name, theta_max, c):
    records = make_records(classes=LOSSES[name].has_classes())
    theta, _ = best(records, name, c, theta_max)
    gradient = 2 * c * theta + LOSSES[name].example().mean_gradient(
        theta, records.features, records.targets
    )
    inside = np.abs(theta) < theta_max * (1 - 1e-9)
    assert np.all(np.abs(theta) <= theta_max)
    assert np.max(np.abs(gradient[inside]), initial=0.0) < 1e-6
    assert np.all(gradient[~inside] * np.sign(theta[~inside]) < 0)
    # The box holds the optimum back exactly when the free optimum is outside.
    free, _ = best(records, name, c)
    assert np.any(~inside) == (np.max(np.abs(free)) > theta_max)


def test_logistic_optimum_is_where_newtons_method_ends():
    records, c = make_records(), 1e-4
    x, y = records.features, records.targets
    newton = np.zeros(4)
    for _ in range(30):
        s = 1 / (1 + np.exp(-x @ newton))
        hessian = (x.T * (s * (1 - s))) @ x / len(y) + 2 * c * np.eye(4)
        gradient = x.T @ (s - (y + 1) / 2) / len(y) + 2 * c * newton
        newton = newton - np.linalg.solve(hessian, gradient)
    value = problem_of("logistic", c).fitness(newton, records)
    assert best(records, "logistic", c)[1] == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("c", [1e-5, 0.1])
@pytest.mark.parametrize("delta", [0.01, 0.3, 100.0])
def test_huber_optimum_is_where_newtons_method_ends(c, delta):
    """The Hessian counts the records within delta; the fitness is a polynomial while they stay."""
    records, loss = make_records(classes=False), Huber(delta=delta)
    x, y, g = records.features, records.targets, Regulariser(coefficient=c)
    problem = Problem(loss=loss, regulariser=g, theta_max=50.0)
    newton = np.linalg.lstsq(x, y, rcond=None)[0]
    for _ in range(60):
        inside = np.abs(x @ newton - y) <= delta
        hessian = (x.T * inside) @ x / len(y) + 2 * c * np.eye(4)
        step = np.linalg.solve(hessian, loss.mean_gradient(newton, x, y) + g.gradient(newton))
        before = problem.fitness(newton, records)
        while np.linalg.norm(step) > 1e-13 and (problem.fitness(newton - step, records) > before):
            step = 0.5 * step
        newton = newton - step
    ours = problem.optimum(records)
    values = [problem.fitness(theta, records) for theta in (ours, newton)]
    assert values[0] == pytest.approx(values[1], rel=1e-9)


@pytest.mark.parametrize("c", [0.5, 0.01])
def test_hinge_optimum_agrees_with_liblinear(c):
    records = make_records()
    machine = LinearSVC(
        loss="hinge",
        dual=True,
        C=1 / (2 * c * len(records)),
        fit_intercept=False,
        tol=1e-9,
        max_iter=1_000_000,
    ).fit(records.features, records.targets)
    value = problem_of("hinge", c).fitness(machine.coef_[0], records)
    ours = best(records, "hinge", c)[1]
    assert ours == pytest.approx(value, rel=1e-6)
    assert ours <= value * (1 + 1e-9)


@pytest.mark.parametrize("theta_max", [0.2, 1.0, 50.0])
def test_hinge_optimum_without_regulariser_is_the_linear_program(theta_max):
    records = make_records()
    n, p = records.features.shape
    Z = records.targets[:, None] * records.features
    program = linprog(
        np.concatenate([np.zeros(p), np.full(n, 1 / n)]),
        A_ub=np.hstack([-Z, -np.eye(n)]),
        b_ub=-np.ones(n),
        bounds=[(-theta_max, theta_max)] * p + [(0, None)] * n,
    )
    theta, value = best(records, "hinge", 0.0, theta_max)
    assert value == pytest.approx(program.fun, rel=1e-8)
    assert np.all(np.abs(theta) <= theta_max)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("theta_max", [0.3, 50.0])
def test_no_model_of_the_box_is_better_than_the_optimum(name, theta_max):
    records = make_records(classes=LOSSES[name].has_classes())
    evaluation = Evaluation(shards=[records], problem=problem_of(name, 1e-5, theta_max))
    rng = np.random.default_rng(2)
    for width in (1e-4, 1e-2, 1.0):
        near = evaluation.theta_optimal + rng.normal(0, width, (500, 4))
        psi = evaluation.relative_fitness(np.clip(near, -theta_max, theta_max))
        assert np.min(psi) > -1e-9


@pytest.mark.parametrize("theta_max", [0.2, 9.0])  # the box holds the optimum back, or not
@pytest.mark.parametrize("name", LOSSES)
def test_relative_fitness_is_its_definition_for_many_models_at_once(name, theta_max):
    shards = [make_records(80, classes=LOSSES[name].has_classes(), seed=s) for s in (3, 4)]
    problem = problem_of(name, 0.02, theta_max)
    evaluation = Evaluation(shards=shards, problem=problem)
    thetas = np.random.default_rng(5).uniform(-0.4, 0.4, (3, 7, 4))
    psi = evaluation.relative_fitness(thetas)
    assert psi.shape == (3, 7)
    for index in np.ndindex(3, 7):
        value = problem.fitness(thetas[index], union(shards))
        expected = value / evaluation.fitness_optimal - 1
        assert psi[index] == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_relative_fitness_does_not_lose_digits_near_the_optimum():
    records = make_records(classes=False)
    evaluation = Evaluation(shards=[records], problem=problem_of("squared", 1e-5))
    direction = np.array([1.0, -2.0, 0.5, 1.0])
    psi = evaluation.relative_fitness(evaluation.theta_optimal + np.outer([1e-2, 1e-8], direction))
    assert psi[1] == pytest.approx(1e-12 * psi[0], rel=1e-6)


def test_alone_is_each_owners_own_optimum_judged_on_the_union():
    shards = [make_records(40, classes=False, seed=s) for s in (6, 7, 8)]
    problem = problem_of("squared", 0.01, 2.0)
    evaluation = Evaluation(shards=shards, problem=problem)
    alone = evaluation.relative_fitness_alone
    assert alone.shape == (3,)
    assert np.all(alone > 0)
    own = problem.optimum(shards[1])
    assert alone[1] == pytest.approx(evaluation.fitness(own) / evaluation.fitness_optimal - 1)
    single = replace(evaluation, shards=shards[:1])
    assert single.relative_fitness_alone == pytest.approx([0.0], abs=1e-15)


def test_no_records_and_a_perfect_fit_are_refused():
    empty = Records(features=np.zeros((0, 2)), targets=np.zeros(0))
    perfect = Records(features=np.ones((2, 1)), targets=np.zeros(2))
    problem = problem_of("squared", 0.0, 1.0)
    with pytest.raises(InputError, match="no records"):
        problem.optimum(empty)
    with pytest.raises(InputError, match="not defined"):
        Evaluation(shards=[perfect], problem=problem).relative_fitness(np.zeros(1))


# Of hinge loss only the records count whose margin lies between two models: a few near theta*.
@pytest.mark.parametrize(
    ("name", "distance", "error"),
    [
        ("logistic", 1e-3, 0.15),
        ("logistic", 0.1, 0.15),
        ("logistic", 3.0, 0.15),
        ("hinge", 0.1, 0.5),
        ("hinge", 3.0, 0.15),
    ],
)
def test_a_long_run_is_looked_at_in_a_sample_that_is_right_near_the_optimum_too(
    monkeypatch, name, distance, error
):
    evaluation = Evaluation(
        shards=[make_records(n=3000, seed=seed) for seed in (31, 32)],
        problem=problem_of(name, 0.05),
    )
    rng = np.random.default_rng(33)
    models = evaluation.theta_optimal + distance * rng.normal(size=(200, 4))
    exact = evaluation.relative_fitness(models)
    assert np.array_equal(evaluation.relative_fitness_along(models), exact)
    monkeypatch.setattr("learner.simulated.evaluation.ALONG", 100_000)
    monkeypatch.setattr("learner.simulated.evaluation.FEWEST_RECORDS", 2_000)
    sampled = evaluation.relative_fitness_along(models)
    assert sampled == pytest.approx(exact, rel=error)
    # The difference of two sample means would be off by more than what it tells.
    assert not np.array_equal(sampled, exact)


def test_of_a_very_long_run_the_models_between_are_not_looked_at(monkeypatch):
    evaluation = Evaluation(shards=[make_records()], problem=problem_of("logistic", 0.05))
    models = np.random.default_rng(34).normal(size=(100, 4))
    monkeypatch.setattr("learner.simulated.evaluation.ALONG", 1_000)
    monkeypatch.setattr("learner.simulated.evaluation.MOST_MODELS", 11)
    psi = evaluation.relative_fitness_along(models)
    assert np.isfinite(psi).sum() == 11
    assert np.isfinite(psi[[0, -1]]).all()
    # All records were looked at, since there are so few.
    known = np.isfinite(psi)
    assert psi[known] == pytest.approx(evaluation.relative_fitness(models[known]), rel=1e-9)
