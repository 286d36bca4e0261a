"""Many designs of a study side by side in the same worlds, on the same ticks and noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from common.arrays import Array, Indices, Matrix, Vector
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import scheduled_frequency
from learner.algorithms.synchronous import SynchronousAverage, SynchronousDescent
from learner.simulated.blocks import block_gradients
from learner.simulated.replicates import NoiseFunction, run_replicates
from learner.simulated.rounds import run_rounds
from learner.simulated.schedules import draw_schedule
from learner.simulated.stability import stable_steps
from learner.simulated.studies import Proposal, group_units
from learner.simulated.world import World

Rounds = SynchronousAverage | SynchronousDescent
# Draws of noise are made for several ticks at a time: 2 MB of them.
DRAWN_AHEAD = 128_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Designs:
    """Designs of one horizon.

    Args:
      horizon: The horizon T of all.
      bounds: L1 norm of one record's gradient that the noise is for, shape (K,).
      clips: Whether gradients are scaled down to it; else it is the domain's bound.
      steps: The steps alpha, or rho/T^2 of synchronous-1, or c1 of synchronous-2, shape (K,).
      reaches: What :func:`learner.simulated.stability.reach` says under each clip, shape (K,).
      ticks: Simulated ticks: a longer study is simulated by fewer and longer steps.
    """

    horizon: int
    bounds: Vector
    clips: bool
    steps: Vector
    reaches: Vector
    ticks: int

    @property
    def longer(self) -> float:
        """How many ticks one simulated tick stands for."""
        return self.horizon / self.ticks


def relative_fitness_of(
    proposal: Proposal,
    designs: Designs,
    worlds: Sequence[World],
    *,
    runs: int,
    rng: np.random.Generator,
) -> Array:
    """Relative fitness of each design in each world and run, shape (K, W, R).

    Every world has sequences of ticks of its own, two where its runs can share them. No step is
    beyond the largest stable one of its sequence.

    Args:
      proposal: The study; its horizon, step and ticks are not looked at, and ``unit_scales`` are
        those of a bound of 1.
      designs: The designs.
      worlds: The worlds.
      runs: Runs in each world.
      rng: Where the randomness comes from.

    Raises:
      TypeError: The algorithm has no horizon, clip or step.
    """
    algorithm = proposal.algorithm
    if isinstance(algorithm, Asynchronous):
        models = _take_turns(proposal, algorithm, designs, worlds, runs=runs, rng=rng)
    elif isinstance(algorithm, Rounds):
        models = [_go_round(proposal, algorithm, designs, world, runs, rng=rng) for world in worlds]
    else:
        raise TypeError("moments have no horizon, clip or step")
    psi = [
        world.evaluation.relative_fitness(own) for world, own in zip(worlds, models, strict=True)
    ]
    return np.stack([own.reshape(len(designs.steps), runs) for own in psi], axis=1)


def _take_turns(
    proposal: Proposal,
    algorithm: Asynchronous,
    designs: Designs,
    worlds: Sequence[World],
    *,
    runs: int,
    rng: np.random.Generator,
) -> Sequence[Matrix]:
    """Algorithm 1: the models of each world, shape (K R, p), those of a design side by side."""
    sequences = 2 if runs % 2 == 0 else 1
    blocks, share = len(worlds) * sequences, runs // sequences
    schedule = draw_schedule(
        proposal.clock_rates,
        horizon=designs.ticks,
        replicates=blocks,
        split=proposal.split,
        attendance=proposal.attendance,
        asks_everyone=proposal.asks_everyone,
        rng=rng,
    )
    each = len(designs.steps) * share
    shorter = replace(algorithm, horizon=designs.ticks)
    counted = scheduled_frequency(schedule.promised) if algorithm.counted else None
    limits = stable_steps(
        algorithm, designs.reaches[:, None], loss=worlds[0].problem.loss, frequency=counted
    )
    steps = np.minimum(designs.steps * designs.longer, limits.T)
    rho = np.broadcast_to(steps, (blocks, len(designs.steps))) / shorter.alpha * shorter.rho
    units = group_units(proposal, worlds[0].weights)[:, None] * schedule.promised
    asked = np.take_along_axis(units, np.maximum(schedule.slots, 0), axis=0)
    result = run_replicates(
        shorter,
        schedule.slots,
        gradients=block_gradients(
            worlds,
            blocks=sequences,
            clip=np.repeat(designs.bounds, share) if designs.clips else None,
            groups=proposal.groups,
        ),
        noise=_common_noise(designs, asked, share, algorithm.num_features, rng=rng),
        each=each,
        rho=np.repeat(rho, share),
        frequency=counted,
    )
    designs_apart = result.central.reshape(len(worlds), sequences, len(designs.steps), share, -1)
    return list(designs_apart.swapaxes(1, 2).reshape(len(worlds), each * sequences, -1))


def _common_noise(
    designs: Designs, units: Matrix, runs: int, num_features: int, *, rng: np.random.Generator
) -> NoiseFunction:
    """One draw for all designs of a block and run, tick by tick.

    ``units`` are the scales, for a bound of 1, of whom each tick asks, shape (T, blocks).
    """
    # m ticks of a step are like one of m times the step with 1/sqrt(m) of the noise, and each
    # owner promises m times what the simulated ticks count.
    bounds = (designs.bounds * np.sqrt(designs.longer))[:, None, None]
    draws = _differences((units.shape[1], 1, runs, num_features), len(units), rng=rng)
    pages = (
        draw * (own * bounds) for draw, own in zip(draws, units[..., None, None, None], strict=True)
    )

    def draw(slots: Indices) -> Matrix:
        del slots  # they are those of the schedule
        return next(pages).reshape(-1, num_features)

    return draw


def _differences(
    shape: tuple[int, ...], count: int, *, rng: np.random.Generator
) -> Iterator[Array]:
    """This many draws of Laplace noise of scale 1, as if each were drawn when it is asked for."""
    at_once = max(1, DRAWN_AHEAD // int(np.prod(shape)))
    for first in range(0, count, at_once):
        pairs = rng.standard_exponential((min(at_once, count - first), 2, *shape))
        yield from pairs[:, 0] - pairs[:, 1]


def _go_round(
    proposal: Proposal,
    algorithm: Rounds,
    designs: Designs,
    world: World,
    runs: int,
    *,
    rng: np.random.Generator,
) -> Matrix:
    """The synchronous algorithms: the models of one world, shape (K R, p)."""
    ticks, p = designs.ticks, algorithm.num_features
    bounds = designs.bounds * np.sqrt(designs.longer)
    units = proposal.unit_scales * ticks

    draws = _differences((1, runs, p), ticks * len(algorithm.weights), rng=rng)

    def noise(slots: Indices) -> Matrix:
        common: Matrix = (next(draws) * bounds[:, None, None]).reshape(-1, p)
        return units[slots[0]] * common

    steps = designs.steps
    if isinstance(algorithm, SynchronousDescent):
        steps = steps * ticks**2
    else:
        steps = steps * np.sqrt(designs.longer)
    return run_rounds(
        replace(algorithm, horizon=ticks),
        replicates=len(steps) * runs,
        gradients=block_gradients(
            [world], blocks=1, clip=np.repeat(designs.bounds, runs) if designs.clips else None
        ),
        noise=noise,
        step=np.repeat(steps, runs),
    )
