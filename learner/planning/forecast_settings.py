"""The section ``[forecast]`` of a study."""

from __future__ import annotations

from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from common.config import Positive, Settings

__all__ = ["ForecastSettings"]

Share = Annotated[float, Field(gt=0, le=1)]


class ForecastSettings(Settings):
    """How a study is forecast from public records.

    Args:
      group_column: A column of the public records that tells groups of them apart, such as the
        county; owners are expected to differ as groups do. Without it that column which tells the
        owners apart by their ``data.where``, if public records of its groups do not change along
        their table; else only the order tells.
      groups: The group that an owner is, by the owner's name; an owner whose ``data.where`` names
        a value of the group column needs none.
      records: An owner's n_i by its name, where its table is not at hand.
      availability: Share of the time at which owners answer.
      availability_of: The same of single owners, by name.
      mean_absence: Mean length of an absence, in units of virtual time.
      runs: Simulated runs.
      worlds: How often public records are dealt to owners anew.
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
