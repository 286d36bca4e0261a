"""Newton's clip and share of epsilon, from public facts: quieter where the noise is loud."""

from types import SimpleNamespace

import numpy as np
import pytest

from common.domain import Domain
from common.losses import LOSSES, Regulariser
from common.terms import Records
from learner.algorithms.newton import NewtonStep
from learner.planning import split
from learner.planning.around import around_public, largest_gradient
from learner.planning.split import ROUNDS, SHARES, Split, choose_odds, choose_split
from learner.planning.tail import Tail
from learner.simulated import surrogates
from learner.simulated import world as world_module
from learner.simulated.evaluation import Evaluation
from learner.simulated.groups import PublicGroups
from learner.simulated.problem import Problem
from learner.simulated.studies import Proposal
from learner.simulated.surrogates import CHOICE_WORLDS, worlds_to_choose_in
from learner.simulated.world import World

P = 3
SIZES = np.array([4000.0, 2000.0, 3000.0])
DOMAIN = Domain(feature_bound=np.array([4.0, 4.0, 1.0]), target_bound=8.0)


def public_of(name="squared", n=600):
    loss, rng = LOSSES[name].example(), np.random.default_rng(1)
    x = np.column_stack([np.clip(rng.normal(size=(n, P - 1)), -4, 4), np.ones(n)])
    y = np.clip(x @ [0.4, -0.3, 0.2] + 0.3 * np.clip(rng.standard_t(3, n), -6, 6), -8, 8)
    if loss.has_classes():
        y = np.where(y > 0, 1.0, -1.0)
    problem = Problem(loss=loss, regulariser=Regulariser(coefficient=1e-5), theta_max=2.0)
    return PublicGroups(problem=problem, records=Records(features=x, targets=y), labels=None)


def leaning(public):
    """A study of Newton's step around these records' model."""
    units = np.full(3, 0.05)
    algorithm = NewtonStep(
        weights=np.full(3, 1 / 3),
        around=around_public(public, None),
        curvature_scale=1.0,
        scales=units,
        theta_max=2.0,
        regulariser=public.problem.regulariser,
    )
    return Proposal(algorithm=algorithm, num_records=np.full(3, 1200.0), unit_scales=units)


def pick(epsilon, *, public=None, seed=surrogates.CHOICE_SEED, **given):
    public = public_of() if public is None else public
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(surrogates, "CHOICE_SEED", seed)
        worlds = worlds_to_choose_in(public, SIZES, [None] * 3)
    units = 1.0 / (SIZES * epsilon)
    return choose_split(public, worlds, domain=DOMAIN, units=units, **given)


def test_equal_arguments_choose_equally():
    assert pick(1.0) == pick(1.0)


def test_more_noise_asks_for_smaller_clips():
    """Where anything can be told: beyond that every design leaves the public model as it is."""
    clips = [pick(epsilon).clip for epsilon in (0.03, 0.3, 3, 1e5)]
    assert clips == sorted(clips)
    assert clips[0] < clips[1] < clips[-1]
    # As no gradient at the public model is longer, this clips nothing.
    assert clips[-1] == largest_gradient(public_of(), DOMAIN)


def test_a_loud_owner_that_counts_little_makes_no_others_clip_small():
    public = public_of()
    worlds = worlds_to_choose_in(public, SIZES, [None] * 3)
    units = np.array([1.0, 1.0, 300.0]) / SIZES
    given = {"domain": DOMAIN, "units": units}
    alike = choose_split(public, worlds, **given)
    less = choose_split(public, worlds, counted=np.array([0.66, 0.339, 0.001]), **given)
    assert less.clip > alike.clip


def test_a_clip_that_no_public_gradient_reaches_is_not_taken_to_clip_nothing():
    """Where noise is little: a few records beyond the longest public one cost more than that."""
    public = public_of(n=60)
    longest = float(np.abs(public.gradients).sum(axis=1).max())
    farthest = Tail(public.gradients, largest_gradient(public, DOMAIN)).farthest
    assert longest < farthest < largest_gradient(public, DOMAIN)
    assert pick(6.0, public=public).clip == farthest
    assert pick(0.1, public=public).clip <= longest


@pytest.mark.parametrize(("fewer", "rounds"), [(1.09, 2), (1.11, 3)])
def test_more_rounds_must_be_worth_a_tenth(monkeypatch, fewer, rounds):
    means = {2: fewer, 3: 1.0}
    monkeypatch.setattr(split._Search, "mean", lambda _, tried, __: means[tried.rounds])
    assert pick(1.0, rounds=(2, 3), clips=[0.5]).rounds == rounds


def test_what_a_clip_takes_of_unseen_records_counts_as_the_fitness_that_it_costs(monkeypatch):
    public, lost = public_of(), np.array([0.01, -0.02, 0.005])
    monkeypatch.setattr(split._Search, "mean", lambda *_: 0.0)
    monkeypatch.setattr(Tail, "lost", lambda *_: lost)
    search = split._Search(public, [], DOMAIN, 1.0 / SIZES, 1, np.full(3, 1 / 3))
    moved = public.theta_optimal - np.linalg.solve(
        public.problem.curvature(public.theta_optimal, public.records), lost
    )
    evaluation = Evaluation(shards=[public.records], problem=public.problem)
    told = search.expected(Split(clip=1.0, share=0.5, rounds=1), 2)
    assert told == pytest.approx(evaluation.relative_fitness(moved[None])[0], rel=1e-6)
    assert search.expected(Split(clip=None, share=0.5, rounds=1), 2) == 0.0


