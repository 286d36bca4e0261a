"""From an invitation to a finished run, as docs/sites.md tells it; and what is refused there."""

import base64
import codecs
import json
import math
import os
import re
import shlex
import shutil
import signal
import sqlite3
import ssl
import stat
import subprocess
import sys
import threading
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tomli_w
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from free_ports import free_ports

from common.config import load_settings
from common.features import file_text
from common.files import open_regular
from common.joining import fingerprint, read_invitation, read_request
from common.tables import read_table
from common.tls import load_identity
from learner.network.certificates import Party, make_certificates
from owner.attaching import open_attachment
from owner.ledger_reading import read_studies
from owner.policy import OwnerSettings

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "sites.md"
HOSPITALS = {
    "mount-sinai": "Mount Sinai Hospital",
    "nyu-langone": "NYU Langone Hospitals",
    "montefiore": "Montefiore Medical Center - Henry & Lucy Moses Div",
}


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def commands():
    lines = [line for block in blocks("sh") for line in block.splitlines() if line]
    return [shlex.split(line) for line in lines]


@pytest.fixture(scope="module")
def tables():
    """The tables that the guide speaks of, and the public one."""
    every = pd.read_parquet(ROOT / "examples" / "hospitals.parquet")
    private = every.iloc[:-5000]
    found = {
        name: private[private["Facility Name"] == facility].head(1500)
        for name, facility in HOSPITALS.items()
    }
    columns = ["Age Group", "Gender", "Type of Admission", "Emergency Department Indicator"]
    found |= {"public": every.tail(2000)}
    found = {name: table[[*columns, "Length of Stay"]] for name, table in found.items()}
    spelt = {"Female": "F", "Male": "M"}
    nyu = found["nyu-langone"]
    found["nyu-langone"] = nyu.assign(Gender=nyu["Gender"].replace(spelt)).rename(
        columns={"Gender": "sex"}
    )
    montefiore = found["montefiore"]
    days = pd.to_numeric(montefiore["Length of Stay"].astype(str).str.rstrip(" +"))
    found["montefiore"] = montefiore.assign(**{"Length of Stay": 24 * days})
    return found


@pytest.fixture
def place(tables, tmp_path):
    """Laboratory and hospitals as the guide begins, on ports that are free here."""
    text = blocks("toml")[0]
    for told, port in zip(("50071", "50072", "50073"), free_ports(3), strict=True):
        text = text.replace(told, str(port))
    for name in ("lab", "exchange", *HOSPITALS):
        (tmp_path / name).mkdir()
    (tmp_path / "lab" / "study.toml").write_text(text)
    tables["public"].to_csv(tmp_path / "lab" / "public.csv", index=False)
    for name in HOSPITALS:
        tables[name].to_csv(tmp_path / name / "stays.csv", index=False)
    return tmp_path


@pytest.fixture
def processes():
    started = []
    yield started
    for process in started:
        process.terminate()
    for process in started:
        process.communicate(timeout=20)


def until_sites_are_sound(check):
    """As a person would: check until all sites serve, and nothing fails."""
    give_up = time.monotonic() + 60
    while (said := check()).returncode and time.monotonic() < give_up:
        # Those that have not started yet are all that may fail.
        assert said.stdout.count("FAILS:") == said.stdout.count("reached FAILS:"), said.stdout
    assert said.returncode == 0, said.stdout


@pytest.mark.long
def test_the_guides_commands_lead_from_an_invitation_to_a_finished_run(place, processes, typed):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    told_to_type = commands()
    assert len(told_to_type) < 10
    said = {}
    for command in told_to_type:
        if command[-1] == "&":
            processes.append(
                subprocess.Popen(
                    command[:-1], cwd=place, env=environment, text=True, stderr=subprocess.DEVNULL
                )
            )
            continue
        if command[1] == "train":
            until_sites_are_sound(lambda: typed("copriv", "check", place / "lab" / "study.toml"))
        result = subprocess.run(
            command,
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            input="y\ny\ny\n",
        )
        assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
        # A guide's study is one that nothing is to be said against.
        assert "this study is not forecast" not in result.stderr
        said[command[1]] = said.get(command[1], "") + result.stdout
    # What the hospitals read aloud is what the laboratory sees.
    told = re.findall(r"fingerprint ((?:[A-Z2-7]{5}-?){4})", said["join"])
    assert told == re.findall(r"fingerprint ((?:[A-Z2-7]{5}-?){4})", said["admit"])
    assert len(set(told)) == 3
    summary = json.loads((place / "lab" / "spring" / "summary.json").read_text())
    answered = [owner["responses"] for owner in summary["owners"]]
    assert summary["ticks"] == sum(answered)
    assert min(answered) > 0
    for name in HOSPITALS:
        key = place / name / "key.pem"
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        secret = key.read_text().splitlines()[1]
        others = [one for one in place.rglob("*") if one.is_file() and one != key]
        assert not any(secret.encode() in one.read_bytes() for one in others)
        # The training, and the validation of its model.
        _, entries = read_studies(place / name / "ledger.sqlite")
        assert [entry.learner for entry in entries] == ["learner"] * 2
        assert all(entry.closed is not None for entry in entries)


