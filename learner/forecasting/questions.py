"""Questions about a study, and the twin's answers.

Each question has a name: the study as proposed, the study without one owner, at other budgets, with
other sizes, with more owners, by other algorithms. What the study leaves to "auto" is decided for
each as the study would decide it. Names of the same question make one *point*.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, get_args

import numpy as np
from pydantic import TypeAdapter

from learner.algorithms.table import ALGORITHMS
from learner.forecasting.candidate import Candidate
from learner.planning.deciding import believed_ways, decide_quietly, expect
from learner.planning.decision import Decision
from learner.planning.design import under_noise
from learner.planning.sections import AUTO, LARGEST_HORIZON
from learner.planning.ways import WAYS, resolved
from learner.simulated.schedules import Split

# Those of epsilon and n_i, and of epsilon for every way. As noise is taken back, a way is level
# with the public model until shortly before it beats it, so where it begins is read too low, and
# the more so the farther apart points are.
FACTORS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
OWNERS = (1, 2, 3, 5, 8, 13, 21, 34)
# Fewer than that say nothing of a shard.
FEWEST_RECORDS = 10
HORIZONS = (30, 100, 300, 1000, 3000)
SPLITS = get_args(Split)
# Less is what solving leaves of 0, as where the only owner's own model is the best one.
ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class Question:
    """One question.

    Args:
      candidate: The study in question.
      taking_part: The owners who take part, where the forecast judges more; None for all.
      decision: What was decided before; None to decide what is open.
    """

    candidate: Candidate
    taking_part: tuple[int, ...] | None = None
    decision: Decision | None = None

    @property
    def part(self) -> Candidate:
        """The study of those who take part."""
        whole = self.candidate
        return whole if self.taking_part is None else whole.with_owners(self.taking_part)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the twin says of one question.

    Args:
      relative_fitness: Expected relative fitness of the study's model.
      by_world: The mean of its runs in each world, of which that is the middle one. The worlds are
        the same where the owners are.
      low: Nine runs in ten lie between it
      high: and this.
      alone: Relative fitness of each owner's own model, on the same union.
      public: Relative fitness of the model of the public records, on the same union.
      horizon: The horizon that was simulated.
      clip: The clip, or None for the domain's bound.
      constant: The step's constant.
      split: How the budget was split.
      algorithm: The algorithm.
      ways: What each way of learning was forecast to come to, where they were compared.
    """

    relative_fitness: float
    by_world: Sequence[float]
    low: float
    high: float
    alone: Sequence[float]
    public: float
    horizon: int
    clip: float | None
    constant: float
    split: str
    algorithm: str
    ways: Mapping[str, float] = field(default_factory=dict)


_ANSWERS = TypeAdapter(dict[str, Answer])


def questions(
    candidate: Candidate, *, compare: Sequence[str], curves: bool, base: Decision
) -> dict[str, Question]:
    """Every question that the verdict puts together, the study itself first.

    Args:
      candidate: The study as proposed.
      compare: Names of other algorithms.
      curves: Whether to look for the smallest epsilon, n_i and N, and the best T.
      base: What the study leaves open, decided.
    """
    N = len(candidate.num_records)
    study = Question(candidate=candidate, decision=base)
    asked = {"study": study}
    for i in range(N):
        rest = tuple(j for j in range(N) if j != i)
        if rest:
            asked[f"without-{i}"] = Question(candidate=candidate, taking_part=rest)
        more = [float(i == j) for j in range(N)]
        asked[f"unit-{i}"] = Question(
            candidate=candidate.with_epsilon([1.0] * N, more), decision=base
        )
    # The way that it is learnt is told, whatever is believed.
    ways = believed_ways(candidate.settings, candidate.ground)
    believed = {*ways, base.way or candidate.settings.algorithm.name}
    for name in compare:
        if name in believed or name not in WAYS:
            asked[f"by-{name}"] = Question(candidate=candidate.with_algorithm(name))
    asked |= _budgets_and_sizes(candidate, study) if curves else {}
    asked |= _ways(candidate, asked) if curves else {}
    asked |= _owners_and_designs(candidate, study) if curves else {}
    return {
        name: study if question.taking_part is None and question.candidate.is_like(candidate)
        else question
        for name, question in asked.items()
    }  # fmt: skip


def _budgets_and_sizes(candidate: Candidate, study: Question) -> dict[str, Question]:
    """Every epsilon, and every n_i, times a factor."""
    N = len(candidate.num_records)
    asked = {}
    for factor in FACTORS:
        scaled = Question(candidate=candidate.with_epsilon([factor] * N))
        asked[f"epsilon-{factor:g}"] = study if factor == 1.0 else scaled
        if min(candidate.num_records) * factor >= FEWEST_RECORDS:
            asked[f"size-{factor:g}"] = Question(candidate=candidate.with_sizes(factor))
    return asked


