"""One data owner: what it says of itself, the studies it agrees to, the queries it answers.

The order of the lines in :meth:`DataOwner.answer` is the privacy promise: check, compute,
charge and store durably, and only then return.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from common.arrays import Vector
from common.errors import BusyError
from common.names import learner_words
from common.privacy import in_short, rounded_down
from common.terms import Enrollment, OwnerDescription, Query, Response, StudyTerms
from common.texts import counted
from common.wire import PROGRAM_VERSION
from owner.access import Access
from owner.account import Account, Step, next_step, repeats, theta_digest
from owner.core import check_theta, exact_answer, release
from owner.ledger import Ledger
from owner.ledger_rows import LedgerError, StudyEntry
from owner.lifetime import Lifetime
from owner.mechanism import DrawnAhead
from owner.offers import Offers, OfferSettings
from owner.open_study import OpenStudy, StudyMaker
from owner.policy import check_terms
from owner.studies import Studies, stop_all

log = logging.getLogger("copriv.owner")


class DataOwner:
    """One owner's records, budget and noise behind four calls.

    Requests are refused in this order: who asks, how often, a message that is malformed, a
    study that is not there or closed, the policy, the budget, and what only the records'
    columns can find out.

    Guarantees:
      * ``charged_before_released``: a response is returned only after its charge is durable.
      * ``retry_is_replayed``: the last queries again give the same bytes and charge nothing.
      * Every refusal charges nothing.
    """

    def __init__(
        self,
        *,
        name: str,
        ledger: Ledger,
        maker: StudyMaker,
        access: Access,
        offers: OfferSettings | None = None,
        checked: Callable[[], str] = str,
    ) -> None:
        self._name, self._ledger, self._maker = name, ledger, maker
        # Who may ask, and what is agreed to.
        self.access, self.policy = access, maker.policy
        self._checked = checked
        self._studies = Studies(ledger, maker)
        self._offers = Offers(offers or OfferSettings(), pause=time.sleep)
        self._lifetime = Lifetime(ledger, maker.policy)

    def describe(self, *, learner: str) -> OwnerDescription:
        """What the owner is and what it would agree to."""
        self.access.admit_query(learner)
        with self._studies.lock:
            left = self._lifetime.left()
        return _description(self._name, self._maker, left=left, checked=self._checked())

    def enroll(self, terms: StudyTerms, *, learner: str) -> Enrollment:
        """Agree on a study and reserve its epsilon; the same terms again change nothing.

        Raises:
          RefusedError: Malformed, against the policy, or more than the budget has left.
        """
        self.access.admit_query(learner)
        check_terms(terms)
        self._maker.check_size(terms)
        with self._studies.lock:
            is_new = self._studies.is_new(terms, learner)
        if is_new:
            self._agree(terms, learner)
        with self._studies.taken(terms.study_id, learner) as (study, entry, account):
            return _enrollment(self._maker, study, entry, account)

    def answer(self, query: Query, *, learner: str) -> Response:
        """One charged, noised response; or one of the last again.

        If its noise is still being drawn, it waits for that, and keeps no other study waiting.

        Raises:
          RefusedError: Out of order, outside the box, or nothing left; nothing is charged.
        """
        while (response := self.answer_at_once(query, learner=learner)) is None:
            noise = self.noise(query.study_id)
            if noise is not None:
                noise.wait()
        return response

    def answer_at_once(self, query: Query, *, learner: str) -> Response | None:
        """The same, also what is refused; but None, and nothing counted, if noise is waited for."""
        self.access.admit_query(learner)
        with self._studies.taken(query.study_id, learner) as (study, entry, account):
            check_theta(
                query.theta, dimension=study.shard.num_features, theta_max=study.terms.theta_max
            )
            digest = theta_digest(query.theta)
            size = study.plan.response_bytes
            step = next_step(account, sequence=query.sequence, digest=digest, size=size)
            if step is Step.REPLAY:
                stored = account.response(query.sequence, size=size)
                return _response(query, np.frombuffer(stored, dtype="<f8"))
            self._lifetime.check_response(entry)
            # Whoever waited for it here would keep all other studies waiting.
            noise = study.noise.take()
            if noise is None:
                self.access.uncount_query(learner)
                return None
            gradient = exact_answer(study.shard, query.theta, study.terms)
            response = release(gradient, noise, study.plan)
            kept = response.astype("<f8", copy=False).tobytes()
            # Whether a charge that fails is on the disk, only the disk can show.
            study.entry = None
            # Charged before released: durable here, and only then may a byte leave.
            self._ledger.charge(
                study_id=query.study_id, sequence=query.sequence, digest=digest, response=kept
            )
            study.account = account.charged(digest=digest, response=kept)
            study.entry = entry
            return _response(query, response)

    def noise(self, study_id: str) -> DrawnAhead | None:
        """The noise that a study's answers wait for, if it is ready."""
        return self._studies.noise(study_id)

    def offer(self, study_id: str, *, learner: str) -> bool:
        """Whether the owner would take a query of this study now; charges nothing either way.

        Raises:
          RefusedError: The study is not this learner's, or is closed.
        """
        # An owner that answers another query, or too many of them, takes no offer.
        try:
            self.access.admit_query(learner)
        except BusyError:
            return False
        if self._studies.lock.locked():
            return False
        with self._studies.taken(study_id, learner) as (_, _, account):
            is_left = account.answered < account.promised
        return is_left and self._offers.accepts(learner)

    def close(self, study_id: str, *, learner: str) -> StudyEntry:
        """End a study; what it did not use returns to the lifetime budget."""
        self.access.admit_query(learner)
        return self._studies.close(study_id, learner)

    @property
    def ledger_works(self) -> bool:
        """Whether the ledger did not fail when it was last used."""
        return self._ledger.works

    @property
    def ledger_fault(self) -> LedgerError | None:
        """Why the ledger can be used by another start only, if that is so."""
        return self._ledger.fault

    def try_ledger(self) -> None:
        """See whether a ledger that failed can be written again; charges nothing.

        Raises:
          LedgerError: It cannot.
        """
        with self._studies.lock:
            self._ledger.try_again()

    def charges(self) -> int:
        """Responses charged to the ledger, over all studies."""
        with self._studies.lock:
            return self._ledger.responses

    def epsilon_held(self) -> float:
        """What all studies together take of the lifetime budget."""
        with self._studies.lock:
            return float(self._ledger.epsilon_held())

    def epsilon_left(self) -> float:
        """What is left of the lifetime budget."""
        with self._studies.lock:
            return float(self._lifetime.left())

    def stop(self) -> None:
        """Stop drawing noise and release the ledger."""
        self._studies.stop()

    def _agree(self, terms: StudyTerms, learner: str) -> None:
        """Check a new study against policy and budget, make it ready, and reserve its epsilon.

        It is made ready without the lock, so another call may have enrolled it in the meantime:
        then that one counts, and what was made here is dropped.
        """
        self.access.admit_enrollment(learner)
        self._maker.check(terms, learner)
        with self._studies.lock:
            # Asked again when the budget is reserved; here it spares the work of a vain enrolment.
            self._lifetime.check_study(terms, learner)
        study = self._maker.prepare(terms)
        dropped = [study]
        try:
            with self._studies.lock:
                if self._studies.is_new(terms, learner):
                    self._lifetime.check_study(terms, learner)
                    self._ledger.open_study(
                        terms,
                        learner=learner,
                        noise_scale=study.plan.noise_scale,
                        insecure_noise=self._maker.insecure_noise,
                        lifetime=self._lifetime.epsilon,
                    )
                    dropped = self._studies.hold(terms.study_id, study)
                    log.info("enrolled %s", _in_words(terms, learner))
        finally:
            stop_all(dropped)


