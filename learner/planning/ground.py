"""What all ways of learning a study are decided and forecast on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from common.arrays import Vector
from learner.planning.boxes import both_classes_tell
from learner.planning.public_side import PublicSide, known_groups, public_groups
from learner.planning.settings import StudySettings
from learner.simulated.groups import PublicGroups
from learner.simulated.surrogates import worlds_to_choose_in
from learner.simulated.twin import deal
from learner.simulated.world import World

FORECAST_SEED = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Ground:
    """What all ways of learning a study are decided and forecast on, computed once.

    Args:
      settings: The study; of its algorithm nothing is looked at.
      public: The feature map and the public records.
      num_records: Each owner's n_i.
      seed: The clocks' seed.
    """

    settings: StudySettings
    public: PublicSide
    num_records: tuple[int, ...]
    seed: int

    @cached_property
    def groups(self) -> PublicGroups:
        """The public records in groups.

        Raises:
          InputError: There are none, or fewer than features.
        """
        return public_groups(self.public, self.public.problem(self.settings))

    @property
    def sizes(self) -> Vector:
        """Each owner's n_i, shape (N,)."""
        return np.array(self.num_records, dtype=np.float64)

    @property
    def gradient_bound(self) -> float:
        """The bound Xi on one record's gradient that the public bounds give."""
        return self.groups.problem.gradient_bound(self.public.feature_map.domain)

    @property
    def known(self) -> tuple[int | None, ...]:
        """The group of public records that each owner is known to be."""
        return known_groups(self.public, self.settings)

    @property
    def knows_every_owner(self) -> bool:
        """Whether public records of its own group stand for every owner."""
        return all(group in self.groups.usable for group in self.known)

    @cached_property
    def choice_worlds(self) -> list[World]:
        """Where designs are compared."""
        return worlds_to_choose_in(self.groups, self.sizes, self.known)

    @cached_property
    def step_worlds(self) -> list[World]:
        """Where steps from the public model are compared: how far owners are decides them.

        Where public records of its own group stand for every owner, they tell, and nothing more is
        assumed.
        """
        if not self.knows_every_owner:
            return self.choice_worlds
        return worlds_to_choose_in(self.groups, self.sizes, self.known, assumed=0.0)

    @cached_property
    def forecast_worlds(self) -> list[World]:
        """Where a study is forecast."""
        return deal(
            self.groups,
            self.sizes,
            known=self.known,
            worlds=self.settings.forecast.worlds,
            rng=np.random.default_rng(FORECAST_SEED),
        )

    @property
    def trusts_public_model(self) -> bool:
        """Whether the public records are enough for a model to take one step from.

        A model of classes that fits its own records and no others is worth nothing where owners
        are, and forecasts from the same records know it no better. Where there are too few to tell,
        cross-validation does, but only where Newton's steps can be taken, which go as far as the
        owners tell: not of a loss with kinks.

        Raises:
          InputError: There are no public records, or fewer than features.
        """
        if not self.settings.loss_has_classes or both_classes_tell(self.groups.records):
            return True
        has_steps = self.groups.problem.loss.curvature is not None
        return has_steps and not self.groups.outside.is_overfit

    @property
    def can_forecast(self) -> bool:
        """Whether there are public records enough."""
        records = self.public.records
        return records is not None and len(records) >= self.public.feature_map.num_features
