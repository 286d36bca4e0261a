"""The Laplace mechanism: OpenDP's integer sampler, drawn ahead of the queries it will serve."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import cache
from typing import Protocol

import numpy as np

# The plain modules: opendp.prelude would load pandas, scipy and scikit-learn too.
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_laplace
from opendp.metrics import l1_distance
from opendp.mod import Measurement, enable_features

from common.arrays import Units
from common.privacy import NoisePlan
from owner.core import seeded_noise
from owner.threads import begun

# Memory for noise drawn ahead in one study, and the number of vectors in any case.
AHEAD_BYTES = 8 * 2**20
AHEAD_VECTORS = 256
# Draws at once: about 30 ms of work.
BLOCK_DRAWS = 5_000
# Draws of one thread at once, about 6 ms of work: fewer are not worth handing over.
PIECE_DRAWS = 1_000
# A larger draw takes longer: about 2 us for each noise scale that it is away from 0. So few draws
# are there after a time of their number alone, longer than they take; in the time of more, one
# response's noise is lost among the others' chance.
DRAWING_SECONDS, SECONDS_A_DRAW = 2e-3, 1e-5
# Who waits for noise looks this often whether somebody still draws it.
LOOK_SECONDS = 1.0

enable_features("contrib")


class NoiseSource(Protocol):
    """Where an owner's noise comes from."""

    def draw(self, count: int) -> Units:
        """The noise of ``count`` responses in grid units, shape (count, p), never given twice."""

    def epsilon(self, *, responses: int) -> Fraction:
        """What this many responses spend together; never less than they do."""


class SecureNoise:
    r"""Integer Laplace noise from the operating system's entropy, through OpenDP.

    Guarantees:
      * Each coordinate is a draw of the discrete Laplace distribution of the plan's scale,
        sampled exactly in integers; no floating-point number is drawn.
      * ``epsilon`` is OpenDP's own privacy map at the plan's sensitivity, in exact rationals.
      * The draws depend on no data, and the time of up to :data:`PIECE_DRAWS` of them not on what
        was drawn: who waits for noise learns nothing of it.
      * Coordinates are independent, so pieces of a vector may be drawn at the same time.

    Args:
      plan: The noise of each response.
      threads: How many pieces are drawn at the same time.
    """

    def __init__(self, plan: NoisePlan, *, threads: int = 1) -> None:
        self._plan = plan
        self._threads = threads
        self._measurements: dict[int, Measurement] = {}

    def draw(self, count: int) -> Units:
        """The noise of ``count`` responses in grid units, shape (count, p)."""
        size = count * self._plan.dimension
        if size <= PIECE_DRAWS:
            draws = _drawn_in_time(self._measurement(size), size)
        elif self._threads == 1:
            draws = _drawn(self._measurement(size), size)
        else:
            sizes = [min(PIECE_DRAWS, size - start) for start in range(0, size, PIECE_DRAWS)]
            pieces = _helpers(self._threads).map(_drawn, map(self._measurement, sizes), sizes)
            draws = np.concatenate(list(pieces))
        return draws.reshape(count, self._plan.dimension)

    def epsilon(self, *, responses: int) -> Fraction:
        """What this many responses spend together, by OpenDP's privacy map."""
        measurement = self._measurement(self._plan.dimension)
        spent = measurement.map(self._plan.sensitivity_units)  # type: ignore[no-untyped-call]
        return Fraction(spent) * responses

    def _measurement(self, size: int) -> Measurement:
        """OpenDP's mechanism for vectors of this length: it would accept any other too."""
        if size not in self._measurements:
            self._measurements[size] = make_laplace(
                vector_domain(atom_domain(T="i64"), size=size),
                l1_distance(T="i64"),
                scale=self._plan.scale_units,
            )
        return self._measurements[size]


def _drawn(measurement: Measurement, size: int) -> Units:
    """This many draws; the library holds up no other thread meanwhile."""
    return np.array(measurement([0] * size), dtype=np.int64)


def _drawn_in_time(measurement: Measurement, size: int) -> Units:
    """The same, after a time that does not tell what was drawn."""
    ready = time.monotonic() + DRAWING_SECONDS + SECONDS_A_DRAW * size
    draws = _drawn(measurement, size)
    time.sleep(max(0.0, ready - time.monotonic()))
    return draws


class SeededNoise:
    """Repeatable noise for experiments. Insecure: anyone who knows the seed removes the noise."""

    def __init__(self, plan: NoisePlan, *, rng: np.random.Generator) -> None:
        self._plan = plan
        self._rng = rng

    def draw(self, count: int) -> Units:
        """The noise of ``count`` responses in grid units, shape (count, p)."""
        return np.stack([seeded_noise(self._plan, rng=self._rng) for _ in range(count)])

    def epsilon(self, *, responses: int) -> Fraction:
        """What this many responses would spend if the noise were secure."""
        return self._plan.epsilon_per_response * responses


