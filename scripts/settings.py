"""Write docs/settings.md from the settings' classes."""

from __future__ import annotations

from pathlib import Path

from common.settings_reference import reference
from learner.planning.settings import StudySettings
from owner.policy import OwnerSettings

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "settings.md"
HEAD = """\
# Settings

Two files, both TOML: STUDY.toml describes a study, OWNER.toml an owner. An unknown key
or a wrong value is an error that names the key, the value and what was expected. `copriv settings
KEY` and `copriv-owner settings KEY` explain one key; with `--json-schema` they print a schema for
editors. A default holds unless the `profile` of a study takes something else, as the meaning says.
`copriv init` and `copriv-owner init` write the files with a comment on every key.
`python scripts/settings.py` writes this page from the program's own classes.
"""


def text() -> str:
    study, owner = reference(StudySettings), reference(OwnerSettings)
    return f"{HEAD}\n## STUDY.toml\n{study}\n\n## OWNER.toml\n{owner}\n"


if __name__ == "__main__":
    DOCUMENT.write_text(text(), encoding="utf-8")
