"""A model that left copriv predicts the same: ONNX, scikit-learn, SQL, JSON."""

import io
import json
import os
import sqlite3
from contextlib import closing
from dataclasses import replace

import joblib
import numpy as np
import onnx
import pandas as pd
import pytest

from learner.commands.estimators import estimator_bytes
from learner.results.export_json import json_text
from learner.results.export_onnx import onnx_bytes
from learner.results.export_sql import sql_query

CASES = [
    ("squared", {}),
    ("squared", {"components": 3}),
    ("squared", {"whiten": True, "l1_coverage": 1.0, "intercept": False}),
    ("squared", {"columns": ["amount"], "components": 1}),
    ("logistic", {}),
    ("hinge", {}),
]
each_case = pytest.mark.parametrize(("loss", "settings"), CASES, ids=range(len(CASES)))


def feeds(model, table):
    """The raw table as ONNX takes it: numbers as doubles, all else as texts."""
    return {
        rule.name: table[rule.name].to_numpy(np.float64 if rule.kind == "number" else object)[
            :, None
        ]
        for rule in model.feature_map.columns
    }


def run_onnx(made, table, model):
    # Of Python 3.15 it has no wheel yet.
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    values = session.run(names, feeds(model, table))
    return {name: value[:, 0] for name, value in zip(names, values, strict=True)}


@each_case
def test_an_onnx_graph_predicts_the_same(make_model, strange_table, loss, settings):
    model = make_model(loss, **settings)
    wanted = model.predictions(strange_table, where="table")
    found = run_onnx(onnx_bytes(model), strange_table, model)
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-6)
    assert len(np.unique(wanted[list(wanted)[-1]])) > 200


DATES = (
    *("2011-12-01", "2011-12", " 2011-2-31 ", "2011-13-01", "2011-12-01T10:11:12Z", "Dec-2011"),
    *("2011-12-01 10:00", "december 2011", "1 Dec 2011", "31-Dec-2011", "32-Dec-2011", "12/1/2011"),
    *("13/1/2011", "1/1/1999", "", "na", "foo", "2011", "Foo-2011", "2011-12-0", "dec  2011"),
)
CATEGORIES = (
    *("A", "a", "New York", " New  York ", "New York City", "new york", "B", "St. John's", "NULL"),
    *("7", "7.0", "+7", "70e-1", "1,204", "1204.0", "1,204.", "12e0", "-7", "inf", "true", "False"),
    *("", " ", "NA", "n/a", "-", ".", "#N/A", "<na>", "0", "-0", "7 months", "1,20", "٧"),
    # Beyond what a double holds, where runtimes end instead of a prediction.
    *("12E345", "1e-400", "7" * 400, "0." + "0" * 400 + "7", "7e199", "7e0007"),
)


def test_texts_are_read_in_an_onnx_graph_as_the_map_reads_them(make_model):
    model = make_model()
    count = max(len(DATES), len(CATEGORIES))
    table = pd.DataFrame({"amount": np.zeros(count), "is new": 0.0})
    table["when"] = np.resize(np.array(DATES, dtype=object), count)
    table["grade"] = table["code"] = np.resize(np.array(CATEGORIES, dtype=object), count)
    wanted = model.predictions(table, where="table")["prediction"]
    found = run_onnx(onnx_bytes(model), table, model)["prediction"]
    off = [tuple(table.iloc[i]) for i in np.flatnonzero(np.abs(found - wanted) > 1e-9)]
    assert off == []


def test_an_onnx_file_says_what_it_is_of(make_model):
    made = onnx.load_model_from_string(onnx_bytes(make_model("logistic")))
    told = {prop.key: prop.value for prop in made.metadata_props}
    assert told == {"target": "class", "loss": "logistic", "positive": "late"}


def test_exports_name_every_value_that_the_prediction_1_stands_for(make_model):
    model = make_model("logistic", also_positive=("lost",))
    made = onnx.load_model_from_string(onnx_bytes(model))
    assert ("positive", "late or lost") in [(p.key, p.value) for p in made.metadata_props]
    assert "prediction is 1 where class = late or lost, else 0." in sql_query(model)


def test_an_onnx_graph_holds_no_constant_that_nothing_uses(make_model):
    # A runtime warns of one. Categories of one word are not joined by a space.
    model = make_model()
    columns = tuple(
        rule.model_copy(update={"codes": {"A": 0.0}}) if rule.kind == "category" else rule
        for rule in model.feature_map.columns
    )
    short = replace(model, feature_map=model.feature_map.model_copy(update={"columns": columns}))
    graph = onnx.load_model_from_string(onnx_bytes(short)).graph
    used = {name for node in graph.node for name in node.input}
    assert {constant.name for constant in graph.initializer} <= used


