"""The papers' real records, from a folder of their reduced files or from the user's own tables.

=========  ====================================================================================
loans      Lending Club, section V-A of [A] and IV-A of [S]; public: the last ten thousand rows
hospitals  New York stays, section V-B of [A]; owners are counties, or hospitals
cards      card transactions, section V-C of [A] and IV-B of [S]
=========  ====================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from common.arrays import Indices
from common.columns import category_keys
from common.errors import InputError
from common.feature_settings import FeatureSettings
from common.features import FeatureMap
from common.map_fitting import fit_feature_map
from common.tables import TableSource, read_table
from common.terms import Records
from learner.planning.held_out import held_out_records

LOAN_COLUMNS = (
    "loan_amnt", "funded_amnt", "funded_amnt_inv", "term", "installment", "grade", "sub_grade",
    "emp_length", "home_ownership", "annual_inc", "verification_status", "issue_d", "purpose",
    "addr_state", "dti", "delinq_2yrs", "earliest_cr_line", "fico_range_low", "fico_range_high",
    "inq_last_6mths", "mths_since_last_delinq", "mths_since_last_record", "open_acc", "pub_rec",
    "revol_bal", "revol_util", "total_acc", "initial_list_status",
)  # fmt: skip
ISSUE_DATE = "issue_d"
HOSPITAL_TARGETS = ("los", "Length of Stay")
OWNER_COLUMNS = ("Hospital.County", "Facility Name")
# What is known only after the stay, what is constant, and what names the owner.
HOSPITAL_DROPPED = (
    "Hospital.County", "Hospital.Service.Area", "Type.of.Admission", "Facility Name",
    "Facility Id", "Total Charges", "Total Costs", "Zip Code - 3 digits", "Discharge Year",
    "Operating Certificate Number", "Permanent Facility Id", "Hospital County",
    "Health Service Area",
)  # fmt: skip
LARGEST_OWNERS = 14
# How many rows of each are public.
PUBLIC_LOANS, PUBLIC_CARDS = 10_000, 4_000
# The fewest records of the table that owners are cut from, and of a hospital that is one.
FEWEST_RECORDS = 300

# What to bring for each, and from where: no copy of copriv holds these files.
BRING = {
    "loans": "Lending Club's table of accepted loans",
    "hospitals": "New York's hospital stays (SPARCS De-Identified, health.data.ny.gov)",
    "facilities": "New York's hospital stays with the column Facility Name (SPARCS De-Identified, "
    "health.data.ny.gov)",
    "cards": "creditcard.csv of the Machine Learning Group of ULB and Worldline",
}
# Those that have an option of copriv reproduce; its figures need no other.
OPTIONS = ("loans", "facilities", "cards")
# Where each is in a folder of reduced files.
IN_FOLDER = {
    "loans": "lending/lc_2007_2011_*.parquet",
    "hospitals": "sparcs/sparcs_2020_*.parquet",
    "facilities": "sparcs/sparcs_2021_*.parquet",
    "cards": "creditcard/creditcard_partial_union*.parquet",
}


@dataclass(frozen=True, kw_only=True)
class Files:
    """Where the public tables are; None where there is none.

    Args:
      loans: Lending Club's table.
      hospitals: The stays, of 2020 by county or any with ``Facility Name``.
      facilities: Stays by hospital, for the figures of many hospitals.
      cards: The card transactions.
    """

    loans: Path | None = None
    hospitals: Path | None = None
    facilities: Path | None = None
    cards: Path | None = None

    @classmethod
    def in_folder(cls, folder: Path) -> Files:
        """The reduced files that a data folder has, whatever their exact names."""
        return cls(**{name: _first(folder, pattern) for name, pattern in IN_FOLDER.items()})

    def path(self, name: str) -> Path:
        """One table.

        Raises:
          InputError: There is none; the sentence says what to bring.
        """
        found: Path | None = getattr(self, name)
        if found is None:
            what = f"{BRING[name]} as CSV or Parquet"
            file = f"--{name} FILE, {what}, or " if name in OPTIONS else ""
            raise InputError(
                f"the records of {name} do not come with copriv; give {file}--data FOLDER with "
                f"{IN_FOLDER[name]}{'' if file else f', {what}'}"
            )
        return found


def _first(folder: Path, pattern: str) -> Path | None:
    return min((path for path in folder.glob(pattern) if "mask" not in path.name), default=None)


@dataclass(frozen=True, kw_only=True, eq=False)
class Family:
    """Real records that studies are made of.

    Args:
      name: The family's name.
      feature_map: Fitted on the public records.
      public: The public records.
      public_labels: Their groups; None for consecutive parts.
      shards: The records that an owner may have, by name, never public ones; a family with a
        single entry is one ordered table.
      labels: The group that each of these is known to be, by name.
    """

    name: str
    feature_map: FeatureMap
    public: Records
    public_labels: Indices | None
    shards: Mapping[str, Records]
    labels: Mapping[str, int | None]


def loan_family(path: Path, *, dated: bool = True) -> Family:
    """Loans: one ordered table whose last rows are public, ten principal components.

    Args:
      path: The table.
      dated: Whether the issue date is a feature. Owners are consecutive rows, so it names them:
        a model of one of them sees next to nothing of how it counts.
    """
    last = _rows(path, f"-{PUBLIC_LOANS + FEWEST_RECORDS}:")
    columns = tuple(name for name in LOAN_COLUMNS if dated or name != ISSUE_DATE)
    _check_table(last, path, "loans", columns=("int_rate", *columns), public=PUBLIC_LOANS)
    public = last.iloc[-PUBLIC_LOANS:].reset_index(drop=True)
    feature_map = _fit(public, path, target="int_rate", columns=columns, components=10)
    private = _rows(path, f":-{PUBLIC_LOANS}")
    return Family(
        name="dated-loans" if dated else "loans",
        feature_map=feature_map,
        public=held_out_records(feature_map, public, where=path.name),
        public_labels=None,
        shards={"bank": feature_map.apply(private, where=path.name)},
        labels={"bank": None},
    )


def hospital_family(path: Path, *, largest: int = LARGEST_OWNERS) -> Family:
    """Stays: every 16th is public, the odd ones belong to the owners, who are counties.

    Args:
      path: The table.
      largest: How many of the largest owners take part.
    """
    public, private = _rows(path, "::16"), _rows(path, "1::2")
    target = _present(public, HOSPITAL_TARGETS, path)
    owner = _present(public, OWNER_COLUMNS, path)
    dropped = tuple(name for name in HOSPITAL_DROPPED if name in public.columns)
    feature_map = _fit(public, path, target=target, drop=dropped)
    codes, names = category_keys(public[owner])
    owner_codes, owner_names = category_keys(private[owner])
    counts = np.bincount(owner_codes[owner_codes >= 0], minlength=len(owner_names))
    shards: dict[str, Records] = {}
    for code in np.argsort(-counts, kind="stable")[:largest].tolist():
        table = private[owner_codes == code].reset_index(drop=True)
        name = str(owner_names[code])
        shards[name] = feature_map.apply(table, where=name, fill_target=True)
    return Family(
        name="hospitals",
        feature_map=feature_map,
        public=held_out_records(feature_map, public, where=path.name),
        public_labels=codes,
        shards=shards,
        labels={name: names.index(name) if name in names else None for name in shards},
    )


def read_cards(path: Path) -> tuple[Records, Records, FeatureMap]:
    """Card transactions in a random order: (public, private, feature map)."""
    table = _rows(path, None)
    _check_table(table, path, "cards", columns=("Class",), public=PUBLIC_CARDS)
    order = np.random.default_rng(0).permutation(len(table))
    table = table.iloc[order].reset_index(drop=True)
    public, private = table.iloc[:PUBLIC_CARDS], table.iloc[PUBLIC_CARDS:]
    feature_map = fit_feature_map(
        public.reset_index(drop=True),
        FeatureSettings(public=TableSource(), target="Class", positive=1, drop=("Time",)),
        source=path.name,
    )
    return (
        feature_map.apply(public.reset_index(drop=True), where=path.name),
        feature_map.apply(private.reset_index(drop=True), where=path.name),
        feature_map,
    )


def _rows(path: Path, rows: str | None) -> pd.DataFrame:
    return read_table(TableSource(path=path.resolve(), rows=rows), base=Path())


def _check_table(
    table: pd.DataFrame, path: Path, name: str, *, columns: tuple[str, ...], public: int
) -> None:
    """Refuse a table that is another one, or a part of it that leaves too little for owners."""
    lacking = next((column for column in columns if column not in table.columns), None)
    if lacking is not None:
        raise InputError(f"{path}: no column {lacking!r}; give {BRING[name]}")
    if len(table) < public + FEWEST_RECORDS:
        raise InputError(
            f"{path}: {len(table):,} rows, expected at least {public + FEWEST_RECORDS:,}, of which "
            f"{public:,} are public; give all of {BRING[name]}"
        )


def _present(table: pd.DataFrame, names: tuple[str, ...], path: Path) -> str:
    """The first of these columns that the table has."""
    for name in names:
        if name in table.columns:
            return name
    raise InputError(f"{path}: none of the columns {', '.join(names)}; give the public file")


def _fit(
    public: pd.DataFrame,
    path: Path,
    *,
    target: str,
    columns: tuple[str, ...] | None = None,
    drop: tuple[str, ...] = (),
    components: int | None = None,
) -> FeatureMap:
    settings = FeatureSettings(
        public=TableSource(), target=target, columns=columns, drop=drop, components=components
    )
    return fit_feature_map(public, settings, source=path.name)
