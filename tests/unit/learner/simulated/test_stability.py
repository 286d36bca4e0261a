"""The largest stable step: no sequence of ticks makes errors grow."""

from dataclasses import replace

import numpy as np
import pytest

from common.losses import Hinge, Regulariser, Squared
from common.terms import Records
from learner.algorithms.asynchronous import Asynchronous
from learner.simulated.replicates import ShardMoments
from learner.simulated.stability import largest_stable_step, reach, stable_steps

P = 3


def make_records(n=300, *, seed=1):
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.normal(size=(n, P - 1)) * [1.5, 0.5], np.ones(n)])
    return Records(features=x, targets=x @ [0.4, -0.3, 0.2] + rng.normal(0, 0.3, n))


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


@pytest.mark.parametrize("rule", ["corrected", "printed"])
@pytest.mark.parametrize("c", [1e-5, 100.0])
@pytest.mark.parametrize("num_owners", [1, 2, 5])
def test_the_largest_stable_step_lets_no_tick_sequence_grow(num_owners, c, rule):
    """Also of (7) as printed, where the regulariser curves more than the loss."""
    public = make_records()
    changes = {"theta_max": 1e9, "rule": rule, "regulariser": Regulariser(coefficient=c)}
    algorithm = make_algorithm(num_owners, **changes)
    limit = largest_stable_step(algorithm, public, loss=Squared())
    centred = replace(public, targets=np.zeros(len(public)))  # the optimum is 0
    gram = ShardMoments.of([centred] * num_owners)
    top = np.linalg.eigh(gram.gram[0])[1][:, -1]
    central_share = {"corrected": 0.5, "printed": (num_owners - 1) / num_owners}[rule]

    def sizes(step, slots):
        """Largest model along the stiffest direction after each tick, from 1 everywhere."""
        models, largest = np.ones(num_owners + 1), []
        h, N = 2 * top @ gram.gram[0] @ top, num_owners
        for i in slots:
            middle = (models[-1] + models[i]) / 2
            models[i] = (1 - step * (c / N + h / N)) * middle
            models[-1] = (1 - step * central_share * 2 * c / N) * middle
            largest.append(np.max(np.abs(models)))
        return np.array(largest)

    rng = np.random.default_rng(6)
    for slots in (rng.integers(num_owners, size=200), np.zeros(200, dtype=int)):
        assert np.all(np.diff(sizes(limit, slots)) <= 1e-12)
    if c < 1.0:
        # One owner asked all the time is unstable beyond twice the limit.
        assert sizes(2.1 * limit, np.zeros(200, dtype=int))[-1] > 10


def test_hinge_steps_are_bounded_by_half_of_the_box():
    public = Records(features=np.full((4, 1), 2.0), targets=np.ones(4))
    algorithm = make_algorithm(2, num_features=1, theta_max=3.0)
    step = largest_stable_step(algorithm, public, loss=Hinge())
    # The strongest answer, 2, has weight 1/2: the copy moves by step * 1.
    assert step == pytest.approx(3.0)


def test_what_a_schedule_counts_sets_the_limit_of_each_run():
    counted = replace(make_algorithm(), counted=True)
    frequency = np.array([[1.0, 4.0], [1.0, 1.0], [1.0, 4.0]])
    public, loss = make_records(), Squared()
    even, uneven = stable_steps(counted, reach(public, loss), loss=loss, frequency=frequency)
    assert even == pytest.approx(largest_stable_step(make_algorithm(), public, loss=loss))
    # The owner that ticks rarely has three times the weight of equal ones.
    assert uneven == pytest.approx(even / 3, rel=1e-4)
