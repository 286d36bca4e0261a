"""The bound on one record's gradient: nothing in the domain exceeds it, something reaches it."""

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, target
from hypothesis import strategies as st

from common.domain import Domain
from common.gradient_bounds import domain_gradient_bound
from common.losses import LOSSES
from common.moments import gram_change, pack_moments
from common.releases import NEWTON, curvature_scale, gradient_bound
from common.terms import Records, StudyTerms
from owner.core import exact_answer, mean_gradient
from owner.shards import Shard

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

    def ratio(self, name):
        """The record's gradient, L1 norm, against the bound."""
        gradient = (
            LOSSES[name].example().mean_gradient(self.theta, self.x[None, :], np.array([self.y]))
        )
        bound = domain_gradient_bound(LOSSES[name].example(), self.domain, theta_max=self.theta_max)
        return float(np.abs(gradient).sum() / bound)


def within(radius, x):
    """The features, brought within an L1 radius."""
    norm = float(np.abs(x).sum())
    return x if radius is None or norm <= radius else x * (radius / norm)


@st.composite
def attempts(draw, name):
    p = draw(st.integers(1, 3))
    bound = np.array(draw(st.lists(SIZES, min_size=p, max_size=p)))
    radius = draw(st.none() | st.floats(0.1, 2).map(lambda r: r * bound.sum()))
    y_bound, theta_max = draw(SIZES), draw(SIZES)
    x = within(radius, bound * np.array(draw(st.lists(PLACES, min_size=p, max_size=p))))
    theta = theta_max * np.array(draw(st.lists(PLACES, min_size=p, max_size=p)))
    classes = LOSSES[name].targets
    y = draw(st.sampled_from(classes)) if classes else y_bound * draw(PLACES)
    domain = Domain(feature_bound=bound, target_bound=y_bound, l1_radius=radius)
    return Attempt(domain, theta_max, x, y, theta)


@pytest.mark.parametrize("name", LOSSES)
@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_no_record_and_theta_of_any_domain_exceed_the_bound(name, data):
    ratio = data.draw(attempts(name)).ratio(name)
    target(ratio)
    assert ratio <= 1 + 1e-12


