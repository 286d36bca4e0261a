"""``copriv forecast``: from public records to a verdict, and one clear sentence for bad input."""

import io
import json
import re
import tomllib
import warnings

import numpy as np
import pandas as pd
import pytest
import tomli_w
from forked import run
from rich.console import Console

from common.config import check_settings, load_settings
from common.errors import InputError
from learner.commands.forecast import candidate_of, run_forecast
from learner.forecasting.questions import (
    answers_of,
    ask,
    ask_together,
    points_of,
    questions,
    read_answers,
)
from learner.forecasting.verdict import verdict
from learner.planning.deciding import decide
from learner.planning.settings import StudySettings, load_study
from learner.planning.ways import WAYS
from learner.results.forecast_text import sentences
from learner.simulated.sweeps import Workers


def make_table(rows, seed, region=None):
    rng = np.random.default_rng(seed)
    regions = rng.choice(["north", "south"], rows) if region is None else np.full(rows, region)
    x = rng.normal(size=(rows, 3))
    y = x @ [1.0, -0.5, 0.25] + np.where(regions == "south", 0.5, 0.0) + 0.3 * rng.normal(size=rows)
    table = pd.DataFrame(x, columns=["a", "b", "c"])
    return table.assign(region=regions, y=y)


@pytest.fixture
def study(tmp_path):
    make_table(800, 1).to_parquet(tmp_path / "public.parquet")
    make_table(1500, 2, "north").to_parquet(tmp_path / "north.parquet")
    table = {
        "name": "small",
        "seed": 1,
        "features": {
            "public": {"path": "public.parquet"},
            "target": "y",
            "columns": ["a", "b", "c"],
        },
        "model": {"theta_max": 2.0},
        "algorithm": {"name": "moments"},
        "privacy": {"epsilon": "2"},
        "forecast": {
            "group_column": "region",
            "groups": {"beta": "south"},
            "records": {"beta": 1200, "gamma": 60},
            "runs": 24,
            "worlds": 4,
        },
        "owners": [
            {"name": "alpha", "data": {"path": "north.parquet", "where": {"region": "north"}}},
            {"name": "beta"},
            {"name": "gamma", "epsilon": "0.02"},
        ],
    }

    def write(**changes):
        path = tmp_path / "study.toml"
        path.write_text(tomli_w.dumps(table | changes))
        return path

    return write


def copriv(*arguments):
    return run("copriv", "forecast", *arguments)


def forecast_here(path, out, *, public=None, compare=()):
    """The command without a process of its own."""
    run_forecast(
        candidate_of(load_study(path), base=path.parent, public=public),
        out=out,
        compare=compare,
        curves=False,
        workers=Workers(jobs=1),
        console=Console(file=io.StringIO()),
    )
    return json.loads((out / "forecast.json").read_text())


@pytest.mark.parametrize(
    ("changes", "named", "told"),
    [
        ({"model": {"loss": "hinge"}}, ("newton", "ticks"), ["newton", "do not allow it"]),
        # The default names all, and means those that are possible.
        ({"model": {"loss": "hinge"}}, (*WAYS,), []),
        ({"groups": [["alpha", "beta"]]}, ("newton",), ["newton", "do not allow it"]),
    ],
)
def test_a_way_that_is_named_and_not_compared_is_told(study, tmp_path, changes, named, told):
    model = {"theta_max": 2.0} | changes.get("model", {})
    algorithm = {"name": "asynchronous", "horizon": 50}
    path = study(**changes | {"model": model, "algorithm": algorithm})
    table = tomllib.loads(path.read_text())
    if "loss" in model:
        table["features"] |= {"target": "region", "positive": "south"}
        path.write_text(tomli_w.dumps(table))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        forecast_here(path, tmp_path / "out", compare=named)
    said = " ".join(str(one.message) for one in caught if "--compare" in str(one.message))
    assert all(word in said for word in told)
    assert bool(told) == bool(said)


