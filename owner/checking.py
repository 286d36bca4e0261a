"""The dry run: what an owner would promise and what its noise would drown.

It reads the settings, the records, the feature map and the ledger, and writes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from common.config import Epsilon, LossName, Positive, Settings, check_settings, read_toml
from common.errors import BudgetSpentError, InputError, PolicyError, RefusedError
from common.features import FeatureMap, load_feature_map
from common.losses import loss_of
from common.privacy import exact_sum, in_short, plan_noise
from common.releases import GRADIENT, RELEASES, release_of
from common.tables import TableSource, read_table
from common.terms import Records, StudyTerms
from owner.access import Access
from owner.core import Shard, exact_answer
from owner.ledger_reading import read_for_shard
from owner.ledger_rows import epsilon_uncounted
from owner.loading import load_records
from owner.mechanism import SecureNoise
from owner.policy import ANONYMOUS, OwnerSettings, check_map, check_policy, check_terms
from owner.provenance import check_provenance
from owner.shard import fingerprint

__all__ = ["DryRun", "Proposal", "dry_run", "read_proposal", "typical_answer"]


# Public values lie within their bounds with a probability of 0.99, unless the study says
# otherwise; 0.99 of a normal distribution lie within 2.6 deviations.
DEVIATIONS_IN_BOUND = 2.6
NAMED_COLUMNS = 20


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A study as the dry run takes it, from a study's file and from options.

    Args:
      loss: A key of ``common.losses.LOSSES``; None for one that goes with the feature map.
      delta: The parameter of Huber loss, or None.
      theta_max: Half the side of the box.
      responses: The number m of responses promised.
      epsilon: The study's budget; None for the most that the policy allows.
      clip: L1 norm of a clipped gradient, or None.
      kappa: In how many shards one record may be; None for what the policy says.
      release: A key of ``common.releases.RELEASES``.
    """

    loss: str | None = None
    delta: float | None = None
    theta_max: float = 1.0
    responses: int = 1000
    epsilon: Fraction | None = None
    clip: float | None = None
    kappa: int | None = None
    release: str = GRADIENT.name


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """What the dry run found.

    Args:
      num_records: The owner's n_i.
      columns: The columns that learners are told of and may use.
      epsilon_left: What is left of the lifetime budget.
      studies: Studies in the ledger.
      feature_map: The map looked at, or None when there is none.
      unreadable_targets: Records that get the map's public target, for want of a readable one.
      terms: The study looked at, or None.
      epsilon_confirmed: What the noise library's own map says the responses spend.
      noise_scale: The scale b of the noise on each coordinate, in gradient units.
      typical_answer: L1 norm of a typical public gradient at theta = 0, or of typical moments.
      measured: Whether it was measured on public records, or taken from the map's bounds.
    """

    num_records: int
    columns: tuple[str, ...]
    epsilon_left: Fraction
    studies: int
    feature_map: FeatureMap | None = None
    unreadable_targets: int = 0
    terms: StudyTerms | None = None
    epsilon_confirmed: Fraction = Fraction(0)
    noise_scale: float = math.nan
    typical_answer: float = math.nan
    measured: bool = False

    def lines(self, settings: OwnerSettings) -> list[str]:
        """What the owner's operator reads."""
        return list(_in_words(self, settings))

    @property
    def noise_per_answer(self) -> float:
        """Expected L1 norm of one response's noise against that of the typical answer."""
        if self.feature_map is None or self.terms is None:
            return math.nan
        coordinates = release_of(self.terms).dimension(self.feature_map.num_features)
        return coordinates * self.noise_scale / self.typical_answer


