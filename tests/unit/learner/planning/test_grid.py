"""A sweep's grid: what is typed becomes studies, and what is none is one sentence."""

import re

import pytest

from common.errors import InputError
from learner.planning.grid import experiment_of, parse_grid
from learner.planning.settings import load_study

STUDY = """\
name = "small"
[features]
map = "features.json"
[model]
theta_max = 2
[algorithm]
horizon = 4
rho = 1
[privacy]
epsilon = 1
[[owners]]
name = "north"
epsilon = 3
[[owners]]
name = "south"
[[owners]]
name = "west"
"""


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


@pytest.mark.parametrize("text", [".=1", "privacy.=1", ".epsilon=1", "privacy..epsilon=1"])
def test_a_key_with_an_empty_part_is_none(text):
    with pytest.raises(InputError, match=r"^--grid .*: expected KEY=VALUE,VALUE"):
        parse_grid([text])


def test_every_combination_is_a_study_of_its_own(study):
    grid = parse_grid(["privacy.epsilon=1/3,2", "owners=3,1", "algorithm.horizon=4,auto"])
    changes = {"algorithm.step": "auto", "profile": "published", "algorithm.rho": None}
    points = experiment_of(study, grid, seeds=5, overrides=changes).points
    assert len(points) == 8
    first, last = points[0], points[-1]
    assert first.words == "privacy.epsilon=1/3, owners=3, algorithm.horizon=4"
    assert str(first.settings.privacy.epsilon) == "1/3"
    assert [owner.name for owner in first.settings.owners] == ["north", "south", "west"]
    assert [owner.name for owner in last.settings.owners] == ["north"]
    assert first.settings.owners[0].epsilon == 3
    assert last.settings.algorithm.horizon == "auto"


@pytest.mark.parametrize("key", ["groups", "records", "availability_of"])
def test_a_forecast_names_owners_of_the_study_who_need_not_be_at_each_point(study, key):
    """A name that is misspelt would count for nobody, whatever the command."""
    points = experiment_of(
        study, parse_grid(["owners=1"]), seeds=1, overrides={f"forecast.{key}.west": 1}
    ).points
    assert [owner.name for owner in points[0].settings.owners] == ["north"]
    misspelt = {f"forecast.{key}.wset": 1}
    sentence = re.escape(f"forecast.{key}: 'wset' is not an owner of this study; correct")
    with pytest.raises(InputError, match=sentence):
        experiment_of(study, {}, seeds=1, overrides=misspelt)
    with pytest.raises(InputError, match=sentence):
        load_study(study, overrides=misspelt)


def test_a_grid_over_losses_has_each_with_its_own_keys(study):
    typed = 'model={loss="squared", theta_max=1},{loss="huber", delta="auto", theta_max=1}'
    points = experiment_of(study, parse_grid([typed]), seeds=1).points
    models = [point.settings.model for point in points]
    assert [(model.loss, model.delta) for model in models] == [("squared", None), ("huber", "auto")]


def test_no_point_leaves_a_clock_rate_without_effect(study):
    study.write_text(STUDY + "clock_rate = 2\n")
    (point,) = experiment_of(study, parse_grid(["algorithm.name=asynchronous"]), seeds=1).points
    assert point.settings.owners[2].clock_rate == 2
    sentence = re.escape("owners.clock_rate belongs to asynchronous, not to synchronous-1; remove")
    for names in ("asynchronous,synchronous-1", "synchronous-1"):
        with pytest.raises(InputError, match=sentence):
            experiment_of(study, parse_grid([f"algorithm.name={names}"]), seeds=1)
    both = parse_grid(["algorithm.name=synchronous-1", "owners=2"])
    assert len(experiment_of(study, both, seeds=1).points) == 1


def test_no_grid_is_one_point(study):
    (point,) = experiment_of(study, {}, seeds=1).points
    assert point.words == ""


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("privacy.epsilon", "expected KEY=VALUE,VALUE"),
        ("=1", "expected KEY=VALUE,VALUE"),
        ("privacy.epsilon=", "expected KEY=VALUE,VALUE"),
        ("privacy.epsilon=1,,2", "expected KEY=VALUE,VALUE"),
        ("seed=1,2", "give their number with --seeds"),
        ("privacy.epsilon=1,1", "1 is given twice"),
        ("privacy.epsilon=1,true", "privacy.epsilon: got true, expected a number"),
        ("privacy.epsilon=1,-1", "greater than 0"),
        ("privacy.epsylon=1", "privacy.epsylon"),
        ("model.loss=squared,hinges", "model.loss"),
        ("owners=4", "from 1 to 3"),
        ("owners=0", "from 1 to 3"),
        ("owners=north", "from 1 to 3"),
        ("owners=true", "from 1 to 3"),
        ("name.first=a", "name is not a table"),
        ("algorithm.initiative=learner,owner", "cannot be repeated by seeds"),
    ],
)
def test_what_is_no_grid_is_one_sentence(study, typed, sentence):
    with pytest.raises(InputError) as error:
        experiment_of(study, parse_grid([typed]), seeds=3)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_a_grid_that_is_too_large_says_how_many_studies_it_has(study):
    values = ",".join(map(str, range(1, 201)))
    grid = parse_grid([f"privacy.epsilon={values}", f"model.theta_max={values}"])
    with pytest.raises(InputError, match="40,000 points x 3 seeds = 120,000 studies"):
        experiment_of(study, grid, seeds=3)
    with pytest.raises(InputError, match=r"at most .* 999,999 studies"):
        experiment_of(study, parse_grid(["privacy.epsilon=1,2"]), seeds=600_000)


def test_a_key_that_stands_twice_is_refused():
    with pytest.raises(InputError, match="is given twice"):
        parse_grid(["privacy.epsilon=1", "privacy.epsilon=2"])
