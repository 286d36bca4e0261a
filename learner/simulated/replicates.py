r"""Many runs of Algorithm 1 at once, vectorised over the runs.

Run r follows (5)-(7) of :mod:`learner.algorithms.asynchronous` with its own tick sequence, its own
noise and, if wanted, its own step constant; with the same ticks and noise it follows the same
trajectory up to rounding. What owners answer comes in as two functions of (slots, models), where a
*slot* is the index of a local copy: one per owner, or per fixed group of owners.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from common.arrays import Array, Flags, Indices, Matrix, Vector
from common.losses import Loss
from common.terms import Records
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import each_alone
from learner.algorithms.variants import inverse_frequency

GradientFunction = Callable[[Indices, Matrix], Matrix]
"""(slots (B,), models (R, p)) -> exact mean gradients, shape (R, p), with R/B runs at each slot."""
NoiseFunction = Callable[[Indices], Matrix]
"""slots (B,) -> the noise of one response each, shape (R, p), in gradient units."""

# Up to this many owners it is faster to ask all of them and keep one answer than to gather.
FEW_OWNERS = 12
# Margins held at once by record_gradients: 4 MB.
LARGEST_BLOCK = 500_000


@dataclass(frozen=True, kw_only=True, eq=False)
class ShardMoments:
    """Second moments of each owner's records: all that unclipped squared loss needs.

    Args:
      gram: X'X/n_i, shape (N, p, p).
      cross: X'y/n_i, shape (N, p).
    """

    gram: Array
    cross: Matrix

    @classmethod
    def of(cls, shards: Sequence[Records]) -> ShardMoments:
        """The moments of these shards, one owner each.

        >>> shard = Records(features=np.array([[1.0], [2.0]]), targets=np.array([1.0, 1.0]))
        >>> ShardMoments.of([shard]).gram, ShardMoments.of([shard]).cross
        (array([[[2.5]]]), array([[1.5]]))
        """
        return cls(
            gram=np.stack([s.features.T @ s.features / len(s) for s in shards]),
            cross=np.stack([s.targets @ s.features / len(s) for s in shards]),
        )

    def at(self, owners: Sequence[int]) -> ShardMoments:
        """The moments of these owners."""
        kept = list(owners)
        return ShardMoments(gram=self.gram[kept], cross=self.cross[kept])

    def pooled(self, shares: Vector) -> tuple[Matrix, Vector]:
        """The moments of all records, (p, p) and (p,), where owners have these shares of them."""
        return np.tensordot(shares, self.gram, axes=1), shares @ self.cross


@dataclass(frozen=True, kw_only=True, eq=False)
class Replicates:
    """What R runs came to.

    Args:
      central: The central model of each run after the last tick, shape (R, p).
      trace: The central models at the checkpoints, shape (number of checkpoints, R, p).
    """

    central: Matrix
    trace: Array


def moment_gradients(moments: ShardMoments) -> GradientFunction:
    r"""Query (3) for squared loss: :math:`2(X'X\theta - X'y)/n_i`.

    >>> moments = ShardMoments(gram=np.array([[[2.5]]]), cross=np.zeros((1, 1)))
    >>> moment_gradients(moments)(np.array([0]), np.array([[1.0]]))
    array([[5.]])
    """
    num_owners, p = moments.cross.shape
    cross, gram = 2.0 * moments.cross, 2.0 * moments.gram
    side_by_side = np.ascontiguousarray(gram.transpose(2, 0, 1).reshape(p, num_owners * p))

    def ask_all(slots: Indices, thetas: Matrix) -> Matrix:
        rows = np.arange(len(slots)) * num_owners + slots
        products = (thetas @ side_by_side).reshape(-1, p)
        return np.take(products, rows, axis=0) - np.take(cross, slots, axis=0)

    def gather(slots: Indices, thetas: Matrix) -> Matrix:
        return np.einsum("rij,rj->ri", gram[slots], thetas) - cross[slots]

    return ask_all if num_owners <= FEW_OWNERS else gather


def record_gradients(
    shards: Sequence[Records], *, loss: Loss, clip: float | None = None
) -> GradientFunction:
    """Query (3) for any loss, each record's gradient scaled down to L1 norm ``clip``.

    Args:
      shards: Each owner's records.
      loss: The loss.
      clip: The L1 norm, in gradient units; None for no clipping.

    >>> shard = Records(features=np.array([[1.0], [2.0]]), targets=np.zeros(2))
    >>> from common.losses import Squared
    >>> record_gradients([shard], loss=Squared(), clip=2.0)(np.array([0]), np.ones((1, 1)))
    array([[2.]])
    """
    answer = _mean_gradients(shards, loss) if clip is None else _clipped(shards, loss, clip)

    def gradients(slots: Indices, thetas: Matrix) -> Matrix:
        first = slots[0]
        if (slots == first).all() and len(slots) * len(shards[first]) < LARGEST_BLOCK:
            return answer(first, thetas)
        answers = np.empty_like(thetas)
        for owner in np.unique(slots):
            runs = np.nonzero(slots == owner)[0]
            for block in np.array_split(runs, 1 + len(runs) * len(shards[owner]) // LARGEST_BLOCK):
                answers[block] = answer(owner, thetas[block])
        return answers

    return gradients


_Answer = Callable[[int, Matrix], Matrix]
"""(owner, models (R, p)) -> mean gradients, shape (R, p)."""


def _mean_gradients(shards: Sequence[Records], loss: Loss) -> _Answer:
    """Mean gradients as they are."""

    def answer(owner: int, thetas: Matrix) -> Matrix:
        shard = shards[owner]
        mean: Matrix = loss.slopes(thetas @ shard.features.T, shard.targets) @ shard.features
        mean /= len(shard)
        return mean

    return answer


def _clipped(shards: Sequence[Records], loss: Loss, clip: float) -> _Answer:
    r"""Mean gradients, each record's scaled down to L1 norm C.

    With :math:`u = x/\|x\|_1` a record's share for the slope s is
    :math:`C u \cdot \mathrm{clip}(s\|x\|_1/C, -1, 1)`: one clip between numbers that are the same
    for all records and runs. For squared loss :math:`s\|x\|_1 = 2\|x\|_1(x^\top\theta - y)` is
    one matrix product.
    """
    lengths = [np.abs(shard.features).sum(axis=1) for shard in shards]
    directions = [
        shard.features / np.where(length > 0, length, 1.0)[:, None] / len(shard)
        for shard, length in zip(shards, lengths, strict=True)
    ]
    affine = [
        np.vstack([2.0 * length * shard.features.T, -2.0 * length * shard.targets])
        for shard, length in zip(shards, lengths, strict=True)
        if loss.is_quadratic
    ]

    def answer(owner: int, thetas: Matrix) -> Matrix:
        shard = shards[owner]
        if affine:
            extended = np.column_stack([thetas, np.ones(len(thetas))])
            shares = (extended / clip) @ affine[owner]
        else:
            shares = loss.slopes(thetas @ shard.features.T, shard.targets)
            shares *= lengths[owner]
            shares /= clip
        np.clip(shares, -1.0, 1.0, out=shares)
        mean: Matrix = shares @ directions[owner]
        mean *= clip
        return mean

    return answer


def laplace_noise(
    scales: Vector, *, num_features: int, each: int = 1, rng: np.random.Generator
) -> NoiseFunction:
    """Laplace noise of each owner's scale on each coordinate: for forecasts, it protects nobody.

    Args:
      scales: The scale b of each owner's noise, in gradient units, shape (N,), or of each owner
        in each sequence of ticks, shape (N, B).
      num_features: The number p of coordinates.
      each: Runs on each sequence.
      rng: Where the randomness comes from.

    >>> noise = laplace_noise(np.array([0.0, 1.0]), num_features=2, rng=np.random.default_rng(1))
    >>> np.abs(noise(np.array([0, 1]))) > 0
    array([[False, False],
           [ True,  True]])
    """

    def draw(slots: Indices) -> Matrix:
        # The difference of two exponentials is Laplace, at half the cost of rng.laplace.
        pair = rng.standard_exponential((2, len(slots), each * num_features))
        noise: Matrix = np.subtract(pair[0], pair[1], out=pair[0])
        own = scales[slots] if scales.ndim == 1 else scales[slots, np.arange(len(slots))]
        noise *= own[:, None]
        return noise.reshape(-1, num_features)

    return draw


def run_replicates(
    algorithm: Asynchronous,
    slots: Indices,
    *,
    gradients: GradientFunction,
    noise: NoiseFunction | None = None,
    each: int = 1,
    rho: Vector | None = None,
    frequency: Matrix | None = None,
    checkpoints: Sequence[int] = (),
) -> Replicates:
    """R runs of Algorithm 1 side by side, on B sequences of ticks, as many of them on each.

    Args:
      algorithm: What each run follows.
      slots: Which copy ticks, shape (T, B); :func:`~learner.algorithms.clocks.draw_slots` draws
        it. At a -1 nobody was asked, and nothing changes in the runs of this sequence.
      gradients: The owners' exact mean gradients; for groups, those of the larger owners.
      noise: The noise of their responses; None for none.
      each: Runs on each sequence, next to each other: R is B times that.
      rho: A step constant for each run, shape (R,), instead of the algorithm's.
      frequency: Remark 4's frequencies in each sequence, shape (number of copies, B), instead of
        the algorithm's.
      checkpoints: The k, counted from 1, whose central models are kept.

    >>> from common.losses import Regulariser
    >>> one = Asynchronous(weights=np.ones(1), num_features=1, theta_max=1.0,
    ...     regulariser=Regulariser(coefficient=0.5), rho=2.0, horizon=2)
    >>> moments = ShardMoments(gram=np.ones((1, 1, 1)), cross=np.ones((1, 1)))
    >>> run_replicates(one, np.zeros((2, 1), dtype=np.intp),
    ...     gradients=moment_gradients(moments)).central
    array([[0.5]])
    """
    runs = _Runs(algorithm, slots.shape[1], each, rho, frequency)
    kept = {k: row for row, k in enumerate(checkpoints)}
    trace = np.empty((len(kept), slots.shape[1] * each, algorithm.num_features))
    lacks_some = np.min(slots, axis=1, initial=0) < 0
    for k, (ticking, lacks) in enumerate(zip(slots, lacks_some.tolist(), strict=True), start=1):
        if lacks:
            runs.hold(ticking < 0)
            ticking = np.maximum(ticking, 0)  # noqa: PLW2901 (asked, then put back)
        theta_bar = runs.query_points(ticking)
        responses = gradients(ticking, theta_bar)
        if noise is not None:
            responses += noise(ticking)
        runs.apply(responses)
        if k in kept:
            trace[kept[k]] = runs.central_models()
    return Replicates(central=runs.central_models(), trace=trace)


class _Runs:
    """The models of R runs, those of a sequence in one row, with the buffers of one tick."""

    def __init__(
        self,
        algorithm: Asynchronous,
        sequences: int,
        each: int,
        rho: Vector | None,
        frequency: Matrix | None,
    ) -> None:
        N, p, R = algorithm.num_copies, algorithm.num_features, sequences * each
        relative = np.ones(R) if rho is None else rho / algorithm.rho
        grad_g = algorithm.regulariser.strong_convexity  # times theta_bar
        self._box = algorithm.theta_max
        self._tail_start = algorithm.tail_start if algorithm.tail_average else None
        # (5) and (7) as factors of theta_bar, one for each coordinate: whole rows are multiplied
        # several times as fast; and of the response, for each owner.
        keep_copy = 1.0 - relative * algorithm.alpha * grad_g / (2 * N)
        keep_central = 1.0 - relative * algorithm.central_step * grad_g
        self._keep = np.repeat([keep_copy, keep_central], p, axis=1).reshape(2, sequences, -1)
        pull = (relative * algorithm.alpha).reshape(sequences, each)
        pull = -slot_weights(algorithm, frequency)[:, :, None] * pull
        self._pull = pull.reshape(N * sequences, each, 1)
        start = np.zeros(p) if algorithm.start is None else algorithm.start
        self._copies = np.tile(start, (N * sequences, each))  # row slot * B + sequence
        # The copies that ticked and the central models: both are computed in the same steps.
        self._moved = np.tile(start, (2, sequences, each))
        self._theta_L = self._moved[1]
        self._sequence = np.arange(sequences)
        self._row = self._sequence
        self._theta_bar = np.empty((sequences, each * p))
        self._by_run = (R, p)
        self._tail_sum = np.zeros((sequences, each * p))
        self._k = np.zeros(sequences, dtype=np.intp)
        self._most = 0  # no run has come farther than this
        self._held: Flags | None = None
        self._was_held = False

    def hold(self, held: Flags) -> None:
        """At the next tick the runs of these sequences stay as they are."""
        self._held = held
        self._was_held = True

    def query_points(self, slots: Indices) -> Matrix:
        """Equation (6) for all runs, shape (R, p); valid until the next call."""
        self._row = slots * len(self._sequence) + self._sequence
        theta_bar = self._theta_bar
        self._copies.take(self._row, axis=0, out=theta_bar, mode="clip")
        theta_bar += self._theta_L
        theta_bar *= 0.5
        return theta_bar.reshape(self._by_run)

    def apply(self, responses: Matrix) -> None:
        """Equations (5) and (7) for all runs; ``responses`` is used up as a buffer."""
        held, moved = self._held, self._moved
        if held is not None:
            rows, before = self._row[held], self._theta_L[held].copy()
            copies = self._copies[rows]
        pull = self._pull.take(self._row, axis=0)
        pulled = responses.reshape(*pull.shape[:2], -1)
        pulled *= pull
        np.multiply(self._theta_bar, self._keep, out=moved)
        moved[0] += pulled.reshape(moved.shape[1:])
        # Projection onto the box; twice as fast as numpy's clip, with the same bits.
        np.maximum(moved, -self._box, out=moved)
        np.minimum(moved, self._box, out=moved)
        self._copies[self._row] = moved[0]
        self._most += 1
        self._k += 1
        if held is not None:
            self._theta_L[held], self._copies[rows] = before, copies
            self._k[held] -= 1
            self._held = None
        self._add_to_tail(held)

    def _add_to_tail(self, held: Flags | None) -> None:
        """The tail's sum, of runs that have come so far and were not held."""
        if self._tail_start is None or self._most <= self._tail_start:
            return
        if not self._was_held:  # all have come as far
            self._tail_sum += self._theta_L
            return
        counts = self._k > self._tail_start
        counts = counts if held is None else counts & ~held
        self._tail_sum += self._theta_L * counts[:, None]

    def central_models(self) -> Matrix:
        """A copy of the central models, or of their tail averages, shape (R, p)."""
        models: Matrix = self._theta_L.copy()
        if self._tail_start is not None:
            in_tail = self._k > self._tail_start
            count = np.maximum(self._k - self._tail_start, 1)[:, None]
            models = np.where(in_tail[:, None], self._tail_sum / count, models)
        return models.reshape(self._by_run)


def slot_weights(algorithm: Asynchronous, frequency: Matrix | None) -> Matrix:
    """The factor of each slot's mean gradient in (5) beside alpha, shape (N, 1) or (N, R).

    It is the slot's share of the records times Remark 4's factor.

    Args:
      algorithm: What runs.
      frequency: Remark 4's frequencies in each run, shape (N, R); None for the algorithm's own.
    """
    groups = algorithm.groups or each_alone(len(algorithm.weights))
    shares = np.array([algorithm.weights[list(group)].sum() for group in groups])[:, None]
    if frequency is None:
        factors = algorithm.inverse_frequency[:, None]
    else:
        factors = inverse_frequency(frequency)
    return shares * factors
