r"""A study as proposed, many runs of it at once in a simulated world.

Ticks, absences, the budget's split, clipping, the steps and the noise are those of the study, with

.. math:: b_i = m_i \cdot \frac{\Delta_i}{\epsilon_i}

for the m_i responses that owner i promises in that run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from common.arrays import Indices, Matrix, Vector
from common.moments import pack_moments, packed_length
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import Groups, scheduled_frequency
from learner.algorithms.moments import SecondMoments
from learner.algorithms.newton import NewtonStep
from learner.algorithms.synchronous import SynchronousAverage, SynchronousDescent
from learner.algorithms.table import Simulated
from learner.simulated.blocks import block_gradients
from learner.simulated.larger_owners import group_shares
from learner.simulated.replicates import (
    GradientFunction,
    NoiseFunction,
    Replicates,
    ShardMoments,
    laplace_noise,
    moment_gradients,
    run_replicates,
)
from learner.simulated.rounds import run_rounds
from learner.simulated.schedules import (
    ALWAYS,
    Attendance,
    Split,
    draw_presence,
    draw_schedule,
)
from learner.simulated.united import United, newton_steps
from learner.simulated.world import World

# A longer study is simulated by fewer and longer steps, as far as they stay clear of the stability
# limit by this factor, and in no case by more ticks than the most.
TICKS, MOST_TICKS = 3_000, 10_000
CLEAR = 8.0
# Asking records takes the longer the more owners answer at the same tick: this many tick sequences.
SEQUENCES = 12


OneShot = SecondMoments | NewtonStep
"""The algorithms that ask every owner in turn, all as often."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Proposal:
    """A study as proposed, in public facts.

    Args:
      algorithm: What the learner will run, with its weights n_i/n, horizon and step; counted
        frequencies are those of the schedule.
      num_records: Each owner's n_i, shape (N,).
      unit_scales: Scale b of one response's noise if an owner gave only one, that is
        sensitivity/epsilon_i, shape (N,).
      clip: The L1 norm that gradients are scaled down to; None for the domain's bound.
      split: How budgets are split over responses.
      rates: Rates of the clocks of owners or groups, shape (number of groups,).
      ticks: Whose the ticks are, shape (T,), where the clocks' seed is known; None to draw them.
      asks_everyone: Whether a schedule hands ticks to owners that it would leave out.
      attendance: How often owners, or whole groups, are there.
    """

    algorithm: Simulated
    num_records: Vector
    unit_scales: Vector
    clip: float | None = None
    split: Split = "horizon"
    rates: Vector | None = None
    ticks: Indices | None = None
    asks_everyone: bool = False
    attendance: Attendance = ALWAYS

    @property
    def num_owners(self) -> int:
        """N."""
        return int(self.num_records.size)

    @property
    def clock_rates(self) -> Vector:
        """One for every clock unless said otherwise, shape (number of groups,)."""
        clocks = len(self.groups) or self.num_owners
        return np.ones(clocks) if self.rates is None else self.rates

    @property
    def groups(self) -> Groups:
        """Owners that are asked at the same time; none where each is asked alone."""
        return self.algorithm.groups if isinstance(self.algorithm, Asynchronous) else ()


