"""What noise does to a step is taken back as far as it is expected, and no further."""

from dataclasses import replace

import numpy as np
import pytest

import learner.algorithms.moments
from common.losses import LOSSES, Regulariser, Squared
from common.moments import pack_moments, packed_length
from common.terms import Records
from learner.algorithms.box_least_squares import box_least_squares
from learner.algorithms.clocks import Tick
from learner.algorithms.moments import SecondMoments
from learner.algorithms.newton import NewtonStep, Round
from learner.algorithms.shrinkage import Around, Blend, StepNoise, shrunken_model, whitening
from learner.planning.around import around_public
from learner.simulated.groups import PublicGroups
from learner.simulated.problem import Problem

P = 4
G = Regulariser(coefficient=0.05)
SILENT = StepNoise(entry=0.0, gradient=np.zeros((P, P)))


def records_of(n, seed, *, move=0.0, classes=False):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, P)) @ np.diag([1.0, 0.5, 2.0, 1.0])
    y = x @ (np.array([0.4, -0.3, 0.2, 0.1]) + move) + 0.5 * rng.normal(size=n)
    return Records(features=x, targets=np.where(y > 0, 1.0, -1.0) if classes else y)


def public_of(name="squared", theta_max=5.0):
    loss = LOSSES[name].example()
    problem = Problem(loss=loss, regulariser=G, theta_max=theta_max)
    records = records_of(400, 1, classes=loss.has_classes())
    return PublicGroups(problem=problem, records=records, labels=None)


def plain(p, *, spread):
    """A public model of 0, around which the loss curves alike in all directions."""
    return Around(
        theta=np.zeros(p),
        curvature=np.eye(p),
        offset=np.zeros(p),
        spread=spread,
        curvature_spread=0.001,
    )


def told(problem, records, theta):
    """Curvature and gradient of records at a model, without g."""
    x = records.features
    curvature = (x * problem.curvatures(theta, records, None)[:, None]).T @ x / len(records)
    return curvature, problem.slopes(theta, records, None) @ x / len(records)


def test_without_noise_squared_loss_has_its_optimum_in_one_step():
    public, owners = public_of(), records_of(900, 2, move=0.1)
    around = around_public(public, None)
    curvature, gradient = told(public.problem, owners, around.theta)
    model = shrunken_model(around, curvature, gradient, SILENT, regulariser=G, theta_max=5.0)
    assert model == pytest.approx(public.problem.optimum(owners), abs=1e-10)
    assert np.abs(model - around.theta).max() > 0.05


def test_without_noise_a_smooth_loss_makes_newtons_step():
    public = public_of("logistic")
    owners = records_of(900, 2, move=0.1, classes=True)
    around = around_public(public, None)
    curvature, gradient = told(public.problem, owners, around.theta)
    model = shrunken_model(around, curvature, gradient, SILENT, regulariser=G, theta_max=5.0)
    ridge = G.strong_convexity * np.eye(P)
    step = np.linalg.solve(curvature + ridge, gradient + G.gradient(around.theta))
    # The public optimum is solved for to a relative fitness of 1e-9.
    assert model == pytest.approx(around.theta - step, abs=1e-4)


def test_a_step_out_of_the_box_ends_where_it_loses_least():
    public = public_of(theta_max=0.35)
    around = around_public(public, None)
    theta = np.array([0.5, -0.3, 0.2, 0.1])
    gradient = -around.curvature @ (theta - around.theta) + around.offset
    gradient -= G.strong_convexity * (theta - around.theta)
    model = shrunken_model(
        around, around.curvature, gradient, SILENT, regulariser=G, theta_max=0.35
    )
    whole = around.curvature + G.strong_convexity * np.eye(P)
    assert model == pytest.approx(box_least_squares(whole, whole @ theta, theta_max=0.35))
    assert np.abs(model).max() == 0.35


