r"""How much each owner's answer counts in a step, where owners have unequal records or budgets.

With :math:`s_i = n_i/n` of the records each, all owners' mean gradient is :math:`\sum s_i g_i`, and
an owner of few records adds as much noise to it as one of many. Counted by shares w instead, what
is released is off by

.. math:: \mathrm{E}\Big\|\sum_i w_i(g_i + W_i) - \sum_i s_i g_i\Big\|^2
          = \sum_i \big((w_i - s_i)^2 V_i + w_i^2 N_i\big), \qquad V_i = D_i + \frac{t}{n_i}

where :math:`D_i` is what owner i's mean gradient differs by from that of all, t what single
records' do, and :math:`N_i` the noise, all where the public curvature is I. It is least, with
shares that sum to 1, for

.. math:: w_i = \frac{s_i V_i + \lambda}{V_i + N_i}, \qquad
          \lambda = \sum_i \frac{s_i N_i}{V_i + N_i} \Big/ \sum_i \frac{1}{V_i + N_i}

so owners that differ much, or add little noise, count by their records; and the more noise hides
what they differ by, the more they count by their budgets, :math:`(n_i\epsilon_i)^2`.

What owners differ by is known from few public records. So shares other than those of the records
must be worth a quarter, as ways of learning must; and where no groups of public records show it, or
records drift, so that owners may be beyond all of them, all count by their records.

References: Cochran (1954), The combination of estimates from different experiments. DerSimonian and
Laird (1986), Meta-analysis in clinical trials.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from common.arrays import Vector
from learner.planning.ways import LEVEL
from learner.simulated.groups import PublicGroups, drifts_within
from learner.simulated.surrogates import ASSUMED_DIFFERENCE


def counted_shares(
    public: PublicGroups, num_records: Vector, scales: Vector, *, known: Sequence[int | None]
) -> Vector | None:
    """How much each owner's mean gradient counts, shape (N,), summing to 1.

    Args:
      public: The public records in groups.
      num_records: Each owner's n_i, shape (N,).
      scales: Scale of the Laplace noise in each coordinate of an owner's gradient, shape (N,).
      known: The group that each owner is known to be, or None.

    Returns:
      None where owners count by their records.
    """
    records = num_records / num_records.sum()
    noise = 2.0 * scales**2 * float(np.sum(public.whitening**2))
    # The least noise there is, and what would be won if owners did not differ.
    least = 1.0 / float(np.sum(1.0 / noise)) if np.all(noise > 0.0) else np.inf
    if not (LEVEL * least < float(records**2 @ noise) and _tells_apart(public)):
        return None
    found = public.components
    each = [
        float(found.each_group[group]) if group in public.usable else found.all_groups
        for group in known
    ]
    # What groups of few records do not show is assumed as it is in worlds.
    differs = np.maximum(each, ASSUMED_DIFFERENCE**2 * found.within)
    varies = differs + found.within / num_records
    best = best_shares(num_records, varies, noise)
    error = float((best - records) ** 2 @ varies + best**2 @ noise)
    return best if LEVEL * error < float(records**2 @ noise) else None


def _tells_apart(public: PublicGroups) -> bool:
    """Whether groups of public records show how owners differ."""
    return public.labels is not None and len(public.usable) > 1 and not drifts_within(public)


def best_shares(num_records: Vector, varies: Vector, noise: Vector) -> Vector:
    """The w of the least error, shape (N,).

    Args:
      num_records: The n_i, shape (N,).
      varies: The V_i, above 0, shape (N,).
      noise: The N_i, shape (N,).

    >>> n = np.array([300.0, 100.0])
    >>> [best_shares(n, each, 1.0 / n**2).round(3).tolist() for each in (n, 1e-9 / n)]
    [[0.75, 0.25], [0.9, 0.1]]
    """
    shares = num_records / num_records.sum()
    total = varies + noise
    spare = float(np.sum(shares * noise / total)) / float(np.sum(1.0 / total))
    return (shares * varies + spare) / total
