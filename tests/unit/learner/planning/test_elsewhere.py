"""Owners elsewhere than the public records, which lie still and say nothing of it."""

import numpy as np
import pandas as pd
import pytest
from maps import map_of

from common.config import check_settings
from learner.planning.deciding import decide_quietly
from learner.planning.proposal import propose
from learner.planning.public_side import PublicSide
from learner.planning.settings import StudySettings
from learner.simulated.studies import run_study
from learner.simulated.world import World

OWNERS, SIZE = 5, 1000


def table_of(n, *, spread, slope, rng):
    x, z = rng.normal(0, spread, n), rng.normal(size=n)
    return pd.DataFrame({"x": x, "z": z, "y": slope * x + 0.5 * z + rng.normal(size=n)})


@pytest.fixture(scope="module")
def tables():
    """A public table and the owners': a feature varies nine times as much, and says the reverse."""
    rng = np.random.default_rng(0)
    public = table_of(500, spread=1.0, slope=0.4, rng=rng)
    owners = [table_of(SIZE, spread=3.0, slope=-0.2, rng=rng) for _ in range(OWNERS)]
    feature_map = map_of(public, coverage=1.0)
    shards = [feature_map.apply(own, where="owner") for own in owners]
    return feature_map, feature_map.apply(public, where="public"), shards


def settings_of(epsilon, **changes):
    table = {
        "name": "study",
        "features": {"map": "features.json", "public": {"path": "public.csv"}},
        "model": {"loss": "squared", "theta_max": 2.0},
        "algorithm": {"name": "newton"},
        "privacy": {"epsilon": epsilon, "validation": 0},
        "owners": [{"name": f"o{i}"} for i in range(OWNERS)],
    }
    return check_settings(StudySettings, table | changes, where="study.toml")


@pytest.mark.parametrize("epsilon", [1, 3, 10])
def test_a_step_that_the_public_curvature_makes_too_long_is_mended(tables, epsilon):
    feature_map, records, shards = tables
    settings = settings_of(epsilon)
    public = PublicSide(feature_map=feature_map, records=records)
    decision = decide_quietly(settings, public, num_records=[SIZE] * OWNERS, seed=0)
    assert decision.horizon >= 2 * OWNERS
    world = World.of(shards, public.problem(settings))
    proposal = propose(settings, feature_map, decision, seed=0)
    models = run_study(proposal, world, runs=10, rng=np.random.default_rng(0))
    fitness = world.evaluation.relative_fitness(np.vstack([decision.start, models]))
    assert fitness[1:].max() < 0.05 * fitness[0]


@pytest.mark.parametrize("stand_for_all", [True, False])
def test_owners_that_public_records_stand_for_may_be_asked_once(tables, stand_for_all):
    feature_map, records, _ = tables
    names = [f"o{i}" for i in range(OWNERS)]
    labels = np.arange(len(records)) % OWNERS
    known = {name: place for place, name in enumerate(names[: OWNERS - (not stand_for_all)])}
    public = PublicSide(feature_map=feature_map, records=records, labels=labels, known=known)
    settings = settings_of(100)
    decision = decide_quietly(settings, public, num_records=[SIZE] * OWNERS, seed=0)
    assert (decision.horizon == OWNERS) == stand_for_all
