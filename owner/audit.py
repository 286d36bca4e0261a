r"""The audit: attack the whole mechanism, and bound from below what it lets an attacker learn.

Two shards that differ in one record are served by two owners of their own, with their own
ledgers, through the same calls that the network makes. The shards are built so that the record
moves a response as far as the promise allows. An attacker who sees one response guesses which
shard it came from by an event S fixed beforehand; with N responses of each,

.. math:: \hat\varepsilon = \ln \frac{\underline{P}(S \mid D)}{\overline{P}(S \mid D')}

is a lower bound on the true epsilon, where the probabilities are the Clopper-Pearson bounds. A
mechanism that keeps its promise stays below it; one with no more noise than it needs comes close.

References: Jagielski, Ullman, Oprea (2020), Auditing differentially private machine learning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from scipy.special import betaincinv

from common.arrays import Flags, Matrix, Vector
from common.privacy import NoisePlan
from common.terms import Query, StudyTerms
from owner.access import Access
from owner.answering import DataOwner
from owner.audit_cases import CASES, THETA_MAX, AuditCase, Neighbour
from owner.core import exact_answer
from owner.ledger import Ledger
from owner.mechanism import DrawnAhead, NoiseFactory, secure_noise
from owner.open_study import StudyMaker
from owner.policy import Policy
from owner.shard import PrivateTable
from owner.shards import Shard

LEARNER = "auditor"
# A response shows a side if it is nearer to that side's answer by this share of their distance: at
# nearly all of it few responses would.
NEARER = 0.8
# Two responses whose noise repeats differ by what the records say, up to the grid's rounding.
GRID_TOLERANCE = 2.5


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The strongest attack of one kind on one case.

    Args:
      case: The study attacked.
      attack: What the attacker looked at.
      promised: The epsilon promised for what it saw.
      lower_bound: The true epsilon is at least this, at the audit's confidence.
    """

    case: AuditCase
    attack: str
    promised: Fraction
    lower_bound: float

    @property
    def holds(self) -> bool:
        """Whether the promise was not broken."""
        return self.lower_bound <= self.promised


def clopper_pearson(successes: int, trials: int, *, alpha: float) -> tuple[float, float]:
    """Exact one-sided bounds on a probability, each wrong with probability ``alpha`` at most.

    >>> low, high = clopper_pearson(0, 100, alpha=0.05)
    >>> low, round(high, 4)
    (0.0, 0.0295)

    References: Clopper, Pearson (1934).
    """
    k, n = successes, trials
    low = float(betaincinv(k, n - k + 1, alpha)) if k > 0 else 0.0
    high = float(betaincinv(k + 1, n - k, 1 - alpha)) if k < n else 1.0
    return low, high


def epsilon_lower_bound(events: Flags, others: Flags, *, alpha: float) -> float:
    """Lower bound on epsilon from how often an event happened under two neighbouring shards.

    Both directions are tried; the bound is wrong with probability ``alpha`` at most.

    >>> often, seldom = np.arange(1000) % 2 == 0, np.arange(1000) % 20 == 0
    >>> 1.5 < epsilon_lower_bound(often, seldom, alpha=0.01) < math.log(10)
    True
    """
    bounds = []
    for a, b in ((events, others), (others, events)):
        low, _ = clopper_pearson(int(a.sum()), a.size, alpha=alpha / 4)
        _, high = clopper_pearson(int(b.sum()), b.size, alpha=alpha / 4)
        bounds.append(math.log(low / high) if low > 0 else -math.inf)
    return max(*bounds, 0.0)


def num_responses(trials: int) -> int:
    """How many responses an audit asks for.

    >>> num_responses(100)
    2300
    """
    return sum(2 * case.trials(trials) for case in CASES)


def audit(
    folder: Path,
    *,
    trials: int,
    confidence: float,
    epsilon_per_response: Fraction = Fraction(1),
    cases: Sequence[AuditCase] = CASES,
    noise: NoiseFactory = secure_noise,
    on_response: Callable[[], object] = lambda: None,
) -> list[Finding]:
    """Attack every case with neighbouring shards, and report the strongest attacks.

    Args:
      folder: Where the ledgers may be written.
      trials: Responses of each shard; half as many of what costs a study each.
      confidence: Probability that all lower bounds hold together.
      epsilon_per_response: What one response is promised to spend.
      cases: The studies to attack.
      noise: The mechanism; tests put broken ones here.
      on_response: Called after each response, to show progress.
    """
    # Three attacks on each case share the probability of an error.
    alpha = (1.0 - confidence) / (3 * len(cases))
    findings = []
    for number, case in enumerate(cases):
        pair = [
            _serve(
                folder / f"{number}-{side}",
                Neighbour(case, side),
                trials=case.trials(trials),
                epsilon=epsilon_per_response,
                noise=noise,
                on_response=on_response,
            )
            for side in (0, 1)
        ]
        findings += _attack(case, pair, epsilon=epsilon_per_response, alpha=alpha)
    return findings