def test_noise_without_end_leaves_the_public_model():
    public = public_of()
    around, rng = around_public(public, None), np.random.default_rng(1)
    for scale in (1e6, 1e12):
        noise = StepNoise(entry=scale**2, gradient=scale**2 * np.eye(P))
        loud = rng.normal(size=(P, P)) * scale
        model = shrunken_model(
            around, loud + loud.T, rng.normal(size=P) * scale, noise, regulariser=G, theta_max=5.0
        )
        assert model == pytest.approx(around.theta, abs=0.05)
        assert np.abs(model).max() <= 5.0


@pytest.mark.parametrize("scale", [0.01, 0.1, 0.5, 1.0, 2.0, 10.0, 100.0])
@pytest.mark.parametrize("of_the_curvature", [0.0, 1.0])
def test_where_the_truth_is_as_near_as_the_spread_says_no_noise_makes_it_worse_than_free(
    scale, of_the_curvature
):
    """Mean squared error in the coordinates of the loss, against that of the public model."""
    rng, p = np.random.default_rng(3), 5
    around = plain(p, spread=0.02)
    variance = (scale * 0.15) ** 2
    entry = of_the_curvature * variance
    noise = StepNoise(entry=entry, gradient=variance * np.eye(p))
    theirs, free = 0.0, 0.0
    for _ in range(300):
        truth = np.sqrt(around.spread) * rng.normal(size=p)
        curvature = np.triu(rng.laplace(0, np.sqrt(entry / 2) + 1e-12, (p, p)))
        curvature = np.eye(p) + curvature + np.triu(curvature, 1).T
        gradient = -truth + rng.laplace(0, np.sqrt(variance / 2), p)
        model = shrunken_model(
            around, curvature, gradient, noise, regulariser=Regulariser(coefficient=0), theta_max=9
        )
        theirs += float(np.sum((model - truth) ** 2))
        free += float(np.sum(truth**2))
    assert theirs < 1.03 * free
    if scale <= 0.1:
        assert theirs < 0.1 * free


def test_what_public_records_would_have_outside_of_the_box_is_no_sign_of_owners_far_away():
    """Their own gradient at an edge of the box is told by owners that are like them, too."""
    theta, pull, rng = np.zeros(P), np.zeros(P), np.random.default_rng(5)
    theta[:2], pull[:2] = 0.5, [-4.0, -3.0]
    around = replace(plain(P, spread=0.001), theta=theta, pull=pull)
    noise, g = StepNoise(entry=0.0, gradient=0.1**2 * np.eye(P)), Regulariser(coefficient=0)
    loud = pull + 0.1 * rng.normal(size=(200, P))
    curvature = np.broadcast_to(np.eye(P), (200, P, P))

    def moved(around):
        models = shrunken_model(around, curvature, loud, noise, regulariser=g, theta_max=0.5)
        assert np.all(models[:, :2] == 0.5)
        return np.mean(models[:, 2:] ** 2) / 0.1**2

    assert moved(around) < 0.05
    assert moved(replace(around, pull=None)) > 0.5


@pytest.mark.parametrize("clip", [None, 0.4])
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_owners_like_the_public_records_leave_the_public_model_at_an_edge_where_it_is(rounds, clip):
    public = public_of(theta_max=0.15)
    # Steps from the model itself, chance and all: there is nowhere to go.
    vars(public)["start"] = public.theta_optimal
    around = around_public(public, clip)
    newton = NewtonStep(
        weights=np.ones(1),
        around=around,
        curvature_scale=1.0,
        scales=np.zeros(1),
        theta_max=0.15,
        regulariser=G,
        rounds=rounds,
    )
    theta, told = around.theta, []
    for _ in range(rounds):
        gradient = public.problem.slopes(theta, public.records, clip) @ public.records.features
        total = pack_moments(around.curvature, gradient / len(public.records))
        told.append(Round(theta=theta, total=total, weight=1.0, variance=1e-4))
        theta = newton.solve(told)
        assert theta == pytest.approx(around.theta, abs=1e-9)


