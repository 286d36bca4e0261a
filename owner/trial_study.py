"""What a study's file would ask of one owner, as far as the file says it.

The rest is chosen by the learner from its public records, which an owner does not have: it is
named as such, and never taken for granted in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from common.config import (
    VALIDATION_SHARE,
    Epsilon,
    LossName,
    Positive,
    Settings,
    ValidationShare,
    check_settings,
    names_ticks,
)
from common.errors import InputError
from common.releases import GRADIENT, NEWTON, RELEASES
from common.toml_files import read_toml
from owner.policy import LARGEST_COUNT

GIVEN = "as typed"
ASSUMED_RESPONSES = 1000
ASSUMED_SHARE = 0.3
# The most rounds that a learner chooses by itself, ``learner.planning.split.ROUNDS``.
ASSUMED_ROUNDS = 4


@dataclass(frozen=True, kw_only=True)
class TrialStudy:
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
      curvature_share: The share of epsilon that a release of curvatures spends on them.
      validation: The share of epsilon that is kept to validate the finished model.
      origins: Where each of these is from, by its name.
      left_open: What the study leaves to the learner and no option gives.
      leaves_algorithm: Whether the learner chooses the algorithm, so that answers may be of
        another kind than gradients.
    """

    loss: str | None = None
    delta: float | None = None
    theta_max: float = 1.0
    responses: int = ASSUMED_RESPONSES
    epsilon: Fraction | None = None
    clip: float | None = None
    kappa: int | None = None
    release: str = GRADIENT.name
    curvature_share: float = ASSUMED_SHARE
    validation: Fraction = Fraction(0)
    origins: Mapping[str, str] = field(default_factory=dict)
    left_open: tuple[str, ...] = ()
    leaves_algorithm: bool = False

    def origin(self, name: str) -> str:
        """Where a number is from, in brackets."""
        return f"({self.origins.get(name, 'assumed: neither typed nor in a study')})"


class _Study(Settings):
    """The numbers of a study's file that fix an owner's noise; the rest is the learner's."""

    loss: LossName | None = None
    delta: Positive | None = None
    theta_max: Positive | None = None
    responses: Annotated[int, Field(ge=1, le=LARGEST_COUNT)] | None = None
    epsilon: Epsilon | None = None
    clip: Positive | None = None
    kappa: Annotated[int, Field(ge=1, le=LARGEST_COUNT)] | None = None
    release: str = GRADIENT.name
    curvature_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    validation: ValidationShare | None = None


