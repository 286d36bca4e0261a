r"""The feature map: how a raw table becomes bounded records, fitted on public records only.

The learner publishes it, and every owner applies the same map to its own raw table:

.. math::
   \text{raw} \to \text{numbers} \to \text{fill} \to \text{clamp} \to \text{standardise}
   \to \text{rotate} \to \text{clamp to the public bounds} \to \text{append } 1

What it promises, whatever the raw records are:

* each record's features and target depend on that record and the map, on no other record;
* they lie within :attr:`FeatureMap.domain`, exactly: the sensitivity of every answer rests on it;
* nothing in it was read from a private record.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import pandas as pd
from pydantic import Field, ValidationError, model_validator

from common.arrays import Flags, Matrix
from common.config import Lasting, Positive
from common.domain import LEAST_SIZE, Domain, without_specks
from common.errors import InputError
from common.files import open_regular, permitted
from common.fitting import Bound, ColumnRule, Number, TargetRule
from common.setting_errors import first_fault
from common.suggestions import check_columns
from common.terms import Records

CONSTANT = "constant"
LARGEST_TEXT = 64 * 2**20
LARGEST_COUNT = 10_000
MADE_BY = "give a file that copriv features fit has written"
# Why a column was left out is a few words; an owner keeps them with the map.
LONGEST_REASON = 200
# A stranger's map is held in memory as Python numbers, some hundred bytes each.
LARGEST_ENTRIES = 2_000_000

# Only the first fault is reported: to collect thousands of a hostile text would take minutes.
_Few = Field(min_length=1, max_length=LARGEST_COUNT, fail_fast=True)
_Row = Annotated[tuple[Number, ...], _Few]
_NUMBERS_ON_LINES = re.compile(r"\[\n *+((?:-?[0-9][0-9.eE+-]*+,?\n *+)++)\]", re.ASCII)


class FeatureMap(Lasting):
    """The dictionary that makes every owner's records comparable; frozen, readable, public.

    Args:
      format: What this text is.
      version: Version of the format.
      source: Name of the file of the public records.
      source_kind: "private" when they were some owner's records: then the bounds below leak
        something about them, and owners refuse the map.
      num_public_records: How many they were.
      columns: The rule of each raw column that counts, d of them.
      rotation: Matrix of shape (p, d) from standardised columns to features, the constant
        not counted; None for the identity.
      bounds: Largest absolute value of each feature, the constant not counted.
      l1_radius: Bound on the L1 norm of a record's features, the constant counted.
      intercept: Whether a constant feature 1 is appended.
      target: The rule of the target.
      dropped: Columns of the public records that say nothing, and why.
    """

    FIRST_FIELDS = (
        *("format", "version", "source", "source_kind", "num_public_records", "target"),
        *("intercept", "l1_radius", "bounds", "columns", "rotation", "dropped"),
    )

    format: Literal["copriv-feature-map"] = "copriv-feature-map"
    version: Literal[1] = 1
    source: str
    source_kind: Literal["public", "private"] = "public"
    num_public_records: Annotated[int, Field(ge=1)]
    target: TargetRule
    intercept: bool
    l1_radius: Positive | None = None
    bounds: Annotated[tuple[Bound, ...], _Few]
    columns: Annotated[tuple[ColumnRule, ...], _Few]
    rotation: Annotated[tuple[_Row, ...], _Few] | None = None
    dropped: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _shapes_agree(self) -> Self:
        d, p = len(self.columns), len(self.bounds)
        names = {rule.name for rule in self.columns}
        if len(names) != d:
            raise ValueError("a column occurs twice")
        if self.target.name in names:
            raise ValueError(f"the target {self.target.name!r} is also an input")
        if self.rotation is None and p != d:
            raise ValueError(f"{p} bounds for {d} columns")
        if self.rotation is not None and [len(row) for row in self.rotation] != [d] * p:
            raise ValueError(f"the rotation is not a matrix of {p} rows and {d} columns")
        if p + self.intercept > LARGEST_COUNT:
            raise ValueError(f"more than {LARGEST_COUNT} features")
        if any(len(why) > LONGEST_REASON for why in self.dropped.values()):
            raise ValueError(f"a reason in dropped has more than {LONGEST_REASON} characters")
        if self.l1_radius is not None and not self.l1_radius > self.intercept:
            raise ValueError("l1_radius leaves no room beside the constant feature 1")
        return self

    @property
    def columns_needed(self) -> tuple[str, ...]:
        """The raw columns that a table must have, the target last."""
        return (*(rule.name for rule in self.columns), self.target.name)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """A name for each of the p features."""
        if self.rotation is None:
            names = [rule.name for rule in self.columns]
        else:
            names = [f"component {j}" for j in range(1, len(self.bounds) + 1)]
        return (*names, *([CONSTANT] if self.intercept else []))

    @property
    def target_name(self) -> str:
        """The raw column that is predicted."""
        return self.target.name

    @property
    def num_features(self) -> int:
        """The number p of features, the constant included."""
        return len(self.bounds) + self.intercept

    @property
    def is_classification(self) -> bool:
        """Whether targets are the classes -1 and +1."""
        return self.target.positive is not None

    @cached_property
    def domain(self) -> Domain:
        """The public bounds that every mapped record keeps."""
        bounds = (*self.bounds, *([1.0] if self.intercept else []))
        return Domain(
            feature_bound=np.array(bounds, dtype=np.float64),
            target_bound=self.target.bound,
            l1_radius=self.l1_radius,
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical text."""
        return hashlib.sha256(self.to_json().encode("ascii")).hexdigest()

    def to_json(self) -> str:
        """The canonical text: equal maps have equal texts."""
        return _laid_out(self.model_dump(mode="json"))

    @classmethod
    def from_json(cls, text: str, *, where: str = "feature map") -> Self:
        """The map of a text, which a stranger may have written.

        Raises:
          InputError: It is not a feature map of this format, or not a consistent one.
        """
        if len(text) > LARGEST_TEXT:
            raise InputError(f"{where}: longer than {LARGEST_TEXT >> 20} MB; {MADE_BY}")
        if text.count("[") > 2 * LARGEST_COUNT:
            raise InputError(f"{where}: more than {LARGEST_COUNT} rows; use fewer columns")
        check_entries(text.count(","), where=where)
        try:
            return cls.model_validate_json(text, strict=True)
        except ValidationError as error:
            if error.errors(include_input=False, include_url=False)[0]["type"] == "json_invalid":
                raise InputError(f"{where}: not a feature map; {MADE_BY}") from None
            key, fault = first_fault(error)
            raise InputError(f"{where}: {key or 'the text'}: {fault}") from None

    def apply(self, table: pd.DataFrame, *, where: str, fill_target: bool = False) -> Records:
        """The records of a raw table, each by itself, all within :attr:`domain`.

        Args:
          table: A raw table with the :attr:`columns_needed`, n rows.
          where: What the table is called in an error.
          fill_target: Give a record without a readable target the public fill value, where
            an error would reveal something about a record.

        Raises:
          InputError: A column is missing, or targets cannot be read.
        """
        check_columns(self.columns_needed, map(str, table.columns), where=where)
        targets = self.target.raw(table[self.target.name])
        unreadable = int(np.count_nonzero(np.isnan(targets)))
        if unreadable and not fill_target:
            raise InputError(self.missing_targets(unreadable, table, where))
        features = self._bounded(self.unbounded_features(table))
        return Records(features=features, targets=without_specks(self.target.scaled(targets)))

    def features_of(self, table: pd.DataFrame, *, where: str) -> Matrix:
        """The features of a raw table, as :meth:`apply` makes them; it needs no target."""
        check_columns(self.columns_needed[:-1], map(str, table.columns), where=where)
        return self._bounded(self.unbounded_features(table))

    def missing_targets(self, unreadable: int, table: pd.DataFrame, where: str) -> str:
        """The sentence about records without a target."""
        return (
            f"{where}: target {self.target.name!r}: {unreadable} of {len(table)} records have "
            'no readable value; correct them, or leave them out with missing_target = "drop" '
            "beside the table's path"
        )

    def unbounded_features(self, table: pd.DataFrame) -> Matrix:
        """Features before the last clamp, shape (n, p), the constant not counted."""
        if self.rotation is None:
            return np.stack([r.standardised(table[r.name]) for r in self.columns], axis=1)
        features = np.zeros((len(table), len(self.bounds)))
        rotation = without_specks(np.array(self.rotation, dtype=np.float64))
        # A matrix product may round one record differently beside other records; sums of
        # elementwise products do not, so replacing a record changes its own row only.
        for j, rule in enumerate(self.columns):
            features += rule.standardised(table[rule.name])[:, None] * rotation[:, j]
        return features

    def _bounded(self, features: Matrix) -> Matrix:
        """Features clamped to the public bounds, with the constant appended, shape (n, p).

        None is so small that arithmetic with it takes another time.
        """
        bounds = np.array(self.bounds, dtype=np.float64)
        # The map's numbers are at most LARGEST_NUMBER, so the features before this are finite.
        x = without_specks(np.clip(features, -bounds, bounds))
        if self.l1_radius is not None:
            # Of less room nothing would be left in any case.
            room = max(self.l1_radius - self.intercept, LEAST_SIZE)
            norms = np.zeros(len(x))
            for j in range(x.shape[1]):
                norms += np.abs(x[:, j])
            # A little inside, so that rounding of the products and of their sum stays inside.
            inside = room * (1.0 - 1e-9)
            x = without_specks(x * (inside / np.maximum(norms, inside))[:, None])
        if self.intercept:
            x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
        return np.ascontiguousarray(x)