def shortened(proposal: Proposal, *, largest_stable: float = np.inf) -> Proposal:
    r"""The same study in fewer and longer steps where it is too long to be simulated.

    m ticks of a small step are like one of m times the step with :math:`1/\sqrt m` of the noise.

    Args:
      proposal: The study.
      largest_stable: The largest stable step alpha of Algorithm 1.

    >>> from common.losses import Regulariser
    >>> rounds = SynchronousAverage(weights=np.ones(1), num_features=1, theta_max=1.0,
    ...     regulariser=Regulariser(coefficient=0.0), initial_step=0.01, horizon=12_000)
    >>> study = Proposal(algorithm=rounds, num_records=np.ones(1), unit_scales=np.ones(1))
    >>> short = shortened(study)
    >>> short.algorithm.horizon, short.algorithm.initial_step, short.unit_scales
    (3000, 0.02, array([2.]))
    """
    algorithm = proposal.algorithm
    if isinstance(algorithm, OneShot) or algorithm.horizon <= TICKS:
        return proposal
    T = algorithm.horizon
    if isinstance(algorithm, Asynchronous):
        longest = max(1.0, largest_stable / (CLEAR * algorithm.alpha))
        ticks = int(np.clip(T / longest, TICKS, min(T, MOST_TICKS)))
        m = min(T / ticks, longest)
        fewer = replace(algorithm, horizon=ticks)
        changed: Simulated = replace(fewer, rho=fewer.rho * m * algorithm.alpha / fewer.alpha)
    else:
        ticks = TICKS
        m = T / ticks
        if isinstance(algorithm, SynchronousDescent):
            # Steps that fall as 1/k add up to the same over k and m k.
            changed = replace(algorithm, horizon=ticks, rho=algorithm.rho * (ticks / T) ** 2)
        else:
            first = algorithm.initial_step * np.sqrt(m)
            changed = replace(algorithm, horizon=ticks, initial_step=float(first))
    kept = None if proposal.ticks is None else proposal.ticks[np.arange(ticks) * T // ticks]
    # Each owner promises T/ticks times what the fewer ticks count.
    scales = proposal.unit_scales * (T / ticks) / np.sqrt(m)
    return replace(proposal, algorithm=changed, ticks=kept, unit_scales=scales)


def run_in_worlds(
    proposal: Proposal, worlds: Sequence[World], *, runs: int, rng: np.random.Generator
) -> Sequence[Matrix]:
    """The results of this many runs in each world, each of shape (R, p)."""
    algorithm = proposal.algorithm
    if not isinstance(algorithm, Asynchronous):
        return [run_study(proposal, world, runs=runs, rng=rng) for world in worlds]
    # All worlds side by side: a tick costs hardly more than in one.
    return np.split(_take_turns(proposal, algorithm, worlds, runs, rng=rng).central, len(worlds))


def run_study(
    proposal: Proposal,
    world: World,
    *,
    runs: int,
    checkpoints: Sequence[int] = (),
    trace: list[Matrix] | None = None,
    rng: np.random.Generator,
) -> Matrix:
    """The result of many runs of the study in a world, shape (R, p).

    Args:
      proposal: The study.
      world: Who answers.
      runs: The number R of independent runs.
      checkpoints: The k whose central models are appended to ``trace``.
      trace: Where they go, each of shape (R, p).
      rng: Where the randomness comes from.
    """
    algorithm = proposal.algorithm
    if isinstance(algorithm, OneShot):
        return _solve(proposal, algorithm, world, runs, rng=rng)
    kept = [] if trace is None else trace
    if isinstance(algorithm, Asynchronous):
        result = _take_turns(proposal, algorithm, [world], runs, checkpoints=checkpoints, rng=rng)
        kept.extend(result.trace)
        return result.central
    wanted = set(checkpoints)

    def keep(k: int, models: Matrix) -> None:
        if k in wanted:
            kept.append(models.copy())

    return _go_round(proposal, algorithm, world, runs, keep, rng=rng)


def _take_turns(
    proposal: Proposal,
    algorithm: Asynchronous,
    worlds: Sequence[World],
    runs: int,
    *,
    checkpoints: Sequence[int] = (),
    rng: np.random.Generator,
) -> Replicates:
    """This many runs in each world, those of a world next to each other."""
    groups, count = proposal.groups, len(worlds)
    asks_records = worlds[0].moments is None or proposal.clip is not None
    if asks_records and len({len(own) for world in worlds for own in world.shards}) == 1:
        blocks = _sequences(runs, count)
        gradients = block_gradients(worlds, blocks=blocks, clip=proposal.clip, groups=groups)
    else:
        blocks = runs
        gradients = _side_by_side(
            [world.gradients(proposal.clip, groups) for world in worlds], runs
        )
    schedule = draw_schedule(
        proposal.clock_rates,
        horizon=algorithm.horizon,
        replicates=blocks * count,
        split=proposal.split,
        attendance=proposal.attendance,
        asks_everyone=proposal.asks_everyone,
        ticks=proposal.ticks,
        rng=rng,
    )
    each = runs // blocks
    units = group_units(proposal, worlds[0].weights)
    scales = units[:, None] * schedule.promised
    if proposal.split == "horizon":
        scales = scales[:, 0]  # the same in every run
    # What is counted of a schedule is known before it begins.
    frequency = scheduled_frequency(schedule.promised) if algorithm.counted else None
    return run_replicates(
        algorithm,
        schedule.slots,
        gradients=gradients,
        frequency=frequency,
        noise=laplace_noise(scales, num_features=algorithm.num_features, each=each, rng=rng),
        each=each,
        checkpoints=checkpoints,
    )


def _side_by_side(gradients: Sequence[GradientFunction], runs: int) -> GradientFunction:
    """Each world answers its own runs."""
    if len(gradients) == 1:
        return gradients[0]
    parts = [slice(start, start + runs) for start in range(0, len(gradients) * runs, runs)]

    def answer(slots: Indices, thetas: Matrix) -> Matrix:
        answers = [
            own(slots[part], thetas[part]) for own, part in zip(gradients, parts, strict=True)
        ]
        return np.concatenate(answers)

    return answer


def _sequences(runs: int, worlds: int) -> int:
    """Sequences of ticks in each world where records are asked, as many runs on each."""
    wanted = -(-SEQUENCES // worlds)
    return next(count for count in range(min(runs, wanted), runs + 1) if runs % count == 0)


def group_units(proposal: Proposal, weights: Vector) -> Vector:
    """Scales of one response's noise: a group's mean has one Laplace draw of its variance.

    Args:
      proposal: The study.
      weights: Each owner's share of the records, shape (N,).

    Returns:
      Shape (N,), or (number of groups,) where owners are asked in groups.
    """
    units = proposal.unit_scales
    if not proposal.groups:
        return units
    shares = group_shares(proposal.groups, weights)
    return np.array(
        [
            float(np.linalg.norm(own * units[list(g)]))
            for own, g in zip(shares, proposal.groups, strict=True)
        ]
    )


def _go_round(
    proposal: Proposal,
    algorithm: SynchronousDescent | SynchronousAverage,
    world: World,
    runs: int,
    keep: Callable[[int, Matrix], None],
    *,
    rng: np.random.Generator,
) -> Matrix:
    scales = proposal.unit_scales * algorithm.horizon
    p = algorithm.num_features
    present = None
    if not proposal.attendance.complete:
        present = draw_presence(
            proposal.num_owners,
            horizon=algorithm.horizon,
            replicates=runs,
            attendance=proposal.attendance,
            rng=rng,
        )
    if present is not None or world.moments is None or proposal.clip is not None:
        return run_rounds(
            algorithm,
            replicates=runs,
            gradients=world.gradients(proposal.clip),
            noise=laplace_noise(scales, num_features=p, rng=rng),
            present=present,
            on_round=keep,
        )
    # A round's weighted sum is the answer of one owner that has all records.
    gram, cross = world.moments.pooled(algorithm.weights)
    return run_rounds(
        replace(algorithm, weights=np.ones(1)),
        replicates=runs,
        gradients=moment_gradients(ShardMoments(gram=gram[None], cross=cross[None])),
        noise=summed_noise(algorithm.weights * scales, p, rng=rng),
        on_round=keep,
    )


def summed_noise(scales: Vector, num_features: int, *, rng: np.random.Generator) -> NoiseFunction:
    r"""The sum of all owners' weighted noise, of variance :math:`2 \sum_i b_i^2`.

    Args:
      scales: The scales b_i times the owners' weights, shape (N,).
      num_features: The number p of coordinates.
      rng: Where the randomness comes from.

    >>> draw = summed_noise(np.array([3.0, 4.0]), 1, rng=np.random.default_rng(1))
    >>> bool(abs(draw(np.zeros(100_000, dtype=np.intp)).var() - 50.0) < 1.0)
    True
    """

    def draw(slots: Indices) -> Matrix:
        drawn = rng.laplace(size=(scales.size, len(slots), num_features))
        return np.tensordot(scales, drawn, axes=1)

    return draw


def _solve(
    proposal: Proposal,
    algorithm: OneShot,
    world: World,
    runs: int,
    *,
    rng: np.random.Generator,
) -> Matrix:
    """What is asked once: all owners answer, sooner or later."""
    p, now = algorithm.num_features, np.zeros(runs, dtype=np.intp)
    if isinstance(algorithm, NewtonStep):
        scales = algorithm.weights * proposal.unit_scales * algorithm.rounds
        noise = summed_noise(scales, packed_length(p), rng=rng)
        united = United(world.weighed(algorithm.weights))
        draws = (noise(now) for _ in range(algorithm.rounds))
        return newton_steps(
            algorithm,
            lambda thetas: united.gradients(thetas, proposal.clip),
            lambda thetas: united.curvatures(thetas, proposal.clip),
            draws,
            2.0 * float(scales @ scales),
        )
    if world.moments is None:
        raise ValueError("algorithm: moments need squared loss")
    exact = pack_moments(*world.moments.pooled(algorithm.weights))
    scales = algorithm.weights * proposal.unit_scales
    noise = summed_noise(scales, exact.size, rng=rng)
    return algorithm.solve(exact + noise(now), 2.0 * float(scales @ scales))
