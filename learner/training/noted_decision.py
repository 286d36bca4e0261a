"""The decision that a journal keeps, believed only as far as the study could have made it.

A file may have been changed or copied from elsewhere: numbers of the right kind that no study has
would fail far from here, ask owners for ever, or make another model than the run began.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from typing import Any

from common.config import parse_validation_share
from common.losses import LOSSES
from common.moments import packed_length
from common.releases import NEWTON
from learner.planning.decision import Decision
from learner.planning.design import LONGEST_SCHEDULE
from learner.planning.plan import is_scheduled
from learner.planning.sections import AUTO, LARGEST_HORIZON, MOST_ROUNDS
from learner.planning.settings import StudySettings
from learner.planning.ways import resolved, way_of
from learner.training.claims import MOST_RECORDS

# An optimum is in its box to rounding, and so is a sum of shares.
ROUNDING = 1e-9
EDGE = 1.0 + ROUNDING
# Numbers that are squared, and summed, on the way to a model.
LARGEST = 1e150
# What was only expected, which may be no number: a best model may leave no loss to compare with.
FORECASTS: dict[str, Any] = {
    "forecast": None,
    "largest_stable": None,
    "ways": {},
    "public": None,
    "shrunk": None,
    "alone": (),
}


def noted_decision(text: str, *, settings: StudySettings, num_features: int) -> Decision:
    """The decision of a journal, if it is one of this study.

    Args:
      text: What the journal keeps.
      settings: The study as its file has it.
      num_features: The number p of features.

    Raises:
      Exception: Whatever a text raises that is not what was written.
    """
    decision = Decision.from_json(text)
    used = asdict(replace(decision, **FORECASTS))
    _check(all(abs(number) <= LARGEST for number in _numbers(used)))
    parse_validation_share(decision.validation)
    _check((decision.way is not None) == (settings.algorithm.name == AUTO))
    own = resolved(settings, decision)
    _check(decision.public is None or way_of(own) in decision.ways)
    _check_owners(decision, count=len(settings.owners))
    _check_loss(decision, own)
    _check_ticks(decision, own)
    _check_start(decision, own, num_features=num_features)
    return decision


def _check(holds: bool) -> None:
    """Refuse what no study decides; the journal says the sentence."""
    if not holds:
        raise ValueError("of another study")


def _numbers(value: object) -> Iterator[float]:
    """All numbers that are somewhere in it."""
    match value:
        case bool():
            return
        case int() | float():
            yield value
        case dict():
            yield from _numbers(list(value.values()))
        case list() | tuple():
            for each in value:
                yield from _numbers(each)


def _check_owners(decision: Decision, *, count: int) -> None:
    """One value for each owner, or none where there need not be one."""
    _check(len(decision.num_records) == count)
    _check(all(1 <= each <= MOST_RECORDS for each in decision.num_records))
    per_owner = (decision.scales, decision.counted, decision.alone, decision.validated_by)
    _check(all(len(each) in {0, count} for each in per_owner))
    _check(min(decision.scales, default=0.0) >= 0)
    _check(min(decision.counted, default=1.0) > 0)
    _check(abs(sum(decision.counted or (1.0,)) - 1.0) < ROUNDING)


def _check_loss(decision: Decision, settings: StudySettings) -> None:
    """The parameters of the study's loss, and a clip that is one."""
    kind = LOSSES[settings.model.loss]
    _check(set(decision.parameters) == {field.name for field in fields(kind)})
    _check(not any(isinstance(each, bool) for each in decision.parameters.values()))
    kind(**decision.parameters)
    _check(decision.clip is None or decision.clip > 0)


def _check_ticks(decision: Decision, settings: StudySettings) -> None:
    """A horizon that owners agree to and a schedule can hold, and a step."""
    kind, owners = settings.algorithm.kind, len(settings.owners)
    if kind.constant is not None:
        most = LONGEST_SCHEDULE if is_scheduled(settings) else LARGEST_HORIZON
        _check(1 <= decision.horizon <= most and decision.constant > 0)
        return
    rounds, left = divmod(decision.horizon, owners)
    _check(left == 0 and 1 <= rounds <= (MOST_ROUNDS if kind.release is NEWTON else 1))


def _check_start(decision: Decision, settings: StudySettings, *, num_features: int) -> None:
    """A model in the box, and what is known around it where a step is taken from it."""
    start, around, p = decision.start, decision.around, num_features
    box = settings.model.theta_max * EDGE
    _check(start is None or (len(start) == p and all(abs(each) <= box for each in start)))
    is_newton = settings.algorithm.kind.release is NEWTON
    if around is None:
        _check(not is_newton)
        return
    _check(start is not None and len(decision.scales) > 0)
    _check(len(around.curvature) + len(around.offset) == packed_length(p))
    _check(len(around.offset) == p and len(around.pull) in {0, p})
    _check(min(around.curvature_spread, around.curvature_scale, around.doubt) >= 0)
    _check((around.curvature_scale > 0) == is_newton)
