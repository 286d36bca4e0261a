r"""Sensitivity, noise scale and budget arithmetic: what both sides compute the same way.

Amounts of epsilon are exact rationals and counts are integers, so that m answers cost
exactly epsilon: not one answer less for the sake of a rounding, and not one more.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from common.domain import Domain
from common.releases import release_of
from common.stretches import longest_chain
from common.terms import StudyTerms

UNIT_ROUNDOFF = 2.0**-53
# The grid is so fine that rounding to it adds less than 2^-21 < 1e-6 of the sensitivity.
GRID_BITS = 21
# Beyond this an integer draw could leave 64 bits with a probability above exp(-128).
LARGEST_SCALE_UNITS = 2.0**55
LARGEST_VALUE_UNITS = 2.0**61
# The noise library's own privacy map counts in as many.
LARGEST_SENSITIVITY_UNITS = 2**63 - 1
# Sums over records stay finite whatever the records are: an overflow would leak them.
LARGEST_BOUND = 1e100
SMALLEST_BOUND = 1e-100
SHORT_BITS = 40
# Budgets of many studies together may have more digits than Python writes down.
LONG_BITS = 10_000
# More digits than terms that crossed the wire, and shares of them, have.
_AMOUNT = re.compile(r"[0-9]{1,200}(/[0-9]{1,200})?", re.ASCII)
# People read 1/3 and 100/3, but no longer fraction, and this many digits of a decimal.
LONGEST_FRACTION = 6
SHOWN_DIGITS = 6
THOUSAND, MILLION = 1e3, 1e6
FACTOR_DIGITS = 3


def l1_sensitivity(*, gradient_bound: float, num_records: int) -> float:
    r"""Largest L1 change of one mean gradient when one of n_i records is replaced.

    .. math:: \Delta_1 = 2\,\Xi / n_i

    Args:
      gradient_bound: The bound Xi on the L1 norm of one record's gradient.
      num_records: The owner's n_i, which is public.

    Raises:
      ValueError: An argument is not positive (NaN is not positive).

    >>> l1_sensitivity(gradient_bound=3.0, num_records=100)
    0.06

    References: proof of Theorem 1 of Farokhi et al. (2021).
    """
    if not 0 < gradient_bound < math.inf:
        raise ValueError(f"gradient_bound: got {gradient_bound}, expected a finite value > 0")
    if not num_records > 0:
        raise ValueError(f"num_records: got {num_records}, expected a value > 0")
    return 2.0 * gradient_bound / num_records


def epsilon_per_response(*, epsilon: Fraction, responses: int, kappa: int = 1) -> Fraction:
    r"""What one of m responses may spend: :math:`\epsilon / (\kappa m)`, exactly.

    Args:
      epsilon: The owner's budget for the whole study.
      responses: The number m of responses promised in the study.
      kappa: In how many shards one record may be; their responses add up.

    Raises:
      ValueError: An argument is not positive.

    >>> epsilon_per_response(epsilon=Fraction(1), responses=3)
    Fraction(1, 3)

    References: section II-A of Wu et al. (2020) for kappa.
    """
    if not (epsilon > 0 and responses > 0 and kappa > 0):
        raise ValueError("epsilon, responses and kappa must be greater than 0")
    return epsilon / (responses * kappa)


def exact_sum(values: Iterable[Fraction]) -> Fraction:
    """The exact sum, by halves: denominators chosen to be awkward cost little.

    >>> exact_sum([Fraction(1, 3)] * 3)
    Fraction(1, 1)
    """
    terms = list(values)
    while len(terms) > 1:
        pairs = zip(terms[::2], terms[1::2], strict=False)
        terms = [a + b for a, b in pairs] + terms[len(terms) // 2 * 2 :]
    return terms[0] if terms else Fraction(0)


def noted_amount(text: str) -> Fraction:
    """An amount of epsilon as a file keeps it: what ``str`` makes of one.

    Raises:
      ValueError: It is nothing of the kind; 1e999999999 would fill the memory with its digits.
      ZeroDivisionError: A fraction has 0 below.

    >>> noted_amount("1/3"), noted_amount("0")
    (Fraction(1, 3), Fraction(0, 1))
    >>> noted_amount("1e999999999")
    Traceback (most recent call last):
    ValueError: no amount of epsilon
    """
    if not _AMOUNT.fullmatch(text):
        raise ValueError("no amount of epsilon")
    return Fraction(text)


def rounded_down(value: Fraction) -> Fraction:
    """A budget with at most twelve decimals and never more than it is; short ones stay exact.

    >>> rounded_down(Fraction(1, 3)), rounded_down(Fraction(10**30, 3 * 10**30 + 1))
    (Fraction(1, 3), Fraction(333333333333, 1000000000000))
    """
    if max(value.numerator, value.denominator).bit_length() <= SHORT_BITS:
        return value
    return Fraction(math.floor(value * 10**12), 10**12)


def as_decimal(value: Fraction, *, digits: int, up: bool = False) -> str:
    """A budget as a decimal that never shows less as spent, or more as left, than there is.

    Args:
      value: The budget, 0 or more.
      digits: How many digits count, at most 12.
      up: Whether it is rounded up, as what is spent or asked for; else down, as what is left.

    >>> as_decimal(Fraction(40023, 2270), digits=4), as_decimal(Fraction(2, 3), digits=4, up=True)
    ('17.63', '0.6667')
    """
    context = Context(prec=digits, rounding=ROUND_CEILING if up else ROUND_FLOOR)
    rounded = context.divide(Decimal(value.numerator), Decimal(value.denominator))
    return f"{float(rounded):.12g}"


def in_short(value: Fraction, *, up: bool = False) -> str:
    """A budget for people: exact where short, else a decimal of six digits, rounded down or up.

    >>> in_short(Fraction(9, 2)), in_short(Fraction(1, 3)), in_short(Fraction(10**13))
    ('4.5', '1/3', '10000000000000')
    >>> in_short(Fraction(40023, 2270)), in_short(Fraction(40023, 2270), up=True)
    ('17.6312', '17.6313')
    """
    if value.denominator.bit_length() > LONG_BITS:
        value = -rounded_down(-value) if up else rounded_down(value)
    decimal, exact = f"{float(value):.12g}", str(value)
    if value.denominator > 1 and Fraction(decimal) == value:
        return decimal
    if value.denominator == 1 or len(exact) <= LONGEST_FRACTION:
        return exact
    return as_decimal(value, digits=SHOWN_DIGITS, up=up)


def _rounding_error(terms: StudyTerms, domain: Domain, num_records: int) -> float:
    r"""Bound on the L1 error of an exact response, computed in floating point.

    A sum whose terms go through d additions each is off by at most :math:`du/(1 - du)` times the
    sum of their absolute values, with the unit roundoff u
    (:func:`common.stretches.longest_chain`); each record's part needs p more operations on values
    of the release's own rounded size.
    """
    release, p = release_of(terms), domain.num_features
    in_parts = (p + 16) * release.rounded_size(terms, domain)
    chain = longest_chain(num_records, p) if release.in_stretches else num_records
    in_sum = chain / (1.0 - chain * UNIT_ROUNDOFF) * release.record_bound(terms, domain)
    return UNIT_ROUNDOFF * (in_parts + in_sum)


@dataclass(frozen=True, kw_only=True)
class NoisePlan:
    r"""The Laplace mechanism of one study, on the grid :math:`2^k \mathbb{Z}`.

    The mean gradient is rounded to the grid and integer Laplace noise is added to the
    integers, so nothing of a response depends on how floating point spaces its numbers.

    Args:
      grid_exponent: The exponent k of the grid.
      sensitivity_units: L1 sensitivity of the rounded gradient in grid units. It counts the
        rounding to the grid and the floating-point error of the gradient itself.
      scale_units: Scale of the integer Laplace noise, in grid units.
      epsilon_per_response: What one response may spend.
      dimension: The number of coordinates of one response.
      responses: The number m of responses promised: more noise is not needed.
    """

    grid_exponent: int
    sensitivity_units: int
    scale_units: float
    epsilon_per_response: Fraction
    dimension: int
    responses: int

    @property
    def grid(self) -> float:
        """The grid's spacing 2^k, in gradient units; plans have it well within float64's powers."""
        return math.ldexp(1.0, self.grid_exponent)

    @property
    def noise_scale(self) -> float:
        """Scale b of the noise in gradient units."""
        return math.ldexp(self.scale_units, self.grid_exponent)

    @property
    def response_bytes(self) -> int:
        """Bytes of one response: a float64 for each coordinate."""
        return 8 * self.dimension


def _in_units(change: Fraction, k: int, *, dimension: int, bound: float) -> int:
    """The sensitivity on the grid 2^k, in grid units.

    Args:
      change: L1 sensitivity of a response before it is rounded to the grid.
      k: The grid's exponent.
      dimension: The number of its coordinates.
      bound: What bounds one record's gradient, for the sentence.

    Raises:
      ValueError: The rounding of numbers that are so large drowns a record, whatever epsilon is.
    """
    # Each coordinate of the rounded difference is off by at most one unit.
    units = math.ceil(change / Fraction(2) ** k) + dimension
    if units > LARGEST_SENSITIVITY_UNITS:
        raise ValueError(
            "theta_max, clip and the feature map's bounds: rounding would move answers far more "
            f"than one record, whose gradient is bounded by {bound:.3g}; ask with a smaller "
            "theta_max, narrower bounds or a longer clip"
        )
    return units


def plan_noise(terms: StudyTerms, domain: Domain, *, num_records: int) -> NoisePlan:
    r"""The noise that makes an owner's m responses together epsilon-DP.

    Each response spends :math:`\epsilon/(\kappa m)`, and basic composition adds them up, whatever
    the learner asks in between. So Theorem 1 asks for :math:`b = 2\Xi m\kappa/(n_i\epsilon)`. The
    plan's scale is that, plus what rounding to the grid (below 1e-6) and floating-point sums (below
    :math:`n_i^2 \cdot 10^{-17}` beyond some million records) add to the sensitivity.

    Args:
      terms: The study's terms for this owner.
      domain: The public bounds of its feature map.
      num_records: The owner's n_i.

    Raises:
      ValueError: The terms ask for noise that 64-bit integers cannot hold, or for answers whose
        rounding would drown one record.

    >>> import numpy as np
    >>> terms = StudyTerms(study_id="s", loss="squared", theta_max=0.5, feature_map="",
    ...     horizon=1000, responses=1000, epsilon=Fraction(10))
    >>> domain = Domain(feature_bound=np.array([1.0, 2.0]), target_bound=4.0)
    >>> plan = plan_noise(terms, domain, num_records=100)
    >>> round(plan.noise_scale, 4), round(2 * 33.0 * 1000 / (100 * 10), 4)
    (66.0, 66.0)

    References: Theorem 1 of Farokhi et al. (2021) with m = T.
    """
    share = epsilon_per_response(
        epsilon=terms.epsilon, responses=terms.responses, kappa=terms.kappa
    )
    release = release_of(terms)
    bound = release.change(terms, domain) / 2
    worst = release.rounded_size(terms, domain)
    if not SMALLEST_BOUND <= bound <= worst <= LARGEST_BOUND:
        raise ValueError(
            "theta_max, clip and the feature map's bounds: one record's gradient is bounded by "
            f"{bound:.3g}, expected a bound from {SMALLEST_BOUND} to {LARGEST_BOUND}"
        )
    exact = l1_sensitivity(gradient_bound=bound, num_records=num_records)
    dimension = release.dimension(terms, domain.num_features)
    k = math.frexp(exact)[1] - 1 - GRID_BITS - (dimension + 1).bit_length()
    change = Fraction(exact) + 2 * Fraction(_rounding_error(terms, domain, num_records))
    units = _in_units(change, k, dimension=dimension, bound=bound)
    # A few ulps up, so that the mechanism's own map, which rounds up, still confirms the share.
    scale_units = float(Fraction(units) / share) * (1 + 2.0**-50)
    if not scale_units <= LARGEST_SCALE_UNITS:
        if terms.responses == 1:
            raise ValueError("epsilon: too small for any noise that can be drawn; give more")
        raise ValueError("epsilon: too small for this many responses; ask for fewer, or give more")
    # A single record's moments may be as large as their change, a gradient half of it.
    if not math.ldexp(2 * bound, -k) <= LARGEST_VALUE_UNITS:
        raise ValueError("num_records: too many for this many features; ask for fewer features")
    return NoisePlan(
        grid_exponent=k,
        sensitivity_units=units,
        scale_units=scale_units,
        epsilon_per_response=share,
        dimension=dimension,
        responses=terms.responses,
    )


def epsilon_in_words(epsilon: Fraction | float) -> str:
    """What an epsilon promises, for people who sign.

    >>> print(epsilon_in_words(Fraction(1)))  # doctest: +NORMALIZE_WHITESPACE
    strong protection, since seeing all answers may change the odds of a guess about one record by
    a factor of at most 2.72
    """
    if math.isinf(epsilon):
        return "nothing is promised: these records were asked without noise"
    times = math.exp(min(float(epsilon), 700.0))
    factor = f"at most {_at_most(times)}" if times < MILLION else "more than a million"
    return (
        f"{strength(epsilon)} protection, since seeing all answers may change the odds of a guess "
        f"about one record by a factor of {factor}"
    )


def strength(epsilon: Fraction | float) -> str:
    """How strong a promise is, as practice has it.

    >>> strength(0.5), strength(2.0), strength(10.0)
    ('strong', 'moderate', 'weak')
    """
    return "strong" if epsilon <= 1 else "moderate" if epsilon <= 3 else "weak"


def _at_most(times: float) -> str:
    """A factor of three digits, or a whole number, that is never below it.

    >>> [_at_most(math.exp(epsilon)) for epsilon in (0.1, 3.0, 5.0, 10.0)]
    ['1.11', '20.1', '149', '22,027']
    """
    if times >= THOUSAND:
        return f"{math.ceil(times):,}"
    context = Context(prec=FACTOR_DIGITS, rounding=ROUND_CEILING)
    return str(context.create_decimal_from_float(times))
