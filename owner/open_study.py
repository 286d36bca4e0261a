"""A study made ready for its queries, from public terms and the shard.

Making one ready may take seconds: a map is read and applied to all records, noise is drawn.
Nothing here touches the ledger, so other studies are answered meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from common.errors import InputError, MalformedError, OrderError
from common.features import FeatureMap
from common.losses import loss_of
from common.own_files import compiled_code_folder
from common.privacy import NoisePlan, plan_noise
from common.terms import StudyTerms
from owner.account import Account
from owner.core import warm
from owner.ledger_rows import LedgerError, StudyEntry, promise_faults
from owner.mechanism import AHEAD_BYTES, DrawnAhead, NoiseFactory
from owner.policy import Policy, check_map, check_map_text, check_policy
from owner.shard import PrivateTable
from owner.shards import AnyShard, Shard, by_moments


@dataclass
class OpenStudy:
    """What answering a study's queries needs.

    Args:
      terms: What was agreed on.
      plan: The noise of each response.
      shard: What exact answers are computed from.
      noise: Drawn ahead of the queries.
      entry: What the ledger holds, as this process last read it; None when a write failed and it
        has to be read again.
      account: Its account, as it was read or written since.
    """

    terms: StudyTerms
    plan: NoisePlan
    shard: AnyShard
    noise: DrawnAhead
    entry: StudyEntry | None = None
    account: Account | None = None

    @property
    def num_bytes(self) -> int:
        """About what it takes of memory, without its shard, which it may share."""
        return AHEAD_BYTES // 8 + 8 * self.plan.dimension + 4 * len(self.terms.feature_map)

    def stop(self) -> None:
        """Draw no more noise."""
        self.noise.stop()


@dataclass(frozen=True, kw_only=True, eq=False)
class StudyMaker:
    """Makes studies ready, by the settings of today.

    Args:
      table: The owner's records.
      policy: What the owner agrees to.
      noise: Where noise comes from.
      insecure_noise: Whether that is a seed.
      pinned_map: The only feature map it accepts, or None.
      allow_private_bounds: Whether maps fitted on private records are accepted.
    """

    table: PrivateTable
    policy: Policy
    noise: NoiseFactory
    insecure_noise: bool
    pinned_map: FeatureMap | None = None
    allow_private_bounds: bool = False

    @cached_property
    def _pinned_text(self) -> str | None:
        """The text of the pinned map."""
        return None if self.pinned_map is None else self.pinned_map.to_json()

    def check_size(self, terms: StudyTerms) -> None:
        """Refuse a map that takes long to read; the owner's own may be of any size.

        Raises:
          PolicyError: It is too large.
        """
        if self._pinned_text is None:
            check_map_text(self.policy, terms.feature_map)

    def check(self, terms: StudyTerms, learner: str) -> None:
        """Refuse a study that this owner's settings do not agree to.

        Raises:
          PolicyError: The policy forbids it; the sentence says what it allows.
        """
        self.check_size(terms)
        check_policy(
            self.policy,
            terms,
            learner=learner,
            num_records=self.table.num_records,
            pinned_map=self._pinned_text,
        )

    def prepare(self, terms: StudyTerms) -> OpenStudy:
        """Everything a study's answers need, computed from checked terms and the shard.

        Raises:
          RefusedError: The text is no feature map, or the map is not for this owner.
          RuntimeError: The noise library promises another epsilon than the terms.
        """
        feature_map = self._feature_map(terms)
        plan = self._planned(terms, feature_map)
        # What answers have in common is computed now, while nobody waits; nothing is released.
        shard = self._shard(terms, feature_map)
        noise = self.noise(plan)
        try:
            promise = noise.epsilon(responses=terms.responses)
            # The noise library's own map has the last word, never a formula of ours alone.
            if promise * terms.kappa > terms.epsilon:
                raise RuntimeError(f"the noise library promises {promise}, not {terms.epsilon}")
            noise.wait()
        except BaseException:
            noise.stop()
            raise
        return OpenStudy(terms, plan, shard, noise)

    def rebuild(self, entry: StudyEntry, terms: StudyTerms) -> OpenStudy:
        """What the ledger's terms ask for, if it is still what was promised and agreed to.

        Args:
          entry: What the ledger says of the study.
          terms: Its agreed terms, read while nobody changed the ledger.

        Raises:
          LedgerError: The ledger is damaged.
          RefusedError: The settings of today do not agree to the study, or the noise is of another
            kind, secure or from a seed.
          RuntimeError: This program would add noise of another scale than was promised.
        """
        faults = promise_faults(entry)
        if faults:
            raise LedgerError(f"the ledger is damaged: {faults[0]}; restore it from a copy")
        # The settings may have changed since: more shards per record, fewer losses, another map.
        self.check(terms, entry.learner)
        if entry.insecure_noise != self.insecure_noise:
            raise OrderError(
                "the study was enrolled under noise of another kind (secure or insecure); "
                "enrol for a new study"
            )
        study = self.prepare(terms)
        if study.plan.noise_scale != entry.noise_scale:
            study.stop()
            raise RuntimeError(
                f"study {entry.study_id} was promised noise of scale {entry.noise_scale}, this "
                f"program would add {study.plan.noise_scale}; use the version that enrolled it"
            )
        return study

    def _shard(self, terms: StudyTerms, feature_map: FeatureMap) -> AnyShard:
        """What the study's answers are computed from; the terms alone decide what that is."""
        make = self.table.moments if by_moments(terms) else self.table.shard
        shard: AnyShard = make(feature_map)
        if isinstance(shard, Shard):
            warm(shard, terms, kept_in=compiled_code_folder)
        return shard

    def _planned(self, terms: StudyTerms, feature_map: FeatureMap) -> NoisePlan:
        """The noise of each response, for the map's public domain."""
        try:
            return plan_noise(terms, feature_map.domain, num_records=self.table.num_records)
        except ValueError as error:
            raise MalformedError(str(error)) from None

    def _feature_map(self, terms: StudyTerms) -> FeatureMap:
        """The map of the terms, if this owner works with it."""
        feature_map = self._read_map(terms.feature_map)
        check_map(self.policy, feature_map, allow_private_bounds=self.allow_private_bounds)
        _check_targets(feature_map, terms)
        return feature_map

    def _read_map(self, text: str) -> FeatureMap:
        """The map of a text; the owner's own was read at the start."""
        if self.pinned_map is not None and text == self._pinned_text:
            return self.pinned_map
        try:
            return FeatureMap.from_json(text)
        except InputError as error:
            raise MalformedError(f"the study's feature map is not valid: {error}") from None


def _check_targets(feature_map: FeatureMap, terms: StudyTerms) -> None:
    """A loss for classes needs targets -1 and +1."""
    has_classes = loss_of(terms).has_classes()
    if has_classes != feature_map.is_classification:
        kind = "classes -1 and +1" if has_classes else "numbers"
        raise MalformedError(f"{terms.loss} loss needs a feature map whose target is {kind}")