@pytest.mark.filterwarnings("ignore::common.errors.DoubtWarning")
@each_case
def test_a_scikit_learn_file_predicts_the_same(make_model, strange_table, loss, settings):
    model = make_model(loss, **settings)
    loaded = joblib.load(io.BytesIO(estimator_bytes(model)))
    wanted = model.predictions(strange_table, where="table")
    raw = strange_table[list(loaded.feature_names_in_)]
    np.testing.assert_allclose(loaded.predict(raw), wanted["prediction"], rtol=0, atol=1e-9)
    if loss == "logistic":
        np.testing.assert_allclose(loaded.predict_proba(raw)[:, 1], wanted["probability"])


@each_case
def test_a_query_predicts_the_same(make_model, strange_table, loss, settings):
    model = make_model(loss, **settings)
    # In a database dates are dates, and numbers are written in one way.
    table = strange_table.assign(id=range(len(strange_table)))
    table["when"] = table["when"].where(table["when"].str.fullmatch(r"20\d\d-[01]\d-15"))
    table["code"] = table["code"].replace({"1,204": "1204", "+7": "7"})
    table["grade"] = table["grade"].replace({"  New   York ": " New York"})
    with closing(sqlite3.connect(":memory:")) as database, database:
        table.to_sql("records", database, index=False)
        found = pd.read_sql_query(sql_query(model), database).sort_values("id")
    for name, values in model.predictions(table, where="table").items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-9)


@pytest.mark.parametrize("engine", ["sqlite", "duckdb"])
def test_a_table_that_lacks_a_column_is_refused_by_every_database(make_model, engine):
    """SQLite takes a quoted name that no column has for a text, and that for the number 0."""
    query = sql_query(make_model(columns=["amount"]))
    if engine == "sqlite":
        database = sqlite3.connect(":memory:")
        error = sqlite3.OperationalError
    else:
        duckdb = pytest.importorskip("duckdb")
        database, error = duckdb.connect(), duckdb.Error
    with closing(database):
        database.execute("CREATE TABLE records AS SELECT 1.0 AS amuont")
        with pytest.raises(error, match="amount"):
            database.execute(query)


def _asked(engine, query, request):
    """The predictions of a query that brings its own records."""
    if engine == "sqlite":
        with closing(sqlite3.connect(":memory:")) as database:
            return [float(row[0]) for row in database.execute(query).fetchall()]
    if engine == "duckdb":
        with pytest.importorskip("duckdb").connect() as database:
            return [float(row[0]) for row in database.execute(query).fetchall()]
    place = request.getfixturevalue("postgres")
    driver = pytest.importorskip("adbc_driver_postgresql.dbapi")
    address = os.environ[place.removeprefix("env:")]
    with driver.connect(address) as database, database.cursor() as cursor:
        cursor.execute(query)
        return [float(row[0]) for row in cursor.fetchall()]


@pytest.mark.parametrize("engine", ["duckdb", "postgres"])
def test_nan_is_missing_in_databases_that_know_it(make_model, engine, request):
    """They sort it above all numbers, so it would count as the upper bound."""
    model = make_model(columns=["amount"])
    rows = "SELECT 1 AS id, CAST('NaN' AS DOUBLE PRECISION) AS amount UNION ALL SELECT 2, NULL"
    rows += " UNION ALL SELECT 3, CAST('1e3' AS DOUBLE PRECISION)"
    query = sql_query(model).replace("WITH ", f"WITH records AS ({rows}), ", 1)
    asked = f"SELECT prediction FROM ({query.rstrip().rstrip(';')}) AS asked ORDER BY id"
    found = _asked(engine, asked, request)
    table = pd.DataFrame({"amount": [np.nan, np.nan, 1000.0]})
    wanted = model.predictions(table, where="table")["prediction"]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9)
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("engine", ["sqlite", "duckdb", "postgres"])
def test_an_empty_text_is_no_number_0_in_any_database(make_model, engine, request):
    """SQLite, whose import of a CSV file leaves no NULL, took it for 0; others end the query."""
    model = make_model(columns=["amount"])
    cells = ["", " ", "n/a", "NaN", "100"]
    rows = " UNION ALL ".join(
        f"SELECT {place} AS id, '{cell}' AS amount" for place, cell in enumerate(cells)
    )
    query = sql_query(model).replace("WITH ", f"WITH records AS ({rows}), ", 1)
    asked = f"SELECT prediction FROM ({query.rstrip().rstrip(';')}) AS asked ORDER BY id"
    table = pd.DataFrame({"amount": [*[np.nan] * 4, 100.0]})
    wanted = model.predictions(table, where="table")["prediction"]
    np.testing.assert_allclose(_asked(engine, asked, request), wanted, rtol=0, atol=1e-9)
    assert not np.isclose(wanted[0], wanted[4])


