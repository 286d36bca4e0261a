"""Give commands files that a stranger changed, and see whether each ends in one printable sentence.

A run folder, the points that a forecast and a sweep keep, settings, an invitation and a request are
changed in one place at a time: another value, another type, text that steers a terminal or a page,
a pipe or a link in a file's place, tables that are a few bytes on the disk and endless in memory, a
journal whose tables are queries.
Each command runs in a process of its own with limited memory and time.

It exits 1 if one ended with a traceback, by a signal, too late, or with another status than 0, 2, 3
or 4; if it printed what moves a cursor; or if a page or card that it wrote holds somebody's markup.

Usage: python tests/tools/fuzz_files.py [--only WORDS] [--most 300] [--seed 1]
"""

import argparse
import contextlib
import copy
import importlib
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w

from learner.simulated.sweeps import _checksum

COMMANDS = {"copriv": "learner.cli", "copriv-owner": "owner.cli"}
PRELOADED = ("learner.results.report_page", "learner.results.card", "learner.commands.closing")
PRELOADED += ("learner.commands.estimators", "learner.results.export_onnx", "owner.home_commands")
PRELOADED += ("learner.commands.study", "learner.network.connections", "owner.server")
PRELOADED += ("learner.commands.forecast", "learner.commands.sweep")
FORECAST = ("copriv", "forecast", "study.toml", "--quick", "--jobs", "1", "--out", "forecast")
SWEEP = ("copriv", "sweep", "study.toml", "--grid", "privacy.epsilon=1,10", "--seeds", "3")
SWEEP += ("--jobs", "1", "--out", "sweep")
SECONDS, MEGABYTES = 30, 1500
MARKUP = "<script>alert(1)</script>"
STEERS = "\x1b[2J\u202e\r\n\x07"
EVIL = f"x{STEERS}{MARKUP}'\"](javascript:1)|=1+1"
VALUES = {
    "text that steers": EVIL,
    "long text": "y" * 200_000,
    "no text": "",
    "the largest number": 1.7976931348623157e308,
    "the smallest number": -1.7976931348623157e308,
    "a subnormal": 5e-324,
    "minus zero": -0.0,
    "zero": 0,
    "minus one": -1,
    "2^53 + 1": 2**53 + 1,
    "2^63 - 1": 2**63 - 1,
    "2^64": 2**64,
    "a number of 400 digits": 10**400,
    "a fraction": "1/3",
    "a fraction of 100 digits": f"{10**99}/{10**98 + 1}",
    "a division by zero": "1/0",
    "a giant power": "1e999999999",
    "not a number": float("nan"),
    "infinity": float("inf"),
    "true": True,
    "nothing": None,
    "an empty list": [],
    "an empty table": {},
    "a list of lists": [[[[]]]],
    "two million": [1] * 2_000,
}
PAGES = ("report.html", "MODEL_CARD.md", "comparison.html", "forecast.html", "sweep.html")
# In a file of TOML alone: a number whose digits Python does not write down.
HEX = "0x" + "f" * 5000


@dataclass
class Case:
    """A command, and what was changed for it."""

    name: str
    command: Sequence[str]
    change: Callable[[Path], object]


@dataclass
class Found:
    """What became of all."""

    cases: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    faults: list[str] = field(default_factory=list)


