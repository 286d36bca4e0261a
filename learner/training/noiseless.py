"""A run once more, without noise, where the shards are here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from common.arrays import Vector
from common.features import FeatureMap
from common.terms import Records
from learner.algorithms.clocks import Tick
from learner.planning.plan import Plan
from learner.planning.settings import StudySettings
from learner.training.line import OwnerLine
from learner.training.memory_owner import MemoryOwner
from learner.training.runner import Pace, run

__all__ = ["noiseless_model"]


def noiseless_model(
    settings: StudySettings,
    feature_map: FeatureMap,
    shards: Sequence[Records],
    *,
    plan: Plan,
    past: Iterable[Tick],
) -> Vector:
    """The model of the same ticks without noise: the cost of privacy is counted from it.

    Only a simulation has the shards. Ticks that owners had a say in are taken from the run.
    """
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