def _in_words(found: DryRun, settings: OwnerSettings) -> Iterator[str]:
    """The dry run for the owner's operator."""
    policy = settings.policy
    yield f"owner {settings.name}: {found.num_records:,} records"
    named = ", ".join(found.columns[:NAMED_COLUMNS])
    more = len(found.columns) - NAMED_COLUMNS
    yield f"learners may use its columns {named}" + (f" and {more} more" if more > 0 else "")
    yield (
        f"ledger {settings.ledger}: {found.studies} studies, "
        f"{in_short(found.epsilon_left)} of the lifetime epsilon "
        f"{in_short(policy.epsilon_lifetime)} is left"
    )
    terms, feature_map = found.terms, found.feature_map
    if terms is None or feature_map is None:
        yield "no feature map is set, so nothing can be said of the noise; give --features FILE"
        return
    p, m = feature_map.num_features, terms.responses
    yield (
        f"feature map {feature_map.digest[:16]}: {p} features, fitted on "
        f"{feature_map.num_public_records:,} {feature_map.source_kind} records of "
        f"{feature_map.source}"
    )
    if found.unreadable_targets:
        yield (
            f"  {found.unreadable_targets} of {found.num_records:,} records have no readable "
            f"{feature_map.target_name}; each gets the map's public value"
        )
    release = release_of(terms)
    yield (
        f"a study of {m:,} responses with {release.described(terms)}, "
        f"theta_max {terms.theta_max:g}, kappa {terms.kappa} "
        f"would be promised epsilon {in_short(terms.epsilon)}"
    )
    yield (
        f"  the noise library confirms {float(found.epsilon_confirmed):.9g}, "
        f"{float(found.epsilon_confirmed / m):.6g} for each response"
    )
    yield f"  {release.bound_in_words(terms, feature_map.domain)}"
    yield f"  noise scale on each coordinate: {found.noise_scale:.6g}"
    source = "measured on public records" if found.measured else "from the public bounds"
    yield f"  {release.typical}, L1: {found.typical_answer:.6g} ({source})"
    ratio = found.noise_per_answer
    mean = f", the mean of all {m:,} responses' noise about {ratio / math.sqrt(m):.3g} times"
    yield f"  one response's noise is {ratio:.3g} times {release.typical}{mean if m > 1 else ''}"
    yield "nothing was charged"


class _Study(Settings):
    """The numbers of a study's file that fix an owner's noise; the rest is the learner's."""

    loss: LossName | None = None
    delta: Positive | None = None
    theta_max: Positive | None = None
    responses: Annotated[int, Field(ge=1)] | None = None
    epsilon: Epsilon | None = None
    clip: Positive | None = None
    kappa: Annotated[int, Field(ge=1)] | None = None
    release: str = GRADIENT.name


def read_proposal(study: Path | None, *, owner: str, options: Mapping[str, Any]) -> Proposal:
    """The study that a file and options describe; an option goes before the file.

    Settings that the learner would choose by itself ("auto") are left to the options.

    Args:
      study: A STUDY.toml, or None.
      owner: This owner's name, for its own entry in the file.
      options: Values of :class:`Proposal`, None where not given.

    Raises:
      InputError: The file cannot be read, or a value is wrong.
    """
    said: dict[str, Any] = {}
    if study is not None:
        table = read_toml(study)
        model, privacy, algorithm = (
            _part(table, key, study) for key in ("model", "privacy", "algorithm")
        )
        entries = table.get("owners", [])
        if not (isinstance(entries, list) and all(isinstance(o, dict) for o in entries)):
            raise InputError(f"{study}: owners: expected a table [[owners]] for each owner")
        own: dict[str, Any] = next((o for o in entries if o.get("name") == owner), {})
        # An algorithm that asks for something else than gradients bears the release's name.
        release = RELEASES.get(str(algorithm.get("name")), GRADIENT)
        said = {
            "loss": model.get("loss"),
            "delta": model.get("delta"),
            "theta_max": model.get("theta_max"),
            "responses": release.most_responses or algorithm.get("horizon"),
            "epsilon": own.get("epsilon", privacy.get("epsilon")),
            "clip": privacy.get("clip"),
            "kappa": privacy.get("kappa"),
            "release": release.name,
        }
    said |= {key: value for key, value in options.items() if value is not None}
    given = {key: value for key, value in said.items() if value is not None and value != "auto"}
    checked = check_settings(_Study, given, where=str(study or "options"))
    return Proposal(**{key: getattr(checked, key) for key in given})


def _part(table: Mapping[str, Any], key: str, study: Path) -> dict[str, Any]:
    """One table of a study's file."""
    part = table.get(key, {})
    if not isinstance(part, dict):
        raise InputError(f"{study}: {key}: got {part!r}, expected a table [{key}]")
    return part


