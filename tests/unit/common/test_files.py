"""Files are whole or not there, and one process alone holds what it has locked."""

import fcntl
import os
import secrets
import signal
import stat
import subprocess
import sys
import threading

import pytest

from common.errors import InputError
from common.features import load_feature_map
from common.files import (
    is_empty,
    lock_file,
    make_folder,
    open_regular,
    whole_folder,
    write_or_refuse,
    write_whole,
)
from common.joining import read_invitation
from common.model import read_model
from common.small_files import read_own, read_secret
from common.tls import TlsSettings, load_identity
from owner.access import read_token


def test_a_reader_finds_one_whole_text_or_the_other(tmp_path):
    path, texts = tmp_path / "told.json", {"a" * 200_000, "b" * 300_000}
    write_whole(path, next(iter(texts)))
    stop = threading.Event()

    def write():
        while not stop.is_set():
            for text in texts:
                write_whole(path, text)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = {path.read_text() for _ in range(300)}
    finally:
        stop.set()
        writer.join()
    assert seen <= texts
    assert [entry.name for entry in tmp_path.iterdir()] == ["told.json"]


WRITING = """
import sys
from pathlib import Path
from common.files import write_whole
for _ in range(100):
    write_whole(Path(sys.argv[1]), sys.argv[2] * 300_000)
"""


def test_processes_that_write_one_file_at_once_leave_it_whole(tmp_path):
    path = tmp_path / "told.json"
    command = [sys.executable, "-c", WRITING, str(path)]
    writers = [subprocess.Popen([*command, letter]) for letter in "ab"]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert path.read_text() in {"a" * 300_000, "b" * 300_000}
    assert [entry.name for entry in tmp_path.iterdir()] == ["told.json"]


@pytest.mark.parametrize("link", [False, True])
def test_a_pipe_stays_where_a_file_is_to_be_written(link, tmp_path):
    pipe, path = tmp_path / "pipe", tmp_path / ("link" if link else "pipe")
    os.mkfifo(pipe)
    if link:
        path.symlink_to(pipe)
    with pytest.raises(InputError, match=r"cannot be written \(.* is no regular file\); check"):
        write_or_refuse(path, "told")
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert path.is_symlink() == link


KILLED = """
import os, signal, sys
from pathlib import Path
from common.files import write_whole
os.replace = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)
write_whole(Path(sys.argv[1]), "half")
"""


def test_what_a_killed_writer_left_is_removed_by_the_next_and_nothing_else_is(tmp_path):
    path, others = tmp_path / "told.json", {".told.json.part", ".told.json.1.part", "told.json.bak"}
    others |= {
        ".told.json.0123456g.part",
        ".told.jsonx.01234567.part",
        ".untold.json.01234567.part",
    }
    for name in others:
        (tmp_path / name).write_text("another's")
    (tmp_path / ".told.json.01234567.part").symlink_to(tmp_path / "told.json.bak")
    others |= {".told.json.01234567.part"}
    writer = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert writer.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == len(others) + 1
    write_whole(path, "whole")
    assert {entry.name for entry in tmp_path.iterdir()} == others | {"told.json"}


@pytest.mark.parametrize(("module", "step"), [(os, "replace"), (fcntl, "flock")])
def test_a_draft_of_a_writer_that_lives_is_written(tmp_path, monkeypatch, module, step):
    """Another one looks for drafts left behind before this one has its lock, or its place."""
    path, own = tmp_path / "told.json", getattr(module, step)

    def after_another(*arguments):
        monkeypatch.setattr(module, step, own)
        write_whole(path, "another's")
        own(*arguments)

    monkeypatch.setattr(module, step, after_another)
    write_whole(path, "mine")
    assert path.read_text() == "mine"
    assert [entry.name for entry in tmp_path.iterdir()] == ["told.json"]


def test_a_file_and_then_its_name_are_on_the_disk(tmp_path, monkeypatch):
    path, synced, sync = tmp_path / "told.json", [], os.fsync

    def noted(handle):
        synced.append((stat.S_ISDIR(os.fstat(handle).st_mode), path.exists()))
        sync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    write_whole(path, "told")
    assert synced == [(False, False), (True, True)]


def test_a_secret_is_its_owners_alone_whatever_lay_there(tmp_path, monkeypatch):
    path = tmp_path / "key.pem"
    path.write_text("old")
    path.chmod(0o644)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("untouched")
    (tmp_path / ".key.pem.01234567.part").symlink_to(elsewhere)
    names = iter(["01234567", "89abcdef"])
    monkeypatch.setattr(secrets, "token_hex", lambda size: next(names))
    before = os.umask(0)
    try:
        write_whole(path, b"secret", mode=0o600)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes() == b"secret"
    assert elsewhere.read_text() == "untouched"


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path):
    path = tmp_path / "told.json"
    write_whole(path, "before")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "\ud800")
    assert path.read_text() == "before"


def test_a_lock_is_held_by_one_alone_until_it_is_let_go(tmp_path):
    path = tmp_path / "run.lock"
    held = lock_file(path)
    descriptors = len(os.listdir("/proc/self/fd"))
    with pytest.raises(BlockingIOError):
        lock_file(path)
    # Who is refused keeps nothing open.
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    os.close(held)
    os.close(lock_file(path))


