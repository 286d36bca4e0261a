"""Owners in this process: the owner's own mathematics without a network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from common.arrays import Units
from common.errors import MalformedError, OrderError
from common.features import FeatureMap
from common.losses import LOSSES
from common.own_files import compiled_code_folder
from common.privacy import NoisePlan, plan_noise
from common.terms import Enrollment, OwnerDescription, Query, Records, Response, StudyTerms
from owner.account import MOST_KEPT, Account, Step, next_step, repeats, theta_digest
from owner.core import check_theta, exact_answer, release, seeded_noise, warm
from owner.shards import Shard

UNBOUNDED = Fraction(10**12)


@dataclass
class _Study:
    """A study of an owner in memory."""

    terms: StudyTerms
    plan: NoisePlan
    account: Account
    rng: np.random.Generator | None

    def noise(self) -> Units:
        """The next response's noise in grid units, shape (p,)."""
        if self.rng is None:
            return np.zeros(self.plan.dimension, dtype=np.int64)
        return seeded_noise(self.plan, rng=self.rng)


class _Present:
    """What owners in this process have in common: they are always here."""

    # They work only while somebody waits for them.
    answers_later = False

    def __init__(self, name: str, records: Records) -> None:
        self.name = name
        self._shard = Shard(records)

    def describe(self) -> OwnerDescription:
        """What the owner is; in memory it agrees to whatever it is asked."""
        return OwnerDescription(
            name=self.name,
            num_records=len(self._shard.records),
            columns=(),
            feature_map_digest="",
            epsilon_per_study=UNBOUNDED,
            epsilon_left=UNBOUNDED,
            losses=tuple(LOSSES),
            validation="pooled",
        )

    def send(self, query: Query) -> None:
        """It answers when it is asked."""

    def disconnect(self, *, over: bool = False) -> None:
        """Nothing to disconnect."""


class MemoryOwner(_Present):
    """One owner in memory. Insecure: its noise comes from a seed and its ledger forgets.

    For equal seeds its responses equal those of ``copriv-owner serve --insecure-noise-seed``
    bit for bit.

    Args:
      name: The owner's name.
      records: Its records after the feature map.
      seed: Seed of the noise; None adds none at all, to see what noise costs.
    """

    def __init__(self, name: str, records: Records, *, seed: int | None) -> None:
        super().__init__(name, records)
        self._seed = seed
        self._studies: dict[str, _Study] = {}

    def enroll(self, terms: StudyTerms) -> Enrollment:
        """Agree on a study; the same terms again return the same enrolment.

        Raises:
          MalformedError: The terms ask for noise that no integer holds.
        """
        study = self._studies.get(terms.study_id)
        if study is None or study.terms != terms:
            domain = FeatureMap.from_json(terms.feature_map).domain
            try:
                plan = plan_noise(terms, domain, num_records=len(self._shard.records))
            except ValueError as error:
                raise MalformedError(f"owner {self.name}: {error}") from None
            rng = None if self._seed is None else np.random.default_rng(self._seed)
            warm(self._shard, terms, kept_in=compiled_code_folder)
            study = _Study(terms, plan, Account(promised=terms.responses), rng)
            self._studies[terms.study_id] = study
        return Enrollment(
            num_records=len(self._shard.records),
            responses=terms.responses,
            answered=study.account.answered,
            noise_scale=study.plan.noise_scale,
            epsilon=terms.epsilon,
            insecure_noise=True,
            repeats=repeats(study.plan.response_bytes),
        )

    def answer(self, query: Query) -> Response:
        """One noised mean gradient, by the same rules of order as any owner."""
        study = self._enrolled(query.study_id)
        check_theta(
            query.theta, dimension=self._shard.num_features, theta_max=study.terms.theta_max
        )
        digest, size = theta_digest(query.theta), study.plan.response_bytes
        step = next_step(study.account, sequence=query.sequence, digest=digest, size=size)
        if step is Step.REPLAY:
            stored = study.account.response(query.sequence, size=size)
            gradient = np.frombuffer(stored, dtype="<f8")
        else:
            exact = exact_answer(self._shard, query.theta, study.terms)
            gradient = release(exact, study.noise(), study.plan)
            stored = gradient.astype("<f8").tobytes()
            study.account = study.account.charged(digest=digest, response=stored)
        return Response(study_id=query.study_id, sequence=query.sequence, gradient=gradient)

    def offer(self, study_id: str) -> bool:
        """An owner in memory always listens."""
        account = self._enrolled(study_id).account
        return account.answered < account.promised

    def close(self, study_id: str) -> None:
        """End the study."""
        study = self._enrolled(study_id)
        study.account = replace(study.account, closed=True)

    def _enrolled(self, study_id: str) -> _Study:
        """An open study of this name."""
        if study_id not in self._studies:
            raise OrderError("no such study was enrolled by this learner; enrol first")
        return self._studies[study_id]


class LocalShard(_Present):
    """The shard of the owner that is the learner: asked exactly, without noise and charge.

    Its gradients are clipped as all owners' are, though nothing has to be hidden: a clip bends the
    mean gradient, and owners that do not bend it alike pull the model towards the unclipped one's.

    Guarantees:
      * Nothing is sent anywhere: the shard is in this process.
      * The epsilon spent is 0, because nothing is released; what is made of the answers
        (models, queries to others) is as private as the records themselves.

    Args:
      name: The owner's name in the study.
      records: Its records after the feature map.

    References: section V of Wu et al. (2020).
    """

    def __init__(self, name: str, records: Records) -> None:
        super().__init__(name, records)
        self._terms: StudyTerms | None = None

    def enroll(self, terms: StudyTerms) -> Enrollment:
        """Its own study, at no cost; answers are not counted."""
        self._terms = terms
        warm(self._shard, terms, kept_in=compiled_code_folder)
        return Enrollment(
            num_records=len(self._shard.records),
            responses=terms.responses,
            answered=0,
            noise_scale=0.0,
            epsilon=Fraction(0),
            insecure_noise=False,
            repeats=MOST_KEPT,
        )

    def answer(self, query: Query) -> Response:
        """The exact answer to the terms, without noise."""
        if self._terms is None:
            raise OrderError("the learner's own shard is in no study; enrol first")
        exact = exact_answer(self._shard, query.theta, self._terms)
        return Response(study_id=query.study_id, sequence=query.sequence, gradient=exact)

    def offer(self, study_id: str) -> bool:
        """It is always there."""
        del study_id
        return True

    def close(self, study_id: str) -> None:
        """Nothing was reserved."""
