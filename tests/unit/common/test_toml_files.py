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
