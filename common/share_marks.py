"""Shares that are written in two ways in one column: 5% beside 0.04.

Only the holder of the table is warned: no cell may change how another one is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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
        signed = _sizes(text for text in texts if text.endswith("%"))
        bare = _sizes(text for text in texts if not text.endswith("%")) if signed else {}
        if bare and max(bare.values()) <= LARGEST_SHARE < max(signed.values()):
            cells = next(iter(signed)), next(iter(bare))
            shown = " and ".join(repr(brief(cell)) for cell in cells)
            read = " and ".join(f"{parse_number(cell):g}" for cell in cells)
            notes.append(
                f"{brief(name)}: cells such as {shown} are read as {read}; write all with the "
                "sign, or none"
            )
    return notes


def _sizes(texts: Iterable[str]) -> dict[str, float]:
    """How far from 0 each text's number is; those without one, and 0 itself, are left out."""
    sizes = {text: abs(parse_number(text)) for text in texts}
    return {text: size for text, size in sizes.items() if size > 0}
