"""The automatic step: stable, deterministic, close to the best in hindsight."""

from dataclasses import replace

import numpy as np
import pytest

from common.errors import InputError
from common.losses import LOSSES, Hinge, Regulariser, Squared
from common.terms import Records
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import draw_slots
from learner.planning import step as step_module
from learner.planning.step import choose_rho, largest_stable_step, public_parts
from learner.simulated.evaluation import Evaluation
from learner.simulated.replicates import (
    Moments,
    laplace_noise,
    moment_gradients,
    run_replicates,
)

P = 3


def make_records(n=300, *, classes=False, seed=1):
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.normal(size=(n, P - 1)) * [1.5, 0.5], np.ones(n)])
    y = x @ [0.4, -0.3, 0.2] + rng.normal(0, 0.3, n)
    return Records(features=x, targets=np.where(y > 0, 1.0, -1.0) if classes else y)


def make_algorithm(num_owners=3, **changes):
    settings = {
        "weights": np.full(num_owners, 1 / num_owners),
        "num_features": P,
        "theta_max": 1.0,
        "regulariser": Regulariser(coefficient=1e-5),
        "rho": 1.0,
        "horizon": 200,
    }
    return Asynchronous(**(settings | changes))


def choose(algorithm, public, *, noise=0.0, loss="squared", clip=None, seed=0):
    return choose_rho(
        algorithm,
        public,
        loss=LOSSES[loss].example(),
        noise_scales=np.full(len(algorithm.weights), noise),
        clip=clip,
        rng=np.random.default_rng(seed),
    )


def measured(algorithm, shards, step, noise, runs=100):
    rng = np.random.default_rng(9)
    N = len(shards)
    result = run_replicates(
        replace(algorithm, rho=step / algorithm.alpha * algorithm.rho),
        draw_slots(np.ones(N), horizon=algorithm.horizon, replicates=runs, rng=rng),
        gradients=moment_gradients(Moments.of(shards)),
        noise=laplace_noise(np.full(N, noise), num_features=P, rng=rng),
    )
    evaluation = Evaluation(
        shards=shards, loss=Squared(), regulariser=algorithm.regulariser, theta_max=1.0
    )
    return float(np.mean(evaluation.relative_fitness(result.central)))


@pytest.mark.parametrize("noise", [0.0, 0.3, 3.0])
def test_the_choice_is_near_the_best_step_in_hindsight(noise):
    algorithm = make_algorithm()
    shards = [make_records(seed=s) for s in (2, 3, 4)]
    choice = choose(algorithm, make_records(), noise=noise)
    limit = choice.largest_stable_rho / choice.rho * choice.step
    steps = limit * 2.0 ** -np.arange(12)
    best = min(measured(algorithm, shards, step, noise) for step in steps)
    chosen = measured(algorithm, shards, choice.step, noise)
    assert chosen < 1.5 * best
    assert max(measured(algorithm, shards, step, noise) for step in steps) > 3 * best
    assert choice.forecast_relative_fitness == pytest.approx(chosen, rel=1.0)


def test_more_noise_asks_for_smaller_steps():
    steps = [choose(make_algorithm(), make_records(), noise=b).step for b in (0.0, 0.3, 3.0, 30.0)]
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] < 0.1 * steps[0]


def test_equal_seeds_choose_equally():
    first, second = (choose(make_algorithm(), make_records(), noise=1.0) for _ in range(2))
    assert first == second


def test_the_choices_rho_has_the_choices_step():
    algorithm = make_algorithm()
    choice = choose(algorithm, make_records(), noise=1.0)
    assert replace(algorithm, rho=choice.rho).alpha == pytest.approx(choice.step, rel=1e-12)
    assert choice.rho <= choice.largest_stable_rho * (1 + 1e-12)
    # The algorithm's own rho is not looked at.
    assert choose(replace(algorithm, rho=77.0), make_records(), noise=1.0).rho == pytest.approx(
        choice.rho, rel=1e-12
    )


