"""Newton's steps in rounds: who is asked where, whose answer counts for which, what they mend."""

from dataclasses import replace

import numpy as np
import pytest

from common.losses import LOSSES, Regulariser
from common.moments import pack_moments
from common.terms import Records
from learner.algorithms.box_least_squares import box_least_squares
from learner.algorithms.clocks import Tick
from learner.algorithms.newton import NewtonStep, Round
from learner.algorithms.shrinkage import Around
from learner.planning.around import around_public
from learner.simulated.groups import PublicGroups
from learner.simulated.problem import Problem

P, N = 3, 3
WEIGHTS = np.array([0.5, 0.2, 0.3])
G = Regulariser(coefficient=1e-6)


def problem_of(name="squared"):
    return Problem(loss=LOSSES[name].example(), regulariser=G, theta_max=4.0)


def records_of(seed, *, scale=1.0, tilt=0.0, name="squared"):
    rng = np.random.default_rng(seed)
    x = np.column_stack([scale * rng.normal(size=(800, P - 1)), np.ones(800)])
    y = x @ np.array([0.8, -0.6, 0.3 + tilt]) + 0.3 * rng.normal(size=800)
    if LOSSES[name].example().has_classes():
        y = np.where(y > 0, 1.0, -1.0)
    return Records(features=x, targets=y)


def newton_of(problem, public, *, rounds):
    groups = PublicGroups(problem=problem, records=public, labels=None)
    return NewtonStep(
        weights=WEIGHTS,
        around=around_public(groups, None),
        curvature_scale=0.2,
        scales=np.zeros(N),
        theta_max=problem.theta_max,
        regulariser=problem.regulariser,
        rounds=rounds,
        is_quadratic=problem.loss.is_quadratic,
    )


def newton_around_zero(*, theta_max=4.0):
    """Its public model is 0, with a curvature of 2 in every direction."""
    around = Around(
        theta=np.zeros(P),
        curvature=2.0 * np.eye(P),
        offset=np.zeros(P),
        spread=1.0,
        curvature_spread=0.01,
    )
    newton = newton_of(problem_of(), records_of(0), rounds=3)
    return replace(newton, around=around, theta_max=theta_max)


def answer(problem, records, theta):
    x, n = records.features, len(records)
    each = problem.curvatures(theta, records, None)
    curvature = (x * each[:, None]).T @ x / n
    return pack_moments(0.2 * curvature, problem.slopes(theta, records, None) @ x / n)


def test_a_round_is_asked_at_the_model_of_the_rounds_before():
    problem, shards = problem_of(), [records_of(i + 1, scale=2.0, tilt=1.0) for i in range(N)]
    newton = newton_of(problem, records_of(0), rounds=2)
    state = newton.initial_state()
    for owner in (1, 0, 2):
        theta = newton.query_point(state, Tick(0.1, (owner,)))
        assert np.array_equal(theta, newton.around.theta)
        told = {owner: answer(problem, shards[owner], theta)}
        state = newton.apply_responses(state, Tick(0.1, (owner,)), told)
    second = newton.central_model(state)
    assert not np.array_equal(second, newton.around.theta)
    for owner in (0, 2, 1):
        theta = newton.query_point(state, Tick(0.2, (owner,)))
        assert np.array_equal(theta, second)
        told = {owner: answer(problem, shards[owner], theta)}
        state = newton.apply_responses(state, Tick(0.2, (owner,)), told)
    assert [told.weight for told in state.rounds] == pytest.approx([1.0, 1.0])


def test_the_questions_of_a_round_are_known_when_it_begins():
    problem, shards = problem_of(), [records_of(i + 1, tilt=1.0) for i in range(N)]
    newton = newton_of(problem, records_of(0), rounds=3)
    # Owner 1 misses the first round, so the second begins without it.
    order = (0, 2, 2, 0, 1, 1, 0, 2)
    ticks = [Tick(0.1 * at, (owner,)) for at, owner in enumerate(order)]
    state, counts = newton.initial_state(), []
    for at, tick in enumerate(ticks):
        known = list(newton.query_points(state, ticks[at:]))
        counts.append(len(known))
        later = state
        for each, theta in zip(ticks[at:], known, strict=False):
            assert newton.query_point(later, each).tobytes() == theta.tobytes()
            told = {each.owners[0]: answer(problem, shards[each.owners[0]], theta)}
            later = newton.apply_responses(later, each, told)
        theta = newton.query_point(state, tick)
        told = {tick.owners[0]: answer(problem, shards[tick.owners[0]], theta)}
        state = newton.apply_responses(state, tick, told)
    assert counts == [2, 1, 3, 2, 1, 3, 2, 1]


