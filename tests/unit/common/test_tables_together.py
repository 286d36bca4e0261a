"""Tables that several sources name are read once, and give each what it would have read."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from common.errors import InputError
from common.parquet_files import ParquetFile
from common.tables import TableSource, count_shared_rows, read_table, read_tables

SELECTIONS = [
    {},
    {"rows": "10:20"},
    {"rows": "-3:"},
    {"rows": "40:5:-7"},
    {"rows": "3::11", "where": {"site": "b"}},
    {"where": {"age": {"min": 30}, "site": ["a", "c"]}},
]


def sources(*paths):
    return [
        TableSource.model_validate({"path": path} | chosen)
        for chosen in SELECTIONS
        for path in paths
    ]


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(3)
    for name in "st":
        table = pd.DataFrame(
            {
                "age": rng.integers(0, 60, 100),
                "site": rng.choice(list("abc"), 100),
                "gaps": pd.array([1, None] * 50, dtype="Int64"),
                "flag": [True, False, None, True] * 25,
            }
        )
        table.to_csv(tmp_path / f"{name}.csv", index=False)
        table.to_parquet(tmp_path / f"{name}.parquet", row_group_size=30)
    return tmp_path


@pytest.mark.parametrize("batch", [7, 1000])
def test_together_they_give_what_each_gives_alone(folder, batch, monkeypatch):
    monkeypatch.setattr("common.parquet_files.BATCH_ROWS", batch)
    wanted = sources("s.parquet", "t.csv", "t.parquet")
    for columns in (None, ["gaps", "flag", "elsewhere"]):
        together = [table for table, _ in read_tables(wanted, base=folder, columns=columns)]
        for source, found in zip(wanted, together, strict=True):
            alone = read_table(source, base=folder, columns=columns)
            pd.testing.assert_frame_equal(found, alone)


def test_a_table_is_read_once_for_all_who_name_it(folder, monkeypatch):
    read, calls = ParquetFile.read, []

    def counted(*given):
        calls.append(given)
        return read(*given)

    monkeypatch.setattr(ParquetFile, "read", counted)
    read_tables(sources("s.parquet", "t.parquet"), base=folder)
    assert len(calls) == 2
    calls.clear()
    count_shared_rows(TableSource(path=Path("s.parquet")), sources("s.parquet"), base=folder)
    assert len(calls) == 1


def test_who_has_no_row_is_told_its_own_selection(folder):
    nobody = TableSource.model_validate({"path": "s.csv", "where": {"site": "z"}})
    with pytest.raises(
        InputError, match="no records are left after site = z; correct rows and where, or give"
    ):
        read_tables([*sources("s.csv"), nobody], base=folder)
