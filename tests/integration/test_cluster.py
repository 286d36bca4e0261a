"""A sweep on a Dask cluster of this machine gives what it gives here."""

import math

import pytest

from learner.simulated.sweeps import run_sweep

distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of Dask's own, which is not ours to mend
]


def test_a_cluster_computes_the_same_points(tmp_path):
    points = {str(x): (x,) for x in range(-1, 6)}
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        there = run_sweep(root, points, cluster=cluster.scheduler_address, folder=tmp_path)
    here = run_sweep(root, points, jobs=1)
    assert there.results == here.results
    assert set(there.failures) == set(here.failures) == {"-1"}


def root(x):
    return {"root": math.sqrt(x)}