def leaves(value, path=()):
    """Where values stand in a table: of a list its first and last."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, part in value.items():
            yield from leaves(part, (*path, key))
    elif isinstance(value, list) and value:
        for index in {0, len(value) - 1}:
            yield from leaves(value[index], (*path, index))


def changed(table, path, value):
    """A table with another value in one place."""
    table = copy.deepcopy(table)
    part = table
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return table


def renamed(table, path, name):
    """A table with another name of one key."""
    table = copy.deepcopy(table)
    part = table
    for key in path[:-1]:
        part = part[key]
    part[name] = part.pop(path[-1])
    return table


def toml_of(table):
    """TOML, which has no null."""

    def without(value):
        if isinstance(value, dict):
            return {str(k): without(v) for k, v in value.items() if v is not None}
        if isinstance(value, list):
            return [without(v) for v in value if v is not None]
        return value

    return tomli_w.dumps(without(table))


def json_of(table):
    """JSON; a point that was computed gets the checksum of what it holds now."""
    if isinstance(table, dict) and "result" in table:
        table = table | {"checksum": _checksum(table["result"])}
    return json.dumps(table)


def table_cases(file, folder, commands, *, most):
    """Every value of a file of JSON or TOML, changed in every way; this many of them."""
    content, is_toml = (folder / file).read_text(), file.endswith(".toml")
    table = tomllib.loads(content) if is_toml else json.loads(content)
    write = toml_of if is_toml else json_of
    changes = {}
    for path in leaves(table):
        where = ".".join(map(str, path))
        for what, value in VALUES.items():
            changes[f"{where}: {what}"] = lambda at=path, to=value: write(changed(table, at, to))
        if isinstance(path[-1], str):
            changes[f"{where}: renamed"] = lambda at=path: write(renamed(table, at, EVIL))
        if is_toml:
            changes[f"{where}: endless digits"] = lambda at=path: write(
                changed(table, at, "HEX")
            ).replace('"HEX"', HEX)
    cases = [(name, command) for name in changes for command in commands]
    random.Random(file).shuffle(cases)
    for name, command in cases[:most]:
        yield Case(
            f"{file} {name}",
            command,
            lambda made, make=changes[name]: writes(file, make())(made),
        )


def byte_cases(file, folder, commands, choices, count):
    """A file's bytes cut, flipped, doubled, replaced."""
    content = (folder / file).read_bytes()
    whole = {
        "empty": b"",
        "zeros": bytes(5000),
        "deep lists": b"[" * 200_000,
        "deep tables": b'{"a":' * 100_000,
        "a mark of UTF-16": b"\xff\xfe" + content,
        "a mark of UTF-8": b"\xef\xbb\xbf" + content,
        "no UTF-8": content.replace(b"a", b"\xff", 3),
        "twice": content * 2,
    }
    for _ in range(count):
        at = choices.randrange(max(1, len(content)))
        whole[f"cut at {at}"] = content[:at]
        flipped = bytearray(content)
        flipped[at] ^= 1 << choices.randrange(8)
        whole[f"flipped at {at}"] = bytes(flipped)
        there = choices.randrange(len(content))
        whole[f"{at} into {there}"] = content[:there] + content[at : at + 40] + content[there:]
    for what, text in whole.items():
        for command in commands:
            yield Case(f"{file}: {what}", command, writes(file, text))


def kind_cases(file, commands):
    """Something else than a file in a file's place; settings are read from pipes as well."""

    def replaced(make):
        def change(folder):
            path = folder / file
            path.unlink()
            make(path)

        return change

    kinds = {
        "a pipe": os.mkfifo,
        "a folder": Path.mkdir,
        "a link to itself": lambda path: path.symlink_to(path),
        "a link to nothing": lambda path: path.symlink_to("/nowhere/at/all"),
        "endless zeros": lambda path: path.symlink_to("/dev/zero"),
        "a terminal": lambda path: path.symlink_to("/dev/tty"),
        "a sparse terabyte": sparse,
        "gone": lambda path: None,
    }
    if file.endswith(".toml"):
        del kinds["a pipe"]
    for what, make in kinds.items():
        for command in commands:
            yield Case(f"{file}: {what}", command, replaced(make))


def sparse(path):
    with path.open("wb") as opened:
        opened.truncate(2**40)


def writes(file, content):
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return lambda folder: (folder / file).write_bytes(data)


