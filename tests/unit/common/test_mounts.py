"""Whether other machines that share a disk see the locks of this one."""

import pytest

import common.mounts
from common.mounts import unshared_locks


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        ("nfs", "rw,vers=3,nolock,proto=tcp,local_lock=all,addr=10.0.0.1", "nfs, local_lock=all"),
        ("nfs4", "rw,vers=4.2,local_lock=flock", "nfs4, local_lock=flock"),
        ("nfs4", "rw,vers=4.2,local_lock=none,addr=10.0.0.1", None),
        # SQLite's locks alone stay here; the lock that keeps others out does not.
        ("nfs", "rw,vers=3,local_lock=posix", None),
        ("cifs", "rw,vers=3.1.1,nobrl", "cifs, nobrl"),
        ("ext4", "rw", None),
    ],
)
def test_options_tell_whether_a_lock_is_seen_elsewhere(kind, options, told, mounted, tmp_path):
    mounted(kind, options)
    assert unshared_locks(tmp_path) == told
    assert unshared_locks(tmp_path / "not there") is None


def test_where_the_system_does_not_tell_nothing_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(common.mounts, "MOUNTS", tmp_path / "gone")
    assert unshared_locks(tmp_path) is None
    (tmp_path / "odd").write_text("\n36 35 8:1\n")
    monkeypatch.setattr(common.mounts, "MOUNTS", tmp_path / "odd")
    assert unshared_locks(tmp_path) is None
