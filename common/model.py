r"""A trained model with the feature map that it needs: ``model.json``, read and used.

.. math:: \text{raw columns} \to x \to z = \theta^\top x \to \text{prediction}

The prediction is :math:`z\cdot\text{scale}+\text{center}` of the target for numbers; for classes it
is 1 where z is above 0, with the probability :math:`1/(1+e^{-z})` under logistic loss. A file may
come from a stranger: it is read in bounded time and memory, or refused in one sentence.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from common.arrays import Matrix, Vector
from common.errors import InputError
from common.features import LARGEST_COUNT, LARGEST_ENTRIES, LARGEST_TEXT, FeatureMap
from common.files import open_regular, permitted
from common.fitting import MOST_PUBLIC_VALUES
from common.losses import LOSSES, Logistic, Loss, loss_of
from common.names import Name
from common.privacy import LARGEST_BOUND
from common.setting_errors import first_fault
from common.texts import printable

FORMAT = "copriv-model/1"
MODEL_FILE = "model.json"
# This many values, and this much of each, are named in a sentence.
NAMED_VALUES, NAMED_CHARACTERS = 6, 40

# No owner takes a larger box, and predictions of a model within it stay finite.
_Coordinate = Annotated[float, Field(ge=-LARGEST_BOUND, le=LARGEST_BOUND)]
_Few = Field(min_length=1, max_length=LARGEST_COUNT + 1, fail_fast=True)
_Numbers = Annotated[tuple[_Coordinate, ...], _Few]


@dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """A linear model over the features of a map.

    Args:
      feature_map: From raw columns to features.
      loss: The loss it was trained with.
      theta: The model, shape (p,).
      public_theta: The model of the public records alone, shape (p,); None where there were none.
      coefficient_noise: Standard error of each raw coefficient and, last, of the intercept, from
        the owners' noise, shape (d + 1,); None where it is unknown.
      unprotected: The owner whose raw records it was made from, without noise; None for a model
        that noise protects.
      personal: Whether that owner adapted it to its own records.
      insecure_noise: Whether its noise came from a seed, which protects nobody.
    """

    feature_map: FeatureMap
    loss: Loss
    theta: Vector
    public_theta: Vector | None = None
    coefficient_noise: Vector | None = None
    unprotected: str | None = None
    personal: bool = False
    insecure_noise: bool = False

    @property
    def has_classes(self) -> bool:
        """Whether it predicts a class instead of a number."""
        return self.feature_map.is_classification

    @property
    def has_probabilities(self) -> bool:
        """Whether its margins mean probabilities."""
        return isinstance(self.loss, Logistic)

    @property
    def meaning_of_one(self) -> str:
        """Which value of the target the prediction 1 stands for; nothing where it is a number."""
        target = self.feature_map.target
        values = target.class_values
        named = [printable(value, NAMED_CHARACTERS) for value in values[:NAMED_VALUES]]
        more = [f"{len(values) - NAMED_VALUES} more"] if len(values) > NAMED_VALUES else []
        return f"{printable(target.name)} = {' or '.join(named + more)}" if named else ""

    def of_public_records(self, *, where: str) -> Model:
        """The model of the public records alone, in the place of this one; it needed nobody.

        Raises:
          InputError: There were none.
        """
        if self.public_theta is None:
            raise InputError(
                f"{where}: no model of public records stands beside this one; take the common one"
            )
        return Model(
            feature_map=self.feature_map,
            loss=self.loss,
            theta=self.public_theta,
            public_theta=self.public_theta,
        )

    def margins(self, features: Matrix, theta: Vector | None = None) -> Vector:
        """The margins z of mapped records, of this model or of another ``theta``, shape (n,)."""
        margins: Vector = features @ (self.theta if theta is None else theta)
        return margins

    def outputs(self, margins: Vector) -> Vector:
        """Margins as what is predicted, in the target's raw units: a number, or a probability.

        Where margins mean no probabilities they stay as they are.
        """
        if self.has_probabilities:
            return 0.5 + 0.5 * np.tanh(0.5 * margins)
        if self.has_classes:
            return margins
        target = self.feature_map.target
        return margins * target.scale + target.center

    def predictions(self, table: pd.DataFrame, *, where: str) -> dict[str, Any]:
        """The columns that a prediction adds to a raw table.

        Returns:
          ``prediction``: numbers in the target's raw units, or the classes 1 (the target is the
          map's positive value) and 0; for classes also ``probability``, or ``score`` where the
          loss knows none.

        Raises:
          InputError: A column is missing.
        """
        margins = self.margins(self.feature_map.features_of(table, where=where))
        outputs = self.outputs(margins)
        if not self.has_classes:
            return {"prediction": outputs}
        _, beside = self.names_added
        return {"prediction": (margins > 0).astype(np.int64), beside: outputs}

    @property
    def names_added(self) -> tuple[str, ...]:
        """The names of the columns of :meth:`predictions`."""
        if not self.has_classes:
            return ("prediction",)
        return ("prediction", "probability" if self.has_probabilities else "score")

    def to_json(self) -> str:
        """The text that :func:`model_from_json` reads."""
        public_theta, noise = self.public_theta, self.coefficient_noise
        table: dict[str, Any] = {
            "unprotected": self.unprotected,
            "personal": self.personal or None,
            "insecure_noise": self.insecure_noise or None,
            "format": FORMAT,
            **self.loss.as_terms(),
            "features": list(self.feature_map.feature_names),
            "theta": self.theta.tolist(),
            "public_theta": None if public_theta is None else public_theta.tolist(),
            "coefficient_noise": None if noise is None else noise.tolist(),
            # Not inside of the map: older programs pass over a key that they do not know here.
            "public_values": list(self.feature_map.target.public_values) or None,
            "feature_map": json.loads(self.feature_map.to_json()),
        }
        kept = {key: value for key, value in table.items() if value is not None}
        return json.dumps(kept, indent=2, allow_nan=False) + "\n"


class _File(BaseModel):
    """``model.json`` as it is written; keys that a later version adds are ignored."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    format: Literal["copriv-model/1"]
    loss: Annotated[str, Field(max_length=40)]
    delta: float | None = None
    theta: _Numbers
    public_theta: _Numbers | None = None
    # In raw units, in which a number may be of any size.
    coefficient_noise: Annotated[tuple[float, ...], _Few] | None = None
    unprotected: Name | None = None
    personal: bool = False
    insecure_noise: bool = False
    public_values: Annotated[tuple[str, ...], Field(max_length=MOST_PUBLIC_VALUES)] = ()
    feature_map: FeatureMap


