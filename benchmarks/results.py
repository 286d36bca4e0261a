r"""The tables of docs/results.md: what each way of training reaches on real records.

    .venv/bin/python benchmarks/results.py DATA --out docs/results.md

DATA is a folder with the files named in ``SOURCES`` below. Only the section ``comparison`` of the
document is written, anew. Every number is a mean over seeds with its 95 % interval. A seed fixes
the clocks and the noise; runs are simulated with ``learner.experiments``, whose tests hold it to
the loop that trains over the network, and what the recommended profile chooses is decided by
``learner.plan`` from the public records, for each seed again, as ``copriv simulate`` does.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import joblib
import numpy as np
import pandas as pd
from scipy.stats import t as student

from common.config import check_settings
from common.features import FeatureMap, FeatureSettings, fit_feature_map
from common.losses import LOSSES, Regulariser, domain_gradient_bound
from common.moments import moments_change, pack_moments
from common.tables import TableSource
from common.terms import Records
from learner.clocks import draw_slots
from learner.core import Asynchronous
from learner.evaluation import Evaluation
from learner.experiments.documents import replace_section
from learner.experiments.replicates import (
    Moments,
    laplace_noise,
    moment_gradients,
    record_gradients,
    run_replicates,
)
from learner.experiments.rounds import run_rounds
from learner.moments import SecondMoments
from learner.plan import Plan, PublicSide, decide
from learner.settings import StudySettings
from learner.step import largest_stable_step
from learner.synchronous import SynchronousAverage, SynchronousDescent

SOURCES = {
    "hospitals": "sparcs/sparcs_2020_survivors_339006.parquet",
    "loans": "lending/lc_2007_2011_all_42535.parquet",
    "cards": "creditcard/creditcard_partial_union.parquet",
}
EPSILONS = (0.1, 1.0, 10.0, 100.0)
# The grid that published and synchronous training take their best of.
HORIZONS = (10, 30, 100, 300, 1000, 3000)
ROUNDS = (3, 10, 30, 100, 300)
STEPS = 8.0 * 4.0 ** -np.arange(10.0)
G, BOX = Regulariser(coefficient=1e-5), 0.5
PROTOTYPES_MAP = {"category_order": "name", "whiten": True, "l1_coverage": 1.0}
# One change after the other, from the papers' choices to the recommended ones.
LADDER: dict[str, dict[str, dict[str, Any]]] = {
    "T and step from public records": {
        "algorithm": {"average": "last"},
        "privacy": {"sensitivity": "domain", "split": "horizon"},
    },
    "and clip": {"algorithm": {"average": "last"}, "privacy": {"split": "horizon"}},
    "and schedule": {"algorithm": {"average": "last"}, "privacy": {}},
}


@dataclass(frozen=True)
class Case:
    """One table of records under one feature map, cut into owners."""

    title: str
    loss: str
    feature_map: FeatureMap
    public: Records
    shards: list[Records]

    @property
    def counts(self) -> np.ndarray:
        return np.array([len(shard) for shard in self.shards], dtype=float)

    @property
    def weights(self) -> np.ndarray:
        return self.counts / self.counts.sum()

    @property
    def bound(self) -> float:
        return domain_gradient_bound(LOSSES[self.loss], self.feature_map.domain, theta_max=BOX)


def hospitals(data: Path, title: str, **features: Any) -> Case:
    table = pd.read_parquet(data / SOURCES["hospitals"])
    table = table.iloc[np.random.default_rng(0).permutation(len(table))].reset_index(drop=True)
    sizes = table["Hospital.County"].value_counts()
    counties = sorted(sizes[sizes >= 10_000].index)
    # The area is a function of the county: an owner's own model could learn nothing of it.
    settings = FeatureSettings(
        public=TableSource(),
        target="los",
        drop=("Hospital.County", "Hospital.Service.Area"),
        **features,
    )
    public, private = table.iloc[-50_000:], table.iloc[:-50_000]
    return _case(
        title,
        "squared",
        public,
        [private[private["Hospital.County"] == county] for county in counties],
        settings,
    )


def loans(data: Path, title: str, columns: Sequence[str], **features: Any) -> Case:
    table = pd.read_parquet(data / SOURCES["loans"])
    settings = FeatureSettings(
        public=TableSource(),
        target="int_rate",
        columns=tuple(name for name in columns if name in table.columns),
        components=10,
        **features,
    )
    shards = [table.iloc[start : start + 10_800] for start in (0, 10_800, 21_600)]
    return _case(title, "squared", table.iloc[-10_000:], shards, settings)


def cards(data: Path, size: int) -> Case:
    table = pd.read_parquet(data / SOURCES["cards"])
    table = table.iloc[np.random.default_rng(0).permutation(len(table))].reset_index(drop=True)
    settings = FeatureSettings(public=TableSource(), target="Class", positive=1, drop=("Time",))
    shards = [table.iloc[i * 6000 : i * 6000 + size] for i in range(3)]
    return _case(f"cards, n_i = {size:,}", "hinge", table.iloc[-4000:], shards, settings)


def _case(
    title: str,
    loss: str,
    public: pd.DataFrame,
    shards: Sequence[pd.DataFrame],
    settings: FeatureSettings,
) -> Case:
    feature_map = fit_feature_map(public, settings, source="public")
    return Case(
        title,
        loss,
        feature_map,
        feature_map.apply(public, where="public"),
        [feature_map.apply(shard, where="owner") for shard in shards],
    )


def evaluation(case: Case, coefficient: float = G.coefficient, box: float = BOX) -> Evaluation:
    return Evaluation(
        shards=case.shards,
        loss=LOSSES[case.loss],
        regulariser=Regulariser(coefficient=coefficient),
        theta_max=box,
    )


def settings_of(case: Case, epsilon: float, changes: dict[str, dict[str, Any]]) -> StudySettings:
    return check_settings(
        StudySettings,
        {
            "name": "results",
            "features": {"map": "unused.json"},
            "model": {"loss": case.loss, "theta_max": BOX} | changes.get("model", {}),
            "algorithm": changes.get("algorithm", {}),
            "privacy": {"epsilon": epsilon} | changes.get("privacy", {}),
            "owners": [{"name": f"owner-{i}"} for i in range(len(case.shards))],
        },
        where="results",
    )


def chosen(case: Case, epsilon: float, changes: dict[str, Any], seed: int) -> np.ndarray:
    """The model of one run of a study whose open settings are decided as copriv does."""
    settings = settings_of(case, epsilon, changes)
    public = PublicSide(feature_map=case.feature_map, records=case.public)
    counts = [len(shard) for shard in case.shards]
    decision = decide(settings, public, num_records=counts, seed=seed)
    plan = Plan(
        settings=settings,
        num_features=case.feature_map.num_features,
        decision=decision,
        seed=seed,
    )
    algorithm = plan.algorithm
    assert isinstance(algorithm, Asynchronous)  # noqa: S101 (tells the type checker)
    ticks = [tick.owners[0] for tick, _ in zip(plan.ticks(), range(plan.horizon), strict=False)]
    bound = domain_gradient_bound(
        LOSSES[case.loss], case.feature_map.domain, theta_max=settings.model.theta_max
    )
    bound = bound if decision.clip is None else min(bound, decision.clip)
    scales = 2 * bound * np.array(plan.responses) / (case.counts * epsilon)
    if case.loss == "squared" and decision.clip is None:
        gradients = moment_gradients(Moments.of(case.shards))
    else:
        gradients = record_gradients(case.shards, loss=LOSSES[case.loss], clip=decision.clip)
    return run_replicates(
        algorithm,
        np.array(ticks, dtype=np.intp)[:, None],
        gradients=gradients,
        noise=laplace_noise(
            scales,
            num_features=case.feature_map.num_features,
            rng=np.random.default_rng([seed, 1]),
        ),
    ).central[0]


def grid_best(case: Case, epsilon: float, kind: str, seeds: int) -> tuple[np.ndarray, str]:
    """The best (T, step) of the grid under the domain's bound and m = T, chosen in hindsight."""
    judge, best = evaluation(case), (np.array([np.inf]), "")
    gradients = moment_gradients(Moments.of(case.shards))
    common = {
        "weights": case.weights,
        "num_features": case.feature_map.num_features,
        "theta_max": BOX,
        "regulariser": G,
    }
    one = {**common, "weights": np.ones(1)} if kind != "published" else common
    limit = largest_stable_step(
        Asynchronous(rho=1.0, horizon=1, **one), case.public, loss=LOSSES[case.loss]
    )
    steps = np.repeat(limit * STEPS, seeds)
    for horizon in HORIZONS if kind == "published" else ROUNDS:
        rng = np.random.default_rng(horizon)
        noise = laplace_noise(
            2 * case.bound * horizon / (case.counts * epsilon),
            num_features=case.feature_map.num_features,
            rng=rng,
        )
        if kind == "published":
            algorithm = Asynchronous(rho=1.0, horizon=horizon, **common)
            slots = draw_slots(
                np.ones(len(case.shards)), horizon=horizon, replicates=seeds, rng=rng
            )
            models = run_replicates(
                algorithm,
                np.tile(slots, (1, len(STEPS))),
                gradients=gradients,
                noise=noise,
                rho=steps / algorithm.alpha,
            ).central
        elif kind == "synchronous-1":
            descent = SynchronousDescent(rho=1.0, horizon=horizon, **common)
            models = run_rounds(
                descent,
                replicates=len(steps),
                gradients=gradients,
                noise=noise,
                step=steps * horizon**2,
            )
        else:
            mean = SynchronousAverage(initial_step=1.0, horizon=horizon, **common)
            models = run_rounds(
                mean, replicates=len(steps), gradients=gradients, noise=noise, step=steps
            )
        psi = judge.relative_fitness(models).reshape(len(STEPS), seeds)
        row = int(np.argmin(psi.mean(axis=1)))
        if psi[row].mean() < best[0].mean():
            best = (psi[row], f"T = {horizon}")
    return best