def test_a_forecast_tells_who_gains_and_who_harms_and_can_be_resumed(study, tmp_path):
    # The recommended profile hardly counts owners that are so loud, so that they harm nobody.
    path = study(privacy={"epsilon": "4"}, profile="published")
    out = tmp_path / "out"
    options = ("--out", out, "--jobs", "1", "--compare", "moments,published")
    result = copriv(path, *options)
    assert result.returncode == 0, result.stderr
    told = json.loads((out / "forecast.json").read_text())
    assert (out / "forecast.png").stat().st_size > 10_000
    alpha, beta, gamma = told["owners"]
    assert [owner["records"] for owner in told["owners"]] == [1500, 1200, 60]
    # The small and conservative one makes it worse for the others, and only that one.
    assert gamma["harms"]
    assert not alpha["harms"]
    assert not beta["harms"]
    assert "gamma makes things worse for the others" in result.stdout
    assert set(told["algorithms"]) == {"moments", "published"}
    for curve in ("epsilon", "size", "owners"):
        assert len(told["curves"][curve]) >= 5
    falling = [row["relative_fitness"] for row in told["curves"]["epsilon"].values()]
    assert falling[0] > falling[-1]
    assert told["failures"] == {}
    # Again: every point is there, nothing is computed, the verdict is the same.
    points = {p.name: p.stat().st_mtime_ns for p in (out / "points").iterdir()}
    # What is a link there, such as in a folder from elsewhere, is replaced and not written through.
    other = tmp_path / "other.txt"
    other.write_text("kept")
    results = [path for path in out.iterdir() if path.is_file()]
    assert {path.suffix for path in results} == {".json", ".html", ".png"}
    for result in results:
        result.unlink()
        result.symlink_to(other)
    again = copriv(path, *options)
    assert again.returncode == 0, again.stderr
    assert other.read_text() == "kept"
    assert not any(result.is_symlink() for result in results)
    assert {p.name: p.stat().st_mtime_ns for p in (out / "points").iterdir()} == points
    assert json.loads((out / "forecast.json").read_text()) == told


def test_the_verdict_is_made_of_public_facts_only(study, tmp_path):
    path = study()
    first = forecast_here(path, tmp_path / "a")
    other = make_table(1500, 77, "north")
    other["y"] = 9.0  # another shard of the same size
    other.to_parquet(tmp_path / "north.parquet")
    assert forecast_here(path, tmp_path / "b") == first


def test_names_of_the_same_question_are_one_point_and_the_study_is_asked_once(study, tmp_path):
    algorithm = {"name": "asynchronous"}
    forecast = {"records": {"alpha": 300, "beta": 200, "gamma": 250}, "runs": 12, "worlds": 2}
    owners = [{"name": name} for name in ("alpha", "beta", "gamma")]
    study(algorithm=algorithm, forecast=forecast, owners=owners)
    table = tomllib.loads((tmp_path / "study.toml").read_text())
    settings = check_settings(StudySettings, table, where="study")
    candidate = candidate_of(settings, base=tmp_path, public=None)
    base = decide(settings, candidate.public, num_records=candidate.num_records, seed=1)
    asked = questions(candidate, compare=("ticks", "published"), curves=True, base=base)
    points = points_of(asked)
    again = {
        "by-ticks",
        "epsilon-1",
        "size-1",
        "owners-3",
        # "best found" named another T, with a larger forecast than the study's own.
        f"horizon-{base.horizon}",
        "clip-auto",
        "split-schedule",
    }
    assert set(points["study"]) == {"study", *again}
    assert {name for point in points.values() for name in point} == set(asked)
    told = answers_of({"study": ask_together(points["study"])})
    assert told["study"].relative_fitness == base.forecast
    assert told["epsilon-1"] == told["study"] == ask(asked["study"])


