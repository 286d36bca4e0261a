"""What both sides know of a release: its length, its change, and who computes it."""

from dataclasses import replace

import numpy as np
import pytest

from common.domain import Domain
from common.losses import LOSSES
from common.privacy import plan_noise
from common.releases import (
    GRADIENT,
    MOMENTS,
    NEWTON,
    RELEASES,
    VALIDATION,
    curvature_scale,
    gradient_bound,
    release_of,
)
from common.terms import Records
from common.validation import tally, unpack_validation
from owner.audit_cases import CASES
from owner.core import EXACT, exact_answer
from owner.mechanism import SecureNoise
from owner.shards import Shard

VALIDATED = {
    "loss_bound": 2.0,
    "difference_bound": 1.5,
    "reference": (-2.0, -2.0, -2.0),
}
DOMAIN = Domain(feature_bound=np.array([1.0, 0.5, 2.0]), target_bound=1.5)


def terms_of(make_terms, name):
    responses = RELEASES[name].most_responses or 10
    scale = 0.5 if RELEASES[name] is NEWTON else None
    asked = VALIDATED if RELEASES[name] is VALIDATION else {}
    return make_terms(
        release=name, responses=responses, horizon=responses, curvature_scale=scale, **asked
    )


def test_every_release_and_every_loss_has_an_exact_answer_and_is_attacked_by_the_audit():
    assert set(EXACT) == set(RELEASES)
    assert {case.release.name for case in CASES} == set(RELEASES)
    assert {case.loss.name for case in CASES} == set(LOSSES)


@pytest.mark.parametrize("name", RELEASES)
def test_an_exact_answer_has_the_length_and_the_change_of_its_release(make_terms, name):
    release, terms = RELEASES[name], terms_of(make_terms, name)
    release.check(terms)
    rng = np.random.default_rng(1)
    corners = rng.choice([-1.0, 1.0], (40, 6, 3)) * DOMAIN.feature_bound
    targets = rng.choice([-1.5, 1.5], (40, 6))
    theta = np.full(3, terms.theta_max)
    largest = 0.0
    for x, y in zip(corners, targets, strict=True):
        other_x, other_y = x.copy(), y.copy()
        other_x[0], other_y[0] = -x[0] * [1, 1, 0], -y[0]
        a, b = (
            exact_answer(Shard(Records(features=f, targets=t)), theta, terms)
            for f, t in ((x, y), (other_x, other_y))
        )
        assert a.shape == (release.dimension(terms, 3),)
        largest = max(largest, float(np.abs(a - b).sum()))
    change = release.change(terms, DOMAIN) / 6
    assert 0.3 * change < largest <= change * (1 + 1e-12)
    assert release.rounded_size(terms, DOMAIN) >= release.record_bound(terms, DOMAIN)


@pytest.mark.parametrize("name", RELEASES)
def test_what_one_record_adds_is_within_its_bound_and_reaches_it(make_terms, name):
    release, terms = RELEASES[name], terms_of(make_terms, name)
    record = Records(features=DOMAIN.feature_bound[None, :], targets=np.array([-1.5]))
    theta = np.full(3, terms.theta_max)
    added = np.abs(exact_answer(Shard(record), theta, terms)).sum()
    assert 0.5 < added / release.record_bound(terms, DOMAIN) <= 1 + 1e-12


@pytest.mark.parametrize(
    "changes", [{"loss": "hinge"}, {"responses": 2}, {"clip": 1.0}], ids=lambda c: next(iter(c))
)
def test_moments_are_of_squared_loss_once_and_without_a_clip(make_terms, changes):
    with pytest.raises(ValueError, match="moments need squared loss, one response and no clip"):
        MOMENTS.check(make_terms(**{"release": "moments", "responses": 1} | changes))


def newton_terms(make_terms, **changes):
    values = {"release": "newton", "responses": 1, "curvature_scale": 0.5}
    return make_terms(**(values | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"loss": "hinge"},
        {"curvature_scale": None},
        {"curvature_scale": 0.0},
        {"curvature_scale": -1.0},
        {"curvature_scale": float("nan")},
        {"curvature_scale": float("inf")},
    ],
    ids=lambda changes: " ".join(f"{key}={value}" for key, value in changes.items()),
)
def test_newton_is_of_smooth_losses_and_with_a_factor(make_terms, changes):
    NEWTON.check(newton_terms(make_terms))
    NEWTON.check(newton_terms(make_terms, clip=1.0, loss="logistic", responses=3))
    with pytest.raises(ValueError, match="newton needs a loss without kinks and a curvature_scale"):
        NEWTON.check(newton_terms(make_terms, **changes))


