"""The numbers behind every figure of both papers: seven kinds of experiment on three data sets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from learner.reproduction.laboratory import SEED, Lab
from learner.reproduction.papers import Kind
from learner.reproduction.shapes import Constants, fit_constants

BUDGETS = (1.0, 10.0, 100.0)
PERCENTILE_RUNS = 100
CHECKPOINTS = 50
VALUE_RECORDS = 10_000
SMALLEST_SHARE, LARGEST_SHARE = 0.1, 0.2
# The papers' epsilons of figure 10, and of the scenarios.
HOSPITAL_BUDGETS = (0.1, 1.0, 10.0)
FIRST_BUDGETS = (0.1, 1.0, 10.0)


def uses_grid(lab: Lab) -> bool:
    """Whether a figure's numbers are made from those over n and epsilon."""
    kind = lab.figure.kind
    return kind == "surface" or (kind == "lines" and not lab.shards)


def figure_numbers(lab: Lab, grid: pd.DataFrame | None) -> pd.DataFrame:
    """The numbers of a figure, as its Parquet file holds them.

    Args:
      lab: Its lab.
      grid: What :meth:`Lab.grid` has found, for a figure that uses it.
    """
    figure = lab.figure
    over = pd.DataFrame() if grid is None else grid
    kinds: dict[Kind, Callable[[], pd.DataFrame]] = {
        "percentiles": lambda: _percentiles(lab),
        "timing": lambda: _timing(lab),
        "surface": lambda: with_bound(over),
        "lines": lambda: _lines(lab, over),
        "value": lambda: _value(lab),
        "hospitals": lambda: _hospitals(lab),
        "scenarios": lambda: _scenarios(lab),
    }
    return kinds[figure.kind]().assign(scale=lab.scale)


def _percentiles(lab: Lab) -> pd.DataFrame:
    """Quartiles of 100 runs against k, for three budgets."""
    sizes = lab.sizes
    world = lab.world(lab.owners)
    T = lab.figure.horizon
    ks = sorted(set(np.linspace(1, T, CHECKPOINTS).astype(int).tolist()))
    constant = lab.step(sizes, lab.scale * BUDGETS[1])
    rows = []
    for epsilon in (lab.scale * np.array(BUDGETS)).tolist():
        _, trace = lab.run(
            world,
            sizes,
            [epsilon] * len(sizes),
            constant=constant,
            runs=PERCENTILE_RUNS,
            checkpoints=ks,
        )
        for k, psi in zip(ks, trace, strict=True):
            low, middle, high = np.quantile(psi, [0.25, 0.5, 0.75])
            rows.append({"epsilon": epsilon, "k": k, "q25": low, "median": middle, "q75": high})
    return pd.DataFrame(rows).assign(
        owners=len(sizes), records=sizes[0], untrained=lab.untrained(world)
    )


def _timing(lab: Lab) -> pd.DataFrame:
    """Which owner each tick belongs to."""
    sizes = lab.sizes
    rng = np.random.default_rng(SEED)
    ticks = rng.integers(len(sizes), size=lab.figure.horizon)
    times = np.cumsum(rng.standard_exponential(lab.figure.horizon)) / len(sizes)
    return pd.DataFrame({"k": np.arange(1, ticks.size + 1), "time": times, "owner": ticks + 1})


def with_bound(numbers: pd.DataFrame) -> pd.DataFrame:
    """With (11) fitted to what noise adds where it rules, its constants in every row.

    ``rules`` is where noise adds more than ``SMALLEST_SHARE`` of what is left without it, and the
    models are not yet as bad as the box lets them be.
    """
    n = (numbers["records"] * numbers["owners"]).to_numpy(dtype=np.float64)
    S = (numbers["owners"] / numbers["epsilon"] ** 2).to_numpy(dtype=np.float64)
    added = (numbers["relative_fitness"] - numbers["without_noise"]).to_numpy()
    worst = LARGEST_SHARE * max(numbers["relative_fitness"].max(), numbers["untrained"].max())
    rules = (added > SMALLEST_SHARE * numbers["without_noise"].to_numpy()) & (
        numbers["relative_fitness"].to_numpy() < worst
    )
    fitted = Constants(sqrt_term=np.nan, linear_term=np.nan, largest_misfit=np.nan)
    if rules.any():
        fitted = fit_constants(n[rules], S[rules], added[rules])
    x = np.sqrt(S) / n
    return numbers.assign(
        noise_adds=added,
        rules=rules,
        bound=numbers["without_noise"] + fitted.sqrt_term * x + fitted.linear_term * x**2,
        sqrt_term=fitted.sqrt_term,
        linear_term=fitted.linear_term,
        largest_misfit=fitted.largest_misfit,
    )


