"""The line to an owner: every transition, and that its table in the docstring is the code's."""

import itertools
import re

import pytest

from learner.training import line_state
from learner.training.line_state import LineAction, LineEvent, LineState, after

READY, AWAY, BACK, LEFT = LineState
LOST, HEARD, ACCEPTED, REFUSED = LineEvent

TRANSITIONS = {
    (READY, LOST): (AWAY, LineAction.LOOK),
    (READY, REFUSED): (LEFT, LineAction.PART),
    (AWAY, HEARD): (BACK, LineAction.NOTHING),
    (AWAY, REFUSED): (AWAY, LineAction.NOTHING),
    (BACK, ACCEPTED): (READY, LineAction.NOTHING),
    (BACK, REFUSED): (LEFT, LineAction.PART),
    (LEFT, LOST): (LEFT, LineAction.NOTHING),
    (LEFT, HEARD): (LEFT, LineAction.NOTHING),
    (LEFT, ACCEPTED): (LEFT, LineAction.NOTHING),
    (LEFT, REFUSED): (LEFT, LineAction.NOTHING),
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(LineState, LineEvent)))
def test_every_event_in_every_state_has_its_transition_or_cannot_happen(state, event):
    if (state, event) in TRANSITIONS:
        assert after(state, event) == TRANSITIONS[state, event]
    else:
        with pytest.raises(ValueError, match=f"{state.value} cannot be {event.value}"):
            after(state, event)


def test_the_table_in_the_docstring_is_the_code():
    rows = re.findall(r"^(\w+) +(\w+) +(\w+) +(\w+)$", line_state.__doc__ or "", re.MULTILINE)
    told = {}
    for state, event, follows, action in rows[1:]:
        for one in LineEvent if event == "any" else [LineEvent(event)]:
            told[LineState(state), one] = (LineState(follows), LineAction(action))
    assert told == TRANSITIONS


def test_an_owner_can_be_asked_when_it_is_there_or_is_back():
    assert [state for state in LineState if state.can_be_asked] == [READY, BACK]
    assert [state for state in LineState if state.is_absent] == [AWAY, BACK]
