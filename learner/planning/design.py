"""One way of learning, designed: what its settings leave to "auto" is chosen by simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import islice

import numpy as np

from common.arrays import Vector
from common.errors import InputError
from common.releases import NEWTON, curvature_scale
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import LEAST_TICKS, slots_of
from learner.algorithms.synchronous import SynchronousAverage, SynchronousDescent
from learner.planning.around import around_drifting
from learner.planning.decision import Decision, NotedAround
from learner.planning.ground import Ground
from learner.planning.plan import Plan, clocks_of, is_scheduled
from learner.planning.proposal import attendance_of, outline, unit_scales
from learner.planning.public_side import PublicSide
from learner.planning.roles import clock_rates, epsilons_of, groups_of
from learner.planning.settings import StudySettings
from learner.planning.shares import counted_shares
from learner.planning.split import ROUNDS, SHARES, Split, choose_odds, choose_split
from learner.planning.tuning import HORIZONS, Given, choose
from learner.simulated.stability import largest_stable_step
from learner.simulated.studies import Proposal
from learner.simulated.world import World

# A schedule is held in memory.
LONGEST_SCHEDULE = 1_000_000


def decided(settings: StudySettings, ground: Ground) -> Decision:
    """What one way of learning leaves open, decided."""
    kind = settings.algorithm.kind
    fixed = _given(settings, ground)
    if kind.release is NEWTON:
        return _newton(settings, ground, fixed)
    if kind.constant is None:
        if fixed.start is None:
            return fixed
        noted = NotedAround.of(around_drifting(ground.groups, None, doubts=False))
        return _with_noise(settings, ground, replace(fixed, around=noted))
    is_open = left_open(settings)
    if not is_open:
        return fixed
    require_records(ground.public, is_open[0])
    return _chosen(settings, ground, fixed, ground.choice_worlds)


def with_step_as_shown(settings: StudySettings, ground: Ground, decision: Decision) -> Decision:
    """The same with the step that is best where owners differ by what public records show alone."""
    return _chosen(settings, ground, replace(decision, constant=0.0), ground.forecast_worlds)


def _given(settings: StudySettings, ground: Ground) -> Decision:
    """What the settings say, and where models begin."""
    given = settings.algorithm
    fixed = Decision(
        num_records=ground.num_records,
        horizon=given.horizon if isinstance(given.horizon, int) else 0,
        clip=settings.privacy.clip if isinstance(settings.privacy.clip, float) else None,
        constant=given.constant or 0.0,
        parameters=asdict(ground.public.loss(settings.model)),
        asks_everyone=is_scheduled(settings),
        start=_start(settings, ground),
        validation=str(settings.privacy.validation),
    )
    if given.kind.constant is None:
        return replace(fixed, horizon=len(ground.num_records))
    _check_schedule(settings, fixed.horizon)
    return fixed


def _start(settings: StudySettings, ground: Ground) -> tuple[float, ...] | None:
    """The public model where models begin there, shrunk but for ticks; None for 0."""
    kind = settings.algorithm.kind
    if settings.algorithm.start == "zero" and kind.release is not NEWTON:
        return None
    records = ground.public.records
    if records is None or len(records) == 0:
        raise InputError(
            f"algorithm.{'name' if kind.release is NEWTON else 'start'}: the public "
            'model needs public records; give features.public, or start = "zero" with asynchronous'
        )
    if not ground.can_forecast:
        return tuple(ground.public.problem(settings).optimum(records).tolist())
    start = ground.groups.start if kind.constant is None else ground.groups.theta_optimal
    return tuple(start.tolist())


def _newton(settings: StudySettings, ground: Ground, fixed: Decision) -> Decision:
    """Newton's rounds, clip and share, and what is known around the public model."""
    problem, domain = ground.groups.problem, ground.public.feature_map.domain
    units = 1.0 / (ground.sizes * epsilons_of(settings))
    split = _split(settings, ground, fixed.clip, units)
    # How much answers count depends on their noise, and what noise is best on how they count.
    counted = _counted(ground, split, units)
    if counted is not None:
        split = _split(settings, ground, fixed.clip, units, counted)
    bound = split.bound(ground.gradient_bound)
    noted = NotedAround.of(
        around_drifting(ground.groups, split.clip, doubts=True),
        curvature_scale=curvature_scale(problem.loss, domain, bound=bound, share=split.share),
    )
    horizon = split.rounds * len(ground.num_records)
    chosen = replace(fixed, horizon=horizon, clip=split.clip, around=noted)
    return _with_noise(settings, ground, chosen)


