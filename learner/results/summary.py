"""``summary.json``: what a finished run says of itself, as ``docs/summary.md`` documents it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from common.arrays import Matrix
from common.errors import InputError
from common.files import open_regular
from common.names import Name
from common.setting_errors import first_fault
from learner.planning.plan import Plan
from learner.planning.settings import StudySettings
from learner.planning.ways import way_of
from learner.results.run_folder import VERSIONS, why_unfinished
from learner.results.validated import Part, ValidationSummary
from learner.training.study import Outcome

# A run of a thousand owners and ten thousand features has a megabyte.
LARGEST_TEXT = 32 * 2**20

Count = Annotated[int, Field(ge=0, lt=2**63)]
# An exact rational, such as "1/3"; more digits than any budget has.
Rational = Annotated[str, Field(pattern=r"^[0-9]{1,150}(/[1-9][0-9]{0,149})?$")]
Chosen = Literal["auto", "given", "none"]


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """What only a simulation can know, because it may look at the union of the records.

    Args:
      fitness: f of the model.
      fitness_optimal: f of the best model in the box.
      relative_fitness: psi of the model.
      relative_fitness_noiseless: psi of the same run without noise; None where it was not made.
      relative_fitness_alone: psi of each owner's own model.
      relative_fitness_public: psi of the model of the public records; None if there are none.
      models_alone: These models, shape (N, p); not kept in the summary.
    """

    fitness: float
    fitness_optimal: float
    relative_fitness: float
    relative_fitness_noiseless: float | None
    relative_fitness_alone: tuple[float, ...]
    relative_fitness_public: float | None = None
    models_alone: Matrix | None = None


class StepSummary(Part):
    """The step: what was given or chosen, and what the choice was expected to reach."""

    chosen: Chosen
    rho: float | None = None
    initial_step: float | None = None
    largest_stable_rho: float | None = None
    forecast_relative_fitness: float | None = None


class WaySummary(Part):
    """A way of learning: what it was forecast to come to, nine runs in ten between two numbers."""

    forecast_relative_fitness: float
    low: float
    high: float


class Interval(Part):
    """A number and the interval that it is known to; without one where there is one record."""

    value: float
    low: float | None = None
    high: float | None = None


class QualitySummary(Part):
    """How good the model is in the target's raw units.

    ``on`` says on whose records: all owners' after a simulation, else the public ones, on which the
    public records' own model has the advantage of having seen them. ``at_home``: the same of
    "common", "public" and "alone" on each owner's own records.
    """

    measure: Literal["rmse", "log_loss", "accuracy"]
    target: str
    on: Literal["owners", "public"]
    records: Count
    common: Interval
    public: Interval | None = None
    guess: float
    alone: tuple[float, ...] | None = None
    at_home: dict[str, tuple[float | None, ...]] = Field(default_factory=dict)
    intervals: str


class OwnerSummary(Part):
    """One owner: what it promised, gave and spent, and what a simulation compares it with.

    ``responses`` were charged; ``responses_lost`` of them never arrived. ``responses_in_doubt``
    more were asked for and not heard of; they may be charged, and count in ``epsilon_spent``.

    It ``gains`` if the common model beats both its own and the public one; ``gains_over_own`` is
    the papers' sense of the word.
    """

    name: Name
    records: Count
    epsilon: Rational | Literal["inf"]
    responses: Count
    noise_scale: float
    epsilon_spent: Rational
    epsilon_for_validation: Rational = "0"
    responses_left: Count
    responses_lost: Count = 0
    responses_in_doubt: Count = 0
    relative_fitness_alone: float | None = None
    gains: bool | None = None
    gains_over_own: bool | None = None

    @property
    def is_left_out(self) -> bool:
        """Whether the schedule has no tick for it."""
        return self.responses + self.responses_left == 0


class Summary(Part):
    """A finished run.

    ``fitness`` and what follows, and the same of the owners, are there only after a simulation:
    all of it or nothing, but for ``relative_fitness_noiseless``: a long run is not made again.
    """

    study: Name
    study_id: str
    algorithm: Name
    loss: Name
    horizon: Count
    seed: int
    insecure_noise: bool
    profile: Name
    split: Name
    initiative: Name
    clocks: Name
    correction: Name
    groups: tuple[tuple[Name, ...], ...]
    average: Name
    horizon_chosen: Chosen
    clip: float | None
    clip_chosen: Chosen
    delta: float | None = None
    delta_chosen: Chosen | None = None
    step: StepSummary
    versions: dict[str, str]
    wall_seconds: float
    ticks: Count
    queries_per_second: float
    theta: tuple[float, ...]
    owners: tuple[OwnerSummary, ...]
    own: Name | None = None
    fitness: float | None = None
    fitness_optimal: float | None = None
    relative_fitness: float | None = None
    relative_fitness_noiseless: float | None = None
    relative_fitness_public: float | None = None
    way: str | None = None
    ways: dict[str, WaySummary] = Field(default_factory=dict)
    forecast_relative_fitness_public: float | None = None
    start: Name | None = None
    quality: QualitySummary | None = None
    validation: ValidationSummary | None = None
    validation_missing: dict[Name, str] = Field(default_factory=dict)
    counted: tuple[float, ...] = ()
    in_memory: bool = False
    edge: str | None = None

    @model_validator(mode="after")
    def _all_or_nothing(self) -> Summary:
        """All that needs the union of the records, or is forecast of the ways, or none of it."""
        values = [self.fitness, self.fitness_optimal, self.relative_fitness]
        for owner in self.owners:
            values += [owner.relative_fitness_alone, owner.gains]
        if len({value is None for value in values}) > 1:
            raise ValueError("some of what a simulation evaluates is missing")
        given = {bool(self.way), bool(self.ways), self.forecast_relative_fitness_public is not None}
        if len(given) > 1 or (self.ways and self.way not in self.ways):
            raise ValueError("some of what the ways of learning were forecast is missing")
        if self.delta_chosen is not None and self.delta is None:
            raise ValueError("delta is missing, and delta_chosen says how it was chosen")
        return self

    @property
    def is_evaluated(self) -> bool:
        """Whether the run was a simulation, and is compared with the best model."""
        return self.relative_fitness is not None

    def owner(self, name: str) -> OwnerSummary:
        """What it says of one owner."""
        return next(owner for owner in self.owners if owner.name == name)

    def with_learner(self, name: str) -> Summary:
        """The same with an owner that is the learner: nothing promised, nothing charged."""
        owners = tuple(
            owner.model_copy(update={"epsilon": "inf"}) if owner.name == name else owner
            for owner in self.owners
        )
        return self.model_copy(update={"owners": owners, "own": name})

    def with_evaluation(self, evaluated: Evaluated) -> Summary:
        """The same with what a simulation evaluates."""
        together, free = evaluated.relative_fitness, evaluated.relative_fitness_public
        silent, beats_free = evaluated.relative_fitness_noiseless, free is None or together < free
        some = {"relative_fitness_noiseless": silent, "relative_fitness_public": free}

        def compared(owner: OwnerSummary, alone: float) -> OwnerSummary:
            # A model that stays with the owner that learnt it is of no use to the others.
            beats_alone = self.own in {None, owner.name} and together < alone
            gains = {"gains": beats_alone and beats_free, "gains_over_own": beats_alone}
            return owner.model_copy(update={"relative_fitness_alone": alone} | gains)

        owners = tuple(map(compared, self.owners, evaluated.relative_fitness_alone))
        return self.model_copy(
            update={
                "owners": owners,
                "fitness": evaluated.fitness,
                "fitness_optimal": evaluated.fitness_optimal,
                "relative_fitness": evaluated.relative_fitness,
            }
            | {name: value for name, value in some.items() if value is not None}
        )

    def as_json(self) -> dict[str, Any]:
        """The summary as ``summary.json`` holds it: without what does not apply."""
        table = self.model_dump(exclude_unset=True)
        if self.quality is not None:
            kept = table["quality"].items()
            table["quality"] = {key: value for key, value in kept if value is not None}
        if self.validation is not None:
            table["validation"] = self.validation.model_dump(exclude_none=True)
        return table


def read_summary(folder: Path) -> Summary:
    """The summary of a finished run.

    Raises:
      InputError: The folder holds none, or a damaged one; the sentence names what is wrong.
    """
    path = folder / "summary.json"
    try:
        with open_regular(path) as file:
            text = file.read(LARGEST_TEXT + 1)
    except OSError:
        raise InputError(why_unfinished(folder)) from None
    if len(text) > LARGEST_TEXT:
        raise InputError(f"{path}: longer than any run's; restore it from a copy")
    try:
        return Summary.model_validate_json(text)
    except ValidationError as error:
        key, fault = first_fault(error)
        raise InputError(
            f"{path}: {key + ': ' if key else ''}{fault}; the file is damaged "
            "or not the summary of a run; restore it from a copy"
        ) from None


def summarise(
    outcome: Outcome,
    *,
    study_id: str,
    evaluated: Evaluated | None,
    in_memory: bool = False,
    edge: str | None = None,
) -> Summary:
    """The summary of a run that has just finished; ``edge`` is what was said of its box."""
    plan, settings = outcome.plan, outcome.plan.settings
    algorithm, privacy = settings.algorithm, settings.privacy
    made = Summary(
        study=settings.name,
        study_id=study_id,
        algorithm=algorithm.name,
        **plan.loss.as_terms(),
        horizon=plan.horizon,
        seed=plan.seed,
        insecure_noise=any(enrolled.insecure_noise for enrolled in outcome.enrollments),
        profile=settings.profile,
        split=privacy.split,
        initiative=algorithm.initiative,
        clocks=algorithm.clocks,
        correction=algorithm.correction,
        groups=settings.groups,
        average=algorithm.average,
        horizon_chosen="auto" if algorithm.horizon == "auto" else "given",
        clip=plan.decision.clip,
        clip_chosen="auto" if privacy.clip == "auto" else "given",
        **_choices(plan),
        step=_step(plan),
        versions=VERSIONS,
        wall_seconds=outcome.wall_seconds,
        ticks=outcome.ticks,
        queries_per_second=sum(outcome.responses) / max(outcome.wall_seconds, 1e-9),
        theta=tuple(outcome.theta.tolist()),
        owners=owner_summaries(settings, outcome),
        start="zero" if plan.decision.start is None else "public",
        **_ways(plan),
    )
    told = {"in_memory": in_memory, "edge": edge}
    made = made.model_copy(update={key: value for key, value in told.items() if value})
    if settings.learner.own is not None:
        made = made.with_learner(settings.learner.own)
    return made if evaluated is None else made.with_evaluation(evaluated)


def owner_summaries(settings: StudySettings, outcome: Outcome) -> tuple[OwnerSummary, ...]:
    """Each owner's promises and answers; the validation is a part of what was promised."""
    validated = outcome.validated
    answers = validated.answers if validated else (None,) * len(settings.owners)
    rows = []
    agreed = zip(settings.owners, outcome.enrollments, answers, strict=True)
    for i, (entry, enrollment, answer) in enumerate(agreed):
        given, doubt = outcome.responses[i], outcome.in_doubt[i]
        spent = enrollment.epsilon * (given + doubt) / max(enrollment.responses, 1)
        rows.append(
            OwnerSummary(
                name=entry.name,
                records=enrollment.num_records,
                epsilon=str(enrollment.epsilon + (answer.epsilon if answer else 0)),
                responses=given,
                noise_scale=enrollment.noise_scale,
                epsilon_spent=str(spent + (answer.epsilon if answer else 0)),
                responses_left=enrollment.responses - given,
                responses_lost=outcome.lost[i],
                responses_in_doubt=doubt,
                epsilon_for_validation=str(answer.epsilon if answer else 0),
            )
        )
    return tuple(rows)


