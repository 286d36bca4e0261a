"""The files that ``scripts/messages.py`` makes its mistakes with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

STUDY = """\
name = "spring"
seed = 1
[data]
path = "stays.csv"
[features]
public = { rows = ":40" }
target = "days"
columns = ["age", "sex"]
[model]
theta_max = 2
[algorithm]
horizon = 4
rho = 1
[privacy]
epsilon = 1
[network]
patience = 0.01
deadline = 1
[[owners]]
name = "north"
data = { rows = "40:", where = { county = "North" } }
[[owners]]
name = "south"
data = { rows = "40:", where = { county = "South" } }
"""
OWNER = """\
name = "north"
listen = "127.0.0.1:0"
[data]
path = "north.csv"
columns = ["age", "sex", "days"]
[policy]
epsilon_per_study = 1
epsilon_lifetime = 2
"""
INVITED = '{"format": "copriv-invited/1", "study": "spring", "owners": {}}'


def rows(count: int) -> Iterator[str]:
    yield "age,sex,county,days,died,gaps"
    for i in range(count):
        age, county = 20 + 7 * i % 60, ("North", "South")[i % 2]
        died, gap = ("no", "yes")[i % 5 == 0], "" if i == 3 else i % 11
        yield f"{age},{'FM'[i % 3 == 0]},{county},{1 + (age * i) % 17},{died},{gap}"


def write_files(folder: Path) -> None:
    """Tables and settings, each of them right."""
    table = list(rows(120))
    (folder / "stays.csv").write_text("\n".join(table) + "\n")
    (folder / "north.csv").write_text("\n".join([table[0], *table[41:]]) + "\n")
    (folder / "headless.csv").write_text("\n".join(table[1:]) + "\n")
    days = sum(int(line.split(",")[3]) for line in table[1:])
    (folder / "totals.csv").write_text("\n".join([*table, f"Total,,,{days},,"]) + "\n")
    (folder / "few.csv").write_text("\n".join(table[:10]) + "\n")
    (folder / "few.toml").write_text(OWNER.replace("north.csv", "few.csv"))
    (folder / "bare.csv").write_text("age\n40\n")
    (folder / "stays.xlsx").write_text("PK")
    place = 'database = "env:NO_SUCH_DATABASE"\nquery = "select 1"'
    (folder / "nodata.toml").write_text(STUDY.replace('path = "stays.csv"', place))
    (folder / "study.toml").write_text(STUDY)
    (folder / "owner.toml").write_text(OWNER)
