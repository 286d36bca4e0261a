"""A folder in the place of a settings file is answered with the file to give."""

import contextlib
import re
import time
import tomllib

import pytest

from common.errors import InputError
from common.toml_files import parsed, read_toml


@pytest.mark.parametrize(
    ("files", "given"),
    [
        ((), "is a folder; give the path of a TOML file$"),
        (("study.toml", "notes.txt"), r"is a folder; give \S+/study\.toml$"),
        (("a.toml", "b.toml"), r"give one of \S+/a\.toml, \S+/b\.toml$"),
        (tuple(f"{k}.toml" for k in range(9)), "and 6 more$"),
    ],
)
def test_a_folder_in_the_place_of_settings_names_those_in_it(tmp_path, files, given):
    for name in files:
        (tmp_path / name).write_text("")
    with pytest.raises(InputError, match=given):
        read_toml(tmp_path)


def test_a_file_as_an_editor_of_windows_saves_it_is_read(tmp_path):
    """A byte order mark that nobody sees, and lines that end in CR LF."""
    path = tmp_path / "study.toml"
    path.write_bytes(b"\xef\xbb\xbfname = 'Z\xc3\xbcrich'\r\nseed = 1\r\n")
    assert read_toml(path) == {"name": "Zürich", "seed": 1}


def refusal(folder, text):
    """Why a file of this text is no TOML."""
    path = folder / "owner.toml"
    path.write_bytes(text.encode())
    with pytest.raises(InputError) as refused:
        read_toml(path)
    return str(refused.value)


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        ("0,5", "; write a number without commas, 1,000 as 1000 and 0,5 as 0.5"),
        ("1,000  # responses", "; write a number without commas, 1,000 as 1000 and 0,5 as 0.5"),
        ("50%", "; write a number without %, 50% as 0.5"),
        ("50 %\r", "; write a number without %, 50% as 0.5"),
        ("[1, 2", ""),
        ("0,5 1", ""),
    ],
)
def test_a_number_that_is_none_in_toml_is_told_how_to_be_written(tmp_path, number, hint):
    told = refusal(tmp_path, f"name = 'a'\nepsilon = {number}\nother = 1\n")
    assert told.endswith(f"; correct that place{hint}")


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("target = los", "a text stands in quotes"),
        ("target = \u201clos\u201d", "quotes are \" or ', without any slant"),
        ('path = "C:\\Users\\me\\all.csv"', "write a path with / in the place of \\"),
        ('path = "data\\all.csv"', "write a path with / in the place of \\"),
        ("name = None", "leave the key out where there is no value"),
        ("guard = False", "write true or false in small letters"),
        ("seed = 2", "its key has a value already, so leave one out"),
    ],
)
def test_what_people_write_in_the_place_of_toml_is_told_how_to_be_written(tmp_path, line, hint):
    """Only the place was told, of which the reader's words say little."""
    told = refusal(tmp_path, f"seed = 1\n{line}\n")
    assert re.search(r"at line 2, .*; correct that place; ", told)
    assert told.endswith(f"; {hint}")


@pytest.mark.parametrize(
    ("section", "hint"),
    [
        ("owners", "each owner stands below [[owners]], in double brackets"),
        ("privacy", "this section is there already, so write its keys there"),
    ],
)
def test_a_section_that_is_there_twice_is_told_what_to_do(tmp_path, section, hint):
    told = refusal(tmp_path, f"[{section}]\nname = 'a'\n[{section}]\nname = 'b'\n")
    assert told.endswith(f"; correct that place; {hint}")


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_a_file_in_another_encoding_is_told_how_to_be_saved(tmp_path, encoding):
    path = tmp_path / "study.toml"
    path.write_bytes("name = 'Zürich'".encode(encoding))
    with pytest.raises(InputError) as refused:
        read_toml(path)
    assert str(refused.value) == f"{path}: not text in UTF-8; save it as UTF-8, or give a TOML file"


