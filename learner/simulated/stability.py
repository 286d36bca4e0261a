r"""The largest stable step of Algorithm 1, from public records and public facts only.

Let an error of (6) lie along an eigenvector of the mean loss's Hessian with eigenvalue h, and let
w_i be n_i/n with Remark 4's factor. A tick of owner i turns theta_bar into the copy
:math:`(1-u_i)\,\bar\theta` by (5) and the central model :math:`(1-v)\,\bar\theta` by (7), with

.. math:: u_i = \alpha\,(c/N + w_i h), \qquad v = 2cr\,\alpha/N,

with (7)'s factor r, (N-1)/N as printed and 1/2 corrected. theta_bar is the mean of two models, so
its error is at most the larger of theirs. With :math:`0 \le u_i \le 2` and :math:`0 \le v \le 2`
neither factor is beyond 1 in size: no sequence of ticks can make the largest error of the N + 1
models grow, and the projection only shortens it. Hence

.. math:: \alpha_{max} = 2/\max\big(\max_i w_i h_{max} + c/N,\; 2cr/N\big),

where the second counts only if g curves more than the loss, and (7) is as printed. With one owner
oscillations begin to grow at twice that step; with several, the random order of owners decides in
between.

A clip shortens the gradients of records far from their targets: these push, but do not push harder
the farther the model is off. So h_max is that of the records that are not clipped at the optimum;
an error that is large enough for more of them to count is pulled back by the others' push.

Hinge loss has kinks instead of a curvature. There the largest step is the one whose strongest
answer moves a copy across half of the box.
"""

from __future__ import annotations

import numpy as np

from common.arrays import Flags, Matrix
from common.losses import Loss
from common.terms import Records
from learner.algorithms.asynchronous import Asynchronous
from learner.simulated.replicates import slot_weights

SMALLEST_REACH = float(np.finfo(float).tiny)
FEWEST_UNCLIPPED = 0.25


def largest_stable_step(
    algorithm: Asynchronous,
    public: Records,
    *,
    loss: Loss,
    counts: Flags | None = None,
) -> float:
    r"""The largest step alpha at which no tick sequence makes errors grow, on public records.

    For a loss whose second derivative is at most :math:`L`, with :math:`h_{max}` the largest
    eigenvalue of :math:`L X'X/n` and w Remark 4's weights:

    .. math:: \alpha_{max} = 2/\max\big(\max_i w_i\,h_{max} + c/N,\; 2cr/N\big)

    For a loss with kinks, with the largest mean absolute feature for :math:`h_{max}` and half of
    the box for what it may move: :math:`\alpha_{max} = \theta_{max}/(\max_i w_i \max_j E|x_j|)`.

    >>> from common.losses import Regulariser, Squared
    >>> one = Asynchronous(weights=np.ones(1), num_features=1, theta_max=1.0,
    ...     regulariser=Regulariser(coefficient=1e-9), rho=1.0, horizon=9)
    >>> public = Records(features=np.array([[1.0], [1.0]]), targets=np.ones(2))
    >>> round(largest_stable_step(one, public, loss=Squared()), 6)
    1.0
    """
    return float(stable_steps(algorithm, reach(public, loss, counts=counts), loss=loss)[0])


def stable_steps(
    algorithm: Asynchronous,
    reach: float | Matrix,
    *,
    loss: Loss,
    frequency: Matrix | None = None,
) -> Matrix:
    """The same for many runs, shape (R,), or (1,) without their frequencies.

    Args:
      algorithm: What runs.
      reach: What :func:`reach` says of the public records; one number, or any shape that goes with
        that of the runs.
      loss: The loss.
      frequency: Remark 4's frequencies in each run, shape (number of copies, R); None for the
        algorithm's own.
    """
    weight = slot_weights(algorithm, frequency).max(axis=0)
    if loss.curvature is None:
        return algorithm.theta_max / (weight * np.maximum(reach, SMALLEST_REACH))
    c, N = algorithm.regulariser.coefficient, algorithm.num_copies
    return 2.0 / np.maximum(weight * reach + c / N, 2.0 * c * algorithm.central_factor / N)


def reach(public: Records, loss: Loss, *, counts: Flags | None = None) -> float:
    """The largest curvature h_max, or the largest mean absolute feature where there is none.

    Args:
      public: The public records.
      loss: The loss.
      counts: The records that are not clipped, shape (n,); None for all. A quarter of them count
        at least: with next to none the linear picture says nothing.
    """
    x = public.features
    if loss.curvature is None:
        return float(np.max(np.mean(np.abs(x), axis=0)))
    largest = float(np.linalg.eigvalsh(x.T @ x / len(public))[-1])
    if counts is not None:
        kept = x[counts]
        unclipped = float(np.linalg.eigvalsh(kept.T @ kept / len(public))[-1])
        largest = max(unclipped, FEWEST_UNCLIPPED * largest)
    return loss.curvature * largest
