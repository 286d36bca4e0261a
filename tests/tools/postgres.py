"""A PostgreSQL server of the tests' own, in a folder of its own, reached by a socket alone."""

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from glob import glob
from pathlib import Path
from urllib.parse import quote

# The server does not run as root; these are tried in turn.
USERS = ("postgres", "nobody")
SECONDS = 60


def server_programs():
    """Where this machine has the server's programs; None where it has none."""
    found = shutil.which("initdb")
    folders = [str(Path(found).resolve().parent)] if found else []
    folders += sorted(glob("/usr/lib/postgresql/*/bin"), reverse=True)
    return next((Path(one) for one in folders if Path(one, "postgres").exists()), None)


@contextmanager
def running_server(programs):
    """A server with an empty database; the address to reach it at."""
    user = _user()
    # The path of a socket has 107 bytes at most, which a test's own folder may exceed.
    with tempfile.TemporaryDirectory(prefix="copriv-pg-") as made:
        if user:
            os.chown(made, pwd.getpwnam(user).pw_uid, -1)
        data = f"{made}/data"

        def call(program, *given):
            subprocess.run(
                [programs / program, "-D", data, *given],
                check=True,
                user=user,
                cwd=made,
                stdout=subprocess.DEVNULL,
                timeout=SECONDS,
            )

        call("initdb", "--username=tester", "--auth=trust", "--encoding=UTF8", "--no-sync")
        options = f"-k {made} -c listen_addresses='' -c fsync=off"
        call("pg_ctl", "--wait", "--log", f"{made}/log", "-o", options, "start")
        try:
            yield f"postgresql:///postgres?host={quote(made, safe='')}&user=tester"
        finally:
            call("pg_ctl", "--wait", "--mode=immediate", "stop")


def _user():
    """Who the server runs as: whoever runs the tests, but not root."""
    if os.geteuid() != 0:
        return None
    names = {each.pw_name for each in pwd.getpwall()}
    return next(name for name in USERS if name in names)
