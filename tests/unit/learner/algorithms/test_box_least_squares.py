"""Least squares over the box, beside SciPy's own."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import lsq_linear

from learner.algorithms.box_least_squares import box_least_squares


@pytest.mark.parametrize("seed", range(60))
def test_the_solution_is_scipys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p, n = rng.integers(1, 12), rng.integers(1, 30)
    root = rng.normal(size=(n, p)) * np.exp(rng.normal(size=p))
    right = rng.normal(size=n) * np.exp(rng.normal())
    limit = float(np.exp(rng.normal() - 1.5))
    found = box_least_squares(root.T @ root, root.T @ right, theta_max=limit)
    best = lsq_linear(root, right, bounds=(-limit, limit), method="bvls", tol=1e-15)
    assert np.all(np.abs(found) <= limit)
    # Fewer equations than coordinates have many solutions: their sums of squares are equal.
    loss = 0.5 * float(np.sum((root @ found - right) ** 2))
    assert loss == pytest.approx(best.cost, rel=1e-9, abs=1e-12)