def trace_cases(command):
    """Traces of other columns, and of a few bytes that mean many."""
    k = pa.array(range(1, 61))

    def saved(**columns):
        def change(folder):
            pq.write_table(pa.table(columns), folder / "trace.parquet", compression="zstd")

        return change

    def repeated(text, count):
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, dtype=np.int32)), [text])

    owner, fitness = pa.array(["a"] * 60), pa.array([0.5] * 60)
    tables = {
        "markup for owners": saved(k=k, owner=[EVIL] * 60, relative_fitness=fitness),
        "numbers for owners": saved(k=k, owner=k, relative_fitness=fitness),
        "bytes for owners": saved(k=k, owner=[b"\xff"] * 60, relative_fitness=fitness),
        "lists for owners": saved(k=k, owner=[["a"]] * 60, relative_fitness=fitness),
        "tables for owners": saved(k=k, owner=[{"a": 1}] * 60, relative_fitness=fitness),
        "texts for k": saved(k=["1e400"] * 60, owner=owner, relative_fitness=fitness),
        "no k": saved(owner=owner, relative_fitness=fitness),
        "gaps": saved(k=[None] * 60, owner=[None] * 60, relative_fitness=[None] * 60),
        "k beyond all": saved(k=[2**63 - 1] * 60, owner=owner, relative_fitness=fitness),
        "k below 0": saved(k=[-(2**63)] * 60, owner=owner, relative_fitness=fitness),
        "k of infinities": saved(k=[np.inf, np.nan] * 30, owner=owner, relative_fitness=fitness),
        "endless fitness": saved(k=k, owner=owner, relative_fitness=[np.inf] * 60),
        "no number for fitness": saved(k=k, owner=owner, relative_fitness=[np.nan] * 60),
        "fitness below 0": saved(k=k, owner=owner, relative_fitness=[-1.0] * 60),
        "the largest fitness": saved(k=k, owner=owner, relative_fitness=[1.7e308, 5e-324] * 30),
        "one row": saved(k=[1], owner=["a"], relative_fitness=[0.5]),
        "no row": saved(k=k[:0], owner=owner[:0], relative_fitness=fitness[:0]),
        "20 million rows": saved(
            k=pa.array(np.ones(19_000_000, dtype=np.int64)),
            owner=repeated("a", 19_000_000),
            relative_fitness=pa.array(np.zeros(19_000_000)),
        ),
        "a long owner 19 million times": saved(
            k=pa.array(np.ones(19_000_000, dtype=np.int64)),
            owner=repeated("a" * 100_000, 19_000_000),
        ),
        "a long text for k 100,000 times": saved(
            k=repeated("1" * 100_000, 100_000), owner=repeated("a", 100_000)
        ),
        "a long text for fitness 100,000 times": saved(
            k=pa.array(np.ones(100_000, dtype=np.int64)),
            owner=repeated("a", 100_000),
            relative_fitness=repeated("1" * 100_000, 100_000),
        ),
        "a long list for fitness 100,000 times": saved(
            k=pa.array(np.ones(20_000, dtype=np.int64)),
            owner=repeated("a", 20_000),
            relative_fitness=pa.array([[0.0] * 5_000] * 20_000, pa.list_(pa.float64())),
        ),
    }
    for what, change in tables.items():
        yield Case(f"trace.parquet: {what}", command, change)


