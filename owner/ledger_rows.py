"""What a ledger holds: its tables, a study as a typed record, reading it for people."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path

from common.errors import InputError
from common.privacy import exact_sum
from common.terms import StudyTerms
from owner.core import Account

__all__ = [
    "SCHEMA",
    "SCHEMA_VERSION",
    "LedgerError",
    "StudyEntry",
    "check_schema",
    "check_shard",
    "entries",
    "epsilon_held",
    "epsilon_uncounted",
    "explained",
    "miscounted",
    "promise_faults",
    "read_for_shard",
    "read_studies",
    "terms_from_text",
    "terms_to_text",
    "verify_ledger",
]

SCHEMA_VERSION = "2"

# What a charge changes stands apart from the terms: a feature map of some megabytes would
# otherwise be written again with every response.
SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE studies (
  study_id TEXT PRIMARY KEY,
  learner TEXT NOT NULL,
  epsilon TEXT NOT NULL,
  noise_scale REAL NOT NULL,
  insecure_noise INTEGER NOT NULL,
  opened TEXT NOT NULL,
  terms TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE accounts (
  study_id TEXT PRIMARY KEY REFERENCES studies,
  promised INTEGER NOT NULL CHECK (promised > 0),
  answered INTEGER NOT NULL DEFAULT 0 CHECK (answered BETWEEN 0 AND promised),
  closed TEXT,
  last_digest TEXT NOT NULL DEFAULT '',
  last_response BLOB NOT NULL DEFAULT x''
) WITHOUT ROWID;
CREATE TABLE charges (
  study_id TEXT NOT NULL REFERENCES studies,
  sequence INTEGER NOT NULL,
  theta_digest TEXT NOT NULL,
  charged TEXT NOT NULL,
  PRIMARY KEY (study_id, sequence)
) WITHOUT ROWID;
"""


class LedgerError(InputError):
    """The ledger cannot be trusted or written; the owner must not answer."""


@dataclass(frozen=True, kw_only=True)
class StudyEntry:
    """One study in the ledger.

    Args:
      study_id: The study.
      learner: The identity of the learner that enrolled.
      terms: The agreed terms, as the text they were agreed in.
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
    epsilon: Fraction
    noise_scale: float
    insecure_noise: bool
    account: Account
    opened: str
    closed: str | None

    @property
    def agreed_terms(self) -> StudyTerms:
        """The agreed terms, typed."""
        try:
            return terms_from_text(self.terms)
        except (ValueError, KeyError, TypeError):
            raise LedgerError(
                f"study {self.study_id}: the terms in the ledger cannot be read; restore the "
                "ledger from a copy"
            ) from None

    @property
    def epsilon_spent(self) -> Fraction:
        """What the responses given so far have spent."""
        return self.epsilon * self.account.answered / self.account.promised

    @property
    def epsilon_held(self) -> Fraction:
        """What the study takes of the lifetime budget: all of it while open, then what it spent."""
        return self.epsilon_spent if self.account.closed else self.epsilon


def entries(
    db: sqlite3.Connection, where: str = "", arguments: tuple[str, ...] = ()
) -> Iterator[StudyEntry]:
    """Studies as typed records, oldest first."""
    for row in db.execute(
        "SELECT s.study_id, learner, terms, epsilon, noise_scale, insecure_noise, opened, closed, "  # noqa: S608
        "promised, answered, last_digest, last_response FROM studies s JOIN accounts a "
        f"USING (study_id) {where} ORDER BY opened, s.study_id",
        arguments,
    ):
        yield StudyEntry(
            study_id=row[0],
            learner=row[1],
            terms=row[2],
            epsilon=_amount(row[3]),
            noise_scale=row[4],
            insecure_noise=bool(row[5]),
            opened=row[6],
            closed=row[7],
            account=Account(
                promised=row[8],
                answered=row[9],
                last_digest=row[10],
                last_response=row[11],
                closed=row[7] is not None,
            ),
        )


def _amount(text: str) -> Fraction:
    """An exact amount as the ledger keeps it."""
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise LedgerError(
            f"the ledger notes an epsilon of {text!r}, which is no number; restore it from a copy"
        ) from None


def epsilon_held(db: sqlite3.Connection, *, spent_only: bool = False) -> Fraction:
    """What all studies take of the lifetime budget, or only what they have spent of it."""
    rows = db.execute(
        "SELECT epsilon, promised, answered, closed FROM studies JOIN accounts USING (study_id)"
    )
    return exact_sum(
        _amount(epsilon)
        if closed is None and not spent_only
        else _amount(epsilon) * answered / promised
        for epsilon, promised, answered, closed in rows
        if answered or (closed is None and not spent_only)
    )


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
    shards = ((entry, entry.agreed_terms.kappa) for entry in studies)
    return exact_sum(
        entry.epsilon_spent * (Fraction(kappa, counted) - 1)
        for entry, counted in shards
        if counted < kappa
    )


def promise_faults(entry: StudyEntry) -> list[str]:
    """Where a study's account promises other than its terms: one sentence, none for a sound one."""
    try:
        terms = entry.agreed_terms
    except LedgerError as error:
        return [str(error)]
    if (terms.epsilon, terms.responses) == (entry.epsilon, entry.account.promised):
        return []
    return [
        f"study {entry.study_id}: {entry.account.promised} responses for epsilon {entry.epsilon} "
        f"are noted, its terms say {terms.responses} for {terms.epsilon}"
    ]


