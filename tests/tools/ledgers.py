"""Ledgers with small studies in them, for tests."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

from common.terms import StudyTerms
from owner.ledger import Ledger


def open_ledger(path: Path, fingerprint: str = "shard", **options: Any) -> Ledger:
    return Ledger(path, owner="a", fingerprint=fingerprint, **options)


def enroll(
    ledger: Ledger,
    study: str = "s",
    *,
    responses: int = 3,
    lifetime: Fraction = Fraction(1),
    learner: str = "l",
    **terms: Any,
) -> None:
    values = {"loss": "squared", "theta_max": 1.0, "feature_map": "{}", "epsilon": Fraction(1, 3)}
    ledger.open_study(
        StudyTerms(study_id=study, horizon=responses, responses=responses, **(values | terms)),
        learner=learner,
        noise_scale=1.0,
        insecure_noise=False,
        lifetime=lifetime,
    )


def response(number: int) -> bytes:
    return b"%08d" % number


def digest(number: int) -> str:
    return f"{number:064x}"


def charge(ledger: Ledger, *numbers: int, study: str = "s") -> None:
    for number in numbers:
        ledger.charge(
            study_id=study, sequence=number, digest=digest(number), response=response(number)
        )
