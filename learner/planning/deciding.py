"""What a study leaves to "auto" is decided from public records, n_i, budgets and clocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import islice

import numpy as np

from common.errors import InputError
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import LEAST_TICKS, slots_of
from learner.algorithms.moments import SecondMoments
from learner.algorithms.synchronous import SynchronousAverage, SynchronousDescent
from learner.planning.choice import HORIZONS, Given, choose
from learner.planning.plan import Decision, Plan, clocks_of, is_scheduled, kind_of
from learner.planning.proposal import attendance_of, outline, problem_of, propose
from learner.planning.public_side import PublicSide, known_groups, public_groups
from learner.planning.roles import clock_rates, epsilons_of, groups_of
from learner.planning.settings import StudySettings
from learner.simulated.groups import PublicGroups
from learner.simulated.stability import largest_stable_step
from learner.simulated.studies import Proposal
from learner.simulated.twin import Forecast, forecast

__all__ = ["decide", "decide_quietly", "expect", "left_open"]

# A schedule is held in memory.
LONGEST_SCHEDULE = 1_000_000
FORECAST_SEED = 0


def decide(
    settings: StudySettings, public: PublicSide, *, num_records: Sequence[int], seed: int
) -> Decision:
    """What the settings leave to "auto"; numbers that are given stay.

    What was chosen comes with the forecast that ``copriv forecast`` prints for the study.

    Args:
      settings: The study.
      public: The feature map and the public records.
      num_records: Each owner's n_i.
      seed: The clocks' seed.

    Raises:
      InputError: Something is left to "auto" and there are no public records, or too few.
    """
    decision = decide_quietly(settings, public, num_records=num_records, seed=seed)
    if not left_open(settings):
        return decision
    expected = expect(settings, public, decision, seed=seed).expected
    return replace(decision, forecast=expected)


def decide_quietly(
    settings: StudySettings, public: PublicSide, *, num_records: Sequence[int], seed: int
) -> Decision:
    """:func:`decide` without the forecast of what was chosen."""
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
        asks_everyone=is_scheduled(settings),
    )
    _check_schedule(settings, fixed.horizon)
    is_open = left_open(settings)
    if not is_open:
        return fixed
    if public.records is None:
        raise InputError(
            f'{is_open[0]} = "auto" needs public records; give features.public, or a NUMBER'
        )
    if len(public.records) == 0:
        raise InputError('"auto": there are no public records to choose from; give numbers instead')
    return _chosen(settings, public, fixed, seed=seed)


def left_open(settings: StudySettings) -> list[str]:
    """The keys that are left to "auto"."""
    given = settings.algorithm
    if kind_of(settings).constant is None:
        return []
    is_open = {
        "algorithm.horizon": not isinstance(given.horizon, int),
        "algorithm.step": not given.constant,
        "privacy.clip": settings.privacy.clip == "auto",
    }
    return [key for key, value in is_open.items() if value]


def expect(
    settings: StudySettings,
    public: PublicSide,
    decision: Decision,
    *,
    seed: int,
    num_records: Sequence[int] = (),
    taking_part: Sequence[int] | None = None,
    known: Sequence[int | None] | None = None,
    groups: PublicGroups | None = None,
) -> Forecast:
    """What a study is expected to come to.

    Args:
      settings: The study of those who take part.
      public: The feature map and the public records.
      decision: What was left open, decided.
      seed: The clocks' seed.
      num_records: The n_i of all owners whose union fitness is judged on, where not all of them
        take part.
      taking_part: Which of these do; None for all.
      known: The groups of public records that all of these are known to be.
      groups: The public records in groups, where they were made before.
    """
    return forecast(
        propose(
            settings,
            public.feature_map,
            decision,
            seed=seed,
            attendance=attendance_of(settings),
        ),
        groups or public_groups(public, problem_of(settings, public.loss(settings.model))),
        num_records=np.array(num_records or decision.num_records, dtype=np.float64),
        taking_part=taking_part,
        known=known_groups(public, settings) if known is None else known,
        runs=settings.forecast.runs,
        worlds=settings.forecast.worlds,
        rng=np.random.default_rng(FORECAST_SEED),
    )


def _chosen(settings: StudySettings, public: PublicSide, fixed: Decision, *, seed: int) -> Decision:
    """The open numbers, by simulation on the public records."""
    unit = _unit(settings, public, fixed)
    algorithm = unit.algorithm
    assert not isinstance(algorithm, SecondMoments)  # noqa: S101 (they leave nothing open)
    problem = problem_of(settings, public.loss(settings.model))
    choice = choose(
        unit,
        public_groups(public, problem),
        Given(
            horizon=fixed.horizon or None,
            clip=fixed.clip,
            chooses_clip=settings.privacy.clip == "auto",
            step=fixed.constant * step_of_unit(algorithm, fixed.horizon) or None,
            shortest=_shortest(settings, fixed, seed=seed),
        ),
        bound=problem.gradient_bound(public.feature_map.domain),
        known=known_groups(public, settings),
    )
    unit_step = step_of_unit(algorithm, choice.horizon)
    chosen = replace(
        fixed,
        horizon=choice.horizon,
        clip=choice.clip,
        constant=fixed.constant or choice.step / unit_step,
    )
    if not isinstance(algorithm, Asynchronous):
        return chosen
    limit = _largest_stable(settings, public, chosen, seed=seed) / unit_step
    constant = fixed.constant or min(chosen.constant, limit)
    return replace(chosen, constant=constant, largest_stable=limit)


def _unit(settings: StudySettings, public: PublicSide, fixed: Decision) -> Proposal:
    """The study with what is open at 1: horizon, step, and the bound of the noise."""
    counts = np.array(fixed.num_records, dtype=np.float64)
    return outline(
        settings,
        public.feature_map,
        replace(fixed, horizon=1, clip=None, constant=1.0),
        2.0 / (counts * epsilons_of(settings)),
        attendance=attendance_of(settings),
    )


def _shortest(settings: StudySettings, fixed: Decision, *, seed: int) -> int:
    """The shortest horizon that asks everyone."""
    groups = groups_of(settings)
    if not kind_of(settings).is_schedulable:
        return 1
    if is_scheduled(settings) or settings.algorithm.initiative != "learner":
        return LEAST_TICKS * len(groups)
    ticks = islice(clocks_of(settings, fixed.num_records, seed=seed), HORIZONS[-1])
    slots = slots_of(ticks, groups)
    first = [int(np.argmax(slots == slot)) + 1 for slot in np.unique(slots)]
    return max(LEAST_TICKS * len(groups), *first)


def _largest_stable(
    settings: StudySettings, public: PublicSide, chosen: Decision, *, seed: int
) -> float:
    """The largest stable step on the schedule that will run."""
    assert public.records is not None  # noqa: S101 (decide has looked)
    p = public.feature_map.num_features
    algorithm = Plan(settings=settings, num_features=p, decision=chosen, seed=seed).algorithm
    assert isinstance(algorithm, Asynchronous)  # noqa: S101 (the only one with a largest step)
    if algorithm.counted:
        known = clock_rates(settings, chosen.num_records)
        algorithm = replace(algorithm, counted=False, frequency=known)
    problem = problem_of(settings, public.loss(settings.model))
    return largest_stable_step(
        algorithm,
        public.records,
        loss=problem.loss,
        counts=public_groups(public, problem).unclipped(chosen.clip),
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


def _check_schedule(settings: StudySettings, horizon: int) -> None:
    """Refuse a schedule that cannot be held."""
    if is_scheduled(settings) and horizon > LONGEST_SCHEDULE:
        raise InputError(
            f'privacy.split = "schedule" draws the ticks ahead, at most {LONGEST_SCHEDULE:,}; '
            'give a shorter horizon or split = "horizon"'
        )
