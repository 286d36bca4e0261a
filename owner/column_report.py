"""How an owner's columns fit a feature map, for its own officer's eyes: nothing of this leaves."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from common.column_faults import faults_of, one_of, taken_for_none
from common.column_fit import ColumnSeen
from common.errors import InputError
from common.suggestions import among_columns
from common.texts import brief, counted, percent_words, printable

NOTHING = "-"
LEGEND = (
    "filled, cut and unknown are shares of the records; drift 0 and spread 1 are as in the public "
    "records; - is not compared"
)


def refuse_faults(seen: Sequence[ColumnSeen], *, accepted: Collection[str]) -> tuple[str, ...]:
    """Refuse columns that do not fit, except those whose owner says that they are right.

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
    """All columns for the officer's terminal; what was not compared is a dash."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, head in enumerate(("column", "kind", "filled", "cut", "unknown", "drift", "spread")):
        table.add_column(head, justify="left" if index < 2 else "right")
    for one in seen:
        has_bounds = one.kind != "category" and one.classes is None
        table.add_row(
            Text(printable(one.name)),
            one.kind,
            f"{one.filled:.1%}",
            f"{one.cut:.1%}" if has_bounds else NOTHING,
            NOTHING if one.unknown is None else f"{one.unknown:.1%}",
            NOTHING if one.drift is None else f"{one.drift:+.2f}",
            NOTHING if one.spread is None else f"{one.spread:.2f}",
            style=_style(one),
        )
    return table


def notes_below(
    seen: Sequence[ColumnSeen], *, empty_rows: int, left_out: int | None = None
) -> Iterator[str]:
    """What stands below the table: what its columns are, and what no column of it shows."""
    yield LEGEND
    yield from records_in_words(seen, empty_rows=empty_rows, left_out=left_out)


def records_in_words(
    seen: Sequence[ColumnSeen], *, empty_rows: int, left_out: int | None
) -> Iterator[str]:
    """The shares of classes, targets that are none, and rows that count and hold nothing."""
    yield from _class_shares(seen)
    for one in seen:
        if one.kind == "target" and left_out is not None and (left_out or one.missing):
            yield (
                f"{brief(one.name)}: {counted(left_out, 'record has', 'records have')} no target "
                f"that can be read{taken_for_none(one.missing)}, and n_i, which is public, leaves "
                "them out; look whether everybody may know how many they are"
            )
        if one.kind == "target" and one.filled:
            yield (
                f"{brief(one.name)}: {percent_words(one.filled)} of the "
                f"records have no target that can be read{taken_for_none(one.missing)}, and get "
                'the public one; missing_target = "drop" in [data] of OWNER.toml leaves them out '
                "of n_i, which is public"
            )
    if empty_rows:
        yield (
            f"{counted(empty_rows, 'row is', 'rows are')} empty in every column of the feature "
            "map, and counted in n_i all the same; leave out of the table what is no record"
        )


def _class_shares(seen: Sequence[ColumnSeen]) -> Iterator[str]:
    """How many records are of a target's class, which shows whether labels are swapped.

    No map holds the public share, so only the officer can say whether it may be so.
    """
    for one in seen:
        if one.classes is not None and one.classes.records:
            yield (
                f"{brief(one.name)}: {one.classes.share:.1%} of the records are "
                f"{one_of(one.classes.positive)}; look whether it can be so, for no public share "
                "is known to compare it with"
            )


def _style(one: ColumnSeen) -> str:
    """Red for a fault, yellow for a doubt."""
    doubts = [fault.is_doubt for fault in faults_of(one)]
    return "" if not doubts else "yellow" if all(doubts) else "bold red"