def _lines(lab: Lab, grid: pd.DataFrame) -> pd.DataFrame:
    """Cuts through the grid, or hospitals of their own sizes, with the bound."""
    if not lab.shards:
        return with_bound(grid)
    budgets = lab.budgets(7)
    constant = lab.step(lab.sizes, budgets[4])
    world = lab.world(lab.owners)
    return with_bound(pd.DataFrame(lab.mean_fitness(world, lab.sizes, budgets, constant=constant)))


def _value(lab: Lab) -> pd.DataFrame:
    """Together against the first owner alone, over the number of owners and epsilon."""
    available = len(lab.table)
    size = VALUE_RECORDS if available >= 100 * VALUE_RECORDS else available // 32
    most = min(100, available // size)
    counts = sorted({int(n) for n in np.geomspace(2, most, 7).round()})
    budgets = (lab.scale * np.geomspace(0.3, 100.0, 6)).tolist()
    rows = []
    for count in counts:
        sizes = [size] * count
        world = lab.world(lab.blocks(sizes))
        alone = float(world.relative_fitness_alone[0])
        for epsilon in budgets:
            constant = lab.step(sizes, epsilon)
            psi, _ = lab.run(world, sizes, [epsilon] * count, constant=constant)
            rows.append(
                {"owners": count, "epsilon": epsilon, "relative_fitness": psi.mean(),
                 "alone": alone, "gains": bool(psi.mean() < alone), "records": size}
            )  # fmt: skip
    return pd.DataFrame(rows)


def _hospitals(lab: Lab) -> pd.DataFrame:
    """Each hospital's own model beside the common one at three budgets."""
    sizes = lab.sizes
    world = lab.world(lab.owners)
    alone = world.relative_fitness_alone
    table = pd.DataFrame(
        {
            "owner": list(lab.shards),
            "records": sizes,
            "alone": alone,
            "untrained": lab.untrained(world),
        }
    )
    for epsilon in (lab.scale * np.array(HOSPITAL_BUDGETS)).tolist():
        constant = lab.step(sizes, epsilon)
        psi, _ = lab.run(world, sizes, [epsilon] * len(sizes), constant=constant)
        table[f"together_{epsilon:g}"] = psi.mean()
        table[f"gains_{epsilon:g}"] = psi.mean() < alone
    return table


def _scenarios(lab: Lab) -> pd.DataFrame:
    """Partners small or large, conservative or eager, against the first owner's n_1 and epsilon_1.

    Partners have 1,000 records or a third of the table, and the paper's epsilon of 0.1 or 10.
    """
    large = lab.sizes[0]
    low, middle, high = (lab.scale * np.array(FIRST_BUDGETS)).tolist()
    firsts = [int(n) for n in np.geomspace(min(1000, large // 4), large, 4)]
    rows = []
    for number, (partner, budget) in enumerate(
        ((1000, low), (1000, high), (large, low), (large, high)), start=1
    ):
        for first in firsts:
            sizes = [first, partner, partner]
            world = lab.world(lab.blocks(sizes))
            for epsilon in (low, middle, high):
                constant = lab.step(sizes, min(epsilon, budget))
                psi, _ = lab.run(world, sizes, [epsilon, budget, budget], constant=constant)
                rows.append(
                    {"scenario": number, "partner_records": partner, "partner_epsilon": budget,
                     "records": first, "epsilon": epsilon, "relative_fitness": psi.mean()}
                )  # fmt: skip
    return pd.DataFrame(rows)
