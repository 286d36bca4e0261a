"""With what bounds owners are asked of a finished model: from public facts, and within epsilon."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from common.config import check_settings
from common.errors import InputError
from common.releases import VALIDATION
from common.terms import Records
from common.validation import tally, unpack_validation
from learner.planning.decision import Decision
from learner.planning.noise_width import half_width
from learner.planning.plan import Plan
from learner.planning.public_side import PublicSide
from learner.planning.settings import StudySettings
from learner.planning.validation import ValidationBounds, validation_bounds, validation_terms
from learner.planning.ways import resolved
from learner.results.run_validation import exact_means


def settings_of(profile="recommended", **privacy):
    return check_settings(
        StudySettings,
        {
            "name": "small",
            "profile": profile,
            "features": {"map": "features.json"},
            "model": {"theta_max": 2.0},
            "algorithm": {"horizon": 10, "rho": 0.1},
            "privacy": {"epsilon": 1, "clip": 1.0, "sensitivity": "clip"} | privacy,
            "owners": [{"name": "a"}, {"name": "b", "epsilon": "1/3"}],
        },
        where="test",
    )


@pytest.fixture
def plan(feature_map):
    decision = Decision(num_records=(500, 300), horizon=10, clip=1.0, constant=0.1)
    p = feature_map.num_features
    return Plan(settings=settings_of(), num_features=p, decision=decision, seed=1)


@pytest.fixture
def public(feature_map, public_table):
    return PublicSide(feature_map=feature_map, records=feature_map.apply(public_table, where="p"))


def test_training_and_validation_together_are_what_is_promised(plan, public):
    bounds = validation_bounds(plan, public, np.zeros(plan.num_features))
    training = plan.terms(public.feature_map, study_id="s")
    validation = validation_terms(plan, public.feature_map, bounds, study_id="s")
    both = [one.epsilon + other.epsilon for one, other in zip(training, validation, strict=True)]
    assert both == [Fraction(1), Fraction(1, 3)]
    assert [its.epsilon for its in validation] == [Fraction(1, 10), Fraction(1, 30)]
    for its in validation:
        VALIDATION.check(its)
        assert VALIDATION.change(its, public.feature_map.domain) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("profile", "privacy", "share"),
    [
        ("recommended", {}, Fraction(1, 10)),
        ("published", {}, Fraction(0)),
        ("recommended", {"validation": 0}, Fraction(0)),
        ("published", {"validation": "1/3"}, Fraction(1, 3)),
    ],
)
def test_a_profile_fills_the_share_and_a_study_may_name_its_own(profile, privacy, share):
    settings = settings_of(profile, **privacy)
    assert settings.privacy.validation == share
    assert settings.for_training(settings.owners[0]) == 1 - share


@pytest.mark.parametrize("share", [-0.1, 0.95, 2, "x", True, float("nan"), [0]])
def test_a_share_that_is_none_is_one_sentence(share):
    with pytest.raises(InputError, match=r"expected a share of epsilon from 0 to 0\.9"):
        settings_of(validation=share)


def test_a_run_of_before_validation_goes_on_without_it():
    """Its journal says nothing of a share, so all of epsilon is the training's, as was promised."""
    before = Decision(num_records=(5, 5), horizon=10, clip=1.0, constant=0.1)
    assert resolved(settings_of(), before).privacy.validation == 0
    since = replace(before, validation="1/10")
    assert resolved(settings_of(), since).privacy.validation == Fraction(1, 10)


def test_kappa_times_the_rows_of_a_person_is_as_much_noise_as_a_kappath_of_epsilon(plan, public):
    def bounds(**privacy):
        settings = settings_of(**privacy)
        alike = tuple(one.model_copy(update={"epsilon": None}) for one in settings.owners)
        of_it = replace(plan, settings=settings.model_copy(update={"owners": alike}))
        return validation_bounds(of_it, public, np.full(plan.num_features, 0.1))

    few = bounds(epsilon=20)
    assert bounds(epsilon=20, kappa=40) == bounds(epsilon="1/2") != few


def test_a_larger_epsilon_leaves_out_less_and_none_leaves_out_a_tail(plan, public):
    def bounds(epsilon):
        settings = settings_of(epsilon=epsilon)
        alike = tuple(one.model_copy(update={"epsilon": None}) for one in settings.owners)
        changed = replace(plan, settings=settings.model_copy(update={"owners": alike}))
        return validation_bounds(changed, public, np.zeros(plan.num_features))

    rough, fine = bounds(0.01), bounds(1e6)
    assert rough.loss_bound < fine.loss_bound
    assert fine.cut_off == pytest.approx(0.0, abs=1e-12)
    assert 0 < (rough.cut_off or 0) < 1
    assert (rough.difference_bound or 0) <= rough.loss_bound