def test_the_rounds_of_newton_share_epsilon(make_terms):
    """Each answer has the noise of its part, and all together spend what was promised."""
    plans = {
        rounds: plan_noise(
            newton_terms(make_terms, responses=rounds, horizon=3 * rounds, clip=1.0),
            DOMAIN,
            num_records=500,
        )
        for rounds in (1, 3)
    }
    assert plans[3].noise_scale == pytest.approx(3 * plans[1].noise_scale, rel=1e-9)
    spent = {rounds: SecureNoise(plan).epsilon(responses=rounds) for rounds, plan in plans.items()}
    promised = newton_terms(make_terms).epsilon
    assert all(0.999 * promised < epsilon <= promised for epsilon in spent.values())


@pytest.mark.parametrize("name", [name for name in RELEASES if name != "newton"])
def test_a_factor_of_the_curvature_belongs_to_newton_alone(make_terms, name):
    with pytest.raises(ValueError, match=f"curvature_scale belongs to newton, not to {name}"):
        release_of(make_terms(release=name, responses=1, curvature_scale=1.0))


@pytest.mark.parametrize("clip", [None, 0.75])
@pytest.mark.parametrize("name", [name for name in LOSSES if LOSSES[name].curvature is not None])
def test_the_factor_of_a_share_spends_that_share_of_epsilon_on_the_curvature(
    make_terms, name, clip
):
    loss = LOSSES[name].example()
    terms = newton_terms(make_terms, **loss.as_terms(), clip=clip)
    bound = gradient_bound(terms, DOMAIN)
    for share in (0.1, 0.5, 0.9):
        factor = curvature_scale(loss, DOMAIN, bound=bound, share=share)
        whole = NEWTON.change(replace(terms, curvature_scale=factor), DOMAIN)
        assert whole == pytest.approx(2 * bound / (1 - share), rel=1e-12)
        words = NEWTON.bound_in_words(replace(terms, curvature_scale=factor), DOMAIN)
        assert f"{share:.3g} of epsilon is for the curvature" in words


def test_the_rounding_of_curvature_and_gradient_is_that_of_both(make_terms):
    """A clipped slope is rounded at its size before the clip, a product at its own."""
    terms = newton_terms(make_terms, clip=1e-6, curvature_scale=1e-6)
    slopes = GRADIENT.rounded_size(terms, DOMAIN)
    assert slopes > 1e3 * NEWTON.change(terms, DOMAIN)
    assert NEWTON.rounded_size(terms, DOMAIN) >= slopes
    steep = newton_terms(make_terms, curvature_scale=1e9)
    assert NEWTON.rounded_size(steep, DOMAIN) >= NEWTON.change(steep, DOMAIN)


def test_a_release_that_is_none_is_refused(make_terms):
    with pytest.raises(ValueError, match="release must be one of gradient, moments"):
        release_of(make_terms(release="records"))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"responses": 2}, "validation needs one response and no clip"),
        ({"clip": 1.0}, "validation needs one response and no clip"),
        ({"loss_bound": None}, "validation needs a loss_bound"),
        ({"loss_bound": float("nan")}, "validation needs a loss_bound"),
        ({"loss_bound": float("inf")}, "validation needs a loss_bound"),
        ({"reference": ()}, "difference_bound and reference go together"),
        ({"difference_bound": None}, "difference_bound and reference go together"),
        ({"difference_bound": 0.0}, "difference_bound must be from"),
        ({"reference": (3.0, 0.0, 0.0)}, "reference must be a model in the study's box"),
        ({"reference": (float("nan"), 0.0, 0.0)}, "reference must be a model in the study's box"),
        ({"edges": (0.0,)}, "edges belong to losses for classes, not to squared"),
        ({"loss": "hinge", "edges": (1.0, 1.0)}, "edges must be at most 63 finite numbers"),
        ({"loss": "hinge", "edges": (float("inf"),)}, "edges must be at most 63 finite numbers"),
        ({"loss": "hinge", "edges": (float("nan"),)}, "edges must be at most 63 finite numbers"),
        ({"loss": "hinge", "edges": tuple(range(64))}, "edges must be at most 63 finite numbers"),
    ],
    ids=str,
)
def test_a_validation_has_bounds_that_are_numbers(make_terms, changes, sentence):
    values = VALIDATED | {"release": "validation", "responses": 1, "horizon": 1}
    VALIDATION.check(make_terms(**values))
    with pytest.raises(ValueError, match=sentence):
        VALIDATION.check(make_terms(**(values | changes)))


