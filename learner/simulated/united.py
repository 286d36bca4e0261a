"""All owners of a world as one: what they answer together of gradient and curvature."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from common.arrays import Array, Matrix, Vector
from common.memory import reuse_memory
from common.moments import pack_moments
from common.terms import Records
from learner.algorithms.newton import NewtonStep, Round
from learner.simulated.world import Mixture, World

# A record's gradient is no longer than a clip if the record is no longer than this.
SHORTEST = 1e-300
# Models of this many coordinates take so long to solve that processors share them; each of these
# takes memory of its own.
WIDE, MOST_PROCESSORS = 24, 8


@dataclass(frozen=True, eq=False)
class United:
    """The union of a world's owners.

    What it answers leads to the best model of the records that it is judged on: where they are
    drawn to be as one, these answer themselves.

    Args:
      world: The world.
    """

    world: World

    def curvatures(self, thetas: Array, clip: float | None) -> Array:
        """Mean curvature of the union at one model or at many, shape (p, p) or (R, p, p).

        Where public records play the owners, that at the mean of the models, of all alike.
        """
        if thetas.ndim > 1 and self.world.mixture is None:
            return np.stack([self._curvature(theta, clip) for theta in thetas])
        return self._curvature(thetas if thetas.ndim == 1 else thetas.mean(axis=0), clip)

    def _curvature(self, theta: Vector, clip: float | None) -> Matrix:
        """Mean curvature of the union at a model, under a clip, without g, shape (p, p)."""
        world, total = self.world, np.zeros((theta.size, theta.size))
        if (whole := self._whole) is not None:
            parts = [(whole.public.records, whole.together(world.weights))]
        else:
            parts = [(own, np.full(len(own), part / len(own))) for own, part in self._answering]
        for records, shares in parts:
            each = shares * world.problem.curvatures(theta, records, clip)
            total += (records.features * each[:, None]).T @ records.features
        return total

    def gradients(self, thetas: Array, clip: float | None) -> Array:
        """Exact mean gradient of the union at one model or at many, without g's, (p,) or (R, p).

        Where public records play owners that have moments, a clipped one is that of their whole
        distribution to first order around the public model.
        """
        moments = self.world.moments if clip is None else None
        is_whole = moments is not None or self._whole is None
        lacking: Vector = self.world.weights @ self.world.lacking(clip, is_whole=is_whole)
        if moments is not None:
            gram, cross = moments.pooled(self.world.weights)
            return 2.0 * (thetas @ gram - cross) + lacking
        x, y, shares, lengths = self._rows
        largest = None if clip is None else clip / lengths
        means = []
        for theta in np.atleast_2d(thetas):
            slopes = self.world.problem.loss.slopes(x @ theta, y)
            kept = slopes if largest is None else np.clip(slopes, -largest, largest)
            means.append((shares * kept) @ x + lacking)
        mean = np.stack(means)
        if self._whole is not None:
            anchor = self._whole.public.theta_optimal
            mean += (np.atleast_2d(thetas) - anchor) @ self._bent(anchor, clip)
        return mean[0] if thetas.ndim == 1 else mean

    def _bent(self, theta: Vector, clip: float | None) -> Matrix:
        """What the curvature of the records that answer lacks at the public model, (p, p)."""
        if clip not in self._bends:
            x, y, shares, _ = self._rows
            each = shares * self.world.problem.curvatures(
                theta, Records(features=x, targets=y), clip
            )
            answered: Matrix = (x * each[:, None]).T @ x
            self._bends[clip] = self._curvature(theta, clip) - answered
        return self._bends[clip]

    @cached_property
    def _bends(self) -> dict[float | None, Matrix]:
        """What was computed of them."""
        return {}

    @cached_property
    def _rows(self) -> tuple[Matrix, Vector, Vector, Vector]:
        """Features, targets, shares and L1 norms of all records that answer."""
        x = np.concatenate([own.features for own, _ in self._answering])
        y = np.concatenate([own.targets for own, _ in self._answering])
        shares = [np.full(len(own), part / len(own)) for own, part in self._answering]
        lengths = np.maximum(np.abs(x).sum(axis=1), SHORTEST)
        return x, y, np.concatenate(shares), lengths

    @cached_property
    def _answering(self) -> list[tuple[Records, float]]:
        """Records that answer, and what part of all each of them is."""
        if self.world.united is not None:
            return [(self.world.united, 1.0)]
        return list(zip(self.world.shards, self.world.weights.tolist(), strict=True))

    @property
    def _whole(self) -> Mixture | None:
        """What the records that answer are a part of; None where they are all there is."""
        return self.world.mixture if self.world.united is None else None


def newton_steps(
    algorithm: NewtonStep,
    gradients: Callable[[Matrix], Matrix],
    curvatures: Callable[[Matrix], Array],
    draws: Iterable[Matrix],
    variance: float,
) -> Matrix:
    """The models of many runs of Newton's steps, shape (R, p).

    Args:
      algorithm: What each run follows.
      gradients: The owners' mean gradient at the public model, shape (p,), or at each run's.
      curvatures: The same of their curvature, or one for all runs.
      draws: The noise of each round's mean answer, each of shape (R, length).
      variance: That of each of its coordinates.
    """
    reuse_memory()
    theta, rounds = algorithm.around.theta, []
    for noise in draws:
        curvature = algorithm.curvature_scale * curvatures(theta)
        gradient = gradients(theta)
        shape = (*gradient.shape[:-1], *curvature.shape[-2:])
        exact = pack_moments(np.broadcast_to(curvature, shape), gradient)
        rounds.append(Round(theta=theta, total=exact + noise, variance=variance))
        theta = _solved(algorithm, rounds)
    return theta


def own_processors() -> int:
    """The processors that this process may share its work among.

    Where many studies are computed at once, each has a process, and every processor is at work.
    """
    is_worker = multiprocessing.parent_process() is not None
    return 1 if is_worker else len(os.sched_getaffinity(0))


def _solved(algorithm: NewtonStep, rounds: Sequence[Round]) -> Matrix:
    """The models of all runs, shape (R, p), those of wide studies by all processors.

    A run has the same bits whichever others are solved beside it.
    """
    runs, processors = len(rounds[0].total), min(own_processors(), MOST_PROCESSORS)
    if algorithm.num_features < WIDE or processors == 1:
        return algorithm.solve(rounds)
    shares = np.array_split(np.arange(runs), min(runs, processors))
    parts = [[_some(each, slice(own[0], own[-1] + 1)) for each in rounds] for own in shares]
    with ThreadPoolExecutor(len(parts)) as threads:
        return np.concatenate(list(threads.map(algorithm.solve, parts)))


def _some(each: Round, runs: slice) -> Round:
    """A round of some of the runs only."""
    theta = each.theta if each.theta.ndim == 1 else each.theta[runs]
    return replace(each, theta=theta, total=each.total[runs])
