"""Let commands run under limits of how many processes and threads there may be.

The limits are those of a control group (pids). It fails where a command ends by a signal, in a
traceback, in another sentence than that of such a limit, or not at all. Needs root.

Usage: python tests/tools/few_threads.py [--most 80] [--step 1]
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

from common.thread_limit import NO_MORE_THREADS

STUDY = str(Path(__file__).parents[2] / "examples/hospitals.toml")
COMMANDS = {
    "simulate": ["simulate", STUDY, "--set", "privacy.epsilon=100"],
    "simulate in memory": ["simulate", STUDY, "--in-memory", "--set", "privacy.epsilon=100"],
    "forecast": ["forecast", STUDY, "--quick"],
    "sweep": ["sweep", STUDY, "--grid", "privacy.epsilon=10,100", "--seeds", "2"],
}
COPRIV = [sys.executable, "-c", "from learner.start import main; main()"]
SECONDS = 120.0
# Of control groups of version 1, and of version 2.
ROOTS = (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup"))


@contextmanager
def group(most):
    """A control group that may have so many processes and threads."""
    folder = next(root for root in ROOTS if root.is_dir()) / f"copriv-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / "pids.max").write_text(str(most))
        yield folder / "cgroup.procs"
    finally:
        give_up = time.monotonic() + 10.0
        while left := (folder / "cgroup.procs").read_text().split():
            if time.monotonic() > give_up:
                for process in left:
                    os.kill(int(process), signal.SIGKILL)
            time.sleep(0.05)
        folder.rmdir()


def outcome(arguments, most):
    """What became of a command under such a limit, and what it said of it."""
    with tempfile.TemporaryDirectory() as folder, group(most) as members:
        begin = ["sh", "-c", f'echo $$ > {members}; exec "$@"', "sh", *COPRIV]
        process = subprocess.Popen(
            [*begin, *arguments, "--out", f"{folder}/out"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            _, errors = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return "faulty", "it did not end"
    if process.returncode == 0:
        return "ended well", ""
    said = errors.strip().splitlines() or [""]
    is_told = said[-1].startswith("copriv: ") and said[-1].endswith(NO_MORE_THREADS)
    if process.returncode in (1, 4) and is_told and "Traceback" not in errors:
        return "refused in a sentence", ""
    return "faulty", f"status {process.returncode}: {errors[-300:]}"


def main():
    """Try each command under each limit."""
    parser = argparse.ArgumentParser(description="copriv under limits of threads")
    parser.add_argument("--most", type=int, default=80)
    parser.add_argument("--step", type=int, default=1)
    options = parser.parse_args()
    counts = Counter()
    for name, arguments in COMMANDS.items():
        for most in range(1, options.most + 1, options.step):
            came, said = outcome(arguments, most)
            counts[came] += 1
            if came == "faulty":
                print(f"{name} with at most {most}: {said}", flush=True)
            # More changes nothing any more.
            if came == "ended well" and most > options.most // 2:
                break
    print(f"{counts.total()} runs: " + ", ".join(f"{n} {came}" for came, n in counts.items()))
    return int(counts["faulty"] > 0)


if __name__ == "__main__":
    sys.exit(main())
