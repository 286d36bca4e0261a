"""The study's settings file, STUDY.toml: its sections, and what they need of each other."""

from __future__ import annotations

from collections.abc import Container, Mapping
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field, model_validator

from common.config import (
    VALIDATION_SHARE,
    Overrides,
    Positive,
    Seed,
    Settings,
    Share,
    is_short,
    load_settings,
)
from common.errors import InputError
from common.feature_settings import FeatureSettings
from common.files import real_path
from common.losses import LOSSES
from common.names import Name, repeated
from common.tables import TableSource
from common.texts import first_few
from common.tls import TlsSettings
from learner.planning.privacy_settings import PrivacySettings, check_left_open
from learner.planning.roles import NAMED, check_roles, with_own_rate
from learner.planning.sections import (
    AUTO,
    AlgorithmSettings,
    DataSettings,
    LearnerSettings,
    ModelSettings,
    NetworkSettings,
    OwnerEntry,
    Profile,
    is_owner_requested,
    not_its_key,
    with_profile_defaults,
)


class ForecastSettings(Settings):
    """How a study is forecast from public records.

    Args:
      group_column: The column of the public records that says which group each is from, such as its
        county. The forecast expects owners to differ as these groups do. Without it the column is
        taken in which the owners' ``data.where`` differ, if the public records hold several of its
        groups and records of a group do not change along the table. Otherwise the order of the
        public table says how owners differ.
      groups: Which group an owner is, by the owner's name; not needed if its ``data.where`` names a
        value of the group column.
      records: How many records an owner has (n_i), by its name, if its table is not on this
        machine.
      availability: The share of the time at which owners answer.
      availability_of: The same for single owners, by name.
      mean_absence: How long an absence lasts on average, in units of virtual time.
      runs: How many runs are simulated.
      worlds: How often public records are dealt out to play the owners.
    """

    EXAMPLES = MappingProxyType(
        {
            "group_column": "county",
            "groups": {"mount-sinai": "Manhattan"},
            "records": {"mount-sinai": 5000},
            "availability_of": {"mount-sinai": 0.9},
        }
    )

    group_column: str | None = None
    groups: dict[str, str | int] = Field(default_factory=dict)
    records: dict[str, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    availability: Share = 1.0
    availability_of: dict[str, Share] = Field(default_factory=dict)
    mean_absence: Positive = 1.0
    runs: Annotated[int, Field(ge=10, le=100_000)] = 96
    worlds: Annotated[int, Field(ge=1, le=1000)] = 12


class StudySettings(Settings):
    """A study.

    Args:
      name: The study's name; its run folders begin with it.
      tls: The learner's certificate; required beyond this machine unless --insecure is typed.
      seed: The seed of the clocks, which is public; without it a new one is drawn and recorded.
      profile: What fills the keys that are not given. "recommended": clip, horizon and step come
        from the public records; ticks are drawn before the run, so that each owner promises exactly
        as many answers as it gives; owners with more records are asked more often, and steps are
        corrected for that; the model is the mean over the last half of the ticks; a tenth of
        epsilon is kept for validation. "published": the papers' own choices, which are gradients
        bounded by the public bounds, T answers promised by every owner, equal clocks, the last
        model and no validation.
      groups: Owners, by name, that are asked at the same time and count as one larger owner.
      learner: For a study in which one of the owners is the learner.
      guard: Whether the study stops before any owner is asked if no way of learning is forecast to
        beat both the public model and the own models of at least half of the owners. If some way
        is, but not the study's own, it goes on with a warning. Without this key it is true in the
        recommended profile, false in the published one.
    """

    EXAMPLES = MappingProxyType(
        {"name": "spring", "seed": 1, "groups": [["mount-sinai", "montefiore"]], "guard": False}
    )

    FILE = "a STUDY.toml"
    FOREIGN_KEYS = MappingProxyType({"policy": "an owner's file", "ledger": "an owner's file"})

    name: Name
    seed: Seed | None = None
    profile: Profile = "recommended"
    data: DataSettings = DataSettings()
    features: FeatureSettings
    model: ModelSettings
    algorithm: AlgorithmSettings = Field(default_factory=AlgorithmSettings)
    privacy: PrivacySettings
    network: NetworkSettings = NetworkSettings()
    forecast: ForecastSettings = ForecastSettings()
    tls: TlsSettings | None = None
    owners: Annotated[tuple[OwnerEntry, ...], Field(min_length=1)]
    groups: tuple[tuple[str, ...], ...] = ()
    learner: LearnerSettings = LearnerSettings()
    guard: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, table: Any) -> Any:
        """The profile's choices where the settings make none."""
        if not isinstance(table, dict):
            return table
        sections = {key: table.get(key, {}) for key in ("algorithm", "privacy")}
        # A misspelt profile is one mistake: what is left out beside it is none.
        is_published = table.get("profile") == "published"
        if is_published or any(isinstance(part, Settings) for part in sections.values()):
            return {"algorithm": {}} | table
        # Nor is what a section that is no table leaves out: it is refused as such.
        given = {key: part for key, part in sections.items() if isinstance(part, dict)}
        owners = table.get("owners")
        owners = owners if isinstance(owners, list | tuple) else ()
        rates = [owner.get("clock_rate", 1) for owner in owners if isinstance(owner, Mapping)]
        algorithm, privacy = with_profile_defaults(
            given.get("algorithm", {}),
            given.get("privacy", {}),
            own_rates=any(rate != 1 for rate in rates),
            has_public=_given(table.get("features"), "public") is not None,
        )
        privacy.setdefault("validation", VALIDATION_SHARE)
        filled = {"algorithm": algorithm, "privacy": privacy}
        return table | {key: filled[key] for key in given}

    @model_validator(mode="after")
    def _parts_agree(self) -> StudySettings:
        """What the algorithm needs of loss, privacy and roles."""
        name = self.algorithm.name
        release = self.algorithm.kind.release
        if release.quadratic_only and not LOSSES[self.model.loss].is_quadratic:
            raise ValueError(f'algorithm.name = "{name}" needs model.loss = "squared"')
        if release.needs_curvature and LOSSES[self.model.loss].curvature is None:
            raise ValueError(
                f'algorithm.name = "{name}" needs a loss without kinks, not {self.model.loss}; '
                'use "asynchronous"'
            )
        if not release.takes_clip and self.privacy.clip is not None:
            raise ValueError(
                f'privacy.sensitivity = "clip" does not go with algorithm.name = "{name}"; '
                f"{release.name} are bounded by the domain"
            )
        if self.privacy.split == "schedule" and is_owner_requested(self.algorithm):
            raise ValueError(
                'privacy.split = "schedule" does not go with algorithm.initiative = '
                f'"{self.algorithm.initiative}": nobody can draw its ticks ahead; '
                'use split = "horizon"'
            )
        if name == AUTO:
            check_left_open(self.privacy)
        check_roles(self)
        return self

    @model_validator(mode="after")
    def _names_and_addresses_differ(self) -> StudySettings:
        """Owners have different names, and at one address one of them serves."""
        names = [owner.name for owner in self.owners]
        addresses = [owner.address for owner in self.owners if owner.address is not None]
        for what, given in (("name", names), ("address", addresses)):
            if twice := repeated(given):
                raise ValueError(
                    f"owners: the {what} {min(twice)!r} is given twice; give each owner its own"
                )
        return self

    @model_validator(mode="after")
    def _owners_take_the_epsilons(self) -> StudySettings:
        """Of none, nor of its part for training or validation, an owner refuses the digits."""
        for epsilon, entry in {self.promised(entry): entry for entry in self.owners}.items():
            parts = (epsilon, self.for_training(entry), self.for_validation(entry))
            if not all(map(is_short, parts)):
                share = self.privacy.validation
                raise ValueError(
                    f"epsilon {epsilon} with privacy.validation = {share}: owners refuse an "
                    "epsilon, for training or validation, of more than 18 digits above or below; "
                    "write fewer digits"
                )
        return self

    def promised(self, entry: OwnerEntry) -> Fraction:
        """All that an owner is asked to spend on the study: training and validation together."""
        return entry.epsilon or self.privacy.epsilon

    def for_training(self, entry: OwnerEntry) -> Fraction:
        """What of it the training has."""
        return self.promised(entry) * (1 - self.privacy.validation)

    def for_validation(self, entry: OwnerEntry) -> Fraction:
        """What of it is kept to validate the finished model."""
        return self.promised(entry) * self.privacy.validation

    def with_validation(self, share: Fraction) -> StudySettings:
        """The same study with another share of epsilon for validation."""
        privacy = self.privacy.model_copy(update={"validation": share})
        return self.model_copy(update={"privacy": privacy})

    @property
    def is_guarded(self) -> bool:
        """Whether the study stops where it is forecast to be worse than what is free."""
        return self.profile == "recommended" if self.guard is None else self.guard

    @property
    def loss_has_classes(self) -> bool:
        """Whether targets must be -1 and +1."""
        return LOSSES[self.model.loss].has_classes()