@pytest.mark.parametrize("engine", ["sqlite", "duckdb", "postgres"])
def test_what_is_no_date_is_missing_in_every_database(make_model, engine, request):
    """Letters in the place of a year are no year 0, and end no query; blanks around it are none."""
    model = make_model(columns=["when"])
    dates = ["2011-12-15", "2011-12-1x", "abcd-01-01", "20a0-01-01", "2011-00-01", "2011-1 -01"]
    dates += ["", "gone", "2011-12-32", "2011-12-15 07:30:00", "  2011-12-15 "]
    rows = " UNION ALL ".join(
        f"SELECT {place} AS id, '{date}' AS \"when\"" for place, date in enumerate(dates)
    )
    query = sql_query(model).replace("WITH ", f"WITH records AS ({rows}), ", 1)
    asked = f"SELECT prediction FROM ({query.rstrip().rstrip(';')}) AS asked ORDER BY id"
    found = _asked(engine, asked, request)
    table = pd.DataFrame({"when": [dates[0], *[None] * 8, *[dates[0]] * 2]})
    wanted = model.predictions(table, where="table")["prediction"]
    assert wanted[0] != wanted[1]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9)


def test_a_query_computes_each_column_once_in_postgresql(make_model, postgres):
    """It computed each as often as it is mentioned: 12,000 loans took ten minutes and 3.8 GB."""
    rows = "SELECT 1.0 AS amount, 1 AS \"is new\", 'A' AS grade, '7' AS code, NULL AS \"when\""
    query = sql_query(make_model()).replace("WITH ", f"WITH records AS ({rows} LIMIT 1), ", 1)
    driver = pytest.importorskip("adbc_driver_postgresql.dbapi")
    address = os.environ[postgres.removeprefix("env:")]
    with driver.connect(address) as database, database.cursor() as cursor:
        cursor.adbc_statement.set_options(**{"adbc.postgresql.use_copy": "false"})
        cursor.execute(f"EXPLAIN VERBOSE {query}")
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert len(plan) < 10 * len(query)


CODES = {"amount": ["999", "-1"], "grade": ["A", "9"], "code": ["7"], "when": ["9999-12-31"]}


@pytest.mark.parametrize("form", ["onnx", "sqlite", "duckdb", "postgres", "json"])
def test_a_code_for_missing_is_an_empty_cell_in_every_form(make_model, form, request):
    model = make_model(columns=[*CODES])
    columns = tuple(
        rule.model_copy(update={"missing": tuple(CODES[rule.name])})
        for rule in model.feature_map.columns
    )
    told = replace(model, feature_map=model.feature_map.model_copy(update={"columns": columns}))
    there = {"amount": 1.0, "grade": "B", "code": "12", "when": "2011-12-15"}
    rows = [there, *(there | {name: code} for name, codes in CODES.items() for code in codes)]
    table = pd.DataFrame(rows).assign(amount=lambda t: t["amount"].astype(float))
    gaps = [there, *(there | {name: None} for name, codes in CODES.items() for _ in codes)]
    empty = pd.DataFrame(gaps).assign(amount=lambda t: t["amount"].astype(float))
    wanted = model.predictions(empty, where="table")["prediction"]
    assert (model.predictions(table, where="table")["prediction"] != wanted).sum() == 6
    np.testing.assert_array_equal(told.predictions(table, where="table")["prediction"], wanted)
    if form == "json":
        examples = json.loads(json_text(told))["examples"]
        rule = {rule.name: rule for rule in columns}
        assert examples[-1]["row"] == {name: rule[name].missing[0] for name in CODES}
        assert examples[-1]["prediction"] == examples[0]["prediction"]
        return
    if form == "onnx":
        found = run_onnx(onnx_bytes(told), table, told)["prediction"]
    else:
        cells = " UNION ALL ".join(
            f"SELECT {i} AS id, {row.amount} AS amount, '{row.grade}' AS grade, "
            f"'{row.code}' AS code, '{row.when}' AS \"when\""
            for i, row in enumerate(table.itertuples())
        )
        query = sql_query(told).replace("WITH ", f"WITH records AS ({cells}), ", 1)
        asked = f"SELECT prediction FROM ({query.rstrip().rstrip(';')}) AS asked ORDER BY id"
        found = _asked(form, asked, request)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9)


