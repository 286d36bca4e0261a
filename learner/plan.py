"""Settings become a plan: the algorithm, its ticks, and what each owner is asked to promise.

What the settings leave to "auto" is decided here, from public facts only: the public records, the
owners' n_i and budgets, and the seeded clocks. The decision is a handful of numbers; equal settings
and equal numbers make equal plans, so a run that is resumed goes on with what it began with.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.errors import InputError
from common.features import FeatureMap
from common.losses import LOSSES, Regulariser, domain_gradient_bound
from common.terms import Records, StudyTerms
from learner.choice import HORIZONS, Conditions, choose, scheduled_frequency
from learner.clocks import PoissonClocks, Tick, count_per_owner, synchronous_rounds
from learner.core import Algorithm, Asynchronous
from learner.moments import SecondMoments
from learner.roles import (
    as_larger_owners,
    clock_rates,
    epsilons_of,
    epsilons_of_groups,
    frequency_of,
    groups_of,
)
from learner.settings import StudySettings
from learner.step import choose_rho, largest_stable_step
from learner.synchronous import SynchronousAverage, SynchronousDescent

__all__ = ["Decision", "Plan", "PublicSide", "decide"]

Vector = NDArray[np.float64]

CHOICE_SEED = 0
# A schedule is held in memory.
LONGEST_SCHEDULE = 1_000_000


@dataclass(frozen=True, kw_only=True)
class PublicSide:
    """What the learner knows before it talks to anybody.

    Args:
      feature_map: The map that it proposes to the owners.
      records: Its public records under this map, or None.
    """

    feature_map: FeatureMap
    records: Records | None


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The numbers that a plan needs beside the settings.

    Args:
      num_records: Each owner's n_i, as it described itself.
      horizon: The number T of communications or rounds; N for moments.
      clip: The clip C, or None for the domain's bound.
      constant: rho, or c1 of synchronous-2; 0 for moments, which have no step.
      forecast: Forecast relative fitness of what was chosen; None where nothing was.
      largest_stable: The constant of the largest stable step; None where no step was chosen.
    """

    num_records: tuple[int, ...]
    horizon: int
    clip: float | None
    constant: float
    forecast: float | None = None
    largest_stable: float | None = None

    def to_json(self) -> str:
        """The decision as text, for the journal.

        >>> made = Decision(num_records=(3, 4), horizon=9, clip=None, constant=0.1)
        >>> Decision.from_json(made.to_json()) == made
        True
        """
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Decision:
        """The decision of :meth:`to_json`."""
        values = json.loads(text)
        return cls(**values | {"num_records": tuple(values["num_records"])})


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
        algorithm = algorithm_of(self.settings, self.num_features, self.decision)
        if self._is_scheduled and isinstance(algorithm, Asynchronous) and algorithm.counted:
            # Nothing is left to count while the run goes.
            return replace(algorithm, counted=False, frequency=self._counted)
        return algorithm

    @property
    def horizon(self) -> int:
        """The number T of communications."""
        return self.decision.horizon

    def ticks(self) -> Iterable[Tick]:
        """The ticks, the same at every call; a schedule ends with its horizon."""
        if self.settings.algorithm.name.startswith("synchronous"):
            return synchronous_rounds(len(self.settings.owners))
        if self.settings.algorithm.name == "moments":
            return _first_ticks(self._clocks(), len(self.settings.owners))
        clocks = self._clocks()
        return islice(clocks, self.horizon) if self._is_scheduled else clocks

    @cached_property
    def responses(self) -> tuple[int, ...]:
        """The number of responses asked of each owner; 0 of one that the schedule leaves out."""
        owners = len(self.settings.owners)
        if self.settings.algorithm.name == "moments":
            return (1,) * owners
        if not self._is_scheduled:
            return (self.horizon,) * owners
        return tuple(count_per_owner(list(self.ticks()), owners).tolist())

    def terms(self, feature_map: FeatureMap, *, study_id: str) -> list[StudyTerms]:
        """What each owner is asked to agree to; 0 responses where it is not asked at all."""
        settings = self.settings
        return [
            StudyTerms(
                study_id=study_id,
                loss=settings.model.loss,
                theta_max=settings.model.theta_max,
                feature_map=feature_map.to_json(),
                horizon=self.horizon,
                responses=responses,
                epsilon=entry.epsilon or settings.privacy.epsilon,
                clip=self.decision.clip,
                kappa=settings.privacy.kappa,
                release="moments" if settings.algorithm.name == "moments" else "gradient",
            )
            for entry, responses in zip(settings.owners, self.responses, strict=True)
        ]

    def _clocks(self) -> PoissonClocks:
        return _clocks(self.settings, self.decision.num_records, seed=self.seed)

    @property
    def _is_scheduled(self) -> bool:
        return is_scheduled(self.settings)

    @cached_property
    def _counted(self) -> Vector:
        """How often the schedule has each group."""
        counts = np.array(self.responses, dtype=np.float64)
        return scheduled_frequency(counts[[group[0] for group in groups_of(self.settings)]])


