"""The settings of a feature map: a saved one, or how one is fitted on public records."""

from __future__ import annotations

import datetime as dt
import math
from types import MappingProxyType
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from common.columns import category_key
from common.config import Positive, Settings, Share
from common.fitting import MOST_CATEGORIES, MOST_MISSING, CategoryOrder, NoValues
from common.places import Place
from common.tables import TableSource

_VALUE = (str, int, float)


def _positive(value: object) -> object:
    """One value, a list of values or nothing; one sentence for all else."""
    if isinstance(value, list | tuple) and value and all(map(_is_value, value)):
        return tuple(value)
    if value is None or _is_value(value):
        return value
    raise ValueError("expected one value, or a list of values, of class +1")


def _is_value(value: object) -> bool:
    """Whether it is a text, a truth value or a finite number."""
    return isinstance(value, _VALUE) and (not isinstance(value, float) or math.isfinite(value))


def _no_values(value: object) -> object:
    """Values as texts; one of them may stand alone."""
    values = value if isinstance(value, list | tuple) else [value]
    if not values or not all(isinstance(v, (*_VALUE, dt.date)) and category_key(v) for v in values):
        raise ValueError(
            "expected one value that says that there is none, or a list, such as [999]"
        )
    if len(values) > MOST_MISSING:
        raise ValueError(
            f"expected at most {MOST_MISSING} values, these are {len(values):,}; empty the cells "
            "of the others"
        )
    return tuple(map(str, values))


class FeatureSettings(Settings):
    """The feature map, which turns columns into numbers: a saved one, or how to fit one.

    Args:
      map: A saved feature map; beside it only ``public`` may be set.
      public: The public records.
      target: The column to predict.
      columns: The input columns; without it all columns but the target.
      drop: Columns to leave out.
      categorical: Columns whose numbers are codes, such as diagnoses, and no quantities.
      missing: Values that say that there is none, of each column that has such codes: 999, -1,
        or 0 where no amount can be 0. Owners read them as empty cells, too. They are in the
        study's units.
      components: The number of principal components that replace the columns; without it the
        columns themselves are used.
      whiten: Scale every component to variance one on the public records; without ``components``
        all principal components are used. Training without noise is a little faster, but equal
        noise drowns what the small components say.
      coverage: The share of the public values that are within the bounds of each column, each
        feature and the target; values beyond are moved to the bound.
      l1_coverage: Share of the public records whose L1 norm is within the radius; longer ones
        are scaled down to it. The sensitivity grows with the square of the radius, so the
        longest tenth costs more than it teaches. 1 sets no radius.
      l1_radius: The radius itself, in place of ``l1_coverage``.
      category_order: How categories become numbers: in the order of their mean public target
        ("target"), also as far apart as these means are ("mean"; `copriv init` writes it), or in
        the order of their names ("name").
      max_categories: A column of text with more distinct values than this is taken for free text
        and left out.
      intercept: Append a constant feature 1.
      positive: The value of the target that is class +1, or a list of them; every other value is
        class -1. Without it the target is a number.
    """

    EXAMPLES = MappingProxyType(
        {
            "map": "features.json",
            "public": {"rows": "-5000:"},
            "target": "Length of Stay",
            "columns": ["Age Group", "Gender"],
            "drop": ["id"],
            "categorical": ["diagnosis code"],
            "missing": {"Age": [999], "chol": [0, -1]},
            "components": 5,
            "l1_radius": 10.0,
            "positive": ["Charged Off", "Default"],
        }
    )

    map: Place | None = None
    public: TableSource | None = None
    target: str | None = None
    columns: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    missing: dict[str, Annotated[NoValues, BeforeValidator(_no_values)]] = Field(
        default_factory=dict
    )
    components: Annotated[int, Field(ge=1)] | None = None
    whiten: bool = False
    coverage: Annotated[float, Field(gt=0.5, le=1)] = 0.99
    l1_coverage: Share = 0.9
    l1_radius: Positive | None = None
    category_order: CategoryOrder = "target"
    max_categories: Annotated[int, Field(ge=2)] = MOST_CATEGORIES
    intercept: bool = True
    positive: Annotated[
        str | int | float | bool | tuple[str | int | float | bool, ...] | None,
        BeforeValidator(_positive),
    ] = None

    @model_validator(mode="after")
    def _map_or_fit(self) -> Self:
        fit_only = sorted(self.model_fields_set - {"map", "public"})
        if self.map is not None and fit_only:
            raise ValueError(f"map is complete and is not fitted; remove {', '.join(fit_only)}")
        if self.map is None and (self.public is None or not self.target):
            raise ValueError("set public and target to fit a feature map, or map to a saved one")
        if self.target in (self.columns or ()):
            raise ValueError(f"columns: {self.target!r} is the target; remove it from columns")
        positive = self.positive if isinstance(self.positive, tuple) else (self.positive,)
        missing = {category_key(value) for value in self.missing.get(str(self.target), ())}
        if both := [value for value in positive if category_key(value) in missing]:
            raise ValueError(
                f"missing.{self.target}: {both[0]!r} is also class +1 (positive); remove it there"
            )
        return self
