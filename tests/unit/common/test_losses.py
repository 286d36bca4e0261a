import math

import numpy as np
import pytest

from common.domain import Domain
from common.gradient_bounds import domain_gradient_bound
from common.losses import LOSSES, Huber, Loss, Regulariser, Squared, loss_of


@pytest.mark.parametrize("name", LOSSES)
def test_slopes_are_the_derivative_of_values(name):
    loss = LOSSES[name].example()
    z = np.linspace(-4.03, 4.01, 41)
    y = np.where(np.arange(41) % 2 == 0, 1.0, -1.0)
    h = 1e-6
    numeric = (loss.values(z + h, y) - loss.values(z - h, y)) / (2 * h)
    np.testing.assert_allclose(loss.slopes(z, y), numeric, atol=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_curvatures_are_the_derivative_of_slopes_within_their_bound(name):
    loss = LOSSES[name].example()
    z = np.linspace(-40.03, 40.01, 401)
    y = np.where(np.arange(401) % 2 == 0, 1.0, -1.0)
    if loss.curvature is None:
        with pytest.raises(ValueError, match=f"{name} loss has no curvature"):
            loss.curvatures(z, y)
        return
    h = 1e-6
    numeric = (loss.slopes(z + h, y) - loss.slopes(z - h, y)) / (2 * h)
    found = loss.curvatures(z, y)
    np.testing.assert_allclose(found, numeric, atol=1e-6)
    assert found.min() >= 0
    # Newton's sensitivity counts the largest one, which is reached.
    reached = np.max(loss.curvatures(np.zeros(1), np.zeros(1)))
    assert found.max() <= reached == loss.curvature


@pytest.mark.parametrize("name", LOSSES)
def test_some_record_and_theta_reach_the_bound(name):
    loss = LOSSES[name].example()
    domain = Domain(feature_bound=np.array([0.5, 2.0, 1.0]), target_bound=3.0)
    theta = np.full(3, -0.7)
    y = np.array([3.0 if loss.targets is None else 1.0])
    gradient = loss.mean_gradient(theta, domain.feature_bound[None, :], y)
    bound = domain_gradient_bound(loss, domain, theta_max=0.7)
    assert np.abs(gradient).sum() == pytest.approx(bound, rel=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_a_slope_computed_at_rounded_margins_leaves_its_bound_by_no_more_than_is_counted(name):
    """Margins and targets off by k roundoffs: the slope is at most k roundoffs too steep."""
    loss = LOSSES[name].example()
    off = 2.0**-30
    for z_bound, y_bound in ((0.1, 0.3), (1.0, 1.0), (40.0, 3.0), (1e6, 1e-3)):
        y_bound = 1.0 if loss.has_classes() else y_bound  # noqa: PLW2901
        z = np.linspace(-z_bound, z_bound, 2001) * (1 + off)
        y = np.array([-1.0, 1.0]) if loss.has_classes() else np.linspace(-y_bound, y_bound, 41)
        y = y if loss.has_classes() else y * (1 + off)
        steepest = np.max(np.abs(loss.slopes(z[:, None], y[None, :])))
        counted = off * loss.rounded_size(z_bound, y_bound)
        assert steepest <= loss.slope_bound(z_bound, y_bound) + counted * (1 + 1e-6)
        assert loss.rounded_size(z_bound, y_bound) >= loss.slope_bound(z_bound, y_bound)


@pytest.mark.parametrize("name", [name for name in LOSSES if LOSSES[name].counts_margins])
def test_a_loss_that_counts_margins_counts_what_their_rounding_moves_a_slope_by(name):
    loss = LOSSES[name].example()
    for z_bound in (1.0, 1e6, 1e17):
        moved = loss.rounded_size(2.0 * z_bound, 1.0) - loss.rounded_size(z_bound, 1.0)
        assert moved >= loss.curvature * z_bound * (1 - 1e-12)


def test_a_loss_that_does_not_say_how_its_slopes_round_cannot_be_made():
    class Forgetful(Loss):
        name = "forgetful"
        values = slopes = slope_bound = Squared.values

    with pytest.raises(TypeError, match="rounded_size"):
        Forgetful()


@pytest.mark.parametrize("name", LOSSES)
def test_terms_name_a_loss_with_its_parameters(name, make_terms):
    loss = LOSSES[name].example()
    assert loss_of(make_terms(**loss.as_terms())) == loss


def test_terms_with_a_loss_that_is_none_are_refused(make_terms):
    with pytest.raises(ValueError, match="loss must be one of squared, hinge, logistic"):
        loss_of(make_terms(loss="Squared"))


def test_hubers_gradient_is_bounded_by_delta_times_the_features_whatever_the_targets():
    domain = Domain(feature_bound=np.array([1.0, 2.0]), target_bound=1e6)
    assert domain_gradient_bound(Huber(delta=0.5), domain, theta_max=1e3) == 1.5
    # A delta beyond every residual bounds nothing: half of squared loss is left.
    wide = domain_gradient_bound(Huber(delta=1e9), domain, theta_max=1e3)
    assert wide == domain_gradient_bound(Squared(), domain, theta_max=1e3) / 2


def test_huber_is_half_the_squared_loss_up_to_delta_and_straight_beyond():
    z, y = np.linspace(-3, 3, 61), np.full(61, 0.5)
    values = Huber(delta=1.0).values(z, y)
    near = np.abs(z - y) <= 1.0
    np.testing.assert_allclose(values[near], Squared().values(z, y)[near] / 2, rtol=1e-12)
    np.testing.assert_allclose(values[~near], np.abs(z - y)[~near] - 0.5, rtol=1e-12)


def test_delta_follows_the_bulk_of_the_residuals_and_not_the_few_that_are_far():
    residuals = np.random.default_rng(1).normal(0, 2.0, 10_001)
    delta = Huber.fitted(residuals).delta
    assert delta == pytest.approx(1.345 * 2.0, rel=0.03)
    residuals[:500] = 1e6
    assert Huber.fitted(residuals).delta == pytest.approx(delta, rel=0.1)
    with pytest.raises(ValueError, match="delta"):
        Huber.fitted(np.zeros(5))


def test_an_l1_radius_shrinks_the_bound_about_quadratically():
    wide = Domain(feature_bound=np.full(10, 3.0), target_bound=0.1)
    narrow = Domain(feature_bound=np.full(10, 3.0), target_bound=0.1, l1_radius=3.0)
    ratio = domain_gradient_bound(Squared(), wide, theta_max=1.0) / domain_gradient_bound(
        Squared(), narrow, theta_max=1.0
    )
    assert 90 < ratio <= 100


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_bounds_that_bound_nothing_are_refused(bad):
    with pytest.raises(ValueError, match="feature_bound"):
        Domain(feature_bound=np.array([bad]), target_bound=1.0)
    with pytest.raises(ValueError, match="target_bound"):
        Domain(feature_bound=np.ones(1), target_bound=bad)
    with pytest.raises(ValueError, match="coefficient"):
        Regulariser(coefficient=bad)


def test_regulariser_gradient_is_its_derivative():
    g = Regulariser(coefficient=0.3)
    theta = np.array([1.0, -2.0])
    step = np.array([1e-6, 0.0])
    numeric = (g.value(theta + step) - g.value(theta - step)) / 2e-6
    assert g.gradient(theta)[0] == pytest.approx(numeric, rel=1e-6)
    assert g.strong_convexity == 0.6


@pytest.mark.parametrize("delta", [0.0, -1.0, math.inf, math.nan])
def test_a_delta_that_bounds_nothing_is_refused(delta):
    with pytest.raises(ValueError, match="expected a finite number greater than 0"):
        Huber(delta=delta)
