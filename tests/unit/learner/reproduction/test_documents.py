"""Sections of a document that commands write: each its own, and nothing else moves."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from common.errors import InputError
from learner.reproduction.documents import replace_section
from learner.reproduction.reproduce import run_reproduction

HOSPITALS = Path(__file__).resolve().parents[4] / "examples" / "hospitals.parquet"


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


def test_figures_that_are_made_anew_leave_the_rows_of_the_others(tmp_path):
    """One figure made again took the other nineteen out, below a command that nobody had typed."""
    document, out = tmp_path / "mine.md", tmp_path / "made"
    others = [
        '| <img src="made[1]/A2.svg" alt="A2"><br>[A2](made[1]/A2.svg) | falls | 3 | x 20 | no |',
        "| S7 | comes closer | 3 owners | x 5 | yes |",
    ]
    old = "| [A8](old.svg) | what was here | before | x 1 | no |"
    heads = "| figure | paper | here | epsilons | agrees |\n|---|---|---|---|---|"
    rows = "\n".join([heads, others[1], old, others[0]])
    document.write_text(f"# Mine\n\n<!-- figures -->\n{rows}\n<!-- /figures -->\nend\n")
    run_reproduction(
        ["a8"],
        data=None,
        tables={"facilities": HOSPITALS},
        out=out,
        document=document,
        console=Console(file=io.StringIO()),
    )
    lines = document.read_text().splitlines()
    assert [line for line in lines if line.startswith("| ")] == [
        heads.splitlines()[0],
        others[0],
        next(line for line in lines if "[A8](made/A8.svg) | one of 86 hospitals" in line),
        others[1],
    ]
    assert (
        "`copriv reproduce A2 A8 S7 --loans FILE --facilities FILE --cards FILE "
        f"--out {out} --document {document}`"
    ) in lines
    assert lines[-2:] == ["<!-- /figures -->", "end"]
