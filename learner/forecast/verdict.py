r"""Who gains, who harms, and where collaboration begins to pay: questions to the twin.

Each question is a point with a name: the study as proposed, the study without one owner, at other
budgets, with other sizes, with more owners, by other algorithms. A point's answer is a forecast;
the verdict puts the answers together. Relative fitness is always that on the union of the owners
whom the study would have.

* Owner i *gains* where the common model is expected to be better on the union than its own.
* Owner i *harms* where the others' model is better without it, by more than ``NOTICEABLE``.
* One more unit of epsilon from owner i is worth what it lowers the expected relative fitness by.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.errors import InputError
from learner.experiments.schedules import Attendance
from learner.forecast.proposal import model_of, propose
from learner.forecast.twin import Forecast, forecast
from learner.forecast.world import NOTABLE_DRIFT, PublicGroups, drift
from learner.plan import Decision, PublicSide, decide
from learner.roles import LearnerSettings
from learner.settings import StudySettings

__all__ = ["COMPARED", "Candidate", "Question", "ask", "fingerprint", "questions", "verdict"]

Vector = NDArray[np.float64]

FORECAST_SEED = 0
# A change of expected relative fitness below this share is not told as a harm.
NOTICEABLE = 0.1
FACTORS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
OWNERS = (1, 2, 3, 5, 8, 13, 21, 34)
# Fewer than that say nothing of a shard.
FEWEST_RECORDS = 10
HORIZONS = (30, 100, 300, 1000, 3000)
COMPARED = ("recommended", "published", "moments", "synchronous-1", "synchronous-2")
PUBLISHED_HORIZON, PUBLISHED_ROUNDS = 1000, 100


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """A study with everything public that its forecast needs.

    Args:
      settings: The study.
      public: The feature map and the public records.
      labels: The group of each public record, shape (n,), or None.
      num_records: Each owner's n_i.
      known: The group that each owner is known to be, or None.
      availability: Share of the time at which each owner answers.
    """

    settings: StudySettings
    public: PublicSide
    labels: NDArray[np.intp] | None
    num_records: tuple[int, ...]
    known: tuple[int | None, ...]
    availability: tuple[float, ...]

    @property
    def groups(self) -> PublicGroups:
        """The public records in groups.

        Raises:
          InputError: There are no public records, or fewer than features.
        """
        if self.public.records is None:
            raise InputError("forecast: needs public records; give --public FILE")
        return PublicGroups(
            model=model_of(self.settings), records=self.public.records, labels=self.labels
        )

    def with_owners(self, kept: Sequence[int]) -> Candidate:
        """The study of some of its owners, each as often as it is named."""
        entries = []
        for place, owner in enumerate(kept):
            entry = self.settings.owners[owner]
            again = place >= len(self.settings.owners)
            name = f"{entry.name[:56]}-{place}" if again else entry.name
            entries.append(entry.model_copy(update={"name": name}))
        names = {entry.name for entry in entries}
        groups = (tuple(n for n in group if n in names) for group in self.settings.groups)
        changes: dict[str, Any] = {
            "owners": tuple(entries),
            "groups": tuple(group for group in groups if group),
        }
        if self.settings.learner.own not in names:
            changes["learner"] = LearnerSettings()
        return replace(
            self,
            settings=self.settings.model_copy(update=changes),
            num_records=tuple(self.num_records[owner] for owner in kept),
            # A copy of an owner is another one of the kind, not the same group once more.
            known=tuple(
                self.known[owner] if owner not in kept[:place] else None
                for place, owner in enumerate(kept)
            ),
            availability=tuple(self.availability[owner] for owner in kept),
        )

    def with_epsilon(self, factors: Sequence[float], more: Sequence[float] = ()) -> Candidate:
        """Every budget times its factor, plus so much more."""
        added = more or (0.0,) * len(factors)
        entries = []
        for entry, factor, extra in zip(self.settings.owners, factors, added, strict=True):
            epsilon = entry.epsilon or self.settings.privacy.epsilon
            changed = float(epsilon) * factor + extra
            entries.append(entry.model_copy(update={"epsilon": type(epsilon)(f"{changed:.9g}")}))
        return replace(self, settings=self.settings.model_copy(update={"owners": tuple(entries)}))

    def with_sizes(self, factor: float) -> Candidate:
        """Every shard times a factor."""
        sizes = tuple(max(1, round(n_i * factor)) for n_i in self.num_records)
        return replace(self, num_records=sizes)

    def with_algorithm(self, name: str) -> Candidate:
        """The same owners and budgets by another algorithm."""
        algorithm: dict[str, Any] = {}
        profile = "recommended" if name == "recommended" else "published"
        if name == "published":
            algorithm = {"horizon": PUBLISHED_HORIZON, "step": "auto"}
        elif name == "moments":
            algorithm = {"name": name}
        elif name != "recommended":
            algorithm = {"name": name, "horizon": PUBLISHED_ROUNDS, "step": "auto"}
        return self._changed(profile=profile, algorithm=algorithm)

    def with_design(
        self, *, horizon: int | None = None, clip: str | None = None, split: str | None = None
    ) -> Candidate:
        """The same study with another horizon, clip or split, and the step that goes with it."""
        given, asked = self.settings.algorithm, self.settings.privacy
        keys: dict[str, Any] = {"name": given.name, "step": "auto"}
        keys["horizon"] = horizon or given.horizon
        if given.name == "asynchronous":
            keys["average"] = given.average
        if given.rule is not None:
            keys["rule"] = given.rule
        privacy = asked.model_dump(exclude_none=True)
        if clip is not None:
            privacy.pop("clip", None)
            privacy["sensitivity"] = "domain" if clip == "domain" else "clip"
            privacy |= {"clip": "auto"} if clip == "auto" else {}
        if split is not None:
            privacy["split"] = split
        return self._changed(profile="published", algorithm=keys, privacy=privacy)

    def _changed(
        self,
        *,
        profile: str,
        algorithm: Mapping[str, Any],
        privacy: Mapping[str, Any] | None = None,
    ) -> Candidate:
        table = self.settings.model_dump(exclude_none=True)
        kept = {
            "epsilon": self.settings.privacy.epsilon,
            "kappa": self.settings.privacy.kappa,
        }
        if algorithm.get("name", "asynchronous") != "asynchronous":
            table.pop("groups", None)
        table |= {
            "profile": profile,
            "algorithm": dict(algorithm),
            "privacy": dict(privacy) if privacy is not None else kept,
        }
        return replace(self, settings=StudySettings.model_validate(table))


@dataclass(frozen=True, kw_only=True, eq=False)
class Question:
    """One point.

    Args:
      candidate: The study in question.
      taking_part: The owners who take part, where fewer than fitness is told for; None for all.
      decision: What was decided before; None to decide what is open.
    """

    candidate: Candidate
    taking_part: tuple[int, ...] | None = None
    decision: Decision | None = None


def fingerprint(question: Question) -> str:
    """A text that is equal for questions with equal answers."""
    whole, told = question.candidate, hashlib.sha256()
    for part in (
        whole.settings.model_dump_json(),
        whole.public.feature_map.digest,
        repr((whole.num_records, whole.known, whole.availability, question.taking_part)),
        repr(question.decision),
    ):
        told.update(part.encode("utf-8") + b"\0")
    records = whole.groups.records
    for array in (records.features, records.targets, whole.labels):
        told.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
    return told.hexdigest()[:32]


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
    asked = {"study": Question(candidate=candidate, decision=base)}
    for i in range(N):
        rest = tuple(j for j in range(N) if j != i)
        if rest:
            asked[f"without-{i}"] = Question(candidate=candidate, taking_part=rest)
        more = [float(i == j) for j in range(N)]
        asked[f"unit-{i}"] = Question(
            candidate=candidate.with_epsilon([1.0] * N, more), decision=base
        )
    squared = candidate.settings.model.loss == "squared"
    for name in compare:
        if squared or name != "moments":
            asked[f"by-{name}"] = Question(candidate=candidate.with_algorithm(name))
    return asked | (_curves(candidate) if curves else {})


def _curves(candidate: Candidate) -> dict[str, Question]:
    """Other budgets, sizes, numbers of owners, horizons, splits and clips."""
    N = len(candidate.num_records)
    asked = {}
    for factor in FACTORS:
        scaled = candidate.with_epsilon([factor] * N)
        asked[f"epsilon-{factor:g}"] = Question(candidate=scaled)
        if min(candidate.num_records) * factor >= FEWEST_RECORDS:
            asked[f"size-{factor:g}"] = Question(candidate=candidate.with_sizes(factor))
    for count in OWNERS:
        kept = [place % N for place in range(count)]
        asked[f"owners-{count}"] = Question(candidate=candidate.with_owners(kept))
    if candidate.settings.algorithm.name == "moments":
        return asked
    for horizon in HORIZONS:
        asked[f"horizon-{horizon}"] = Question(candidate=candidate.with_design(horizon=horizon))
    for clip in ("domain", "auto"):
        asked[f"clip-{clip}"] = Question(candidate=candidate.with_design(clip=clip))
    if candidate.settings.algorithm.name == "asynchronous":
        for split in ("horizon", "schedule"):
            asked[f"split-{split}"] = Question(candidate=candidate.with_design(split=split))
    return asked


def ask(question: Question) -> dict[str, Any]:
    """The forecast of one point, as JSON holds it."""
    whole = question.candidate
    part = whole if question.taking_part is None else whole.with_owners(question.taking_part)
    seed = whole.settings.seed or 0
    decision = question.decision or decide(
        part.settings, part.public, num_records=part.num_records, seed=seed
    )
    proposal = propose(
        part.settings,
        part.public,
        num_records=part.num_records,
        seed=seed,
        decision=decision,
        attendance=Attendance(
            availability=np.array(part.availability),
            mean_absence=whole.settings.forecast.mean_absence,
        ),
    )
    told = forecast(
        proposal,
        whole.groups,
        num_records=np.array(whole.num_records, dtype=np.float64),
        taking_part=question.taking_part,
        known=whole.known,
        runs=whole.settings.forecast.runs,
        worlds=whole.settings.forecast.worlds,
        rng=np.random.default_rng(FORECAST_SEED),
    )
    return _told(told, decision, part.settings)


def _told(told: Forecast, decision: Decision, settings: StudySettings) -> dict[str, Any]:
    low, high = told.interval()
    return {
        "relative_fitness": told.expected,
        "low": low,
        "high": high,
        "alone": told.alone.tolist(),
        "horizon": decision.horizon,
        "clip": decision.clip,
        "constant": decision.constant,
        "split": settings.privacy.split,
        "algorithm": settings.algorithm.name,
    }


def verdict(candidate: Candidate, answers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The answers put together, as ``forecast.json`` holds them."""
    study = answers["study"]
    psi, N = float(study["relative_fitness"]), len(candidate.num_records)
    moved = drift(candidate.groups)
    owners = []
    for i, entry in enumerate(candidate.settings.owners):
        alone = float(study["alone"][i])
        owner = {
            "name": entry.name,
            "records": candidate.num_records[i],
            "epsilon": str(entry.epsilon or candidate.settings.privacy.epsilon),
            "relative_fitness_alone": alone,
            "gains": psi < alone,
            "one_more_epsilon_is_worth": psi - _psi(answers, f"unit-{i}"),
            "smallest_epsilon_factor": _smallest(answers, "epsilon", FACTORS, alone),
        }
        if N > 1 and f"without-{i}" in answers:
            without = _psi(answers, f"without-{i}")
            others = [j for j in range(N) if j != i]
            owner |= {
                "relative_fitness_without": without,
                "harms": without < psi * (1 - NOTICEABLE),
                "gain_without": [
                    candidate.settings.owners[j].name
                    for j in others
                    if without < float(study["alone"][j])
                ],
            }
        owners.append(owner)
    return {
        "study": candidate.settings.name,
        "relative_fitness": psi,
        "interval_90": [study["low"], study["high"]],
        "design": {key: study[key] for key in ("algorithm", "horizon", "clip", "split")},
        "public_records": len(candidate.groups.records),
        "drift": moved,
        "warnings": _warnings(candidate, moved),
        "owners": owners,
        "smallest": _thresholds(candidate, answers),
        "algorithms": {
            name: dict(answers[f"by-{name}"]) for name in COMPARED if f"by-{name}" in answers
        },
        "curves": {
            kind: {
                key.removeprefix(f"{kind}-"): dict(answer)
                for key, answer in answers.items()
                if key.startswith(f"{kind}-")
            }
            for kind in ("epsilon", "size", "owners", "horizon", "clip", "split")
        },
    }


