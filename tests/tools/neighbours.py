"""Does any replaced record move an exact answer further than the sensitivity counts?

Random feature maps, raw tables of a few records with odd cells, and random studies of every release
and loss, with clips or without, stored in float64 or float32, in the study's units and spellings or
the owner's own. One raw record is replaced, the others change places in half of the cases, and both
shards are asked at models in the box, at its corners too. The change of the answer on the noise's
grid, in L1 norm, is compared with what the noise covers. Nothing of the bounds' own code is used.

Usage: python tests/tools/neighbours.py [--pairs 100000] [--seed 1]
"""

import argparse
import json
import sys
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pandas as pd

from common.features import FeatureMap
from common.losses import LOSSES
from common.privacy import plan_noise
from common.releases import RELEASES, release_of
from common.terms import StudyTerms
from owner.core import exact_answer
from owner.policy import PrivateSource
from owner.shard import PrivateTable
from owner.translation import translated

ODD = (
    *("", "n/a", "inf", "-inf", "1e999", "nan", None, "36 months", "<5", "$3", "10%", "1,234"),
    *("2020-01-05", "Dec-2011", "x" * 2000, "A", "B", "zz", "0", "-0.0", "1e-40", "1e-30"),
    *("1e15", "-1e15", "1e308", "true", "\u0663", "\u202e"),
)
STORAGE = ("float64", "float32")
REPLACED, MODELS, MOST_RECORDS = 12, 3, 5


