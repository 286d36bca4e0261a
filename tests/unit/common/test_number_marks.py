"""Points and commas that may mean something else than they are read as are told to the holder."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from common.number_marks import mark_notes, unread_number
from common.tables import TableSource, read_table

THOUSANDS = ["48.011", "2.756", "959"]


def noted(folder, separator, columns, **more):
    path = folder / "table.csv"
    pd.DataFrame(columns).to_csv(path, index=False, sep=separator)
    source = TableSource.model_validate({"path": path} | more)
    return mark_notes(source, base=Path(), table=read_table(source, base=Path()))


def test_points_that_may_group_thousands_are_told(tmp_path):
    (note,) = noted(tmp_path, ";", {"sum": THOUSANDS, "rate": ["6,422", "5", "7,1"]})
    assert note.startswith("sum: cells such as 48.011 are read as decimals; if the point groups")
    assert "--decimal ," in note


@pytest.mark.parametrize("separator", [",", "\t", "|"])
@pytest.mark.parametrize("cells", [THOUSANDS, ["17.911", "1.234.567", "2.756"]])
def test_they_are_told_where_no_comma_is_decimal(tmp_path, separator, cells):
    (note,) = noted(tmp_path, separator, {"sum": cells, "n": ["1", "2", "3"]})
    assert note.startswith(f"sum: cells such as {cells[0]} are read as decimals; if the point")


@pytest.mark.parametrize("separator", [",", ";"])
@pytest.mark.parametrize("form", ["€ {}", "-${}", "{} %", "{}%", "€\u00a0{}"])
def test_amounts_of_money_and_shares_are_numbers_too(tmp_path, separator, form):
    cells = [form.format(cell) for cell in THOUSANDS]
    (note,) = noted(tmp_path, separator, {"sum": cells, "n": ["1", "2", "3"]})
    assert note.startswith("sum: cells such as ")
    assert "48.011" in note


def test_amounts_with_a_decimal_comma_are_told(tmp_path):
    (note,) = noted(tmp_path, ",", {"sum": ["€ 79.723,37", "€ 825"], "n": ["1", "2"]})
    assert note.startswith("sum: cells such as € 79.723,37 have a decimal comma; say so")


@pytest.mark.parametrize("error", ["#NV", "#DIV/0!", "#VALEUR!", "#BEZUG!", "#NOM?"])
def test_a_spreadsheets_error_among_names_is_told(tmp_path, error):
    """Among the owners' names it would be one more owner; among numbers and dates it is a gap."""
    names = {"house": ["#A1", "B", error], "sex": ["f", error, "m"], "tag": ["#1", "#2!", "#b!"]}
    others = {"age": ["31", error, "42"], "day": ["2020-01-31", error, "2020-02-01"]}
    (note,) = noted(tmp_path, ",", names | others)
    assert note.startswith(f"house, sex: {error!r} is a spreadsheet's error, and counts as a name")


@pytest.mark.parametrize(
    ("separator", "columns"),
    [
        (";", {"sum": THOUSANDS, "rate": ["6.42", "5", "7.1"]}),
        (";", {"sum": ["48.011", "2.756", "9.59"], "n": ["1", "2", "3"]}),
        (";", {"sum": ["48.011", "2.756", "0.959"], "n": ["1", "2", "3"]}),
        (";", {"sum": ["48.011", "2.756", "12959"], "n": ["1", "2", "3"]}),
        (",", {"sum": ["3.142", "12.500", "2.718"], "n": ["1", "2", "3"]}),
        (",", {"sum": ["3.142", "12.5", "825"], "n": ["1", "2", "3"]}),
        (",", {"sum": ["$3.142", "$12.50", "$825"], "n": ["1", "2", "3"]}),
        (",", {"sum": THOUSANDS, "rate": ["6.42 %", "5 %", "7 %"]}),
        (",", {"sum": THOUSANDS, "price": ["$1,250.50", "$5", "$7"]}),
        (";", {"sum": ["48.011", "2.756", "825", "3.5"] * 30, "n": ["1", "2", "3", "4"] * 30}),
        ("\t", {"sum": ["48,011", "2,756", "959"], "n": ["1", "2", "3"]}),
        (",", {"name": ["Berg, Ida", "Tal, Eva", "A, B"], "n": ["1", "2", "3"]}),
    ],
)
def test_what_is_read_as_it_is_meant_is_not_told(tmp_path, separator, columns):
    assert noted(tmp_path, separator, columns) == []


