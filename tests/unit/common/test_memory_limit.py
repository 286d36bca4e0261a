"""No command takes more memory than the machine has, or its container may take."""

import os
import resource
import subprocess
import sys

import pytest

from common.command import TOO_LARGE
from common.memory_limit import available_bytes, memory_bytes
from common.start import NO_LINUX, TOO_LITTLE, start

# It touches none of what it asks for, so where nothing refuses it takes no memory.
ASKS_FOR_ALL = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv.pop()), resource.RLIM_INFINITY))
import click
import numpy as np
from common.command import run_command

def main():
    print(resource.getrlimit(resource.RLIMIT_DATA)[0])
    np.zeros(max(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), 2**32), np.uint8)

run_command(click.command(main), "copriv")
"""


def asks_for_all(limit):
    """The limit of a command that asks for all memory and begins with this one; what it says."""
    run = subprocess.run(
        [sys.executable, "-c", ASKS_FOR_ALL, str(limit)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    return int(run.stdout), run.stderr


@pytest.mark.skipif(available_bytes() is None, reason="a system that does not say what is left")
def test_more_memory_than_the_machine_has_is_one_sentence():
    limit, said = asks_for_all(resource.RLIM_INFINITY)
    assert limit >= 2**32
    assert said == f"copriv: {TOO_LARGE}\n"
    assert asks_for_all(2**31)[0] == 2**31


def system(root, files):
    """The files that a system has about its memory; 22 GB of it are left."""
    for name, text in {"proc/meminfo": "MemAvailable:  22000000 kB\n", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_memory_that_a_system_does_not_tell_is_unknown(tmp_path):
    assert available_bytes(tmp_path) is None
    assert available_bytes(system(tmp_path, {"proc/meminfo": "MemTotal: 24646000 kB\n"})) is None
    assert available_bytes(system(tmp_path, {})) == 22_000_000 * 1024
    assert memory_bytes(tmp_path) == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def group(place, limit, *, version=2):
    """The files of a control group that uses 900 bytes, of which 300 are files read before."""
    names = ("memory.max", "memory.current")
    stat = "anon 600\ninactive_file 100\nactive_file 200\n"
    if version == 1:
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
        stat = "inactive_file 7\nactive_file 7\ntotal_inactive_file 100\ntotal_active_file 200\n"
    files = {names[0]: f"{limit}\n", names[1]: "900\n", "memory.stat": stat}
    return {f"sys/fs/cgroup/{place}/{name}": text for name, text in files.items()}


@pytest.mark.parametrize(
    ("member", "groups"),
    [
        # As a container sees it, with names of its own or those of the machine.
        ("0::/\n", group("", "1000")),
        ("4:memory:/docker/1f\n3:cpu:/docker/1f\n", group("memory", "1000", version=1)),
        # As the machine does: any group above may have the smallest limit.
        (
            "0::/user.slice/a.scope\n",
            group("user.slice", "1000") | group("user.slice/a.scope", "max"),
        ),
        (
            "7:memory:/a/b\n0::/\n",
            group("memory", "9223372036854771712", version=1)
            | group("memory/a", "1000", version=1)
            | group("memory/a/b", "2000", version=1),
        ),
    ],
)
def test_a_container_has_what_its_group_may_take(tmp_path, member, groups):
    root = system(tmp_path, {"proc/self/cgroup": member, **groups})
    assert memory_bytes(root) == 1000
    assert available_bytes(root) == 400


def test_groups_without_a_limit_change_nothing(tmp_path):
    files = group("", "max") | group("memory", "9223372036854771712", version=1)
    root = system(tmp_path, {"proc/self/cgroup": "1:memory:/\n0::/\n3:name=a:b:/c\n", **files})
    assert available_bytes(root) == 22_000_000 * 1024
    assert memory_bytes(root) == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_a_group_that_is_full_has_nothing_left(tmp_path):
    root = system(tmp_path, {"proc/self/cgroup": "0::/\n", **group("", "500")})
    assert available_bytes(root) == 0


def test_another_system_is_told_where_copriv_runs(monkeypatch, capfd):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SystemExit) as ended:
        start("copriv", "not imported")
    assert (ended.value.code, capfd.readouterr().err) == (2, f"copriv: {NO_LINUX}\n")


# As they came of pandas, and of OpenDP.
MISSED = (
    "ImportError('timedeltas.so: failed to map segment from shared object')",
    "Exception('Unable to load', OSError('opendp.so: failed to map segment from shared object'))",
    "OSError(12, 'Cannot allocate memory')",
    "MemoryError()",
)


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("error", MISSED)
def test_a_library_that_finds_no_room_ends_a_command_in_a_sentence(error, is_late, tmp_path):
    run = f"raise {error}\n"
    (tmp_path / "late.py").write_text(f"def main(): {run}" if is_late else run)
    said = subprocess.run(
        [sys.executable, "-c", "from common.start import start; start('copriv', 'late')"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (said.returncode, said.stderr) == (2, f"copriv: {TOO_LITTLE}\n")
