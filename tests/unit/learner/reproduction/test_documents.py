"""Sections of a document that commands write: each its own, and nothing else moves."""

import re

import pytest
from rich.console import Console

from common.errors import InputError
from learner.reproduction.documents import replace_section
from learner.reproduction.reproduce import run_reproduction


def test_a_section_that_is_written_anew_leaves_the_others_where_they_are(tmp_path):
    document = tmp_path / "results.md"
    replace_section(document, "first", "one")
    replace_section(document, "second", "two")
    replace_section(document, "first", "three\n")
    assert document.read_text() == (
        "# Results\n\n<!-- first -->\nthree\n<!-- /first -->\n\n"
        "<!-- second -->\ntwo\n<!-- /second -->\n"
    )


def test_a_document_with_half_a_section_is_refused(tmp_path):
    document = tmp_path / "results.md"
    document.write_text("text\n<!-- first -->\n")
    with pytest.raises(InputError, match="only one of the markers"):
        replace_section(document, "first", "one")
    assert document.read_text() == "text\n<!-- first -->\n"


@pytest.mark.parametrize(
    ("name", "held", "words"),
    [
        ("loans.csv", b"a,b\n1,2\n", "is not Markdown (.md) and has no marker <!-- first -->"),
        ("loans.parquet", b"PAR1\xd8\x00", "is not text in UTF-8, so it is left as it is"),
        ("results.md", b"<!-- /first -->\n<!-- first -->\n", "<!-- /first --> stands before"),
    ],
)
def test_a_file_that_is_no_document_stays_as_it_is(tmp_path, name, held, words):
    """Such as the table of records, typed in the wrong place."""
    path = tmp_path / name
    path.write_bytes(held)
    with pytest.raises(InputError, match=re.escape(f"{path}: {words}")):
        replace_section(path, "first", "one")
    assert path.read_bytes() == held


def test_a_document_keeps_its_line_ends_and_its_byte_order_mark(tmp_path):
    path = tmp_path / "results.txt"
    path.write_bytes(b"\xef\xbb\xbfa\r\n<!-- first -->\r\n<!-- /first -->\r\nb\r\n")
    replace_section(path, "first", "one")
    assert path.read_bytes() == (b"\xef\xbb\xbfa\r\n<!-- first -->\none\n<!-- /first -->\r\nb\r\n")


def test_figures_are_not_computed_for_a_document_that_does_not_take_them(tmp_path):
    """Figures of all records take hours."""
    table = tmp_path / "stays.csv"
    table.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="is not Markdown"):
        run_reproduction(
            ["A9"],
            data=None,
            tables={"facilities": table},
            out=tmp_path / "figures",
            document=table,
            console=Console(),
        )
    assert not (tmp_path / "figures").exists()
