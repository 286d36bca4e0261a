"""Every algorithm and loss through the settings, over gRPC and in memory, bit for bit."""

from dataclasses import fields, replace

import numpy as np
import pytest
from maps import map_of

from common.config import check_settings
from common.losses import LOSSES, Squared
from common.releases import curvature_scale
from common.terms import Records
from learner.network.grpc_owner import GrpcOwner
from learner.planning.public_side import PublicSide
from learner.planning.settings import StudySettings
from learner.training.journal import Journal
from learner.training.memory_owner import MemoryOwner
from learner.training.study import Watch, train
from owner.ledger_reading import read_studies

pytestmark = pytest.mark.usefixtures("without_forecasts")
NAMES = ("north", "south", "west")
SIZES = (200, 300, 100)


class World:
    """Three owners twice: behind sockets and in memory."""

    def __init__(self, loss, folder, owner_folder, serve_owner, table_maker):
        self.classes, self.folder = LOSSES[loss].has_classes(), folder
        public = self._table(table_maker, 400, seed=0)
        self.feature_map = map_of(public, positive="yes" if self.classes else None)
        self.public = PublicSide(
            feature_map=self.feature_map, records=self.feature_map.apply(public, where="public")
        )
        tables = [self._table(table_maker, n, seed=7 + i) for i, n in enumerate(SIZES)]
        self.shards = [self.feature_map.apply(table, where="owner") for table in tables]
        self.running = [
            serve_owner(
                owner_folder(name, table=table, pinned=self.feature_map, epsilon_lifetime="1000"),
                insecure_noise_seed=i,
            )
            for i, (name, table) in enumerate(zip(NAMES, tables, strict=True))
        ]

    def _table(self, make, n, *, seed):
        table = make(n, seed=seed)
        if self.classes:
            table["y"] = np.where(table["y"] > 0.2, "yes", "no")
        return table

    def settings(self, loss, algorithm, privacy):
        return check_settings(
            StudySettings,
            {
                "name": "study",
                "seed": 5,
                "features": {"map": "features.json"},
                "model": {"loss": loss, "theta_max": 2.0}
                | {field.name: "auto" for field in fields(LOSSES[loss].example())},
                "algorithm": algorithm,
                # What is asked of a finished model has tests of its own.
                "privacy": {"epsilon": 5, "validation": 0} | privacy,
                "owners": [{"name": name} for name in NAMES],
                # What is learnt here is not to be worth it.
                "guard": False,
            },
            where="study.toml",
        )

    def remote(self):
        return [
            GrpcOwner(name, f"127.0.0.1:{one.port}", deadline=20)
            for name, one in zip(NAMES, self.running, strict=True)
        ]

    def local(self, first=0):
        return [
            MemoryOwner(name, shard, seed=first + i)
            for i, (name, shard) in enumerate(zip(NAMES, self.shards, strict=True))
        ]

    def charged(self):
        ledgers = [read_studies(one.owner._ledger._held.path)[1] for one in self.running]
        return tuple(entry.account.answered for (entry,) in ledgers)

    def train(self, settings, owners, name):
        journal = Journal(self.folder / f"{name}.sqlite")
        models = []
        outcome = train(
            settings,
            self.public,
            owners,
            journal=journal,
            watch=Watch(applied=lambda now: models.append(now.central_model)),
        )
        journal.close()
        return outcome, np.array(models).tobytes()


@pytest.fixture
def world(tmp_path, owner_folder, serve_owner, table_maker):
    return lambda loss: World(loss, tmp_path, owner_folder, serve_owner, table_maker)


NUMBERS = {"horizon": 24, "rho": 2e-5}
ROUNDS = {"name": "synchronous-1", "horizon": 8, "rho": 20.0}
AVERAGE = {"name": "synchronous-2", "horizon": 8, "initial_step": 0.3}


