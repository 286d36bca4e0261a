"""copriv-owner ledger: what the records have promised and spent, and how a study is closed."""

from __future__ import annotations

import contextlib
import json
import warnings
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.table import Table
from rich.text import Text

from common.command import console
from common.config import load_settings
from common.errors import DoubtWarning, InputError, RefusedError
from common.files import real_path
from common.privacy import as_decimal, exact_sum
from common.typed_paths import A_FILE
from owner.ledger import Ledger
from owner.ledger_reading import (
    History,
    read_history,
    read_meta,
    read_studies,
    verify_ledger,
)
from owner.ledger_rows import StudyEntry, epsilon_uncounted, in_words
from owner.ledger_tables import charges_of

if TYPE_CHECKING:
    from owner.policy import OwnerSettings, Policy

SHOWN_DIGITS = 4
NONE_OPEN = "none is open, so there is nothing to close; copriv-owner ledger show lists all"


@click.group()
def ledger() -> None:
    """The budget: what the records have promised and spent."""


ledger_argument = click.argument("path", metavar="LEDGER", type=A_FILE)


@ledger.command()
@ledger_argument
@click.option(
    "--settings",
    type=A_FILE,
    metavar="OWNER.toml",
    help="Also say what is left of the policy's lifetime budget.",
)
def show(path: Path, settings: Path | None) -> None:
    """Show every study of a ledger as a table; the owner may be serving.

    Example: copriv-owner ledger show ledger.sqlite --settings owner.toml
    """
    meta, studies = read_studies(path)
    # Narrow enough for 80 columns: names are folded, never cut, and numbers stay whole.
    table = Table(title=f"ledger of {meta['owner']}", box=box.SIMPLE_HEAD, pad_edge=False)
    table.collapse_padding = True
    for head in ("study", "learner"):
        table.add_column(head, overflow="fold")
    for head in ("epsilon", "spent", "left", "responses"):
        table.add_column(head, no_wrap=True, justify="right")
    for head in ("opened", "state"):
        table.add_column(head, no_wrap=True)
    for entry in studies:
        reserved = entry.epsilon_held - entry.epsilon_spent
        cells = (
            entry.study_id,
            entry.learner,
            _decimal(entry.epsilon, up=True),
            _decimal(entry.epsilon_spent, up=True),
            _decimal(reserved),
            f"{entry.account.answered} of {entry.account.promised}",
            entry.opened[:10],
            "INSECURE " * entry.insecure_noise + ("closed" if entry.closed else "open"),
        )
        # As it is: rich would read brackets and colons in a name as its own signs.
        table.add_row(*map(Text, cells))
    console().print(table)
    held = exact_sum(entry.epsilon_held for entry in studies)
    spent = exact_sum(entry.epsilon_spent for entry in studies)
    of, left = "", ""
    if settings is not None:
        from owner.lifetime import epsilon_left  # noqa: PLC0415 (keeps --help quick)
        from owner.policy import OwnerSettings  # noqa: PLC0415

        its = load_settings(OwnerSettings, settings)
        policy = _policy_of(its, settings, ledger=path, owner=str(meta["owner"]))
        of = f" of {_decimal(policy.epsilon_lifetime)}"
        left = f"; {_decimal(epsilon_left(policy, studies))} is left"
        more = epsilon_uncounted(studies, kappa=policy.kappa)
        if more:
            left += (
                f", since kappa = {policy.kappa} adds {_decimal(more, up=True)} to what was spent"
            )
    click.echo(
        f"{_decimal(held, up=True)} of the lifetime budget{of} is spent or reserved: "
        f"{_decimal(spent, up=True)} spent, {_decimal(held - spent)} left to open studies{left}"
    )
    if any(entry.insecure_noise for entry in studies):
        click.echo("INSECURE: some noise came from a seed; those responses protected nobody")


