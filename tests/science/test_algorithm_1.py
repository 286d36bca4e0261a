"""Algorithm 1 against a second, plain loop, and in the cases where its limit is known."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from common.losses import Regulariser, Squared
from common.terms import Records
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import PoissonClocks, each_alone, synchronous_rounds
from learner.algorithms.synchronous import SynchronousDescent
from learner.simulated.evaluation import Evaluation
from learner.simulated.problem import Problem

SQUARED = Squared()


def make_shards(sizes, p, seed):
    rng = np.random.default_rng(seed)
    truth = rng.uniform(-0.5, 0.5, p)
    shards = []
    for size in sizes:
        x = rng.normal(size=(size, p)) + rng.normal(0, 0.3, p)
        shards.append(Records(features=x, targets=x @ truth + rng.normal(0, 0.3, size)))
    return shards


def make_algorithm(shards, **changes):
    sizes = np.array([len(shard) for shard in shards], dtype=float)
    settings = {
        "weights": sizes / sizes.sum(),
        "num_features": shards[0].features.shape[1],
        "theta_max": 1.0,
        "regulariser": Regulariser(coefficient=0.01),
        "rho": 1.0,
        "horizon": 100,
    }
    return Asynchronous(**(settings | changes))


def with_step(algorithm, step):
    """The algorithm whose step N rho/(T^2 sigma) is this one."""
    return replace(algorithm, rho=algorithm.rho * step / algorithm.alpha)


def play(algorithm, ticks, shards, *, noise=None):
    """The models asked at and the state after each tick."""
    state, queries, states = algorithm.initial_state(), [], []
    for k, tick in enumerate(ticks):
        theta = algorithm.query_point(state, tick)
        answers = {
            i: SQUARED.mean_gradient(theta, shards[i].features, shards[i].targets)
            + (0.0 if noise is None else noise[k])
            for i in tick.owners
        }
        state = algorithm.apply_responses(state, tick, answers)
        queries.append(theta)
        states.append(state)
    return np.array(queries), states


def poisson_ticks(num_owners, count, seed):
    clocks = PoissonClocks(
        each_alone(num_owners), np.ones(num_owners), rng=np.random.default_rng(seed)
    )
    return list(itertools.islice(clocks, count))


def plain_loop(shards, owners_in_turn, noise, *, T, rho, c, theta_max, eta_n):
    """Equations (3) to (7) coordinate by coordinate; eta_n is what (7) multiplies by."""
    N, p = len(shards), shards[0].features.shape[1]
    n = sum(len(shard) for shard in shards)
    sigma = 2 * c
    central = [0.0] * p
    copies = [[0.0] * p for _ in range(N)]
    for k, i in enumerate(owners_in_turn):
        middle = [(central[j] + copies[i][j]) / 2 for j in range(p)]
        x, y = shards[i].features, shards[i].targets
        query = [0.0] * p
        for r in range(len(y)):
            residual = sum(x[r, j] * middle[j] for j in range(p)) - y[r]
            for j in range(p):
                query[j] += 2 * residual * x[r, j] / len(y)
        for j in range(p):
            answer = query[j] + noise[k][j]
            grad_g = 2 * c * middle[j]
            moved = middle[j] - N * rho / (T**2 * sigma) * (grad_g / (2 * N) + len(y) / n * answer)
            copies[i][j] = min(max(moved, -theta_max), theta_max)
            moved = middle[j] - eta_n * rho / (T**2 * sigma) * grad_g
            central[j] = min(max(moved, -theta_max), theta_max)
    return np.array(central), np.array(copies)


@pytest.mark.parametrize("rule", ["printed", "corrected"])
@pytest.mark.parametrize(("sizes", "p"), [((7,), 2), ((5, 9), 1), ((4, 8, 6), 3), ((3,) * 7, 5)])
def test_it_is_the_plain_loop_of_the_equations(sizes, p, rule):
    shards, N, T = make_shards(sizes, p, seed=len(sizes)), len(sizes), 60
    # A coefficient that makes a wrong factor of grad g show, and noise that meets the box.
    algorithm = make_algorithm(
        shards, rule=rule, horizon=T, theta_max=0.4, regulariser=Regulariser(coefficient=0.2)
    )
    algorithm = with_step(algorithm, 0.4)
    ticks = poisson_ticks(N, T, seed=p)
    noise = np.random.default_rng(p).laplace(0, N, (T, p))
    _, states = play(algorithm, ticks, shards, noise=noise)
    central, copies = plain_loop(
        shards,
        [tick.owners[0] for tick in ticks],
        noise,
        T=T,
        rho=algorithm.rho,
        c=0.2,
        theta_max=0.4,
        eta_n=(N - 1) / N if rule == "printed" else 0.5,
    )
    assert states[-1].theta_L == pytest.approx(central, rel=1e-12, abs=1e-14)
    assert states[-1].theta_i == pytest.approx(copies, rel=1e-12, abs=1e-14)
    assert np.any(np.abs(copies) == 0.4)


def test_noise_free_training_approaches_the_closed_form_optimum():
    shards = make_shards((200, 300, 250), 4, seed=1)
    regulariser = Regulariser(coefficient=1e-5)
    problem = Problem(loss=SQUARED, regulariser=regulariser, theta_max=1.0)
    evaluation = Evaluation(shards=shards, problem=problem)
    psi = []
    for ticks, step in ((300, 0.2), (3_000, 0.04), (30_000, 0.008)):
        algorithm = make_algorithm(shards, regulariser=regulariser, horizon=ticks)
        _, states = play(with_step(algorithm, step), poisson_ticks(3, ticks, seed=2), shards)
        # The random order of owners leaves a jitter, which shrinks with the step.
        last_tenth = np.array([state.theta_L for state in states[-ticks // 10 :]])
        psi.append(float(np.mean(evaluation.relative_fitness(last_tenth))))
    assert psi[0] > 3 * psi[1] > 9 * psi[2] > 0
    assert psi[-1] < 1e-5


@pytest.mark.parametrize(("rule", "share_of_g"), [("printed", 0.5), ("corrected", 1.0)])
def test_one_owner_without_noise_is_gradient_descent(rule, share_of_g):
    # (5) and (7) each make one half of the step; the printed (7) leaves half of grad g out.
    shards = make_shards((50,), 3, seed=3)
    algorithm = with_step(make_algorithm(shards, rule=rule, theta_max=9.0), 0.3)
    queries, _ = play(algorithm, poisson_ticks(1, 100, seed=4), shards)
    theta = np.zeros(3)
    for query in queries:
        assert query == pytest.approx(theta, rel=1e-12, abs=1e-15)
        x, y = shards[0].features, shards[0].targets
        grad_g = algorithm.regulariser.gradient(theta)
        theta = theta - 0.15 * (share_of_g * grad_g + SQUARED.mean_gradient(theta, x, y))


def test_one_owner_without_noise_goes_half_of_each_projected_gradient_step():
    shards = make_shards((50,), 3, seed=5)
    regulariser = Regulariser(coefficient=1e-3)
    algorithm = make_algorithm(shards, theta_max=0.1, regulariser=regulariser)
    algorithm = with_step(algorithm, 0.3)
    x, y = shards[0].features, shards[0].targets
    queries, states = play(algorithm, poisson_ticks(1, 400, seed=6), shards)
    for before, after in itertools.pairwise(queries):
        grad_f = regulariser.gradient(before) / 2 + SQUARED.mean_gradient(before, x, y)
        projected = np.clip(before - 0.3 * grad_f, -0.1, 0.1)
        assert after == pytest.approx((before + projected) / 2, rel=1e-12, abs=1e-15)
    # Its limit is the optimum in the box, with the half of g that the printed rule sees.
    half = Regulariser(coefficient=5e-4)
    best = Problem(loss=SQUARED, regulariser=half, theta_max=0.1).optimum(shards[0])
    assert np.any(np.abs(best) == 0.1)
    assert states[-1].theta_L == pytest.approx(best, abs=1e-9)


def test_a_group_of_all_owners_is_the_synchronous_algorithm_with_constant_steps():
    # One group is one owner, so its query points are gradient descent with half the step.
    shards, T = make_shards((20, 30, 50), 3, seed=7), 40
    everyone = make_algorithm(
        shards, groups=((0, 1, 2),), rule="corrected", theta_max=9.0, horizon=T
    )
    everyone = with_step(everyone, 0.2)
    rounds = list(itertools.islice(synchronous_rounds(3), T))
    queries, states = play(everyone, rounds, shards)
    assert states[-1].theta_i.shape == (1, 3)
    synchronous = SynchronousDescent(
        weights=everyone.weights,
        num_features=3,
        theta_max=9.0,
        regulariser=everyone.regulariser,
        rho=1.0,
        horizon=T,
    )
    state = synchronous.initial_state()
    for k, tick in enumerate(rounds, start=1):
        # rho/(T^2 k) is the constant 0.1 when rho grows with k.
        descent = replace(synchronous, rho=0.1 * T**2 * k)
        theta = descent.query_point(state, tick)
        assert queries[k - 1] == pytest.approx(theta, rel=1e-12, abs=1e-15)
        answers = {
            i: SQUARED.mean_gradient(theta, shards[i].features, shards[i].targets)
            for i in tick.owners
        }
        state = descent.apply_responses(state, tick, answers)


def test_projection_keeps_all_models_and_query_points_inside_the_box():
    shards, T = make_shards((5, 5, 5), 4, seed=8), 300
    algorithm = with_step(make_algorithm(shards, theta_max=0.3, horizon=T), 5.0)
    noise = np.random.default_rng(9).laplace(0, 100.0, (T, 4))
    queries, states = play(algorithm, poisson_ticks(3, T, seed=10), shards, noise=noise)
    assert np.max(np.abs(queries)) <= 0.3
    assert all(np.max(np.abs(state.theta_L)) <= 0.3 for state in states)
    assert all(np.max(np.abs(state.theta_i)) <= 0.3 for state in states)
    assert np.mean(np.abs([state.theta_i for state in states]) == 0.3) > 0.5


@pytest.mark.parametrize("group_first", [False, True])
def test_remark_4_takes_a_fast_owners_extra_weight_away(group_first):
    """Unequal rates pull the model to the fast owner; corrected they lead to the optimum of all."""
    shards = make_shards((100, 100), 2, seed=11)
    shards[1] = replace(shards[1], targets=-shards[1].targets)
    groups = each_alone(2)
    if group_first:
        # The slow owner's records cut into two that are asked together.
        halves = [
            Records(features=shards[0].features[rows], targets=shards[0].targets[rows])
            for rows in (slice(0, 40), slice(40, 100))
        ]
        shards, groups = [*halves, shards[1]], ((0, 1), (2,))
    regulariser, T = Regulariser(coefficient=1e-5), 20_000
    problem = Problem(loss=SQUARED, regulariser=regulariser, theta_max=1.0)
    evaluation = Evaluation(shards=shards, problem=problem)
    rates = np.array([1.0, 5.0])
    ticks = list(itertools.islice(PoissonClocks(groups, rates, rng=np.random.default_rng(12)), T))
    psi = {}
    for name, correction in (
        ("rates", {"frequency": rates}),
        ("counted", {"counted": True}),
        ("none", {}),
    ):
        algorithm = make_algorithm(
            shards,
            regulariser=regulariser,
            horizon=T,
            tail_average=True,
            groups=groups,
            **correction,
        )
        algorithm = with_step(algorithm, 0.02)
        _, states = play(algorithm, ticks, shards)
        psi[name] = float(evaluation.relative_fitness(algorithm.central_model(states[-1])))
    assert psi["rates"] < 1e-2
    assert psi["counted"] < 1e-2
    assert psi["none"] > 10 * max(psi["rates"], psi["counted"])
