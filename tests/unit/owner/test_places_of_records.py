"""What a record counts for does not depend on where in a shard it stands, nor beside whom.

A database sorts its rows, so one record that is replaced may move all others by a place.
"""

import sqlite3
from contextlib import closing

import numpy as np
import pytest

from common.features import FeatureMap
from common.losses import LOSSES
from common.privacy import l1_sensitivity
from common.releases import release_of
from common.stretches import block_records
from common.terms import Records
from owner import fused
from owner.core import exact_answer
from owner.loading import load_to_serve
from owner.policy import OwnerSettings
from owner.shards import Shard
from owner.sums import margins

P = 33
# Two whole blocks and a few, whose number is no multiple of what processors add at once.
N = 2 * block_records(P) + 7
RNG = np.random.default_rng(5)


def models_at_margin_1(record):
    """Models at which the record's margin is 1, but for the last bits."""
    models = []
    for _ in range(25):
        theta = RNG.uniform(-1.0, 1.0, size=len(record))
        theta *= 1.0 / (record @ theta)
        models += [theta * (1.0 + k * 2.0**-52) for k in (-2, -1, 0, 1, 2)]
    return models


@pytest.mark.parametrize("p", [1, 2, 5, 8, 9, 16, 33, 100, 257, 9999])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 9, 13, 1310])
def test_equal_records_have_equal_margins_wherever_they_stand(p, n):
    n = min(n, 2 * block_records(p) + 3)
    record, theta = RNG.normal(size=p), RNG.normal(size=p)
    (alone,) = margins(record[None, :], theta)
    others = np.concatenate([np.full((3, p), np.nan), np.tile(record, (n, 1))])
    assert {*margins(others, theta)[3:].tolist()} == {alone}


# At the margin 1 of a record whose target is 1 or 0 each of them jumps.
JUMPS = {
    "hinge": {"loss": "hinge"},
    "clipped hinge": {"loss": "hinge", "clip": 1.0},
    "curvature of huber": {
        "loss": "huber",
        "delta": 1.0,
        "release": "newton",
        "curvature_scale": 1.0,
    },
    "clipped curvature": {
        "loss": "squared",
        "release": "newton",
        "curvature_scale": 1.0,
        "clip": 2.0,
    },
    "cells of a table": {
        "loss": "logistic",
        "release": "validation",
        "loss_bound": 1.0,
        "edges": (1.0,),
    },
    "a narrow loss": {"loss": "hinge", "release": "validation", "loss_bound": 1e-30},
}


@pytest.mark.parametrize("kind", JUMPS)
def test_a_shard_of_equal_records_answers_as_one_of_them(make_terms, kind):
    target = 0.0 if "curvature" in kind else 1.0
    record = RNG.uniform(-1.0, 1.0, size=P)
    # Of a squared loss's slope, 2 z, the clip is at the margin 1 then.
    record /= np.abs(record).sum()
    terms = make_terms(**{"responses": 1} | JUMPS[kind])

    def shard(n):
        return Shard(Records(features=np.tile(record, (n, 1)), targets=np.full(n, target)))

    one, many, seen = shard(1), shard(N), set()
    for theta in models_at_margin_1(record):
        expected = exact_answer(one, theta, terms)
        seen.add(tuple(np.round(expected, 6)))
        np.testing.assert_allclose(exact_answer(many, theta, terms), expected, rtol=1e-9)
    # Both sides of the jump were asked.
    assert len(seen) > 1


@pytest.mark.parametrize("clip", [None, 0.01])
@pytest.mark.parametrize("name", [name for name in LOSSES if not LOSSES[name].counts_margins])
def test_no_rounding_that_is_not_counted_depends_on_where_a_record_stands(make_terms, name, clip):
    """The parts of a margin of 0 may be 1e17: rounded otherwise, it is one of 16."""
    record = RNG.uniform(-1.0, 1.0, size=P)
    terms = make_terms(loss=name, clip=clip, theta_max=1e17)
    rows = block_records(P)
    shards = [
        Shard(Records(features=np.eye(rows)[:, [place]] * record, targets=np.ones(rows)))
        for place in (0, rows - 1)
    ]
    for _ in range(100):
        theta = RNG.uniform(-1.0, 1.0, size=P)
        theta -= record * (record @ theta) / (record @ record)
        theta *= 1e17 / np.abs(theta).max()
        first, last = (exact_answer(shard, theta, terms) for shard in shards)
        np.testing.assert_array_equal(first, last)


