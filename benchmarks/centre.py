"""A trusted centre that holds all owners' records, under the same epsilon and the same bounds.

What owners lose by noise of their own, one each instead of one for all, is seen against it.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from fractions import Fraction
from pathlib import Path

import numpy as np
from record_cases import Case
from ways import ASYNCHRONOUS, Reached, Way, as_one_owner, study

from common.errors import InputError
from common.moments import pack_moments
from common.privacy import plan_noise
from common.terms import StudyTerms
from learner.algorithms.moments import SecondMoments
from learner.simulated.replicates import ShardMoments
from owner.mechanism import SecureNoise

DIFFPRIVLIB = Path(__file__).with_name("diffprivlib_models.py")


def statistics(case: Case, epsilon: float, seeds: int) -> Reached:
    """Noisy sufficient statistics of the union, solved: OpenDP's noise, as an owner of all adds it.

    The noise is of the operating system's entropy: numbers differ a little from run to run.
    """
    _needs_squared_loss(case)
    domain, problem = case.feature_map.domain, case.problem
    one = as_one_owner(case)
    terms = StudyTerms(
        study_id="centre",
        loss=case.loss,
        theta_max=case.theta_max,
        feature_map="",
        horizon=1,
        responses=1,
        epsilon=Fraction(str(epsilon)),
        release="moments",
    )
    plan = plan_noise(terms, domain, num_records=len(one.shards[0]))
    noise = np.ldexp(SecureNoise(plan).draw(seeds).astype(float), plan.grid_exponent)
    solver = SecondMoments(
        weights=np.ones(1),
        num_features=domain.num_features,
        theta_max=case.theta_max,
        regulariser=problem.regulariser,
    )
    exact = ShardMoments.of(one.shards)
    packed = pack_moments(exact.gram[0], exact.cross[0])
    models = np.stack([solver.solve(packed + drawn) for drawn in noise])
    return Reached(case.world.evaluation.relative_fitness(models))


def descent(case: Case, epsilon: float, seeds: int) -> Reached:
    """Noisy gradient descent on the union.

    Algorithm 1 with one owner is gradient descent from 0 with a constant step; clip, T and step
    are chosen from the public records by the same chooser, and the last half is averaged.
    """
    return study({"algorithm": ASYNCHRONOUS})(as_one_owner(case), epsilon, seeds)


def diffprivlib(python: Path | None) -> Way:
    """``LinearRegression`` of diffprivlib on the union's features, run by another interpreter.

    It needs an older scikit-learn than copriv's environment has. Its bounds are those of each
    feature, since it knows no L1 radius, and its models are cut to the box.

    Args:
      python: An interpreter whose environment has diffprivlib; None for none.
    """

    def way(case: Case, epsilon: float, seeds: int) -> Reached:
        _needs_squared_loss(case)
        if python is None:
            raise InputError("diffprivlib: give --diffprivlib PYTHON, an interpreter that has it")
        records, domain = case.world.evaluation.records, case.feature_map.domain
        with tempfile.TemporaryDirectory() as folder:
            asked, answer = Path(folder) / "asked.npz", Path(folder) / "answer.npy"
            np.savez(
                asked,
                features=records.features,
                targets=records.targets,
                feature_bound=domain.feature_bound,
                target_bound=domain.target_bound,
                epsilon=epsilon,
                seeds=seeds,
            )
            alone = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
            subprocess.run([python, DIFFPRIVLIB, asked, answer], check=True, env=alone)
            models = np.load(answer)
        models = np.clip(models, -case.theta_max, case.theta_max)
        return Reached(case.world.evaluation.relative_fitness(models))

    return way


def _needs_squared_loss(case: Case) -> None:
    """Refuse other losses.

    Raises:
      InputError: The case has one.
    """
    if not case.problem.loss.is_quadratic:
        raise InputError(f"{case.loss} loss has no sufficient statistics")