def test_an_owner_that_was_away_answers_what_it_was_asked_first():
    problem, shards = problem_of(), [records_of(i + 1, tilt=1.0) for i in range(N)]
    newton = newton_of(problem, records_of(0), rounds=3)
    state, first = newton.initial_state(), newton.around.theta
    for owner in (0, 2):  # 1 is away at its turn: its tick is not applied
        told = {owner: answer(problem, shards[owner], first)}
        state = newton.apply_responses(state, Tick(0.1, (owner,)), told)
    theta = newton.query_point(state, Tick(0.2, (0,)))
    told = {0: answer(problem, shards[0], theta)}
    state = newton.apply_responses(state, Tick(0.2, (0,)), told)
    # Its line repeats the question of the first round, so that is where the answer counts.
    late = {1: answer(problem, shards[1], first)}
    state = newton.apply_responses(state, Tick(0.3, (1,)), late)
    assert [told.weight for told in state.rounds] == pytest.approx([1.0, 0.5])
    # After that it is asked anew.
    third = newton.query_point(state, Tick(0.4, (0,)))
    told = {0: answer(problem, shards[0], third)}
    state = newton.apply_responses(state, Tick(0.4, (0,)), told)
    fresh = {1: answer(problem, shards[1], third)}
    state = newton.apply_responses(state, Tick(0.5, (1,)), fresh)
    assert [told.weight for told in state.rounds] == pytest.approx([1.0, 0.5, 0.7])


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_without_noise_every_round_ends_at_the_optimum_however_large_g_is(rounds):
    """Owners tell no gradient of g, which is another one at every model."""
    problem = replace(problem_of(), regulariser=Regulariser(coefficient=0.5))
    owners, public = records_of(7, tilt=0.5), records_of(0)
    newton = newton_of(problem, public, rounds=rounds)
    theta, told = newton.around.theta, []
    for _ in range(rounds):
        total = answer(problem, owners, theta)
        told.append(Round(theta=theta, total=total, weight=1.0, variance=0.0))
        theta = newton.solve(told)
        assert theta == pytest.approx(problem.optimum(owners), abs=1e-8)


@pytest.mark.parametrize("seed", [7, 8, 9, 10])
@pytest.mark.parametrize("name", ["squared", "logistic"])
def test_rounds_mend_what_a_wrong_curvature_has_missed(name, seed):
    """Owners' curvature is far from the public one, and so loud that it is not believed.

    Their best logistic models lie at an edge of the box.
    """
    problem = problem_of(name)
    union = records_of(seed, scale=1.6, tilt=0.5, name=name)
    newton = newton_of(problem, records_of(0, name=name), rounds=5)
    theta, rounds, fitness = newton.around.theta, [], []
    noise = 1e-6  # of the gradient next to nothing, of the curvature 25 times as much
    for _ in range(5):
        total = answer(problem, union, theta)
        rounds.append(Round(theta=theta, total=total, variance=noise))
        theta = newton.solve(rounds)
        fitness.append(problem.fitness(theta, union))
    best = problem.fitness(problem.optimum(union), union)
    # Of squared loss the first round may have missed nothing but rounding.
    assert fitness[2] - best < max((fitness[0] - best) / 3, 1e-9 * best)
    # One of them comes as near as that a round later.
    third = 3 if (name, seed) == ("logistic", 7) else 2
    assert fitness[third] / best - 1 < 5e-3
    assert fitness[4] / best - 1 < 1e-3


