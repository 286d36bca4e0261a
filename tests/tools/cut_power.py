"""Cut the power of an owner's disk again and again while two learners train with it.

The owner's folder is a file system of its own in a file: ext4, xfs or btrfs. At a cut the owner is
stopped, the file is copied as it is, and the owner killed; the copy is mounted in its place, and
the owner starts again.
So what had not reached the disk is gone; a file that is never synced shows that it is. Where the
system wrote that file of its own accord, another cut is made. Needs root.

It fails where kill_owner.py fails: a number was answered in two ways or for two models, or a
response that was given is lost.

Usage: python tests/tools/cut_power.py [--cuts 40] [--block 1] [--mount data=writeback] [--seed 1]
    [--filesystem ext4]
"""

import argparse
import json
import os
import random
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from kill_owner import LEARNERS, Run
from lone_owner import write_owner
from race_owner import Lives

from owner.ledger_reading import read_studies, verify_ledger

RESPONSES = 1000
LONGEST_LIFE_SECONDS = 0.25
# How large a file system is: no smaller one of its kind can be made.
SIZES = {"ext4": 2**25, "xfs": 320 * 2**20, "btrfs": 128 * 2**20}
PIECE = b"never synced" * 1000
# A cut may lose nothing: the system writes what it likes, when it likes. So many are made for one.
MOST_CUTS_FOR_ONE = 5


class Disk:
    """A file system whose power can be cut."""

    def __init__(self, folder, kind, options):
        self.device, self.at, self.options = folder / "device", folder / "disk", options
        self.cuts = 0
        self.at.mkdir()
        self.device.write_bytes(b"")
        os.truncate(self.device, SIZES[kind])
        subprocess.run([f"mkfs.{kind}", "-q", self.device], check=True, capture_output=True)
        self.mount()

    def mount(self):
        options = ",".join(filter(None, ("loop", self.options)))
        subprocess.run(["mount", "-o", options, self.device, self.at], check=True)

    def unmount(self):
        # Of a process that was killed some file may be open for a moment longer.
        for _ in range(100):
            done = subprocess.run(["umount", self.at], check=False, capture_output=True)
            if done.returncode == 0:
                return
            time.sleep(0.1)
        raise AssertionError(f"{self.at} is in use")

    def cut(self, kill):
        """Kill who writes to it; what had not reached the device by then is gone."""
        # A new name each time: what takes the place of an older file is written at once by ext4.
        never = self.at / f"never-synced-{self.cuts}"
        never.write_bytes(PIECE)
        self.cuts += 1
        copy = self.device.with_suffix(".copy")
        while True:
            subprocess.run(["cp", "--sparse=always", self.device, copy], check=True)
            # The system itself may write meanwhile.
            if subprocess.run(["cmp", "-s", self.device, copy], check=False).returncode == 0:
                break
        kill()
        self.unmount()
        copy.replace(self.device)
        self.mount()
        return not (never.exists() and never.read_bytes() == PIECE)


def cut(folder, *, cuts, block, mount, seed, filesystem="ext4"):
    """Cut the power so often, and let the learners end."""
    disk = Disk(folder, filesystem, mount)
    try:
        settings, feature_map = write_owner(
            disk.at, "mortal", epsilon_lifetime="100000", enrollments_per_hour=100000, block=block
        )
        os.sync()
        owner = Lives(settings)
        try:
            return _cut(disk, owner, feature_map, folder, cuts, block, random.Random(seed))
        finally:
            owner.end(signal.SIGTERM)
    finally:
        disk.unmount()


def _stop(process):
    """Stop all threads: after the signal they go on for a moment, on a busy machine for long."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)


def answers(runs):
    return sum(len(one.witness.seen) for one in runs)


def _cut(disk, owner, feature_map, folder, cuts, block, choices):
    runs, lost = [], 0
    while lost < cuts:
        before = disk.cuts
        batch = [
            Run(f"s{n}", feature_map, owner.port, folder / f"{n}.sqlite", RESPONSES)
            for n in range(len(runs), len(runs) + LEARNERS)
        ]
        runs += batch
        while lost < cuts and any(one.thread.is_alive() for one in batch):
            # They look for the owner less and less often: a life begins with its first answer.
            given = answers(batch)
            while answers(batch) == given and any(one.thread.is_alive() for one in batch):
                time.sleep(0.005)
            time.sleep(choices.uniform(0.0, LONGEST_LIFE_SECONDS))
            _stop(owner.process)
            lost += disk.cut(lambda: owner.end(signal.SIGKILL))
            owner.process = owner.begin()
            assert disk.cuts <= cuts * MOST_CUTS_FOR_ONE, "the system itself writes all at once"
        for one in batch:
            one.thread.join(90)
            one.check()
            one.witness.disconnect()
            # Strict charges lose nothing; a block is lost to each cut at most.
            assert one.lost <= (0 if block == 1 else block * (disk.cuts - before))
    ledger = disk.at / "ledger.sqlite"
    entries = read_studies(ledger)[1]
    assert [entry.account.answered for entry in entries] == [RESPONSES] * len(runs)
    assert verify_ledger(ledger) == []
    return {
        "cuts": disk.cuts,
        "cuts_that_lost_what_was_not_synced": lost,
        "studies": len(runs),
        "promised": RESPONSES * len(runs),
        "responses": answers(runs),
        "lost": sum(one.lost for one in runs),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuts", type=int, default=40)
    parser.add_argument("--block", type=int, default=1)
    parser.add_argument("--mount", default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--filesystem", choices=SIZES, default="ext4")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        print(json.dumps(cut(Path(made), **vars(options)), indent=2))