def _psi(answers: Mapping[str, Mapping[str, Any]], key: str) -> float:
    """The expected relative fitness of a point; NaN where it failed."""
    return float(answers[key]["relative_fitness"]) if key in answers else float("nan")


def _smallest(
    answers: Mapping[str, Mapping[str, Any]], kind: str, factors: Sequence[float], alone: float
) -> float | None:
    """The smallest factor at which the common model is as good as ``alone``; None if at none."""
    points = [(f, _psi(answers, f"{kind}-{f:g}")) for f in factors if f"{kind}-{f:g}" in answers]
    return _crossing([(f, psi / alone) for f, psi in points])


def _crossing(points: Sequence[tuple[float, float]]) -> float | None:
    """Where a ratio that falls with x reaches 1, between two points on logarithmic scales."""
    for place, (x, ratio) in enumerate(points):
        if ratio <= 1.0:
            if place == 0:
                return x
            before, above = points[place - 1]
            share = np.log(above) / (np.log(above) - np.log(max(ratio, 1e-12)))
            return float(before * (x / before) ** share)
    return None


def _thresholds(
    candidate: Candidate, answers: Mapping[str, Mapping[str, Any]]
) -> dict[str, float | None]:
    """The smallest epsilon, n_i and N at which half of the owners gain, in the study's middle."""
    epsilons = [
        float(entry.epsilon or candidate.settings.privacy.epsilon)
        for entry in candidate.settings.owners
    ]

    def ratio(key: str) -> float:
        answer = answers[key]
        return float(answer["relative_fitness"] / np.median(answer["alone"]))

    by_epsilon = [(f, ratio(k)) for f in FACTORS if (k := f"epsilon-{f:g}") in answers]
    by_size = [(f, ratio(k)) for f in FACTORS if (k := f"size-{f:g}") in answers]
    by_owners = [(float(c), ratio(k)) for c in OWNERS if c > 1 and (k := f"owners-{c}") in answers]
    epsilon, size = _crossing(by_epsilon), _crossing(by_size)
    paying = [count for count, value in by_owners if value <= 1.0]
    return {
        "epsilon": None if epsilon is None else epsilon * float(np.median(epsilons)),
        "records": None if size is None else size * float(np.median(candidate.num_records)),
        "owners": paying[0] if paying else None,
    }


def _warnings(candidate: Candidate, moved: float) -> list[str]:
    """What the public records themselves say against the forecast."""
    groups, said = candidate.groups, []
    if moved > NOTABLE_DRIFT:
        said.append(
            f"the public records change along their table: a model of its first third loses "
            f"{moved:.0%} on its last; if the owners' records are of another time, the forecast "
            "may be off by a factor of two"
        )
    if candidate.labels is not None:
        unknown = [
            entry.name
            for entry, group in zip(candidate.settings.owners, candidate.known, strict=True)
            if group not in groups.usable
        ]
        if unknown:
            said.append(
                f"no public group stands for {', '.join(unknown)}: groups at random play them"
            )
    if len(groups.records) < 20 * groups.records.features.shape[1]:
        said.append(
            f"{len(groups.records)} public records for {groups.records.features.shape[1]} "
            "features are few; expect a rough forecast"
        )
    return said
