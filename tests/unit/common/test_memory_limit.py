"""No command takes more memory than the machine has."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from common.command import TOO_LARGE
from common.memory_limit import available_bytes

# It touches none of what it asks for, so where nothing refuses it takes no memory.
ASKS_FOR_ALL = """
import os, resource, click
import numpy as np
from common.command import run_command

def main():
    print(resource.getrlimit(resource.RLIMIT_DATA)[0])
    np.zeros(max(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), 2**32), np.uint8)

run_command(click.command(main), "copriv")
"""


def asks_for_all(limit: int) -> tuple[int, str]:
    """The limit of a command that asks for all memory and begins with this one; what it says."""
    both = (limit, resource.RLIM_INFINITY)
    run = subprocess.run(
        [sys.executable, "-c", ASKS_FOR_ALL],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, both),
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


def test_memory_that_a_system_does_not_tell_is_unknown(tmp_path):
    meminfo = tmp_path / "meminfo"
    assert available_bytes(meminfo) is None
    meminfo.write_text("MemTotal: 24646000 kB\n")
    assert available_bytes(meminfo) is None
    meminfo.write_text("MemTotal: 24646000 kB\nMemAvailable:   22000 kB\n")
    assert available_bytes(meminfo) == 22000 * 1024
