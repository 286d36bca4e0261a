"""Kinds of settings: a number is a number, a flag a flag, and none of them is taken for another.

TOML writes each kind differently, so a flag in the place of a count, or a number in quotes, is a
slip: to take ``retries = true`` for 1 would hide it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

from common.texts import any_of

_STRICT = ("int", "float", "bool")
_WORDS = {"int": "a whole number", "float": "a number", "bool": "true, false", "str": "a text"}


def strict_kinds(schema: CoreSchema) -> CoreSchema:
    """The same schema, whose numbers and flags take nothing of another kind.

    A whole number stays good where any number is. Where several kinds are possible, one sentence
    names them all.

    >>> from pydantic_core import SchemaValidator
    >>> check = SchemaValidator(strict_kinds(core_schema.float_schema(gt=0)))
    >>> check.validate_python(2), check.isinstance_python("2"), check.isinstance_python(True)
    (2.0, False, False)
    """
    return _strict(schema)  # type: ignore[no-any-return]


def plain(value: Any) -> Any:
    """A value as TOML would have it: from Python, numbers and lists of them may be numpy's.

    >>> plain({"horizon": np.int64(50), "weights": np.array([0.5, 1.0]), "name": "spring"})
    {'horizon': 50, 'weights': [0.5, 1.0], 'name': 'spring'}
    """
    match value:
        case np.generic() | np.ndarray():
            return value.tolist()
        case dict():
            return {key: plain(one) for key, one in value.items()}
        case list():
            return [plain(one) for one in value]
        case _:
            return value


def _strict(node: Any) -> Any:
    if isinstance(node, Mapping):
        return _strict_node({key: _strict(value) for key, value in node.items()})
    if isinstance(node, list | tuple):
        return type(node)(map(_strict, node))
    return node


def _strict_node(node: dict[str, Any]) -> Any:
    kind = node.get("type")
    if kind in _STRICT:
        return node | {"strict": True}
    if kind == "literal" and any(isinstance(value, bool) for value in node["expected"]):
        return core_schema.no_info_before_validator_function(_no_count(node["expected"]), node)
    if kind == "union":
        words = [_words(choice) for choice in node["choices"]]
        if all(words):
            said = f"expected {any_of([word for word in words if word])}"
            return node | {"custom_error_type": "kinds", "custom_error_message": said}
    return node


def _no_count(expected: Sequence[object]) -> Any:
    """What refuses 0 and 1 where false and true are meant: to Python they are equal."""

    def check(value: object) -> object:
        if isinstance(value, int | float) and not isinstance(value, bool):
            shown = any_of([repr(one) for one in expected])
            raise PydanticKnownError("literal_error", {"expected": shown})
        return value

    return check


def _words(choice: Any) -> str:
    """What one of several kinds is called; nothing for what has a sentence of its own."""
    kind = choice.get("type")
    if kind == "literal":
        return any_of([json.dumps(value) for value in choice["expected"]])
    word = _WORDS.get(kind, "")
    return f"{word} {' '.join(_range(choice))}".strip() if word else ""


def _range(choice: Mapping[str, Any]) -> Iterator[str]:
    """The range of a number, in words."""
    for key, word in (("ge", "from"), ("gt", "greater than"), ("le", "to"), ("lt", "less than")):
        if key in choice:
            yield f"{word} {choice[key]}"
