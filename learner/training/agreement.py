"""Whether a site can take part in a study: one finding for each rule, before anything is spent.

Only what is public is judged here. How a site's records fit the feature map is for its own
officer to see (``copriv-owner check``): learners see at most that somebody has looked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from common.errors import CoprivError, InputError, RefusedError, UntrustedError
from common.features import FeatureMap
from common.findings import Finding, State, fails, passes, unchecked
from common.privacy import in_short
from common.terms import OwnerDescription, StudyTerms
from common.texts import claimed, counted, first_few
from common.tls import Peer
from common.wire import PROGRAM_VERSION
from learner.planning.guard import NotBegunError
from learner.training.claims import check_description

RULES = (
    *("reached", "certificate", "name", "version", "clock", "columns", "map", "records"),
    *("loss", "budget", "size"),
)
# A certificate that was made just now is valid from five minutes ago.
LARGEST_SKEW_SECONDS = 300.0
SHOWN_COLUMNS = 5
UNKNOWN = "nothing is known of the site yet"
# What an officer can do about a budget; what was spent stays spent.
PER_STUDY = "policy.epsilon_per_study is the owner's own"
LIFETIME = (
    "closing a study frees only what it has not spent (copriv-owner ledger close); "
    "policy.epsilon_lifetime is the owner's own"
)


class MisfitError(NotBegunError, RefusedError):
    """An owner would refuse the study, so none was enrolled."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the study asks of one owner.

    Args:
      name: The owner's name in the study.
      feature_map: The study's map.
      loss: The study's loss.
      epsilon: What the owner is asked to spend.
    """

    name: str
    feature_map: FeatureMap
    loss: str
    epsilon: Fraction


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What was seen of one site from outside.

    Args:
      where: Its address, or that it comes to us.
      peer: Who its certificate says it is; None for plain text, or where none was accepted.
      encrypted: Whether certificates are used at all.
      description: What it says of itself, or None.
      failure: Why it was not reached, or gave no description.
      skew_seconds: How far its clock is before ours, at least; None where it is not stated.
    """

    where: str
    encrypted: bool
    peer: Peer | None = None
    description: OwnerDescription | None = None
    failure: CoprivError | None = None
    skew_seconds: float | None = None


def findings(seen: Seen, asked: Asked, *, now: datetime | None = None) -> tuple[Finding, ...]:
    """One finding for each of :data:`RULES`, in their order.

    Args:
      seen: The site.
      asked: What the study asks of it.
      now: The time, for the certificate's days; None for now.
    """
    found = {finding.rule: finding for finding in _found(seen, asked, now or datetime.now(UTC))}
    missing = unchecked("", UNKNOWN)
    return tuple(found.get(rule, replace(missing, rule=rule)) for rule in RULES)


def refuse_misfits(
    descriptions: Sequence[OwnerDescription], terms: Sequence[StudyTerms], feature_map: FeatureMap
) -> None:
    """Refuse a study that an owner would refuse, before any owner reserves its budget for it.

    Args:
      descriptions: What the owners say of themselves.
      terms: What each is asked; one without responses is not enrolled.
      feature_map: The study's.

    Raises:
      MisfitError: The first that would refuse, and why.
    """
    for description, its in zip(descriptions, terms, strict=True):
        if its.responses == 0:
            continue
        for finding in (
            *_map(description, feature_map),
            _loss(description, its.loss),
            _budget(description, its.epsilon),
        ):
            if finding.state is State.FAILS:
                raise MisfitError(
                    f"owner {description.name}: {finding.rule}: {finding.words}; "
                    "no owner was enrolled"
                )


def _found(seen: Seen, asked: Asked, now: datetime) -> Iterator[Finding]:
    yield from _line(seen, now)
    description = seen.description
    if seen.peer is not None and seen.peer.name != asked.name:
        yield fails(
            "name",
            f"the certificate there is that of {claimed(seen.peer.name)!r}; give "
            "each owner its own address, and each machine its own files",
        )
        return
    if description is None:
        return
    try:
        check_description(description, name=asked.name)
    except CoprivError as error:
        yield fails("name" if isinstance(error, InputError) else "size", str(error))
        return
    source = "its certificate and its settings say so" if seen.encrypted else "its settings say so"
    yield passes("name", source)
    yield _version(description)
    yield _clock(seen.skew_seconds)
    yield from _map(description, asked.feature_map)
    yield _loss(description, asked.loss)
    yield _budget(description, asked.epsilon)
    yield passes("size", counted(description.num_records, "record"))