def is_scheduled(settings: StudySettings) -> bool:
    """Whether the clocks are drawn ahead and each owner promises its own count."""
    return settings.privacy.split == "schedule" and settings.algorithm.name == "asynchronous"


def decide(
    settings: StudySettings, public: PublicSide, *, num_records: Sequence[int], seed: int
) -> Decision:
    """What the settings leave to "auto", from public facts; numbers that are given stay.

    Args:
      settings: The study.
      public: The feature map and the public records.
      num_records: Each owner's n_i.
      seed: The clocks' seed.

    Raises:
      InputError: Something is left to "auto" and there are no public records.
    """
    counts = tuple(num_records)
    given = settings.algorithm
    if given.name == "moments":
        return Decision(num_records=counts, horizon=len(counts), clip=None, constant=0.0)
    fixed = Decision(
        num_records=counts,
        horizon=given.horizon if isinstance(given.horizon, int) else 0,
        clip=settings.privacy.clip if isinstance(settings.privacy.clip, float) else None,
        constant=given.rho or given.initial_step or 0.0,
    )
    _check_schedule(settings, fixed.horizon)
    left_open = [
        name
        for name, is_open in (
            ("algorithm.horizon", not fixed.horizon),
            ("algorithm.step", not fixed.constant),
            ("privacy.clip", settings.privacy.clip == "auto"),
        )
        if is_open
    ]
    if not left_open:
        return fixed
    if public.records is None:
        raise InputError(
            f'{left_open[0]} = "auto" needs public records; give features.public, or a NUMBER'
        )
    return _choose(settings, public, fixed, seed=seed)


def _choose(settings: StudySettings, public: PublicSide, fixed: Decision, *, seed: int) -> Decision:
    """The open numbers, by simulation on the public records."""
    assert public.records is not None  # noqa: S101 (decide has looked)
    num_features = public.feature_map.num_features
    unit = algorithm_of(settings, num_features, replace(fixed, horizon=1, constant=1.0))
    if isinstance(unit, Asynchronous):
        # Frequencies that will be counted are forecast by the clocks' known rates.
        known = clock_rates(settings, fixed.num_records) if unit.counted else unit.frequency
        unit = as_larger_owners(replace(unit, counted=False, frequency=known))
    assert not isinstance(unit, SecondMoments)  # noqa: S101 (they leave nothing open)
    conditions = _conditions(settings, public, fixed, seed=seed)
    rng = np.random.default_rng(CHOICE_SEED)
    is_settled = fixed.horizon > 0 and settings.privacy.clip != "auto"
    if is_settled and isinstance(unit, Asynchronous):
        if conditions.counted:
            counts = conditions.promise(fixed.horizon)
            unit = replace(unit, frequency=scheduled_frequency(counts))
        return _choose_step(replace(unit, horizon=fixed.horizon), conditions, fixed, rng=rng)
    choice = choose(
        unit,
        conditions,
        horizon=fixed.horizon or None,
        clip=fixed.clip,
        choose_clip=settings.privacy.clip == "auto",
        step=fixed.constant * step_of_unit(unit, fixed.horizon) or None,
        rng=rng,
    )
    limit = None
    if isinstance(unit, Asynchronous):
        limit = largest_stable_step(unit, public.records, loss=conditions.loss)
    unit_step = step_of_unit(unit, choice.horizon)
    return replace(
        fixed,
        horizon=choice.horizon,
        clip=choice.clip,
        constant=fixed.constant or choice.step / unit_step,
        forecast=choice.forecast_relative_fitness,
        largest_stable=None if limit is None else limit / unit_step,
    )


