"""What a ledger says of a study, as a typed record, and the canonical text of its terms."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import sqlite3
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, dataclass, field, fields, replace
from fractions import Fraction
from pathlib import Path

from common.errors import DiskError, InputError
from common.files import disk_fails, open_regular, permitted
from common.privacy import exact_sum, in_short, noted_amount
from common.sqlite_files import told_by_system
from common.terms import StudyTerms
from common.texts import printable
from owner.account import Account

# Whatever bytes that are not what was written can raise on their way through SQLite, JSON and us.
UNREADABLE = (
    sqlite3.Error,
    sqlite3.Warning,
    struct.error,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
)


_MAGIC = b"SQLite format 3\0"


class LedgerError(InputError):
    """The ledger cannot be trusted or written; the owner must not answer."""


class LedgerDiskError(LedgerError, DiskError):
    """It cannot be written now, since the disk is full or fails; a later start may do."""


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Everything that reading or writing a ledger may raise, as a sentence for the operator.

    Raises:
      LedgerError: SQLite, or the system, raised something inside.
    """
    try:
        yield
    except UNREADABLE as error:
        told = told_by_system(error, path)
        # Never "begin a new one": in place of a damaged ledger that would spend budgets again.
        why = printable(" ".join(str(told).split())) or type(told).__name__
        if _is_another_file(path) or "no such table" in why:
            raise LedgerError(
                f"{path}: this file is not a ledger of copriv, or is damaged; restore the ledger "
                "from a copy, or give the path of the right file"
            ) from error
        if (odd := in_the_way(told, path)) is not None:
            raise odd from error
        kind = LedgerDiskError if disk_fails(told) else LedgerError
        cure = (
            "check the disk's space and the file's permissions, or restore the ledger from a copy"
        )
        raise kind(
            f"{path}: the ledger cannot be used ({why}); {permitted(told, cure)}; no response "
            "leaves without a charge"
        ) from error


def in_the_way(error: Exception, path: Path) -> LedgerError | None:
    """What is said of a folder, a pipe or a device that has the name of one of a ledger's files."""
    if not isinstance(error, OSError) or error.errno not in (errno.EINVAL, errno.EISDIR):
        return None
    name = printable(Path(error.filename or path).name)
    return LedgerError(
        f"{path}: the ledger cannot be used ({name} is no regular file); move that away, or "
        "restore the ledger with all its files from a copy"
    )


def _is_another_file(path: Path) -> bool:
    """Whether something is there that is no database."""
    try:
        with open_regular(path) as file:
            start = file.read(len(_MAGIC))
    except OSError:
        return False
    return start not in {b"", _MAGIC}


@dataclass(frozen=True, kw_only=True)
class StudyEntry:
    """One study in the ledger.

    Args:
      study_id: The study.
      learner: The identity of the learner that enrolled.
      terms: The agreed terms as canonical text, which names the feature map by its digest; "" for
        a study that was closed without a response.
      terms_digest: SHA-256 of that text.
      read_text: Reads the text of a digest; the feature map is read when it is asked for.
      epsilon: What all promised responses together spend.
      noise_scale: Scale of the noise, in gradient units.
      insecure_noise: True when the noise came from a seed: the study protected nobody.
      account: What was promised and given.
      opened: When it was enrolled, ISO 8601, UTC.
      closed: When it was closed, or None.
    """

    study_id: str
    learner: str
    terms: str
    terms_digest: str
    read_text: Callable[[str], str] = field(repr=False, compare=False)
    epsilon: Fraction
    noise_scale: float
    insecure_noise: bool
    account: Account
    opened: str
    closed: str | None

    def agrees_with(self, terms: StudyTerms) -> bool:
        """Whether these are the terms that were agreed on."""
        return text_digest(terms_to_text(terms)) == self.terms_digest

    @property
    def noted_terms(self) -> StudyTerms:
        """The agreed terms, typed, with the digest of the feature map in its place."""
        try:
            return terms_from_text(self.terms)
        except UNREADABLE:
            raise LedgerError(
                f"study {self.study_id}: the terms in the ledger cannot be read; restore the "
                "ledger from a copy"
            ) from None

    @property
    def agreed_terms(self) -> StudyTerms:
        """The agreed terms, typed and whole."""
        terms = self.noted_terms
        return replace(terms, feature_map=self.read_text(terms.feature_map))

    @property
    def epsilon_spent(self) -> Fraction:
        """What the responses given so far have spent."""
        return self.epsilon * self.account.answered / self.account.promised

    @property
    def epsilon_held(self) -> Fraction:
        """What the study takes of the lifetime budget: all of it while open, then what it spent."""
        return self.epsilon_spent if self.account.closed else self.epsilon


