"""What is wrong with settings, one sentence for each key: what, where, and what was expected."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import date, time
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from common.places import PastedSecretError
from common.setting_keys import Key, keys_of
from common.suggestions import did_you_mean, nearest
from common.texts import number_hint, printable

LONGEST_VALUE = 80
LONGEST_PART = 40
PARTS_SHOWN = 4
MOST_SHOWN = 20
LONGEST_PROBLEM = 1000
_PLAIN = {
    "string_type": "a text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "tuple_type": "a list",
    "path_type": "a path",
}
# Faults of a number, whose key may say between which bounds it lies.
_NUMBERS = {
    *("int_type", "int_parsing", "float_type", "float_parsing"),
    *("greater_than", "greater_than_equal", "less_than", "less_than_equal"),
}
# What TOML reads without quotes, each with a form that it writes them in.
_DATES = (date, time)
_TABLES = ("model_type", "model_attributes_type", "dict_type")


def sentences(error: ValidationError, kind: type[BaseModel], *, where: str) -> list[str]:
    """One sentence for each wrong key; of very many only the first.

    Args:
      error: What the check of the settings raised.
      kind: The settings' class.
      where: What opens the sentences: the file.
    """
    details = error.errors()
    wrong = [tuple(detail["loc"]) for detail in details]
    unknown = [place for place, d in zip(wrong, details, strict=True) if _unknown(d)]
    meant = {_meant(place, kind) for place in unknown[:MOST_SHOWN]}
    faults = [
        detail
        for detail, place in zip(details, wrong, strict=True)
        if not _follows(detail, place, wrong, meant)
    ]
    shown = [f"{where}: {_sentence(detail, kind)}" for detail in faults[:MOST_SHOWN]]
    more = len(faults) - len(shown)
    return [*shown, f"{where}: and {more:,} more; correct these first"] if more else shown


def first_fault(error: ValidationError) -> tuple[str, str]:
    """Where the first fault of a stranger's text is, and what; both fit for a terminal.

    Args:
      error: What the check of the text raised.

    Returns:
      The key, empty for the whole text, and a sentence that begins in lower case.
    """
    first = error.errors(include_input=False, include_url=False)[0]
    return _named(first["loc"][:PARTS_SHOWN]), printable(_problem(first))


def _named(place: Sequence[Any]) -> str:
    """A place as readers count: owners.1.address is the address of entry 2 of owners."""
    at = next((n for n, part in enumerate(place) if isinstance(part, int)), None)
    if at is None:
        return ".".join(printable(part, LONGEST_PART) for part in place)
    entry = f"entry {place[at] + 1} of {_named(place[:at])}"
    return f"{_named(place[at + 1 :])} of {entry}" if place[at + 1 :] else entry


def _problem(detail: Mapping[str, Any]) -> str:
    """What a check says of a value."""
    problem = str(detail["msg"]).removeprefix("Value error, ")
    return problem[:1].lower() + problem[1:]


def _unknown(detail: Mapping[str, Any]) -> bool:
    return bool(detail["type"] == "extra_forbidden")


def _follows(
    detail: Mapping[str, Any],
    place: tuple[Any, ...],
    wrong: Sequence[tuple[Any, ...]],
    meant: set[str],
) -> bool:
    """Whether a fault is none of its own: what it says follows from another one."""
    if detail["type"] == "too_short":
        # A list whose entries are wrong is also counted as too short.
        return any(len(other) > len(place) and other[: len(place)] == place for other in wrong)
    key = _without_numbers(place)
    # What is missing stands there under a name that is misspelt.
    return detail["type"] == "missing" and any(
        key == one or key.startswith(f"{one}.") for one in meant if one
    )


def _sentence(detail: Mapping[str, Any], kind: type[BaseModel]) -> str:
    place, fault = detail["loc"], detail["type"]
    key = _named(place)
    is_table = isinstance(detail["input"], dict | BaseModel)
    is_secret = isinstance(detail.get("ctx", {}).get("error"), PastedSecretError)
    got = "" if is_table or is_secret else f"got {_shown(detail['input'])}, "
    if fault == "extra_forbidden":
        return f"{key} is not a known key{_nearest(place, kind)}"
    if fault in ("missing", "too_short") and _repeats(place, kind):
        return f"{key}: none is given; add a section [[{key}]] for each"
    if fault == "missing":
        return f"{key} is missing; add it{_example(place, kind)}"
    if fault in _TABLES:
        table = _named([part for part in place if not isinstance(part, int)])
        problem = f"expected a table of settings, such as [{table}]"
    elif fault == "int_type" and isinstance(detail["input"], float):
        problem = f"expected {_PLAIN[fault]} without a point{_example(place, kind)}"
    elif fault in _NUMBERS and (between := _between(place, kind)):
        problem = f"expected {between}"
    elif fault in _PLAIN:
        problem = f"expected {_PLAIN[fault]}{_example(place, kind)}"
    else:
        problem = printable(_problem(detail), LONGEST_PROBLEM)
        problem = problem.replace("input should be ", "expected ")
        problem = re.sub(r"^expected (greater|less) than", r"expected a number \1 than", problem)
        # As TOML writes it.
        problem = re.sub(r"\bFalse$", "false", problem)
    problem += _hint(problem, detail["input"])
    return f"{key}: {got}{problem}" if key else problem


def _hint(problem: str, value: object) -> str:
    """How what was probably meant is written."""
    if "number" in problem:
        return number_hint(str(value))
    has_dates = any(isinstance(part, _DATES) for part in _parts(value))
    return "; where a date is meant, write it in quotes" if has_dates else ""


def _shown(value: object) -> str:
    """A value nearly as TOML writes it."""
    if isinstance(value, list):
        text = f"[{', '.join(map(_shown, value[:LONGEST_VALUE]))}]"
    elif isinstance(value, _DATES):
        text = value.isoformat()
    else:
        text = repr(value).lower() if isinstance(value, bool) else repr(value)
    return printable(text, LONGEST_VALUE)


def _parts(value: object) -> Sequence[object]:
    """The values of a list, or the value itself."""
    return value if isinstance(value, list) else [value]


def _without_numbers(place: Sequence[Any]) -> str:
    """The dotted key of a place: owners.0.name is owners.name."""
    return ".".join(str(part) for part in place if not isinstance(part, int))


def _key(place: Sequence[Any], kind: type[BaseModel]) -> Key | None:
    wanted = _without_numbers(place)
    return next((key for key in keys_of(kind) if key.path == wanted), None)


def _between(place: Sequence[Any], kind: type[BaseModel]) -> str:
    """Between which numbers a key's value lies, as its class states it; nothing if it does not."""
    key = _key(place, kind)
    stated: Sequence[object] = () if key is None else key.field.metadata
    number = "a whole number" if key is not None and key.field.annotation is int else "a number"
    if key is None and (named := _key(place[:-1], kind)) is not None:
        # A value by a name of somebody's own, such as that of an owner.
        stated, number = _of_each(named.field.annotation)
    bounds = {
        name: getattr(one, name)
        for one in stated
        for name in ("gt", "ge", "le")
        if getattr(one, name, None) is not None
    }
    if "le" not in bounds or not {"gt", "ge"} & bounds.keys():
        return ""
    low = f"above {bounds['gt']}" if "gt" in bounds else f"from {bounds['ge']}"
    return f"{number} {low} {'to' if 'ge' in bounds else 'and at most'} {bounds['le']}"


