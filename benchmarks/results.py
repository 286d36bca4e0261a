r"""The tables of docs/results.md: what each way of training reaches on real records.

    .venv/bin/python benchmarks/results.py DATA --out docs/results.md

DATA is a folder with the files named in ``record_cases.SOURCES``. Only the section ``comparison``
of the document is written, anew; with ``--parts`` some of its tables are printed instead. Every
number is a mean over seeds with its 95 % interval. A seed fixes the clocks and the noise; runs are
simulated with ``learner.simulated``, whose tests hold it to the loop that trains over the network,
and what the recommended profile chooses is decided by ``learner.planning.deciding`` from the public
records, for each seed again, as ``copriv simulate`` does.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import joblib
import numpy as np
from record_cases import BOX, Case, G, cards, evaluation, hospitals, loans
from scipy.stats import t as student

from common.config import check_settings
from common.losses import LOSSES, domain_gradient_bound
from common.moments import moments_change, pack_moments
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import draw_slots
from learner.algorithms.moments import SecondMoments
from learner.algorithms.synchronous import SynchronousAverage, SynchronousDescent
from learner.planning.deciding import decide
from learner.planning.plan import Plan
from learner.planning.public_side import PublicSide
from learner.planning.settings import StudySettings
from learner.reproduction.documents import replace_section
from learner.simulated.replicates import (
    Moments,
    laplace_noise,
    moment_gradients,
    record_gradients,
    run_replicates,
)
from learner.simulated.rounds import run_rounds
from learner.simulated.stability import largest_stable_step

EPSILONS = (0.1, 1.0, 10.0, 100.0)
# The grid that published and synchronous training take their best of.
HORIZONS = (10, 30, 100, 300, 1000, 3000)
ROUNDS = (3, 10, 30, 100, 300)
STEPS = 8.0 * 4.0 ** -np.arange(10.0)
PAPERS: dict[str, Any] = {"l1_coverage": 1.0}
WHITENED: dict[str, Any] = PAPERS | {"category_order": "name", "whiten": True}
LADDER_EPSILONS = (1.0, 10.0)
PARTS = ("loans", "hospitals", "cards")
# One change after the other, from the papers' choices to the recommended ones.
LADDER: dict[str, dict[str, dict[str, Any]]] = {
    "T and step from public records": {
        "algorithm": {"average": "last"},
        "privacy": {"sensitivity": "domain", "split": "horizon"},
    },
    "and clip": {"algorithm": {"average": "last"}, "privacy": {"split": "horizon"}},
    "and schedule": {"algorithm": {"average": "last", "correction": "none"}, "privacy": {}},
    "and clocks by the records, counted": {"algorithm": {"average": "last"}, "privacy": {}},
}


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
        LOSSES[case.loss].example(), case.feature_map.domain, theta_max=settings.model.theta_max
    )
    bound = bound if decision.clip is None else min(bound, decision.clip)
    scales = 2 * bound * np.array(plan.responses) / (case.counts * epsilon)
    if case.loss == "squared" and decision.clip is None:
        gradients = moment_gradients(Moments.of(case.shards))
    else:
        gradients = record_gradients(
            case.shards, loss=LOSSES[case.loss].example(), clip=decision.clip
        )
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
        Asynchronous(rho=1.0, horizon=1, **one), case.public, loss=LOSSES[case.loss].example()
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


@dataclass(frozen=True)
class Compared:
    """What every way of training reached on one case, and how it reads."""

    case: Case
    published: list[np.ndarray]
    recommended: np.ndarray
    lines: list[str]


def compare(case: Case, run: Run) -> Compared:
    """Every way of training at every epsilon; ratios and who gains."""
    alone = evaluation(case).relative_fitness_alone
    kinds = ("published", "synchronous-1", "synchronous-2")
    grids = run.parallel(
        grid_best, [(case, e, kind, run.seeds) for kind in kinds for e in EPSILONS]
    )
    of_kind = {kind: grids[i * len(EPSILONS) :][: len(EPSILONS)] for i, kind in enumerate(kinds)}
    published = [psi for psi, _ in of_kind["published"]]
    best = recommended(case, EPSILONS, {}, run)

    def gains(all_psi: Iterable[np.ndarray]) -> list[str]:
        return [f"{np.sum(psi.mean() < alone)} of {len(alone)}" for psi in all_psi]

    rows = [
        [f"{kind}, best of the grid", *(f"{interval(psi)} ({where})" for psi, where in cells)]
        for kind, cells in of_kind.items()
    ]
    rows += [
        ["**recommended**", *(f"**{interval(psi)}**" for psi in best)],
        ["moments", *(interval(moments(case, e, run.seeds)) for e in EPSILONS)],
        ["published / recommended", *(ratio(*pair) for pair in zip(published, best, strict=True))],
        ["owners that gain from published", *gains(published)],
        ["owners that gain from recommended", *gains(best)],
    ]
    lines = [
        f"### {case.title}",
        "",
        facts(case),
        "",
        *table(["", *(f"epsilon = {e:g}" for e in EPSILONS)], rows),
    ]
    return Compared(case, published, best, lines)


def facts(case: Case) -> str:
    """What a table's numbers are to be seen against."""
    judge, domain = evaluation(case), case.feature_map.domain
    zero = judge.relative_fitness(np.zeros((1, domain.num_features)))[0]
    public = case.problem().optimum(case.public)
    alone = judge.relative_fitness_alone
    return (
        f"{len(case.shards)} owners of {case.counts.min():,.0f} to {case.counts.max():,.0f} "
        f"records, p = {domain.num_features}, domain's bound Xi = {case.bound:.0f}. Relative "
        f"fitness of theta = 0: {zero:.3g}; of each owner alone: {alone.min():.3g} to "
        f"{alone.max():.3g}; of the public records alone: "
        f"{judge.relative_fitness(public[None])[0]:.3g}."
    )


