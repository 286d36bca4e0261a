"""Which owners may still hold epsilon for a run, as its journal says."""

import json
from contextlib import closing

import pytest

from learner.training.closing import (
    is_given_up,
    note_closed,
    note_given_up,
    open_promises,
)
from learner.training.enrolment import ENROLLMENTS
from learner.training.journal import Journal

NAMES = ["a", "b", "c"]


@pytest.fixture
def journal(tmp_path):
    with closing(Journal(tmp_path / "journal.sqlite")) as opened:
        yield opened


def enrolled(responses):
    return {
        "num_records": 9,
        "responses": responses,
        "noise_scale": 1.0,
        "epsilon": "1/3",
        "insecure_noise": False,
        "repeats": 4,
    }


def test_who_was_closed_once_stays_closed_whoever_is_closed_later(journal):
    """Or it would be asked again, and be one that is away."""
    assert open_promises(NAMES, journal) == NAMES
    note_closed(journal, ["b"])
    note_closed(journal, ["a"])
    assert open_promises(NAMES, journal) == ["c"]


def test_whom_the_clocks_never_chose_holds_nothing(journal):
    journal.note(ENROLLMENTS, json.dumps([enrolled(count) for count in (2, 0, 1)]))
    assert open_promises(NAMES, journal) == ["a", "c"]
    note_closed(journal, ["c"])
    assert open_promises(NAMES, journal) == ["a"]


def test_a_run_that_could_not_be_given_up_can_go_on(journal):
    assert not is_given_up(journal)
    note_given_up(journal)
    assert is_given_up(journal)
    note_given_up(journal, was=False)
    assert not is_given_up(journal)
