"""Which offers an owner accepts."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import time

import numpy as np
import pytest

from common.config import check_settings
from common.errors import InputError
from owner.calls import PAUSE_THREADS
from owner.offers import MOST_PAUSING, Offers, OfferSettings

PATIENCE = 10.0


def offers(pauses, now=time(12), **settings):
    checked = check_settings(OfferSettings, settings, where="test")
    return Offers(checked, pause=pauses.append, now=lambda: now)


def test_an_owner_without_settings_always_listens():
    pauses = []
    assert all(offers(pauses).accepts("ann") for _ in range(100))
    assert pauses == []


def test_it_accepts_its_share_of_the_offers():
    owner = offers([], probability=0.3)
    accepted = np.mean([owner.accepts("ann") for _ in range(10_000)])
    # Five standard errors; a share of 0.25 or 0.35 would be eleven away.
    assert accepted == pytest.approx(0.3, abs=5 * np.sqrt(0.3 * 0.7 / 10_000))


def test_outside_its_hours_it_declines_and_does_not_pause():
    pauses = []
    hours = ["22:00-06:00", "12:30-13:00"]
    heard = [
        offers(pauses, time(hour, minute), hours=hours, delay=1.0).accepts("ann")
        for hour, minute in ((21, 59), (22, 0), (5, 59), (6, 0), (12, 29), (12, 30), (13, 0))
    ]
    assert heard == [False, True, True, False, False, True, False]
    assert len(pauses) == 3


def test_pauses_are_exponential_with_the_mean_that_is_set():
    pauses = []
    owner = offers(pauses, delay=0.2)
    for _ in range(10_000):
        owner.accepts("ann")
    error = 5 * 0.2 / np.sqrt(10_000)
    assert np.mean(pauses) == pytest.approx(0.2, abs=error)
    assert np.std(pauses) == pytest.approx(0.2, abs=3 * error)


def test_the_callers_own_random_numbers_stay_theirs():
    before = random.getstate()
    assert offers(pauses := [], delay=1.0).accepts("ann")
    assert len(pauses) == 1
    assert random.getstate() == before


def test_no_learner_has_all_pauses_and_those_that_end_make_room():
    over, pausing = threading.Event(), threading.Semaphore(0)

    def pause(_):
        pausing.release()
        assert over.wait(PATIENCE)

    owner = Offers(OfferSettings(delay=1.0), pause=pause)
    with ThreadPoolExecutor(PAUSE_THREADS) as pool:
        first = [pool.submit(owner.accepts, "ann") for _ in range(MOST_PAUSING)]
        assert all(pausing.acquire(timeout=PATIENCE) for _ in first)
        # One more of hers is declined at once, and another learner's finds a thread.
        more = [pool.submit(owner.accepts, "ann") for _ in range(50)]
        other = pool.submit(owner.accepts, "ben")
        assert pausing.acquire(timeout=PATIENCE)
        assert not any(future.result(PATIENCE) for future in more)
        over.set()
        assert all(future.result(PATIENCE) for future in [*first, other])
    assert owner.accepts("ann")


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"probability": 0}, "probability"),
        ({"probability": 1.5}, "probability"),
        ({"delay": -1}, "delay"),
        ({"hours": ["25:00-06:00"]}, "hours"),
        ({"hours": ["night"]}, "hours"),
    ],
)
def test_wrong_settings_are_refused_by_name(settings, key):
    with pytest.raises(InputError, match=key):
        offers([], **settings)