JOURNALS = {
    "ticks are a query without an end": """
        DROP TABLE ticks; CREATE VIEW ticks AS WITH RECURSIVE t(position) AS
        (SELECT 0 UNION ALL SELECT position + 1 FROM t)
        SELECT position, 0.5 AS time, 0.5 AS wall_seconds FROM t;""",
    "unanswered is a query without an end": """
        DROP TABLE unanswered; CREATE VIEW unanswered AS WITH RECURSIVE t(owner) AS
        (SELECT 0 UNION ALL SELECT owner + 1 FROM t)
        SELECT owner, 1 AS sequence, zeroblob(8) AS theta FROM t;""",
    "answers are a query of giants": """
        DROP TABLE responses; CREATE VIEW responses AS SELECT 0 AS position, 0 AS owner,
        1 AS sequence, zeroblob(900000000) AS gradient UNION ALL SELECT 0, 1, 1,
        zeroblob(900000000) UNION ALL SELECT 0, 2, 1, zeroblob(900000000);""",
    "notes are a query of giants": """
        DROP TABLE meta; CREATE VIEW meta AS SELECT 'decision' AS key,
        hex(zeroblob(450000000)) AS value UNION ALL SELECT 'study_id', 'x';""",
    "a query behind each note": """
        CREATE TRIGGER t BEFORE DELETE ON meta BEGIN
        SELECT count(*) FROM (WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t)
        SELECT x FROM t); END;""",
    "no tables": "DROP TABLE ticks; DROP TABLE responses; DROP TABLE meta; DROP TABLE unanswered;",
    "no notes": "DELETE FROM meta;",
    "notes that steer": f"UPDATE meta SET value = '{EVIL.replace(chr(39), '')}';",
    "deep notes": f"UPDATE meta SET value = '{'[' * 100_000}';",
    "notes of numbers": f"UPDATE meta SET value = '{'9' * 5_000}';",
    "notes of bytes": "UPDATE meta SET value = x'ff00';",
    "an owner beyond all": "UPDATE responses SET owner = 9223372036854775807;",
    "an answer of nothing": "UPDATE responses SET gradient = x'';",
    "an answer of half a number": "UPDATE responses SET gradient = x'00';",
    "a tick at the end of time": "UPDATE ticks SET time = 9e999;",
    "a position of text": "UPDATE responses SET sequence = 'x';",
}


def journal_cases(commands):
    """Journals whose tables are not what was made."""

    def executed(script):
        def change(folder):
            with contextlib.closing(sqlite3.connect(folder / "journal.sqlite")) as db:
                db.executescript(script)

        return change

    for what, script in JOURNALS.items():
        for command in commands:
            yield Case(f"journal.sqlite: {what}", command, executed(script))


def note_cases(folder, commands, *, most):
    """Every value of the notes of a journal that waits, changed in every way; this many of them."""
    with contextlib.closing(sqlite3.connect(folder / "waiting" / "journal.sqlite")) as db:
        notes = {k: v for k, v in db.execute("SELECT key, value FROM meta") if v[:1] in "{["}
    cases = [
        (key, json.loads(note), path, what, command)
        for key, note in notes.items()
        for path in leaves(json.loads(note))
        for what in VALUES
        for command in commands
    ]
    random.Random("notes").shuffle(cases)

    def writes_note(key, note):
        def change(copied):
            with contextlib.closing(sqlite3.connect(copied / "waiting" / "journal.sqlite")) as db:
                db.execute("UPDATE meta SET value = ? WHERE key = ?", (note, key))
                db.commit()

        return change

    for key, table, path, what, command in cases[:most]:
        name = f"note {key} {'.'.join(map(str, path))}: {what}"
        note = json.dumps(changed(table, path, VALUES[what]))
        yield Case(name, command, writes_note(key, note))


def small_study(folder, **more):
    """A study of two owners of numbers, with its tables."""
    rng = np.random.default_rng(1)
    for name in ("public", "a", "b"):
        table = pd.DataFrame(rng.normal(size=(300, 3)), columns=["u", "v", "y"])
        table["w"] = rng.choice(["red", "green", "blue"], size=300)
        table.to_csv(folder / f"{name}.csv", index=False)
    study = {
        "name": "small",
        "seed": 1,
        "features": {"public": {"path": "public.csv"}, "target": "y"},
        "model": {"theta_max": 0.5},
        "algorithm": {"name": "asynchronous", "horizon": 20},
        "privacy": {"epsilon": 10},
        "network": {"deadline": 0.5, "patience": 1.0, "retries": 0},
        "owners": [{"name": n, "data": {"path": f"{n}.csv"}} for n in ("a", "b")],
    } | more
    path = folder / "study.toml"
    path.write_text(tomli_w.dumps(study))
    return path


