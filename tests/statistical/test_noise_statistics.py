"""What leaves an owner is the exact gradient plus Laplace noise of Theorem 1's scale."""

import math
import threading
import time
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from maps import map_of
from scipy import stats

import owner.mechanism
import owner.server
from common.config import load_settings
from common.domain import Domain
from common.losses import Squared
from common.privacy import plan_noise
from common.terms import Query
from learner.network.grpc_owner import GrpcOwner
from owner.mechanism import (
    DRAWING_SECONDS,
    SECONDS_A_DRAW,
    DrawnAhead,
    SecureNoise,
    secure_noise,
)
from owner.policy import OwnerSettings
from owner.server import open_owner

COORDINATES = 50_000
# A right mechanism fails such a test once in ten thousand million runs; its noise cannot be seeded.
SIGNIFICANCE = 1e-10


def is_laplace(noise, scale):
    """Whether draws have this distribution: its shape by Kolmogorov and Smirnov, and its scale.

    The sum of n magnitudes in units of the scale is Gamma(n): its mean has the standard error
    1/sqrt(n), and a scale that is 10 % off lies 20 of them away.
    """
    shape = stats.kstest(noise, stats.laplace(scale=scale).cdf).pvalue
    total = stats.gamma(noise.size)
    magnitudes = float(np.abs(noise).sum()) / scale
    off = 2 * min(total.cdf(magnitudes), total.sf(magnitudes))
    return bool(min(shape, off) > SIGNIFICANCE / 2)


def test_a_scale_or_a_shape_that_is_off_is_told_apart():
    rng = np.random.default_rng(1)
    wrongly_accused = sum(
        not is_laplace(rng.laplace(scale=3.0, size=COORDINATES), 3.0) for _ in range(20)
    )
    assert wrongly_accused == 0
    for wrong in (0.9, 1.1):
        assert not is_laplace(rng.laplace(scale=3.0, size=COORDINATES), 3.0 * wrong)
    # As large on average, and bell-shaped.
    bell = rng.normal(scale=3.0 * math.sqrt(math.pi / 2), size=COORDINATES)
    assert not is_laplace(bell, 3.0)


def test_what_leaves_an_owner_is_laplace_noise_of_theorem_1(
    table_maker, owner_folder, serve_owner, make_terms
):
    table = table_maker(200, seed=1, num_columns=49)
    feature_map = map_of(table_maker(500, seed=0, num_columns=49))
    responses = COORDINATES // feature_map.num_features
    terms = make_terms(
        responses=responses,
        horizon=3000,
        epsilon=Fraction(10),
        feature_map=feature_map.to_json(),
    )
    running = serve_owner(owner_folder(table=table, pinned=feature_map))
    owner = GrpcOwner("owner-a", f"127.0.0.1:{running.port}", deadline=30)
    owner.enroll(terms)
    theta = np.linspace(-1, 1, feature_map.num_features)
    answers = np.array(
        [
            owner.answer(Query(study_id=terms.study_id, sequence=k, theta=theta)).gradient
            for k in range(1, responses + 1)
        ]
    )
    owner.disconnect()
    # Theorem 1 and the exact gradient, computed here from the definitions alone.
    records = feature_map.apply(table, where="test")
    exact = Squared().mean_gradient(theta, records.features, records.targets)
    radius = feature_map.domain.l1_radius or math.inf
    bound = min(feature_map.domain.feature_bound.sum(), radius)
    xi = 2 * (2.0 * bound + feature_map.domain.target_bound) * bound
    scale = 2 * xi * responses / (200 * 10)
    noise = (answers - exact).ravel()
    assert noise.size == COORDINATES
    assert is_laplace(noise, scale)
    assert not is_laplace(noise, 1.1 * scale)
    assert not is_laplace(noise, 0.9 * scale)
    # No draw is used twice, and one draw tells nothing of the next.
    assert len({row.tobytes() for row in answers}) == responses
    shifted = np.corrcoef(noise[: -answers.shape[1]], noise[answers.shape[1] :])[0, 1]
    assert abs(shifted) < 6.5 / math.sqrt(COORDINATES)


def test_integer_noise_is_discrete_laplace_of_the_plans_scale(make_terms):
    domain = Domain(feature_bound=np.ones(COORDINATES), target_bound=1.0)
    plan = plan_noise(make_terms(epsilon=Fraction(1, 3)), domain, num_records=100)
    noise = SecureNoise(plan).draw(1)[0].astype(np.float64)
    assert is_laplace(noise, plan.scale_units)
    assert not is_laplace(noise, 1.1 * plan.scale_units)


def test_a_mechanism_with_half_the_noise_is_rejected(make_terms):
    domain = Domain(feature_bound=np.ones(COORDINATES), target_bound=1.0)
    plan = plan_noise(make_terms(), domain, num_records=100)
    half = SecureNoise(replace(plan, scale_units=plan.scale_units / 2)).draw(1)[0]
    assert not is_laplace(half.astype(np.float64), plan.scale_units)


