"""The budgets of one owner's records: of one study, and over all studies and learners."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from common.errors import BudgetSpentError, PolicyError
from common.privacy import exact_sum, in_short
from common.terms import StudyTerms
from common.validation import other_part
from owner.ledger import Ledger
from owner.ledger_rows import StudyEntry, epsilon_uncounted
from owner.policy import Policy


def epsilon_left(policy: Policy, studies: Sequence[StudyEntry]) -> Fraction:
    """What a policy lets the records spend that no study of a ledger holds, at least 0.

    Args:
      policy: The owner's policy.
      studies: All studies of the ledger.
    """
    held = exact_sum(entry.epsilon_held for entry in studies)
    held += epsilon_uncounted(studies, kappa=policy.kappa)
    return max(policy.epsilon_lifetime - held, Fraction(0))


class Lifetime:
    """What the policy lets the records spend, less what earlier studies did not count.

    The caller holds the lock of the studies.

    Args:
      ledger: What was promised and spent.
      policy: The owner's policy.
    """

    def __init__(self, ledger: Ledger, policy: Policy) -> None:
        self._ledger, self._policy = ledger, policy
        # What is known of kappa today counts for the studies of yesterday too.
        uncounted = epsilon_uncounted(ledger.studies(), kappa=policy.kappa)
        self.epsilon = policy.epsilon_lifetime - uncounted
        # A lifetime budget that was lowered after it was promised away.
        self._overcommitted = ledger.epsilon_held() > self.epsilon

    def left(self) -> Fraction:
        """What no study holds yet, at least 0."""
        return max(self.epsilon - self._ledger.epsilon_held(), Fraction(0))

    def check_study(self, terms: StudyTerms, learner: str) -> None:
        """Refuse a new study that one study's budget, or that of all, has no room for.

        What is said of a finished model comes out of the epsilon of the study that made it.

        Raises:
          PolicyError: The two would spend more than one study may.
          BudgetSpentError: The lifetime budget has not so much left.
        """
        other = self._ledger.study(other_part(terms.study_id))
        if other is not None and other.learner == learner:
            both, most = terms.epsilon + other.epsilon_held, self._policy.epsilon_per_study
            if both > most:
                raise PolicyError(
                    f"the study and what is said of its model ask for epsilon "
                    f"{in_short(both, up=True)} together, but this owner spends at most "
                    f"{in_short(most)} on one study; ask for less"
                )
        self._ledger.check_left(terms.epsilon, lifetime=self.epsilon)

    def check_response(self, entry: StudyEntry) -> None:
        """Refuse a response beyond a lifetime budget that was lowered after its promise.

        Raises:
          BudgetSpentError: Nothing of it is left.
        """
        if self._overcommitted:
            spent = self._ledger.epsilon_spent() + entry.epsilon / entry.account.promised
            if spent > self.epsilon:
                raise BudgetSpentError(
                    "the owner has lowered its lifetime budget; nothing of it is left"
                )
