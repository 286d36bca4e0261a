"""``copriv check``: can every site take part? A table of sites by rules, and nothing is spent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from common.errors import InputError
from common.features import FeatureMap
from common.findings import STYLES, Finding, State
from common.texts import counted
from common.tls import load_identity
from learner.commands.display import listening
from learner.network.connections import remote_owners
from learner.network.sites import look_at_sites
from learner.planning.public_side import prepare_public_side
from learner.planning.settings import StudySettings, with_remote_owners
from learner.results.arrivals import Arrivals
from learner.training.agreement import RULES, UNKNOWN, Asked, findings


def check_study(
    settings: StudySettings, *, base: Path, insecure: bool, every: bool, console: Console
) -> None:
    """Look at all sites of a study at once, and say what fails and what to do about it.

    Args:
      settings: The study.
      base: The folder of its file.
      insecure: Whether plain text may leave this machine.
      every: Whether to show what passes, too.
      console: Where to print.

    Raises:
      InputError: The study itself is wrong, or a rule fails at a site.
    """
    feature_map = prepare_public_side(settings, base=base).feature_map
    found = _look(settings, feature_map, base=base, insecure=insecure, console=console)
    for table in _tables(list(found), list(found.values()), width=console.width):
        console.print(table)
    for finding, names in _sites_of(found).items():
        if every or (finding.state is not State.PASSES and finding.words != UNKNOWN):
            console.print(_sentence(names, finding), highlight=False, soft_wrap=True)
    failed = [
        finding for site in found.values() for finding in site if finding.state is State.FAILS
    ]
    if failed:
        sites = sum(any(f.state is State.FAILS for f in site) for site in found.values())
        raise InputError(
            f"{counted(len({f.rule for f in failed}), 'rule fails', 'rules fail')} at {sites} of "
            f"{counted(len(found), 'site')}; nothing was spent, fix that and check again"
        )
    console.print("nothing fails; nothing was spent", highlight=False)


def _look(
    settings: StudySettings,
    feature_map: FeatureMap,
    *,
    base: Path,
    insecure: bool,
    console: Console,
) -> dict[str, tuple[Finding, ...]]:
    """What was found of each site, by name; the learner's own records are no site."""
    names = [entry.name for entry in settings.owners if entry.name != settings.learner.own]
    remote = with_remote_owners(settings, names)
    entries = remote.owners
    comes = settings.algorithm.initiative == "owner"
    identity = None
    if settings.tls is not None:
        identity = load_identity(settings.tls, base=base, side="server" if comes else "client")

    if comes:
        console.print(
            f"waiting for {', '.join(names)} to come, at most "
            f"{settings.network.patience:g} s (network.patience)",
            highlight=False,
        )
    arrivals = Arrivals(names, patience=settings.network.patience, on_all=lambda: None)
    with (
        closing(arrivals),
        remote_owners(
            remote, feature_map, base=base, insecure=insecure, on_listening=listening(console)
        ) as connections,
    ):
        seen = look_at_sites(
            connections,
            entries,
            identity=None if comes else identity,
            encrypted=identity is not None,
            deadline=settings.network.deadline,
            expected=arrivals.expected if comes else nullcontext,
        )
    return {
        entry.name: findings(
            one,
            Asked(
                name=entry.name,
                feature_map=feature_map,
                loss=settings.model.loss,
                epsilon=settings.promised(entry),
            ),
        )
        for entry, one in zip(entries, seen, strict=True)
    }


def _tables(
    names: Sequence[str], found: Sequence[Sequence[Finding]], *, width: int
) -> Iterator[Table]:
    """Sites by rules; where that is too wide, rules by as many sites as have room, repeatedly."""
    marks = [[_mark(finding) for finding in site] for site in found]
    if _width_of("site", *names) + sum(map(_width_of, RULES)) <= width:
        yield _table(
            ("site", *RULES), [(Text(name), *m) for name, m in zip(names, marks, strict=True)]
        )
        return
    left = list(zip(names, marks, strict=True))
    while left:
        taken = 1
        room = width - _width_of(*RULES)
        while taken < len(left) and sum(_width_of(name) for name, _ in left[: taken + 1]) <= room:
            taken += 1
        some, left = left[:taken], left[taken:]
        columns = [site for _, site in some]
        yield _table(
            ("", *(name for name, _ in some)),
            [(Text(rule), *row) for rule, *row in zip(RULES, *columns, strict=True)],
        )


def _width_of(*words: str) -> int:
    """How many letters a column of these has, with what parts it from the next."""
    return max(map(len, (*words, State.FAILS.value))) + 3


def _mark(finding: Finding) -> Text:
    text = "-" if finding.state is State.UNCHECKED else finding.state.value
    return Text(text, style=STYLES[finding.state])


def _table(heads: Sequence[str], rows: Iterable[Sequence[Text]]) -> Table:
    table = Table(*heads, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    return table


def _sites_of(found: Mapping[str, Sequence[Finding]]) -> dict[Finding, list[str]]:
    """Each finding once, and the names of the sites that share it."""
    sites: dict[Finding, list[str]] = {}
    for name, site in found.items():
        for finding in site:
            sites.setdefault(finding, []).append(name)
    return sites


def _sentence(names: Sequence[str], finding: Finding) -> Text:
    """One finding for people."""
    verb = {State.PASSES: "passes:", State.FAILS: "FAILS:", State.UNCHECKED: "is not checked:"}
    return Text(f"{', '.join(names)}: {finding.rule} {verb[finding.state]} {finding.words}")