def waited_for(ahead):
    ahead.wait()
    noise = ahead.take()
    assert noise is not None
    return noise


def test_noise_is_not_seeded(make_terms):
    domain = Domain(feature_bound=np.ones(8), target_bound=1.0)
    plan = plan_noise(make_terms(), domain, num_records=100)
    draws = []
    for _ in range(4):
        np.random.seed(7)  # noqa: NPY002 (nothing here may listen to it)
        ahead = DrawnAhead(SecureNoise(plan), vectors=4, block=3)
        draws += [waited_for(ahead) for _ in range(10)]
        ahead.stop()
    assert len({draw.tobytes() for draw in draws}) == 40


@pytest.mark.parametrize("vectors", [1, 16])
def test_noise_drawn_ahead_hands_on_a_failure(vectors):
    class Broken:
        def draw(self, count):
            raise RuntimeError("no entropy")

        def epsilon(self, *, responses):
            return Fraction(responses)

    ahead = DrawnAhead(Broken(), vectors=vectors, block=1)
    with pytest.raises(RuntimeError, match="no entropy"):
        waited_for(ahead)
    ahead.stop()


def test_no_more_noise_is_drawn_ahead_than_can_be_asked_for(make_terms, monkeypatch):
    domain = Domain(feature_bound=np.ones(8), target_bound=1.0)
    plan = plan_noise(make_terms(responses=3), domain, num_records=100)
    drawn = []
    draw = SecureNoise.draw

    def counted(self, count):
        drawn.append(count)
        return draw(self, count)

    monkeypatch.setattr(SecureNoise, "draw", counted)
    ahead = secure_noise(plan)
    for _ in range(plan.responses):
        waited_for(ahead)
    ahead.stop()
    assert sum(drawn) <= 2 * plan.responses


def test_pieces_drawn_by_several_threads_are_as_good_as_one(make_terms):
    domain = Domain(feature_bound=np.ones(COORDINATES // 2 + 1), target_bound=1.0)
    plan = plan_noise(make_terms(epsilon=Fraction(1, 3)), domain, num_records=100)
    draws = SecureNoise(plan, threads=3).draw(2)
    assert draws.shape == (2, COORDINATES // 2 + 1)
    assert is_laplace(draws.ravel().astype(np.float64), plan.scale_units)
    # No piece is handed out twice.
    flat = draws.ravel()
    pieces = {flat[k : k + 10].tobytes() for k in range(0, flat.size - 10, 10)}
    assert len(pieces) == len(range(0, flat.size - 10, 10))


@pytest.mark.parametrize(
    ("threads", "size", "helped"), [(3, 1001, True), (3, 9, False), (1, 1001, False)]
)
def test_only_long_noise_is_drawn_by_several_threads(
    threads, size, helped, make_terms, monkeypatch
):
    domain = Domain(feature_bound=np.ones(size), target_bound=1.0)
    plan = plan_noise(make_terms(), domain, num_records=100)
    names = []
    drawn = owner.mechanism._drawn

    def watched(*given):
        names.append(threading.current_thread().name)
        return drawn(*given)

    monkeypatch.setattr(owner.mechanism, "_drawn", watched)
    SecureNoise(plan, threads=threads).draw(1)
    assert len(names) == 1 + helped
    assert all(name.startswith("draws") == helped for name in names)


def test_an_owner_draws_by_as_many_threads_as_its_settings_say(
    owner_folder, make_terms, monkeypatch
):
    asked = []

    def watched(plan, *, threads):
        asked.append(threads)
        return secure_noise(plan, threads=threads)

    monkeypatch.setattr(owner.server, "secure_noise", watched)
    path = owner_folder()
    settings = load_settings(OwnerSettings, path).model_copy(update={"threads": 5})
    opened = open_owner(settings, base=path.parent, insecure_noise_seed=None)
    opened.enroll(make_terms(), learner="l")
    opened.stop()
    assert asked == [5]


@pytest.mark.parametrize("features", [1, 8])
def test_the_time_in_which_noise_is_drawn_does_not_tell_how_large_it_is(features, make_terms):
    # Whoever enrols waits for the first response's noise.
    domain = Domain(feature_bound=np.ones(features), target_bound=1.0)
    source = SecureNoise(plan_noise(make_terms(), domain, num_records=100))
    source.draw(1)
    took, sizes = [], []
    for _ in range(500):
        began = time.perf_counter()
        noise = source.draw(1)
        took.append(time.perf_counter() - began)
        sizes.append(np.abs(noise).sum())
    # A machine with much to do hides what else would tell.
    assert min(took) >= DRAWING_SECONDS + features * SECONDS_A_DRAW
    # Rank correlations of 0.4 and 0.5 where nothing hides it.
    assert stats.spearmanr(took, sizes).pvalue > SIGNIFICANCE
