r"""Many runs of the synchronous algorithms at once, vectorised over the runs.

Run r follows :mod:`learner.algorithms.synchronous` with its own noise and, if wanted, its own step
constant; with the same noise it follows the same trajectory up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from common.arrays import Flags, Matrix, Vector
from learner.algorithms.synchronous import SynchronousAverage, SynchronousDescent
from learner.simulated.replicates import GradientFunction, NoiseFunction


def run_rounds(
    algorithm: SynchronousDescent | SynchronousAverage,
    *,
    replicates: int,
    gradients: GradientFunction,
    noise: NoiseFunction | None = None,
    step: Vector | None = None,
    present: Flags | None = None,
    on_round: Callable[[int, Matrix], None] = lambda k, models: None,
) -> Matrix:
    """R runs of all T rounds side by side.

    Args:
      algorithm: What each run follows.
      replicates: The number R of runs.
      gradients: The owners' exact mean gradients.
      noise: The noise of their responses; None for none.
      step: A constant rho (Algorithm 1) or c1 (Algorithm 2) for each run, shape (R,).
      present: Who answers in each round of each run, somebody at least, shape (T, R, N); the
        others are stood for by those who do. None for everybody.
      on_round: Called with k and the results of all runs after each round, shape (R, p).

    Returns:
      The result of each run, shape (R, p).

    >>> from common.losses import Regulariser
    >>> from learner.simulated.replicates import ShardMoments, moment_gradients
    >>> descent = SynchronousDescent(weights=np.ones(1), num_features=1, theta_max=1.0,
    ...     regulariser=Regulariser(coefficient=0.0), rho=1.0, horizon=1)
    >>> moments = ShardMoments(gram=np.ones((1, 1, 1)), cross=np.full((1, 1), 0.25))
    >>> run_rounds(descent, replicates=1, gradients=moment_gradients(moments))
    array([[0.5]])
    """
    theta = np.zeros((replicates, algorithm.num_features))
    average = theta.copy()
    size = _sizes(algorithm, replicates, step)
    grad_g = algorithm.regulariser.strong_convexity
    d = 1.0 / math.sqrt(algorithm.horizon)
    box = np.inf if getattr(algorithm, "projection", True) is False else algorithm.theta_max
    answering = np.ones((0, 0)) if present is None else present @ algorithm.weights
    averages = isinstance(algorithm, SynchronousAverage)
    for k in range(1, algorithm.horizon + 1):
        total = grad_g * theta
        for owner, weight in enumerate(algorithm.weights):
            asked = np.full(replicates, owner)
            answers = gradients(asked, theta)
            if noise is not None:
                answers = answers + noise(asked)
            if present is None:
                total += weight * answers
            else:
                total += (weight * present[k - 1, :, owner] / answering[k - 1])[:, None] * answers
        average = (k - 1) / (d + k) * average + (d + 1) / (d + k) * theta
        theta = np.clip(theta - size(k) * total, -box, box)
        on_round(k, average if averages else theta)
    return average if averages else theta


def _sizes(
    algorithm: SynchronousDescent | SynchronousAverage, replicates: int, step: Vector | None
) -> Callable[[int], Matrix]:
    """The step of round k for each run, shape (R, 1)."""
    if isinstance(algorithm, SynchronousAverage):
        first = np.full(replicates, algorithm.initial_step) if step is None else step
        return lambda k: first[:, None] / math.sqrt(k)
    rho = np.full(replicates, algorithm.rho) if step is None else step
    return lambda k: rho[:, None] / (algorithm.horizon**2 * k)
