"""How far what groups seem to differ by is known, group by group."""

import numpy as np
import pytest

from learner.simulated.components import components


def test_a_group_counts_by_the_directions_in_which_records_vary():
    """Of two directions, one of which hardly varies, there is little more than one."""
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(600, 2)) * [3.0, 0.3]
    scores[:300, 0] += 1.0
    scores -= scores.mean(axis=0)
    sizes = np.array([300.0, 200.0, 100.0])
    means = np.stack([part.mean(axis=0) for part in np.split(scores, [300, 500])])
    excess = np.sum(means**2, axis=1)
    found = components(sizes, excess, scores)
    covariance = scores.T @ scores / 600
    directions = np.trace(covariance) ** 2 / np.sum(covariance**2)
    assert 1.0 < directions < 1.1
    chance = found.within / sizes
    weight = directions * (found.all_groups / (found.all_groups + chance)) ** 2
    own = np.maximum(excess - chance, 0.0)
    expected = (4.0 * found.all_groups + weight * own) / (4.0 + weight)
    assert found.each_group == pytest.approx(expected, rel=1e-12)
