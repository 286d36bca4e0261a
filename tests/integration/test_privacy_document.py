"""docs/privacy.md claims nothing that no test shows, and docs/attacks.md leaves no attack out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NO_ATTACKS = (
    "forked.py",
    "free_ports.py",
    "identities.py",
    "ledgers.py",
    "lone_owner.py",
    "make_golden.py",
    "mortal_owner.py",
    "postgres.py",
    "trajectories.py",
)
DEFINED = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE)
}


def sections() -> dict[str, str]:
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


def paths_in(document: str) -> set[str]:
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