@pytest.mark.parametrize("name", ["asynchronous", "auto"])
def test_ways_are_compared_at_once_and_come_to_what_each_comes_to_by_itself(study, name):
    forecast = {"records": dict.fromkeys(("alpha", "beta", "gamma"), 300), "runs": 12, "worlds": 2}
    path = study(algorithm={"name": name}, forecast=forecast)
    settings = load_settings(StudySettings, path)
    candidate = candidate_of(settings, base=path.parent, public=None)
    base = decide(settings, candidate.public, num_records=candidate.num_records, seed=1)
    asked = questions(candidate, compare=("newton", "ticks"), curves=True, base=base)
    told = ask(asked["ways-1"])
    for way in ("newton", "ticks"):
        alone = ask(asked[f"by-{way}"]).relative_fitness
        assert told.ways[way] == pytest.approx(alone, rel=1e-12)
    assert (asked["ways-0.1"] is asked["epsilon-0.1"]) == (name == "auto")
    assert not any(
        key.startswith("ways-")
        for key in questions(candidate, compare=("published",), curves=True, base=base)
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"public": "x"},
        {"alone": [0.5]},
        {"by_world": [0.5]},
        {"horizon": 0},
        {"algorithm": "\x1b[2J"},
    ],
)
def test_a_kept_answer_is_read_as_it_was_given_or_not_at_all(study, changed):
    path = study()
    settings = load_settings(StudySettings, path)
    candidate = candidate_of(settings, base=path.parent, public=None)
    base = decide(settings, candidate.public, num_records=candidate.num_records, seed=1)
    asked = points_of(questions(candidate, compare=(), curves=False, base=base))["study"]
    told = ask_together(asked)
    assert read_answers(told, asked) == told
    wrong = {name: answer | changed for name, answer in told.items()}
    for kept in (wrong, {}, told | {"unit-9": told["study"]}, [], None):
        with pytest.raises(ValueError, match=r"other questions|validation error"):
            read_answers(kept, asked)


@pytest.mark.parametrize(("records", "most", "little"), [(1500, 2, (0, 1)), (60, 0, (2,))])
def test_more_of_an_epsilon_is_worth_most_where_it_hides_many_records(
    study, tmp_path, records, most, little
):
    """Where few records hide behind much noise, they hardly count, and harm nobody."""
    table = {**tomllib.loads(study().read_text())}
    # As many worlds and runs as a study has that says nothing of them: the gain is small.
    table["forecast"] |= {"worlds": 12, "runs": 96}
    table["forecast"]["records"]["gamma"] = records
    settings = check_settings(StudySettings, table, where="study")
    candidate = candidate_of(settings, base=tmp_path, public=None)
    base = decide(settings, candidate.public, num_records=candidate.num_records, seed=1)
    asked = questions(candidate, compare=(), curves=False, base=base)
    told = verdict(candidate, {name: ask(question) for name, question in asked.items()})
    worth = [owner.one_more_epsilon_is_worth for owner in told.owners]
    assert worth[most] == max(worth) > 0
    assert worth[most] > 3 * max(abs(worth[owner]) for owner in little)
    assert any("gamma" in sentence for sentence in sentences(told))
    assert any("no public group stands for gamma" in warning for warning in told.warnings)


def test_a_simulation_that_forecasts_says_which_owners_no_public_group_stands_for(study, tmp_path):
    table = {**tomllib.loads(study().read_text())}
    named = {"alpha": "north", "beta": "south"}
    told = []
    for names in (("alpha", "beta", "gamma"), ("alpha", "beta")):
        path = study(
            algorithm={"name": "newton"},
            forecast=table["forecast"] | {"groups": named, "records": {}},
            owners=[{"name": name, "data": {"path": "north.parquet"}} for name in names],
        )
        out = tmp_path / f"of-{len(names)}"
        result = run("copriv", "simulate", path, "--in-memory", "--yes", "--out", out)
        assert result.returncode == 0, result.stderr
        told.append(" ".join(result.stdout.split()))
    assert "warning: no public group stands for gamma: groups at random play them" in told[0]
    assert "no public group" not in told[1]


