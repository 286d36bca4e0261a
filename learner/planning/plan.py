"""Settings become a plan: the algorithm, its ticks, and what each owner is asked to promise.

What the settings leave to "auto" comes with the decision (:mod:`learner.planning.deciding`), a
handful of numbers; equal settings and equal numbers make equal plans, so a run that is resumed goes
on with what it began with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any

import numpy as np

from common.arrays import Vector
from common.features import FeatureMap
from common.losses import LOSSES, Loss, Regulariser
from common.terms import StudyTerms
from learner.algorithms.clocks import (
    PoissonClocks,
    Tick,
    asking_everyone,
    count_per_owner,
    scheduled_frequency,
)
from learner.algorithms.protocol import Algorithm
from learner.algorithms.table import Kind, Setup
from learner.planning.decision import Decision
from learner.planning.roles import clock_rates, groups_of
from learner.planning.settings import StudySettings
from learner.simulated.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What will run.

    Args:
      settings: The study's settings.
      num_features: The number p of features.
      decision: What they left open.
      seed: The clocks' seed.
    """

    settings: StudySettings
    num_features: int
    decision: Decision
    seed: int

    @cached_property
    def algorithm(self) -> Algorithm[Any]:
        """The algorithm that the settings name, with the owners' weights n_i/n."""
        setup = _setup(self.settings, self.num_features, self.decision)
        if setup.counted and is_scheduled(self.settings):
            # Nothing is left to count while the run goes.
            setup = replace(setup, counted=False, frequency=self._counted)
        return self._kind.make(setup)

    @property
    def loss(self) -> Loss:
        """The loss, with its parameters."""
        return LOSSES[self.settings.model.loss](**self.decision.parameters)

    @property
    def problem(self) -> Problem:
        """What is learnt."""
        return problem_of(self.settings, self.loss)

    @property
    def horizon(self) -> int:
        """The number T of communications."""
        return self.decision.horizon

    def ticks(self) -> Iterable[Tick]:
        """The ticks, the same at every call; a schedule ends with its horizon."""
        clocks = partial(clocks_of, self.settings, self.decision.num_records, seed=self.seed)
        ticks = self._kind.ticks(clocks, len(self.settings.owners))
        if not is_scheduled(self.settings):
            # An owner that is away when it is its turn is not asked once more for that.
            return islice(ticks, self.horizon) if self._kind.constant is None else ticks
        drawn = islice(ticks, self.horizon)
        groups = groups_of(self.settings)
        return asking_everyone(drawn, groups) if self.decision.asks_everyone else drawn

    @cached_property
    def responses(self) -> tuple[int, ...]:
        """The number of responses asked of each owner; 0 of one that the schedule leaves out."""
        owners = len(self.settings.owners)
        if not is_scheduled(self.settings):
            return (self._kind.responses(self.horizon, owners),) * owners
        return tuple(count_per_owner(list(self.ticks()), owners).tolist())

    def terms(self, feature_map: FeatureMap, *, study_id: str) -> list[StudyTerms]:
        """What each owner is asked to agree to; 0 responses where it is not asked at all."""
        settings, feature_map_text = self.settings, feature_map.to_json()
        return [
            StudyTerms(
                study_id=study_id,
                **self.loss.as_terms(),
                theta_max=settings.model.theta_max,
                feature_map=feature_map_text,
                horizon=self.horizon,
                responses=responses,
                epsilon=settings.for_training(entry),
                clip=self.decision.clip,
                kappa=settings.privacy.kappa,
                release=self._kind.release.name,
                curvature_scale=self._curvature_scale,
            )
            for entry, responses in zip(settings.owners, self.responses, strict=True)
        ]

    @property
    def _curvature_scale(self) -> float | None:
        """The factor of the curvature in responses; None where they hold none."""
        around = self.decision.around
        return None if around is None else around.curvature_scale or None

    @property
    def _kind(self) -> Kind:
        return self.settings.algorithm.kind

    @cached_property
    def _counted(self) -> Vector:
        """How often the schedule has each group."""
        counts = np.array(self.responses, dtype=np.float64)
        return scheduled_frequency(counts[[group[0] for group in groups_of(self.settings)]])


def problem_of(settings: StudySettings, loss: Loss) -> Problem:
    """What a study learns, with its loss."""
    return Problem(
        loss=loss,
        regulariser=Regulariser(coefficient=settings.model.regularisation),
        theta_max=settings.model.theta_max,
    )


def is_scheduled(settings: StudySettings) -> bool:
    """Whether the clocks are drawn ahead and each owner promises its own count."""
    return settings.privacy.split == "schedule" and settings.algorithm.kind.is_schedulable


def algorithm_of(settings: StudySettings, num_features: int, decision: Decision) -> Algorithm[Any]:
    """The algorithm that the settings name."""
    return settings.algorithm.kind.make(_setup(settings, num_features, decision))


def _setup(settings: StudySettings, num_features: int, decision: Decision) -> Setup:
    counts = np.array(decision.num_records, dtype=np.float64)
    given, groups = settings.algorithm, groups_of(settings)
    start = None if decision.start is None else np.array(decision.start)
    noted = decision.around
    return Setup(
        weights=np.array(decision.counted) if decision.counted else counts / counts.sum(),
        num_features=num_features,
        theta_max=settings.model.theta_max,
        regulariser=Regulariser(coefficient=settings.model.regularisation),
        horizon=decision.horizon,
        constant=decision.constant,
        rule=given.rule,
        groups=groups if len(groups) < len(counts) else (),
        frequency=clock_rates(settings, decision.num_records)
        if given.correction == "rates"
        else None,
        counted=given.correction == "counted",
        tail_average=given.average == "tail",
        start=start,
        around=None if noted is None or start is None else noted.around(start),
        curvature_scale=0.0 if noted is None else noted.curvature_scale,
        scales=np.array(decision.scales) if decision.scales else None,
        is_quadratic=LOSSES[settings.model.loss].is_quadratic,
    )


def clocks_of(settings: StudySettings, num_records: Sequence[int], *, seed: int) -> PoissonClocks:
    """The clocks of the owners, or of their groups."""
    return PoissonClocks(
        groups_of(settings), clock_rates(settings, num_records), rng=np.random.default_rng(seed)
    )