@pytest.fixture
def study(tmp_path, feature_map, table_maker, typed):
    """A study whose two owners were invited, and a table that fits."""
    (tmp_path / "features.json").write_text(feature_map.to_json())
    table_maker(200, seed=1).to_parquet(tmp_path / "shard.parquet")
    names = ("ca", "certificate", "key")
    table = {
        "name": "spring",
        "profile": "published",
        "features": {"map": "features.json"},
        "model": {"theta_max": 2.0},
        "algorithm": {"horizon": 6, "rho": 1e-3},
        "privacy": {"epsilon": 1},
        "network": {"deadline": 5, "patience": 5},
        "tls": {name: f"certs/learner/{name}.pem" for name in names},
        "owners": [
            {"name": name, "address": f"127.0.0.1:{port}"}
            for name, port in zip(("owner-a", "owner-b"), free_ports(2), strict=True)
        ],
    }

    def invite(*options, **changes):
        (tmp_path / "study.toml").write_text(tomli_w.dumps(table | changes))
        folders = ("--certs", tmp_path / "certs", "--out", tmp_path / "exchange")
        return typed("copriv", "invite", tmp_path / "study.toml", *folders, *options)

    def join(*options, name="owner-a", data="shard.parquet"):
        invitation = tmp_path / "exchange" / f"{name}.invitation"
        table = data if data.startswith(("env:", "file:")) else tmp_path / data
        places = ("--data", table, "--out", tmp_path / name)
        return typed("copriv-owner", "join", invitation, *places, *options)

    def admit(*options, name="owner-a"):
        request = tmp_path / "exchange" / f"{name}.request"
        return typed("copriv", "admit", request, "--certs", tmp_path / "certs", *options)

    said = invite()
    assert said.returncode == 0, said.stderr
    return SimpleNamespace(
        folder=tmp_path, table=table, invite=invite, join=join, admit=admit, typed=typed
    )


def one_sentence(said, *words):
    assert said.returncode == 2, said
    assert len(said.stderr.strip().splitlines()) == 1, said.stderr
    for word in words:
        assert word in said.stderr, said.stderr


def test_a_table_that_does_not_fit_joins_nothing(study, table_maker):
    table = table_maker(200, seed=1)
    own = table.rename(columns={"column-1": "Colum 1"})
    own["column-2"] *= 365
    own.to_parquet(study.folder / "own.parquet")
    refused = study.join(data="own.parquet")
    one_sentence(
        refused, "no column 'column-1'", "is it 'Colum 1'? then --rename 'column-1=Colum 1'"
    )
    assert (
        "its other columns are Colum 1; --rename STUDY=OWN maps a column; where there is"
        in " ".join(refused.stderr.split())
    )
    refused = study.join("--rename", "column-1=Colum 1", data="own.parquet")
    assert refused.returncode == 2
    assert "column 'column-2': " in refused.stderr
    assert "give the column in the map's unit" in refused.stderr
    assert not (study.folder / "owner-a").exists()
    assert not list((study.folder / "exchange").glob("*.request"))
    words = ("--rename", "column-1=Colum 1", "--unit", "column-2=1/365")
    joined = study.join(*words, data="own.parquet")
    assert joined.returncode == 0, joined.stderr
    assert "\nepsilon 1: strong protection, since seeing all answers may change" in joined.stdout
    # The way to a certificate is the one that was begun: copriv certs would make another CA.
    early = study.typed("copriv-owner", "check", study.folder / "owner-a" / "owner.toml")
    assert early.returncode == 2
    assert "owner-a.certificate.pem: cannot be read" in early.stderr
    assert "or for an owner copriv admit at its learner, makes it (copriv certs" in early.stderr
    # What is served is what was checked.
    assert study.admit("--yes").returncode == 0
    checked = study.typed("copriv-owner", "check", study.folder / "owner-a" / "owner.toml")
    assert checked.returncode == 0, checked.stderr
    assert "certificate of owner-a, 364 days left" in checked.stdout
    assert "200 records" in checked.stdout


def test_what_is_exchanged_can_be_read_by_the_other_side_whatever_the_umask(study):
    """With 077 the laboratory could not read the requests of hospitals in the shared folder."""
    before = os.umask(0o077)
    try:
        assert study.invite().returncode == 0
        assert study.join().returncode == 0
        assert study.admit("--yes").returncode == 0
    finally:
        os.umask(before)
    exchanged = sorted((study.folder / "exchange").glob("owner-a.*"))
    assert [path.suffix for path in exchanged] == [".pem", ".invitation", ".request"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in exchanged} == {0o644}
    assert stat.S_IMODE((study.folder / "owner-a" / "key.pem").stat().st_mode) == 0o600


def test_public_records_that_are_the_owners_own_join_nothing(study, public_table):
    """Their bounds were taken from what no epsilon then protects."""
    public_table.to_parquet(study.folder / "own.parquet")
    refused = study.join(data="own.parquet")
    assert refused.returncode == 2
    assert "the invitation: the bounds of " in refused.stderr
    assert "its numbers are the statistics of exactly this owner's records" in refused.stderr
    assert not list((study.folder / "exchange").glob("*.request"))
    joined = study.join("--allow-private-bounds", data="own.parquet")
    assert joined.returncode == 0, joined.stderr
    assert "no epsilon holds for them" in joined.stderr


