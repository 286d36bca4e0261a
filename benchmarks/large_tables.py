"""What reading two columns of a large table takes of memory, beyond the program's own.

The table has twenty columns of random numbers, as a Parquet file and as a CSV file. Each is read by
a process of its own: two columns, and of its rows those that a condition on one of them selects,
one in 6,000. Printed are the file's size, the largest resident size of a process that has only
imported what reads, and how much larger that of the one that has read is.

Usage: python benchmarks/large_tables.py [--rows 5000000]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from big_shards import write_table

COLUMNS = 20
READ = """
import sys
from pathlib import Path
from common.tables import TableSource, read_table


def largest():
    # That of getrusage is the parent's, where it was larger.
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


before, path = largest(), Path(sys.argv[1])
source = TableSource(path=path, where={"x0": {"min": 3.58}})
table = read_table(source, base=path.parent, columns=["x0", "y"])
print(len(table), before, largest() - before)
"""


def as_csv(parquet: Path, path: Path) -> None:
    """The same rows as text, one group of rows at a time."""
    file = pq.ParquetFile(parquet)
    with pa_csv.CSVWriter(path, file.schema_arrow) as writer:
        for batch in file.iter_batches():
            writer.write_batch(batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        parquet, text = Path(name) / "t.parquet", Path(name) / "t.csv"
        write_table(parquet, asked.rows, COLUMNS)
        as_csv(parquet, text)
        for path in (parquet, text):
            done = subprocess.run(
                [sys.executable, "-c", READ, str(path)], check=True, capture_output=True, text=True
            )
            rows, before, more = map(float, done.stdout.split())
            size = path.stat().st_size / 1e6
            print(
                f"{path.suffix[1:]} of {size:,.0f} MB, {asked.rows:,} rows: {rows:.0f} of them "
                f"read; {before:.0f} MB for the program, {more:.0f} MB more"
            )


if __name__ == "__main__":
    main()
