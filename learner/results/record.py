"""What every part of ``summary.json`` is: frozen, finite, and open to what a later version adds."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["Record"]


class Record(BaseModel):
    """Frozen, of finite numbers; keys that a later version adds are ignored."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)
