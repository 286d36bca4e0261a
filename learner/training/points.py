"""The points of a sweep: what is open is decided once for each, then it is run at many seeds.

Both are calls of :func:`learner.simulated.sweeps.run_sweep`, on this machine or on a cluster. The
records are passed beside the description of the work, as plain arrays that many calls share.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from common.arrays import Matrix, Vector
from common.features import FeatureMap
from common.terms import Records
from learner.planning.deciding import decide_quietly
from learner.planning.decision import Decision
from learner.planning.public_side import PublicSide
from learner.planning.settings import StudySettings
from learner.planning.validation import public_theta
from learner.planning.ways import resolved, way_of
from learner.simulated.evaluation import Evaluation
from learner.training.noted_decision import noted_decision
from learner.training.repeated import Repeated

# Runs side by side, and ticks of them all that are held at once.
SEEDS_AT_ONCE, TICKS_AT_ONCE = 100, 20_000_000
# Ticks that are timed to learn what one costs.
TRIED = 20


@dataclass(frozen=True, kw_only=True, eq=False)
class Deciding:
    """A point whose open settings are to be decided, from public facts.

    Args:
      settings: The study there.
      public: What is public.
      num_records: The n_i of those who take part.
      records: A text that identifies their records, and the public ones with their groups.
      seeds: How many seeds are to come.
    """

    settings: StudySettings
    public: PublicSide
    num_records: tuple[int, ...]
    records: str
    seeds: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Repeating:
    """Some seeds of a point that was decided.

    Args:
      settings: The study there.
      feature_map: Its feature map.
      decision: What it left open, decided.
      records: A text that identifies the records.
      seeds: The seeds.
    """

    settings: StudySettings
    feature_map: FeatureMap
    decision: Decision
    records: str
    seeds: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Decided:
    """What a point comes to before any seed.

    Args:
      decision: What it left open, decided, as text.
      way: The way of learning.
      horizon: T.
      public: Relative fitness of the public model, None without one.
      alone: That of each owner's own.
      seconds: How long one block of seeds may take.
    """

    decision: str
    way: str
    horizon: int
    public: float | None
    alone: list[float]
    seconds: float


_DECIDED = TypeAdapter(Decided)
_REPEATED = TypeAdapter(dict[Literal["relative_fitness"], list[float]])


def fingerprint(what: Deciding | Repeating, features: Matrix, targets: Vector) -> str:
    """A text that is equal for calls with equal results; the records have one of their own."""
    del features, targets
    if isinstance(what, Deciding):
        parts = [what.public.feature_map.digest, repr((what.num_records, what.public.known))]
    else:
        parts = [what.feature_map.digest, what.decision.to_json(), repr(what.seeds)]
    facts = [type(what).__name__, what.settings.model_dump_json(), what.records, *parts]
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:32]


def records_digest(*arrays: NDArray[Any]) -> str:
    """A text that identifies records.

    >>> records_digest(np.zeros(2)) == records_digest(np.zeros(1))
    False
    """
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(repr(array.shape).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def decide_point(point: Deciding, features: Matrix, targets: Vector) -> Mapping[str, Any]:
    """What a point comes to before any seed: its decision, and what is there without a study.

    Args:
      point: The point.
      features: All owners' records, those who take part first, shape (n, p).
      targets: Their targets, shape (n,).

    Returns:
      The fields of :class:`Decided`.

    Raises:
      InputError: Something open cannot be decided, or the study cannot be repeated.
    """
    settings = point.settings
    decision = decide_quietly(
        settings, point.public, num_records=point.num_records, seed=settings.seed or 0
    )
    shards = _shards(point.num_records, features, targets)
    repeated = Repeated(
        settings=settings, feature_map=point.public.feature_map, decision=decision, shards=shards
    )
    plan = repeated.plan(seed=0)
    evaluation = Evaluation(shards=shards, problem=plan.problem)
    theta = public_theta(plan, point.public)
    free = None if theta is None else float(evaluation.relative_fitness(theta[None])[0])
    decided = Decided(
        decision=decision.to_json(),
        way=way_of(plan.settings),
        horizon=decision.horizon,
        public=free,
        alone=evaluation.relative_fitness_alone.tolist(),
        seconds=_seconds(repeated, blocks_of(point.seeds, decision.horizon)[0]),
    )
    return asdict(decided)


def repeat_point(point: Repeating, features: Matrix, targets: Vector) -> Mapping[str, Any]:
    """Relative fitness of the common model at each seed; arguments as for :func:`decide_point`."""
    shards = _shards(point.decision.num_records, features, targets)
    repeated = Repeated(
        settings=point.settings,
        feature_map=point.feature_map,
        decision=point.decision,
        shards=shards,
    )
    evaluation = Evaluation(shards=shards, problem=repeated.plan(seed=0).problem)
    psi = evaluation.relative_fitness(repeated.models(point.seeds))
    return {"relative_fitness": psi.tolist()}


def read_decided(kept: object, point: Deciding, *records: object) -> Mapping[str, Any]:
    """What :func:`decide_point` returned of a point, from a file that may have been changed.

    Raises:
      Exception: It did not; see :func:`~learner.training.noted_decision.noted_decision`.
    """
    del records
    its = _DECIDED.validate_json(json.dumps(kept), strict=True)
    num_features = point.public.feature_map.num_features
    decision = noted_decision(its.decision, settings=point.settings, num_features=num_features)
    own = resolved(point.settings, decision)
    known = (decision.num_records, decision.horizon, way_of(own), len(decision.num_records))
    if known != (point.num_records, its.horizon, its.way, len(its.alone)):
        raise ValueError("of another point")
    return asdict(its)


def read_repeated(kept: object, point: Repeating, *records: object) -> Mapping[str, Any]:
    """What :func:`repeat_point` returned of a point, from a file that may have been changed.

    Raises:
      ValueError: It did not.
    """
    del records
    psi = _REPEATED.validate_json(json.dumps(kept), strict=True)["relative_fitness"]
    if len(psi) != len(point.seeds):
        raise ValueError("of other seeds")
    return {"relative_fitness": psi}


def blocks_of(seeds: int, horizon: int) -> list[tuple[int, ...]]:
    """The seeds 1 to ``seeds`` in blocks, each of which is run side by side.

    >>> [len(block) for block in blocks_of(250, 3000)], blocks_of(3, 10**7)
    ([100, 100, 50], [(1, 2), (3,)])
    """
    size = max(1, min(SEEDS_AT_ONCE, TICKS_AT_ONCE // max(horizon, 1)))
    return [
        tuple(range(first, min(first + size, seeds + 1))) for first in range(1, seeds + 1, size)
    ]


def _shards(counts: Sequence[int], features: Matrix, targets: Vector) -> list[Records]:
    """Each owner's records, in the order in which they stand."""
    ends = np.cumsum([0, *counts]).tolist()
    return [Records(features=features[a:b], targets=targets[a:b]) for a, b in pairwise(ends)]


def _seconds(repeated: Repeated, seeds: Sequence[int]) -> float:
    """About how long this many seeds take, from a few ticks of them."""
    times = []
    for ticks in (1, 1 + TRIED):
        began = time.perf_counter()
        repeated.models(seeds, at_most=ticks)
        times.append(time.perf_counter() - began)
    more = max(0, repeated.decision.horizon - 1 - TRIED)
    return times[1] + more * max(0.0, times[1] - times[0]) / TRIED
