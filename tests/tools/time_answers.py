"""Does the time that an answer takes tell how many records have a value?

Three shards are the same but for one feature, which no record has, or every second one at random,
or each of them. Whoever asks may choose the model, so each shard is asked at models that make
numbers which processors or libraries compute slowly with: subnormal ones, products that underflow,
exponentials that do, margins that overflow. For each kind of study and model the quickest of many
answers of each shard are compared, by turns. Other work on the machine makes an answer slow, never
quick: what seems too slow is asked on, ten times as often, and only what stays slow is told.

Usage: python tests/tools/time_answers.py [--records 40000] [--rounds 30] [--limit 1.2]
"""

import argparse
import math
import sys
import time
from dataclasses import replace
from fractions import Fraction

import numpy as np

from common.terms import Records, StudyTerms
from owner.core import exact_answer, warm
from owner.shards import Shard

NUM_FEATURES = 10
SHARES = (0.0, 0.5, 1.0)
BOX = 1e100
# What seems too slow is asked this many times as often.
PATIENCE = 10
# This many responses are worth compiled code; one is not.
MANY = 10**6
# What the model has for the feature, and for all others.
MODELS = {
    "zero": (0.0, 0.0),
    "subnormal": (1e-310, 0.0),
    "subnormal everywhere": (1e-310, 1e-310),
    "products that underflow": (1e-160, 1e-160),
    "usual": (0.5, 0.1),
    "sure": (30.0, 0.0),
    "an exponential that is subnormal": (715.0, 0.0),
    "sure of the other class": (-715.0, 0.0),
    "an exponential that is 0": (800.0, 0.1),
    "losses that overflow": (1e99, 1e99),
}


def kinds():
    """Studies of each release, loss, clip and way to add."""
    usual = StudyTerms(
        study_id="time",
        loss="squared",
        theta_max=BOX,
        feature_map="",
        horizon=MANY,
        responses=MANY,
        epsilon=Fraction(1),
    )
    for loss in ("squared", "huber", "logistic", "hinge"):
        own = replace(usual, loss=loss, delta=0.5 if loss == "huber" else None)
        for clip in (None, 5.0, 1e-99):
            clipped = replace(own, clip=clip)
            words = "" if clip is None else f", clip {clip:g}"
            yield f"{loss}{words}, compiled", clipped
            yield f"{loss}{words}", replace(clipped, responses=1)
            if loss in ("squared", "huber", "logistic"):
                newton = replace(clipped, release="newton", curvature_scale=1.0, responses=1)
                yield f"newton, {loss}{words}", newton
        edges = () if loss in ("squared", "huber") else (-4.0, -1.0, 0.0, 1.0, 4.0)
        yield (
            f"validation, {loss}",
            replace(
                own,
                release="validation",
                responses=1,
                loss_bound=4.0,
                difference_bound=1.0,
                reference=(0.0,) * NUM_FEATURES,
                edges=edges,
            ),
        )


def shard(share, *, records, classes):
    """Records of which a share has the last feature, alike in all others."""
    rng = np.random.default_rng(7)
    features = rng.uniform(-1, 1, size=(records, NUM_FEATURES))
    features[:, -1] = rng.random(records) < share
    # Targets, too, that are as small as a table can have them.
    targets = np.where(rng.random(records) < 0.5, 1.0, -1.0 if classes else 0.0)
    return Shard(Records(features=features, targets=targets))


def quickest(terms, theta, shards, *, rounds, limit):
    """How many times as long one of the shards takes as another."""
    least = [math.inf] * len(shards)
    for turn in range(PATIENCE * rounds):
        for k, one in enumerate(shards):
            began = time.perf_counter()
            with np.errstate(all="ignore"):
                exact_answer(one, theta, terms)
            least[k] = min(least[k], time.perf_counter() - began)
        if turn + 1 >= rounds and max(least) <= limit * min(least):
            break
    return max(least) / min(least)


def compared(records, *, rounds, limit):
    """Of each kind of study the model at which the shards' times differ most, and how much."""
    for name, terms in kinds():
        classes = terms.loss in ("logistic", "hinge")
        shards = [shard(share, records=records, classes=classes) for share in SHARES]
        for one in shards:
            warm(one, terms)
        ratios = {}
        for model, (own, others) in MODELS.items():
            theta = np.full(NUM_FEATURES, others)
            theta[-1] = own
            ratios[model] = quickest(terms, theta, shards, rounds=rounds, limit=limit)
        worst = max(ratios, key=lambda model: ratios[model])
        yield name, worst, ratios[worst]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--limit", type=float, default=1.2)
    options = parser.parse_args()
    largest = 0.0
    for name, model, ratio in compared(options.records, rounds=options.rounds, limit=options.limit):
        largest = max(largest, ratio)
        print(f"{name:32} {ratio:6.2f}  at a model that is {model}", flush=True)
    print(f"the slowest shard takes at most {largest:.2f} times as long as the quickest")
    sys.exit(0 if largest <= options.limit else 1)


if __name__ == "__main__":
    main()
