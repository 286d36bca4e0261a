"""The text of a feature map: readable, the same for equal maps, and what a file adds to it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from common.features import FeatureMap

_NUMBERS_ON_LINES = re.compile(r"\[\n *+((?:-?[0-9][0-9.eE+-]*+,?\n *+)++)\]", re.ASCII)


def file_text(feature_map: FeatureMap) -> str:
    """A map's text for a file: what was agreed on, and beside it what helps people alone.

    These are the public values of a target of classes. The canonical text and the digest are
    without them, so they change no study, and what older versions agreed on stays the same.
    """
    table = feature_map.model_dump(mode="json")
    if feature_map.target.public_values:
        table["target"]["public_values"] = list(feature_map.target.public_values)
    return laid_out(table)


def laid_out(table: Mapping[str, Any]) -> str:
    """A table as JSON, each row of numbers on one line.

    >>> print(laid_out({"bounds": [1.0, 2.5], "names": ["a"]}), end="")
    {
     "bounds": [1.0, 2.5],
     "names": [
      "a"
     ]
    }
    """
    text = json.dumps(table, indent=1, allow_nan=False)
    # No string can match: in JSON it holds no line break.
    return _NUMBERS_ON_LINES.sub(lambda row: f"[{' '.join(row[1].split())}]", text) + "\n"
