"""The ways in which a study can be learnt: what ``algorithm.name = "auto"`` chooses among."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from common.arrays import Vector
from common.config import PROMISED
from common.losses import LOSSES
from common.privacy import noted_amount
from learner.algorithms.table import ALGORITHMS
from learner.planning.decision import Decision
from learner.planning.settings import StudySettings

TICKS_FROM_ZERO, MOMENTS = "ticks from zero", "moments"
# How many times better what begins at a public model of too few records must be forecast: how far
# off it is, is known from the same few records only. From there on what is learnt comes from the
# owners, and hardly from the public model.
CLEARLY = 4.0
# Ways within this of the best one are level: worlds made of public records know no better.
LEVEL = 1.25
# Relative fitness that is no different from 0.
TINY = 1e-12
WAYS: dict[str, dict[str, Any]] = {
    "newton": {"name": "newton"},
    TICKS_FROM_ZERO: {"name": "asynchronous", "start": "zero"},
    "ticks": {"name": "asynchronous", "start": "public"},
    MOMENTS: {"name": "moments", "start": "public"},
}
"""Each way by its name: what it sets in ``[algorithm]``; the recommended profile does the rest.

Of ways that are level the first is taken. How far Newton's steps go depends on what the owners tell
and on noise that is known, so they go on where owners are surely farther away than the worlds have
it; the clip, step and horizon of ticks stay as public records had them. Of the others, the less a
way leans on the public model, the earlier it stands. But nothing clips moments, so they are right
wherever the owners' model is: they come first where they are forecast best, and four times better
than the public model, so that they hardly lean on it.
"""


def ways_of(settings: StudySettings) -> list[str]:
    """The ways that a study's loss and roles allow.

    Fixed groups are asked at the same time by ticks alone.
    """
    loss = LOSSES[settings.model.loss]
    kinds = {way: ALGORITHMS[algorithm["name"]] for way, algorithm in WAYS.items()}
    return [
        way
        for way, kind in kinds.items()
        if not (kind.release.quadratic_only and not loss.is_quadratic)
        and not (kind.release.needs_curvature and loss.curvature is None)
        and not (settings.groups and "groups" not in kind.uses)
    ]


def best_way(
    forecasts: Mapping[str, Vector], *, trusts_public_model: bool, public: float = np.inf
) -> str:
    """The way that is best in the worlds; of those that are level, the first of :data:`WAYS`.

    Ways are compared world by world, since worlds differ by more than ways do: by how many times a
    way's relative fitness is the best one's there, in the middle one of the worlds. Moments are
    taken where they are the best and clearly better than the public model. Where public records are
    too few of a class, ticks from 0 count four times better than they are forecast, unless even so
    they are no better than the public model, which is free.

    Args:
      forecasts: The relative fitness that each way is expected to come to in each world, shape
        (W,), in the same worlds; at least one way.
      trusts_public_model: Whether the public records are enough for a model of them.
      public: The relative fitness that the public model is expected to have.

    >>> import numpy as np
    >>> ticks, newton = np.array([0.1, 0.1, 0.1]), np.array([0.05, 0.06, 0.9])
    >>> best_way({"ticks": ticks, "newton": newton}, trusts_public_model=True)
    'newton'
    >>> best_way({"ticks": ticks, "newton": 1.2 * ticks}, trusts_public_model=True)
    'newton'
    >>> best_way({"ticks": ticks, "newton": 1.3 * ticks}, trusts_public_model=True)
    'ticks'
    >>> best_way({"ticks": ticks, "ticks from zero": 3 * ticks}, trusts_public_model=False)
    'ticks from zero'
    >>> level = {"newton": 1.2 * ticks, "moments": ticks}
    >>> [best_way(level, trusts_public_model=True, public=public) for public in (1.0, 0.2)]
    ['moments', 'newton']
    >>> best_way(dict.fromkeys(("ticks", "newton"), np.nan * ticks), trusts_public_model=True)
    'newton'
    """
    # A world whose best model has no loss cannot rank ways.
    compared = {
        way: np.maximum(np.nan_to_num(own, nan=1.0), TINY) for way, own in forecasts.items()
    }
    if TICKS_FROM_ZERO in compared and not trusts_public_model:
        favoured = compared[TICKS_FROM_ZERO] / CLEARLY
        if np.median(favoured) < public:
            compared[TICKS_FROM_ZERO] = favoured
    best = np.min(list(compared.values()), axis=0)
    times = {way: float(np.median(own / best)) for way, own in compared.items()}
    level = [way for way in WAYS if times.get(way, np.inf) <= LEVEL * min(times.values())]
    is_best = times.get(MOMENTS) == min(times.values())
    if is_best and CLEARLY * np.median(compared[MOMENTS]) <= public:
        return MOMENTS
    return level[0]


def why_taken(way: str, forecasts: Mapping[str, float]) -> str:
    """Why ticks from 0 are taken though they are forecast clearly worse; empty for all else.

    Where public records are too few of a class there are no other ways: moments need squared loss.

    >>> why_taken("ticks from zero", {"ticks from zero": 0.562, "ticks": 0.199})
    '; what begins at a public model of so few records is taken only if forecast 4 times better'
    >>> why_taken("ticks", {"ticks from zero": 0.562, "ticks": 0.199})
    ''
    """
    is_worse = forecasts[way] > LEVEL * min(forecasts.values())
    if way != TICKS_FROM_ZERO or set(forecasts) != {way, "ticks"} or not is_worse:
        return ""
    return (
        f"; what begins at a public model of so few records is taken only if forecast "
        f"{CLEARLY:g} times better"
    )


def as_way(settings: StudySettings, way: str) -> StudySettings:
    """The study learnt in this way, or the best; all else as the recommended profile has it."""
    table = settings.model_dump(exclude_none=True)
    table |= {
        "profile": "recommended",
        # As it is: a map that is given whole takes no settings of how to fit one.
        "features": settings.features,
        "algorithm": WAYS.get(way, {"name": way}) | {"time_scale": settings.algorithm.time_scale},
        "privacy": settings.privacy.model_dump(include=PROMISED),
    }
    return StudySettings.model_validate(table)


def resolved(settings: StudySettings, decision: Decision) -> StudySettings:
    """The study with the algorithm and the share of validation that were decided for it."""
    found = settings if decision.way is None else as_way(settings, decision.way)
    return found.with_validation(noted_amount(decision.validation))


def way_of(settings: StudySettings) -> str:
    """The way that a study's settings are, whatever its numbers; for any other its algorithm."""
    given = settings.algorithm
    for way, algorithm in WAYS.items():
        if algorithm["name"] == given.name and algorithm.get("start", given.start) == given.start:
            return way
    return given.name
