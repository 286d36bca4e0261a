"""What a model is worth on an owner's own records: computed at home, for the owner alone, free.

No query is answered and nothing is charged, because nothing leaves: what is printed and what is
written are as private as the records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from common.arrays import Flags, Indices, Vector
from common.best_fit import fit_near
from common.column_faults import warn_of_misfits
from common.errors import InputError
from common.judging import Judged, Sample, judge, sample_of
from common.model import Model, read_model
from common.quality import Estimate
from common.terms import Records
from common.texts import counted
from owner.loading import load_records, title_of
from owner.policy import OwnerSettings

FOLDS = 5
# An owner with fewer records learns nothing that a comparison could distinguish from chance.
FEWEST_RECORDS = 4 * FOLDS
# The owner's own model is held near 0 only as far as a study's default holds it.
OWN_WEIGHT = 1e-5
# From nearly its own model to nearly the common one.
WEIGHTS = tuple(float(w) for w in np.geomspace(1e-4, 1e2, 10))
SEED = 20210921


@dataclass(frozen=True, kw_only=True, eq=False)
class AtHome:
    """How models do on an owner's records, and the common one adapted to them.

    Args:
      judged: The quality of "common", "public", "own" and "personal"; the last two by
        cross-validation, so that no model is judged on records that it was fitted to.
      personal: The common model adapted to all records; None where there are too few.
      weight: How strongly that is held near the common model; None as above.
    """

    judged: Judged
    personal: Model | None
    weight: float | None


def evaluate_at_home(
    settings: OwnerSettings,
    *,
    base: Path,
    run: Path,
    on_fit: Callable[[int, int], None] = lambda done, total: None,
) -> AtHome:
    """Judge a run's model on an owner's records, and adapt it to them.

    Args:
      settings: The owner's settings.
      base: The folder of their file.
      run: A run folder, or a model's file.
      on_fit: Called with the number of models fitted, and how many there will be.

    Raises:
      InputError: The records or the model cannot be used.
    """
    model = read_model(run)
    raw = load_records(settings, base=base, pinned=model.feature_map).raw
    where = title_of(settings)
    sample = sample_of(model, raw, where=where)
    warn_of_misfits({where: sample.table}, model.feature_map)
    margins = sample.margins()
    if len(sample) < FEWEST_RECORDS:
        return AtHome(judged=judge(sample, margins), personal=None, weight=None)
    bent = _Bent(sample, on_fit)
    judged = judge(sample, margins | {"own": bent.alone, "personal": bent.personal})
    theta = fit_near(sample.records, model.loss, center=model.theta, weight=bent.weight)
    personal = replace(
        model, theta=theta, coefficient_noise=None, unprotected=settings.name, personal=True
    )
    return AtHome(judged=judged, personal=personal, weight=bent.weight)


class _Bent:
    """Margins of the owner's own model and of adapted ones on records they were not fitted to.

    Every weight's models are fitted on all folds but one. What "personal" means for a fold is the
    weight that is best on the other folds, so the choice does not see the records it is judged on.
    """

    def __init__(self, sample: Sample, on_fit: Callable[[int, int], None]) -> None:
        self._sample = sample
        self._folds = _folds(len(sample))
        self._on_fit, self._fitted = on_fit, 0
        model = sample.model
        self.alone = self._held_out(np.zeros_like(model.theta), OWN_WEIGHT)
        by_weight = {weight: self._held_out(model.theta, weight) for weight in WEIGHTS}
        self.weight = self._best(by_weight, np.ones(len(sample), dtype=bool))
        self.personal = np.zeros(len(sample))
        for fold in range(FOLDS):
            here = self._folds == fold
            self.personal[here] = by_weight[self._best(by_weight, ~here)][here]

    def _held_out(self, center: Vector, weight: float) -> Vector:
        """Each record's margin by a model that has not seen it."""
        records, margins = self._sample.records, np.zeros(len(self._sample))
        for fold in range(FOLDS):
            here = self._folds == fold
            kept = Records(features=records.features[~here], targets=records.targets[~here])
            theta = fit_near(kept, self._sample.model.loss, center=center, weight=weight)
            margins[here] = records.features[here] @ theta
            self._fitted += 1
            self._on_fit(self._fitted, FOLDS * (1 + len(WEIGHTS)))
        return margins

    def _best(self, by_weight: Mapping[float, Vector], where: Flags) -> float:
        """The weight whose models lose least on some of the records."""
        loss, targets = self._sample.model.loss, self._sample.records.targets

        def mean_loss(weight: float) -> float:
            return float(np.mean(loss.values(by_weight[weight][where], targets[where])))

        return min(by_weight, key=mean_loss)


def _folds(num_records: int) -> Indices:
    """The fold of each record, at random and as many in each, shape (n,)."""
    places = np.random.default_rng(SEED).permutation(num_records)
    folds = np.empty(num_records, dtype=np.intp)
    folds[places] = np.arange(num_records) % FOLDS
    return folds


def advice(judged: Judged) -> str:
    """Which model to use: the common one, unless another is better beyond chance."""
    others = {name: gap for name, gap in judged.better_by.items() if _is_beaten(gap)}
    if "own" not in judged.models:
        return (
            f"Use the common model: {counted(judged.records, 'record')} "
            f"{'is' if judged.records == 1 else 'are'} too few to learn from; "
            f"{FEWEST_RECORDS} would do."
        )
    if not others:
        return (
            "Use the common model: no other is better on these records beyond chance; its noise "
            "protects it, so it may be shown."
        )
    best = min(others, key=lambda name: others[name].value or 0.0)
    means = {
        "personal": "the common model adapted to your records (copriv-owner personalise)",
        "own": "a model of your records alone, by a program of your own, or the personal one "
        "(copriv-owner personalise); both are as private as the records",
        "public": "the model of the public records; this study taught nothing about your records",
    }
    return f"Use {means[best]}: it is better than the common model beyond chance."


def _is_beaten(gap: Estimate) -> bool:
    """Whether the common model loses to the other one, interval included."""
    return gap.high is not None and gap.high < 0


def check_personal(found: AtHome) -> Model:
    """The personal model.

    Raises:
      InputError: There are too few records to adapt a model to.
    """
    if found.personal is None:
        raise InputError(
            f"{counted(found.judged.records, 'record')} with a readable target "
            f"{'is' if found.judged.records == 1 else 'are'} too few to adapt a model to; give at "
            f"least {FEWEST_RECORDS}"
        )
    return found.personal
