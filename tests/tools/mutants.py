"""Break the functions that privacy rests on, one line at a time, and see whether a test notices.

Each mutant is a named change of one snippet in one function, found by its name wherever it is. It
is applied to a copy of the tree, and the tests that are about it must fail. A mutant that no test
can kill, because the change breaks no promise, says why. The table is part of the tests: whoever
rewrites a snippet rewrites its mutants, and a snippet that is not found ends the run.

Usage: python tests/tools/mutants.py [--only TEXT] [--jobs 2] [--check] [--table FILE]
"""

import argparse
import ast
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("mutants.json")
LONGEST_SECONDS = 300
# A failed test kills, as does a test file that cannot be imported any more, or a crash of the
# interpreter; a test that is not there does not.
KILLED = {1}
FAULTS = {2, 3, 4, 5}


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change of one function.

    Args:
      name: What it takes away.
      function: The function's name, with its class's, "Ledger.charge", and with its module's where
        another has the same: "ledger_checks._accounts".
      old: A snippet that stands in the function once.
      new: What stands there instead.
      tests: The tests that are about it.
      survives: Why no test can kill it; "" for a mutant that must die.
    """

    name: str
    function: str
    old: str
    new: str
    tests: tuple[str, ...]
    survives: str = ""

    @property
    def title(self):
        return f"{self.function}: {self.name}"


def table(path):
    """All mutants; a function's entry gives its tests once."""
    return [
        Mutant(**mutant, function=entry["function"], tests=tuple(entry["tests"]))
        for entry in json.loads(path.read_text())
        for mutant in entry["mutants"]
    ]


@cache
def functions(root):
    """Name -> where its functions stand: file, first and last line from 0."""
    found = {}
    for folder in ("common", "owner"):
        for path in sorted((root / folder).rglob("*.py")):
            for name, node in named(ast.parse(path.read_text())):
                place = (path.relative_to(root), node.lineno - 1, int(node.end_lineno or 0))
                for called in (name, f"{path.stem}.{name}"):
                    found.setdefault(called, []).append(place)
    return found


def named(tree, prefix=""):
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from named(node, f"{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, node


def mutated(mutant):
    """The file and its text with the change.

    Raises:
      ValueError: The function or the snippet is not there once.
    """
    places = functions(ROOT).get(mutant.function, [])
    if len(places) != 1:
        raise ValueError(f"{mutant.title}: the function stands {len(places)} times, not once")
    path, first, last = places[0]
    lines = (ROOT / path).read_text().splitlines(keepends=True)
    body = "".join(lines[first:last])
    if body.count(mutant.old) != 1:
        raise ValueError(
            f"{mutant.title}: in {path} the snippet stands {body.count(mutant.old)} times, not "
            f"once; bring it up to date: {mutant.old!r}"
        )
    text = "".join(lines[:first]) + body.replace(mutant.old, mutant.new) + "".join(lines[last:])
    ast.parse(text)
    return path, text


def copy_tree(to):
    """The files that git knows of, as they are now."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    return to


def status(tree, tests):
    """pytest's exit status in a tree; negative after a crash, None when it did not end."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            return process.wait(LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            return None


def verdict(mutant, tree):
    """What became of a mutant in a tree, which is as before afterwards."""
    path, text = mutated(mutant)
    whole = (tree / path).read_text()
    (tree / path).write_text(text)
    try:
        ended = status(tree, mutant.tests)
    finally:
        (tree / path).write_text(whole)
    if ended in FAULTS:
        return f"FAULT (pytest ended with {ended})"
    killed = ended is None or ended < 0 or ended in KILLED
    if mutant.survives:
        return "KILLED, although said to survive" if killed else "survives as said"
    how = "" if ended == 1 else " (it hung)" if ended is None else f" (crash, signal {-ended})"
    return f"killed{how}" if killed else "SURVIVED"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="Only titles that contain this.")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--check", action="store_true", help="Only look whether all apply.")
    parser.add_argument("--table", type=Path, default=TABLE, help="Other mutants than these.")
    options = parser.parse_args()
    chosen = [mutant for mutant in table(options.table) if options.only in mutant.title]
    faults = []
    for mutant in chosen:
        try:
            mutated(mutant)
        except (ValueError, SyntaxError) as error:
            faults.append(str(error))
    if faults or options.check:
        functions_of = {mutant.function for mutant in chosen}
        print("\n".join(faults) or f"{len(chosen)} mutants of {len(functions_of)} functions apply")
        return 2 if faults else 0
    told = Counter()
    with tempfile.TemporaryDirectory(prefix="mutants-") as made:
        trees = queue.Queue()
        for job in range(options.jobs):
            trees.put(copy_tree(Path(made) / str(job)))
        tree = trees.get()
        every = tuple(sorted({test for mutant in chosen for test in mutant.tests}))
        if status(tree, every) != 0:
            print(f"before any change these do not pass: {' '.join(every)}")
            return 2
        trees.put(tree)

        def one(mutant):
            tree = trees.get()
            try:
                return mutant, verdict(mutant, tree)
            finally:
                trees.put(tree)

        with ThreadPoolExecutor(options.jobs) as executor:
            for mutant, what in executor.map(one, chosen):
                told[what.split(" (")[0]] += 1
                why = f": {mutant.survives}" if what == "survives as said" else ""
                print(f"{what:10} {mutant.title}{why}", flush=True)
    print(", ".join(f"{count} {what}" for what, count in sorted(told.items())))
    return 0 if set(told) <= {"killed", "survives as said"} else 1


if __name__ == "__main__":
    sys.exit(main())
