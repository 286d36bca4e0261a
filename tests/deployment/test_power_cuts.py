"""The power of an owner's disk is cut: what was given before is charged, and none of it lost."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[1] / "tools" / "cut_power.py"


@pytest.mark.trouble
@pytest.mark.parametrize("block", [1, 64])
def test_a_cut_of_power_loses_nothing_that_was_given(block):
    if os.geteuid() != 0:
        pytest.skip("NOT ROOT: CUTS OF POWER WERE NOT TESTED")
    command = [sys.executable, str(TOOL), "--cuts", "6", "--block", str(block)]
    told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    # So often a file beside the ledger that nobody synced was gone.
    assert told["cuts_that_lost_what_was_not_synced"] == 6
