"""The box of admissible models: how large one should be, and whether one is too small."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from common.arrays import Vector
from common.losses import Loss, Regulariser
from common.terms import Records
from common.texts import first_few
from learner.planning.public_side import PublicSide
from learner.planning.settings import StudySettings
from learner.simulated.problem import Problem

# Boxes to choose from: half the side, in units of the target's deviation, or of log-odds, for each
# feature.
BOXES = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
ROOM = 2.0
# Coefficients beyond this many units are not believed: classes that few public records separate
# have no best model at all.
BELIEVED = 5.0
NAMED = 3
# Fewer records for each feature take an edge by chance; of classes count those of the rarer one.
FEWEST_PER_FEATURE, FEWEST_OF_A_CLASS = 10, 5


def roomy_box(loss: Loss, records: Records) -> float:
    """Half the side of a box with room around the model of public records, and their base rate.

    >>> from common.losses import Logistic
    >>> targets = np.repeat([-1.0, 1.0], [990, 10])
    >>> roomy_box(Logistic(), Records(features=np.ones((1000, 1)), targets=targets))
    10.0
    """
    shrinking = Regulariser(coefficient=1.0 / (2.0 * BELIEVED**2 * len(records)))
    problem = Problem(loss=loss, regulariser=shrinking, theta_max=BOXES[-1])
    wanted = ROOM * float(np.max(np.abs(problem.optimum(records))))
    return next((box for box in BOXES if box >= wanted), BOXES[-1])


def edge_of(settings: StudySettings, public: PublicSide) -> str | None:
    """That the model of a study's public records lies at an edge of its box; None where not.

    None, too, where there are no public records, or fewer than features.
    """
    names, records = public.feature_map.feature_names, public.records
    if records is None or len(records) < len(names):
        return None
    problem = public.problem(settings)
    return edge_sentence(problem, records, problem.optimum(records), names)


def edge_sentence(
    problem: Problem, records: Records, theta: Vector, names: Sequence[str]
) -> str | None:
    """That a model of public records lies at an edge of its box; None where it does not.

    A box that has room for all that is believed is large enough: in a larger one the model would
    be worse.

    Args:
      problem: What is learnt.
      records: The public records.
      theta: The model, shape (p,).
      names: The features' names.

    >>> from common.losses import Squared
    >>> problem = Problem(loss=Squared(), regulariser=Regulariser(coefficient=0.0), theta_max=0.5)
    >>> records = Records(features=np.array([[1.0, 0.0], [0.0, 1.0]]), targets=np.array([1.0, 0.1]))
    >>> edge_sentence(problem, records, np.array([0.5, 0.1]), ["age", "intercept"])
    'the public model is at an edge of its box (age); enlarge model.theta_max, which is 0.5, to 2'
    """
    found = [name for name, is_there in zip(names, problem.at_edge(theta), strict=True) if is_there]
    if not found:
        return None
    where = f"the public model is at an edge of its box ({first_few(found, NAMED)})"
    roomy = roomy_box(problem.loss, records)
    if problem.theta_max < roomy:
        return f"{where}; enlarge model.theta_max, which is {problem.theta_max:g}, to {roomy:g}"
    if _are_few(problem.loss, records):
        return (
            f"{where}, where few public records take it by chance; give more of them, or fewer "
            "columns"
        )
    cause = (
        "the public records tell the classes apart there nearly without a mistake: is it known "
        "before the target is? or two columns nearly follow each other"
        if problem.loss.has_classes()
        else "two columns nearly follow each other"
    )
    return f"{where}, which holds it: {cause}; leave one out"


def both_classes_tell(records: Records) -> bool:
    """Whether a model of two classes is surely worth something: each has records enough.

    Five records of the rarer class for each feature are enough.

    References: Vittinghoff and McCulloch (2007), Relaxing the rule of ten events per variable in
    logistic and Cox regression.
    """
    positive = int(np.count_nonzero(records.targets > 0))
    rarer = min(positive, len(records) - positive)
    num_features: int = records.features.shape[1]
    return rarer >= FEWEST_OF_A_CLASS * num_features


def _are_few(loss: Loss, records: Records) -> bool:
    """Whether so few records, or so few of a class, may have any model."""
    num_records, num_features = records.features.shape
    if num_records < FEWEST_PER_FEATURE * num_features:
        return True
    return loss.has_classes() and not both_classes_tell(records)
