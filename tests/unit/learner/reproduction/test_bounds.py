"""The bounds hold, the corrections are needed, and a vacuous bound says so."""

import math
from dataclasses import replace

import numpy as np
import pytest

from common.losses import LOSSES, Regulariser
from common.terms import Records
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import draw_slots
from learner.reproduction.bounds import (
    Bound,
    Facts,
    average_weights,
    convex_bound,
    distance_bound,
    expected_mixing,
    fitness_bound,
    mixing_rate,
    noise_norms,
    smooth_bound,
)
from learner.reproduction.shapes import finite_shape, fit_constants, large_shape, privacy_sum
from learner.simulated.evaluation import Evaluation
from learner.simulated.problem import Problem
from learner.simulated.replicates import (
    Moments,
    laplace_noise,
    moment_gradients,
    run_replicates,
)

P = 2


def facts(**changes):
    values = {
        "num_records": np.array([400.0, 600.0]),
        "epsilon": np.array([50.0, 100.0]),
        "gradient_bound": 3.0,
        "regulariser_bound": 2.0,
        "strong_convexity": 2.0,
        "num_features": P,
        "horizon": 60_000,
        "rho": 4e5,
        "theta_max": 1.0,
    }
    return Facts(**(values | changes))


@pytest.mark.parametrize("num_owners", [2, 3, 7, 20])
def test_lambda_is_the_second_eigenvalue_of_the_mean_and_the_printed_one_is_1(num_owners):
    values = np.sort(np.linalg.eigvalsh(expected_mixing(num_owners)))
    assert values[-1] == pytest.approx(1.0)
    assert values[-2] == pytest.approx(1.0 - 1.0 / (2 * num_owners))
    assert mixing_rate(num_owners) == pytest.approx(values[-2])
    e = np.zeros(num_owners + 1)
    e[0], e[-1] = 1.0, -1.0
    one_tick = np.eye(num_owners + 1) - np.outer(e, e) / 2
    centred = one_tick - np.full_like(one_tick, 1 / (num_owners + 1)) @ one_tick
    printed = np.linalg.norm(centred, 2) ** 2
    assert printed == pytest.approx(1.0)
    assert mixing_rate(num_owners, form="printed") == pytest.approx(printed)


def test_one_owner_mixes_at_once():
    assert np.sort(np.linalg.eigvalsh(expected_mixing(1))) == pytest.approx([0.0, 1.0])
    assert mixing_rate(1) == 0.0


def test_the_printed_bound_is_infinite_and_says_so():
    bound = distance_bound(facts(), form="printed")
    assert math.isinf(bound.value)
    assert bound.vacuous
    assert "vacuous" in bound.sentence


def test_nu_is_the_norm_of_the_noise_with_its_dimension():
    f = facts(num_features=5)
    n = f.num_records.sum()
    b = 2 * f.gradient_bound * f.horizon / (f.num_records * f.epsilon)
    draws = np.random.default_rng(1).laplace(size=(40_000, 2, 5)) * b[:, None]
    weighted = draws * (f.num_records / n)[:, None]
    measured = np.sqrt(np.mean(np.sum(weighted**2, axis=2), axis=0))
    assert noise_norms(f) == pytest.approx(measured, rel=0.02)
    assert noise_norms(f, form="printed") == pytest.approx(measured / math.sqrt(5), rel=0.02)


@pytest.fixture(scope="module")
def strongly_regular_study():
    """A study whose bound is not vacuous: strong convexity, small steps, little noise."""
    f = facts()
    rng = np.random.default_rng(2)
    shards = []
    for n_i, slope in zip(f.num_records.astype(int), ([0.6, -0.4], [0.2, 0.5]), strict=True):
        x = rng.uniform(-0.4, 0.4, (n_i, P))
        shards.append(Records(features=x, targets=x @ slope))
    regulariser = Regulariser(coefficient=f.strong_convexity / 2)
    loss = LOSSES["squared"]
    theta_max, b = f.theta_max, 2 * 0.4
    xi = 2 * (theta_max * b + 0.5) * b
    f = replace(f, gradient_bound=xi, regulariser_bound=f.strong_convexity * theta_max * P)
    problem = Problem(loss=loss, regulariser=regulariser, theta_max=theta_max)
    evaluation = Evaluation(shards=shards, problem=problem)
    algorithm = Asynchronous(
        weights=f.num_records / f.num_records.sum(),
        num_features=P,
        theta_max=theta_max,
        regulariser=regulariser,
        rho=f.rho,
        horizon=f.horizon,
    )
    scales = 2 * xi * f.horizon / (f.num_records * f.epsilon)
    slots = draw_slots(np.ones(2), horizon=f.horizon, replicates=8, rng=rng)
    models = run_replicates(
        algorithm,
        slots,
        gradients=moment_gradients(Moments.of(shards)),
        noise=laplace_noise(scales, num_features=P, rng=rng),
    ).central
    return f, models, evaluation


