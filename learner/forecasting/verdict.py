r"""Who gains, who harms, and where collaboration begins to pay: the answers put together.

Relative fitness is always that on the union of the owners whom the study would have.

* Owner i *gains* where the common model is expected to be better on the union than its own, and
  than that of the public records, which costs nobody anything, by what the guard asks.
* Owner i *harms* where the others' model is better without it, by more than ``NOTICEABLE``.
* One more unit of epsilon from owner i is worth what it lowers the expected relative fitness by.

The two last compare forecasts in the same worlds, and are said only if nearly all worlds agree:
where the public records are few, the middle of the worlds moves by more than a tenth by chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from learner.forecasting.candidate import COMPARED, Candidate
from learner.forecasting.main_measure import ExpectedQuality, expected_quality
from learner.forecasting.questions import FACTORS, OWNERS, Answer
from learner.planning.boxes import edge_sentence
from learner.planning.decision import Decision
from learner.planning.guard import to_beat, unit_sentence, ways_sentence
from learner.planning.public_side import strangers_sentence
from learner.planning.roles import own_index
from learner.planning.ways import WAYS
from learner.simulated.groups import Ends, ends_of

# A change of expected relative fitness below this share does not count as harm.
NOTICEABLE = 0.1
# The share of the worlds that must agree: 10 of 12, which one in fifty coins would.
AGREED = 5 / 6
# Nothing is below a bar of 0, as where the only owner's own model is the best one.
NEVER = 1e300
CURVES = ("epsilon", "size", "owners", "horizon", "clip", "split")

Answers = Mapping[str, Answer]


@dataclass(frozen=True, kw_only=True)
class OwnerVerdict:
    """What the forecast says of one owner; what is not known is not a number.

    Args:
      name: Its name.
      records: Its n_i.
      epsilon: Its budget, as the settings give it; "inf" of the owner that is the learner.
      relative_fitness_alone: That of its own model, on the union.
      gains: Whether the common model is expected to be better than that and than the public one,
        and it has the common model.
      one_more_epsilon_is_worth: By how much one more unit lowers expected relative fitness; 0
        where the worlds do not agree that it does.
      smallest_epsilon_factor: The smallest factor on all budgets at which it gains; None if none.
      relative_fitness_without: What the others are expected to reach without it; None if it was
        not asked, as for the only owner of a study.
      harms: Whether that is noticeably better; None as above.
      gain_without: Who would gain then; None as above.
    """

    name: str
    records: int
    epsilon: str
    relative_fitness_alone: float
    gains: bool
    one_more_epsilon_is_worth: float
    smallest_epsilon_factor: float | None
    relative_fitness_without: float | None = None
    harms: bool | None = None
    gain_without: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Smallest:
    """Where half of the owners gain, in the study's middle; None where nothing tried is enough.

    ``epsilon_of_ways`` is the epsilon at which each way of learning begins to beat the public
    model. ``or_below`` names what is the smallest that was tried already, so that it may begin
    below: "epsilon", "records", or a way. ``owner`` is the one owner whose gain counts, where that
    one alone has the model.
    """

    epsilon: float | None
    records: float | None
    owners: float | None
    epsilon_of_ways: Mapping[str, float | None] = field(default_factory=dict)
    or_below: tuple[str, ...] = ()
    owner: str | None = None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The answers put together, as ``forecast.json`` holds them.

    Args:
      study: The study's name.
      relative_fitness: The expected relative fitness.
      interval_90: Between these are nine runs in ten.
      relative_fitness_public: That of the model of the public records, which is free.
      design: Algorithm, horizon, clip and split of the study.
      public_records: How many public records it was forecast from.
      drift: How far the public records change along their table.
      warnings: What the public records themselves say against the forecast.
      owners: What it comes to for each owner.
      smallest: Where collaboration begins to pay.
      algorithms: The answers for other algorithms, by name.
      curves: The answers along one quantity: its name, then its values.
      failures: Why a point could not be computed, by the point's name.
      way: The way of learning that "auto" takes; None where the study names its algorithm.
      ways_in_words: That one beside the others, and why it is taken; None as above.
      quality: The forecast in the measure that people compare models by; None where the loss
        determines none, or public records do not tell it.
    """

    study: str
    relative_fitness: float
    interval_90: tuple[float, float]
    relative_fitness_public: float
    design: Mapping[str, object]
    public_records: int
    drift: float
    warnings: tuple[str, ...]
    owners: tuple[OwnerVerdict, ...]
    smallest: Smallest
    algorithms: Answers
    curves: Mapping[str, Answers]
    failures: Mapping[str, str] = field(default_factory=dict)
    way: str | None = None
    ways_in_words: str | None = None
    quality: ExpectedQuality | None = None

    def as_json(self) -> dict[str, Any]:
        """The verdict in plain values; what was not asked of an owner is left out."""
        plain = asdict(self)
        for owner in plain["owners"]:
            if owner["relative_fitness_without"] is None:
                for key in ("relative_fitness_without", "harms", "gain_without"):
                    del owner[key]
        return plain