def test_rows_that_hold_nothing_are_told_to_their_officer(study, table_maker):
    table = table_maker(200, seed=1)
    table.iloc[:2] = math.nan
    table.to_parquet(study.folder / "own.parquet")
    joined = study.join(data="own.parquet")
    assert study.admit("--yes").returncode == 0
    settings = study.folder / "owner-a" / "owner.toml"
    checked, seen = (study.typed("copriv-owner", way, settings) for way in ("check", "doctor"))
    for said in (joined, checked, seen):
        assert said.returncode == 0, said.stderr
        assert "200 records" in said.stdout
        assert "2 rows are empty in every column of the feature map" in said.stdout
        assert "y: 1.0% of the records have no target that can be read, and get" in said.stdout


def test_a_table_joins_as_it_is_typed_to_be_read(study, table_maker):
    table = table_maker(200, seed=1)
    table.to_csv(study.folder / "own.csv", index=False, decimal=",")
    unknown = study.join("--encoding", "nonsense", data="own.csv")
    assert unknown.returncode == 2
    assert unknown.stderr.startswith("copriv-owner: --data: encoding: ")
    refused = study.join(data="own.csv")
    assert refused.returncode == 2
    assert "have a decimal comma; say so with" in refused.stdout
    joined = study.join("--decimal", ",", data="own.csv")
    assert joined.returncode == 0, joined.stderr
    assert "decimal comma" not in joined.stdout
    settings = load_settings(OwnerSettings, study.folder / "owner-a" / "owner.toml")
    assert settings.data.decimal == ","
    with closing(sqlite3.connect(study.folder / "own.sqlite")) as database:
        table.to_sql("shard", database, index=False)
    joined = study.join("--query", "select * from shard", name="owner-b", data="own.sqlite")
    assert joined.returncode == 0, joined.stderr
    settings = load_settings(OwnerSettings, study.folder / "owner-b" / "owner.toml")
    assert settings.data.query == "select * from shard"


def test_a_table_in_postgresql_joins_where_its_address_is(study, table_maker, postgres):
    from adbc_driver_postgresql import dbapi  # noqa: PLC0415 (an extra)

    name = f"copriv_test_join_{os.getpid()}"
    address = os.environ["COPRIV_TEST_POSTGRES"]
    (study.folder / "address").write_text(address)
    with dbapi.connect(address, autocommit=True) as opened, opened.cursor() as cursor:
        cursor.adbc_ingest(name, pa.Table.from_pandas(table_maker(200, seed=1)), mode="create")
        try:
            for owner, data in (("owner-a", postgres), ("owner-b", f"file:{study.folder}/address")):
                query = ("--query", f"select * from {name}")
                joined = study.join(*query, name=owner, data=data)
                assert joined.returncode == 0, joined.stderr
                assert "200 records" in joined.stdout
                folder = study.folder / owner
                settings = load_settings(OwnerSettings, folder / "owner.toml")
                assert len(read_table(settings.data, base=folder)) == 200
            told = "database needs query = SELECT (--query SELECT)"
            one_sentence(study.join(data="file:address"), told)
        finally:
            cursor.execute(f"drop table {name}")


def test_records_of_one_person_are_told_to_who_joins_unless_kappa_counts_them(study, table_maker):
    """What is protected is a row: a person with several is protected less."""
    table = table_maker(200, seed=1)
    table["patient id"] = [*range(198), 7, 7]
    table.to_parquet(study.folder / "own.parquet")
    joined = study.join(data="own.parquet")
    assert joined.returncode == 0, joined.stderr
    assert "note: patient id: up to 3 records have the same value" in joined.stdout
    assert "unless the study's privacy.kappa = 3" in joined.stdout
    assert study.invite(privacy={"epsilon": 2, "kappa": 3}).returncode == 0
    joined = study.join(name="owner-b", data="own.parquet")
    assert joined.returncode == 0, joined.stderr
    assert "note: patient id" not in joined.stdout
    twice = pd.concat([table.drop(columns="patient id")] * 2)
    twice.to_parquet(study.folder / "twice.parquet")
    refused = study.join(name="owner-b", data="twice.parquet")
    assert "note: 200 rows of 400 say the same as an earlier one" in refused.stdout


def test_rows_that_are_no_records_are_told_to_who_joins(study, table_maker):
    """A row of totals outweighs all records, and a row may stand for several."""
    table = table_maker(200, seed=1)
    table["Freq"] = np.arange(200) % 7 + 1
    weighed = table.assign(sex=["f", "m"] * 100, **{"survey weight": 1.5})
    weighed.to_parquet(study.folder / "weighed.parquet")
    joined = study.join(data="weighed.parquet")
    assert joined.returncode == 0, joined.stderr
    assert "survey weight: seems to be the weight of a survey's records" in joined.stdout
    table.loc[200] = {"Freq": table["Freq"].sum()}
    table.to_parquet(study.folder / "totals.parquet")
    refused = study.join(name="owner-b", data="totals.parquet")
    assert refused.returncode == 2
    assert "row 201 below the header is not a record: its Freq, " in refused.stderr
    assert not (study.folder / "owner-b").exists()