def moments(case: Case, epsilon: float, seeds: int) -> np.ndarray:
    """Noisy moments of every owner, solved."""
    exact = Moments.of(case.shards)
    packed = np.array([pack_moments(*pair) for pair in zip(exact.gram, exact.cross, strict=True)])
    scales = moments_change(case.feature_map.domain) / (case.counts * epsilon)
    solver = SecondMoments(
        weights=case.weights,
        num_features=case.feature_map.num_features,
        theta_max=BOX,
        regulariser=G,
    )
    rng = np.random.default_rng(2)
    models = [
        solver.solve(case.weights @ (packed + rng.laplace(size=packed.shape) * scales[:, None]))
        for _ in range(seeds)
    ]
    return evaluation(case).relative_fitness(np.array(models))


def interval(psi: np.ndarray) -> str:
    """Mean and half of its 95 % interval."""
    half = student.ppf(0.975, len(psi) - 1) * psi.std(ddof=1) / np.sqrt(len(psi))
    return f"{psi.mean():.2g} ± {half:.1g}"


def line(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [line(*head), "|" + "---|" * len(head), *(line(*row) for row in rows), ""]


@dataclass(frozen=True)
class Run:
    """How often, and on how many processes."""

    seeds: int
    jobs: int

    def parallel(self, function: Any, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        run = joblib.Parallel(n_jobs=self.jobs)
        return list(run(joblib.delayed(function)(*each) for each in arguments))


def recommended(case: Case, epsilons: Sequence[float], changes: Any, run: Run) -> np.ndarray:
    """Relative fitness of runs that are decided as copriv does, shape (epsilons, seeds)."""
    asked = [(case, e, changes, seed) for e in epsilons for seed in range(run.seeds)]
    models = np.array(run.parallel(chosen, asked))
    return evaluation(case).relative_fitness(models).reshape(len(epsilons), run.seeds)


def comparison(case: Case, epsilons: Sequence[float], run: Run) -> list[str]:
    """Every way of training; ratios and who gains. Changes one at a time at epsilon = 1."""
    judge = evaluation(case)
    zero = judge.relative_fitness(np.zeros((1, case.feature_map.num_features)))[0]
    alone = judge.relative_fitness_alone
    public = Evaluation(
        shards=[case.public], loss=LOSSES[case.loss], regulariser=G, theta_max=BOX
    ).theta_optimal
    kinds = ("published", "synchronous-1", "synchronous-2")
    grids = run.parallel(
        grid_best, [(case, e, kind, run.seeds) for kind in kinds for e in epsilons]
    )
    best = recommended(case, epsilons, {}, run)
    rows = []
    for index, kind in enumerate(kinds):
        cells = grids[index * len(epsilons) : (index + 1) * len(epsilons)]
        name = f"{kind}, domain's bound, best of the grid"
        rows.append([name, *(f"{interval(psi)} ({where})" for psi, where in cells)])
    rows.append(["**recommended**", *(f"**{interval(psi)}**" for psi in best)])
    rows.append(["moments", *(interval(moments(case, e, run.seeds)) for e in epsilons)])
    ratios = [grids[i][0].mean() / best[i].mean() for i in range(len(epsilons))]
    rows.append(["published / recommended", *(f"{ratio:.0f}" for ratio in ratios)])
    gains = [f"{np.sum(psi.mean() < alone)} of {len(alone)}" for psi in best]
    rows.append(["owners that gain from recommended", *gains])
    domain = case.feature_map.domain
    return [
        f"## {case.title}",
        "",
        f"{len(case.shards)} owners of {case.counts.min():,.0f} to {case.counts.max():,.0f} "
        f"records, p = {domain.num_features}, domain's bound Xi = {case.bound:.0f}. Relative "
        f"fitness of theta = 0: {zero:.3g}; of each owner alone: {alone.min():.3g} to "
        f"{alone.max():.3g}; of the public records alone: "
        f"{judge.relative_fitness(public[None])[0]:.3g}.",
        "",
        *table(["", *(f"epsilon = {e:g}" for e in epsilons)], rows),
        "One change after the other, at epsilon = 1:",
        "",
        *table(["", "relative fitness"], ladder(case, grids, best, epsilons, run)),
    ]


def ladder(
    case: Case, grids: Any, best: np.ndarray, epsilons: Sequence[float], run: Run
) -> list[list[str]]:
    """From the papers' choices to the recommended ones."""
    column = list(epsilons).index(1.0)
    rows = [["published, best of the grid in hindsight", interval(grids[column][0])]]
    for name, changes in LADDER.items():
        rows.append([name, interval(recommended(case, [1.0], changes, run)[0])])
    rows.append(["and tail average = recommended", interval(best[column])])
    return rows


def card_table(data: Path, run: Run) -> list[str]:
    """Hinge loss: relative fitness by epsilon and n_i at T = 100."""
    changes = {
        "model": {"regularisation": 5e-6, "theta_max": 1.0},
        "algorithm": {"horizon": 100},
    }
    rows = []
    for size in (1000, 2000, 6000):
        case = cards(data, size)
        judge = evaluation(case, 5e-6, 1.0)
        asked = [(case, e, changes, seed) for e in EPSILONS for seed in range(run.seeds)]
        psi = judge.relative_fitness(np.array(run.parallel(chosen, asked)))
        rows.append([f"n_i = {size:,}", *map(interval, psi.reshape(-1, run.seeds))])
    return table(["", *(f"epsilon = {e:g}" for e in EPSILONS)], rows)


def lending_columns() -> list[str]:
    import tomllib  # noqa: PLC0415

    path = Path(__file__).resolve().parents[1] / "examples" / "lending.toml"
    return list(tomllib.loads(path.read_text(encoding="utf-8"))["features"]["columns"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="the folder of the record files")
    parser.add_argument("--out", type=Path, default=Path("docs/results.md"))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    began, run = time.monotonic(), Run(asked.seeds, asked.jobs)
    text = [
        INTRODUCTION.format(
            seeds=asked.seeds,
            horizons=", ".join(map(str, HORIZONS)),
            rounds=", ".join(map(str, ROUNDS)),
        )
    ]

    def add(section: list[str]) -> None:
        """Written as it comes: the whole takes a while."""
        text.extend(section)
        replace_section(asked.out, "comparison", "\n".join(text))
        print(f"{section[0]}: {time.monotonic() - began:.0f} s", flush=True)

    columns, data = lending_columns(), asked.data
    add(comparison(loans(data, "Loans, default map", columns), EPSILONS, run))
    add(comparison(hospitals(data, "Hospitals, default map"), EPSILONS, run))
    without: dict[str, Any] = {"l1_coverage": 1.0}
    title = "default map without its public L1 radius"
    add(comparison(loans(data, f"Loans, {title}", columns, **without), EPSILONS[1:3], run))
    add(comparison(hospitals(data, f"Hospitals, {title}", **without), EPSILONS[1:3], run))
    title = "codes in the order of names, whitened, no radius"
    add(comparison(loans(data, f"Loans, {title}", columns, **PROTOTYPES_MAP), EPSILONS[1:3], run))
    add(comparison(hospitals(data, f"Hospitals, {title}", **PROTOTYPES_MAP), EPSILONS[1:3], run))
    add(["## Credit cards, hinge loss, T = 100", "", CARDS_TEXT, *card_table(data, run)])


INTRODUCTION = """\
Printed by `.venv/bin/python benchmarks/results.py DATA --out docs/results.md`; DATA is a folder
with the record files that the script names. Every cell is the mean relative fitness
f(theta)/f(theta*) - 1 on the union of the owners' records over {seeds} seeds, with the half-width
of its 95 % interval. All rows of a table promise every owner the same epsilon for the whole study.

- *published* is Algorithm 1 of the 2021 paper under the domain's bound, noise for T responses of
  every owner, the last central model. T (of {horizons}) and rho (ten values, a factor of 4 apart)
  are the best in hindsight on the private records, which no study could know: the row flatters it.
  So are those of the two synchronous algorithms of the 2020 paper, where T (of {rounds}) counts
  rounds.
- *recommended* is `profile = "recommended"`: T, step and clip are chosen from the public records
  alone, for each seed again.
- *moments* is `algorithm.name = "moments"`.

- *One change after the other* starts from published, then takes T and the step from the public
  records before the study, as a user would have to, and adds what recommended consists of.

Relative fitness depends on the feature map: on its codes, its clamps and its radius, so numbers of
different maps do not compare. The default map has codes in the order of the public mean target and
a public L1 radius (`l1_coverage = 0.9`), a change to the papers' bound of which published profits
too; the maps without it show the papers' own bound.
"""

CARDS_TEXT = """\
Three owners, `examples/creditcard.toml` with the profile's clip, schedule and average. The optimum
of the hinge loss is near 0.01 here, so a relative fitness of 90 is that of theta = 0.
"""

if __name__ == "__main__":
    main()
