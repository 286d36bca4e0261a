r"""Several questions in flight at once, on paper: python benchmarks/in_flight.py

One question at a time over a line of 50 ms takes T times 50 ms, whatever the owners. copriv asks
the next owners ahead as long as that changes no equation: until an owner comes again that has not
answered. Its *schedule* is drawn here for this many owners, and what it takes is added up.

More could be in flight if equations (5)-(7) were changed: the answer to tick k is applied after
tick k + d was asked, so that d + 1 questions are in flight, whoever they are. What that does is
simulated in two ways, with the same ticks, noise and records:

- *answered*: nothing moves until the answer is there. Then (6) is taken anew, and (5) and (7) move
  the models from there by a gradient that was taken at an older theta_bar.
- *asked*: (7) needs no answer, so the central model moves when the owner is asked; the copy follows
  by (5) from the theta_bar of the question.

With d = 0 both are Algorithm 1. Printed is mean relative fitness over seeds, at the step that the
study chooses and at the best of several smaller ones, chosen in hindsight for each d.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

from collections import deque
from typing import Literal, NamedTuple

import numpy as np
from sweep import Hospitals

from common.arrays import Indices, Matrix, Vector
from common.terms import Records
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import scheduled_frequency
from learner.planning.deciding import decide_quietly
from learner.planning.proposal import propose
from learner.planning.sections import OwnerEntry
from learner.simulated.evaluation import union
from learner.simulated.replicates import (
    GradientFunction,
    NoiseFunction,
    laplace_noise,
    run_replicates,
    slot_weights,
)
from learner.simulated.schedules import draw_schedule
from learner.simulated.world import World

Rule = Literal["answered", "asked"]
RULES: tuple[Rule, ...] = ("answered", "asked")
DELAYS = (0, 1, 2, 4, 8, 16)
# Shares of the study's own step.
STEPS = (1.0, 0.5, 0.25, 0.125, 0.0625)
SEEDS = 60
# Seconds: a line there and back, a tick without it, and the learner's own part of a tick.
LINE, TICK, LEARNER = 0.05, 0.002, 0.0002
# network.in_flight: one at a time, what it is by default, and the most.
AHEAD = (1, 16, 64)


class Run(NamedTuple):
    """What is the same for all delays."""

    algorithm: Asynchronous
    slots: Indices
    frequency: Matrix | None
    gradients: GradientFunction
    scales: Matrix

    def noise(self) -> NoiseFunction:
        """The same noise at every call."""
        rng = np.random.default_rng(2)
        return laplace_noise(self.scales, num_features=self.algorithm.num_features, rng=rng)


def in_flight(run: Run, delay: int, rule: Rule, *, share: float = 1.0) -> Matrix:
    """The results of all seeds with answers that come this many ticks later, shape (R, p).

    Args:
      run: Ticks, noise and owners.
      delay: The d ticks.
      rule: Whether the central model moves when an owner is asked, or when it has answered.
      share: Share of the study's step.
    """
    algorithm, slots, noise = run.algorithm, run.slots, run.noise()
    (T, R), N = slots.shape, algorithm.num_copies
    each, box = np.arange(R), algorithm.theta_max
    alpha, central = share * algorithm.alpha, share * algorithm.central_step
    sigma = algorithm.regulariser.strong_convexity
    factors = np.broadcast_to(slot_weights(algorithm, run.frequency), (N, R))
    start = np.zeros(algorithm.num_features) if algorithm.start is None else algorithm.start
    theta_L, copies = np.tile(start, (R, 1)), np.tile(start, (N, R, 1))
    total = np.zeros_like(theta_L)
    waiting: deque[tuple[Indices, Matrix, Matrix]] = deque()
    for k in range(T + delay):
        if k < T:
            theta_bar = 0.5 * (theta_L + copies[slots[k], each])
            response = run.gradients(slots[k], theta_bar) + noise(slots[k])
            waiting.append((slots[k], theta_bar, response))
            if rule == "asked":
                theta_L = np.clip(theta_bar - central * sigma * theta_bar, -box, box)
        if k >= delay:
            slot, theta_bar, response = waiting.popleft()
            if rule == "answered":
                theta_bar = 0.5 * (theta_L + copies[slot, each])
                theta_L = np.clip(theta_bar - central * sigma * theta_bar, -box, box)
            moved = sigma * theta_bar / (2 * N) + factors[slot, each][:, None] * response
            copies[slot, each] = np.clip(theta_bar - alpha * moved, -box, box)
            if k - delay >= algorithm.tail_start:
                total += theta_L
    return total / (T - algorithm.tail_start) if algorithm.tail_average else theta_L


def study(num_owners: int, *overrides: str) -> tuple[Run, World, int]:
    """The hospitals' records in the hands of this many owners, as the study would run."""
    made = Hospitals.of(*overrides)
    settings, shards, decision = made.settings, made.shards, made.decision
    if num_owners != len(shards):
        whole = union(shards)
        order = np.random.default_rng(0).permutation(len(whole))
        shards = [
            Records(features=whole.features[rows], targets=whole.targets[rows])
            for rows in np.array_split(order, num_owners)
        ]
        names = [f"owner-{i}" for i in range(num_owners)]
        owners = tuple(OwnerEntry(name=name) for name in names)
        settings = settings.model_copy(update={"owners": owners})
        counts = [len(shard) for shard in shards]
        decision = decide_quietly(settings, made.public, num_records=counts, seed=1)
    proposal = propose(settings, made.public.feature_map, decision, seed=1)
    algorithm = proposal.algorithm
    assert isinstance(algorithm, Asynchronous)  # noqa: S101 (the example says so)
    rng = np.random.default_rng(1)
    schedule = draw_schedule(
        proposal.clock_rates,
        horizon=algorithm.horizon,
        replicates=SEEDS,
        split=proposal.split,
        asks_everyone=proposal.asks_everyone,
        rng=rng,
    )
    frequency = scheduled_frequency(schedule.promised) if algorithm.counted else None
    world = World.of(shards, made.public.problem(settings))
    run = Run(
        algorithm,
        schedule.slots,
        frequency,
        world.gradients(proposal.clip),
        proposal.unit_scales[:, None] * schedule.promised,
    )
    return run, world, algorithm.horizon


