"""What can be set, for people and for editors: made from the settings' classes, nowhere else."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from common.config import Settings
from common.errors import InputError
from common.setting_errors import as_toml
from common.setting_keys import Key, keys_of
from common.suggestions import did_you_mean, nearest


def meaning_of(key: Key) -> str:
    """What a key means, in a sentence or more, with the values to choose from."""
    meaning = key.field.description or _first_line(key.section)
    values = [value for value in _choices(key.field.annotation) if str(value) not in meaning]
    listed = f" One of {', '.join(map(as_toml, values))}." if len(values) > 1 else ""
    return f"{meaning}{listed}".replace("``", "`")


def _first_line(section: type[BaseModel] | None) -> str:
    return (section.__doc__ or "").strip().splitlines()[0] if section is not None else ""


def _choices(annotation: Any) -> list[Any]:
    """The values of a Literal that an annotation holds."""
    origin = get_origin(annotation)
    if origin is Literal:
        return list(get_args(annotation))
    if origin in {Union, types.UnionType, Annotated}:
        return [value for part in get_args(annotation) for value in _choices(part)]
    return []


def default_of(key: Key) -> str:
    """A key's default as TOML has it, or what there is instead."""
    if key.field.is_required():
        return "must be given"
    if key.section is not None:
        return "" if not key.repeats else "none"
    value = key.field.get_default(call_default_factory=True)
    if value is None or value is PydanticUndefined or value in ((), {}):
        return "none"
    return as_toml(value)


def example_of(key: Key) -> str:
    """A line as it may stand in the file."""
    if key.field.examples:
        return f"{key.name} = {as_toml(key.field.examples[0])}"
    if key.section is not None:
        return key.head
    return f"{key.name} = {default_of(key)}"


def explained(kind: type[Settings], path: str) -> str:
    """A key for people: meaning, default, example; of a table, its keys too.

    Raises:
      InputError: There is no such key; the sentence names the nearest.
    """
    keys = {key.path: key for key in keys_of(kind)}
    if path not in keys:
        near = _meant(path, keys)
        raise InputError(
            f"{path}: {kind.FILE} has no such key"
            f"{near or '; type the same command without a key, which lists all'}"
        )
    key = keys[path]
    lines = [f"{path}: {meaning_of(key)}"]
    if key.section is None:
        lines.append(f"  default: {default_of(key)}")
    lines.append(f"  example: {example_of(key)}")
    lines += [f"  {one.path}: {meaning_of(one)}" for one in keys.values() if one.table == path]
    return "\n".join(lines)


def _meant(path: str, keys: dict[str, Key]) -> str:
    """The key that was probably meant, with its table or without; empty where none is near."""
    # Of keys with the same name the first is told.
    by_name = {key.name: key.path for key in reversed(keys.values())}
    near = did_you_mean(path, keys) if path not in by_name else ""
    named = by_name.get(nearest(path, by_name) or "")
    by_its_name = f"; did you mean {named!r}?" if named else ""
    return near or by_its_name


def reference(kind: type[Settings]) -> str:
    """All keys of a file as Markdown, a table for each of its tables."""
    return "\n".join(_reference(kind))


def _reference(kind: type[Settings]) -> Iterator[str]:
    keys = keys_of(kind)
    for table in (None, *(key for key in keys if key.section is not None)):
        if table is not None:
            yield f"\n### `{table.head}`\n\n{meaning_of(table)}"
        inside = [key for key in keys if key.table == ("" if table is None else table.path)]
        yield "\n| key | meaning | default | example |\n|---|---|---|---|"
        for key in inside:
            default = default_of(key)
            shown = default if default in {"", "none", "must be given"} else f"`{default}`"
            cells = (f"`{key.name}`", meaning_of(key), shown, f"`{example_of(key)}`")
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def json_schema(kind: type[Settings]) -> str:
    """The JSON schema by which editors complete and check the file."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | kind.model_json_schema()
    return json.dumps(schema, indent=1)


def show(kind: type[Settings], key: str | None, *, as_schema: bool) -> str:
    """What the command ``settings`` prints: one key, the schema, or a line for each key.

    Raises:
      InputError: There is no such key, or it would do nothing beside the schema.
    """
    if as_schema and key is not None:
        raise InputError(f"{key}: --json-schema prints the schema of all keys; leave the key out")
    if as_schema:
        return json_schema(kind)
    if key is not None:
        return explained(kind, key)
    return "\n".join(f"{one.path}: {meaning_of(one)}" for one in keys_of(kind))
