"""Least squares over the box, from second moments."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from common.arrays import Matrix, Vector

__all__ = ["box_least_squares", "box_solver"]


def box_least_squares(A: Matrix, b: Vector, *, theta_max: float) -> Vector:
    """The minimum of theta'A theta - 2 b'theta over the box, shape (p,), for A >= 0.

    >>> box_least_squares(np.diag([2.0, 1.0]), np.array([1.0, 3.0]), theta_max=1.0).round(9)
    array([0.5, 1. ])
    """
    return box_solver(A, theta_max=theta_max)(b)


def box_solver(
    A: Matrix, *, theta_max: float, is_outside: bool = False
) -> Callable[[Vector], Vector]:
    """The same for one A and many b: b, shape (p,), to the minimum.

    Args:
      A: The matrix.
      theta_max: Half the side of the box.
      is_outside: Whether minima over all models are known not to be in the box: they are not
        looked for then.
    """
    # A = root'root makes it p least-squares equations; null directions are left out.
    values, vectors = np.linalg.eigh(A)
    kept = values > values[-1] * 1e-14
    root = np.sqrt(values[kept])[:, None] * vectors[:, kept].T

    def solve(b: Vector) -> Vector:
        right = (vectors[:, kept].T @ b) / np.sqrt(values[kept])
        if not is_outside:
            anywhere: Vector = np.linalg.lstsq(root, right, rcond=-1)[0]
            if np.all(np.abs(anywhere) <= theta_max):
                return anywhere
        from scipy.optimize import lsq_linear  # noqa: PLC0415 (most optima are inside the box)

        bounds = (-theta_max, theta_max)
        solution = lsq_linear(root, right, bounds=bounds, method="bvls", tol=1e-15)
        return np.clip(np.asarray(solution.x, dtype=np.float64), -theta_max, theta_max)

    return solve
