"""Whether the public records are enough for a model to take a step from."""

from types import SimpleNamespace

import numpy as np
import pytest

from common.losses import LOSSES, Regulariser
from common.terms import Records
from learner.planning.boxes import FEWEST_OF_A_CLASS
from learner.planning.ground import Ground
from learner.simulated.groups import PublicGroups
from learner.simulated.problem import Problem

FEATURES = 10


def make_groups(rarer, *, num_records, box, seed=0, loss="logistic"):
    """Records of classes that one feature tells with some certainty, this many of the rarer one."""
    rng = np.random.default_rng(seed)
    features = np.c_[rng.standard_normal((num_records, FEATURES - 1)), np.ones(num_records)]
    score = 3.0 * features[:, 0] + rng.logistic(size=num_records)
    targets = np.where(score >= np.sort(score)[-rarer], 1.0, -1.0)
    problem = Problem(
        loss=LOSSES[loss].example(),
        regulariser=Regulariser(coefficient=1e-5),
        theta_max=box,
    )
    return PublicGroups(
        problem=problem, records=Records(features=features, targets=targets), labels=None
    )


def ground_of(groups, *, classes=True):
    public = SimpleNamespace(
        records=groups.records, feature_map=SimpleNamespace(num_features=FEATURES)
    )
    ground = Ground(
        settings=SimpleNamespace(loss_has_classes=classes), public=public, num_records=(9,), seed=0
    )
    ground.__dict__["groups"] = groups
    return ground


def test_a_model_that_is_far_too_sure_of_records_held_out_is_not_trusted():
    groups = make_groups(20, num_records=60, box=20.0)
    assert groups.outside.is_overfit
    assert not ground_of(groups).trusts_public_model
    assert ground_of(groups, classes=False).trusts_public_model


def test_a_model_that_is_too_sure_of_records_held_out_is_shrunk():
    """Classes that are told apart without a mistake: any longer model fits them better."""
    sure = make_groups(20, num_records=60, box=20.0)
    others = make_groups(2000, num_records=6000, box=20.0, seed=1).records
    lost, whole = (sure.problem.fitness(m, others) for m in (sure.start, sure.theta_optimal))
    assert lost < 0.7 * whole
    # Of a model of many records nearly all is kept.
    many = make_groups(1000, num_records=3000, box=20.0)
    assert np.linalg.norm(many.start) > 0.9 * np.linalg.norm(many.theta_optimal)


def test_steps_by_a_loss_with_kinks_begin_at_the_model_itself():
    groups = make_groups(30, num_records=300, box=2.0, loss="hinge")
    np.testing.assert_array_equal(groups.start, groups.theta_optimal)


def test_a_model_of_few_records_that_tells_records_held_out_is_trusted():
    groups = make_groups(30, num_records=300, box=2.0)
    assert not groups.outside.is_overfit
    assert ground_of(groups).trusts_public_model


def test_cross_validation_tells_only_of_losses_that_newton_can_step_by():
    groups = make_groups(30, num_records=300, box=2.0, loss="hinge")
    assert not groups.outside.is_overfit
    assert not ground_of(groups).trusts_public_model


@pytest.mark.parametrize("lacks", [0, 1])
def test_five_records_of_the_rarer_class_for_each_feature_are_enough(lacks):
    groups = make_groups(FEWEST_OF_A_CLASS * FEATURES - lacks, num_records=120, box=20.0)
    groups.outside.__dict__["is_overfit"] = True
    assert ground_of(groups).trusts_public_model == (not lacks)
    swapped = Records(features=groups.records.features, targets=-groups.records.targets)
    other = PublicGroups(problem=groups.problem, records=swapped, labels=None)
    other.outside.__dict__["is_overfit"] = True
    assert ground_of(other).trusts_public_model == (not lacks)


@pytest.mark.parametrize(("rarer", "num_records"), [(20, 60), (50, 150)])
def test_the_calibration_slope_is_what_it_is_found_to_be(rarer, num_records):
    """The derivative at a half tells on which side of it the best factor of the margins lies."""
    for seed in range(6):
        box = (0.5, 5.0)[seed % 2]
        groups = make_groups(rarer, num_records=num_records, box=box, seed=seed)
        loss, factors = groups.problem.loss, np.linspace(0.0, 3.0, 601)
        mean = [
            sum(
                loss.values(factor * (left.features @ model), left.targets).sum()
                for model, _, left in groups.outside.folds
            )
            for factor in factors
        ]
        assert groups.outside.is_overfit == (factors[int(np.argmin(mean))] < 0.5)


def test_every_record_is_held_out_once():
    groups = make_groups(20, num_records=61, box=1.0)
    held = np.concatenate([left.features for _, _, left in groups.outside.folds])
    assert sorted(map(tuple, held)) == sorted(map(tuple, groups.records.features))