def test_a_forecast_is_not_replaced_by_that_of_another_study(study, tmp_path):
    """As a sweep is not; the same one goes on, or is made again."""
    out = tmp_path / "out"
    told = forecast_here(study(), out)
    assert forecast_here(study(), out) == told
    make_table(900, 3).to_parquet(tmp_path / "others.parquet")
    others = tmp_path / "others.parquet"
    for changes, public in (({"privacy": {"epsilon": "3"}}, None), ({}, others)):
        with pytest.raises(InputError, match="holds the forecast of another study, or of this one"):
            forecast_here(study(**changes), out, public=public)
        assert json.loads((out / "forecast.json").read_text()) == told
    (out / "forecast.json").write_text('{"asked": []}')
    with pytest.raises(InputError, match="holds the forecast of another study"):
        forecast_here(study(), out)
    # What nobody can read says nothing.
    (out / "forecast.json").write_text("[")
    forecast_here(study(privacy={"epsilon": "3"}), out)


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda t, tmp: make_table(800, 1).drop(columns="b").to_parquet(tmp / "public.parquet"),
         "no column 'b' among the public records"),
        (lambda t, tmp: make_table(3, 1).to_parquet(tmp / "public.parquet"), "public records"),
        (lambda t, tmp: t["privacy"].update(epsilon="0"), "privacy.epsilon: got '0', expected"),
        (lambda t, tmp: t["forecast"].update(records={"beta": 0, "gamma": 1}),
         "forecast.records.beta: got 0"),
        (lambda t, tmp: t["forecast"].update(group_column="county"), "no column 'county'"),
        (lambda t, tmp: t["forecast"].update(groups={"beta": "west"}), "of group 'west'"),
        (lambda t, tmp: t["forecast"].pop("group_column"), "give forecast.group_column"),
        (lambda t, tmp: t["forecast"].update(groups={"delta": "north"}), "'delta' is not an owner"),
        (lambda t, tmp: t["forecast"].update(groups={"delta": "north", "epsilon": "north"}),
         "forecast.groups: 'delta', 'epsilon' are not owners of this study; correct the spelling"),
        (lambda t, tmp: t["forecast"].update(records={"alpha": 7}),
         'give forecast.records = { "beta" = NUMBER, "gamma" = NUMBER, "alpha" = 7 }'),
        (lambda t, tmp: t["forecast"].update(records={}),
         "number of records of beta, gamma is not known"),
        (lambda t, tmp: t["features"].update(public={"path": "nowhere.parquet"}), "no such file"),
        (lambda t, tmp: t["forecast"].update(availability=0.0), "forecast.availability"),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_sentence(study, tmp_path, break_it, said):
    path = study()
    table = tomllib.loads(path.read_text())
    break_it(table, tmp_path)
    path.write_text(tomli_w.dumps(table))
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        forecast_here(path, tmp_path / "out")
    assert caught.value.exit_status == 2
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out" / "forecast.json").exists()


def test_what_takes_long_is_said_before_it_begins(study, tmp_path, monkeypatch):
    monkeypatch.setattr("learner.commands.forecast.decide_quietly", lambda *_, **__: 1 / 0)
    text = io.StringIO()
    path = study()
    with pytest.raises(ZeroDivisionError):
        run_forecast(
            candidate_of(load_settings(StudySettings, path), base=path.parent, public=None),
            out=tmp_path / "out",
            compare=(),
            curves=False,
            workers=Workers(jobs=1),
            console=Console(file=text, width=200),
        )
    assert re.fullmatch(
        r"deciding from [\d,]+ public records how 3 owners would learn\n", text.getvalue()
    )


def test_another_file_of_public_records_may_be_given(study, tmp_path):
    make_table(400, 5).to_csv(tmp_path / "other.csv", index=False)
    told = forecast_here(study(), tmp_path / "out", public=tmp_path / "other.csv")
    assert told["public_records"] == 400
    result = copriv(study(), "--compare", "magic")
    assert result.returncode == 2
    assert result.stderr.startswith("copriv: --compare magic: expected one of")


def test_ways_may_be_named_one_by_one(study):
    """Each that is named counts, and not the last alone."""
    result = copriv(study(), "--compare", "magic", "--compare", "luck")
    assert result.returncode == 2
    assert result.stderr.startswith("copriv: --compare magic: expected one of")
