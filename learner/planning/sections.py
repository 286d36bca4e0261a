"""The sections of STUDY.toml, each checked by itself, and what a profile fills in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from common.config import Address, Epsilon, LossName, Positive, SecretPlace, Settings
from common.losses import LOSSES, PARAMETERS
from common.names import Name
from common.suggestions import did_you_mean
from common.tables import TablePlace, TableSource
from learner.algorithms.table import ALGORITHMS, NO_KEYS, OPTIONAL_KEYS, Kind
from learner.planning.privacy_settings import AMOUNT, PROMISED, or_auto

__all__ = [
    "AUTO",
    "LARGEST_HORIZON",
    "MOST_ROUNDS",
    "AlgorithmSettings",
    "Clocks",
    "DataSettings",
    "LearnerSettings",
    "ModelSettings",
    "NetworkSettings",
    "OwnerEntry",
    "Profile",
    "is_owner_requested",
    "not_its_key",
    "with_profile_defaults",
]

Profile = Literal["published", "recommended"]
Initiative = Literal["learner", "broadcast", "owner"]
Correction = Literal["none", "rates", "counted"]
Clocks = Literal["given", "records"]
Start = Literal["public", "zero"]

# The algorithm that is forecast to be best.
AUTO = "auto"
# No owner promises more responses.
LARGEST_HORIZON = 10**9
# A smaller share of epsilon is of no use.
SMALLEST_SHARE = 0.001
# More rounds leave so little of epsilon to each that ticks are better.
MOST_ROUNDS = 20


def _algorithm(name: str) -> str:
    """The name of an algorithm as it is, or "auto"."""
    names = (*ALGORITHMS, AUTO)
    if name not in names:
        # Forecasts call the two ways of the asynchronous algorithm by what they do.
        meant = "; did you mean 'asynchronous'?" if name.startswith("ticks") else ""
        raise ValueError(f"expected one of {', '.join(names)}{meant or did_you_mean(name, names)}")
    return name


AlgorithmName = Annotated[str, AfterValidator(_algorithm)]


_HORIZON = or_auto(1, LARGEST_HORIZON, "a whole number from 1 to 1e9", whole=True)
_SHARE = or_auto(
    SMALLEST_SHARE, 1 - SMALLEST_SHARE, f"a number from {SMALLEST_SHARE} to {1 - SMALLEST_SHARE}"
)
_ROUNDS = or_auto(1, MOST_ROUNDS, f"a whole number from 1 to {MOST_ROUNDS}", whole=True)


class DataSettings(TablePlace):
    """The table that public records, and owners played here, are cut from unless they name one."""


class ModelSettings(Settings):
    """What is learnt.

    Args:
      loss: What a wrong prediction costs, by the target: of numbers "squared", or "huber" where
        some are far off (long tails; far less noise); of two classes "logistic", which gives
        probabilities, or "hinge", which gives scores.
      delta: Where Huber loss turns from squared to absolute, in target units; "auto" takes it from
        the public records.
      regularisation: The coefficient c of g = c theta'theta, which is added to the mean loss and
        keeps the model's coefficients small.
      theta_max: The largest coefficient that a model may have, of features and numbers scaled to
        deviation one. Too small keeps the best model out, too large costs noise where nothing is
        clipped; copriv init takes twice the largest one of the public model, rounded up.
    """

    EXAMPLES = MappingProxyType({"delta": "auto", "theta_max": 0.5})

    loss: LossName = "squared"
    delta: Annotated[float | Literal["auto"] | None, AMOUNT] = None
    regularisation: Positive = 1e-5
    theta_max: Positive

    @model_validator(mode="after")
    def _parameters_of_the_loss(self) -> ModelSettings:
        """Each loss has the parameters that it takes, and no others."""
        takes = {field.name for field in fields(LOSSES[self.loss])}
        for name in PARAMETERS:
            given = getattr(self, name)
            if given is None and name in takes:
                raise ValueError(f'{self.loss} loss needs {name} = NUMBER or {name} = "auto"')
            if given is not None and name not in takes:
                raise ValueError(f"{name} does not belong to {self.loss} loss; remove it")
        return self


class AlgorithmSettings(Settings):
    """How it is learnt.

    Args:
      name: asynchronous (Algorithm 1 of the 2021 paper), synchronous-1 and synchronous-2
        (Algorithms 1 and 2 of the 2020 paper: every round asks every owner), moments (each
        owner sends its noisy second moments once; squared loss only), newton (each owner sends
        curvature and gradient in one to a few rounds, first near the public model; needs public
        records), or auto (the one of these with the best forecast). A study of the recommended
        profile is auto if it has public records and sets nothing that only ticks have.
      horizon: The number T of communications, or of rounds; "auto" takes it from the public
        records, as the recommended profile does. Moments need one visit for each owner and none.
      rho: The papers' step constant; the step of a local copy is N rho/(T^2 sigma).
      initial_step: The step c1 of the first round of synchronous-2.
      step: "auto" takes the step from the public records, as the recommended profile does; give
        either it or a number.
      rule: For asynchronous the factor in (7), "printed" (N-1)/N or "corrected" 1/2; for
        synchronous-1 "printed" leaves out the projection and "corrected" projects. Without
        it, printed for the one and corrected for the other.
      average: Whether the result is the last central model or the mean over the last half of
        the ticks, which costs no privacy; the recommended profile takes that mean, "tail".
      time_scale: Real seconds for one unit of virtual time; 0 does not wait.
      initiative: Who begins: the "learner" fires the clocks; it makes offers by "broadcast" and
        asks whoever accepts first; or the "owner" asks for an update by a clock of its own.
      interval: Virtual time between offers, 1 if not given.
      clocks: Whether clocks tick at the rates "given" with the owners, or in proportion to their
        "records" n_i, as the recommended profile does with a schedule, unless an owner has a rate
        of its own.
      start: Where all models begin: at the model of the "public" records, or at "zero" as in the
        papers. For moments, what the noise is taken back to; "zero" solves them as they come. The
        recommended profile begins at the public model, but with classes at zero; newton and moments
        begin at that model less half of what is chance in its length, and with classes also less
        what makes it too sure of records held out.
      curvature_share: The share of epsilon that newton spends on the curvature; "auto" takes it
        from the public records.
      rounds: How often newton asks each owner, 1 to 20 times, each for an equal part of its
        epsilon; "auto" takes two to four, by the public records, and may take one where public
        records of its own group stand for every owner. One is a little better where owners are
        surely like the public records; else nothing mends a step that is too long.
      correction: Remark 4 for owners that answer more or less often: "none", by the known
        "rates" of their clocks, or as "counted": in the schedule where it is drawn ahead, else
        while the run goes. The recommended profile takes "counted" with a schedule.
    """

    EXAMPLES = MappingProxyType(
        {
            "horizon": "auto",
            "rho": 1.0,
            "initial_step": 0.1,
            "step": "auto",
            "rule": "corrected",
            "interval": 1.0,
        }
    )

    name: AlgorithmName = "asynchronous"
    horizon: Annotated[int | Literal["auto"] | None, _HORIZON] = None
    rho: Positive | None = None
    initial_step: Positive | None = None
    step: Literal["auto"] | None = None
    rule: Literal["printed", "corrected"] | None = None
    average: Literal["last", "tail"] = "last"
    time_scale: Annotated[float, Field(ge=0)] = 0.0
    initiative: Initiative = "learner"
    interval: Positive | None = None
    clocks: Clocks = "given"
    correction: Correction = "none"
    start: Start = "zero"
    curvature_share: Annotated[float | Literal["auto"], _SHARE] = "auto"
    rounds: Annotated[int | Literal["auto"], _ROUNDS] = "auto"

    @model_validator(mode="after")
    def _keys_of_the_algorithm(self) -> AlgorithmSettings:
        """Each algorithm has the keys that it uses, and no others."""
        kind = ALGORITHMS.get(self.name, NO_KEYS)
        for key, field in type(self).model_fields.items():
            is_foreign = key in OPTIONAL_KEYS and key not in kind.keys
            if is_foreign and getattr(self, key) != field.default:
                raise ValueError(not_its_key(f"algorithm.{key}", self.name))
        if kind.constant is None:
            return self
        if self.horizon is None:
            raise ValueError('expected horizon = NUMBER or horizon = "auto"')
        if self.horizon == "auto" and self.step is None:
            raise ValueError('horizon = "auto" needs step = "auto": they are chosen together')
        if (self.constant is None) == (self.step is None):
            raise ValueError(f'expected either {kind.constant} = NUMBER or step = "auto"')
        return self

    @property
    def constant(self) -> float | None:
        """The step's constant, by the algorithm's own key, where it is given."""
        key = ALGORITHMS.get(self.name, NO_KEYS).constant
        return None if key is None else getattr(self, key)


def not_its_key(key: str, name: str) -> str:
    """The sentence about a key that an algorithm has not.

    >>> not_its_key("algorithm.initial_step", "moments")
    'algorithm.initial_step belongs to synchronous-2, not to moments; remove it'
    >>> not_its_key("algorithm.initiative", "auto")
    'algorithm.initiative belongs to asynchronous, not to auto; set algorithm.name = "asynchronous"'
    """
    having = [n for n, kind in ALGORITHMS.items() if key.rsplit(".", maxsplit=1)[-1] in kind.keys]
    cure = f'set algorithm.name = "{having[0]}"' if name == AUTO else "remove it"
    return f"{key} belongs to {' and '.join(having)}, not to {name}; {cure}"


class NetworkSettings(Settings):
    """How long the learner waits.

    Args:
      deadline: Seconds that one answer may take.
      patience: Seconds without any owner's answer after which the run stops; at the start, how
        long it waits for an owner that is not there yet.
      token: Where the learner's token is, "file:PATH" or "env:NAME" of one that
        ``copriv-owner token`` has made, and nothing else is sent; without it none is.
      listen: HOST:PORT for owners that come by themselves; port 0 takes a free one.
      retries: How often a broken query is asked again before its tick counts as missed.
      in_flight: How many owners may be asked at the same time, 1 to 64. The next one is asked
        before the last has answered where its question does not depend on that answer, so the model
        is the same; 1 asks one at a time. The learner begins with one, may ask one more after each
        answer that comes within a quarter of network.deadline, and half as many after one that
        takes more than half of it, or none. It matters only where the learner fires the clocks
        itself (algorithm.initiative = "learner") and algorithm.time_scale is 0; synchronous-1,
        synchronous-2 and groups ask all of a round or a group at the same time anyway.
      metrics: HOST:PORT of a plain HTTP port with Prometheus metrics, while the run lasts.
    """

    EXAMPLES = MappingProxyType(
        {"token": "file:bank.token", "listen": "0.0.0.0:50060", "metrics": "127.0.0.1:9464"}
    )

    deadline: Positive = 30.0
    patience: Positive = 60.0
    token: SecretPlace | None = None
    listen: Address | None = None
    retries: Annotated[int, Field(ge=0, le=10)] = 3
    in_flight: Annotated[int, Field(ge=1, le=64)] = 16
    metrics: Address | None = None


class OwnerEntry(Settings):
    """One owner of the study.

    Args:
      name: Its name.
      address: HOST:PORT where it serves, for ``train``.
      data: Its records, for ``simulate`` and for the owner that is the learner.
      epsilon: Its own budget for the study, if not the study's.
      token: Where the token for this owner is, if not the study's.
      clock_rate: Expected ticks of its clock per unit of virtual time.
      listening: Chance that it accepts an offer, for ``simulate``; elsewhere it is the owner's
        own setting.
    """

    EXAMPLES = MappingProxyType(
        {
            "name": "mount-sinai",
            "address": "ehr.example:50051",
            "data": {"rows": ":-5000", "where": {"hospital": "Mount Sinai"}},
            "epsilon": 1,
            "token": "env:SINAI_TOKEN",
        }
    )

    name: Name
    address: Address | None = None
    data: TableSource | None = None
    epsilon: Epsilon | None = None
    token: SecretPlace | None = None
    clock_rate: Positive = 1.0
    listening: Annotated[float, Field(gt=0, le=1)] = 1.0


class LearnerSettings(Settings):
    """The table ``[learner]``: for an owner that is the learner itself.

    Args:
      own: The owner that learns. Its shard is read here and asked without noise or charge; the
        model then depends on its raw records.
      shows_model: Must be true together with ``own``: the queries carry models, so the other
        owners see what the learner's records did to them, and nothing hides these records there.
    """

    EXAMPLES = MappingProxyType({"own": "mount-sinai"})

    own: str | None = None
    shows_model: bool = False


def with_profile_defaults(
    algorithm: Mapping[str, Any],
    privacy: Mapping[str, Any],
    *,
    own_rates: bool = False,
    has_public: bool = False,
    has_classes: bool = False,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sections ``algorithm`` and ``privacy`` with what is recommended where they are silent.

    Args:
      algorithm: The section as it is given.
      privacy: The section as it is given.
      own_rates: Whether an owner's clock has a rate of its own, which then stays.
      has_public: Whether there are public records.
      has_classes: Whether the loss is for classes.

    >>> with_profile_defaults({}, {"epsilon": 1}, has_public=True)
    ({'name': 'auto'}, {'epsilon': 1})
    >>> typed = {"horizon": 50, "average": "last"}
    >>> with_profile_defaults(typed, {"epsilon": 1, "sensitivity": "domain"})
    ... # doctest: +NORMALIZE_WHITESPACE
    ({'horizon': 50, 'average': 'last', 'step': 'auto', 'correction': 'counted',
      'clocks': 'records'},
     {'epsilon': 1, 'sensitivity': 'domain', 'split': 'schedule'})
    """
    given, asked = dict(algorithm), dict(privacy)
    if has_public and not own_rates and not _names_ticks(given, asked):
        given["name"] = "auto"
    kind = ALGORITHMS.get(str(given.get("name", "asynchronous")))
    if "clip" in asked:
        asked.setdefault("sensitivity", "clip")
    if kind is None:
        return given, asked
    if has_public and not has_classes and "start" in kind.uses:
        given.setdefault("start", "public")
    return _filled(kind, given, asked, own_rates=own_rates)