def test_the_corrected_bound_is_above_what_is_measured_where_it_is_not_vacuous(
    strongly_regular_study,
):
    f, models, evaluation = strongly_regular_study
    distance = np.sum((models - evaluation.theta_optimal) ** 2, axis=1).mean()
    cost = np.mean(evaluation.relative_fitness(models)) * evaluation.fitness_optimal
    bounds = distance_bound(f), fitness_bound(f)
    assert not bounds[0].vacuous
    assert distance < bounds[0].value < bounds[0].trivial
    assert cost < bounds[1].value
    # The models do move: a bound above nothing would show nothing.
    assert distance > 1e-6


def test_the_print_forgets_the_start():
    f = facts(rho=10.0)
    assert distance_bound(f).value > 0.9 * 3 * P * f.theta_max**2
    assert distance_bound(replace(f, rho=4e5)).value < 0.5 * 3 * P * f.theta_max**2


def test_bounds_fall_with_epsilon_and_records():
    f = facts(horizon=1000, rho=1e4)
    wealthier = replace(f, epsilon=2 * f.epsilon), replace(f, num_records=2 * f.num_records)
    for bound in (
        lambda g: distance_bound(g).value,
        lambda g: smooth_bound(g, convexity=1.0, smoothness=3.0).value,
        lambda g: convex_bound(g).value,
        lambda g: large_shape(g.num_records, g.epsilon, sqrt_term=1.0, linear_term=1.0),
        lambda g: finite_shape(
            g.num_records, g.epsilon, horizon=1000, sqrt_term=1.0, linear_term=1.0
        ),
    ):
        assert all(bound(g) < bound(f) for g in wealthier)


def test_the_finite_shape_tends_to_the_large_one():
    n, epsilon = np.array([10.0, 30.0]), np.array([1.0, 2.0])
    near = finite_shape(n, epsilon, horizon=10**9, sqrt_term=2.0, linear_term=3.0)
    far = large_shape(n, epsilon, sqrt_term=2.0 * math.sqrt(16), linear_term=3.0 * 16)
    assert near == pytest.approx(far, rel=1e-6)


def test_average_weights_are_those_of_the_algorithm():
    T = 7
    average, d = np.zeros(T), 1 / math.sqrt(T)
    for k in range(1, T + 1):
        average = (k - 1) / (d + k) * average + (d + 1) / (d + k) * np.eye(T)[k - 1]
    assert average_weights(T) == pytest.approx(average, rel=1e-12)
    growing = average_weights(200) * np.sqrt(np.arange(1, 201))
    assert np.all(np.diff(growing) >= 0)  # what the proof of convex_bound uses


def run_synchronous(f, x, y, step, rng, runs=60):
    """Projected synchronous steps with the study's noise; (models (T, R, p), averages (R, p))."""
    noise = 2 * f.gradient_bound * f.horizon / (f.num_records * f.epsilon)
    weights = f.num_records / f.num_records.sum()
    theta, models = np.zeros((runs, P)), []
    for k in range(1, f.horizon + 1):
        models.append(theta)
        w = (rng.laplace(size=(runs, weights.size, P)) * (noise * weights)[:, None]).sum(axis=1)
        gradient = 2 * (theta @ x.T - y) @ x / len(y) + 2 * theta * f.strong_convexity / 2
        theta = np.clip(theta - step(k) * (gradient + w), -f.theta_max, f.theta_max)
    models = np.array(models)
    return models, np.einsum("k,krp->rp", average_weights(f.horizon), models)


