import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from common.domain import Domain
from common.privacy import (
    as_decimal,
    epsilon_in_words,
    epsilon_per_response,
    in_short,
    l1_sensitivity,
    plan_noise,
)
from common.releases import gradient_bound
from common.stretches import block_records
from owner.mechanism import SecureNoise

DOMAIN = Domain(feature_bound=np.full(4, 3.0), target_bound=3.0)
COUNTS = [1, 10, 99, 100, 1000]
EPSILONS = [Fraction(1, 10), Fraction(1), Fraction(1, 3), Fraction(100)]


@pytest.mark.parametrize("responses", COUNTS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_noise_scale_is_theorem_1(make_terms, responses, epsilon):
    terms = make_terms(responses=responses, horizon=1000, epsilon=epsilon)
    plan = plan_noise(terms, DOMAIN, num_records=5_000)
    xi = 2 * (2.0 * 12.0 + 3.0) * 12.0
    theorem = 2 * xi * responses / (5_000 * float(epsilon))
    # Never below the theorem; above it only by the grid (1e-6) and by rounding errors.
    assert 1.0 <= plan.noise_scale / theorem <= 1 + 2e-6
    # The noise library's own map confirms the budget, in exact rationals.
    assert SecureNoise(plan).epsilon(responses=responses) <= epsilon


def test_the_map_rejects_a_scale_a_millionth_too_small(make_terms):
    terms = make_terms(epsilon=Fraction(1, 3))
    plan = plan_noise(terms, DOMAIN, num_records=5_000)
    small = replace(plan, scale_units=plan.scale_units * (1 - 1e-6))
    assert SecureNoise(small).epsilon(responses=10) > terms.epsilon


@pytest.mark.parametrize("clip", [1e-101, 1e-300])
def test_a_bound_next_to_nothing_has_no_noise(make_terms, clip):
    with pytest.raises(ValueError, match="expected a bound from 1e-100"):
        plan_noise(make_terms(clip=clip), DOMAIN, num_records=100)


def test_sensitivity_counts_every_coordinates_rounding(make_terms):
    plan = plan_noise(make_terms(), DOMAIN, num_records=100)
    exact = l1_sensitivity(gradient_bound=gradient_bound(make_terms(), DOMAIN), num_records=100)
    assert plan.sensitivity_units >= exact / 2.0**plan.grid_exponent + plan.dimension


@pytest.mark.parametrize("num_records", [10**6, 10**7, 10**8])
def test_sensitivity_counts_the_floating_point_error_of_sums(make_terms, num_records):
    """A sum is off by at most d u of its terms' sizes, on each of two shards.

    Here each term goes through the d additions of its stretch, of which there are 16.
    """
    plan = plan_noise(make_terms(), DOMAIN, num_records=num_records)
    exact = l1_sensitivity(
        gradient_bound=gradient_bound(make_terms(), DOMAIN), num_records=num_records
    )
    more = plan.sensitivity_units * 2.0**plan.grid_exponent / exact - 1
    unit, block = num_records * 2.0**-53, block_records(DOMAIN.num_features)
    assert num_records / 16 * unit <= more <= 1.01 * (num_records / 16 + block) * unit + 1e-6


def test_sensitivity_counts_the_rounding_of_residuals_that_are_cut_off_afterwards(make_terms):
    """Huber's bound knows nothing of the box, but its residuals are as large and round so."""
    terms = make_terms(loss="huber", delta=1e-6, theta_max=1e9)
    plan = plan_noise(terms, DOMAIN, num_records=1)
    exact = l1_sensitivity(gradient_bound=1e-6 * 12.0, num_records=1)
    counted = plan.sensitivity_units * 2.0**plan.grid_exponent - exact
    residual = 1e9 * 12.0 + 3.0
    assert counted >= 2 * 4 * 2.0**-53 * residual * 12.0
    # Where rounding would drown what is promised, the study is refused, not answered.
    with pytest.raises(ValueError, match="epsilon: too small"):
        plan_noise(replace(terms, theta_max=1e16), DOMAIN, num_records=1)
    with pytest.raises(ValueError, match="rounding would move answers far more than one record"):
        plan_noise(replace(terms, theta_max=1e90), DOMAIN, num_records=1)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1000), Fraction(10**17)])
@pytest.mark.parametrize("theta_max", [1e3, 1e17, 1e25, 1e29, 1e35])
def test_what_the_noise_library_cannot_count_is_refused_before_it(make_terms, theta_max, epsilon):
    """However large epsilon is, with which the noise itself would be small enough to be drawn."""
    terms = make_terms(
        loss="huber", delta=1.0, theta_max=theta_max, epsilon=epsilon, responses=1, horizon=1
    )
    if theta_max > 1e22:
        with pytest.raises(ValueError, match=r"^theta_max, .* smaller theta_max, .* longer clip$"):
            plan_noise(terms, DOMAIN, num_records=100)
        return
    plan = plan_noise(terms, DOMAIN, num_records=100)
    assert SecureNoise(plan).epsilon(responses=1) <= epsilon


