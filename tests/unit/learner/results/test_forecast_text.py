"""A forecast's numbers are told as those of a run are."""

from types import SimpleNamespace

import pytest

from learner.forecasting.verdict import OwnerVerdict
from learner.results.forecast_text import owner_row
from learner.results.page import texts


@pytest.mark.parametrize(("kept", "shown"), [("243/10", "24.3"), ("1/2", "0.5"), ("inf", "own")])
def test_an_epsilon_is_told_as_it_was_typed(kept, shown):
    """What is kept exactly, as a fraction, nobody has typed."""
    owner = OwnerVerdict(
        name="bank",
        records=5000,
        epsilon=kept,
        relative_fitness_alone=0.1,
        gains=True,
        one_more_epsilon_is_worth=0.01,
        smallest_epsilon_factor=None,
    )
    verdict = SimpleNamespace(relative_fitness=0.05, relative_fitness_public=0.1)
    assert texts(owner_row(owner, verdict, better=""))[2] == shown
