"""What is said of columns that do not fit a feature map, to whoever holds the records."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from common.column_fit import ClassesSeen, ColumnSeen, count_empty_rows, look_at_columns
from common.date_marks import date_notes
from common.errors import DoubtWarning
from common.features import FeatureMap
from common.number_marks import mark_notes
from common.suggestions import nearest_spelling, of_accents
from common.tables import TableSource
from common.texts import any_of, counted, first_few, number_words, printable

# From here on too many are filled.
MOST_FILLED = 0.5
MOST_FILLED_TARGETS = 0.1
# Of the public records about one in a hundred is cut.
MOST_CUT = 0.2
MOST_UNKNOWN = 0.1
# More different ones may be names, such as of persons, and no other spellings.
MOST_SPELLINGS = 20
# In deviations of the public records.
MOST_DRIFT = 1.5
LEAST_SPREAD = 0.05
ALL_ALIKE = 1e-9
# This many times the public middle value, or this many times less, hints at another unit.
HINTS_AT_A_UNIT = 1.5
# The same of how far values differ, which units that begin at another zero show as well.
HINTS_BY_WIDTH = 3.0
LONGEST_CATEGORY = 40
# Sentences that a command prints, what it names beside, and the owners and the records of each
# that it looks at.
MOST_SHOWN = 8
MOST_NAMED = 50
NAMED_OWNERS = 3
NAMED_VALUES = 4
MOST_OWNERS = 200
FEWEST_RECORDS = 20

DATES = (
    "dates are read as 2020-07-01, Jul-2020 or, month first, 7/1/2020 (of a CSV file day first "
    'with dates = "day-first")'
)
OR_REAL = "or these records may really differ"


@dataclass(frozen=True)
class Fault:
    """One thing that is too much to pass in silence.

    Args:
      kind: What it is about, in a word or two.
      words: The sentence, without the column's name.
      is_doubt: Whether it may well be right as it is, so that nothing is refused for it.
    """

    kind: str
    words: str
    is_doubt: bool = False


def faults_of(seen: ColumnSeen) -> Iterator[Fault]:
    """What is too much to pass in silence, the gravest first."""
    most = MOST_FILLED_TARGETS if seen.kind == "target" else MOST_FILLED
    if seen.filled >= most:
        yield Fault(
            "gaps",
            f"{seen.filled:.0%} of the records have no readable value{taken_for_none(seen.missing)}"
            f" and get the public one; {_cure_of_gaps(seen)}",
        )
    if seen.unknown is not None and seen.unknown > MOST_UNKNOWN:
        yield Fault("spelling", _unknown_in_words(seen, seen.unknown))
    elif seen.classes is not None:
        yield from _doubts(seen, seen.classes)
    if seen.cut > MOST_CUT:
        what = f"{seen.cut:.0%} of the records are beyond the public bounds and are cut"
        yield Fault("bounds", f"{what}{_advice(seen)}")
    elif seen.drift is not None and abs(seen.drift) > MOST_DRIFT:
        yield Fault("mean", f"{_drift_in_words(seen, seen.drift)}{_advice(seen)}")
    elif seen.spread is not None and seen.spread < LEAST_SPREAD:
        yield Fault("spread", _spread_in_words(seen, seen.spread))
    elif seen.like:
        yield Fault("swapped", f"{_swapped_in_words(seen)}, {OR_REAL}", is_doubt=True)
    elif seen.is_turned:
        yield Fault(
            "labels",
            "its two values are shared out as the public ones are with their labels swapped; look "
            f"whether each means the same here, {OR_REAL}",
            is_doubt=True,
        )


def _cure_of_gaps(seen: ColumnSeen) -> str:
    """What to do where many values cannot be read: a record without a target teaches nothing."""
    cure = DATES if seen.kind == "date" else "correct the column, or map another one to it"
    if seen.filled == 1.0:
        return cure
    if seen.kind == "target":
        return (
            'leave these records out, of the table or with missing_target = "drop", if they have '
            f"no target; else {cure}"
        )
    # No map holds the share of the public records.
    return f"{cure}, unless as many public records have none"


def _unknown_in_words(seen: ColumnSeen, unknown: float) -> str:
    """Categories, or values of a target, that the map does not know."""
    spelt = _listed(seen.strange, seen.known)
    if seen.classes is None:
        return (
            f"{unknown:.0%} of the records have categories that the map does not know, such "
            f"as {spelt}; spell them as the map does{_unless_unknown(seen)}"
        )
    return (
        f"{unknown:.0%} of the records have values that no public record has, such as "
        f"{spelt}, and count as not {one_of(seen.classes.positive)}; spell them as the study does"
    )


def _unless_unknown(seen: ColumnSeen) -> str:
    """What else may be so: values that no public record has, or so many that they are names."""
    if seen.num_strange > MOST_SPELLINGS:
        return ", or have the study leave the column out if it names what no public record has"
    return ", unless no public record has them"


def _doubts(seen: ColumnSeen, classes: ClassesSeen) -> Iterator[Fault]:
    """One class only, or a spelling beside the right one: it may be so, and rarely is."""
    one = one_of(classes.positive)
    if classes.records < FEWEST_RECORDS:
        return
    if classes.share == 0:
        # What may stand for the class first, however rare it is.
        held = tuple(dict.fromkeys((*classes.alike, *seen.strange, *classes.values)))
        is_strange = bool({*held} - {*seen.known}) or len(seen.known) == len(classes.positive)
        cure = "spell them as the study does" if is_strange else "look whether they are left out"
        yield Fault(
            "one class",
            f"no record is of the class {one}; the records have "
            f"{_listed(held[:NAMED_VALUES], seen.known)}; {cure}, unless the class is only rare "
            "here",
            is_doubt=True,
        )
    elif classes.share == 1:
        yield Fault(
            "one class",
            f"every record is of the class {one}; one class alone teaches a model little, so look "
            "whether the others are left out or spelt as it is",
            is_doubt=True,
        )
    elif classes.share_alike > MOST_UNKNOWN * (classes.share + classes.share_alike):
        yield Fault(
            "spelling",
            f"{classes.share_alike:.1%} of the records have {_listed(classes.alike, seen.known)}, "
            f"and count as not {one}; spell them as the study does",
            is_doubt=True,
        )


def _drift_in_words(seen: ColumnSeen, drift: float) -> str:
    """A mean that is far away, by what it is a mean of."""
    far = f"{abs(drift):.1f} public deviations away"
    if seen.kind == "category":
        return f"its categories are shared out otherwise than the public ones ({far})"
    return f"its dates are {far}" if seen.kind == "date" else f"its mean is {far}"


def _spread_in_words(seen: ColumnSeen, spread: float) -> str:
    """Values that hardly differ: in a larger unit, or one that stands for all."""
    alike = "look whether one value stands for gaps, or these records may really be alike"
    if spread <= ALL_ALIKE:
        return f"its values are all the same; {alike}"
    what = f"its values differ {number_words(spread, 2)} times as much as public ones"
    if seen.kind == "number":
        return f"{what}; give the column in the map's unit, or these records may really be alike"
    return f"{what}; {alike}"


def _swapped_in_words(seen: ColumnSeen) -> str:
    """That two columns fit each other's public records and not their own."""
    return (
        f"its values are like the public ones of {seen.like!r}, and those of that column like its "
        "own; look whether the two are swapped"
    )


