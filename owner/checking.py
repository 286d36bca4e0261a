"""The dry run: what an owner would promise and what its noise would drown.

It reads the settings, the records, the feature map and the ledger, and writes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from common.column_fit import ColumnSeen, count_empty_rows, look_at_columns
from common.domain import Domain
from common.errors import BudgetSpentError, InputError, PolicyError, RefusedError
from common.features import FeatureMap, load_feature_map
from common.losses import loss_of
from common.privacy import SMALLEST_BOUND, NoisePlan, in_short, plan_noise
from common.releases import NEWTON, curvature_scale, gradient_bound, release_of
from common.tables import TableSource, read_table
from common.terms import Records, StudyTerms
from common.texts import counted, first_few, number_words, printable
from owner.access import Access
from owner.core import exact_answer
from owner.ledger_reading import studies_there
from owner.lifetime import epsilon_left
from owner.loading import load_records, pinned_map
from owner.mechanism import SecureNoise
from owner.policy import ANONYMOUS, OwnerSettings, check_map, check_policy, check_terms
from owner.provenance import check_provenance
from owner.shards import Shard
from owner.trial_study import TrialStudy

# Public values lie within their bounds with a probability of 0.99, unless the study says
# otherwise; 0.99 of a normal distribution lie within 2.6 deviations.
DEVIATIONS_IN_BOUND = 2.6
NAMED_COLUMNS = 20
ALGORITHM_IS_OPEN = (
    "  the study leaves its algorithm to its learner's public records, and the noise below is that "
    "of ticks: ask the learner, then set algorithm.name in a copy of the study"
)
CLOSE = (
    "close studies that are over, which frees what they have not spent (copriv-owner ledger close)"
)


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """What the dry run found.

    Args:
      num_records: The owner's n_i.
      columns: The columns that learners may know of and use.
      epsilon_left: What is left of the lifetime budget.
      studies: Studies in the ledger.
      feature_map: The map looked at, or None when there is none.
      terms: The study looked at, or None.
      epsilon_confirmed: What the noise library's own map says the responses spend.
      noise_scale: The scale b of the noise on each coordinate, in gradient units.
      typical_answer: L1 norm of a typical public gradient at theta = 0, or of typical moments.
      measured: Whether it was measured on public records, or taken from the map's bounds.
      seen: How the owner's columns fit the map.
      empty_rows: Records without a value in any column of the map.
      left_out: How many n_i leaves out for want of a target; None where no setting says so.
      refusal: Why the owner would refuse the study; then nothing is known of its noise.
      trial: Where the study's numbers are from.
    """

    num_records: int
    columns: tuple[str, ...]
    epsilon_left: Fraction
    studies: int
    feature_map: FeatureMap | None = None
    terms: StudyTerms | None = None
    epsilon_confirmed: Fraction = Fraction(0)
    noise_scale: float = math.nan
    typical_answer: float = math.nan
    measured: bool = False
    seen: tuple[ColumnSeen, ...] = ()
    empty_rows: int = 0
    left_out: int | None = None
    refusal: RefusedError | None = None
    trial: TrialStudy = field(default_factory=TrialStudy)

    def lines(self, settings: OwnerSettings) -> list[str]:
        """What the owner's operator reads."""
        return list(_in_words(self, settings))

    @property
    def noise_per_answer(self) -> float:
        """Expected L1 norm of one response's noise, in typical answers; inf where these are 0."""
        if self.feature_map is None or self.terms is None:
            return math.nan
        coordinates = release_of(self.terms).dimension(self.terms, self.feature_map.num_features)
        noise = coordinates * self.noise_scale
        return noise / self.typical_answer if self.typical_answer else math.inf


def _block_in_words(block: int) -> Iterator[str]:
    """What charging in blocks costs, where this owner does."""
    if block > 1:
        yield (
            f"responses are charged {block} at a time (ledger.block), before the first of them "
            f"leaves; if this owner is killed or its machine fails, up to {block} responses of "
            "each study under way are spent and lost: no privacy is, but the model learns less"
        )


def _in_words(found: DryRun, settings: OwnerSettings) -> Iterator[str]:
    """The dry run for the owner's operator."""
    policy = settings.policy
    yield f"owner {settings.name}: {counted(found.num_records, 'record')}"
    columns = first_few([printable(name) for name in found.columns], NAMED_COLUMNS)
    yield f"learners may use its columns {columns}"
    yield (
        f"ledger {settings.ledger.path}: {counted(found.studies, 'study', 'studies')}, "
        f"{in_short(found.epsilon_left)} of the lifetime epsilon "
        f"{in_short(policy.epsilon_lifetime)} is left"
    )
    yield from _block_in_words(settings.ledger.block)
    terms, feature_map = found.terms, found.feature_map
    if feature_map is None:
        yield "no feature map is set, so nothing can be said of the noise; give --features FILE"
        return
    features = counted(feature_map.num_features, "feature")
    yield (
        f"feature map {feature_map.digest[:16]}: {features}, fitted on "
        f"{counted(feature_map.num_public_records, f'{feature_map.source_kind} record')} of "
        f"{printable(feature_map.source)}"
    )
    if terms is not None:
        yield from _promise_in_words(found, terms, feature_map, settings)


