"""Records that two owners of a simulation hold are told, unless kappa says that they may be."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from common.config import load_settings
from common.errors import DoubtWarning
from learner.network.processes import owner_tables
from learner.planning.public_side import prepare_public_side
from learner.planning.settings import StudySettings
from learner.planning.shared_records import Rows, warn_of_shared_records

STUDY = Path(__file__).parents[4] / "examples" / "hospitals.toml"


def told(tables, rows, *, kappa=1):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DoubtWarning)
        names = [f"owner-{i}" for i in range(1, len(tables) + 1)]
        warn_of_shared_records(names, tables, rows, kappa=kappa)
    return [str(one.message) for one in caught]


def records(num, seed, *, kinds=10**9):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {"a": rng.integers(0, kinds, num), "b": rng.integers(0, 2, num).astype(str)}
    )


def at(table, start, end):
    return Rows((table,), np.arange(start, end))


def test_the_same_rows_of_one_table_are_told_however_few_kinds_of_rows_there_are():
    tables = [records(50, seed, kinds=1) for seed in range(3)]
    (sentence,) = told(tables, [at("t", 0, 50), at("t", 30, 80), at("t", 75, 125)])
    assert "20 records of owner-1 are also records of owner-2, and 1 more pair of" in sentence
    assert "set privacy.kappa = 2" in sentence


def test_rows_that_lie_apart_and_what_kappa_covers_are_not_told():
    tables = [records(50, seed) for seed in range(3)]
    assert told(tables, [at("t", 0, 50), at("t", 50, 100), at("t", 100, 150)]) == []
    same = [at("t", 0, 50)] * 3
    assert told(tables, same, kappa=3) == []
    assert "privacy.kappa = 3" in told(tables, same, kappa=2)[0]


def test_a_copy_in_another_file_is_told():
    one, other = records(500, 1), records(500, 2)
    copied = pd.concat([other[:400], one[:100]])[["b", "a"]]
    (sentence,) = told([one, copied], [at("s", 0, 500), at("t", 0, 500)])
    assert "100 records of owner-1 say word for word" in sentence


@pytest.mark.parametrize("kinds", [1, 3, 50, 300, 3000, 30_000])
@pytest.mark.parametrize("sizes", [(500, 500), (5000, 300), (30, 3000)])
def test_records_that_are_equal_by_chance_are_not_told(kinds, sizes):
    tables = [records(num, seed, kinds=kinds) for seed, num in enumerate(sizes)]
    assert told(tables, [at("s", 0, sizes[0]), at("t", 0, sizes[1])]) == []


def test_a_simulation_whose_owners_have_the_same_rows_says_so_once():
    values = {"owners": [{"name": n, "data": {"rows": f"{i}00:700"}} for i, n in enumerate("abc")]}
    settings = load_settings(StudySettings, STUDY, values=values)
    base = STUDY.parent
    feature_map = prepare_public_side(settings, base=base).feature_map
    with pytest.warns(DoubtWarning, match="600 records of a are also records of b") as caught:
        owner_tables(settings, settings.owners, feature_map, base=base)
    assert len([one for one in caught if "privacy.kappa = 3" in str(one.message)]) == 1
    kept = settings.model_copy(update={"privacy": settings.privacy.model_copy(update={"kappa": 3})})
    with warnings.catch_warnings():
        warnings.simplefilter("error", DoubtWarning)
        owner_tables(kept, settings.owners, feature_map, base=base)
