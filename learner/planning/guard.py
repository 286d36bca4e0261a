"""The guard: nobody spends anything on a model that is forecast to be worse than a free one."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from common.errors import CoprivError, DoubtWarning, InputError
from common.texts import number_words
from learner.planning.decision import Decision
from learner.planning.roles import own_index
from learner.planning.settings import StudySettings
from learner.planning.ways import LEVEL, TICKS_FROM_ZERO, why_taken
from learner.simulated.cross_validation import TINY, CrossValidation

HOW_TO_GO_ON = "nothing was asked of any owner; go on with --yes, or guard = false in the study"
# Noise so large that all of it is taken back leaves the public model, better by next to nothing.
LEAST_GAIN = 0.01
# From so many times on, what is not known of the unit of relative fitness is said.
UNKNOWN_UNIT = 2.0


class NotBegunError(CoprivError):
    """The study was stopped while no owner knew of it: nothing of its run has to stay."""


class UndecidedError(NotBegunError, InputError):
    """What its settings ask for cannot be decided on."""


class GuardError(NotBegunError, InputError):
    """It is forecast to be no better than what is free.

    Args:
      problem: What no way of learning is forecast to do, as a sentence begins.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem}; {HOW_TO_GO_ON}")
        self.problem = problem


def ways_sentence(decision: Decision, *, own: str, initiative: str = "learner") -> str | None:
    """What each way of learning is forecast to come to, in one line; None if nothing was.

    Args:
      decision: What was decided.
      own: The way that the study is learnt.
      initiative: Who begins; only ticks let owners begin.

    >>> from learner.planning.decision import Expected
    >>> expected = {"newton": Expected(relative_fitness=0.002, low=0.001, high=0.003),
    ...     "ticks": Expected(relative_fitness=0.01, low=0.008, high=0.02)}
    >>> ways_sentence(Decision(num_records=(9,), horizon=1, clip=None, constant=0.0, ways=expected,
    ...     public=0.0046), own="newton")
    'newton: forecast 0.002, ticks 0.01, public model 0.0046'
    """
    forecasts = decision.forecasts
    if decision.public is None or own not in forecasts:
        return None
    reached, best = forecasts[own], min(forecasts, key=forecasts.__getitem__)
    others = [f"{way} {expected:.3g}" for way, expected in forecasts.items() if way != own]
    first = f"{own}: forecast {reached:.3g}"
    line = ", ".join([first, *others, f"public model {decision.public:.3g}"])
    if not reached < to_beat(decision.public):
        line += "; the public model, which is free, is no worse"
    elif decision.shrunk is not None and not reached < to_beat(decision.shrunk):
        line += (
            "; the public model shrunk by a ridge, with which newton begins, is no worse: "
            f"{decision.shrunk:.3g}, and it is free, too"
        )
    if decision.way is not None:
        line += why_taken(own, forecasts)
    elif forecasts[best] * LEVEL < reached:
        # It may choose another one: it compares ticks, too, all ways world by world.
        without = "" if initiative == "learner" else " without algorithm.initiative"
        line += f"; {best} is forecast to be better"
        line += f': algorithm.name = "auto"{without} chooses among all ways'
    return line


