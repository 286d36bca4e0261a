"""A ledger that cannot be written or trusted: the owner refuses and says what to do."""

import gzip
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from forked import run

from common.errors import CoprivError, OwnerFailedError, UnreachableError
from common.terms import Query
from learner.network.attachment_server import AttachmentServer
from learner.network.grpc_owner import GrpcOwner
from owner.health import ask_health
from owner.ledger_reading import read_studies
from owner.ledger_rows import LedgerError
from owner.refusals import FAILED
from owner.server import start_owner

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "version-0.1" / "owner"
TOOL = ROOT / "tests" / "tools" / "full_disk_owner.py"
OPEN = (
    "import sys; from pathlib import Path; from owner.ledger import Ledger\n"
    "Ledger(Path(sys.argv[1]), owner='a', fingerprint='f').close()"
)

# The third note of a response is not synced: those of the first two queries are.
FAILING = """
import os, sys
import owner.cli
sync, noted = os.fdatasync, []
def failing(handle):
    noted.append(handle)
    if len(noted) == 3:
        raise OSError(5, "Input/output error")
    sync(handle)
os.fdatasync = failing
owner.cli.main()
"""


def small_file_system(folder, command):
    """The command, with a file system of its own of 500 kB over the folder."""
    mount = 'cp -r "$0" "$0.kept" && mount -t tmpfs -o size=500k none "$0" && cp "$0.kept"/* "$0"'
    return ["unshare", "-rm", "sh", "-c", f'{mount} && exec "$@"', str(folder), *command]


def may_mount(tmp_path):
    if shutil.which("unshare") is None:
        return False
    probe = tmp_path / "probe"
    probe.mkdir()
    (probe / "file").touch()
    command = small_file_system(probe, ["true"])
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("mode", ["disk", "limit"])
def test_a_full_disk_stops_answers_and_charges_and_room_brings_them_back(
    owner_folder, tmp_path, mode
):
    settings = owner_folder()
    command = [sys.executable, str(TOOL), str(settings), mode]
    if mode == "disk":
        if not may_mount(tmp_path):
            pytest.skip("no file system may be mounted here; the limit on file sizes is tested")
        command = small_file_system(settings.parent, command)
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    told = json.loads(result.stdout)
    assert told["refusals"] == [FAILED]
    assert told["given_before_it_was_full"] >= 3
    assert told["faults"] == []


ENDS = """
from types import SimpleNamespace
from common.errors import DiskError
import owner.cli
owner.cli._end(SimpleNamespace(ledger_fault=DiskError("its disk failed")))
"""


def test_an_owner_whose_log_is_on_the_full_disk_too_ends_with_the_same_status():
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run([sys.executable, "-c", ENDS], cwd=ROOT, stderr=full, check=False)
    assert ended.returncode == 4


DATABASES = {
    "owner.ledger": {
        "kind": "Ledger",
        "opened": "Ledger(Path(sys.argv[1]), owner='a', fingerprint='f').close()",
    },
    "learner.training.journal": {
        "kind": "Journal",
        "opened": "Journal(Path(sys.argv[1])).close()",
    },
}
OPEN_TO_WRITE = """
import sys, click
from pathlib import Path
from common.command import run_command
from {module} import {kind}
@click.command()
@click.argument("path")
def main(path):
    {opened}
run_command(main, "copriv")
"""


@pytest.mark.parametrize("inodes", [2, 3, 4])
@pytest.mark.parametrize("module", DATABASES)
def test_a_disk_without_room_for_another_file_is_tried_again(tmp_path, module, inodes):
    if not may_mount(tmp_path):
        pytest.skip("no file system may be mounted here")
    folder = tmp_path / "small"
    folder.mkdir()
    code = OPEN_TO_WRITE.format(module=module, **DATABASES[module])
    command = [sys.executable, "-c", code, str(folder / "a.sqlite")]
    script = f'mount -t tmpfs -o nr_inodes={inodes} none "$0" && exec "$@"'
    said = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, str(folder), *command],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=False,
    )
    assert said.returncode == 4, said.stderr
    assert "No space left on device" in said.stderr
    assert said.stderr.count("\n") == 1


