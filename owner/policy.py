"""What this owner agrees to: its settings file, and the checks a study must pass."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from common.config import Address, Epsilon, LossName, Positive, Settings, is_short, parse_epsilon
from common.errors import MalformedError, PolicyError
from common.features import FeatureMap
from common.losses import LOSSES, loss_of
from common.names import Name, check_name
from common.places import Place
from common.privacy import LARGEST_BOUND, SMALLEST_BOUND, in_short
from common.releases import VALIDATION, release_of
from common.tables import TableSource
from common.terms import StudyTerms
from common.texts import brief, counted
from common.tls import TlsSettings
from owner.offers import OfferSettings
from owner.stored import Storage
from owner.sums import usable_threads

ANONYMOUS = "anonymous"
_TOKEN = re.compile(r"sha256:[0-9a-f]{64}|file:[^\r\n\0]+", re.ASCII)
LARGEST_COUNT = 10**9
LONGEST_STUDY_ID = 128


def _as_float(given: object) -> float:
    return float(parse_epsilon(given))


Factor = Annotated[Positive, BeforeValidator(_as_float, json_schema_input_type=float | str)]


def check_learner_name(name: str) -> str:
    """The name of a learner that has a token.

    Raises:
      ValueError: It is not one.
    """
    if name == ANONYMOUS:
        raise ValueError(f"expected a learner's name other than {ANONYMOUS}")
    return check_name(name, also="@")


class Policy(Settings):
    """What the owner agrees to.

    Args:
      epsilon_per_study: The most it spends on one study.
      epsilon_lifetime: The most its records ever spend, over all studies and learners.
      losses: The loss functions for which it answers.
      min_num_records: The fewest records that it answers for; a smaller shard is refused.
      kappa: The most shards that one of its records may be in, or the most rows that one of its
        persons may have in all shards together. A study with a smaller kappa is refused; of one
        that is not, each shard spends epsilon/kappa.
      learners: The learners it serves, by the name in their certificate. If neither this nor tokens
        is set, it serves any.
      tokens: The learners it serves by token: "sha256:HEX" of the token, as copriv-owner token
        prints it, or "file:PATH" of a file with the token itself.
      queries_per_second: How many requests it takes of one learner in a second; without it there is
        no limit.
      enrollments_per_hour: How many new studies it takes of one learner in an hour.
      max_features: The most features that a model may have; a shard takes 8 bytes for each record
        and feature.
      max_map_bytes: The longest feature map of a learner, in bytes of its text; one of 300 columns,
        rotated and scaled, takes 1.3 MiB.
      max_map_entries: How many names and codes a learner's feature map may hold.
      calls_per_learner: How many calls and streams of one learner may be open at once.
      validation: Whether it says once, out of the study's epsilon, how good a finished model is on
        its records. "shown": reports may show the answer with its name. "pooled": only together
        with other owners' answers. false: it gives none. The learner sees the noisy answer in any
        case.
    """

    EXAMPLES = MappingProxyType(
        {
            "epsilon_per_study": 1,
            "epsilon_lifetime": "10/3",
            "learners": ["lab"],
            "tokens": {"lab": "file:lab.token"},
            "queries_per_second": 100.0,
            "validation": "shown",
        }
    )

    epsilon_per_study: Epsilon
    epsilon_lifetime: Epsilon
    losses: Annotated[tuple[LossName, ...], Field(min_length=1)] = tuple(LOSSES)
    min_num_records: int = Field(default=1, ge=1)
    kappa: int = Field(default=1, ge=1)
    learners: tuple[str, ...] = ()
    tokens: dict[str, str] = Field(default_factory=dict)
    queries_per_second: Annotated[float, Field(ge=1e-6)] | None = None
    enrollments_per_hour: int = Field(default=100, ge=1)
    max_features: int = Field(default=1000, ge=1)
    max_map_bytes: int = Field(default=2 * 2**20, ge=1)
    max_map_entries: int = Field(default=50_000, ge=1)
    calls_per_learner: int = Field(default=128, ge=1)
    validation: Literal["pooled", "shown", False] = "pooled"

    @field_validator("tokens")
    @classmethod
    def _tokens_are_digests_or_files(cls, tokens: dict[str, str]) -> dict[str, str]:
        for learner, where in tokens.items():
            check_learner_name(learner)
            if not _TOKEN.fullmatch(where):
                raise ValueError(
                    f'{learner}: expected "sha256:HEX" of the token, as copriv-owner token prints '
                    'it, or "file:PATH" of a file with the token itself'
                )
        return tokens

    @model_validator(mode="after")
    def _an_emptied_list_opens_nothing(self) -> Policy:
        """Striking off the last learner means that nobody is served; no list means that any is."""
        if self.model_fields_set & {"learners", "tokens"} and not (self.learners or self.tokens):
            raise ValueError(
                "learners and tokens name nobody, and an owner without names serves any learner "
                "that reaches it; name those it serves, take both keys out if any is meant, or "
                "stop the owner"
            )
        return self


class PrivateSource(TableSource):
    """The table ``[data]`` of an owner: where its records are, and what learners see of them.

    Args:
      columns: The columns that learners may know of and use, besides those of the owner's own
        feature map.
      rename: The study's names of columns, each with this table's own name for it.
      units: For a column, what its numbers are multiplied by to be in the study's unit. Convert in
        the table itself what needs more than a factor, such as degrees Fahrenheit.
      spellings: For a column, this table's categories, each with the study's name for it.
      storage: How features are stored while they are served; float32 takes half of the memory and
        is rounded towards zero, so it costs no privacy.
      cache: Whether records stay where they are instead of being held in memory, for tables that
        are larger. Studies of second moments read the table once; for others the features are kept
        beside the ledger, in files for this user alone that are mapped into memory. With auto they
        do if the table would take more than half of the machine's memory, or of what its container
        may have.
    """

    EXAMPLES = MappingProxyType(
        {
            "columns": ["Age Group", "Length of Stay"],
            "rename": {"Length of Stay": "los"},
            "units": {"age": "1/365"},
            "spellings": {"sex": {"m": "male", "f": "female"}},
        }
    )

    columns: tuple[str, ...] = ()
    rename: dict[str, str] = Field(default_factory=dict)
    units: dict[str, Factor] = Field(default_factory=dict)
    spellings: dict[str, dict[str, str]] = Field(default_factory=dict)
    storage: Storage = "float64"
    cache: bool | Literal["auto"] = "auto"


class AttachSettings(Settings):
    """The table ``[attach]``: the learner that ``copriv-owner attach`` goes to.

    Args:
      learner: Its address, HOST:PORT.
      clock_rate: How often this owner asks for an update, in ticks per unit of virtual time.
      seed: Seed of this owner's clock, for experiments that must repeat; ticks are no secret.
    """

    EXAMPLES = MappingProxyType({"learner": "study.example:50060", "seed": 1})

    learner: Address | None = None
    clock_rate: Positive = 1.0
    seed: int | None = Field(default=None, ge=0)


class LedgerSettings(Settings):
    """The table ``[ledger]``: where the budget is kept; ``ledger = "FILE"`` is the same as path.

    Args:
      path: The file in which the budget is kept.
      block: How many responses are charged at once, 1 to 64. With 1 each response is on the disk
        with its charge before it leaves. With more, those that follow leave without a write; if the
        owner is killed, the rest of the block is spent and lost, at most this many responses.
    """

    EXAMPLES = MappingProxyType({"block": 64})

    path: Place = Path("ledger.sqlite")
    block: int = Field(default=1, ge=1, le=64)


class OwnerSettings(Settings):
    """An owner's settings file, OWNER.toml.

    Args:
      name: The owner's name.
      listen: Address to serve on, HOST:PORT; port 0 takes a free one.
      ledger: Where its budget is kept: a file, or the table below.
      features: The only feature map that it accepts; without it, any map that bounds every record.
      data: The owner's table.
      policy: What the owner agrees to.
      listening: Which offers of a broadcasting learner it accepts.
      attach: The learner that it connects to, instead of serving on a port.
      tls: Its certificate; required beyond this machine unless --insecure is typed.
      health: Address of a plain-text port for probes, which says only whether it serves.
      metrics: Address of a plain HTTP port with Prometheus metrics.
      reflection: Whether tools such as grpcurl may list the calls; they need a learner's token or
        certificate, where one is required.
      threads: How many threads add up the records for an answer, and draw long noise ahead of it;
        auto takes as many as this process may use. Sums are the same to the last bit.
      idle_seconds: How many seconds a call waits for its next message. Then it ends, and the
        learner opens another when it has something to ask. No message and no reply may be longer on
        its way: over 64 kbit/s a feature map of 2,000 columns takes a minute.
    """

    EXAMPLES = MappingProxyType(
        {
            "name": "mount-sinai",
            "features": "features.json",
            "health": "127.0.0.1:50052",
            "metrics": "127.0.0.1:9464",
        }
    )

    FILE = "an OWNER.toml"
    FOREIGN_KEYS = MappingProxyType(
        {"owners": "a study's file", "model": "a study's file", "privacy": "a study's file"}
    )

    name: Name
    listen: Address = "127.0.0.1:0"
    ledger: LedgerSettings = LedgerSettings()
    features: Place | None = None
    data: PrivateSource
    policy: Policy
    listening: OfferSettings = OfferSettings()
    attach: AttachSettings = AttachSettings()
    tls: TlsSettings | None = None
    health: Address | None = None
    metrics: Address | None = None
    reflection: bool = False
    threads: Annotated[int, Field(ge=1, le=1024)] | Literal["auto"] = "auto"
    idle_seconds: Positive = 60.0

    @property
    def num_threads(self) -> int:
        """How many threads add up the records, and draw noise."""
        return usable_threads() if self.threads == "auto" else self.threads

    # Editors are told of both forms.
    @field_validator("ledger", mode="before", json_schema_input_type=LedgerSettings | str)
    @classmethod
    def _ledger_is_a_file_or_a_table(cls, given: object) -> object:
        return {"path": given} if isinstance(given, str | Path) else given


def check_terms(terms: StudyTerms) -> None:
    """Refuse terms that are not a study at all.

    Raises:
      MalformedError: A value no study can have; the sentence names it.
    """
    try:
        check_name(terms.study_id, also=":", longest=LONGEST_STUDY_ID)
    except ValueError as error:
        raise MalformedError(f"study_id: {error}") from None
    if not SMALLEST_BOUND <= terms.theta_max <= LARGEST_BOUND:
        raise MalformedError(f"theta_max must be from {SMALLEST_BOUND:g} to {LARGEST_BOUND:g}")
    if not 1 <= terms.responses <= terms.horizon <= LARGEST_COUNT:
        raise MalformedError("responses and horizon must satisfy 1 <= responses <= horizon <= 1e9")
    if not terms.epsilon > 0:
        raise MalformedError("epsilon must be greater than 0")
    if not is_short(terms.epsilon):
        raise MalformedError("epsilon must have at most 18 digits above and below")
    for name, value in (("clip", terms.clip), ("delta", terms.delta)):
        if value is not None and not SMALLEST_BOUND <= value < math.inf:
            raise MalformedError(f"{name} must be a finite number of at least {SMALLEST_BOUND:g}")
    try:
        loss_of(terms)
        release_of(terms).check(terms)
    except ValueError as error:
        raise MalformedError(str(error)) from None
    if not 1 <= terms.kappa <= LARGEST_COUNT:
        raise MalformedError("kappa must be a whole number from 1 to 1e9")


def check_policy(
    policy: Policy, terms: StudyTerms, *, learner: str, num_records: int, pinned_map: str | None
) -> None:
    """Refuse a study that this owner does not agree to.

    Args:
      policy: The owner's policy.
      terms: Well-formed terms.
      learner: The identity of the learner that asks.
      num_records: The owner's n_i.
      pinned_map: The text of the only feature map accepted, or None.

    Raises:
      PolicyError: The policy forbids it; the sentence says what it allows.
    """
    check_learner(policy, learner)
    if terms.loss not in policy.losses:
        raise PolicyError(f"this owner answers only for the losses {', '.join(policy.losses)}")
    if terms.release == VALIDATION.name and not policy.validation:
        raise PolicyError("this owner does not say how good a model is on its records")
    if num_records < policy.min_num_records:
        raise PolicyError("this owner has fewer records than it answers for")
    if terms.epsilon > policy.epsilon_per_study:
        raise PolicyError(
            f"the study asks for epsilon {in_short(terms.epsilon, up=True)}, but this owner "
            f"spends at most {in_short(policy.epsilon_per_study)} on one study; ask for less"
        )
    if terms.kappa < policy.kappa:
        raise PolicyError(
            f"the study counts on kappa {terms.kappa}, but this owner's records may be "
            f"in {policy.kappa} shards; ask with kappa = {policy.kappa}"
        )
    if pinned_map is not None and terms.feature_map != pinned_map:
        raise PolicyError(
            "the study's feature map is not the one this owner was given; "
            "give owner and learner the same file"
        )


def check_map(policy: Policy, feature_map: FeatureMap, *, allow_private_bounds: bool) -> None:
    """Refuse a feature map that this owner does not work with.

    Raises:
      PolicyError: It is too large, or its bounds were taken from private records.
    """
    if feature_map.num_features > policy.max_features:
        raise PolicyError(
            f"the study has {counted(feature_map.num_features, 'feature')}, this owner answers for "
            "at most "
            f"{policy.max_features}"
        )
    if feature_map.source_kind == "private" and not allow_private_bounds:
        raise PolicyError(
            "the study's feature map was fitted on private records, so its bounds describe "
            "them; fit it on public records"
        )


def check_map_text(policy: Policy, text: str) -> None:
    """Refuse the text of a feature map that would take long to read, before it is read.

    Raises:
      PolicyError: It is too long, or has too many entries.
    """
    if len(text) > policy.max_map_bytes or len(text.encode()) > policy.max_map_bytes:
        raise PolicyError(
            f"the study's feature map takes more than the {policy.max_map_bytes} bytes that this "
            "owner reads; use fewer columns, or ask it to raise max_map_bytes"
        )
    # Each has a colon behind it; lists are checked as they are read.
    if text.count(":") > policy.max_map_entries:
        raise PolicyError(
            f"the study's feature map has more than the {policy.max_map_entries} entries that "
            "this owner reads; use fewer categories, or ask it to raise max_map_entries"
        )


def check_learner(policy: Policy, learner: str) -> None:
    """Refuse a learner that this owner does not serve.

    Raises:
      PolicyError: It is not on the list.
    """
    served = {*policy.learners, *policy.tokens}
    if served and learner not in served:
        # Whoever asks knows its name; the owner's officer reads in the log who it was.
        name = brief(repr(learner))
        raise PolicyError(
            f"this owner does not serve this learner, {name}; ask it to add that name"
        )