def test_a_reference_has_a_number_for_each_feature(make_terms):
    terms = terms_of(make_terms, "validation")
    with pytest.raises(ValueError, match="reference: got 2 numbers, expected one for each of the"):
        VALIDATION.change(replace(terms, reference=(0.0, 0.0)), DOMAIN)


@pytest.mark.parametrize(
    "changes", [{"loss_bound": 1.0}, {"difference_bound": 1.0}, {"reference": (0.0,)}], ids=str
)
def test_bounds_of_a_validation_belong_to_it_alone(make_terms, changes):
    with pytest.raises(ValueError, match="edges belong to validation, not to gradient"):
        release_of(make_terms(**changes))


@pytest.mark.parametrize("name", ["squared", "hinge", "logistic", "huber"])
def test_no_record_moves_a_validation_further_than_it_says_or_makes_it_no_number(make_terms, name):
    """Not even one whose margin or loss overflows, and some record reaches the bound."""
    loss = LOSSES[name].example()
    edges = {"edges": (-1.0, 0.0, 2.5)} if loss.has_classes() else {}
    terms = replace(terms_of(make_terms, "validation"), **loss.as_terms(), **edges, loss_bound=1.0)
    terms = replace(terms, difference_bound=1.0)
    largest = 0.0
    for one in (1.0, -1.0, 0.0, 1e300, -1e300):
        for other in (1.0, -0.5, 0.0, 1e300, -1e300):
            for y in (1.0, -1.0):
                x = np.array([[one, 0.0, 0.0], [0.5, 0.5, 0.5]])
                z = np.array([[other, other, 0.0], [0.5, 0.5, 0.5]])
                theta = np.array([1.0, 0.0, 0.0])
                a, b = (
                    exact_answer(
                        Shard(Records(features=f, targets=np.array([t, 1.0]))), theta, terms
                    )
                    for f, t in ((x, 1.0), (z, y))
                )
                assert np.isfinite(a).all()
                assert np.isfinite(b).all()
                largest = max(largest, 2.0 * float(np.abs(a - b).sum()))
    assert 0.8 < largest <= VALIDATION.change(terms, DOMAIN) * (1 + 1e-12)


def test_a_loss_that_rounding_took_below_0_counts_as_0(make_terms, monkeypatch):
    """Whoever asks may choose a bound that is as small as the rounding, or much smaller."""
    terms = replace(terms_of(make_terms, "validation"), loss="logistic", loss_bound=1e-100)
    terms = replace(terms, edges=(), difference_bound=None, reference=())
    # Another library's logarithm of 2 may be off by its last bit.
    monkeypatch.setattr("common.losses.math.log", lambda x: np.nextafter(np.log(x), 1.0))
    told = tally(
        np.array([800.0]), np.ones(1), None, loss=LOSSES["logistic"].example(), terms=terms
    )
    assert 0.0 <= told[0] <= 1.0


def test_a_difference_is_of_losses_as_they_are_and_of_none_where_both_overflow(make_terms):
    terms = replace(terms_of(make_terms, "validation"), edges=(), loss_bound=1.0)
    terms = replace(terms, difference_bound=5.0)
    reference = np.array([2.0, 1e200, 3.0, 0.0])
    margins = np.array([0.5, 1e200, 0.0, 1e200])
    told = tally(margins, np.zeros(4), reference, loss=LOSSES["squared"].example(), terms=terms)
    found = unpack_validation(told, terms)
    # 0.25 - 4, nothing, -9 and more than any number, each within 5.
    assert found.difference == pytest.approx((-3.75 + 0.0 - 5.0 + 5.0) / 4)
    assert found.loss == pytest.approx((0.25 + 1.0 + 0.0 + 1.0) / 4)
