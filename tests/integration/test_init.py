"""From raw tables that nobody prepared to settings that run: what is asked, found and written."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from common.annotated import annotated
from common.config import load_settings
from common.errors import InputError
from common.setting_keys import keys_of
from learner.cli import cli
from learner.planning.public_side import prepare_public_side
from learner.planning.settings import StudySettings
from owner.cli import cli as owner_cli
from owner.policy import OwnerSettings

NUM = 1200


def raw_table(*, seed=0):
    """A table with everything that goes wrong in tables."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 90, NUM)
    county = rng.choice(["Kings", "Bronx", "New York", "Erie"], NUM, p=[0.4, 0.3, 0.25, 0.05])
    days = 1 + age / 20 + rng.exponential(1, NUM)
    days[5] = 4000
    table = pd.DataFrame(
        {
            "Record ID": [f"P{i:07}" for i in range(NUM)],
            "age": age,
            "county": county,
            "County Code": pd.Series(county).map(
                {"Kings": 1, "Bronx": 2, "New York": 3, "Erie": 4}
            ),
            "days": days.round(3),
            "hours": (24 * days).round(3),
            "year": 2020,
            "admitted": pd.date_range("2020-01-01", periods=NUM, freq="6h").strftime("%Y-%m-%d"),
            "income": np.where(rng.random(NUM) < 0.002, 1e9, rng.normal(40, 9, NUM)).round(2),
            "died": np.where(rng.random(NUM) < 0.2, "yes", "no"),
            "empty": "",
        }
    )
    table.loc[[7, 8], "days"] = np.nan
    return table


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    raw_table().to_csv(tmp_path / "stays.csv", index=False)
    return tmp_path


def init(typed, *arguments):
    said = typed("copriv", "init", *arguments, "--yes")
    assert said.returncode == 0, said.stderr
    return " ".join(said.stdout.split())


def test_a_raw_table_becomes_a_study_that_runs(folder, typed):
    """Two commands, nothing edited."""
    arguments = ("stays.csv", "--target", "days", "--owners", "county", "--epsilon", "10")
    told = init(typed, *arguments, "--out", "s")
    for words in (
        "the last 120 rows differ from the others in admitted (100% of the others lie outside",
        "County Code: left out: it names the owner, as county does",
        "2 have no target",
        "target days: 2 records have none and are left out",
        "target days: 1 outlier, cut at the public bounds",
        "Record ID: left out: it names records (an identifier)",
        "hours: left out: it explains",
        "year: left out: it says the same of every record",
        "admitted: dates become months",
        "income: 4 outliers, cut at the public bounds",
        "empty: left out: it has no values",
        "next: copriv simulate s/study.toml",
    ):
        assert words in told
    settings = load_settings(StudySettings, folder / "s" / "study.toml")
    assert settings.features.columns == ("age", "admitted", "income", "died")
    # Of the fourth county fewer than 50 records are left beside the public ones.
    assert [entry.name for entry in settings.owners] == ["kings", "bronx", "new-york"]
    assert settings.data.missing_target == "drop"
    said = typed("copriv", "simulate", "s/study.toml", "--out", "run")
    assert said.returncode == 0, said.stderr
    summary = json.loads((folder / "run" / "summary.json").read_text())
    records = sum(owner["records"] for owner in summary["owners"])
    # One of the two without a target is among the 120 public rows.
    assert f"3 owners with {records:,} records, 119 public records" in told
    others = NUM - records - 119 - 2
    assert f"of 1,200 rows {others} are of no owner and 2 have no target" in told


def test_the_new_file_explains_every_key(folder, typed):
    init(typed, "stays.csv", "--target", "died", "--owners", "3", "--no-split", "--out", "s")
    text = (folder / "s" / "study.toml").read_text()
    settings = load_settings(StudySettings, folder / "s" / "study.toml")
    assert settings.model.loss == "logistic"
    assert settings.features.positive == ("yes",)
    assert settings.owners[0].data.rows == "0:360"
    for key in keys_of(StudySettings):
        if key.path.count(".") < 2 and not key.path.startswith("features.public."):
            assert f"{key.name} = " in text or f"[{key.path}]" in text, key.path
    # What stands there as a comment is right too: every line of it can be used.
    lines = (line.removeprefix("# ") for line in text.splitlines() if not line.startswith("# ["))
    examples = [line for line in lines if line.split(" = ")[0].isidentifier() and " = " in line]
    for line in examples:
        tomllib.loads(line)


TABLES = {}


def stored(write):
    TABLES[write.__name__] = write
    return write


@stored
def german_csv(table, folder):
    """Semicolons, decimal commas, another encoding, and separators at the ends of the rows."""
    text = table.replace("Kings", "Köln").to_csv(index=False, sep=";", decimal=",")
    head, *rows = text.splitlines()
    text = "\r\n".join([head, *(f"{row};" for row in rows)])
    (folder / "t.csv").write_bytes(text.encode("cp1252"))
    return "t.csv"


@stored
def parquet_folder(table, folder):
    (folder / "parts").mkdir()
    table[:700].to_parquet(folder / "parts" / "a.parquet")
    table[700:].to_parquet(folder / "parts" / "b.parquet")
    return "parts"


@stored
def zipped_tsv(table, folder):
    table.to_csv(folder / "t.tsv.gz", index=False, sep="\t", encoding="utf-16")
    return "t.tsv.gz"


@stored
def sqlite(table, folder):
    with closing(sqlite3.connect(folder / "t.sqlite")) as database, database:
        table.to_sql("stays", database, index=False)
    return "t.sqlite"


@pytest.mark.parametrize("kind", TABLES)
def test_tables_of_every_kind_become_the_same_study(folder, typed, kind):
    table = TABLES[kind](raw_table(), folder)
    query = ("--query", "select * from stays") if kind == "sqlite" else ()
    init(typed, table, "--target", "days", "--owners", "county", *query, "--out", "s")
    settings = load_settings(StudySettings, folder / "s" / "study.toml")
    assert settings.features.columns == ("age", "admitted", "income", "died")
    assert len(settings.owners) == 3


def nested_cells(folder):
    table = raw_table()
    kinds = {"lists": [[1, 2]], "records": [{"a": 1}], "arrays": [np.ones(2)]}
    table.assign(**{k: one * NUM for k, one in kinds.items()}).to_parquet(folder / "t.parquet")
    return ("t.parquet",)


def cells_of_several_kinds(folder):
    """As SQLite has them in columns without a type."""
    table = raw_table().astype(object)
    table.loc[[3, 900], "age"] = "n/a"
    table.loc[[4, 901], "income"] = b"\xff"
    table = table.where(table.notna(), None)
    names = ", ".join(f'"{name}"' for name in table.columns)
    marks = ", ".join("?" * len(table.columns))
    with closing(sqlite3.connect(folder / "t.sqlite")) as database, database:
        database.execute(f"create table stays ({names})")
        database.executemany(f"insert into stays values ({marks})", table.values.tolist())
    return "t.sqlite", "--query", "select * from stays"