def unit_sentence(known: CrossValidation) -> str | None:
    """That the unit of relative fitness is not known; None where it is, or is not asked for.

    Squared loss is forecast in the unit of the public records, as ``docs/forecast.md`` says.

    Args:
      known: What the public model is worth on records held out.

    >>> import numpy as np
    >>> from common.losses import Logistic, Regulariser
    >>> from common.terms import Records
    >>> from learner.simulated.problem import Problem
    >>> problem = Problem(loss=Logistic(), regulariser=Regulariser(coefficient=0.0), theta_max=9.0)
    >>> x = np.random.default_rng(1).normal(size=(12, 8))
    >>> records = Records(features=x, targets=np.tile([1.0, -1.0], 6))
    >>> known = CrossValidation(problem=problem, records=records, theta=problem.optimum(records))
    >>> (unit_sentence(known) or "").split(":")[0]  # doctest: +ELLIPSIS
    'the public model loses ... times as much on public records held out from it (42% told wrongly)'
    """
    loss = known.problem.loss
    if loss.is_quadratic:
        return None
    inside, outside = known.fitness
    if not outside > UNKNOWN_UNIT * inside:
        return None
    told = f" ({known.wrong:.0%} told wrongly)" if loss.has_classes() else ""
    times = number_words(round(outside / max(inside, TINY)))
    return (
        f"the public model loses {times} times as much on public records held out "
        f"from it{told}: what the best model of the owners' records loses, in which relative "
        "fitness is measured, may lie anywhere between, so forecasts may be off by as many times; "
        "give more public records, or fewer columns"
    )


def check_guard(settings: StudySettings, decision: Decision) -> None:
    """Refuse a study that no way of learning is forecast to make better than what is free.

    A study whose way is no better, where another one would be, is warned of.

    Raises:
      GuardError: None is forecast to be better than the public model, or than most owners' own.

    Warns:
      DoubtWarning: The study's own way is not, and another one is.
    """
    if not settings.is_guarded or decision.public is None or not decision.ways:
        return
    forecasts = decision.forecasts
    best = min(forecasts, key=forecasts.__getitem__)
    problem = _no_better(settings, forecasts[best], decision)
    if problem is not None:
        raise GuardError(f"{_none_of(decision)} is forecast to beat {problem}")
    problem = (
        None if decision.forecast is None else _no_better(settings, decision.forecast, decision)
    )
    if problem is not None:
        warnings.warn(
            f"this study is not forecast to beat {problem}; {best} is forecast at "
            f"{forecasts[best]:.3g}{_why_not(settings, decision, forecasts)}",
            DoubtWarning,
            stacklevel=2,
        )


def _none_of(decision: Decision) -> str:
    """No way of learning; of a study that names its algorithm none of those beside it."""
    if decision.way is not None:
        return "no way of learning"
    compared = ", ".join(decision.ways)
    ticks = ', those of algorithm.start = "public" too' if TICKS_FROM_ZERO in decision.ways else ""
    return f'no way of those compared ({compared}; algorithm.name = "auto" compares all{ticks})'


def _why_not(settings: StudySettings, decision: Decision, forecasts: Mapping[str, float]) -> str:
    """How the better way is taken; of a study that left it open, why it was not."""
    if decision.way is None:
        calls = "; the learner then calls the owners, whose ports must be open"
        opened = calls if settings.algorithm.initiative == "owner" else ""
        return f': with algorithm.name = "auto" alone in [algorithm] the best way is taken{opened}'
    if why_taken(decision.way, forecasts):
        return ", but begins at a public model of too few records to believe that"
    return f", which is level with {decision.way}"


def _no_better(settings: StudySettings, expected: float, decision: Decision) -> str | None:
    """The free model that such a relative fitness does not beat, in words; None if it does."""
    public = decision.public
    if public is not None and not expected < to_beat(public):
        return (
            f"the model of the public records: {expected:.3g} against {public:.3g} in relative "
            "fitness, and that one costs nobody anything"
        )
    learner = own_index(settings)
    if learner is not None and decision.alone:
        alone = decision.alone[learner]
        if expected < alone:
            return None
        return (
            f"the own model of {settings.learner.own}, which alone has the common one: "
            f"{expected:.3g} against {alone:.3g} in relative fitness (0 is the best)"
        )
    better = sum(own <= expected for own in decision.alone)
    if 2 * better > len(decision.alone):
        return (
            f"most owners' own models: {better} of {len(decision.alone)} are forecast at "
            f"a relative fitness of {expected:.3g} or better (0 is the best)"
        )
    return None


def to_beat(free: float) -> float:
    """Below this a model is better than a free one by enough to spend something on it."""
    return free * (1.0 - LEAST_GAIN)