def test_the_pull_is_the_public_gradient_at_edges_of_the_box():
    public = public_of(theta_max=0.15)
    around = around_public(public, 1.0)
    whole = told(public.problem, public.records, around.theta)[1] + G.gradient(around.theta)
    assert np.abs(around.theta).round(12).tolist()[:3] == [0.15] * 3
    # Whatever the clip, which the offset takes off.
    assert around.pull == pytest.approx([*whole[:3], 0.0])
    assert np.abs(around.pull[:3]).min() > 0.01


def test_a_public_model_within_the_box_has_no_pull():
    assert around_public(public_of(), None).pull is None


def test_owners_that_are_farther_away_than_chance_has_it_are_believed_by_the_odds():
    """At small odds a step that stands out is believed, at large odds chance still explains it."""
    around = plain(P, spread=0.01)
    noise, g = StepNoise(entry=0.0, gradient=np.eye(P)), Regulariser(coefficient=0)
    gradient = np.full(P, -5.0)
    small, middle, large = (
        shrunken_model(
            replace(around, odds=odds), np.eye(P), gradient, noise, regulariser=g, theta_max=9
        )
        for odds in (1.5, 3.0, 5.0)
    )
    assert small[0] > 2.0
    assert small[0] > middle[0] > large[0]
    assert large[0] < 0.2


def test_noise_of_the_curvatures_entries_is_as_large_as_is_said():
    """In whitened coordinates; a share of one entry in two is left out, so never too small."""
    rng, p = np.random.default_rng(4), 8
    root = rng.normal(size=(30, p))
    basis = whitening(root.T @ root / 30)
    lengths = np.sum(basis**2, axis=0)
    said = np.outer(lengths, lengths) * (1.0 + np.eye(p))
    drawn = np.triu(rng.laplace(0, np.sqrt(0.5), (20_000, p, p)))
    drawn = drawn + np.transpose(np.triu(drawn, 1), (0, 2, 1))
    seen = np.var(basis.T @ drawn @ basis, axis=0)
    assert np.all(seen < 1.05 * said)
    assert np.mean(seen / said) > 0.7


def test_the_noise_of_moments_around_a_model_is_what_it_is_told_to_be(monkeypatch):
    theta, variance, rng = np.array([0.5, -2.0, 1.0, 0.25]), 0.3, np.random.default_rng(5)
    around = Around(
        theta=theta, curvature=np.eye(P), offset=np.zeros(P), spread=1.0, curvature_spread=1.0
    )
    solver = SecondMoments(
        weights=np.ones(1),
        num_features=P,
        theta_max=9.0,
        regulariser=G,
        around=around,
        scales=np.ones(1),
    )
    seen = []

    def watched(around, curvature, gradient, noise, **_):
        seen.append((curvature, gradient, noise))
        return around.theta

    monkeypatch.setattr(learner.algorithms.moments, "shrunken_model", watched)
    for packed in rng.laplace(0, np.sqrt(variance / 2), (15_000, packed_length(P))):
        solver.solve(packed, variance)
    curvatures = np.array([one for one, _, _ in seen])
    gradients = np.array([one for _, one, _ in seen])
    _, _, noise = seen[0]
    assert np.var(curvatures, axis=0) == pytest.approx(noise.entry, rel=0.12)
    covariance = np.cov(gradients.T)
    sizes = np.sqrt(np.outer(np.diag(noise.gradient), np.diag(noise.gradient)))
    assert np.max(np.abs(covariance - noise.gradient) / sizes) < 0.06
    assert np.max(np.abs(noise.gradient / sizes - np.eye(P))) > 0.2


def owners_of():
    sizes = (300, 500, 100)
    shards = [records_of(n, 10 + n, move=0.1) for n in sizes]
    shares = np.array(sizes) / np.sum(sizes)
    return shards, shares