@pytest.mark.parametrize("write", [nested_cells, cells_of_several_kinds])
def test_cells_that_are_not_of_one_kind_are_split_and_predicted(folder, typed, write):
    table = write(folder)
    chosen = ("--target", "days", "--owners", "county", "--split", "--out", "s")
    init(typed, *table, *chosen)
    settings = load_settings(StudySettings, folder / "s" / "study.toml")
    assert settings.features.columns == ("age", "admitted", "income", "died")
    run = typed("copriv", "simulate", "s/study.toml", "--in-memory", "--yes", "--out", "run")
    assert run.returncode == 0, run.stderr
    said = typed("copriv", "predict", "run", "--data", *table, "--out", "out.parquet")
    assert said.returncode == 0, said.stderr
    assert np.isfinite(pd.read_parquet(folder / "out.parquet")["prediction"]).all()


def test_copies_of_records_are_for_nobody_else(folder, typed):
    """Other users of the machine read no more than they could before."""
    init(typed, "stays.csv", "--target", "days", "--owners", "county", "--split", "--out", "s")
    assert all(path.stat().st_mode & 0o077 == 0 for path in (folder / "s" / "owners").iterdir())
    run = typed("copriv", "simulate", "s/study.toml", "--in-memory", "--yes", "--out", "run")
    assert run.returncode == 0, run.stderr
    for mode, out in ((0o644, "a.csv"), (0o600, "b.csv"), (0o640, "c.csv")):
        (folder / "stays.csv").chmod(mode)
        said = typed("copriv", "predict", "run", "--data", "stays.csv", "--out", out)
        assert said.returncode == 0, said.stderr
        assert (folder / out).stat().st_mode & 0o077 & ~mode == 0


@pytest.mark.parametrize("target", ["died", "days"])
def test_the_target_names_no_owners(folder, target):
    """All records of such an owner say the same, and nothing is to be learnt of them."""
    typed = ["init", "stays.csv", "--target", target, "--owners", target, "--yes", "--out", "s"]
    said = CliRunner().invoke(cli, typed)
    assert said.exit_code != 0
    assert f"--owners {target}: this is the target, so all records of" in str(said.exception)
    assert not (folder / "s").exists()


def test_a_sorted_table_is_dealt_into_files(folder, typed):
    """Its last rows are of one owner: no public records for the others."""
    raw_table().sort_values("county").to_csv(folder / "sorted.csv", index=False)
    init(typed, "sorted.csv", "--target", "days", "--owners", "county", "--out", "s")
    public = pd.read_parquet(folder / "s" / "public.parquet")
    assert set(public["county"]) == {"Kings", "Bronx", "New York", "Erie"}
    own = [pd.read_parquet(path) for path in sorted((folder / "s" / "owners").iterdir())]
    everyone = pd.concat([public, *own])
    assert everyone["Record ID"].is_unique
    # All but those of the county with too few records.
    assert len(everyone) == NUM - sum(raw_table()["county"] == "Erie") + sum(
        public["county"] == "Erie"
    )
    assert all(table["county"].nunique() == 1 for table in own)


@pytest.mark.parametrize(
    ("typed", "column", "owned"),
    [
        (
            ["--owners", "county"],
            "county",
            {"bronx": "Bronx", "kings-2nd": "Kings, 2nd", "new-york": "New York"},
        ),
        (["--owners", "3"], "owner_", {f"owner-{i}": f"owner-{i}" for i in (1, 2, 3)}),
        (["--owners", "county", "--split", "--public", "-120:"], None, {}),
    ],
)
def test_a_forecast_knows_of_whom_dealt_rows_are(folder, typed, column, owned):
    """The table's order says nothing of owners whose records lie among the public ones."""
    table = raw_table().sort_values("admitted").assign(owner="x")
    table["county"] = table["county"].replace({"Kings": "Kings, 2nd"})
    table.to_csv(folder / "sorted.csv", index=False)
    init = ["init", "sorted.csv", "--target", "days", "--yes", "--out", "s", *typed]
    said = CliRunner().invoke(cli, init)
    assert said.exit_code == 0, said.output
    settings = load_settings(StudySettings, folder / "s" / "study.toml")
    assert (settings.forecast.group_column, settings.forecast.groups) == (column, owned)
    public = prepare_public_side(settings, base=folder / "s")
    if column is None:
        assert public.labels is None
        return
    rows = pd.read_parquet(folder / "s" / "public.parquet")
    rows = rows[rows["days"] != ""].reset_index(drop=True)
    assert public.labels is not None
    for name, group in owned.items():
        ours = rows[public.labels == public.known[name]]
        assert set(ours[column]) == {group}
        assert len(ours) == (rows[column] == group).sum() > 0
        own = pd.read_parquet(folder / "s" / "owners" / f"{name}.parquet")["admitted"]
        near = ours["admitted"].between(own.min(), own.max())
        assert near.mean() > 0.9


def test_dealt_rows_without_a_target_name_no_owners_group(folder, typed):
    """Of an owner all of whose public rows lack the target no forecast sees a record."""
    table = pd.DataFrame({"age": np.arange(900) * 3, "days": np.arange(900) % 7 + 0.5})
    table.to_csv(folder / "sorted.csv", index=False)
    arguments = ("sorted.csv", "--target", "days", "--owners", "3", "--public", "30")
    init(typed, *arguments, "--out", "whole")
    public = pd.read_parquet(folder / "whole" / "public.parquet")
    is_last = table["age"].isin(public["age"][public["owner"] == "owner-3"].astype(int))
    table.loc[is_last, "days"] = np.nan
    table.to_csv(folder / "sorted.csv", index=False)
    assert "s/study.toml: 3 owners" in init(typed, *arguments, "--out", "s")
    settings = load_settings(StudySettings, folder / "s" / "study.toml")
    assert settings.forecast.groups == {"owner-1": "owner-1", "owner-2": "owner-2"}


def test_a_table_that_nothing_would_be_read_from_is_refused(folder, typed):
    raw_table().sort_values("county").to_csv(folder / "sorted.csv", index=False)
    init(typed, "sorted.csv", "--target", "days", "--owners", "county", "--out", "s")
    for command in (["simulate"], ["features", "fit"], ["sweep", "--grid", "privacy.epsilon=1"]):
        said = typed("copriv", *command, "s/study.toml", "--data", "stays.csv", "--out", "o")
        assert said.returncode == 2
        assert "stays.csv: nothing would be read from it, since the study names" in said.stderr
        assert not (folder / "o").exists()
    # Owners of one table take another in its place.
    init(typed, "stays.csv", "--target", "days", "--owners", "county", "--no-split", "--out", "t")
    said = typed("copriv", "features", "fit", "t/study.toml", "--data", "sorted.csv", "--out", "o")
    assert said.returncode == 0, said.stderr