def open_as_a_user(path):
    """Open a ledger under the files' permissions, which do not stop root otherwise."""
    command = [sys.executable, "-c", OPEN, str(path)]
    if os.geteuid() == 0:
        bounded = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
        command = [*bounded, *command]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False
    )


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_read_only_ledger_is_refused_before_anything_is_promised(tmp_path, what):
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("permissions do not stop root, and there is no setpriv")
    folder = tmp_path / "ledgers"
    folder.mkdir()
    path = folder / "ledger.sqlite"
    first = open_as_a_user(path)
    assert first.returncode == 0, first.stderr
    if what == "file":
        path.chmod(0o400)
    else:
        path.with_name("ledger.sqlite.lock").unlink()
        folder.chmod(0o500)
    refused = open_as_a_user(path)
    path.chmod(0o600)
    folder.chmod(0o700)
    assert "cannot be written (Permission denied); make it writable" in refused.stderr
    assert open_as_a_user(path).returncode == 0


@pytest.mark.parametrize("module", DATABASES)
def test_a_folder_that_may_not_be_written_is_named_as_that(tmp_path, module):
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("permissions do not stop root, and there is no setpriv")
    folder = tmp_path / "kept"
    folder.mkdir()
    code = OPEN_TO_WRITE.format(module=module, **DATABASES[module])
    command = [sys.executable, "-c", code, str(folder / "a.sqlite")]
    if os.geteuid() == 0:
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    ended = []
    for mode in (0o700, 0o500):
        folder.chmod(mode)
        ended.append(
            subprocess.run(
                command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False
            )
        )
    folder.chmod(0o700)
    assert [each.returncode for each in ended] == [0, 2]
    assert f"cannot be used ([Errno 13] Permission denied: '{folder}')" in ended[1].stderr


def unpacked(name, folder):
    """A ledger that an owner left, with all its files."""
    folder.mkdir()
    for packed in (GOLDEN / name).glob("ledger.sqlite*.gz"):
        (folder / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
    return folder / "ledger.sqlite"


def look_as_a_user(*arguments):
    """A command about a ledger, under the files' permissions."""
    return type_as_a_user("ledger", *arguments)


def type_as_a_user(*arguments):
    """A command of an owner, under the files' permissions."""
    code = "from owner.cli import main; main()"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    if os.geteuid() == 0:
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False
    )


def test_an_auditor_reads_a_ledger_in_a_folder_that_cannot_be_written(tmp_path):
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("permissions do not stop root, and there is no setpriv")
    path = unpacked("stopped", tmp_path / "copy")
    folder = path.parent
    expected = [look_as_a_user(word, path) for word in ("show", "export", "verify")]
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    folder.chmod(0o500)
    try:
        files = sorted(folder.iterdir())
        for word, before in zip(("show", "export", "verify"), expected, strict=True):
            read = look_as_a_user(word, path)
            assert (read.returncode, read.stderr, read.stdout) == (0, "", before.stdout)
        assert sorted(folder.iterdir()) == files
    finally:
        folder.chmod(0o700)


def test_a_ledger_of_which_a_part_is_in_its_log_is_not_read_without_it(tmp_path):
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("permissions do not stop root, and there is no setpriv")
    path = unpacked("killed", tmp_path / "copy")
    folder = path.parent
    Path(f"{path}-shm").unlink(missing_ok=True)
    assert Path(f"{path}-wal").stat().st_size > 0
    folder.chmod(0o500)
    try:
        for word in ("show", "export", "verify"):
            refused = look_as_a_user(word, path)
            assert refused.returncode == 2
            assert "ledger.sqlite-wal holds a part of it" in refused.stderr
            assert "copy the ledger with all its files" in refused.stderr
    finally:
        folder.chmod(0o700)


