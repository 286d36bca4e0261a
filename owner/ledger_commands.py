"""copriv-owner ledger: what the records have promised and spent, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.table import Table
from rich.text import Text

from common.command import console
from common.errors import RefusedError
from common.privacy import exact_sum, in_short
from owner.ledger_reading import History, read_history, read_studies, verify_ledger
from owner.ledger_rows import StudyEntry
from owner.ledger_tables import charges_of

__all__ = ["ledger"]


@click.group()
def ledger() -> None:
    """Read the budget: what the records have promised and spent. Changes nothing."""


ledger_argument = click.argument(
    "path", metavar="LEDGER", type=click.Path(path_type=Path, dir_okay=False)
)


@ledger.command()
@ledger_argument
def show(path: Path) -> None:
    """Show every study of a ledger as a table; the owner may be serving.

    Example: copriv-owner ledger show ledger.sqlite
    """
    meta, studies = read_studies(path)
    table = Table(title=f"ledger of {meta['owner']}", box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("study", "learner", "epsilon", "spent", "responses", "noise", "opened", "closed"):
        table.add_column(head, no_wrap=True)
    for entry in studies:
        answered = f"{entry.account.answered} of {entry.account.promised}"
        spent = f"{float(entry.epsilon_spent):.6g}"
        cells = (
            entry.study_id,
            entry.learner,
            str(entry.epsilon),
            spent,
            answered,
            "INSECURE" if entry.insecure_noise else "secure",
            entry.opened,
            entry.closed or "open",
        )
        # As it is: rich would read brackets and colons in a name as its own signs.
        table.add_row(*map(Text, cells))
    console().print(table)
    held = exact_sum(entry.epsilon_held for entry in studies)
    click.echo(f"of the lifetime budget {in_short(held)} is spent or reserved")
    if any(entry.insecure_noise for entry in studies):
        click.echo("INSECURE: some noise came from a seed; those responses protected nobody")


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
    click.echo(f"{path}: sound")
