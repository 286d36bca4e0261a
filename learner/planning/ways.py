"""The ways in which a study can be learnt: what ``algorithm.name = "auto"`` chooses among."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from common.losses import LOSSES
from learner.algorithms.table import ALGORITHMS
from learner.planning.decision import Decision
from learner.planning.privacy_settings import PROMISED
from learner.planning.settings import StudySettings

__all__ = ["TICKS_FROM_ZERO", "WAYS", "as_way", "best_way", "resolved", "way_of", "ways_of"]

TICKS_FROM_ZERO = "ticks from zero"
# How much better what begins at a public model of too few records must be forecast: from 0, such
# forecasts of classes were 2 to 5 times too bad, and from that model up to 3 times too good.
CLEARLY = 4.0
# Ways within this of the best forecast are level: worlds made of public records know no better.
LEVEL = 1.1
# The same where public records drift: nobody knows how far the owners are from them.
LEVEL_DRIFTING = 1.25
WAYS: dict[str, dict[str, Any]] = {
    TICKS_FROM_ZERO: {"name": "asynchronous", "start": "zero"},
    "ticks": {"name": "asynchronous", "start": "public"},
    "moments": {"name": "moments", "start": "public"},
    "newton": {"name": "newton"},
}
"""Each way by its name: what it sets in ``[algorithm]``; the recommended profile does the rest.

The less a way leans on the public model, the earlier it stands.
"""


def ways_of(settings: StudySettings) -> list[str]:
    """The ways that a study's loss and roles allow.

    An owner that is the learner answers without a clip, and Newton's step needs all alike. Fixed
    groups are asked at the same time by ticks alone.
    """
    loss = LOSSES[settings.model.loss]
    return [
        way
        for way, algorithm in WAYS.items()
        if not (ALGORITHMS[algorithm["name"]].release.quadratic_only and not loss.is_quadratic)
        and not (ALGORITHMS[algorithm["name"]].release.needs_curvature and loss.curvature is None)
        and not (way == "newton" and settings.learner.own is not None)
        and not (settings.groups and "groups" not in ALGORITHMS[algorithm["name"]].uses)
    ]


def best_way(
    expected: Mapping[str, float], *, trusts_public_model: bool, drifts: bool = False
) -> str:
    """The way with the best forecast; of those that are level, what leans least on theta_0.

    Forecasts come from public records, so they flatter what begins at a model of these records.
    Where these are too few of a class, it must be forecast clearly better than ticks from 0.

    Args:
      expected: The relative fitness that each way is expected to come to, at least one.
      trusts_public_model: Whether the public records are enough for a model of them.
      drifts: Whether the public records change along their table.

    >>> best_way({"ticks": 0.105, "newton": 0.1}, trusts_public_model=True)
    'ticks'
    >>> best_way({"ticks": 0.105, "newton": 0.01}, trusts_public_model=True)
    'newton'
    >>> best_way({"ticks": 0.12, "newton": 0.1}, trusts_public_model=True, drifts=True)
    'ticks'
    >>> best_way({"ticks": 0.1, "ticks from zero": 0.2}, trusts_public_model=False)
    'ticks from zero'
    """
    compared = dict(expected)
    if TICKS_FROM_ZERO in compared and not trusts_public_model:
        compared[TICKS_FROM_ZERO] /= CLEARLY
    level = min(compared.values()) * (LEVEL_DRIFTING if drifts else LEVEL)
    return next(way for way in WAYS if way in compared and compared[way] <= level)


def as_way(settings: StudySettings, way: str) -> StudySettings:
    """The same study, learnt in this way, all else as the recommended profile has it."""
    table = settings.model_dump(exclude_none=True)
    table |= {
        "profile": "recommended",
        # As it is: a map that is given whole takes no settings of how to fit one.
        "features": settings.features,
        "algorithm": WAYS[way] | {"time_scale": settings.algorithm.time_scale},
        "privacy": settings.privacy.model_dump(include=PROMISED),
    }
    return StudySettings.model_validate(table)


def resolved(settings: StudySettings, decision: Decision) -> StudySettings:
    """The study with the algorithm and the share of validation that were decided for it."""
    found = settings if decision.way is None else as_way(settings, decision.way)
    return found.with_validation(Fraction(decision.validation))


def way_of(settings: StudySettings) -> str:
    """The way that a study's settings are, whatever its numbers; for any other its algorithm."""
    given = settings.algorithm
    for way, algorithm in WAYS.items():
        if algorithm["name"] == given.name and algorithm.get("start", given.start) == given.start:
            return way
    return given.name