def test_a_code_of_many_spellings_is_asked_about_once(make_model):
    """Each infinity would double the query: twenty made a hundred megabytes of it."""
    model = make_model(columns=["amount"])
    (rule,) = model.feature_map.columns

    def query(*missing):
        coded = (rule.model_copy(update={"missing": missing}),)
        return sql_query(
            replace(model, feature_map=model.feature_map.model_copy(update={"columns": coded}))
        )

    assert query("inf", "Infinity", "1e400", "1e500", "999", "999.0") == query("inf", "999")


@pytest.mark.parametrize("form", ["onnx", "sqlite", "duckdb", "postgres"])
def test_an_infinity_that_is_a_code_is_an_empty_cell_in_every_form(make_model, form, request):
    """No two databases write it alike, and one from the other is no number."""
    model = make_model(columns=["amount"])
    (rule,) = model.feature_map.columns
    rule = rule.model_copy(update={"missing": ("-inf", "inf", "999")})
    told = replace(model, feature_map=model.feature_map.model_copy(update={"columns": (rule,)}))
    table = pd.DataFrame({"amount": [1.0, 999.0, np.inf, -np.inf]})
    wanted = told.predictions(table, where="table")["prediction"]
    gaps = model.predictions(pd.DataFrame({"amount": [1.0, *[np.nan] * 3]}), where="table")
    np.testing.assert_array_equal(wanted, gaps["prediction"])
    if form == "onnx":
        found = run_onnx(onnx_bytes(told), table, told)["prediction"]
    else:
        infinity = "9e999" if form == "sqlite" else "CAST('Infinity' AS DOUBLE PRECISION)"
        cells = " UNION ALL ".join(
            f"SELECT {i} AS id, {amount} AS amount"
            for i, amount in enumerate(["1e0", "999e0", infinity, f"-{infinity}"])
        )
        query = sql_query(told).replace("WITH ", f"WITH records AS ({cells}), ", 1)
        asked = f"SELECT prediction FROM ({query.rstrip().rstrip(';')}) AS asked ORDER BY id"
        found = _asked(form, asked, request)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("form", ["onnx", "sql"])
def test_a_line_break_in_a_category_is_unknown_to_graphs_and_queries(make_model, form):
    """As docs/model.md says of both."""
    model = make_model()
    names = ["New York", "New\nYork", "New\r\nYork", "\nNew York", "nowhere"]
    table = pd.DataFrame({"amount": 1.0, "is new": 0.0, "code": "7", "grade": names})
    table["when"] = "2011-12-15"
    read = model.predictions(table, where="table")["prediction"]
    assert len(set(read[:4])) == 1
    if form == "onnx":
        found = run_onnx(onnx_bytes(model), table, model)["prediction"]
    else:
        with closing(sqlite3.connect(":memory:")) as database, database:
            table.to_sql("records", database, index=False)
            found = pd.read_sql_query(sql_query(model), database)["prediction"]
    np.testing.assert_allclose(found, [read[0], *[read[4]] * 4], rtol=0, atol=1e-6)


@pytest.mark.parametrize("form", ["onnx", "sql"])
def test_a_category_that_only_python_takes_for_a_number_is_a_text(make_model, form):
    """Such as an age group: float("18_24") is 1824."""
    names = ["18_24", "1824", "\u0667", "7", "\u00b2", "\u00b2.0", "\u0667.0"]
    model = make_model(columns=["grade"])
    codes = {name: 1.0 + place / 7.0 for place, name in enumerate(names[:5])}
    rule = model.feature_map.columns[0].model_copy(update={"codes": codes, "unknown": 0.5})
    feature_map = model.feature_map.model_copy(update={"columns": (rule,)})
    told = replace(model, feature_map=feature_map)
    table = pd.DataFrame({"grade": names})
    wanted = told.predictions(table, where="table")["prediction"]
    assert len(set(wanted)) == 6
    if form == "onnx":
        found = run_onnx(onnx_bytes(told), table, told)["prediction"]
    else:
        with closing(sqlite3.connect(":memory:")) as database, database:
            table.to_sql("records", database, index=False)
            found = pd.read_sql_query(sql_query(told), database)["prediction"]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("hostile", ["\\') OR 1=1 THEN currentUser() --", "x\0y"])
