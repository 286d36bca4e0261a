"""The commands about owners at other sites, as they are typed."""

from __future__ import annotations

from pathlib import Path

import click

from common.command import address_value, checked_option, console, out_folder
from common.names import check_name
from common.typed_paths import A_FILE, A_FOLDER
from learner.commands.options import days_option, load_study, overrides_option, study_argument

certs_option = click.option(
    "--certs",
    type=A_FOLDER,
    default=Path("certs"),
    show_default=True,
    metavar="FOLDER",
    help="Where the study's CA and the learner's files are.",
)


@click.command()
@study_argument
@overrides_option
@certs_option
@out_folder("Where the invitations go.", default=Path("invitations"))
@click.option(
    "--learner", default="learner", metavar="NAME", show_default=True, help="The learner's name."
)
@click.option(
    "--address",
    callback=address_value,
    metavar="HOST:PORT",
    help="Where owners that attach reach the learner.",
)
def invite(
    study: Path,
    overrides: tuple[str, ...],
    *,
    certs: Path,
    out: Path,
    learner: str,
    address: str | None,
) -> None:
    """Write an invitation for each owner of STUDY.toml.

    The study's CA is made if there is none. An invitation holds the study's CA, the owner's
    address, the feature map (columns, kinds, categories, bounds) and the epsilon that is asked:
    nothing secret. The owner types copriv-owner join FILE --data TABLE and sends a request back,
    for copriv admit.

    Example: copriv invite study.toml
    """
    from learner.commands.inviting import invite_owners  # noqa: PLC0415 (keeps --help quick)

    invite_owners(
        load_study(study, overrides, None),
        base=study.parent,
        certs=certs,
        out=out,
        learner=checked_option("--learner", learner, check_name),
        reached_at=address,
        console=console(width=120),
    )


@click.command()
@click.argument("requests", metavar="REQUEST...", nargs=-1, required=True, type=A_FILE)
@certs_option
@days_option
@click.option("--yes", is_flag=True, help="Ask nothing: the fingerprints were compared.")
def admit(requests: tuple[Path, ...], *, certs: Path, days: int, yes: bool) -> None:
    """Sign the requests of owners that were invited.

    Each certificate is written beside its request. Shows the fingerprint that copriv-owner join
    showed to the owner; compare them by telephone. A request that is admitted again gets a new
    certificate, which renews the old one.

    Example: copriv admit exchange/*.request
    """
    from learner.commands.inviting import admit_requests  # noqa: PLC0415 (keeps --help quick)

    admit_requests(
        requests,
        certs=certs,
        days=days,
        agree=lambda question: yes or click.confirm(question),
        console=console(width=120),
    )


@click.command()
@study_argument
@overrides_option
@click.option("--all", "every", is_flag=True, help="Show what passes, too.")
@click.option("--insecure", is_flag=True, help="INSECURE: plain text to other machines.")
def check(study: Path, overrides: tuple[str, ...], *, every: bool, insecure: bool) -> None:
    """Look at all sites of STUDY.toml before anything is spent.

    Prints a table of sites by rules: is the site reached, does its certificate fit and how many
    days are left, is it who the study says, do versions, clocks, columns, feature map, loss and
    budget agree. A dash means not checked. How the records fit the map is seen at each site only
    (copriv-owner check). Exit status 2: something fails, and the sentences below say what to do.

    Example: copriv check study.toml
    """
    from learner.commands.checking import check_study  # noqa: PLC0415 (keeps --help quick)

    check_study(
        load_study(study, overrides, None),
        base=study.parent,
        insecure=insecure,
        every=every,
        console=console(width=120),
    )


@click.command()
@study_argument
@overrides_option
def doctor(study: Path, overrides: tuple[str, ...]) -> None:
    """Check that this machine is ready for STUDY.toml.

    No other site needs to be running, and nothing is written. A table of rules: versions,
    settings, certificate and its days, key and tokens, ports, clock, proxies, disk, memory,
    public records and feature map. Each passes, fails with a reason and what to do, or is not
    checked. Exit status 2: something fails. copriv check looks at the sites themselves.

    Example: copriv doctor study.toml
    """
    from common.findings import show  # noqa: PLC0415 (keeps --help quick)
    from learner.commands.doctor import study_findings  # noqa: PLC0415

    show(tuple(study_findings(study, overrides)))


@click.command()
@click.argument("run", metavar="RUN", type=A_FOLDER)
@click.option("--abandon", is_flag=True, help="End a run that has not finished, for good.")
@click.option("--insecure", is_flag=True, help="INSECURE: plain text to other machines.")
def close(run: Path, *, abandon: bool, insecure: bool) -> None:
    """Give unused epsilon back to owners that were away at the end.

    Owners that have closed already are not asked. Exit status 4: one is still away; the same
    command closes it later. An owner's own officer can do it too (copriv-owner ledger close).

    Example: copriv close runs/spring
    """
    from learner.commands.closing import close_run  # noqa: PLC0415 (keeps --help quick)

    close_run(run, abandon=abandon, insecure=insecure, console=console(width=120))
