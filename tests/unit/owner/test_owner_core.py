import numpy as np
import pytest

from common.domain import Domain
from common.errors import BudgetSpentError, MalformedError, OrderError
from common.losses import LOSSES, Squared
from common.privacy import plan_noise
from common.terms import Records
from owner.account import Account, Kept, Step, next_step, repeats
from owner.core import (
    check_theta,
    exact_answer,
    mean_curvature,
    mean_gradient,
    release,
    seeded_noise,
)
from owner.shards import Shard

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(50, 3))
Y = RNG.uniform(-1, 1, size=50)
THETA = np.array([0.3, -0.7, 0.2])
DOMAIN = Domain(feature_bound=np.ones(3), target_bound=1.0)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("clip", [None, 0.05, 0.5, 1e6])
def test_mean_gradient_is_the_mean_of_the_clipped_gradients(loss, clip):
    y = Y if not LOSSES[loss].has_classes() else np.sign(Y)
    expected = np.zeros(3)
    for features, target in zip(X, y, strict=True):
        one = LOSSES[loss].example().mean_gradient(THETA, features[None, :], np.array([target]))
        norm = np.abs(one).sum()
        if clip is not None and norm > clip:
            one = one * (clip / norm)
        expected += one / len(y)
    got = mean_gradient(
        Shard(Records(features=X, targets=y)), THETA, loss=LOSSES[loss].example(), clip=clip
    )
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-15)


SMOOTH = [name for name in LOSSES if LOSSES[name].curvature is not None]


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("clip", [None, 0.05, 0.5, 1e6])
def test_mean_curvature_is_the_derivative_of_the_mean_of_the_clipped_gradients(loss, clip):
    kind = LOSSES[loss].example()
    shard = Shard(Records(features=X, targets=np.sign(Y) if kind.has_classes() else Y))
    h = 1e-6
    numeric = np.stack(
        [
            mean_gradient(shard, THETA + step, loss=kind, clip=clip)
            - mean_gradient(shard, THETA - step, loss=kind, clip=clip)
            for step in h * np.eye(3)
        ]
    ) / (2 * h)
    got = mean_curvature(shard, THETA, loss=kind, clip=clip)
    np.testing.assert_allclose(got, numeric, atol=1e-7)
    np.testing.assert_allclose(got, got.T, rtol=1e-12)
    if clip == 0.05:
        free = mean_curvature(shard, THETA, loss=kind, clip=None)
        assert np.trace(got) < 0.5 * np.trace(free)


@pytest.mark.parametrize("clip", [None, 0.5])
def test_curvature_and_gradient_are_told_in_this_order_the_curvature_times_its_factor(
    make_terms, clip
):
    shard = Shard(Records(features=X, targets=Y))
    terms = make_terms(release="newton", responses=1, clip=clip, curvature_scale=0.25)
    told = exact_answer(shard, THETA, terms)
    curvature = mean_curvature(shard, THETA, loss=Squared(), clip=clip)
    np.testing.assert_array_equal(told[:6], 0.25 * curvature[np.triu_indices(3)])
    gradient = mean_gradient(shard, THETA, loss=Squared(), clip=clip)
    np.testing.assert_array_equal(told[6:], gradient)


def test_a_record_of_zeros_has_no_gradient_to_clip():
    shard = Shard(Records(features=np.zeros((2, 3)), targets=np.ones(2)))
    np.testing.assert_array_equal(mean_gradient(shard, THETA, loss=Squared(), clip=1.0), 0.0)


def test_release_is_the_gradient_plus_the_noise_on_the_grid(make_terms):
    plan = plan_noise(make_terms(), DOMAIN, num_records=50)
    noise = seeded_noise(plan, rng=np.random.default_rng(3))
    gradient = np.array([0.1, -0.2, 0.3])
    response = release(gradient, noise, plan)
    grid = 2.0**plan.grid_exponent
    np.testing.assert_array_equal(response / grid, np.rint(response / grid))
    np.testing.assert_allclose(response - noise * grid, gradient, atol=grid)


def test_noise_is_added_to_integers_and_rounded_after(make_terms):
    plan = plan_noise(make_terms(), DOMAIN, num_records=50)
    grid = 2.0**plan.grid_exponent
    # As floats, 2^53 + 1 is 2^53 before anything is added to it.
    noise = np.full(3, 2**53 + 1, dtype=np.int64)
    assert (release(np.full(3, grid), noise, plan) / grid).tolist() == [2.0**53 + 2] * 3