def _advice(seen: ColumnSeen) -> str:
    """What to look at where values lie elsewhere than public ones."""
    if seen.like:
        return f"; {_swapped_in_words(seen)}, {OR_REAL}"
    if seen.kind == "category":
        return f"; look whether each means the same here, {OR_REAL}"
    if seen.kind == "date":
        return f"; look at how they are written: {DATES}; or these records may be of another time"
    hint = _unit_in_words(seen)
    if hint:
        return f"{hint}, unless these records really differ so"
    return f"; look whether the column means the same here, {OR_REAL}"


def _unit_in_words(seen: ColumnSeen) -> str:
    """What hints at another unit, and what to do then; nothing where nothing does."""
    cure = "give the column in the map's unit"
    if seen.ratio is not None and not 1 / HINTS_AT_A_UNIT < seen.ratio < HINTS_AT_A_UNIT:
        return f" (the middle value is {number_words(seen.ratio)} times the public one); {cure}"
    width = seen.width or 1.0
    if not 1 / HINTS_BY_WIDTH < width < HINTS_BY_WIDTH:
        return f" (they differ {number_words(width)} times as much as public ones); {cure}"
    return ""


def one_of(values: Sequence[str]) -> str:
    """The values of a class.

    >>> one_of(["yes"]), one_of(["a", "b", "c", "d", "e"])
    ("'yes'", "'a', 'b' or one of 3 more")
    """
    named = [repr(value[:LONGEST_CATEGORY]) for value in values]
    if len(named) > NAMED_VALUES:
        named = [*named[:2], f"one of {len(named) - 2} more"]
    return any_of(named)


def taken_for_none(values: Sequence[str]) -> str:
    """Which values of a column its rule takes for none; empty for no such value.

    Each is named: whoever wrote the map could hide one of the records' own among others.

    >>> taken_for_none(["0", "999"]), taken_for_none([])
    (" (the study takes '0' or '999' for none)", '')
    """
    return f" (the study takes {any_of([*map(repr, values)])} for none)" if values else ""


def _listed(names: Sequence[str], known: Sequence[str]) -> str:
    return ", ".join(_with_nearest(name, known) for name in names)


