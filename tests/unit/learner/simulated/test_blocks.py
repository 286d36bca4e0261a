"""Runs in blocks answer as owners of a world do, one by one."""

import numpy as np
import pytest

from common.losses import LOSSES, Regulariser
from common.terms import Records
from learner.simulated import blocks as module
from learner.simulated.blocks import block_gradients
from learner.simulated.groups import PublicGroups
from learner.simulated.problem import Problem
from learner.simulated.surrogates import surrogate_world

P = 3
SIZES = np.array([900.0, 300.0, 600.0])


def worlds_of(name):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(800, P))
    y = x @ [0.5, -0.2, 0.1] + rng.normal(size=800)
    public = PublicGroups(
        problem=Problem(
            loss=LOSSES[name].example(), regulariser=Regulariser(coefficient=1e-5), theta_max=1.0
        ),
        records=Records(
            features=x, targets=np.where(y > 0, 1.0, -1.0) if LOSSES[name].has_classes() else y
        ),
        labels=np.arange(800) % 4,
    )
    return [surrogate_world(public, SIZES, played=60, rng=rng) for _ in range(2)]


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("clip", [None, 0.7])
@pytest.mark.parametrize("groups", [(), ((0, 2), (1,))])
def test_blocks_answer_as_the_worlds_do(name, clip, groups):
    worlds, runs, blocks = worlds_of(name), 4, 3
    asked = np.array([1, 0, 1, 0, 1, 1]) if groups else np.array([2, 0, 1, 1, 0, 2])
    slots = np.repeat(asked, runs)
    thetas = np.random.default_rng(2).uniform(-1, 1, (slots.size, P))
    answers = block_gradients(worlds, blocks=blocks, clip=clip, groups=groups)(slots, thetas)
    for w, world in enumerate(worlds):
        part = slice(w * blocks * runs, (w + 1) * blocks * runs)
        own = world.gradients(clip, groups)
        assert answers[part] == pytest.approx(own(slots[part], thetas[part]), rel=1e-9, abs=1e-12)


def test_each_run_of_a_block_may_have_a_clip_of_its_own():
    worlds, clips = worlds_of("squared"), np.array([0.3, 2.0, 50.0])
    slots = np.repeat([1, 2], 3)
    thetas = np.tile([0.4, 0.1, -0.2], (6, 1))
    answers = block_gradients(worlds, blocks=1, clip=clips)(slots, thetas)
    for w, world in enumerate(worlds):
        for run, clip in enumerate(clips.tolist()):
            one = world.gradients(clip)(slots[3 * w : 3 * w + 1], thetas[:1])[0]
            assert answers[3 * w + run] == pytest.approx(one, rel=1e-9)


@pytest.mark.parametrize("name", ["squared", "logistic"])
@pytest.mark.parametrize("clip", [None, 0.7])
def test_large_matrices_are_not_gathered_and_give_the_same_bits(name, clip, monkeypatch):
    worlds, slots = worlds_of(name), np.repeat([2, 0, 1, 1, 0, 2], 4)
    thetas = np.random.default_rng(2).uniform(-1, 1, (slots.size, P))
    gathered = block_gradients(worlds, blocks=3, clip=clip)(slots, thetas)
    monkeypatch.setattr(module, "GATHERED", 0)
    np.testing.assert_array_equal(
        block_gradients(worlds, blocks=3, clip=clip)(slots, thetas), gathered
    )