def check(run: Run) -> None:
    """With nothing in flight both rules are the algorithm that copriv runs."""
    expected = run_replicates(
        run.algorithm,
        run.slots,
        gradients=run.gradients,
        noise=run.noise(),
        frequency=run.frequency,
    ).central
    for rule in RULES:
        np.testing.assert_allclose(in_flight(run, 0, rule), expected, atol=1e-10)


def cells(run: Run, world: World, rule: Rule, delay: int) -> tuple[float, float, float]:
    """Mean relative fitness at the study's step and at the best one, and that one's share."""
    found = {
        share: float(_psi(world, in_flight(run, delay, rule, share=share)).mean())
        for share in STEPS
    }
    best = min(found, key=lambda share: found[share])
    return found[1.0], found[best], best


def _psi(world: World, models: Matrix) -> Vector:
    return world.evaluation.relative_fitness(models)


def ahead(owners: Indices, most: int, *, asked_for: float = LINE + TICK) -> float:
    """Seconds of these ticks, each asked as soon as its question is known.

    That is when its owner's answer before is taken, and that of the tick ``most`` before it.
    Answers are taken in the order of the ticks.
    """
    taken: list[float] = []
    asked, last = 0.0, dict[int, int]()
    for k, owner in enumerate(owners.tolist()):
        known = [taken[at] for at in (last.get(owner, -1), k - most) if at >= 0]
        asked = max([asked, *known])
        taken.append(max([asked + asked_for, *taken[-1:]]) + LEARNER)
        last[owner] = k
    return taken[-1]


def asked_ahead() -> None:
    """Print how long studies take over a slow line as copriv asks: no equation is changed."""
    print(f"as copriv asks, over a line of {LINE * 1e3:.0f} ms")
    print("| N | T | " + " | ".join(f"in_flight = {most}" for most in AHEAD) + " |")
    print("|---" * (len(AHEAD) + 2) + "|")
    for num_owners in (3, 10, 30, 300, 10_000, 100_000):
        T = max(1_000, 2 * num_owners)
        owners = np.random.default_rng(0).integers(num_owners, size=T)
        told = " | ".join(f"{ahead(owners, most):,.3g} s" for most in AHEAD)
        print(f"| {num_owners:,} | {T:,} | {told} |")


def on_paper() -> None:
    """Print how long studies take over a slow line, by the model of docs/performance.md."""
    print(f"on paper: a line of {LINE * 1e3:.0f} ms, T = the larger of 1,000 and 2 N")
    print("| N | T | " + " | ".join(f"d = {delay}" for delay in DELAYS) + " | each asked once |")
    print("|---" * (len(DELAYS) + 3) + "|")
    for num_owners in (3, 300, 10_000, 100_000):
        T = max(1_000, 2 * num_owners)
        took = [max(T * (LINE + TICK) / (delay + 1), T * LEARNER) for delay in DELAYS]
        took.append(max(LINE + TICK, num_owners * LEARNER))
        told = " | ".join(f"{seconds:,.3g} s" for seconds in took)
        print(f"| {num_owners:,} | {T:,} | {told} |")


def main() -> None:
    """Print a table for each study, and what it would save."""
    asked_ahead()
    on_paper()
    kinds: tuple[tuple[int, tuple[str, ...]], ...] = (
        (3, ()),
        (3, ("algorithm.horizon=500",)),
        (30, ("algorithm.horizon=500",)),
    )
    for num_owners, overrides in kinds:
        run, world, T = study(num_owners, *overrides)
        check(run)
        said = ", ".join(one.partition(".")[2] for one in overrides[1:]) or "epsilon=10"
        print(f"N = {num_owners}, T = {T}, {said}: mean relative fitness over {SEEDS} seeds")
        print(
            "| d | moves when answered | best step | share | moves when asked | best step | share |"
        )
        print("|---|---|---|---|---|---|---|")
        for delay in DELAYS:
            parts = [cells(run, world, rule, delay) for rule in RULES]
            told = [f"{at:.3g} | {best:.3g} | {share:g}" for at, best, share in parts]
            print(f"| {delay} | {' | '.join(told)} |", flush=True)


if __name__ == "__main__":
    main()