def prepare(folder):
    """What all cases begin with: a study, its run, one that waits, its forecast and sweep, an
    owner, an invitation.
    """
    world = folder / "world"
    world.mkdir()
    run(("copriv", "simulate", small_study(world), "--out", "run", "--yes"), world)
    waiting = world / "waiting"
    shutil.copytree(world / "run", waiting, ignore=shutil.ignore_patterns("owners", "summary*"))
    table = tomllib.loads((waiting / "study.toml").read_text())
    for entry in table["owners"]:
        entry["address"] = "127.0.0.1:9"
    (waiting / "study.toml").write_text(tomli_w.dumps(table))
    owner = {
        "name": "a",
        "ledger": {"path": "ledger.sqlite", "block": 1},
        "data": {"path": "a.csv", "columns": ["u", "v", "w", "y"], "where": {"w": ["red", "blue"]}},
        "policy": {"epsilon_per_study": "1", "epsilon_lifetime": "10/3", "learners": ["x"]},
        "listening": {"probability": 0.5},
    }
    (world / "owner.toml").write_text(tomli_w.dumps(owner))
    invited = tomllib.loads((world / "study.toml").read_text())
    for entry, port in zip(invited["owners"], (9, 10), strict=True):
        entry["address"] = f"127.0.0.1:{port}"
        del entry["data"]
    invited["tls"] = {key: f"certs/learner/{key}.pem" for key in ("ca", "certificate", "key")}
    (world / "invited.toml").write_text(tomli_w.dumps(invited))
    run(("copriv", "invite", "invited.toml"), world)
    shutil.copy(world / "invitations" / "a.invitation", world)
    with contextlib.closing(sqlite3.connect(waiting / "journal.sqlite")) as db:
        db.execute("DELETE FROM meta WHERE key = 'closed'")
        db.commit()
    run(("copriv-owner", "join", "a.invitation", "--data", "a.csv", "--out", "joined"), world)
    (world / "a.request").rename(world / "back.request")
    run(FORECAST, world)
    run(SWEEP, world)
    return world


def megabytes(pid):
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def run(command, folder):
    """A command in a fork of this process: its status, None if it took too much; what it said."""
    began, most = time.monotonic(), megabytes(os.getpid()) + MEGABYTES
    said = folder / "said"
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            handle = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
            os.setsid()
            os.chdir(folder)
            name, *arguments = map(str, command)
            sys.argv = [name, *arguments]
            importlib.import_module(COMMANDS[name]).main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    status = None
    while time.monotonic() - began < SECONDS and megabytes(pid) < most:
        done, told = os.waitpid(pid, os.WNOHANG)
        if done:
            status = os.waitstatus_to_exitcode(told)
            break
        time.sleep(0.005)
    else:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    text = said.read_bytes()[:1_000_000].decode("utf-8", "replace")
    return status, text, time.monotonic() - began


def judge(case, folder, found):
    """One command, and what is wrong with what came of it."""
    status, said, took = run(case.command, folder)
    found.cases += 1
    found.ended[str(status)] += 1
    found.slowest = max(found.slowest, took)
    # What somebody typed at home may be told in full.
    is_ours = case.name.startswith("owner.toml")
    faults = []
    if status is None:
        faults.append(f"no end after {took:.1f} s, or too much memory")
    elif status not in (0, 2, 3, 4):
        faults.append(f"status {status}")
    if "Traceback" in said:
        faults.append("a traceback")
    if not is_ours and any(not (c.isprintable() or c == "\n") for c in said):
        faults.append("it moves the cursor")
    if not is_ours and any(len(line) > 4_000 for line in said.splitlines()):
        faults.append(f"a line of {max(map(len, said.splitlines())):,} characters")
    for name in PAGES:
        for path in folder.rglob(name):
            if path.is_file() and not path.is_symlink() and path.stat().st_size < 2**26:
                faults += [f"{name} holds markup"] * (MARKUP in path.read_text(errors="replace"))
    faults += [f"left behind {path.name}" for path in folder.rglob("*.part")]
    tail = said.strip().splitlines()[-1][:300] if said.strip() else ""
    words = " ".join(map(str, case.command))
    found.faults += [f"{case.name} [{words}]: {fault}: {tail!r}" for fault in faults]