def _description(name: str, maker: StudyMaker, *, left: Fraction, checked: str) -> OwnerDescription:
    """What an owner is and what it would agree to, for the learner."""
    table, policy, pinned = maker.table, maker.policy, maker.pinned_map
    return OwnerDescription(
        name=name,
        num_records=table.num_records,
        columns=table.columns,
        feature_map_digest=pinned.digest if pinned else "",
        epsilon_per_study=policy.epsilon_per_study,
        epsilon_left=rounded_down(left),
        losses=policy.losses,
        version=PROGRAM_VERSION,
        clock_ms=time.time_ns() // 10**6,
        checked_map_digest=checked,
        validation=policy.validation or "",
    )


def _in_words(terms: StudyTerms, learner: str) -> str:
    """What was agreed on, for the log."""
    epsilon = in_short(terms.epsilon, up=True)
    return (
        f"study {terms.study_id} of {learner_words(learner)}: epsilon {epsilon} for "
        f"{counted(terms.responses, 'response')}"
    )


def _enrollment(
    maker: StudyMaker, study: OpenStudy, entry: StudyEntry, account: Account
) -> Enrollment:
    """What was agreed on, for the learner."""
    return Enrollment(
        num_records=maker.table.num_records,
        responses=account.promised,
        answered=account.answered,
        noise_scale=study.plan.noise_scale,
        epsilon=entry.epsilon,
        insecure_noise=maker.insecure_noise,
        repeats=repeats(study.plan.response_bytes),
    )


def _response(query: Query, gradient: Vector) -> Response:
    return Response(study_id=query.study_id, sequence=query.sequence, gradient=gradient)
