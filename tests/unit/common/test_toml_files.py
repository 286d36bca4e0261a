"""A folder in the place of a settings file is answered with the file to give."""

import pytest

from common.errors import InputError
from common.toml_files import read_toml


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


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_a_file_in_another_encoding_is_told_how_to_be_saved(tmp_path, encoding):
    path = tmp_path / "study.toml"
    path.write_bytes("name = 'Zürich'".encode(encoding))
    with pytest.raises(InputError) as refused:
        read_toml(path)
    assert str(refused.value) == f"{path}: no text in UTF-8; save it as UTF-8, or give a TOML file"