@pytest.mark.parametrize("name", fused.SLOPES)
def test_compiled_code_rounds_a_margin_alike_wherever_a_record_stands(name):
    record = RNG.uniform(-1.0, 1.0, size=P)
    kernel = fused.kernel(name, clipped=True)
    for _ in range(25):
        theta = RNG.uniform(-1.0, 1.0, size=P)
        theta -= record * (record @ theta) / (record @ record)
        theta *= 1e17 / np.abs(theta).max()
        sums = {
            tuple(kernel(np.eye(n)[:, [k]] * record, np.ones(n), theta, 1.0, 0.01))
            for n in (1, 2, 3, 7)
            for k in range(n)
        }
        assert len(sums) == 1


@pytest.mark.parametrize("clipped", [False, True])
def test_compiled_code_answers_for_equal_records_as_for_one_of_them(clipped):
    record = RNG.uniform(-1.0, 1.0, size=P)
    kernel = fused.kernel("hinge", clipped=clipped)
    for theta in models_at_margin_1(record):
        sums = [
            kernel(np.tile(record, (n, 1)), np.ones(n), theta, 0.0, 1e100) / n for n in (1, 2, 7)
        ]
        np.testing.assert_allclose(sums[1:], [sums[0]] * 2, rtol=1e-9)


def plain_map(names):
    """Columns between -1 and 1 as they are, and a class."""
    rule = {"kind": "number", "fill": 0.0, "low": -1.0, "high": 1.0, "center": 0.0, "scale": 1.0}
    return FeatureMap.model_validate(
        {
            "source": "public.csv",
            "num_public_records": 9,
            "intercept": False,
            "bounds": [1.0] * len(names),
            "columns": [{"name": name} | rule for name in names],
            "target": {"name": "y", "positive": "1", "bound": 1.0, "fill": 1.0},
        }
    )


def served_shard(folder, feature_map, records):
    """The shard of an owner whose records are in a database."""
    file = folder / f"{records[0][0]}.sqlite"
    names = ["id", *feature_map.columns_needed]
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(f"create table t ({', '.join(names)})")
        database.executemany(f"insert into t values ({', '.join('?' * len(names))})", records)
    settings = OwnerSettings.model_validate(
        {
            "name": "a",
            "data": {"path": file.name, "query": "select * from t"},
            "policy": {"epsilon_per_study": "1", "epsilon_lifetime": "1"},
        }
    )
    return load_to_serve(settings, base=folder, pinned=None).table.shard(feature_map)


def test_a_replaced_record_that_moves_all_others_moves_an_answer_by_the_sensitivity(
    make_terms, tmp_path, blocks_of
):
    p = 257
    # Smaller ones are read sooner, and kernels add their last records otherwise all the same.
    blocks_of(2**14)
    rows = block_records(p)
    names = [f"x{j}" for j in range(p)]
    feature_map = plain_map(names)
    star = RNG.uniform(-1.0, 1.0, size=p)
    others = [(float(i), *(-star), 1.0) for i in range(12 * rows)]
    # Those that come to another place of their block, at its end, are the ones at the kink.
    for i in range(rows - 1, len(others), rows):
        others[i] = (float(i), *star, 1.0)
    shards = [
        served_shard(tmp_path, feature_map, [(place, *(-star), 1.0), *others])
        for place in (-1.0, float(len(others)))
    ]
    terms = make_terms(loss="hinge", theta_max=1e6, feature_map=feature_map.to_json())
    bound = release_of(terms).record_bound(terms, feature_map.domain)
    sensitivity = l1_sensitivity(gradient_bound=bound, num_records=len(others) + 1)
    for theta in models_at_margin_1(star):
        first, second = (exact_answer(shard, theta, terms) for shard in shards)
        assert np.abs(first - second).sum() <= sensitivity
