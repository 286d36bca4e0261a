"""Whom an owner serves, whoever asks it to look."""

import numpy as np
import pytest
from pydantic import ValidationError

from common.errors import PolicyError
from common.terms import Query
from owner.policy import Policy, check_learner, check_policy

DIGEST = "sha256:" + "0" * 64


def policy(**changes):
    values = {"epsilon_per_study": "1", "epsilon_lifetime": "1"} | changes
    return Policy.model_validate(values)


@pytest.mark.parametrize(
    "listed", [{"learners": ["ann"]}, {"tokens": {"ann": DIGEST}}], ids=["certificate", "token"]
)
def test_whoever_is_not_listed_is_not_served(listed, make_terms):
    agreed = policy(**listed)
    check_learner(agreed, "ann")
    with pytest.raises(PolicyError, match="does not serve this learner"):
        check_learner(agreed, "bob")
    terms = make_terms(study_id="s")
    check_policy(agreed, terms, learner="ann", num_records=1, pinned_map=None)
    with pytest.raises(PolicyError, match="does not serve this learner"):
        check_policy(agreed, terms, learner="bob", num_records=1, pinned_map=None)


def test_a_query_of_whoever_is_not_served_is_refused_before_its_study_is_looked_up(
    open_owner, make_terms
):
    owner = open_owner(learners=["ann"])
    owner.enroll(make_terms(), learner="ann")
    query = Query(study_id="study-1", sequence=1, theta=np.zeros(4))
    with pytest.raises(PolicyError, match="does not serve this learner"):
        owner.answer(query, learner="bob")
    owner.answer(query, learner="ann")


@pytest.mark.parametrize("call", ["describe", "enroll", "offer", "close"])
def test_no_call_of_whoever_is_not_served_is_looked_at(open_owner, make_terms, call):
    owner = open_owner(learners=["ann"])
    asked = {"describe": (), "enroll": (make_terms(theta_max=-1.0),)}.get(call, ("study-1",))
    with pytest.raises(PolicyError, match="does not serve this learner"):
        getattr(owner, call)(*asked, learner="bob")


def test_a_token_is_in_no_file_that_cannot_be():
    with pytest.raises(ValidationError, match=r"lab: expected"):
        Policy(epsilon_per_study=1, epsilon_lifetime=1, tokens={"lab": "file:a\0b"})


@pytest.mark.parametrize("struck_off", [{"learners": []}, {"tokens": {}}])
def test_striking_off_the_last_learner_opens_to_nobody_else(struck_off):
    """Without names any learner is served, so one whose name had been taken out was, too."""
    with pytest.raises(ValidationError, match="learners and tokens name nobody"):
        policy(**struck_off)
    check_learner(policy(**{"tokens": {"ann": DIGEST}, "learners": ["ann"]} | struck_off), "ann")
    check_learner(policy(), "anyone")
