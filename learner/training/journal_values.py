"""The values of a journal as they were written, or a ValueError: nothing is believed of a file."""

from __future__ import annotations

import math
import shlex
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from common.arrays import Vector
from common.errors import InputError
from common.files import unwritten
from common.sqlite_files import told_by_system

# Whatever values that are not what was written can raise in those who read them.
UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
LARGEST_NUMBER = 2**53

Row = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class TickEntry:
    """One tick and its responses.

    Args:
      position: Its place among all ticks drawn, from 0.
      time: Virtual time.
      wall_seconds: Seconds since the run began.
      responses: Owner index -> (sequence number, gradient (p,)); empty when nobody answered.
    """

    position: int
    time: float
    wall_seconds: float
    responses: dict[int, tuple[int, Vector]]

    @property
    def gradients(self) -> dict[int, Vector]:
        """The responses alone, by owner."""
        return {owner: gradient for owner, (_, gradient) in self.responses.items()}


def unusable(path: Path, error: sqlite3.Error) -> InputError:
    """What SQLite cannot do with a journal, as a sentence: its disk may be why, or its content."""
    told = told_by_system(error, path)
    # Where a disk was full from the start, the run's own settings were not written yet.
    study = "" if (path.parent / "study.toml").is_file() else "STUDY.toml "
    return unwritten(
        told,
        f"{path}: the journal cannot be used ({told}); check disk space and permissions, or, if "
        f"it was cut or changed, restore it from a backup; copriv train {study}--resume "
        f"{shlex.quote(str(path.parent))} then goes on; a simulation is begun anew",
    )


def response_rows(entries: Iterable[TickEntry]) -> list[Row]:
    """The rows of the ticks' responses."""
    return [
        (entry.position, owner, sequence, gradient.astype("<f8", copy=False).tobytes())
        for entry in entries
        for owner, (sequence, gradient) in entry.responses.items()
    ]


def entries_of(ticks: Iterable[Row], answers: Iterable[Row]) -> Iterator[TickEntry]:
    """Ticks with their responses, from the rows of both tables in the order of the ticks.

    Raises:
      ValueError: A value is not what was written, or a response is of no tick or there twice.
    """
    left = iter(answers)
    ahead = next(left, None)
    for position, time, wall in ticks:
        responses = {}
        while ahead is not None and ahead[0] == position:
            owner = index_of(ahead[1])
            if owner in responses:
                raise ValueError("two responses of one owner")
            responses[owner] = (sequence_of(ahead[2]), vector_of(ahead[3]))
            ahead = next(left, None)
        yield TickEntry(
            position=index_of(position),
            time=finite(time),
            wall_seconds=finite(wall),
            responses=responses,
        )
    if ahead is not None:
        raise ValueError("a response of no tick")


def check_ticks(
    entries: Iterable[TickEntry], *, missed_before: int, largest: Sequence[float], length: int
) -> None:
    """Refuse ticks that a run cannot have left.

    Args:
      entries: All ticks, in order.
      missed_before: The position after the last tick that nobody answered.
      largest: Of each owner the largest absolute value of a coordinate of its responses.
      length: The length of a response.

    Raises:
      ValueError: One is missing, of an owner or length that the run has not, or was never taken.
    """
    following = missed_before
    for entry in entries:
        # What nobody answered was noted; after the last of it all was answered.
        if entry.position > following or not entry.responses:
            raise ValueError("ticks or responses are missing")
        following = max(following, entry.position + 1)
        for owner, gradient in entry.gradients.items():
            if owner >= len(largest) or gradient.size != length:
                raise ValueError("a response of nobody, or of another length")
            # Whatever is not finite is not within the bound either.
            if not np.abs(gradient).max() <= largest[owner]:
                raise ValueError("a response that no owner can have given")


def whole_number(text: str) -> int:
    """A whole number of a note, 0 or more."""
    return index_of(int(text))


def index_of(value: object) -> int:
    """A whole number of a table, 0 or more."""
    if not isinstance(value, int) or not 0 <= value < LARGEST_NUMBER:
        raise ValueError("no whole number")
    return value


def sequence_of(value: object) -> int:
    """A number of a response, 1 or more."""
    if value == 0:
        raise ValueError("no number of a response")
    return index_of(value)


def finite(value: object) -> float:
    """A finite number of a table."""
    if not isinstance(value, float) or not math.isfinite(value):
        raise ValueError("no finite number")
    return value


def vector_of(value: object) -> Vector:
    """A gradient or model of a table."""
    if not isinstance(value, bytes):
        raise ValueError("no numbers")
    return np.frombuffer(value, dtype="<f8").astype(np.float64)