@pytest.mark.parametrize(
    ("gradient", "noise"),
    [
        (np.zeros(2), np.zeros(3, dtype=np.int64)),
        (np.zeros(3), np.zeros(4, dtype=np.int64)),
        (np.array([0.0, np.nan, 0.0]), np.zeros(3, dtype=np.int64)),
        (np.array([0.0, np.inf, 0.0]), np.zeros(3, dtype=np.int64)),
        (np.array([0.0, -np.inf, 0.0]), np.zeros(3, dtype=np.int64)),
        (np.array([0.0, 1e300, 0.0]), np.zeros(3, dtype=np.int64)),
        (np.array([0.0, -1e300, 0.0]), np.zeros(3, dtype=np.int64)),
    ],
)
def test_what_the_sampler_would_let_through_is_refused(make_terms, gradient, noise):
    plan = plan_noise(make_terms(), DOMAIN, num_records=50)
    with pytest.raises(MalformedError):
        release(gradient, noise, plan)


@pytest.mark.parametrize(
    ("theta", "words"),
    [
        (np.zeros(2), "theta has 2 coordinates"),
        (np.array([0.0, np.nan, 0.0]), "not a finite number"),
        (np.array([0.0, -np.inf, 0.0]), "not a finite number"),
        (np.array([0.0, 0.0, np.nextafter(1.0, 2.0)]), "leaves the box"),
        (np.array([np.nextafter(-1.0, -2.0), 0.0, 0.0]), "leaves the box"),
    ],
)
def test_theta_outside_the_box_is_refused(theta, words):
    with pytest.raises(MalformedError, match=words):
        check_theta(theta, dimension=3, theta_max=1.0)


def test_theta_on_the_boxs_corner_is_accepted():
    check_theta(np.array([1.0, -1.0, 1.0]), dimension=3, theta_max=1.0)


@pytest.mark.parametrize("promised", [1, 10, 99, 100, 1000])
def test_all_m_of_m_answers(promised):
    account = Account(promised=promised)
    for sequence in range(1, promised + 1):
        assert next_step(account, sequence=sequence, digest="x", size=1) is Step.ANSWER
        account = account.charged(digest="x", response=b"r")
    with pytest.raises(BudgetSpentError, match=f"all {promised} promised"):
        next_step(account, sequence=promised + 1, digest="x", size=1)


def test_retry_is_replayed_and_another_theta_refused():
    account = Account(promised=5).charged(digest="first", response=b"bytes")
    assert next_step(account, sequence=1, digest="first", size=5) is Step.REPLAY
    with pytest.raises(OrderError, match="another theta"):
        next_step(account, sequence=1, digest="second", size=5)


@pytest.mark.parametrize(
    ("coordinates", "count"), [(1, 16), (2048, 16), (2049, 15), (10_000, 3), (100_000, 1)]
)
def test_the_last_responses_are_replayed_as_many_as_there_is_room_for(coordinates, count):
    size = 8 * coordinates
    account = Account(promised=99)
    for number in range(1, 41):
        account = account.charged(digest=str(number), response=bytes([number]) * size)
    assert repeats(size) == count
    for number in range(1, 41):
        if number <= 40 - count:
            with pytest.raises(OrderError, match="the next one is 41"):
                next_step(account, sequence=number, digest=str(number), size=size)
            continue
        assert next_step(account, sequence=number, digest=str(number), size=size) is Step.REPLAY
        assert account.response(number, size=size) == bytes([number]) * size
        with pytest.raises(OrderError, match="another theta"):
            next_step(account, sequence=number, digest=str(number - 1), size=size)


def test_what_is_kept_no_more_is_not_taken_for_what_is():
    """Whether it came from the ledger's account or after it."""
    kept = Kept(b"".join(b"%02d" % number for number in range(5)))
    for number in range(5, 40):
        kept = kept.and_then(b"%02d" % number)
        first = max(0, number - 15)
        for back in range(-2, 60):
            is_kept = 0 <= back <= number - first
            assert kept.response(back, size=2) == (b"%02d" % (number - back) if is_kept else b"")
        assert kept.joined == b"".join(b"%02d" % held for held in range(first, number + 1))


@pytest.mark.parametrize("sequence", [0, 1, 4, 5, 10**9])
def test_a_number_out_of_order_is_refused(sequence):
    account = Account(promised=9, answered=2, digests=("x",), responses=Kept(b"r"))
    with pytest.raises(OrderError):
        next_step(account, sequence=sequence, digest="x", size=1)


def test_number_0_is_no_retry_of_nothing():
    with pytest.raises(OrderError, match="out of order"):
        next_step(Account(promised=9), sequence=0, digest="", size=1)


@pytest.mark.parametrize("sequence", [1, 2])
def test_a_closed_study_answers_and_replays_nothing(sequence):
    account = Account(promised=9, answered=1, digests=("x",), responses=Kept(b"r"), closed=True)
    with pytest.raises(OrderError, match="closed"):
        next_step(account, sequence=sequence, digest="x", size=1)


def test_no_clip_overflows_at_a_record_of_zeros():
    """Where it did, whether an answer comes would tell that there is such a record."""
    shard = Shard(Records(features=np.array([[0.0], [1.0]]), targets=np.ones(2)))
    with np.errstate(over="raise"):
        told = mean_gradient(shard, np.zeros(1), loss=LOSSES["logistic"].example(), clip=1e308)
    assert told == pytest.approx([-0.25])
