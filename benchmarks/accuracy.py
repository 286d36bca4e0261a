"""Forecast against measured: many studies on real records that the forecast never saw.

A study is drawn at random: who takes part, with how many records, at which epsilon, by which
algorithm. The forecast sees the public records, the n_i and the epsilons. The measurement runs
the same study on the owners' own records. Compared are mean relative fitness,
``log10(predicted/measured)``, each owner's verdict "gains", and the typical error (RMSE). Where
``algorithm.name = "auto"`` picks a way of learning, every other way is measured as well.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from common.arrays import Vector
from common.config import check_settings
from common.errors import InputError
from common.fitting import TargetRule
from common.losses import Regulariser, Squared
from common.terms import Records
from learner.forecasting.main_measure import expected_quality
from learner.planning.deciding import decide_quietly
from learner.planning.proposal import propose
from learner.planning.public_side import PublicSide
from learner.planning.sections import AUTO
from learner.planning.settings import StudySettings
from learner.planning.ways import WAYS, as_way, ways_of
from learner.reproduction.public_data import Family
from learner.simulated.groups import PublicGroups
from learner.simulated.problem import Problem
from learner.simulated.studies import Proposal, run_study
from learner.simulated.twin import Forecast, deal, forecast
from learner.simulated.world import World

ALGORITHMS = ("published", "ticks", "synchronous-1", "moments", "newton", "auto")
BAND = 0.2
ROUNDS = 100
MEASURED_RUNS = 32
# The fewest records of an owner; one that has fewer takes part with all of them.
SMALLEST = 300
# A way of learning is the best if no other is better by more than this share.
CLOSE = 0.1
# Standard errors by which two means of runs must differ to count as different.
ERRORS = 2.0
PROBLEM = Problem(loss=Squared(), regulariser=Regulariser(coefficient=1e-5), theta_max=0.5)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One study: whose shards, how many records of each, and at which epsilon each owner answers;
    how it is learnt; and the seed of everything drawn in it.
    """

    family: str
    owners: tuple[str, ...]
    num_records: tuple[int, ...]
    epsilon: tuple[float, ...]
    algorithm: str
    seed: int


def draw_cases(
    families: Sequence[Family], *, per_family: int, rng: np.random.Generator
) -> Iterator[Case]:
    """Studies of 2 to 11 owners, epsilon 0.1 to 100, every other one with unequal owners; of a
    family with fewer owners, all take part.
    """
    for family in families:
        names = list(family.shards)
        for index in range(per_family):
            N = int(rng.integers(2, 12))
            equal = index % 2 == 0
            if is_one_table(family):
                owners = names * N
                shares = np.ones(N) if equal else np.exp(rng.uniform(-1.5, 1.5, N))
                least = np.full(N, SMALLEST)
                sizes = np.floor(len(family.shards[names[0]]) * shares / shares.sum())
            else:
                N = min(N, len(names))
                owners = rng.permutation(names)[:N].tolist()
                available = np.array([len(family.shards[name]) for name in owners])
                least = np.minimum(available, SMALLEST)
                # One size for all when they are equal, else a fraction of each one's records.
                least = np.full(N, least.min()) if equal else least
                kept = np.exp(np.log(least / available) * rng.random(1 if equal else N))
                sizes = np.full(N, (available * kept).min()) if equal else available * kept
            level = rng.uniform(-1.0, 2.0)
            spread = np.zeros(N) if equal else rng.uniform(-0.5, 0.5, N)
            epsilon = 10 ** np.clip(level + spread, -1.0, 2.0)
            yield Case(
                family=family.name,
                owners=tuple(owners),
                num_records=tuple(np.maximum(least, sizes).astype(int).tolist()),
                epsilon=tuple(float(e) for e in np.round(epsilon, 4)),
                algorithm=ALGORITHMS[index % len(ALGORITHMS)],
                seed=int(rng.integers(2**31)),
            )


def is_one_table(family: Family) -> bool:
    """Whether owners take consecutive parts of one ordered table, the last one next to the public
    records.
    """
    return len(family.shards) == 1


def groups_of(family: Family) -> PublicGroups:
    """The public records in groups, by label where there are labels."""
    return PublicGroups(problem=PROBLEM, records=family.public, labels=family.public_labels)


def records_of(family: Family, case: Case) -> list[Records]:
    """Each owner's records, where there are as many as the case asks for."""
    if not is_one_table(family):
        return [
            _spread(family.shards[name], size)
            for name, size in zip(case.owners, case.num_records, strict=True)
        ]
    (table,) = family.shards.values()
    edges = len(table) - sum(case.num_records) + np.cumsum((0, *case.num_records))
    if edges[0] < 0:
        raise InputError(f"accuracy: {case} asks for more records than {family.name} has")
    return [
        Records(features=table.features[start:stop], targets=table.targets[start:stop])
        for start, stop in itertools.pairwise(edges)
    ]