def test_synchronous_bounds_are_above_what_is_measured():
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (1000, P))
    y = x @ [0.5, -0.3]
    f = facts(horizon=100, gradient_bound=2 * (2 + 0.8) * 2.0, rho=1e4, strong_convexity=0.2)
    f = replace(f, regulariser_bound=0.2 * P)
    H = 2 * x.T @ x / 1000 + 0.2 * np.eye(P)
    smoothness, convexity = np.linalg.eigvalsh(H)[[-1, 0]]
    best = np.linalg.solve(H, 2 * x.T @ y / 1000)
    excess = lambda models: 0.5 * np.einsum("...i,ij,...j", models - best, H, models - best)  # noqa: E731
    f = replace(f, rho=f.horizon**2 / smoothness)
    models, _ = run_synchronous(f, x, y, lambda k: f.rho / (f.horizon**2 * k), rng)
    measured = excess(models).mean(axis=1).min()
    assert measured < smooth_bound(f, convexity=convexity, smoothness=smoothness).value
    c = 0.05
    _, averages = run_synchronous(f, x, y, lambda k: c / math.sqrt(k), rng)
    bound = convex_bound(f, initial_step=c)
    assert 0 < excess(averages).mean() < bound.value
    assert convex_bound(f).value <= bound.value


def test_fitting_finds_both_constants():
    rng = np.random.default_rng(4)
    n, S = rng.uniform(1e3, 1e5, 30), 10 ** rng.uniform(-2, 2, 30)
    x = np.sqrt(S) / n
    fitted = fit_constants(n, S, 0.9 * x + 600.0 * x**2)
    assert fitted.sqrt_term == pytest.approx(0.9, rel=1e-6)
    assert fitted.linear_term == pytest.approx(600.0, rel=1e-6)
    assert fitted.largest_misfit < 1e-6
    only_square = fit_constants(n, S, 600.0 * x**2 * np.exp(rng.normal(0, 0.01, 30)))
    assert only_square.sqrt_term * np.median(x) < 0.02 * 600.0 * np.median(x) ** 2


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"epsilon": np.array([1.0, 0.0])}, "epsilon"),
        ({"num_records": np.array([0.0, 1.0])}, "num_records"),
        ({"epsilon": np.array([1.0])}, "epsilon"),
        ({"gradient_bound": math.nan}, "gradient_bound"),
    ],
)
def test_impossible_facts_are_refused(changes, named):
    with pytest.raises(ValueError, match=named):
        facts(**changes)


def test_what_is_not_a_number_is_vacuous():
    assert Bound(value=math.nan, trivial=1.0, what="x").vacuous
    assert privacy_sum(np.array([2.0])) == 0.25


def by_hand(**changes):
    """Numbers small enough for the papers' formulas on paper: N = 1, n = 8, p = 2, T = 4."""
    values = {
        "num_records": np.array([8.0]),
        "epsilon": np.array([2.0]),
        "gradient_bound": 1.0,
        "regulariser_bound": 1.0,
        "strong_convexity": 2.0,
        "horizon": 4,
        "rho": 0.16,
        "num_features": 2,
        "theta_max": 1.0,
    }
    return Facts(**(values | changes))


def test_the_distance_bound_is_the_formula_of_appendix_b():
    # nu = 2 sqrt(4) 1 4/(8 2) = 1, C = 2, B = 1 + (1 + 1/2)^2 = 3.25, alpha = 0.01.
    # c1 = 4/4 = 1, c2 = 2 4 sqrt(2)/4 = 2 sqrt(2); start 0.99^4 2 2 1 = 3.842...
    expected = 0.01 * 3.25 + 0.01 * 2 * math.sqrt(2) * math.sqrt(3.25) + 0.99**4 * 4
    assert distance_bound(by_hand()).value == pytest.approx(expected, rel=1e-12)
    # Printed: nu = 1/sqrt(2), no start; lambda = 0 for one owner in both forms.
    B = 1 + (1 + 1 / math.sqrt(8)) ** 2
    expected = 0.01 * B + 0.01 * 2 * math.sqrt(2) * math.sqrt(B)
    printed = distance_bound(by_hand(), form="printed").value
    assert printed == pytest.approx(expected, rel=1e-12)


def test_theorem_2_of_the_synchronous_paper_is_its_formula():
    # Printed 8 1 0.16 (1/4)/(0.5 64) = 0.01; corrected 4 2 3 in place of 8.
    options = {"convexity": 0.5, "smoothness": 3.0}
    assert smooth_bound(by_hand(), form="printed", **options).value == pytest.approx(0.01)
    assert smooth_bound(by_hand(), **options).value == pytest.approx(0.03)


def test_theorem_3_counts_the_noise_and_the_start():
    # G^2 = 4 + 8 2 (1 4/8)^2/4 = 5, D^2 = 2 2^2 = 8.
    weights = average_weights(4)
    k = np.arange(1, 5)
    for c in (0.1, 1.0):
        expected = 8 * weights[-1] * 2 / (2 * c) + c * 5 / 2 * np.sum(weights / np.sqrt(k))
        assert convex_bound(by_hand(), initial_step=c).value == pytest.approx(expected)
