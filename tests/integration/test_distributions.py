"""What is built of the sources: an archive of all of them, and from it the same wheel."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from mutants import copy_tree

ROOT = Path(__file__).resolve().parents[2]
# What continuous integration runs is of the repository alone.
LEFT_OUT = {".ci/run"}


def built(kind, source):
    """A distribution of the sources in this folder, built without an index."""
    code = f"from setuptools import build_meta as b; print(b.build_{kind}('dist'))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return source / "dist" / done.stdout.splitlines()[-1]


def contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the list of what is kept")
def test_an_archive_of_the_sources_has_all_of_them_and_makes_the_same_wheel(tmp_path):
    pytest.importorskip("setuptools", minversion="77")
    tree = copy_tree(tmp_path / "tree")
    kept = {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()} - LEFT_OUT
    with tarfile.open(built("sdist", tree)) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.glob("copriv-*")
    missing = sorted(name for name in kept if not (unpacked / name).is_file())
    assert missing == []
    assert all((unpacked / name).read_bytes() == (tree / name).read_bytes() for name in kept)
    assert contents(built("wheel", unpacked)) == contents(built("wheel", tree))