def _split(
    settings: StudySettings,
    ground: Ground,
    clip: float | None,
    units: Vector,
    counted: Vector | None = None,
) -> Split:
    """The clip, share and rounds that are given, or the best ones."""
    share, rounds = settings.algorithm.curvature_share, settings.algorithm.rounds
    if not left_open(settings):
        return Split(
            clip=clip,
            share=share if isinstance(share, float) else 0.0,
            rounds=rounds if isinstance(rounds, int) else 1,
        )
    return choose_split(
        ground.groups,
        ground.step_worlds,
        domain=ground.public.feature_map.domain,
        units=units,
        clips=None if settings.privacy.clip == "auto" else [clip],
        shares=[share] if isinstance(share, float) else SHARES,
        rounds=[rounds] if isinstance(rounds, int) else _rounds(ground),
        counted=counted,
    )


def _counted(ground: Ground, split: Split, units: Vector) -> Vector | None:
    """How much each owner's answers count, shape (N,); None for as much as its records.

    What R rounds tell together has 1/R of the variance.
    """
    noise = split.sensitivity(split.bound(ground.gradient_bound))
    scales = units * noise / np.sqrt(split.rounds)
    return counted_shares(ground.groups, ground.sizes, scales, known=ground.known)


def _rounds(ground: Ground) -> Sequence[int]:
    """Numbers of rounds to try.

    A single round believes the curvature of the public records as far as noise hides the owners'
    own, and nothing mends a step that is then several times too long. Records of one place or time
    may lie still and say nothing of another, so a single round is for studies where public records
    of its own group stand for every owner.
    """
    return ROUNDS if ground.knows_every_owner else ROUNDS[1:]


def _with_noise(settings: StudySettings, ground: Ground, decision: Decision) -> Decision:
    """The decision with each owner's noise, and with what is believed in spite of it."""
    units, feature_map = _units(settings, ground, decision), ground.public.feature_map
    scaled = under_noise(settings, ground, decision, units)
    assert scaled.around is not None  # noqa: S101 (whoever asks has noted it)
    odds = choose_odds(outline(settings, feature_map, scaled, units), ground.step_worlds)
    return replace(scaled, around=replace(scaled.around, odds=odds))


def under_noise(
    settings: StudySettings, ground: Ground, decision: Decision, units: Vector | None = None
) -> Decision:
    r"""A design around the public model, with each owner's noise and how much its answers count.

    The gradient that R rounds tell together has 1/R of the variance of one. Of moments whose noise
    has the scale b, the gradient :math:`2(A\theta_0 - b)` has noise of the variance
    :math:`8b^2(1 + \|\theta_0\|^2)` in each coordinate.
    """
    units = _units(settings, ground, decision) if units is None else units
    scales = max(_plan(settings, ground, decision).responses) * units
    start, rounds = ground.groups.start, decision.horizon / len(decision.num_records)
    is_newton = settings.algorithm.kind.release is NEWTON
    factor = 1.0 / np.sqrt(rounds) if is_newton else 2.0 * np.sqrt(1.0 + start @ start)
    counted = counted_shares(ground.groups, ground.sizes, factor * scales, known=ground.known)
    shares = () if counted is None else tuple(counted.tolist())
    return replace(decision, scales=tuple(scales.tolist()), counted=shares)


def _units(settings: StudySettings, ground: Ground, decision: Decision) -> Vector:
    """Scale of each owner's noise if it gave one response; terms do not depend on it."""
    return unit_scales(_plan(settings, ground, decision), ground.public.feature_map)