@pytest.mark.parametrize("epsilon", [1, 10, 20, 30])
def test_bounds_are_those_at_which_noise_and_what_is_cut_off_are_small(plan, public, epsilon):
    """Of both owners' noise in the mean of all, where loss and difference have 2/3 and 1/3."""
    settings = settings_of(epsilon=epsilon)
    one, other = settings.owners
    owners = (one, other.model_copy(update={"epsilon": Fraction(epsilon) / 3}))
    settings = settings.model_copy(update={"owners": owners})
    found = validation_bounds(replace(plan, settings=settings), public, np.zeros(plan.num_features))
    scales = [1.0 / (float(settings.for_validation(its)) * 800) for its in settings.owners]
    losses = public.records.targets**2
    tried = np.unique(np.quantile(losses, np.linspace(0.9, 1.0, 60)))
    half = half_width(np.array(scales) * 1.5, 0.0)
    precise = [b for b in tried if b * half <= np.minimum(losses, b).mean() / 25]
    assert found.loss_bound == max(precise, default=tried[0])
    kept = np.minimum(losses, found.loss_bound)
    assert found.loss_mean == pytest.approx(kept.mean())
    assert found.loss_spread == pytest.approx(kept.std())
    assert found.cut_off == pytest.approx(1.0 - kept.mean() / losses.mean())
    # The model of the other four fifths tells a fifth of the public records.
    rows, others = np.arange(len(losses)), np.empty(len(losses))
    for fold in np.array_split(rows, 5):
        theta = plan.problem.optimum(public.records.at(np.setdiff1d(rows, fold)))
        out = public.records.at(fold)
        others[fold] = (out.targets - out.features @ theta) ** 2
    sizes, deviation = np.abs(losses - others), np.sqrt(2 * np.sum(np.square(scales))) * 6
    tried = np.unique(np.quantile(sizes, np.linspace(0.9, 1.0, 60)))
    errors = [np.maximum(sizes - b, 0).mean() ** 2 + (b * deviation) ** 2 for b in tried]
    assert found.difference_bound == pytest.approx(tried[np.argmin(errors)])


def test_without_public_records_the_bound_is_of_the_targets_and_nothing_is_compared(plan, public):
    bounds = validation_bounds(plan, replace(public, records=None), np.zeros(plan.num_features))
    assert bounds.loss_bound == pytest.approx(4 * public.feature_map.domain.target_bound**2)
    assert bounds.reference == ()
    assert bounds.difference_bound is None


def classes_of(plan):
    settings = plan.settings
    model = settings.model.model_copy(update={"loss": "logistic", "theta_max": 10.0})
    return replace(plan, settings=settings.model_copy(update={"model": model}))


def test_the_mean_difference_lies_within_what_the_bound_leaves_out_of_a_public_model_too_sure(
    plan, feature_map
):
    """40 public records of 4 features: their model is far too sure of itself elsewhere.

    What owners say without noise, cut at D, is always above the mean of all differences. Judged by
    the public model itself, which knows these records, the interval holds it in 5 of 30 draws.
    """
    plan, p = classes_of(plan), plan.num_features
    holds = above = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        theta = rng.normal(size=p)
        public, own = drawn(theta, 40, rng=rng), drawn(theta, 3000, rng=rng)
        bounds = validation_bounds(plan, PublicSide(feature_map=feature_map, records=public), theta)
        terms = validation_terms(plan, feature_map, bounds, study_id="s")[0]
        margins, reference = own.features @ theta, own.features @ np.array(bounds.reference)
        told = tally(margins, own.targets, reference, loss=plan.loss, terms=terms)
        cut = unpack_validation(told, terms).difference
        (known,) = exact_means([terms], [own], theta, loss=plan.loss)
        assert cut is not None
        assert known.difference is not None
        holds += cut - bounds.cut_below <= known.difference <= cut + bounds.cut_above
        above += cut > known.difference
    assert above >= 24
    assert holds >= 18


def test_a_model_that_is_sure_of_all_public_classes_bounds_no_loss_by_next_to_nothing(
    plan, feature_map
):
    plan, rng = classes_of(plan), np.random.default_rng(1)
    x = rng.uniform(-1.0, 1.0, (40, plan.num_features))
    x[:, 0] += np.sign(x[:, 0])
    public = Records(features=x, targets=np.sign(x[:, 0]))
    theta = np.zeros(plan.num_features)
    theta[0] = 10.0
    bounds = validation_bounds(plan, PublicSide(feature_map=feature_map, records=public), theta)
    assert bounds.loss_bound >= 0.01 * 4 * np.log(2)
    assert bounds.difference_bound >= 0.01 * 4 * np.log(2)


def drawn(theta, count, *, rng):
    features = rng.normal(size=(count, len(theta)))
    odds = 1.0 / (1.0 + np.exp(-features @ theta))
    return Records(features=features, targets=np.where(rng.random(count) < odds, 1.0, -1.0))


def test_bounds_of_before_the_cut_was_told_are_read():
    bounds = ValidationBounds(loss_bound=1.0, difference_bound=0.5, cut_below=0.1, cut_above=0.2)
    values = json.loads(bounds.to_json())
    del values["cut_below"], values["cut_above"]
    assert ValidationBounds.from_json(json.dumps(values)) == replace(
        bounds, cut_below=0.0, cut_above=0.0
    )
