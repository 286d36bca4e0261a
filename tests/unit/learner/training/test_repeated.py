"""A study repeated at many seeds is the study that the loop trains, seed by seed."""

import numpy as np
import pytest

from common.config import check_settings
from common.terms import Records
from learner.planning.deciding import decide_quietly
from learner.planning.public_side import PublicSide
from learner.planning.settings import StudySettings
from learner.training.journal import Journal
from learner.training.memory_owner import LocalShard, MemoryOwner
from learner.training.repeated import NOISE_SEEDS, Repeated
from learner.training.study import train

NAMES = ("north", "south", "west")
SIZES = (60, 90, 75)
TICKS = {"name": "asynchronous", "horizon": 40, "rho": 0.05, "start": "zero"}
GROUPS = {"groups": [["north", "west"]]}
OWN = {"learner": {"own": "south", "shows_model": True}}


@pytest.fixture
def side(feature_map):
    rng = np.random.default_rng(5)
    return PublicSide(feature_map=feature_map, records=shard(feature_map, 400, rng))


def shard(feature_map, size, rng):
    x = rng.uniform(-1, 1, size=(size, feature_map.num_features))
    y = np.clip(x @ np.linspace(-1, 1, x.shape[1]) + 0.1 * rng.normal(size=size), -1, 1)
    domain = feature_map.domain
    return Records(features=x * domain.feature_bound, targets=y * domain.target_bound)


def settings_of(**changes):
    table = {
        "name": "small",
        "profile": "published",
        "features": {"map": "unused.json"},
        "model": {"loss": "squared", "theta_max": 1.0, "regularisation": 0.01},
        "algorithm": TICKS,
        "privacy": {"epsilon": 50},
        "owners": [{"name": name} for name in NAMES],
    }
    return check_settings(StudySettings, table | changes, where="test")


def trained(settings, side, shards, seed, folder):
    """The model that the loop trains with owners in memory."""
    owners = [
        LocalShard(name, own)
        if name == settings.learner.own
        else MemoryOwner(name, own, seed=seed * NOISE_SEEDS + i)
        for i, (name, own) in enumerate(zip(NAMES, shards, strict=True))
    ]
    journal = Journal(folder / f"journal-{seed}.sqlite")
    try:
        seeded = settings.model_copy(update={"seed": seed})
        return train(seeded, side, owners, journal=journal).theta
    finally:
        journal.close()


CASES = {
    "ticks": {},
    "clipped": {"privacy": {"epsilon": 50, "sensitivity": "clip", "clip": 0.5}},
    "schedule": {
        "algorithm": TICKS | {"correction": "counted", "clocks": "records", "average": "tail"},
        "privacy": {"epsilon": 50, "split": "schedule", "sensitivity": "clip", "clip": 0.5},
    },
    "counted": {"algorithm": TICKS | {"correction": "counted"}},
    "rates": {"algorithm": TICKS | {"correction": "rates", "clocks": "records"}},
    "groups": GROUPS | {"privacy": {"epsilon": 50, "split": "schedule"}},
    "own": OWN | {"privacy": {"epsilon": 50, "sensitivity": "clip", "clip": 0.5}},
    "huber": {"model": {"loss": "huber", "delta": 0.3, "theta_max": 1.0}},
    "synchronous-1": {"algorithm": {"name": "synchronous-1", "horizon": 9, "rho": 5.0}},
    "synchronous-2": {"algorithm": {"name": "synchronous-2", "horizon": 9, "initial_step": 0.1}},
    "moments": {"algorithm": {"name": "moments"}},
    "moments from the public model": {"algorithm": {"name": "moments", "start": "public"}},
    "newton": {
        "algorithm": {"name": "newton", "curvature_share": 0.5, "rounds": 1},
        "privacy": {"epsilon": 50, "sensitivity": "clip", "clip": 0.5},
    },
    "newton in three rounds": {
        "algorithm": {"name": "newton", "curvature_share": 0.1, "rounds": 3},
        "privacy": {"epsilon": 50, "sensitivity": "clip", "clip": 0.5},
    },
}
AT_ONCE = {"moments", "moments from the public model", "newton", "newton in three rounds"}


@pytest.mark.parametrize("name", CASES)
def test_the_run_of_a_seed_is_the_one_that_the_loop_trains(name, side, tmp_path):
    settings = settings_of(**CASES[name])
    rng = np.random.default_rng(1)
    shards = [shard(side.feature_map, size, rng) for size in SIZES]
    decision = decide_quietly(settings, side, num_records=SIZES, seed=0)
    repeated = Repeated(
        settings=settings, feature_map=side.feature_map, decision=decision, shards=shards
    )
    seeds = [1, 2, 5]
    models = repeated.models(seeds)
    alike = [trained(settings, side, shards, seed, tmp_path) for seed in seeds]
    assert np.abs(models).max() > 1e-3
    assert np.abs(models[0] - models[1]).max() > 1e-6
    if name in AT_ONCE:
        np.testing.assert_array_equal(models, alike)
    else:
        np.testing.assert_allclose(models, alike, rtol=0, atol=1e-10)
