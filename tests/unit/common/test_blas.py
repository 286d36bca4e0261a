"""Linear algebra by one thread: for as long as anybody asks for it, and no longer."""

import subprocess
import sys
import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from common.blas import one_blas_thread

LATE = """
import sys
import numpy
from threadpoolctl import threadpool_info, threadpool_limits
from common.blas import one_blas_thread

def threads():
    return sorted(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")

threadpool_limits(2)
with one_blas_thread():
    import scipy.linalg
    threadpool_limits({pool["prefix"]: 2 for pool in threadpool_info()[1:]})
    with one_blas_thread():
        print(threads())
print(threads(), len(threadpool_info()))
"""


def threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.mark.parametrize("before", [1, 2, 3])
def test_what_was_before_is_given_back_by_the_last(before):
    with threadpool_limits(before):
        with one_blas_thread():
            with one_blas_thread():
                assert threads() == {1}
            assert threads() == {1}
        assert threads() == {before}


def test_it_is_given_back_after_an_error():
    with threadpool_limits(2):
        with pytest.raises(np.linalg.LinAlgError), one_blas_thread():
            np.linalg.inv(np.zeros((2, 2)))
        assert threads() == {2}


@pytest.mark.parametrize("is_first", [True, False])
def test_nobody_waits_and_the_last_of_several_threads_gives_it_back(is_first):
    inside, leave = threading.Event(), threading.Event()

    def other():
        with one_blas_thread():
            inside.set()
            assert leave.wait(10)

    thread = threading.Thread(target=other)
    with threadpool_limits(2):
        if is_first:
            thread.start()
            assert inside.wait(10)
        with one_blas_thread():
            if not is_first:
                thread.start()
                assert inside.wait(10)
            assert threads() == {1}
        assert threads() == {1}
        leave.set()
        thread.join()
        assert threads() == {2}


def test_a_library_that_is_loaded_later_is_limited_too():
    found = subprocess.run(
        [sys.executable, "-c", LATE], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert set(found[0].strip("[]").split(", ")) == {"1"}
    assert "1" not in found[1].split("]")[0]