def miscounted(db: sqlite3.Connection) -> list[str]:
    """Studies whose count is not the number of their last charge; quick, whatever the size."""
    return [
        row[0]
        for row in db.execute(
            "SELECT study_id FROM accounts a WHERE answered <> coalesce((SELECT max(sequence) "
            "FROM charges c WHERE c.study_id = a.study_id), 0)"
        )
    ]


def read_studies(path: Path) -> tuple[dict[str, str], list[StudyEntry]]:
    """The meta data and studies of a ledger, for people; it may be in use.

    The shard's fingerprint is left out: who can guess a record could check the guess by it.

    Raises:
      LedgerError: There is no ledger, or it cannot be read.
    """
    with _read_only(path) as db:
        meta = check_schema(db, path)
        meta.pop("shard_fingerprint", None)
        return meta, list(entries(db))


def read_for_shard(path: Path, *, fingerprint: str) -> list[StudyEntry]:
    """The studies of a ledger, if it belongs to these records; nothing is written.

    Raises:
      LedgerError: It cannot be read, or it belongs to other records.
    """
    with _read_only(path) as db:
        check_shard(check_schema(db, path), path, fingerprint=fingerprint)
        return list(entries(db))


def check_shard(meta: dict[str, str], path: Path, *, fingerprint: str) -> None:
    """Refuse the ledger of other records: the budget is theirs."""
    if meta.get("shard_fingerprint") != fingerprint:
        raise LedgerError(
            f"{path}: the ledger belongs to other records than the shard; the budget is "
            "of the records, so restore the records or start a new ledger for new ones"
        )


def verify_ledger(path: Path) -> list[str]:
    """What is wrong with a ledger: one sentence for each finding, none for a sound one.

    Raises:
      LedgerError: There is no ledger, or it cannot be read.
    """
    with _read_only(path) as db:
        check_schema(db, path)
        findings = [row[0] for row in db.execute("PRAGMA integrity_check") if row[0] != "ok"]
        for study_id, answered, count, first, last in db.execute(
            "SELECT a.study_id, a.answered, count(c.sequence), coalesce(min(c.sequence), 1), "
            "coalesce(max(c.sequence), 0) FROM accounts a LEFT JOIN charges c USING (study_id) "
            "GROUP BY a.study_id"
        ):
            if not (answered == count == last and first == 1):
                findings.append(
                    f"study {study_id}: {answered} responses counted, {count} charges listed, "
                    f"numbered {first} to {last}"
                )
        for table in ("charges", "studies"):
            strangers = db.execute(
                f"SELECT count(*) FROM {table} WHERE study_id NOT IN "  # noqa: S608
                "(SELECT study_id FROM accounts)"
            ).fetchone()[0]
            if strangers:
                findings.append(f"{strangers} {table} have no account")
        for entry in entries(db):
            findings += promise_faults(entry)
    return findings


def check_schema(db: sqlite3.Connection, path: Path) -> dict[str, str]:
    """The ledger's meta data, if it is of this schema."""
    meta = dict(db.execute("SELECT key, value FROM meta"))
    if meta.get("schema_version") != SCHEMA_VERSION:
        raise LedgerError(
            f"{path}: schema version {meta.get('schema_version')}, this program knows "
            f"{SCHEMA_VERSION}; use the program version that wrote the ledger"
        )
    return meta


@contextlib.contextmanager
def _read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that cannot change the ledger."""
    if not path.is_file():
        raise LedgerError(f"{path}: there is no ledger; give the path in the owner's settings")
    with (
        explained(path),
        contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db,
    ):
        yield db


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """SQLite's errors as sentences for the operator."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise LedgerError(
            f"{path}: the ledger cannot be used ({error}); check the disk's space and the file's "
            "permissions, or restore the ledger from a copy; no response leaves without a charge"
        ) from error


def terms_to_text(terms: StudyTerms) -> str:
    """Terms as canonical JSON, for the ledger.

    >>> terms = StudyTerms(study_id="s", loss="squared", theta_max=1.0, feature_map="{}",
    ...     horizon=10, responses=10, epsilon=Fraction(1, 3))
    >>> terms_from_text(terms_to_text(terms)) == terms
    True
    """
    values = {field.name: getattr(terms, field.name) for field in fields(terms)}
    values["epsilon"] = str(terms.epsilon)
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def terms_from_text(text: str) -> StudyTerms:
    """The terms of :func:`terms_to_text`."""
    values = json.loads(text)
    values["epsilon"] = Fraction(values["epsilon"])
    return StudyTerms(**values)
