"""Least squares over the box ends at the minimum, however many coordinates lie at its edges."""

import numpy as np
import pytest

from learner.algorithms import box_least_squares as module
from learner.algorithms.box_least_squares import box_least_squares


def problem(seed):
    """A and b of a few records, whose features may depend on each other."""
    rng = np.random.default_rng(seed)
    p = int(rng.integers(1, 20))
    x = rng.normal(size=(int(rng.integers(2, 60)), p)) * 10.0 ** rng.uniform(-1, 1, size=p)
    if seed % 3 == 0:
        x = x @ rng.normal(size=(p, p))
    y = x @ rng.normal(size=p) * rng.uniform(0.2, 5.0) + rng.normal(size=len(x))
    return x.T @ x / len(x), x.T @ y / len(x)


def hard_problem():
    """For this one the library needs more steps than it takes by itself."""
    rng = np.random.default_rng(18858)
    p = int(rng.integers(3, 9))
    x = rng.normal(size=(2 * p, p)) @ (np.eye(p) + 0.7 * rng.normal(size=(p, p)))
    y = x @ rng.normal(size=p) * 4
    return x.T @ x / len(x), x.T @ y / len(x)


def is_minimum(theta, A, b, *, theta_max):
    """The conditions of Karush, Kuhn and Tucker, to rounding."""
    assert np.all(np.abs(theta) <= theta_max)
    slope = (A @ theta - b) / (np.abs(A) @ np.abs(theta) + np.abs(b) + 1e-300)
    inside = np.abs(theta) < theta_max * (1 - 1e-9)
    return np.all(np.abs(slope[inside]) < 1e-7) and np.all((slope * np.sign(theta))[~inside] < 1e-7)


@pytest.mark.parametrize("guesses", [0, module.GUESSES])
def test_it_ends_at_the_minimum(guesses, monkeypatch):
    monkeypatch.setattr(module, "GUESSES", guesses)
    for seed in range(200):
        A, b = problem(seed)
        assert is_minimum(box_least_squares(A, b, theta_max=0.8), A, b, theta_max=0.8), seed


def test_most_minima_are_found_without_the_library(monkeypatch):
    asked = []
    monkeypatch.setattr(module, "_by_search", lambda *_: asked.append(True) or np.zeros(1))
    for seed in range(200):
        box_least_squares(*problem(seed), theta_max=0.8)
    assert len(asked) < 40


@pytest.mark.parametrize("guesses", [0, module.GUESSES])
def test_the_search_is_not_cut_short(guesses, monkeypatch):
    monkeypatch.setattr(module, "GUESSES", guesses)
    A, b = hard_problem()
    assert is_minimum(box_least_squares(A, b, theta_max=1.0), A, b, theta_max=1.0)
