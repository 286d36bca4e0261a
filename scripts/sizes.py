"""Whether modules, classes and functions are small: a larger one holds more than one thing."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("common", "learner", "owner")
GENERATED = Path("common/pb")
LARGEST_MODULE, LARGEST_CLASS, LARGEST_FUNCTION = 400, 200, 60


def too_large(path: Path) -> Iterator[str]:
    """One sentence for each thing of a module that is too large."""
    text = path.read_text(encoding="utf-8")
    length = len(text.splitlines())
    if length > LARGEST_MODULE:
        yield f"{path}:1: the module has {length} lines, at most {LARGEST_MODULE} are allowed"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            kind, largest = "class", LARGEST_CLASS
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            kind, largest = "function", LARGEST_FUNCTION
        else:
            continue
        # A decorator is a line of what it decorates: a command's options count.
        first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        length = (node.end_lineno or first) - first + 1
        if length > largest:
            yield (
                f"{path}:{first}: {kind} {node.name} has {length} lines, at most {largest} "
                "are allowed"
            )


def main() -> int:
    """Print what is too large; 1 if anything is."""
    paths = sorted(path for package in PACKAGES for path in Path(package).rglob("*.py"))
    found = [
        sentence for path in paths if GENERATED not in path.parents for sentence in too_large(path)
    ]
    print("\n".join(found) or "no module, class or function is too large")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