def _given(section: Any, key: str) -> Any:
    """A key of a section, which is a table or has been read; None where it is not there."""
    return section.get(key) if isinstance(section, Mapping) else getattr(section, key, None)


def is_elsewhere(settings: StudySettings) -> bool:
    """Whether owners serve elsewhere, or come from there: training spends what they hold."""
    waits = settings.algorithm.initiative == "owner" and settings.network.listen is not None
    return waits or any(entry.address is not None for entry in settings.owners)


def with_remote_owners(settings: StudySettings, names: Container[str]) -> StudySettings:
    """The same study with only these owners, and with no shard of the learner's own."""
    entries = tuple(entry for entry in settings.owners if entry.name in names)
    return settings.model_copy(update={"owners": entries, "learner": LearnerSettings()})


def has_table(settings: StudySettings, entry: OwnerEntry) -> bool:
    """Whether an owner's records are here: never where it serves or comes from elsewhere.

    The study's own table is the learner's, and stands in only for owners that are played here.
    """
    comes = entry.address is not None or settings.network.listen is not None
    return entry.data is not None or not comes


def load_study(
    study: str | Path, *, overrides: Overrides = (), data: str | Path | None = None
) -> StudySettings:
    """The settings of a study's file.

    Args:
      study: STUDY.toml.
      overrides: Changes.
      data: The table to use instead of data.path.

    Raises:
      InputError: The file, a key or a value is wrong, or nothing would be read from the table.
    """
    values = {} if data is None else {"data.path": real_path(Path(data))}
    settings = load_settings(StudySettings, Path(study), overrides=overrides, values=values)
    check_data_typed(data, settings)
    check_forecast(settings)
    check_clock_rates(settings)
    return settings


