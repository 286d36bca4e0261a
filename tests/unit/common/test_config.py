import os
import re
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import pytest
from pydantic import Field

from common.config import (
    Settings,
    check_address,
    load_settings,
    parse_epsilon,
    parse_value,
    parse_values,
    with_absolute_paths,
)
from common.errors import InputError
from common.places import Place, SecretPlace
from common.toml_files import read_toml


@pytest.mark.parametrize(
    ("said", "meant"),
    [(0.1, Fraction(1, 10)), ("1/3", Fraction(1, 3)), (1e-5, Fraction(1, 10**5)), ("1e49", 10**49)],
)
def test_a_budget_is_taken_as_it_is_written(said, meant):
    assert parse_epsilon(said) == meant


@pytest.mark.parametrize(
    "said", ["1e999999999", "1e-999999999", "1E+0000000300", 1e300, "9" * 61, f"1/1{'0' * 60}"]
)
def test_a_budget_too_long_for_the_wire_is_refused_at_once(said):
    """Its digits would fill the memory, and no learner could read what is left of it."""
    with pytest.raises(ValueError, match="at most 60 digits"):
        parse_epsilon(said)


@pytest.mark.parametrize(
    "said",
    [0, -1, "0/5", "1/0", "much", "inf", float("nan"), True, None, [], "\u0661", "1/\u0663"],
)
def test_a_budget_that_is_no_number_above_zero_is_refused(said):
    with pytest.raises(ValueError, match="expected a number greater than 0"):
        parse_epsilon(said)


@pytest.mark.parametrize(
    "address",
    [
        *("", "host", ":1", "host:", "host:65536", "host:1x", "a b:1"),
        # Sockets raise what is no error of the system for these, whoever invites to them.
        *("owner..example:1", ".example:1", f"{'x' * 64}.example:1"),
    ],
)
def test_an_address_has_a_host_and_a_port(address):
    with pytest.raises(ValueError, match="expected HOST:PORT"):
        check_address(address)
    assert check_address("owner.example:65535") == "owner.example:65535"


@pytest.mark.parametrize(
    "address",
    ["fd77::2", "fd77::2:50051", "[fd77::2:1", "fd77::2]:1", "[fd77::zz]:1", "[bank.example]:1"],
)
def test_an_ipv6_host_stands_in_brackets(address):
    # The last group of one that has no port would be taken for the port.
    with pytest.raises(ValueError, match="an IPv6 host in brackets"):
        check_address(address)
    for good in ("[fd77::2]:50051", "[fe80::2%eth0]:50051", "[::ffff:10.0.0.7]:1"):
        assert check_address(good) == good


class Example(Settings):
    """Settings with paths."""

    number: int = 1
    path: Place | None = None
    secret: SecretPlace | None = None
    tables: dict[str, dict[str, int]] | None = None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"number = {'9' * 5000}", "a whole number has thousands of digits; write"),
        (f"number = 0x{'f' * 5000}", "a whole number has thousands of digits; write"),
        (f"a = {{ b = [0o{'7' * 9000}] }}", "a whole number has thousands of digits; write"),
        (f"number = {'[' * 5000}", "nested too deeply"),
        ('path = "a\\u0000b"', r"path: got .*, expected a path without the character NUL"),
        ('secret = "file:a\\u0000b"', r'secret: got .*, expected "file:PATH"'),
        ('"\\u001b[2J" = 1', r"is not a known key"),
        ('tables = { "\\u001b[2J" = 1 }', "expected a table of settings, such as"),
        (f"tables = {{ {'a' * 5000} = 1 }}", "expected a table of settings, such as"),
    ],
)
def test_a_hostile_settings_file_is_one_printable_sentence(text, sentence, tmp_path):
    path = tmp_path / "a.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=sentence) as refused:
        load_settings(Example, path)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("pasted", ["copriv_s3cret", "postgresql://ann:s3cret@db.example/stays"])
def test_a_secret_in_place_of_its_place_is_not_repeated(pasted, tmp_path):
    path = tmp_path / "a.toml"
    path.write_text(f'secret = "{pasted}"\n')
    with pytest.raises(
        InputError, match="secret: this is the secret itself; write it into"
    ) as told:
        load_settings(Example, path)
    assert "s3cret" not in str(told.value)