def _plan(settings: StudySettings, ground: Ground, decision: Decision) -> Plan:
    p = ground.public.feature_map.num_features
    return Plan(settings=settings, num_features=p, decision=decision, seed=ground.seed)


def require_records(public: PublicSide, key: str) -> None:
    """Refuse "auto" without public records.

    Raises:
      InputError: There are none.
    """
    if public.records is None:
        raise InputError(
            f'{key} = "auto" needs public records; give features.public, or say what it is'
        )
    if len(public.records) == 0:
        raise InputError('"auto": there are no public records to choose from; give numbers instead')


def left_open(settings: StudySettings) -> list[str]:
    """The keys that are left to "auto"."""
    given = settings.algorithm
    kind = given.kind
    is_open = {
        "algorithm.horizon": kind.constant is not None and not isinstance(given.horizon, int),
        "algorithm.step": kind.constant is not None and not given.constant,
        "algorithm.rounds": kind.release is NEWTON and given.rounds == "auto",
        "algorithm.curvature_share": kind.release is NEWTON and given.curvature_share == "auto",
        "privacy.clip": settings.privacy.clip == "auto",
    }
    return [key for key, value in is_open.items() if value]


def _chosen(
    settings: StudySettings, ground: Ground, fixed: Decision, worlds: Sequence[World]
) -> Decision:
    """The open numbers, by simulation on the public records in these worlds."""
    unit = _unit(settings, ground, fixed)
    algorithm = unit.algorithm
    assert isinstance(algorithm, Asynchronous | SynchronousAverage | SynchronousDescent)  # noqa: S101
    choice = choose(
        unit,
        ground.groups,
        Given(
            horizon=fixed.horizon or None,
            clip=fixed.clip,
            chooses_clip=settings.privacy.clip == "auto" and fixed.clip is None,
            step=fixed.constant * step_of_unit(algorithm, fixed.horizon) or None,
            shortest=_shortest(settings, fixed, seed=ground.seed),
        ),
        bound=ground.gradient_bound,
        worlds=worlds,
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
    limit = _largest_stable(settings, ground, chosen) / unit_step
    constant = fixed.constant or min(chosen.constant, limit)
    return replace(chosen, constant=constant, largest_stable=limit)


def _unit(settings: StudySettings, ground: Ground, fixed: Decision) -> Proposal:
    """The study with what is open at 1: horizon, step, and the bound of the noise."""
    return outline(
        settings,
        ground.public.feature_map,
        replace(fixed, horizon=1, clip=None, constant=1.0),
        2.0 / (ground.sizes * epsilons_of(settings)),
        attendance=attendance_of(settings),
    )


def _shortest(settings: StudySettings, fixed: Decision, *, seed: int) -> int:
    """The shortest horizon that asks everyone."""
    groups = groups_of(settings)
    if not settings.algorithm.kind.is_schedulable:
        return 1
    if is_scheduled(settings) or settings.algorithm.initiative != "learner":
        return LEAST_TICKS * len(groups)
    ticks = islice(clocks_of(settings, fixed.num_records, seed=seed), HORIZONS[-1])
    slots = slots_of(ticks, groups)
    first = [int(np.argmax(slots == slot)) + 1 for slot in np.unique(slots)]
    return max(LEAST_TICKS * len(groups), *first)


def _largest_stable(settings: StudySettings, ground: Ground, chosen: Decision) -> float:
    """The largest stable step on the schedule that will run."""
    algorithm = _plan(settings, ground, chosen).algorithm
    assert isinstance(algorithm, Asynchronous)  # noqa: S101 (the only one with a largest step)
    if algorithm.counted:
        known = clock_rates(settings, chosen.num_records)
        algorithm = replace(algorithm, counted=False, frequency=known)
    return largest_stable_step(
        algorithm,
        ground.groups.records,
        loss=ground.groups.problem.loss,
        counts=ground.groups.unclipped(chosen.clip),
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
