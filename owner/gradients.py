"""Sums of records' gradients over a stretch of a shard: by numpy in blocks, or by compiled code."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import astuple
from importlib.util import find_spec
from typing import Any, cast

import numpy as np

from common.arrays import Vector
from common.losses import Loss
from common.terms import Records
from owner.sums import blocks, margins

# Divided by the least norm it is still a number.
LARGEST_CLIP = 1e200

# (first record, behind the last one) -> the sum of their gradients, shape (p,).
Part = Callable[[int, int], tuple[Vector]]


def in_blocks(
    records: Records, norms: Vector, theta: Vector, *, loss: Loss, clip: float | None
) -> Part:
    """The sums of the records' gradients, clipped each, by products of blocks.

    Args:
      records: The records.
      norms: The L1 norm of each record's features, shape (n,); without a clip they may be missing.
      theta: Where gradients are asked for, shape (p,).
      loss: The loss.
      clip: The L1 norm that gradients are scaled down to; None for no clipping.
    """
    # A slope that jumps at a kink must jump for each record by itself; and any slope does where
    # models are so large that a rounding moves margins of 0 far.
    margins_of = np.matmul if loss.counts_margins else margins

    def part(start: int, stop: int) -> tuple[Vector]:
        total = np.zeros(len(theta))
        for chosen, x in blocks(records.features, start, stop):
            slopes = loss.slopes(margins_of(x, theta), records.targets[chosen])
            if clip is not None:
                largest = largest_slopes(norms[chosen], clip)
                # As np.clip, without what it calls before it clips.
                slopes = np.minimum(np.maximum(slopes, -largest), largest)
            total += slopes @ x
        return (total,)

    return part


def by_compiled_code(
    records: Records,
    theta: Vector,
    *,
    loss: Loss,
    clip: float | None,
    kept_in: Callable[[], str | None] = lambda: None,
) -> Part | None:
    """The sums of :func:`in_blocks`, to 1e-12 the same, by :mod:`owner.fused`.

    Args:
      records: As of :func:`in_blocks`.
      theta: As of :func:`in_blocks`.
      loss: As of :func:`in_blocks`.
      clip: As of :func:`in_blocks`.
      kept_in: The folder that compiled code is kept in; None for nowhere.

    Returns:
      None where numba is not installed, the loss has no kernel, or another version of copriv has
      been installed since this one was started.
    """
    if find_spec("numba") is None or not _is_of_this_program():
        return None
    from owner import fused  # noqa: PLC0415 (a second and 120 MB)

    storage = records.features.dtype.name
    kernel = fused.kernel(loss.name, clipped=clip is not None, storage=storage, kept_in=kept_in)
    if kernel is None:
        return None
    x, y, at = records.features, records.targets, np.array(theta)
    parameter = float(next(iter(astuple(loss)), 0.0))
    most = math.inf if clip is None else min(clip, LARGEST_CLIP)
    return lambda start, stop: (kernel(x[start:stop], y[start:stop], at, parameter, most),)


def _is_of_this_program() -> bool:
    """Whether the compiled code is already loaded, or its file is the one of our start.

    An upgrade under a running owner puts another file there: its clip may not be the one that this
    program's noise is for.
    """
    return "owner.fused" in sys.modules or _fused_file() == _FUSED_FILE


def _fused_file() -> object:
    """What changes when the file is replaced; None where it is not there."""
    found = find_spec("owner.fused")
    try:
        # Its time and its size, as Python compares them with what it has compiled.
        return found and cast(Any, found.loader).path_stats(found.origin)
    except (AttributeError, OSError):
        return None


_FUSED_FILE = _fused_file()


def largest_slopes(norms: Vector, clip: float) -> Vector:
    """Slopes beyond these make a record's gradient longer than the clip, shape of norms.

    Args:
      norms: The L1 norms of features, at least ``LEAST_NORM``.
      clip: The longest gradient, L1 norm.

    >>> largest_slopes(np.array([2.0, 4.0]), 1.0)
    array([0.5 , 0.25])
    """
    largest: Vector = min(clip, LARGEST_CLIP) / norms
    return largest
