"""Make examples/hospitals.parquet from hospital stays of New York State (SPARCS, 2021).

Run it as ``python scripts/make_hospitals.py STAYS.parquet``; see examples/README.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

NUM_HOSPITALS = 11
NUM_PUBLIC = 5000
SEED = 2021
ACCIDENT = {"EmergeNocYes DepartmeNot INodicator": "Emergency Department Indicator"}
COLUMNS = [
    "Facility Name",
    "Age Group",
    "Gender",
    "Type of Admission",
    "Patient Disposition",
    "CCSR Diagnosis Description",
    "Payment Typology 1",
    "Emergency Department Indicator",
    "Length of Stay",
]
ATTRIBUTION = {
    "title": "Hospital Inpatient Discharges (SPARCS De-Identified): 2021, a part",
    "publisher": "New York State Department of Health, Statewide Planning and Research "
    "Cooperative System (SPARCS)",
    "url": "https://health.data.ny.gov/Health/"
    "Hospital-Inpatient-Discharges-SPARCS-De-Identified/tg3i-cinn",
    "terms": "public-use data",
}


def main() -> None:
    """Write the example next to its study file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stays", type=Path, help="the stays of 2021, as Parquet")
    parser.add_argument("--out", type=Path, default=Path("examples/hospitals.parquet"))
    arguments = parser.parse_args()
    stays = pd.read_parquet(arguments.stays).rename(columns=ACCIDENT)[COLUMNS]
    table = select(stays.astype({"Length of Stay": "int32"}))
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    arrow = arrow.replace_schema_metadata({k: v.encode() for k, v in ATTRIBUTION.items()})
    pq.write_table(arrow, arguments.out, compression="zstd", compression_level=19)
    print(f"{arguments.out}: {len(table)} stays, {arguments.out.stat().st_size:,} bytes")


def select(stays: pd.DataFrame) -> pd.DataFrame:
    """The stays of the largest hospitals in a fixed random order, then the public records."""
    order = np.random.default_rng(SEED).permutation(len(stays))
    private, public = stays.iloc[order[:-NUM_PUBLIC]], stays.iloc[order[-NUM_PUBLIC:]]
    largest = stays["Facility Name"].value_counts().index[:NUM_HOSPITALS]
    return pd.concat([private[private["Facility Name"].isin(largest)], public])


if __name__ == "__main__":
    main()