def _with_nearest(name: str, known: Sequence[str]) -> str:
    """A category, and the known one that it may stand for if it is none itself.

    No number is a spelling of another, and no T17 one of T71.

    >>> _with_nearest("T17", ["T71"]), _with_nearest("T-17", ["T17"]), _with_nearest("01", ["1"])
    ("'T17'", "'T-17' (did you mean 'T17'?)", "'01' (did you mean '1'?)")
    """
    near = None if name in known else nearest_spelling(name[:LONGEST_CATEGORY], known)
    short = repr(name[:LONGEST_CATEGORY])
    numbers = {_number_in(name), _number_in(near or "")} - {""}
    if near is None or len(numbers) > 1:
        return short
    return f"{short} (did you mean {near[:LONGEST_CATEGORY]!r}{of_accents(near, name)}?)"


def _number_in(name: str) -> str:
    return "".join(filter(str.isdecimal, name)).lstrip("0")


def warn_of_misfits(
    tables: Mapping[str, pd.DataFrame], feature_map: FeatureMap, *, has_target: bool = True
) -> None:
    """Warn of columns that do not fit the map: what many owners share is one sentence.

    Looked at are the first owners only, and those with records enough to judge a unit by.
    What the first sentences leave out is named in the last one.

    Args:
      tables: Raw records, by what a sentence begins with.
      feature_map: The map.
      has_target: Whether the target is looked at, too.

    Warns:
      DoubtWarning: A column does not fit.
    """
    enough = [where for where, table in tables.items() if len(table) >= FEWEST_RECORDS]
    looked = enough[:MOST_OWNERS]
    found: dict[tuple[str, str], list[tuple[str, Fault]]] = {}
    for where in looked:
        for one in look_at_columns(tables[where], feature_map, has_target=has_target):
            for fault in itertools.islice(faults_of(one), 1):
                found.setdefault((one.name, fault.kind), []).append((where, fault))
    of = f"{'the first ' if len(enough) > len(looked) else ''}{counted(len(looked), 'owner')}"
    # What most owners share first: it is the likeliest to be one mistake.
    ranked = sorted(found.items(), key=lambda item: -len(item[1]))
    sentences = [_shared(name, seen, of) for (name, _), seen in ranked[:MOST_SHOWN]]
    for sentence in (*sentences, *_the_rest([key for key, _ in ranked[MOST_SHOWN:]])):
        warnings.warn(sentence, DoubtWarning, stacklevel=2)


def warn_of_marks(
    table: pd.DataFrame, feature_map: FeatureMap, *, source: TableSource | None
) -> None:
    """Warn of points, commas and dates that may mean something else in what a map needs.

    Args:
      table: Raw records.
      feature_map: The map.
      source: Where they were read; None for a data frame.

    Warns:
      DoubtWarning: They may.
    """
    needed = [name for name in feature_map.columns_needed if name in table.columns]
    dates = [r.name for r in feature_map.columns if r.kind == "date" and r.name in needed]
    marks = mark_notes(source, base=Path(), table=table[needed])
    for note in (*marks, *date_notes(table, dates)):
        warnings.warn(note, DoubtWarning, stacklevel=2)


def warn_of_inputs(
    table: pd.DataFrame, feature_map: FeatureMap, *, where: str, source: TableSource | None = None
) -> None:
    """Warn of what does not fit where a model predicts, and of rows that say nothing.

    Args:
      table: Raw records, with or without a target.
      feature_map: The model's.
      where: What sentences call the table.
      source: As for :func:`warn_of_marks`.

    Warns:
      DoubtWarning: Something does not fit.
    """
    warn_of_marks(table, feature_map, source=source)
    warn_of_misfits({where: table}, feature_map, has_target=False)
    empty = count_empty_rows(table, feature_map, has_target=False)
    if empty:
        warnings.warn(
            f"{where}: {counted(empty, 'row has', 'rows have')} no value that is read in any "
            "column of the model, and the prediction for public middle values; leave out of the "
            "table what is no record",
            DoubtWarning,
            stacklevel=2,
        )


def _shared(name: str, seen: Sequence[tuple[str, Fault]], of: str) -> str:
    """The sentence about one column at one place or at several."""
    where, fault = seen[0]
    if len(seen) == 1:
        return f"{where}: column {name!r}: {fault.words}"
    places = first_few([place.removeprefix("owner ") for place, _ in seen], NAMED_OWNERS)
    return f"column {name!r} at {len(seen)} of {of} ({places}): at the first, {fault.words}"


def _the_rest(keys: Sequence[tuple[str, str]]) -> Iterator[str]:
    """The columns without a sentence of their own, and what is wrong with each."""
    kinds: dict[str, list[str]] = {}
    for name, kind in keys:
        kinds.setdefault(name, []).append(kind)
    if not kinds:
        return
    named = [
        f"{printable(name, LONGEST_CATEGORY)!r} ({', '.join(of)})" for name, of in kinds.items()
    ]
    yield (
        f"{counted(len(named), 'more column')} {'does' if len(named) == 1 else 'do'} not fit: "
        f"{first_few(named, MOST_NAMED)}; mend the others first, then type the same command again"
    )