@pytest.mark.parametrize(
    ("loss", "algorithm", "privacy"),
    [
        ("squared", NUMBERS, {"sensitivity": "domain", "split": "horizon"}),
        ("squared", NUMBERS | {"average": "last", "rule": "corrected"}, {"clip": 1.5}),
        ("squared", {"horizon": 20}, {}),
        ("squared", ROUNDS, {"clip": 1.5}),
        ("squared", AVERAGE, {"sensitivity": "domain"}),
        ("squared", {"name": "moments"}, {}),
        ("squared", {"name": "moments", "start": "public"}, {}),
        ("squared", {"name": "newton"}, {"clip": 1.5}),
        ("squared", {"name": "newton", "rounds": 3}, {"clip": 1.5}),
        ("logistic", {"name": "newton", "rounds": 2}, {}),
        ("squared", NUMBERS | {"start": "public"}, {"clip": 1.5}),
        ("logistic", {"name": "newton", "curvature_share": 0.2}, {"sensitivity": "domain"}),
        ("huber", {"name": "newton"}, {}),
        ("hinge", NUMBERS, {"clip": 1.5}),
        ("hinge", AVERAGE, {"sensitivity": "domain"}),
        ("logistic", NUMBERS, {"sensitivity": "domain"}),
        ("logistic", ROUNDS, {"clip": 1.5}),
        ("huber", NUMBERS, {"sensitivity": "domain", "split": "horizon"}),
        ("huber", {"horizon": 20}, {}),
        ("huber", AVERAGE, {"clip": 0.2}),
    ],
)
def test_every_algorithm_over_grpc_equals_in_memory_bit_for_bit(world, loss, algorithm, privacy):
    here = world(loss)
    settings = here.settings(loss, algorithm, privacy)
    outcome, over_grpc = here.train(settings, here.remote(), "grpc")
    twin, in_memory = here.train(settings, here.local(), "memory")
    assert over_grpc == in_memory
    assert outcome.theta.tobytes() == twin.theta.tobytes()
    assert np.any(outcome.theta)
    assert outcome.responses == twin.responses
    assert outcome.ticks == outcome.plan.horizon
    # What was promised was given: nobody reserves more than it spends.
    if settings.privacy.split == "schedule" or settings.algorithm.name != "asynchronous":
        assert outcome.responses == tuple(e.responses for e in outcome.enrollments)
    for one, responses in zip(here.running, outcome.responses, strict=True):
        (entry,) = read_studies(one.owner._ledger._held.path)[1]
        assert entry.account.answered == responses
        assert entry.epsilon_spent == entry.epsilon * responses / entry.account.promised


def test_a_schedule_needs_less_noise_for_the_same_epsilon(world):
    here = world("squared")
    privacy = {"sensitivity": "domain"}
    numbers = NUMBERS | {"clocks": "given"}
    papers, _ = here.train(
        here.settings("squared", numbers, privacy | {"split": "horizon"}), here.local(), "papers"
    )
    ahead, _ = here.train(
        here.settings("squared", numbers, privacy | {"split": "schedule"}), here.local(), "ahead"
    )
    assert papers.responses == ahead.responses  # the same clocks
    for count, sized, scheduled in zip(
        ahead.responses, papers.enrollments, ahead.enrollments, strict=True
    ):
        assert scheduled.epsilon == sized.epsilon
        ratio = scheduled.noise_scale / sized.noise_scale
        assert ratio == pytest.approx(count / 24, rel=1e-9)


def test_an_owner_that_the_schedule_leaves_out_promises_and_spends_nothing(world):
    here = world("squared")
    short = {"horizon": 2, "rho": 1e-7}
    outcome, _ = here.train(here.settings("squared", short, {"clip": 1.0}), here.remote(), "short")
    assert sum(outcome.responses) == 2
    idle = [i for i, responses in enumerate(outcome.responses) if responses == 0]
    assert idle
    for index, (one, enrollment) in enumerate(zip(here.running, outcome.enrollments, strict=True)):
        assert (enrollment.responses == 0) == (index in idle)
        assert len(read_studies(one.owner._ledger._held.path)[1]) == (index not in idle)


def test_moments_without_noise_are_the_optimum(world):
    from common.losses import Regulariser  # noqa: PLC0415
    from learner.simulated.evaluation import Evaluation  # noqa: PLC0415
    from learner.simulated.problem import Problem  # noqa: PLC0415

    here = world("squared")
    owners = [MemoryOwner(n, s, seed=None) for n, s in zip(NAMES, here.shards, strict=True)]
    settings = here.settings("squared", {"name": "moments"}, {})
    outcome, _ = here.train(settings, owners, "moments")
    problem = Problem(loss=Squared(), regulariser=Regulariser(coefficient=1e-5), theta_max=2.0)
    evaluation = Evaluation(shards=here.shards, problem=problem)
    # The grid that responses are rounded to is all that is lost.
    assert evaluation.relative_fitness(outcome.theta[None])[0] < 1e-9


