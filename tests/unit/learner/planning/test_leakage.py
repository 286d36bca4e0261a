"""Parts of the target are told from a good model of it."""

import numpy as np
import pytest

from common.looking import Column
from learner.planning.leakage import explained_together


@pytest.mark.parametrize(("noise", "are_parts"), [(0.1, True), (0.45, True), (0.7, False)])
def test_columns_that_leave_more_than_a_tenth_are_no_parts_of_the_target(noise, are_parts):
    rng = np.random.default_rng(1)
    one, other, third = rng.normal(size=(3, 4000))
    target = one - other + noise * rng.normal(size=4000)
    cells = {"one": one, "other": other, "third": third}
    columns = [Column(name, "number", 4000, 0, values) for name, values in cells.items()]
    share, found = explained_together(columns, target)
    assert share == pytest.approx(2.0 / (2.0 + noise**2) if are_parts else 0.0, abs=0.01)
    assert [column.name for column in found] == (["one", "other"] if are_parts else [])
