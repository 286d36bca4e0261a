"""Freed memory is used again, not asked of the system anew."""

import ctypes
import subprocess
import sys

import pytest

# Three arrays of 12 MB at a time, 40 times; prints how many pages came empty from the system.
PROGRAM = """
import resource, sys
import numpy as np
from common.memory import reuse_memory

if sys.argv[1] == "reuse":
    reuse_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(40):
    arrays = [np.ones(1_500_000) for _ in range(3)]
    del arrays
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def empty_pages(how):
    run = [sys.executable, "-c", PROGRAM, how]
    return int(subprocess.run(run, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="another C library")
def test_arrays_are_made_in_the_memory_of_those_before():
    assert empty_pages("reuse") < 0.3 * empty_pages("not")
