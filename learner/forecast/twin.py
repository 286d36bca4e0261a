r"""The twin: a study as proposed, run on public records before anybody spends anything.

It returns a distribution, not a bound. The owners are played by public records
(:mod:`learner.forecast.playing`); ticks, absences, the budget's split, clipping, the steps and the
noise are those of the study itself, with

.. math:: b_i = m_i \cdot \frac{\Delta_i}{\epsilon_i}

for the m_i responses that owner i promises in that run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from common.arrays import Matrix, Vector
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import Groups, scheduled_frequency
from learner.algorithms.moments import SecondMoments
from learner.algorithms.synchronous import SynchronousAverage, SynchronousDescent
from learner.algorithms.table import Simulated
from learner.forecast.groups import PublicGroups
from learner.forecast.playing import are_certain, play_owners
from learner.forecast.world import World
from learner.simulated.replicates import (
    GradientFunction,
    Moments,
    NoiseFunction,
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

__all__ = ["Forecast", "Proposal", "forecast", "run_in_worlds", "run_study"]


WORLDS = 12


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
      attendance: How often owners, or whole groups, are there.
    """

    algorithm: Simulated
    num_records: Vector
    unit_scales: Vector
    clip: float | None = None
    split: Split = "horizon"
    rates: Vector | None = None
    ticks: NDArray[np.intp] | None = None
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Forecast:
    """What a study is expected to come to.

    Args:
      relative_fitness: psi of the common model in each simulated run of each world, shape (W, R).
      relative_fitness_alone: psi of each owner's own model in each world, shape (W, N).
    """

    relative_fitness: Matrix
    relative_fitness_alone: Matrix

    @property
    def expected(self) -> float:
        """The expected relative fitness: of the worlds' means over runs, the middle one.

        Worlds differ by how the owners may differ; one that is far off does not move the middle.
        """
        return float(np.median(np.mean(self.relative_fitness, axis=1)))

    def interval(self, coverage: float = 0.9) -> tuple[float, float]:
        """The central interval that a run falls into with this probability."""
        edge = (1.0 - coverage) / 2.0
        low, high = np.quantile(self.relative_fitness, [edge, 1.0 - edge])
        return float(low), float(high)

    @property
    def alone(self) -> Vector:
        """The expected relative fitness of each owner's own model, shape (N,)."""
        middle: Vector = np.median(self.relative_fitness_alone, axis=0)
        return middle

    @property
    def gains(self) -> NDArray[np.bool_]:
        """Whether each owner is expected to gain: together below alone, shape (N,)."""
        return self.expected < self.alone


