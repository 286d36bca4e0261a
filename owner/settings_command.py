"""``copriv-owner settings``: what OWNER.toml takes, from the settings' own classes."""

from __future__ import annotations

import click

__all__ = ["settings"]


@click.command()
@click.argument("key", required=False)
@click.option("--json-schema", is_flag=True, help="Print a JSON schema, for editors.")
def settings(key: str | None, json_schema: bool) -> None:
    """Explain a KEY of OWNER.toml, or list all of them.

    Example: copriv-owner settings policy.epsilon_lifetime
    """
    from common.settings_reference import show  # noqa: PLC0415 (keeps --help quick)
    from owner.policy import OwnerSettings  # noqa: PLC0415

    click.echo(show(OwnerSettings, key, as_schema=json_schema))
