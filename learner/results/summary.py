"""``summary.json``: what a finished run says of itself, as ``docs/summary.md`` documents it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from common.errors import InputError
from common.names import Name
from common.terms import Enrollment
from learner.planning.plan import Plan, kind_of
from learner.planning.settings import StudySettings
from learner.training.study import Outcome

__all__ = [
    "Evaluated",
    "OwnerSummary",
    "StepSummary",
    "Summary",
    "read_summary",
    "summarise",
]

VERSIONS = ("copriv", "grpcio", "numpy", "opendp", "pandas", "protobuf")

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
      relative_fitness_noiseless: psi of the same run without noise.
      relative_fitness_alone: psi of each owner's own model.
    """

    fitness: float
    fitness_optimal: float
    relative_fitness: float
    relative_fitness_noiseless: float
    relative_fitness_alone: tuple[float, ...]


class _Record(BaseModel):
    """Frozen; keys that a later version adds are ignored."""

    model_config = ConfigDict(frozen=True)


class StepSummary(_Record):
    """The step: what was given or chosen, and what the choice was expected to reach."""

    chosen: Chosen
    rho: float | None = None
    initial_step: float | None = None
    largest_stable_rho: float | None = None
    forecast_relative_fitness: float | None = None


class OwnerSummary(_Record):
    """One owner: what it promised, gave and spent, and what a simulation compares it with."""

    name: Name
    records: Count
    epsilon: Rational | Literal["inf"]
    responses: Count
    noise_scale: float
    epsilon_spent: Rational
    responses_left: Count
    relative_fitness_alone: float | None = None
    gains: bool | None = None

    @property
    def is_left_out(self) -> bool:
        """Whether the schedule has no tick for it."""
        return self.responses + self.responses_left == 0


class Summary(_Record):
    """A finished run.

    ``fitness`` and what follows, and the same of the owners, are there only after a simulation:
    all of it or nothing.
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

    @model_validator(mode="after")
    def _evaluated_or_not(self) -> Summary:
        """All that needs the union of the records, or none of it."""
        values = [self.fitness, self.fitness_optimal, self.relative_fitness]
        values += [self.relative_fitness_noiseless]
        for owner in self.owners:
            values += [owner.relative_fitness_alone, owner.gains]
        if len({value is None for value in values}) > 1:
            raise ValueError("some of what a simulation evaluates is missing")
        return self

    @property
    def is_evaluated(self) -> bool:
        """Whether the run was a simulation, and is compared with the best model."""
        return self.relative_fitness is not None

    def owner(self, name: str) -> OwnerSummary:
        """What it says of one owner."""
        return next(owner for owner in self.owners if owner.name == name)

    def with_own(self, own: str) -> Summary:
        """The same with an owner that is the learner: nothing promised, nothing charged."""
        owners = tuple(
            owner.model_copy(update={"epsilon": "inf"}) if owner.name == own else owner
            for owner in self.owners
        )
        return self.model_copy(update={"owners": owners, "own": own})

    def with_evaluation(self, evaluated: Evaluated) -> Summary:
        """The same with what a simulation evaluates."""
        owners = tuple(
            owner.model_copy(
                update={
                    "relative_fitness_alone": alone,
                    # A model that stays with the owner that learnt it is of no use to the others.
                    "gains": self.own in {None, owner.name} and evaluated.relative_fitness < alone,
                }
            )
            for owner, alone in zip(self.owners, evaluated.relative_fitness_alone, strict=True)
        )
        return self.model_copy(
            update={
                "owners": owners,
                "fitness": evaluated.fitness,
                "fitness_optimal": evaluated.fitness_optimal,
                "relative_fitness": evaluated.relative_fitness,
                "relative_fitness_noiseless": evaluated.relative_fitness_noiseless,
            }
        )

    def as_json(self) -> dict[str, Any]:
        """The summary as ``summary.json`` holds it: without what does not apply."""
        return self.model_dump(exclude_unset=True)


def read_summary(folder: Path) -> Summary:
    """The summary of a finished run.

    Raises:
      InputError: The folder holds none, or a damaged one; the sentence names what is wrong.
    """
    try:
        text = (folder / "summary.json").read_bytes()
    except OSError:
        raise InputError(
            f"{folder}: holds no summary.json that can be read; give the folder of a finished run"
        ) from None
    try:
        return Summary.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        raise InputError(
            f"{folder / 'summary.json'}: {where + ': ' if where else ''}"
            f"{message[:1].lower()}{message[1:]}; the file is damaged or no summary of a run, "
            "restore it from a copy"
        ) from None


def summarise(
    settings: StudySettings,
    outcome: Outcome,
    *,
    study_id: str,
    evaluated: Evaluated | None,
) -> Summary:
    """The summary of a run that has just finished."""
    plan, algorithm, privacy = outcome.plan, settings.algorithm, settings.privacy
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
        **_parameters_chosen(plan),
        step=_step(plan),
        versions={package: version(package) for package in VERSIONS},
        wall_seconds=outcome.wall_seconds,
        ticks=outcome.ticks,
        queries_per_second=sum(outcome.responses) / max(outcome.wall_seconds, 1e-9),
        theta=tuple(outcome.theta.tolist()),
        owners=_owners(settings, outcome.enrollments, outcome.responses),
    )
    if settings.learner.own is not None:
        made = made.with_own(settings.learner.own)
    return made if evaluated is None else made.with_evaluation(evaluated)


def _owners(
    settings: StudySettings, enrollments: Sequence[Enrollment], responses: Sequence[int]
) -> tuple[OwnerSummary, ...]:
    return tuple(
        OwnerSummary(
            name=entry.name,
            records=enrollment.num_records,
            epsilon=str(enrollment.epsilon),
            responses=given,
            noise_scale=enrollment.noise_scale,
            epsilon_spent=str(enrollment.epsilon * given / max(enrollment.responses, 1)),
            responses_left=enrollment.responses - given,
        )
        for entry, enrollment, given in zip(settings.owners, enrollments, responses, strict=True)
    )


def _parameters_chosen(plan: Plan) -> dict[str, Any]:
    """How each parameter of the loss came about."""
    model = plan.settings.model
    return {
        f"{name}_chosen": "auto" if getattr(model, name) == "auto" else "given"
        for name in plan.decision.parameters
    }


def _step(plan: Plan) -> StepSummary:
    """What the settings say of the step, or what was chosen."""
    algorithm, decision = plan.settings.algorithm, plan.decision
    facts: dict[str, Any] = {"chosen": "auto" if algorithm.step else "given"}
    constant = kind_of(plan.settings).constant
    if constant is None:
        facts = {"chosen": "none"}
    else:
        facts[constant] = decision.constant
    if decision.largest_stable is not None:
        facts["largest_stable_rho"] = decision.largest_stable
    if decision.forecast is not None:
        facts["forecast_relative_fitness"] = decision.forecast
    return StepSummary(**facts)