def _of_each(annotation: object) -> tuple[Sequence[object], str]:
    """What a table by names states of each of its numbers, and of which kind they are."""
    its = next(iter(get_args(annotation)[1:]), None)
    base, *stated = get_args(its) or [its]
    fields = [field for one in stated for field in getattr(one, "metadata", [one])]
    return fields, "a whole number" if base is int else "a number"


def _repeats(place: Sequence[Any], kind: type[BaseModel]) -> bool:
    key = _key(place, kind)
    return key is not None and key.repeats and key.section is not None


def _example(place: Sequence[Any], kind: type[BaseModel]) -> str:
    """An example of the key's value, as the settings' class gives it, or of a section's keys."""
    key = _key(place, kind)
    if key is not None and key.section is not None:
        needed = (
            f"{k.name} = {as_toml(k.field.examples[0])}"
            for k in keys_of(kind)
            if k.table == key.path and k.field.is_required() and k.field.examples
        )
        keys = " and ".join(needed)
        return f", a section {key.head}{f' with {keys}' if keys else ''}"
    if key is None or not key.field.examples:
        return ""
    return f", such as {key.name} = {as_toml(key.field.examples[0])}"


def as_toml(value: Any) -> str:
    """A value as TOML writes it on one line.

    >>> as_toml({"min": 18}), as_toml(("a", 1.5, True))
    ('{ min = 18 }', '["a", 1.5, true]')
    """
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case Mapping():
            inside = ", ".join(f"{_toml_key(k)} = {as_toml(v)}" for k, v in value.items())
            return f"{{ {inside} }}" if inside else "{}"
        case list() | tuple():
            return f"[{', '.join(map(as_toml, value))}]"
    # JSON writes a text as TOML does, but for signs that would deceive whoever reads the file.
    text = json.dumps(str(value), ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)


def _toml_key(name: str) -> str:
    plain = name.replace("-", "").replace("_", "")
    return name if plain.isascii() and plain.isalnum() else as_toml(str(name))


def _meant(place: Sequence[Any], kind: type[BaseModel]) -> str:
    """The known key of the same table that is nearest to an unknown one, or nothing."""
    *table, name = [part for part in place if not isinstance(part, int)]
    prefix = ".".join(map(str, table))
    near = nearest(str(name), _beside(prefix, kind))
    return f"{prefix}.{near}".lstrip(".") if near else ""


def _beside(prefix: str, kind: type[BaseModel]) -> list[str]:
    return [key.name for key in keys_of(kind) if key.table == prefix]


def _nearest(place: Sequence[Any], kind: type[BaseModel]) -> str:
    """The key that was probably meant: of the same table, or of another one."""
    *table, name = [part for part in place if not isinstance(part, int)]
    beside = _beside(".".join(map(str, table)), kind)
    near = did_you_mean(str(name), beside)
    if near:
        return near
    elsewhere = [key.path for key in keys_of(kind) if key.name == str(name)]
    if elsewhere:
        return f"; did you mean {elsewhere[0]}?"
    return f"; the keys there are {', '.join(beside)}" if beside else "; remove it"