@pytest.mark.parametrize(
    ("name", "content"),
    [("stays.csv", b"los,age\n3,70\n"), ("stays.Parquet", b"PAR1\xd8\x00"), ("s.gz", b"\x1f\x8b")],
)
def test_a_table_in_the_place_of_settings_is_called_one(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=r": is a table; give the .*copriv init makes for a study"):
        read_toml(path)
    path.write_text("seed = 1")
    assert read_toml(path) == {"seed": 1}


@pytest.mark.parametrize("part", ["a", '"a"', "'a b'", "a ", r'"\""', "'#'", '"\'"'])
@pytest.mark.parametrize("text", ["{} = 1", "[{}]", "[[{}]]", "x = [\n{{ {} = 1 }}]"])
def test_a_key_of_very_many_parts_is_refused_before_it_is_read(tmp_path, monkeypatch, part, text):
    """Python's reader takes 20 GB for a key of 200 kB."""
    monkeypatch.setattr("tomllib.loads", lambda text: pytest.fail("it was read"))
    path = tmp_path / "study.toml"
    path.write_text("seed = 1\n" + text.format(".".join([part] * 100)))
    with pytest.raises(InputError, match=r"nested too deeply; write fewer levels$"):
        read_toml(path)


def test_long_names_with_points_in_a_text_are_none(tmp_path):
    """Such as an identifier of a picture in a hospital, which has 32 parts at most."""
    path = tmp_path / "study.toml"
    identifier = ".".join("12" * 16)
    path.write_text(f'where = {{ "{identifier}" = "{identifier}" }}')
    assert read_toml(path) == {"where": {identifier: identifier}}


def test_no_text_takes_the_search_for_such_keys_long():
    texts = ["a" * 10**6, '"' * 10**6, "a" + " " * 10**6, ("a." * 39 + "\n") * 10**4]
    begun = time.monotonic()
    for text in texts:
        with contextlib.suppress(ValueError):
            parsed(f"# {text}\n=")
    assert time.monotonic() - begun < 10


WORDS = ".".join(["word"] * 60)


@pytest.mark.parametrize(
    "text",
    [
        f'x = "{WORDS}"',
        f"x = '{WORDS}'",
        f'x = """\n{WORDS}\n"""',
        f"x = '''it's {WORDS}''''",
        f'x = "a" # {WORDS}',
        f'x = ["a\\"b", "{WORDS}"]',
        f'"{WORDS}" = 1',
    ],
)
def test_many_points_in_a_text_are_no_parts_of_a_key(tmp_path, text):
    path = tmp_path / "study.toml"
    path.write_text(text)
    assert read_toml(path) == tomllib.loads(text)


@pytest.mark.parametrize(
    "before",
    [
        'x = """a"""""',
        "x = '''a'''''",
        r'x = "\\"',
        'x = """\\\n"""',
        "x = '#'",
        "# it's",
        '# "',
        'x = ["""a"""", "b"]',
        "x = ''",
        'x = ""',
    ],
)
def test_no_text_hides_a_key_of_many_parts(before):
    assert "a" not in tomllib.loads(before)
    with pytest.raises(RecursionError):
        parsed(f"{before}\n{'.'.join(['a'] * 100)} = 1\n")
    with pytest.raises(RecursionError):
        parsed(f"{before}\n{'.'.join(['a'] * 100)} = '\"'\n")


@pytest.mark.parametrize("text", ['"""\\', '"\\', "'''\"", "''", '""', '#"', "'"])
def test_quotes_without_end_take_no_longer_to_look_through(text):
    begun = time.perf_counter()
    with contextlib.suppress(ValueError, RecursionError):
        parsed(text * 200_000)
    assert time.perf_counter() - begun < 5.0


def test_a_text_of_millions_of_backslashes_is_refused_unread(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text('x = "' + r"\n" * 1_100_000 + '"')
    with pytest.raises(InputError, match="not valid TOML: more than 1,000,000 backslashes; corr"):
        read_toml(path)
