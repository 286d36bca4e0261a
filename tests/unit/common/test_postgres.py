"""Records in PostgreSQL: no cell decides whether they are read, and no server keeps a command."""

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from common.errors import InputError, UnreachableError
from common.postgres import is_away
from common.tables import TablePlace, TableSource, read_table

ROOT = Path(__file__).resolve().parents[3]
NOBODY = "00000000-0000-0000-0000-000000000000"
# By type: a cell, and others that its neighbour may have in its place.
CELLS = {
    "mood": ("'sad'", ["'happy'", "null"]),
    "pair": ("row(1, 'a')", ["null", "row(null, null)"]),
    "pair[]": ("array[row(1, 'a')::pair]", ["null", "array[null::pair]"]),
    "text[]": ("'{a}'", ["'[5:6]={a,b}'", "'{{a,b},{c,d}}'", "'{null}'", "null"]),
    "float8[]": ("'{1}'", ["'[-5:-3]={1,nan,3}'", "'[0:1][7:8]={{1,2},{3,4}}'"]),
    "numeric[]": ("'{1}'", ["'{nan}'", "null"]),
    "json": ("'{}'", ["'null'", "null"]),
    "xml": ("'<a/>'", ["null"]),
    "point": ("'(1,1)'", ["'(nan,infinity)'", "null"]),
    "numeric": ("1", ["'nan'", "'-infinity'", "repeat('9', 100000)::numeric", "null"]),
    "date": ("'2020-01-31'", ["'infinity'", "'4713-01-01 BC'", "'5874897-12-31'"]),
    "timestamptz": ("'2020-01-31'", ["'-infinity'", "'294276-12-31'", "null"]),
    "interval": ("'1 day'", ["'178000000 years'", "'1 mon -1 day'"]),
}


@pytest.fixture
def table(postgres):
    """Runs statements in a schema of its own."""
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    name = f"copriv_test_{os.getpid()}_{threading.get_ident()}"
    with (
        dbapi.connect(os.environ["COPRIV_TEST_POSTGRES"], autocommit=True) as opened,
        opened.cursor() as cursor,
    ):
        cursor.execute(f"create schema {name}")
        try:
            cursor.execute(f"set search_path to {name}")
            cursor.execute("create type mood as enum ('sad', 'happy')")
            cursor.execute("create type pair as (number integer, name text)")
            yield cursor.execute
        finally:
            cursor.execute(f"drop schema {name} cascade")


def cells(what="*", **where):
    """The cells of the table, as others on this server find it."""
    query = f"select {what} from copriv_test_{os.getpid()}_{threading.get_ident()}.cells"
    place = TablePlace(database="env:COPRIV_TEST_POSTGRES", query=query)
    source = TableSource(where=where) if where else TableSource()
    found = read_table(source, base=Path(), default=place)
    return [str(cell) for cell in found["v"]]


@pytest.mark.parametrize("kind", CELLS)
def test_no_cell_of_postgresql_decides_whether_a_table_is_read(table, kind):
    plain, others = CELLS[kind]
    for cell in (plain, *others):
        table("drop table if exists cells")
        table(f"create table cells (n integer, v {kind})")
        table(f"insert into cells select 1, ({plain})::{kind} from generate_series(1, 3)")
        table(f"insert into cells select 2, ({cell})::{kind}")
        assert len(cells()) == 4, cell


@pytest.mark.parametrize(
    ("kind", "cell", "read"),
    [
        ("money", "'-1234.50'", "-1234.50"),
        ("interval", "'1 day 02:30'", "1 day 02:30:00"),
        ("cidr", "'10.0.0.0/24'", "10.0.0.0/24"),
        ("int4range", "'[1,4)'", "[1,4)"),
        ("uuid", f"'{NOBODY}'", NOBODY),
        ("bit(3)", "'101'", "101"),
        ("timetz", "'08:00+01'", "08:00:00+01"),
        ("regtype", "'integer'", "integer"),
    ],
)
def test_a_cell_is_read_as_the_server_writes_it_and_money_as_a_number(table, kind, cell, read):
    """Other owners have the same in a file: bytes, or cents, would be another category or unit."""
    table(f"create table cells (v {kind})")
    table(f"insert into cells values (({cell})::{kind})")
    assert cells() == [read]


def test_enumerations_are_names_and_arrays_the_same_from_wherever_they_count(table):
    table("create table cells (v mood)")
    table("insert into cells values ('happy'), ('sad'), (null)")
    assert cells()[:2] == ["happy", "sad"]
    assert cells(v="sad") == ["sad"]
    table("drop table cells")
    table("create table cells (v integer[])")
    table("insert into cells values ('{1,2}'), ('[5:6]={1,2}')")
    assert len(set(cells())) == 1


@contextmanager
def server(behave):
    """Something that listens as a database does; the address to reach it at."""
    pytest.importorskip("adbc_driver_postgresql.dbapi")

    def work():
        with listening.accept()[0] as opened:
            behave(opened)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(30)
        thread = threading.Thread(target=work)
        thread.start()
        yield f"postgresql://u:s3cret@127.0.0.1:{listening.getsockname()[1]}/d"
        thread.join()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_command_whose_database_says_nothing(tmp_path, number):
    settings = tmp_path / "owner.toml"
    settings.write_text(
        'name = "a"\n[data]\ndatabase = "env:DB"\nquery = "select 1 as a"\n'
        '[policy]\nepsilon_per_study = "1"\nepsilon_lifetime = "1"\n'
    )
    asked, over = threading.Event(), threading.Event()

    def say_nothing(opened):
        opened.recv(100)
        asked.set()
        over.wait(30)

    with server(say_nothing) as address:
        command = [sys.executable, "-m", "owner.cli", "check", str(settings)]
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "DB": address}
        )
        try:
            assert asked.wait(30)
            process.send_signal(number)
            _, said = process.communicate(timeout=20)
        finally:
            process.kill()
            process.wait()
            over.set()
    assert process.returncode == 128 + number
    assert said.count("\n") == 1


