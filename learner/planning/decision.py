"""What a study leaves to "auto", decided: numbers that a journal keeps for a resumed run.

They come from public records, n_i, budgets and clocks only (:mod:`learner.planning.deciding`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from pydantic import ConfigDict, TypeAdapter

from common.arrays import Vector
from common.moments import unpack_moments
from learner.algorithms.shrinkage import Around
from learner.algorithms.wiener import ODDS


@dataclass(frozen=True, kw_only=True)
class NotedAround:
    """:class:`learner.algorithms.shrinkage.Around` without its model, as the journal holds it.

    Args:
      curvature: The upper triangle of the curvature, row by row.
      offset: The offset.
      spread: The spread.
      curvature_spread: The curvature's spread.
      curvature_scale: The factor of the curvature in responses; 0 where they hold none.
      doubt: The doubt in the curvature.
      pull: The public records' own gradient there; nothing for 0.
      drifts: Whether the owners' records may be far from the public ones.
      odds: The odds of a model that is farther away than chance makes it.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    curvature: tuple[float, ...]
    offset: tuple[float, ...]
    spread: float
    curvature_spread: float
    curvature_scale: float = 0.0
    doubt: float = 0.0
    pull: tuple[float, ...] = ()
    drifts: bool = False
    odds: float = ODDS

    @classmethod
    def of(cls, around: Around, *, curvature_scale: float = 0.0) -> NotedAround:
        """What is noted of it."""
        return cls(
            curvature=tuple(around.curvature[np.triu_indices(around.theta.size)].tolist()),
            offset=tuple(around.offset.tolist()),
            spread=around.spread,
            curvature_spread=around.curvature_spread,
            curvature_scale=curvature_scale,
            doubt=around.doubt,
            pull=() if around.pull is None else tuple(around.pull.tolist()),
            drifts=around.drifts,
            odds=around.odds,
        )

    def around(self, theta: Vector) -> Around:
        """The whole again."""
        offset = np.array(self.offset)
        packed = np.concatenate([self.curvature, offset])
        curvature, _ = unpack_moments(packed, theta.size)
        return Around(
            theta=theta,
            curvature=curvature,
            offset=offset,
            spread=self.spread,
            curvature_spread=self.curvature_spread,
            doubt=self.doubt,
            pull=np.array(self.pull) if self.pull else None,
            drifts=self.drifts,
            odds=self.odds,
        )


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a way of learning is expected to come to.

    Args:
      relative_fitness: The expected relative fitness.
      low: Nine runs in ten lie between it
      high: and this.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    relative_fitness: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The numbers that a plan needs beside the settings.

    Args:
      num_records: Each owner's n_i, as it described itself.
      horizon: The number T of communications or rounds; for moments N, for Newton's
        step N times its rounds.
      clip: The clip C, or None for the domain's bound.
      constant: rho, or c1 of synchronous-2; 0 for moments, which have no step.
      parameters: The loss's parameters by name; none for most losses.
      forecast: Forecast relative fitness of what was chosen; None where nothing was.
      largest_stable: The constant of the largest stable step; None where no step was chosen.
      asks_everyone: Whether the schedule hands ticks to owners that it would leave out.
      start: The public model that all models begin at; that of a step is shrunk
        (:attr:`learner.simulated.groups.PublicGroups.start`). None for 0.
      around: What public records say around it, where a step is taken from it.
      scales: Scale of each owner's noise, where the algorithm takes it into account.
      counted: How much each owner's answer counts, summing to 1; none for its share of the records.
      way: Which of the ways of learning this is, where they were compared; None otherwise.
      ways: What each of them is expected to come to, by name.
      public: The expected relative fitness of the public model, where it was forecast.
      shrunk: That of the public model shrunk by a ridge, where Newton's steps were forecast.
      alone: That of each owner's own model, as ``public``.
      validation: The share of epsilon that is kept for validation, an exact rational; runs of
        before it was asked for have none.
      validated_by: Whether each owner says how good the model is, as it described itself.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    num_records: tuple[int, ...]
    horizon: int
    clip: float | None
    constant: float
    parameters: Mapping[str, Any] = field(default_factory=dict)
    forecast: float | None = None
    largest_stable: float | None = None
    asks_everyone: bool = False
    start: tuple[float, ...] | None = None
    around: NotedAround | None = None
    scales: tuple[float, ...] = ()
    counted: tuple[float, ...] = ()
    way: str | None = None
    ways: Mapping[str, Expected] = field(default_factory=dict)
    public: float | None = None
    shrunk: float | None = None
    alone: tuple[float, ...] = ()
    validation: str = "0"
    validated_by: tuple[str, ...] = ()

    @property
    def forecasts(self) -> dict[str, float]:
        """The expected relative fitness of each way of learning, by its name."""
        return {way: its.relative_fitness for way, its in self.ways.items()}

    def to_json(self) -> str:
        """The decision as text, for the journal.

        >>> made = Decision(num_records=(3, 4), horizon=9, clip=None, constant=0.1)
        >>> Decision.from_json(made.to_json()) == made
        True
        """
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Decision:
        """The decision of :meth:`to_json`, its values of the kinds that they stand for.

        Raises:
          ValueError: It is none.
        """
        return _DECISION.validate_json(text, strict=True)


_DECISION = TypeAdapter(Decision)