def read_model(path: Path) -> Model:
    """The model of a run folder, or of a file.

    Raises:
      InputError: There is none, or the file is damaged; the sentence says what is wrong.
    """
    # Path.is_dir raises where a path is too long.
    file = path / MODEL_FILE if os.path.isdir(path) else path
    try:
        with open_regular(file) as opened:
            text = opened.read(LARGEST_TEXT + 1)
    except OSError as error:
        cure = permitted(error, "give the folder of a finished run, or a model's file")
        raise InputError(f"{file}: cannot be read ({error.strerror}); {cure}") from None
    return model_from_json(text, where=str(file))


def model_from_json(text: str | bytes, *, where: str) -> Model:
    """The model of a text, which a stranger may have written.

    Raises:
      InputError: It is not a model of this format, or not a consistent one.
    """
    damaged = (
        "the file is damaged or not a model of copriv; give the folder of a finished run or its "
        "model.json (an export cannot be read back), or restore it from a copy"
    )
    raw = text.encode() if isinstance(text, str) else text
    if len(raw) > LARGEST_TEXT:
        raise InputError(f"{where}: longer than {LARGEST_TEXT >> 20} MB; {damaged}")
    if raw.count(b"[") > 2 * LARGEST_COUNT or raw.count(b",") > LARGEST_ENTRIES:
        raise InputError(f"{where}: more numbers than a model has; {damaged}")
    try:
        return _checked(_File.model_validate_json(raw, strict=True))
    except ValidationError as error:
        key, fault = first_fault(error)
        raise InputError(f"{where}: {key or 'the text'}: {fault}; {damaged}") from None
    except ValueError as error:
        raise InputError(f"{where}: {printable(error)}; {damaged}") from None


def _with_values(file: _File) -> FeatureMap:
    """The map of a file, and the values that the public records' target has."""
    feature_map = file.feature_map
    if not (file.public_values and feature_map.is_classification):
        return feature_map
    target = feature_map.target.model_copy(update={"public_values": file.public_values})
    return feature_map.model_copy(update={"target": target})


def _checked(file: _File) -> Model:
    """The model of a file, if its parts agree."""
    feature_map = _with_values(file)
    loss = loss_of(file)
    if LOSSES[file.loss].has_classes() != feature_map.is_classification:
        raise ValueError(f"{file.loss} loss does not go with the target of its feature map")
    p, d = feature_map.num_features, len(feature_map.columns)
    sizes = (("theta", p), ("public_theta", p), ("coefficient_noise", d + 1))
    vectors: dict[str, Vector | None] = {}
    for name, size in sizes:
        values = getattr(file, name)
        if values is not None and len(values) != size:
            raise ValueError(f"{name} has {len(values)} numbers, expected {size}")
        vectors[name] = None if values is None else np.array(values, dtype=np.float64)
    theta = vectors.pop("theta")
    assert theta is not None  # noqa: S101 (the file must have it)
    return Model(
        feature_map=feature_map,
        loss=loss,
        theta=theta,
        unprotected=file.unprotected,
        personal=file.personal,
        insecure_noise=file.insecure_noise,
        **vectors,
    )