def _spread(records: Records, size: int) -> Records:
    """This many records of a shard, evenly spread over it."""
    if len(records) < size:
        raise InputError(
            f"accuracy: {size} records asked of an owner that has {len(records)}; take fewer"
        )
    rows = np.arange(size) * len(records) // size
    return Records(features=records.features[rows], targets=records.targets[rows])


def settings_of(case: Case) -> StudySettings:
    """The case as a study."""
    algorithm: dict[str, object]
    match case.algorithm:
        case "published":
            algorithm = {"horizon": 1000, "step": "auto"}
        case "synchronous-1":
            algorithm = {"name": case.algorithm, "horizon": ROUNDS, "step": "auto"}
        case "auto":
            algorithm = {"name": AUTO}
        case _:
            algorithm = WAYS[case.algorithm]
    return check_settings(
        StudySettings,
        {
            "name": "accuracy",
            "seed": case.seed,
            "profile": "recommended" if case.algorithm in {*WAYS, AUTO} else "published",
            "features": {"map": "features.json", "public": {"path": "public.parquet"}},
            "model": {
                "regularisation": PROBLEM.regulariser.coefficient,
                "theta_max": PROBLEM.theta_max,
            },
            "algorithm": algorithm,
            # All of epsilon goes into the model, which is what is compared.
            "privacy": {"epsilon": 1, "validation": 0},
            "owners": [
                {"name": f"owner-{i}", "epsilon": str(e)} for i, e in enumerate(case.epsilon)
            ],
        },
        where="accuracy",
    )


def compare_case(family: Family, case: Case) -> dict[str, object]:
    """One row for each owner of the case, as JSON holds it: what was predicted and measured."""
    table = compare(family, case)
    return {"rows": json.loads(table.to_json(orient="records"))}


def compare(family: Family, case: Case) -> pd.DataFrame:
    """The same as a table."""
    settings, groups = settings_of(case), groups_of(family)
    known = [family.labels[name] for name in case.owners]
    public = PublicSide(
        feature_map=family.feature_map,
        records=family.public,
        labels=family.public_labels,
        known={f"owner-{i}": group for i, group in enumerate(known) if group is not None},
    )
    decision = decide_quietly(settings, public, num_records=case.num_records, seed=case.seed)
    proposal = propose(settings, family.feature_map, decision, seed=case.seed)
    rng = np.random.default_rng(case.seed)
    sizes = np.array(case.num_records, dtype=np.float64)
    asked = settings.forecast
    worlds = deal(groups, sizes, known=known, worlds=asked.worlds, rng=rng)
    predicted = forecast(proposal, groups, worlds, runs=asked.runs, rng=rng)
    world = World.of(records_of(family, case), PROBLEM)

    def measured(which: Proposal) -> Vector:
        models = run_study(which, world, runs=MEASURED_RUNS, rng=rng)
        return np.maximum(world.evaluation.relative_fitness(models), 0.0)

    common = float(measured(proposal).mean())
    rows = _rows(case, proposal, predicted, common, world, theta=groups.theta_optimal)
    rows["least_ratio"] = least_ratio(family, world)
    rows["rmse_ratio"] = rmse_ratio(groups, predicted, rows["measured_relative_fitness"][0], world)
    if decision.way is None:
        return rows
    reached = {}
    for way in ways_of(settings):
        study = as_way(settings, way)
        own = decide_quietly(study, public, num_records=case.num_records, seed=case.seed)
        reached[way] = measured(propose(study, family.feature_map, own, seed=case.seed))
    rows["way"] = decision.way
    rows["picked_best"], rows["picked_level"], rows["picked_ratio"] = judge_pick(
        decision.way, reached
    )
    return rows


def _rows(
    case: Case,
    proposal: Proposal,
    predicted: Forecast,
    measured: float,
    world: World,
    *,
    theta: Vector,
) -> pd.DataFrame:
    low, high = predicted.interval
    alone = world.relative_fitness_alone
    public = float(world.evaluation.relative_fitness(theta[None])[0])
    # What is free, and best of it: an owner gains where the common model is better.
    free = np.minimum(alone, public)
    gains_measured = measured < free
    clear = np.abs(np.log(measured / free)) > np.log1p(BAND)
    return pd.DataFrame(
        {
            "family": case.family,
            "algorithm": case.algorithm,
            "seed": case.seed,
            "num_owners": len(case.owners),
            "owner": case.owners,
            "num_records": case.num_records,
            "epsilon": case.epsilon,
            "horizon": getattr(proposal.algorithm, "horizon", 1),
            "clip": proposal.clip,
            "forecast_relative_fitness": predicted.expected,
            "forecast_low": low,
            "forecast_high": high,
            "measured_relative_fitness": measured,
            "error": np.log10(predicted.expected / measured),
            "forecast_public": predicted.public,
            "measured_public": public,
            "forecast_alone": predicted.alone,
            "measured_alone": alone,
            "forecast_gains": predicted.expected < np.minimum(predicted.alone, predicted.public),
            "measured_gains": gains_measured,
            "clear": clear,
        }
    )