def test_numbers_in_two_units_are_told_to_who_joins(study, table_maker):
    own = table_maker(400, seed=1)
    own["column-2"] = np.where(np.arange(400) % 2, 1, 100) * (3 + own["column-2"].clip(-2, 2))
    own.to_csv(study.folder / "own.csv", index=False)
    joined = study.join("--accept", "column-2", data="own.csv")
    assert joined.returncode == 0, joined.stderr
    assert "note: column-2: 200 lie from 1 to 5 and 200 from 100 to 500, about" in joined.stdout


def test_a_number_that_may_stand_for_missing_is_told_to_who_joins(study, table_maker):
    own = table_maker(400, seed=1).rename(columns={"column-2": "size"})
    own.loc[:29, "size"] = 999.0
    own.to_csv(study.folder / "own.csv", index=False)
    joined = study.join("--rename", "column-2=size", data="own.csv")
    assert joined.returncode == 0, joined.stderr
    assert "note: size: 999 stands 30 times: a code for missing? then leave" in joined.stdout


def test_numbers_in_a_form_that_is_not_read_are_told_to_who_joins(study, table_maker):
    """All of the column is a gap, and who holds it sees why."""
    own = table_maker(400, seed=1)
    own["column-2"] = [f"{value:.2f} kg" for value in own["column-2"]]
    own.to_csv(study.folder / "own.csv", index=False)
    refused = study.join(data="own.csv")
    assert refused.returncode == 2
    assert "column 'column-2': 100% of the records have no readable value" in refused.stderr
    assert "note: column-2: its numbers have a form that is not read (" in refused.stdout


def test_dates_that_may_be_meant_otherwise_are_told_to_who_joins(study, make_model, make_raw_table):
    (study.folder / "dated.json").write_text(file_text(make_model().feature_map))
    assert study.invite(features={"map": "dated.json"}).returncode == 0
    table = make_raw_table(200, seed=3, strange=False)
    table["admission"] = [f"01/0{1 + i % 9}/{2008 + i % 7}" for i in range(len(table))]
    table.drop(columns="when").to_csv(study.folder / "own.csv", index=False)
    joined = study.join("--rename", "when=admission", data="own.csv")
    assert joined.returncode == 0, joined.stderr
    assert "note: admission: 01/01/2008 is read as month/day/year; if that" in joined.stdout
    assert "(--dates day-first)" in joined.stdout
    turned = ("--rename", "when=admission", "--dates", "day-first")
    joined = study.join(*turned, name="owner-b", data="own.csv")
    assert joined.returncode == 0, joined.stderr
    assert "note: admission" not in joined.stdout
    settings = load_settings(OwnerSettings, study.folder / "owner-b" / "owner.toml")
    assert settings.data.dates == "day-first"


def test_dates_with_the_year_first_are_not_told_of(study, make_model, make_raw_table):
    (study.folder / "dated.json").write_text(file_text(make_model().feature_map))
    assert study.invite(features={"map": "dated.json"}).returncode == 0
    table = make_raw_table(200, seed=3, strange=False)
    table.to_csv(study.folder / "own.csv", index=False)
    joined = study.join(data="own.csv")
    assert joined.returncode == 0, joined.stderr
    assert "month/day/year; if that" not in joined.stdout


def test_a_column_whose_name_another_one_takes_joins_under_a_third_name(study, table_maker):
    table = table_maker(200, seed=1)
    table["yearly"] = table["column-1"]
    table["column-1"] /= 12
    table.to_csv(study.folder / "own.csv", index=False)
    words = ("--rename", "column-1=yearly")
    refused = study.join(*words, data="own.csv")
    one_sentence(refused, "the table has a column of that name already; rename that one, too")
    advised = shlex.split(re.findall(r"when joining (.*)\)", refused.stderr)[0])
    joined = study.join(*words, *advised, data="own.csv")
    assert joined.returncode == 0, joined.stderr
    assert study.admit("--yes").returncode == 0
    checked = study.typed("copriv-owner", "check", study.folder / "owner-a" / "owner.toml")
    assert checked.returncode == 0, checked.stderr
    assert "fits" not in checked.stderr


def test_a_class_that_is_spelt_otherwise_joins_nothing(study, make_model, make_raw_table):
    (study.folder / "classes.json").write_text(file_text(make_model("logistic").feature_map))
    told = study.invite(
        features={"map": "classes.json"}, model={"loss": "logistic", "theta_max": 2.0}
    )
    assert told.returncode == 0, told.stderr
    table = make_raw_table(300, seed=9, strange=False)
    table["class"] = table["class"].map({"late": "L", "on time": "on time"})
    table.to_csv(study.folder / "own.csv", index=False)
    refused = study.join(data="own.csv")
    assert refused.returncode == 2
    assert "column 'class': 50% of the records have values that no public record has, such as " in (
        refused.stderr
    )
    assert "'L' (did you mean 'late'?), and count as not 'late'" in refused.stderr
    assert not (study.folder / "owner-a").exists()
    # What would do nothing joins nothing either.
    right = ("--spelling", "class:L=late")
    for words, told in (
        (("--spelling", "class:M=late"), "no record has 'M' there"),
        (("--spelling", "class:L=laat"), "the study knows no 'laat' there"),
        (("--unit", "class=2"), "holds categories in the study, which have no unit"),
        (("--rename", "clas=class"), "--rename clas: the study has no such column"),
        (("--epsilon-lifetime", "0.5"), "these records could never take part"),
    ):
        one_sentence(study.join(*right, *words, data="own.csv"), told)
    assert not (study.folder / "owner-a").exists()
    joined = study.join(*right, data="own.csv")
    assert "class: 50" in joined.stdout
    assert (joined.returncode, joined.stderr) == (0, "")


