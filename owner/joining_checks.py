"""Options of ``copriv-owner join`` that would have no effect, refused before they are kept.

A spelling that no record has, or a unit of a category, is a mistake: if it were kept in
silence, the officer would believe that the column is in the study's words.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction

import pandas as pd

from common.columns import category_key, is_missing_text
from common.errors import InputError
from common.features import FeatureMap
from common.fitting import ColumnRule, TargetRule
from common.privacy import in_short
from common.suggestions import among_columns, nearest_spelling
from common.target_fitting import count_values
from common.texts import any_of, counted, printable

LONGEST = 60
NAMED = 6
Rule = ColumnRule | TargetRule
Spellings = Mapping[str, Mapping[str, str]]


def check_lifetime(lifetime: Fraction | None, *, asked: Fraction) -> None:
    """Refuse a lifetime budget that the study alone would overdraw.

    Raises:
      InputError: The records could never take part.

    >>> check_lifetime(Fraction(1), asked=Fraction(1))
    """
    if lifetime is not None and lifetime < asked:
        raise InputError(
            f"--epsilon-lifetime {in_short(lifetime)}: the study asks for epsilon "
            f"{in_short(asked)}, so these records could never take part; give at least that, or "
            "ask the learner for less"
        )


def check_columns_typed(
    feature_map: FeatureMap,
    *,
    rename: Mapping[str, str],
    units: Iterable[str],
    spellings: Spellings,
) -> None:
    """Refuse words about columns that the study has not, or that are of another kind.

    Args:
      feature_map: The study's.
      rename: The study's columns that have another name here, and that name. A column of this
        table is moved out of the way by it where another one takes its name.
      units: Those in another unit.
      spellings: Those with other values, and each value with the study's.

    Raises:
      InputError: One of them would do nothing.
    """
    rules = _rules(feature_map)
    units = list(units)
    needed = [name for name, own in rename.items() if own not in rules or own not in rename]
    for option, names in (("rename", needed), ("unit", units), ("spelling", spellings)):
        for name in names:
            if name not in rules:
                raise InputError(
                    f"--{option} {printable(name, LONGEST)}: the study has no such column"
                    f"{among_columns(name, rules)}"
                )
    for name in units:
        kind = _kind(rules[name])
        if kind != "number":
            raise InputError(
                f"--unit {printable(name, LONGEST)}: {_quoted(name)} holds "
                f"{'dates' if kind == 'date' else 'categories'} in the study, which have no unit; "
                "leave it out (--spelling puts a category into the study's words)"
            )
        if name in spellings:
            raise InputError(
                f"--unit and --spelling {printable(name, LONGEST)}: a column takes one of the two; "
                "put its values right in the table"
            )
    for name, spelt in spellings.items():
        for own, other in spelt.items():
            _check_other(rules[name], own, other)


def check_spellings_held(spellings: Spellings, table: pd.DataFrame) -> None:
    """Refuse a spelling that no record has.

    Args:
      spellings: By the study's name of the column, each value with the study's.
      table: The records, by the study's names and in their own words.

    Raises:
      InputError: It would do nothing.
    """
    for name, spelt in spellings.items():
        held = count_values(table[name])
        for own, other in spelt.items():
            if category_key(own) not in held:
                raise InputError(
                    f"{_typed(name, own, other)}: no record has {_quoted(own)} there"
                    f"{_hint(own, held)}; correct it, or leave it out"
                )


def _rules(feature_map: FeatureMap) -> dict[str, Rule]:
    target = feature_map.target
    return {rule.name: rule for rule in feature_map.columns} | {target.name: target}


def _kind(rule: Rule) -> str:
    if isinstance(rule, ColumnRule):
        return rule.kind
    return "number" if rule.positive is None else "category"


def _check_other(rule: Rule, own: str, other: str) -> None:
    """Refuse a spelling in whose words the study reads nothing, or another number."""
    if is_missing_text(other) or category_key(other) in rule.missing:
        # What is missing here may have a word of its own.
        return
    typed = _typed(rule.name, own, other)
    if _kind(rule) == "category":
        known = _known(rule)
        if known and category_key(other) not in known:
            raise InputError(
                f"{typed}: the study knows no {_quoted(other)} there{_hint(other, known)}; give "
                f"{_few(known)}"
            )
        return
    here, there = rule.raw(pd.Series([own, other], dtype=object))
    if math.isnan(there):
        raise InputError(
            f"{typed}: the study reads no {_quoted(other)} there; it has {_kind(rule)}s, so give "
            "one, or leave this out"
        )
    if not math.isnan(here):
        raise InputError(
            f"{typed}: the study reads {_quoted(own)} as it is, for it has {_kind(rule)}s there, "
            "which are not spelt otherwise; leave it out (--unit changes the unit of numbers)"
        )


def _known(rule: Rule) -> tuple[str, ...]:
    """The values that the study knows of; none where the map does not hold them all."""
    if isinstance(rule, ColumnRule):
        return tuple(rule.codes)
    known = dict.fromkeys((*rule.class_values, *rule.public_values))
    return tuple(known) if rule.public_values else ()


def _typed(name: str, own: str, other: str) -> str:
    return f"--spelling {printable(f'{name}:{own}={other}', 2 * LONGEST)}"


def _hint(value: str, known: Iterable[str]) -> str:
    near = nearest_spelling(value[:LONGEST], known)
    return "" if near is None else f" (did you mean {_quoted(near)}?)"


def _few(known: tuple[str, ...]) -> str:
    """The values that may be given, or the first of them."""
    shown = [_quoted(name) for name in known[:NAMED]]
    more = len(known) - len(shown)
    return any_of([*shown, f"one of {counted(more, 'other')}"] if more else shown)


def _quoted(value: str) -> str:
    return repr(printable(value, LONGEST))
