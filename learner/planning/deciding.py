"""What a study leaves to "auto" is decided from public records, n_i, budgets and clocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import islice

import numpy as np

from common.arrays import Vector
from common.errors import InputError
from common.losses import domain_gradient_bound
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import slots_of
from learner.algorithms.moments import SecondMoments
from learner.algorithms.synchronous import SynchronousAverage, SynchronousDescent
from learner.algorithms.table import simulated
from learner.planning.choice import HORIZONS, Conditions, choose
from learner.planning.plan import Decision, algorithm_of, clocks_of, is_scheduled, kind_of
from learner.planning.public_side import PublicSide
from learner.planning.roles import (
    as_larger_owners,
    clock_rates,
    epsilons_of,
    epsilons_of_groups,
    groups_of,
)
from learner.planning.settings import StudySettings
from learner.planning.step import choose_rho, largest_stable_step

__all__ = ["decide"]


CHOICE_SEED = 0
# A schedule is held in memory.
LONGEST_SCHEDULE = 1_000_000


def decide(
    settings: StudySettings, public: PublicSide, *, num_records: Sequence[int], seed: int
) -> Decision:
    """What the settings leave to "auto", from public facts; numbers that are given stay.

    Args:
      settings: The study.
      public: The feature map and the public records.
      num_records: Each owner's n_i.
      seed: The clocks' seed.

    Raises:
      InputError: Something is left to "auto" and there are no public records.
    """
    counts = tuple(num_records)
    given = settings.algorithm
    parameters = asdict(public.loss(settings.model))
    if kind_of(settings).constant is None:
        return Decision(
            num_records=counts,
            horizon=len(counts),
            clip=None,
            constant=0.0,
            parameters=parameters,
        )
    fixed = Decision(
        num_records=counts,
        horizon=given.horizon if isinstance(given.horizon, int) else 0,
        clip=settings.privacy.clip if isinstance(settings.privacy.clip, float) else None,
        constant=given.constant or 0.0,
        parameters=parameters,
    )
    _check_schedule(settings, fixed.horizon)
    left_open = [
        name
        for name, is_open in (
            ("algorithm.horizon", not fixed.horizon),
            ("algorithm.step", not fixed.constant),
            ("privacy.clip", settings.privacy.clip == "auto"),
        )
        if is_open
    ]
    if not left_open:
        return fixed
    if public.records is None:
        raise InputError(
            f'{left_open[0]} = "auto" needs public records; give features.public, or a NUMBER'
        )
    return _choose(settings, public, fixed, seed=seed)


def _choose(settings: StudySettings, public: PublicSide, fixed: Decision, *, seed: int) -> Decision:
    """The open numbers, by simulation on the public records."""
    assert public.records is not None  # noqa: S101 (decide has looked)
    num_features = public.feature_map.num_features
    unit = simulated(algorithm_of(settings, num_features, replace(fixed, horizon=1, constant=1.0)))
    if isinstance(unit, Asynchronous):
        # Frequencies that will be counted are forecast by the clocks' known rates.
        known = clock_rates(settings, fixed.num_records) if unit.counted else unit.frequency
        unit = as_larger_owners(replace(unit, counted=False, frequency=known))
    assert not isinstance(unit, SecondMoments)  # noqa: S101 (they leave nothing open)
    conditions = _conditions(settings, public, fixed, seed=seed)
    rng = np.random.default_rng(CHOICE_SEED)
    is_settled = fixed.horizon > 0 and settings.privacy.clip != "auto"
    if is_settled and isinstance(unit, Asynchronous):
        algorithm = conditions.corrected(replace(unit, horizon=fixed.horizon))
        return _choose_step(algorithm, conditions, fixed, rng=rng)
    choice = choose(
        unit,
        conditions,
        horizon=fixed.horizon or None,
        clip=fixed.clip,
        choose_clip=settings.privacy.clip == "auto",
        step=fixed.constant * step_of_unit(unit, fixed.horizon) or None,
        rng=rng,
    )
    limit = None
    if isinstance(unit, Asynchronous):
        limit = largest_stable_step(unit, public.records, loss=conditions.loss)
    unit_step = step_of_unit(unit, choice.horizon)
    return replace(
        fixed,
        horizon=choice.horizon,
        clip=choice.clip,
        constant=fixed.constant or choice.step / unit_step,
        forecast=choice.forecast_relative_fitness,
        largest_stable=None if limit is None else limit / unit_step,
    )


def _choose_step(
    algorithm: Asynchronous,
    conditions: Conditions,
    fixed: Decision,
    *,
    rng: np.random.Generator,
) -> Decision:
    """The step alone, where horizon and clip are given."""
    bound = conditions.bound if fixed.clip is None else min(fixed.clip, conditions.bound)
    promised = conditions.promise(fixed.horizon)
    choice = choose_rho(
        algorithm,
        conditions.public,
        loss=conditions.loss,
        noise_scales=2.0 * bound * promised / (conditions.num_records * conditions.epsilons),
        clip=fixed.clip,
        rng=rng,
    )
    return replace(
        fixed,
        constant=choice.rho,
        forecast=choice.forecast_relative_fitness,
        largest_stable=choice.largest_stable_rho,
    )


def step_of_unit(
    unit: Asynchronous | SynchronousAverage | SynchronousDescent, horizon: int
) -> float:
    """The step that a constant of 1 makes: of a local copy, or of the first round."""
    if isinstance(unit, Asynchronous):
        return replace(unit, horizon=horizon, rho=1.0).alpha if horizon else 0.0
    if isinstance(unit, SynchronousDescent):
        return 1.0 / horizon**2 if horizon else 0.0
    return 1.0


def _conditions(
    settings: StudySettings, public: PublicSide, fixed: Decision, *, seed: int
) -> Conditions:
    """The public facts that the choice rests on."""
    assert public.records is not None  # noqa: S101 (decide has looked)
    groups = groups_of(settings)
    longest = max(fixed.horizon, *HORIZONS) if is_scheduled(settings) else HORIZONS[-1]
    ticks = islice(clocks_of(settings, fixed.num_records, seed=seed), longest)
    slots = slots_of(ticks, groups)
    counts = np.array(fixed.num_records, dtype=np.float64)

    def promise(horizon: int) -> Vector:
        if is_scheduled(settings):
            return np.bincount(slots[:horizon], minlength=len(groups)).astype(np.float64)
        return np.full(len(groups), float(horizon))

    loss = public.loss(settings.model)
    return Conditions(
        public=public.records,
        loss=loss,
        bound=domain_gradient_bound(
            loss,
            public.feature_map.domain,
            theta_max=settings.model.theta_max,
        ),
        epsilons=epsilons_of_groups(epsilons_of(settings), groups),
        num_records=np.array([counts[list(group)].sum() for group in groups]),
        slots=slots,
        promise=promise,
        counted=is_scheduled(settings) and settings.algorithm.correction == "counted",
    )


def _check_schedule(settings: StudySettings, horizon: int) -> None:
    """Refuse a schedule that cannot be held."""
    if is_scheduled(settings) and horizon > LONGEST_SCHEDULE:
        raise InputError(
            f'privacy.split = "schedule" draws the ticks ahead, at most {LONGEST_SCHEDULE:,}; '
            'give a shorter horizon or split = "horizon"'
        )
