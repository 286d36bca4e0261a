"""The bound on one record's gradient: nothing in the domain exceeds it, something reaches it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, find, given, settings, target
from hypothesis import strategies as st

from common.domain import Domain
from common.losses import LOSSES, domain_gradient_bound
from common.terms import Records
from owner.core import Shard, mean_gradient

# Corners among them: the largest gradients are there.
PLACES = st.one_of(st.sampled_from([-1.0, 1.0, 0.0]), st.floats(-1, 1, allow_subnormal=False))
SIZES = st.floats(1e-3, 1e3, allow_subnormal=False)


@dataclass(frozen=True)
class Attempt:
    """A domain, and one record and one theta in it."""

    domain: Domain
    theta_max: float
    x: np.ndarray
    y: float
    theta: np.ndarray

    def ratio(self, name: str) -> float:
        """The record's gradient, L1 norm, against the bound."""
        gradient = (
            LOSSES[name].example().mean_gradient(self.theta, self.x[None, :], np.array([self.y]))
        )
        bound = domain_gradient_bound(LOSSES[name].example(), self.domain, theta_max=self.theta_max)
        return float(np.abs(gradient).sum() / bound)


@st.composite
def attempts(draw: Any, name: str, *, simple: bool = False) -> Attempt:
    p = draw(st.integers(1, 3))
    bound = np.array(draw(st.lists(SIZES, min_size=p, max_size=p)))
    radius = None if simple else draw(st.none() | st.floats(0.1, 2).map(lambda r: r * bound.sum()))
    y_bound, theta_max = draw(SIZES), draw(SIZES)
    x = bound * np.array(draw(st.lists(PLACES, min_size=p, max_size=p)))
    if radius is not None and np.abs(x).sum() > radius:
        x = x * (radius / np.abs(x).sum())
    theta = theta_max * np.array(draw(st.lists(PLACES, min_size=p, max_size=p)))
    classes = LOSSES[name].targets
    y = draw(st.sampled_from(classes)) if classes else y_bound * draw(PLACES)
    domain = Domain(feature_bound=bound, target_bound=y_bound, l1_radius=radius)
    return Attempt(domain, theta_max, x, y, theta)


@pytest.mark.parametrize("name", LOSSES)
@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_no_record_and_theta_of_any_domain_exceed_the_bound(name: str, data: Any) -> None:
    ratio = data.draw(attempts(name)).ratio(name)
    target(ratio)
    assert ratio <= 1 + 1e-12


@pytest.mark.parametrize("name", LOSSES)
def test_some_record_and_theta_reach_99_percent_of_the_bound(name: str) -> None:
    found = find(
        attempts(name, simple=True),
        lambda attempt: attempt.ratio(name) >= 0.99,
        settings=settings(max_examples=20_000, deadline=None, database=None),
    )
    assert found.ratio(name) >= 0.99


@pytest.mark.parametrize("name", LOSSES)
@given(data=st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_replacing_one_record_moves_the_mean_by_at_most_the_sensitivity(
    name: str, data: Any
) -> None:
    """Whatever the records of two neighbours: 2 Xi/n by the domain, 2 C/n by the clip."""
    one = data.draw(attempts(name))
    others = data.draw(st.integers(0, 3))
    x = np.zeros((others + 1, one.x.size))
    y = np.full(others + 1, 1.0)
    for row in range(others + 1):
        x[row] = one.x * data.draw(PLACES)
        y[row] = data.draw(st.sampled_from([-1.0, 1.0])) * min(1.0, one.domain.target_bound)
    if LOSSES[name].has_classes():
        y = np.sign(y)
    replaced_x, replaced_y = x.copy(), y.copy()
    replaced_x[0], replaced_y[0] = one.x, one.y
    bound = domain_gradient_bound(LOSSES[name].example(), one.domain, theta_max=one.theta_max)
    for clip in (None, bound / 1000, bound / 2, bound * 10):
        a, b = (
            mean_gradient(
                Shard(Records(features=features, targets=targets)),
                one.theta,
                loss=LOSSES[name].example(),
                clip=clip,
            )
            for features, targets in ((x, y), (replaced_x, replaced_y))
        )
        limit = 2 * (bound if clip is None else min(bound, clip)) / (others + 1)
        assert np.abs(a - b).sum() <= limit * (1 + 1e-9) + 1e-12 * bound