def refusing(code, sentence):
    """A server that says no to whoever connects."""

    def refuse(opened):
        opened.recv(1000)
        opened.sendall(b"N")
        opened.recv(1000)
        said = b"SFATAL\0VFATAL\0C" + code + b"\0M" + sentence + b"\0\0"
        opened.sendall(b"E" + struct.pack(">I", len(said) + 4) + said)

    return refuse


def test_what_a_database_says_moves_no_cursor(monkeypatch):
    said = b"\x1b[31mno\x1b]0;x\x07" + b"a" * 5000
    with server(refusing(b"28000", said)) as address:
        monkeypatch.setenv("DB", address)
        place = TablePlace(database="env:DB", query="select 1")
        with pytest.raises(InputError) as refused:
            read_table(TableSource(), base=Path(), default=place)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 1000
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("behave", "error", "why"),
    [
        (lambda opened: None, UnreachableError, "closed the connection"),
        (refusing(b"57P03", b"the database system is starting up"), UnreachableError, "starting"),
        (refusing(b"53300", b"sorry, too many clients already"), UnreachableError, "too many"),
        (refusing(b"28P01", b"password authentication failed"), InputError, "password"),
    ],
)
def test_a_server_that_is_away_may_be_asked_again(monkeypatch, behave, error, why):
    with server(behave) as address:
        monkeypatch.setenv("DB", address)
        place = TablePlace(database="env:DB", query="select 1")
        with pytest.raises(error, match=why) as refused:
            read_table(TableSource(), base=Path(), default=place)
    assert ("type the same command again" in str(refused.value)) is (error is UnreachableError)


def test_a_server_that_ends_a_query_may_be_asked_again(table):
    table("create table cells (n integer, v integer)")
    table("insert into cells values (1, 1)")
    ends = "(select pg_terminate_backend(pg_backend_pid()))"
    place = TablePlace(database="env:COPRIV_TEST_POSTGRES", query=f"select 1 as n where {ends}")
    with pytest.raises(UnreachableError, match=r"cannot be read now: .*terminating"):
        read_table(TableSource(), base=Path(), default=place)


@pytest.mark.parametrize(
    "cell",
    ["terminating connection", "FATAL:  terminating connection", "x: FATAL", "[libpq] FATAL"],
)
def test_no_cell_says_that_its_server_is_away(table, cell):
    """An owner is started again where its server is away, and not where a cell is no number."""
    table("create table cells (n integer, v text)")
    table(f"insert into cells values (1, '{cell}')")
    with pytest.raises(InputError, match="fails for a cell, which is not shown") as refused:
        cells("v::integer as v")
    assert cell not in str(refused.value)


def test_a_sentence_of_postgresql_quotes_no_cell(table):
    table("create table cells (n integer, v text)")
    table("insert into cells values (1, 'secret')")
    for said in ("v::float8", "v::json", "to_date(v, 'YYYY')", "v::regclass"):
        with pytest.raises(InputError, match="fails for a cell") as refused:
            cells(f"{said} as v")
        assert "secr" not in str(refused.value).lower()
    # What is wrong with the query itself is said.
    with pytest.raises(InputError, match='column "w" does not exist'):
        cells("w")


@pytest.mark.parametrize(
    "said",
    [
        "[libpq] Execution error [PGRES_FATAL_ERROR]: FATAL:  terminating connection due to",
        "[libpq] PQgetCopyData() failed: server closed the connection unexpectedly",
        "IO: [libpq] Failed to execute query: could not begin COPY: server closed the connection",
        "IO: Failed to prepare query: FATAL:  terminating connection due to administrator command",
    ],
)
def test_a_connection_that_ends_in_the_middle_may_be_asked_for_again(said):
    assert is_away(OSError(said))
    assert not is_away(OSError("INVALID_ARGUMENT: Failed to prepare query: ERROR:  syntax error"))


def test_an_owner_whose_database_is_away_is_started_again(tmp_path):
    pytest.importorskip("adbc_driver_postgresql.dbapi")
    settings = tmp_path / "owner.toml"
    settings.write_text(
        'name = "a"\nlisten = "127.0.0.1:0"\n[data]\ndatabase = "env:DB"\n'
        'query = "select 1 as a"\n[policy]\nepsilon_per_study = "1"\nepsilon_lifetime = "1"\n'
    )
    ended = subprocess.run(
        [sys.executable, "-c", "from owner.cli import main; main()", "serve", str(settings)],
        env={**os.environ, "DB": "postgresql://u:s3cret@127.0.0.1:1/d"},
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert ended.returncode == 4
    assert "Connection refused" in ended.stderr
    assert "s3cret" not in ended.stderr
    unit = (ROOT / "deploy/systemd/copriv-owner@.service").read_text().splitlines()
    assert "Restart=on-failure" in unit
    (prevented,) = [line for line in unit if line.startswith("RestartPreventExitStatus=")]
    assert "4" not in prevented