@pytest.mark.parametrize("separator", [",", "\t", "|"])
def test_decimal_commas_that_nobody_named_are_told(tmp_path, separator):
    columns = {"share": ["0,2120", "0,3", "1"], "sum": ["48,011", "2,756", "959"]}
    (note,) = noted(tmp_path, separator, columns)
    assert note.startswith("share: cells such as 0,2120 have a decimal comma; say so with")


def test_what_the_user_says_is_not_doubted(tmp_path):
    assert noted(tmp_path, ";", {"sum": THOUSANDS, "n": THOUSANDS}, decimal=".") == []
    assert noted(tmp_path, "|", {"share": ["0,2"], "n": ["1"]}, decimal=",") == []


def test_rows_that_are_too_short_and_odd_cells_of_other_tables_are_passed_over(tmp_path):
    path = tmp_path / "short.csv"
    path.write_text("a;b\n48.011;1\n2.756\n")
    source = TableSource(path=path)
    assert mark_notes(source, base=Path(), table=read_table(source, base=Path()))
    odd = {"a": [1.5], "b": ["0.2"], "list": [[1, 2]], "struct": [{"x": 1}]}
    pd.DataFrame(odd).to_parquet(tmp_path / "t.parquet")
    source = TableSource(path=tmp_path / "t.parquet")
    assert mark_notes(source, base=Path(), table=read_table(source, base=Path())) == []


@pytest.mark.parametrize("kind", ["parquet", "sqlite"])
def test_texts_of_other_tables_than_csv_files_are_told_too(tmp_path, kind):
    """1.244 and 961 were read as 1.244 and 961 without a word, and --decimal, advised, refused."""
    table = pd.DataFrame({"sum": THOUSANDS, "rate": ["6,42", "5", "7,1"], "n": [1, 2, 3]})
    source = TableSource(path=tmp_path / f"t.{kind}")
    if kind == "parquet":
        table.to_parquet(source.path)
    else:
        with closing(sqlite3.connect(source.path)) as opened:
            table.to_sql("t", opened, index=False)
        source = source.model_copy(update={"query": "select * from t"})
    comma, point = mark_notes(source, base=Path(), table=read_table(source, base=Path()))
    assert comma.startswith("rate: cells such as 6,42 have a decimal comma; make numbers of")
    assert point.startswith("sum: cells such as ")
    assert "are read as decimals; if the point groups thousands, make numbers of them" in point
    assert "--decimal" not in comma + point


def test_an_index_that_pandas_saved_is_told_of(tmp_path):
    path = tmp_path / "t.parquet"
    source = TableSource(path=path)
    table = pd.DataFrame({"site": ["a", "b"], "y": [1.0, 2.0]})
    table.set_index("site").to_parquet(path)
    (note,) = mark_notes(source, base=Path(), table=read_table(source, base=Path()))
    assert note.startswith("site: saved by pandas as the table's index, which is no column here;")
    table.iloc[[1, 0]].to_parquet(path)
    assert mark_notes(source, base=Path(), table=read_table(source, base=Path())) == []


@pytest.mark.parametrize("separator", [";", "\t"])
def test_where_commas_are_said_to_be_decimal_points_group(tmp_path, separator):
    cells = ["48.011", "1.234.567,5", "959", "6,422", "2.75", "23.06.2018", "0.123"]
    path = tmp_path / "table.csv"
    pd.DataFrame({"a": cells, "b": "x"}).to_csv(path, index=False, sep=separator)
    table = read_table(TableSource(path=path, decimal=","), base=Path())
    expected = ["48011", "1234567.5", "959", "6.422", "2.75", "23.06.2018", "0.123"]
    assert table["a"].tolist() == expected


def test_where_nobody_says_so_points_stay(tmp_path):
    path = tmp_path / "table.csv"
    pd.DataFrame({"a": THOUSANDS, "b": "6,42"}).to_csv(path, index=False, sep=";")
    table = read_table(TableSource(path=path), base=Path())
    assert table["a"].tolist() == THOUSANDS


def test_a_decimal_comma_that_was_typed_is_doubted_where_points_are_decimal(tmp_path):
    rates = ["0.6532", "2.881", "12.5", "3"]
    (note,) = noted(tmp_path, ",", {"rate": rates, "sum": [*THOUSANDS, "7"]}, decimal=",")
    assert note.startswith("rate: cells such as 0.6532 have a decimal point, but 2.881 is read")
    assert "leave that out (--decimal)" in note
    assert noted(tmp_path, ",", {"rate": rates}, decimal=".") == []
    # None of these is read otherwise.
    fine = {"rate": ["0.6532", "12.5", "3", "4"], "sum": ["48.011,5", "2.756", "959", "0,125"]}
    assert noted(tmp_path, ";", fine, decimal=",") == []


