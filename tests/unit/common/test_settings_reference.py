"""Every key says what it means, and the page, the command and the editors' schema say the same."""

import json
import re
import runpy
import tomllib
from pathlib import Path
from typing import Annotated

import jsonschema
import pytest
from pydantic import TypeAdapter, ValidationError

from common.config import Epsilon, ValidationShare
from common.setting_keys import keys_of
from common.settings_reference import default_of, json_schema, meaning_of
from common.toml_files import read_toml
from learner.planning.settings import StudySettings
from owner.policy import OwnerSettings

ROOT = Path(__file__).resolve().parents[3]
KEYS = [(kind, key) for kind in (StudySettings, OwnerSettings) for key in keys_of(kind)]


@pytest.mark.parametrize("kind", [Epsilon, ValidationShare])
def test_the_editors_schema_takes_a_budget_as_number_and_as_text_with_every_pydantic(kind):
    """Left to itself, pydantic before 2.14 took texts alone, and later ones have a format."""
    schema = TypeAdapter(kind).json_schema()
    assert schema == {"anyOf": [{"type": "number"}, {"type": "string"}]}


@pytest.mark.parametrize(("kind", "key"), KEYS, ids=lambda x: getattr(x, "path", x.__class__))
def test_every_key_has_a_meaning_a_default_and_an_example_that_holds(kind, key):
    meaning = meaning_of(key)
    assert len(meaning) > 5
    assert meaning.endswith(".")
    assert "None" not in meaning
    example = key.field.examples[0] if key.field.examples else None
    if key.section is None and default_of(key) in {"none", "must be given"}:
        assert example is not None
    if example is not None and key.section is None:
        checks = (key.field.annotation, *key.field.metadata)
        annotated = Annotated[checks] if len(checks) > 1 else key.field.annotation
        TypeAdapter(annotated, config=kind.model_config).validate_python(example)


def test_the_page_is_what_the_classes_say():
    written = runpy.run_path(str(ROOT / "scripts" / "settings.py"))["text"]()
    assert written == (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("example", ["hospitals.toml", "lending.toml", "creditcard.toml"])
def test_the_editors_schema_takes_the_examples_and_no_misspelt_key(example):
    schema = json.loads(json_schema(StudySettings))
    table = read_toml(ROOT / "examples" / example)
    jsonschema.validate(table, schema)
    table["privacy"]["epsylon"] = 1
    with pytest.raises(jsonschema.ValidationError, match="epsylon"):
        jsonschema.validate(table, schema)


def whole_files():
    """Every complete settings file that the documents and the deployment show."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    texts = [
        (page.name, text)
        for page in pages
        for text in re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)
    ]
    deployed = [*ROOT.glob("deploy/compose/*.toml"), *ROOT.glob("deploy/kubernetes/*.toml")]
    texts += [(str(file.relative_to(ROOT)), file.read_text()) for file in deployed]
    shown = [(name, tomllib.loads(text)) for name, text in texts]
    kinds = {"policy": OwnerSettings, "privacy": StudySettings}
    return [
        (name, kind, table) for name, table in shown for key, kind in kinds.items() if key in table
    ]


@pytest.mark.parametrize(("name", "kind", "table"), whole_files(), ids=lambda x: str(x)[:40])
def test_the_editors_schema_takes_the_files_that_documents_show(name, kind, table):
    jsonschema.validate(table, json.loads(json_schema(kind)))


def test_a_study_needs_no_algorithm_unless_it_is_a_published_one():
    schema = json.loads(json_schema(StudySettings))
    table = read_toml(ROOT / "examples" / "hospitals.toml")
    del table["algorithm"]
    jsonschema.validate(table, schema)
    assert "algorithm" not in schema["required"]
    assert StudySettings.model_validate(table).algorithm.name == "auto"
    with pytest.raises(ValidationError, match="expected horizon = NUMBER"):
        StudySettings.model_validate(table | {"profile": "published"})


@pytest.mark.parametrize("ledger", ["ledger.sqlite", {"path": "ledger.sqlite", "block": 64}])
def test_the_editors_schema_takes_a_ledger_that_is_a_file_or_a_table(ledger):
    schema = json.loads(json_schema(OwnerSettings))
    table = read_toml(ROOT / "deploy" / "compose" / "montefiore.toml") | {"ledger": ledger}
    jsonschema.validate(table, schema)
    with pytest.raises(jsonschema.ValidationError, match="blocks"):
        jsonschema.validate(table | {"ledger": {"blocks": 64}}, schema)


def test_a_key_is_explained_where_it_is_typed(typed):
    said = typed("copriv", "settings", "privacy.clip")
    assert said.returncode == 0
    assert "public records" in said.stdout
    assert "example: clip = " in said.stdout
    said = typed("copriv-owner", "settings", "policy")
    assert "policy.epsilon_lifetime: The most" in said.stdout
    said = typed("copriv", "settings", "epsilon")
    assert said.returncode == 2
    assert "did you mean 'privacy.epsilon'?" in said.stderr
    said = typed("copriv", "settings", "epsylon")
    assert "did you mean 'privacy.epsilon'?" in said.stderr
    said = typed("copriv-owner", "settings", "zzz")
    assert "no such key; type the same command without a key, which lists all" in said.stderr
    said = typed("copriv-owner", "settings", "--json-schema", "zzz")
    assert said.returncode == 2
    assert "zzz: --json-schema prints the schema of all keys; leave the key out" in said.stderr
    assert said.stdout == ""
    said = typed("copriv", "settings", "--json-schema")
    assert json.loads(said.stdout)["title"] == "StudySettings"