def test_categories_of_a_new_study_lie_as_far_apart_as_their_means(folder, typed):
    """A column that explained nine tenths of the target left half of it unexplained."""
    rng = np.random.default_rng(1)
    kinds = rng.choice(["mouse", "vole", "shrew", "rat"], 2000)
    grams = pd.Series(kinds).map({"mouse": 20, "vole": 25, "shrew": 30, "rat": 160})
    table = pd.DataFrame({"kind": kinds, "grams": grams + rng.normal(0, 20, 2000)})
    table.to_csv(folder / "traps.csv", index=False)
    init(typed, "traps.csv", "--target", "grams", "--owners", "2", "--epsilon", "10")
    ran = typed("copriv", "simulate", "traps/study.toml", "--in-memory", "--yes", "--out", "run")
    assert ran.returncode == 0, ran.stderr
    told = json.loads((folder / "run" / "summary.json").read_text())["quality"]
    assert told["common"]["value"] < 23 < 50 < told["guess"]


@pytest.mark.parametrize("is_sorted", [False, True])
def test_all_records_of_a_person_are_public_or_of_one_owner(folder, typed, *, is_sorted):
    """Half of a patient's stays were public, and the other half at another owner."""
    table = raw_table().assign(patient=np.random.default_rng(3).integers(0, 300, NUM)).dropna()
    table = table.sort_values("patient") if is_sorted else table
    table.to_csv(folder / "stays.csv", index=False)
    said = init(typed, "stays.csv", "--target", "days", "--owners", "3", "--out", "new")
    assert "patient: the records of a value are all public, or all of one owner" in said
    study = tomllib.loads((folder / "new" / "study.toml").read_text())
    files = ["public.parquet", *(owner["data"]["path"] for owner in study["owners"])]
    held = [set(pd.read_parquet(folder / "new" / name)["patient"]) for name in files]
    assert len(held) == 4
    assert all(held)
    assert sum(map(len, held)) == len(set().union(*held))
    # Each group of the forecast is of public records.
    groups = set(pd.read_parquet(folder / "new" / "public.parquet")["owner"])
    assert groups == {"owner-1", "owner-2", "owner-3"}
    # What is typed is done, and told of.
    last = init(typed, "stays.csv", "--target", "days", "--owners", "county", "--out", "typed",
                "--public", "-100:")  # fmt: skip
    assert "of its values have public records and owners' ones" in last or is_sorted
    assert "of its values have records at several owners; if it names persons, privacy" in last
    # Persons who are owners are parted from nobody.
    table.assign(patient=np.arange(len(table)) % 20).to_csv(folder / "stays.csv", index=False)
    said = init(typed, "stays.csv", "--target", "days", "--owners", "patient", "--most", "20",
                "--split", "--out", "own")  # fmt: skip
    assert pd.read_parquet(folder / "own" / "public.parquet")["patient"].nunique() == 20
    assert "patient: the records" not in said


@pytest.mark.parametrize("dealt", ["--split", "--no-split"])
def test_equal_parts_are_of_the_records_with_a_target(folder, typed, dealt):
    """Where one half of a table had no target, an owner had no record, and nothing ran."""
    rng = np.random.default_rng(5)
    table = pd.DataFrame({"x": rng.normal(size=800)})
    table["y"] = (table["x"] + rng.normal(size=800)).where(table.index >= 500)
    table.to_csv("t.csv", index=False)
    said = init(typed, "t.csv", "--target", "y", "--owners", "2", "--public", "80", dealt,
                "--out", "new")  # fmt: skip
    assert "of 800 rows 500 have no target" in said
    ran = typed("copriv", "simulate", "new/study.toml", "--in-memory", "--yes", "--out", "run")
    assert ran.returncode == 0, ran.stderr
    held = json.loads((folder / "run" / "summary.json").read_text())["owners"]
    first, second = (owner["records"] for owner in held)
    assert abs(first - second) <= 1
    assert first + second == 300 - (30 if dealt == "--split" else 80)
    refused = typed("copriv", "init", "t.csv", "--target", "y", "--owners", "301", "--yes",
                    "--out", "no")  # fmt: skip
    assert "as many as there are rows with a target" in refused.stderr


@pytest.mark.parametrize("named", ["id", "pid", "subj_id", "idcode"])
def test_the_id_of_a_diary_names_persons_however_many_days_each_has(folder, typed, named):
    """One of 50 rows for each id was an input, and some of a person's days were public."""
    rng = np.random.default_rng(4)
    who = np.repeat(np.arange(24), 50)
    pain = 0.1 * who + rng.normal(size=who.size)
    pd.DataFrame({named: who, "air": rng.normal(size=who.size), "pain": pain}).to_csv("d.csv")
    said = init(typed, "d.csv", "--target", "pain", "--owners", "2", "--out", "new")
    assert f"{named}: up to 50 records have the same value; if it names persons, each is" in said
    assert f"{named}: left out: each of its values names a person (an identifier)" in said
    assert f"{named}: the records of a value are all public, or all of one owner" in said
    # They are dealt already: that they differ is not cured by asking for it.
    assert "deal them evenly" not in said
    # Of a place there are many records, and it may be learnt from.
    pd.DataFrame({"store id": who, "air": pain, "pain": pain + who}).to_csv("d.csv")
    said = init(typed, "d.csv", "--target", "pain", "--owners", "2", "--out", "places")
    assert "names persons" not in said


@pytest.mark.parametrize("sorted_by", ["age", "admitted", "died", "income", "days"])
def test_what_a_table_is_sorted_by_does_not_tell_the_public_rows(folder, sorted_by):
    raw_table().sort_values(sorted_by).to_csv(folder / "sorted.csv", index=False)
    typed = ["init", "sorted.csv", "--target", "days", "--owners", "county", "--yes"]
    said = CliRunner().invoke(cli, [*typed, "--out", "s"])
    assert said.exit_code == 0, said.output
    flat = " ".join(said.output.split())
    assert "so public rows are dealt evenly over the table" in flat
    assert "--public -120: takes the last rows" in flat
    assert "the public rows differ" not in flat
    again = CliRunner().invoke(cli, [*typed, "--out", "again"])
    assert again.exit_code == 0
    public = [pd.read_parquet(folder / out / "public.parquet") for out in ("s", "again")]
    pd.testing.assert_frame_equal(*public)
    for number in ("age", "days"):
        others, ours = raw_table()[number], pd.to_numeric(public[0][number])
        assert others.between(ours.min(), ours.max()).mean() > 0.95, number


