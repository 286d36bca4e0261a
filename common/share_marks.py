"""Shares that are written in two ways in one column: 5% beside 0.04.

Only the holder of the table is warned: no cell may change how another one is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from common.columns import parse_number
from common.texts import brief

# No larger share stands without a sign.
LARGEST_SHARE = 1.0


def share_notes(columns: Mapping[str, Sequence[str]]) -> list[str]:
    """A sentence for each column where some shares have a percent sign and others have none.

    A column where 5 stands beside 5% has left the sign out, and is read rightly.

    Args:
      columns: The distinct texts of each column.

    >>> share_notes({"rate": ["5%", "0.04", "12 %", "0"], "part": ["5%", "6", "0"], "n": ["0.1"]})
    ["rate: cells such as '5%' and '0.04' are read as 5 and 0.04; write all with the sign, or none"]
    """
    notes = []
    for name, texts in columns.items():
        signed = [text for text in texts if text.endswith("%") and abs(parse_number(text)) > 0]
        if not signed:
            continue
        bare = [t for t in texts if not t.endswith("%") and abs(parse_number(t)) > 0]
        largest = max(abs(parse_number(text)) for text in signed)
        if bare and max(abs(parse_number(t)) for t in bare) <= LARGEST_SHARE < largest:
            read = " and ".join(f"{parse_number(text):g}" for text in (signed[0], bare[0]))
            shown = " and ".join(repr(brief(t)) for t in (signed[0], bare[0]))
            notes.append(
                f"{brief(name)}: cells such as {shown} are read as {read}; write all with the "
                "sign, or none"
            )
    return notes
