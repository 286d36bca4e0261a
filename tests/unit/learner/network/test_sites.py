"""Many sites are looked at together, and never by more threads than that takes."""

import threading
from types import SimpleNamespace
from typing import Any, cast

from common.errors import UnreachableError
from learner.network.sites import look_at_sites
from learner.training.enrolment import MOST_AT_ONCE


class Away:
    """An owner that is not there, and counts who asks."""

    asking = 0
    most = 0
    lock = threading.Lock()

    def describe(self):
        with self.lock:
            Away.asking += 1
            Away.most = max(Away.most, Away.asking, threading.active_count())
        threading.Event().wait(0.005)
        with self.lock:
            Away.asking -= 1
        raise UnreachableError("away")

    def disconnect(self):
        """Nothing."""


def test_hundreds_of_sites_are_looked_at_by_a_few_threads():
    connections = SimpleNamespace(owners=[Away() for _ in range(400)], requests=None)
    entries = [SimpleNamespace(name=f"o{i}", address=None) for i in range(400)]
    before = threading.active_count()
    seen = look_at_sites(
        cast(Any, connections), cast(Any, entries), identity=None, encrypted=False, deadline=1.0
    )
    assert [str(one.failure) for one in seen] == ["away"] * 400
    assert Away.most <= MOST_AT_ONCE + before
