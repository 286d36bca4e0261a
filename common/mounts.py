"""Disks that other machines share, where a lock of this machine binds none of them."""

from __future__ import annotations

import os
from pathlib import Path

# As proc_pid_mountinfo(5) has it.
MOUNTS = Path("/proc/self/mountinfo")
# NFS and SMB mounted so that the system keeps locks of whole files to itself.
UNSHARED_LOCKS = frozenset({"nolock", "local_lock=all", "local_lock=flock", "nobrl"})


def unshared_locks(path: Path) -> str | None:
    """Why a lock on a file is not seen by other machines that have the same disk, None if it is.

    Args:
      path: The file, or its folder.

    Returns:
      The kind of file system and its option, "nfs4, local_lock=all"; None for disks of this
      machine, and where the system does not tell.

    >>> unshared_locks(Path("/"))
    """
    try:
        found = os.stat(path).st_dev
        lines = MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    device = f"{os.major(found)}:{os.minor(found)}"
    for fields in (line.split(" ") for line in lines):
        if fields[2:3] == [device] and "-" in fields:
            kind, _, options = fields[fields.index("-") + 1 :][:3]
            if unshared := UNSHARED_LOCKS.intersection(options.split(",")):
                return f"{kind}, {min(unshared)}"
    return None