def verdict(
    candidate: Candidate,
    answers: Answers,
    failures: Mapping[str, str] | None = None,
    *,
    base: Decision | None = None,
) -> Verdict:
    """The answers put together.

    Args:
      candidate: The study.
      answers: The answers by the questions' names; that of "study" must be there.
      failures: Why points could not be computed, by their names.
      base: What the study leaves open, decided.
    """
    study, way = answers["study"], None if base is None else base.way
    ends = ends_of(candidate.groups)
    return Verdict(
        study=candidate.settings.name,
        relative_fitness=study.relative_fitness,
        interval_90=(study.low, study.high),
        relative_fitness_public=study.public,
        design={
            "algorithm": study.algorithm,
            "horizon": study.horizon,
            "clip": study.clip,
            "split": study.split,
        },
        public_records=len(candidate.groups.records),
        drift=ends.drift,
        warnings=tuple(_warnings(candidate, ends)),
        owners=tuple(_owner(candidate, answers, i) for i in range(len(candidate.num_records))),
        smallest=_smallest(candidate, answers),
        algorithms={name: answers[f"by-{name}"] for name in COMPARED if f"by-{name}" in answers},
        curves={
            kind: {
                key.removeprefix(f"{kind}-"): answer
                for key, answer in answers.items()
                if key.startswith(f"{kind}-")
            }
            for kind in CURVES
        },
        failures=failures or {},
        way=way,
        ways_in_words=None
        if base is None or way is None
        else ways_sentence(base, own=way, initiative=candidate.settings.algorithm.initiative),
        quality=_quality(candidate, study),
    )


def _quality(candidate: Candidate, study: Answer) -> ExpectedQuality | None:
    """The study's forecast in its model's main measure; None where the unit of it is not known."""
    public = candidate.public
    if public.raw_targets is None or unit_sentence(candidate.groups.outside) is not None:
        return None
    fitness = (study.relative_fitness, study.low, study.high, study.public)
    rule = public.feature_map.target
    return expected_quality(candidate.groups, public.raw_targets, rule, fitness=fitness)


def _owner(candidate: Candidate, answers: Answers, i: int) -> OwnerVerdict:
    """The verdict on one owner."""
    study, entries = answers["study"], candidate.settings.owners
    psi, alone, own = study.relative_fitness, study.alone[i], candidate.settings.learner.own
    without, richer = answers.get(f"without-{i}"), answers.get(f"unit-{i}")
    # A model that stays with the owner that learns it is of no use to the others.
    has_it, name = own in {None, entries[i].name}, entries[i].name
    return OwnerVerdict(
        name=name,
        records=candidate.num_records[i],
        epsilon="inf" if own == name else str(candidate.settings.promised(entries[i])),
        relative_fitness_alone=alone,
        gains=has_it and psi < _bar(alone, study.public),
        one_more_epsilon_is_worth=float("nan") if richer is None else _lowers(study, richer),
        smallest_epsilon_factor=_smallest_epsilon_factor(answers, _bar(alone, study.public))
        if has_it
        else None,
        relative_fitness_without=None if without is None else without.relative_fitness,
        harms=None if without is None else _lowers(study, without) > NOTICEABLE * psi,
        gain_without=None
        if without is None
        else tuple(
            entry.name
            for j, entry in enumerate(entries)
            if j != i
            and own in {None, name, entry.name}
            and without.relative_fitness < _bar(study.alone[j], study.public)
        ),
    )


def _lowers(study: Answer, other: Answer) -> float:
    """By how much another answer is below the study's; 0 where too few worlds say that it is."""
    agree = np.mean(np.less(other.by_world, study.by_world))
    return max(study.relative_fitness - other.relative_fitness, 0.0) if agree >= AGREED else 0.0


def _bar(alone: float, public: float) -> float:
    """What the common model must be better than, for an owner to gain."""
    return min(alone, to_beat(public))


def _smallest_epsilon_factor(answers: Answers, bar: float) -> float | None:
    """The smallest factor of epsilon at which the model is better than ``bar``; None if at none."""
    points = [(f, answers[key]) for f in FACTORS if (key := f"epsilon-{f:g}") in answers]
    return _crossing([(f, _over(answer.relative_fitness, bar)) for f, answer in points])


def _over(fitness: float, bar: float) -> float:
    """How many times the bar a relative fitness is: it is better below 1."""
    return fitness / bar if bar > 0.0 else NEVER


