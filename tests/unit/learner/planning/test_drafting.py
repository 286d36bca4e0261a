"""What is learnt from what, and whose a record is, as a raw table tells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from common.errors import InputError
from common.looking import look_at
from learner.planning.drafting import Target, choose_target


def target_of(cells: Sequence[object], positive: Sequence[str] = ()) -> tuple[Target, list[str]]:
    table = pd.DataFrame({"ill": pd.Series(cells, dtype=object)})
    return choose_target(table, look_at(table), "ill", positive)


@pytest.mark.parametrize(
    ("yes", "no"),
    [(1, 0), ("1.0", "0.0"), (1, -1), ("TRUE", "FALSE"), (True, False), ("Yes", "No"), ("y", "n")],
)
def test_of_two_values_the_one_that_says_yes_is_class_plus_one_however_frequent(
    yes: object, no: object
) -> None:
    for cells in ([yes] * 7 + [no] * 3, [yes] * 3 + [no] * 7):
        target, _ = target_of(cells)
        np.testing.assert_array_equal(target.values, [1.0 if c == yes else -1.0 for c in cells])


def test_of_two_other_values_the_rarer_is_class_plus_one() -> None:
    assert target_of(["home"] * 7 + ["died"] * 3)[0].positive == ("died",)
    assert target_of([1] * 7 + [2] * 3)[0].positive == ("2",)


@pytest.mark.parametrize(
    ("typed", "cells"),
    [
        ("true", ["TRUE", "FALSE"]),
        ("True", [True, False]),
        ("1.0", [1, 0]),
        ("1", ["1.0", "0.0"]),
        (" North  Side ", ["North Side", "South"]),
    ],
)
def test_a_class_is_found_however_it_is_typed(typed: str, cells: list[object]) -> None:
    np.testing.assert_array_equal(target_of(cells, (typed,))[0].values, [1.0, -1.0])


def test_a_class_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(InputError) as refused:
        target_of(["yes"] * 3 + ["no"] * 4, ("yess",))
    assert str(refused.value) == (
        "--positive: ill has no 'yess' (did you mean 'yes'?); it has 'no' (4) and 'yes' (3)"
    )


def test_what_counts_as_class_minus_one_is_told() -> None:
    cells = ["Yes"] * 9 + ["yes"] * 8 + ["no"] * 7 + ["unknown"] * 6
    _, notes = target_of(cells, ("Yes",))
    assert "target ill: class -1 is all else: 'yes' (8), 'no' (7) and 'unknown' (6)" in notes
    _, notes = target_of(cells, ("Yes", "yes", "unknown"))
    assert not any("class -1" in note for note in notes)