@pytest.mark.parametrize("num_owners", [1, 2, 5])
def test_the_largest_stable_step_lets_no_tick_sequence_grow(num_owners):
    public = make_records()
    algorithm = make_algorithm(num_owners, theta_max=1e9, rule="corrected")
    limit = largest_stable_step(algorithm, public, loss=Squared())
    centred = replace(public, targets=np.zeros(len(public)))  # the optimum is 0
    gram = Moments.of([centred] * num_owners)
    top = np.linalg.eigh(gram.gram[0])[1][:, -1]

    def sizes(step, slots):
        """Largest model along the stiffest direction after each tick, from 1 everywhere."""
        models, largest = np.ones(num_owners + 1), []
        h = 2 * top @ gram.gram[0] @ top
        c, N = algorithm.regulariser.coefficient, num_owners
        for i in slots:
            middle = (models[-1] + models[i]) / 2
            models[i] = (1 - step * (c / N + h / N)) * middle
            models[-1] = (1 - step * c / N) * middle
            largest.append(np.max(np.abs(models)))
        return np.array(largest)

    rng = np.random.default_rng(6)
    for slots in (rng.integers(num_owners, size=200), np.zeros(200, dtype=int)):
        assert np.all(np.diff(sizes(limit, slots)) <= 1e-12)
    # One owner asked all the time is unstable beyond twice the limit.
    assert sizes(2.1 * limit, np.zeros(200, dtype=int))[-1] > 10


def test_a_clip_and_kinks_and_curves_are_simulated_on_records():
    classes = make_records(200, classes=True)
    for loss in ("hinge", "logistic"):
        choice = choose(make_algorithm(), classes, noise=0.05, loss=loss)
        assert 0 < choice.rho <= choice.largest_stable_rho
        assert choice.forecast_relative_fitness < 0.3
    clipped = choose(make_algorithm(), make_records(200), noise=0.05, clip=0.5)
    assert clipped.forecast_relative_fitness < 1.0


def test_hinge_steps_are_bounded_by_half_of_the_box():
    public = Records(features=np.full((4, 1), 2.0), targets=np.ones(4))
    algorithm = make_algorithm(2, num_features=1, theta_max=3.0)
    step = largest_stable_step(algorithm, public, loss=Hinge())
    # The strongest answer, 2, has weight 1/2: the copy moves by step * 1.
    assert step == pytest.approx(3.0)


def test_long_horizons_are_simulated_in_bounded_time():
    # 10^9 ticks: nobody could simulate each of them.
    choice = choose(make_algorithm(horizon=10**9), make_records(), noise=3.0)
    short = choose(make_algorithm(horizon=1000), make_records(), noise=3.0)
    assert choice.step < 0.1 * short.step
    assert choice.forecast_relative_fitness < 0.1 * short.forecast_relative_fitness


def test_fewer_and_longer_steps_tell_what_all_ticks_would(monkeypatch):
    algorithm = make_algorithm(horizon=8000)
    exact = choose(algorithm, make_records(), noise=3.0)
    monkeypatch.setattr(step_module, "WITH_MOMENTS", replace(step_module.WITH_MOMENTS, ticks=1000))
    shortened = choose(algorithm, make_records(), noise=3.0)
    assert shortened.forecast_relative_fitness == pytest.approx(
        exact.forecast_relative_fitness, rel=0.3
    )
    assert 0.4 < shortened.step / exact.step < 2.5


def test_parts_are_consecutive_and_sized_like_the_owners():
    public = make_records(100)
    parts = public_parts(public, np.array([0.5, 0.3, 0.2]))
    assert [len(part) for part in parts] == [50, 30, 20]
    assert np.array_equal(np.concatenate([part.targets for part in parts]), public.targets)


def test_parts_for_many_owners_overlap_instead_of_vanishing():
    parts = public_parts(make_records(40), np.full(100, 0.01))
    assert len(parts) == 100
    assert all(2 * P <= len(part) <= 40 for part in parts)


def test_what_cannot_be_simulated_is_refused():
    public = make_records(20)
    with pytest.raises(InputError, match="no public records"):
        choose(make_algorithm(), Records(features=np.zeros((0, P)), targets=np.zeros(0)))
    with pytest.raises(InputError, match="groups"):
        choose(make_algorithm(groups=((0, 1), (2,))), public)
    with pytest.raises(InputError, match="noise scales"):
        choose(make_algorithm(), public, noise=np.nan)