def test_what_is_typed_stays():
    typed = {"shares": [0.45], "rounds": [2]}
    assert pick(1.0, clips=[0.125], **typed) == Split(clip=0.125, share=0.45, rounds=2)
    assert pick(1.0, clips=[None], **typed) == Split(clip=None, share=0.45, rounds=2)
    chosen = pick(1.0, clips=[2.0])
    assert chosen.clip == 2.0
    assert chosen.share in SHARES
    assert pick(1.0, shares=[0.45]).share == 0.45
    assert pick(1.0).rounds in ROUNDS


@pytest.mark.parametrize("name", [n for n in LOSSES if LOSSES[n].curvature is not None])
def test_no_record_of_the_domain_has_a_longer_gradient_at_the_public_model(name):
    public, rng = public_of(name), np.random.default_rng(2)
    largest = largest_gradient(public, DOMAIN)
    x = rng.choice([-1.0, 1.0], (4000, P)) * DOMAIN.feature_bound
    classes = public.problem.loss.has_classes()
    y = rng.choice([-1.0, 1.0], 4000) * (1.0 if classes else DOMAIN.target_bound)
    records = Records(features=x, targets=y)
    norms = np.abs(public.problem.gradients(public.theta_optimal, records, None)).sum(axis=1)
    assert 0.99 * largest <= norms.max() <= largest * (1 + 1e-12)


def test_few_public_records_of_classes_are_not_believed_to_know_how_the_loss_curves():
    """Where noise is little: nothing else says that another round is worth its noise."""
    few, many = (
        [pick(3.0, public=public_of("logistic", n), seed=seed).rounds for seed in range(4)]
        for n in (20, 5000)
    )
    assert few.count(max(ROUNDS)) >= 3
    assert np.mean(many) < np.mean(few)
    # Curvature that is alike everywhere is told by the owners themselves.
    assert pick(10.0, public=public_of("squared", 20)).rounds <= 2


@pytest.mark.parametrize("name", [n for n in LOSSES if LOSSES[n].curvature is not None])
def test_every_smooth_loss_is_split(name):
    public = public_of(name)
    chosen = pick(3.0, public=public)
    assert 0 < chosen.clip <= largest_gradient(public, DOMAIN)
    assert chosen.share in SHARES


FAR = {0.5: 1.0, 1.5: 1.0}
NOTHING = {0.5: 1e-7, 1.5: 1e-7, 3.0: 0.0, 5.0: 0.0}


@pytest.mark.parametrize(
    ("worlds", "best"),
    [
        # A world in which owners are far away does not decide for all.
        ([FAR | {3.0: 0.9, 5.0: 1.1}, {0.5: 0.02, 1.5: 0.01, 3.0: 0.005, 5.0: 0.001}], 5.0),
        # Nor does one where nothing is left, by however little that is.
        ([NOTHING, {0.5: 0.012, 1.5: 0.01, 3.0: 0.011, 5.0: 0.02}], 1.5),
        # Of odds that are level the smallest.
        ([{0.5: 0.02, 1.5: 0.01, 3.0: 0.0099, 5.0: 0.0099}], 1.5),
        ([{0.5: 0.01, 1.5: 0.01, 3.0: 0.0095, 5.0: 0.0094}], 3.0),
        ([{0.5: 0.01, 1.5: 0.0099, 3.0: 0.02, 5.0: 0.03}], 0.5),
    ],
)
def test_worlds_count_alike_and_level_odds_are_the_smallest(worlds, best, monkeypatch):
    def run_study(proposal, world, *, runs, rng):
        return np.full(runs, world[proposal.algorithm.around.odds])

    monkeypatch.setattr(split, "run_study", run_study)

    class Table(dict):
        """Relative fitness by odds."""

        @property
        def evaluation(self):
            return SimpleNamespace(relative_fitness=lambda models: models)

    assert choose_odds(leaning(public_of()), [Table(world) for world in worlds]) == best


@pytest.mark.parametrize(("away", "odds"), [(0.0, 5.0), (0.5, 0.5)])
def test_owners_are_believed_to_be_far_away_the_sooner_the_farther_worlds_have_them(away, odds):
    """Noise is about as large as the step, so that whether it is believed makes the difference."""
    public = public_of()
    x = np.tile(public.records.features, (6, 1))
    moved = np.tile(public.records.targets, 6) + away * x @ [0.3, 0.3, 0.3]
    shards = [
        Records(features=x[first : first + 1200], targets=moved[first : first + 1200])
        for first in (0, 1200, 2400)
    ]
    assert choose_odds(leaning(public), [World.of(shards, public.problem)] * 3) == odds


def test_studies_of_many_coordinates_are_compared_in_fewer_runs(monkeypatch):
    """A third of the runs for thrice the coordinates, and one in each world at least."""
    asked = []

    def newton_steps(algorithm, gradients, curvatures, draws, variance):
        theta = np.tile(algorithm.around.theta, (len(next(iter(draws))), 1))
        asked.append(len(theta))
        return theta

    monkeypatch.setattr(split, "newton_steps", newton_steps)
    for few, coarse, fine in ((P, 2, 12), (1, 1, 4)):
        monkeypatch.setattr(world_module, "FEW_COORDINATES", few)
        asked.clear()
        pick(1.0)
        assert set(asked) == {CHOICE_WORLDS * coarse, CHOICE_WORLDS * fine}