def _ways(candidate: Candidate, asked: Mapping[str, Question]) -> dict[str, Question]:
    """All ways of learning, compared at every epsilon: by the study itself where it leaves it open.

    None where no other way is asked for.
    """
    if not any(f"by-{way}" in asked for way in WAYS):
        return {}
    if candidate.settings.algorithm.name == AUTO:
        return {f"ways-{factor:g}": asked[f"epsilon-{factor:g}"] for factor in FACTORS}
    N, auto = len(candidate.num_records), candidate.with_algorithm(AUTO)
    return {
        f"ways-{factor:g}": Question(candidate=auto.with_epsilon([factor] * N))
        for factor in FACTORS
    }


def _owners_and_designs(candidate: Candidate, study: Question) -> dict[str, Question]:
    """Other numbers of owners, horizons, splits and clips, beside the study's own."""
    N = len(candidate.num_records)
    asked = {}
    for count in OWNERS:
        kept = [place % N for place in range(count)]
        asked[f"owners-{count}"] = Question(candidate=candidate.with_owners(kept))
    if candidate.settings.algorithm.kind.constant is None:
        return asked
    for horizon in HORIZONS:
        asked[f"horizon-{horizon}"] = Question(candidate=candidate.with_design(horizon=horizon))
    if study.decision is not None:
        asked[f"horizon-{study.decision.horizon}"] = study
    for clip in ("domain", "auto"):
        asked[f"clip-{clip}"] = Question(candidate=candidate.with_design(clip=clip))
    if candidate.settings.algorithm.kind.is_schedulable:
        for split in SPLITS:
            asked[f"split-{split}"] = Question(candidate=candidate.with_design(split=split))
    return asked


def points_of(asked: Mapping[str, Question]) -> dict[str, dict[str, Question]]:
    """The questions in points, each by the first of its names."""
    points: dict[str, dict[str, Question]] = {}
    first: dict[int, str] = {}
    for name, question in asked.items():
        points.setdefault(first.setdefault(id(question), name), {})[name] = question
    return points


def answers_of(results: Mapping[str, Mapping[str, Any]]) -> dict[str, Answer]:
    """The answer of each question, from the points' results."""
    return {
        name: Answer(**answer) for result in results.values() for name, answer in result.items()
    }


def read_answers(kept: object, asked: Mapping[str, Question]) -> dict[str, Any]:
    """What :func:`ask_together` returned, from a file that may have been changed.

    Raises:
      ValueError: It does not answer these questions.
    """
    answers = _ANSWERS.validate_json(json.dumps(kept), strict=True)
    # A point's questions are the same one.
    part = next(iter(asked.values())).part
    owners, worlds = len(part.num_records), part.settings.forecast.worlds
    if answers.keys() != asked.keys() or not all(
        len(answer.alone) == owners
        and len(answer.by_world) == worlds
        and answer.horizon in range(1, LARGEST_HORIZON + 1)
        and answer.algorithm in ALGORITHMS
        and answer.split in SPLITS
        for answer in answers.values()
    ):
        raise ValueError("of other questions")
    return {name: asdict(answer) for name, answer in answers.items()}


def fingerprint(asked: Mapping[str, Question]) -> str:
    """A text that is equal for points with equal answers."""
    digest = hashlib.sha256()
    for name, question in asked.items():
        whole = question.candidate
        records = whole.groups.records
        for text in (
            name,
            whole.settings.model_dump_json(),
            whole.public.feature_map.digest,
            repr((whole.num_records, whole.ground.known, question.taking_part)),
            repr(question.decision),
        ):
            digest.update(text.encode("utf-8") + b"\0")
        for array in (records.features, records.targets, whole.groups.labels):
            digest.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]


def ask_together(asked: Mapping[str, Question]) -> dict[str, Any]:
    """The answers of one point as JSON holds them, by the question's names."""
    answer = asdict(ask(next(iter(asked.values()))))
    return dict.fromkeys(asked, answer)


def ask(question: Question) -> Answer:
    """The answer of one question."""
    whole, part, decision = question.candidate, question.part, question.decision
    if decision is None:
        decision = decide_quietly(
            part.settings, part.public, num_records=part.num_records, seed=whole.ground.seed
        )
    elif decision.around:
        # It was made for other budgets: owners count by the noise of these.
        decision = under_noise(resolved(part.settings, decision), part.ground, decision)
    forecasted = expect(part.settings, whole.ground, decision, taking_part=question.taking_part)
    low, high = forecasted.interval
    settings = resolved(part.settings, decision)
    return Answer(
        relative_fitness=forecasted.expected,
        by_world=forecasted.by_world.tolist(),
        low=low,
        high=high,
        alone=np.where(forecasted.alone <= ROUNDING, 0.0, forecasted.alone).tolist(),
        public=forecasted.public,
        horizon=decision.horizon,
        clip=decision.clip,
        constant=decision.constant,
        split=settings.privacy.split,
        algorithm=settings.algorithm.name,
        ways=decision.forecasts,
    )
