"""What --help says is short enough to be read whole."""

import re

import pytest
from click.testing import CliRunner

from learner.cli import cli
from owner.cli import cli as owner_cli


def commands(command, *typed):
    yield command, list(typed)
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, *typed, name)


@pytest.mark.parametrize("root", [cli, owner_cli], ids=["copriv", "copriv-owner"])
def test_lists_of_commands_say_whole_sentences_and_no_option_sends_elsewhere(root):
    """Half of them ended in three dots, and an option was "As for train."."""
    for command, typed in commands(root):
        said = CliRunner(env={"COLUMNS": "80"}).invoke(root, [*typed, "--help"]).stdout
        assert "As for" not in said, typed
        _, found, listed = said.partition("Commands:\n")
        lines = re.findall(r"^  \S+ +(.+)$", listed, flags=re.MULTILINE)
        assert bool(lines) == bool(getattr(command, "commands", {})) == bool(found)
        for line in lines:
            assert line.endswith("."), line
            assert not line.endswith("..."), line


@pytest.mark.parametrize("root", [cli, owner_cli], ids=["copriv", "copriv-owner"])
def test_help_needs_no_word_of_the_papers(root):
    """The box of models, shards and n_i are in the documents, not in what one types first."""
    for _, typed in commands(root):
        said = CliRunner(env={"COLUMNS": "80"}).invoke(root, [*typed, "--help"]).stdout
        found = re.findall(r"\b(?:box|shards?|n_i|Poisson|neighbouring)\b", said)
        assert found == [], typed
