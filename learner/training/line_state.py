"""The line to one owner as a state machine: what is known of the owner, and what follows from it.

======  =========  =====  ========
state   event      next   action
======  =========  =====  ========
ready   lost       away   look
ready   refused    left   part
away    heard      back   nothing
away    refused    away   nothing
back    accepted   ready  nothing
back    refused    left   part
left    any        left   nothing
======  =========  =====  ========

Any other pair cannot happen: an owner that is away is not asked, and is looked for once at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

# No owner repeats more of its answers.
MOST_REPEATS = 16


class LineState(Enum):
    """What is known of an owner.

    * ``READY``: it answered the last time, or has just enrolled.
    * ``AWAY``: it did not answer, and is looked for.
    * ``BACK``: it replied to who looked for it; the next question takes the reply.
    * ``LEFT``: it refuses, or says what cannot be; nobody asks it any more.
    """

    READY = "ready"
    AWAY = "away"
    BACK = "back"
    LEFT = "left"

    @property
    def can_be_asked(self) -> bool:
        """Whether a question may bring an answer now."""
        return self in (LineState.READY, LineState.BACK)

    @property
    def is_absent(self) -> bool:
        """Whether the owner did not answer its last question yet."""
        return self in (LineState.AWAY, LineState.BACK)


class LineEvent(Enum):
    """What happens on a line.

    * ``LOST``: a question brought no answer.
    * ``HEARD``: the owner replied to who looked for it, by an enrolment or a refusal.
    * ``ACCEPTED``: that enrolment is the one that was agreed on.
    * ``REFUSED``: the owner refuses for good, or says what cannot be.
    """

    LOST = "lost"
    HEARD = "heard"
    ACCEPTED = "accepted"
    REFUSED = "refused"


class LineAction(Enum):
    """What the line does about it.

    * ``LOOK``: enrol again and again, in the background, until the owner replies.
    * ``PART``: say that it has left, and why.
    """

    NOTHING = "nothing"
    LOOK = "look"
    PART = "part"


_TRANSITIONS = MappingProxyType(
    {
        (LineState.READY, LineEvent.LOST): (LineState.AWAY, LineAction.LOOK),
        (LineState.READY, LineEvent.REFUSED): (LineState.LEFT, LineAction.PART),
        (LineState.AWAY, LineEvent.HEARD): (LineState.BACK, LineAction.NOTHING),
        # Refused elsewhere, such as an offer of long ago: who looks for it hears that too.
        (LineState.AWAY, LineEvent.REFUSED): (LineState.AWAY, LineAction.NOTHING),
        (LineState.BACK, LineEvent.ACCEPTED): (LineState.READY, LineAction.NOTHING),
        (LineState.BACK, LineEvent.REFUSED): (LineState.LEFT, LineAction.PART),
    }
)


def after(state: LineState, event: LineEvent) -> tuple[LineState, LineAction]:
    """The next state, and what to do.

    Raises:
      ValueError: The event cannot happen in this state.

    >>> state, action = after(LineState.READY, LineEvent.LOST)
    >>> state.value, action.value
    ('away', 'look')
    """
    if state is LineState.LEFT:
        return state, LineAction.NOTHING
    try:
        return _TRANSITIONS[state, event]
    except KeyError:
        raise ValueError(f"a line that is {state.value} cannot be {event.value}") from None


@dataclass
class Numbers:
    """The numbers of one owner's responses.

    Args:
      answered: The last that was answered, or that is lost.
      promised: The last that there will be.
      charged: The last that the owner has charged, as it said; None before it was heard.
      in_doubt: Whether owner or learner may have been killed since the last answer.
      repeats: How many of its last answers the owner gives again, as it said last.
      most_repeats: The most that it ever said.
    """

    answered: int
    promised: int
    charged: int | None = None
    in_doubt: bool = False
    repeats: int = 1
    most_repeats: int = 1

    @property
    def is_level(self) -> bool:
        """Whether the owner is known to have charged no other."""
        return self.charged is not None and self.charged <= self.answered

    def repeat(self, count: int, *, charged: int | None = None) -> None:
        """The owner said how many of its last answers it gives again, and how many it charged."""
        self.charged = self.charged if charged is None else charged
        self.repeats = min(count, MOST_REPEATS)
        self.most_repeats = max(self.repeats, self.most_repeats)

    @property
    def next(self) -> int:
        """The number to ask for."""
        return self.answered + 1

    @property
    def may_be_several(self) -> bool:
        """Whether the owner may have given more than one answer that is not held here."""
        known = self.charged is not None and self.charged <= self.next
        return self.most_repeats > 1 and not known

    def took(self, number: int) -> None:
        """The owner has answered this number; it may have charged others after it before."""
        self.answered = number
        self.charged = max(number, self.charged or 0)
        self.in_doubt = self.in_doubt and not self.is_level

    def over(self) -> bool:
        """Whether none is left: ticks may be, where some numbers were lost."""
        return self.answered >= self.promised

    def pass_over(self, refused: int) -> int:
        """Go on behind those that are charged, if the one refused is; how many are lost by it.

        Without a doubt none can be lost: who refuses then has left.
        """
        if not self.in_doubt or self.charged is None or self.charged < refused:
            return 0
        self.in_doubt = False
        more = self.charged - self.answered
        self.answered = self.charged
        return more
