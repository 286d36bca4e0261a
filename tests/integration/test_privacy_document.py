"""docs/privacy.md claims nothing that no test shows, and docs/attacks.md leaves no attack out."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NO_ATTACKS = (
    "calls.py",
    "clusters.py",
    "forked.py",
    "free_ports.py",
    "identities.py",
    "ledgers.py",
    "listening.py",
    "lone_owner.py",
    "make_golden.py",
    "maps.py",
    "mortal_owner.py",
    "postgres.py",
    "trajectories.py",
    "waiting.py",
)
DEFINED = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE)
}


def sections():
    text = (ROOT / "docs/privacy.md").read_text()
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_test_that_the_document_names_exists():
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/privacy.md").read_text()))
    assert len(named) > 50
    assert named <= DEFINED, named - DEFINED


@pytest.mark.parametrize("section", [name for name in sections() if name != "What is outside"])
def test_every_claim_names_its_test(section):
    """Each item of a list names one; a section without lists names one at least."""
    text = sections()[section]
    items = re.findall(r"^- (.+?)(?=^- |^$|\Z)", text, re.MULTILINE | re.DOTALL)
    for claim in items or [text]:
        assert "`test_" in claim, claim


def test_every_invariant_has_a_test_of_its_name():
    design = (ROOT / "docs/design.md").read_text()
    part = design.split("## 3. Privacy invariants")[1].split("## 4.")[0]
    invariants = re.findall(r"^\d\. `(\w+)`", part, re.MULTILINE)
    assert len(invariants) == 9
    for name in invariants:
        assert f"test_{name}" in DEFINED, name


def paths_in(document):
    """What a document names below tests/ and benchmarks/."""
    text = (ROOT / "docs" / document).read_text()
    return set(re.findall(r"(?:`| )((?:tests|benchmarks)/[\w/.]+)", text))


@pytest.mark.parametrize("document", ["privacy.md", "attacks.md"])
def test_the_tools_and_benchmarks_it_names_are_there(document):
    assert paths_in(document)
    for path in paths_in(document):
        assert (ROOT / path).exists(), path


def test_every_tool_that_attacks_stands_in_the_table_of_attacks():
    tools = {f"tests/tools/{path.name}" for path in (ROOT / "tests/tools").glob("*.py")}
    assert tools - paths_in("attacks.md") == {f"tests/tools/{name}" for name in NO_ATTACKS}


def test_the_table_of_attacks_counts_the_mutants():
    entries = json.loads((ROOT / "tests/tools/mutants.json").read_text())
    mutants = [mutant for entry in entries for mutant in entry["mutants"]]
    survivors = sum("survives" in mutant for mutant in mutants)
    row = (
        f"{len(mutants)} changes of {len({entry['function'] for entry in entries})} functions "
        f"(`--check` counts them) | {len(mutants) - survivors} noticed by a test; {survivors} "
    )
    assert row in (ROOT / "docs/attacks.md").read_text()


def counted_tests():
    """Of each attack that is a number of tests: what pytest is told to run, and that number."""
    rows = (ROOT / "docs/attacks.md").read_text().splitlines()
    found = [
        (re.findall(r"`pytest ([^`]+)`", row), re.search(r"([0-9]+) tests?\b", row)) for row in rows
    ]
    return [(commands, int(count[1])) for commands, count in found if commands and count]


@pytest.mark.long
@pytest.mark.parametrize(("commands", "count"), counted_tests())
def test_an_attack_has_as_many_tests_as_it_says(commands, count):
    collected = 0
    for command in commands:
        typed = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", ""]
        told = subprocess.run(
            [*typed, *shlex.split(command)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=600,
            check=True,
        )
        collected += int(re.findall(r"^([0-9]+)\S* tests? collected", told.stdout, re.M)[0])
    assert collected == count