@dataclass(frozen=True)
class _Seen:
    """What the attacker saw of one side, and what it knows: everything but which side it is.

    Args:
      responses: Shape (trials, coordinates).
      exact: The exact answers that the promise is about, shape (trials, coordinates).
      grid: The grid's spacing.
    """

    responses: Matrix
    exact: Matrix
    grid: float


def _serve(
    folder: Path,
    shard: Neighbour,
    *,
    trials: int,
    epsilon: Fraction,
    noise: NoiseFactory,
    on_response: Callable[[], object],
) -> _Seen:
    """All responses of one owner to one study, over its ledger."""
    folder.mkdir(parents=True)
    # A release that is given once in a study makes every trial a study of its own.
    responses = shard.case.release.most_responses or trials
    terms = shard.terms(responses=responses, epsilon=epsilon)
    policy = Policy.model_validate(
        {
            "epsilon_per_study": str(terms.epsilon),
            "epsilon_lifetime": str(epsilon * trials),
            "enrollments_per_hour": trials,
        }
    )
    spacings: list[int] = []

    def watched(plan: NoisePlan) -> DrawnAhead:
        spacings.append(plan.grid_exponent)
        return noise(plan)

    owner = _owner_of(folder, shard, policy, watched)
    thetas = np.zeros((trials, 2))
    thetas[:, 0] = shard.case.along
    thetas[1::2, 1] = THETA_MAX
    seen = []
    try:
        for trial, theta in enumerate(thetas):
            seen.append(_ask(owner, terms, trial, theta))
            on_response()
    finally:
        owner.stop()
    known = Shard(shard.feature_map.apply(shard.table, where="audit"))
    exact = np.array([exact_answer(known, theta, terms) for theta in thetas[:2]])
    return _Seen(
        responses=np.array(seen),
        exact=exact[np.arange(trials) % 2],
        grid=math.ldexp(1.0, spacings[0]),
    )


def _owner_of(folder: Path, shard: Neighbour, policy: Policy, noise: NoiseFactory) -> DataOwner:
    """An owner of these records with a new ledger."""
    return DataOwner(
        name="audited",
        ledger=Ledger(folder / "ledger.sqlite", owner="audited", fingerprint="audit"),
        maker=StudyMaker(
            table=PrivateTable(shard.table, where="audit", columns=shard.table.columns),
            policy=policy,
            noise=noise,
            insecure_noise=False,
        ),
        access=Access(policy, base=folder),
    )


def _ask(owner: DataOwner, terms: StudyTerms, trial: int, theta: Vector) -> Vector:
    """The response of one trial; the study is enrolled when its first response is asked for."""
    number, before = divmod(trial, terms.responses)
    study_id = f"{terms.study_id}-{number}"
    if before == 0:
        owner.enroll(replace(terms, study_id=study_id), learner=LEARNER)
    query = Query(study_id=study_id, sequence=before + 1, theta=theta)
    response = owner.answer(query, learner=LEARNER).gradient
    if before + 1 == terms.responses:
        owner.close(study_id, learner=LEARNER)
    return response


def _attack(
    case: AuditCase, pair: Sequence[_Seen], *, epsilon: Fraction, alpha: float
) -> list[Finding]:
    """Three attacks: on one response, on its coordinates together, on two responses together."""
    first, second = pair
    tolerance = GRID_TOLERANCE * first.grid
    # What the record moves most, and what it hardly moves.
    change = np.abs(second.exact[0] - first.exact[0])
    moved, still = int(np.argmax(change)), int(np.argmin(change))

    def nearer(seen: _Seen, side: _Seen, other: _Seen) -> Flags:
        """Responses far nearer to one side's exact answer: its noise makes them likelier there."""
        by = (np.abs(seen.responses - other.exact) - np.abs(seen.responses - side.exact)).sum(
            axis=1
        )
        return np.asarray(by >= NEARER * np.abs(other.exact - side.exact).sum(axis=1))

    def coordinates(seen: _Seen) -> Flags:
        """Responses whose coordinates carry the same noise, if they are the first side's."""
        noise = seen.responses - first.exact
        return np.asarray(np.abs(noise[:, moved] - noise[:, still]) <= tolerance)

    def repeats(seen: _Seen) -> Flags:
        """Pairs of responses that carry the same noise, if they are the first side's."""
        noise = seen.responses - first.exact
        pairs = len(noise) // 2
        return np.asarray(
            np.abs(noise[0 : 2 * pairs : 2, moved] - noise[1 : 2 * pairs : 2, moved]) <= tolerance
        )

    single = max(
        epsilon_lower_bound(
            nearer(first, side, other), nearer(second, side, other), alpha=alpha / 2
        )
        for side, other in ((first, second), (second, first))
    )
    together = epsilon_lower_bound(coordinates(first), coordinates(second), alpha=alpha)
    twice = epsilon_lower_bound(repeats(first), repeats(second), alpha=alpha)
    return [
        Finding(case=case, attack="one response", promised=epsilon, lower_bound=single),
        Finding(case=case, attack="its coordinates", promised=epsilon, lower_bound=together),
        Finding(case=case, attack="two responses", promised=2 * epsilon, lower_bound=twice),
    ]
