"""The wire's one table of statuses, its headers, and words of the far side."""

import grpc
import pytest

from common import errors
from common.errors import CoprivError, OwnerFailedError, RefusedError
from common.texts import printable
from common.wire import error_numbered, error_of, retry_after, status_of


def every_refusal():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    return [kind for kind in kinds if issubclass(kind, RefusedError)]


@pytest.mark.parametrize("kind", every_refusal())
def test_every_refusal_has_a_status_that_is_not_a_failure(kind):
    error = kind.__new__(kind)
    assert status_of(error) not in {grpc.StatusCode.INTERNAL, grpc.StatusCode.OK}
    read = error_of(status_of(error))
    assert issubclass(kind, read) or status_of(error) is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("kind", every_refusal())
def test_a_refusal_of_a_kind_to_come_has_its_parents_status(kind):
    later = type("LaterError", (kind,), {})
    assert status_of(later.__new__(later)) is status_of(kind.__new__(kind))


def test_every_number_of_a_status_is_some_error():
    for number in (-1, *range(20), 2**31 - 1):
        assert issubclass(error_numbered(number), CoprivError)
    assert error_numbered(99) is OwnerFailedError


@pytest.mark.parametrize(
    "value", ["9" * 400, "-1", "1.5", "", "١٢", "1e3", " 1", "0x10", "NaN", "1\n"]
)
def test_a_time_to_wait_that_is_none_is_passed_over(value):
    assert retry_after([("retry-after-ms", value)]) is None


def test_words_of_the_far_side_cannot_steer_a_terminal():
    said = printable("\x1b[2J\x07ok\u202e\u2028\x00" + "x" * 10_000)
    assert said.isprintable()
    assert len(said) == 400
    assert "ok" in said
