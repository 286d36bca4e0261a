"""What is kept of noisy values, and which rows of a matrix vary more than the others."""

import numpy as np
import pytest

import learner.algorithms.wiener
from learner.algorithms.wiener import kept, kept_apart, kept_entries, row_factors, surely_real

D = 12
NOISE = np.full((D, D), 0.01)


def symmetric(rng, *, count=1, scale=0.3):
    drawn = scale * rng.normal(size=(count, D, D))
    return drawn + np.triu(drawn, 1).swapaxes(1, 2) - np.tril(drawn, -1)


def test_what_is_drawn_with_some_variance_is_kept_as_wieners_filter_would():
    rng, real = np.random.default_rng(1), 4.0
    noise = np.geomspace(0.01, 100.0, 400)
    values = rng.normal(size=400) * np.sqrt(real + noise)
    assert kept(values, noise, floor=1e-4) == pytest.approx(real / (real + noise), abs=0.1)


def test_nothing_is_kept_of_noise_alone_and_all_where_there_is_none():
    rng = np.random.default_rng(2)
    loud = 1e3 * rng.normal(size=(20, 50))
    assert kept(loud, np.full(50, 1e6), floor=1e-4).max() < 0.1
    assert kept(loud, np.zeros(50), floor=1e-4) == pytest.approx(np.ones((20, 50)))


@pytest.mark.parametrize("seed", range(4))
def test_of_a_few_values_one_that_stands_out_is_kept_and_the_others_are_not(seed):
    """Far beyond loud noise, as in a direction in which public records hardly vary."""
    rng = np.random.default_rng(seed)
    noise = np.array([0.01, 0.1, 0.1, 0.1, 0.2, 0.3, 12.0])
    values = np.sqrt(noise) * np.append(rng.normal(size=6), 15.0)
    assert kept_apart(values, noise, floor=1.0)[-1] > 0.85
    assert kept(values, noise, floor=1.0)[-1] < 0.2
    values[-1] /= 5.0
    assert kept_apart(values, noise, floor=1.0)[-1] < 0.2


@pytest.mark.parametrize("owners", [1, 2, 10])
@pytest.mark.parametrize("loud", [1.0, 1e2, 1e4, 1e6])
def test_believing_a_few_laplace_draws_costs_little_however_loud_they_are(loud, owners):
    """The mean square of what is kept of noise alone stays below the floor of all seven."""
    rng = np.random.default_rng(8)
    draws = rng.laplace(size=(20_000, 7, owners)).sum(axis=-1) * np.sqrt(loud / (2 * owners))
    shares = kept_apart(draws, np.full(7, loud), floor=1.0)
    assert np.mean(np.sum((shares * draws) ** 2, axis=1)) < 7.0


def test_each_value_of_a_few_is_kept_whole_without_noise_and_none_makes_trouble():
    values = np.array([[0.0, 1e-9, 3.0, 1e5], [1e12, -1e12, 0.0, 1.0]])
    assert kept_apart(values, np.zeros(4), floor=1e-4) == pytest.approx(np.ones((2, 4)))
    shares = kept_apart(values, np.full(4, 1e-9), floor=0.0)
    assert np.all((shares >= 0.0) & (shares <= 1.0))
    assert kept_apart(np.zeros((3, 0)), np.zeros(0), floor=1.0).shape == (3, 0)


def test_a_few_values_of_many_studies_have_the_bits_of_each_by_itself():
    rng = np.random.default_rng(9)
    many, noise = 5.0 * rng.normal(size=(9, D)), rng.uniform(size=(9, D))
    together = kept_apart(many, noise, floor=0.1, odds=3.0)
    for i in range(9):
        assert np.array_equal(kept_apart(many[i], noise[i], floor=0.1, odds=3.0), together[i])
    other = kept_apart(1e3 * many, 1e6 * noise, floor=100_000, odds=3.0)
    assert other == pytest.approx(together, rel=1e-9)


def test_values_that_vary_more_are_kept_rather():
    values, factors = np.array([0.3, -0.2, 5.0, 0.1]), np.array([1.0, 1.0, 400.0, 1.0])
    alike, apart = (kept(values, np.ones(4), floor=0.01, factors=f) for f in (None, factors))
    assert apart[2] > 0.7 > 5 * alike[2]
    assert np.all(apart[[0, 1, 3]] < 0.1)


@pytest.mark.parametrize("factor", [30.0, 1000.0])
def test_the_rows_of_features_that_vary_more_are_found(factor):
    rng, root = np.random.default_rng(3), np.ones(D)
    root[[4, 7]] = np.sqrt(factor)
    found = row_factors(symmetric(rng, count=50) * np.outer(root, root), NOISE, floor=0.01)
    # Two rows of twelve make the others' variance look larger than it is, so they count as less.
    assert np.all(np.median(found[:, [4, 7]], axis=0) > factor / 8)
    assert np.quantile(found[:, [4, 7]], 0.99) < 2 * factor
    assert np.median(np.delete(found, [4, 7], axis=1)) < 1.3