def _crossing(points: Sequence[tuple[float, float]]) -> float | None:
    """From which x on a ratio is below 1, between two points on logarithmic scales.

    Owners with few records gain from company, and with many from little noise: what lies below 1
    for the smallest x only is no beginning.

    >>> _crossing([(0.1, 0.5), (1.0, 2.0), (10.0, 0.5)]), _crossing([(0.1, 0.5), (1.0, 2.0)])
    (3.1622776601683795, None)
    """
    first = max(
        (place + 1 for place, (_, ratio) in enumerate(points) if not ratio < 1.0), default=0
    )
    if first == len(points):
        return None
    x, ratio = points[first]
    if first == 0:
        return x
    before, above = points[first - 1]
    share = np.log(above) / (np.log(above) - np.log(max(ratio, 1e-12)))
    return float(before * (x / before) ** share)


def _smallest(candidate: Candidate, answers: Answers) -> Smallest:
    """The smallest epsilon, n_i and N at which half of the owners gain, in the study's middle.

    Where an owner is the learner, it is where that one gains, and the epsilon of the others.
    """
    settings, own = candidate.settings, own_index(candidate.settings)
    others = [entry for entry in settings.owners if entry.name != settings.learner.own]
    epsilon = float(np.median([float(settings.promised(its)) for its in others or settings.owners]))

    def ratio(answer: Answer) -> float:
        alone = float(np.median(answer.alone)) if own is None else answer.alone[own]
        return _over(answer.relative_fitness, _bar(alone, answer.public))

    of_ways = _ratios_of_ways(answers)
    tried = of_ways | {
        kind: [(f, ratio(answers[k])) for f in FACTORS if (k := f"{name}-{f:g}") in answers]
        for kind, name in (("epsilon", "epsilon"), ("records", "size"))
    }
    found = {name: _crossing(points) for name, points in tried.items()}
    # Fewer owners are a study without the learner's own records.
    counts = [c for c in OWNERS if c > (own or 1) and f"owners-{c}" in answers]
    return Smallest(
        epsilon=_times(found["epsilon"], epsilon),
        records=_times(found["records"], float(np.median(candidate.num_records))),
        owners=next((float(c) for c in counts if ratio(answers[f"owners-{c}"]) < 1.0), None),
        epsilon_of_ways={way: _times(found[way], epsilon) for way in of_ways},
        or_below=tuple(
            name for name, points in tried.items() if points and found[name] == points[0][0]
        ),
        owner=settings.learner.own,
    )


def _times(factor: float | None, middle: float) -> float | None:
    return None if factor is None else factor * middle


def _ratios_of_ways(answers: Answers) -> dict[str, list[tuple[float, float]]]:
    """What each way of learning comes to over what the guard asks, at each factor on epsilon."""
    tried = {}
    for way in WAYS:
        points = [(f, answers[key]) for f in FACTORS if (key := f"ways-{f:g}") in answers]
        known = [
            (f, _over(its.ways[way], to_beat(its.public))) for f, its in points if way in its.ways
        ]
        if known and f"by-{way}" in answers:
            tried[way] = known
    return tried


def _warnings(candidate: Candidate, ends: Ends) -> list[str]:
    """What the public records themselves say against the forecast."""
    groups, warnings = candidate.groups, []
    names = candidate.public.feature_map.feature_names
    edge = edge_sentence(groups.problem, groups.records, groups.theta_optimal, names)
    unit = unit_sentence(groups.outside)
    warnings += [sentence for sentence in (edge, unit) if sentence is not None]
    if ends.is_notable:
        warnings.append(
            "the public records change along their table: a model of its first third loses "
            f"{ends.drift:.0%} more on its last than the best one; if the owners' records are of "
            "another time or place, the forecast may be off by a factor of two"
        )
    strangers = strangers_sentence(groups, candidate.public, candidate.settings)
    if strangers is not None:
        warnings.append(strangers)
    if candidate.public.only_group_of is not None and len(candidate.num_records) > 1:
        warnings.append(
            "the public records are of one group only, so nothing tells how owners differ; the "
            "true outcome may be far from this, own models and the public one above all"
        )
    elif groups.labels is None and len(candidate.num_records) > 1:
        warnings.append(
            "no column tells which group an owner is; if owners are places or groups of their own, "
            "their own models are worse for all records than is forecast here, and more owners "
            "gain: name such a column of the public records with forecast.group_column"
        )
    if len(groups.records) < 20 * groups.records.features.shape[1]:
        warnings.append(
            f"{len(groups.records)} public records for {groups.records.features.shape[1]} "
            "features are few; expect a rough forecast"
        )
    return warnings
