"""The order of additions is one, whatever the threads, and loses no record."""

import functools
import threading
from itertools import pairwise

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from common.losses import LOSSES, Squared
from common.stretches import BLOCK_CELLS, STRETCHES, block_records, stretches
from common.terms import Records
from owner.core import mean_curvature, mean_gradient
from owner.shards import Shard
from owner.sums import SHARED_CELLS, in_order, moment_sums

P = 7
# Blocks of more than one stretch, the last of them not full.
N = (STRETCHES + 5) * (BLOCK_CELLS // P) + 11


def big_records():
    rng = np.random.default_rng(0)
    targets = np.sign(rng.uniform(-1, 1, N))
    return Records(features=rng.normal(size=(N, P)), targets=targets)


RECORDS = big_records()
THETA = np.linspace(-0.5, 0.5, P)


@pytest.mark.parametrize("num_features", [1, 3, 100, 1000, BLOCK_CELLS, 3 * BLOCK_CELLS])
@pytest.mark.parametrize("blocks", [0.5, 1, 1.5, 15, 16, 17, 100])
def test_stretches_hold_every_record_once_in_order(num_features, blocks):
    n = max(1, int(blocks * block_records(num_features)))
    ranges = stretches(n, num_features)
    assert ranges[0][0] == 0
    assert ranges[-1][1] == n
    assert all(a[1] == b[0] for a, b in pairwise(ranges))
    assert all(start < stop for start, stop in ranges)
    assert len(ranges) <= STRETCHES
    assert all(start % block_records(num_features) == 0 for start, _ in ranges)


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_have_the_same_bits_on_any_number_of_threads(loss, clip):
    kind = LOSSES[loss].example()
    answers = [
        mean_gradient(Shard(RECORDS, threads=threads), THETA, loss=kind, clip=clip)
        for threads in (1, 2, 3, STRETCHES + 1)
    ]
    for answer in answers[1:]:
        np.testing.assert_array_equal(answer, answers[0])


def test_curvatures_have_the_same_bits_on_any_number_of_threads():
    kind = LOSSES["logistic"].example()
    one, two = (
        mean_curvature(Shard(RECORDS, threads=threads), THETA, loss=kind, clip=0.5)
        for threads in (1, 2)
    )
    np.testing.assert_array_equal(one, two)


# Of one feature sums are products of vectors, which threads of the library share.
@pytest.mark.parametrize("num_features", [1, P])
@pytest.mark.parametrize("blas_threads", [1, 2, 5])
def test_moments_have_the_same_bits_whatever_the_threads_of_the_process(blas_threads, num_features):
    features = np.ascontiguousarray(RECORDS.features[:, :num_features])
    with threadpool_limits(1):
        expected = moment_sums(features, RECORDS.targets, threads=1)
    with threadpool_limits(blas_threads):
        told = moment_sums(features, RECORDS.targets, threads=2)
        # The process's own choice is given back.
        given_back = {pool["num_threads"] for pool in threadpool_info()}
    for one, other in zip(expected, told, strict=True):
        np.testing.assert_array_equal(one, other)
    assert given_back == {blas_threads}


def test_moments_do_not_depend_on_where_records_lie_in_memory():
    expected = moment_sums(RECORDS.features, RECORDS.targets, threads=1)
    for offset in (8, 16, 40):
        room = np.empty(RECORDS.features.nbytes + offset, dtype=np.uint8)
        moved = room[offset:].view(np.float64).reshape(RECORDS.features.shape)
        moved[:] = RECORDS.features
        for one, other in zip(
            expected, moment_sums(moved, RECORDS.targets, threads=1), strict=True
        ):
            np.testing.assert_array_equal(one, other)


def test_sums_of_many_blocks_are_those_of_the_whole():
    x, y = RECORDS.features, RECORDS.targets
    gram, cross = moment_sums(x, y, threads=1)
    np.testing.assert_allclose(gram, x.T @ x, rtol=1e-11, atol=1e-6)
    np.testing.assert_allclose(cross, x.T @ y, rtol=1e-9, atol=1e-6)
    np.testing.assert_array_equal(gram, gram.T)
    loss = LOSSES["huber"].example()
    told = mean_gradient(Shard(RECORDS), THETA, loss=loss, clip=None)
    np.testing.assert_allclose(told, loss.mean_gradient(THETA, x, y), rtol=1e-10)
    curvature = mean_curvature(Shard(RECORDS), THETA, loss=Squared(), clip=None)
    np.testing.assert_allclose(curvature, 2.0 * x.T @ x / N, rtol=1e-11, atol=1e-9)


def test_stretches_are_added_by_one_thread_of_linear_algebra_each():
    seen = set()

    def part(start, stop):
        pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
        seen.update(pool["num_threads"] for pool in pools)
        return (np.ones(1),)

    with threadpool_limits(2):
        in_order(part, N, P, threads=1)
    assert seen == {1}


class Meeting:
    """Threads that each wait at their first call until all of them are there."""

    def __init__(self, threads):
        self._all_there = threading.Barrier(threads, timeout=20)
        self.came = set()

    def attend(self):
        if threading.get_ident() not in self.came:
            self.came.add(threading.get_ident())
            self._all_there.wait()


class MetSlopes(Squared):
    """Squared loss whose slopes are computed by threads that meet."""

    def slopes(self, margins, targets):
        MEETING.attend()
        return super().slopes(margins, targets)


MEETING = Meeting(1)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_so_many_threads_add_and_the_caller_is_one_of_them(threads):
    meeting = Meeting(threads)

    def part(start, stop):
        meeting.attend()
        return (np.array([float(stop - start)]),)

    (total,) = in_order(part, N, P, threads=threads)
    assert total == [N]
    assert len(meeting.came) == threads
    assert threading.get_ident() in meeting.came


@pytest.mark.parametrize("fails_at_caller", [True, False])
def test_what_fails_in_any_thread_fails_at_the_caller(fails_at_caller):
    meeting, caller = Meeting(2), threading.get_ident()

    def part(start, stop):
        meeting.attend()
        if (threading.get_ident() == caller) == fails_at_caller:
            raise ArithmeticError("no sum")
        return (np.array([float(stop - start)]),)

    with pytest.raises(ArithmeticError, match="no sum"):
        in_order(part, N, P, threads=2)


@pytest.mark.parametrize(("cells", "threads"), [(SHARED_CELLS - 1, 1), (SHARED_CELLS, 2)])
def test_few_cells_are_added_by_one_thread(cells, threads, monkeypatch):
    monkeypatch.setitem(globals(), "MEETING", Meeting(threads))
    shard = Shard(Records(features=np.ones((cells, 1)), targets=np.zeros(cells)), threads=2)
    told = mean_gradient(shard, np.ones(1), loss=MetSlopes(), clip=1.0)
    np.testing.assert_allclose(told, [1.0])
    assert len(MEETING.came) == threads


def test_stretches_are_added_in_their_order():
    parts = np.random.default_rng(1).normal(size=(N, 1))

    def part(start, stop):
        return (parts[start:stop].sum(axis=0),)

    ranges = stretches(N, P)
    in_turn, backwards = (
        functools.reduce(lambda total, its: total + part(*its)[0], order[1:], part(*order[0])[0])
        for order in (ranges, ranges[::-1])
    )
    assert in_turn != backwards
    for threads in (1, 3):
        (total,) = in_order(part, N, P, threads=threads)
        np.testing.assert_array_equal(total, in_turn)