@pytest.mark.parametrize(("sorted_by", "is_told"), [("age", True), ("Record ID", False)])
def test_equal_parts_of_a_sorted_table_are_told_to_differ(folder, sorted_by, is_told):
    table = raw_table().drop(columns="admitted").sort_values(sorted_by)
    table.to_csv(folder / "sorted.csv", index=False)
    typed = ["init", "sorted.csv", "--target", "days", "--owners", "3", "--yes", "--out", "s"]
    said = CliRunner().invoke(cli, typed)
    assert said.exit_code == 0, said.output
    words = (
        "--owners 3: each part is a stretch of the table, and owner-1 differs from the other rows "
        "in age ("
    )
    assert (words in " ".join(said.output.split())) == is_told
    assert ("--owners 3:" in said.output) == is_told


def test_last_rows_that_were_asked_for_are_taken_and_drift_is_told(folder):
    typed = ["init", "stays.csv", "--target", "days", "--owners", "county", "--yes"]
    for more in (["--public", "-120:"], ["--no-split"]):
        said = CliRunner().invoke(cli, [*typed, *more, "--out", more[-1].strip("-:")])
        assert said.exit_code == 0, said.output
        settings = load_settings(StudySettings, folder / more[-1].strip("-:") / "study.toml")
        assert settings.features.public.rows == "-120:"
        flat = " ".join(said.output.split())
        assert "the public rows differ from the others in admitted (100%" in flat
        assert "dealt evenly over" not in flat


def test_a_new_study_takes_another_profile_and_keys_of_ticks(folder):
    """The way of learning is left to the profile: what the file says would stand against both."""
    typed = ["init", "stays.csv", "--target", "days", "--owners", "county", "--yes", "--out", "s"]
    assert CliRunner().invoke(cli, typed).exit_code == 0
    path = folder / "s" / "study.toml"
    assert load_settings(StudySettings, path).algorithm.name == "auto"
    with pytest.raises(InputError, match=r"algorithm: expected horizon = NUMBER or horizon"):
        load_settings(StudySettings, path, overrides=["profile=published"])
    ticks = ["algorithm.horizon=50", "algorithm.rho=100"]
    for changes in (ticks, ["profile=published", *ticks]):
        found = load_settings(StudySettings, path, overrides=changes)
        assert found.algorithm.name == "asynchronous"
        assert found.algorithm.horizon == 50


def test_a_table_in_no_order_stays_where_it_is(folder):
    raw_table().sample(frac=1, random_state=1).to_csv(folder / "mixed.csv", index=False)
    typed = ["init", "mixed.csv", "--target", "days", "--owners", "county", "--yes"]
    said = CliRunner().invoke(cli, [*typed, "--out", "s"])
    assert said.exit_code == 0, said.output
    assert "differ from the others" not in said.output
    assert not (folder / "s" / "public.parquet").exists()


def test_a_column_that_hardly_varies_among_public_rows_is_left_out_and_told_of(folder, typed):
    table = raw_table()
    table.assign(rare=[1] * 50 + [0] * (len(table) - 50)).to_csv("stays.csv", index=False)
    told = init(typed, "stays.csv", "--target", "days", "--no-split", "--owners", "2")
    assert "rare: left out: it does not vary among the public records, so nothing can be" in told
    assert "learnt from it; give more with --public, or deal them evenly with --split" in told
    settings = load_settings(StudySettings, folder / "stays" / "study.toml")
    assert "rare" not in (settings.features.columns or ())
    rows = np.arange(len(table))
    table.assign(rare=rows % 799 == 0).to_csv("stays.csv", index=False)
    told = init(typed, "stays.csv", "--target", "days", "--split", "--public", "800", "--out", "s")
    assert "rare: left out: it hardly varies among the public records" in told
    assert "it; if it matters, add it to features.columns and set features.coverage = 1" in told


def test_names_that_mostly_no_public_row_has_are_left_out_unless_they_are_named(folder, typed):
    """Chance would order what few records of the public ones have."""
    table = raw_table()
    days = [f"{1 + i % 28:02}.{1 + i % 12:02}.{2000 + i % 9}" for i in range(len(table))]
    table.assign(seen=days).to_csv("stays.csv", index=False)
    arguments = ("stays.csv", "--target", "days", "--no-split", "--owners", "2")
    told = init(typed, *arguments)
    assert "seen: left out: " in told
    settings = load_settings(StudySettings, folder / "stays" / "study.toml")
    assert "seen" not in (settings.features.columns or ())
    told = init(typed, *arguments, "--categorical", "seen", "--out", "named")
    assert "of the owners' records have values that no public record has, and teach nothing" in told
    settings = load_settings(StudySettings, folder / "named" / "study.toml")
    assert "seen" in (settings.features.columns or ())


def test_a_class_that_no_public_row_has_is_told_in_the_options_words(folder):
    table = raw_table()
    table["died"] = ["yes" if i < 4 else "no" for i in range(NUM)]
    table.sample(frac=1, random_state=2).to_csv(folder / "rare.csv", index=False)
    typed = ["init", "rare.csv", "--target", "died", "--public", "10", "--yes", "--out", "s"]
    said = CliRunner().invoke(cli, typed)
    assert said.exit_code != 0
    told = str(said.exception)
    assert "--public: none of the 10 public rows is of class +1 of died, which 4 of all" in told
    assert "features." not in told
    assert not (folder / "s").exists()


def test_an_answer_that_cannot_be_used_is_asked_for_again_at_once(folder):
    answers = "dayz\ndays\ncount\nage\ncounty\n5000\n100\n-1\n2\nn\n"
    said = CliRunner().invoke(cli, ["init", "stays.csv", "--out", "s"], input=answers)
    assert said.exit_code == 0, said.output
    for reason in (
        "did you mean 'days'?",
        "did you mean 'county'?",
        "no value has 50 records",
        "expected a number of rows below 1,200",
        "expected a number greater than 0",
    ):
        assert f"{reason}" in said.output
    settings = load_settings(StudySettings, folder / "s" / "study.toml")
    assert (settings.features.target, settings.privacy.epsilon) == ("days", 2)


def test_classes_that_are_misspelt_are_asked_for_again(folder):
    answers = "county\nKing\nKings | Erie\n3\n\n\n\n"
    said = CliRunner().invoke(cli, ["init", "stays.csv", "--out", "s"], input=answers)
    assert said.exit_code == 0, said.output
    assert "county has no 'King' (did you mean 'Kings'?)" in said.output


def test_numbers_in_two_units_are_asked_about(folder, typed):
    table = raw_table()
    table["share"] = (table["income"].clip(20, 60) / 100).where(np.arange(NUM) % 2 == 0)
    table["share"] = table["share"].fillna(table["income"].clip(20, 60))
    table["days"] = table["days"].clip(1, 6) * np.where(table["county"] == "Bronx", 24, 1)
    table.drop(columns="hours").to_csv("mixed.csv", index=False)
    told = init(typed, "mixed.csv", "--target", "days", "--owners", "county", "--out", "s")
    assert "note: target days: " in told
    assert "about 24 times as far: in two units? then write all in one" in told
    assert "note: days: the numbers of bronx are about 24 times those of the others" in told
    assert "note: share: 600 lie from 0.2 to 0.6 and 600 from 20 to 60, about 100 times" in told
    said = CliRunner().invoke(owner_cli, ["init", "mixed.csv", "--out", "o.toml", "--yes"])
    assert said.exit_code == 0, said.output
    assert "share: 600 lie from 0.2 to 0.6 and 600 from 20 to 60, about 100" in said.output


