"""What is said of a figure is what its numbers say."""

import numpy as np
import pandas as pd
import pytest

from learner.reproduction.figures import with_bound
from learner.reproduction.papers import FIGURES
from learner.reproduction.reproduce import finding, slope


def grid(*, power, rest=0.1):
    """Noise that falls with a power of n epsilon, above a rest, and below what the box allows."""
    worst = 50.0
    n, epsilon = (a.ravel() for a in np.meshgrid([100, 200, 400, 800], np.geomspace(1, 1000, 7)))
    added = 1e6 * (n * epsilon) ** -power
    return pd.DataFrame(
        {
            "records": n,
            "epsilon": epsilon,
            "owners": 3,
            "relative_fitness": np.minimum(added + rest, worst),
            "without_noise": rest,
            "untrained": worst,
            "scale": 1.0,
        }
    )


@pytest.mark.parametrize("along", ["epsilon", "records"])
def test_the_slope_is_that_of_the_noise_not_of_the_box_or_of_what_is_left(along):
    assert slope(with_bound(grid(power=2.0)), along) == pytest.approx(-2.0, abs=1e-6)
    assert slope(with_bound(grid(power=1.0)), along) == pytest.approx(-1.0, abs=1e-6)


def test_a_slope_that_is_not_the_papers_does_not_agree():
    assert finding(FIGURES["A5"], with_bound(grid(power=2.0)))[0] == "yes"
    assert finding(FIGURES["A5"], with_bound(grid(power=1.0)))[0] == "no"
    agrees, said = finding(FIGURES["A5"], with_bound(grid(power=2.0, rest=40.0)))
    assert agrees == "no"
    assert "noise rules nowhere" in said


def test_the_fitted_bound_is_what_noise_adds_above_what_is_left():
    fitted = with_bound(grid(power=2.0))
    n, S = 3 * fitted["records"], 3 / fitted["epsilon"] ** 2
    assert fitted["sqrt_term"].iloc[0] == pytest.approx(0.0, abs=1e-3)
    assert fitted["bound"].to_numpy() == pytest.approx(
        (0.1 + fitted["linear_term"] * S / n**2).to_numpy()
    )
    assert fitted["largest_misfit"].iloc[0] == pytest.approx(0.0, abs=1e-6)


def percentiles(medians, spread):
    return pd.DataFrame(
        {
            "epsilon": [1.0, 10.0, 100.0],
            "k": 100,
            "q25": np.array(medians),
            "median": medians,
            "q75": np.array(medians) + spread,
            "owners": 3,
            "records": 1000,
            "untrained": 1.0,
        }
    )


@pytest.mark.parametrize(
    ("medians", "spread", "agrees"),
    [
        ([0.5, 0.1, 0.05], [0.2, 0.1, 0.01], "yes"),
        ([0.5, 0.005, 0.006], [0.2, 0.1, 0.1], "yes"),  # nothing is left to fall
        ([1.0, 0.999, 0.998], [0.3, 0.2, 0.1], "no"),  # nothing is learnt
        ([0.5, 0.4, 0.3], [0.3, 0.2, 0.1], "no"),  # it does not arrive
        ([0.5, 0.1, 0.05], [0.1, 0.2, 0.3], "no"),
    ],
)
def test_medians_agree_that_fall_and_arrive(medians, spread, agrees):
    assert finding(FIGURES["A2"], percentiles(medians, spread))[0] == agrees


def test_the_first_owner_gains_from_where_it_gains_with_every_larger_number():
    rows = [
        {"owners": N, "epsilon": e, "gains": gains, "records": 10}
        for e, row in ((1.0, (1, 0, 0)), (10.0, (1, 0, 1)), (100.0, (0, 1, 1)))
        for N, gains in zip((2, 5, 10), map(bool, row), strict=True)
    ]
    agrees, said = finding(FIGURES["A6"], pd.DataFrame(rows))
    assert agrees == "yes"
    assert "from 10 owners at epsilon 10, from 5 owners at epsilon 100" in said
    assert "epsilon 1," not in said