def _filled(
    kind: Kind,
    given: dict[str, Any],
    asked: dict[str, Any],
    *,
    own_rates: bool,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is recommended for an algorithm that is known."""
    if kind.release.takes_clip and asked.get("sensitivity", "clip") == "clip":
        asked["sensitivity"] = "clip"
        asked.setdefault("clip", "auto")
    if kind.constant is None:
        return given, asked
    if not {"rho", "initial_step", "step"} & set(given):
        given["step"] = "auto"
    given.setdefault("horizon", "auto")
    if "average" in kind.uses:
        given.setdefault("average", "tail")
    if kind.is_schedulable:
        asked.setdefault("split", "horizon" if is_owner_requested(given) else "schedule")
        if asked["split"] == "schedule" and "correction" in kind.uses:
            given.setdefault("correction", "counted")
            if given["correction"] != "none" and not own_rates:
                given.setdefault("clocks", "records")
    return given, asked


def _names_ticks(algorithm: Mapping[str, Any], privacy: Mapping[str, Any]) -> bool:
    """Whether a study says anything of how ticks are made, so that it means them."""
    return bool(set(algorithm) - {"time_scale"} or set(privacy) - PROMISED)


def is_owner_requested(algorithm: Any) -> bool:
    """Whether owners have a say in when they are asked, so that no tick can be drawn ahead."""
    given = algorithm if isinstance(algorithm, Mapping) else vars(algorithm)
    # A list is no name of one, and cannot be looked for in a set.
    return given.get("initiative") in ("owner", "broadcast")