def check_entries(count: int, *, where: str) -> None:
    """Refuse more numbers than a map may have.

    Raises:
      InputError: They are more.
    """
    if count > LARGEST_ENTRIES:
        raise InputError(
            f"{where}: a feature map of more than {LARGEST_ENTRIES} numbers; use fewer columns"
        )


def with_target(
    table: pd.DataFrame,
    feature_map: FeatureMap,
    missing: Literal["drop", "refuse"] | None,
    *,
    where: str,
) -> Flags:
    """Which records of a raw table stay, by what is to become of those without a target.

    Args:
      table: A raw table with the map's target, n rows.
      feature_map: The map.
      missing: The setting missing_target.
      where: What the table is called in an error.

    Returns:
      Shape (n,).

    Raises:
      InputError: The setting is "refuse" and a target is missing, or "drop" leaves no record.
    """
    readable: Flags = ~np.isnan(feature_map.target.raw(table[feature_map.target_name]))
    if missing == "refuse" and not readable.all():
        raise InputError(
            feature_map.missing_targets(len(readable) - int(readable.sum()), table, where)
        )
    if missing == "drop" and not readable.any():
        raise InputError(
            f"{where}: no record has a readable target {feature_map.target_name!r}; give records "
            "that have one"
        )
    return readable if missing == "drop" else np.ones(len(table), dtype=bool)


