"""A process that may open too few files says so, whatever it was to do."""

import errno
import os
import subprocess
import sys

import pytest

from common import diagnosis

MAIN = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({most}, {most}))
from {module}.cli import main
sys.argv = sys.argv[1:]
main()
"""
TYPED = (
    ("owner", "copriv-owner", "serve", "owner.toml"),
    ("owner", "copriv-owner", "ledger", "show", "ledger.sqlite"),
    ("learner", "copriv", "train", "study.toml"),
)


# With 20 gRPC ended an owner by SIGSEGV; with 12 its ledger was said to be unwritable.
@pytest.mark.parametrize("most", [20, 63])
@pytest.mark.parametrize("typed", TYPED, ids=lambda typed: " ".join(typed[1:3]))
def test_a_process_that_may_open_too_few_files_ends_in_a_sentence_that_says_so(
    typed, most, tmp_path
):
    module, *arguments = typed
    ended = subprocess.run(
        [sys.executable, "-c", MAIN.format(module=module, most=most), *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert f"a process may open {most} files and connections here, and 64 are" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_who_is_not_reached_for_want_of_files_is_told_so(monkeypatch):
    """Its address and the network are right."""

    def full(*_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(diagnosis, "open_connection", full)
    found = diagnosis.why_unreachable("127.0.0.1:1", None, far="owner", timeout=1.0)
    assert "(Too many open files); this machine lets us open too few files" in found.sentence
    assert "network" not in found.sentence
