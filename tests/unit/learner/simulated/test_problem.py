"""The optimum over the box is one: nothing in the box is downhill from it."""

import numpy as np
import pytest

from common.losses import Huber, Logistic, Regulariser
from common.terms import Records
from learner.simulated.problem import Problem

G = Regulariser(coefficient=1e-5)


def way_downhill(problem, records):
    """How far the box lets a step along the gradient go from the optimum that is found."""
    theta, box = problem.optimum(records), problem.theta_max
    slope = problem.loss.mean_gradient(theta, records.features, records.targets)
    downhill = theta - slope - problem.regulariser.gradient(theta)
    return float(np.abs(np.clip(downhill, -box, box) - theta).max())


@pytest.mark.parametrize(("p", "box", "tables"), [(8, 0.5, 300), (18, 1.0, 150)])
def test_a_smooth_optimum_at_an_edge_of_the_box_is_no_place_where_the_search_gave_up(
    p, box, tables
):
    """Of 150 to 300 tables the search gives up at one, up to half above the least fitness."""
    rng = np.random.default_rng(1)
    problem = Problem(loss=Huber(delta=0.5), regulariser=G, theta_max=box)
    for _ in range(tables):
        x = np.c_[rng.normal(size=(20, p)), np.ones(20)]
        means = x @ (2.0 * rng.normal(size=p + 1))
        records = Records(features=x, targets=means / means.std() * 2.0)
        assert way_downhill(problem, records) <= 1e-6


@pytest.mark.parametrize("loss", [Logistic(), Huber(delta=0.5)])
def test_an_optimum_within_the_box_is_that_of_one_search(loss):
    rng = np.random.default_rng(2)
    x = np.c_[rng.normal(size=(200, 3)), np.ones(200)]
    y = np.where(x @ [1.0, -1.0, 0.0, 0.2] + rng.logistic(size=200) > 0, 1.0, -1.0)
    problem = Problem(loss=loss, regulariser=G, theta_max=20.0)
    assert way_downhill(problem, Records(features=x, targets=y)) <= 1e-8
