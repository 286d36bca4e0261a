r"""Who gains, who harms, and where collaboration begins to pay: the answers put together.

Relative fitness is always that on the union of the owners whom the study would have.

* Owner i *gains* where the common model is expected to be better on the union than its own.
* Owner i *harms* where the others' model is better without it, by more than ``NOTICEABLE``.
* One more unit of epsilon from owner i is worth what it lowers the expected relative fitness by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from learner.forecast.candidate import COMPARED, Candidate
from learner.forecast.questions import FACTORS, OWNERS
from learner.simulated.groups import NOTABLE_DRIFT, drift

__all__ = ["verdict"]

# A change of expected relative fitness below this share is not told as a harm.
NOTICEABLE = 0.1


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
    if groups.labels is not None:
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