def test_a_lock_makes_no_file_where_a_link_leads(tmp_path):
    """A folder of a stranger's would make files anywhere."""
    lock, elsewhere = tmp_path / "run.lock", tmp_path / "elsewhere"
    lock.symlink_to(elsewhere)
    with pytest.raises(OSError, match="symbolic links"):
        lock_file(lock)
    assert not elsewhere.exists()
    elsewhere.touch()
    os.close(lock_file(lock))


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for use in (open_regular, read_own, lock_file):
        with pytest.raises(OSError, match="pipe is no regular file"):
            use(pipe)
    (tmp_path / "file").write_bytes(b"told")
    with open_regular(tmp_path / "file") as file:
        assert file.read() == b"told"
    assert read_own(tmp_path / "file", most=4) == b"told"
    with pytest.raises(OSError, match="too large"):
        read_own(tmp_path / "file", most=3)


def test_what_cannot_be_written_is_one_sentence_and_leaves_nothing(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"folder: cannot be written \(Is a directory\); check"):
        write_or_refuse(tmp_path / "folder", "told")
    with pytest.raises(InputError, match=r"x: cannot be written \(Not a directory\); go away"):
        write_or_refuse(tmp_path / "file" / "x", b"told", cure="go away")
    with pytest.raises(InputError, match=r"x: cannot be written \(Not a directory\); check"):
        make_folder(tmp_path / "file" / "x")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder"]


@pytest.mark.parametrize("was_there", [False, True])
def test_a_folder_that_is_not_filled_is_as_it_was(was_there, tmp_path):
    """The same folder, for those whom its maker let in; what links lead to stays."""
    folder, other = tmp_path / "folder", tmp_path / "other"
    other.mkdir()
    (other / "kept").touch()
    if was_there:
        folder.mkdir(mode=0o700)
    before = folder.stat() if was_there else None

    def fill():
        (folder / "a" / "b").mkdir(parents=True)
        (folder / "a" / "file").touch()
        (folder / "link").symlink_to(other)
        (folder / "gone").symlink_to(tmp_path / "nowhere")
        (folder / "link").mkdir()

    with pytest.raises(FileExistsError), whole_folder(folder):
        fill()
    if before is not None:
        assert (folder.stat().st_ino, folder.stat().st_mode) == (before.st_ino, before.st_mode)
        assert list(folder.iterdir()) == []
    assert folder.exists() is was_there
    assert (other / "kept").is_file()


def test_a_folder_that_held_something_is_left_as_it_is(tmp_path):
    (tmp_path / "mine").touch()
    with pytest.raises(FileExistsError), whole_folder(tmp_path):
        (tmp_path / "mine").mkdir()
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_what_killed_writers_left_makes_no_folder_full(tmp_path):
    writer = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "new")], check=False)
    assert writer.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    handle = lock_file(left)
    assert not is_empty(tmp_path)
    os.close(handle)
    assert is_empty(tmp_path)
    for name in (".part", "new.01234567.part", ".01234567.part", ".new.0123456.part"):
        (tmp_path / name).touch()
        assert not is_empty(tmp_path)
        (tmp_path / name).unlink()
    (tmp_path / ".new.01234567.part").symlink_to(tmp_path)
    assert not is_empty(tmp_path)


@pytest.mark.parametrize("read", [load_feature_map, read_model, read_invitation])
def test_what_a_stranger_may_give_is_read_of_regular_files_alone(read, tmp_path):
    # A device stands here for a pipe, too, which would be waited for if this failed.
    path = tmp_path / "given.json"
    path.symlink_to(os.devnull)
    with pytest.raises(InputError, match=r"cannot be read \(given.json is no regular file\)"):
        read(path)


def test_a_secret_file_of_windows_is_its_line_alone(tmp_path):
    (tmp_path / "token").write_bytes(b"\xef\xbb\xbfcopriv_s3cret\r\n")
    assert read_secret("file:token", base=tmp_path, setting="token") == "copriv_s3cret"


def test_a_secret_that_is_a_folder_is_named(tmp_path):
    with pytest.raises(InputError, match=r"'file:/': the file cannot be read \(/ is no regular"):
        read_secret("file:/", base=tmp_path, setting="database")


def test_a_secret_behind_a_pipe_is_not_waited_for(tmp_path):
    # A device stands here for a pipe, too, which would be waited for if this failed.
    path = tmp_path / "token"
    path.symlink_to(os.devnull)
    for read in (
        lambda: read_secret("file:token", base=tmp_path, setting="token"),
        lambda: read_token(path, setting="policy.tokens.a"),
    ):
        with pytest.raises(InputError, match=r"cannot be read \(.*token is no regular file"):
            read()


def test_a_secret_without_an_end_is_not_read_into_memory(tmp_path):
    endless = tmp_path / "endless"
    with endless.open("wb") as file:
        file.truncate(2**40)
    paths = TlsSettings(ca=endless, certificate=endless, key=endless)
    for read in (
        lambda: read_secret("file:endless", base=tmp_path, setting="token"),
        lambda: read_token(endless, setting="policy.tokens.a"),
        lambda: load_identity(paths, base=tmp_path, side="client"),
    ):
        with pytest.raises(InputError, match="cannot be read"):
            read()
