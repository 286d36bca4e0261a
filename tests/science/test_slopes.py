"""Cost of privacy falls with the square of epsilon and of n on real records, as theory says.

References: equations (9) and (11) of Farokhi et al. (2021), Theorem 2 of Wu et al. (2020).
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from common.config import load_settings
from common.tables import read_table
from common.terms import Records
from learner.network.processes import table_source
from learner.planning.deciding import decide
from learner.planning.decision import Decision
from learner.planning.proposal import propose
from learner.planning.public_side import prepare_public_side
from learner.planning.settings import StudySettings
from learner.simulated.studies import run_study
from learner.simulated.world import World

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/hospitals.toml"
FACTORS = np.array([2.0, 4.0, 8.0, 16.0])
# Steps long enough to forget the start within T: the noise, not the way, is what is left.
LONGER = 8.0
TOLERANCE = 0.15
RUNS = 400


@pytest.fixture(scope="module")
def study():
    settings = load_settings(
        StudySettings,
        EXAMPLE,
        overrides=[
            'profile="published"',
            "algorithm.horizon=1000",
            'algorithm.step="auto"',
            "privacy.epsilon=20",
        ],
    )
    base = EXAMPLE.parent
    side = prepare_public_side(settings, base=base)
    shards = [
        side.feature_map.apply(
            read_table(table_source(settings, entry, base=base), base=base), where=entry.name
        )
        for entry in settings.owners
    ]
    counts = [len(shard) for shard in shards]
    return settings, side, shards, decide(settings, side, num_records=counts, seed=1)


def slope(x, psi):
    return np.polyfit(np.log(x), np.log(psi), 1)[0]


def measure(study, *, epsilon_factor=1.0, shards=None):
    """Mean relative fitness."""
    settings, side, all_shards, decision = study
    shards = shards or all_shards
    counts = tuple(len(shard) for shard in shards)
    step = Decision(
        num_records=counts, horizon=1000, clip=None, constant=LONGER * decision.constant
    )
    proposal = propose(settings, side.feature_map, step, seed=1)
    proposal = replace(proposal, unit_scales=proposal.unit_scales / epsilon_factor)
    world = World.of(shards, side.problem(settings))
    models = run_study(proposal, world, runs=RUNS, rng=np.random.default_rng(1))
    return world.evaluation.relative_fitness(models).mean()


def floor(study):
    """What is left without noise: theory says nothing about it."""
    return measure(study, epsilon_factor=1e9)


def test_the_slope_in_epsilon_is_minus_2(study):
    psi = np.array([measure(study, epsilon_factor=f) for f in FACTORS])
    assert psi[-1] > 3 * floor(study)  # the noise rules
    assert slope(FACTORS, psi) == pytest.approx(-2.0, abs=TOLERANCE)


def test_the_slope_in_the_number_of_records_is_minus_2(study):
    _, _, shards, _ = study
    smallest = min(len(shard) for shard in shards)
    sizes = [smallest // 8, smallest // 4, smallest // 2, smallest]
    psi = []
    for size in sizes:
        rows = np.arange(size) * smallest // size
        parts = [Records(features=s.features[rows], targets=s.targets[rows]) for s in shards]
        # The factor keeps small shards away from the edge of the box, where all models are alike.
        psi.append(measure(study, epsilon_factor=16.0, shards=parts))
    assert psi[-1] > 2 * floor(study)
    assert slope(np.array(sizes), np.array(psi)) == pytest.approx(-2.0, abs=TOLERANCE)
