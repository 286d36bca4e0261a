"""The sections of STUDY.toml, each checked by itself, and what a profile fills in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from common.config import Address, Epsilon, LossName, Positive, Settings, Share, names_ticks
from common.losses import LOSSES, PARAMETERS
from common.names import Name
from common.places import SecretPlace
from common.privacy import LARGEST_BOUND, SMALLEST_BOUND
from common.suggestions import did_you_mean
from common.tables import TablePlace, TableSource
from learner.algorithms.asynchronous import Rule
from learner.algorithms.table import ALGORITHMS, NO_KEYS, OPTIONAL_KEYS, Kind
from learner.planning.privacy_settings import AMOUNT, or_auto

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
# A year in seconds: of a time of centuries gRPC makes one that is over before a call begins.
LONGEST_DEADLINE = 31_536_000


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
    """The table of public records, and of owners on this machine, that do not name their own."""


class ModelSettings(Settings):
    """What is learnt.

    Args:
      loss: How a wrong prediction is counted. For a target of numbers: "squared", or "huber" if
        some values are far from the rest (long tails; needs far less noise). For two classes:
        "logistic", which gives probabilities, or "hinge", which gives scores.
      delta: The error at which Huber loss turns from squared to absolute, in standard deviations
        of the public records' target, to which targets are scaled: 0.5 is half of one, whatever
        the target's unit. "auto" takes it from the public records.
      regularisation: The coefficient c of g = c theta'theta, which is added to the mean loss and
        keeps the model's coefficients small.
      theta_max: The largest absolute value of a coefficient, where features and numeric targets are
        scaled to standard deviation one. If it is too small, it keeps the best model out; if it is
        too large, it costs noise where gradients are not clipped. copriv init takes twice the
        largest coefficient of the public model, rounded up.
    """

    EXAMPLES = MappingProxyType({"delta": "auto", "theta_max": 0.5})

    loss: LossName = "squared"
    delta: Annotated[float | Literal["auto"] | None, AMOUNT] = None
    regularisation: Positive = 1e-5
    theta_max: Annotated[float, Field(ge=SMALLEST_BOUND, le=LARGEST_BOUND)]

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
        (Algorithms 1 and 2 of the 2020 paper: every round asks every owner), moments (each owner
        sends its noisy second moments once; squared loss only), newton (each owner sends curvature
        and gradient in one to a few rounds, first near the public model; needs public records), or
        auto (whichever of these has the best forecast, each with a clip and a split of its own). In
        the recommended profile a study is auto if it has public records, names no algorithm, and
        sets no key that only ticks have; with groups it takes ticks, the only way that asks owners
        in groups.
      horizon: The number T of communications with owners (asynchronous) or of rounds (synchronous-1
        and synchronous-2). "auto" takes it from the public records, as the recommended profile
        does. moments and newton have no horizon.
      rho: The step constant of the papers, for asynchronous and synchronous-1. In asynchronous an
        owner's local model moves by N rho/(T^2 sigma) times the gradient; sigma is twice
        model.regularisation.
      initial_step: The step c1 of the first round of synchronous-2.
      step: "auto" takes the step from the public records, as the recommended profile does. Without
        it, set rho or initial_step.
      rule: For asynchronous the factor in equation (7) of the 2021 paper: "printed" is (N-1)/N,
        "corrected" is 1/2. For synchronous-1 "corrected" projects every step into the box of
        models, "printed" does not, and its run ends where a model leaves the box, since owners
        answer only inside it. Without it, asynchronous takes "printed" and synchronous-1
        "corrected".
      average: Which model is the result: "last" is the last central model, "tail" the mean over the
        last half of the ticks. Neither costs any privacy; the recommended profile takes "tail".
      time_scale: How many real seconds a unit of virtual time takes, at most 31536000; with 0 the
        run does not wait for the clocks.
      initiative: Who begins. "learner": the clocks of the learner say which owner is asked.
        "broadcast": the learner makes an offer to all owners and asks the first that accepts.
        "owner": each owner asks for an update by a clock of its own.
      interval: Virtual time between two offers of initiative = "broadcast"; 1 if not given.
      clocks: How often each owner's clock ticks: at the rate "given" as its clock_rate, or in
        proportion to its "records" n_i. The recommended profile takes "records" with a schedule,
        unless an owner has a clock_rate of its own.
      start: Where all models begin: at the model of the "public" records, or at "zero" as in the
        papers. The recommended profile takes "public" where there are public records. For moments
        it says what their noise is shrunk towards; "zero" solves them as they come. newton always
        begins at the public model. newton and moments first shrink that model by the ridge that
        tells public records held out best, if any does so surely.
      curvature_share: The share of epsilon that newton spends on the curvature; "auto" takes it
        from the public records.
      rounds: How often newton asks each owner, 1 to 20 times; each answer has an equal part of its
        epsilon. "auto" takes two to four, by the public records, and may take one if every owner's
        own group has public records. One is a little better if the owners are surely like the
        public records; otherwise no later round mends a step that was too long.
      correction: Whether steps are corrected for owners that are asked more or less often than
        others (Remark 4 of the 2021 paper). "none": not at all. "rates": by the known rates of
        their clocks. "counted": by the number of their ticks, in the schedule if privacy.split is
        "schedule" and otherwise in the run so far. The recommended profile takes "counted" with a
        schedule.
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
    rule: Rule | None = None
    average: Literal["last", "tail"] = "last"
    time_scale: Annotated[float, Field(ge=0, le=LONGEST_DEADLINE)] = 0.0
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
        kind = self.kind
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
    def kind(self) -> Kind:
        """What the algorithm of this name says about itself; nothing of one left open."""
        return ALGORITHMS.get(self.name, NO_KEYS)

    @property
    def constant(self) -> float | None:
        """The step's constant, by the algorithm's own key, where it is given."""
        key = self.kind.constant
        return None if key is None else getattr(self, key)


def not_its_key(key: str, name: str) -> str:
    """The sentence about a key that an algorithm has not.

    >>> not_its_key("algorithm.initial_step", "moments")
    'algorithm.initial_step belongs to synchronous-2, not to moments; remove it'
    >>> not_its_key("algorithm.rule", "auto")  # doctest: +NORMALIZE_WHITESPACE
    'algorithm.rule belongs to asynchronous and synchronous-1, not to auto;
     remove it, or set algorithm.name = "asynchronous"'
    """
    having = [n for n, kind in ALGORITHMS.items() if key.rsplit(".", maxsplit=1)[-1] in kind.keys]
    cure = f'remove it, or set algorithm.name = "{having[0]}"' if name == AUTO else "remove it"
    return f"{key} belongs to {' and '.join(having)}, not to {name}; {cure}"


class NetworkSettings(Settings):
    """How owners are reached, and how long the learner waits.

    Args:
      deadline: Seconds that one answer may take, at most 31536000, which is a year.
      patience: The run stops after this many seconds without any owner's answer; where one has
        given all that it promised, it ends in order, without those that are away. At its start the
        learner waits as long for an owner that is not there yet.
      token: Where the learner's token is: "file:PATH" or "env:NAME". It must be one that
        ``copriv-owner token`` has made; any other text is refused and not sent. Without this key no
        token is sent.
      listen: HOST:PORT where the learner waits for owners that attach to it; port 0 takes a free
        one.
      retries: How often a query whose connection broke is sent again before its tick counts as
        missed.
      in_flight: The most owners that may be asked at the same time, 1 to 64; 1 asks one at a time.
        The next owner is asked before the last has answered only if its question does not depend on
        that answer, so the model is the same. The learner begins with one at a time. Each answer
        within a quarter of network.deadline allows one more; an answer that takes more than half of
        it, or does not come, halves the number. It matters only where the learner fires the clocks
        itself (algorithm.initiative = "learner") and algorithm.time_scale is 0; synchronous-1,
        synchronous-2 and groups ask all of a round or a group at the same time anyway.
      metrics: HOST:PORT of a plain HTTP port with Prometheus metrics, while the run lasts.
    """

    EXAMPLES = MappingProxyType(
        {"token": "file:bank.token", "listen": "0.0.0.0:50060", "metrics": "127.0.0.1:9464"}
    )

    deadline: Annotated[float, Field(gt=0, le=LONGEST_DEADLINE)] = 30.0
    patience: Positive = 60.0
    token: SecretPlace | None = None
    listen: Address | None = None
    retries: Annotated[int, Field(ge=0, le=10)] = 3
    in_flight: Annotated[int, Field(ge=1, le=64)] = 16
    metrics: Address | None = None


class OwnerEntry(Settings):
    """One owner of the study.

    Args:
      name: The owner's name.
      address: HOST:PORT where it serves, for ``train``.
      data: Its records, if they are on this machine: for ``simulate``, or if this owner is the
        learner.
      epsilon: Its budget for the whole study, in place of privacy.epsilon.
      token: Where the token for this owner is, in place of network.token.
      clock_rate: How many ticks of its clock are expected in a unit of virtual time; of
        "asynchronous", since all others ask each owner equally often.
      listening: The chance that it accepts an offer, for ``simulate``; in other runs the owner's
        own setting says it.
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
    listening: Share = 1.0


