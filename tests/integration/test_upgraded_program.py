"""A run goes on while another version is installed over the program's files."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSION = "0.0.7"
METADATA = f"Metadata-Version: 2.1\nName: copriv\nVersion: {VERSION}\n"
# All files go when the first tick is due. The owners then enrol the study of validation, and the
# learner writes its report.
SIMULATES = """
import shutil, sys
from learner.cli import main
from learner.training.pace import Pace

site, wait_for = sys.argv.pop(1), Pace.wait_for

def replaced(*args):
    shutil.rmtree(site, ignore_errors=True)
    wait_for(*args)

Pace.wait_for = replaced
main()
"""


def test_a_run_needs_no_file_of_the_program_once_it_has_begun(tmp_path):
    site, run = tmp_path / "site", tmp_path / "run"
    for package in ("common", "learner", "owner"):
        shutil.copytree(ROOT / package, site / package)
    told = site / f"copriv-{VERSION}.dist-info" / "METADATA"
    told.parent.mkdir()
    told.write_text(METADATA)
    study = ROOT / "examples/hospitals.toml"
    typed = [sys.executable, "-c", SIMULATES, site, "simulate", study, "--yes", "--out", run]
    result = subprocess.run(
        typed,
        env=os.environ | {"PYTHONPATH": str(site)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert not site.exists()
    assert (run / "report.html").stat().st_size > 0
    # The version that trained, not the one that is installed by the end.
    assert json.loads((run / "summary.json").read_text())["versions"]["copriv"] == VERSION