def test_an_absolute_place_of_a_secret_may_begin_with_three_slashes(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text('secret = "file:///run/secrets/token"\n')
    assert str(load_settings(Example, path).secret) == "file:///run/secrets/token"


class Bounded(Settings):
    """Settings of numbers between bounds."""

    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    many: int = Field(default=1, ge=1, le=64)
    any: Annotated[float, Field(gt=0)] = 1.0
    share_of: dict[str, Annotated[float, Field(gt=0, le=1)]] = Field(default_factory=dict)
    many_of: dict[str, Annotated[int, Field(ge=1, le=64)]] = Field(default_factory=dict)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (
            "share=90%",
            "got '90%', expected a number above 0 and at most 1; "
            "write a number without %, 50% as 0.5",
        ),
        ("share=90", "got 90, expected a number above 0 and at most 1"),
        ("share=0", "got 0, expected a number above 0 and at most 1"),
        ("many=99", "got 99, expected a whole number from 1 to 64"),
        ("many=few", "got 'few', expected a whole number from 1 to 64"),
        ("many=1.5", "got 1.5, expected a whole number without a point"),
        ("many=1,000", "from 1 to 64; write a number without commas, 1,000 as 1000 and 0,5 as 0.5"),
        ("any=0", "got 0, expected a number greater than 0"),
        ("share_of.usa=90%", "above 0 and at most 1; write a number without %, 50% as 0.5"),
        ("share_of.usa=90", "share_of.usa: got 90, expected a number above 0 and at most 1"),
        ("many_of.usa=99", "many_of.usa: got 99, expected a whole number from 1 to 64"),
    ],
)
def test_a_number_out_of_its_bounds_is_told_both_of_them(typed, expected, tmp_path):
    (tmp_path / "a.toml").write_text("")
    with pytest.raises(InputError, match=re.escape(expected) + "$"):
        load_settings(Bounded, tmp_path / "a.toml", overrides=[typed])


def test_of_many_faults_the_first_are_told(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text("".join(f"key{i} = 1\n" for i in range(2_000)) + 'number = "x"\n')
    with pytest.raises(InputError, match=r"a\.toml: number: got 'x'") as refused:
        load_settings(Example, path)
    lines = str(refused.value).splitlines()
    assert len(lines) == 21
    assert lines[-1] == f"{path}: and 1,981 more; correct these first"


@pytest.mark.parametrize("typed", ["9" * 5000, f"0x{'f' * 5000}", "[" * 5000, "{a=" * 5000])
def test_what_is_typed_and_no_value_is_one_sentence(typed, tmp_path):
    assert parse_value(typed) == typed
    assert "".join(map(str, parse_values(typed)))
    (tmp_path / "a.toml").write_text("")
    with pytest.raises(InputError, match=r"a\.toml: number: got .*, ") as refused:
        load_settings(Example, tmp_path / "a.toml", overrides=[f"number={typed}"])
    assert len(str(refused.value)) < 500


def test_paths_in_a_loop_of_links_or_too_long_stay_paths(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for name in ("a", "x" * 5000):
        settings = with_absolute_paths(Example(path=Path(name), secret=f"file:{name}"), tmp_path)
        assert settings.path.is_absolute()
        assert str(settings.secret).startswith(f"file:{tmp_path}")


def test_a_settings_file_without_an_end_is_not_held_and_a_pipe_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("common.toml_files.LARGEST_TEXT", 2**20)
    path = tmp_path / "study.toml"
    path.write_text(" " * 2**20)
    assert read_toml(path) == {}
    path.write_text(" " * (2**20 + 1))
    with pytest.raises(InputError, match=r"study\.toml: longer than 1 MB; give a TOML file"):
        read_toml(path)
    reading, writing = os.pipe()
    os.write(writing, b"seed = 1")
    os.close(writing)
    assert read_toml(Path(f"/dev/fd/{reading}")) == {"seed": 1}
    os.close(reading)


class Part(Settings):
    """A part.

    Args:
      size: How large it is.
    """

    EXAMPLES = MappingProxyType({"size": 0.5})

    size: float


def test_a_section_that_is_missing_is_told_with_what_it_needs(tmp_path):
    class Whole(Settings):
        """A whole.

        Args:
          part: It.
        """

        part: Part

    (tmp_path / "w.toml").write_text("")
    with pytest.raises(
        InputError, match=r"part is missing; add it, a section \[part\] with size = 0.5"
    ):
        load_settings(Whole, tmp_path / "w.toml")


def test_a_section_that_may_repeat_is_told_with_its_brackets(tmp_path):
    class Whole(Settings):
        """A whole.

        Args:
          parts: Them.
        """

        parts: tuple[Part, ...] = ()

    (tmp_path / "w.toml").write_text("parts = 1\n")
    with pytest.raises(InputError, match=r"parts: got 1, .* a section \[\[parts\]\] with size"):
        load_settings(Whole, tmp_path / "w.toml")


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("2020-01-01", "got 2020-01-01, expected a path"),
        ("2020-01-01T10:00:00", "got 2020-01-01T10:00:00, expected a path"),
        ("[2020-01-01, true, 'a']", "got [2020-01-01, true, 'a'], expected a path"),
    ],
)
def test_a_date_without_quotes_is_shown_as_it_was_written(typed, told, tmp_path):
    """It was shown as datetime.date(2020, 1, 1)."""
    path = tmp_path / "a.toml"
    path.write_text(f"path = {typed}\n")
    with pytest.raises(InputError) as wrong:
        load_settings(Example, path)
    assert told in str(wrong.value)
    assert str(wrong.value).endswith("; where a date is meant, write it in quotes")
