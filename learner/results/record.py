"""What every part of ``summary.json`` is: frozen, and open to what a later version adds."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["Record"]


class Record(BaseModel):
    """Frozen; keys that a later version adds are ignored."""

    model_config = ConfigDict(frozen=True)