@pytest.mark.parametrize("kind", ["newton", "moments"])
def test_answers_are_averaged_by_their_owners_shares_and_so_is_their_noise(kind):
    public = public_of()
    around = around_public(public, None)
    shards, shares = owners_of()
    scales = np.array([0.02, 0.01, 0.05])
    if kind == "newton":
        algorithm = NewtonStep(
            weights=shares,
            around=around,
            curvature_scale=0.3,
            scales=scales,
            theta_max=5.0,
            regulariser=G,
        )
    else:
        algorithm = SecondMoments(
            weights=shares,
            num_features=P,
            theta_max=5.0,
            regulariser=G,
            around=around,
            scales=scales,
        )
    answers = []
    for shard in shards:
        curvature, gradient = told(public.problem, shard, around.theta)
        x, y = shard.features, shard.targets
        answers.append(
            pack_moments(0.3 * curvature, gradient)
            if kind == "newton"
            else pack_moments(x.T @ x / len(y), x.T @ y / len(y))
        )
    state = algorithm.initial_state()
    assert np.array_equal(algorithm.central_model(state), around.theta)
    for k, owner in enumerate((2, 0)):
        tick = Tick(float(k), (owner,))
        point = algorithm.query_point(state, tick)
        assert np.array_equal(point, around.theta if kind == "newton" else np.zeros(P))
        state = algorithm.apply_responses(state, tick, {owner: answers[owner]})
    kept = shares[[2, 0]] / shares[[2, 0]].sum()
    variance = 2 * float(np.sum((kept * scales[[2, 0]]) ** 2))
    if kind == "newton":

        def solved(solver, mean, variance):
            return solver.solve([Round(theta=around.theta, total=mean, variance=variance)])
    else:

        def solved(solver, mean, variance):
            return solver.solve(mean, variance)

    expected = solved(algorithm, kept @ np.array([answers[2], answers[0]]), variance)
    assert algorithm.central_model(state) == pytest.approx(expected, rel=1e-12)
    # Whoever does not answer changes nothing.
    same = algorithm.apply_responses(state, Tick(9.0, (1,)), {})
    assert algorithm.central_model(same) == pytest.approx(expected, rel=1e-12)
    # Without noise both are the optimum of those who answered.
    silent = replace(algorithm, scales=np.zeros(3))
    exact = solved(silent, shares @ np.array(answers), 0.0)
    joined = Records(
        features=np.concatenate([s.features for s in shards]),
        targets=np.concatenate([s.targets for s in shards]),
    )
    assert exact == pytest.approx(public.problem.optimum(joined), abs=1e-10)


def test_the_spread_is_that_of_the_public_model_by_chance():
    """Many public tables of one distribution: how far their models are off, where H is I."""
    off, said = [], []
    problem = Problem(loss=Squared(), regulariser=Regulariser(coefficient=1e-9), theta_max=9.0)
    x = records_of(100_000, 7).features
    root = np.linalg.cholesky(2 * x.T @ x / len(x))
    for seed in range(200):
        records = records_of(60, 100 + seed)
        public = PublicGroups(problem=problem, records=records, labels=None)
        around = around_public(public, None)
        step = around.theta - np.array([0.4, -0.3, 0.2, 0.1])
        off.append(np.mean((root.T @ step) ** 2))
        said.append(around.spread)
    assert np.mean(said) == pytest.approx(np.mean(off), rel=0.2)


WIDE = 12


def flat_around(*, drifts, doubts=False):
    """Public records in which the last of twelve features hardly varies."""
    return Around(
        theta=np.zeros(WIDE),
        curvature=np.diag([1.0] * (WIDE - 1) + [0.002]),
        offset=np.zeros(WIDE),
        spread=0.01,
        curvature_spread=0.01,
        drifts=drifts,
        doubt=0.01 * doubts,
    )


def owners_curvature():
    """Among the owners it varies, and with the others."""
    curvature = np.eye(WIDE)
    curvature[-1, :-1] = curvature[:-1, -1] = 0.15
    curvature[-1, -1] = 0.5
    return curvature


