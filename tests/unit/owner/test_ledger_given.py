"""The log of what was given: one sync a response, nothing lost by a kill, nothing given twice."""

import os
import shutil
import signal
import sqlite3
import threading
from contextlib import closing, contextmanager
from fractions import Fraction
from functools import partial
from pathlib import Path

import ledgers
import pytest
import waiting
from ledgers import charge, digest, open_ledger, response
from waiting import is_there, killed_at_its_end

from common.errors import OrderError
from common.trials import fork
from owner import ledger_given
from owner.ledger_ahead import Charged
from owner.ledger_charges import Charges
from owner.ledger_given import GIVEN, MARK_BYTES, Given, GivenLog, given_at_once, read_given
from owner.ledger_held import HeldLedger
from owner.ledger_reading import read_history, read_studies, verify_ledger
from owner.ledger_rows import LedgerDiskError, LedgerError
from owner.ledger_tables import RECORD_BYTES, charges_of

PROMISED = 200
enroll = partial(ledgers.enroll, responses=PROMISED, epsilon=Fraction(1, 4))
ACCOUNT, OTHER = b"a" * 16, b"b" * 16
SIZE = 8


def record(number):
    return number.to_bytes(RECORD_BYTES, "big")


@contextmanager
def opened_log(path):
    handle = os.open(f"{path}{GIVEN}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield GivenLog(handle)
    finally:
        os.close(handle)


def filled(log, account, numbers):
    """A log's block with these responses noted, and what it should say."""
    log.begin(account, 64, SIZE, generation=9)
    for number in numbers:
        log.give(account, record(number), response(number))
    records = b"".join(map(record, numbers))
    return Given(64, records, tuple(map(response, numbers)))


# --- the log alone ------------------------------------------------------------------------------


def test_a_log_says_what_it_was_told_of_each_account(path):
    assert read_given(path).given == {}
    with opened_log(path) as log:
        assert read_given(path).given == {}
        first = filled(log, ACCOUNT, range(3))
        second = filled(log, OTHER, range(5, 7))
        assert read_given(path).given == {ACCOUNT: first, OTHER: second}
        log.give(ACCOUNT, record(3), response(3))
        assert read_given(path).given[ACCOUNT] == first.and_then(record(3), response(3))


def test_a_log_that_is_written_over_says_nothing_of_before(path):
    with opened_log(path) as log:
        filled(log, ACCOUNT, range(9))
    # Each length of what is new, so also those that end where an older entry begins.
    for count in range(9):
        with opened_log(path) as log:
            told = filled(log, OTHER, range(count))
            assert read_given(path).given == {OTHER: told}
        with opened_log(path) as log:
            told = filled(log, ACCOUNT, range(9))
            assert read_given(path).given == {ACCOUNT: told}


def test_a_log_that_was_cut_or_changed_says_less_and_nothing_wrong(path):
    with opened_log(path) as log:
        whole = filled(log, ACCOUNT, range(4))
    file = Path(f"{path}{GIVEN}")
    content = file.read_bytes().rstrip(b"\0")
    for position in range(MARK_BYTES, len(content)):
        changed = bytearray(content)
        changed[position] ^= 1
        for damaged in (content[: max(position, MARK_BYTES)], bytes(changed)):
            file.write_bytes(damaged)
            found = read_given(path).given.get(ACCOUNT, Given(64))
            assert found.charged == 64
            assert whole.records.startswith(found.records)
            assert whole.responses[: len(found.responses)] == found.responses
            assert len(found.responses) < 4


@pytest.mark.parametrize(
    "content",
    [b"\0" * 5000, b"\xff" * 5000, b"no log\n", os.urandom(5000)],
    ids=["zeros", "ones", "a text", "random"],
)
def test_a_file_that_is_no_log_says_nothing(path, content):
    Path(f"{path}{GIVEN}").write_bytes(content)
    assert read_given(path).given == {}


CRAFTED = {
    "an entry of nothing": [(b"", b"")],
    "a note of an account that was never begun": [(OTHER, record(1) + response(1))],
    "a note that is cut off": [(OTHER, b"\0")],
    "more notes than charges": [(ACCOUNT, record(1) + response(1))] * 3000,
}


@pytest.mark.parametrize("entries", CRAFTED.values(), ids=CRAFTED.keys())
def test_an_entry_that_nobody_wrote_ends_a_log(path, entries):
    """Though its checksum is right; what comes behind it is not believed either."""
    with opened_log(path) as log:
        whole = filled(log, ACCOUNT, range(64))
        for account, said in entries:
            log.give(account, said, b"")
        filled(log, OTHER, range(2))
    assert read_given(path).given == {ACCOUNT: whole}


def test_a_note_without_its_query_ends_a_log(path):
    with opened_log(path) as log:
        begun = filled(log, ACCOUNT, range(2))
        log.give(ACCOUNT, b"\0", b"")
        log.give(ACCOUNT, record(2), response(2))
    assert read_given(path).given == {ACCOUNT: begun}


@pytest.mark.parametrize("size", [8, 80, 8000, 80_000, 600_000])
def test_two_blocks_have_room_and_the_file_stays_small(path, size):
    count = given_at_once(size)
    with opened_log(path) as log:
        for block in range(2):
            assert log.has_room(count, size)
            log.begin(bytes([block]) * 16, count, size, generation=9)
            # The first of a block stands in the account.
            for number in range(count - 1):
                log.give(bytes([block]) * 16, record(number), b"r" * size)
    found = read_given(path).given
    assert [len(given.responses) for given in found.values()] == [count - 1] * 2
    assert Path(f"{path}{GIVEN}").stat().st_size <= ledger_given.LARGEST_BYTES


def test_each_note_is_synced_and_no_note_makes_the_file_longer(path, monkeypatch):
    synced = []
    whole = os.fdatasync

    def sync(handle):
        synced.append(os.fstat(handle).st_size)
        whole(handle)

    monkeypatch.setattr(os, "fdatasync", sync)
    with opened_log(path) as log:
        filled(log, ACCOUNT, range(64))
    assert len(synced) == 65
    assert len(set(synced)) == 1


# --- the ledger with it -------------------------------------------------------------------------


def copied(path, name):
    """A copy of a ledger with its files and their marks, as a kill at this moment leaves it."""
    folder = path.parent / name
    folder.mkdir()
    for file in path.parent.glob(f"{path.name}*"):
        shutil.copy2(file, folder / file.name)
    return folder / path.name


def digests(path):
    return [each for each, _ in charges_of(read_history(path).studies[0][1])]


def test_a_link_to_a_ledger_in_use_shows_what_was_given(path):
    link = path.with_name("link.sqlite")
    with closing(open_ledger(path)) as ledger:
        enroll(ledger)
        charge(ledger, 1, 2, 3)
        link.symlink_to(path)
        assert [entry.account.answered for entry in read_studies(link)[1]] == [3]


@pytest.mark.parametrize("given", [1, 2, 63, 64, 65, 66, 130, 199, 200])
def test_a_killed_owner_loses_nothing(path, given):
    with closing(open_ledger(path)) as ledger:
        enroll(ledger)
        charge(ledger, *range(1, given + 1))
        left = copied(path, "left")
    # People see it as it is, and so does who starts on it.
    assert read_studies(left)[1][0].account.answered == given
    assert digests(left) == list(map(digest, range(1, given + 1)))
    with closing(open_ledger(left)) as ledger:
        entry = ledger.study("s")
        account = entry.account
        assert (account.answered, ledger.responses) == (given, given)
        for number in range(max(1, given - 15), given + 1):
            assert account.response(number, size=SIZE) == response(number)
            assert account.digest(number) == digest(number)
        assert ledger.epsilon_spent() == Fraction(given, 4 * PROMISED)
        charge(ledger, *range(given + 1, PROMISED + 1))
        with pytest.raises(OrderError):
            charge(ledger, PROMISED + 1)
    assert verify_ledger(left) == []
    assert digests(left) == list(map(digest, range(1, PROMISED + 1)))


def test_a_commit_takes_many_charges_and_the_log_is_gone_at_the_end(path):
    with closing(open_ledger(path)) as ledger:
        enroll(ledger)
        statements = []
        ledger._held.db.set_trace_callback(statements.append)
        charge(ledger, *range(1, PROMISED + 1))
        assert statements.count("COMMIT") == 4
        assert Path(f"{path}{GIVEN}").exists()
    assert not Path(f"{path}{GIVEN}").exists()
    assert read_studies(path)[1][0].account.answered == PROMISED


@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
def test_a_kill_between_the_log_and_the_ledger_loses_nothing(path, moment, monkeypatch):
    with closing(open_ledger(path)) as ledger:
        enroll(ledger)
        charge(ledger, *range(1, 65))
        left = []
        begin, keep = GivenLog.begin, HeldLedger.keep

        def begin_and_copy(log, *values, **named):
            begin(log, *values, **named)
            if moment == "before the commit":
                left.append(copied(path, "left"))

        def copy_and_keep(held, *books):
            if moment == "after the commit":
                left.append(copied(path, "left"))
            keep(held, *books)

        with monkeypatch.context() as patch:
            patch.setattr(GivenLog, "begin", begin_and_copy)
            patch.setattr(HeldLedger, "keep", copy_and_keep)
            charge(ledger, 65)
    given = 64 if moment == "before the commit" else 65
    with closing(open_ledger(left[0])) as ledger:
        assert ledger.responses == given
        charge(ledger, given + 1)
    assert digests(left[0]) == list(map(digest, range(1, given + 2)))


def test_studies_share_a_log_that_is_written_over_when_it_is_full(path, monkeypatch):
    monkeypatch.setattr(ledger_given, "LARGEST_BYTES", 6000)
    monkeypatch.setattr(ledger_given, "STEP_BYTES", 1000)
    with closing(open_ledger(path)) as ledger:
        for study in ("s", "t"):
            enroll(ledger, study)
        # One is ahead, so that no two blocks end at once.
        charge(ledger, *range(1, 11))
        for number in range(1, PROMISED - 9):
            charge(ledger, number + 10)
            # People see each of them at once.
            shown = [entry.account.answered for entry in read_studies(path)[1]]
            assert shown == [number + 10, number - 1]
            charge(ledger, number, study="t")
            if number % 37 == 0:
                left = copied(path, f"left-{number}")
                with closing(open_ledger(left)) as again:
                    charge(again, number + 1, study="t")
                assert verify_ledger(left) == []
        assert Path(f"{path}{GIVEN}").stat().st_size <= 6000
    assert [entry.account.answered for entry in read_studies(path)[1]] == [PROMISED, PROMISED - 10]
    assert digests(path) == list(map(digest, range(1, PROMISED + 1)))


def lose(file, older):
    del older
    file.unlink()


def cut(file, older):
    del older
    os.truncate(file, file.stat().st_size // 1000)


def put_back(file, older):
    shutil.copy2(older, file)


@pytest.mark.parametrize("damage", [lose, cut, put_back])
def test_a_log_that_is_lost_or_old_is_not_believed(path, damage, caplog):
    """What it may have noted is spent: no number is given for a second query."""
    with closing(open_ledger(path)) as ledger:
        enroll(ledger)
        enroll(ledger, "t")
        charge(ledger, 1, 2, 3)
        older = copied(path, "older")
        charge(ledger, 4, 5, 6)
        left = copied(path, "left")
    damage(Path(f"{left}{GIVEN}"), Path(f"{older}{GIVEN}"))
    assert read_studies(left)[1][0].account.answered == 64
    with closing(open_ledger(left)) as ledger:
        assert "missing, damaged or an old copy; what it may have noted is spent" in caplog.text
        entry = ledger.study("s")
        assert (entry.account.answered, entry.account.responses.joined) == (64, b"")
        for number in (4, 6, 7, 64):
            with pytest.raises(OrderError):
                charge(ledger, number)
        charge(ledger, 65)
        charge(ledger, 1, study="t")
    assert verify_ledger(left) == []
    assert digests(left) == [digest(1), *[""] * 63, digest(65)]


def test_a_log_whose_charges_are_lost_too_hides_no_other_study(path):
    """A block that counts as spent is not taken for the charges of a study that is gone."""
    with closing(open_ledger(path)) as ledger:
        enroll(ledger)
        charge(ledger, 1)
        ledger._held.db.execute("PRAGMA wal_checkpoint").fetchall()
        enroll(ledger, "t")
        charge(ledger, 1, 2, study="t")
        left = copied(path, "left")
    for suffix in (GIVEN, "-wal"):
        Path(f"{left}{suffix}").unlink()
    with pytest.raises(LedgerError, match="has lost responses or studies"):
        open_ledger(left)


def test_an_older_log_is_not_believed_after_its_block_was_written_down(path):
    """The ledger's own files as they were too: only the lock tells."""
    with closing(open_ledger(path)) as ledger:
        enroll(ledger)
        charge(ledger, *range(1, 11))
        older = copied(path, "older")
        charge(ledger, *range(11, 65))
    lock = Path(f"{path}.lock").read_bytes()
    for file in older.parent.glob(f"{older.name}*"):
        shutil.copy2(file, path.parent / file.name)
    Path(f"{path}.lock").write_bytes(lock)
    with pytest.raises(LedgerError, match="has lost responses or studies"):
        open_ledger(path)


def test_a_note_that_fails_stops_the_owner_and_the_disk_decides(path, monkeypatch):
    def fail(handle):
        raise OSError(5, "Input/output error")

    ledger = open_ledger(path)
    enroll(ledger)
    charge(ledger, 1, 2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(LedgerError, match=r"cannot be used \(.*Input/output error"):
            charge(ledger, 3)
    for _ in range(2):
        # Of a disk, so that the owner's log says it in a line, as it says the failure itself.
        with pytest.raises(LedgerDiskError, match="an earlier failure could not be undone"):
            charge(ledger, 3)
    ledger.close()
    # It was written, though not synced; whoever asks for it again gets what stands there.
    with closing(open_ledger(path)) as ledger:
        entry = ledger.study("s")
        assert entry.account.response(3, size=SIZE) == response(3)
        charge(ledger, 4)
    assert verify_ledger(path) == []


def test_memory_that_runs_out_gives_no_number_twice(path, monkeypatch):
    """A response that nobody got stands in no log: else it could be had beside another one."""

    def run_out(*_):
        raise MemoryError

    with closing(open_ledger(path)) as ledger:
        ledgers.enroll(ledger, responses=20)
        charge(ledger, *range(1, 10))
        with monkeypatch.context() as patch:
            patch.setattr(Charged, "gave", run_out)
            with pytest.raises((LedgerError, MemoryError)):
                ledger.charge(study_id="s", sequence=10, digest="a" * 64, response=b"unheard!")
        charge(ledger, *range(10, 21))
        left = copied(path, "left")
    with closing(open_ledger(left)) as ledger:
        entry = ledger.study("s")
        assert entry is not None
        for number in range(5, 21):
            assert entry.account.response(number, size=SIZE) == response(number)
            assert entry.account.digest(number) == digest(number)


def test_a_log_without_room_charges_nothing_and_goes_on_when_there_is(path, monkeypatch):
    def full(handle, content, position):
        raise OSError(28, "No space left on device")

    with closing(open_ledger(path)) as ledger:
        enroll(ledger)
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            for _ in range(2):
                with pytest.raises(LedgerError, match="No space left on device"):
                    charge(ledger, 1)
            assert ledger.responses == 0
        charge(ledger, 1, 2)
    assert digests(path) == list(map(digest, (1, 2)))


def test_whether_a_ledger_that_failed_can_be_charged_is_seen_without_a_charge(path, monkeypatch):
    """The log has to grow, which the database has no need of."""

    def full(handle, content, position):
        raise OSError(28, "No space left on device")

    with closing(open_ledger(path)) as ledger:
        enroll(ledger)
        ledger.try_again()
        assert not os.path.getsize(f"{path}{GIVEN}") > MARK_BYTES
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            for call in (partial(charge, ledger, 1), ledger.try_again, ledger.try_again):
                with pytest.raises(LedgerError, match="No space left on device"):
                    call()
                assert not ledger.works
        before = read_studies(path)[1]
        ledger.try_again()
        assert ledger.works
        assert (ledger.responses, read_studies(path)[1]) == (0, before)
        with monkeypatch.context() as patch:
            # Nothing more is written than a charge needs: its place is there.
            patch.setattr(os, "fsync", full)
            charge(ledger, 1, 2)
    assert digests(path) == list(map(digest, (1, 2)))
    assert verify_ledger(path) == []


def test_responses_that_are_too_large_for_the_log_stand_in_the_ledger(path):
    large = b"r" * ledger_given.LARGEST_BYTES
    with closing(open_ledger(path)) as ledger:
        enroll(ledger)
        for number in (1, 2):
            ledger.charge(study_id="s", sequence=number, digest="1" * 64, response=large)
        assert Path(f"{path}{GIVEN}").stat().st_size == MARK_BYTES
        left = copied(path, "left")
    with closing(open_ledger(left)) as ledger:
        entry = ledger.study("s")
        assert entry.account.answered == 2
        assert entry.account.response(2, size=len(large)) == large


# --- a log that was set back, and kills after that ----------------------------------------------


def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def killed_after(path, *lives):
    """Lives of an owner, each of which ends by a kill."""
    for life in lives:
        killed_at_its_end(lambda life=life: life(open_ledger(path)))


def test_a_life_that_hangs_is_ended_and_fails(monkeypatch):
    """As on a lock that another thread held as it was copied; the test was waited for on and on."""
    held, copies = threading.Lock(), []

    def noted():
        copies.append(fork())
        return copies[-1]

    monkeypatch.setattr(waiting, "fork", noted)
    with held, pytest.raises(AssertionError, match="a copy of this process did not end in"):
        killed_at_its_end(held.acquire, seconds=0.5)
    assert not is_there(copies[0])


def keeps_a_copy(path):
    """Ten responses; an older copy of the log knows of five."""

    def life(ledger):
        enroll(ledger)
        charge(ledger, *range(1, 6))
        shutil.copy2(f"{path}{GIVEN}", f"{path}-older")
        charge(ledger, *range(6, 11))

    return life


def nothing(ledger):
    del ledger


def never(ledger):
    del ledger
    pytest.fail("it was to be killed before")


def enrolls(ledger):
    enroll(ledger, "t")


def answers_another(ledger):
    enroll(ledger, "t")
    charge(ledger, 1, 2, study="t")


@pytest.mark.parametrize("life", [nothing, enrolls, answers_another])
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("damage", [put_back, cut, lose])
def test_what_was_not_believed_once_is_not_believed_later(path, life, again, damage):
    log, older = Path(f"{path}{GIVEN}"), Path(f"{path}-older")
    killed_after(path, keeps_a_copy(path))
    damage(log, older)
    killed_after(path, life)
    if again:
        put_back(log, older)
        killed_after(path, nothing)
    with closing(open_ledger(path)) as ledger:
        assert ledger.study("s").account.answered == 64
        for number in (6, 11, 64):
            with pytest.raises(OrderError):
                charge(ledger, number)
        charge(ledger, 65)
    assert verify_ledger(path) == []


def test_what_was_not_believed_once_needs_no_mark_any_more(path):
    """It stands in the ledger: a copy without marks, and with the old log, says the same."""
    killed_after(path, keeps_a_copy(path))
    put_back(Path(f"{path}{GIVEN}"), Path(f"{path}-older"))
    killed_after(path, nothing)
    bare = path.with_name("bare.sqlite")
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{path}{suffix}", f"{bare}{suffix}")
    # Without the mark that it begins with.
    older = Path(f"{path}-older").read_bytes()
    Path(f"{bare}{GIVEN}").write_bytes(bytes(MARK_BYTES) + older[MARK_BYTES:])
    assert read_studies(bare)[1][0].account.answered == 64
    with closing(open_ledger(bare)) as ledger:
        assert ledger.study("s").account.answered == 64


@pytest.mark.parametrize("damage", [put_back, cut])
def test_a_start_that_is_killed_makes_no_log_believed(path, damage, monkeypatch):
    killed_after(path, keeps_a_copy(path))
    damage(Path(f"{path}{GIVEN}"), Path(f"{path}-older"))
    with monkeypatch.context() as patch:
        patch.setattr(Charges, "_settle_before", killed)
        killed_after(path, never)
    with closing(open_ledger(path)) as ledger:
        assert ledger.study("s").account.answered == 64


def test_a_closing_that_fails_stops_no_other_study(path, monkeypatch):
    @contextmanager
    def failing(db):
        yield
        raise sqlite3.OperationalError("database or disk is full")

    with closing(open_ledger(path)) as ledger:
        enroll(ledger)
        enroll(ledger, "t")
        charge(ledger, 1, 2)
        with monkeypatch.context() as patch:
            patch.setattr("owner.ledger_held.transaction", failing)
            with pytest.raises(LedgerError, match="disk is full"):
                ledger.close_study("t")
        charge(ledger, 3)


def closes(ledger):
    ledger.close_study("t")


def charges(ledger):
    charge(ledger, 1, study="t")


@pytest.mark.parametrize("change", [enrolls, closes, charges])
def test_an_older_log_is_not_believed_where_the_marks_lag_by_a_change(path, change, monkeypatch):
    """The owner was killed between a commit and its mark."""

    def life(ledger):
        if change is not enrolls:
            enroll(ledger, "t")
        keeps_a_copy(path)(ledger)
        monkeypatch.setattr(ledger._held.files, "write_mark", killed)
        change(ledger)
        never(ledger)

    killed_after(path, life)
    left = copied(path, "left")
    with closing(open_ledger(left)) as ledger:
        assert ledger.study("s").account.answered == 10
        charge(ledger, 11)
    put_back(Path(f"{path}{GIVEN}"), Path(f"{path}-older"))
    with closing(open_ledger(path)) as ledger:
        assert ledger.study("s").account.answered == 64


def test_a_start_that_is_killed_while_it_reads_the_log_loses_nothing(path, monkeypatch):
    def life(ledger):
        for study in ("s", "t", "u"):
            enroll(ledger, study)
            charge(ledger, 1, 2, 3, study=study)

    killed_after(path, life)
    steps = 0
    write = HeldLedger.write_account
    for fatal in range(1, 4):

        def dies(self, *values, at=fatal):
            nonlocal steps
            steps += 1
            if steps == at:
                killed()
            return write(self, *values)

        steps = 0
        with monkeypatch.context() as patch:
            patch.setattr(HeldLedger, "write_account", dies)
            killed_after(path, never)
    with closing(open_ledger(path)) as ledger:
        assert [entry.account.answered for entry in ledger.studies()] == [3, 3, 3]
        for study in ("s", "t", "u"):
            charge(ledger, 4, study=study)
    assert verify_ledger(path) == []


def test_studies_that_come_and_go_do_not_lengthen_the_log(path, monkeypatch):
    monkeypatch.setattr(ledger_given, "LARGEST_BYTES", 4000)
    monkeypatch.setattr(ledger_given, "STEP_BYTES", 1000)
    with closing(open_ledger(path)) as ledger:
        enroll(ledger)
        charge(ledger, 1, 2)
        for number in range(150):
            enroll(ledger, f"t{number}")
            ledger.close_study(f"t{number}")
            assert ledger.study("s").account.answered == 2
        left = copied(path, "left")
        assert Path(f"{path}{GIVEN}").stat().st_size <= 4000
        charge(ledger, 3)
    assert read_studies(left)[1][0].account.answered == 2
    assert verify_ledger(path) == []


@pytest.mark.parametrize(
    "sizes", [[80_000, 80_000, 8], [80_000] * 8, [8, 3000, 80_000, 200_000, 8], [2_000_000, 8]]
)
def test_every_response_of_studies_of_all_sizes_has_its_place(path, sizes):
    """None is written over, and none stands beyond what is read, whoever begins in between."""
    given = 20
    with closing(open_ledger(path)) as ledger:
        for index in range(len(sizes)):
            enroll(ledger, f"s{index}", epsilon=Fraction(1, 100))
        for number in range(1, given + 1):
            for index, size in enumerate(sizes):
                # The last of them begins when the others are under way.
                if index < len(sizes) - 1 or number == given:
                    ledger.charge(
                        study_id=f"s{index}",
                        sequence=number if index < len(sizes) - 1 else 1,
                        digest=digest(number),
                        response=bytes([number]) * size,
                    )
        left = copied(path, "left")
        assert Path(f"{path}{GIVEN}").stat().st_size <= ledger_given.LARGEST_BYTES
    expected = [given] * (len(sizes) - 1) + [1]
    assert [entry.account.answered for entry in read_studies(left)[1]] == expected
    killed_after(left, nothing, nothing)
    with closing(open_ledger(left)) as ledger:
        for entry, size, answered in zip(ledger.studies(), sizes, expected, strict=True):
            assert entry.account.answered == answered
            assert entry.account.response(answered, size=size) == bytes([given]) * size
    assert verify_ledger(left) == []


def test_a_last_response_that_is_alone_in_its_block_is_counted(path):
    """Of a promise of 65 the last one is charged without others ahead."""
    with closing(open_ledger(path)) as ledger:
        enroll(ledger, responses=65, epsilon=Fraction(1))
        charge(ledger, *range(1, 66))
        account = ledger.study("s").account
        assert account.answered == 65
        assert account.response(65, size=SIZE) == response(65)
        left = copied(path, "left")
        ledger.close_study("s")
    assert read_studies(left)[1][0].account.answered == 65
    assert read_studies(path)[1][0].epsilon_held == 1


def test_the_log_has_its_name_on_the_disk_before_anything_is_noted_in_it(path, monkeypatch):
    synced, sync = [], os.fsync

    def noted(handle):
        sync(handle)
        if os.path.samestat(os.fstat(handle), path.parent.stat()):
            synced.append({file.name for file in path.parent.iterdir()})

    monkeypatch.setattr(os, "fsync", noted)
    ledger = open_ledger(path)
    ledger.close()
    assert {path.name, f"{path.name}.lock", f"{path.name}-given"} <= synced[-1]
