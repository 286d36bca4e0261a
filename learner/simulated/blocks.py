"""Runs in blocks: those of a block are of one world and ask the same owner at each tick.

A tick is then a few products of stacked matrices for all blocks, whatever the number of worlds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from common.arrays import Array, Indices, Matrix, Vector
from learner.algorithms.clocks import Groups
from learner.simulated.larger_owners import asked_together
from learner.simulated.replicates import GradientFunction
from learner.simulated.world import World

# Matrices of this many numbers in all are brought together for one product; to copy more takes
# longer than a product for each.
GATHERED = 2**16

_Answer = Callable[[Indices, Array], Array]
"""(rows (B,), models (B, R, p)) -> mean gradients of the rows' owners, shape (B, R, p)."""


def block_gradients(
    worlds: Sequence[World],
    *,
    blocks: int,
    clip: float | Vector | None,
    groups: Groups = (),
) -> GradientFunction:
    """The owners' exact mean gradients in runs of blocks, consecutive ones for each world.

    Args:
      worlds: The worlds, in each of which owners answer from equally many records.
      blocks: Blocks of each world.
      clip: The L1 norm that gradients are scaled down to: of all runs, or of each run of a block,
        shape (R,); None for the domain's bound.
      groups: Owners that are asked at the same time.
    """
    shares = worlds[0].weights
    # One row for each owner of each world, and where those of a block's world begin.
    first_row = np.repeat(np.arange(len(worlds)) * len(shares), blocks)
    asks_moments = worlds[0].moments is not None and clip is None
    answer = _moments(worlds) if asks_moments else _records(worlds, clip)
    lacking = _lacking(worlds, clip, asks_moments=asks_moments)

    def asked(owners: Indices, thetas: Array) -> Array:
        rows = first_row + owners
        answers = answer(rows, thetas)
        if lacking is not None:
            answers += lacking.take(rows, axis=0)
        return answers

    ask = asked_together(asked, groups, shares) if groups else asked

    def gradients(slots: Indices, thetas: Matrix) -> Matrix:
        stacked = thetas.reshape(len(first_row), -1, thetas.shape[1])
        first = slots[:: len(slots) // len(first_row)]
        return ask(first, stacked).reshape(thetas.shape)

    return gradients


def _lacking(
    worlds: Sequence[World], clip: float | Vector | None, *, asks_moments: bool
) -> Array | None:
    """What owners' answers lack in each world, shape (W N, R or 1, p); None for nothing."""
    clips = [None] if asks_moments or clip is None else np.atleast_1d(clip).tolist()
    found = np.concatenate(
        [
            np.stack([world.lacking(one, is_whole=asks_moments) for one in clips], axis=1)
            for world in worlds
        ]
    )
    return found if found.any() else None


def _moments(worlds: Sequence[World]) -> _Answer:
    """2 (X'X theta - X'y)/n_i."""
    moments = [world.moments for world in worlds if world.moments is not None]
    gram = 2.0 * np.concatenate([each.gram for each in moments])
    cross = 2.0 * np.concatenate([each.cross for each in moments])

    def answer(rows: Indices, thetas: Array) -> Array:
        asked: Array = thetas @ gram.take(rows, axis=0)
        asked -= cross.take(rows, axis=0)[:, None, :]
        return asked

    return answer


def _records(worlds: Sequence[World], clip: float | Vector | None) -> _Answer:
    r"""The mean over records of their gradients, each scaled down to L1 norm C.

    With :math:`u = x/\|x\|_1` a record's share for the slope s is
    :math:`C u \cdot \mathrm{clip}(s\|x\|_1/C, -1, 1)`.
    """
    loss = worlds[0].problem.loss
    x = np.stack([own.features for world in worlds for own in world.shards])
    y = np.stack([own.targets for world in worlds for own in world.shards])
    lengths = np.abs(x).sum(axis=2)
    scaled = x / np.where(lengths > 0, lengths, 1.0)[..., None] / x.shape[1]
    turned = np.ascontiguousarray(x.swapaxes(1, 2))
    # One limit for each record, as products of whole rows are faster than with one number for all.
    limits = None if clip is None else np.repeat(np.atleast_1d(clip)[:, None], x.shape[1], axis=1)
    lowest = 0.0 if limits is None else -limits
    if loss.is_quadratic:
        # Slopes times lengths are one product of the models and a constant 1.
        affine = np.concatenate([turned, -y[..., None, :]], axis=1) * (2.0 * lengths[..., None, :])

    # All ticks use the same memory: to get it anew takes as long as what is computed in it.
    memory, extended = np.empty(0), np.empty(0)

    def slopes_of(rows: Indices, thetas: Array) -> Array:
        nonlocal memory, extended
        shape = (*thetas.shape[:2], x.shape[1])
        if memory.shape != shape:
            memory, extended = np.empty(shape), np.ones((*thetas.shape[:2], x.shape[2] + 1))
        if loss.is_quadratic:
            extended[..., :-1] = thetas
            return _products(extended, affine, rows, out=memory)
        margins = _products(thetas, turned, rows, out=memory)
        slopes = loss.slopes(margins, y.take(rows, axis=0)[:, None, :])
        slopes *= lengths.take(rows, axis=0)[:, None, :]
        return slopes

    def answer(rows: Indices, thetas: Array) -> Array:
        slopes = slopes_of(rows, thetas)
        if limits is not None:
            # Four times as fast as numpy's clip, with the same bits.
            np.minimum(np.maximum(slopes, lowest, out=slopes), limits, out=slopes)
        return _products(slopes, scaled, rows, out=np.empty(thetas.shape))

    return answer


def _products(models: Array, matrices: Array, rows: Indices, *, out: Array) -> Array:
    """Each block's models times the matrix of its row, with the same bits either way."""
    if matrices[0].size * len(rows) <= GATHERED:
        return np.matmul(models, matrices.take(rows, axis=0), out=out)
    for block, row in enumerate(rows.tolist()):
        np.matmul(models[block], matrices[row], out=out[block])
    return out