def epsilon_uncounted(studies: Iterable[StudyEntry], *, kappa: int) -> Fraction:
    r"""What the lifetime budget lost to studies that counted on fewer shards than there are.

    A study that spent epsilon' while it counted on k shards may have told
    :math:`\epsilon' \kappa / k` about a record that is in kappa of them.

    Args:
      studies: The ledger's studies.
      kappa: In how many shards a record may be, as the owner knows today.
    """
    if kappa == 1:
        return Fraction(0)
    shards = ((entry, entry.noted_terms.kappa) for entry in studies if entry.terms)
    return exact_sum(
        entry.epsilon_spent * (Fraction(kappa, counted) - 1)
        for entry, counted in shards
        if counted < kappa
    )


def in_words(entry: StudyEntry) -> str:
    """What a study that is closed came to, for people."""
    account, spent = entry.account, entry.epsilon_spent
    return (
        f"{account.answered} of {account.promised} responses spent epsilon "
        f"{in_short(spent, up=True)}, "
        f"{in_short(entry.epsilon - spent)} is back in the lifetime budget"
    )


def promise_faults(entry: StudyEntry) -> list[str]:
    """Where a study's account promises other than its terms: one sentence, none for a sound one."""
    if not entry.terms and entry.account.closed and not entry.account.answered:
        return []
    try:
        terms = entry.noted_terms
    except LedgerError as error:
        return [str(error)]
    noted = (entry.study_id, entry.epsilon, entry.account.promised)
    if (terms.study_id, terms.epsilon, terms.responses) == noted:
        return []
    return [
        f"study {entry.study_id}: {entry.account.promised} responses for epsilon {entry.epsilon} "
        f"are noted, its terms say {terms.responses} for {terms.epsilon}"
    ]


def text_digest(text: str) -> str:
    """SHA-256 of a text, by which the ledger keeps it once."""
    return hashlib.sha256(text.encode()).hexdigest()


def terms_to_text(terms: StudyTerms) -> str:
    """Terms as canonical JSON: what has its default value is left out, the map is its digest.

    So a field that a later version adds changes no text of a study that does not use it.

    >>> terms = StudyTerms(study_id="s", loss="squared", theta_max=1.0, feature_map="{}",
    ...     horizon=10, responses=10, epsilon=Fraction(1, 3))
    >>> terms_from_text(terms_to_text(terms)) == replace(terms, feature_map=text_digest("{}"))
    True
    >>> "kappa" in terms_to_text(terms)
    False
    """
    values = {
        each.name: getattr(terms, each.name)
        for each in fields(terms)
        if each.default is MISSING or getattr(terms, each.name) != each.default
    }
    values["epsilon"] = str(terms.epsilon)
    values["feature_map"] = text_digest(terms.feature_map)
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def terms_from_text(text: str) -> StudyTerms:
    """The terms of :func:`terms_to_text`, with the digest of the feature map in its place."""
    values = json.loads(text)
    values["epsilon"] = noted_amount(values["epsilon"])
    for name in {"reference", "edges"} & set(values):
        values[name] = tuple(values[name])
    return StudyTerms(**values)
