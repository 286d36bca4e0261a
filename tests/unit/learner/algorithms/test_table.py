"""An algorithm is what its entry of the table says; a new one needs no more than an entry."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import islice

import numpy as np
import pytest

from common.config import check_settings
from common.errors import InputError
from common.losses import Regulariser
from common.releases import GRADIENT, RELEASES
from common.terms import Records, StudyTerms
from learner.algorithms.clocks import Tick
from learner.algorithms.shrinkage import Around
from learner.algorithms.table import ALGORITHMS, Kind, Setup, simulated
from learner.planning.deciding import decide
from learner.planning.plan import Plan
from learner.planning.public_side import PublicSide
from learner.planning.settings import StudySettings
from learner.training.journal import Journal
from learner.training.memory_owner import MemoryOwner
from learner.training.study import train

SETUP = Setup(
    weights=np.array([0.25, 0.75]),
    num_features=2,
    theta_max=1.0,
    regulariser=Regulariser(coefficient=0.5),
    horizon=9,
    constant=0.5,
    around=Around(
        theta=np.array([0.1, -0.2]),
        curvature=2 * np.eye(2),
        offset=np.zeros(2),
        spread=0.1,
        curvature_spread=0.1,
    ),
    curvature_scale=0.5,
    scales=np.array([0.1, 0.2]),
)
ASKED = StudyTerms(
    study_id="s",
    loss="squared",
    theta_max=1.0,
    feature_map="",
    horizon=1,
    responses=1,
    epsilon=Fraction(1),
)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_of_the_table_goes_on_from_tick_to_tick(name):
    kind = ALGORITHMS[name]
    algorithm = kind.make(SETUP)
    clocks = [Tick(float(k), (k % 2,)) for k in range(4)]
    state = algorithm.initial_state()
    for tick in islice(kind.ticks(lambda: iter(clocks), 2), 2):
        assert algorithm.query_point(state, tick).shape == (2,)
        answer = np.ones(kind.release.dimension(ASKED, 2))
        state = algorithm.apply_responses(state, tick, dict.fromkeys(tick.owners, answer))
    assert algorithm.central_model(state).shape == (2,)
    assert simulated(algorithm) is algorithm


def test_an_algorithm_that_asks_for_another_release_bears_its_name():
    """An owner that reads a study's file knows no algorithm, but what it is asked for."""
    for name, kind in ALGORITHMS.items():
        assert RELEASES.get(name, GRADIENT) is kind.release


@dataclass(frozen=True, kw_only=True, eq=False)
class Last:
    """One model that goes against every answer in turn."""

    setup: Setup

    def initial_state(self):
        return np.zeros(self.setup.num_features)

    def query_point(self, state, tick):
        return state

    def apply_responses(self, state, tick, responses):
        step = self.setup.constant / self.setup.horizon
        box = self.setup.theta_max
        return np.clip(state - step * responses[tick.owners[0]], -box, box)

    def central_model(self, state):
        return state


@pytest.fixture
def last(monkeypatch):
    kind = Kind(
        make=lambda setup: Last(setup=setup),
        ticks=lambda clocks, num_owners: clocks(),
        constant="rho",
        uses=frozenset({"clocks"}),
        is_schedulable=True,
    )
    monkeypatch.setitem(ALGORITHMS, "last", kind)
    return "last"


def study(public, **algorithm):
    return check_settings(
        StudySettings,
        {
            "name": "study",
            "seed": 1,
            "features": {"public": {"path": "p.csv"}, "target": "y"},
            "model": {"loss": "squared", "theta_max": 2.0},
            "algorithm": algorithm,
            "privacy": {"epsilon": 100, "clip": 1.0, "split": "schedule"},
            "owners": [{"name": name} for name in "abc"],
        },
        where="study.toml",
    )


def test_an_algorithm_with_an_entry_is_checked_planned_and_trained(
    last, feature_map, public_table, tmp_path
):
    records = feature_map.apply(public_table, where="x")
    public = PublicSide(feature_map=feature_map, records=records)
    settings = study(public, name=last, horizon=12, rho=3.0, clocks="records")
    parts = [
        Records(features=records.features[i::3], targets=records.targets[i::3]) for i in range(3)
    ]
    owners = [
        MemoryOwner(n, part, seed=i) for i, (n, part) in enumerate(zip("abc", parts, strict=True))
    ]
    journal = Journal(tmp_path / "journal.sqlite")
    outcome = train(settings, public, owners, journal=journal)
    journal.close()
    assert isinstance(outcome.plan, Plan)
    assert sum(outcome.responses) == sum(outcome.plan.responses) == 12
    assert np.abs(outcome.theta).max() > 0
    with pytest.raises(InputError, match=r"algorithm.average belongs to asynchronous, not to last"):
        study(public, name=last, horizon=12, rho=3.0, average="tail")
    with pytest.raises(InputError, match="studies of Last are not simulated"):
        decide(study(public, name=last), public, num_records=(9, 9, 9), seed=1)
    with pytest.raises(InputError, match="newton, last, auto"):
        study(public, name="second")
    with pytest.raises(InputError, match="expected one of asynchronous, synchronous-1"):
        study(public, name="first")
    with pytest.raises(InputError, match="did you mean 'asynchronous'"):
        study(public, name="ticks")