def test_a_budget_stands_in_the_settings_as_it_was_typed(study):
    """They are to be looked over, and edited: 21/10 is what nobody typed."""
    said = study.join("--epsilon-lifetime", "12.1")
    assert said.returncode == 0, said.stderr
    written = (study.folder / "owner-a" / "owner.toml").read_text(encoding="utf-8")
    assert 'epsilon_lifetime = "12.1"' in written


def test_who_joins_is_told_that_a_new_ledger_knows_nothing_of_what_was_spent(study):
    """A second study in another folder would double what the records spend."""
    said = study.join()
    assert said.returncode == 0, said.stderr
    assert "if these records have a ledger from another study, set ledger there" in said.stdout


def test_who_has_joined_is_not_overwritten(study):
    joined = study.join()
    assert joined.returncode == 0
    assert stat.S_IMODE((study.folder / "owner-a" / "key.pem").stat().st_mode) == 0o600
    key = (study.folder / "owner-a" / "key.pem").read_bytes()
    # The same records in another folder: what they spent is in the ledger of the first.
    told = re.search(r"fingerprint (\S+):", joined.stdout)
    sent = study.folder / "exchange" / "owner-a.request"
    # Who did not see how the join ended types it again.
    done = f"already exists, from a join that is done: send {sent}, whose fingerprint is {told[1]};"
    one_sentence(study.join(), done)
    one_sentence(study.join(), "; to join again, give another --out, and set ledger in its")
    assert "keep their ledger" in (study.folder / "owner-a" / "owner.toml").read_text()
    assert (study.folder / "owner-a" / "key.pem").read_bytes() == key
    # Nor is the request that may be on its way, by a join into another folder.
    request = sent.read_bytes()
    (study.folder / "owner-a").rename(study.folder / "kept")
    whose = f"from an earlier join into another folder, whose key it needs (fingerprint {told[1]})"
    one_sentence(study.join(), f"owner-a.request: already exists {whose}; remove it to join again")
    assert sent.read_bytes() == request
    # A study that has changed since has another invitation, which that request does not answer.
    other = json.loads(request) | {"invitation": "0" * 64}
    for content, told in (
        (json.dumps(other), "answers another invitation"),
        ("", "not a request of"),
    ):
        sent.write_text(content)
        one_sentence(study.join(), told)
    assert not (study.folder / "owner-a").exists()


KILLED = """
import os, signal, sys
from common import files
from owner.cli import main
whole, left = files.write_whole, {left}
def write_whole(path, *given, **more):
    global left
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    whole(path, *given, **more)
files.write_whole = write_whole
main()
"""


@pytest.mark.parametrize("left", range(5))
def test_a_join_that_is_killed_at_any_file_goes_on_when_it_is_typed_again(study, left):
    """With the key that it made: the request may have left already."""
    folder, exchange = study.folder / "owner-a", study.folder / "exchange"
    command = [sys.executable, "-c", KILLED.format(left=left), "join"]
    command += [str(exchange / "owner-a.invitation"), "--out", str(folder)]
    command += ["--data", str(study.folder / "shard.parquet")]
    killed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    key = (folder / "key.pem").read_bytes() if left > 2 else None
    again = study.join()
    assert again.returncode == 0, again.stderr
    assert key in (None, (folder / "key.pem").read_bytes())
    assert study.admit("--yes").returncode == 0
    tls = load_settings(OwnerSettings, folder / "owner.toml").tls
    assert tls is not None
    load_identity(tls, base=folder, side="server")


@pytest.mark.parametrize("name", ["key.pem", "owner.toml", "ca.pem"])
def test_files_that_no_join_left_are_not_joined_to(study, name):
    """Such as a folder of copriv certs."""
    folder = study.folder / "owner-a"
    folder.mkdir()
    (folder / name).write_text("another's")
    one_sentence(study.join(), f"{name}: already exists; give another --out")
    assert [path.name for path in folder.iterdir()] == [name]
    assert (folder / name).read_text() == "another's"


def test_a_file_that_cannot_be_written_leaves_none(study):
    command = [Path(sys.executable).with_name("copriv-owner"), "join", "/proc/self/fd/0"]
    places = ["--data", study.folder / "shard.parquet", "--out", study.folder / "owner-a"]
    # Beside an invitation on standard input there is no room for a request.
    with (study.folder / "exchange" / "owner-a.invitation").open() as invitation:
        said = subprocess.run(
            [*command, *places], stdin=invitation, capture_output=True, text=True, check=False
        )
    one_sentence(said, "cannot be written")
    assert not list((study.folder / "owner-a").iterdir())
    assert study.join().returncode == 0


def test_the_command_that_join_prints_can_be_typed_as_it_stands(study):
    folder = study.folder / "b\u00e4nk b"
    invitation = study.folder / "exchange" / "owner-a.invitation"
    places = ("--data", study.folder / "shard.parquet", "--out", folder)
    said = study.typed("copriv-owner", "join", invitation, *places)
    assert said.returncode == 0, said.stderr
    typed = shlex.split(said.stdout.splitlines()[-1].rpartition("request: ")[2])
    assert typed == ["copriv-owner", "serve", str(folder / "owner.toml")]