def test_a_category_ends_its_text_in_no_database(make_model, hostile):
    r"""In some of them, \\' is a quotation mark within a text, and the next one ends it."""
    model = make_model()
    columns = tuple(
        rule.model_copy(update={"codes": {**rule.codes, hostile: 9.0}}) if rule.codes else rule
        for rule in model.feature_map.columns
    )
    made = replace(model, feature_map=model.feature_map.model_copy(update={"columns": columns}))
    assert sum(hostile in rule.codes for rule in made.feature_map.columns) == 2
    assert sql_query(made) == sql_query(model)


def test_a_long_sum_is_not_nested_deeper_than_a_database_allows():
    from learner.results.export_sql import _sum  # noqa: PLC0415

    with closing(sqlite3.connect(":memory:")) as database, database:
        assert database.execute(f"SELECT {_sum(['1'] * 3000)}").fetchone() == (3000,)


def follow(told, row):
    """The margin by the steps that the JSON tells, with nothing of copriv."""
    feature_map = told["feature_map"]
    z = []
    for rule in feature_map["columns"]:
        cell = row[rule["name"]]
        if cell is None:
            value = rule["fill"]
        elif rule["kind"] == "category":
            text = cell if isinstance(cell, str) else f"{cell:.0f}"
            value = rule["codes"].get(text, rule["unknown"])
        elif rule["kind"] == "date":
            year, month, day = map(int, cell.split("-"))
            value = 12 * (year - 2000) + month - 1 + (day - 1) / 31
        else:
            value = cell
        value = min(max(value, rule["low"]), rule["high"])
        z.append((value - rule["center"]) / rule["scale"])
    rotation = feature_map["rotation"] or np.eye(len(z)).tolist()
    features = [sum(a * b for a, b in zip(line, z, strict=True)) for line in rotation]
    bounds = feature_map["bounds"]
    features = [min(max(f, -b), b) for f, b in zip(features, bounds, strict=True)]
    if feature_map["l1_radius"] is not None:
        room = (feature_map["l1_radius"] - feature_map["intercept"]) * (1 - 1e-9)
        total = sum(map(abs, features))
        features = [f * min(1.0, room / total) for f in features]
    features += [1.0] * feature_map["intercept"]
    return float(sum(t * f for t, f in zip(told["theta"], features, strict=True)))


@each_case
def test_the_steps_of_the_json_make_its_own_predictions(make_model, loss, settings):
    told = json.loads(json_text(make_model(loss, **settings)))
    for example in told["examples"]:
        margin = follow(told, example["row"])
        if loss == "squared":
            target = told["feature_map"]["target"]
            predicted = margin * target["scale"] + target["center"]
            assert predicted == pytest.approx(example["prediction"], abs=1e-9)
        else:
            assert example["prediction"] == (margin > 0)


def test_a_program_can_check_by_the_json_that_it_takes_36_and_36_0_for_one_category(make_model):
    """Where a column of numbers has gaps, tables hold fractions: none would be found."""
    told = json.loads(json_text(make_model()))
    (rule,) = (one for one in told["feature_map"]["columns"] if one["name"] == "code")
    assert rule["kind"] == "category"
    cells = [example["row"]["code"] for example in told["examples"]]
    assert any(isinstance(cell, float) and f"{cell:.0f}" in rule["codes"] for cell in cells)


def test_a_query_says_what_its_columns_must_be(make_model):
    heading = sql_query(make_model()).partition("WITH")[0]
    numbers = "-- Numbers, NULL where missing, a truth value as 1 or 0, and no text: '"
    for needs in (numbers, "YYYY-MM-DD, since any other"):
        assert needs in heading
    assert "'when'" in heading


def test_what_is_unprotected_says_so_in_every_form(make_model):
    from dataclasses import replace  # noqa: PLC0415

    model = replace(make_model(), unprotected="north")
    assert json.loads(json_text(model))["unprotected"] == "north"
    assert "UNPROTECTED" in sql_query(model)
    made = onnx.load_model_from_string(onnx_bytes(model))
    assert ("unprotected", "north") in [(p.key, p.value) for p in made.metadata_props]


def test_noise_that_protects_nobody_is_named_in_every_form(make_model):
    from dataclasses import replace  # noqa: PLC0415

    sound, model = make_model(), replace(make_model(), insecure_noise=True)
    assert json.loads(json_text(model))["insecure_noise"] is True
    assert "INSECURE" in sql_query(model)
    made = onnx.load_model_from_string(onnx_bytes(model))
    assert ("insecure_noise", "true") in [(p.key, p.value) for p in made.metadata_props]
    assert "insecure" not in (json_text(sound) + sql_query(sound)).lower()
