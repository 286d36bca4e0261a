"""The learner, and what a program needs of it; each name is loaded when it is used.

>>> import learner
>>> sorted(learner.__all__)  # doctest: +NORMALIZE_WHITESPACE
['FederatedClassifier', 'FederatedRegressor', 'Run', 'forecast', 'simulate', 'sweep', 'train']
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from common.extras import needing_extras

if TYPE_CHECKING:
    from learner.commands.estimators import FederatedClassifier, FederatedRegressor
    from learner.commands.runs import Run, forecast, simulate, sweep, train

__all__ = [
    "FederatedClassifier",
    "FederatedRegressor",
    "Run",
    "forecast",
    "simulate",
    "sweep",
    "train",
]

_ESTIMATORS = {"FederatedClassifier", "FederatedRegressor"}


def __getattr__(name: str) -> object:
    """Load what a name stands for, the first time it is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "learner.commands.estimators" if name in _ESTIMATORS else "learner.commands.runs"
    with needing_extras(name):
        value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value
