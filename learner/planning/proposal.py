"""A study's settings become a proposal for the twin, in public facts only."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from common.arrays import Vector
from common.errors import InputError
from common.features import FeatureMap
from common.privacy import plan_noise
from common.terms import StudyTerms
from common.texts import counted
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import Groups, slots_of
from learner.algorithms.table import simulated
from learner.planning.decision import Decision
from learner.planning.guard import NotBegunError
from learner.planning.plan import Plan, algorithm_of, is_scheduled
from learner.planning.roles import clock_rates, groups_of, own_index
from learner.planning.settings import StudySettings
from learner.planning.ways import resolved
from learner.simulated.schedules import ALWAYS, Attendance
from learner.simulated.studies import Proposal

# Longer sequences of ticks are drawn again instead of kept.
LONGEST_KNOWN = 100_000


class NoiseError(NotBegunError, InputError):
    """An owner cannot draw the noise that a study asks for, with so many records and features."""

    @classmethod
    def of(cls, owner: str, num_records: int, error: ValueError) -> NoiseError:
        """The sentence about an owner whose noise cannot be planned.

        >>> str(NoiseError.of("north", 1, ValueError("too much noise")))
        'owner north, with 1 record: too much noise'
        """
        return cls(f"owner {owner}, with {counted(num_records, 'record')}: {error}")


def attendance_of(settings: StudySettings) -> Attendance:
    """How often owners are expected to be there."""
    given = settings.forecast
    shares = [given.availability_of.get(o.name, given.availability) for o in settings.owners]
    return Attendance(availability=np.array(shares), mean_absence=given.mean_absence)


def propose(
    settings: StudySettings,
    feature_map: FeatureMap,
    decision: Decision,
    *,
    seed: int,
    attendance: Attendance = ALWAYS,
) -> Proposal:
    """The study as it would run.

    Args:
      settings: The study.
      feature_map: Its feature map.
      decision: What it leaves to "auto", decided.
      seed: The clocks' seed.
      attendance: How often owners are there.

    Raises:
      NoiseError: The noise could not be drawn.
    """
    settings = resolved(settings, decision)
    p = feature_map.num_features
    plan = Plan(settings=settings, num_features=p, decision=decision, seed=seed)
    proposal = outline(
        settings, feature_map, decision, unit_scales(plan, feature_map), attendance=attendance
    )
    known = settings.seed is not None and settings.algorithm.initiative == "learner"
    are_kept = known and plan.horizon <= LONGEST_KNOWN
    if not (are_kept and isinstance(proposal.algorithm, Asynchronous)):
        return proposal
    ticks = slots_of(islice(plan.ticks(), plan.horizon), groups_of(settings))
    return replace(proposal, ticks=ticks)


def outline(
    settings: StudySettings,
    feature_map: FeatureMap,
    decision: Decision,
    units: Vector,
    *,
    attendance: Attendance = ALWAYS,
) -> Proposal:
    """The study as it would run, with this noise of one response and ticks still to be drawn."""
    scheduled, num_records = is_scheduled(settings), decision.num_records
    groups, rates = groups_of(settings), _rates(settings, num_records)
    algorithm = simulated(algorithm_of(settings, feature_map.num_features, decision))
    if isinstance(algorithm, Asynchronous) and algorithm.counted and not scheduled:
        # What a run counts comes to the frequencies that are expected.
        shares = attendance.shares(len(num_records))[[group[0] for group in groups]]
        algorithm = replace(algorithm, counted=False, frequency=rates * shares)
    return Proposal(
        algorithm=algorithm,
        num_records=np.array(num_records, dtype=np.float64),
        unit_scales=units,
        clip=decision.clip,
        split="schedule" if scheduled else "horizon",
        rates=rates,
        asks_everyone=decision.asks_everyone,
        attendance=_of_groups(attendance, groups),
    )


def unit_scales(plan: Plan, feature_map: FeatureMap) -> Vector:
    """Scale of each owner's noise if it gave one response only, 0 for the learner's own shard.

    Raises:
      NoiseError: It could not be drawn.
    """
    asked = [replace(terms, responses=1) for terms in plan.terms(feature_map, study_id="forecast")]
    return np.array(_noise_scales(plan, feature_map, asked))


def check_noise(plan: Plan, feature_map: FeatureMap) -> None:
    """Refuse a study that asks an owner for more responses than its budget has noise for.

    Raises:
      NoiseError: An owner could not draw the noise of all its responses.
    """
    _noise_scales(plan, feature_map, plan.terms(feature_map, study_id="check"))


def _noise_scales(plan: Plan, feature_map: FeatureMap, asked: Sequence[StudyTerms]) -> list[float]:
    """Scale of each owner's noise under its terms, 0 where it is not asked or adds none."""

    @functools.cache
    def scale(terms: StudyTerms, n_i: int) -> float:
        return plan_noise(terms, feature_map.domain, num_records=n_i).noise_scale

    scales = [0.0] * len(asked)
    own, counts = own_index(plan.settings), plan.decision.num_records
    for i, (terms, n_i) in enumerate(zip(asked, counts, strict=True)):
        if i == own or not terms.responses:
            continue
        try:
            scales[i] = scale(terms, n_i)
        except ValueError as error:
            raise NoiseError.of(plan.settings.owners[i].name, n_i, error) from None
    return scales


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
