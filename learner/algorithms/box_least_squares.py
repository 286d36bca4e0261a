"""Least squares over the box, from second moments."""

from __future__ import annotations

import numpy as np

from common.arrays import Matrix, Vector

__all__ = ["box_least_squares"]


def box_least_squares(A: Matrix, b: Vector, *, theta_max: float) -> Vector:
    """The minimum of theta'A theta - 2 b'theta over the box, shape (p,), for A >= 0.

    >>> box_least_squares(np.diag([2.0, 1.0]), np.array([1.0, 3.0]), theta_max=1.0).round(9)
    array([0.5, 1. ])
    """
    # A = root'root makes it p least-squares equations; null directions are left out.
    values, vectors = np.linalg.eigh(A)
    kept = values > values[-1] * 1e-14
    root = np.sqrt(values[kept])[:, None] * vectors[:, kept].T
    right = (vectors[:, kept].T @ b) / np.sqrt(values[kept])
    anywhere: Vector = np.linalg.lstsq(root, right, rcond=-1)[0]
    if np.all(np.abs(anywhere) <= theta_max):
        return anywhere
    from scipy.optimize import lsq_linear  # noqa: PLC0415 (most optima are inside the box)

    solution = lsq_linear(root, right, bounds=(-theta_max, theta_max), method="bvls", tol=1e-15)
    return np.clip(np.asarray(solution.x, dtype=np.float64), -theta_max, theta_max)