@pytest.mark.parametrize("hidden", ["folder", "lock"])
def test_a_ledger_that_another_user_keeps_is_one_sentence(owner_folder, tmp_path, hidden):
    """Whoever typed check or doctor as another user than the service's got a traceback."""
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("permissions do not stop root, and there is no setpriv")
    folder = tmp_path / "ledgers"
    folder.mkdir()
    path = owner_folder(also={"ledger": str(folder / "ledger.sqlite")})
    lock = folder / "ledger.sqlite.lock"
    lock.touch()
    closed = folder if hidden == "folder" else lock
    closed.chmod(0)
    try:
        told = {word: type_as_a_user(word, path) for word in ("check", "doctor")}
    finally:
        closed.chmod(0o700)
    assert {word: said.returncode for word, said in told.items()} == {"check": 2, "doctor": 2}
    assert "the ledger cannot be used ([Errno 13] Permission denied" in told["check"].stderr
    assert "type this as the user that it belongs to" in told["check"].stderr
    # Who is another user would find the budget unspent in a copy.
    assert "restore" not in told["check"].stderr
    assert "Permission denied" in told["doctor"].stdout


@pytest.mark.parametrize("name", ["owner.toml", "features.json", "model.json", "a.invitation"])
def test_a_file_of_another_user_is_for_that_one_to_read(owner_folder, name):
    """Who typed it was asked for the path of a file of that kind, as if it were none."""
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("permissions do not stop root, and there is no setpriv")
    path = owner_folder()
    closed = path.with_name(name)
    closed.touch()
    typed = {
        "owner.toml": ["serve", path],
        "features.json": ["check", path],
        "model.json": ["evaluate", path, closed],
        "a.invitation": ["join", closed, "--data", path.with_name("a.csv")],
    }
    closed.chmod(0)
    try:
        told = type_as_a_user(*typed[name])
    finally:
        closed.chmod(0o600)
    assert told.returncode == 2
    assert "type this as the user that it belongs to" in told.stderr


@pytest.mark.parametrize("word", ["show", "export", "verify", "close"])
def test_a_ledger_of_another_user_is_for_that_one_to_look_at(tmp_path, word):
    """It was not readable, and nobody was told for whom it is."""
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("permissions do not stop root, and there is no setpriv")
    path = unpacked("stopped", tmp_path / "copy")
    path.chmod(0)
    try:
        told = look_as_a_user(word, path, *["a-study"] * (word == "close"))
    finally:
        path.chmod(0o600)
    assert told.returncode == 2
    assert "Permission denied; type this as the user that it belongs to" in told.stderr


def test_a_ledger_is_readable_by_its_owner_only(tmp_path):
    path = tmp_path / "ledger.sqlite"
    assert subprocess.run([sys.executable, "-c", OPEN, path], cwd=ROOT, check=False).returncode == 0
    for file in tmp_path.iterdir():
        assert file.stat().st_mode & 0o077 == 0, file


def test_files_that_others_can_read_or_replace_are_named(owner_folder, serve_owner, caplog):
    settings = owner_folder(tokens={"ann": "file:ann.token"})
    token, ledger = (settings.parent / name for name in ("ann.token", "ledger.sqlite"))
    token.write_text("copriv_token-of-some-length\n")
    token.chmod(0o600)
    start_owner(settings, listen=None, insecure_noise_seed=None).drain(grace=0.1)
    assert "chmod" not in caplog.text
    for file in (token, ledger):
        file.chmod(0o640)
    folder = settings.parent
    folder.chmod(0o777)
    serve_owner(settings)
    for file in (token, ledger):
        assert f"{file} can be read by others on this machine; chmod 600 it" in caplog.text
        replaced = f"{file} can be replaced by others on this machine; chmod o-w {folder}"
        assert caplog.text.count(replaced) == 1


def test_one_ledger_under_two_names_is_held_once(owner_folder, serve_owner, tmp_path):
    settings = owner_folder()
    serve_owner(settings)
    ledger = settings.parent / "ledger.sqlite"
    for kind, link in (("symbolic", os.symlink), ("hard", os.link)):
        other = tmp_path / f"{kind}.sqlite"
        link(ledger, other)
        changed = settings.with_name(f"{kind}.toml")
        changed.write_text(settings.read_text().replace("ledger.sqlite", str(other)))
        with pytest.raises(LedgerError, match="another process holds this ledger"):
            start_owner(changed, listen=None, insecure_noise_seed=None)