def file_text(feature_map: FeatureMap) -> str:
    """A map's text for a file: what was agreed on, and beside it what helps people alone.

    These are the public values of a target of classes. The canonical text and the digest are
    without them, so they change no study, and what older versions agreed on stays the same.
    """
    table = feature_map.model_dump(mode="json")
    if feature_map.target.public_values:
        table["target"]["public_values"] = list(feature_map.target.public_values)
    return _laid_out(table)


def _laid_out(table: Mapping[str, Any]) -> str:
    """A table as JSON, each row of numbers on one line.

    >>> print(_laid_out({"bounds": [1.0, 2.5], "names": ["a"]}), end="")
    {
     "bounds": [1.0, 2.5],
     "names": [
      "a"
     ]
    }
    """
    text = json.dumps(table, indent=1, allow_nan=False)
    # No string can match: in JSON it holds no line break.
    return _NUMBERS_ON_LINES.sub(lambda row: f"[{' '.join(row[1].split())}]", text) + "\n"


def load_feature_map(path: Path) -> FeatureMap:
    """The feature map of a JSON file.

    Raises:
      InputError: The file cannot be read or is not a feature map.
    """
    try:
        with open_regular(path) as file:
            text = file.read(LARGEST_TEXT + 1).decode("utf-8")
    except OSError as error:
        cure = permitted(error, "give a feature map's JSON")
        raise InputError(f"{path}: cannot be read ({error.strerror}); {cure}") from None
    except UnicodeDecodeError:
        raise InputError(
            f"{path}: not a feature map's JSON text; give a file of copriv features fit"
        ) from None
    return FeatureMap.from_json(text, where=str(path))