def losses_of(around, true, *, entry):
    """What one step of many studies loses, whose curvature is loud and whose gradient is not."""
    rng, truth = np.random.default_rng(8), 0.3 * np.ones(WIDE)
    drawn = np.triu(rng.laplace(0, np.sqrt(entry / 2), (100, WIDE, WIDE)))
    loud = true + drawn + np.triu(drawn, 1).swapaxes(1, 2)
    noise = StepNoise(entry=entry, gradient=1e-8 * np.eye(WIDE))
    gradient = np.broadcast_to(-true @ truth, (100, WIDE))
    g = Regulariser(coefficient=0)
    models = shrunken_model(around, loud, gradient, noise, regulariser=g, theta_max=1e6)
    off = models - truth
    return np.einsum("ri,ij,rj->r", off, true, off) / (truth @ true @ truth)


def test_where_records_drift_a_feature_that_varies_among_the_owners_only_is_seen():
    true = owners_curvature()
    assert np.median(losses_of(flat_around(drifts=True), true, entry=1e-3)) < 0.1
    assert np.median(losses_of(flat_around(drifts=False), true, entry=1e-3)) > 1.0


@pytest.mark.parametrize("drifts", [False, True])
def test_a_curvature_that_is_far_louder_than_its_noise_is_believed(drifts):
    """Two columns follow each other among the public records, and do not among the owners'."""
    around = flat_around(drifts=drifts, doubts=drifts)
    around = replace(around, curvature=np.diag([1.0] * (WIDE - 1) + [1e-5]))
    true = np.diag([1.0] * (WIDE - 1) + [0.5])
    # Its deviation is a tenth of the owners' curvature, and ten thousand times the public one.
    assert np.median(losses_of(around, true, entry=1e-3)) < 0.02


def test_what_noise_may_hide_makes_steps_shorter_where_others_follow():
    """Noise hides that owners curve twice as much: a whole step goes as far beyond."""
    true = np.diag([2.0] * (WIDE - 1) + [0.004])
    bold = losses_of(flat_around(drifts=True), true, entry=0.3)
    careful = losses_of(flat_around(drifts=True, doubts=True), true, entry=0.3)
    assert np.median(careful) < 0.8 * np.median(bold)


def test_where_public_records_hardly_vary_noise_may_hide_more():
    """Owners vary there 250 times as much, and a step by the public curvature ends far beyond."""
    bold = losses_of(flat_around(drifts=True), owners_curvature(), entry=0.3)
    careful = losses_of(flat_around(drifts=True, doubts=True), owners_curvature(), entry=0.3)
    assert np.median(careful) < 1e-3 * np.median(bold)


def test_what_noise_may_hide_is_a_share_of_the_mean_curvature():
    """The mean of 4 and 1 is 2.5 times the narrow one; of the wide one it is a whole."""
    around = replace(flat_around(drifts=True, doubts=True), curvature=np.diag([4.0, 1.0]))
    around = replace(around, theta=np.zeros(2), offset=np.zeros(2))
    g = Regulariser(coefficient=0)
    loud, quiet = (Blend.of(around, around.curvature, e, regulariser=g).values for e in (1e6, 0.0))
    hidden = 0.1 * np.sqrt(2.0) * np.array([1.0, 2.5])
    assert loud == pytest.approx(1.0 + hidden)
    assert quiet == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("coordinates", [WIDE, 2, 1])
def test_no_eigenvalue_is_less_than_twice_what_it_varies_by_chance(coordinates):
    """Entries of the variance e beside the diagonal, 2e on it: in every direction it is 2e."""
    around = replace(flat_around(drifts=False), curvature=np.eye(WIDE))
    entry, along = 1e-4, np.zeros(WIDE)
    along[:coordinates] = coordinates**-0.5
    bent = np.eye(WIDE) - 1.3 * np.outer(along, along)
    values = Blend.of(around, bent, entry, regulariser=Regulariser(coefficient=0)).values
    assert values.min() == pytest.approx(2.0 * np.sqrt(2.0 * entry), rel=0.1)


