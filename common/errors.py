"""The errors a caller can act on, and the exit status each of them means."""

from __future__ import annotations


class CoprivError(Exception):
    """A failure that one sentence explains: what, where, what was expected, what to do."""

    exit_status = 1


class InputError(CoprivError):
    """A setting, a file or an argument is wrong; nothing was charged or written."""

    exit_status = 2


class DiskError(InputError):
    """The disk is full or fails: once it is mended, the same goes on as it was."""

    exit_status = 4


class RefusedError(CoprivError):
    """An owner refused a request; it charged nothing."""

    exit_status = 3


class BudgetSpentError(RefusedError):
    """The budget, or the number of responses promised, does not allow the request."""


class BusyError(RefusedError):
    """The owner answers no more requests for now; the same request may be made again later.

    Args:
      sentence: The sentence for the learner.
      retry_after: Seconds until the request may be made again.
    """

    def __init__(self, sentence: str, *, retry_after: float) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class MalformedError(RefusedError):
    """The request is not one the protocol knows: a wrong length, not finite, outside the box."""


class OrderError(RefusedError):
    """The request comes at the wrong time: not enrolled, closed, or out of sequence."""


class PolicyError(RefusedError):
    """The owner's policy does not allow the request, or not to this learner."""


class IdentityError(PolicyError):
    """Nobody vouches for the caller: no token, or one that the owner does not know."""


class OwnerFailedError(CoprivError):
    """The owner failed in a way it did not expect; its own log says more."""

    exit_status = 4


class UnreachableError(CoprivError):
    """An owner did not answer in time."""

    exit_status = 4


class StoppedError(CoprivError):
    """The user stopped it with Ctrl-C; the sentence says what was left."""

    exit_status = 130


class UntrustedError(UnreachableError):
    """A certificate stands between us and an owner; waiting does not help, its sentence does."""


class DoubtWarning(UserWarning):
    """Something that may be meant but rarely is; the sentence says how to say that it is meant."""


class PrivacyLeakWarning(UserWarning):
    """A public number was taken from private records: what is released says something about them.

    The noise is sized for bounds that do not depend on any private record. Where they do, no
    epsilon holds, whatever the ledger says.
    """
