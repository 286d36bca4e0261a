"""What the audit attacks: kinds of study, and neighbouring shards that a record makes as unlike.

The shards are built so that the record moves a response as far as the promise allows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

from common.features import FeatureMap
from common.fitting import ColumnRule, TargetRule
from common.losses import LOSSES, Logistic, Loss, Squared
from common.release import Release
from common.releases import GRADIENT, MOMENTS, NEWTON, VALIDATION, curvature_scale, gradient_bound
from common.terms import StudyTerms

NUM_RECORDS = 10
# Raw values far outside the public bounds: they count only if clamping does its work.
FAR_OUTSIDE = 1e6
THETA_MAX = 0.01
# The second feature is small, so that nearly the whole change shows in the first coordinate.
SECOND_BOUND = 0.01
# Without its clip a gradient would be this many times larger.
CLIPPED_BY = 20.0


@dataclass(frozen=True)
class AuditCase:
    """One kind of study to attack: a loss, with the domain's bound or with a clip.

    Args:
      loss: The loss.
      clipped: Whether gradients are clipped.
      release: What the owner answers with.
      curvature_share: The share of epsilon that a curvature has, where it is released.
      along: The first coordinate of the models that are asked with. Where a validation is
        attacked, the record's loss is nearly 0 on the one side and beyond its bound on the other.
    """

    loss: Loss
    clipped: bool
    release: Release = GRADIENT
    curvature_share: float | None = None
    along: float = 0.0

    @property
    def theta_max(self) -> float:
        """Half the side of the box."""
        return max(THETA_MAX, self.along)

    @property
    def name(self) -> str:
        """What the table calls it."""
        bound = "clip" if self.clipped else "domain"
        kind = bound if self.release is GRADIENT else self.release.name
        return f"{self.loss.name}, {kind}{' (curvature)' if self.attacks_curvature else ''}"

    @property
    def attacks_curvature(self) -> bool:
        """Whether the neighbours differ in curvature rather than in gradient."""
        return self.curvature_share is not None and self.curvature_share > 0.5

    @property
    def bounds(self) -> tuple[float, float]:
        """Bounds of the two features.

        Of the moments, X'y alone may change its sign; small features make it nearly all. Where
        curvatures are attacked, each side has one feature, and neither has both.
        """
        if self.attacks_curvature:
            return 1.0, 1.0
        first = 0.05 if self.release is MOMENTS else 1.0
        return first, SECOND_BOUND * first

    def trials(self, trials: int) -> int:
        """Responses of each shard: half as many where each costs a study of its own."""
        return trials if self.release.most_responses is None else trials // 2


CASES = (
    *(AuditCase(kind.example(), clipped) for kind in LOSSES.values() for clipped in (False, True)),
    AuditCase(Squared(), clipped=False, release=MOMENTS),
    # A replaced record may turn its gradient round, and take its curvature away.
    AuditCase(Squared(), clipped=True, release=NEWTON, curvature_share=0.02),
    AuditCase(Logistic(), clipped=False, release=NEWTON, curvature_share=0.98),
    # Its loss with a difference to a reference, and its loss with a table.
    AuditCase(Squared(), clipped=False, release=VALIDATION, along=1.0),
    AuditCase(Logistic(), clipped=False, release=VALIDATION, along=10.0),
)


@dataclass(frozen=True)
class Neighbour:
    """One of two shards that differ in their first record: side 0 or 1."""

    case: AuditCase
    side: int

    @property
    def feature_map(self) -> FeatureMap:
        """Two features and a target, all bounded by 1 or less."""
        classes, bounds = self.case.loss.has_classes(), self.case.bounds
        columns = tuple(
            ColumnRule(name=f"x{j}", kind="number", fill=0.0, low=-b, high=b, center=0.0, scale=1.0)
            for j, b in enumerate(bounds)
        )
        target = TargetRule(
            name="y", positive="1" if classes else None, bound=1.0, fill=-1.0 if classes else 0.0
        )
        return FeatureMap(
            source="audit",
            num_public_records=1,
            target=target,
            intercept=False,
            l1_radius=1.0 if self.case.attacks_curvature else None,
            bounds=bounds,
            columns=columns,
        )

    @property
    def table(self) -> pd.DataFrame:
        """All records but the first say nothing; the first one says as much as it can.

        Its gradient at theta = 0 is -y times its features: the other side's is the opposite in
        the first coordinate. The second feature changes sign too, so that what two questions'
        answers differ by also distinguishes the sides. Where curvatures are attacked, the one
        side has the first feature alone, and the other the second: two products change by as much
        as all may together.
        """
        sign = 1.0 - 2.0 * self.side
        x0 = np.zeros(NUM_RECORDS)
        x1 = np.zeros(NUM_RECORDS)
        y = np.zeros(NUM_RECORDS)
        if self.case.attacks_curvature:
            (x0, x1)[self.side][0], y[0] = FAR_OUTSIDE, 1.0
        else:
            x0[0], x1[0], y[0] = FAR_OUTSIDE, sign * FAR_OUTSIDE, sign
        if not self.case.loss.has_classes():
            y[0] *= FAR_OUTSIDE
        return pd.DataFrame({"x0": x0, "x1": x1, "y": y})

    def terms(self, *, responses: int, epsilon: Fraction) -> StudyTerms:
        """A study of this many responses of this much epsilon each."""
        slope = abs(float(self.case.loss.slopes(np.zeros(1), np.ones(1))[0]))
        clip = slope * (1.0 + SECOND_BOUND) / CLIPPED_BY
        terms = StudyTerms(
            study_id="audit",
            **self.case.loss.as_terms(),
            theta_max=self.case.theta_max,
            feature_map=self.feature_map.to_json(),
            horizon=responses,
            responses=responses,
            epsilon=epsilon * responses,
            clip=clip if self.case.clipped else None,
            release=self.case.release.name,
        )
        if self.case.release is VALIDATION:
            return replace(terms, **self._validation)
        if self.case.curvature_share is None:
            return terms
        domain = self.feature_map.domain
        bound = gradient_bound(terms, domain)
        factor = curvature_scale(
            self.case.loss, domain, bound=bound, share=self.case.curvature_share
        )
        return replace(terms, curvature_scale=factor)

    @property
    def _validation(self) -> dict[str, Any]:
        """Bounds that the record reaches on both sides; numbers are compared, classes counted."""
        if self.case.loss.has_classes():
            return {"loss_bound": 1.0, "edges": (0.0,)}
        # This model is as wrong about the one side as the other is about the other.
        reference = (-self.case.along, 0.0)
        return {"loss_bound": 0.5, "difference_bound": 0.5, "reference": reference}