def forecast(
    proposal: Proposal,
    public: PublicGroups,
    *,
    num_records: Vector | None = None,
    taking_part: Sequence[int] | None = None,
    known: Sequence[int | None] = (),
    runs: int = 96,
    worlds: int = WORLDS,
    rng: np.random.Generator,
) -> Forecast:
    """The distribution of the study's outcome, from public records and public facts only.

    Args:
      proposal: The study as proposed.
      public: The public records in groups.
      num_records: The n_i of all owners whose union fitness is told on, where not all of them
        take part.
      taking_part: Which of these the proposal is about; None for all.
      known: The group that each owner is known to be, of all.
      runs: Simulated runs over all worlds.
      worlds: How often groups are dealt to owners anew; once where all are known.
      rng: Where the simulations' randomness comes from; seed it with nothing private.
    """
    sizes = proposal.num_records if num_records is None else num_records
    count = 1 if are_certain(public, sizes, known) else worlds
    dealt = [play_owners(public, sizes, known=known, rng=rng) for _ in range(count)]
    if taking_part is not None:
        dealt = [world.only(taking_part) for world in dealt]
    models = run_in_worlds(proposal, dealt, runs=max(1, runs // count), rng=rng)
    psi = [world.evaluation.relative_fitness(own) for world, own in zip(dealt, models, strict=True)]
    return Forecast(
        relative_fitness=np.maximum(np.stack(psi), 0.0),
        relative_fitness_alone=np.stack([world.relative_fitness_alone for world in dealt]),
    )


def run_in_worlds(
    proposal: Proposal, worlds: Sequence[World], *, runs: int, rng: np.random.Generator
) -> Sequence[Matrix]:
    """The results of so many runs in each world, each of shape (R, p)."""
    algorithm = proposal.algorithm
    if not isinstance(algorithm, Asynchronous):
        return [run_study(proposal, world, runs=runs, rng=rng) for world in worlds]
    # All worlds side by side: a tick costs hardly more than in one.
    models = _take_turns(
        proposal, algorithm, worlds, runs, checkpoints=(), keep=_keeper((), None), rng=rng
    )
    return np.split(models, len(worlds))


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
    if isinstance(algorithm, SecondMoments):
        return _solve(proposal, algorithm, world, runs, rng=rng)
    keep = _keeper(checkpoints, trace)
    if isinstance(algorithm, Asynchronous):
        return _take_turns(
            proposal, algorithm, [world], runs, checkpoints=checkpoints, keep=keep, rng=rng
        )
    return _go_round(proposal, algorithm, world, runs, keep, rng=rng)


def _keeper(
    checkpoints: Sequence[int], trace: list[Matrix] | None
) -> Callable[[int, Matrix], None]:
    """Keeps the models of the checkpoints."""
    wanted = set(checkpoints)

    def keep(k: int, models: Matrix) -> None:
        if trace is not None and k in wanted:
            trace.append(models.copy())

    return keep


def _take_turns(
    proposal: Proposal,
    algorithm: Asynchronous,
    worlds: Sequence[World],
    runs: int,
    *,
    checkpoints: Sequence[int],
    keep: Callable[[int, Matrix], None],
    rng: np.random.Generator,
) -> Matrix:
    """So many runs in each world, those of a world next to each other."""
    schedule = draw_schedule(
        proposal.clock_rates,
        horizon=algorithm.horizon,
        replicates=runs * len(worlds),
        split=proposal.split,
        attendance=proposal.attendance,
        ticks=proposal.ticks,
        rng=rng,
    )
    units, groups = proposal.unit_scales, proposal.groups
    if groups:
        units = _group_units(proposal, worlds[0].weights)
    gradients = [
        world.group_gradients(groups, proposal.clip) if groups else world.gradients(proposal.clip)
        for world in worlds
    ]
    scales = units[:, None] * schedule.promised
    if proposal.split == "horizon":
        scales = scales[:, 0]  # the same in every run
    # What is counted of a schedule is known before it begins.
    frequency = scheduled_frequency(schedule.promised) if algorithm.counted else None
    result = run_replicates(
        algorithm,
        schedule.slots,
        gradients=_side_by_side(gradients, runs),
        frequency=frequency,
        noise=laplace_noise(scales, num_features=algorithm.num_features, rng=rng),
        checkpoints=checkpoints,
    )
    for k, models in zip(checkpoints, result.trace, strict=True):
        keep(k, models)
    return result.central


def _side_by_side(gradients: Sequence[GradientFunction], runs: int) -> GradientFunction:
    """Each world answers its own runs."""
    if len(gradients) == 1:
        return gradients[0]
    parts = [slice(start, start + runs) for start in range(0, len(gradients) * runs, runs)]

    def answer(slots: NDArray[np.intp], thetas: Matrix) -> Matrix:
        answers = [
            own(slots[part], thetas[part]) for own, part in zip(gradients, parts, strict=True)
        ]
        return np.concatenate(answers)

    return answer


def _group_units(proposal: Proposal, weights: Vector) -> Vector:
    """The noise of each group's mean, as one Laplace draw of the same variance."""
    return np.array(
        [
            float(np.linalg.norm(weights[list(g)] / weights[list(g)].sum()
                                 * proposal.unit_scales[list(g)]))
            for g in proposal.groups
        ]
    )  # fmt: skip


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
    if not proposal.attendance.complete:
        present = draw_presence(
            proposal.num_owners,
            horizon=algorithm.horizon,
            replicates=runs,
            attendance=proposal.attendance,
            rng=rng,
        )
        return run_rounds(
            algorithm,
            replicates=runs,
            gradients=world.gradients(proposal.clip),
            noise=laplace_noise(scales, num_features=p, rng=rng),
            present=present,
            on_round=keep,
        )
    if world.moments is None or proposal.clip is not None:
        return run_rounds(
            algorithm,
            replicates=runs,
            gradients=world.gradients(proposal.clip),
            noise=laplace_noise(scales, num_features=p, rng=rng),
            on_round=keep,
        )
    # A round's weighted sum is the answer of one owner that has all records.
    merged = Moments(
        gram=np.tensordot(algorithm.weights, world.moments.gram, axes=1)[None],
        cross=(algorithm.weights @ world.moments.cross)[None],
    )
    return run_rounds(
        replace(algorithm, weights=np.ones(1)),
        replicates=runs,
        gradients=moment_gradients(merged),
        noise=_summed_noise(algorithm.weights * scales, p, rng=rng),
        on_round=keep,
    )


def _summed_noise(scales: Vector, num_features: int, *, rng: np.random.Generator) -> NoiseFunction:
    """The sum of all owners' weighted noise."""

    def draw(slots: NDArray[np.intp]) -> Matrix:
        drawn = rng.laplace(size=(scales.size, len(slots), num_features))
        total: Matrix = np.tensordot(scales, drawn, axes=1)
        return total

    return draw


def _solve(
    proposal: Proposal,
    algorithm: SecondMoments,
    world: World,
    runs: int,
    *,
    rng: np.random.Generator,
) -> Matrix:
    """One-shot moments: all owners answer once, sooner or later."""
    if world.moments is None:
        raise ValueError("algorithm: moments need squared loss")
    p, weights = algorithm.num_features, algorithm.weights
    gram = np.tensordot(weights, world.moments.gram, axes=1)
    cross = weights @ world.moments.cross
    exact = np.concatenate([gram[np.triu_indices(p)], cross])
    noise = _summed_noise(weights * proposal.unit_scales, exact.size, rng=rng)
    packed = exact + noise(np.zeros(runs, dtype=np.intp))
    return np.stack([algorithm.solve(one) for one in packed])
