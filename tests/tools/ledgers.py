"""Ledgers with small studies in them, for tests."""

from fractions import Fraction

from common.terms import StudyTerms
from owner.ledger import Ledger


def open_ledger(path, fingerprint="shard", **options):
    return Ledger(path, owner="a", fingerprint=fingerprint, **options)


def enroll(ledger, study="s", *, responses=3, lifetime=Fraction(1), learner="l", **terms):
    values = {"loss": "squared", "theta_max": 1.0, "feature_map": "{}", "epsilon": Fraction(1, 3)}
    ledger.open_study(
        StudyTerms(study_id=study, horizon=responses, responses=responses, **(values | terms)),
        learner=learner,
        noise_scale=1.0,
        insecure_noise=False,
        lifetime=lifetime,
    )


def response(number):
    return b"%08d" % number


def digest(number):
    return f"{number:064x}"


def charge(ledger, *numbers, study="s"):
    for number in numbers:
        ledger.charge(
            study_id=study, sequence=number, digest=digest(number), response=response(number)
        )
