"""Owners start in the background, a few at a time, and all of them end."""

import os
import signal

import pytest

from common.errors import InputError, OwnerFailedError, UnreachableError
from learner.network.starting import OwnerProcess, StartingOwner, starting
from learner.network.warm_parent import WarmParent, warm_parent
from learner.training.enrolment import all_present

SERVE = ["serve", "owner.toml", "--with-parent"]
MANY = 2 * len(os.sched_getaffinity(0)) + 3


@pytest.fixture
def owners(owner_folder):
    names = [f"owner-{i}" for i in range(MANY)]
    return [OwnerProcess(n, owner_folder(n, seed=i).parent, SERVE) for i, n in enumerate(names)]


def test_more_than_start_at_once_all_serve_and_all_end(owners):
    with warm_parent() as parent:
        with starting(owners, parent):
            callers = [StartingOwner(owner, deadline=20.0) for owner in owners]
            # The last first: it waits for those before it.
            described = [caller.describe() for caller in reversed(callers)]
            for caller in callers:
                caller.disconnect()
            assert [said.name for said in reversed(described)] == [own.name for own in owners]
            assert len({owner.port for owner in owners}) == MANY
        begun = [owner.process for owner in owners if owner.process is not None]
        assert [process.wait(0) for process in begun] == [0] * MANY


def test_one_that_does_not_start_is_told_and_the_others_serve(owners):
    wrong = owners[1]
    (wrong._folder / "owner.toml").write_text("name = 1\n")
    with warm_parent() as parent, starting(owners, parent):
        with pytest.raises(InputError, match=r"owner owner-1 did not start: .*owner\.toml"):
            StartingOwner(wrong, deadline=20.0).describe()
        assert all(owner.port for owner in owners if owner is not wrong)


def test_one_that_cannot_be_asked_for_is_told_and_the_others_serve(owners, monkeypatch):
    """As where memory runs out: who starts them ended, and those after it were waited for on."""
    start, wrong = WarmParent.start, owners[1]

    def begin(self, arguments, *, folder, log):
        if log == wrong.log.absolute():
            raise MemoryError
        return start(self, arguments, folder=folder, log=log)

    monkeypatch.setattr(WarmParent, "start", begin)
    with warm_parent() as parent, starting(owners, parent):
        assert isinstance(wrong._port.exception(20), MemoryError)
        assert all(owner._port.result(20) for owner in owners if owner is not wrong)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("", r"owner\.log says nothing; is the disk full\?"),
        ("INFO a new ledger is made\n", r"did not start: it ended with signal 9, as.*owner\.log$"),
    ],
)
def test_one_that_ends_without_a_word_is_told_with_where_none_stands(owners, said, words):
    """As where the disk is full and its log holds nothing, or where memory runs out."""
    silent = owners[1]
    with warm_parent() as parent:
        silent.begin(parent)
        process = silent.process
        process.send_signal(signal.SIGKILL)
        (silent._folder / "owner.log").write_text(said)
        silent.hear()
        with pytest.raises(OwnerFailedError, match=words):
            _ = silent.port
        process.stop(20.0)


def test_one_that_fails_when_it_is_to_agree_is_told_with_where_its_reason_stands(
    owners, make_terms
):
    """As where its disk has become full: the same may do better with room, so it is status 4."""
    failing = owners[0]
    ledger = failing._folder / "ledger.sqlite"
    with warm_parent() as parent, starting(owners[:1], parent):
        caller = StartingOwner(failing, deadline=20.0)
        caller.describe()
        ledger.rename(ledger.with_name("elsewhere"))
        with pytest.raises(OwnerFailedError, match=r"owner's log: .*owner-0/owner\.log$"):
            all_present([lambda: caller.enroll(make_terms())], patience=1.0)
        caller.disconnect()


def test_one_that_ends_while_it_serves_is_told_as_such(owners):
    """It was said that nothing listens there, and to start it, which nobody can."""
    ending = owners[0]
    with warm_parent() as parent, starting(owners[:1], parent):
        caller = StartingOwner(ending, deadline=20.0)
        caller.describe()
        ending.process.send_signal(signal.SIGKILL)
        assert ending.process.wait(20.0) == -signal.SIGKILL
        with pytest.raises(UnreachableError, match=r"it ended with signal 9, .*/owner\.log$"):
            caller.describe()
        caller.disconnect()


def test_who_leaves_early_leaves_nobody_behind(owners):
    with warm_parent() as parent:
        with starting(owners, parent):
            assert owners[0].port
        begun = [owner.process for owner in owners if owner.process is not None]
        assert all(process.wait(0) is not None for process in begun)
        # Whoever asks for one that was not begun is told so.
        for owner in owners:
            if owner.process is None:
                with pytest.raises(OwnerFailedError, match="did not start"):
                    _ = owner.port