def _promise_in_words(
    found: DryRun, terms: StudyTerms, feature_map: FeatureMap, settings: OwnerSettings
) -> Iterator[str]:
    """What the study would be promised, and the noise of that."""
    release, m = release_of(terms), terms.responses
    yield (
        f"a study of {counted(m, 'response')} with {release.described(terms)}, "
        f"theta_max {terms.theta_max:g}, kappa {terms.kappa} "
        f"would be promised epsilon {in_short(terms.epsilon, up=True)}"
    )
    trial = found.trial
    if trial.validation:
        yield _validation(settings, trial)
    yield (
        f"  responses {trial.origin('responses')}, epsilon {trial.origin('epsilon')}, "
        f"theta_max {trial.origin('theta_max')}"
    )
    if trial.leaves_algorithm:
        yield ALGORITHM_IS_OPEN
    if trial.left_open:
        keys = [name.replace("_", "-") for name in trial.left_open]
        options = " ".join(f"--{key} NUMBER" for key in keys)
        yield (
            f"  the study leaves {' and '.join(keys)} to its learner's public "
            f"records, so the noise below is not the study's: ask the learner, then give {options}"
        )
    yield (
        f"  the noise library confirms {float(found.epsilon_confirmed):.9g}, "
        f"{float(found.epsilon_confirmed / m):.6g} for each response"
    )
    yield f"  {release.bound_in_words(terms, feature_map.domain)}"
    yield f"  noise scale on each coordinate: {found.noise_scale:.6g}"
    source = "measured on public records" if found.measured else "from the public bounds"
    yield f"  {release.typical}, L1: {found.typical_answer:.6g} ({source})"
    yield _noise_in_words(found.noise_per_answer, release.typical, m)
    yield "nothing was charged"


def _noise_in_words(ratio: float, typical: str, m: int) -> str:
    if math.isinf(ratio):
        return f"  {typical} is 0, so a response is noise alone"
    of_mean = number_words(ratio / math.sqrt(m))
    mean = f", the mean of all {m:,} responses' noise about {of_mean} times" if m > 1 else ""
    return f"  one response's noise is {number_words(ratio)} times {typical}{mean}"


def _validation(settings: OwnerSettings, trial: TrialStudy) -> str:
    """What of epsilon is kept for validation, and whether this owner takes part."""
    asked = _asked(settings, trial)
    kept = (
        f"  {in_short(asked * trial.validation)} of the epsilon {in_short(asked)} asked is kept "
        "to say once how good the finished model is on these records"
    )
    if not settings.policy.validation:
        return f"{kept}; policy.validation forbids it, so it is not spent"
    shown = settings.policy.validation == "shown"
    return f"{kept}, shown {'by this name' if shown else 'only together with other owners'}"


def dry_run(
    settings: OwnerSettings,
    *,
    base: Path,
    trial: TrialStudy,
    features: Path | None,
    public: Path | None,
    allow_private_bounds: bool,
) -> DryRun:
    """Everything ``serve`` and an enrolment would check, without promising anything.

    Args:
      settings: The owner's settings, read from the folder ``base``.
      base: That folder.
      trial: The study to look at.
      features: A feature map where the settings name none.
      public: Public records, to measure a typical gradient on.
      allow_private_bounds: As for ``serve``.

    Raises:
      InputError: The settings, the records, the map or the ledger cannot be used.
      PolicyError: The map needs a column that learners may not use.
    """
    pinned = pinned_map(settings, base)
    loaded = load_records(settings, base=base, pinned=pinned)
    Access(settings.policy, base=base)
    ledger = base / settings.ledger.path
    studies = studies_there(ledger, fingerprint=loaded.fingerprint)
    found = DryRun(
        num_records=len(loaded.raw),
        columns=loaded.table.columns,
        left_out=loaded.left_out,
        epsilon_left=epsilon_left(settings.policy, studies),
        studies=len(studies),
    )
    path = features or (base / settings.features if settings.features else None)
    if path is None:
        return found
    own = pinned if features is None else None
    feature_map = own or _map_at(path, pinned, accepted=settings.features)
    raw = loaded.raw
    loaded.table.shard(feature_map)
    check_provenance(feature_map, raw, where=str(path), allow_private_bounds=allow_private_bounds)
    seen, empty_rows = look_at_columns(raw, feature_map), count_empty_rows(raw, feature_map)
    found = replace(found, feature_map=feature_map, seen=seen, empty_rows=empty_rows)
    try:
        terms = _agreed(settings, feature_map, trial, found, allow_private_bounds)
        plan = _planned(terms, feature_map, num_records=len(raw))
    except RefusedError as refusal:
        return replace(found, refusal=refusal)
    records = _public_records(public, feature_map)
    return replace(
        found,
        terms=terms,
        epsilon_confirmed=SecureNoise(plan).epsilon(responses=terms.responses) * terms.kappa,
        noise_scale=plan.noise_scale,
        typical_answer=typical_answer(feature_map, terms, records=records),
        measured=records is not None,
        trial=trial,
    )


