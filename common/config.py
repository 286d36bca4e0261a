"""Settings files: TOML, checked once at load, then frozen.

An unknown key or a wrong value is an :class:`~common.errors.InputError` whose sentence
names the file, the key, the value and what was expected.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)
from pydantic_core import CoreSchema

from common.errors import InputError
from common.losses import LOSSES
from common.places import SecretText, absolute_place
from common.setting_errors import sentences
from common.setting_keys import meanings
from common.setting_kinds import plain, strict_kinds
from common.suggestions import did_you_mean
from common.toml_files import parsed, read_toml

S = TypeVar("S", bound="Settings")
V = TypeVar("V")
Overrides = Mapping[str, object] | Sequence[str]  # by dotted keys, or typed KEY.PATH=VALUE

# What the wire takes of a rational number, above and below.
LARGEST_DIGITS = 60
# Sums of what studies ask for stay short enough to compute and to print.
LARGEST_EPSILON_PART = 10**18
_LONG_EXPONENT = re.compile(r"[eE][+-]?0*+(?:[1-9][0-9]{2,}|[5-9][0-9])", re.ASCII)
_ADDRESS = re.compile(r"(?P<host>[!-~]{1,255}):(?P<port>[0-9]{1,5})", re.ASCII)
LARGEST_PORT = 65535
LARGEST_VALIDATION_SHARE = Fraction(9, 10)


class Settings(BaseModel):
    """Base of all settings: frozen, and an unknown key is an error.

    What a class's docstring says of a key, and its example, is where the reference, the editors'
    schema and new files take it from.
    """

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """What the docstring says of each key is the key's description, everywhere."""
        super().__pydantic_init_subclass__(**options)
        descriptions = meanings(cls.__doc__ or "")
        for name, field in cls.model_fields.items():
            field.description = field.description or descriptions.get(name)
            if name in cls.EXAMPLES:
                field.examples = [cls.EXAMPLES[name]]
        cls.model_rebuild(force=True)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """No number or flag of any settings is taken for another kind."""
        return strict_kinds(handler(source))

    # What the file is called, and keys by which another kind of file is known.
    FILE: ClassVar[str] = "settings"
    EXAMPLES: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    FOREIGN_KEYS: ClassVar[Mapping[str, str]] = MappingProxyType({})

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True
    )


