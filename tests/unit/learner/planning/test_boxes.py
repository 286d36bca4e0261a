"""How large the box of admissible models should be, and when it is too small."""

import numpy as np
import pytest

from common.losses import Logistic, Regulariser, Squared
from common.terms import Records
from learner.planning.boxes import BOXES, edge_sentence, roomy_box
from learner.simulated.problem import Problem


def records_of(margins, *, seed=0):
    """Classes with these log-odds, of a feature and a constant."""
    rng = np.random.default_rng(seed)
    targets = np.where(rng.random(margins.size) < 1 / (1 + np.exp(-margins)), 1.0, -1.0)
    features = np.stack([margins, np.ones(margins.size)], axis=1)
    return Records(features=features, targets=targets)


@pytest.mark.parametrize("share", [0.5, 0.1, 0.01, 0.001])
def test_the_box_has_room_for_the_base_rate_of_a_rare_class(share):
    targets = np.where(np.arange(4000) < 4000 * share, 1.0, -1.0)
    records = Records(features=np.ones((4000, 1)), targets=targets)
    assert roomy_box(Logistic(), records) >= 1.9 * abs(np.log(share / (1 - share)))


def test_the_box_holds_the_studys_own_optimum_with_room():
    x = np.random.default_rng(1).normal(size=2000)
    records = records_of(8 * x)
    scaled = Records(features=records.features / [8, 1], targets=records.targets)
    free = Problem(loss=Logistic(), regulariser=Regulariser(coefficient=0.0), theta_max=1e3)
    assert roomy_box(Logistic(), scaled) >= 1.5 * np.max(np.abs(free.optimum(scaled)))


@pytest.mark.parametrize("loss", [Logistic(), Squared()])
def test_separated_classes_get_a_box_that_ends(loss):
    x = np.linspace(-1, 1, 40)
    records = Records(features=x[:, None], targets=np.sign(x))
    assert roomy_box(loss, records) <= 50


@pytest.mark.parametrize(("theta_max", "named"), [(0.5, "age and 1 more"), (1.5, "d"), (3.0, None)])
def test_a_public_model_at_an_edge_of_its_box_is_named(theta_max, named):
    problem = Problem(loss=Squared(), regulariser=Regulariser(coefficient=0.0), theta_max=theta_max)
    theta = np.clip([1.0, -1.0, 1.0, 2.0], -theta_max, theta_max)
    records = Records(features=np.eye(4), targets=np.array([1.0, -1.0, 1.0, 2.0]))
    sentence = edge_sentence(problem, records, theta, ["sex", "b", "age", "d"])
    if named is None:
        assert sentence is None
    else:
        assert sentence is not None
        assert f"{named}); enlarge model.theta_max, which is {theta_max}, to 5" in sentence


def test_a_box_with_room_for_all_that_is_believed_is_not_to_be_enlarged():
    """Of classes that few public records separate a larger box makes a worse model."""
    x = np.linspace(-1, 1, 8)
    records = Records(features=x[:, None], targets=np.sign(x))
    for theta_max in (1.0, roomy_box(Logistic(), records)):
        problem = Problem(
            loss=Logistic(), regulariser=Regulariser(coefficient=0.0), theta_max=theta_max
        )
        sentence = edge_sentence(problem, records, problem.optimum(records), ["age"])
        assert sentence is not None
        assert ("enlarge model.theta_max" in sentence) == (theta_max == 1.0)
        assert ("give more of them, or fewer columns" in sentence) == (theta_max > 1.0)


@pytest.mark.parametrize(
    ("count", "rarer", "said"),
    [
        (400, 200, "tell the classes apart there nearly without a mistake"),
        (400, 4, "few public records take it by chance"),
        (8, 4, "few public records take it by chance"),
    ],
)
def test_many_records_that_are_told_apart_are_not_called_few(count, rarer, said):
    x = np.r_[-np.linspace(1, 2, count - rarer), np.linspace(1, 2, rarer)]
    records = Records(features=x[:, None], targets=np.sign(x))
    problem = Problem(
        loss=Logistic(), regulariser=Regulariser(coefficient=0.0), theta_max=BOXES[-1]
    )
    sentence = edge_sentence(problem, records, np.array([BOXES[-1]]), ["age"])
    assert sentence is not None
    assert said in sentence


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (500, ", which holds it: two columns nearly follow each other; leave one out"),
        (
            19,
            ", where few public records take it by chance; give more of them, or fewer columns",
        ),
    ],
)
def test_columns_that_follow_each_other_are_named_where_records_are_many(count, said):
    rng = np.random.default_rng(3)
    x = rng.normal(size=count)
    features = np.stack([x, x + 1e-4 * rng.normal(size=count)], axis=1)
    targets = x + 100.0 * (features[:, 1] - x)
    records = Records(features=features, targets=targets)
    problem = Problem(loss=Squared(), regulariser=Regulariser(coefficient=0.0), theta_max=BOXES[-1])
    sentence = edge_sentence(problem, records, np.array([-50.0, 50.0]), ["m", "km"])
    assert sentence == f"the public model is at an edge of its box (m, km){said}"
