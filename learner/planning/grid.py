"""The grid of a sweep: settings keys with their values, and the study at each of its points."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from common.config import Overrides, load_settings, parse_values
from common.errors import InputError
from common.files import real_path
from common.setting_kinds import plain
from common.texts import brief
from learner.planning.sections import is_owner_requested
from learner.planning.settings import (
    StudySettings,
    check_clock_rates,
    check_data_typed,
    check_forecast,
)

OWNERS = "owners"
# More are a mistake, or several sweeps.
MOST_POINTS = 10_000
MOST_STUDIES = 999_999

Grid = Mapping[str, Sequence[object]]
"""The values of each key, in the order in which they were typed."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A point of a grid.

    Args:
      place: The value of each key of the grid.
      settings: The study there.
    """

    place: Mapping[str, object]
    settings: StudySettings

    @property
    def words(self) -> str:
        """The point for people; nothing for that of an empty grid."""
        return ", ".join(f"{key}={_text(value)}" for key, value in self.place.items())


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A study at every point of a grid and at many seeds.

    Args:
      base: The folder of the study's file.
      grid: The values of each key.
      points: The study at each point.
      seeds: How many seeds each point is run at: 1, 2, 3, ...
    """

    base: Path
    grid: Grid
    points: tuple[Point, ...]
    seeds: int

    @property
    def name(self) -> str:
        """What the study is called."""
        return self.points[0].settings.name


def parse_grid(typed: Sequence[str]) -> Grid:
    """The grid that texts KEY=VALUE,VALUE,... mean; each value is read as one of ``--set``.

    Raises:
      InputError: A text is none of these, or a key or a value is given twice.

    >>> parse_grid(["privacy.epsilon=0.1,1/3", "owners=2,3"])
    {'privacy.epsilon': [0.1, '1/3'], 'owners': [2, 3]}
    """
    grid: dict[str, list[object]] = {}
    for text in typed:
        key, equals, values = text.partition("=")
        key = key.strip()
        found = parse_values(values) if values.strip() else []
        if not equals or not all(key.split(".")) or not found or "" in found:
            raise InputError(
                f"--grid {text}: expected KEY=VALUE,VALUE,..., such as privacy.epsilon=0.1,1,10"
            )
        if key in grid:
            raise InputError(f"--grid {text}: {key} is given twice; give all its values at once")
        grid[key] = _checked(key, found, where=f"--grid {text}")
    return grid


def grid_of(values: Mapping[str, object]) -> Grid:
    """The grid of a program: for each key a list, a range, an array or a series of values.

    Raises:
      InputError: It has no keys, or a key has no values, or one of them twice.

    >>> grid_of({"privacy.epsilon": (0.1, 1), "owners": range(2, 4)})
    {'privacy.epsilon': [0.1, 1], 'owners': [2, 3]}
    """
    if not isinstance(values, Mapping):
        raise InputError(
            f"grid: got {brief(values)}, expected values by key, such as "
            '{"privacy.epsilon": [0.1, 1, 10]}'
        )
    grid = {}
    for key, given in values.items():
        found = [plain(one) for one in given] if _are_several(given) else []
        if not found:
            raise InputError(
                f"grid {key}: got {brief(given)}, expected a list of values, "
                'such as {"privacy.epsilon": [0.1, 1, 10]}'
            )
        grid[key] = _checked(key, found, where=f"grid {key}")
    return grid


def _are_several(given: object) -> TypeGuard[Iterable[object]]:
    """Whether somebody gave values and not one, such as a text or a table of settings."""
    return isinstance(given, Iterable) and not isinstance(given, str | Mapping)


def _checked(key: str, values: list[object], *, where: str) -> list[object]:
    """The values of a key that can be one of a grid."""
    if key == "seed":
        raise InputError(f"{where}: seeds are not part of the grid; give their number with --seeds")
    for i, value in enumerate(values):
        # To Python true is 1; a key that takes only one of them says so.
        alike = [one for one in values[:i] if isinstance(one, bool) == isinstance(value, bool)]
        if value in alike:
            raise InputError(f"{where}: {_text(value)} is given twice; give each value once")
    return values


def experiment_of(
    study: Path,
    grid: Grid,
    *,
    seeds: int,
    overrides: Overrides = (),
    data: str | Path | None = None,
) -> Experiment:
    """The study at every point of a grid, each checked as a study of its own.

    Args:
      study: STUDY.toml.
      grid: The grid; the key ``owners`` says how many of the study's owners take part, the first of
        its file.
      seeds: How many seeds there are for each point.
      overrides: Changes of the study.
      data: The table to use instead of data.path.

    Raises:
      InputError: There are too many points, or one of them is no study that can be repeated.
    """
    if not isinstance(seeds, int | np.integer) or not seeds > 0:
        raise InputError(f"seeds: got {brief(seeds)}, expected a whole number of 1 or more")
    count = 1
    for options in grid.values():
        count *= len(options)
    if count > MOST_POINTS or count * seeds > MOST_STUDIES:
        raise InputError(
            f"--grid, --seeds: {count:,} points x {seeds:,} seeds = {count * seeds:,} studies; "
            f"expected at most {MOST_POINTS:,} points and {MOST_STUDIES:,} studies; "
            "give fewer values or seeds, or several sweeps"
        )
    values = {} if data is None else {"data.path": real_path(Path(data))}
    whole = load_settings(StudySettings, study, overrides=overrides, values=values)
    check_forecast(whole)
    if "data.path" in grid and values:
        raise InputError("--grid data.path: --data names another table; give one of the two")
    tables = [entry.model_dump(exclude_unset=True) for entry in whole.owners]
    for taking_part in grid.get(OWNERS, ()):
        _check_owners(taking_part, len(tables))
    points = []
    for choice in itertools.product(*grid.values()):
        place = dict(zip(grid, choice, strict=True))
        changes: dict[str, Any] = values | place
        if OWNERS in place:
            changes[OWNERS] = tables[: changes[OWNERS]]
        settings = load_settings(StudySettings, study, overrides=overrides, values=changes)
        check_clock_rates(settings)
        if is_owner_requested(settings.algorithm):
            raise InputError(
                f'{study}: algorithm.initiative = "{settings.algorithm.initiative}" cannot be '
                "repeated by seeds, because owners that run have a say in who is asked; "
                'set algorithm.initiative = "learner"'
            )
        points.append(Point(place=place, settings=settings))
    check_data_typed(data, *(point.settings for point in points))
    return Experiment(base=study.parent, grid=grid, points=tuple(points), seeds=seeds)


def _check_owners(count: object, there: int) -> None:
    """A number of owners that the study has."""
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= there:
        raise InputError(
            f"--grid owners: got {_text(count)}, expected whole numbers from 1 to {there}, the "
            "owners of this study; the first ones take part"
        )


def _text(value: object) -> str:
    """A value as it would be typed.

    >>> _text("auto"), _text(0.1), _text(["a"])
    ('auto', '0.1', '["a"]')
    """
    return value if isinstance(value, str) else json.dumps(value, default=str)
