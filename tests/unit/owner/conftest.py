"""Owners without a network: the object that the service calls, over a real ledger."""

from contextlib import suppress

import pytest

from common.stretches import stretches
from owner.access import Access
from owner.answering import DataOwner
from owner.ledger import Ledger
from owner.mechanism import seeded_noise_factory
from owner.open_study import StudyMaker
from owner.policy import Policy
from owner.shard import PrivateTable, fingerprint


@pytest.fixture
def path(tmp_path):
    """Where a ledger is to be."""
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def blocks_of(monkeypatch):
    """Makes blocks of so many cells, so that a shard of many of them is small."""

    def make(cells):
        monkeypatch.setattr("common.stretches.BLOCK_CELLS", cells)
        stretches.cache_clear()

    yield make
    stretches.cache_clear()


@pytest.fixture
def open_owner(fast_folder, feature_map, table_maker):
    """Opens the owner of 200 records on its ledger; what it opened is closed at the end."""
    opened = []
    table = table_maker(200, seed=1)

    def open_one(
        *,
        ledger="ledger.sqlite",
        pinned=feature_map,
        records=table,
        options=None,
        block=1,
        **policy,
    ):
        agreed = Policy.model_validate(
            {"epsilon_per_study": "10", "epsilon_lifetime": "10"} | policy
        )
        made = {
            "table": PrivateTable(records, where="test", columns=records.columns),
            "policy": agreed,
            "pinned_map": pinned,
            "noise": seeded_noise_factory(1),
            "insecure_noise": True,
        }
        owner = DataOwner(
            name="owner-a",
            ledger=Ledger(
                fast_folder / ledger,
                owner="owner-a",
                fingerprint=fingerprint([records]),
                block=block,
            ),
            maker=StudyMaker(**(made | (options or {}))),
            access=Access(agreed, base=fast_folder),
        )
        opened.append(owner)
        return owner

    yield open_one
    for owner in opened:
        # Most tests stop their owners themselves.
        with suppress(OSError):
            owner.stop()