def test_kappa_divides_the_budget_of_each_response(make_terms):
    one = plan_noise(make_terms(), DOMAIN, num_records=100)
    three = plan_noise(make_terms(kappa=3), DOMAIN, num_records=100)
    assert three.noise_scale == pytest.approx(3 * one.noise_scale, rel=1e-9)
    assert epsilon_per_response(epsilon=Fraction(1), responses=4, kappa=3) == Fraction(1, 12)


def test_a_clip_below_the_domains_bound_sets_the_sensitivity(make_terms):
    assert gradient_bound(make_terms(clip=0.5), DOMAIN) == 0.5
    assert gradient_bound(make_terms(clip=1e9), DOMAIN) == gradient_bound(make_terms(), DOMAIN)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_sensitivity_that_is_not_positive_and_finite_is_refused(bad):
    with pytest.raises(ValueError, match="gradient_bound"):
        l1_sensitivity(gradient_bound=bad, num_records=1)
    with pytest.raises(ValueError, match="num_records"):
        l1_sensitivity(gradient_bound=1.0, num_records=0)


def test_terms_whose_noise_integers_cannot_hold_are_refused(make_terms):
    terms = make_terms(responses=10**9, horizon=10**9, epsilon=Fraction(1, 10**9))
    with pytest.raises(ValueError, match="epsilon"):
        plan_noise(terms, DOMAIN, num_records=100)


@pytest.mark.parametrize("key", ["epsilon", "responses", "kappa"])
def test_a_share_of_nothing_or_by_nothing_is_refused(key):
    values = {"epsilon": Fraction(1), "responses": 1, "kappa": 1} | {key: 0}
    with pytest.raises(ValueError, match="greater than 0"):
        epsilon_per_response(**values)


def test_a_clip_hides_no_bound_at_which_sums_overflow(make_terms):
    giant = Domain(feature_bound=np.full(4, 1e60), target_bound=3.0)
    with pytest.raises(ValueError, match="one record's gradient is bounded by"):
        plan_noise(make_terms(clip=1.0), giant, num_records=100)


def test_more_records_than_64_bits_hold_are_refused(make_terms):
    terms = make_terms(responses=1, epsilon=Fraction(100))
    with pytest.raises(ValueError, match="num_records"):
        plan_noise(terms, DOMAIN, num_records=2**40)


def test_sensitivity_counts_the_floating_point_error_of_slopes(make_terms):
    """A clipped slope comes of numbers that are as large as the domain lets them be."""
    wide = Domain(feature_bound=np.full(4, 3e6), target_bound=3.0)
    near, far = (
        plan_noise(make_terms(clip=1e-3), domain, num_records=100) for domain in (DOMAIN, wide)
    )
    largest = 2 * (2.0 * 12e6 + 3.0) * 12e6
    added = far.noise_scale - near.noise_scale
    # Sixteen operations and one for each feature, in either of two shards.
    assert added >= 0.99 * 10 * 2 * 20 * 2.0**-53 * largest


def test_a_budget_that_is_shown_is_never_rounded_in_the_owners_disfavour():
    rng = np.random.default_rng(0)
    for _ in range(2000):
        top, bottom = (int(n) for n in rng.integers(1, 10 ** rng.integers(1, 18, 2)))
        value = Fraction(top, bottom)
        below, above = Fraction(in_short(value)), Fraction(in_short(value, up=True))
        assert below <= value <= above
        assert above - below <= value / 10**5
        assert len(in_short(value)) <= 18
        low, high = (Fraction(as_decimal(value, digits=4, up=up)) for up in (False, True))
        assert low <= value <= high


@pytest.mark.parametrize("typed", ["1/3", "10/3", "2/7", "0.0001", "4.5", "1000000", "0.123456789"])
def test_a_budget_as_people_type_it_is_shown_as_it_is(typed):
    for up in (False, True):
        assert in_short(Fraction(typed), up=up) == typed


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 3.0, 5.0, 6.9, 7.0, 10.0, 13.8])
def test_the_factor_that_people_sign_is_never_below_the_true_one(epsilon):
    said = epsilon_in_words(epsilon).rpartition(" ")[2]
    factor = float(said.replace(",", ""))
    assert math.exp(epsilon) <= factor <= 1.01 * math.exp(epsilon)