def test_a_direction_that_public_records_do_not_vary_in_makes_no_others_steps_short():
    around = flat_around(drifts=True, doubts=True)
    dead = replace(around, curvature=np.diag([1.0] * (WIDE - 1) + [1e-5]))
    g, entry = Regulariser(coefficient=0), 1e-4
    values = Blend.of(dead, dead.curvature, entry, regulariser=g).values
    assert values[:-1] == pytest.approx(1.0 + np.sqrt(WIDE * entry))
    # There the noise is 1e5 times as loud; what is possible is a spread of the mean curvature.
    assert values[-1] == pytest.approx(1.0 + np.sqrt(WIDE * entry) * 1e5)


@pytest.mark.parametrize("ratio", [0.02, 0.1])
def test_where_noise_is_small_a_step_goes_all_the_way_however_little_owners_curve(ratio):
    """With a quarter as the least curvature it went this ratio of the way four times over."""
    true = np.diag([1.0] * (WIDE - 1) + [0.002 * ratio])
    true[0, 0] = ratio
    quiet = losses_of(flat_around(drifts=False), true, entry=1e-10)
    assert np.median(quiet) < 1e-3


def test_what_rounds_teach_leaves_no_curvature_below_the_least_there_was():
    """The change that adds curvature on the way may take some from other directions."""
    g = Regulariser(coefficient=0)
    blend = Blend.of(flat_around(drifts=True), owners_curvature(), 1e-6, regulariser=g)
    way = np.zeros(WIDE)
    way[0] = 0.3
    # Gradients change eight times as much as they should, and to the side.
    change = 8.0 * owners_curvature() @ way
    change[1] = 5.0
    told = blend.taught([(np.zeros(WIDE), np.zeros(WIDE), 1e-9), (way, change, 1e-9)])
    assert np.sort(told.values)[-2] > 5.0 * np.sort(blend.values)[-2]
    assert told.values.min() == blend.values.min()


@pytest.mark.parametrize(("drifts", "believed"), [(True, True), (False, False)])
def test_rounds_teach_what_owners_vary_by_where_drifting_public_records_hardly_do(drifts, believed):
    """Ten times the noise is not believed where nothing else says that owners vary."""
    around, g = flat_around(drifts=drifts), Regulariser(coefficient=0)
    blend = Blend.of(around, around.curvature, 1e9, regulariser=g)
    way = np.zeros(WIDE)
    way[-1] = 1.0
    # The public curvature of 0.002 is 1 in the blend, and this is eleven times as much.
    change = 0.022 * way
    noise = 0.002**2 / 2
    told = blend.taught([(np.zeros(WIDE), np.zeros(WIDE), noise), (way, change, noise)])
    assert bool(told.values.max() > 5.0) is believed


def test_a_round_that_hardly_moved_teaches_nothing():
    """Gradients then differ by rounding, and over so short a way that looks like any curvature."""
    around = Around(
        theta=np.zeros(P),
        curvature=2.0 * np.eye(P),
        offset=np.zeros(P),
        spread=1.0,
        curvature_spread=0.1,
    )
    blend = Blend.of(around, 2.0 * np.eye(P), 1e-30, regulariser=Regulariser(coefficient=0.0))
    way = np.ones(P)
    rounds = [(np.zeros(P), np.zeros(P), 1e-30), (way, 2.0 * way, 1e-30)]
    stood = (way * (1.0 + 1e-9), 2.0 * way + 1e-6, 1e-30)
    np.testing.assert_array_equal(
        blend.taught([*rounds, stood]).values, blend.taught(rounds).values
    )
    # The same change over a way that counts is believed.
    went = (way * (1.0 + 1e-3), 2.0 * way + 1.0, 1e-30)
    assert blend.taught([*rounds, went]).values.max() > 10.0
