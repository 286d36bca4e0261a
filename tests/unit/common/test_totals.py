"""Rows of totals in a raw table are no records."""

import numpy as np
import pandas as pd
import pytest

from common.errors import InputError
from common.looking import look_at
from common.totals import refuse_totals

N = 300


def stays(*, seed=4):
    rng = np.random.default_rng(seed)
    days = rng.gamma(2, 3, N).round() + 1
    return pd.DataFrame(
        {"age": rng.integers(18, 90, N), "sex": rng.choice(["f", "m"], N), "days": days}
    )


def with_row(table, **cells):
    return pd.concat([table, pd.DataFrame([cells])], ignore_index=True)


def by_sex(table):
    groups = [with_row(group, days=group.days.sum()) for _, group in table.groupby("sex")]
    return with_row(pd.concat(groups, ignore_index=True), days=table.days.sum())


@pytest.mark.parametrize(
    ("make", "row"),
    [
        (lambda table: with_row(table, days=table.days.sum()), N + 1),
        (lambda table: with_row(table, age="Total", sex="", days=str(table.days.sum())), N + 1),
        (lambda t: with_row(t, age=t.age.sum(), sex="Total", days=t.days.sum()), N + 1),
        (by_sex, None),
    ],
    ids=["empty", "named", "whole", "subtotals"],
)
def test_a_row_of_totals_is_refused_with_its_place(make, row):
    table = stays()
    row = row or int((table.sex == "f").sum()) + 1
    with pytest.raises(
        InputError, match=rf"^t\.csv: row {row} below the header is not a record: its"
    ):
        refuse_totals(look_at(make(table)), where="t.csv")


def test_records_far_out_are_no_totals():
    for seed in range(60):
        table = stays(seed=seed)
        table.loc[N - 1, ["sex", "days"]] = [None, 1000 * table.days[7]]
        refuse_totals(look_at(table), where="t.csv")
    # A whole record may be as large as all others together.
    table = stays()
    refuse_totals(look_at(with_row(table, age=5, sex="f", days=table.days.sum())), where="t.csv")


def test_rare_counts_are_no_totals():
    rng = np.random.default_rng(0)
    for _ in range(200):
        visits = rng.poisson(0.05, N)
        visits[rng.integers(50, N, 3)] = rng.integers(3, 20, 3)
        age = np.where(rng.random(N) < 0.1, np.nan, 40.0 + rng.integers(0, 9, N))
        refuse_totals(look_at(pd.DataFrame({"age": age, "visits": visits})), where="t.csv")


def test_a_total_of_each_group_is_the_sum_since_the_one_before_and_the_last_one_of_all():
    """Only the totals of the second group and of all lack a name, so that a row is told by them."""
    days = [*[3.0, 4.0] * 20, 140.0, *[3.0, 4.0] * 30, 210.0]
    names = ["x"] * 41 + ["y"] * 60
    for more, row in (([], 102), ([350.0], 102)):
        cells = days + more
        table = pd.DataFrame({"days": cells, "name": [*names, *[None] * (len(cells) - 101)]})
        with pytest.raises(InputError, match=f"row {row} below the header is not a record"):
            refuse_totals(look_at(table), where="t.csv")
