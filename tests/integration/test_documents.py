"""What the documents tell a reader to type does run; what they promise of files is so."""

import importlib.metadata
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from common.privacy import epsilon_in_words, strength
from common.setting_keys import keys_of
from learner.planning.settings import StudySettings
from owner.policy import OwnerSettings

ROOT = Path(__file__).resolve().parents[2]


def commands_of(document):
    blocks = re.findall(r"```sh\n(.*?)```", document.read_text(), re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


def run_commands_of(*documents, folder):
    """Type the commands of documents, in a folder with the examples."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    (folder / "runs").mkdir()
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    commands = [command for name in documents for command in commands_of(ROOT / name)]
    assert len(commands) >= 2
    for command in commands:
        result = subprocess.run(
            command.replace(".venv/bin/", ""),
            shell=True,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert result.returncode == 0, f"{command}\n{result.stderr}"


def test_the_commands_of_the_deployment_run(tmp_path):
    run_commands_of("docs/deployment.md", folder=tmp_path)


@pytest.mark.long
def test_the_commands_of_the_readme_run_and_the_summary_keeps_its_schema(tmp_path):
    run_commands_of("README.md", "docs/model.md", folder=tmp_path)
    told = json.loads((tmp_path / "runs/readme/summary.json").read_text())
    schema = json.loads((ROOT / "learner/summary.schema.json").read_text())
    jsonschema.validate(told, schema)
    documented = set(re.findall(r"[a-z_]+", (ROOT / "docs/summary.md").read_text()))
    for part in (schema, schema["properties"]["owners"]["items"]):
        assert set(part["properties"]) <= documented


def test_links_of_the_documents_lead_somewhere():
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)", document.read_text()):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name}: {target}"


def anchor_of(heading):
    """The anchor of a heading, as hosts of repositories make it."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading.lstrip("# "))
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def test_anchors_of_the_documents_lead_to_a_heading():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md")]
    for page in pages:
        for name, anchor in re.findall(r"\]\(([^):#]*)#([^)]+)\)", page.read_text()):
            target = page.parent / name if name else page
            headings = re.findall(r"^#+ .+$", target.read_text(), re.MULTILINE)
            assert anchor in map(anchor_of, headings), f"{page.name}: {name}#{anchor}"


def test_the_documents_name_only_settings_that_there_are():
    known = {key.path for kind in (StudySettings, OwnerSettings) for key in keys_of(kind)}
    tables = "|".join(sorted({path.partition(".")[0] for path in known if "." in path}))
    files = {"json", "toml", "sqlite", "html", "png"}
    named = {
        (page.name, key)
        for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
        for key in re.findall(rf"`((?:{tables})\.[a-z_]+)\b(?!\.)", page.read_text())
        if key.partition(".")[2] not in files and page.name not in {"messages.md", "settings.md"}
    }
    assert len(named) > 60
    assert {(page, key) for page, key in named if key not in known} == set()


def test_the_page_to_sign_tells_what_an_epsilon_bounds():
    page = (ROOT / "docs/signing.md").read_text()
    rows = re.findall(r"^\| ([\d.]+) \| (\w+) \| ([\d.,]+) \| ([\d.]+) % \|$", page, re.MULTILINE)
    assert len(rows) == 4
    for epsilon, called, factor, guess in rows:
        assert strength(float(epsilon)) == called
        assert epsilon_in_words(float(epsilon)).endswith(f" {factor}")
        odds = math.exp(float(epsilon)) / 9
        assert 0 <= float(guess) - 100 * odds / (1 + odds) < 1


def test_no_other_distribution_claims_our_import_names():
    owners = importlib.metadata.packages_distributions()
    for name in ("common", "learner", "owner"):
        assert set(owners.get(name, ["copriv"])) == {"copriv"}


@pytest.mark.parametrize("example", ["hospitals.toml", "lending.toml", "creditcard.toml"])
def test_examples_are_valid_studies(example):
    from common.config import load_settings  # noqa: PLC0415
    from learner.planning.settings import StudySettings  # noqa: PLC0415

    assert len(load_settings(StudySettings, ROOT / "examples" / example).owners) == 3


def test_the_design_names_every_module_where_it_is_and_no_other():
    page = (ROOT / "docs/design.md").read_text()
    named, room, package = set(), "", ""
    for line in page.split("## 1. Rooms")[1].split("Imports: ")[0].splitlines():
        if heading := re.match(r"(\w+)/ ", line):
            room = package = heading[1]
        elif heading := re.match(r"  (\w+)/ ", line):
            package = f"{room}/{heading[1]}"
        elif re.match(r"  \w", line):
            package = room
        named |= {f"{package}/{name}" for name in re.findall(r"\w+\.py", line)}
    modules = {
        str(path.relative_to(ROOT))
        for room in ("common", "owner", "learner")
        for path in (ROOT / room).rglob("*.py")
        if path.parent.name != "pb" and path.name != "__init__.py"
    }
    assert named == modules
