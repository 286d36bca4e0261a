"""Least squares over the box, from second moments."""

from __future__ import annotations

import numpy as np

from common.arrays import Matrix, Vector

# How often it is guessed which coordinates lie at an edge, before a library searches.
GUESSES = 30
# Steps of the library for each coordinate: by itself it ends after one, often before the minimum.
SEARCHES = 100


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
    found = _by_guesses(root, right, theta_max)
    return _by_search(root, right, theta_max) if found is None else found


def _by_guesses(root: Matrix, right: Vector, theta_max: float) -> Vector | None:
    """The minimum, by guesses of which coordinates lie at an edge; None if none came true.

    First none of them does. What is then beyond an edge is put there, and what would rather be
    inside is let go (the primal-dual active set). A guess that is followed by itself fulfils the
    conditions of Karush, Kuhn and Tucker.

    References: Hintermüller, Ito and Kunisch (2002), The primal-dual active set strategy.
    """
    edges = np.zeros(root.shape[1])
    for _ in range(GUESSES):
        free, theta = edges == 0, theta_max * edges
        theta[free] = np.linalg.lstsq(root[:, free], right - root @ theta, rcond=-1)[0]
        stays = edges * (root.T @ (root @ theta - right)) < 0
        beyond = np.where(np.abs(theta) > theta_max, np.sign(theta), 0.0)
        guess = np.where(free, beyond, np.where(stays, edges, 0.0))
        if np.array_equal(guess, edges):
            return theta
        edges = guess
    return None


def _by_search(root: Matrix, right: Vector, theta_max: float) -> Vector:
    """The minimum by a library, one coordinate after the other."""
    from scipy.optimize import lsq_linear  # noqa: PLC0415 (few minima need it)

    bounds, most = (-theta_max, theta_max), SEARCHES * len(right)
    solution = lsq_linear(root, right, bounds=bounds, method="bvls", tol=1e-15, max_iter=most)
    return np.clip(np.asarray(solution.x, dtype=np.float64), -theta_max, theta_max)
