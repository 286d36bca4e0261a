"""Algorithm 1, one tick at a time."""

import math
from dataclasses import replace

import numpy as np
import pytest

from common.errors import InputError
from common.losses import Regulariser
from learner.algorithms.asynchronous import Asynchronous, LearnerState
from learner.algorithms.clocks import Tick, draw_slots
from learner.algorithms.variants import inverse_frequency
from learner.algorithms.versions import Versioned

P = 4


def algorithm(num_owners, **changes):
    weights = np.arange(1.0, num_owners + 1)
    settings = {
        "weights": weights / weights.sum(),
        "num_features": P,
        "theta_max": 1.0,
        "regulariser": Regulariser(coefficient=0.05),
        "rho": 0.3,
        "horizon": 10,
    }
    return Asynchronous(**(settings | changes))


def any_state(alg, rng):
    return LearnerState(
        theta_L=rng.uniform(-1, 1, P),
        copies=Versioned(rng.uniform(-1, 1, (alg.num_copies, P))),
        k=3,
        tail_sum=np.zeros(P),
    )


def play(alg, ticks, rng):
    state, states = alg.initial_state(), []
    for tick in ticks:
        alg.query_point(state, tick)
        state = alg.apply_responses(state, tick, {i: rng.normal(size=P) for i in tick.owners})
        states.append(state)
    return states


def single_ticks(num_owners, count, rng):
    return [Tick(float(k), (int(rng.integers(num_owners)),)) for k in range(count)]


def test_all_models_start_at_zero():
    state = algorithm(3).initial_state()
    assert state.k == 0
    assert not state.theta_L.any()
    assert state.theta_i.shape == (3, P)
    assert not state.theta_i.any()


def test_one_tick_by_hand():
    # N = 2, n_i/n = 1/2, sigma = 1, T = 2, rho = 4: alpha = 2, and (7) has 1/2 of rho/(T^2 sigma).
    alg = Asynchronous(
        weights=np.full(2, 0.5),
        num_features=1,
        theta_max=10.0,
        regulariser=Regulariser(coefficient=0.5),
        rho=4.0,
        horizon=2,
    )
    state = LearnerState(
        theta_L=np.array([1.0]), copies=Versioned([[3.0], [7.0]]), k=0, tail_sum=np.zeros(1)
    )
    tick = Tick(0.1, (0,))
    assert alg.query_point(state, tick) == 2.0
    after = alg.apply_responses(state, tick, {0: np.array([5.0])})
    assert after.theta_i.tolist() == [[2.0 - 2.0 * (2.0 / 4 + 0.5 * 5.0)], [7.0]]
    assert after.theta_L.tolist() == [2.0 - 0.5 * 2.0]
    assert after.k == 1


def test_only_the_asked_owners_copy_moves():
    rng = np.random.default_rng(1)
    alg = algorithm(3)
    state = any_state(alg, rng)
    after = alg.apply_responses(state, Tick(1.0, (1,)), {1: rng.normal(size=P)})
    assert np.array_equal(after.theta_i[[0, 2]], state.theta_i[[0, 2]])
    assert not np.array_equal(after.theta_i[1], state.theta_i[1])


def test_inputs_are_never_changed():
    rng = np.random.default_rng(2)
    alg = algorithm(3, tail_average=True)
    state = replace(any_state(alg, rng), k=8)
    response = rng.normal(size=P)
    for array in (state.theta_L, state.tail_sum, response, alg.weights):
        array.setflags(write=False)
    before = state.theta_i
    after = alg.apply_responses(state, Tick(1.0, (2,)), {2: response})
    assert np.array_equal(state.theta_i, before)
    assert not np.array_equal(after.theta_i, before)


def test_every_state_of_a_run_keeps_its_models_and_can_be_gone_on_from():
    alg, rng = algorithm(3, counted=True), np.random.default_rng(24)
    ticks = single_ticks(3, 12, rng)
    responses = [{i: rng.normal(size=P) for i in tick.owners} for tick in ticks]
    states, copies = [alg.initial_state()], [np.zeros((3, P))]
    for tick, response in zip(ticks, responses, strict=True):
        states.append(alg.apply_responses(states[-1], tick, response))
        copies.append(states[-1].theta_i)
    # In an order in which no version is the one that was made last.
    for k in (12, 0, 7, 3, 11, 5):
        assert np.array_equal(states[k].theta_i, copies[k]), k
        assert states[k].counts.whole().sum() == k
    again = alg.apply_responses(states[5], ticks[5], responses[5])
    assert again.theta_i.tobytes() == copies[6].tobytes()
    assert np.array_equal(states[5].theta_i, copies[5])


