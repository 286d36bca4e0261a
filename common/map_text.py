"""The text of a feature map: readable, and the same for equal maps."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_NUMBERS_ON_LINES = re.compile(r"\[\n *+((?:-?[0-9][0-9.eE+-]*+,?\n *+)++)\]", re.ASCII)


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
