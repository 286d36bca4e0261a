"""How long an answer takes tells nothing of a record: no number of it is slow to compute with."""

import json
import math
import time
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest

from common.arrays import either
from common.domain import LEAST_SIZE, without_specks
from common.features import FeatureMap
from common.losses import LOSSES, Logistic, loss_of
from common.privacy import SMALLEST_BOUND
from common.releases import RELEASES
from common.terms import Records
from common.validation import tally
from owner.core import exact_answer
from owner.gradients import largest_slopes
from owner.shards import MomentShard, Shard
from owner.stored import stored_float32

TINY = np.finfo(np.float64).tiny
ASKED = {
    "gradient": {},
    "moments": {"responses": 1, "horizon": 1},
    "newton": {"curvature_scale": 0.5},
    "validation": {
        "responses": 1,
        "horizon": 1,
        "loss_bound": 2.0,
        "difference_bound": 1.5,
        "reference": (0.0, 0.0),
    },
}


@pytest.mark.parametrize("release", RELEASES)
def test_a_model_that_is_slow_to_compute_with_is_asked_as_0(release, make_terms):
    terms = make_terms(release=release, **ASKED[release])
    # Losses of next to nothing, so that a model of next to nothing would be seen.
    x = np.random.default_rng(3).uniform(-1, 1, (30, 2))
    shard = Shard(Records(features=x, targets=np.zeros(30)))
    slow, usual = np.array([0.0, 9e-31]), np.zeros(2)
    found = exact_answer(shard, slow, terms)
    assert found.tobytes() == exact_answer(shard, usual, terms).tobytes()
    if terms.reference:
        other = exact_answer(shard, slow, replace(terms, reference=(0.0, -9e-31)))
        assert other.tobytes() == found.tobytes()
    # Where only a gradient's moments are known, too.
    if release == "gradient":
        moments = MomentShard(shard.gram, shard.cross)
        assert exact_answer(moments, slow, terms).tobytes() == found.tobytes()


def test_what_is_nearer_to_0_than_the_least_size_is_0():
    values = np.array([LEAST_SIZE, np.nextafter(LEAST_SIZE, 0), -1e-310, -LEAST_SIZE, 3.0, np.inf])
    assert without_specks(values)[:5].tolist() == [LEAST_SIZE, 0, 0, -LEAST_SIZE, 3]


def test_a_choice_takes_one_time_whatever_is_chosen():
    rng = np.random.default_rng(0)
    numbers, half = rng.normal(size=200_000), rng.random(200_000) < 0.5
    ways = {"half": half, "none": np.zeros_like(half)}
    took = dict.fromkeys(ways, math.inf)
    for _ in range(15):
        for name, chosen in ways.items():
            began = time.perf_counter()
            either(chosen, 0.5, numbers)
            took[name] = min(took[name], time.perf_counter() - began)
    # Of a choice that branches on each number it is six times as long.
    assert took["half"] < 2.0 * took["none"]


def test_no_choice_of_a_feature_map_branches_on_a_record(monkeypatch):
    column = {"kind": "number", "fill": 0.5, "low": -9.0, "high": 9.0, "center": 0.5, "scale": 2.0}
    text = {
        "source": "t",
        "num_public_records": 10,
        "target": {"name": "y", "bound": 1.0, "fill": 0.0, "missing": ["3"]},
        "intercept": True,
        "l1_radius": 2.0,
        "bounds": [9.0],
        "columns": [{"name": "x", "missing": ["2"], **column}],
    }
    feature_map = FeatureMap.from_json(json.dumps(text))
    cells = pd.DataFrame({"x": [1.0, 2.0, np.nan, 9.0], "y": [1.0, 3.0, np.nan, 0.25]})
    monkeypatch.setattr(np, "where", None)
    monkeypatch.setattr(np, "nextafter", None)
    records = feature_map.apply(cells, where="t", fill_target=True)
    assert records.targets.tolist() == [1.0, 0.0, 0.0, 0.25]
    np.testing.assert_allclose(records.features[:, 0], [0.25, 0.0, 0.0, 1.0])
    assert stored_float32(np.array([[0.1, -0.1, 0.0, 1e300]])).tolist() == [
        [0.09999999403953552, -0.09999999403953552, 0.0, 3.4028234663852886e38]
    ]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("clip", [None, SMALLEST_BOUND, 1.0])
def test_the_smallest_numbers_that_are_left_make_none_that_is_slow(loss, clip, make_terms):
    kind = LOSSES[loss]
    parameter = {"delta": SMALLEST_BOUND} if loss == "huber" else {}
    own = loss_of(make_terms(loss=loss, **parameter))
    # 1 and a number beside it leave as little as any difference does.
    least = np.array([0.0, 1.0, 1.0 + 2**-52, 1.0 - 2**-53, 700.0]) * LEAST_SIZE
    numbers = np.concatenate([least, [1.0, 300.0, 715.0, 800.0]])
    x = np.array([*product(numbers, numbers)])
    targets = (-1.0, 1.0) if kind.has_classes() else (0.0, LEAST_SIZE, 1.0)
    for theta, target in product(product(numbers, -numbers), targets):
        y = np.full(len(x), target)
        products = [x * np.array(theta)]
        margins = products[0].sum(axis=1)
        slopes = own.slopes(margins, y)
        if clip is not None:
            norms = np.maximum(np.abs(x).sum(axis=1), 1e-100)
            slopes = np.minimum(np.abs(slopes), largest_slopes(norms, clip))
        products += [margins, slopes, slopes[:, None] * x, own.values(margins, y)]
        if kind.curvature is not None:
            products.append(own.curvatures(margins, y)[:, None] * x[:, :1] * x)
        for found in products:
            size = np.abs(found)
            assert not ((size > 0) & (size < TINY)).any()


def test_the_logistic_loss_takes_one_way_for_all_margins_and_is_right():
    z = np.concatenate([np.linspace(-60, 60, 2001), [0.0, 1e-310, 1e-16, 715.0, -800.0, 1e300]])
    y = np.where(np.arange(len(z)) % 2, 1.0, -1.0)
    np.testing.assert_allclose(
        Logistic().values(z, y), np.logaddexp(0.0, -y * z), rtol=1e-15, atol=1e-15
    )


def test_cells_are_counted_as_a_search_among_the_edges_would(make_terms):
    rng = np.random.default_rng(0)
    edges = (-1.0, 0.0, 0.25, 2.0)
    margins = np.concatenate([rng.normal(size=500), edges, [np.inf, -np.inf, np.nan]])
    targets = np.where(rng.random(len(margins)) < 0.4, 1.0, -1.0)
    terms = make_terms(loss="logistic", release="validation", **ASKED["validation"], edges=edges)
    terms = replace(terms, difference_bound=None, reference=())
    bins = np.searchsorted(np.array(edges), margins, side="left")
    expected = np.bincount(2 * bins + (targets > 0), minlength=2 * (len(edges) + 1))
    told = tally(margins, targets, None, loss=Logistic(), terms=terms)
    # Half of epsilon is the table's, and one record changes two of its cells.
    np.testing.assert_allclose(told[1:], expected / len(margins) / 4, rtol=1e-14)
