"""The shard of the owner that is the learner."""

from fractions import Fraction

import numpy as np
import pytest

from common.errors import OrderError
from common.losses import Squared
from common.terms import Query
from learner.training.line import LocalLine
from learner.training.memory_owner import LocalShard

THETA = np.array([0.3, -0.2, 0.1, 0.5])


@pytest.fixture
def records(feature_map, table_maker):
    return feature_map.apply(table_maker(50, seed=3), where="own")


@pytest.mark.parametrize("clip", [None, 0.01])
def test_it_answers_exactly_and_clips_as_all_owners_do(records, make_terms, clip):
    own = LocalShard("own", records)
    own.enroll(make_terms(clip=clip))
    asked = Query(study_id="study-1", sequence=1, theta=THETA)
    x, y = records.features, records.targets
    each = np.stack([Squared().mean_gradient(THETA, x[[i]], y[[i]]) for i in range(len(y))])
    if clip is not None:
        lengths = np.abs(each).sum(axis=1)
        assert lengths.max() > clip
        each *= np.minimum(1.0, clip / lengths)[:, None]
    assert own.answer(asked).gradient == pytest.approx(each.mean(axis=0), rel=1e-12)
    assert own.answer(asked).gradient.tobytes() == own.answer(asked).gradient.tobytes()


def test_it_promises_and_charges_nothing(records, make_terms):
    own = LocalShard("own", records)
    enrollment = own.enroll(make_terms(responses=3, horizon=3))
    assert (enrollment.epsilon, enrollment.noise_scale) == (Fraction(0), 0.0)
    for sequence in range(1, 10):
        own.answer(Query(study_id="study-1", sequence=sequence, theta=THETA))
    assert own.enroll(make_terms(responses=3, horizon=3)).answered == 0


def test_it_answers_nothing_before_it_is_in_a_study(records):
    with pytest.raises(OrderError, match="enrol first"):
        LocalShard("own", records).answer(Query(study_id="study-1", sequence=1, theta=THETA))


def test_its_line_goes_on_where_the_journal_ends(records, make_terms):
    line = LocalLine(LocalShard("own", records), make_terms(), answered=7)
    line.enroll()
    assert line.ask(THETA) is not None
    assert line.answered == 8
