from __future__ import annotations

from fractions import Fraction

import pytest

from common.config import check_address, parse_epsilon


@pytest.mark.parametrize(
    ("said", "meant"),
    [(0.1, Fraction(1, 10)), ("1/3", Fraction(1, 3)), (1e-5, Fraction(1, 10**5)), ("1e49", 10**49)],
)
def test_a_budget_is_taken_as_it_is_written(said: object, meant: Fraction) -> None:
    assert parse_epsilon(said) == meant


@pytest.mark.parametrize(
    "said", ["1e999999999", "1e-999999999", "1E+0000000300", 1e300, "9" * 61, f"1/1{'0' * 60}"]
)
def test_a_budget_too_long_for_the_wire_is_refused_at_once(said: object) -> None:
    """Its digits would fill the memory, and no learner could read what is left of it."""
    with pytest.raises(ValueError, match="at most 60 digits"):
        parse_epsilon(said)


@pytest.mark.parametrize("said", [0, -1, "0/5", "1/0", "much", "inf", float("nan"), True, None, []])
def test_a_budget_that_is_no_number_above_zero_is_refused(said: object) -> None:
    with pytest.raises(ValueError, match="expected a number greater than 0"):
        parse_epsilon(said)


@pytest.mark.parametrize("address", ["", "host", ":1", "host:", "host:65536", "host:1x", "a b:1"])
def test_an_address_has_a_host_and_a_port(address: str) -> None:
    with pytest.raises(ValueError, match="expected HOST:PORT"):
        check_address(address)
    assert check_address("owner.example:65535") == "owner.example:65535"
