"""What a study leaves to "auto" is decided from public records, n_i, budgets and clocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from common.blas import one_blas_thread
from learner.algorithms.table import Simulated
from learner.planning.decision import Decision, Expected
from learner.planning.design import decided, left_open, require_records, with_step_as_shown
from learner.planning.ground import FORECAST_SEED, Ground
from learner.planning.plan import algorithm_of
from learner.planning.proposal import NoiseError, attendance_of, propose
from learner.planning.public_side import PublicSide
from learner.planning.sections import AUTO
from learner.planning.settings import StudySettings
from learner.planning.side_by_side import side_by_side
from learner.planning.ways import LEVEL, TINY, as_way, best_way, way_of, ways_of
from learner.simulated.twin import Forecast, forecast

# Ways that ask every owner once; to decide them takes no simulated ticks.
AT_ONCE = ("moments", "newton")
# The share of worlds that must agree that a step is too long.
MOST_WORLDS = 0.75

Design = tuple[Decision, Forecast]


@one_blas_thread()
def decide(
    settings: StudySettings, public: PublicSide, *, num_records: Sequence[int], seed: int
) -> Decision:
    """What the settings leave to "auto"; numbers that are given stay.

    Where the algorithm is left open, every way of learning is decided and forecast, and the best
    is taken. Where it is not, and the profile is the recommended one, what is told at once is
    forecast beside it. All comes with the forecasts that ``copriv forecast`` prints.

    Args:
      settings: The study.
      public: The feature map and the public records.
      num_records: Each owner's n_i.
      seed: The clocks' seed.

    Raises:
      InputError: Something is left to "auto" and there are no public records, or too few.
    """
    ground = Ground(settings=settings, public=public, num_records=tuple(num_records), seed=seed)
    if settings.algorithm.name == AUTO:
        require_records(public, "algorithm.name")
        return _best_of(settings, ground)
    own, is_compared = way_of(settings), settings.profile == "recommended" and ground.can_forecast
    others = (
        [way for way in believed_ways(settings, ground) if way in AT_ONCE] if is_compared else []
    )
    works = {way: partial(_designed, settings, ground, way) for way in others if way != own}
    with side_by_side(list(works.values())) as designed:
        decision = decided(settings, ground)
        p = public.feature_map.num_features
        is_compared = is_compared and isinstance(algorithm_of(settings, p, decision), Simulated)
        if not (is_compared or left_open(settings)):
            return decision
        decision, its = _sound(settings, ground, decision)
        found = {own: its}
        if is_compared:
            designs = dict(zip(works, designed(), strict=True))
            found |= {way: design[1] for way, design in _possible(designs).items()}
    return _with_forecasts(decision, own, found)


def believed_ways(settings: StudySettings, ground: Ground) -> list[str]:
    """The ways whose forecasts are believed: not of steps from a public model that is not."""
    is_usable = ground.trusts_public_model
    return [way for way in ways_of(settings) if is_usable or way != "newton"]


@one_blas_thread()
def decide_quietly(
    settings: StudySettings, public: PublicSide, *, num_records: Sequence[int], seed: int
) -> Decision:
    """:func:`decide` without forecasts, but for those that choose the algorithm."""
    if settings.algorithm.name == AUTO:
        return decide(settings, public, num_records=num_records, seed=seed)
    ground = Ground(settings=settings, public=public, num_records=tuple(num_records), seed=seed)
    decision = decided(settings, ground)
    if _leaves_step_from_public(settings):
        return _sound(settings, ground, decision)[0]
    return decision


def _best_of(settings: StudySettings, ground: Ground) -> Decision:
    """The best way by its forecast, which :func:`best_way` returns."""
    ways = ways_of(settings)
    here, *beside = [partial(_designed, settings, ground, way) for way in ways]
    with side_by_side(beside) as designed:
        all_found = dict(zip(ways, [here(), *designed()], strict=True))
    designs = _possible(all_found)
    if not designs:
        raise next(error for error in all_found.values() if isinstance(error, NoiseError))
    found = {way: its for way, (_, its) in designs.items()}
    by_world = {way: its.by_world for way, its in found.items()}
    public = next(iter(found.values())).public
    best = best_way(by_world, trusts_public_model=ground.trusts_public_model, public=public)
    # A forecast that is not believed is not told.
    told = {best, *believed_ways(settings, ground)}
    found = {way: its for way, its in found.items() if way in told}
    return _with_forecasts(replace(designs[best][0], way=best), best, found)


def _designed(settings: StudySettings, ground: Ground, way: str) -> Design | NoiseError:
    """A way of learning, decided and forecast, or why nobody could draw its noise."""
    other = as_way(settings, way)
    try:
        return _sound(other, ground, decided(other, ground))
    except NoiseError as error:
        return error


def _sound(settings: StudySettings, ground: Ground, decision: Decision) -> Design:
    """A design and its forecast, which does not give up for a doubt what is free.

    Worlds in which owners differ by more than the public records show ask for long steps from the
    public model, since it is far from them there. Where the forecast's worlds are fairly sure that
    such a step ends worse than the public model, the step is the best one of those worlds; in the
    end it hardly moves. Where they are not, it stays: the public model may be worse than they know.
    """
    its = expect(settings, ground, decision)
    if not _leaves_step_from_public(settings) or not _is_surely_worse(its):
        return decision, its
    decision = with_step_as_shown(settings, ground, decision)
    return decision, expect(settings, ground, decision)


def _leaves_step_from_public(settings: StudySettings) -> bool:
    """Whether the step of ticks that begin at the public model is left open."""
    return settings.algorithm.start == "public" and "algorithm.step" in left_open(settings)


def _is_surely_worse(its: Forecast) -> bool:
    """Whether a study ends clearly worse than the public model in most worlds."""
    times = its.by_world / np.maximum(its.relative_fitness_public, TINY)
    return float(np.quantile(times, 1.0 - MOST_WORLDS)) > LEVEL


def _possible(designs: Mapping[str, Design | NoiseError]) -> dict[str, Design]:
    """Those whose noise can be drawn."""
    return {way: own for way, own in designs.items() if not isinstance(own, NoiseError)}


def _with_forecasts(decision: Decision, own: str, found: Mapping[str, Forecast]) -> Decision:
    """The decision with what each way is expected to come to, and what is free."""
    forecasts, newton = {}, found.get("newton")
    for way, its in found.items():
        low, high = its.interval
        forecasts[way] = Expected(relative_fitness=its.expected, low=low, high=high)
    return replace(
        decision,
        forecast=found[own].expected,
        ways=forecasts,
        public=found[own].public,
        shrunk=None if newton is None else newton.shrunk,
        alone=tuple(found[own].alone.tolist()),
    )


@one_blas_thread()
def expect(
    settings: StudySettings,
    ground: Ground,
    decision: Decision,
    *,
    taking_part: Sequence[int] | None = None,
) -> Forecast:
    """What a study is expected to come to.

    Args:
      settings: The study of those who take part.
      ground: What it is forecast on: all owners whose union fitness is judged on.
      decision: What was left open, decided.
      taking_part: Which of these owners take part; None for all.
    """
    worlds = ground.forecast_worlds
    if taking_part is not None:
        worlds = [world.only(taking_part) for world in worlds]
    return forecast(
        propose(
            settings,
            ground.public.feature_map,
            decision,
            seed=ground.seed,
            attendance=attendance_of(settings),
        ),
        ground.groups,
        worlds,
        runs=settings.forecast.runs,
        rng=np.random.default_rng([FORECAST_SEED, 1]),
    )