def _choose_step(
    algorithm: Asynchronous,
    conditions: Conditions,
    fixed: Decision,
    *,
    rng: np.random.Generator,
) -> Decision:
    """The step alone, where horizon and clip are given."""
    bound = conditions.bound if fixed.clip is None else min(fixed.clip, conditions.bound)
    promised = conditions.promise(fixed.horizon)
    choice = choose_rho(
        algorithm,
        conditions.public,
        loss=conditions.loss,
        noise_scales=2.0 * bound * promised / (conditions.num_records * conditions.epsilons),
        clip=fixed.clip,
        rng=rng,
    )
    return replace(
        fixed,
        constant=choice.rho,
        forecast=choice.forecast_relative_fitness,
        largest_stable=choice.largest_stable_rho,
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


def _conditions(
    settings: StudySettings, public: PublicSide, fixed: Decision, *, seed: int
) -> Conditions:
    """The public facts that the choice rests on."""
    assert public.records is not None  # noqa: S101 (decide has looked)
    groups = groups_of(settings)
    slot_of = {group: slot for slot, group in enumerate(groups)}
    longest = max(fixed.horizon, *HORIZONS) if is_scheduled(settings) else HORIZONS[-1]
    ticks = islice(_clocks(settings, fixed.num_records, seed=seed), longest)
    slots = np.array([slot_of[tick.owners] for tick in ticks], dtype=np.intp)
    counts = np.array(fixed.num_records, dtype=np.float64)

    def promise(horizon: int) -> Vector:
        if is_scheduled(settings):
            return np.bincount(slots[:horizon], minlength=len(groups)).astype(np.float64)
        return np.full(len(groups), float(horizon))

    return Conditions(
        public=public.records,
        loss=LOSSES[settings.model.loss],
        bound=domain_gradient_bound(
            LOSSES[settings.model.loss],
            public.feature_map.domain,
            theta_max=settings.model.theta_max,
        ),
        epsilons=epsilons_of_groups(epsilons_of(settings), groups),
        num_records=np.array([counts[list(group)].sum() for group in groups]),
        slots=slots,
        promise=promise,
        counted=is_scheduled(settings) and settings.algorithm.correction == "counted",
    )


def algorithm_of(
    settings: StudySettings, num_features: int, decision: Decision
) -> Asynchronous | SynchronousAverage | SynchronousDescent | SecondMoments:
    """The algorithm that the settings name."""
    counts = np.array(decision.num_records, dtype=np.float64)
    weights = counts / counts.sum()
    given, box = settings.algorithm, settings.model.theta_max
    regulariser = Regulariser(coefficient=settings.model.regularisation)
    groups = groups_of(settings)
    match given.name:
        case "asynchronous":
            return Asynchronous(
                weights=weights,
                num_features=num_features,
                horizon=decision.horizon,
                rho=decision.constant,
                theta_max=box,
                regulariser=regulariser,
                rule=given.rule or "printed",
                groups=groups if len(groups) < len(weights) else (),
                frequency=frequency_of(settings, decision.num_records),
                counted=given.correction == "counted",
                tail_average=given.average == "tail",
            )
        case "synchronous-1":
            return SynchronousDescent(
                weights=weights,
                num_features=num_features,
                horizon=decision.horizon,
                rho=decision.constant,
                theta_max=box,
                regulariser=regulariser,
                projection=given.rule != "printed",
            )
        case "synchronous-2":
            return SynchronousAverage(
                weights=weights,
                num_features=num_features,
                horizon=decision.horizon,
                initial_step=decision.constant,
                theta_max=box,
                regulariser=regulariser,
            )
        case "moments":
            return SecondMoments(
                weights=weights,
                num_features=num_features,
                theta_max=box,
                regulariser=regulariser,
            )


def _clocks(settings: StudySettings, num_records: Sequence[int], *, seed: int) -> PoissonClocks:
    """The clocks of the owners, or of their groups."""
    return PoissonClocks(
        groups_of(settings), clock_rates(settings, num_records), rng=np.random.default_rng(seed)
    )


def _first_ticks(clocks: PoissonClocks, num_owners: int) -> Iterable[Tick]:
    """The first tick of each owner's clock."""
    seen: set[tuple[int, ...]] = set()
    for tick in clocks:
        if tick.owners not in seen:
            seen.add(tick.owners)
            yield tick
        if len(seen) == num_owners:
            return


def _check_schedule(settings: StudySettings, horizon: int) -> None:
    """Refuse a schedule that cannot be held."""
    if is_scheduled(settings) and horizon > LONGEST_SCHEDULE:
        raise InputError(
            f'privacy.split = "schedule" draws the ticks ahead, at most {LONGEST_SCHEDULE:,}; '
            'give a shorter horizon or split = "horizon"'
        )
