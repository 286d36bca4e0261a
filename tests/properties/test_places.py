"""Records that change places move an answer by no more than the rounding that is counted.

Where a database sorts a table, one replaced record moves all others, so what their places change
comes on top of what the record does. Studies are random, with boxes of models up to the largest.
"""

import numpy as np
import pytest

from common.domain import Domain
from common.losses import LOSSES
from common.privacy import _rounding_error, plan_noise
from common.releases import RELEASES, release_of
from common.stretches import block_records
from common.terms import Records
from owner.core import exact_answer
from owner.shards import Shard
from owner.stored import stored_float32

CASES = 60


def random_terms(rng, release, loss, p):
    """What a study may ask for, as far as its release and its loss have it."""

    def size(decades):
        return float(10 ** rng.uniform(-decades, decades))

    box = float(10 ** rng.uniform(-3, rng.choice([3, 20, 60])))
    terms = {"release": release, "loss": loss, "theta_max": box, "responses": 1}
    if loss == "huber":
        terms["delta"] = size(6)
    if release in ("gradient", "newton") and rng.random() < 0.7:
        terms["clip"] = size(6)
    if release == "newton":
        terms["curvature_scale"] = size(9)
    if release == "validation":
        reference = tuple((rng.uniform(-1, 1, p) * box).tolist())
        edges = (-1.0, 0.0, 1.0) if LOSSES[loss].has_classes() else ()
        terms |= {"loss_bound": size(9), "difference_bound": size(9)}
        terms |= {"reference": reference, "edges": edges}
    return terms


def awkward_records(rng, p):
    """A few records again and again, more than a block of them or a handful."""
    n = int(rng.integers(2, 40)) if rng.random() < 0.3 else block_records(p) + 9
    features = rng.uniform(-1, 1, (3, p))[rng.integers(0, 3, n)]
    if rng.random() < 0.5:
        features = stored_float32(features)
    return Records(features=features, targets=rng.choice([-1.0, 1.0], n))


def awkward_model(rng, record, box):
    """A model at the edge of the box of which a record's margin is 0, but for its rounding."""
    theta = rng.uniform(-1, 1, len(record))
    if len(record) > 1:
        theta -= record * (record @ theta) / (record @ record)
    return theta * (box * (1 - 1e-12) / np.abs(theta).max())


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("release", RELEASES)
def test_records_that_change_places_move_an_answer_by_what_is_counted(make_terms, release, loss):
    rng, compared = np.random.default_rng(7), 0
    for _ in range(CASES):
        p = int(rng.choice([1, 2, 9, 33, 100, 257]))
        domain = Domain(feature_bound=np.ones(p), target_bound=1.0)
        terms = make_terms(**random_terms(rng, release, loss, p))
        records = awkward_records(rng, p)
        n = len(records)
        try:
            release_of(terms).check(terms)
            plan_noise(terms, domain, num_records=n)
        except ValueError:
            continue
        theta = awkward_model(rng, records.features[0].astype(np.float64), terms.theta_max)
        places = np.roll(np.arange(n), 1) if rng.random() < 0.5 else rng.permutation(n)
        first, second = (
            exact_answer(Shard(one), theta, terms) for one in (records, records.at(places))
        )
        counted = 2 * _rounding_error(terms, domain, n)
        assert np.abs(first - second).sum() <= counted
        compared += 1
    assert compared or LOSSES[loss].curvature is None or release == "moments"
