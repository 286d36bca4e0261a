"""The learner's tokens: secrets that identify it to an owner, kept out of the study's file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from common.errors import InputError
from common.files import read_secret
from common.tls import is_loopback

__all__ = ["check_token_route", "load_token"]


def load_token(
    where: str, *, base: Path, setting: str, environment: Mapping[str, str] = os.environ
) -> str:
    """The token that "file:PATH" or "env:NAME" names.

    Args:
      where: Where it is; the settings check its form.
      base: The folder of the study's file; relative paths start there.
      setting: The setting's name, for an error.
      environment: The environment's variables.

    Raises:
      InputError: There is no such file or variable, or it is empty or no token.

    >>> load_token("env:BANK", base=Path(), setting="token", environment={"BANK": "s3cret"})
    's3cret'
    """
    token = read_secret(where, base=base, setting=setting, environment=environment)
    if not token.isascii():
        raise InputError(
            f"{setting} = {where!r}: expected one line of letters, digits and signs there; "
            "ask the owner for your token"
        )
    return token


def check_token_route(address: str, *, encrypted: bool, setting: str) -> None:
    """Refuse to send a token unencrypted to another machine.

    Raises:
      InputError: The address is another machine's and the connection is plain text.

    >>> check_token_route("127.0.0.1:50051", encrypted=False, setting="token")
    """
    if not encrypted and not is_loopback(address):
        raise InputError(
            f"{setting}: {address} is another machine and the connection is not encrypted; a "
            "token would be readable on the way, use TLS"
        )
