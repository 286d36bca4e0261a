"""What a simulation's run is compared with: the best model of the union of the records.

It never takes longer than the training: relative fitness along the way is computed from moments
where the loss allows, and otherwise from a sample around the optimum; the run without noise is left
out where it would be long, unless it is asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from common.arrays import Vector
from common.blas import one_blas_thread
from common.features import FeatureMap
from common.terms import Records
from learner.algorithms.clocks import Tick
from learner.algorithms.protocol import OutsideBoxError
from learner.planning.plan import Plan
from learner.planning.public_side import PublicSide
from learner.planning.validation import public_theta
from learner.results.run_folder import Trace
from learner.results.summary import Evaluated
from learner.simulated.evaluation import Evaluation
from learner.training.line import OwnerLine
from learner.training.memory_owner import MemoryOwner
from learner.training.pace import Pace
from learner.training.runner import run
from learner.training.study import Outcome

log = logging.getLogger("copriv.learner")

# Records that the run without noise looks at where nobody has asked for it: less than a second.
NOISELESS_RECORDS = 20_000_000
# A model that is no further from the best one is the best one. Where no formula gives that, it is
# found nearly enough that another one is better by this at most.
ROUNDING, SOLVED = 1e-12, 1e-9


@one_blas_thread()
def evaluate(
    outcome: Outcome,
    trace: Trace,
    shards: Sequence[Records],
    public: PublicSide,
    *,
    noiseless: bool,
) -> tuple[Evaluated, Vector]:
    """What a simulation's run comes to, and relative fitness after each communication.

    Args:
      outcome: What came of it.
      trace: How it went.
      shards: All owners' records.
      public: The feature map and the public records.
      noiseless: Whether the run without noise is made however long it takes.
    """
    plan = outcome.plan
    evaluation = Evaluation(shards=shards, problem=plan.problem)
    psi = evaluation.relative_fitness_along(trace.central_models(outcome.theta.size))
    silent = None
    if noiseless or _is_cheap(plan, shards):
        try:
            theta = _noiseless_model(plan, public.feature_map, shards, past=trace.ticks())
            silent = _relative_fitness(evaluation, theta)
        except OutsideBoxError as error:
            # The run that was paid for stayed inside: its results are not lost for this.
            log.warning("the same run without noise is left out: %s", error)
    free = public_theta(plan, public)
    evaluated = Evaluated(
        relative_fitness_public=None if free is None else _relative_fitness(evaluation, free),
        fitness=evaluation.fitness(outcome.theta),
        fitness_optimal=evaluation.fitness_optimal,
        relative_fitness=_relative_fitness(evaluation, outcome.theta),
        relative_fitness_noiseless=silent,
        relative_fitness_alone=tuple(map(_rounded, evaluation.relative_fitness_alone.tolist())),
        models_alone=evaluation.models_alone,
    )
    return evaluated, psi


def _relative_fitness(evaluation: Evaluation, theta: Vector) -> float:
    """Relative fitness of one model; 0 where no more than rounding is left."""
    return _rounded(float(evaluation.relative_fitness(theta[None, :])[0]))


def _rounded(psi: float) -> float:
    """The same, or 0 where it is the best model's as far as that is known.

    >>> [_rounded(psi) for psi in (-1e-3, -1e-11, 1e-13, 1e-11)]
    [-0.001, 0.0, 0.0, 1e-11]
    """
    return 0.0 if -SOLVED <= psi <= ROUNDING else psi


def _is_cheap(plan: Plan, shards: Sequence[Records]) -> bool:
    """Whether the run without noise takes a second at most, as far as the records go."""
    from_moments = plan.loss.is_quadratic and plan.decision.clip is None
    asked = sum(m * len(shard) for m, shard in zip(plan.responses, shards, strict=True))
    return from_moments or asked <= NOISELESS_RECORDS


def _noiseless_model(
    plan: Plan, feature_map: FeatureMap, shards: Sequence[Records], *, past: Iterable[Tick]
) -> Vector:
    """The model of the same ticks without noise: the cost of privacy is counted from it.

    Only a simulation has the shards. Ticks that owners had a say in are taken from the run.
    """
    settings = plan.settings
    ticks = plan.ticks() if settings.algorithm.initiative == "learner" else past
    names = [entry.name for entry in settings.owners]
    owners = [
        MemoryOwner(name, shard, seed=None) for name, shard in zip(names, shards, strict=True)
    ]
    if plan.decision.scales:
        # There is no noise that could be taken back.
        silent = replace(plan.decision, scales=(0.0,) * len(owners))
        plan = replace(plan, decision=silent)
    terms = plan.terms(feature_map, study_id="noiseless")
    lines = [OwnerLine(owner, its) for owner, its in zip(owners, terms, strict=True)]
    for line, responses in zip(lines, plan.responses, strict=True):
        if responses:
            line.enroll()
    return run(
        plan.algorithm,
        ticks,
        lines,
        journal=None,
        horizon=plan.horizon,
        pace=Pace(time_scale=0.0, patience=settings.network.patience),
    )