def test_a_code_for_missing_is_asked_about_and_the_advice_can_be_typed(folder, typed):
    table = raw_table().assign(**{"blood pressure": np.arange(NUM) % 90 + 80})
    table.loc[::7, "blood pressure"] = 0
    table.loc[::11, "days"] = -9
    table["left"] = [f"2020-{1 + i % 12:02d}-{1 + i % 28:02d}" for i in range(NUM)]
    table.loc[::9, "left"] = "9999-12-31"
    table.to_csv("coded.csv", index=False)
    arguments = ("coded.csv", "--target", "days", "--owners", "county")
    told = init(typed, *arguments, "--out", "s")
    options = ["--missing", "blood pressure=0", "--missing", "days=-9"]
    options += ["--missing", "left=9999-12-31"]
    assert "a code for missing? then --missing 'blood pressure=0'" in told
    assert "a code for missing? then --missing days=-9" in told
    assert "a code for missing? then --missing left=9999-12-31" in told
    said = init(typed, *arguments, *options, "--out", "named")
    assert "code for missing" not in said
    assert 'left out (missing_target = "drop")' in said
    settings = load_settings(StudySettings, Path("named/study.toml"))
    named = {"blood pressure": ("0",), "days": ("-9",), "left": ("9999-12-31",)}
    assert settings.features.missing == named
    found = prepare_public_side(settings, base=Path("named"))
    [rule] = [one for one in found.feature_map.columns if one.name == "blood pressure"]
    assert (rule.missing, rule.low > 79) == (("0",), True)
    assert found.feature_map.target.missing == ("-9",)
    study = str(Path("named/study.toml"))
    ran = typed("copriv", "simulate", study, "--in-memory", "--yes", "--out", "run")
    assert ran.returncode == 0, ran.stderr


def test_a_code_for_missing_between_other_values_is_asked_about(folder, typed):
    table = raw_table().assign(size=np.arange(NUM) % 90 + 80)
    table.loc[::7, "size"] = 0
    table.to_csv("coded.csv", index=False)
    arguments = ("coded.csv", "--target", "days", "--owners", "county")
    said = init(typed, *arguments, "--missing", "size=0", "--out", "s")
    assert "size: 0 is between" not in said
    said = init(typed, *arguments, "--missing", "size=0", "--missing", "size=100", "--out", "t")
    count = int((table["size"] == 100).sum())
    told = f"size: 100 is between other values there (from 80 to 169), and {count} cells count as"
    assert told in said
    assert "size: 0 is between" not in said


def test_numbers_that_are_said_to_be_names_are_taken_for_names(folder):
    typed = ["init", "stays.csv", "--target", "days", "--categorical", "age", "--yes"]
    said = CliRunner().invoke(cli, [*typed, "--out", "s"])
    assert said.exit_code == 0, said.output
    settings = load_settings(StudySettings, folder / "s" / "study.toml")
    assert "age" in settings.features.categorical
    said = CliRunner().invoke(cli, [*typed, "--categorical", "agee", "--out", "t"])
    assert "--categorical: no column 'agee'; did you mean 'age'?" in str(said.exception)


def test_what_is_not_typed_is_asked(folder):
    answers = "days\ncounty\n100\n2\nn\n"
    said = CliRunner().invoke(cli, ["init", "stays.csv", "--out", "s"], input=answers)
    assert said.exit_code == 0, said.output
    settings = load_settings(StudySettings, folder / "s" / "study.toml")
    assert (settings.features.target, settings.privacy.epsilon) == ("days", 2)
    assert settings.features.public.rows == "-100:"


def test_classes_of_words_are_asked(folder):
    answers = "county\nKings | Erie\n3\n\n\n\n"
    said = CliRunner().invoke(cli, ["init", "stays.csv", "--out", "s"], input=answers)
    assert said.exit_code == 0, said.output
    settings = load_settings(StudySettings, folder / "s" / "study.toml")
    assert settings.features.positive == ("Kings", "Erie")
    assert settings.model.loss == "logistic"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--target", "days", "--missing", "agee=9"), "--missing: no column 'agee'; did you mean"),
        (("--target", "days", "--missing", "age=999"), "no cell of this column has this value"),
        (
            ("--target", "days", "--missing", "age=> 50"),
            "--missing age=> 50: '> 50' is read as 50, so that every 50 would be none, too",
        ),
        (
            ("--target", "days", *(f"--missing=age={n}" for n in range(30, 51))),
            "--missing age: expected at most 20 values of a column; empty the cells of the others",
        ),
        (
            ("--target", "days", "--missing", f"age={'x' * 101}"),
            "--missing age: expected a value of at most 100 characters, this one has 101;",
        ),
        (("--target", "days", "--missing", "age"), "expected COLUMN=VALUE, such as age=999"),
        (["--owners", "county"], "give --target COLUMN, one of Record ID, age"),
        (["--target", "dayz"], "no column 'dayz'; did you mean 'days'?"),
        (["--target", "county"], "name the values of class +1 with --positive"),
        (
            ["--target", "died", "--positive", "ye"],
            "died has no 'ye' (did you mean 'yes'?); it has 'no'",
        ),
        (["--target", "days", "--drop", "days"], "--drop: days is the target"),
        (["--target", "days", "--owners", "count"], "did you mean 'county'?"),
        (["--target", "days", "--owners", "age"], "no value has 50 records"),
        (
            ["--target", "days", "--owners", "3000"],
            "expected a number of equal parts from 1 to 1,200",
        ),
        (
            ["--target", "days", "--owners", "0"],
            "got 0, expected a number of equal parts from 1 to",
        ),
        (["--target", "days", "--public", "5000"], "a number of rows below 1,200"),
        (
            ["--target", "days", "--owners", "2", "--public", "1"],
            "there is only 1 public row; give",
        ),
        (
            ["--target", "days", "--owners", "2", "--public", "3"],
            "3 public records are too few for 5 columns; give 6 or more, or leave columns out",
        ),
        (["--target", "days", "--epsilon", "0"], "a number greater than 0"),
        (["--target", "days", "--drop", "ages"], "did you mean 'age'?"),
        (["--target", "days", "--out", "."], "the folder is not empty"),
        (
            ["--target", "days", "--owners", "3", "--most", "2"],
            "--most: 3 equal parts make as many owners; leave it out, or the parts",
        ),
    ],
)
def test_what_cannot_be_a_study_is_refused_and_nothing_is_written(folder, typed, arguments, why):
    out = [] if "--out" in arguments else ["--out", "s"]
    said = typed("copriv", "init", "stays.csv", *arguments, *out, "--yes")
    assert said.returncode == 2
    assert why in said.stderr
    assert not (folder / "s").exists()