def test_newton_without_noise_is_the_optimum(world):
    from common.losses import Regulariser  # noqa: PLC0415
    from learner.simulated.evaluation import Evaluation  # noqa: PLC0415
    from learner.simulated.problem import Problem  # noqa: PLC0415

    here = world("squared")
    owners = [MemoryOwner(n, s, seed=None) for n, s in zip(NAMES, here.shards, strict=True)]
    # As much of epsilon as keeps what noise is expected from hiding anything.
    settings = here.settings(
        "squared",
        {"name": "newton", "curvature_share": 0.5},
        {"sensitivity": "domain", "epsilon": 1e9},
    )
    outcome, _ = here.train(settings, owners, "newton")
    problem = Problem(loss=Squared(), regulariser=Regulariser(coefficient=1e-5), theta_max=2.0)
    evaluation = Evaluation(shards=here.shards, problem=problem)
    free = problem.optimum(here.public.records)
    psi = evaluation.relative_fitness(np.stack([outcome.theta, free]))
    assert psi[0] < 1e-6 < psi[1]


def test_every_owner_is_told_the_same_factor_of_the_curvature(world):
    here = world("squared")
    algorithm = {"name": "newton", "curvature_share": 0.2, "rounds": 2}
    settings = here.settings("squared", algorithm, {"clip": 1.5})
    outcome, _ = here.train(settings, here.remote(), "newton")
    asked = outcome.plan.terms(here.feature_map, study_id="s")
    factor = curvature_scale(Squared(), here.feature_map.domain, bound=1.5, share=0.2)
    assert {(terms.curvature_scale, terms.clip) for terms in asked} == {(factor, 1.5)}
    for one in here.running:
        (entry,) = read_studies(one.owner._ledger._held.path)[1]
        assert entry.noted_terms.curvature_scale == factor
    # What the learner takes back is the noise that was promised, whatever the rounds are.
    assert outcome.plan.decision.scales == pytest.approx(
        [enrollment.noise_scale for enrollment in outcome.enrollments], rel=1e-12
    )


@pytest.mark.parametrize(
    ("algorithm", "stops_at"),
    [
        ({"horizon": 20}, 7),
        ({"name": "moments"}, 1),
        ({"name": "newton"}, 2),
        ({"name": "newton", "rounds": 3}, 5),
    ],
)
def test_a_study_that_stopped_goes_on_with_what_it_decided_first(world, algorithm, stops_at):
    here = world("squared")
    settings = here.settings("squared", algorithm, {})
    twin, in_memory = here.train(settings, here.local(), "memory")
    path = here.folder / "run.sqlite"

    def stop(now):
        if now.k == stops_at:
            raise KeyboardInterrupt

    journal = Journal(path)
    with pytest.raises(KeyboardInterrupt):
        train(settings, here.public, here.remote(), journal=journal, watch=Watch(applied=stop))
    journal.close()
    # Other public records would choose otherwise; the decision is the first start's.
    records = here.public.records
    louder = Records(features=records.features, targets=np.sign(records.targets))
    here.public = replace(here.public, records=louder)
    again, both = here.train(settings, here.remote(), "run")
    assert again.plan.decision == twin.plan.decision
    assert both == in_memory
    # Nobody is charged twice.
    assert again.responses == twin.responses == here.charged()


def test_other_noise_makes_other_models(world):
    here = world("squared")
    settings = here.settings("squared", NUMBERS, {"split": "horizon"})
    _, first = here.train(settings, here.local(), "first")
    _, other = here.train(settings, here.local(first=99), "other")
    assert first != other


def test_an_owner_that_is_away_misses_its_ticks_and_the_others_go_on(world):
    here = world("squared")
    settings = here.settings("squared", NUMBERS, {"split": "horizon"})
    first, absent, last = here.remote()

    class Leaves:
        """Its server stops before it is asked for an answer."""

        def __getattr__(self, name):
            return getattr(absent, name)

        def answer(self, query):
            here.running[1].server.stop(None)
            return absent.answer(query)

    outcome, _ = here.train(settings, [first, Leaves(), last], "away")
    assert sum(outcome.responses) == outcome.plan.horizon
    # What it was asked ahead it may have answered.
    assert outcome.responses[1] <= 1
    assert outcome.unclosed == ("south",)
