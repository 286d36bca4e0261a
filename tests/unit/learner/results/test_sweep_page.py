"""A sweep's table and page say no more than its seeds show."""

import re

import pandas as pd
import pytest
from rich.console import Console

from learner.results.sweep_page import sweep_summary, sweep_table, write_sweep_page


def rows(seeds):
    return pd.DataFrame(
        {
            "point": [point for point in range(2) for _ in range(seeds)],
            "privacy.epsilon": [1.0 + point for point in range(2) for _ in range(seeds)],
            "way": "newton",
            "horizon": 8,
            "num_owners": 3,
            "relative_fitness": [0.1 + 0.01 * i for i in range(2 * seeds)],
            "relative_fitness_public": 0.2,
            "relative_fitness_alone": 0.3,
            "gains": 3,
        }
    )


@pytest.mark.parametrize("seeds", [1, 2])
def test_one_seed_has_no_interval(tmp_path, seeds):
    keys = ["privacy.epsilon"]
    summary = sweep_summary(rows(seeds), keys)
    console = Console(width=160)
    with console.capture() as told:
        console.print(sweep_table(summary, keys))
    page = write_sweep_page(tmp_path, "s", summary, keys).read_text()
    for text, words in ((told.get(), "±"), (page, "±"), (page, "interval of its mean")):
        assert (words in text) == (seeds > 1)


def test_owners_who_gain_are_counted_in_the_mean_of_all_seeds():
    found = sweep_summary(rows(2).assign(gains=[3, 2, 0, 1]), ["privacy.epsilon"])
    assert found["gains"].tolist() == [2.5, 0.5]
    console = Console(width=160)
    with console.capture() as told:
        console.print(sweep_table(found, ["privacy.epsilon"]))
    assert "2.5 of 3" in told.get()


def test_half_of_an_interval_is_not_rounded_to_much_less():
    # Of two seeds half is 12.7 standard errors: 0.149 here.
    found = rows(2).assign(relative_fitness=[0.5 - 0.011727, 0.5 + 0.011727] * (len(rows(2)) // 2))
    console = Console(width=160)
    with console.capture() as told:
        console.print(sweep_table(sweep_summary(found, ["privacy.epsilon"]), ["privacy.epsilon"]))
    assert "0.5 ± 0.15" in told.get()


def test_an_interval_that_reaches_down_to_0_leaves_room_for_the_curves(tmp_path):
    # Of two seeds half is 12.7 standard errors: nearly all of the mean here.
    found = rows(2).assign(relative_fitness=[0.5 - 0.03935, 0.5 + 0.03935] * 2)
    summary = sweep_summary(found, ["privacy.epsilon"])
    assert (summary["together"] - summary["half"] > 0).all()
    assert (summary["together"] - summary["half"] < 1e-3).all()
    page = write_sweep_page(tmp_path, "s", summary, ["privacy.epsilon"]).read_text()
    shown = {float(number) for number in re.findall(r">([0-9.e-]+)</text>", page)}
    assert min(shown) >= 0.01


@pytest.mark.parametrize("count", [3, 5, 16])
def test_no_two_curves_of_a_sweep_look_alike(tmp_path, count):
    points = [(epsilon, rounds) for rounds in range(count) for epsilon in (1.0, 2.0)]
    of_each = [
        rows(2).iloc[:2].assign(point=k, **{"privacy.epsilon": e, "algorithm.rounds": r})
        for k, (e, r) in enumerate(points)
    ]
    table = pd.concat(of_each)
    keys = ["privacy.epsilon", "algorithm.rounds"]
    page = write_sweep_page(tmp_path, "s", sweep_summary(table, keys), keys).read_text()
    picture = page.partition("<figure>")[2].partition("</figure>")[0]
    looks = re.findall(r'<polyline [^>]*?fill="none" (stroke="var\([^/]*)/>', picture)
    # The public model is the same at every choice.
    assert ">public model</text>" in picture
    looks = [look for look in looks if "--soft" not in look]
    assert len(looks) == len(set(looks)) == count
    # Each interval is of the colour of its curve.
    of_curves = set(re.findall(r'stroke="(var\(--[a-z]+\))"', "".join(looks)))
    assert set(re.findall(r"color-mix\(in srgb, (\S+) 35%", picture)) == of_curves


def test_what_is_noted_of_a_sweep_is_a_sentence_on_its_page(tmp_path):
    table, keys = rows(2), ["privacy.epsilon"]
    page = write_sweep_page(tmp_path, "s", sweep_summary(table, keys), keys, ["each is of its own"])
    assert "<p>Each is of its own.</p>" in page.read_text()