@pytest.mark.parametrize("name", LOSSES)
@given(data=st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_replacing_one_record_moves_the_mean_by_at_most_the_sensitivity(name, data):
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


SMOOTH = [name for name in LOSSES if LOSSES[name].curvature is not None]


@dataclass(frozen=True)
class Neighbours:
    """Two shards of a domain that differ in their first record, and terms that cover them."""

    domain: Domain
    terms: StudyTerms
    theta: np.ndarray
    shards: tuple[Shard, Shard]

    @property
    def change(self):
        """How far a record moves n_i times the exact response, L1, against what is promised."""
        first, second = (exact_answer(shard, self.theta, self.terms) for shard in self.shards)
        moved = np.abs(first - second).sum() * len(self.shards[0].records)
        return float(moved / NEWTON.change(self.terms, self.domain))


@st.composite
def neighbours(draw, name):
    """Newton's step of any domain, with a clip or without, and with any share for curvature."""
    one = draw(attempts(name))
    loss, p = LOSSES[name].example(), one.x.size

    def record():
        places = np.array(draw(st.lists(PLACES, min_size=p, max_size=p)))
        x = within(one.domain.l1_radius, one.domain.feature_bound * places)
        y = draw(st.sampled_from(loss.targets or (-1.0, 1.0)))
        return x, y if loss.has_classes() else y * one.domain.target_bound

    kept = [record() for _ in range(draw(st.integers(0, 2)))]
    shards = tuple(
        Shard(
            Records(
                features=np.array([x for x, _ in (first, *kept)]),
                targets=np.array([y for _, y in (first, *kept)]),
            )
        )
        for first in ((one.x, one.y), record())
    )
    terms = StudyTerms(
        study_id="s",
        **loss.as_terms(),
        theta_max=one.theta_max,
        feature_map="",
        horizon=1,
        responses=1,
        epsilon=Fraction(1),
        release="newton",
        curvature_scale=1.0,
    )
    bound = gradient_bound(terms, one.domain)
    terms = replace(terms, clip=draw(st.none() | st.sampled_from([1e-3, 0.5, 10.0])))
    if terms.clip is not None:
        terms = replace(terms, clip=terms.clip * bound)
    share = draw(st.sampled_from([0.001, 0.3, 0.999]))
    factor = curvature_scale(loss, one.domain, bound=gradient_bound(terms, one.domain), share=share)
    terms = replace(terms, curvature_scale=factor)
    return Neighbours(one.domain, terms, one.theta, (shards[0], shards[1]))


@pytest.mark.parametrize("name", SMOOTH)
@given(data=st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_replacing_one_record_moves_curvature_and_gradient_by_at_most_the_sensitivity(name, data):
    """Together, in L1, with any factor, clipped or not, and whatever the other records are."""
    ratio = data.draw(neighbours(name)).change
    target(ratio)
    assert ratio <= 1 + 1e-9


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("name", SMOOTH)
def test_a_record_that_turns_round_moves_a_small_factors_response_by_nearly_the_sensitivity(
    name, clip
):
    pair = _turned(name, share=0.001, clip=clip)
    assert 0.97 <= pair.change <= 1 + 1e-9


@pytest.mark.parametrize("name", SMOOTH)
def test_records_of_different_features_move_a_large_factors_response_by_nearly_the_sensitivity(
    name,
):
    """Two records of different features at the radius, both where the curvature is largest."""
    pair = _turned(name, share=0.999, clip=None, apart=True)
    assert 0.97 <= pair.change <= 1 + 1e-9


def _turned(name, *, share, clip, apart=False):
    """Neighbours whose first records are as far from each other as a small box lets them be."""
    loss = LOSSES[name].example()
    target_bound = 1.0 if loss.has_classes() else 1e-3
    domain = Domain(feature_bound=np.ones(4), target_bound=target_bound, l1_radius=2.0)
    one = np.array([1.0, 1.0, 0.0, 0.0])
    pair = [(one, 1.0), (one[::-1] if apart else one, -1.0)]
    rest = np.zeros(4)
    terms = StudyTerms(
        study_id="s",
        **loss.as_terms(),
        theta_max=1e-6,
        feature_map="",
        horizon=1,
        responses=1,
        epsilon=Fraction(1),
        release="newton",
        curvature_scale=1.0,
    )
    if clip is not None:
        terms = replace(terms, clip=clip * gradient_bound(terms, domain))
    factor = curvature_scale(loss, domain, bound=gradient_bound(terms, domain), share=share)
    shards = [
        Shard(Records(features=np.array([x, rest]), targets=target_bound * np.array([y, 1.0])))
        for x, y in pair
    ]
    terms = replace(terms, curvature_scale=factor)
    return Neighbours(domain, terms, np.zeros(4), (shards[0], shards[1]))


@given(data=st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_squares_times_any_factors_up_to_one_move_by_at_most_the_grams_change(data):
    """What Newton's sensitivity rests on: each record may choose its own second derivative."""
    one = data.draw(attempts("squared"))
    packed = []
    for _ in range(2):
        places = data.draw(st.lists(PLACES, min_size=one.x.size, max_size=one.x.size))
        x = within(one.domain.l1_radius, one.domain.feature_bound * np.array(places))
        factor = data.draw(st.sampled_from([0.0, 1.0]) | st.floats(0, 1))
        packed.append(pack_moments(factor * np.outer(x, x), np.zeros(one.x.size)))
    ratio = float(np.abs(packed[0] - packed[1]).sum() / gram_change(one.domain))
    target(ratio)
    assert ratio <= 1 + 1e-12
