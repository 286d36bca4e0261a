"""A study with everything public that its forecast needs, and the studies that it could also be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from common.config import PROMISED
from common.names import not_among
from learner.algorithms.table import ALGORITHMS
from learner.planning.ground import Ground
from learner.planning.public_side import PublicSide
from learner.planning.roles import with_own_rate
from learner.planning.sections import AUTO, LearnerSettings, with_profile_defaults
from learner.planning.settings import StudySettings
from learner.planning.ways import WAYS, as_way
from learner.simulated.groups import PublicGroups

COMPARED = (*WAYS, "published", "synchronous-1", "synchronous-2")
PUBLISHED_HORIZON, PUBLISHED_ROUNDS = 1000, 100


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """A study with everything public that its forecast needs.

    Args:
      settings: The study.
      public: The feature map, the public records, and the groups that owners are known to be.
      num_records: Each owner's n_i.
    """

    settings: StudySettings
    public: PublicSide
    num_records: tuple[int, ...]

    @property
    def groups(self) -> PublicGroups:
        """The public records in groups.

        Raises:
          InputError: There are no public records, or fewer than features.
        """
        return self.ground.groups

    @cached_property
    def ground(self) -> Ground:
        """What it is decided and forecast on."""
        return Ground(
            settings=self.settings,
            public=self.public,
            num_records=self.num_records,
            seed=self.settings.seed or 0,
        )

    def with_owners(self, kept: Sequence[int]) -> Candidate:
        """The study of some of its owners, each as often as it is named."""
        entries, given = [], self.settings.forecast
        availability: dict[str, float] = {}
        taken = {entry.name for entry in self.settings.owners}
        for place, owner in enumerate(kept):
            entry = its = self.settings.owners[owner]
            if place >= len(self.settings.owners):
                # A copy of an owner is another one of the kind, not the same group once more, and
                # it would serve elsewhere.
                name = not_among(taken, f"{its.name[:56]}-{place}")
                taken.add(name)
                entry = its.model_copy(update={"name": name, "address": None})
            entries.append(entry)
            availability[entry.name] = given.availability_of.get(its.name, given.availability)
        names = {entry.name for entry in entries}
        groups = (tuple(n for n in group if n in names) for group in self.settings.groups)
        changes: dict[str, Any] = {
            "owners": tuple(entries),
            "groups": tuple(group for group in groups if group),
            "forecast": given.model_copy(update={"availability_of": availability}),
        }
        if self.settings.learner.own not in names:
            changes["learner"] = LearnerSettings()
        return replace(
            self,
            settings=self.settings.model_copy(update=changes),
            num_records=tuple(self.num_records[owner] for owner in kept),
        )

    def with_epsilon(self, factors: Sequence[float], more: Sequence[float] = ()) -> Candidate:
        """Every budget times its factor, plus this much more."""
        added = more or (0.0,) * len(factors)
        entries = []
        for entry, factor, extra in zip(self.settings.owners, factors, added, strict=True):
            epsilon = self.settings.promised(entry)
            changed = float(epsilon) * factor + extra
            entries.append(entry.model_copy(update={"epsilon": type(epsilon)(f"{changed:.9g}")}))
        return replace(self, settings=self.settings.model_copy(update={"owners": tuple(entries)}))

    def with_sizes(self, factor: float) -> Candidate:
        """Every shard times a factor."""
        sizes = tuple(max(1, round(n_i * factor)) for n_i in self.num_records)
        return replace(self, num_records=sizes)

    def with_algorithm(self, name: str) -> Candidate:
        """The same owners and budgets by another of ``COMPARED``, or by the best of all ways."""
        if name in WAYS or name == AUTO:
            return replace(self, settings=as_way(self.settings, name))
        algorithm = {"name": name, "horizon": PUBLISHED_ROUNDS, "step": "auto"}
        if name == "published":
            algorithm = {"name": "asynchronous", "horizon": PUBLISHED_HORIZON, "step": "auto"}
        return self._changed(algorithm=algorithm)

    def with_design(
        self, *, horizon: int | None = None, clip: str | None = None, split: str | None = None
    ) -> Candidate:
        """The same study with another horizon, clip or split, and the step that goes with it."""
        given, asked = self.settings.algorithm, self.settings.privacy
        keys: dict[str, Any] = {"name": given.name, "step": "auto"}
        keys["horizon"] = horizon or given.horizon
        kind = given.kind
        if "average" in kind.uses:
            keys["average"] = given.average
        if given.rule is not None:
            keys["rule"] = given.rule
        if "start" in kind.uses:
            keys["start"] = given.start
        privacy = asked.model_dump(exclude_none=True)
        if clip is not None:
            privacy.pop("clip", None)
            privacy["sensitivity"] = "domain" if clip == "domain" else "clip"
            privacy |= {"clip": "auto"} if clip == "auto" else {}
        if split is not None:
            privacy["split"] = split
        if kind.is_schedulable and privacy["split"] != asked.split:
            own_rates = bool(with_own_rate(self.settings))
            keys, privacy = with_profile_defaults(keys, privacy, own_rates=own_rates)
        else:
            keys |= {key: getattr(given, key) for key in {"clocks", "correction"} & kind.uses}
        return self._changed(algorithm=keys, privacy=privacy)

    def is_like(self, other: Candidate) -> bool:
        """Whether both are the same study, whatever filled its settings."""
        tables = [
            which.settings.model_dump(exclude={"profile", "forecast"}) for which in (self, other)
        ]
        return tables[0] == tables[1] and self.num_records == other.num_records

    def _changed(
        self,
        *,
        algorithm: Mapping[str, Any],
        privacy: Mapping[str, Any] | None = None,
    ) -> Candidate:
        table = self.settings.model_dump(exclude_none=True)
        kept = self.settings.privacy.model_dump(include=PROMISED)
        if "groups" not in ALGORITHMS[algorithm["name"]].uses:
            table.pop("groups", None)
        table |= {
            "profile": "published",
            "features": self.settings.features,
            "algorithm": dict(algorithm),
            "privacy": dict(privacy or {}) | kept,
        }
        return replace(self, settings=StudySettings.model_validate(table))