def test_the_fingerprint_is_of_invitation_and_key(study):
    shown = re.search(r"fingerprint (\S+):", study.join().stdout)
    signed = study.admit("--yes")
    assert signed.returncode == 0, signed.stderr
    assert f"owner-a: fingerprint {shown[1]}" in signed.stdout
    # Somebody on the way changes what is asked: the owner's fingerprint is another.
    path = study.folder / "exchange" / "owner-b.invitation"
    changed = json.loads(path.read_text()) | {"epsilon": "9"}
    path.write_text(json.dumps(changed))
    assert study.join(name="owner-b").returncode == 0
    one_sentence(study.admit("--yes", name="owner-b"), "answers another invitation")
    digests = [read_invitation(p).digest for p in path.parent.glob("*.invitation")]
    keys = [read_request(p).public_key(where="") for p in path.parent.glob("*.request")]
    assert len({fingerprint(digest, key) for digest in digests for key in keys}) == 4


def test_a_request_that_is_moved_while_it_is_read_is_read(study, monkeypatch):
    """Several people write to the folder that it lies in."""
    study.join()

    def opened(path):
        file = open_regular(path)
        path.unlink()
        return file

    monkeypatch.setattr("common.joining.open_regular", opened)
    assert read_request(study.folder / "exchange" / "owner-a.request").owner == "owner-a"


def test_what_begins_with_a_byte_order_mark_is_the_same(study):
    study.join()
    invitation = next(study.folder.rglob("*.invitation"))
    before = read_invitation(invitation)
    request = study.folder / "exchange" / "owner-a.request"
    for path in (invitation, request):
        path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    assert read_invitation(invitation) == before
    assert read_request(request).owner == "owner-a"


def test_a_request_is_signed_only_when_the_fingerprint_was_compared(study, monkeypatch):
    study.join()
    monkeypatch.setattr("click.confirm", lambda question: "owner-a" not in question)
    one_sentence(study.admit(), "not admitted, since the fingerprints must be the same")
    assert not list((study.folder / "exchange").glob("*.pem"))


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
@pytest.mark.parametrize("file", ["invited.json", "certificate.pem", "key.pem"])
def test_what_is_no_file_among_those_of_the_ca_is_not_waited_for(study, file, make):
    study.join()
    place = study.folder / "certs" / "ca" / file
    place.unlink()
    make(place)
    one_sentence(study.admit(), f"{file}: cannot be read (")
    assert not list((study.folder / "exchange").glob("*.pem"))


def test_a_certificate_is_for_the_invited_host_and_name_whatever_is_requested(study):
    study.join()
    path = study.folder / "exchange" / "owner-a.request"
    request = json.loads(path.read_text())
    # A request for the other owner's name, or one that names nobody who was invited.
    for change, words in (
        ({"owner": "owner-b"}, "answers another invitation"),
        ({"owner": "owner-c"}, "invited to spring are owner-a, owner-b; to let owner-c in,"),
        ({"study": "autumn"}, "asks for owner-a of autumn"),
        ({"signing_request": "x"}, "holds no signing request"),
        ({"signing_request": forged("owner-b")}, "holds no signing request"),
        ({"signing_request": foreign_key()}, "holds no signing request"),
        ({"signing_request": unsigned(request["signing_request"])}, "holds no signing request"),
        ({"invitation": "0"}, "invitation"),
        ({"more": 1}, "more"),
    ):
        path.write_text(json.dumps(request | change))
        one_sentence(study.admit("--yes"), words)
    assert not list((study.folder / "exchange").glob("*.pem"))
    path.write_text(json.dumps(request | {"signing_request": forged("owner-a", "bank.example")}))
    assert study.admit("--yes").returncode == 0
    made = (study.folder / "exchange" / "owner-a.certificate.pem").read_bytes()
    extensions = x509.load_pem_x509_certificate(made).extensions
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["127.0.0.1", "copriv://owner/owner-a"]
    usage = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]


def forged(name, *hosts):
    """A signing request of somebody's own making."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    alternatives = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
    asked = x509.CertificateSigningRequestBuilder().subject_name(subject)
    if hosts:
        asked = asked.add_extension(alternatives, critical=False)
    return asked.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def foreign_key():
    """A request with a key of another kind than join makes."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "owner-a")])
    asked = x509.CertificateSigningRequestBuilder().subject_name(subject)
    signed = asked.sign(ed25519.Ed25519PrivateKey.generate(), None)
    return signed.public_bytes(serialization.Encoding.PEM).decode()


def unsigned(pem):
    """The same request with a signature that is none: somebody else's key in it."""
    der = bytearray(x509.load_pem_x509_csr(pem.encode()).public_bytes(serialization.Encoding.DER))
    der[-1] ^= 1
    body = base64.encodebytes(bytes(der)).decode()
    return f"-----BEGIN CERTIFICATE REQUEST-----\n{body}-----END CERTIFICATE REQUEST-----\n"