def check_clock_rates(settings: StudySettings) -> None:
    """Refuse an owner's ``clock_rate`` in a study as typed whose algorithm has no clocks.

    Raises:
      InputError: It would be without effect; what "auto" chooses is no study as typed.
    """
    if with_own_rate(settings) and "clock_rate" not in settings.algorithm.kind.uses:
        raise InputError(not_its_key("owners.clock_rate", settings.algorithm.name))


def check_forecast(settings: StudySettings) -> None:
    """Refuse ``[forecast]`` of strangers in a study as typed; points of a sweep have fewer owners.

    Raises:
      InputError: It names the key and the owners.
    """
    owners = dict.fromkeys(entry.name for entry in settings.owners)
    for key in ("groups", "records", "availability_of"):
        strangers = [repr(name) for name in getattr(settings.forecast, key) if name not in owners]
        if strangers:
            are = "is not an owner" if len(strangers) == 1 else "are not owners"
            raise InputError(
                f"forecast.{key}: {first_few(strangers, NAMED)} {are} of this study; correct the "
                "spelling, or remove what is not one of its owners, which are "
                f"{first_few([*owners], NAMED)}"
            )


def check_data_typed(data: object | None, *studies: StudySettings) -> None:
    """Refuse a table that is typed for ``[data]`` where no study would read anything from it.

    Args:
      data: What was typed; None for nothing.
      studies: The study, or that at each point of a sweep.

    Raises:
      InputError: The public records and all owners that are here have tables of their own.
    """
    if data is None or any(map(_reads_data, studies)):
        return
    raise InputError(
        f"--data {data}: nothing would be read from it, since the study names other tables for "
        "its public records and owners; change them there"
    )


def _reads_data(settings: StudySettings) -> bool:
    """Whether the public records, or an owner's that are here, are of the table of ``[data]``."""
    here = (entry.data or TableSource() for entry in settings.owners if has_table(settings, entry))
    read = [source for source in (settings.features.public, *here) if source is not None]
    return any(source.path is None and source.database is None for source in read)
