"""What a simulation compares its run with."""

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from common.config import check_settings
from common.losses import Hinge, Regulariser
from common.terms import Records
from learner.commands.measuring import _relative_fitness, evaluate
from learner.planning.public_side import PublicSide
from learner.planning.settings import StudySettings
from learner.results.run_folder import Trace
from learner.simulated.evaluation import Evaluation
from learner.simulated.problem import Problem
from learner.training.journal import Journal
from learner.training.memory_owner import LocalShard, MemoryOwner
from learner.training.study import Watch, train

NAMES = ("north", "south")
OWN = {"learner": {"own": "south", "shows_model": True}}


def study(*, theta_max, algorithm, epsilon):
    """A table of settings of both owners."""
    return {
        "name": "small",
        "profile": "published",
        "seed": 3,
        "features": {"map": "unused.json"},
        "model": {"loss": "squared", "theta_max": theta_max, "regularisation": 0.01},
        "algorithm": algorithm,
        "privacy": {"epsilon": epsilon, "sensitivity": "clip", "clip": 0.5},
        "owners": [{"name": name} for name in NAMES],
    }


@pytest.mark.parametrize("changes", [{}, OWN, {"groups": [NAMES]}], ids=["plain", "own", "groups"])
def test_the_run_without_noise_is_the_run_but_for_its_noise(changes, feature_map, tmp_path):
    algorithm = {"name": "asynchronous", "horizon": 40, "rho": 0.05}
    # So little noise that what it changes is far below what a clip does.
    table = study(theta_max=1.0, algorithm=algorithm, epsilon=10**7)
    settings = check_settings(StudySettings, table | changes, where="test")
    rng, domain = np.random.default_rng(1), feature_map.domain
    shards = []
    for size in (60, 90):
        x = rng.uniform(-1, 1, size=(size, feature_map.num_features))
        y = np.clip(x @ np.linspace(-1, 1, x.shape[1]), -1, 1)
        shards.append(Records(features=x * domain.feature_bound, targets=y * domain.target_bound))
    own = settings.learner.own
    owners = [
        LocalShard(name, shard) if name == own else MemoryOwner(name, shard, seed=i)
        for i, (name, shard) in enumerate(zip(NAMES, shards, strict=True))
    ]
    public = PublicSide(feature_map=feature_map, records=None)
    trace, journal = Trace(NAMES), Journal(tmp_path / "journal.sqlite")
    try:
        outcome = train(
            settings, public, owners, journal=journal, watch=Watch(applied=trace.append)
        )
    finally:
        journal.close()
    evaluated, psi = evaluate(outcome, trace, shards, public, noiseless=True)
    assert evaluated.relative_fitness_noiseless == pytest.approx(
        evaluated.relative_fitness, rel=1e-4
    )
    assert psi[-1] == pytest.approx(evaluated.relative_fitness, rel=1e-9)


class Still(MemoryOwner):
    """Its answers move no model, as noise may have it by chance."""

    def answer(self, query):
        response = super().answer(query)
        return replace(response, gradient=np.zeros_like(response.gradient))


def test_a_run_without_noise_that_leaves_the_box_takes_no_results_along(
    feature_map, tmp_path, caplog
):
    """All of epsilon is spent by then."""
    printed = {"name": "synchronous-1", "rule": "printed", "horizon": 5, "rho": 1e3}
    table = study(theta_max=0.1, algorithm=printed, epsilon=1)
    settings = check_settings(StudySettings, table, where="test")
    rng, domain = np.random.default_rng(1), feature_map.domain
    x = rng.uniform(-1, 1, size=(60, feature_map.num_features)) * domain.feature_bound
    shard = Records(features=x, targets=np.full(60, domain.target_bound))
    owners = [Still(name, shard, seed=1) for name in NAMES]
    public, trace = PublicSide(feature_map=feature_map, records=None), Trace(NAMES)
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        watch = Watch(applied=trace.append)
        outcome = train(settings, public, owners, journal=journal, watch=watch)
    evaluated, psi = evaluate(outcome, trace, [shard, shard], public, noiseless=True)
    assert evaluated.relative_fitness_noiseless is None
    assert len(psi) == 5
    (said,) = [each.getMessage() for each in caplog.records if each.name == "copriv.learner"]
    assert said.startswith(
        "the same run without noise is left out: the model has left the box of half side 0.1"
    )


def test_a_model_that_is_better_than_the_best_one_by_what_that_is_off_is_the_best_one():
    rng = np.random.default_rng(1)
    shard = Records(features=rng.normal(size=(50, 2)), targets=np.where(np.arange(50) % 2, 1.0, -1))
    problem = Problem(loss=Hinge(), regulariser=Regulariser(coefficient=1e-3), theta_max=5.0)
    best = problem.optimum(shard)
    for off, found in ((1e-10, 0.0), (1e-2, None)):
        evaluation = Evaluation(shards=[shard], problem=problem)
        # As if the search had ended that far from it.
        evaluation.__dict__["theta_optimal"] = best + off
        assert evaluation.relative_fitness(best[None, :])[0] < 0
        told = _relative_fitness(evaluation, best)
        assert told == found if found is not None else told < 0