class Cases:
    """Random studies of random tables, and the furthest that answers moved.

    Args:
      seed: Equal seeds make equal cases.
    """

    def __init__(self, seed):
        self._rng = np.random.default_rng(seed)
        self.count = 0
        self.furthest = defaultdict(float)

    def run(self, pairs):
        """Compare this many pairs of answers, or a few more."""
        while self.count < pairs:
            loss = self._one_of(list(LOSSES))
            feature_map = self._map(has_classes=LOSSES[loss].has_classes())
            terms = self._terms(loss, feature_map.num_features)
            num_records = int(self._rng.integers(1, MOST_RECORDS + 1))
            try:
                release_of(terms).check(terms)
                plan = plan_noise(terms, feature_map.domain, num_records=num_records)
            except ValueError:
                continue
            self._compare(terms, plan, feature_map, num_records)

    def _compare(self, terms, plan, feature_map, num_records):
        """One study of one table, of which records are replaced."""
        names, storage = feature_map.columns_needed, self._one_of(STORAGE)
        source = PrivateSource(
            units={"c0": self._size(2)} if self._rng.random() < 0.3 else {},
            spellings={"y": {"C": "A"}} if self._rng.random() < 0.3 else {},
            storage=storage,
        )
        rows = [[self._cell() for _ in names] for _ in range(num_records)]
        key = (terms.release, terms.loss, "-" if terms.clip is None else "clip", storage)
        for _ in range(REPLACED):
            others = list(rows)
            others[self._rng.integers(num_records)] = [self._cell() for _ in names]
            if self._rng.random() < 0.5:
                others = [others[k] for k in self._rng.permutation(num_records)]
            both = [_shard(each, source, feature_map) for each in (rows, others)]
            for _ in range(MODELS):
                theta = self._theta(feature_map.num_features) * terms.theta_max
                moved = _moved(both, theta, terms) / 2.0**plan.grid_exponent
                # What is no number stays one that is none.
                share = np.maximum(self.furthest[key], moved / plan.sensitivity_units)
                self.furthest[key] = float(share)
                self.count += 1

    def _theta(self, size):
        """A model in the box of half side 1, a corner of it in half of the cases."""
        inside = self._rng.uniform(-1.0, 1.0, size)
        return np.sign(inside) if self._rng.random() < 0.5 else inside

    def _size(self, decades):
        """A positive number between 10 to minus these decades and 10 to these."""
        return float(10 ** self._rng.uniform(-decades, decades))

    def _one_of(self, values):
        return values[self._rng.integers(len(values))]

    def _cell(self):
        kind = self._rng.random()
        if kind < 0.4:
            return self._one_of(ODD)
        return (
            repr(float(self._rng.normal() * self._size(3))) if kind < 0.8 else self._one_of("ABC")
        )

    def _terms(self, loss, num_features):
        release, rng = self._one_of(list(RELEASES)), self._rng
        more = {"delta": self._size(2)} if loss == "huber" else {}
        if release in ("gradient", "newton") and rng.random() < 0.6:
            more["clip"] = self._size(3)
        if release == "newton":
            more["curvature_scale"] = self._size(3)
        box = self._size(3)
        if release == "validation":
            more["loss_bound"] = self._size(2)
            if rng.random() < 0.6:
                reference = self._theta(num_features) * box
                more |= {"difference_bound": self._size(2), "reference": tuple(reference.tolist())}
            if LOSSES[loss].has_classes() and rng.random() < 0.6:
                more["edges"] = tuple(sorted(rng.normal(size=3).tolist()))
        return StudyTerms(
            study_id="s",
            loss=loss,
            theta_max=box,
            feature_map="",
            horizon=1,
            responses=1,
            epsilon=Fraction(1),
            release=release,
            **more,
        )

    def _map(self, *, has_classes):
        """A feature map of all kinds of columns, rotated or not, with a radius or without."""
        rng, d = self._rng, int(self._rng.integers(1, 5))
        p, is_rotated, intercept = d, rng.random() < 0.4, bool(rng.integers(2))
        if is_rotated:
            p = int(rng.integers(1, d + 1))
        target = {"bound": 1.0, "positive": "A", "fill": -1.0}
        if not has_classes:
            target = {"center": float(rng.normal()), "scale": self._size(2)}
            target |= {"bound": self._size(2), "fill": 0.0}
        bounds = [self._size(2) if rng.random() > 0.1 else 0.0 for _ in range(p - 1)]
        content = {
            "source": "t",
            "num_public_records": 10,
            "target": {"name": "y", **target},
            "intercept": intercept,
            "l1_radius": intercept + self._size(2) if rng.random() < 0.5 else None,
            "bounds": [*bounds, self._size(2)],
            "columns": [self._column(j) for j in range(d)],
            "rotation": rng.normal(size=(p, d)).tolist() if is_rotated else None,
        }
        return FeatureMap.from_json(json.dumps(content))

    def _column(self, place):
        kind = self._one_of(("number", "date", "category"))
        codes = {"A": float(self._rng.normal()), "B": 2.5, "36": 1.0} if kind == "category" else {}
        return {
            "name": f"c{place}",
            "kind": kind,
            "shares": kind == "number" and bool(self._rng.integers(2)),
            "codes": codes,
            "unknown": float(self._rng.normal()),
            "fill": float(self._rng.normal()),
            "low": -self._size(2),
            "high": self._size(2),
            "center": float(self._rng.normal()),
            "scale": self._size(2),
        }


def _shard(rows, source, feature_map):
    """The shard that an owner makes of raw rows."""
    raw = pd.DataFrame(list(rows), columns=list(feature_map.columns_needed))
    table = translated(raw, source, where="t")
    return PrivateTable(table, where="t", columns=(), storage=source.storage).shard(feature_map)


def _moved(shards, theta, terms):
    """How far two shards' exact answers lie apart, L1 norm."""
    one, other = (exact_answer(shard, theta, terms) for shard in shards)
    return float(np.abs(one - other).sum())


def main():
    """Compare, and print for each kind of study the furthest that an answer moved."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    typed = parser.parse_args()
    cases = Cases(typed.seed)
    cases.run(typed.pairs)
    for kind, share in sorted(cases.furthest.items()):
        print(f"{' '.join(kind):40} {share:.6f} of the sensitivity")
    worst = float(np.max([*cases.furthest.values()]))
    print(f"{cases.count} pairs of {len(cases.furthest)} kinds; the furthest moved {worst:.6f}")
    return 0 if worst <= 1.0 else 1


if __name__ == "__main__":
    sys.exit(main())