KILLED = """
import os, signal
import learner.cli, learner.commands.init
learner.commands.init.write_or_refuse = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
learner.cli.main()
"""


def test_what_an_init_that_was_killed_left_is_named_as_that(folder, typed):
    words = ["init", "stays.csv", "--target", "days", "--owners", "2", "--split", "--yes"]
    command = [sys.executable, "-c", KILLED, *words, "--out", "s"]
    killed = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    again = typed("copriv", *words, "--out", "s")
    assert again.returncode == 2
    assert again.stderr == (
        "copriv: s: holds only owners and public.parquet, as an init leaves it that was killed "
        "before it wrote study.toml; remove what it left, or give another --out\n"
    )


def test_an_owner_gets_settings_that_serve(folder, typed):
    said = typed("copriv-owner", "init", "stays.csv", "--learner", "lab", "--yes")
    assert said.returncode == 0, said.stderr
    assert "Record ID: names records (an identifier); not shown to learners" in said.stdout
    assert "by a factor of at most 2.72" in said.stdout
    settings = load_settings(OwnerSettings, folder / "owner.toml")
    assert "Record ID" not in settings.data.columns
    assert "age" in settings.data.columns
    assert settings.policy.learners == ("lab",)
    assert (folder / "owner.toml").stat().st_mode & 0o077 == 0
    assert "the odds of a guess" in (folder / "owner.toml").read_text()
    said = typed("copriv-owner", "check", "owner.toml")
    assert said.returncode == 0, said.stderr
    said = typed("copriv-owner", "init", "stays.csv", "--yes")
    assert "owner.toml: already exists; give another path with --out" in said.stderr
    said = typed("copriv-owner", "init", "stays.csv", "--yes", "--out", "of north.toml")
    assert said.stdout.splitlines()[-1] == "next: copriv-owner check 'of north.toml'"


def test_an_owner_is_told_its_own_key_for_persons_with_several_records(folder, typed):
    """It was told of a study's, which an OWNER.toml does not have."""
    table = raw_table().assign(patient=np.arange(NUM) % 400)
    table.to_csv(folder / "stays.csv", index=False)
    said = typed("copriv-owner", "init", "stays.csv", "--yes")
    assert "each is protected less by so much, unless policy.kappa = 3" in said.stdout
    assert "patient" not in load_settings(OwnerSettings, folder / "owner.toml").data.columns


def test_a_table_of_frequencies_is_told_from_records(folder, typed):
    kinds = pd.DataFrame([(s, a, i) for s in "fm" for a in range(15) for i in "yn"])
    kinds = kinds.set_axis(["sex", "age", "ill"], axis=1).assign(
        Freq=[7 * k % 19 for k in range(60)]
    )
    kinds.to_csv(folder / "kinds.csv", index=False)
    parts = ("--owners", "2", "--public", "10")
    for command in (("copriv", "init", "--target", "ill", *parts), ("copriv-owner", "init")):
        said = typed(*command, "kinds.csv", "--yes")
        assert said.returncode == 0, said.stderr
        assert "Freq: seems to say how many records each row stands for" in said.stdout
    said = init(typed, "kinds.csv", "--target", "Freq", *parts, "--out", "counted")
    assert "how many records each row" not in said