def test_rows_that_vary_alike_are_left_alone():
    rng = np.random.default_rng(4)
    for scale in (0.0, 0.1, 1.0, 30.0):
        loud = symmetric(rng, count=50, scale=scale) + symmetric(rng, count=50, scale=0.1)
        found = row_factors(loud, NOISE, floor=0.01)
        assert np.median(found) < 1.1
        assert np.quantile(found, 0.99) < 3.0


def test_one_large_entry_does_not_make_a_row_large():
    (matrix,) = symmetric(np.random.default_rng(5))
    matrix[2, 9] = matrix[9, 2] = 40.0
    assert row_factors(matrix, NOISE, floor=0.01).max() < 3.0


def test_factors_do_not_depend_on_the_unit():
    (matrix,) = symmetric(np.random.default_rng(6))
    matrix[3] *= 20.0
    matrix[:, 3] = matrix[3]
    found = row_factors(matrix, NOISE, floor=0.01)
    assert found[3] > 20.0
    other = row_factors(1e3 * matrix, 1e6 * NOISE, floor=1e4)
    assert other == pytest.approx(found, rel=1e-9)


def test_many_matrices_have_the_bits_of_each_by_itself():
    many = symmetric(np.random.default_rng(7), count=9, scale=1.0)
    factors = row_factors(many, NOISE, floor=0.01)
    values = many.reshape(9, -1)
    shares = kept(values, NOISE.ravel(), floor=0.01, factors=np.repeat(factors, D, axis=1))
    for i in range(9):
        assert np.array_equal(row_factors(many[i], NOISE, floor=0.01), factors[i])
        own = kept(values[i], NOISE.ravel(), floor=0.01, factors=np.repeat(factors[i], D))
        assert np.array_equal(own, shares[i])


@pytest.mark.parametrize("by_rows", [False, True])
def test_some_matrices_at_a_time_are_what_all_are(by_rows, monkeypatch):
    many = symmetric(np.random.default_rng(8), count=7, scale=1.0)
    with monkeypatch.context() as patched:
        patched.setattr(learner.algorithms.wiener, "CELLS", 2 * 40 * D * D)
        in_parts = kept_entries(many, NOISE, floor=0.01, by_rows=by_rows)
    together = kept_entries(many, NOISE, floor=0.01, by_rows=by_rows)
    assert np.array_equal(in_parts, together)
    assert np.array_equal(together, together.swapaxes(1, 2))
    (first,) = many[:1]
    assert np.array_equal(kept_entries(first, NOISE, floor=0.01, by_rows=by_rows), together[0])


def test_by_rows_entries_of_a_row_that_stands_out_are_kept():
    (matrix,) = symmetric(np.random.default_rng(9))
    matrix[5] *= 30.0
    matrix[:, 5] = matrix[5]
    noise = NOISE.copy()
    noise[5] = noise[:, 5] = 1.0
    alike, apart = (kept_entries(matrix, noise, floor=0.01, by_rows=b) for b in (False, True))
    assert apart[5].min() > 0.9
    assert np.delete(alike[5], 5).max() < 0.2


def test_a_matrix_without_entries_has_none_that_are_kept():
    nothing = np.zeros((2, 0, 0))
    assert kept_entries(nothing, np.zeros((0, 0)), floor=0.01, by_rows=False).shape == nothing.shape
    assert surely_real(nothing, np.zeros((0, 0))).shape == nothing.shape


@pytest.mark.parametrize("values", [np.full(256, 1.4), np.repeat([0.1, 2.0], 128)])
def test_of_very_many_values_some_stand_for_all(values, monkeypatch):
    """Evenly spaced ones, each for as many as it stands for: here nothing is lost by that."""
    all_of_them = kept(values, np.ones(256), floor=1e-4)
    monkeypatch.setattr(learner.algorithms.wiener, "ENOUGH", 64)
    assert kept(values, np.ones(256), floor=1e-4) == pytest.approx(all_of_them, rel=1e-9)


@pytest.mark.parametrize("d", [1, 5, 60])
def test_noise_alone_is_next_to_never_surely_real(d):
    """Laplace draws of one owner, whose tails are the longest there are."""
    rng, noise = np.random.default_rng(11), np.linspace(0.5, 2.0, d * d).reshape(d, d)
    noise = np.maximum(noise, noise.T)
    count = max(40, 20_000 // (d * d))
    drawn = np.triu(rng.laplace(0, np.sqrt(noise / 2), (count, d, d)))
    drawn += np.triu(drawn, 1).swapaxes(1, 2)
    seen = surely_real(drawn, noise).max(axis=(1, 2)) > 0
    assert seen.mean() < 0.03
    far = surely_real(1e3 * np.sqrt(noise), noise)
    assert far.min() > 0.999


def test_what_is_surely_real_depends_on_no_other_entry():
    noise = np.ones((3, 3))
    matrix = np.diag([50.0, 0.1, 0.0])
    own = surely_real(matrix, noise)
    matrix[1, 1] = 1e9
    assert surely_real(matrix, noise)[0, 0] == own[0, 0]
    assert 0.9 < own[0, 0] < 1.0
    assert np.count_nonzero(own) == 1
    assert np.array_equal(surely_real(matrix, np.zeros((3, 3))), np.ones((3, 3)))
