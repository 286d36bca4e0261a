"""The studies of one owner: their entries in the ledger, and those that are held ready."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from common.blas import one_blas_thread
from common.errors import OrderError, PolicyError
from common.names import learner_words
from common.terms import StudyTerms
from owner.account import Account
from owner.ledger import Ledger
from owner.ledger_rows import StudyEntry, in_words
from owner.mechanism import DrawnAhead
from owner.open_study import OpenStudy, StudyMaker

log = logging.getLogger("copriv.owner")

# Studies held ready, each with its noise drawn ahead; more are rebuilt when they ask again.
OPEN_STUDIES = 128
# Memory for them; some are held whatever they take.
OPEN_BYTES = 2**30
LEAST_OPEN = 4


def stop_all(studies: list[OpenStudy]) -> None:
    """Stop what is no longer held; without any lock, since the last noise is waited for."""
    for study in studies:
        study.stop()


class OpenStudies:
    """The studies that are held ready; the caller's lock guards them.

    Guarantees:
      * At most :data:`OPEN_STUDIES`, and beyond :data:`LEAST_OPEN` no more than
        :data:`OPEN_BYTES` of memory; those that were quiet longest go first.
    """

    def __init__(self) -> None:
        self._studies: OrderedDict[str, OpenStudy] = OrderedDict()

    def get(self, study_id: str) -> OpenStudy | None:
        """A study, if it is held; from now on it is the one used last."""
        study = self._studies.get(study_id)
        if study is not None:
            self._studies.move_to_end(study_id)
        return study

    def seen(self, study_id: str) -> OpenStudy | None:
        """A study, if it is held, which does not count as using it."""
        return self._studies.get(study_id)

    def hold(self, study_id: str, study: OpenStudy) -> list[OpenStudy]:
        """Hold a study; returns those that have no room any more, for the caller to stop."""
        self._studies[study_id] = study
        dropped = []
        while len(self._studies) > OPEN_STUDIES or (
            len(self._studies) > LEAST_OPEN and self._bytes() > OPEN_BYTES
        ):
            dropped.append(self._studies.popitem(last=False)[1])
        return dropped

    def remove(self, study_id: str) -> list[OpenStudy]:
        """Hold a study no longer; returns it, if it was held, for the caller to stop."""
        study = self._studies.pop(study_id, None)
        return [] if study is None else [study]

    def clear(self) -> list[OpenStudy]:
        """Hold nothing; returns what was held, for the caller to stop."""
        held = list(self._studies.values())
        self._studies.clear()
        return held

    def _bytes(self) -> int:
        shards = {id(study.shard): study.shard.num_bytes for study in self._studies.values()}
        return sum(shards.values()) + sum(study.num_bytes for study in self._studies.values())


class Studies:
    """Every study of a ledger; those that are asked are held ready.

    Guarantees:
      * A study is used, held and dropped under one lock, and made ready without it.

    Args:
      ledger: The studies that were agreed on.
      maker: Makes them ready again after a restart.
    """

    def __init__(self, ledger: Ledger, maker: StudyMaker) -> None:
        # One query at a time: sequence check, charge and release must not interleave.
        self.lock = threading.Lock()
        self._ledger = ledger
        self._maker = maker
        self._open = OpenStudies()
        # Noise of closed studies, of which the last may still be drawn.
        self._ending: list[DrawnAhead] = []
        # All answers want it; to begin and end it for each would take longer than a small one.
        self._limit = ExitStack()
        self._limit.enter_context(one_blas_thread())

    def noise(self, study_id: str) -> DrawnAhead | None:
        """The noise of a study, None if it is not held ready; asked without the lock.

        A moment later it may be otherwise.
        """
        study = self._open.seen(study_id)
        return None if study is None else study.noise

    def hold(self, study_id: str, study: OpenStudy) -> list[OpenStudy]:
        """Hold a study ready; returns what the caller stops, after it has released the lock."""
        return self._open.hold(study_id, study)

    def close(self, study_id: str, learner: str) -> StudyEntry:
        """End a study.

        Raises:
          OrderError: It is not this learner's.
        """
        with self.lock:
            before = self.entry(study_id, learner)
            self._ledger.close_study(study_id)
            ended = [study.noise for study in self._open.remove(study_id)]
            # Whoever waited here for the last of it would keep all others from being told.
            for noise in ended:
                noise.end()
            self._ending = [noise for noise in [*self._ending, *ended] if noise.is_drawing]
            entry = self.entry(study_id, learner)
        if not before.account.closed:
            whose = learner_words(learner)
            log.info("closed study %s of %s: %s", study_id, whose, in_words(entry))
        return entry

    def stop(self) -> None:
        """Hold nothing ready, and release the ledger."""
        with self.lock:
            dropped, ending = self._open.clear(), self._ending
            self._ledger.close()
        stop_all(dropped)
        for noise in ending:
            noise.stop()
        self._limit.close()

    def is_new(self, terms: StudyTerms, learner: str) -> bool:
        """Whether nobody has enrolled the study; the caller holds the lock.

        The same learner may enrol the same again.

        Raises:
          PolicyError: It was enrolled, and not so.
          LedgerError: The ledger failed, and cannot be written yet.
        """
        entry = self._ledger.study(terms.study_id)
        if entry is not None and (entry.learner != learner or not entry.agrees_with(terms)):
            raise PolicyError("this study was enrolled with other terms or by another learner")
        # To enrol again writes nothing: a learner would take back an owner that cannot charge.
        self._ledger.try_again()
        return entry is None

    def entry(self, study_id: str, learner: str) -> StudyEntry:
        """The ledger's entry of a study, if it is this learner's; the caller holds the lock.

        Raises:
          OrderError: It is not.
        """
        entry = self._ledger.study(study_id)
        if entry is None or entry.learner != learner:
            raise OrderError("no such study was enrolled by this learner; enrol first")
        return entry

    @contextmanager
    def taken(self, study_id: str, learner: str) -> Iterator[tuple[OpenStudy, StudyEntry, Account]]:
        """An open study of this learner, its entry and its account now, with the lock held.

        One that is not held ready is rebuilt from the ledger's terms, without the lock.

        Raises:
          RefusedError: It is not this learner's, is closed, or is not agreed to any more.
        """
        rebuilt: OpenStudy | None = None
        dropped: list[OpenStudy] = []
        try:
            while True:
                with self.lock:
                    study, entry = self._held(study_id, learner)
                    if study is None and rebuilt is not None:
                        study, rebuilt = rebuilt, None
                        dropped = self._open.hold(study_id, study)
                    if study is not None:
                        if study.entry is not entry or study.account is None:
                            study.entry, study.account = entry, entry.account
                        try:
                            yield study, entry, study.account
                        except BaseException:
                            if study.noise.is_lost:
                                # It is made ready again for the next query.
                                dropped = [*dropped, *self._open.remove(study_id)]
                            raise
                        return
                    # Only the holder of the lock reads the ledger.
                    terms = entry.agreed_terms
                rebuilt = self._maker.rebuild(entry, terms)
        finally:
            stop_all(dropped if rebuilt is None else [*dropped, rebuilt])

    def _held(self, study_id: str, learner: str) -> tuple[OpenStudy | None, StudyEntry]:
        """A study of this learner that is not closed: its entry, and itself if it is ready."""
        study = self._open.get(study_id)
        entry = study.entry if study is not None else None
        if entry is None or entry.learner != learner:
            entry = self.entry(study_id, learner)
        if entry.account.closed:
            raise OrderError("the study is closed; enrol for a new study")
        return study, entry
