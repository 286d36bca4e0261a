"""Figures need records that their reader brings; what is missing is named before any work."""

import re

import pytest

from common.errors import InputError
from learner.cli import reproduce
from learner.reproduction.public_data import BRING, LOAN_COLUMNS, Files


@pytest.mark.parametrize(
    ("figure", "option", "bring"),
    [
        ("A4", "loans", "Lending Club's table"),
        ("A10", "facilities", "health.data.ny.gov"),
        ("S7", "cards", "creditcard.csv"),
    ],
)
def test_records_that_are_not_there_are_named_with_their_source(
    tmp_path, typed, figure, option, bring
):
    for given in ((), ("--data", tmp_path)):
        result = typed("copriv", "reproduce", figure, *given, "--out", tmp_path / "figures")
        assert result.returncode == 2
        (sentence,) = result.stderr.strip().splitlines()
        assert re.search(f"^copriv: {figure}: .*--{option} FILE.*{bring}", sentence)
    assert not (tmp_path / "figures").exists()


def test_only_the_tables_of_the_figures_are_needed(tmp_path, typed):
    table = tmp_path / "loans.csv"
    table.write_text("a,b\n1,2\n")
    # The loans are taken, and are no loans; nobody asks for hospitals and cards.
    result = typed("copriv", "reproduce", "A4", "--loans", table, "--out", tmp_path / "figures")
    assert result.returncode == 2
    assert "--facilities" not in result.stderr
    assert "loans.csv" in result.stderr
    result = typed("copriv", "reproduce", "A4", "--data", tmp_path / "nowhere")
    assert "nowhere: no such folder" in result.stderr


@pytest.mark.parametrize(
    ("figure", "option", "header", "rows", "words"),
    [
        ("A4", "loans", ("a",), 1, "no column 'int_rate'; give Lending"),
        ("A4", "loans", ("int_rate", *LOAN_COLUMNS), 10_000, "10,000 rows, expected at least"),
        ("A11", "cards", ("a",), 1, "no column 'Class'; give creditcard.csv"),
        ("A11", "cards", ("a", "Class"), 4_000, "4,000 rows, expected at least 4,300"),
        ("A9", "facilities", ("Facility Name", "los", "a"), 299, "no hospital has 300 stays"),
    ],
)
def test_tables_that_are_others_or_too_short_are_refused(
    tmp_path, typed, figure, option, header, rows, words
):
    table = tmp_path / "records.csv"
    lines = (
        ",".join(str(row * place % 7 % 2) for place in range(len(header))) for row in range(rows)
    )
    table.write_text("\n".join([",".join(header), *lines]))
    result = typed("copriv", "reproduce", figure, f"--{option}", table, "--out", tmp_path / "out")
    assert result.returncode == 2
    (sentence,) = result.stderr.strip().splitlines()
    assert sentence.startswith(f"copriv: {table}: {words}")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", BRING)
def test_a_missing_table_is_asked_for_by_options_that_there_are(name):
    with pytest.raises(InputError, match="do not come with copriv") as refused:
        Files().path(name)
    there = {text for option in reproduce.params for text in option.opts}
    assert set(re.findall(r"--\w+", str(refused.value))) <= there
    assert BRING[name] in str(refused.value)