def dry_run(
    settings: OwnerSettings,
    *,
    base: Path,
    proposal: Proposal,
    features: Path | None = None,
    public: Path | None = None,
    allow_private_bounds: bool = False,
) -> DryRun:
    """Everything ``serve`` and an enrolment would check, without promising anything.

    Args:
      settings: The owner's settings.
      base: The folder of their file.
      proposal: The study to look at.
      features: A feature map to look at where the settings name none.
      public: A table of public records, to measure a typical gradient on.
      allow_private_bounds: As for ``serve``.

    Raises:
      InputError: The settings, the records, the map or the ledger cannot be used.
      RefusedError: The owner would refuse the study.
    """
    pinned = load_feature_map(base / settings.features) if settings.features else None
    raw, table = load_records(settings, base=base, pinned=pinned)
    Access(settings.policy, base=base)
    ledger = base / settings.ledger
    studies = read_for_shard(ledger, fingerprint=fingerprint(raw)) if ledger.is_file() else []
    held = exact_sum(entry.epsilon_held for entry in studies)
    held += epsilon_uncounted(studies, kappa=settings.policy.kappa)
    found: dict[str, Any] = {
        "num_records": len(raw),
        "columns": table.columns,
        "epsilon_left": max(settings.policy.epsilon_lifetime - held, Fraction(0)),
        "studies": len(studies),
    }
    path = base / settings.features if settings.features else features
    if path is None:
        return DryRun(**found)
    feature_map = pinned or load_feature_map(path)
    table.shard(feature_map)
    check_provenance(feature_map, raw, where=str(path), allow_private_bounds=allow_private_bounds)
    terms = _terms(settings, feature_map, proposal)
    _check_study(settings, terms, feature_map, found, allow_private_bounds)
    try:
        plan = plan_noise(terms, feature_map.domain, num_records=len(raw))
    except ValueError as error:
        raise RefusedError(str(error)) from None
    records = None if public is None else _public_records(public, feature_map)
    return DryRun(
        **found,
        feature_map=feature_map,
        unreadable_targets=table.count_unreadable_targets(feature_map),
        terms=terms,
        epsilon_confirmed=SecureNoise(plan).epsilon(responses=terms.responses) * terms.kappa,
        noise_scale=plan.noise_scale,
        typical_answer=typical_answer(feature_map, terms, records=records),
        measured=records is not None,
    )


def _public_records(path: Path, feature_map: FeatureMap) -> Records:
    """The public records of a table."""
    table = read_table(TableSource(path=path), base=Path())
    return feature_map.apply(table, where=str(path))


def typical_answer(feature_map: FeatureMap, terms: StudyTerms, *, records: Records | None) -> float:
    r"""L1 norm of a typical mean gradient at :math:`\theta = 0`, where every run begins.

    Measured on public records where there are any. Else, by the Cauchy-Schwarz inequality, at
    most :math:`\sum_j \sqrt{E s^2}\sqrt{E x_j^2}`, with the slope s of the loss at 0, public
    targets of unit deviation, and a feature's deviation taken from its public bound. Of moments
    the same: :math:`E|x_i x_j|` is at most the product of the two deviations.
    """
    if records is not None:
        zero = np.zeros(feature_map.num_features)
        return float(np.abs(exact_answer(Shard(records), zero, terms)).sum())
    deviations = np.array(feature_map.bounds) / DEVIATIONS_IN_BOUND
    if feature_map.intercept:
        deviations = np.append(deviations, 1.0)
    return release_of(terms).typical_size(terms, deviations)


def _terms(settings: OwnerSettings, feature_map: FeatureMap, proposal: Proposal) -> StudyTerms:
    """The terms of the proposed study, with the policy's own values where it leaves them open."""
    policy = settings.policy
    fitting = "logistic" if feature_map.is_classification else "squared"
    return StudyTerms(
        study_id="dry-run",
        loss=proposal.loss or fitting,
        delta=proposal.delta,
        theta_max=proposal.theta_max,
        feature_map=feature_map.to_json(),
        horizon=proposal.responses,
        responses=proposal.responses,
        epsilon=proposal.epsilon or policy.epsilon_per_study,
        clip=proposal.clip,
        kappa=proposal.kappa or policy.kappa,
        release=proposal.release,
    )


def _check_study(
    settings: OwnerSettings,
    terms: StudyTerms,
    feature_map: FeatureMap,
    found: dict[str, Any],
    allow_private_bounds: bool,
) -> None:
    """What an enrolment would be refused for, whoever asks."""
    check_terms(terms)
    policy = settings.policy
    served = (*policy.learners, *policy.tokens, ANONYMOUS)
    check_policy(
        policy, terms, learner=served[0], num_records=found["num_records"], pinned_map=None
    )
    check_map(policy, feature_map, allow_private_bounds=allow_private_bounds)
    if loss_of(terms).has_classes() != feature_map.is_classification:
        raise PolicyError(f"{terms.loss} loss does not go with the feature map's target")
    if terms.epsilon > found["epsilon_left"]:
        raise BudgetSpentError(
            f"the study asks for epsilon {in_short(terms.epsilon)}, but "
            f"{in_short(found['epsilon_left'])} of the lifetime budget is left"
        )