def all_cases(world, choices, most):
    """All cases; of each file's values this many."""
    report = ("copriv", "report", "run")
    uses = [
        ("copriv", "evaluate", "run", "--data", "b.csv"),
        ("copriv", "predict", "run", "--data", "b.csv", "--out", "out.csv"),
        *(
            ("copriv", "export", "run", "--to", form, "--out", f"out.{form}")
            for form in ("onnx", "sklearn", "json", "sql")
        ),
        ("copriv-owner", "evaluate", "owner.toml", "run/model.json"),
        ("copriv-owner", "personalise", "owner.toml", "run/model.json", "--out", "bent.json"),
    ]
    later = [
        ("copriv", "close", "waiting", "--abandon"),
        ("copriv", "train", "--resume", "waiting"),
    ]
    settings = [("copriv", "doctor", "study.toml")]
    owners = [("copriv-owner", "check", "owner.toml"), ("copriv-owner", "doctor", "owner.toml")]
    admit = ("copriv", "admit", "back.request", "--yes")
    join = ("copriv-owner", "join", "a.invitation", "--data", "a.csv", "--out", "again")
    yield from trace_cases(report)
    yield from journal_cases(later)
    yield from note_cases(world, later, most=most)
    kept = {
        "forecast/points/study.json": FORECAST,
        "sweep/grid.json": SWEEP,
        "sweep/points/point-00000.json": SWEEP,
        "sweep/points/point-00000-seeds-000001-000003.json": SWEEP,
    }
    for file, command in kept.items():
        yield from kind_cases(file, [command])
        yield from byte_cases(file, world, [command], choices, 20)
        yield from table_cases(file, world, [command], most=most)
    for file, commands in (
        ("run/summary.json", [report]),
        ("run/trace.parquet", [report]),
        ("run/model.json", [report, *uses]),
        ("waiting/journal.sqlite", later),
        ("waiting/features.json", later),
        ("waiting/study.toml", later),
        ("study.toml", settings),
        ("owner.toml", owners),
        ("a.invitation", [join]),
        ("back.request", [admit]),
    ):
        yield from kind_cases(file, commands)
        yield from byte_cases(file, world, commands[:2], choices, 20)
    for file, commands in (
        ("run/summary.json", [report]),
        ("run/model.json", uses),
        ("waiting/features.json", later[1:]),
        ("waiting/study.toml", later[:1]),
        ("study.toml", settings),
        ("owner.toml", owners[:1]),
        ("a.invitation", [join]),
        ("back.request", [admit]),
    ):
        yield from table_cases(file, world, commands, most=most)


def attack(folder, *, only, most, seed):
    """All cases whose names have these words, in a copy of the world each."""
    for module in (*COMMANDS.values(), *PRELOADED):
        importlib.import_module(module)
    world, found = prepare(folder), Found()
    cases = [one for one in all_cases(world, random.Random(seed), most) if only in one.name]
    for number, case in enumerate(cases, start=1):
        copied = folder / "copy"
        shutil.copytree(world, copied, symlinks=True)
        inside = "waiting" if "journal" in case.name.split(":")[0] and "/" not in case.name else ""
        inside = "run" if case.name.startswith("trace.parquet") else inside
        before = len(found.faults)
        case.change(copied / inside)
        judge(case, copied, found)
        shutil.rmtree(copied)
        for fault in found.faults[before:]:
            print(f"{number} of {len(cases)}: {fault}", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose names have these words")
    parser.add_argument("--most", type=int, default=300, help="changed values of each file")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        outcome = attack(Path(made), only=options.only, most=options.most, seed=options.seed)
    print(
        json.dumps(
            {
                "cases": outcome.cases,
                "ended": dict(outcome.ended),
                "slowest_seconds": round(outcome.slowest, 1),
                "faults": len(outcome.faults),
            },
            indent=2,
        )
    )
    sys.exit(bool(outcome.faults))
