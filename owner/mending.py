"""A ledger that failed is tried again, also while nobody asks: then its disk has room again."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from owner.answering import DataOwner
from owner.ledger_rows import LedgerError
from owner.threads import begun

TRY_SECONDS = 5.0


class Mending:
    """Tries an owner's ledger while it fails, in a thread that lasts as long as that.

    Otherwise whoever watches would be told of a failure until a learner asks, if one ever does.

    Args:
      owner: Whose ledger.
      tell: Told whether it works, after each time that it was used or tried.
      on_fault: Called once it can be used by another start only, maybe more than once.
    """

    def __init__(
        self,
        owner: DataOwner,
        tell: Callable[[bool], object] = lambda works: None,
        *,
        on_fault: Callable[[], object],
    ) -> None:
        self._owner = owner
        self._tell, self._on_fault = tell, on_fault
        self._stopping = threading.Event()
        self._trying = threading.Lock()

    def used(self, works: bool) -> None:
        """The ledger was used, and works or not; said each time."""
        self._tell(works)
        if self._owner.ledger_fault is not None:
            self._on_fault()
        elif not works:
            self._begin()

    def stop(self) -> None:
        """Try no more."""
        self._stopping.set()

    def _begin(self) -> None:
        if self._trying.acquire(blocking=False):
            try:
                begun(self._try, name="mend")
            except RuntimeError:
                # No memory for it now: the next failure begins it.
                self._trying.release()

    def _try(self) -> None:
        try:
            while not self._is_over() and not self._stopping.wait(TRY_SECONDS):
                with contextlib.suppress(LedgerError):
                    self._owner.try_ledger()
                self.used(self._owner.ledger_works)
        finally:
            self._trying.release()

    def _is_over(self) -> bool:
        return self._owner.ledger_works or self._owner.ledger_fault is not None
