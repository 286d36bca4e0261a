"""Dask clusters of this machine, for tests."""

from contextlib import contextmanager

import pytest

distributed = pytest.importorskip("distributed")


@contextmanager
def local_cluster(workers=2, *, processes=False):
    """The address of a scheduler with workers in this process, or in processes of their own."""
    with distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=processes, dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address
