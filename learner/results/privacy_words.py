"""What an epsilon means, in words for people who sign."""

from __future__ import annotations

import math
from fractions import Fraction

from common.texts import number_words
from learner.results.summary import Summary

__all__ = ["as_number", "epsilons_spent", "meaning", "strength"]

# Beyond this a factor says no more than that it is beyond all use.
LARGEST_FACTOR = 1e6


def as_number(text: str) -> float:
    """An exact rational as a number; infinite for the learner's own shard.

    >>> as_number("1/4"), as_number("inf")
    (0.25, inf)
    """
    return math.inf if text == "inf" else float(Fraction(text))


def epsilons_spent(summary: Summary) -> list[float]:
    """What each owner spent, ascending; the learner's own shard, which spends nothing, left out."""
    return sorted(as_number(o.epsilon_spent) for o in summary.owners if o.epsilon != "inf")


def strength(epsilon: float) -> str:
    """How strong a promise is, as practice has it.

    >>> strength(0.5), strength(2.0), strength(10.0), strength(math.inf)
    ('strong', 'moderate', 'weak', 'none')
    """
    if math.isinf(epsilon):
        return "none"
    return "strong" if epsilon <= 1 else "moderate" if epsilon <= 3 else "weak"


def meaning(epsilon: float) -> str:
    """The promise in one sentence.

    >>> meaning(1.0)  # doctest: +NORMALIZE_WHITESPACE
    'whatever is concluded from the answers about any one record would have been concluded, with
     odds at most 2.7 times as high or as low, had that record been another'
    """
    if math.isinf(epsilon):
        return "nothing is promised: these records were asked without noise"
    factor = math.exp(min(epsilon, 700.0))
    times = number_words(factor, 2)
    if factor > LARGEST_FACTOR:
        return "the odds may change by a factor of more than a million: as good as no promise"
    return (
        "whatever is concluded from the answers about any one record would have been concluded, "
        f"with odds at most {times} times as high or as low, had that record been another"
    )
