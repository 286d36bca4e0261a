"""``copriv settings``: what STUDY.toml takes, from the settings' own classes."""

from __future__ import annotations

import click

__all__ = ["settings"]


@click.command()
@click.argument("key", required=False)
@click.option("--json-schema", is_flag=True, help="Print a JSON schema, for editors.")
def settings(key: str | None, json_schema: bool) -> None:
    """Explain a KEY of STUDY.toml, or list all of them.

    Example: copriv settings privacy.epsilon
    """
    from common.settings_reference import show  # noqa: PLC0415 (keeps --help quick)
    from learner.planning.settings import StudySettings  # noqa: PLC0415

    click.echo(show(StudySettings, key, as_schema=json_schema))
