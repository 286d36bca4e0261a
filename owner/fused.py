r"""The mean gradient in one pass over the records, compiled by numba for this machine.

.. math:: \sum s(\theta^\top x, y)\,x, \qquad |s|\,\|x\|_1 \le C

Each record is read once from memory: its margin, its norm and its slope are computed, and its
gradient is added while its features are still in the first cache. One kernel serves all losses;
a loss brings its slope for one record, entered in :data:`SLOPES`. A loss that has none is computed
by numpy in blocks (:mod:`owner.core`), to 1e-12 the same.

**Time.** Nothing here branches on a record: selections are made by instructions without a jump, and
every record of a shard takes the same steps.

Loading it takes a second and 120 MB (``benchmarks/gradient.py``), so nobody imports this module
unless a study gains (:func:`owner.core.is_worth_compiling`).
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np

from common.arrays import Vector
from common.errors import DoubtWarning
from owner.shards import LEAST_NORM


@contextmanager
def _without_yaml() -> Iterator[None]:
    """Import what shall find no yaml."""
    modules = cast(dict[str, Any], sys.modules)
    kept = {"yaml": modules["yaml"]} if "yaml" in modules else {}
    modules["yaml"] = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        del modules["yaml"]
        modules.update(kept)


# With yaml, numba would be set by a file in the folder where a command was typed, now and before it
# compiles: also which file of the user's it writes its notes to, and what it imports.
with _without_yaml():
    from numba import config, njit, types
    from numba.core import cgutils
    from numba.extending import intrinsic, register_jitable
config._config_fname = ""

# (features, targets, theta, the loss's parameter or 0, clip or infinity) -> sum of gradients.
Kernel = Callable[[np.ndarray, Vector, Vector, float, float], Vector]

# What is read next is asked for this many bytes ahead: where records are used twice, the processor
# alone does not see that they come one after the other.
AHEAD_BYTES = 2**15
LINE_BYTES = 64
# Sums of products may be added in lanes; slopes are computed as they stand.
_LANES = {"reassoc", "contract", "nsz"}
_AS_WRITTEN = {"contract", "nsz"}

# ln 2 in two parts, of which whole multiples of the first are exact.
_LN2 = (6.93147180369123816490e-01, 1.90821492927058770002e-10)
# Beyond this a slope is 0 or 1 to 1e-130; nothing under it is so small that it computes slowly.
_LARGEST_EXPONENT = 300.0


def hinge(z: float, y: float, parameter: float) -> float:
    """Slope of :class:`common.losses.Hinge`."""
    return -y if y * z < 1.0 else 0.0


def huber(z: float, y: float, delta: float) -> float:
    """Slope of :class:`common.losses.Huber`."""
    return min(max(z - y, -delta), delta)


def squared(z: float, y: float, parameter: float) -> float:
    """Slope of :class:`common.losses.Squared`."""
    return 2.0 * (z - y)


def logistic(z: float, y: float, parameter: float) -> float:
    r"""Slope of :class:`common.losses.Logistic`, :math:`-y/(1 + e^{yz})`.

    With :math:`yz = k \ln 2 + r` and the series of :math:`e^r`, whose remainder is below 1e-14 of
    it: the library's own exponential branches on its argument, and takes as long as the whole
    record. So one record's slope may pass its bound by 40 unit roundoffs, which a mean over the
    fourteen or more records of any shard that is compiled for makes fewer than
    :mod:`common.privacy` counts.
    """
    t = min(max(y * z, -_LARGEST_EXPONENT), _LARGEST_EXPONENT)
    k = np.floor(t * 1.4426950408889634 + 0.5)
    r = (t - k * _LN2[0]) - k * _LN2[1]
    r2 = r * r
    r4 = r2 * r2
    a = (1.0 + r) + r2 * (0.5 + r * (1.0 / 6.0))
    b = (1.0 / 24.0 + r * (1.0 / 120.0)) + r2 * (1.0 / 720.0 + r * (1.0 / 5040.0))
    c = (1.0 / 40320.0 + r * (1.0 / 362880.0)) + r2 * (1.0 / 3628800.0 + r * (1.0 / 39916800.0))
    two_to_k = np.int64((np.int64(k) + 1023) << 52).view(np.float64)
    return -y / (1.0 + (a + r4 * b + (r4 * r4) * c) * two_to_k)


SLOPES: dict[str, Callable[[float, float, float], float]] = {
    slope.__name__: register_jitable(slope) for slope in (hinge, huber, logistic, squared)
}
"""(margin, target, parameter) -> slope, for the losses that are compiled, by their names."""


@intrinsic
def _ask_ahead(context: Any, features: Any, row: Any, column: Any) -> Any:
    """Ask for a cache line to come into the second cache; a place behind the end does no harm."""
    del context

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        from llvmlite import ir  # noqa: PLC0415 (a part of numba)

        array = context.make_array(signature.args[0])(context, builder, args[0])
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        width = cgutils.unpack_tuple(builder, array.strides, 2)
        offset = builder.add(builder.mul(args[1], width[0]), builder.mul(args[2], width[1]))
        place = builder.gep(builder.bitcast(array.data, byte), [offset])
        shape = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        asked = cgutils.get_or_insert_function(builder.module, shape, "llvm.prefetch.p0i8")
        # To be read, kept in the second cache, data.
        builder.call(asked, [place, word(0), word(2), word(1)])
        return context.get_dummy_value()

    return types.void(features, types.intp, types.intp), codegen


@njit(nogil=True)
def _ask_for_cells(x: Any, row: Any, start: Any, end: Any) -> None:
    """Ask for the cells from start to end, counted from a row's first; they may pass its end."""
    for j in range(start, end, LINE_BYTES // x.itemsize):
        _ask_ahead(x, row, j)


@njit(nogil=True, fastmath=_LANES)
def _margin_and_norm(x: Any, theta: Any) -> tuple[float, float]:
    """A record's margin and the L1 norm of its features."""
    z, norm = 0.0, 0.0
    for j in range(theta.size):
        z += x[j] * theta[j]
        norm += abs(x[j])
    return z, norm


@njit(nogil=True, fastmath=_AS_WRITTEN)
def _add(g: Any, s: float, x: Any) -> None:
    """Add one record's gradient."""
    for j in range(g.size):
        g[j] += s * x[j]


def _compiled(
    slope: Callable[[float, float, float], float], *, clipped: bool, named: str, cached: bool
) -> Kernel:
    """The kernel of a loss; it is compiled when it is called first, or read where it is kept.

    Without a clip no norm is computed: the processor has the time for it, but little more.
    """

    def total(x: Any, y: Any, theta: Any, parameter: float, clip: float) -> Any:
        n, p = x.shape
        g = np.zeros(p)
        ahead = max(2, AHEAD_BYTES // (p * x.itemsize))
        cells = LINE_BYTES // x.itemsize
        third = 2 * p // (3 * cells) * cells
        s0, s1 = 0.0, 0.0
        before = 0
        # Two records a step, and their gradients are added a step later: by then their slopes are
        # there, and nothing waits for them. The next records are asked for in three parts: a
        # processor has only so many lines on their way, and waits where more are asked for at once.
        for i in range(0, n - 1, 2):
            _ask_for_cells(x, i + ahead, 0, third)
            z0, norm0 = _margin_and_norm(x[i], theta)
            _ask_for_cells(x, i + ahead, third, 2 * third)
            z1, norm1 = _margin_and_norm(x[i + 1], theta)
            _ask_for_cells(x, i + ahead, 2 * third, 2 * p)
            a, b = x[before], x[before + 1]
            for j in range(p):
                g[j] = (g[j] + s0 * a[j]) + s1 * b[j]
            s0 = slope(z0, y[i], parameter)
            s1 = slope(z1, y[i + 1], parameter)
            if clipped:
                # A division by 0 would raise a flag of the processor, which takes it long.
                most0, most1 = clip / max(norm0, LEAST_NORM), clip / max(norm1, LEAST_NORM)
                s0, s1 = min(max(s0, -most0), most0), min(max(s1, -most1), most1)
            before = i
        if n > 1:
            _add(g, s0, x[before])
            _add(g, s1, x[before + 1])
        if n % 2:
            z0, norm0 = _margin_and_norm(x[n - 1], theta)
            s0 = slope(z0, y[n - 1], parameter)
            if clipped:
                most0 = clip / max(norm0, LEAST_NORM)
                s0 = min(max(s0, -most0), most0)
            _add(g, s0, x[n - 1])
        return g

    # Under one name kernels that processes compiled one by one had the same symbols, and a process
    # that read two of them could not use the second.
    total.__qualname__ = total.__name__ = named
    compiled = njit(nogil=True, fastmath=_AS_WRITTEN, error_model="numpy", cache=cached)(total)
    return cast(Kernel, compiled)


_KERNELS: dict[tuple[str, bool, str], Kernel] = {}


def kernel(
    name: str,
    *,
    clipped: bool,
    storage: str = "float64",
    kept_in: Callable[[], str | None] = lambda: None,
) -> Kernel | None:
    """The kernel of a loss, None for a loss that has none here.

    What is kept is used only if it is right on a few records: it may have been damaged since.

    Args:
      name: The loss's name.
      clipped: Whether it scales gradients down to a clip.
      storage: The type that features are held in.
      kept_in: Returns the folder for compiled code, or None to compile again in each process. What
        is there is run, so nobody else may write to it. It is asked for a loss's first kernel.

    Warns:
      DoubtWarning: What is kept there cannot be used.
    """
    key = (name, clipped, storage)
    if key not in _KERNELS and name in SLOPES:
        named = f"total_{name}_{'clipped' if clipped else 'whole'}_{storage}"
        folder, before = kept_in(), config.CACHE_DIR
        config.CACHE_DIR = folder or before
        try:
            made = _compiled(SLOPES[name], clipped=clipped, named=named, cached=folder is not None)
        finally:
            config.CACHE_DIR = before
        if folder is not None and not _is_right(made, name, clipped=clipped, storage=storage):
            told = f"{folder}: the compiled code cannot be used and is not; remove that folder"
            warnings.warn(told, DoubtWarning, stacklevel=2)
            made = _compiled(SLOPES[name], clipped=clipped, named=f"{named}_anew", cached=False)
        _KERNELS[key] = made
    return _KERNELS.get(key)


def _is_right(made: Kernel, name: str, *, clipped: bool, storage: str) -> bool:
    """Whether a kernel gives what its slopes give one by one, on a few records of no owner."""
    x, y = np.array([[1.0, -2.0], [0.5, 3.0], [0.0, 0.0]], dtype=storage), np.array([1.0, -1, 1])
    theta, parameter, clip = np.array([0.25, -0.5]), 0.375, 0.125
    expected = np.zeros(2)
    for row, target in zip(x.astype(np.float64), y, strict=True):
        slope = SLOPES[name](float(row @ theta), float(target), parameter)
        most = clip / max(float(np.abs(row).sum()), LEAST_NORM) if clipped else math.inf
        expected += min(max(slope, -most), most) * row
    try:
        told = made(x, y, theta, parameter, clip if clipped else math.inf)
    except Exception:
        return False
    return bool(np.allclose(told, expected, rtol=1e-9, atol=1e-12))
