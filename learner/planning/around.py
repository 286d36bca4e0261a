"""What a step from the public model is told of the loss around it, by the public records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from common.domain import Domain
from common.gradient_bounds import largest_target
from learner.algorithms.shrinkage import Around, whitening
from learner.simulated.groups import PublicGroups

# Where public records change along their table, the entries of the owners' curvature are taken to
# differ from theirs by a tenth at least.
DRIFTING_SPREAD = 0.01


def around_drifting(public: PublicGroups, clip: float | None, *, doubts: bool) -> Around:
    """The same as :func:`around_public`, and where records drift the curvature does as well.

    Args:
      public: The public records in groups.
      clip: The clip.
      doubts: Whether what noise hides of the curvature is to make steps shorter, since another
        follows.
    """
    around = around_public(public, clip)
    if not public.drifts:
        return around
    spread = max(around.curvature_spread, DRIFTING_SPREAD)
    doubt = spread if doubts else 0.0
    return replace(around, curvature_spread=spread, drifts=True, doubt=doubt)


def around_public(public: PublicGroups, clip: float | None) -> Around:
    """What the public records say of the loss around their model, under a clip.

    Args:
      public: The public records and their model.
      clip: The L1 norm that gradients are scaled down to; None for no clipping.
    """
    problem, records, theta = public.problem, public.records, public.start
    x, n = records.features, len(records)
    each = problem.curvatures(theta, records, clip)
    curvature = (x * each[:, None]).T @ x / n
    clipped = problem.slopes(theta, records, clip) @ x / n
    whole = problem.slopes(theta, records, None) @ x / n
    ridge = problem.regulariser.strong_convexity * np.eye(theta.size)
    root = public.whitening @ public.scores.T / np.sqrt(n * max(n - theta.size, 1))
    basis = whitening(curvature + ridge)
    d = basis.shape[1]
    squares = each * np.sum((x @ basis) ** 2, axis=1)
    return Around(
        theta=theta,
        curvature=curvature,
        offset=clipped - whole - problem.regulariser.gradient(theta),
        pull=problem.outwards(theta, records) if problem.at_edge(theta).any() else None,
        # tr(H Cov theta_0) over the directions there are, and the mean variance of B'HB.
        spread=float(np.sum(root * ((curvature + ridge) @ root))) / d,
        curvature_spread=max(float(np.mean(squares**2)) - d, 0.0) / (d * d * n),
    )


def largest_gradient(public: PublicGroups, domain: Domain) -> float:
    r"""The largest L1 norm of an admissible record's gradient at the public model.

    .. math:: |\theta_0^\top x| \le \min(\sum_j |\theta_{0j}|\beta_j, \|\theta_0\|_\infty B)

    so it is at most what the whole box allows
    (:func:`common.gradient_bounds.domain_gradient_bound`).

    >>> from common.gradient_bounds import domain_gradient_bound
    >>> from common.losses import Regulariser, Squared
    >>> from common.terms import Records
    >>> from learner.simulated.problem import Problem
    >>> problem = Problem(loss=Squared(), regulariser=Regulariser(coefficient=0.0), theta_max=9.0)
    >>> records = Records(features=np.ones((2, 1)), targets=np.array([1.0, 3.0]))
    >>> public = PublicGroups(problem=problem, records=records, labels=None)
    >>> domain = Domain(feature_bound=np.full(1, 2.0), target_bound=4.0)
    >>> round(largest_gradient(public, domain), 9)
    32.0
    >>> domain_gradient_bound(problem.loss, domain, theta_max=problem.theta_max)
    88.0
    """
    loss, theta, B = public.problem.loss, np.abs(public.theta_optimal), domain.feature_l1_bound
    margin = min(float(theta @ domain.feature_bound), float(theta.max()) * B)
    return loss.slope_bound(margin, largest_target(loss, domain)) * B