class DrawnAhead:
    """One vector of noise at a time, drawn in blocks by a background thread.

    Guarantees:
      * Every vector is handed out once.
      * At most ``vectors`` and one block are held; the thread ends at :meth:`end`.
      * Nobody waits for a thread that has ended, whatever it ended of.

    Args:
      source: Where the noise comes from.
      vectors: How many vectors to hold ready.
      block: How many to draw at once; the more, the less drawing disturbs answering. The
        first blocks are smaller, so that the first response does not wait for many.
    """

    def __init__(self, source: NoiseSource, *, vectors: int, block: int) -> None:
        self._source = source
        self._vectors = vectors
        self._block = block
        self._ready: deque[Units] = deque()
        self._failure: Exception | None = None
        self._stopping = False
        self._changed = threading.Condition()
        self._thread = begun(self._fill, name="noise")

    def take(self) -> Units | None:
        """The next response's noise, shape (p,); None if it is still being drawn.

        Raises:
          RuntimeError: The study has stopped. What the source raised is raised here, too.
        """
        with self._changed:
            if self.is_awaited:
                return None
            if self._failure is not None:
                raise self._failure
            if self._stopping:
                raise RuntimeError("noise was asked for after the study had stopped")
            if not self._ready:
                raise RuntimeError("the thread that draws noise has ended")
            noise = self._ready.popleft()
            if len(self._ready) <= self._vectors // 2:
                self._changed.notify_all()
            return noise

    def wait(self) -> None:
        """Wait until there is noise for a response, without taking it, or none will come.

        A thread that finds no memory may end without a word.
        """
        with self._changed:
            while self.is_awaited:
                self._changed.wait(LOOK_SECONDS)

    @property
    def is_awaited(self) -> bool:
        """Whether there is no noise for a response, and some will come."""
        return not (self._ready or self._stopping or self.is_lost)

    @property
    def is_lost(self) -> bool:
        """Whether no more noise will be drawn, though the study has not stopped."""
        # A thread that has failed may take a moment to end.
        return not self._stopping and (self._failure is not None or not self.is_drawing)

    def epsilon(self, *, responses: int) -> Fraction:
        """What this many responses spend together."""
        return self._source.epsilon(responses=responses)

    @property
    def is_drawing(self) -> bool:
        """Whether the background thread has not ended."""
        return self._thread.is_alive()

    def end(self) -> None:
        """Have the background thread end after what it is drawing, which nobody waits for."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def stop(self) -> None:
        """End the background thread, and wait for its end."""
        self.end()
        self._thread.join()

    def _fill(self) -> None:
        """Fill up whenever half is gone; a failure is raised where noise is asked for."""
        count = 1
        while self._wait_for_room():
            try:
                block = self._source.draw(count)
            except Exception as error:
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()
                return
            with self._changed:
                self._ready.extend(block)
                self._changed.notify_all()
            count = min(2 * count, self._block)

    def _wait_for_room(self) -> bool:
        """Wait until there is something to draw; False when it is over."""
        with self._changed:
            if len(self._ready) >= self._vectors:
                self._changed.wait_for(
                    lambda: self._stopping or len(self._ready) <= self._vectors // 2
                )
            return not self._stopping


NoiseFactory = Callable[[NoisePlan], DrawnAhead]


def load_library() -> None:
    """Have the noise library make what it makes at its first use; nothing is drawn."""
    plan = NoisePlan(
        grid_exponent=0,
        sensitivity_units=1,
        scale_units=1.0,
        epsilon_per_response=Fraction(1),
        dimension=1,
        responses=1,
    )
    SecureNoise(plan).epsilon(responses=1)


@cache
def _helpers(threads: int) -> ThreadPoolExecutor:
    """The threads that draw pieces for all studies; they wait without work.

    They are not those that add up records: an answer must not wait for noise of later ones.
    """
    return ThreadPoolExecutor(threads, thread_name_prefix="draws")


def secure_noise(plan: NoisePlan, *, threads: int = 1) -> DrawnAhead:
    """Noise from the operating system's entropy, drawn ahead by this many threads."""
    vectors = min(max(2, min(AHEAD_VECTORS, AHEAD_BYTES // (8 * plan.dimension))), plan.responses)
    block = max(1, min(vectors // 2, BLOCK_DRAWS // plan.dimension))
    return DrawnAhead(SecureNoise(plan, threads=threads), vectors=vectors, block=block)


def seeded_noise_factory(seed: int) -> NoiseFactory:
    """Insecure noise that repeats with the seed, the same for every study of equal terms."""

    def noise(plan: NoisePlan) -> DrawnAhead:
        source = SeededNoise(plan, rng=np.random.default_rng(seed))
        return DrawnAhead(source, vectors=min(64, plan.responses), block=16)

    return noise