def test_an_owner_is_told_which_numbers_and_dates_are_not_read(folder, typed):
    table = raw_table()
    table["weight"] = [f"{50 + i % 9} kg" for i in range(len(table))]
    table["cost"] = [f"{1 + i // 1000} {i % 1000:03} \u20ac" for i in range(len(table))]
    table["seen"] = ["28.07.2020", *["2020-07-29", "2020-08-29"] * len(table)][: len(table)]
    hours = pd.date_range("2015-01-01", periods=len(table), freq="h")
    table["at"] = hours.strftime("%Y/%m/%d %H:%M")
    table["day"] = hours.strftime("%Y%m%d")
    table["crp"] = ["not done" if i % 9 == 0 else f"{i % 7}.5" for i in range(len(table))]
    table["sum"] = [f"{i % 7}.5" for i in range(len(table))]
    table.loc[[4, 9], "sum"] = "lost"
    table["patient id"] = [i // 2 for i in range(len(table))]
    table.to_csv(folder / "odd.csv", index=False)
    said = typed("copriv-owner", "init", "odd.csv", "--yes")
    assert said.returncode == 0, said.stderr
    assert "crp: most of its values are numbers or dates, but others such as 'not done' are" in (
        said.stdout
    )
    assert "sum: cells that are not numbers and count as empty: 2\n" in said.stdout
    form = "its numbers have a form that is not read"
    assert f"weight: {form} (50 kg), so they are names; if they are amounts" in said.stdout
    assert f"cost: {form} (1 000 \u20ac), so they are names; not shown to learners" in said.stdout
    assert "seen: 28.07.2020 is no form of date that is read; write dates as" in said.stdout
    assert "at: has dates; not shown to learners\nnote: at: 2015/01/01 00:00 is no" in said.stdout
    assert "day: 20150101 looks like a date and is read as a number" in said.stdout
    assert "patient id: each of its values names few records; not shown to learners" in said.stdout
    columns = load_settings(OwnerSettings, folder / "owner.toml").data.columns
    assert "patient id" not in columns
    assert {"weight", "seen"} <= set(columns)
    assert "cost" not in columns


def test_a_study_of_one_owner_in_a_folder_with_a_space_is_told_of_as_it_is(folder, typed):
    arguments = ("--target", "days", "--owners", "1", "--out", "my s")
    told = init(typed, "stays.csv", *arguments)
    assert "my s/study.toml: 1 owner with 1," in told
    assert told.endswith("next: copriv simulate 'my s/study.toml'")


def test_infinite_numbers_are_told_of_with_what_becomes_of_them(folder, typed):
    table = raw_table()
    table[["age", "days"]] = table[["age", "days"]].astype(float)
    table.loc[3:5, "days"] = table.loc[7, "age"] = np.inf
    table.to_csv("stays.csv", index=False)
    told = init(typed, "stays.csv", "--target", "days", "--owners", "county", "--out", "s")
    for words in (
        "target days: infinite numbers: 3; they count as the",
        "age: infinite numbers: 1",
    ):
        assert words in told
    owners = typed("copriv-owner", "init", "stays.csv", "--yes")
    assert "days: infinite numbers: 3; they count as the nearest public bound" in owners.stdout


def test_what_is_not_typed_of_a_table_with_accents_and_blanks_is_a_name(folder, typed):
    (folder / "stays.csv").rename(folder / "Séjours 2023.csv")
    said = typed("copriv-owner", "init", "Séjours 2023.csv", "--yes")
    assert said.returncode == 0, said.stderr
    assert 'name = "Sejours-2023"' in (folder / "owner.toml").read_text()


def test_an_owners_questions_have_answers_that_can_be_refused(folder, typed):
    (folder / "records.csv").write_text("36,Bronx\n41,Kings\n")
    for arguments, why in (
        (["stays.csv", "--column", "ages"], "did you mean 'age'?"),
        (["stays.csv", "--epsilon-lifetime", "none"], "--epsilon-lifetime: got 'none'"),
        (["stays.csv", "--epsilon-per-study", "5"], "give at least 5, or a smaller --epsilon-per"),
        (["stays.csv", "--epsilon-per-study", "1,5"], "write a number without commas, 1,000 as"),
        (["stays.csv", "--name", "a b"], "--name: got 'a b', expected a name"),
        (["records.csv"], "its column names look like a record"),
    ):
        said = typed("copriv-owner", "init", *arguments, "--yes")
        assert said.returncode == 2
        assert why in said.stderr
        assert not (folder / "owner.toml").exists()


def test_an_owner_is_asked_again_where_an_answer_cannot_be_used(folder):
    answers = "a b\nnorth\n5\n3\n15\n"
    said = CliRunner().invoke(owner_cli, ["init", "stays.csv"], input=answers)
    assert said.exit_code == 0, said.output
    assert "--name: got 'a b', expected a name" in said.output
    assert "--epsilon-lifetime: 3 for all studies is less than 5 for one" in said.output
    assert "by a factor of at most 149" in said.output
    settings = load_settings(OwnerSettings, folder / "owner.toml")
    assert (settings.name, settings.policy.epsilon_lifetime) == ("north", 15)


def test_a_rare_class_gets_a_box_with_room_for_its_base_rate(folder, typed, without_forecasts):
    """And in one without, the public model is said to lie at its edge before owners are asked."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=4000)
    fraud = np.where(rng.random(4000) < 0.02 * np.exp(x - 0.5), "yes", "no")
    pd.DataFrame({"x": x.round(3), "fraud": fraud}).to_csv(folder / "rare.csv", index=False)
    init(typed, "rare.csv", "--target", "fraud", "--out", "s")
    settings = load_settings(StudySettings, folder / "s" / "study.toml")
    assert settings.model.theta_max >= 2 * np.log(40)
    warning = "the public model is at an edge of its box (constant); enlarge model.theta_max"
    # So few of a class are learnt no better together than by each owner alone; one way to learn is
    # enough to be told.
    alone = (
        "--set",
        "guard=false",
        "--set",
        "algorithm.name=newton",
        "--set",
        "algorithm.rounds=1",
    )
    for command, out, *given in (("simulate", "wide"), ("forecast", "wide-forecast", "--quick")):
        quick = (*given, *alone)
        said = typed("copriv", command, "s/study.toml", *quick, "--out", out)
        assert said.returncode == 0, said.stderr
        assert "at an edge" not in said.stdout
        narrow = ("--set", "model.theta_max=2", "--out", f"{out}-2")
        said = typed("copriv", command, "s/study.toml", *quick, *narrow)
        assert said.returncode == 0, said.stderr
        assert said.stdout.count(f"warning: {warning}, which is 2") == 1
        page = "report.html" if command == "simulate" else "forecast.html"
        assert f"warning: {warning}" in (folder / f"{out}-2" / page).read_text()


def test_classes_that_few_public_records_tell_apart_are_told_to_have_no_sure_forecast(
    folder, typed
):
    """Before the owners of a run are asked."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(300, 3)).round(3)
    ill = np.where(x[:, 0] + 0.2 * rng.normal(size=300) > 0, "yes", "no")
    table = pd.DataFrame(x, columns=["a", "b", "c"]).assign(ill=ill)
    table.to_csv(folder / "ill.csv", index=False)
    init(typed, "ill.csv", "--target", "ill", "--out", "s")
    named = ("--set", "algorithm.name=asynchronous", "--set", "algorithm.horizon=9")
    quick = ("--set", "forecast.worlds=2", "--in-memory", "--yes", "--out", "run")
    said = typed("copriv", "simulate", "s/study.toml", *named, *quick)
    assert said.returncode == 0, said.stderr
    doubt = "times as much on public records held out from it ("
    assert said.stdout.count(doubt) == 1, said.stdout
    assert said.stdout.index(doubt) < said.stdout.index("enrolled the owners")


def test_a_file_that_may_be_read_otherwise_is_told_of_and_read_as_typed(folder, typed):
    rng = np.random.default_rng(4)
    sums = [f"{amount:,}".replace(",", ".") for amount in rng.integers(100, 50_000, 400)]
    rates = [f"{rate:.2f}".replace(".", ",") for rate in rng.normal(5, 1, 400)]
    table = pd.DataFrame({"sum": sums, "rate": rates})
    table.to_csv(folder / "sums.csv", index=False, sep=";")
    hint = "note: sum: cells such as"
    assert hint in init(typed, "sums.csv", "--target", "rate", "--out", "a")
    assert hint not in init(typed, "sums.csv", "--target", "rate", "--decimal", ",", "--out", "b")
    settings = load_settings(StudySettings, folder / "b" / "study.toml")
    assert settings.data.decimal == ","
    said = typed("copriv-owner", "init", "sums.csv", "--yes", "--out", "a.toml")
    assert hint in said.stdout
    said = typed("copriv-owner", "init", "sums.csv", "--decimal", ",", "--yes", "--out", "b.toml")
    assert hint not in said.stdout
    assert load_settings(OwnerSettings, folder / "b.toml").data.decimal == ","
    table.to_csv(folder / "latin.csv", index=False, sep="_", encoding="utf-16-le")
    typing = ("--separator", "_", "--encoding", "utf-16-le", "--decimal", ",")
    said = typed("copriv-owner", "init", "latin.csv", *typing, "--yes", "--out", "c.toml")
    assert said.returncode == 0, said.stderr
    data = load_settings(OwnerSettings, folder / "c.toml").data
    assert (data.separator, data.encoding, data.decimal) == ("_", "utf-16-le", ",")


def test_a_process_that_read_a_duckdb_file_ends_without_a_word_of_the_library(tmp_path):
    with pytest.importorskip("duckdb").connect(str(tmp_path / "t.duckdb")) as opened:
        opened.execute("create table t as select range as x, range % 7 as y from range(50)")
    query, command = "select x, y from t", [sys.executable, "-m", "learner.cli", "init", "t.duckdb"]
    # A process of its own: only its end tells.
    said = subprocess.run(
        [*command, "--query", query, "--target", "z", "--yes"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 2
    assert said.stderr == "copriv: --target: no column 'z'; the columns are x, y\n"


def test_a_table_with_a_column_name_twice_is_refused(folder, typed):
    (folder / "twice.csv").write_text("age,age,y\n1,2,3\n4,5,6\n")
    said = typed("copriv", "init", "twice.csv", "--target", "y", "--yes", "--out", "s")
    assert said.returncode == 2
    assert "twice.csv: the column name 'age' occurs twice; rename one\n" in said.stderr


@pytest.mark.parametrize(
    ("above", "words"),
    [
        ("sep=;", "the first line is 'sep=;', which some programs write above the header; remove"),
        ("\ufeffsep=\t", "the first line is 'sep=\\t', which some programs write above the header"),
        (
            "Report 2020;;",
            "(columns 2, 3 have no name); correct them; in a text file, add a line with the col",
        ),
        ("Report\nage,y", "but the header has 1 name; correct the header, remove lines above it"),
        ("# a\n# b\nage,y", "but the header has 1 name; correct the header, remove lines above it"),
    ],
)
def test_a_line_above_the_header_is_told_as_such(folder, typed, above, words):
    (folder / "above.csv").write_text(f"{above}\nage;days;y\n1;2;3\n4;5;6\n")
    said = typed("copriv", "init", "above.csv", "--target", "y", "--yes", "--out", "s")
    assert said.returncode == 2
    assert words in said.stderr


@pytest.mark.parametrize("first", ["36,f,12", "150,4,virginica", "age,2020-01-31,days"])
def test_a_record_in_the_place_of_the_header_is_told_before_a_study_is_made(folder, typed, first):
    rows = "".join(f"{20 + i},{'fm'[i % 2]},{i % 9}\n" for i in range(60))
    (folder / "headless.csv").write_text(f"{first}\n{rows}")
    target = first.rpartition(",")[2]
    said = typed("copriv", "init", "headless.csv", "--target", target, "--yes", "--out", "s")
    assert said.returncode == 2
    assert "headless.csv: its column names look like a record" in said.stderr


@pytest.mark.parametrize(("given", "written"), [("0.7", '"0.7"'), ("1/3", '"1/3"'), ("20", "20")])
def test_a_budget_stands_in_new_settings_as_it_was_typed(folder, given, written):
    raw_table().to_parquet(folder / "t.parquet", index=False)
    asked = ["init", "t.parquet", "--target", "days", "--owners", "county", "--yes", "--out", "s"]
    made = CliRunner().invoke(cli, [*asked, "--epsilon", given])
    assert made.exit_code == 0, made.output
    assert f"\nepsilon = {written}\n" in (folder / "s" / "study.toml").read_text(encoding="utf-8")
    budgets = ["--epsilon-per-study", given, "--epsilon-lifetime", given]
    made = CliRunner().invoke(owner_cli, ["init", "t.parquet", "--yes", *budgets])
    assert made.exit_code == 0, made.output
    text = (folder / "owner.toml").read_text(encoding="utf-8")
    assert f"\nepsilon_lifetime = {written}\n" in text


def test_annotated_settings_are_what_was_chosen():
    values = {
        "name": "a",
        "data": {"path": "a.csv"},
        "policy": {"epsilon_per_study": 1, "epsilon_lifetime": "1/3"},
    }
    text = annotated(OwnerSettings, values, title="An owner.")
    assert tomllib.loads(text) == values


def test_a_name_with_signs_that_steer_a_terminal_makes_settings_that_load(folder):
    hostile = 'a\x1b[2J\x07\x7f\x9b31m\u202e\u2028"\\b'
    table = raw_table().rename(columns={"age": hostile})
    table.to_parquet(folder / "odd.parquet", index=False)
    typed = ["init", "odd.parquet", "--target", "days", "--owners", "county", "--yes"]
    made = CliRunner().invoke(cli, [*typed, "--out", "odd"])
    assert made.exit_code == 0, made.output
    assert "\x1b" not in made.output
    settings = load_settings(StudySettings, folder / "odd" / "study.toml")
    assert settings.features.columns is None or hostile in settings.features.columns
    text = (folder / "odd" / "study.toml").read_text(encoding="utf-8")
    assert all(line.isprintable() for line in text.split("\n"))
    typed = ["init", "odd.parquet", "--name", "a", "--yes", "--out", "owner.toml"]
    made = CliRunner().invoke(owner_cli, typed)
    assert made.exit_code == 0, made.output
    assert "\x1b" not in made.output
    served = load_settings(OwnerSettings, folder / "owner.toml").data.columns
    assert served is not None
    assert hostile in served


def test_a_table_of_far_more_columns_than_rows_is_refused_before_they_are_looked_at(folder, typed):
    """Two thousand of them took a minute and a half."""
    names = [f"c{i}" for i in range(250)]
    wide = pd.DataFrame(np.random.default_rng(1).normal(size=(60, 250)), columns=names)
    wide.assign(**{f"empty{i}": "" for i in range(100)}).to_csv("wide.csv", index=False)
    said = typed("copriv", "init", "wide.csv", "--target", "c0", "--owners", "2", "--yes")
    assert said.returncode == 2
    assert said.stderr.startswith(
        "copriv: wide.csv: 60 rows are too few for 249 columns: public records must be more than "
        "columns; give a table of more rows or fewer columns, or leave columns out with --drop"
    )
    assert "columns c0" not in said.stdout
    drop = [word for name in names[5:] for word in ("--drop", name)]
    options = ("--owners", "2", "--public", "30", "--out", "few")
    init(typed, "wide.csv", "--target", "c0", *drop, *options)


def test_a_table_of_one_column_is_asked_for_its_separator(folder, typed):
    """As R writes them, with blanks between cells: init named one column with all of the names."""
    rows = "".join(f"{18 + i % 60} {'fm'[i % 2]} {i % 9}\n" for i in range(200))
    (folder / "blanks.txt").write_text(f"age sex days\n{rows}")
    for command in (
        ("copriv", "init", "blanks.txt", "--target", "days", "--owners", "2", "--yes"),
        ("copriv-owner", "init", "blanks.txt", "--yes"),
    ):
        out = ("--out", f"new-{command[0]}.toml" if command[0] == "copriv-owner" else "new")
        said = typed(*command, *out)
        assert said.returncode == 2, said
        assert "blanks.txt: only one column was found, 'age sex days'; if another" in said.stderr
        assert typed(*command, *out, "--separator", " ").returncode == 0


def test_a_column_whose_name_is_blank_is_named_in_quotes(folder, typed):
    """A note of it began with a colon."""
    raw_table().assign(**{"": "x"}).to_parquet("stays.parquet")
    told = init(typed, "stays.parquet", "--target", "days", "--owners", "county", "--out", "s")
    assert "note: '': left out: it says the same of every record" in told


def test_an_owners_settings_go_into_a_file_of_toml(folder, typed):
    """Of copriv init, --out is a folder: settings and a ledger went into a file of its name."""
    said = typed("copriv-owner", "init", "stays.csv", "--yes", "--out", "north")
    assert said.returncode == 2
    assert "--out north: expected a file ending in .toml, such as north/owner.toml" in said.stderr
    assert not (folder / "north").exists()
    made = typed("copriv-owner", "init", "stays.csv", "--yes", "--out", "north/owner.toml")
    assert made.returncode == 0, made.stderr