def test_damage_under_a_running_owner_is_told_to_nobody_but_its_log(
    owner_folder, serve_owner, make_terms, caplog
):
    settings = owner_folder()
    running = serve_owner(settings)
    owner = GrpcOwner("owner-a", f"127.0.0.1:{running.port}", deadline=20)
    owner.enroll(make_terms())
    ledger = settings.parent / "ledger.sqlite"
    with sqlite3.connect(ledger) as db:
        db.execute("DROP TABLE accounts")
    db.close()
    with pytest.raises(OwnerFailedError) as told:
        owner.answer(Query(study_id="study-1", sequence=1, theta=np.zeros(4)))
    owner.disconnect()
    with pytest.raises(UnreachableError, match="does not serve"):
        ask_health(f"127.0.0.1:{running.port}", seconds=20)
    assert str(told.value).endswith(FAILED)
    assert not any(word in str(told.value) for word in ("sqlite", "accounts", str(settings.parent)))
    assert "no such table: accounts" in caplog.text
    with pytest.raises(LedgerError, match="its tables are not those"):
        read_studies(ledger)


def test_serving_says_what_to_do_about_a_damaged_ledger(owner_folder, make_terms):
    settings = owner_folder()
    running = start_owner(settings, listen=None, insecure_noise_seed=None)
    running.owner.enroll(make_terms(epsilon=Fraction(1)), learner="anonymous")
    running.owner.answer(
        Query(study_id="study-1", sequence=1, theta=np.zeros(4)), learner="anonymous"
    )
    running.drain(grace=0.1)
    ledger = settings.parent / "ledger.sqlite"
    whole = ledger.read_bytes()
    with sqlite3.connect(ledger) as db:
        db.execute("UPDATE accounts SET answered = 0")
    db.close()
    damaged = {"counts": ledger.read_bytes(), "truncated": whole[: len(whole) // 2]}
    damaged["header"] = b"\0" * 100 + whole[100:]
    for content in damaged.values():
        ledger.write_bytes(content)
        with pytest.raises(LedgerError, match=r"restore (the ledger|it) from a copy") as told:
            start_owner(settings, listen=None, insecure_noise_seed=None)
        # A new ledger would give spent budgets back.
        said = str(told.value).removeprefix(str(ledger))
        assert not re.search(r"\b(new|begin|start|delete|remove)\b", said)
    result = run("copriv-owner", "serve", settings)
    assert result.returncode == 2, result.stderr
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr


@pytest.mark.parametrize("command", ["serve", "attach"])
def test_an_owner_that_only_another_start_helps_ends_so_that_it_is_started_again(
    owner_folder, serve_owner, make_terms, command
):
    settings = owner_folder()

    def ask(owner, sequence):
        query = Query(study_id="study-1", sequence=sequence, theta=np.full(4, sequence / 8))
        return owner.answer(query).gradient.tobytes()

    with AttachmentServer(["owner-a"], "127.0.0.1:0", deadline=20, patience=5) as learner:
        more = ["--learner", f"127.0.0.1:{learner.port}"] if command == "attach" else []
        process = subprocess.Popen(
            [sys.executable, "-c", FAILING, command, str(settings), *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        port = process.stdout.readline().split()[-1]
        there = GrpcOwner("owner-a", f"127.0.0.1:{port}", deadline=20)
        owner = learner.owners[0] if command == "attach" else there
        owner.enroll(make_terms())
        given = [ask(owner, 1), ask(owner, 2)]
        with pytest.raises(CoprivError):
            ask(owner, 3)
        _, told = process.communicate(timeout=20)
        there.disconnect()
    assert process.returncode == 4, told
    last = told.splitlines()[-1]
    assert last.startswith(f"copriv-owner: {settings.parent / 'ledger.sqlite'}: the ledger cannot")
    assert "Input/output error" in last
    assert "only a new start sees what is on the disk" in last
    again = GrpcOwner("owner-a", f"127.0.0.1:{serve_owner(settings).port}", deadline=20)
    # What was written, though not synced and not sent, is given to the same query only.
    given += [ask(again, 3), ask(again, 4)]
    assert [ask(again, number) for number in (1, 2, 3, 4)] == given
    with pytest.raises(CoprivError):
        again.answer(Query(study_id="study-1", sequence=3, theta=np.zeros(4)))
    again.disconnect()
    assert read_studies(settings.parent / "ledger.sqlite")[1][0].account.answered == 4