def _choices(plan: Plan) -> dict[str, Any]:
    """How each parameter of the loss came about, and how much owners count."""
    made: dict[str, Any] = {}
    for name in plan.decision.parameters:
        is_open = getattr(plan.settings.model, name) == "auto"
        made[f"{name}_chosen"] = "auto" if is_open else "given"
    return made | ({"counted": plan.decision.counted} if plan.decision.counted else {})


def _ways(plan: Plan) -> dict[str, Any]:
    """What the ways of learning were forecast to come to, where they were compared."""
    decision, own = plan.decision, way_of(plan.settings)
    ways = {
        way: WaySummary(forecast_relative_fitness=its.relative_fitness, low=its.low, high=its.high)
        for way, its in decision.ways.items()
        if all(map(_is_number, (its.relative_fitness, its.low, its.high)))
    }
    if not _is_number(decision.public) or own not in ways:
        return {}
    return {"way": own, "ways": ways, "forecast_relative_fitness_public": decision.public}


def _is_number(value: float | None) -> bool:
    """Whether it was forecast: where a model leaves no loss, nothing is relative to it."""
    return value is not None and abs(value) < float("inf")


def _step(plan: Plan) -> StepSummary:
    """What the settings say of the step, or what was chosen."""
    algorithm, decision = plan.settings.algorithm, plan.decision
    constant, facts = algorithm.kind.constant, dict[str, Any](chosen="none")
    if constant is not None:
        facts = {"chosen": "auto" if algorithm.step else "given", constant: decision.constant}
    if decision.largest_stable is not None:
        facts["largest_stable_rho"] = decision.largest_stable
    if _is_number(decision.forecast):
        facts["forecast_relative_fitness"] = decision.forecast
    return StepSummary(**facts)
