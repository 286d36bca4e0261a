"""The tables of docs/results.md: rows on a small case, and what they are summed up to."""

import doctest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from common.errors import InputError


class Modules(NamedTuple):
    """Those that make the tables."""

    families: Any
    ways: Any
    centre: Any
    tables: Any


@pytest.fixture(scope="module")
def modules(benchmark):
    return Modules(*map(benchmark, Modules._fields))


@pytest.fixture(scope="module")
def case(modules):
    rng = np.random.default_rng(5)
    table = pd.DataFrame(rng.normal(size=(4000, 3)), columns=["a", "b", "c"])
    table["y"] = table["a"] - table["b"] + rng.normal(size=len(table))
    table["site"] = rng.choice(["north", "south", "west"], len(table), p=[0.5, 0.3, 0.2])
    return modules.families.by_column(
        "Sites", table, "site", {"target": "y", "columns": ("a", "b", "c")}
    )


def reached(modules, *psi):
    return modules.ways.Reached(np.array(psi))


def test_owners_are_a_columns_values_and_none_of_their_records_is_public(case):
    assert [len(shard) for shard in case.shards] == sorted(case.counts, reverse=True)
    assert len(case.public) + case.counts.sum() == 4000
    assert len(case.public) == 320
    assert sorted(case.known.values()) == [0, 1, 2]
    # The public records of an owner's group are that owner's share of the rows.
    for owner, group in case.known.items():
        share = np.mean(case.labels == group)
        assert share == pytest.approx(case.world.weights[case.owners.index(owner)], abs=0.08)


def test_rows_reach_what_they_should_on_a_small_case(modules, case):
    ways, centre = modules.ways, modules.centre
    typed = {"name": "asynchronous", "horizon": 30, "rho": 1.0}
    rows = {
        "public": modules.tables.Row("theta_0", ways.public_model, repeats=False),
        "alone": modules.tables.Row("alone", ways.alone, repeats=False),
        "moments": modules.tables.Row(
            "moments", ways.study({"algorithm": {"name": "moments", "start": "zero"}})
        ),
        "typed": modules.tables.Row(
            "typed", ways.study({"algorithm": typed, "privacy": {"clip": 2.0}})
        ),
        "centre": modules.tables.Row("centre", centre.statistics),
        "unknown": modules.tables.Row("?", ways.study({"algorithm": {"name": "no-such"}})),
    }
    run = modules.tables.Run(seeds=200, jobs=1)
    measured = modules.tables.measure(case, rows, (1.0, 1e4), run)
    # Public model and own models depend on no epsilon.
    assert measured["public", 1.0] is measured["public", 1e4]
    assert measured["public", 1.0].mean == case.relative_fitness_public
    assert measured["typed", 1.0].psi.shape == (200,)
    # One noise for all records is less than three, and next to none at a large epsilon.
    assert 0 < measured["centre", 1e4].mean < measured["moments", 1e4].mean
    assert measured["moments", 1e4].mean < 1e-4 * measured["moments", 1.0].mean
    assert measured["typed", 1e4].mean < measured["typed", 1.0].mean
    assert not any(row == "unknown" for row, _ in measured)
    lines = modules.tables.section(case, rows, measured, (1.0, 1e4), gaining=("moments",))
    assert lines[-2] == "| owners that gain from moments | 0 of 3 | 3 of 3 |"
    assert not any("?" in line for line in lines)


def test_the_centres_noise_is_that_of_one_owner_of_all(modules, case):
    centre, one = modules.centre, modules.ways.as_one_owner(case)
    moments = modules.ways.study({"algorithm": {"name": "moments", "start": "zero"}})
    assert one.counts.tolist() == [case.counts.sum()]
    log_centre = np.log(centre.statistics(case, 30.0, 400).psi)
    log_owner = np.log(moments(one, 30.0, 400).psi)
    error = np.hypot(log_centre.std(), log_owner.std()) / np.sqrt(400)
    assert abs(log_centre.mean() - log_owner.mean()) < 5 * error
    # Half the noise would be seen: a quarter of the variance.
    assert np.log(4) > 10 * error


def test_a_centre_without_sufficient_statistics_is_refused(modules, case):
    from dataclasses import replace  # noqa: PLC0415

    hinge = replace(case, loss="hinge")
    for way in (modules.centre.statistics, modules.centre.diffprivlib(Path("python"))):
        with pytest.raises(InputError, match="hinge loss has no sufficient statistics"):
            way(hinge, 1.0, 2)


def test_gains_need_a_model_better_than_the_public_one(modules, case):
    public, own = case.relative_fitness_public, case.world.relative_fitness_alone
    free = np.minimum(own, public)
    just_above = reached(modules, float(free.max()) * 1.001)
    just_below = reached(modules, float(free.min()) * 0.999)
    assert modules.tables.gains(case, just_above) == "0 of 3"
    assert modules.tables.gains(case, just_below) == "3 of 3"


def test_summary_compares_with_the_best_former_way_and_the_better_centre(modules):
    means = {
        "easy": {"public": 8.0, "moments": 2.0, "asynchronous": 4.0, "auto": 1.0,
                 "centre-statistics": 0.5, "centre-descent": 0.25},
        # No moments and no centre here; auto is 1.5 times worse than what is free.
        "hinge": {"public": 2.0, "asynchronous": 13.5, "auto": 3.0},
    }  # fmt: skip
    measured = {
        family: {(row, 1.0): reached(modules, mean) for row, mean in rows.items()}
        for family, rows in means.items()
    }
    compared = modules.tables.Compared.of(measured, "auto", [1.0])
    assert compared.gain.tolist() == [2.0, pytest.approx(2 / 3)]
    assert compared.trained.tolist() == [2.0, 4.5]
    assert compared.loss.tolist() == [4.0]
    lines = modules.tables.summary(measured, ("auto", "newton"), (1.0,))
    assert lines[2:] == [
        "| auto | 1 | 2 | 1.2 | 3 | 4 | 1 of 2 | 0 of 2 |",
        "| auto | all | 2 | 1.2 | 3 | 4 | 1 of 2 | 0 of 2 |",
        "",
    ]


def test_examples_of_the_tables_hold(modules):
    module = modules.tables
    assert doctest.testmod(module).failed == 0
