"""Whether ``algorithm.name = "auto"`` picked the best way of learning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from common.arrays import Vector
from learner.planning.deciding import decide_quietly
from learner.planning.decision import Decision
from learner.planning.public_side import PublicSide
from learner.planning.settings import StudySettings
from learner.planning.ways import as_way, ways_of

__all__ = ["ERRORS", "each_way", "judge_pick"]

# A way of learning is the best if no other is better by more than this share.
CLOSE = 0.1
# Standard errors by which two means of runs must differ to count as different.
ERRORS = 2.0


def each_way(
    settings: StudySettings, public: PublicSide, num_records: Sequence[int]
) -> dict[str, tuple[StudySettings, Decision]]:
    """Every way in which a study can be learnt, decided as a study of its own."""
    studies = {way: as_way(settings, way) for way in ways_of(settings)}
    seed = settings.seed or 0
    return {
        way: (study, decide_quietly(study, public, num_records=num_records, seed=seed))
        for way, study in studies.items()
    }


def judge_pick(picked: str, reached: Mapping[str, Vector]) -> tuple[bool, bool, float]:
    """How the way that was picked stands beside the best one.

    Args:
      picked: The way.
      reached: Relative fitness in the runs of every way.

    Returns:
      Whether no other is better by more than ``CLOSE``; the same, but for another that is better
      by no more than ``ERRORS`` standard errors of the difference of both means, which so few runs
      cannot tell; and how many times its mean is the best one's.

    >>> import numpy as np
    >>> reached = {"newton": np.array([1.0, 3.0]), "ticks": np.array([1.4, 1.6])}
    >>> judge_pick("newton", reached)
    (False, True, 1.3333333333333333)
    """
    means = {way: float(psi.mean()) for way, psi in reached.items()}
    best = min(means, key=means.__getitem__)
    is_best = means[picked] <= means[best] * (1.0 + CLOSE)
    variance = sum(float(reached[way].var(ddof=1)) / len(reached[way]) for way in (picked, best))
    is_level = is_best or means[picked] - means[best] <= ERRORS * variance**0.5
    return is_best, is_level, means[picked] / means[best] if means[best] else 1.0
