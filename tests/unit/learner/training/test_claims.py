"""What owners say is compared with what was asked and with what can be."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from common.errors import InputError, RefusedError
from common.terms import Query, Response
from learner.training.claims import Promise, check_description, check_enrollment, check_response
from learner.training.memory_owner import LocalShard, MemoryOwner

QUERY = Query(study_id="study-1", sequence=3, theta=np.zeros(4))


@pytest.fixture
def owner(feature_map, table_maker):
    return MemoryOwner("north", feature_map.apply(table_maker(80, seed=1), where="test"), seed=1)


def test_an_honest_owner_is_believed(owner, make_terms):
    assert check_description(owner.describe(), name="north").num_records == 80
    newton = {"release": "newton", "curvature_scale": 0.5}
    for terms in (
        make_terms(),
        make_terms(clip=0.5, kappa=2),
        make_terms(release="moments"),
        make_terms(**newton),
        make_terms(**newton, clip=0.5, loss="huber", delta=0.1),
    ):
        responses = 1 if terms.release in {"moments", "newton"} else terms.responses
        asked = replace(terms, responses=responses)
        promise = check_enrollment(owner.enroll(asked), asked, name="north", held=0)
        said = owner.answer(replace(QUERY, sequence=1))
        check_response(said, replace(QUERY, sequence=1), promise, name="north")


@pytest.mark.parametrize(
    ("lie", "sentence"),
    [
        ({"num_records": 0}, "says that it has 0 records"),
        ({"num_records": 2**64 - 1}, "says that it has 18446744073709551615 records"),
        ({"columns": ("x",) * 100_001}, "sent 10000[0-9] names"),
        ({"columns": ("x" * 1_001,)}, "sent [0-9]+ names"),
        ({"losses": ("x" * 1_001,)}, "sent 1 names"),
        ({"feature_map_digest": "İ" * 64}, "sent a text that is not a digest"),
        ({"feature_map_digest": "a" * 63}, "sent a text that is not a digest"),
    ],
)
def test_a_description_of_no_owner_is_refused(owner, lie, sentence):
    said = replace(owner.describe(), **lie)
    with pytest.raises(RefusedError, match=f"^owner north {sentence}"):
        check_description(said, name="north")


def test_another_owner_at_the_address_is_named_in_printable_characters(owner):
    said = replace(owner.describe(), name="\x1b[31msouth\u202e" + "x" * 1000)
    with pytest.raises(InputError, match="owner north says that its name is") as refused:
        check_description(said, name="north")
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize(
    ("lie", "sentence"),
    [
        ({"num_records": 2**63}, "agreed to noise that nobody can add"),
        ({"num_records": 81}, "promises noise of scale"),
        ({"responses": 20}, "agreed to 20 responses for an epsilon of 1, but was asked for 10"),
        ({"responses": 9}, "agreed to 9 responses"),
        ({"epsilon": Fraction(10**59, 3)}, "agreed to 10 responses for an epsilon of 3.33333e"),
        ({"epsilon": Fraction(0)}, "agreed to 10 responses for an epsilon of 0"),
        ({"answered": 2}, "counts 2 responses, but this run holds 0"),
        ({"noise_scale": 1e-300}, "promises noise of scale 1e-300"),
        ({"noise_scale": float("nan")}, "promises noise of scale nan"),
    ],
)
def test_an_enrolment_to_something_else_is_refused(owner, make_terms, lie, sentence):
    terms = make_terms()
    said = replace(owner.enroll(terms), **lie)
    with pytest.raises(RefusedError, match=f"^owner north {sentence}"):
        check_enrollment(said, terms, name="north", held=0)


def test_more_answers_than_were_promised_are_refused(owner, make_terms):
    terms = make_terms()
    said = replace(owner.enroll(terms), answered=11)
    with pytest.raises(RefusedError, match="counts 11 responses, but promised only 10"):
        check_enrollment(said, terms, name="north", held=10)


@pytest.mark.parametrize(
    ("lie", "sentence"),
    [
        ({"study_id": "study-2"}, "answered for another study"),
        ({"sequence": 2}, "answered number 2 when it was asked number 3"),
        ({"gradient": np.zeros(3)}, "sent 3 coordinates"),
        ({"gradient": np.zeros(0)}, "sent 0 coordinates"),
        ({"gradient": np.array([0, np.nan, 0, 0])}, "sent 4 coordinates, or some that are not"),
        ({"gradient": np.array([0, -np.inf, 0, 0])}, "sent 4 coordinates, or some"),
        ({"gradient": np.array([0, 1e300, 0, 0])}, r"sent a coordinate of 1e\+300"),
    ],
)
def test_an_answer_to_something_else_is_refused(lie, sentence):
    honest = Response(study_id="study-1", sequence=3, gradient=np.full(4, -7.0))
    promise = Promise(dimension=4, largest=7.0)
    check_response(honest, QUERY, promise, name="north")
    with pytest.raises(RefusedError, match=f"^owner north {sentence}"):
        check_response(replace(honest, **lie), QUERY, promise, name="north")


def test_every_draw_of_noise_is_within_what_is_believed(owner, make_terms):
    """The bound is public and never met: a thousand draws stay below a tenth of it."""
    terms = make_terms(responses=1000, horizon=1000)
    promise = check_enrollment(owner.enroll(terms), terms, name="north", held=0)
    drawn = [owner.answer(replace(QUERY, sequence=k)).gradient for k in range(1, 1001)]
    assert 0.02 * promise.largest < np.max(np.abs(drawn)) < 0.2 * promise.largest


def test_the_own_shard_describes_itself(feature_map, table_maker):
    shard = LocalShard("here", feature_map.apply(table_maker(20, seed=1), where="test"))
    said = check_description(shard.describe(), name="here")
    assert said.num_records == 20