class Lasting(Settings):
    """Settings whose text lasts: a field of a later version says nothing while it has its default.

    What version 0.1 wrote, it wrote with all its fields (``FIRST_FIELDS``), and digests of these
    texts are kept. A later field is written only where it changes something, so equal settings
    have equal texts in every version.
    """

    FIRST_FIELDS: ClassVar[tuple[str, ...]]

    @model_serializer(mode="wrap")
    def _without_defaults(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The fields that are written."""
        fields = type(self).model_fields
        return {
            name: value
            for name, value in write(self).items()
            if name in self.FIRST_FIELDS
            or getattr(self, name) != fields[name].get_default(call_default_factory=True)
        }


def parse_epsilon(value: object) -> Fraction:
    """The exact rational that a setting's text means; decimals are taken as written.

    Raises:
      ValueError: Not a positive finite number.

    >>> parse_epsilon("1/3"), parse_epsilon(0.1), parse_epsilon(10)
    (Fraction(1, 3), Fraction(1, 10), Fraction(10, 1))
    """
    expected = 'a number greater than 0, such as 1, 0.1 or "1/3"'
    if isinstance(value, bool) or not isinstance(value, int | float | str | Fraction | Decimal):
        raise ValueError(f"expected {expected}")
    text = str(value)
    shorter = f"expected {expected}, with at most {LARGEST_DIGITS} digits above and below"
    # Before any arithmetic: 1e999999999 would fill the memory with its digits.
    if len(text) > 2 * LARGEST_DIGITS + 1 or _LONG_EXPONENT.search(text):
        raise ValueError(shorter)
    try:
        epsilon = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"expected {expected}") from None
    # Python takes the digits of every script, and whoever reads them may not.
    if not (text.isascii() and epsilon > 0):
        raise ValueError(f"expected {expected}")
    if max(epsilon.numerator, epsilon.denominator) >= 10**LARGEST_DIGITS:
        raise ValueError(shorter)
    return epsilon


def is_short(epsilon: Fraction) -> bool:
    """Whether a study may ask an owner for this epsilon: 18 digits above and below at the most.

    >>> is_short(Fraction(1, 3)), is_short(Fraction(1, 10**19))
    (True, False)
    """
    return max(epsilon.numerator, epsilon.denominator) <= LARGEST_EPSILON_PART


Epsilon = Annotated[
    Fraction,
    BeforeValidator(parse_epsilon, json_schema_input_type=float | str),
    PlainSerializer(str, return_type=str),
]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(gt=0, le=1)]
# The journal, and whoever reads a summary as JSON, hold whole numbers up to here.
Seed = Annotated[int, Field(ge=0, le=2**53 - 1)]

# The share of epsilon that the recommended profile keeps for validation.
VALIDATION_SHARE = Fraction(1, 10)
# Keys of a study's [privacy] that say nothing of how it is learnt.
PROMISED = {"epsilon", "kappa", "validation"}


def names_ticks(algorithm: Mapping[str, Any], privacy: Mapping[str, Any]) -> bool:
    """Whether a study says anything of how ticks are made, so that it means them."""
    return bool(set(algorithm) - {"time_scale"} or set(privacy) - PROMISED)


def parse_validation_share(value: object) -> Fraction:
    """A share of epsilon from 0 to 9/10, as a number or a fraction in a string.

    Raises:
      ValueError: It is not one.

    >>> parse_validation_share("1/10"), parse_validation_share(0)
    (Fraction(1, 10), Fraction(0, 1))
    """
    is_none = not isinstance(value, bool) and value in (0, "0")
    try:
        share = Fraction(0) if is_none else parse_epsilon(value)
    except ValueError:
        share = Fraction(1)
    if share > LARGEST_VALIDATION_SHARE:
        raise ValueError('expected a share of epsilon from 0 to 0.9, such as 0.1 or "1/10"')
    return share


ValidationShare = Annotated[
    Fraction,
    BeforeValidator(parse_validation_share, json_schema_input_type=float | str),
    PlainSerializer(str, return_type=str),
]


def check_address(text: str) -> str:
    """Check an address HOST:PORT and return it; an IPv6 host stands in brackets.

    Raises:
      ValueError: It is not one.

    >>> check_address("[::1]:50051")
    '[::1]:50051'
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > LARGEST_PORT or not _is_host(match["host"]):
        raise ValueError(
            f'expected HOST:PORT with a port up to {LARGEST_PORT}, such as "127.0.0.1:50051"'
        )
    if not _is_bracketed(match["host"]):
        raise ValueError('expected HOST:PORT with an IPv6 host in brackets, such as "[::1]:50051"')
    return text


def _is_bracketed(host: str) -> bool:
    """Whether an IPv6 host, and nothing else, stands in brackets.

    >>> [_is_bracketed(host) for host in ("[::1]", "::1", "[bank.example]", "bank.example")]
    [True, False, False, True]
    """
    if not set("[]:") & set(host):
        return True
    try:
        ipaddress.IPv6Address(host[1:-1])
    except ValueError:
        return False
    return f"[{host[1:-1]}]" == host


def _is_host(host: str) -> bool:
    """Whether the system can look a name up: no URL, and no part between dots empty or too long.

    >>> _is_host("owner.example"), _is_host("owner..example"), _is_host("x" * 64 + ".example")
    (True, False, False)
    >>> _is_host("https://owner.example")
    False
    """
    if "/" in host:
        return False
    try:
        # What the sockets do, where it would be no error of ours.
        host.encode("idna")
    except UnicodeError:
        return False
    return True


Address = Annotated[str, AfterValidator(check_address)]


def with_absolute_paths(value: V, base: Path) -> V:
    """The same settings with every path in them resolved against the folder of their file.

    The type of a value says whether it is a path: a column named ``path`` in a condition is not.

    Raises:
      InputError: One of them is not UTF-8.

    >>> class Example(Settings):
    ...     path: Path
    ...     where: dict[str, str]
    >>> with_absolute_paths(Example(path=Path("a.csv"), where={"path": "a"}), Path("/data"))
    Example(path=PosixPath('/data/a.csv'), where={'path': 'a'})
    """
    return cast(V, _absolute(value, base))


def _absolute(value: Any, base: Path) -> Any:
    match value:
        case Path():
            return absolute_place(base / value)
        case SecretText():
            return value.below(base)
        case Settings():
            before = {name: getattr(value, name) for name in type(value).model_fields}
            after = {name: _absolute(part, base) for name, part in before.items()}
            # Only what changes is set: what was left to its default stays left.
            changed = {name: part for name, part in after.items() if part is not before[name]}
            return value.model_copy(update=changed) if changed else value
        case tuple() | list():
            parts = type(value)(_absolute(part, base) for part in value)
            return value if all(a is b for a, b in zip(parts, value, strict=True)) else parts
        case _:
            return value


def _check_loss(name: str) -> str:
    """The name of a loss as it is."""
    if name not in LOSSES:
        raise ValueError(f"expected one of {', '.join(LOSSES)}{did_you_mean(name, LOSSES)}")
    return name


LossName = Annotated[str, AfterValidator(_check_loss)]


def load_settings(
    kind: type[S],
    path: Path,
    *,
    overrides: Overrides = (),
    values: Mapping[str, object] = MappingProxyType({}),
) -> S:
    """Settings of one kind from a TOML file, with changes on top.

    Args:
      kind: The settings' class.
      path: The file.
      overrides: Changes; VALUE is TOML or plain text.
      values: More of them by their dotted keys; they come last and are taken as they are.

    Raises:
      InputError: The file, a key or a value is wrong; the sentence names it.
    """
    table = read_toml(path)
    if isinstance(overrides, Mapping):
        values = {**overrides, **values}
    else:
        for override in [overrides] if isinstance(overrides, str) else overrides:
            _apply_override(table, override)
    for dotted, value in values.items():
        _set(table, dotted.split("."), value, where=dotted)
    found = check_settings(kind, table, where=str(path))
    # Where its paths lead is known before anything is made.
    with_absolute_paths(found, path.parent)
    return found


def check_settings(kind: type[S], table: Mapping[str, Any], *, where: str) -> S:
    """Settings of one kind from a table.

    Args:
      kind: Which settings these are.
      table: Keys and values, as TOML has them.
      where: What the table is called in an error.

    Raises:
      InputError: A key is unknown or missing, a value is wrong, or it is another kind of file.
    """
    for key, other in kind.FOREIGN_KEYS.items():
        if key in table and key not in kind.model_fields:
            raise InputError(f"{where}: this is {other}; give {kind.FILE} here")
    try:
        return kind.model_validate(plain(dict(table)))
    except ValidationError as error:
        raise InputError("\n".join(sentences(error, kind, where=where))) from None


def _apply_override(table: dict[str, Any], override: str) -> None:
    """Set one dotted key of a nested table; the value is TOML, or else plain text."""
    dotted, equals, text = override.partition("=")
    keys = dotted.strip().split(".")
    if not equals or not all(keys):
        raise InputError(f"--set {override}: expected KEY.PATH=VALUE, such as privacy.epsilon=1")
    _set(table, keys, parse_value(text), where=f"--set {override}")


def parse_value(text: str) -> object:
    """What a typed value means: TOML, or else plain text.

    >>> parse_value("0.1"), parse_value("auto"), parse_value('["a"]')
    (0.1, 'auto', ['a'])
    """
    try:
        return parsed(f"v = {text}")["v"]
    except (ValueError, RecursionError):
        return text.strip()


def parse_values(text: str) -> list[object]:
    """What typed values with commas between them mean, each as :func:`parse_value` says.

    >>> parse_values("0.1,1,auto"), parse_values("[1, 2],[3]")
    ([0.1, 1, 'auto'], [[1, 2], [3]])
    """
    try:
        values: list[object] = parsed(f"v = [{text}]")["v"]
    except (ValueError, RecursionError):
        return [parse_value(part) for part in text.split(",")]
    return values


def _set(table: dict[str, Any], keys: Sequence[str], value: object, *, where: str) -> None:
    """Set one key of a nested table; ``where`` opens the sentence of an error."""
    for key in keys[:-1]:
        child = table.setdefault(key, {})
        if not isinstance(child, dict):
            raise InputError(f"{where}: {key} is not a table of settings; write TABLE.KEY=VALUE")
        table = child
    table[keys[-1]] = value
