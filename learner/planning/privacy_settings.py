"""The table ``[privacy]`` of STUDY.toml: what owners are asked to spend, and on what."""

from __future__ import annotations

from fractions import Fraction
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from common.config import Epsilon, Settings, ValidationShare
from common.privacy import LARGEST_BOUND, SMALLEST_BOUND
from learner.simulated.schedules import Split


def or_auto(low: float, high: float, words: str, *, whole: bool = False) -> BeforeValidator:
    """A number between two ends, "auto" or nothing; one sentence for all else."""

    def check(value: object) -> object:
        if value is None or value == "auto":
            return value
        is_number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if is_number and low <= float(str(value)) <= high:
            return value if whole else float(str(value))
        raise ValueError(f'expected {words}, or "auto"')

    return BeforeValidator(check)


# What owners take: the squares of such numbers are neither 0 nor infinite.
AMOUNT = or_auto(
    SMALLEST_BOUND, LARGEST_BOUND, f"a number from {SMALLEST_BOUND:g} to {LARGEST_BOUND:g}"
)


class PrivacySettings(Settings):
    """What owners are asked to spend.

    Args:
      epsilon: Each owner's budget for the whole study, unless the owner has an epsilon of its own.
      sensitivity: How one record's gradient is bounded: "domain" by the public bounds that all
        records are clamped to, "clip" by scaling it down to privacy.clip, as the recommended
        profile does. algorithm.name = "auto" chooses it for each way of learning,
        whatever stands here.
      clip: The L1 norm that longer gradients are scaled down to; "auto" takes it from the public
        records, as the recommended profile does.
      split: How many responses share an owner's epsilon. "horizon": every owner promises T, as in
        the papers. "schedule": ticks are drawn before the run, and each owner promises exactly its
        own number of them. The recommended profile takes "schedule" unless owners have a say in
        when they are asked.
      kappa: The most shards that one record may be in, or the most rows that one person may have in
        all shards together. Each shard then spends epsilon/kappa, so that epsilon holds for all
        together.
      validation: The share of each owner's epsilon that pays for one noisy answer: how good the
        finished model is on its records. The training has the rest. 0 asks for no such answer; the
        recommended profile keeps a tenth.
    """

    EXAMPLES = MappingProxyType({"epsilon": "1/3", "clip": "auto", "validation": "1/10"})

    epsilon: Epsilon
    sensitivity: Literal["domain", "clip"] = "domain"
    clip: Annotated[float | Literal["auto"] | None, AMOUNT] = None
    split: Split = "horizon"
    kappa: Annotated[int, Field(ge=1)] = 1
    validation: ValidationShare = Fraction(0)

    @model_validator(mode="after")
    def _clip_when_clipping(self) -> PrivacySettings:
        """A clip exactly when it is used."""
        if (self.sensitivity == "clip") != (self.clip is not None):
            raise ValueError('expected clip = NUMBER or "auto" together with sensitivity = "clip"')
        return self


def check_left_open(privacy: PrivacySettings) -> None:
    """Refuse what says how a study is learnt where that is left to ``algorithm.name = "auto"``.

    Each way is designed with a clip and a split of its own, so what is set here would mean nothing.

    Raises:
      ValueError: A clip or a split is set.
    """
    fields = type(privacy).model_fields
    for key in ("clip", "split"):
        if getattr(privacy, key) not in {fields[key].default, "auto"}:
            raise ValueError(
                f'privacy.{key} does not go with algorithm.name = "auto", which decides it for '
                'each way of learning; remove it, or name an algorithm, such as "asynchronous"'
            )
