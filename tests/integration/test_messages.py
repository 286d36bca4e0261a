"""Mistakes are answered with one sentence: what, where, what was expected, what to do."""

import importlib.util
import inspect
import re
import sys
from pathlib import Path

import pytest

import common.errors
from common.errors import CoprivError

ROOT = Path(__file__).resolve().parents[2]
# What a sentence about a mistake ends in: something to do, or what was expected.
DO = re.compile(
    r"expected|did you mean|at most|got .* numbers for|for \{longest:g\} seconds|must be the same|"
    r"\b(?:give|set|add|remove|correct|write|start|type|use|make|makes|read|ask|call|take|leave|"
    r"check|name|restore|invite|wait|resume|fit|enrol|rename|install|needs?|wants|allow|share|say|"
    r"goes?|fix|lower|raise|nothing to close|is a directory)\b|"
    # What another function says, which is looked at where it says it.
    r"\{(?:among|cure|error|said|message|EMPTIED|fault|_failure|_selection|_why_not|where|open_lines|names)",
    re.IGNORECASE,
)


@pytest.fixture(scope="module")
def messages():
    sys.path.insert(0, str(ROOT / "scripts"))  # as for a script that is typed
    spec = importlib.util.spec_from_file_location("messages", ROOT / "scripts" / "messages.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["messages"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["messages"]
    sys.path.remove(str(ROOT / "scripts"))


@pytest.fixture(scope="module")
def answers(messages):
    return messages.answers()


def test_the_document_tells_what_the_commands_say(messages, answers):
    assert messages.document(answers) == (ROOT / "docs" / "messages.md").read_text()


def test_every_mistake_is_answered_with_what_to_do(answers):
    assert len(answers) >= 60
    for answer in answers:
        assert answer.status in {2, 3, 4}, answer
        assert "Traceback" not in answer.said
        assert answer.said.strip(), answer
        for sentence in answer.said.splitlines():
            assert DO.search(sentence), answer
            # Words of the library that checks settings, and of Python, are not for people.
            assert not re.search(
                r"input should|<class|instance of|tuple|\bNone\b|dict\b", sentence
            ), answer


def test_every_command_is_among_them(messages):
    typed = {" ".join(m.typed.split()[:2]) for m in messages.MISTAKES}
    for name, command in messages.COMMANDS.items():
        for sub in set(command.commands) - {"audit"}:
            assert f"{name} {sub}" in typed


def test_every_error_that_a_command_ends_with_has_a_status_of_its_kind():
    kinds = [
        kind
        for _, kind in inspect.getmembers(common.errors, inspect.isclass)
        if issubclass(kind, CoprivError) and kind is not CoprivError
    ]
    assert {kind.exit_status for kind in kinds} == {2, 3, 4, 130}


def raised_sentences():
    """The first and last words of every error of ours, as the source spells it."""
    pattern = re.compile(
        r"raise (InputError|LedgerError|UnreachableError)\(\s*((?:f?\"(?:[^\"\\]|\\.)*\"\s*)+)\)"
    )
    for room in ("common", "owner", "learner"):
        for path in sorted((ROOT / room).rglob("*.py")):
            for match in pattern.finditer(path.read_text()):
                yield (
                    str(path.relative_to(ROOT)),
                    "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', match[2])),
                )


def test_every_error_of_ours_says_what_to_do_or_what_was_expected():
    sentences = list(raised_sentences())
    assert len(sentences) > 80
    wanting = [f"{path}: {said}" for path, said in sentences if not DO.search(said)]
    assert wanting == []


def test_no_pattern_has_a_possessive_group():
    """Before 3.11.5 Python takes with one what did not match: "1,204," was a number."""
    # That one reads our own text, a long one, of which a group that gives back takes memory.
    known = {"common/features.py"}
    found = {
        str(path.relative_to(ROOT))
        for room in ("common", "owner", "learner")
        for path in (ROOT / room).rglob("*.py")
        if re.search(r"\)[*+?]\+|\(\?>", path.read_text())
    }
    assert found == known