@pytest.mark.parametrize("shape", [(1,), (3,), (7, 5), (40,), (300, 2)])
def test_factors_have_the_bits_of_the_mean_of_all_ratios(shape):
    rng = np.random.default_rng(25)
    for rates in (rng.uniform(0.1, 9.0, shape), rng.integers(1, 30, shape).astype(float)):
        ratios = rates[:, None] / rates[None, :]
        mean = sum(ratios, np.zeros(shape)) / len(rates)
        assert inverse_frequency(rates).tobytes() == mean.tobytes()


def test_frequencies_of_many_owners_take_no_square_of_their_number():
    counts = np.random.default_rng(26).poisson(3.0, 100_000) + 1.0
    factors = inverse_frequency(counts)
    assert factors == pytest.approx(counts.mean() / counts, rel=1e-9)


def test_equal_inputs_give_equal_bits():
    ticks = single_ticks(3, 20, np.random.default_rng(3))
    first, second = (play(algorithm(3), ticks, np.random.default_rng(4)) for _ in range(2))
    assert first[-1].theta_L.tobytes() == second[-1].theta_L.tobytes()
    assert first[-1].theta_i.tobytes() == second[-1].theta_i.tobytes()


@pytest.mark.parametrize(("num_owners", "equal"), [(1, False), (2, True), (3, False)])
def test_printed_and_corrected_rules_agree_exactly_for_two_owners(num_owners, equal):
    ticks = single_ticks(num_owners, 30, np.random.default_rng(5))
    printed, corrected = (
        play(algorithm(num_owners, rule=rule), ticks, np.random.default_rng(6))[-1].theta_L
        for rule in ("printed", "corrected")
    )
    assert np.array_equal(printed, corrected) == equal


@pytest.mark.parametrize("rate", [0.1, 1.0, 3.7])
def test_equal_rates_make_remark_4_the_identity(rate):
    ticks = single_ticks(7, 30, np.random.default_rng(7))
    plain, scaled = (
        play(algorithm(7, frequency=frequency), ticks, np.random.default_rng(8))[-1]
        for frequency in (None, np.full(7, rate))
    )
    assert plain.theta_i.tobytes() == scaled.theta_i.tobytes()


def test_remark_4_scales_gradients_inversely_to_frequency():
    alg = algorithm(3, frequency=np.array([1.0, 2.0, 4.0]))
    factors = alg.inverse_frequency
    assert factors * np.array([1.0, 2.0, 4.0]) == pytest.approx(np.full(3, factors[0]))
    # Averaged over the ticks, every gradient counts as it would at equal rates.
    shares = np.array([1.0, 2.0, 4.0]) / 7
    assert factors * shares == pytest.approx(np.full(3, 1 / 3))


def test_counted_frequencies_start_at_one_and_follow_the_ticks_before():
    alg, rng = algorithm(2, counted=True), np.random.default_rng(21)
    state = alg.initial_state()
    for expected, owner in ((1.0, 0), (3 / 4, 0), (4 / 6, 0), (5 / 2, 1), (6 / 4, 1)):
        tick, response = Tick(1.0, (owner,)), rng.normal(size=P)
        known = replace(alg, counted=False, weights=alg.weights)
        plain = known.apply_responses(
            replace(state, counts=None), tick, {owner: expected * response}
        )
        state = alg.apply_responses(state, tick, {owner: response})
        assert state.theta_i == pytest.approx(plain.theta_i, rel=1e-14)
    assert state.counts.whole().tolist() == [3, 2]


def test_a_counted_factor_stays_bounded_after_a_long_absence():
    alg = algorithm(2, counted=True, regulariser=Regulariser(coefficient=1e-9), rho=1e-9)
    away = replace(alg.initial_state(), k=10_000, counts=Versioned([10_000.0, 0.0]))
    back = alg.apply_responses(away, Tick(1.0, (1,)), {1: np.ones(P)})
    assert back.theta_i[1] == pytest.approx(-alg.alpha * alg.weights[1] * 10 * np.ones(P))


def test_counted_frequencies_approach_the_known_ones():
    rates = np.array([1.0, 5.0])
    slots = draw_slots(rates, horizon=20_000, replicates=1, rng=np.random.default_rng(22))[:, 0]
    alg = algorithm(2, counted=True)
    counts = Versioned(np.bincount(slots, minlength=2))
    state = replace(alg.initial_state(), k=len(slots), counts=counts)
    known = algorithm(2, frequency=rates).inverse_frequency
    assert [alg.factor(i, k=state.k, counts=state.counts) for i in (0, 1)] == pytest.approx(
        known, rel=0.05
    )