def test_an_invitation_and_a_request_in_each_others_place_are_told_apart(study):
    assert study.join().returncode == 0
    exchange = study.folder / "exchange"
    # The invitation is larger than any request may be.
    invitation = exchange / "owner-a.invitation"
    invitation.write_text(invitation.read_text() + " " * 2**17)
    said = study.typed("copriv", "admit", invitation, "--certs", study.folder / "certs", "--yes")
    one_sentence(said, "owner-a.invitation: this is an invitation", "give the .request")
    request = exchange / "owner-a.request"
    places = ("--data", study.folder / "shard.parquet", "--out", study.folder / "more")
    said = study.typed("copriv-owner", "join", request, *places)
    one_sentence(said, "owner-a.request: this is the request", "give the .invitation")
    # Nor are they settings, which in turn are neither.
    settings = study.folder / "study.toml"
    said = study.typed("copriv", "train", invitation)
    one_sentence(said, "this is an invitation, for copriv-owner join at the owner; give a")
    said = study.typed("copriv-owner", "serve", request)
    one_sentence(said, "this is the request that copriv-owner join made, for copriv admit")
    said = study.typed("copriv-owner", "join", settings, *places)
    one_sentence(said, "study.toml: is a TOML file and not an invitation of copriv invite; the")
    said = study.typed("copriv", "admit", settings, "--certs", study.folder / "certs", "--yes")
    one_sentence(said, "study.toml: is a TOML file and not a request of copriv-owner join; the")
    request.write_text(request.read_text() + " " * 2**17)
    one_sentence(study.admit("--yes"), "is not a request of copriv-owner join; ask for another")


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        DEEP.encode(),
        b'{"feature_map": ' + DEEP.encode() + b"}",
        b'{"format": ' + b"9" * 5000 + b"}",
        b" " * (8 * 2**20 + 1),
        b'{"feature_map": {"\\u001b[2J": NaN}, "study": "\\ud800"}',
    ],
)
def test_files_that_are_no_invitation_or_request_are_one_printable_sentence(study, content):
    exchange = study.folder / "exchange"
    (exchange / "owner-a.invitation").write_bytes(content)
    (exchange / "owner-a.request").write_bytes(content)
    for said in (study.join(), study.admit("--yes")):
        one_sentence(said)
        assert said.stderr.strip().isprintable()
        assert len(said.stderr) < 600
    assert not (study.folder / "owner-a").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"owner": "../up"}, "owner"),
        ({"study": "\x1b[2J"}, "study"),
        ({"address": "nowhere"}, "address"),
        ({"ca": "no PEM"}, "is not a CA's certificate"),
        ({"ca": "x" * 30_000}, "ca"),
        ({"epsilon": "-1"}, "epsilon"),
        ({"way": "swim"}, "way"),
        ({"feature_map": None}, "feature_map"),
    ],
)
def test_an_invitation_with_a_hostile_value_is_refused(study, change, words):
    path = study.folder / "exchange" / "owner-a.invitation"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    said = study.join()
    one_sentence(said, words)
    assert said.stderr.strip().isprintable()
    assert not (study.folder / "owner-a").exists()


def test_a_ca_whose_last_day_is_in_no_year_is_none(study):
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(datetime(2025, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2055, 1, 1, tzinfo=UTC))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    ca = made.public_bytes(serialization.Encoding.DER)
    path = study.folder / "exchange" / "owner-a.invitation"
    invitation = json.loads(path.read_text())
    for year, words in (
        ("0000", "is not a CA's certificate"),
        ("2025", "the study's CA expired on 2025-01-01; set this machine's clock right, or ask"),
        ("2055", "fingerprint"),
    ):
        spoilt = ca.replace(b"20550101000000Z", f"{year}0101000000Z".encode())
        path.write_text(json.dumps(invitation | {"ca": ssl.DER_cert_to_PEM_cert(spoilt)}))
        said = study.join()
        assert words in said.stdout + said.stderr
        assert (said.returncode == 0) == (year == "2055")


def test_invitations_hold_no_secret(study):
    secrets = [path.read_text().splitlines()[1] for path in study.folder.glob("certs/*/key.pem")]
    assert len(secrets) == 2
    for path in (study.folder / "exchange").iterdir():
        assert "PRIVATE" not in path.read_text()
        assert not any(secret in path.read_text() for secret in secrets)


def test_an_invitation_has_the_certificates_of_the_cas_file_and_nothing_else_of_it(study):
    """A comment that is no ASCII was a traceback, and a key that stood there was sent to all."""
    ca, key = study.folder / "certs/learner/ca.pem", study.folder / "certs/ca/key.pem"
    alone = ca.read_text()
    ca.write_text(f"# CA of Z\u00fcrich\n{key.read_text()}{alone}")
    assert study.invite().returncode == 0
    for path in (study.folder / "exchange").glob("*.invitation"):
        assert json.loads(path.read_text())["ca"] == alone
    ca.write_text(100 * alone)
    one_sentence(study.invite(), "more of them than an invitation has room for; leave only the")


def test_invite_says_what_is_missing(study):
    alone = {"algorithm": {"horizon": 6, "rho": 1e-3, "initiative": "owner"}}
    one_sentence(study.invite(**alone), "give --address HOST:PORT")
    nowhere = {"owners": [{"name": "owner-a"}]}
    one_sentence(study.invite(**nowhere), "owner-a has no address")
    misspelt = {"forecast": {"groups": {"owner-x": "north"}}}
    one_sentence(study.invite(**misspelt), "forecast.groups: 'owner-x' is not an owner of this")
    one_sentence(study.invite("--address", "127.0.0.1:50060"), "--address 127.0.0.1:50060: the")
    del study.table["tls"]
    # Paths of a study start in its folder, wherever the command is typed.
    one_sentence(study.invite(), "[tls] is missing", 'key = "certs/learner/key.pem"')
    one_sentence(study.invite("--learner", "a b"), "--learner: got 'a b', expected a name")