def least_ratio(family: Family, world: World) -> float:
    """The owners' least fitness over that of the public records: relative fitness is measured in
    the one, and nothing but the other is known before.
    """
    public = PROBLEM.fitness(PROBLEM.optimum(family.public), family.public)
    return world.evaluation.fitness_optimal / public


def rmse_ratio(groups: PublicGroups, predicted: Forecast, measured: float, world: World) -> float:
    """The typical error that is forecast over that on the owners' records, of targets within their
    bounds.
    """
    fitness = (predicted.expected, *predicted.interval, predicted.public)
    rule = TargetRule(name="target", bound=1.0, fill=0.0)
    found = expected_quality(groups, groups.records.targets, rule, fitness=fitness)
    if found is None:
        raise InputError("accuracy: the loss determines no typical error; take squared loss")
    return found.common / math.sqrt(world.evaluation.fitness_optimal * (1.0 + measured))


def judge_pick(picked: str, reached: Mapping[str, Vector]) -> tuple[bool, bool, float]:
    """How the way that was picked stands beside the best one, by relative fitness in the runs of
    each: whether no other is better by more than ``CLOSE``; the same, but for another that is
    better by no more than ``ERRORS`` standard errors of the difference of both means, which so few
    runs cannot tell; and how many times its mean is the best one's.
    """
    means = {way: float(psi.mean()) for way, psi in reached.items()}
    best = min(means, key=means.__getitem__)
    is_best = means[picked] <= means[best] * (1.0 + CLOSE)
    variance = sum(float(reached[way].var(ddof=1)) / len(reached[way]) for way in (picked, best))
    is_level = is_best or means[picked] - means[best] <= ERRORS * variance**0.5
    return is_best, is_level, means[picked] / means[best] if means[best] else 1.0


def overall(rows: pd.DataFrame) -> str:
    """All these studies in one sentence."""
    studies = rows.drop_duplicates("seed")
    error, clear = studies["error"].abs(), rows[rows["clear"]]
    right = (clear["forecast_gains"] == clear["measured_gains"]).mean()
    text = (
        f"{len(studies)} studies: median error {error.median():.3f}, "
        f"{(error <= 0.35).mean():.1%} within 0.35; {right:.1%} of {len(clear)} clear "
        f"verdicts right. {_by_least_fitness(studies)}"
    )
    if "picked_best" not in studies or not (chose := studies["picked_best"].dropna()).size:
        return text
    level, worst = studies["picked_level"].dropna().astype(bool), studies["picked_ratio"].max()
    return (
        f"{text} Auto took the best way in {chose.astype(bool).mean():.0%} of {len(chose)}, and "
        f"one that {ERRORS:g} standard errors do not tell from it in {level.mean():.0%}; what it "
        f"took was at most {worst:.2g} times worse."
    )


def _by_least_fitness(studies: pd.DataFrame) -> str:
    """How much of the error is that of the unit in which relative fitness is measured."""
    said, typical = [], []
    for family, own in studies.groupby("family"):
        error = (own["error"] - np.log10(own["least_ratio"])).abs()
        said.append(f"{own['least_ratio'].median():.2f} ({family}; {error.median():.3f})")
        typical.append(f"{(own['rmse_ratio'] - 1.0).abs().median():.1%} ({family})")
    return (
        "The owners' least fitness is so many times that of the public records, in the median, and "
        f"this the median error if it had been known: {', '.join(said)}. The typical error (RMSE) "
        f"that is forecast is off by {', '.join(typical)} in the median."
    )


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """For each family and algorithm: how far off forecasts are, and how often verdicts hold."""
    parts = []
    for family, of_family in rows.groupby("family"):
        for algorithm, own in [("all", of_family), *of_family.groupby("algorithm")]:
            studies = own.drop_duplicates("seed")
            error = studies["error"].abs()
            clear = own[own["clear"]]
            right = clear["forecast_gains"] == clear["measured_gains"]
            parts.append(
                {
                    "family": family,
                    "algorithm": algorithm,
                    "studies": len(studies),
                    "median_error": float(error.median()),
                    "within_0.35": float((error <= 0.35).mean()),
                    "largest_error": float(error.max()),
                    "clear_verdicts": len(clear),
                    "verdicts_right": float(right.mean()) if len(clear) else float("nan"),
                }
            )
    return pd.DataFrame(parts)