def _map_at(path: Path, pinned: FeatureMap | None, *, accepted: Path | None) -> FeatureMap:
    """The feature map to look under.

    Raises:
      InputError: It cannot be read, or is another than the owner's own.
    """
    found = load_feature_map(path)
    if pinned is not None and found.digest != pinned.digest:
        raise InputError(
            f"{path}: is another feature map than {accepted}, the only one that this owner "
            "accepts; leave out --features, or take features out of a copy of the settings"
        )
    return found


def _planned(terms: StudyTerms, feature_map: FeatureMap, *, num_records: int) -> NoisePlan:
    """The noise of a study; what no noise fits is refused."""
    try:
        return plan_noise(terms, feature_map.domain, num_records=num_records)
    except ValueError as error:
        raise RefusedError(str(error)) from None


def _public_records(path: Path | None, feature_map: FeatureMap) -> Records | None:
    """The public records of a table, if there is one."""
    if path is None:
        return None
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


def _terms(settings: OwnerSettings, feature_map: FeatureMap, trial: TrialStudy) -> StudyTerms:
    """The terms of the proposed study, with the policy's own values where it leaves them open."""
    policy = settings.policy
    fitting = "logistic" if feature_map.is_classification else "squared"
    return StudyTerms(
        study_id="dry-run",
        loss=trial.loss or fitting,
        delta=trial.delta,
        theta_max=trial.theta_max,
        feature_map=feature_map.to_json(),
        horizon=trial.responses,
        responses=trial.responses,
        epsilon=_asked(settings, trial) * (1 - trial.validation),
        clip=trial.clip,
        kappa=trial.kappa or policy.kappa,
        release=trial.release,
        curvature_scale=1.0 if trial.release == NEWTON.name else None,
    )


def _asked(settings: OwnerSettings, trial: TrialStudy) -> Fraction:
    """What the study asks for in all, the validation included."""
    return trial.epsilon or settings.policy.epsilon_per_study


def _agreed(
    settings: OwnerSettings,
    feature_map: FeatureMap,
    trial: TrialStudy,
    found: DryRun,
    allow_private_bounds: bool,
) -> StudyTerms:
    """The terms of the proposed study, as far as the owner would agree to them."""
    terms = _terms(settings, feature_map, trial)
    whole = replace(terms, epsilon=_asked(settings, trial))
    _check_study(settings, whole, feature_map, found, allow_private_bounds)
    return _with_factor(terms, feature_map.domain, share=trial.curvature_share)


def _with_factor(terms: StudyTerms, domain: Domain, *, share: float) -> StudyTerms:
    """The terms, with the factor that spends this share of epsilon on curvatures, if there are any.

    A learner sends the factor, which it takes from the share and the same public bounds.
    """
    bound = gradient_bound(terms, domain)
    # What no noise fits is refused as it is planned, whatever the factor.
    if terms.release != NEWTON.name or bound < SMALLEST_BOUND:
        return terms
    factor = curvature_scale(loss_of(terms), domain, bound=bound, share=share)
    return replace(terms, curvature_scale=factor)


def _check_study(
    settings: OwnerSettings,
    terms: StudyTerms,
    feature_map: FeatureMap,
    found: DryRun,
    allow_private_bounds: bool,
) -> None:
    """Refuse what an enrolment would be refused for, no matter who asks."""
    check_terms(terms)
    policy = settings.policy
    served = (*policy.learners, *policy.tokens, ANONYMOUS)
    check_policy(policy, terms, learner=served[0], num_records=found.num_records, pinned_map=None)
    check_map(policy, feature_map, allow_private_bounds=allow_private_bounds)
    if loss_of(terms).has_classes() != feature_map.is_classification:
        raise PolicyError(f"{terms.loss} loss does not go with the feature map's target")
    left = found.epsilon_left
    if terms.epsilon > left:
        # Where nothing is left, no epsilon is small enough.
        cure = "give a smaller --epsilon" if left else CLOSE
        raise BudgetSpentError(
            f"the study asks for epsilon {in_short(terms.epsilon, up=True)}, but {in_short(left)} "
            f"of the lifetime budget is left; {cure}, or raise policy.epsilon_lifetime"
        )