def read_trial_study(study: Path | None, *, owner: str, options: Mapping[str, Any]) -> TrialStudy:
    """The study that a file and options describe; an option goes before the file.

    Settings that the learner would choose by itself ("auto") are left to the options.

    Args:
      study: A STUDY.toml, or None.
      owner: This owner's name, for its own entry in the file.
      options: Values of :class:`TrialStudy`, None where not given.

    Raises:
      InputError: The file cannot be read, or a value is wrong.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    is_open = False
    if study is not None:
        table = read_toml(study)
        values, is_open = _asked(table, owner, study), leaves_algorithm(table)
        left = f"assumed: {study.name} leaves it to its learner"
        origins = {
            key: left if value == "auto" else f"of {study.name}"
            for key, value in values.items()
            if value is not None
        }
        if values.pop("schedule", None):
            origins["responses"] = f"about this owner's share of the schedule of {study.name}"
    typed = {key: value for key, value in options.items() if value is not None}
    # By themselves first: the study's file is not to blame for what was typed.
    check_settings(_Study, typed, where="options")
    values |= typed
    origins |= dict.fromkeys(typed, GIVEN)
    given = {key: value for key, value in values.items() if value is not None and value != "auto"}
    checked = check_settings(_Study, given, where=str(study or "options"))
    assumed = {"responses": ASSUMED_ROUNDS} if checked.release == NEWTON.name else {}
    return TrialStudy(
        **(assumed | {key: getattr(checked, key) for key in given}),
        origins={"epsilon": "all that the policy allows"} | origins,
        left_open=tuple(key for key, value in values.items() if value == "auto"),
        leaves_algorithm=is_open,
    )


def leaves_algorithm(table: Mapping[str, Any]) -> bool:
    """Whether a study's learner chooses how it is learnt, from its public records.

    Args:
      table: The study's file, whose parts are tables.

    >>> leaves_algorithm({"features": {"public": {"path": "public.csv"}}})
    True
    >>> leaves_algorithm({"features": {"public": {"path": "public.csv"}},
    ...     "algorithm": {"horizon": 50}})
    False
    """
    # Groups are asked by ticks alone, so that their noise is told.
    if table.get("groups"):
        return False
    parts = {
        key: part if isinstance(part := table.get(key), dict) else {}
        for key in ("features", "algorithm", "privacy")
    }
    if parts["algorithm"].get("name") == "auto":
        return True
    rates = [entry.get("clock_rate", 1) for entry in table.get("owners", [])]
    return (
        table.get("profile", "recommended") == "recommended"
        and parts["features"].get("public") is not None
        and all(rate == 1 for rate in rates)
        and not names_ticks(parts["algorithm"], parts["privacy"])
    )


def _asked(table: Mapping[str, Any], owner: str, study: Path) -> dict[str, Any]:
    """What a study's file asks of one owner; "auto" stands for what its learner chooses.

    With the profile "recommended", which is the default, silence means "auto" too.
    """
    model, privacy, algorithm = (
        _part(table, key, study) for key in ("model", "privacy", "algorithm")
    )
    entries = table.get("owners", [])
    if not (isinstance(entries, list) and all(isinstance(o, dict) for o in entries)):
        raise InputError(f"{study}: owners: expected a table [[owners]] for each owner")
    entry: dict[str, Any] = next((o for o in entries if o.get("name") == owner), {})
    # An algorithm that asks for something else than gradients bears the release's name.
    release = RELEASES.get(str(algorithm.get("name")), GRADIENT)
    is_recommended = table.get("profile", "recommended") == "recommended"
    recommended = is_recommended and release.takes_clip
    clips = privacy.get("sensitivity", "clip" if recommended else "domain") == "clip"
    asked = {
        "loss": model.get("loss"),
        "delta": model.get("delta"),
        "theta_max": model.get("theta_max"),
        "responses": release.most_responses or algorithm.get("horizon"),
        "epsilon": entry.get("epsilon", privacy.get("epsilon")),
        "clip": privacy.get("clip", "auto" if recommended else None) if clips else None,
        "kappa": privacy.get("kappa"),
        "release": release.name,
        "validation": privacy.get("validation", VALIDATION_SHARE if is_recommended else None),
    }
    if release is NEWTON:
        asked["curvature_share"] = algorithm.get("curvature_share", "auto")
        asked["responses"] = algorithm.get("rounds", "auto")
    if recommended and asked["responses"] is None:
        asked["responses"] = "auto"
    if _is_scheduled(algorithm, privacy, recommended=recommended):
        horizon = asked["responses"]
        # Ticks are dealt in proportion to the records, which only their owners know. What is no
        # number of ticks is refused as it stands.
        if isinstance(horizon, int) and horizon > 0:
            asked["responses"] = max(2, -(-horizon // max(1, len(entries))))
            asked["schedule"] = horizon
    return asked


def _is_scheduled(
    algorithm: Mapping[str, Any], privacy: Mapping[str, Any], *, recommended: bool
) -> bool:
    """Whether an owner promises its own ticks only, and not the whole horizon."""
    asynchronous = algorithm.get("name", "asynchronous") == "asynchronous"
    owners_ask = algorithm.get("initiative", "learner") != "learner"
    default = "schedule" if recommended and asynchronous and not owners_ask else "horizon"
    return bool(privacy.get("split", default) == "schedule")


def _part(table: Mapping[str, Any], key: str, study: Path) -> dict[str, Any]:
    """One table of a study's file."""
    part = table.get(key, {})
    if not isinstance(part, dict):
        raise InputError(f"{study}: {key}: got {part!r}, expected a table [{key}]")
    return part
