"""A study's settings become a proposal for the twin, in public facts only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from common.arrays import Vector
from common.losses import Regulariser
from common.privacy import plan_noise
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import Groups, slots_of
from learner.algorithms.table import simulated
from learner.forecast.groups import Model
from learner.forecast.twin import Proposal
from learner.planning.deciding import decide
from learner.planning.plan import Decision, Plan, algorithm_of, is_scheduled
from learner.planning.public_side import PublicSide
from learner.planning.roles import clock_rates, groups_of, own_index
from learner.planning.settings import StudySettings
from learner.simulated.schedules import ALWAYS, Attendance

__all__ = ["model_of", "propose"]


def model_of(settings: StudySettings, public: PublicSide) -> Model:
    """What the study learns."""
    return Model(
        loss=public.loss(settings.model),
        regulariser=Regulariser(coefficient=settings.model.regularisation),
        theta_max=settings.model.theta_max,
    )


def propose(
    settings: StudySettings,
    public: PublicSide,
    *,
    num_records: Sequence[int],
    seed: int,
    decision: Decision | None = None,
    attendance: Attendance = ALWAYS,
) -> Proposal:
    """The study as it would run; what it leaves to "auto" is decided as the study decides it.

    Args:
      settings: The study.
      public: The feature map and the public records.
      num_records: Each owner's n_i.
      seed: The clocks' seed.
      decision: What was decided before for the same study; None to decide.
      attendance: How often owners are there.

    Raises:
      InputError: Something is left to "auto" and there are no public records.
      ValueError: The noise would be too large to be drawn.
    """
    if decision is None:
        decision = decide(settings, public, num_records=num_records, seed=seed)
    plan = Plan(
        settings=settings,
        num_features=public.feature_map.num_features,
        decision=decision,
        seed=seed,
    )
    scheduled = is_scheduled(settings)
    groups, rates = groups_of(settings), _rates(settings, num_records)
    algorithm = simulated(algorithm_of(settings, public.feature_map.num_features, decision))
    if isinstance(algorithm, Asynchronous) and algorithm.counted and not scheduled:
        # What a run counts comes to the frequencies that are expected.
        shares = attendance.shares(len(num_records))[[group[0] for group in groups]]
        algorithm = replace(algorithm, counted=False, frequency=rates * shares)
    ticks = None
    known = settings.seed is not None and settings.algorithm.initiative == "learner"
    if known and isinstance(algorithm, Asynchronous):
        ticks = slots_of(islice(plan.ticks(), plan.horizon), groups)
    return Proposal(
        algorithm=algorithm,
        num_records=np.array(num_records, dtype=np.float64),
        unit_scales=_unit_scales(plan, public, num_records),
        clip=decision.clip,
        split="schedule" if scheduled else "horizon",
        rates=rates,
        ticks=ticks,
        attendance=_of_groups(attendance, groups),
    )


def _unit_scales(plan: Plan, public: PublicSide, num_records: Sequence[int]) -> Vector:
    """Scale of each owner's noise if it gave one response only, 0 for the learner's own shard."""
    domain = public.feature_map.domain
    units = [
        plan_noise(replace(terms, responses=1), domain, num_records=n_i).noise_scale
        for terms, n_i in zip(
            plan.terms(public.feature_map, study_id="forecast"), num_records, strict=True
        )
    ]
    own = own_index(plan.settings)
    if own is not None:
        units[own] = 0.0
    return np.array(units)


def _rates(settings: StudySettings, num_records: Sequence[int]) -> Vector:
    """Expected communications of each group, in proportion."""
    if settings.algorithm.initiative == "broadcast":
        return np.array([settings.owners[group[0]].listening for group in groups_of(settings)])
    return clock_rates(settings, num_records)


def _of_groups(attendance: Attendance, groups: Groups) -> Attendance:
    """A group is there where its rarest member is."""
    if attendance.availability is None or all(len(group) == 1 for group in groups):
        return attendance
    rarest = [float(attendance.availability[list(group)].min()) for group in groups]
    return replace(attendance, availability=np.array(rarest))
