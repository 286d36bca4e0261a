r"""What an owner says, compared with what it was asked and with what can be.

Nothing that an owner says of its records can be checked here; that is the price of their privacy.
But much follows from public facts: the terms that were asked, the bounds of the feature map and
n_i give the scale of the noise, and both together how large an answer can be.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from common.domain import Domain
from common.errors import InputError, RefusedError
from common.features import FeatureMap
from common.headers import LONGEST_COLUMN_NAME
from common.privacy import plan_noise
from common.releases import release_of
from common.terms import Enrollment, OwnerDescription, Query, Response, StudyTerms
from common.texts import claimed

# More records cannot be served: their noise would not fit an integer of 64 bits.
MOST_RECORDS = 2**39
MOST_NAMES = 100_000
# Another version of the program may round the sensitivity up a little more or less.
NOISE_TOLERANCE = 1e-6
# A draw of Laplace noise is longer than this many scales with a probability of exp(-128).
LONGEST_DRAW_SCALES = 128.0
_DIGEST = re.compile(r"(?:[0-9a-f]{64})?", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What answers of an owner can be, once it has enrolled.

    Args:
      dimension: The number of coordinates.
      largest: The largest absolute value of one, in gradient units: what records can make, and
        the longest noise.
    """

    dimension: int
    largest: float


def check_description(described: OwnerDescription, *, name: str) -> OwnerDescription:
    """A description that may be true; only n_i of it is believed, and nothing depends on the rest.

    Args:
      described: What the owner says of itself.
      name: Its name in the study.

    Raises:
      InputError: It is another owner.
      RefusedError: No owner is like this.
    """
    if described.name != name:
        raise InputError(
            f"owner {name} says that its name is {claimed(described.name)!r}; use that name "
            "in the study, or set its address right"
        )
    if not 0 < described.num_records <= MOST_RECORDS:
        raise RefusedError(
            f"owner {name} says that it has {described.num_records} records, expected 1 to "
            f"{MOST_RECORDS}; ask its operator"
        )
    names = (*described.columns, *described.losses)
    if len(names) > MOST_NAMES or any(len(one) > LONGEST_COLUMN_NAME for one in names):
        raise RefusedError(
            f"owner {name} sent {len(names)} names of columns and losses, expected at most "
            f"{MOST_NAMES} of at most {LONGEST_COLUMN_NAME} characters; ask its operator"
        )
    digests = (described.feature_map_digest, described.checked_map_digest)
    if not all(_DIGEST.fullmatch(digest) for digest in digests):
        raise RefusedError(
            f"owner {name} sent a text that is not a digest of its feature map, expected 64 "
            "hexadecimal digits or nothing; ask its operator"
        )
    return described


def check_enrollment(
    agreed: Enrollment, terms: StudyTerms, *, name: str, held: int, most: int = 1
) -> Promise:
    """An enrolment to exactly these terms, with the noise that they and n_i ask for.

    Args:
      agreed: What the owner agreed to.
      terms: What it was asked.
      name: Its name in the study.
      held: Responses of the study that the learner holds.
      most: How many more the owner may count. One may be on its way; of an owner that was killed
        while it charged in blocks more may be spent that nobody has, at its own cost.

    Raises:
      RefusedError: It agreed to something else, or counts responses that nobody has.
    """
    if not held <= agreed.answered <= held + most:
        raise RefusedError(
            f"owner {name} counts {agreed.answered} responses, but this run holds {held}; the "
            "study cannot go on with it, start a new run"
        )
    if (agreed.responses, agreed.epsilon) != (terms.responses, terms.epsilon):
        raise RefusedError(
            f"owner {name} agreed to {agreed.responses} responses for an epsilon of "
            f"{float(agreed.epsilon):.6g}, but was asked for {terms.responses} for "
            f"{float(terms.epsilon):.6g}; ask its operator"
        )
    if agreed.answered > agreed.responses:
        raise RefusedError(
            f"owner {name} counts {agreed.answered} responses, but promised only "
            f"{agreed.responses}; ask its operator"
        )
    domain = _domain(terms.feature_map)
    try:
        plan = plan_noise(terms, domain, num_records=agreed.num_records)
    except ValueError as error:
        raise RefusedError(
            f"owner {name} agreed to noise that nobody can add ({error}); ask its operator"
        ) from None
    scale = plan.noise_scale
    if not math.isclose(agreed.noise_scale, scale, rel_tol=NOISE_TOLERANCE):
        raise RefusedError(
            f"owner {name} promises noise of scale {agreed.noise_scale:.6g}, but the terms and "
            f"its {agreed.num_records} records ask for {scale:.6g}; use the same version on both "
            "sides, or ask its operator"
        )
    return Promise(dimension=plan.dimension, largest=_largest(terms, domain, scale))


def largest_answer(terms: StudyTerms, *, num_records: int) -> float:
    """The largest absolute value of a coordinate of an answer; 0 where nobody can answer.

    Args:
      terms: What the owner was asked to agree to.
      num_records: Its n_i.
    """
    if terms.responses == 0:
        return 0.0
    domain = _domain(terms.feature_map)
    try:
        plan = plan_noise(terms, domain, num_records=num_records)
    except ValueError:
        return 0.0
    return _largest(terms, domain, plan.noise_scale)


def _largest(terms: StudyTerms, domain: Domain, scale: float) -> float:
    """What records can make, and the longest noise."""
    return release_of(terms).change(terms, domain) + LONGEST_DRAW_SCALES * scale


def check_response(agreed: Response, query: Query, promise: Promise, *, name: str) -> None:
    """An answer to exactly this query, of the right length, and no larger than noise makes it.

    Args:
      agreed: What the owner answered.
      query: What it was asked.
      promise: What its enrolment came to.
      name: The owner's name in the study.

    Raises:
      RefusedError: It is another answer, or one that would poison the model for all.
    """
    if agreed.study_id != query.study_id:
        raise RefusedError(f"owner {name} answered for another study; ask its operator")
    if agreed.sequence != query.sequence:
        raise RefusedError(
            f"owner {name} answered number {agreed.sequence} when it was asked number "
            f"{query.sequence}; ask its operator"
        )
    gradient = agreed.gradient
    is_long = gradient.shape == (promise.dimension,)
    # One pass for both: whatever is not finite is not within the bound either.
    if is_long and (largest := np.abs(gradient).max()) <= promise.largest:
        return
    if not is_long or not np.isfinite(largest):
        raise RefusedError(
            f"owner {name} sent {gradient.size} coordinates, or some that are not finite; "
            f"expected {promise.dimension} finite ones; ask its operator"
        )
    raise RefusedError(
        f"owner {name} sent a coordinate of {largest:.6g}, but its noise allows "
        f"{promise.largest:.6g} at most; ask its operator"
    )


@lru_cache(maxsize=4)
def _domain(feature_map: str) -> Domain:
    """The public bounds of a feature map, which is the same text for all owners of a study."""
    return FeatureMap.from_json(feature_map).domain
