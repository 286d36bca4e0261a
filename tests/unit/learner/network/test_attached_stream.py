"""An owner's stream as the learner keeps it: what counts of what arrives on it."""

import logging
import threading

from common import codec
from common.pb import copriv_pb2 as pb
from learner.network.attached_owner import AttachedOwner, OwnerStream

STRAY = pb.OwnerMessage(call=10**6, closed=pb.CloseSummary())


def test_what_crosses_with_the_end_of_a_stream_is_no_fault(caplog):
    """An owner may open one stream after another: none that it left may fill our log."""
    changed = threading.Condition()
    owner = AttachedOwner("north", changed=changed, deadline=1.0, patience=1.0)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            left, now = OwnerStream("north", changed), OwnerStream("north", changed)
            owner.attach(left)
            for _ in range(16):
                left.take(STRAY)
            owner.attach(now)
            left.take(STRAY)
            left.take(codec.Unreadable())
    assert left.fault is None
    assert owner.fault is None
    assert owner.stream is now
    assert not caplog.records
    now.take(codec.Unreadable())
    assert (
        owner.fault
        == "owner north sent bytes that are no message of this protocol; ask its operator"
    )
