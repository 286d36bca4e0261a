"""One data owner: what it says of itself, the studies it agrees to, the queries it answers.

The order of the lines in :meth:`DataOwner.answer` is the privacy promise: check, compute,
charge and store durably, and only then return.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from common.errors import (
    BudgetSpentError,
    BusyError,
    InputError,
    MalformedError,
    OrderError,
    PolicyError,
)
from common.features import FeatureMap
from common.losses import loss_of
from common.privacy import NoisePlan, plan_noise, rounded_down
from common.terms import Enrollment, OwnerDescription, Query, Response, StudyTerms
from owner.access import Access
from owner.core import (
    Shard,
    Step,
    check_theta,
    exact_answer,
    next_step,
    release,
    theta_digest,
)
from owner.ledger import Ledger
from owner.ledger_rows import (
    LedgerError,
    StudyEntry,
    epsilon_uncounted,
    promise_faults,
)
from owner.listening import Listening, ListeningSettings
from owner.mechanism import DrawnAhead, NoiseFactory
from owner.policy import Policy, check_map, check_policy, check_terms
from owner.shard import PrivateTable

__all__ = ["DataOwner"]

log = logging.getLogger("copriv.owner")

# Studies held ready, each with its noise drawn ahead; more are rebuilt when they ask again.
OPEN_STUDIES = 16


@dataclass
class _OpenStudy:
    """What answering a study's queries needs.

    ``entry`` is what the ledger holds, as this process last wrote or read it; None when a
    write failed and the ledger has to be read again.
    """

    terms: StudyTerms
    plan: NoisePlan
    shard: Shard
    noise: DrawnAhead
    entry: StudyEntry | None = None


class DataOwner:
    """One owner's records, budget and noise behind four calls.

    Requests are refused in this order: who asks, how often, a message that is malformed, a
    study that is not there or closed, the policy, the budget, and what only the records'
    columns can tell.

    Guarantees:
      * ``charged_before_released``: a response is returned only after its charge is durable.
      * ``retry_is_replayed``: the last query again gives the same bytes and charges nothing.
      * Every refusal charges nothing.
    """

    def __init__(
        self,
        *,
        name: str,
        table: PrivateTable,
        ledger: Ledger,
        policy: Policy,
        access: Access,
        pinned_map: FeatureMap | None,
        noise: NoiseFactory,
        insecure_noise: bool,
        allow_private_bounds: bool = False,
        listening: ListeningSettings | None = None,
    ) -> None:
        self._name = name
        self._table = table
        self._ledger = ledger
        self._policy = policy
        self._access = access
        self._pinned_map = pinned_map
        self._noise = noise
        self._insecure_noise = insecure_noise
        self._allow_private_bounds = allow_private_bounds
        self._open: OrderedDict[str, _OpenStudy] = OrderedDict()
        self._listening = Listening(listening or ListeningSettings(), pause=time.sleep)
        # One query at a time: sequence check, charge and release must not interleave.
        self._lock = threading.Lock()
        # What is known of kappa today counts for the studies of yesterday too.
        uncounted = epsilon_uncounted(ledger.studies(), kappa=policy.kappa)
        self._lifetime = policy.epsilon_lifetime - uncounted
        # A lifetime budget that was lowered after it was promised away.
        self._overcommitted = ledger.epsilon_held() > self._lifetime

    @property
    def access(self) -> Access:
        """Who may ask."""
        return self._access

    def describe(self, *, learner: str) -> OwnerDescription:
        """What the owner is and what it would agree to."""
        self._access.admit_query(learner)
        with self._lock:
            left = self._lifetime - self._ledger.epsilon_held()
        return OwnerDescription(
            name=self._name,
            num_records=self._table.num_records,
            columns=self._table.columns,
            feature_map_digest=self._pinned_map.digest if self._pinned_map else "",
            epsilon_per_study=self._policy.epsilon_per_study,
            epsilon_left=rounded_down(max(left, Fraction(0))),
            losses=self._policy.losses,
        )

    def enroll(self, terms: StudyTerms, *, learner: str) -> Enrollment:
        """Agree on a study and reserve its epsilon; the same terms again change nothing.

        Raises:
          RefusedError: Malformed, against the policy, or more than the budget has left.
        """
        self._access.admit_query(learner)
        check_terms(terms)
        with self._lock:
            entry = self._ledger.study(terms.study_id)
            if entry is None:
                self._agree(terms, learner)
            elif entry.learner != learner or not entry.agrees_with(terms):
                raise PolicyError("this study was enrolled with other terms or by another learner")
            study, entry = self._study(terms.study_id, learner)
        return Enrollment(
            num_records=self._table.num_records,
            responses=entry.account.promised,
            answered=entry.account.answered,
            noise_scale=study.plan.noise_scale,
            epsilon=entry.epsilon,
            insecure_noise=self._insecure_noise,
        )

    def answer(self, query: Query, *, learner: str) -> Response:
        """One charged, noised response; or the last one again.

        Raises:
          RefusedError: Out of order, outside the box, or nothing left; nothing is charged.
        """
        self._access.admit_query(learner)
        with self._lock:
            study, entry = self._study(query.study_id, learner)
            check_theta(
                query.theta,
                dimension=study.shard.num_features,
                theta_max=study.terms.theta_max,
            )
            digest = theta_digest(query.theta)
            step = next_step(entry.account, sequence=query.sequence, digest=digest)
            if step is Step.REPLAY:
                stored = np.frombuffer(entry.account.last_response, dtype="<f8")
                return _response(query, stored)
            self._check_lifetime(entry)
            gradient = exact_answer(study.shard, query.theta, study.terms)
            response = release(gradient, study.noise.draw(), study.plan)
            stored_bytes = response.astype("<f8").tobytes()
            # Whether a charge that fails is on the disk, only the disk can tell.
            study.entry = None
            # Charged before released: durable here, and only then may a byte leave.
            self._ledger.charge(
                study_id=query.study_id,
                sequence=query.sequence,
                digest=digest,
                response=stored_bytes,
            )
            account = entry.account.charged(digest=digest, response=stored_bytes)
            study.entry = replace(entry, account=account)
            return _response(query, response)

    def offer(self, study_id: str, *, learner: str) -> bool:
        """Whether the owner would take a query of this study now; charges nothing either way.

        Raises:
          RefusedError: The study is not this learner's, or is closed.
        """
        # Whoever answers another query, or too many of them, is not listening.
        try:
            self._access.admit_query(learner)
        except BusyError:
            return False
        if not self._lock.acquire(blocking=False):
            return False
        try:
            account = self._study(study_id, learner)[1].account
        finally:
            self._lock.release()
        return account.answered < account.promised and self._listening.accepts()

    def close(self, study_id: str, *, learner: str) -> StudyEntry:
        """End a study; what it did not use returns to the lifetime budget."""
        self._access.admit_query(learner)
        with self._lock:
            self._entry(study_id, learner)
            self._ledger.close_study(study_id)
            study = self._open.pop(study_id, None)
            entry = self._entry(study_id, learner)
        if study is not None:
            study.noise.stop()
        return entry

    def charges(self) -> int:
        """Responses charged to the ledger, over all studies."""
        with self._lock:
            return self._ledger.responses

    def epsilon_held(self) -> float:
        """What all studies together take of the lifetime budget."""
        with self._lock:
            return float(self._ledger.epsilon_held())

    def epsilon_left(self) -> float:
        """What is left of the lifetime budget."""
        with self._lock:
            left = self._lifetime - self._ledger.epsilon_held()
        return max(float(left), 0.0)

    def stop(self) -> None:
        """Stop drawing noise and release the ledger."""
        with self._lock:
            for study in self._open.values():
                study.noise.stop()
            self._open.clear()
            self._ledger.close()

    def _agree(self, terms: StudyTerms, learner: str) -> None:
        """Check a new study against policy and budget, and reserve its epsilon."""
        self._access.admit_enrollment(learner)
        self._check_policy(terms, learner)
        # Asked again when the budget is reserved; here it spares the work of a vain enrolment.
        self._ledger.check_left(terms.epsilon, lifetime=self._lifetime)
        study = self._prepare(terms)
        try:
            self._ledger.open_study(
                terms,
                learner=learner,
                noise_scale=study.plan.noise_scale,
                insecure_noise=self._insecure_noise,
                lifetime=self._lifetime,
            )
        except BaseException:
            study.noise.stop()
            raise
        self._hold(terms.study_id, study)
        log.info("enrolled study %s for learner %s", terms.study_id, learner)

    def _check_policy(self, terms: StudyTerms, learner: str) -> None:
        """Refuse a study that this owner's settings do not agree to."""
        check_policy(
            self._policy,
            terms,
            learner=learner,
            num_records=self._table.num_records,
            pinned_map=self._pinned_map.to_json() if self._pinned_map else None,
        )

    def _check_lifetime(self, entry: StudyEntry) -> None:
        """Refuse a response beyond a lifetime budget that was lowered after its promise."""
        if self._overcommitted:
            spent = self._ledger.epsilon_spent() + entry.epsilon / entry.account.promised
            if spent > self._lifetime:
                raise BudgetSpentError(
                    "the owner has lowered its lifetime budget; nothing of it is left"
                )

    def _entry(self, study_id: str, learner: str) -> StudyEntry:
        """The ledger's entry of a study, if it is this learner's."""
        entry = self._ledger.study(study_id)
        if entry is None or entry.learner != learner:
            raise OrderError("no such study was enrolled by this learner; enrol first")
        return entry

    def _study(self, study_id: str, learner: str) -> tuple[_OpenStudy, StudyEntry]:
        """An open study of this learner; after a restart it is rebuilt from the ledger's terms."""
        study = self._open.get(study_id)
        entry = study.entry if study is not None else None
        if entry is None or entry.learner != learner:
            entry = self._entry(study_id, learner)
        if entry.account.closed:
            raise OrderError("the study is closed; enrol for a new study")
        if study is None:
            study = self._rebuilt(entry)
            self._hold(study_id, study)
        self._open.move_to_end(study_id)
        study.entry = entry
        return study, entry

    def _rebuilt(self, entry: StudyEntry) -> _OpenStudy:
        """What the ledger's terms ask for, if it is still what was promised and agreed to."""
        faults = promise_faults(entry)
        if faults:
            raise LedgerError(f"the ledger is damaged: {faults[0]}; restore it from a copy")
        terms = entry.agreed_terms
        # The settings may have changed since: more shards per record, fewer losses, another map.
        self._check_policy(terms, entry.learner)
        if entry.insecure_noise != self._insecure_noise:
            raise OrderError(
                "the study was enrolled under noise of another kind (secure or insecure); "
                "enrol for a new study"
            )
        study = self._prepare(terms)
        if study.plan.noise_scale != entry.noise_scale:
            study.noise.stop()
            raise RuntimeError(
                f"study {entry.study_id} was promised noise of scale {entry.noise_scale}, this "
                f"program would add {study.plan.noise_scale}; use the version that enrolled it"
            )
        return study

    def _hold(self, study_id: str, study: _OpenStudy) -> None:
        """Keep a study ready; the one that was quiet longest can be rebuilt from the ledger."""
        self._open[study_id] = study
        if len(self._open) > OPEN_STUDIES:
            self._open.popitem(last=False)[1].noise.stop()

    def _prepare(self, terms: StudyTerms) -> _OpenStudy:
        """Everything a study's answers need, computed from public terms and the shard."""
        try:
            feature_map = FeatureMap.from_json(terms.feature_map)
        except InputError as error:
            raise MalformedError(f"the study's feature map is not valid: {error}") from None
        check_map(self._policy, feature_map, allow_private_bounds=self._allow_private_bounds)
        _check_targets(feature_map, terms)
        try:
            plan = plan_noise(terms, feature_map.domain, num_records=self._table.num_records)
        except ValueError as error:
            raise MalformedError(str(error)) from None
        shard = self._table.shard(feature_map)
        noise = self._noise(plan)
        try:
            promise = noise.epsilon(responses=terms.responses)
            # The noise library's own map has the last word, never a formula of ours alone.
            if promise * terms.kappa > terms.epsilon:
                raise RuntimeError(f"the noise library promises {promise}, not {terms.epsilon}")
        except BaseException:
            noise.stop()
            raise
        return _OpenStudy(terms, plan, shard, noise)


def _check_targets(feature_map: FeatureMap, terms: StudyTerms) -> None:
    """A loss for classes needs targets -1 and +1."""
    has_classes = loss_of(terms).has_classes()
    if has_classes != feature_map.is_classification:
        kind = "classes -1 and +1" if has_classes else "numbers"
        raise MalformedError(f"{terms.loss} loss needs a feature map whose target is {kind}")


def _response(query: Query, gradient: np.ndarray) -> Response:
    return Response(study_id=query.study_id, sequence=query.sequence, gradient=gradient)
