"""What both sides know of a release: its length, its change, and who computes it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from common.domain import Domain
from common.losses import LOSSES
from common.releases import MOMENTS, RELEASES, release_of
from common.terms import Records, StudyTerms
from owner.audit import CASES
from owner.core import EXACT, Shard, exact_answer

DOMAIN = Domain(feature_bound=np.array([1.0, 0.5, 2.0]), target_bound=1.5)


def terms_of(make_terms: Callable[..., StudyTerms], name: str) -> StudyTerms:
    responses = RELEASES[name].most_responses or 10
    return make_terms(release=name, responses=responses, horizon=responses)


def test_every_release_and_every_loss_has_an_exact_answer_and_is_attacked_by_the_audit() -> None:
    assert set(EXACT) == set(RELEASES)
    assert {case.release.name for case in CASES} == set(RELEASES)
    assert {case.loss.name for case in CASES} == set(LOSSES)


@pytest.mark.parametrize("name", RELEASES)
def test_an_exact_answer_has_the_length_and_the_change_of_its_release(
    make_terms: Callable[..., StudyTerms], name: str
) -> None:
    release, terms = RELEASES[name], terms_of(make_terms, name)
    release.check(terms)
    rng = np.random.default_rng(1)
    corners = rng.choice([-1.0, 1.0], (40, 6, 3)) * DOMAIN.feature_bound
    targets = rng.choice([-1.5, 1.5], (40, 6))
    theta = np.full(3, terms.theta_max)
    largest = 0.0
    for x, y in zip(corners, targets, strict=True):
        other_x, other_y = x.copy(), y.copy()
        other_x[0], other_y[0] = -x[0] * [1, 1, 0], -y[0]
        a, b = (
            exact_answer(Shard(Records(features=f, targets=t)), theta, terms)
            for f, t in ((x, y), (other_x, other_y))
        )
        assert a.shape == (release.dimension(3),)
        largest = max(largest, float(np.abs(a - b).sum()))
    change = release.change(terms, DOMAIN) / 6
    assert 0.3 * change < largest <= change * (1 + 1e-12)
    assert release.rounded_size(terms, DOMAIN) >= release.record_bound(terms, DOMAIN)


@pytest.mark.parametrize("name", RELEASES)
def test_what_one_record_adds_is_within_its_bound_and_reaches_it(
    make_terms: Callable[..., StudyTerms], name: str
) -> None:
    release, terms = RELEASES[name], terms_of(make_terms, name)
    record = Records(features=DOMAIN.feature_bound[None, :], targets=np.array([-1.5]))
    theta = np.full(3, terms.theta_max)
    added = np.abs(exact_answer(Shard(record), theta, terms)).sum()
    assert 0.5 < added / release.record_bound(terms, DOMAIN) <= 1 + 1e-12


@pytest.mark.parametrize(
    "changes", [{"loss": "hinge"}, {"responses": 2}, {"clip": 1.0}], ids=lambda c: next(iter(c))
)
def test_moments_are_of_squared_loss_once_and_without_a_clip(
    make_terms: Callable[..., StudyTerms], changes: dict[str, object]
) -> None:
    with pytest.raises(ValueError, match="moments need squared loss, one response and no clip"):
        MOMENTS.check(make_terms(**{"release": "moments", "responses": 1} | changes))


def test_a_release_that_is_none_is_refused(make_terms: Callable[..., StudyTerms]) -> None:
    with pytest.raises(ValueError, match="release must be one of gradient, moments"):
        release_of(make_terms(release="records"))