def _policy_of(its: OwnerSettings, settings: Path, *, ledger: Path, owner: str) -> Policy:
    """The policy of settings; warns of those of another owner, which name another ledger.

    Args:
      its: What the settings say.
      settings: Where they are.
      ledger: The ledger that is shown, which may be a copy of the settings' own.
      owner: Whose it is; another study may know the owner by another name.
    """
    own = real_path(settings.parent / its.ledger.path)
    if its.name != owner and own != real_path(ledger):
        warnings.warn(
            f"{ledger} is of {owner}, and {settings} is of {its.name}, whose ledger is {own}: what "
            "is left is said by that one's policy; give the settings of the same owner",
            DoubtWarning,
            stacklevel=2,
        )
    return its.policy


def _decimal(value: Fraction, *, up: bool = False) -> str:
    """An amount as the table has it; ledger export has it exactly."""
    return as_decimal(value, digits=SHOWN_DIGITS, up=up)


@ledger.command()
@ledger_argument
def export(path: Path) -> None:
    """Print a ledger as JSON, amounts as exact rationals.

    Example: copriv-owner ledger export ledger.sqlite > ledger.json
    """
    history = read_history(path)
    click.echo(f'{{"meta": {json.dumps(history.meta)},')
    click.echo(f'"feature_maps": {json.dumps(_feature_maps(history))},\n"studies": [')
    # Study by study: all charges of a long life do not fit the memory twice.
    for left, (entry, records) in zip(
        range(len(history.studies) - 1, -1, -1), history.studies, strict=True
    ):
        click.echo(json.dumps(_exported(entry, records), indent=1) + ("," if left else ""))
    click.echo("]}")


def _feature_maps(history: History) -> dict[str, str]:
    """The texts of all feature maps, each once, by the digest that terms name."""
    named = {entry.noted_terms.feature_map for entry, _ in history.studies if entry.terms}
    return {digest: history.texts[digest] for digest in sorted(named)}


def _exported(entry: StudyEntry, records: bytes) -> dict[str, Any]:
    """One study with all its charges, for programs."""
    return {
        "study_id": entry.study_id,
        "learner": entry.learner,
        "epsilon": str(entry.epsilon),
        "epsilon_spent": str(entry.epsilon_spent),
        "epsilon_held": str(entry.epsilon_held),
        "promised": entry.account.promised,
        "answered": entry.account.answered,
        "noise_scale": entry.noise_scale,
        "insecure_noise": entry.insecure_noise,
        "opened": entry.opened,
        "closed": entry.closed,
        "terms": json.loads(entry.terms) if entry.terms else None,
        "charges": [
            {"sequence": sequence, "theta_digest": theta, "charged": time}
            for sequence, (theta, time) in enumerate(charges_of(records), start=1)
        ],
    }


@ledger.command()
@ledger_argument
def verify(path: Path) -> None:
    """Check that every charge is counted once; exit status 3 if not.

    Example: copriv-owner ledger verify ledger.sqlite
    """
    findings = verify_ledger(path)
    if findings:
        raise RefusedError(f"{path}: " + "; ".join(findings))
    click.echo(f"{path}: sound: every charge is as it was written, and counted once")


@ledger.command("close")
@ledger_argument
@click.argument("study", metavar="STUDY")
def close_study(path: Path, study: str) -> None:
    """Close a study that its learner has not closed.

    Its unused epsilon is free for others again. Stop the owner first: one process at a time holds
    a ledger. A closed study gets no more answers, whoever closed it. STUDY is the name in ledger
    show.

    Example: copriv-owner ledger close ledger.sqlite spring-4f1c
    """
    meta, entries = read_studies(path)
    found = {entry.study_id: entry for entry in entries}
    if study not in found:
        names = [entry.study_id for entry in entries if not entry.account.closed]
        give = f"give one of the open ones: {', '.join(names)}" if names else NONE_OPEN
        raise InputError(f"{path}: no study {study!r} was enrolled; {give}")
    before = found[study]
    if before.account.closed:
        click.echo(f"{study}: was closed at {before.closed}; {in_words(before)}")
        return
    # The ledger's own fingerprint: nothing is answered here, so the records need not be there.
    fingerprint = read_meta(path)["shard_fingerprint"]
    with contextlib.closing(Ledger(path, owner=meta["owner"], fingerprint=fingerprint)) as held:
        held.close_study(study)
        entry = held.study(study)
    click.echo(f"{study}: closed; {in_words(entry or before)}")
