"""What of this machine a study needs, whichever side it is: one finding for each rule.

Nobody else is asked, nothing is written, and nothing is changed.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path

from common.addresses import check_free
from common.errors import InputError
from common.findings import Finding, State, fails, found_by, passes, unchecked
from common.memory_limit import available_bytes
from common.own_files import everybodys_folder, is_read_by_others, is_written_by_all
from common.proxies import PROXIES, proxy_for
from common.tables import TableSource
from common.tls import host_and_port

DISTRIBUTION = "copriv"
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)[ \t]*(?:\[[^\]]*\])?[ \t]*([^;]*)$", re.ASCII)
_BOUND = re.compile(r"(>=|<)[ \t]*([0-9]+(?:\.[0-9]+)*)", re.ASCII)
# Less room than this, and a ledger or a run may not come to its end.
LEAST_ROOM_BYTES = 64 * 2**20
# A file from another machine may be a little ahead of this one.
CLOCK_SLACK = timedelta(minutes=5)
ENTROPY_BYTES = 32
# With so much left a table that stays where it is is read, whatever batches its file has: one of
# 1.5 million rows and 13 columns of numbers took 0.6 GB for a moment, and where there was less the
# kernel ended its owner without a word.
READING_BYTES = 2**30


def machine_findings(settings_file: Path) -> Iterator[Finding]:
    """Versions, clock and random numbers.

    Args:
      settings_file: The settings; the clock cannot be before they were written.
    """
    about = metadata.metadata(DISTRIBUTION)
    python = ".".join(str(part) for part in sys.version_info[:3])
    wanted = about["Requires-Python"] or ""
    if lies_within(python, wanted):
        yield passes("version", f"copriv {about['Version']} on Python {python}")
    else:
        yield fails("version", f"Python {python} is not {wanted}; install copriv for such a Python")
    yield found_by("libraries", _libraries)
    yield _clock(settings_file)
    yield _entropy()


def lies_within(version: str, bounds: str) -> bool:
    """Whether a version keeps bounds from below and above, the only ones that copriv states.

    >>> lies_within("0.14.1", ">=0.13,<0.17"), lies_within("1.9", ">=1.10")
    (True, False)
    """
    numbers = _numbers(version)
    return all(
        numbers >= _numbers(bound) if sign == ">=" else numbers < _numbers(bound)
        for sign, bound in _BOUND.findall(bounds)
    )


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version, without zeros at its end."""
    found = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    text = re.sub(r"(?:\.0+)+$", "", found[0]) if found else "0"
    return tuple(int(part) for part in text.split("."))


def _libraries() -> str:
    """The libraries that copriv cannot do without, against the ranges of its metadata."""
    required = [_REQUIREMENT.match(line) for line in metadata.requires(DISTRIBUTION) or ()]
    wrong, count = [], 0
    for name, bounds in (found.groups() for found in required if found):
        count += 1
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{name} is missing")
            continue
        if not lies_within(version, bounds):
            wrong.append(f"{name} {version} is not {bounds.strip()}")
    if wrong:
        raise InputError(f"{'; '.join(wrong)}; install copriv again, with pip install copriv")
    return f"all {count} are in the range that this version needs"


def _clock(settings_file: Path) -> Finding:
    """Whether it is later than when the program and the settings were written."""
    now = datetime.now(UTC)
    for path, what in ((Path(__file__), "this program"), (settings_file, str(settings_file))):
        try:
            written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        except OSError:
            # Settings that cannot be read are said to be so.
            continue
        if now < written - CLOCK_SLACK:
            return fails(
                "clock",
                f"it says {now:%Y-%m-%d %H:%M} UTC, before {what} was written "
                f"({written:%Y-%m-%d %H:%M}); set it right, or certificates seem not valid yet",
            )
    return passes("clock", f"it says {now:%Y-%m-%d %H:%M} UTC; compare it with your own")


def _entropy() -> Finding:
    """Whether the kernel gives random numbers at once."""
    try:
        os.getrandom(ENTROPY_BYTES, os.GRND_NONBLOCK)
    except BlockingIOError:
        return fails(
            "entropy",
            "the kernel's random numbers are not ready; wait, or give the machine a source "
            "(virtio-rng, rngd)",
        )
    return passes("entropy", "the kernel's random numbers are ready")


def mode_finding(rule: str, path: Path) -> Finding:
    """Whether others can neither read nor replace a private file."""
    try:
        found = path.stat()
    except OSError as error:
        return fails(rule, f"{path}: cannot be read ({error.strerror}); give its path")
    mode = stat.S_IMODE(found.st_mode)
    if not os.access(path, os.R_OK):
        return fails(
            rule,
            f"{path}: this user may not read it (mode {mode:o}); type this as the user that it "
            "belongs to, or chown it to this one",
        )
    if is_read_by_others(found):
        return fails(rule, f"{path}: others can read it (mode {mode:o}); chmod 600 it")
    folder = everybodys_folder(path)
    if folder is not None:
        return fails(rule, f"{path}: others can replace it; chmod o-w {folder}")
    return passes(rule, f"{path}: mode {mode:o}")


