r"""The twin: a study as proposed, run on public records before anybody spends anything.

It returns a distribution, not a bound. The owners are played by public records
(:mod:`learner.simulated.playing`), the study is run by :mod:`learner.simulated.studies`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.arrays import Matrix, Vector
from learner.algorithms.asynchronous import Asynchronous
from learner.simulated.groups import PublicGroups
from learner.simulated.playing import are_certain, play_owners
from learner.simulated.stability import largest_stable_step
from learner.simulated.studies import Proposal, run_in_worlds, shortened
from learner.simulated.world import World

__all__ = ["RUNS", "WORLDS", "Forecast", "forecast"]


RUNS, WORLDS = 96, 12


@dataclass(frozen=True, kw_only=True, eq=False)
class Forecast:
    """What a study is expected to come to.

    Args:
      relative_fitness: psi of the common model in each simulated run of each world, shape (W, R).
      worlds: The worlds.
    """

    relative_fitness: Matrix
    worlds: Sequence[World]

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
        own = np.stack([world.relative_fitness_alone for world in self.worlds])
        middle: Vector = np.median(own, axis=0)
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
    runs: int = RUNS,
    worlds: int = WORLDS,
    rng: np.random.Generator,
) -> Forecast:
    """The distribution of the study's outcome, from public records and public facts only.

    Args:
      proposal: The study as proposed.
      public: The public records in groups.
      num_records: The n_i of all owners whose union fitness is judged on, where not all of them
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
    limit = np.inf
    if isinstance(proposal.algorithm, Asynchronous):
        limit = largest_stable_step(proposal.algorithm, public.records, loss=public.problem.loss)
    proposal = shortened(proposal, largest_stable=limit)
    models = run_in_worlds(proposal, dealt, runs=max(1, runs // count), rng=rng)
    psi = [world.evaluation.relative_fitness(own) for world, own in zip(dealt, models, strict=True)]
    return Forecast(relative_fitness=np.maximum(np.stack(psi), 0.0), worlds=dealt)
