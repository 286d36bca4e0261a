"""What was probably meant is found in the time that a short name takes."""

import difflib

import pytest

from common.suggestions import LONGEST_SHOWN, among_columns, did_you_mean
from owner.translation import with_hints


def _hint(name, names):
    return with_hints([name], names)[0]


@pytest.mark.parametrize("suggest", [did_you_mean, among_columns, _hint])
def test_no_name_is_compared_further_than_it_is_shown(monkeypatch, suggest):
    compared = []

    class Noted(difflib.SequenceMatcher):
        def set_seqs(self, *names):
            compared.extend(names)
            super().set_seqs(*names)

        def set_seq1(self, a):
            compared.append(a)
            super().set_seq1(a)

        def set_seq2(self, b):
            compared.append(b)
            super().set_seq2(b)

    monkeypatch.setattr(difflib, "SequenceMatcher", Noted)
    name = "income of the year before " * 10_000
    assert "income of the year" in suggest(name, [f"{name} last", "age"])
    assert compared
    assert max(map(len, compared)) <= LONGEST_SHOWN
