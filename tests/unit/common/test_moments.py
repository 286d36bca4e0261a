"""Moments in one release: their layout, and the bound on what one record changes."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.domain import Domain
from common.moments import (
    gram_change,
    moments_change,
    pack_moments,
    packed_length,
    unpack_moments,
)
from common.privacy import plan_noise
from common.terms import StudyTerms


def moments_of(x, y):
    return pack_moments(np.outer(x, x), x * y)


def admissible(rng, domain, *, corner):
    """A record of the domain; corners are where sensitivities are attained."""
    size = (
        rng.choice([0.0, 1.0], domain.num_features) if corner else rng.random(domain.num_features)
    )
    x = size * rng.choice([-1.0, 1.0], domain.num_features) * domain.feature_bound
    if domain.l1_radius is not None and np.abs(x).sum() > domain.l1_radius:
        x = x * domain.l1_radius / np.abs(x).sum()
    return x, rng.choice([-1.0, 1.0]) * domain.target_bound * (1.0 if corner else rng.random())


@settings(max_examples=150, deadline=None)
@given(
    bounds=st.lists(st.floats(0.1, 5.0), min_size=1, max_size=5),
    target=st.floats(0.1, 5.0),
    share=st.one_of(st.none(), st.floats(0.1, 1.0)),
    seed=st.integers(0, 2**32 - 1),
)
def test_replacing_a_record_never_changes_moments_by_more(bounds, target, share, seed):
    radius = None if share is None else share * sum(bounds)
    domain = Domain(feature_bound=np.array(bounds), target_bound=target, l1_radius=radius)
    rng, largest = np.random.default_rng(seed), 0.0
    for trial in range(60):
        a, b = (moments_of(*admissible(rng, domain, corner=trial % 2 == 0)) for _ in range(2))
        largest = max(largest, float(np.abs(a - b).sum()))
    assert largest <= moments_change(domain) * (1 + 1e-12)


def test_the_bound_is_attained_by_records_of_different_features():
    domain = Domain(feature_bound=np.full(4, 1.0), target_bound=3.0, l1_radius=2.0)
    a = moments_of(np.array([1.0, 1.0, 0.0, 0.0]), 3.0)
    b = moments_of(np.array([0.0, 0.0, 1.0, 1.0]), 3.0)
    assert np.abs(a - b).sum() == moments_change(domain) == 18.0


def test_the_bound_of_products_alone_is_attained_by_records_of_different_features():
    domain = Domain(feature_bound=np.full(4, 1.0), target_bound=3.0, l1_radius=2.0)
    a = moments_of(np.array([1.0, 1.0, 0.0, 0.0]), 0.0)
    b = moments_of(np.array([0.0, 0.0, 1.0, 1.0]), 0.0)
    assert np.abs(a - b).sum() == gram_change(domain) == 6.0


def test_packing_and_unpacking_are_inverse():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(9, 4)), rng.normal(size=9)
    gram, cross = unpack_moments(pack_moments(x.T @ x, y @ x), 4)
    np.testing.assert_array_equal(gram, x.T @ x)
    np.testing.assert_array_equal(cross, y @ x)


@pytest.mark.parametrize("epsilon", [Fraction(1, 3), Fraction(10)])
def test_noise_of_moments_is_their_change_over_epsilon(epsilon):
    domain = Domain(feature_bound=np.array([1.0, 2.0]), target_bound=4.0)
    terms = StudyTerms(
        study_id="s",
        loss="squared",
        theta_max=0.5,
        feature_map="",
        horizon=3,
        responses=1,
        epsilon=epsilon,
        release="moments",
    )
    plan = plan_noise(terms, domain, num_records=50)
    assert plan.dimension == packed_length(2) == 5
    expected = moments_change(domain) / 50 / float(epsilon)
    assert expected <= plan.noise_scale <= expected * (1 + 1e-5)