def test_invite_says_what_epsilon_promises_and_that_the_box_is_too_small(study, table_maker):
    """Of epsilon = 100 and theta_max = 1e-4 the owners heard first, or nobody."""
    table_maker(400, seed=2).to_parquet(study.folder / "public.parquet")
    features = study.table["features"] | {"public": {"path": "public.parquet"}}
    model = {"theta_max": 1e-4}
    owners = [study.table["owners"][0] | {"epsilon": 0.5}, study.table["owners"][1]]
    said = study.invite(features=features, model=model, privacy={"epsilon": 100}, owners=owners)
    told = " ".join(said.stdout.split())
    assert "epsilon 0.5: strong protection" in told
    assert "epsilon 100: weak protection, since seeing all answers may change the odds" in told
    assert "warning: the public model is at an edge of its box" in told
    assert "enlarge model.theta_max, which is 0.0001, to" in told


def test_invite_says_that_another_studys_owners_are_not_known_any_more(study):
    """Their certificates could not be renewed, and nobody would know why."""
    again = study.invite()
    assert again.returncode == 0
    assert "note:" not in again.stdout
    said = " ".join(study.invite(name="second").stdout.split())
    assert f"knew the owners of {study.table['name']}, and now knows those of second" in said
    assert "give each study a --certs of its own" in said


def test_invite_tells_of_a_certificate_of_the_learners_that_it_made_or_renewed(study):
    told = "learner's own key and certificate are new, and valid until"
    assert told not in " ".join(study.invite().stdout.split())
    ends_soon = Party(name="learner", role="learner")
    make_certificates(study.folder / "certs", [ends_soon], study="spring", days=20, renew=True)
    assert told in " ".join(study.invite().stdout.split())


def test_invite_refuses_another_ca_than_the_studys_and_makes_nothing(study):
    """The owners would trust one CA, and get certificates of another."""
    place = study.folder
    shutil.rmtree(place / "exchange")
    for made in (True, False):
        if not made:
            shutil.move(place / "certs" / "ca", place / "lost")
            shutil.copytree(place / "certs" / "learner", place / "copied")
            study.table["tls"] = {
                name: path.replace("certs/learner", "copied")
                for name, path in study.table["tls"].items()
            }
        folder = place / ("others" if made else "certs")
        said = study.invite("--certs", folder)
        one_sentence(said, f"--certs {folder}: its CA is not the one of the study, whose tls.ca is")
        # A folder is advised only where it has a CA.
        assert (f"such as {place / 'certs'}, or let" in " ".join(said.stderr.split())) == made
        assert "such as" not in said.stderr or made
        assert not (folder / "ca").exists()
        assert not (place / "exchange").exists() or not list((place / "exchange").iterdir())
    # What is no file is not waited for.
    ours = place / "copied" / "ca.pem"
    ours.rename(place / "kept.pem")
    os.mkfifo(ours)
    one_sentence(study.invite(), "its CA is not the one of the study, whose tls.ca is")
    (place / "kept.pem").replace(ours)
    # A learner's files may lie elsewhere than they were made.
    shutil.move(place / "lost", place / "certs" / "ca")
    assert study.invite().returncode == 0


def test_owners_that_come_join_too_and_are_closed_on_their_own_line(study, monkeypatch):
    (port,) = free_ports(1)
    coming = {
        "algorithm": {"horizon": 6, "rho": 1e-3, "initiative": "owner"},
        "network": {"deadline": 5, "patience": 10, "listen": f"127.0.0.1:{port}"},
        "owners": [{"name": "owner-a"}],
    }
    said = study.invite("--address", f"127.0.0.1:{port}", **coming)
    assert said.returncode == 0, said.stderr
    joined = study.join()
    assert joined.returncode == 0, joined.stderr
    assert "copriv-owner attach" in joined.stdout
    assert study.admit("--yes").returncode == 0
    settings = study.folder / "owner-a" / "owner.toml"
    one_sentence(study.typed("copriv-owner", "serve", settings), "type copriv-owner attach, or")
    attachment = open_attachment(
        settings, learner=None, stay=False, insecure=False, insecure_noise_seed=None
    )
    stop = threading.Event()
    thread = threading.Thread(target=attachment.run, args=(stop,))
    thread.start()
    run = study.folder / "run"
    with monkeypatch.context() as patch:
        # As if it had gone away as the study ended.
        patch.setattr("learner.training.study.end_study", lambda *_, **__: ("owner-a",))
        trained = study.typed("copriv", "train", study.folder / "study.toml", "--out", run)
    assert trained.returncode == 0, trained.stderr
    assert json.loads((run / "summary.json").read_text())["ticks"] == 6
    closed = study.typed("copriv", "close", run)
    thread.join(20)
    assert not thread.is_alive()
    assert closed.returncode == 0, closed.stderr
    assert "owner-a: closed" in closed.stdout
    (entry,) = read_studies(settings.with_name("ledger.sqlite"))[1]
    assert entry.account.closed