def test_a_model_outside_of_the_box_is_brought_in_as_the_owners_have_it():
    """Of the two the edge is nearest in their curvature, not in that of the public records."""
    steep = np.array([[8.0, 6.0, 0.0], [6.0, 8.0, 0.0], [0.0, 0.0, 2.0]])
    newton = newton_around_zero(theta_max=0.5)
    best = np.array([1.0, -0.2, 0.1])
    total = pack_moments(0.2 * steep, -steep @ best)
    theta = newton.solve([Round(theta=newton.around.theta, total=total, variance=0.0)])
    assert theta == pytest.approx(box_least_squares(steep, steep @ best, theta_max=0.5), abs=1e-3)
    assert abs(theta[1] - best[1]) > 0.3


def test_many_studies_at_once_are_each_by_itself():
    problem, union = problem_of(), records_of(7, tilt=0.5)
    newton = newton_of(problem, records_of(0), rounds=2)
    rng, first = np.random.default_rng(3), newton.around.theta
    noise = rng.normal(0, 0.01, (2, 5, P * (P + 1) // 2 + P))
    many = [Round(theta=first, total=answer(problem, union, first) + noise[0], variance=1e-4)]
    models = newton.solve(many)
    exact = np.stack([answer(problem, union, theta) for theta in models])
    many.append(Round(theta=models, total=exact + noise[1], variance=1e-4))
    models = newton.solve(many)
    for run in range(5):
        alone = [Round(theta=first, total=many[0].total[run], variance=1e-4)]
        alone.append(Round(theta=many[1].theta[run], total=many[1].total[run], variance=1e-4))
        assert newton.solve(alone) == pytest.approx(models[run], rel=1e-9)


def test_rounds_learn_on_their_way_that_steps_are_too_long():
    """Noise hides that owners' curvature is 3.5 times the public one: steps go 2.5 times too far.

    Left to itself, the model would be farther off after each round than before.
    """
    newton = newton_around_zero()
    curvature, best = np.diag([7.0, 2.0, 2.0]), np.array([[1.2, 0.5, -0.3], [-0.9, 0.2, 0.8]])
    thetas, rounds, off = np.zeros_like(best), [], []
    for _ in range(4):
        hidden = np.broadcast_to(0.2 * newton.around.curvature, (2, P, P))
        total = pack_moments(hidden, (thetas - best) @ curvature)
        rounds.append(Round(theta=thetas, total=total, variance=1e-3))
        thetas = newton.solve(rounds)
        off.append(np.linalg.norm(thetas - best, axis=1))
        # Many studies at once are what each is by itself.
        for study in range(2):
            own = [
                replace(told, theta=told.theta[study], total=told.total[study]) for told in rounds
            ]
            assert np.array_equal(newton.solve(own), thetas[study])
    assert np.all(off[0] > 1.5 * np.linalg.norm(best, axis=1))
    assert np.all(off[-1] < 0.1 * np.linalg.norm(best, axis=1))


def test_rounds_that_did_not_move_teach_nothing():
    newton = newton_of(problem_of(), records_of(0), rounds=2)
    theta = newton.around.theta
    told = answer(problem_of(), records_of(1), theta)
    rounds = [Round(theta=theta, total=told + shift, variance=1e-3) for shift in (0.0, 0.05)]
    assert np.all(np.isfinite(newton.solve(rounds)))


def test_a_round_of_loud_answers_counts_for_next_to_nothing():
    newton = newton_around_zero()
    curvature, gradient = np.diag([4.0, 4.0, 4.0]), np.array([-4.0, 2.0, -1.0])
    exact = pack_moments(newton.curvature_scale * curvature, gradient)
    quiet = Round(theta=np.zeros(P), total=exact, variance=1e-8)
    loud = Round(theta=np.full(P, 0.1), total=10.0 * exact, variance=1e8)
    alone = newton.solve([quiet])
    assert alone == pytest.approx([1.0, -0.5, 0.25], rel=1e-2)
    assert newton.solve([quiet, loud]) == pytest.approx(alone, rel=1e-3)
    assert newton.solve([quiet, replace(loud, variance=1e-8)]) != pytest.approx(alone, rel=0.1)
