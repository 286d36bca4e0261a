"""Families of real records, each one study: who the owners are, and what is public.

Public are 5 to 10 % of a family's rows at random, but for two: the dated loans have their oldest
ones public, so that owners have drifted away from them, and of the hip replacements one hospital's
are public, which stands for no owner. Where owners are the values of a column, the public records
carry it too, and owners are known by it, as with ``forecast.group_column``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from record_cases import SOURCES, Case, case_of, loan_columns, shuffled

from common.columns import category_key, category_keys

FILES = SOURCES | {
    "facilities": "sparcs/sparcs_2021_facility_99644.parquet",
    "hips": "sparcs/sparcs_2016_hip_replacement_26286.parquet",
    "lectures": "other/insteval_73421.parquet",
    "schools": "other/hsb82_7185.parquet",
    "heart": "other/uci_heart_disease_920.parquet",
}
PUBLIC_SHARE = 0.08


def hospitals(data: Path) -> Case:
    """Eleven counties of New York, stays of 2020."""
    return by_column(
        "Hospitals by county",
        _read(data, "hospitals"),
        "Hospital.County",
        {"target": "los", "drop": ("Hospital.County", "Hospital.Service.Area")},
        smallest=9_000,
    )


def facilities(data: Path) -> Case:
    """Sixty hospitals of New York, stays of 2021."""
    columns = (
        "Age Group",
        "Gender",
        "Type of Admission",
        "Patient Disposition",
        "CCSR Diagnosis Description",
        "Payment Typology 1",
        "EmergeNocYes DepartmeNot INodicator",
    )
    return by_column(
        "Stays by hospital",
        _read(data, "facilities"),
        "Facility Name",
        {"target": "Length of Stay", "columns": columns},
        smallest=200,
        most=60,
    )


def hips(data: Path) -> Case:
    """Forty hospitals; public is what one other hospital did, a fifteenth of all."""
    table = _read(data, "hips")
    columns = (
        "age_group",
        "gender",
        "race",
        "ethnicity",
        "patient_disposition",
        "ccs_diagnosis_description",
        "apr_severity_of_illness_code",
        "apr_risk_of_mortality",
    )
    is_public = table["facility_name"] == "NYU Hospital for Joint Diseases"
    private = table[~is_public]
    owners = private["facility_name"].value_counts().index[:40]
    return case_of(
        "Hip replacements by hospital",
        table[is_public],
        [private[private["facility_name"] == name] for name in owners],
        {"target": "length_of_stay", "columns": columns},
    )


def loans(data: Path) -> Case:
    """Three banks that share the loans at random, ten principal components."""
    table = _read(data, "loans")
    given = {"target": "int_rate", "columns": loan_columns(table), "components": 10}
    public, private = _split(table)
    return case_of("Loans", public, _parts(private, 3), given)


def dated_loans(data: Path) -> Case:
    """Five banks, one after the other by date of issue; public are the oldest loans."""
    table = _read(data, "loans").sort_values("issue_d", kind="stable")
    columns = tuple(name for name in loan_columns(table) if name != "issue_d")
    oldest = round(PUBLIC_SHARE * len(table))
    public, private = table.iloc[:oldest], table.iloc[oldest:]
    given = {"target": "int_rate", "columns": columns}
    return case_of("Dated loans", public, _parts(private, 5), given)


def cards(data: Path) -> Case:
    """Three card companies, hinge loss."""
    table = _read(data, "cards").drop(columns="source_mask", errors="ignore")
    public, private = _split(table)
    return case_of(
        "Credit cards, hinge loss",
        public,
        _parts(private.iloc[:18_000], 3),
        {"target": "Class", "positive": 1, "drop": ("Time",)},
        loss="hinge",
        coefficient=5e-6,
        theta_max=1.0,
    )


def lectures(data: Path) -> Case:
    """Ratings of lectures in fourteen departments."""
    features = {
        "target": "y",
        "columns": ("d", "studage", "lectage", "service"),
        "categorical": ("d",),
        "max_categories": 2_000,
    }
    return by_column("Lecture ratings by department", _read(data, "lectures"), "dept", features)


def schools(data: Path) -> Case:
    """A hundred and fifty schools of about forty pupils each."""
    features = {"target": "mAch", "columns": ("minrty", "sx", "ses", "meanses")}
    return by_column("Schools", _read(data, "schools"), "school", features, smallest=10, most=150)


def heart(data: Path) -> Case:
    """Heart disease at four sites: how ill, by least squares."""
    return by_column(
        "Heart disease by site", _read(data, "heart"), "site", {"target": "num", **_heart_columns()}
    )


def heart_classes(data: Path) -> Case:
    """Heart disease at four sites: ill or not, by logistic loss."""
    table = _read(data, "heart")
    table["ill"] = (table["num"] > 0).astype(int)
    return by_column(
        "Heart disease by site, logistic loss",
        table,
        "site",
        {"target": "ill", "positive": 1, **_heart_columns()},
        loss="logistic",
        theta_max=1.0,
    )


FAMILIES: dict[str, Callable[[Path], Case]] = {
    "hospitals": hospitals,
    "facilities": facilities,
    "hips": hips,
    "loans": loans,
    "dated-loans": dated_loans,
    "cards": cards,
    "lectures": lectures,
    "schools": schools,
    "heart": heart,
    "heart-classes": heart_classes,
}
"""Every family, by its name."""


def by_column(
    title: str,
    table: pd.DataFrame,
    column: str,
    features: Mapping[str, Any],
    *,
    smallest: int = 1,
    most: int = 1_000,
    **given: Any,
) -> Case:
    """A case whose owners are the values of a column, the largest first.

    Args:
      title: The case's name.
      table: All rows.
      column: The column that names the owners.
      features: How the map is fitted.
      smallest: The fewest records of an owner.
      most: The most owners.
      given: What else the case is given.
    """
    public, private = _split(table)
    codes, names = category_keys(public[column])
    sizes = private[column].value_counts()
    owners = sizes[sizes >= smallest].index[:most]
    keys = {f"owner-{i}": category_key(name) for i, name in enumerate(owners)}
    return case_of(
        title,
        public,
        [private[private[column] == name] for name in owners],
        features,
        labels=codes,
        known={owner: names.index(key) for owner, key in keys.items() if key in names},
        **given,
    )


def _read(data: Path, name: str) -> pd.DataFrame:
    """One table, its rows in a random order."""
    return shuffled(pd.read_parquet(data / FILES[name]))


def _split(table: pd.DataFrame) -> Sequence[pd.DataFrame]:
    """Public and private rows of a shuffled table."""
    count = round(PUBLIC_SHARE * len(table))
    return table.iloc[:count], table.iloc[count:]


def _parts(table: pd.DataFrame, count: int) -> Sequence[pd.DataFrame]:
    """This many consecutive parts of equal length, up to one row."""
    return [table.iloc[rows] for rows in np.array_split(np.arange(len(table)), count)]


def _heart_columns() -> dict[str, Any]:
    """Ages, codes and measurements; what most sites did not measure is left out."""
    numbers = ("age", "trestbps", "chol", "thalach", "oldpeak")
    codes = ("sex", "cp", "fbs", "restecg", "exang")
    return {"columns": (*numbers, *codes), "categorical": ("cp", "restecg")}
