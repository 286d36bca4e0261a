"""The keys of settings, as their classes state them: names, meanings, defaults, examples."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

_ARGUMENT = re.compile(r" {2}(?P<name>[a-z_0-9]++):(?P<meaning>.*+)", re.ASCII)


@dataclass(frozen=True)
class Key:
    """One key of a settings file.

    Args:
      path: Its dotted name, such as ``privacy.epsilon``.
      field: What its class states of it.
      section: The class of the table that it opens, None for a value.
      repeats: Whether the table may stand any number of times, as ``[[owners]]``.
    """

    path: str
    field: FieldInfo
    section: type[BaseModel] | None
    repeats: bool

    @property
    def name(self) -> str:
        """Its last part."""
        return self.path.rpartition(".")[2]

    @property
    def table(self) -> str:
        """The dotted name of the table that it stands in, empty for none."""
        return self.path.rpartition(".")[0]

    @property
    def head(self) -> str:
        """How the table that it opens begins in the file."""
        return f"[[{self.path}]]" if self.repeats else f"[{self.path}]"


@cache
def keys_of(kind: type[BaseModel]) -> tuple[Key, ...]:
    """All keys of settings of one kind, a table before what is in it, as they are declared."""
    return tuple(_keys(kind, ""))


def _keys(kind: type[BaseModel], prefix: str) -> Iterator[Key]:
    for name, field in kind.model_fields.items():
        section, repeats = section_of(field.annotation)
        yield Key(f"{prefix}{name}", field, section, repeats)
        if section is not None:
            yield from _keys(section, f"{prefix}{name}.")


def meanings(docstring: str) -> dict[str, str]:
    r"""What a docstring says under "Args" of each argument, on one line.

    >>> meanings("A study.\n\nArgs:\n  name: Its name;\n    one word.\n  seed: It.\n")
    {'name': 'Its name; one word.', 'seed': 'It.'}
    """
    lines = inspect.cleandoc(docstring).splitlines()
    if "Args:" not in lines:
        return {}
    found: dict[str, str] = {}
    name = ""
    for line in lines[lines.index("Args:") + 1 :]:
        if line and not line.startswith(" "):
            break
        begun = _ARGUMENT.fullmatch(line)
        if begun:
            name = begun["name"]
            found[name] = begun["meaning"].strip()
        elif name:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found


def section_of(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """(the settings that an annotation holds, or None; whether it holds any number of them)."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return section_of(get_args(annotation)[0])
    if origin in {Union, types.UnionType}:
        found = [section_of(part) for part in get_args(annotation)]
        return next((one for one in found if one[0] is not None), (None, False))
    if origin is tuple:
        return section_of(get_args(annotation)[0])[0], True
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    return None, False