def ratio(numerator: np.ndarray, denominator: np.ndarray) -> str:
    """How many times smaller the second mean is."""
    return f"{numerator.mean() / denominator.mean():.0f}"


def ladder(papers: Compared, default: Compared, run: Run) -> list[str]:
    """From the papers' choices to the recommended ones, one change after the other."""
    columns = [EPSILONS.index(e) for e in LADDER_EPSILONS]

    def row(name: str, psi: Sequence[np.ndarray]) -> list[str]:
        return [name, *map(interval, psi)]

    rows = [
        row("published, best of the grid in hindsight", [papers.published[i] for i in columns]),
        row("and bound: a public L1 radius", [default.published[i] for i in columns]),
    ]
    for name, changes in LADDER.items():
        rows.append(row(name, recommended(default.case, LADDER_EPSILONS, changes, run)))
    rows.append(
        row("and tail average = recommended", [default.recommended[i] for i in columns]),
    )
    return table(["", *(f"epsilon = {e:g}" for e in LADDER_EPSILONS)], rows)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="the folder of the record files")
    parser.add_argument("--out", type=Path, default=Path("docs/results.md"))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
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
        if list(asked.parts) == list(PARTS):
            replace_section(asked.out, "comparison", "\n".join(text))
        else:
            print("\n".join(section), flush=True)
        print(f"{section[0]}: {time.monotonic() - began:.0f} s", flush=True)

    for name, family in (("Loans", loans), ("Hospitals", hospitals)):
        if name.lower() not in asked.parts:
            continue
        papers = compare(family(asked.data, f"{name}, the papers' bound", **PAPERS), run)
        add(papers.lines)
        default = compare(family(asked.data, f"{name}, default map"), run)
        add(default.lines)
        title = f"### {name}, one change after the other"
        add([title, "", *ladder(papers, default, run)])
        add(compare(family(asked.data, f"{name}, whitened", **WHITENED), run).lines)
    if "cards" in asked.parts:
        add(["### Credit cards, hinge loss, T = 100", "", CARDS_TEXT, *card_table(asked.data, run)])


INTRODUCTION = """\
## Every way of training, on real records

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

- *One change after the other* starts from published under the papers' bound, adds the radius, then
  takes T and the step from the public records before the study, as a user would have to, and adds
  what else recommended consists of.

All maps have public bounds of every column, feature and target. The *papers' bound* follows from
them alone. The *default map* also has a public L1 radius (`l1_coverage = 0.9`) that longer records
are scaled down to: a change to the papers' bound, of which published profits too. *Whitened* is
another map: codes in the order of names, whitened components and no radius. Relative fitness is
measured against the optimum under the same map, so numbers of different maps compare roughly only.
"""

CARDS_TEXT = """\
Three owners, `examples/creditcard.toml` with the profile's clip, schedule, clocks and average. The
optimum of the hinge loss is near 0.01 here, so a relative fitness of 90 is that of theta = 0.
"""

if __name__ == "__main__":
    main()