class LearnerSettings(Settings):
    """The table ``[learner]``: for an owner that is the learner itself.

    Args:
      own: The name of the owner that is the learner. Its records are read here and used without
        noise or charge, so nothing hides them in the model.
      shows_model: Must be true if ``own`` is set: queries carry models that the learner's own
        records have shaped without noise, and the other owners see these models.
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
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sections ``algorithm`` and ``privacy`` with what is recommended where they are silent.

    Args:
      algorithm: The section as it is given.
      privacy: The section as it is given.
      own_rates: Whether an owner's clock has a rate of its own, which then stays.
      has_public: Whether there are public records.

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
    if has_public and not own_rates and not names_ticks(given, asked):
        given["name"] = "auto"
    kind = ALGORITHMS.get(str(given.get("name", "asynchronous")))
    if "clip" in asked:
        asked.setdefault("sensitivity", "clip")
    if kind is None:
        return given, asked
    if has_public and "start" in kind.uses:
        given.setdefault("start", "public")
    return _filled(kind, given, asked, own_rates=own_rates)


def _filled(
    kind: Kind, given: dict[str, Any], asked: dict[str, Any], *, own_rates: bool
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


def is_owner_requested(algorithm: Any) -> bool:
    """Whether owners have a say in when they are asked, so that no tick can be drawn ahead."""
    given = algorithm if isinstance(algorithm, Mapping) else vars(algorithm)
    # A list is no name of one, and cannot be looked for in a set.
    return given.get("initiative") in ("owner", "broadcast")
