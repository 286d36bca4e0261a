"""What a clip takes of records that public ones have not shown is known for tails of any kind."""

import numpy as np
import pytest

from learner.planning.tail import Tail

PUBLIC, OTHERS, TABLES = 400, 1_000_000, 100
DRAWS = {
    "even": lambda rng, n: rng.random(n),
    "normal": lambda rng, n: rng.standard_normal(n),
    "Laplace": lambda rng, n: rng.laplace(size=n),
    "Student's": lambda rng, n: rng.standard_t(4, n),
}


@pytest.mark.parametrize("name", DRAWS)
def test_as_much_is_lost_in_the_mean_as_is_expected(name):
    rng = np.random.default_rng(1)
    others = np.sort(np.abs(DRAWS[name](rng, OTHERS)))
    expected, lost = [], []
    for _ in range(TABLES):
        tail = Tail(np.abs(DRAWS[name](rng, PUBLIC))[:, None], most=np.inf)
        longest = tail.norms.max()
        expected.append(tail.lost(longest)[0])
        beyond = others[np.searchsorted(others, longest) :]
        lost.append(np.sum(beyond - longest) / OTHERS)
    assert 0.5 < np.mean(expected) / np.mean(lost) < 2.0


def test_the_longer_the_clip_the_less_is_lost_and_never_beyond_what_is_admissible():
    tail = Tail(np.random.default_rng(1).standard_t(3, (300, 2)), most=40.0)
    longest = tail.norms.max()
    assert longest < tail.farthest <= 40.0
    clips = np.linspace(longest, tail.farthest, 5)
    lost = [float(np.linalg.norm(tail.lost(clip))) for clip in clips]
    assert lost == sorted(lost, reverse=True)
    assert lost[0] > lost[-1] > 0.0
    assert not tail.lost(40.0).any()
    # What a shorter clip takes of public records they show themselves.
    assert np.array_equal(tail.lost(longest / 2), tail.lost(longest))
    held = Tail(tail.gradients, most=float(longest))
    assert held.farthest == longest
    assert not held.lost(longest).any()


@pytest.mark.parametrize("gradients", [np.zeros((9, 2)), np.ones((1, 2)), np.ones((30, 1))])
def test_gradients_that_are_alike_have_no_tail(gradients):
    tail = Tail(gradients, most=9.0)
    assert tail.farthest == tail.norms.max()
    assert not tail.lost(0.0).any()
