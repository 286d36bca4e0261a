"""Least squares over the box, from second moments."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from common.arrays import Matrix, Vector

__all__ = ["box_least_squares"]

Signs = NDArray[np.int64]

# Gradients, and relative gains of a step, that are none.
NOTHING = 1e-15


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
    found = _within(root, right, anywhere, theta_max)
    return np.clip(found, -theta_max, theta_max)


def _within(root: Matrix, right: Vector, start: Vector, limit: float) -> Vector:
    """The least-squares solution with no coordinate beyond a limit, shape (p,).

    Each coordinate is free or on one side of the box. In turn the one whose gradient pulls most
    strongly inwards is let free, and the free ones go to their best place or to the first side on
    the way. SciPy's ``lsq_linear(method="bvls")`` takes the same steps; importing it takes longer
    than they do.

    References: Stark and Parker (1995).
    """
    x = np.clip(start, -limit, limit)
    side: Signs = _side(start >= limit, start <= -limit)
    free = np.flatnonzero(side == 0)
    while free.size:
        z = _best(root, right, x, side, free)
        x[free] = np.clip(z, -limit, limit)
        side[free] = _side(z > limit, z < -limit)
        if not side[free].any():
            break
        free = free[side[free] == 0]
    loss, gradient = _told(root, right, x)
    for _ in range(len(x)):
        if np.max(np.where(side == 0, np.abs(gradient), gradient * side)) < NOTHING:
            break
        side[np.argmax(gradient * side)] = 0
        _let_go(root, right, x, side, limit)
        before = loss
        loss, gradient = _told(root, right, x)
        if before - loss < NOTHING * before:
            break
    return x


def _let_go(root: Matrix, right: Vector, x: Vector, side: Signs, limit: float) -> None:
    """Move the free coordinates to their best place; those on the way to it stay on a side."""
    while True:
        free = np.flatnonzero(side == 0)
        z = _best(root, right, x, side, free)
        beyond = np.concatenate([np.flatnonzero(z < -limit), np.flatnonzero(z > limit)])
        if not beyond.size:
            x[free] = z
            return
        ends = np.where(z[beyond] > limit, limit, -limit)
        shares = (ends - x[free][beyond]) / (z[beyond] - x[free][beyond])
        first = np.argmin(shares)
        x[free] = x[free] * (1 - shares[first]) + shares[first] * z
        side[free[beyond[first]]] = np.sign(ends[first])


def _side(above: NDArray[np.bool_], below: NDArray[np.bool_]) -> Signs:
    """1 on the upper side, -1 on the lower one, 0 between."""
    return above.astype(np.int64) - below.astype(np.int64)


def _best(root: Matrix, right: Vector, x: Vector, side: Signs, free: NDArray[np.intp]) -> Vector:
    """The best place of the free coordinates while the others stay."""
    rest = right - root.dot(x * (side != 0))
    best: Vector = np.linalg.lstsq(root[:, free], rest, rcond=None)[0]
    return best


def _told(root: Matrix, right: Vector, x: Vector) -> tuple[float, Vector]:
    """Half the sum of squares, and its gradient."""
    rest = root.dot(x) - right
    return 0.5 * float(np.dot(rest, rest)), root.T.dot(rest)