def _line(seen: Seen, now: datetime) -> Iterator[Finding]:
    """Whether the site is reached, and its certificate."""
    if isinstance(seen.failure, UntrustedError):
        yield passes("reached", f"something listens at {seen.where}")
        yield fails("certificate", str(seen.failure))
        return
    if seen.failure is not None and seen.peer is None:
        yield fails("reached", str(seen.failure))
        return
    if seen.failure is not None:
        yield fails("reached", f"its certificate fits, but: {seen.failure}")
    else:
        yield passes("reached", f"at {seen.where}")
    if not seen.encrypted:
        yield unchecked("certificate", "plain text is spoken; give [tls]")
    elif seen.peer is None or seen.peer.expires is None:
        yield passes("certificate", "of our CA")
    else:
        days = (seen.peer.expires - now) // timedelta(days=1)
        yield passes("certificate", f"of our CA, {days} days left")


def _version(description: OwnerDescription) -> Finding:
    version = claimed(description.version)
    if version == PROGRAM_VERSION:
        return passes("version", version)
    theirs = f"version {version}" if version else "a version too old to say which"
    return fails(
        "version",
        f"it runs {theirs}; this is {PROGRAM_VERSION}; install the same version on both sides",
    )


def _clock(skew: float | None) -> Finding:
    if skew is None:
        return unchecked("clock", "its version does not state the time")
    if abs(skew) <= LARGEST_SKEW_SECONDS:
        return passes("clock", f"within {max(abs(skew), 1):.0f} s of ours")
    way = "ahead of" if skew > 0 else "behind"
    return fails(
        "clock",
        f"its clock is {abs(skew) / 60:.0f} minutes {way} ours; set both right, or certificates "
        "seem expired or not valid yet",
    )


def _map(description: OwnerDescription, feature_map: FeatureMap) -> Iterator[Finding]:
    """Columns by name, the map by digest, and whether somebody has looked at the records."""
    named = set(description.columns)
    missing = [name for name in feature_map.columns_needed if name not in named]
    if not description.columns:
        yield unchecked("columns", "it names none; see data.columns of its settings")
    elif missing:
        few = first_few([repr(name) for name in missing], SHOWN_COLUMNS)
        yield fails("columns", f"it names no column {few}; its officer adds or maps them")
    else:
        yield passes("columns", f"it has all {len(feature_map.columns_needed)}")
    if description.feature_map_digest in {"", feature_map.digest}:
        takes = "it accepts just this one" if description.feature_map_digest else "it accepts any"
        yield passes("map", takes)
    else:
        yield fails(
            "map",
            f"it accepts only the map {description.feature_map_digest[:16]}, the study's is "
            f"{feature_map.digest[:16]}; give both sides the same file: after a change of the "
            "study, copriv invite asks its owners again",
        )
    if description.checked_map_digest == feature_map.digest:
        yield passes("records", "its officer declares to have looked at them under this map")
    else:
        yield unchecked(
            "records",
            "units, categories and gaps are seen at the site only: its officer types "
            "copriv-owner check OWNER.toml --declare",
        )


def _loss(description: OwnerDescription, loss: str) -> Finding:
    if loss in description.losses:
        return passes("loss", loss)
    known = claimed(", ".join(description.losses)) or "none"
    return fails("loss", f"it does not answer for {loss}, only for {known}; see its policy.losses")


def _budget(description: OwnerDescription, epsilon: Fraction) -> Finding:
    for most, what, cure in (
        (description.epsilon_per_study, "it spends at most {} on one study", PER_STUDY),
        (description.epsilon_left, "{} of its lifetime budget is left", LIFETIME),
    ):
        if epsilon > most:
            # Of nothing there is no less.
            less = "ask it for less (epsilon in its [[owners]])" if most else "leave it out"
            return fails(
                "budget",
                f"the study asks for epsilon {in_short(epsilon)}, but "
                f"{what.format(in_short(most))}; {less}, or ask its officer: {cure}",
            )
    return passes("budget", f"{in_short(epsilon)} asked, {in_short(description.epsilon_left)} left")
