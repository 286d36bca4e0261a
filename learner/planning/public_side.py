"""What the learner knows before it talks to anybody: a feature map, and public records under it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.errors import InputError, PrivacyLeakWarning
from common.features import FeatureMap, load_feature_map
from common.losses import LOSSES, PARAMETERS, Loss, loss_of
from common.map_fitting import fit_feature_map
from common.tables import TableSource, count_shared_rows, read_table
from common.terms import Records
from learner.planning.sections import ModelSettings
from learner.planning.settings import StudySettings

__all__ = ["PublicSide", "prepare_public_side"]


@dataclass(frozen=True, kw_only=True)
class PublicSide:
    """What the learner knows before it talks to anybody.

    Args:
      feature_map: The map that it proposes to the owners.
      records: Its public records under this map, or None.
    """

    feature_map: FeatureMap
    records: Records | None

    def loss(self, model: ModelSettings) -> Loss:
        """The loss that a study learns with; parameters left to "auto" follow the public records.

        Raises:
          InputError: A parameter is left to "auto", and the public records do not tell it.
        """
        open_ones = [name for name in PARAMETERS if getattr(model, name) == "auto"]
        if not open_ones:
            return loss_of(model)
        key = f'model.{open_ones[0]} = "auto"'
        if self.records is None or len(self.records) == 0:
            raise InputError(f"{key} needs public records; give features.public, or a NUMBER")
        try:
            return LOSSES[model.loss].fitted(self._residuals)
        except ValueError:
            raise InputError(
                f"{key}: the public records have residuals of 0, which say nothing; give a NUMBER"
            ) from None

    @cached_property
    def _residuals(self) -> NDArray[np.float64]:
        """What least squares on the public records leaves of their targets, shape (n,)."""
        assert self.records is not None  # noqa: S101 (whoever asks has looked)
        x, y = self.records.features, self.records.targets
        fitted: NDArray[np.float64] = x @ np.linalg.lstsq(x, y, rcond=None)[0]
        return y - fitted


def prepare_public_side(settings: StudySettings, *, base: Path) -> PublicSide:
    """Read or fit the feature map, and map the public records.

    Raises:
      InputError: The public records or the saved map do not fit the study.
    """
    features = settings.features
    table, private = None, False
    if features.public is not None:
        table = read_table(features.public, base=base, default_path=settings.data.path)
        private = _warn_of_private_rows(settings, base=base)
    if features.map is not None:
        feature_map = load_feature_map(base / features.map)
    elif table is not None:
        feature_map = fit_feature_map(
            table, features, source=_public_source(settings), private=private
        )
    else:
        raise InputError(
            "features: give map = FILE with a saved feature map, or public = {...} to fit one"
        )
    if feature_map.is_classification != settings.loss_has_classes:
        classes = [name for name, kind in LOSSES.items() if kind.has_classes()]
        raise InputError(
            f"model.loss = {settings.model.loss!r} does not go with the target "
            f"{feature_map.target_name!r}: {' and '.join(classes)} need features.positive, the "
            "others none"
        )
    records = None if table is None else feature_map.apply(table, where="the public records")
    return PublicSide(feature_map=feature_map, records=records)


def _warn_of_private_rows(settings: StudySettings, *, base: Path) -> bool:
    """Whether the public records are also an owner's, as far as this study file can tell."""
    public = settings.features.public
    owners = [entry for entry in settings.owners if entry.data or not entry.address]
    default = settings.data.path
    owners = [entry for entry in owners if default or (entry.data and entry.data.path)]
    if public is None:
        return False
    sources = [entry.data or TableSource() for entry in owners]
    shared = count_shared_rows(public, sources, base=base, default_path=default)
    for entry, count in zip(owners, shared, strict=True):
        if count:
            warnings.warn(
                f"features.public: {count} of its records are also owner {entry.name}'s: the "
                "bounds of every feature and of the target, and all else that is chosen from "
                "public records, tell about private ones; take other records",
                PrivacyLeakWarning,
                stacklevel=2,
            )
    return any(shared)


def _public_source(settings: StudySettings) -> str:
    public = settings.features.public
    path = (public.path if public else None) or settings.data.path
    return path.name if path else ""
