"""Tables on disk: what is read, and one clear sentence for what cannot be."""

import gzip
from pathlib import Path

import pandas as pd
import pytest

from common.config import check_settings
from common.errors import InputError
from common.tables import TablePlace, TableSource, read_header, read_table, read_tables

FRAME = pd.DataFrame({"bank": ["a", "b", "a", "b"], "term": [36, 60, 60, 36]})


@pytest.fixture(params=["t.csv", "t.csv.gz", "t.parquet"])
def folder(request, tmp_path):
    path = tmp_path / request.param
    FRAME.to_parquet(path) if path.suffix == ".parquet" else FRAME.to_csv(path, index=False)
    return tmp_path


def read(folder, **settings):
    file = next(folder.iterdir())
    source = check_settings(TableSource, {"path": file.name, **settings}, where="s.toml")
    return read_table(source, base=folder)


def test_every_kind_of_file_gives_the_same_cells(folder):
    assert [[str(cell) for cell in row] for row in read(folder).to_numpy()] == [
        ["a", "36"],
        ["b", "60"],
        ["a", "60"],
        ["b", "36"],
    ]


def test_rows_count_before_the_condition(folder):
    table = read(folder, rows="1:", where={"bank": "a"})
    assert table["term"].astype(int).tolist() == [60]
    assert table.index.tolist() == [0]


@pytest.mark.parametrize("value", [60, "60", "60.0"])
def test_a_condition_holds_however_the_value_is_stored(folder, value):
    assert read(folder, where={"term": value})["bank"].tolist() == ["b", "a"]


def test_csv_cells_stay_texts(tmp_path):
    (tmp_path / "t.csv").write_text("id,state\n007,NA\n")
    assert read(tmp_path).iloc[0].tolist() == ["007", "NA"]


def test_a_source_without_a_path_reads_the_default(folder):
    default = Path(next(folder.iterdir()).name)
    assert (
        len(read_table(TableSource(rows="-2:"), base=folder, default=TablePlace(path=default))) == 2
    )
    absolute = folder / default
    assert len(read_table(TableSource(path=absolute), base=Path("/nowhere"))) == 4


@pytest.mark.parametrize("rows", ["10", "a:b", "1:2:0", "1:2:3:4", ""])
def test_rows_that_are_no_slice_are_refused_at_load(folder, rows):
    with pytest.raises(InputError, match=r"s\.toml: rows: got .*expected a range of rows"):
        read(folder, rows=rows)


def test_what_selects_nothing_is_an_empty_shard(folder):
    with pytest.raises(InputError, match=r"no records are left .* rows 4:, bank = a"):
        read(folder, rows="4:", where={"bank": "a"})
    with pytest.raises(InputError, match="no records"):
        read(folder, where={"bank": ""})


def test_a_needed_column_of_two_with_one_name_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("age,sex,age,\n1,f,2,\n")
    source = TableSource(path=Path("t.csv"))
    for columns in (None, ["age"]):
        with pytest.raises(InputError, match=r"t\.csv: the column name 'age' occurs twice"):
            read_table(source, base=tmp_path, columns=columns)
        with pytest.raises(InputError, match="'age' occurs twice"):
            read_tables([source], base=tmp_path, columns=columns)
    assert read_table(source, base=tmp_path, columns=["sex"])["sex"].tolist() == ["f"]


def test_a_condition_on_a_missing_column_names_it(folder):
    with pytest.raises(InputError, match="no column 'county'"):
        read(folder, where={"county": "Kings"})


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"gone\.csv: no such file"):
        read_table(TableSource(path=Path("gone.csv")), base=tmp_path)
    with pytest.raises(InputError, match="no table is named"):
        read_table(TableSource(), base=tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.parquet", b"not a table"),
        ("t.parquet", b""),
        ("t.csv", b""),
        ("t.csv", b'a,b\n"1,2\n'),
        ("t.csv", b"a,b\n1,2\n3,4,5\n"),
        ("t.csv.gz", b"not gzip"),
        ("t.csv.gz", gzip.compress(b"a\n" + b"1\n" * 9999, mtime=0)[:40]),
        ("t.xlsx", b""),
    ],
)
def test_what_is_no_table_is_refused_in_one_line(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=r"t\..*(?:table|line [0-9])") as caught:
        read(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_folder_of_spreadsheets_names_them_and_says_what_to_do(tmp_path):
    for name in ("b.xlsx", "a.ODS", "notes.doc", "~$b.xlsx", ".hidden.xlsx", "c\x1b[31m.xls"):
        (tmp_path / name).write_bytes(b"PK")
    for place, where in ((tmp_path, tmp_path), (tmp_path / "*", f"{tmp_path}/*")):
        with pytest.raises(InputError) as refused:
            read_table(TableSource(path=place), base=Path())
        assert str(refused.value) == (
            f"{where}: no CSV or Parquet file there, but others (a.ODS, b.xlsx, c [31m.xls); "
            "save their tables as CSV, and give those files"
        )
    (tmp_path / "deep").mkdir()
    with pytest.raises(InputError, match="no CSV or Parquet file there"):
        read_table(TableSource(path=tmp_path / "deep"), base=Path())


@pytest.mark.parametrize("kind", ["xlsx", "sas7bdat", "DTA", "sav", "rds", "csv.bz2"])
def test_a_table_of_another_kind_among_tables_is_not_passed_over(tmp_path, kind):
    """Its month, or its ward, would be missing without a word."""
    for name in ("2020.01.csv", "2020.02 ward.csv"):
        (tmp_path / name).write_text("a,b\n1,2\n")
    # Two were saved as CSV already.
    for name in (f"2020.01.{kind}", "2020.02.ods", f"~$2020.03.{kind}"):
        (tmp_path / name).write_bytes(b"PK")
    assert len(read_table(TableSource(path=tmp_path), base=Path())) == 2
    (tmp_path / f"2020.03.{kind}").write_bytes(b"PK")
    with pytest.raises(InputError, match=rf"not read \(2020\.03\.{kind}\); save their tables as"):
        read_table(TableSource(path=tmp_path), base=Path())
    # A pattern says which files are meant.
    assert len(read_table(TableSource(path=tmp_path / "*.csv"), base=Path())) == 2


@pytest.mark.parametrize("name", ["t.xlsx", "t.XLS", "t.ods"])
def test_a_spreadsheet_is_to_be_saved_as_csv(tmp_path, name):
    (tmp_path / name).write_bytes(b"PK\3\4")
    with pytest.raises(InputError, match="not a table; save its sheet as CSV"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["t.sas7bdat", "t.dta", "t.sav", "t.csv.bz2", "t.json"])
def test_a_table_of_another_program_is_to_be_saved_as_csv(tmp_path, name):
    (tmp_path / name).write_bytes(b"PK\3\4")
    with pytest.raises(InputError, match=r"expected a table: .*; save it as CSV, and give that"):
        read(tmp_path)


@pytest.mark.parametrize("text", ["", "\ufeff", "\n\n"])
def test_an_empty_file_is_told_as_one(tmp_path, text):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError, match="the file is empty; give a table with a header"):
        read(tmp_path)
    with pytest.raises(InputError, match="the file is empty"):
        read_header(TableSource(path=Path("t.csv")), base=tmp_path)


def test_a_header_alone_is_an_empty_shard(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n")
    with pytest.raises(InputError, match=r"no records are left .* header only"):
        read(tmp_path)
