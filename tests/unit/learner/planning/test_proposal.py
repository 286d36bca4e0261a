"""What a study's settings say is what the twin runs."""

import numpy as np
import pytest

from common.config import check_settings
from common.privacy import plan_noise
from learner.planning.decision import Decision
from learner.planning.plan import Plan
from learner.planning.proposal import propose
from learner.planning.settings import StudySettings
from learner.simulated.schedules import Attendance

COUNTS = (100, 300, 600)
DECISION = Decision(num_records=COUNTS, horizon=30, clip=None, constant=0.1)


def settings_of(**changes):
    table = {
        "name": "test",
        "seed": 5,
        "profile": "published",
        "features": {"map": "x"},
        "model": {"theta_max": 1.0},
        "algorithm": {"horizon": 30, "rho": 0.1},
        "privacy": {"epsilon": "1"},
        "owners": [{"name": f"o{i}", "epsilon": str(i + 1)} for i in range(3)],
    }
    return check_settings(StudySettings, table | changes, where="test")


def proposal_of(feature_map, settings, *, decision=DECISION, **options):
    return propose(settings, feature_map, decision, seed=5, **options)


@pytest.mark.parametrize("split", ["horizon", "schedule"])
def test_noise_and_ticks_are_those_of_the_plan(feature_map, split):
    settings = settings_of(privacy={"epsilon": "1", "split": split})
    proposed = proposal_of(feature_map, settings)
    plan = Plan(settings=settings, num_features=feature_map.num_features, decision=DECISION, seed=5)
    terms = plan.terms(feature_map, study_id="x")
    scales = [
        plan_noise(own, feature_map.domain, num_records=n).noise_scale
        for own, n in zip(terms, COUNTS, strict=True)
    ]
    promised = [own.responses for own in terms]
    assert proposed.unit_scales * promised == pytest.approx(scales, rel=1e-5)
    assert proposed.split == split
    counts = np.bincount(proposed.ticks, minlength=3)
    assert proposed.ticks.size == 30
    if split == "schedule":
        assert counts.tolist() == promised


def test_unseeded_clocks_are_drawn_by_the_twin(feature_map):
    settings = settings_of().model_copy(update={"seed": None})
    assert proposal_of(feature_map, settings).ticks is None


def test_moments_have_the_noise_of_one_release(feature_map):
    settings = settings_of(algorithm={"name": "moments"})
    decision = Decision(num_records=COUNTS, horizon=3, clip=None, constant=0.0)
    proposed = proposal_of(feature_map, settings, decision=decision)
    plan = Plan(settings=settings, num_features=feature_map.num_features, decision=decision, seed=5)
    terms = plan.terms(feature_map, study_id="x")[2]
    scale = plan_noise(terms, feature_map.domain, num_records=600).noise_scale
    assert proposed.unit_scales[2] == pytest.approx(scale, rel=1e-6)


def test_groups_rates_and_the_own_shard_are_kept(feature_map):
    owners = [
        {"name": "o0", "clock_rate": 2.0},
        {"name": "o1", "data": {"path": "x.parquet"}},
        {"name": "o2", "clock_rate": 2.0},
    ]
    settings = settings_of(
        owners=owners, groups=[["o0", "o2"]], learner={"own": "o1", "shows_model": True}
    )
    attendance = Attendance(availability=np.array([0.5, 1.0, 0.8]))
    proposed = proposal_of(feature_map, settings, attendance=attendance)
    assert proposed.groups == ((0, 2), (1,))
    assert proposed.clock_rates.tolist() == [2.0, 1.0]
    assert proposed.unit_scales[1] == 0.0
    assert proposed.unit_scales[0] > 0
    assert proposed.attendance.availability.tolist() == [0.5, 1.0]
    assert set(proposed.ticks.tolist()) == {0, 1}
