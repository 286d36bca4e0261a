"""How an owner's columns fit a feature map, for its own officer's eyes: nothing of this leaves."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from common.column_faults import faults_of
from common.column_fit import ColumnSeen
from common.errors import InputError
from common.suggestions import among_columns

__all__ = ["columns_table", "refuse_faults"]


def refuse_faults(seen: Sequence[ColumnSeen], *, accepted: Collection[str]) -> tuple[str, ...]:
    """Refuse columns that do not fit, but for those whose owner says that they are so.

    Returns:
      One sentence for each doubt: what may well be right, and is not refused.

    Raises:
      InputError: One sentence for each fault.
    """
    unknown = set(accepted) - {one.name for one in seen}
    if unknown:
        raise InputError(
            f"--accept {min(unknown)}: the feature map has no such column"
            f"{among_columns(min(unknown), (one.name for one in seen))}"
        )
    found = [
        (f"column {one.name!r}: {fault.words}", fault.is_doubt)
        for one in seen
        if one.name not in accepted
        for fault in faults_of(one)
    ]
    faults = [sentence for sentence, is_doubt in found if not is_doubt]
    if faults:
        faults.append(
            "data.rename, data.units and data.spellings of OWNER.toml put a column into the "
            "study's words (when joining --rename, --unit, --spelling); --accept COLUMN passes one "
            "that is right as it is"
        )
        raise InputError("\n".join(faults))
    return tuple(sentence for sentence, _ in found)


def columns_table(seen: Sequence[ColumnSeen]) -> Table:
    """All columns for the officer's terminal."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, head in enumerate(("column", "kind", "filled", "cut", "unknown", "drift", "spread")):
        table.add_column(head, justify="left" if index < 2 else "right")
    for one in seen:
        table.add_row(
            Text(one.name),
            one.kind,
            f"{one.filled:.1%}",
            "" if one.kind == "category" else f"{one.cut:.1%}",
            f"{one.unknown:.1%}" if one.kind == "category" or one.classes is not None else "",
            f"{one.drift:+.2f}",
            "" if one.spread is None else f"{one.spread:.2f}",
            style=_style(one),
        )
    return table


def _style(one: ColumnSeen) -> str:
    """Red for a fault, yellow for a doubt."""
    doubts = [fault.is_doubt for fault in faults_of(one)]
    return "" if not doubts else "yellow" if all(doubts) else "bold red"
