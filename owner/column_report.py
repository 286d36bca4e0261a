"""How an owner's columns fit a feature map, for its own officer's eyes: nothing of this leaves."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from common.column_fit import ColumnSeen, faults_of
from common.errors import InputError
from common.suggestions import among_columns

__all__ = ["columns_table", "refuse_faults"]


def refuse_faults(seen: Sequence[ColumnSeen], *, accepted: Collection[str]) -> None:
    """Refuse columns that do not fit, but for those whose owner says that they are so.

    Raises:
      InputError: One sentence for each fault.
    """
    unknown = set(accepted) - {one.name for one in seen}
    if unknown:
        raise InputError(
            f"--accept {min(unknown)}: the feature map has no such column"
            f"{among_columns(min(unknown), (one.name for one in seen))}"
        )
    faults = [
        f"column {one.name!r}: {fault}"
        for one in seen
        if one.name not in accepted
        for fault in faults_of(one)
    ]
    if faults:
        faults.append("--accept COLUMN passes a column that is right as it is")
        raise InputError("\n".join(faults))


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
            f"{one.unknown:.1%}" if one.kind == "category" else "",
            f"{one.drift:+.2f}",
            "" if one.spread is None else f"{one.spread:.2f}",
            style="bold red" if any(faults_of(one)) else "",
        )
    return table