def written_findings(rule: str, path: Path) -> Iterator[Finding]:
    """That others can write a file that says who is let in, if they can.

    Args:
      rule: The rule's name.
      path: The file; one that cannot be found is told of where it is read.
    """
    if not os.path.exists(path):
        return
    found, folder = path.stat(), everybodys_folder(path)
    if is_written_by_all(found):
        mode = stat.S_IMODE(found.st_mode)
        yield fails(rule, f"{path}: others can write it (mode {mode:o}); chmod o-w it")
    elif folder is not None:
        yield fails(rule, f"{path}: others can replace it; chmod o-w {folder}")


def exposed_findings(rule: str, where: str, *, base: Path) -> Iterator[Finding]:
    """That others can read the file of a secret, if it is in one and they can.

    Args:
      rule: The rule's name.
      where: "file:PATH" or "env:NAME", where the secret was found.
      base: The folder where relative paths start.
    """
    kind, _, name = where.partition(":")
    # What cannot be found is told where it is read.
    if kind == "file" and os.path.exists(base / name):
        finding = mode_finding(rule, base / name)
        if finding.state is State.FAILS:
            yield finding


def folder_finding(rule: str, folder: Path) -> Finding:
    """Whether files can be made, kept and synced in a folder, or in the nearest above it."""
    while not os.path.exists(folder) and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        return fails(rule, f"{folder}: cannot be written; make it writable, or give another place")
    room = os.statvfs(folder)
    free = room.f_bavail * room.f_frsize
    if free < LEAST_ROOM_BYTES or (room.f_files and not room.f_favail):
        return fails(rule, f"{folder}: {free / 2**20:.0f} MiB are free; make room there")
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        return fails(
            rule, f"{folder}: its disk does not sync ({error.strerror}); give a place on another"
        )
    finally:
        os.close(handle)
    return passes(rule, f"{folder}: writable, synced, {free / 2**30:.1f} GiB free")


def port_finding(rule: str, address: str, *, serves: Callable[[], bool] = lambda: False) -> Finding:
    """Whether an address of this machine can be listened at.

    Args:
      rule: What it is called.
      address: HOST:PORT.
      serves: Whether whom it is for serves already, so that it may be taken; asked only then.
    """
    try:
        check_free(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE and serves():
            return passes(rule, f"{address} is taken: this owner serves already")
        if error.errno == errno.EADDRINUSE:
            return fails(rule, f"{address} is taken; stop what listens there, or give another port")
        reason = error.strerror or error
        return fails(rule, f"{address} cannot be listened at ({reason}); give an address of ours")
    _, port = host_and_port(address)
    return passes(rule, f"{address} is free" if port else f"{address} takes any free port")


def proxy_findings(addresses: Iterable[str]) -> Iterator[Finding]:
    """What the proxies of the environment do to the ways to these addresses."""
    any_proxy = False
    for address in addresses:
        proxy = proxy_for(host_and_port(address)[0])
        if proxy is None:
            continue
        any_proxy = True
        yield passes("proxy", f"{address}: by {proxy}, which must allow CONNECT to it")
    if not any_proxy:
        named = [name for name in PROXIES if os.environ.get(name)]
        yield passes("proxy", f"none is asked ({', '.join(named) or 'no variable'} is set)")


def memory_finding(needed: int, source: TableSource) -> Finding:
    """Whether a table whose columns take this many bytes goes into the memory that is left."""
    if source.rows is not None or source.where:
        return unchecked("memory", "only rows that count are held, and none is read for this")
    left = available_bytes()
    if left is None:
        return unchecked("memory", "this system does not say how much is left")
    words = f"the table takes about {needed / 2**20:,.0f} MiB, {left / 2**20:,.0f} MiB are left"
    if needed > left:
        return fails("memory", f"{words}; name fewer columns or rows, or take a larger machine")
    return passes("memory", words)


def reading_finding() -> Finding:
    """Whether enough memory is left to read a table that is not held."""
    kept, left = "records stay where they are, shards are kept on the disk", available_bytes()
    if left is None or left >= READING_BYTES:
        return passes("memory", kept)
    return unchecked(
        "memory",
        f"{kept}; {left / 2**20:,.0f} MiB are left, and only {READING_BYTES / 2**20:,.0f} are "
        "surely enough to read them: where they are not, the kernel ends the owner",
    )