def test_those_who_answered_speak_for_the_whole_group():
    weights = np.array([0.1, 0.3, 0.6])
    alg = algorithm(3, weights=weights, groups=((0, 1), (2,)))
    rng = np.random.default_rng(23)
    state, tick, response = alg.initial_state(), Tick(1.0, (0, 1)), rng.normal(size=P)
    alone = alg.apply_responses(state, tick, {1: response})
    both = alg.apply_responses(state, tick, {0: response, 1: response})
    assert alone.theta_i == pytest.approx(both.theta_i, rel=1e-14)


def test_permuting_owners_permutes_the_copies():
    rng = np.random.default_rng(9)
    alg = algorithm(4, frequency=np.array([1.0, 2.0, 2.0, 3.0]))
    order = np.array([2, 0, 3, 1])  # owner j of the second study is owner order[j] of the first
    renamed = replace(alg, weights=alg.weights[order], frequency=alg.frequency[order])
    ticks = single_ticks(4, 50, rng)
    position = np.argsort(order)
    permuted = [Tick(tick.time, (int(position[tick.owners[0]]),)) for tick in ticks]
    first = play(alg, ticks, np.random.default_rng(10))[-1]
    second = play(renamed, permuted, np.random.default_rng(10))[-1]
    assert second.theta_i == pytest.approx(first.theta_i[order], rel=1e-13)
    assert second.theta_L == pytest.approx(first.theta_L, rel=1e-13)


def test_a_group_counts_as_one_larger_owner_with_its_records_mean_gradient():
    rng = np.random.default_rng(11)
    grouped = algorithm(3, groups=((0, 2), (1,)))
    larger = Asynchronous(
        weights=np.array([4 / 6, 2 / 6]),
        num_features=P,
        theta_max=1.0,
        regulariser=grouped.regulariser,
        rho=grouped.rho,
        horizon=grouped.horizon,
    )
    a, b = grouped.initial_state(), larger.initial_state()
    assert grouped.num_copies == 2
    for slot in (0, 1, 0, 0, 1):
        responses = rng.normal(size=(3, P))
        # Owners 0 and 2 hold 1 and 3 of 6 records.
        mean = (1 * responses[0] + 3 * responses[2]) / 4
        tick = Tick(1.0, grouped.groups[slot])
        a = grouped.apply_responses(a, tick, {i: responses[i] for i in tick.owners})
        b = larger.apply_responses(b, Tick(1.0, (slot,)), {slot: (mean, responses[1])[slot]})
        assert a.theta_i == pytest.approx(b.theta_i, rel=1e-13)
        assert a.theta_L == pytest.approx(b.theta_L, rel=1e-13)


@pytest.mark.parametrize("horizon", [1, 2, 9, 10])
def test_tail_average_is_the_mean_over_the_last_half(horizon):
    alg = algorithm(3, horizon=horizon, tail_average=True)
    states = play(
        alg, single_ticks(3, horizon, np.random.default_rng(12)), np.random.default_rng(13)
    )
    half = math.ceil(horizon / 2)
    expected = np.mean([state.theta_L for state in states[-half:]], axis=0)
    assert alg.central_model(states[-1]) == pytest.approx(expected, rel=1e-14)
    before = horizon - half
    if before:
        assert alg.central_model(states[before - 1]) is states[before - 1].theta_L


def test_tail_average_changes_no_query():
    ticks = single_ticks(3, 10, np.random.default_rng(14))
    plain, averaged = (
        play(algorithm(3, tail_average=tail), ticks, np.random.default_rng(15))[-1]
        for tail in (False, True)
    )
    assert plain.theta_L.tobytes() == averaged.theta_L.tobytes()
    assert plain.theta_i.tobytes() == averaged.theta_i.tobytes()


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"rho": 0.0}, "rho"),
        ({"rho": math.nan}, "rho"),
        ({"theta_max": math.inf}, "theta_max"),
        ({"horizon": 0}, "horizon"),
        ({"regulariser": Regulariser(coefficient=0.0)}, "regularisation"),
        ({"weights": np.array([0.5, 0.4, 0.2])}, "weights"),
        ({"weights": np.array([0.5, 0.5, 0.0])}, "weights"),
        ({"weights": np.array([0.5, math.nan, 0.5])}, "weights"),
        ({"groups": ((0,), (1,))}, "groups"),
        ({"groups": ((0, 1), (1, 2))}, "groups"),
        ({"frequency": np.array([1.0, 0.0, 1.0])}, "frequency"),
        ({"frequency": np.ones(2)}, "frequency"),
        ({"frequency": np.ones(3), "counted": True}, "frequency"),
    ],
)
def test_a_wrong_value_is_named(changes, name):
    with pytest.raises(InputError, match=f"^{name}: .*expected"):
        algorithm(3, **changes)


def test_a_tick_of_unknown_owners_is_refused():
    alg = algorithm(3)
    with pytest.raises(InputError, match=r"owners \(0, 1\)"):
        alg.query_point(alg.initial_state(), Tick(1.0, (0, 1)))