def test_rows_that_a_quotation_mark_makes_one_cell_are_told_of(tmp_path):
    rows = [f"{i},north,{i % 7}" for i in range(60)]
    rows[9], rows[40] = '9,"north,2', '40,"north,5'
    letter = '"Dear Ida,\nthe stay, which\nwas long, and\ncostly, ended,\nyours"'
    rows[50] = f"50,{letter},1"
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c", *rows]))
    source = TableSource(path=tmp_path / "t.csv")
    table = read_table(source, base=tmp_path)
    (told,) = mark_notes(source, base=tmp_path, table=table)
    assert told.startswith("b: the cell of row 10 below the header holds 30 lines that look like")


def test_rows_that_are_too_short_are_told_of(tmp_path):
    (tmp_path / "t.csv").write_text("age,sex,days\n61,f,3\n42,5\n7,m,1\n")
    source = TableSource(path=tmp_path / "t.csv")
    (told,) = mark_notes(source, base=tmp_path, table=read_table(source, base=tmp_path))
    assert "1 row has fewer cells than the header has names; the first, row 2 below" in told


def test_characters_that_a_typed_encoding_loses_are_told_of(tmp_path):
    (tmp_path / "t.csv").write_text("ort,x\nSüd,1\nNord,2\n", encoding="utf-8")
    for encoding in (None, "utf-8", "ascii"):
        source = TableSource(path=tmp_path / "t.csv", encoding=encoding)
        table = read_table(source, base=tmp_path)
        told = mark_notes(source, base=tmp_path, table=table)
        assert [note[:52] for note in told] == (
            ["ort: has characters that are none in the encoding as"] if encoding == "ascii" else []
        )


@pytest.mark.parametrize(
    ("cells", "example"),
    [
        (["$5", "5 \u20ac", "12 \u20ac"], "5 \u20ac"),
        (["5", "7 \u20ac"], "7 \u20ac"),
        (["5 USD", "7 EUR"], "5 USD"),
        (["61 kg", "140 lb", "70"], "61 kg"),
        (["$5", "\u20ac7", "9"], ""),
        (["12 Main", "9 Elm", "7"], ""),
        (["12 June", "13 May"], ""),
        (["10,500", "1,10,500", "12,34,567.50"], "1,10,500"),
        (["10,500", "1,110,500"], ""),
        (['="61"', '="7.5"'], '="61"'),
        (['="61"', '="A7"'], ""),
        (["3 north", "4 south"], ""),
    ],
)
def test_amounts_in_several_currencies_units_or_forms_are_numbers_that_are_not_read(cells, example):
    assert unread_number(cells) == example


def test_numbers_of_several_currencies_are_told_of(tmp_path):
    fees = {"fee": ["$5", "\u20ac61", "$7"], "cost": ["$5", "-$7", "9"], "who": ["a", "b", "c"]}
    (told,) = noted(tmp_path, ",", fees)
    assert told == (
        "fee: cells such as '$7' and '\u20ac61' are read as 7 and 61; write all in one unit"
    )


def test_shares_with_and_without_a_percent_sign_are_told_of(tmp_path):
    rates = {"rate": ["5%", "0.04", "12 %", "0"], "part": ["5%", "6", "0", "7%"]}
    low = {"low": ["0.5%", "0.04", "1 %", "0.2"], "sign": ["5%", "6%", "0", ""]}
    (told,) = noted(tmp_path, ",", rates | low)
    assert told.startswith("rate: cells such as '")
    assert told.endswith("; write all with the sign, or none")


def test_numbers_of_several_units_are_told_of(tmp_path):
    ages = {"age": ["2 years", "61 yrs", "3 months", "7"], "term": ["36 months", "1 mo", "12", ""]}
    (told,) = noted(tmp_path, ",", ages)
    assert (
        told
        == "age: cells such as '61 yrs' and '3 months' are read as 61 and 3; write all in "
        + ("one unit")
    )
    # Names that hold a number are read as none.
    assert noted(tmp_path, ",", {"fee": ["1 year", "2 weeks", "none", "by hand"]}) == []
    pd.DataFrame(ages).to_parquet(tmp_path / "t.parquet")
    source = TableSource(path=tmp_path / "t.parquet")
    assert mark_notes(source, base=Path(), table=read_table(source, base=Path())) == [told]
