import os
from importlib import metadata
from pathlib import Path

import pytest

from common import machine
from common.findings import State
from common.machine import (
    folder_finding,
    lies_within,
    machine_findings,
    memory_finding,
    mode_finding,
)
from common.own_files import is_read_by_others
from common.tables import TableSource


def states(path):
    return {one.rule: one.state for one in machine_findings(path)}


@pytest.mark.parametrize(
    ("version", "bounds", "keeps"),
    [
        ("1.0", ">=1", True),
        ("1.9.2", ">=1.10", False),
        ("0.17", "<0.17,>=0.13", False),
        ("2.0rc1", ">=2.0", True),
        ("3.11.7", ">=3.11", True),
    ],
)
def test_versions_are_compared_by_their_numbers(version, bounds, keeps):
    assert lies_within(version, bounds) is keeps


def test_a_library_that_is_too_old_or_missing_is_named(tmp_path, monkeypatch):
    wanted = ["numpy>=999", "click>=8", "no-such-library>=1", 'joblib>=999; extra == "lab"']
    monkeypatch.setattr(metadata, "requires", lambda _: wanted)
    found = next(one for one in machine_findings(tmp_path) if one.rule == "libraries")
    assert found.state is State.FAILS
    assert "is not >=999" in found.words
    assert "no-such-library is missing" in found.words
    assert "click" not in found.words
    assert "joblib" not in found.words


def test_a_clock_before_the_settings_were_written_is_found(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text("")
    assert states(path)["clock"] is State.PASSES
    os.utime(path, (4e9, 4e9))
    assert states(path)["clock"] is State.FAILS


def test_random_numbers_that_are_not_ready_are_found(tmp_path, monkeypatch):
    def not_ready(size, flags):
        raise BlockingIOError

    monkeypatch.setattr(os, "getrandom", not_ready)
    assert states(tmp_path)["entropy"] is State.FAILS


def test_a_disk_without_room_is_found(tmp_path, monkeypatch):
    assert folder_finding("runs", tmp_path / "not" / "made").state is State.PASSES
    assert folder_finding("runs", Path("/proc")).state is State.FAILS
    monkeypatch.setattr(machine, "LEAST_ROOM_BYTES", 2**80)
    assert "make room" in folder_finding("runs", tmp_path).words


def test_a_file_of_another_user_is_found_and_what_to_do(tmp_path, monkeypatch):
    path = tmp_path / "key.pem"
    path.write_text("")
    path.chmod(0o600)
    assert mode_finding("key", path).state is State.PASSES
    monkeypatch.setattr(os, "access", lambda *_: False)
    words = mode_finding("key", path).words
    assert "this user may not read it (mode 600); type this as the user" in words


@pytest.mark.parametrize(
    ("user", "mode", "is_read"),
    [
        (0, 0o440, False),
        (0, 0o640, False),
        (0, 0o660, True),
        (0, 0o444, True),
        (10001, 0o600, False),
        (10001, 0o640, True),
    ],
)
def test_a_group_may_read_what_root_lends_to_a_service(monkeypatch, user, mode, is_read):
    monkeypatch.setattr(os, "geteuid", lambda: 10001)
    found = os.stat_result((mode, 1, 1, 1, user, 10001, 9, 1, 1, 1))
    assert is_read_by_others(found) is is_read
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert is_read_by_others(found) is (mode != 0o600)


def test_a_private_file_that_others_can_replace_is_found(tmp_path):
    path = tmp_path / "mine" / "key.pem"
    path.parent.mkdir()
    path.write_text("")
    path.chmod(0o600)
    link = tmp_path / "link.pem"
    link.symlink_to(path)
    path.parent.chmod(0o1777)
    assert mode_finding("key", path).state is State.PASSES
    path.parent.chmod(0o777)
    for each in (path, link):
        words = mode_finding("key", each).words
        assert words == f"{each}: others can replace it; chmod o-w {path.parent}"


def test_a_table_larger_than_the_memory_is_found():
    assert memory_finding(2**20, TableSource()).state is State.PASSES
    assert memory_finding(2**60, TableSource()).state is State.FAILS
    assert memory_finding(2**60, TableSource(rows=":9")).state is State.UNCHECKED
