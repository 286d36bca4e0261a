"""Sections of a document that commands write: each its own, and nothing else moves."""

from __future__ import annotations

import pytest

from common.errors import InputError
from learner.reproduction.documents import replace_section


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
